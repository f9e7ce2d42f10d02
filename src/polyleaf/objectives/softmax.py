"""One of several classes: softmax cross-entropy. Owns this loss and the choice of its curvature.

The Hessian of a row is ``diag(p) - p p'``; trees use a diagonal in its place, and which one decides the
length of a step. With f the factor, ``softmax_curvature`` is

- ``"friedman"``: ``f p (1 - p)``, f = K / (K - 1) (Friedman, 2001, algorithm 6; the choice of LightGBM and
  C-GB);
- ``"diagonal"``: f = 1, the true diagonal; ignores that all outputs move at once, so it steps furthest;
- ``"upper"``: f = 2, an upper bound of the Hessian (Böhning and Lindsay, 1988; XGBoost up to 3.4);
- ``"residual"``: ``|p - y|``, one class's gradient (XGBoost from 2026-09); rows fitted well count for little.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

import polyleaf._core as _core
from polyleaf.objectives.base import Array, FloatArray, Objective, Problem, as_weight

CURVATURES = ("friedman", "diagonal", "residual", "upper")


@dataclass(frozen=True)
class Softmax(Objective):
    """``ln sum_k e^(score_k) - score_y``.

    Parameters
    ----------
    n_classes : int, optional
        Default: the largest class id of the data set prepared, plus one.
    softmax_curvature : {"friedman", "diagonal", "residual", "upper"}, default "friedman"
        See the top of this file. It is floored at 1e-16, for ``p (1 - p)`` underflows.
    """

    name: ClassVar[str] = "softmax"
    default_metric: ClassVar[str] = "mlogloss"
    separable: ClassVar[bool] = False
    class_ids: ClassVar[bool] = True
    probabilities: ClassVar[bool] = True

    n_classes: int | None = None
    softmax_curvature: str = "friedman"

    def __post_init__(self) -> None:
        if self.softmax_curvature not in CURVATURES:
            raise ValueError(
                f"softmax_curvature must be one of {', '.join(CURVATURES)}; got {self.softmax_curvature!r}."
            )
        if self.n_classes is not None and (not isinstance(self.n_classes, int) or self.n_classes < 2):
            raise ValueError(
                f"Objective 'softmax': n_classes must be an integer >= 2; got {self.n_classes!r}."
            )

    def prepare(self, target: Array, weight: Array | None) -> SoftmaxProblem:
        label = np.asarray(target)
        if label.ndim != 1 or label.dtype.kind not in "iu" or label.size == 0:
            raise ValueError(
                f"Objective 'softmax' needs integer class ids of shape (n,); got {label.dtype} of shape "
                f"{label.shape}."
            )
        n_classes = self.n_classes or int(label.max()) + 1
        if n_classes < 2:
            raise ValueError(
                "Objective 'softmax' needs at least two classes; every row of y is of the same class."
            )
        if label.min() < 0 or label.max() >= n_classes:
            raise ValueError(
                f"Class ids must lie in 0 .. {n_classes - 1}; got {label.min()} .. {label.max()}."
            )
        weight = as_weight(weight, label.size, 1)
        return SoftmaxProblem(self, np.ascontiguousarray(label, dtype=np.int32), n_classes, weight)

    def transform(self, scores: FloatArray) -> FloatArray:
        exponentials = np.exp(scores - scores.max(axis=1, keepdims=True))
        exponentials /= exponentials.sum(axis=1, keepdims=True)
        return exponentials


class SoftmaxProblem(Problem):
    """`Softmax` bound to data: ``label`` is int32 ``(n,)``."""

    objective: Softmax

    def __init__(
        self, objective: Softmax, label: NDArray[np.int32], n_classes: int, weight: Array | None
    ) -> None:
        super().__init__(objective, label.size, n_classes, weight)
        self.label = label
        residual = objective.softmax_curvature == "residual"
        self._curvature = _core.SoftmaxCurvature.residual if residual else _core.SoftmaxCurvature.scaled
        factors = {"friedman": n_classes / (n_classes - 1.0), "upper": 2.0}
        self._factor = factors.get(objective.softmax_curvature, 1.0)

    def base_score(self, n_threads: int = 1) -> NDArray[np.float64]:
        """Logarithm of the classes' shares; a class that no row has gets half a row."""
        weight = None if self.weight is None else self.weight[:, 0]
        count = np.bincount(self.label, weights=weight, minlength=self.n_outputs).astype(np.float64)
        if not count.any():
            return np.zeros(self.n_outputs)
        share = count / count.sum()
        return np.log(np.where(share > 0, share, 0.5 / (self.n_rows + 1.0)))

    def derivatives(self, raw: Array, g: Array, h: Array | None, n_threads: int = 1) -> None:
        _core.softmax_derivatives(
            self._curvature, self._factor, raw, self.label, self.weight, self.offset, g, h, n_threads
        )

    def loss(self, raw: Array, n_threads: int = 1) -> float:
        return _core.softmax_mean(raw, self.label, self.weight, self.offset, n_threads)
