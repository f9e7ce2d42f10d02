"""Values of numeric columns as the regressors of linear leaves, which are float32 numbers.

Two kinds of columns are transformed; other values are used as they are:

- Columns with float64 bins, such as seconds since 1970, are centred on the middle of their
  thresholds in float64, so that the differences between rows keep their digits.
- Codes for missing values, such as -999, become the nearest threshold of the other values. Codes
  are values beyond a gap between thresholds that is more than twice as wide as all other thresholds
  together; a few rows would otherwise decide the scale and the slopes of all others.

Everything follows from the thresholds, so a model file stores no more than that it is done.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["RegressorTransform"]

_GAP_RATIO = 2.0
_MIN_THRESHOLDS = 8  # of the values between the gaps
_MAX_CODES = 4  # of missing values per column


@dataclass(frozen=True)
class RegressorTransform:
    """The transform of all columns.

    Attributes
    ----------
    centre : ndarray of shape (n_columns,), float64
        Subtracted from values; 0 for float32 columns.
    low, high : ndarray of shape (n_columns,), float64
        Limits of values before that.
    """

    centre: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]

    @staticmethod
    def from_thresholds(
        thresholds: Sequence[NDArray[np.float64]], is_float64: NDArray[np.bool_]
    ) -> RegressorTransform | None:
        """Return the transform for the thresholds of each column; None if it changes nothing."""
        n = len(thresholds)
        centre, low, high = np.zeros(n), np.full(n, -np.inf), np.full(n, np.inf)
        for column, t in enumerate(thresholds):
            low[column], high[column] = _find_codes(t)
            if is_float64[column] and len(t) > 0:
                kept = t[(t >= low[column]) & (t <= high[column])]
                centre[column] = kept[0] / 2 + kept[-1] / 2
        if not (centre.any() or np.isfinite(low).any() or np.isfinite(high).any()):
            return None
        return RegressorTransform(centre, low, high)

    def is_changed(self) -> NDArray[np.bool_]:
        """Return the mask (n_columns,) of the columns that are transformed."""
        return (self.centre != 0) | np.isfinite(self.low) | np.isfinite(self.high)

    def apply(self, values: np.ndarray, columns: np.ndarray) -> NDArray[np.float64]:
        """Return transformed values (n_rows, len(columns))."""
        limited = np.clip(values.astype(np.float64), self.low[columns], self.high[columns])
        return limited - self.centre[columns]


def _find_codes(t: NDArray[np.float64]) -> tuple[float, float]:
    """Return the least and the largest threshold of values that are no codes for missing ones."""
    first, last, low, high = 0, len(t) - 1, -np.inf, np.inf
    for _ in range(_MAX_CODES):
        if last - first < _MIN_THRESHOLDS:
            break
        if t[first + 1] - t[first] > _GAP_RATIO * (t[last] - t[first + 1]):
            first += 1
            low = t[first]
        elif t[last] - t[last - 1] > _GAP_RATIO * (t[last - 1] - t[first]):
            last -= 1
            high = t[last]
        else:
            break
    return float(low), float(high)
