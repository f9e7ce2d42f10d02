"""Decision thresholds in the metadata of a multi-label model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from polyleaf.model.model import Model

__all__ = ["get_decision_thresholds", "get_raw_decision_thresholds", "set_decision_thresholds"]

_KEY = "thresholds"  # in the metadata, unless all thresholds are 0.5


def set_decision_thresholds(model: Model, thresholds: Any) -> None:
    """Set the probabilities above which labels are predicted: one number, or one per output."""
    values = np.broadcast_to(np.asarray(thresholds, np.float64), (model.n_outputs,))
    model.metadata.pop(_KEY, None)
    if (values != 0.5).any():
        model.metadata[_KEY] = values.tolist()


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
