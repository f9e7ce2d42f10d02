"""Displays of models with matplotlib, in the style of scikit-learn.

`XDisplay.from_estimator(...)` draws, and the display keeps the numbers (its attributes) and the
artists (`ax_`, `figure_` and so on).
"""

from __future__ import annotations

from polyleaf.inspection.plotting.calibration import CalibrationDisplay
from polyleaf.inspection.plotting.coverage import CoverageDisplay
from polyleaf.inspection.plotting.decision_threshold import ThresholdDisplay
from polyleaf.inspection.plotting.importances import ImportanceDisplay
from polyleaf.inspection.plotting.learning_curves import LearningCurvesDisplay
from polyleaf.inspection.plotting.outputs import OutputsDisplay
from polyleaf.inspection.plotting.trees import TreeDisplay

__all__ = [
    "CalibrationDisplay",
    "CoverageDisplay",
    "ImportanceDisplay",
    "LearningCurvesDisplay",
    "OutputsDisplay",
    "ThresholdDisplay",
    "TreeDisplay",
]
