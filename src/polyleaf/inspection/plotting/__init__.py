"""Displays of models with matplotlib, in the style of scikit-learn.

`XDisplay.from_estimator(...)` draws, and the display keeps the numbers (its attributes) and the
artists (`ax_`, `figure_` and so on).
"""

from __future__ import annotations

from polyleaf.inspection.plotting.curves import (
    CalibrationDisplay,
    CoverageDisplay,
    LearningCurvesDisplay,
    ParetoDisplay,
    ThresholdDisplay,
)
from polyleaf.inspection.plotting.structure import (
    DriftDisplay,
    ImportanceDisplay,
    OutputGroupsDisplay,
    OutputsDisplay,
    TreeDisplay,
)

__all__ = [
    "CalibrationDisplay",
    "CoverageDisplay",
    "DriftDisplay",
    "ImportanceDisplay",
    "LearningCurvesDisplay",
    "OutputGroupsDisplay",
    "OutputsDisplay",
    "ParetoDisplay",
    "ThresholdDisplay",
    "TreeDisplay",
]
