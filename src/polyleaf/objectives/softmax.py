"""One of several classes: softmax cross-entropy. Owns this loss and the choice of its curvature.

The Hessian of a row is ``diag(p) - p p'``, which ``hessian="full"`` uses as it is; otherwise trees use a
diagonal in its place, and which one decides the length of a step. With f the factor, ``softmax_hessian`` is

- ``"friedman"``: ``f p (1 - p)``, f = K / (K - 1) (Friedman, 2001, algorithm 6; the choice of LightGBM and
  C-GB);
- ``"diagonal"``: f = 1, the true diagonal; ignores that all outputs move at once, so it steps furthest
  (TFBT);
- ``"upper"``: f = 2, an upper bound of the Hessian (Böhning and Lindsay, 1988; XGBoost up to 3.4);
- ``"residual"``: ``|p - y|``, one class's gradient (XGBoost from 2026-09); rows fitted well count for little.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

import polyleaf._core as _core
from polyleaf.objectives.multiclass import MulticlassObjective
from polyleaf.objectives.registry import register

__all__ = ["Softmax"]

CURVATURES = ("friedman", "diagonal", "residual", "upper")


@register
@dataclass(frozen=True)
class Softmax(MulticlassObjective):
    """``ln sum_k e^(score_k) - score_y``.

    Parameters
    ----------
    n_classes : int, optional
        Default: the largest class id of the data set prepared, plus one.
    softmax_hessian : {"friedman", "diagonal", "residual", "upper"}, default "residual"
        See the top of this file. It is floored at 1e-16, for ``p (1 - p)`` underflows.
    """

    name: ClassVar[str] = "softmax"
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
        if self.softmax_hessian not in CURVATURES:
            raise ValueError(
                f"softmax_hessian must be one of {', '.join(CURVATURES)}; got {self.softmax_hessian!r}."
            )

    def core_loss(self, n_classes: int) -> _core.ClassLoss:
        factors = {"friedman": n_classes / (n_classes - 1.0), "diagonal": 1.0, "upper": 2.0}
        # The core takes 0 for "residual".
        return _core.ClassLoss("softmax", {"factor": factors.get(self.softmax_hessian, 0.0)})

    def best_constant(self, shares: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.log(shares)
