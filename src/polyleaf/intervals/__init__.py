"""Intervals that hold what they promise: what residuals of rows that were not trained on say of levels."""

from __future__ import annotations

from polyleaf.intervals.ranks import level_of_residuals, widths

__all__ = ["level_of_residuals", "widths"]
