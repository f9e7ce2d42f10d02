"""What an objective is. Owns the contract; must not know trees, boosting or any particular loss.

The life of an objective:

1. ``get_objective(name_or_callable, **parameters)`` makes one (``objectives/__init__.py``). It is frozen and
   holds parameters only, never data.
2. ``objective.prepare(target, weight)`` checks the target's domain and binds it: a `Problem`. A validation
   set is a second `Problem` of the same objective.
3. ``problem.base_score()`` is the best constant for the training rows.
4. ``problem.set_base(base)``: raw scores are relative to it from here on (every problem gets the training
   set's base).
5. ``problem.curvature_shape()`` says which array ``h`` to allocate, or that none is needed.
6. Each round ``problem.derivatives(raw, g, h)`` writes the gradient and the curvature at the raw scores; or
   ``problem.full_curvature(raw, g, h)`` the gradient and the Hessian of each row, where one is wanted.
7. Where ``problem.renews_leaves``, ``problem.renew_leaves(...)`` gives the leaf values of a tree, which
   Newton's step cannot (medians, quantiles).
8. ``problem.loss(raw)`` is the mean training loss, whose derivative ``g`` is.
9. ``objective.transform(raw + base)`` turns scores into predictions; ``to_dict`` keeps the objective with a
   model.

Shapes: ``n`` rows, ``K`` outputs. Raw scores are float32 ``(n, K)``; the base score is float64 ``(K,)``. A
Hessian is packed: its lower triangle row by row, entry (i, j), j <= i, at ``i (i + 1) / 2 + j``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.floating[Any]]
Array = NDArray[Any]


@dataclass(frozen=True)
class Objective(ABC):
    """A loss with its link and its parameters.

    Attributes
    ----------
    name : str
        Canonical name; `objective_from_dict` finds the class by it.
    constant_curvature : bool
        The curvature is 1 for every unweighted row and output, so no array is kept for it.
    shared_curvature : bool
        One curvature per row serves all outputs.
    separable : bool
        The loss is a sum over outputs.
    full_curvature : bool
        All second derivatives exist: `Problem.full_curvature` gives them. It does where the loss is
        separable; another loss overrides it, or says False here.
    class_ids : bool
        The target is int32 class ids ``(n,)``, not float ``(n, K)``.
    probabilities : bool
        `transform` gives probabilities.
    zero_base : float or None
        The base score at which a target of 0 has the derivative 0, so that rows with few targets that are not
        0 have few derivatives; None: there is none, or the loss cannot do without all outputs of a row.
    default_metric : str
        Name of the metric evaluated when the user names none.
    """

    name: ClassVar[str]
    constant_curvature: ClassVar[bool] = False
    shared_curvature: ClassVar[bool] = False
    separable: ClassVar[bool] = True
    full_curvature: ClassVar[bool] = True
    class_ids: ClassVar[bool] = False
    probabilities: ClassVar[bool] = False
    zero_base: ClassVar[float | None] = None
    default_metric: ClassVar[str]

    @abstractmethod
    def prepare(self, target: Array, weight: Array | None) -> Problem:
        """Bind the objective to data.

        Parameters
        ----------
        target : float32 or float64 (n, K), or int32 class ids (n,)
            float64 is kept until the base score has been taken off. Missing targets are 0 with weight 0.
        weight : None, or float32 (n,) or (n, K)

        Raises
        ------
        ValueError
            When a target with positive weight lies outside the domain of the loss, or shapes do not fit.
        """

    def transform(self, scores: FloatArray) -> FloatArray:
        """Predictions ``(n, K)`` from scores ``raw + base``, float64 ``(n, K)``. The input is not changed."""
        return scores

    def metric_parameters(self) -> dict[str, Any]:
        """Parameters that `default_metric` takes over from this objective."""
        return {}

    def to_dict(self) -> dict[str, Any]:
        """The objective as JSON values: its name and parameters."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {"name": self.name} | {k: list(v) if isinstance(v, tuple) else v for k, v in values.items()}


class Problem(ABC):
    """An objective bound to one data set.

    Attributes
    ----------
    objective : Objective
    weight : float32 (n, 1) or (n, K), or None
    base : float64 (K,)
    n_rows, n_outputs : int
    """

    def __init__(self, objective: Objective, n_rows: int, n_outputs: int, weight: Array | None) -> None:
        self.objective = objective
        self.n_rows = n_rows
        self.n_outputs = n_outputs
        self.weight = weight
        self.base = np.zeros(n_outputs)

    @abstractmethod
    def base_score(self, n_threads: int = 1) -> NDArray[np.float64]:
        """The constant scores ``(K,)`` that minimise the weighted loss (for a Huber loss: the median)."""

    def set_base(self, base: Array) -> None:
        """Take raw scores as relative to `base` ``(K,)`` from now on."""
        base = np.asarray(base, dtype=np.float64)
        if base.shape != (self.n_outputs,) or not np.isfinite(base).all():
            raise ValueError(
                f"The base score must be {self.n_outputs} finite numbers, one for each output; got {base!r}."
            )
        self.base = base

    @property
    def offset(self) -> NDArray[np.float32]:
        """What kernels add to raw scores: the base score, in float32."""
        return self.base.astype(np.float32)

    def curvature_shape(self) -> tuple[int, int] | None:
        """Shape of ``h``: ``(n, K)``, or ``(n, 1)`` where it serves all outputs, or None where it is 1
        throughout."""
        return (self.n_rows, self.n_outputs)

    @abstractmethod
    def derivatives(self, raw: Array, g: Array, h: Array | None, n_threads: int = 1) -> None:
        """Write the gradient and the curvature, times the weights, at raw scores float32 ``(n, K)``.

        Parameters
        ----------
        raw, g : float32 (n, K), C order
        h : float32, shaped as `curvature_shape` says, or None where it says None
        """

    def full_curvature(self, raw: Array, g: Array, h: Array, n_threads: int = 1) -> None:
        """Write the gradient and all second derivatives, times the weights, at raw scores float32 ``(n, K)``.

        Parameters
        ----------
        raw, g : float32 (n, K), C order
        h : float32 (n, K (K + 1) / 2), C order
            The Hessian of each row, packed. Of a separable loss: its curvature on the diagonal, zeros
            elsewhere.

        Raises
        ------
        ValueError
            Where the objective has no full Hessian.
        """
        if not (self.objective.full_curvature and self.objective.separable):
            raise ValueError(
                f'Objective {self.objective.name!r} has no full Hessian, which curvature="full" and '
                'leaf_curvature="full" need; use "diagonal".'
            )
        shape = self.curvature_shape()
        diagonal = None if shape is None else np.empty(shape, np.float32)
        self.derivatives(raw, g, diagonal, n_threads)
        h[...] = 0.0
        h[:, packed_diagonal(self.n_outputs)] = 1.0 if diagonal is None else diagonal

    @abstractmethod
    def loss(self, raw: Array, n_threads: int = 1) -> float:
        """Weighted mean of the loss over rows (and outputs, where it is a sum over them).

        ``g`` is its derivative times the sum of the weights. Terms that do not depend on the scores are left
        out. The same number for any `n_threads`; NaN for a function that returns derivatives, whose loss is
        not known.
        """

    @property
    def renews_leaves(self) -> bool:
        """Whether `renew_leaves` has values to give."""
        return False

    def renew_leaves(
        self, raw: Array, leaf_of_row: Array, n_leaves: int, rows: Array | None = None, n_threads: int = 1
    ) -> NDArray[np.float32]:
        """Leaf values that minimise the loss exactly, before shrinkage; asked for where `renews_leaves`.

        Parameters
        ----------
        raw : float32 (n, K)
        leaf_of_row : int32 (n,)
            Leaf of every row; negative for rows in no leaf.
        rows : int32 (m,), optional
            The rows to fit on (the sample of this tree); all by default.

        Returns
        -------
        float32 (n_leaves, K)
        """
        raise NotImplementedError(f"Leaves of {self.objective.name!r} are Newton steps.")


def packed_size(n_outputs: int) -> int:
    """Entries of a packed Hessian."""
    return n_outputs * (n_outputs + 1) // 2


def packed_diagonal(n_outputs: int) -> NDArray[np.intp]:
    """Where the entries ``(i, i)`` of a packed Hessian are: ``(K,)``."""
    i = np.arange(n_outputs)
    return i * (i + 3) // 2


def as_matrix(target: Array) -> FloatArray:
    """A float target as C-ordered ``(n, K)``; float64 is kept."""
    target = np.asarray(target)
    if target.dtype != np.float64:
        target = target.astype(np.float32, copy=False)
    if target.ndim == 1:
        target = target[:, None]
    if target.ndim != 2 or target.shape[1] == 0:
        raise ValueError(f"The target must have shape (n,) or (n, K) with K >= 1; got {target.shape}.")
    return np.ascontiguousarray(target)


def as_weight(weight: Array | None, n_rows: int, n_outputs: int) -> NDArray[np.float32] | None:
    """Weights as C-ordered float32 ``(n, 1)`` or ``(n, n_outputs)``, or None."""
    if weight is None:
        return None
    weight = np.asarray(weight, dtype=np.float32)
    if weight.ndim == 1:
        weight = weight[:, None]
    if weight.shape not in {(n_rows, 1), (n_rows, n_outputs)}:
        raise ValueError(
            f"Weights must have shape ({n_rows},), or ({n_rows}, {n_outputs}) for a weight per row and "
            f"output; "
            f"got {weight.shape}."
        )
    return np.ascontiguousarray(weight)


def check_domain(
    valid: NDArray[np.bool_], target: Array, weight: Array | None, name: str, domain: str
) -> None:
    """Raise ValueError naming the first target outside the domain of the loss. Rows of weight 0 do not
    count."""
    if valid.all():
        return
    bad = ~valid if weight is None else ~valid & (weight > 0)
    if not bad.any():
        return
    row, output = np.argwhere(bad)[0]
    raise ValueError(
        f"Objective {name!r} needs {domain}; row {row}, output {output} of y is {target[row, output]!s} "
        f"({int(bad.sum())} such value(s) in all). Change the target or choose another objective."
    )


def check_positive(name: str, parameter: str, value: float) -> None:
    """Raise ValueError unless `value` is a finite number above 0."""
    if not (isinstance(value, (int, float)) and np.isfinite(value) and value > 0):
        raise ValueError(f"Objective {name!r}: {parameter} must be a finite number > 0; got {value!r}.")
