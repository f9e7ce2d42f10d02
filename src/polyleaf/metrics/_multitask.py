"""Metrics of a whole task: D2, the metrics of one of several tasks, and tables of scores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyleaf.distributions import Distribution
from polyleaf.metrics._regression import armse, mae, r2, rmse
from polyleaf.objectives import Objective
from polyleaf.objectives._utils import copy_columns

Array = NDArray[Any]
Floats = NDArray[np.float64]

TASKS = ("regression", "classification", "multilabel")


# --- D2 and the metrics of one of several tasks ---


class D2:
    """1 - error / error of the best constant on the same data, averaged over the outputs.

    For squared error it is R2, in general the D2 of scikit-learn (Hastie, Tibshirani and
    Wainwright, "Statistical Learning with Sparsity", 2015, section 3.8). Outputs whose best
    constant has no error are left out.

    Parameters
    ----------
    objective : Objective
        Provides the constant.
    errors : callable
        ``(y, raw, weight) -> float64 (m,)``: errors of raw scores ``(n, K)``, 0 at best.
    """

    def __init__(
        self, objective: Objective, errors: Callable[[Array, Array, Array | None], Floats]
    ) -> None:
        self._objective, self._errors = objective, errors
        self._cache: list[tuple[Array, Array | None, Floats]] = []

    def __call__(self, y: Array, raw: Array, weight: Array | None = None) -> float:
        errors, baseline = self._errors(y, raw, weight), self._constant_errors(y, weight, len(raw))
        exists = baseline > 0
        if not exists.any():
            return float("nan")
        return float(np.mean(1.0 - errors[exists] / baseline[exists]))

    def _constant_errors(self, y: Array, weight: Array | None, n_rows: int) -> Floats:
        """Compute the errors once per data set, as y is the same array in every round."""
        for known_y, known_weight, errors in self._cache:
            if known_y is y and known_weight is weight:
                return errors
        base = self._objective.bind(y, weight).base_score()
        self._cache.append((y, weight, self._errors(y, np.tile(base, (n_rows, 1)), weight)))
        return self._cache[-1][2]


class MeanD2:
    """The mean D2 of the tasks for which it exists.

    Parameters
    ----------
    task_metrics : sequence of TaskMetric
        One of a `D2` for each task.
    """

    def __init__(self, task_metrics: Sequence[TaskMetric]) -> None:
        self._task_metrics = task_metrics

    def __call__(self, y: Array, raw: Array, weight: Array | None = None) -> float:
        scores = np.array([metric(y, raw, weight) for metric in self._task_metrics])
        return float(np.nanmean(scores)) if not np.isnan(scores).all() else float("nan")


class TaskMetric:
    """The metric of one task as a function of the targets and scores of all tasks.

    Parameters
    ----------
    place : TaskSlice
        The columns of the task.
    metric : Metric
    """

    def __init__(self, place: Any, metric: Any) -> None:
        self._place, self._metric = place, metric
        is_raw = metric.prediction_type == "raw"
        self._columns = place.scores if is_raw else place.predictions
        self._cache: list[tuple[Array, Array | None, Array, Array | None]] = []

    def set_train_target(self, y: Array, n_outputs: int) -> None:
        self._metric.set_train_target(self._target(y, None)[0], self._place.task.n_scores)

    @property
    def greater_is_better(self) -> bool:
        return bool(self._metric.greater_is_better)

    def __call__(self, y: Array, prediction: Array, weight: Array | None = None) -> float:
        own_y, own_weight = self._target(y, weight)
        return float(self._metric(own_y, copy_columns(prediction, self._columns), own_weight))

    def _target(self, y: Array, weight: Array | None) -> tuple[Array, Array | None]:
        """Return the task's part of a data set, as the same arrays in every round."""
        for known_y, known_weight, own_y, own_weight in self._cache:
            if known_y is y and known_weight is weight:
                return own_y, own_weight
        own_y = self._place.task.select_target(y[:, self._place.columns])
        own_weight = self._place.select_weight(weight)
        if own_weight is not None and own_weight.ndim == 2 and own_weight.shape[1] == 1:
            own_weight = own_weight[:, 0]
        self._cache.append((y, weight, own_y, own_weight))
        return own_y, own_weight


# --- tables of scores, as the command line and the report show them ---


def compute_scores(
    task: str,
    y: np.ndarray,
    predicted: np.ndarray,
    probabilities: np.ndarray | None = None,
    classes: np.ndarray | None = None,
    weight: np.ndarray | None = None,
) -> dict[str, float]:
    """Compute the usual scores of a task.

    Parameters
    ----------
    task : {"regression", "classification", "multilabel"}
    y, predicted : ndarray of shape (n,) or (n, n_outputs)
        Numbers, labels, or 0/1 indicators. In regression NaN in `y` marks missing values.
    probabilities : ndarray of shape (n, n_classes) or (n, n_labels), optional
        Adds the log loss (natural logarithm, mean over rows, and over labels).
    classes : ndarray of shape (n_classes,), optional
        The label of each column of `probabilities`.
    weight : ndarray of shape (n,), optional
        Weights of the rows.

    Returns
    -------
    dict of str to float
        Regression: RMSE over all known values, for several outputs also aRMSE (the mean of their
        RMSEs), MAE and R2: the metrics `rmse`, `armse`, `mae` and `r2`. Classification: accuracy,
        macro F1, log loss. Multi-label: label accuracy (share of right labels), subset accuracy
        (share of rows with all labels right), micro F1, macro F1, log loss.
    """
    if task == "regression":
        return _regression_scores(y, predicted, weight)
    if task == "classification":
        return _classification_scores(y, predicted, probabilities, classes, weight)
    return _multilabel_scores(y, predicted, probabilities, weight)


def compute_scores_per_target(
    task: str,
    names: Sequence[str],
    y: np.ndarray,
    predicted: np.ndarray,
    *,
    probabilities: np.ndarray | None = None,
    classes: np.ndarray | None = None,
    levels: Sequence[float] = (),
    distribution: Distribution | None = None,
    weight: np.ndarray | None = None,
) -> tuple[dict[str, float], dict[str, dict[str, float]]]:
    """Compute the scores of all targets together, and of each of several targets by name.

    Parameters are those of `compute_scores`; with `levels`, predictions are quantiles as in
    `quantile_scores`; a `distribution` of the shape of y adds `distribution_scores`.
    """

    def score(columns: slice) -> dict[str, float]:
        own_distribution = distribution
        if y.ndim == 1:
            own_y, own_predicted, own_probabilities = y, predicted, probabilities
        else:
            own_distribution = None if distribution is None else distribution[:, columns]
            width = max(1, len(levels))
            own_y = y[:, columns]
            own_predicted = predicted[:, columns.start * width : columns.stop * width]
            own_probabilities = None if probabilities is None else probabilities[:, columns]
        if len(levels):
            return quantile_scores(own_y, own_predicted, np.array(levels), weight)
        found = compute_scores(task, own_y, own_predicted, own_probabilities, classes, weight)
        if own_distribution is not None:
            found |= distribution_scores(own_y, own_distribution, weight)
        return found

    each = {name: score(slice(k, k + 1)) for k, name in enumerate(names)} if len(names) > 1 else {}
    return score(slice(0, len(names))), each


def baseline_scores(task: str, y_train: np.ndarray, y_test: np.ndarray) -> dict[str, float]:
    """Compute the scores on test rows of a constant baseline.

    It predicts the mean of each output, the most frequent class, or the majority of each label,
    and the frequencies as probabilities.
    """
    n = len(y_test)
    if task == "regression":
        constant = np.broadcast_to(np.nanmean(y_train, axis=0), y_test.shape)
        return compute_scores(task, y_test, constant)
    if task == "classification":
        classes, counts = np.unique(y_train, return_counts=True)
        frequencies = np.broadcast_to(counts / counts.sum(), (n, len(classes)))
        constant = np.full(n, classes[int(np.argmax(counts))])
        return compute_scores(task, y_test, constant, frequencies, classes)
    frequencies = np.broadcast_to(y_train.mean(axis=0), y_test.shape)
    return compute_scores(task, y_test, (frequencies > 0.5).astype(int), frequencies)


def quantile_scores(
    y: np.ndarray, predicted: np.ndarray, levels: np.ndarray, weight: np.ndarray | None = None
) -> dict[str, float]:
    """Compute scores of predicted quantiles.

    Parameters
    ----------
    y : ndarray of shape (n,) or (n, n_targets)
        NaN where missing.
    predicted : ndarray of shape (n, n_targets * n_levels)
        The levels of the first target first.
    levels : ndarray of shape (n_levels,)
        Between 0 and 1.
    weight : ndarray of shape (n,), optional
        Weights of the rows.

    Returns
    -------
    dict of str to float
        For each level the pinball loss (Koenker and Bassett 1978) and the share of `y` that is not
        above its prediction, which should be the level; means over all known targets.
    """
    Y = np.asarray(y, dtype=np.float64).reshape(len(y), -1)
    by_level = np.asarray(predicted, dtype=np.float64).reshape(*Y.shape, len(levels))
    found, known = {}, ~np.isnan(Y)
    weights = None if weight is None else np.broadcast_to(weight[:, None], Y.shape)[known]
    for i, level in enumerate(levels):
        error = (Y - by_level[..., i])[known]
        loss = np.maximum(level * error, (level - 1) * error)
        found[f"pinball loss q{level:g}"] = float(np.average(loss, weights=weights))
        found[f"share below q{level:g}"] = float(np.average(error <= 0, weights=weights))
    return found


def distribution_scores(
    y: np.ndarray, distribution: Distribution, weight: np.ndarray | None = None
) -> dict[str, float]:
    """Compute scores of predicted distributions.

    Parameters
    ----------
    y : ndarray of the shape of the distributions, (n,) or (n, n_targets)
        NaN where missing.
    distribution : Distribution
    weight : ndarray of shape (n,), optional
        Weights of the rows.

    Returns
    -------
    dict of str to float
        Means over all known targets: the negative log-likelihood (NLL, in nats), the continuous
        ranked probability score (CRPS, in the unit of y), and the coverage of central intervals of
        90 %.
    """
    known = ~np.isnan(y)
    weights = None
    if weight is not None:
        weights = np.broadcast_to(weight.reshape(-1, *[1] * (y.ndim - 1)), y.shape)[known]
    bounds = distribution.interval(0.9)
    scores = {
        "NLL": -distribution.logpdf(y),
        "CRPS": distribution.crps(y),
        "share in 90 %": (bounds[..., 0] <= y) & (y <= bounds[..., 1]),
    }
    return {
        name: float(np.average(values[known], weights=weights)) for name, values in scores.items()
    }


def _regression_scores(
    y: np.ndarray, predicted: np.ndarray, weight: np.ndarray | None = None
) -> dict[str, float]:
    Y = np.asarray(y, dtype=np.float64).reshape(len(y), -1)
    known = ~np.isnan(Y)
    weights = None if known.all() and weight is None else known.astype(np.float64)
    if weights is not None and weight is not None:
        weights *= weight[:, None]
    prediction = np.asarray(predicted, dtype=np.float64).reshape(Y.shape)
    data = np.where(known, Y, 0.0), prediction, weights
    found = {"RMSE": rmse(*data)}
    if Y.shape[1] > 1:
        found["aRMSE"] = armse(*data)
    return {**found, "MAE": mae(*data), "R2": r2(*data)}


def _classification_scores(
    y: np.ndarray,
    predicted: np.ndarray,
    probabilities: np.ndarray | None,
    classes: np.ndarray | None,
    weight: np.ndarray | None,
) -> dict[str, float]:
    from sklearn.metrics import f1_score

    f1 = f1_score(y, predicted, average="macro", zero_division=0, sample_weight=weight)
    found = {"accuracy": float(np.average(y == predicted, weights=weight)), "macro F1": float(f1)}
    if probabilities is not None and classes is not None:
        column = np.minimum(np.searchsorted(classes, y), len(classes) - 1)
        # A class that is not in the training data has probability zero.
        true = np.where(classes[column] == y, probabilities[np.arange(len(y)), column], 0.0)
        found["log loss"] = float(np.average(-np.log(_clip_probability(true)), weights=weight))
    return found


def _multilabel_scores(
    y: np.ndarray,
    predicted: np.ndarray,
    probabilities: np.ndarray | None,
    weight: np.ndarray | None,
) -> dict[str, float]:
    from sklearn.metrics import f1_score

    right = np.asarray(y) == np.asarray(predicted)
    # scikit-learn takes a single label as two classes, whose F1 is that of the positive class.
    averages = ("micro", "macro") if right.shape[1] > 1 else ("binary",)
    found = {
        "label accuracy": float(np.average(right.mean(axis=1), weights=weight)),
        "subset accuracy": float(np.average(right.all(axis=1), weights=weight)),
    }
    for average in averages:
        f1 = f1_score(y, predicted, average=average, zero_division=0, sample_weight=weight)
        found[f"{average} F1".removeprefix("binary ")] = float(f1)
    if probabilities is not None:
        true = np.where(np.asarray(y) == 1, probabilities, 1 - probabilities)
        loss = -np.log(_clip_probability(true)).mean(axis=1)
        found["log loss"] = float(np.average(loss, weights=weight))
    return found


def _clip_probability(probabilities: np.ndarray) -> np.ndarray:
    """Clip probabilities away from 0, as scikit-learn does, so that the mean loss stays finite."""
    return np.clip(np.asarray(probabilities, dtype=np.float64), np.finfo(np.float64).eps, 1.0)
