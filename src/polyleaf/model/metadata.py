"""Keys of a model's metadata that estimators write: calibrations and decision thresholds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

if TYPE_CHECKING:
    from polyleaf.model.model import Model

__all__ = [
    "ESTIMATOR",
    "HAS_OFFSETS",
    "INPUT_NAMES",
    "PARAMETERS",
    "CalibrationKind",
    "clear_calibrations",
    "encode_decision_thresholds",
    "get_calibration",
    "get_decision_thresholds",
    "get_raw_decision_thresholds",
    "set_calibration",
    "set_decision_thresholds",
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
    """Remove all calibrations and thresholds of a model that is about to change."""
    for kind in (*get_args(CalibrationKind), _KEY):
        model.metadata.pop(kind, None)


_KEY = "thresholds"  # in the metadata, unless all thresholds are 0.5


def set_decision_thresholds(model: Model, thresholds: Any) -> None:
    """Set the probabilities above which labels are predicted: one number, or one per output."""
    model.metadata.pop(_KEY, None)
    model.metadata.update(encode_decision_thresholds(thresholds, model.n_outputs))


def encode_decision_thresholds(thresholds: Any, n_outputs: int) -> dict[str, Any]:
    """Return the metadata of thresholds: one number, or one per output."""
    values = np.broadcast_to(np.asarray(thresholds, np.float64), (n_outputs,))
    return {_KEY: values.tolist()} if (values != 0.5).any() else {}


def get_decision_thresholds(model: Model) -> np.ndarray:
    """Return the probability of each output above which it is predicted, float64 (n_outputs,).

    Raises
    ------
    ValueError
        If the thresholds in a file are not probabilities.
    """
    stored = model.metadata.get(_KEY)
    if stored is None:
        return np.full(model.n_outputs, 0.5)
    is_valid = isinstance(stored, list) and all(isinstance(t, float) and 0 < t < 1 for t in stored)
    if not is_valid or len(stored) != model.n_outputs:
        raise ValueError("The model's thresholds must be one probability per output.")
    return np.array(stored)


def get_raw_decision_thresholds(model: Model) -> np.ndarray | float:
    """Return the thresholds as raw scores of a logistic link; 0 if all are 0.5."""
    if _KEY not in model.metadata:
        return 0.0
    thresholds = get_decision_thresholds(model)
    return np.where(thresholds == 0.5, 0.0, np.log(thresholds) - np.log1p(-thresholds))
