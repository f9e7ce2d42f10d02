"""Metrics of a whole task: D2, the metrics of one of several tasks, and tables of scores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from polyleaf.distributions import Distribution
from polyleaf.metrics._regression import armse, mae, r2, rmse
from polyleaf.objectives import Objective
from polyleaf.objectives._utils import copy_columns
from polyleaf.runtime.row_data import RowData

if TYPE_CHECKING:
    from polyleaf.metrics.metric import Metric
    from polyleaf.objectives.multitask import TaskSlice

Array = np.ndarray
Floats = NDArray[np.float64]

TASKS = ("regression", "classification", "multilabel")


# --- D2 and the metrics of one of several tasks ---


@dataclass(frozen=True)
class D2:
    """1 - error / error of the best constant on the same data, averaged over the outputs.

    For squared error it is R2, in general the D2 of scikit-learn (Hastie, Tibshirani and
    Wainwright, "Statistical Learning with Sparsity", 2015, section 3.8). Outputs whose best
    constant has no error are left out.

    `objective`: provides the constant. `metric`: measures the errors, 0 at best.
    """

    objective: Objective
    metric: Metric

    def bind(
        self, rows: RowData, training: RowData | None, n_outputs: int | None
    ) -> Callable[[Array], float]:
        """Return the score as a function of the raw scores of these rows."""
        objective, measured = self.objective, self.metric.bind(rows, training, n_outputs)

        def compute_errors(raw: Array) -> Floats:
            prediction = raw if self.metric.prediction_type == "raw" else objective.transform(raw)
            if "labels" not in objective.target_kinds:
                each = measured.per_output(prediction)
                if each is not None:
                    return each
            return np.array([measured(prediction)])

        base = objective.bind(rows).base_score()
        baseline = compute_errors(np.tile(base, (rows.n_rows, 1)))
        exists = baseline > 0

        def d2(raw: Array) -> float:
            if not exists.any():
                return float("nan")
            return float(np.mean(1.0 - compute_errors(raw)[exists] / baseline[exists]))

        return d2


@dataclass(frozen=True)
class MeanD2:
    """The mean D2 of the tasks for which it exists.

    `task_metrics`: one of a `D2` for each task.
    """

    task_metrics: tuple[TaskMetric, ...]

    def bind(
        self, rows: RowData, training: RowData | None, n_outputs: int | None
    ) -> Callable[[Array], float]:
        """Return the mean as a function of the raw scores of these rows."""
        each = [metric.bind(rows, training, n_outputs) for metric in self.task_metrics]

        def mean_d2(raw: Array) -> float:
            scores = np.array([d2(raw) for d2 in each])
            return float(np.nanmean(scores)) if not np.isnan(scores).all() else float("nan")

        return mean_d2


@dataclass(frozen=True)
class TaskMetric:
    """The metric of one task as a function of the scores of all tasks.

    `place`: the columns of the task.
    """

    place: TaskSlice
    metric: Metric

    @property
    def greater_is_better(self) -> bool:
        return self.metric.prefers_greater

    def bind(
        self, rows: RowData, training: RowData | None, n_outputs: int | None
    ) -> Callable[[Array], float]:
        """Return the metric as a function of the predictions of all tasks for these rows."""
        own_training = None if training is None else self.place.select_rows(training)
        n_scores = self.place.task.n_scores
        metric = self.metric.bind(self.place.select_rows(rows), own_training, n_scores)
        is_raw = self.metric.prediction_type == "raw"
        columns = self.place.scores if is_raw else self.place.predictions
        return lambda prediction: float(metric(copy_columns(prediction, columns)))


# --- tables of scores, as the command line and the report show them ---


def compute_scores(
    task: str,
    rows: RowData,
    predicted: np.ndarray,
    probabilities: np.ndarray | None = None,
    classes: np.ndarray | None = None,
) -> dict[str, float]:
    """Compute the usual scores of a task.

    Parameters
    ----------
    task : {"regression", "classification", "multilabel"}
    rows : RowData
        Targets (n,) or (n, n_outputs): numbers, labels, or 0/1 indicators; in regression NaN marks
        missing values. Weights of the rows (n,), or None.
    probabilities : ndarray of shape (n, n_classes) or (n, n_labels), optional
        Adds the log loss (natural logarithm, mean over rows, and over labels).
    classes : ndarray of shape (n_classes,), optional
        The label of each column of `probabilities`.

    Returns
    -------
    dict of str to float
        Regression: RMSE over all known values, for several outputs also aRMSE (the mean of their
        RMSEs), MAE and R2: the metrics `rmse`, `armse`, `mae` and `r2`. Classification: accuracy,
        macro F1, log loss. Multi-label: label accuracy (share of right labels), subset accuracy
        (share of rows with all labels right), micro F1, macro F1, log loss.
    """
    if task == "regression":
        return _regression_scores(rows, predicted)
    if task == "classification":
        return _classification_scores(rows, predicted, probabilities, classes)
    return _multilabel_scores(rows, predicted, probabilities)


def compute_scores_per_target(
    task: str,
    names: Sequence[str],
    rows: RowData,
    predicted: np.ndarray,
    *,
    probabilities: np.ndarray | None = None,
    classes: np.ndarray | None = None,
    levels: Sequence[float] = (),
    distribution: Distribution | None = None,
) -> tuple[dict[str, float], dict[str, dict[str, float]]]:
    """Compute the scores of all targets together, and of each of several targets by name.

    Parameters are as in `compute_scores`; with `levels`, predictions are quantiles as in
    `quantile_scores`; a `distribution` of the shape of y adds `distribution_scores`.
    """

    def score(columns: slice) -> dict[str, float]:
        target_rows, y, own_distribution = rows, rows.target, distribution
        own_predicted, own_probabilities = predicted, probabilities
        if y.ndim > 1:
            own_distribution = None if distribution is None else distribution[:, columns]
            width = max(1, len(levels))
            target_rows = rows.replace(target=y[:, columns])
            own_predicted = predicted[:, columns.start * width : columns.stop * width]
            own_probabilities = None if probabilities is None else probabilities[:, columns]
        if len(levels):
            return quantile_scores(target_rows, own_predicted, np.array(levels))
        scores = compute_scores(task, target_rows, own_predicted, own_probabilities, classes)
        if own_distribution is not None:
            scores |= distribution_scores(target_rows, own_distribution)
        return scores

    each = {name: score(slice(k, k + 1)) for k, name in enumerate(names)} if len(names) > 1 else {}
    return score(slice(0, len(names))), each


def baseline_scores(task: str, y_train: np.ndarray, y_test: np.ndarray) -> dict[str, float]:
    """Compute the scores on test rows of a constant baseline.

    It predicts the mean of each output, the most frequent class, or the majority of each label,
    and the frequencies as probabilities.
    """
    n, rows = len(y_test), RowData(y_test)
    if task == "regression":
        constant = np.broadcast_to(np.nanmean(y_train, axis=0), y_test.shape)
        return compute_scores(task, rows, constant)
    if task == "classification":
        classes, counts = np.unique(y_train, return_counts=True)
        frequencies = np.broadcast_to(counts / counts.sum(), (n, len(classes)))
        constant = np.full(n, classes[int(np.argmax(counts))])
        return compute_scores(task, rows, constant, frequencies, classes)
    frequencies = np.broadcast_to(y_train.mean(axis=0), y_test.shape)
    return compute_scores(task, rows, (frequencies > 0.5).astype(int), frequencies)


def quantile_scores(rows: RowData, predicted: np.ndarray, levels: np.ndarray) -> dict[str, float]:
    """Compute scores of predicted quantiles.

    Parameters
    ----------
    rows : RowData
        Targets (n,) or (n, n_targets), NaN where missing, and weights of the rows.
    predicted : ndarray of shape (n, n_targets * n_levels)
        The levels of the first target first.
    levels : ndarray of shape (n_levels,)
        Between 0 and 1.

    Returns
    -------
    dict of str to float
        For each level the pinball loss (Koenker and Bassett 1978) and the share of targets not
        above its prediction, which should be the level; means over all known targets.
    """
    Y, weight = _read_targets(rows), rows.weight
    by_level = np.asarray(predicted, dtype=np.float64).reshape(*Y.shape, len(levels))
    scores, known = {}, ~np.isnan(Y)
    weights = None if weight is None else np.broadcast_to(weight[:, None], Y.shape)[known]
    for i, level in enumerate(levels):
        error = (Y - by_level[..., i])[known]
        loss = np.maximum(level * error, (level - 1) * error)
        scores[f"pinball loss q{level:g}"] = float(np.average(loss, weights=weights))
        scores[f"share below q{level:g}"] = float(np.average(error <= 0, weights=weights))
    return scores


def distribution_scores(rows: RowData, distribution: Distribution) -> dict[str, float]:
    """Compute scores of predicted distributions.

    `rows`: targets of the shape of the distributions, (n,) or (n, n_targets), NaN where missing,
    and weights of the rows.

    Returns
    -------
    dict of str to float
        Means over all known targets: the negative log-likelihood (NLL, in nats), the continuous
        ranked probability score (CRPS, in the unit of y), and the coverage of central intervals of
        90%.
    """
    y, weight, weights = rows.target, rows.weight, None
    known = ~np.isnan(y)
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


def _read_targets(rows: RowData) -> np.ndarray:
    return np.asarray(rows.target, dtype=np.float64).reshape(len(rows.target), -1)


def _regression_scores(rows: RowData, predicted: np.ndarray) -> dict[str, float]:
    Y, weight = _read_targets(rows), rows.weight
    known = ~np.isnan(Y)
    weights = None if known.all() and weight is None else known.astype(np.float64)
    if weights is not None and weight is not None:
        weights *= weight[:, None]
    prediction = np.asarray(predicted, dtype=np.float64).reshape(Y.shape)
    rows = RowData(np.where(known, Y, 0.0), weights)
    scores = {"RMSE": rmse(rows, prediction)}
    if Y.shape[1] > 1:
        scores["aRMSE"] = armse(rows, prediction)
    return {**scores, "MAE": mae(rows, prediction), "R2": r2(rows, prediction)}


def _classification_scores(
    rows: RowData,
    predicted: np.ndarray,
    probabilities: np.ndarray | None,
    classes: np.ndarray | None,
) -> dict[str, float]:
    from sklearn.metrics import f1_score

    y, weight = rows.target, rows.weight
    f1 = f1_score(y, predicted, average="macro", zero_division=0, sample_weight=weight)
    scores = {"accuracy": float(np.average(y == predicted, weights=weight)), "macro F1": float(f1)}
    if probabilities is not None and classes is not None:
        column = np.minimum(np.searchsorted(classes, y), len(classes) - 1)
        # A class that is not in the training data has probability zero.
        true = np.where(classes[column] == y, probabilities[np.arange(len(y)), column], 0.0)
        scores["log loss"] = float(np.average(-np.log(_clip_probability(true)), weights=weight))
    return scores


def _multilabel_scores(
    rows: RowData, predicted: np.ndarray, probabilities: np.ndarray | None
) -> dict[str, float]:
    from sklearn.metrics import f1_score

    y, predicted, weight = np.asarray(rows.target), np.asarray(predicted), rows.weight
    known = ~np.isnan(y)
    if not known.all():
        # A missing label counts in no score: for F1 it is absent and predicted so.
        used = known.any(axis=1)
        weight = None if weight is None else weight[used]
        probabilities = None if probabilities is None else probabilities[used]
        y, predicted, known = y[used], np.where(known, predicted, 0)[used], known[used]
    right = np.where(known, y == predicted, np.nan)
    y = np.where(known, y, 0)
    # scikit-learn takes a single label as two classes, whose F1 is the F1 of the positive class.
    averages = ("micro", "macro") if right.shape[1] > 1 else ("binary",)
    scores = {
        "label accuracy": float(np.average(np.nanmean(right, axis=1), weights=weight)),
        "subset accuracy": float(np.average((right != 0).all(axis=1), weights=weight)),
    }
    for average in averages:
        f1 = f1_score(y, predicted, average=average, zero_division=0, sample_weight=weight)
        scores[f"{average} F1".removeprefix("binary ")] = float(f1)
    if probabilities is not None:
        true = np.where(y == 1, probabilities, 1 - probabilities)
        loss = np.nanmean(np.where(known, -np.log(_clip_probability(true)), np.nan), axis=1)
        scores["log loss"] = float(np.average(loss, weights=weight))
    return scores


def _clip_probability(probabilities: np.ndarray) -> np.ndarray:
    """Clip probabilities away from 0, as scikit-learn does, so that the mean loss stays finite."""
    return np.clip(np.asarray(probabilities, dtype=np.float64), np.finfo(np.float64).eps, 1.0)
