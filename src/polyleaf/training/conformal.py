"""Where a level lies among residuals, so that a new row is on its right side as often as it says.

Owns these ranks. Must not know models, or where residuals come from.

Of n residuals and one more, all alike but for their order, the last is at most the one of rank k with the
probability k / (n + 1) (Papadopoulos et al., "Inductive confidence machines for regression", 2002; Lei et
al., "Distribution-free predictive inference for regression", JASA 113, 2018).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["level_of_residuals", "interval_widths"]

# Of the weight of all rows: what rounding may add to a level times this weight.
_ROUNDING = 1e-9


def level_of_residuals(
    residuals: NDArray[Any], level: float, weight: NDArray[Any] | None = None
) -> float:
    """The residual that takes rank ``level * (n + 1)``, rounded outwards: away from the median.

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
    known = np.sort(_side(residuals, level)[used])
    return float(np.sign(level - 0.5) * known[min(_rank(residuals, level, weight), len(known) - 1)])


def interval_widths(
    scores: NDArray[Any], coverage: float, weight: NDArray[Any] | None = None, joint: bool = False
) -> NDArray[np.float64]:
    """How far each target's interval reaches beyond its bounds.

    Parameters
    ----------
    scores : ndarray of shape (n, T)
        How far each target lies beyond its bounds; negative inside.
    coverage : float in (0, 1)
    weight : ndarray of shape (n,) or (n, T), optional
    joint : bool
        All targets of a row at once: one number for all of them, in units of each target's own, see
        `_joint`. Of rows whose targets all have weight.

    Returns
    -------
    ndarray of shape (T,)

    Raises
    ------
    ValueError
        Where rows are too few for such a coverage.
    """
    weights = (
        np.ones(scores.shape) if weight is None else np.broadcast_to(weight.T, scores.shape[::-1]).T
    )
    if not joint or scores.shape[1] == 1:
        return np.array([_width(s, coverage, w) for s, w in zip(scores.T, weights.T, strict=True)])
    used = (weights > 0).all(axis=1)
    return _joint(np.asarray(scores[used], np.float64), coverage, weights[used].min(axis=1))


def _joint(scores: NDArray[Any], coverage: float, weight: NDArray[Any]) -> NDArray[np.float64]:
    """Widths that hold all targets of a row at once.

    A row's score is the largest of its targets', each in the unit of the target: the magnitude of the rank
    that is asked for, so that targets with long tails do not make the others' intervals wide. It would be
    exchangeable if units were those of these rows and the new one. Such a unit lies between two neighbours
    among the known magnitudes, so scores are taken as large as they may be, and interval_widths too: the new row is
    inside with the probability asked for, at least.
    """
    low, high = _units(np.abs(scores), coverage)
    largest = np.where(scores >= 0, scores / low, scores / high).max(axis=1, initial=-np.inf)
    number = _width(largest, coverage, weight)
    return number * (high if number >= 0 else low)


def _units(
    magnitudes: NDArray[np.float64], coverage: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Between what the unit of each column lies, one more row included. The mean, where most are 0."""
    n = len(magnitudes)
    if n == 0:
        return np.ones(magnitudes.shape[1]), np.ones(magnitudes.shape[1])
    ordered = np.sort(magnitudes, axis=0)
    rank = min(int(np.ceil(coverage * (n + 1) - _ROUNDING * n)), n)  # from 1
    low, high = ordered[max(rank - 2, 0)], ordered[rank - 1]
    mean = magnitudes.mean(axis=0)
    mean = np.where(mean > 0, mean, 1.0)
    return np.where(low > 0, low, mean), np.where(low > 0, high, mean)


def _width(scores: NDArray[Any], coverage: float, weight: NDArray[Any]) -> float:
    known = np.sort(scores[weight > 0])
    rank = _rank(scores, coverage, weight, upwards=True) if len(known) else 0
    if rank >= len(known):
        raise ValueError(
            f"{len(known)} rows are too few for a coverage of {coverage:g}: it needs "
            f"{int(np.ceil(coverage / (1 - coverage) - _ROUNDING))} at least, more where weights differ."
        )
    return float(known[rank])


def _side(residuals: NDArray[Any], level: float) -> NDArray[np.float64]:
    """Residuals, turned round for levels below one half: what is rounded outwards is rounded up then."""
    residuals = np.asarray(residuals, np.float64)
    return residuals if level > 0.5 else -residuals


def _rank(
    residuals: NDArray[Any], level: float, weight: NDArray[Any] | None, upwards: bool = False
) -> int:
    """The rank, from 0, of a level among sorted residuals of its side; their number where there is none."""
    if not upwards:
        residuals, level = _side(residuals, level), max(level, 1 - level)
    weights = np.ones(len(residuals)) if weight is None else np.asarray(weight, np.float64)
    used = weights > 0
    order = np.argsort(np.asarray(residuals)[used], kind="stable")
    reached = np.cumsum(weights[used][order])
    wanted = level * (reached[-1] + reached[-1] / len(reached))
    return int(np.searchsorted(reached, wanted - _ROUNDING * reached[-1], side="left"))
