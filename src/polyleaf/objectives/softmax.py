"""One of several classes: softmax cross-entropy. Owns this loss and the choice of its curvature.

The Hessian of a row is ``diag(p) - p p'``, which ``curvature="full"`` uses as it is; otherwise trees use a
diagonal in its place, and which one decides the length of a step. With f the factor, ``softmax_curvature`` is

- ``"friedman"``: ``f p (1 - p)``, f = K / (K - 1) (Friedman, 2001, algorithm 6; the choice of LightGBM and
  C-GB);
- ``"diagonal"``: f = 1, the true diagonal; ignores that all outputs move at once, so it steps furthest
(TFBT);
- ``"upper"``: f = 2, an upper bound of the Hessian (Böhning and Lindsay, 1988; XGBoost up to 3.4);
- ``"residual"``: ``|p - y|``, one class's gradient (XGBoost from 2026-09); rows fitted well count for little.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

import polyleaf._core as _core
from polyleaf.objectives.base import Array, FloatArray
from polyleaf.objectives.classes import ClassObjective, ClassProblem, probabilities

CURVATURES = ("friedman", "diagonal", "residual", "upper")


@dataclass(frozen=True)
class Softmax(ClassObjective):
    """``ln sum_k e^(score_k) - score_y``.

    Parameters
    ----------
    n_classes : int, optional
        Default: the largest class id of the data set prepared, plus one.
    softmax_curvature : {"friedman", "diagonal", "residual", "upper"}, default "residual"
        See the top of this file. It is floored at 1e-16, for ``p (1 - p)`` underflows.
    """

    name: ClassVar[str] = "softmax"
    core_loss: ClassVar[_core.ClassLoss] = _core.ClassLoss.softmax

    softmax_curvature: str = "residual"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.softmax_curvature not in CURVATURES:
            raise ValueError(
                f"softmax_curvature must be one of {', '.join(CURVATURES)}; got {self.softmax_curvature!r}."
            )

    def bind(self, label: NDArray[np.int32], n_classes: int, weight: Array | None) -> SoftmaxProblem:
        return SoftmaxProblem(self, label, n_classes, weight)

    def best_constant(self, shares: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.log(shares)

    def transform(self, scores: FloatArray) -> FloatArray:
        return probabilities(scores)


class SoftmaxProblem(ClassProblem):
    """`Softmax` bound to data."""

    objective: Softmax

    def __init__(
        self, objective: Softmax, label: NDArray[np.int32], n_classes: int, weight: Array | None
    ) -> None:
        super().__init__(objective, label, n_classes, weight)
        residual = objective.softmax_curvature == "residual"
        self._curvature = _core.SoftmaxCurvature.residual if residual else _core.SoftmaxCurvature.scaled
        factors = {"friedman": n_classes / (n_classes - 1.0), "upper": 2.0}
        self._factor = factors.get(objective.softmax_curvature, 1.0)

    def derivatives(self, raw: Array, g: Array, h: Array | None, n_threads: int = 1) -> None:
        assert h is not None  # the curvature is never constant
        _core.softmax_derivatives(
            self._curvature, self._factor, raw, self.label, self.weight, self.offset, g, h, n_threads
        )
