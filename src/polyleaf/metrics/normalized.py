"""Errors of several targets in one number: each in units of its target's spread.

Owns the unit. Must not know which metrics there are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["PREFIX", "RelativeError"]

Array = NDArray[Any]

PREFIX = "relative_"


class RelativeError:
    """Mean over targets of an error over the standard deviation of the target, on the same data.

    Of root mean squared errors that is the average relative RMSE of the literature on several targets
    (Spyromitros-Xioufis et al., "Multi-target regression via input space expansion", Machine Learning 104,
    2016), but for the mean, which here is that of the data measured on. Targets that do not vary there are
    left out; where none does, the errors themselves are averaged.

    Parameters
    ----------
    errors : callable
        ``(y, prediction, weight) -> float64 (K,)``: the error of each output, in the unit of its target. Of
        several outputs of a target those stand together.
    """

    def __init__(self, errors: Callable[[Array, Array, Array | None], Any]) -> None:
        self._errors = errors
        self._of: tuple[Array, Array | None] | None = None  # what the spread below was measured on
        self._spread: NDArray[np.float64] = np.empty(0)

    def __call__(self, y: Array, prediction: Array, weight: Array | None = None) -> float:
        errors = self._errors(y, prediction, weight)
        spread = self._spread_of(y, weight)
        spread = np.repeat(spread, len(errors) // len(spread))
        varies = spread > 0
        if varies.any():
            errors = errors[varies] / spread[varies]
        known = errors[~np.isnan(errors)]
        return float(known.mean()) if known.size else float("nan")

    def _spread_of(self, y: Array, weight: Array | None) -> NDArray[np.float64]:
        """Measured once for each data set: y does not change from round to round."""
        if self._of is None or self._of[0] is not y or self._of[1] is not weight:
            self._of, self._spread = (y, weight), standard_deviation(y, weight)
        return self._spread


def standard_deviation(y: Array, weight: Array | None) -> NDArray[np.float64]:
    """Of each column, by weight; 0 where a column has none."""
    y = np.asarray(y, np.float64).reshape(len(y), -1)
    w = (
        np.ones((len(y), 1))
        if weight is None
        else np.asarray(weight, np.float64).reshape(len(y), -1)
    )
    total = np.maximum(w.sum(axis=0), np.finfo(np.float64).tiny)
    mean = (w * y).sum(axis=0) / total
    return np.sqrt((w * np.square(y - mean)).sum(axis=0) / total)
