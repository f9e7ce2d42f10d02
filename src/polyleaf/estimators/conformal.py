"""Split conformal prediction: intervals of fitted regressors, prediction sets of fitted
classifiers."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from polyleaf.distributions.parametric import check_coverage
from polyleaf.inputs.read_target import check_same_rows
from polyleaf.model.metadata import get_calibration, set_calibration
from polyleaf.training.conformal import (
    class_nonconformity,
    interval_widths,
    label_nonconformity,
    truth_nonconformity,
)

__all__ = ["calibrate_intervals", "calibrate_sets", "predict_bounds", "predict_sets"]


# --- intervals ------------------------------------------------------------------------------------


def calibrate_intervals(
    regressor: Any, X: Any, y: Any, sample_weight: Any, coverage: float, joint: bool, offset: Any
) -> None:
    """Find the widths of intervals and store them in the model; see
    `PolyleafRegressor.calibrate`."""
    check_is_fitted(regressor)
    check_coverage(coverage)
    target = regressor._encoding.encode(y, sample_weight, normalized=False)
    scores = _compute_errors(regressor, X, target.values, offset)
    widths = interval_widths(scores, coverage, target.weight, joint)
    set_calibration(
        regressor.model_,
        "intervals",
        coverage=float(coverage),
        joint=bool(joint),
        widths=widths.tolist(),
    )


def predict_bounds(
    regressor: Any, X: Any, iteration_range: tuple[int, int] | None, offset: Any
) -> np.ndarray:
    """Compute calibrated bounds, float64 (n_rows, n_targets, 2)."""
    check_is_fitted(regressor)
    width = np.asarray(get_calibration(regressor.model_, "intervals")["widths"], np.float64)
    if regressor.model_.objective.has_distribution:
        predicted = regressor._distributions(X, iteration_range, offset)
        tail = np.minimum(np.exp(-width), 0.5)
        return np.stack([predicted.ppf(tail), predicted.isf(tail)], axis=2)
    low, high = _predict_extremes(regressor, X, iteration_range, offset)
    # Bounds that are moved past each other meet in the middle.
    middle = (low + high) / 2
    return np.stack([np.minimum(low - width, middle), np.maximum(high + width, middle)], axis=2)


def _compute_errors(regressor: Any, X: Any, y: np.ndarray, offset: Any) -> np.ndarray:
    """Compute the nonconformity of each value, (n_rows, n_targets).

    The distance beyond the bounds, or -ln of the tail probability of a predicted distribution.
    """
    if not regressor.model_.objective.has_distribution:
        low, high = _predict_extremes(regressor, X, None, offset)
        check_same_rows(len(low), len(y))
        return np.maximum(low - y, y - high)
    predicted = regressor._distributions(X, None, offset)
    check_same_rows(len(predicted), len(y))
    above = predicted.sf(y - 1 if predicted.is_discrete else y)
    return -np.log(np.maximum(np.minimum(predicted.cdf(y), above), np.finfo(np.float64).tiny))


def _predict_extremes(
    regressor: Any, X: Any, iteration_range: tuple[int, int] | None, offset: Any
) -> tuple[np.ndarray, np.ndarray]:
    """Predict the lowest and highest quantile, (n_rows, n_targets), or the prediction twice."""
    predicted = np.asarray(regressor.predict(X, iteration_range=iteration_range, offset=offset))
    levels = regressor.model_.objective.quantile_levels
    shape = len(predicted), regressor._encoding.n_outputs, max(1, len(levels))
    predicted = predicted.reshape(shape)
    if len(levels) < 2:
        return predicted[..., 0], predicted[..., 0]
    return predicted[..., int(np.argmin(levels))], predicted[..., int(np.argmax(levels))]


# --- prediction sets ------------------------------------------------------------------------------


def calibrate_sets(
    classifier: Any, X: Any, y: Any, sample_weight: Any, coverage: float, offset: Any
) -> None:
    """Find the depth of prediction sets and store it; see `PolyleafClassifier.calibrate`."""
    check_is_fitted(classifier)
    check_coverage(coverage)
    scores = _compute_nonconformity(classifier, X, None, offset)
    target = classifier._encoding.encode(y, sample_weight, normalized=False)
    check_same_rows(len(scores), target.n_rows)
    truth, classes = target.values, target.get_row_classes()
    if classes is not None:
        truth = np.arange(scores.shape[1]) == np.asarray(classes, np.int64)[:, None]
    weight = np.ones(len(scores)) if target.weight is None else target.weight
    weight = weight if weight.ndim == 1 else weight.min(axis=1)
    depth = interval_widths(truth_nonconformity(scores, truth)[:, None], coverage, weight)[0]
    set_calibration(
        classifier.model_, "prediction sets", coverage=float(coverage), depth=float(depth)
    )


def predict_sets(
    classifier: Any, X: Any, iteration_range: tuple[int, int] | None, offset: Any
) -> np.ndarray:
    """Compute calibrated prediction sets, bool (n_rows, n_classes or n_labels)."""
    check_is_fitted(classifier)
    depth = float(get_calibration(classifier.model_, "prediction sets")["depth"])
    return _compute_nonconformity(classifier, X, iteration_range, offset) <= depth


def _compute_nonconformity(
    classifier: Any, X: Any, iteration_range: tuple[int, int] | None, offset: Any
) -> np.ndarray:
    """Compute the depth that a set needs to include each class or label, (n_rows, n)."""
    probability = classifier.predict_proba(X, iteration_range=iteration_range, offset=offset)
    is_multilabel = classifier._encoding.kind == "multilabel"
    compute = label_nonconformity if is_multilabel else class_nonconformity
    return compute(np.asarray(probability))
