"""Objectives that learn a distribution: two scores for each column of the target, where it lies and the
logarithm of how far it spreads. Owns the binding of such an objective to data; must not know any particular
one (see spread.py).

The loss is the negative logarithm of the likelihood, the curvature Fisher's information: diagonal, because
the two parameters of each family are chosen so. A leaf's step is then the natural gradient of its rows
(Amari, 1998; Duan et al., "NGBoost: natural gradient boosting for probabilistic prediction", ICML 2020),
without a matrix for each row.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, fields
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

import polyleaf._core as _core
from polyleaf.distributions import Distribution
from polyleaf.objectives.base import (
    Array,
    BoundObjective,
    FloatArray,
    Objective,
    as_matrix,
    as_weight,
)
from polyleaf.objectives.packed_symmetric import packed_diagonal

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class LikelihoodObjective(Objective):
    """A likelihood of a target and its two scores.

    Attributes
    ----------
    core_name : str
        Which of the core's likelihoods it is.
    parameter_names : (str, str)
        What the scores of one target are called.
    moves : bool
        It depends on the first score less what is learned alone.
    cuts : (float, float)
        Where the second score is cut: spreads beyond say nothing, and their squares would overflow.
    """

    separable: ClassVar[bool] = False
    has_distribution: ClassVar[bool] = True
    default_metric: ClassVar[str] = "nll"
    core_name: ClassVar[str]
    parameter_names: ClassVar[tuple[str, str]]
    moves: ClassVar[bool] = False
    cuts: ClassVar[tuple[float, float]] = (-30.0, 30.0)

    @property
    def score_names(self) -> tuple[str, ...]:
        return self.parameter_names

    def outputs_per_target(self) -> int:
        return 2

    @property
    def offset_mask(self) -> tuple[bool, ...]:
        return (True, False)

    def core_likelihood(self) -> _core.Likelihood:
        """The likelihood as the core computes it: the one of its `core_name`."""
        numbers = {field.name: float(getattr(self, field.name)) for field in fields(self)}
        return _core.Likelihood(
            self.core_name, {"lowest": self.cuts[0], "highest": self.cuts[1], **numbers}
        )

    @abstractmethod
    def check_target(self, target: FloatArray, weight: Array | None) -> None:
        """Refuse targets outside the domain of the loss.

        Parameters
        ----------
        target : float32 or float64 (n, n_targets)
        weight : float32 (n, 1) or (n, n_targets), or None
            Targets of weight 0 do not count.

        Raises
        ------
        ValueError
            Where one that counts is outside.
        """

    @abstractmethod
    def make_distribution(self, first: Floats, second: Floats) -> Distribution:
        """The distributions with these scores.

        Parameters
        ----------
        first, second : float64, of one shape
            Scores of each distribution; the second ones are cut already.
        """

    @abstractmethod
    def best_scores(self, y: Floats, weight: Floats) -> tuple[float, float]:
        """The two scores under which the targets of one column are most likely.

        Parameters
        ----------
        y, weight : float64 (m,)
            Targets with weights above 0.
        """

    def learned(self, target: FloatArray) -> FloatArray:
        """The `target`, (n, n_targets), as the core sees it."""
        return target

    def distribution(self, scores: FloatArray) -> Distribution:
        both = np.asarray(scores, np.float64)
        return self.make_distribution(both[:, ::2], np.clip(both[:, 1::2], *self.cuts))

    def transform(self, scores: FloatArray) -> FloatArray:
        return self.distribution(scores).mean()

    def bind(self, target: Array, weight: Array | None) -> BoundLikelihoodObjective:
        target = as_matrix(target)
        weight = as_weight(weight, *target.shape)
        self.check_target(target, weight)
        return BoundLikelihoodObjective(self, target, weight)


class BoundLikelihoodObjective(BoundObjective):
    """A `LikelihoodObjective` bound to data: ``target`` is float32 or float64 ``(n, T)``, weights are ``(n,
    1)`` or ``(n, T)``."""

    objective: LikelihoodObjective

    def __init__(
        self, objective: LikelihoodObjective, target: FloatArray, weight: Array | None
    ) -> None:
        super().__init__(objective, target.shape[0], 2 * target.shape[1], weight)
        self.target = target
        self._likelihood = objective.core_likelihood()
        if weight is not None:  # what is not there need not be in the domain
            target = np.where(weight > 0, target, 1.0)
        self._learned = objective.learned(target)
        self._set_kernel_target()

    def _set_kernel_target(self) -> None:
        # The base score is taken off the target in float64, where the loss depends on the difference alone.
        target: Array = self._learned
        if self._is_moved:
            target = target - self.base[::2]
        self._kernel_target = np.ascontiguousarray(target, dtype=np.float32)

    @property
    def _is_moved(self) -> bool:
        return self.objective.moves and bool(self.base.any())

    @property
    def offset(self) -> NDArray[np.float32]:
        offset = super().offset
        if self._is_moved:
            offset[::2] = 0.0
        return offset

    def set_base_score(self, base: Array) -> None:
        super().set_base_score(base)
        self._set_kernel_target()

    def base_score(self, n_threads: int = 1) -> Floats:
        base = np.zeros((self.n_outputs // 2, 2))
        for k, y in enumerate(self.target.T.astype(np.float64)):
            weight = np.ones(self.n_rows) if self.weight is None else self._weight_of(k)
            if weight.any():
                base[k] = self.objective.best_scores(y[weight > 0], weight[weight > 0])
        return base.reshape(-1)

    def _weight_of(self, k: int) -> Floats:
        assert self.weight is not None
        return self.weight[:, k if self.weight.shape[1] > 1 else 0].astype(np.float64)

    def hessian_shape(self) -> tuple[int, int]:
        return (self.n_rows, self.n_outputs)

    def derivatives(self, raw: Array, g: Array, h: Array | None, n_threads: int = 1) -> None:
        assert h is not None  # the curvature is never constant
        _core.likelihood_derivatives(
            self._likelihood, raw, self._kernel_target, self.weight, self.offset, g, h, n_threads
        )

    def full_hessian(self, raw: Array, g: Array, h: Array, n_threads: int = 1) -> None:
        diagonal = np.empty(self.hessian_shape(), np.float32)
        self.derivatives(raw, g, diagonal, n_threads)
        h[...] = 0.0
        h[:, packed_diagonal(self.n_outputs)] = diagonal

    def loss(self, raw: Array, n_threads: int = 1) -> float:
        losses = -self.objective.distribution(raw + self.base).logpdf(self.target)
        if self.weight is None:
            return float(losses.mean())
        weight = np.broadcast_to(self.weight, losses.shape).astype(np.float64)
        total = weight.sum()
        return float(np.where(weight > 0, losses * weight, 0.0).sum() / total) if total > 0 else 0.0
