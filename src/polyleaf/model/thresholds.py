"""Where splits cut, in the unit of the features. Must not know: trees, models, what becomes of thresholds."""

from __future__ import annotations

from typing import Any

__all__ = ["Thresholds"]


class Thresholds:
    """Thresholds of codes in the unit of the features; None where every present value goes left.

    Parameters
    ----------
    mapper : BinMapper
    """

    def __init__(self, mapper: Any):
        self._mapper = mapper
        self._known: dict[tuple[int, int], float | None] = {}

    def value(self, feature: int, code: int) -> float | None:
        """x <= this goes left at a split of the feature after the code; asked for once, then remembered."""
        key = (feature, code)
        if key not in self._known:
            is_last = code >= int(self._mapper.n_bins_[feature]) - 1
            self._known[key] = None if is_last else float(self._mapper.threshold_value(feature, code))
        return self._known[key]
