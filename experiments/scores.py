"""Scores of each task on test data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np


def _rmse(y: np.ndarray, predicted: np.ndarray) -> float:
    error = np.asarray(predicted, np.float64).reshape(y.shape) - y
    return float(np.sqrt(np.mean(error * error)))


def _auc(y: np.ndarray, predicted: np.ndarray) -> float:
    from sklearn.metrics import roc_auc_score

    return float(roc_auc_score(y, predicted))


def _log_loss(y: np.ndarray, predicted: np.ndarray) -> float:
    from sklearn.metrics import log_loss

    # float32 probabilities sum to 1 only approximately, so they are normalised for all libraries.
    probability = np.asarray(predicted, np.float64)
    probability = probability / probability.sum(axis=1, keepdims=True)
    return float(log_loss(y, probability, labels=np.arange(probability.shape[1])))


def _label_log_loss(y: np.ndarray, predicted: np.ndarray) -> float:
    p = np.clip(np.asarray(predicted, np.float64), 1e-7, 1 - 1e-7)  # float32 precision next to 1
    return float(-np.mean(np.where(y == 1, np.log(p), np.log1p(-p))))


@dataclass(frozen=True)
class Score:
    """Score of predictions of one task.

    `function(y, predicted)`: for "regression" `predicted` are values (n,) or (n, K), for "binary"
    the probability of class 1 (n,), for "multiclass" and "multilabel" the probabilities (n, K).
    """

    name: str
    function: Callable[[np.ndarray, np.ndarray], float]
    higher_is_better: bool


SCORES = {
    "multilabel": Score("log loss", _label_log_loss, higher_is_better=False),
    "regression": Score("RMSE", _rmse, higher_is_better=False),
    "binary": Score("AUC", _auc, higher_is_better=True),
    "multiclass": Score("log loss", _log_loss, higher_is_better=False),
}
