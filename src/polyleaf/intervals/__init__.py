"""Intervals and sets that hold what they promise: what rows that were not trained on say of them."""

from __future__ import annotations

from polyleaf.intervals.ranks import level_of_residuals, widths
from polyleaf.intervals.sets import label_depths, likelier, truth_depth

__all__ = ["label_depths", "level_of_residuals", "likelier", "truth_depth", "widths"]
