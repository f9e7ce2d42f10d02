"""Losses of one of several classes: softmax cross-entropy and exponential losses; the core
computes them.

**Softmax.** The Hessian of a row is ``diag(p) - p p'``, which ``hessian="full"`` uses unchanged;
otherwise trees use a diagonal in its place, which decides the length of a step. `softmax_hessian`
chooses it:

- ``"friedman"``: ``f p (1 - p)``, f = K / (K - 1) (Friedman, 2001, algorithm 6; the choice of
  LightGBM and C-GB);
- ``"diagonal"``: f = 1, the true diagonal; ignores that all outputs move at once, so its steps are
  longest (TFBT);
- ``"upper"``: f = 2, an upper bound of the Hessian (Böhning and Lindsay, 1988; XGBoost up to 3.4);
- ``"residual"``: ``|p - y|``, one class's gradient (XGBoost from 2026-09); well fitted rows count
  for little. For shares ``y`` it is the mean over classes, ``y (1 - p) + (1 - y) p``.

**Shares.** A row whose target is shares of the classes counts as one row per class, weighted by the
share: ``g = p - y``, and shares of 0 and 1 give the bits of class ids.

**Exponential losses.** The code of class c is the vector ``e_c - 1/K``: proportional to (1,
-1/(K-1), ..., -1/(K-1)), the encoding of SAMME and GAMBLE, and a corner of a regular simplex, the
codeword of GD-MCBoost. The entries of each code sum to zero, so every gradient does. Therefore
leaf values sum to zero without a constraint if the outputs of a leaf share their Hessian
(``leaf_hessian`` "none" or "shared"): the constraint of SAMME needs no multiplier, and
GD-MCBoost's predictor of K - 1 dimensions, seen through its codewords, is this one of K. The same
holds for ``"full"`` with ``reg_lambda > 0``, since both losses are flat along (1, ..., 1), but not
for ``"diagonal"``. Raw scores are logits: probabilities are their softmax. In SAMME's paper scores
are (K - 1) times as large.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

import polyleaf._core as _core
from polyleaf.objectives._utils import Floats
from polyleaf.objectives.base import (
    Array,
    BoundObjective,
    FloatArray,
    Objective,
    as_weight,
    find_core_name,
)
from polyleaf.objectives.registry import register
from polyleaf.runtime.checks import require_choice
from polyleaf.runtime.context import Context
from polyleaf.runtime.row_data import RowData
from polyleaf.user_data.read_target import check_shares

SOFTMAX_HESSIANS = ("friedman", "diagonal", "residual", "upper")


@dataclass(frozen=True)
class MulticlassObjective(Objective):
    """A loss of the scores ``(K,)`` of a row and its class id.

    Parameters
    ----------
    n_classes : int, optional
        Default: the largest class id of the data, plus one.
    """

    target_kinds: ClassVar[tuple[str, ...]] = ("classes",)
    parameters: ClassVar[Mapping[str, str]] = {"n_outputs": "n_classes", "num_class": "n_classes"}
    default_metric: ClassVar[str] = "mlogloss"
    separable: ClassVar[bool] = False
    probabilities: ClassVar[bool] = True

    n_classes: int | None = None

    def __post_init__(self) -> None:
        n_classes = self.n_classes
        if n_classes is not None and (not isinstance(n_classes, int) or n_classes < 2):
            raise ValueError(
                f"Objective {self.name!r}: n_classes must be an integer >= 2; got "
                f"{self.n_classes!r}."
            )

    def n_scores(self, n_targets: int) -> int:
        return self.n_classes or n_targets

    def use_expected_hessian(self) -> MulticlassObjective:
        """Return the objective with the expectation of its Hessian over classes, if known."""
        return self

    def core_loss(self, n_classes: int) -> _core.ClassLoss:
        """Return the core's loss of this name for `n_classes` classes."""
        return _core.ClassLoss(find_core_name(type(self), _core.ClassLoss.available()), {})

    @abstractmethod
    def best_constant(self, shares: Floats) -> Floats:
        """Return the constant scores ``(K,)`` that minimise the loss for the class `shares`
        ``(K,)``, all > 0."""

    @property
    def link(self) -> str:
        return "softmax"

    def transform(self, scores: FloatArray) -> FloatArray:
        exponentials = np.exp(scores - scores.max(axis=1, keepdims=True))
        exponentials /= exponentials.sum(axis=1, keepdims=True)
        return exponentials

    def bind(self, rows: RowData) -> BoundMulticlassObjective:
        label = np.asarray(rows.target)
        if self.takes_shares and label.ndim == 2 and label.dtype.kind == "f":
            return self._bind_shares(rows.replace(target=np.ascontiguousarray(label, np.float32)))
        is_counted = label.size > 0 or self.n_classes
        if label.ndim != 1 or label.dtype.kind not in "iu" or not is_counted:
            raise ValueError(
                f"Objective {self.name!r} needs integer class ids of shape (n,); got {label.dtype} "
                f"of shape {label.shape}."
            )
        n_classes = self.n_classes or int(label.max()) + 1
        if n_classes < 2:
            raise ValueError(
                f"Objective {self.name!r} needs at least two classes; every row of "
                "y has the same class."
            )
        if label.size > 0 and (label.min() < 0 or label.max() >= n_classes):
            raise ValueError(
                f"Class ids must lie in 0 .. {n_classes - 1}; got {label.min()} .. {label.max()}."
            )
        label = np.ascontiguousarray(label, np.int32)
        rows = rows.replace(target=label, weight=as_weight(rows))
        return BoundMulticlassObjective(self, rows, n_classes)

    def _bind_shares(self, rows: RowData) -> BoundMulticlassObjective:
        n_classes = rows.target.shape[1]
        if n_classes != (self.n_classes or n_classes) or n_classes < 2:
            raise ValueError(
                f"Objective {self.name!r} needs shares of {self.n_classes or 'two or more'} "
                f"classes; got {n_classes} columns."
            )
        check_shares(rows.target, "y")
        return BoundMulticlassObjective(self, rows.replace(weight=as_weight(rows)), n_classes)


class BoundMulticlassObjective(BoundObjective):
    """A `MulticlassObjective` bound to data: ``target`` is int32 ``(n,)``, or shares ``(n, K)``."""

    objective: MulticlassObjective

    def __init__(self, objective: MulticlassObjective, rows: RowData, n_classes: int) -> None:
        super().__init__(objective, rows, n_classes)
        self._loss = objective.core_loss(n_classes)

    def base_score(self, n_threads: int | Context = 1) -> Floats:
        """Return the best constant for the classes' shares of the weight; a class without rows
        counts as half a row."""
        weight = np.ones((self.n_rows, 1), np.float32) if self.weight is None else self.weight
        count = (
            _core.exact_totals(weight, None, self.target, self.n_outputs, n_threads)[0, :, 0]
            if self.target.ndim == 1
            else _core.exact_totals(self.target, weight, None, 1, n_threads)[0, 0]
        )
        if not count.any():
            return np.zeros(self.n_outputs)
        share = count / math.fsum(count)
        absent = 0.5 / (self.count_rows(n_threads) + 1.0)
        return self.objective.best_constant(np.where(share > 0, share, absent))

    @property
    def adds_trees(self) -> bool:
        return type(self).derivatives is BoundMulticlassObjective.derivatives

    def derivatives(
        self, raw: Array, g: Array, h: Array | None, n_threads: int = 1, *tree: Array
    ) -> None:
        assert h is not None  # the Hessian is never constant
        base = self.kernel_base_score
        _core.class_derivatives(
            self._loss, raw, self.target, self.weight, base, g, h, n_threads, *tree
        )

    def expected_derivatives(self, raw: Array, n_threads: int = 1) -> tuple[FloatArray, FloatArray]:
        bound = type(self)(self.objective.use_expected_hessian(), self.rows, self.n_outputs)
        bound.set_base_score(self.base)
        return BoundObjective.expected_derivatives(bound, raw, n_threads)

    def make_device_loss(self, device: _core.Device) -> _core.DeviceLoss | None:
        is_overridden = type(self).derivatives is not BoundMulticlassObjective.derivatives
        is_on_host = is_overridden or self.target.ndim == 2
        if is_on_host or not _core.DeviceLoss.supports(self._loss):
            return None
        return _core.DeviceLoss(
            device, self._loss, self.target, self.weight, self.kernel_base_score
        )

    def full_hessian(self, raw: Array, g: Array, h: Array, n_threads: int = 1) -> None:
        _core.class_hessians(
            self._loss, raw, self.target, self.weight, self.kernel_base_score, g, h, n_threads
        )

    def loss(self, raw: Array, n_threads: int = 1) -> float:
        return _core.class_mean(
            self._loss, raw, self.target, self.weight, self.kernel_base_score, n_threads
        )


@register
@dataclass(frozen=True)
class Softmax(MulticlassObjective):
    """Softmax cross-entropy ``ln sum_k e^(score_k) - score_y``, of classes or of their shares.

    Parameters
    ----------
    n_classes : int, optional
        Default: the largest class id of the data, plus one.
    softmax_hessian : {"friedman", "diagonal", "residual", "upper"}, default "residual"
        Diagonal that stands for the Hessian; at least 1e-16, since ``p (1 - p)`` underflows.
    """

    name: ClassVar[str] = "softmax"
    takes_shares: ClassVar[bool] = True
    aliases: ClassVar[tuple[str, ...]] = (
        "multi:softprob",
        "multi:softmax",
        "multiclass",
        "multi_logloss",
        "mlogloss",
        "categorical_crossentropy",
    )
    parameters: ClassVar[Mapping[str, str]] = {
        **MulticlassObjective.parameters,
        "softmax_hessian": "softmax_hessian",
    }

    softmax_hessian: str = "residual"

    def __post_init__(self) -> None:
        super().__post_init__()
        require_choice(
            self.softmax_hessian, SOFTMAX_HESSIANS, "Objective 'softmax': softmax_hessian"
        )

    def use_expected_hessian(self) -> Softmax:
        return replace(self, softmax_hessian="diagonal")

    def core_loss(self, n_classes: int) -> _core.ClassLoss:
        factors = {"friedman": n_classes / (n_classes - 1.0), "diagonal": 1.0, "upper": 2.0}
        # The core takes 0 for "residual".
        return _core.ClassLoss("softmax", {"factor": factors.get(self.softmax_hessian, 0.0)})

    def best_constant(self, shares: Floats) -> Floats:
        return _core.log(shares)


@dataclass(frozen=True)
class _ExponentialLoss(MulticlassObjective):
    """An exponential loss of class codes."""

    def best_constant(self, shares: Floats) -> Floats:
        """Return centred log shares: the minimum has the shares as softmax of its scores."""
        scores = _core.log(shares)
        return scores - math.fsum(scores) / len(scores)


@register
@dataclass(frozen=True)
class Exponential(_ExponentialLoss):
    """Multiclass exponential loss ``e^(mean of the scores - score_y)``.

    It is ``exp(-<code, scores> / K)`` of Zhu, Zou, Rosset and Hastie, "Multi-class AdaBoost",
    Statistics and Its Interface 2, 2009 (SAMME, first order), and of Huang, Ertekin, Song, Zha and
    Giles, "Efficient multiclass boosting classification with active learning", SIAM Data Mining,
    2007 (GAMBLE; second order), in scores divided by K - 1. The Hessian of a row has rank one: the
    loss times the code's outer product.
    """

    name: ClassVar[str] = "exponential"


@register
@dataclass(frozen=True)
class ExponentialMargin(_ExponentialLoss):
    """Exponential loss of margins ``sum over k != y of e^((score_k - score_y) / 2)``.

    Saberian and Vasconcelos, "Multiclass boosting: theory and algorithms", NIPS 2011 (GD-MCBoost),
    where ``score_k = <codeword_k, f>`` with simplex codewords. AdaBoost's loss for two classes.
    """

    name: ClassVar[str] = "exponential_margin"
