"""scikit-learn's metrics in training, and the scores of estimators with missing targets."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from polyleaf.metrics._classification import get_decisions
from polyleaf.runtime.row_data import RowData

Array = np.ndarray

_DECISION_METRICS = (
    *("accuracy_score", "balanced_accuracy_score", "cohen_kappa_score", "f1_score", "fbeta_score"),
    *("hamming_loss", "jaccard_score", "matthews_corrcoef", "precision_score", "recall_score"),
    "zero_one_loss",
)

SCORER_ALIASES = {
    "neg_mean_absolute_error": "mae",
    "neg_mean_absolute_percentage_error": "mape",
    "neg_mean_squared_error": "mse",
    "neg_root_mean_squared_error": "rmse",
    "neg_root_mean_squared_log_error": "rmsle",
    "neg_mean_poisson_deviance": "poisson_deviance",
    "neg_mean_gamma_deviance": "gamma_deviance",
    "neg_brier_score": "brier",
    "neg_log_loss": "log_loss",
    "roc_auc": "auc",
    "roc_auc_ovr": "auc",
    "matthews_corrcoef": "mcc",
}
"""scikit-learn's scorer names and our metrics. Negated scorers are errors here."""


# --- functions that users pass as eval_metric ---


def is_scorer(function: Callable[..., object]) -> bool:
    """Return whether the function is a scorer of `get_scorer` or `make_scorer`."""
    return hasattr(function, "_score_func") and hasattr(function, "_sign")


def is_greater_better(function: Callable[..., object]) -> bool:
    """Return whether the function is a score of scikit-learn, by its naming convention."""
    name = _sklearn_name(function) or ""
    return name.endswith("_score") or name == "matthews_corrcoef"


def takes_decisions(function: Callable[..., object]) -> bool:
    """Return whether the function is a metric of scikit-learn that compares classes or labels."""
    return _sklearn_name(function) in _DECISION_METRICS


def _sklearn_name(function: Callable[..., object]) -> str | None:
    """Return the name of a metric of scikit-learn; None for other functions."""
    while isinstance(function, partial):
        function = function.func
    is_sklearn = str(getattr(function, "__module__", "")).startswith("sklearn.metrics")
    return getattr(function, "__name__", None) if is_sklearn else None


class CallableMetric:
    """A user's function of ``(y_true, y_pred[, sample_weight])`` as ``(rows, prediction)``."""

    def __init__(self, function: Callable[..., Any]) -> None:
        inner = function.func if isinstance(function, partial) else function
        self.user_function = function
        self.name = getattr(inner, "__name__", type(function).__name__)
        self.greater_is_better = is_greater_better(function)
        self.takes_decisions = takes_decisions(function)
        try:
            self._takes_weight = "sample_weight" in inspect.signature(function).parameters
        except ValueError:
            self._takes_weight = False

    def __call__(self, rows: RowData, prediction: Array) -> float:
        y, keywords = rows.target, {"sample_weight": rows.weight} if self._takes_weight else {}
        if self.takes_decisions:
            y, prediction = (values.astype(np.int64) for values in get_decisions(y, prediction))
        value = self.user_function(_squeeze(y), _squeeze(prediction), **keywords)
        if isinstance(value, tuple):
            if len(value) != 3:
                raise ValueError(
                    f"Metric {self.name!r} returned a tuple of {len(value)} values; it must return "
                    "a number or (name, value, greater_is_better)."
                )
            value, self.greater_is_better = value[1], bool(value[2])
        try:
            return float(value)
        except TypeError:
            shape = np.shape(value)
            returned = f"values of shape {shape}" if shape else repr(value)
            raise TypeError(
                f"Metric {self.name!r} returned {returned}; it must return one number for all "
                "rows, or (name, value, greater_is_better)."
            ) from None


def _squeeze(values: Array) -> Array:
    return values[:, 0] if values.ndim == 2 and values.shape[1] == 1 else values


# --- what `score` of the estimators returns ---


def mean_r2(rows: RowData, predicted: np.ndarray) -> float:
    """Return the coefficient of determination R2, averaged over outputs.

    Outputs with fewer than two values of positive weight are left out; NaN if none
    is left.

    `rows`: targets (n_rows, n_outputs), whose weight is 0 where they are missing. `predicted`
    (n_rows, n_outputs).
    """
    from sklearn.metrics import r2_score

    return _mean_score(r2_score, rows, predicted)


def mean_d2_pinball(rows: RowData, predicted: np.ndarray, levels: Sequence[float]) -> float:
    """Return the D2 score of the pinball loss, averaged over outputs and levels.

    `predicted` has the levels of the first output first; see `mean_r2`.
    """
    from sklearn.metrics import d2_pinball_score

    scores = [
        _mean_score(d2_pinball_score, rows, predicted[:, i :: len(levels)], alpha=level)
        for i, level in enumerate(levels)
    ]
    return float(np.mean(scores))


def known_subset_accuracy(rows: RowData, predicted: np.ndarray) -> float:
    """Return the share of rows whose known labels are all right.

    The weight of a row is the mean weight of its known labels; see `mean_r2`.
    """
    y, weight = rows.target, rows.weight
    weights = np.ones(y.shape)
    if weight is not None:
        weights = np.broadcast_to(weight if weight.ndim == 2 else weight[:, None], y.shape)
    known = weights > 0
    right = ((y == predicted) | ~known).all(axis=1)
    row_weight = weights.sum(axis=1, dtype=np.float64) / np.maximum(known.sum(axis=1), 1)
    return float(np.average(right, weights=row_weight)) if row_weight.any() else float("nan")


def _mean_score(
    score: Callable[..., Any], rows: RowData, predicted: np.ndarray, **options: object
) -> float:
    y, weight = rows.target, rows.weight
    if weight is None or weight.ndim == 1:
        return float(score(y, predicted, sample_weight=weight, **options))
    scores = []
    for truth, prediction, w in zip(y.T, predicted.T, weight.T, strict=True):
        known = w > 0
        if known.sum() > 1:
            scores.append(score(truth[known], prediction[known], sample_weight=w[known], **options))
    return float(np.mean(scores)) if scores else float("nan")
