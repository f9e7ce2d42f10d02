"""Pictures of models on matplotlib, as scikit-learn's displays are: `XDisplay.from_estimator(...)` draws, and
the display keeps the numbers (its attributes) and the artists (`ax_`, `figure_`, ...)."""

from __future__ import annotations

from polyleaf.plotting.calibration import CalibrationDisplay
from polyleaf.plotting.coverage import CoverageDisplay
from polyleaf.plotting.importances import ImportanceDisplay
from polyleaf.plotting.learning_curves import LearningCurvesDisplay
from polyleaf.plotting.outputs import OutputsDisplay
from polyleaf.plotting.thresholds import ThresholdDisplay
from polyleaf.plotting.trees import TreeDisplay

__all__ = [
    "CalibrationDisplay",
    "CoverageDisplay",
    "ImportanceDisplay",
    "LearningCurvesDisplay",
    "OutputsDisplay",
    "ThresholdDisplay",
    "TreeDisplay",
]
