"""Where a level lies among residuals, so that a new row is on its right side as often as it says.

Owns this rank. Must not know models, or where residuals come from.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["level_of_residuals"]

# Of the weight of all rows: what rounding may add to a level times this weight.
_ROUNDING = 1e-9


def level_of_residuals(residuals: NDArray[Any], level: float, weight: NDArray[Any] | None = None) -> float:
    """The residual that takes rank ``level * (n + 1)``, rounded outwards: away from the median.

    Of n residuals and one more, all alike but for their order, the last is at most the one of rank k with the
    probability k / (n + 1) (Papadopoulos et al., "Inductive confidence machines for regression", 2002; Lei et
    al., "Distribution-free predictive inference for regression", JASA 113, 2018). Outwards: up for levels
    above one half, down for those below.

    Parameters
    ----------
    residuals : ndarray of shape (n,)
        Target less prediction.
    level : float in (0, 1)
    weight : ndarray of shape (n,), optional
        Not negative. Ranks count weight then, and the one more row has the mean of the others.

    Returns
    -------
    float
        The outermost residual where there is none of that rank; 0 where no residual has weight, and for the
        level one half, which is left where training has put it.
    """
    used = np.ones(len(residuals), bool) if weight is None else np.asarray(weight) > 0
    if level == 0.5 or not used.any():
        return 0.0
    residuals = np.asarray(residuals, np.float64)[used]
    weights = np.ones(len(residuals)) if weight is None else np.asarray(weight, np.float64)[used]
    order = np.argsort(residuals, kind="stable")
    reached = np.cumsum(weights[order])
    wanted, rounding = level * (reached[-1] + reached[-1] / len(residuals)), _ROUNDING * reached[-1]
    if level > 0.5:
        rank = np.searchsorted(reached, wanted - rounding, side="left")
    else:
        rank = np.searchsorted(reached, wanted + rounding, side="right") - 1
    return float(residuals[order][np.clip(rank, 0, len(residuals) - 1)])
