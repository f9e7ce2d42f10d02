"""Keys of a model's metadata that estimators write, and calibrations stored under them."""

from __future__ import annotations

from typing import Any, Literal, get_args

from polyleaf.model.model import Model

__all__ = [
    "ESTIMATOR",
    "HAS_OFFSETS",
    "INPUT_NAMES",
    "PARAMETERS",
    "CalibrationKind",
    "clear_calibrations",
    "get_calibration",
    "set_calibration",
]

ESTIMATOR = "estimator"  # name of the class
PARAMETERS = "parameters"  # of the estimator
INPUT_NAMES = "input_names"  # names of features before a projection
HAS_OFFSETS = "rows have offsets"  # True for a model trained with offsets

CalibrationKind = Literal["intervals", "prediction sets"]


def set_calibration(model: Model, kind: CalibrationKind, **values: Any) -> None:
    """Store the result of a calibration, in JSON types."""
    model.metadata[kind] = values


def get_calibration(model: Model, kind: CalibrationKind) -> dict[str, Any]:
    """Return the last calibration; raise a ValueError if there is none."""
    values = model.metadata.get(kind)
    if values is None:
        raise ValueError(
            f"The model's {kind} are not calibrated: call calibrate(X, y, coverage=0.9) with rows "
            "outside the training data."
        )
    return values


def clear_calibrations(model: Model) -> None:
    """Remove all calibrations of a model that is about to change."""
    for kind in get_args(CalibrationKind):
        model.metadata.pop(kind, None)
