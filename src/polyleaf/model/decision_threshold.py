"""The thresholds of a model of labels: kept beside it, read by whoever says yes or no.

Owns how a model holds them, and what they are of raw scores. Must not know how they are chosen.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from polyleaf.model.model import Model

__all__ = ["get_raw_decision_thresholds", "set_decision_thresholds", "get_decision_thresholds"]

_KEPT = "thresholds"  # among the model's metadata, where they are not all one half


def set_decision_thresholds(model: Model, thresholds: Any) -> None:
    """Let a model say yes above these probabilities: one number, or one for each output."""
    found = np.broadcast_to(np.asarray(thresholds, np.float64), (model.n_outputs,))
    model.metadata.pop(_KEPT, None)
    if (found != 0.5).any():
        model.metadata[_KEPT] = found.tolist()


def get_decision_thresholds(model: Model) -> np.ndarray:
    """The probability of each output above which it is said to hold, float64 (n_outputs,).

    Raises
    ------
    ValueError
        Where what a file holds of them are no such probabilities.
    """
    kept = model.metadata.get(_KEPT)
    if kept is None:
        return np.full(model.n_outputs, 0.5)
    numbers = isinstance(kept, list) and all(isinstance(t, float) and 0 < t < 1 for t in kept)
    if not numbers or len(kept) != model.n_outputs:
        raise ValueError("The model's thresholds must be a probability for each output.")
    return np.array(kept)


def get_raw_decision_thresholds(model: Model) -> np.ndarray | float:
    """The thresholds as raw scores of a logistic link: float64 (n_outputs,), or 0 where all are one half."""
    if _KEPT not in model.metadata:
        return 0.0
    thresholds = get_decision_thresholds(model)
    return np.where(thresholds == 0.5, 0.0, np.log(thresholds) - np.log1p(-thresholds))
