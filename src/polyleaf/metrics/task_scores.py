"""Figures that tell how good predictions are, for each task, and those of a model that ignores the features.

Owns which figures the command line and the demo print. Those of numbers are `metrics`, as training logs them;
those of classes and labels see decisions and probabilities, which is what a model gives away.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from polyleaf.distributions import Distribution
from polyleaf.metrics import metric as metrics

__all__ = [
    "TASKS",
    "baseline",
    "distribution_scores",
    "compute_scores_per_target",
    "quantile_scores",
    "scores",
]

TASKS = ("regression", "classification", "multilabel")


def scores(
    task: str,
    y: np.ndarray,
    predicted: np.ndarray,
    probabilities: np.ndarray | None = None,
    classes: np.ndarray | None = None,
    weight: np.ndarray | None = None,
) -> dict[str, float]:
    """How well predictions agree with the truth.

    Parameters
    ----------
    task : {"regression", "classification", "multilabel"}
    y, predicted : ndarray of shape (n,) or (n, n_outputs)
        Numbers, labels, or 0/1 indicators. In regression NaN in `y` marks values that are not known.
    probabilities : ndarray of shape (n, n_classes) or (n, n_labels), optional
        Adds the log loss (natural logarithm, mean over rows, and over labels).
    classes : ndarray of shape (n_classes,), optional
        The label of each column of `probabilities`.
    weight : ndarray of shape (n,), optional
        How much each row counts.

    Returns
    -------
    dict of str to float
        regression: RMSE over all known values, of several outputs also aRMSE (the mean of their RMSEs), MAE
        and R2: the metrics `rmse`, `armse`, `mae` and `r2` (NaN where no output varies); classification:
        accuracy, macro F1, log loss; multilabel: label accuracy (cells that are right), subset accuracy (rows
        that are right in every label), micro F1, macro F1, log loss.
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
    """The scores of all targets together, and of each by its name, where there are several.

    Parameters are those of `scores`; with `levels` predictions are quantiles, as `quantile_scores` takes
    them; a `distribution` of the shape of y adds `distribution_scores`.
    """

    def found(columns: slice) -> dict[str, float]:
        law = distribution
        if y.ndim == 1:
            part, of_part, chances = y, predicted, probabilities
        else:
            law = None if distribution is None else distribution[:, columns]
            wide = slice(columns.start * max(1, len(levels)), columns.stop * max(1, len(levels)))
            part, of_part = y[:, columns], predicted[:, wide]
            chances = None if probabilities is None else probabilities[:, columns]
        if len(levels):
            return quantile_scores(part, of_part, np.array(levels), weight)
        of_law = {} if law is None else distribution_scores(part, law, weight)
        return scores(task, part, of_part, chances, classes, weight) | of_law

    each = {name: found(slice(k, k + 1)) for k, name in enumerate(names)} if len(names) > 1 else {}
    return found(slice(0, len(names))), each


def baseline(task: str, y_train: np.ndarray, y_test: np.ndarray) -> dict[str, float]:
    """The `scores` on the test rows of a model that knows only the training targets.

    It predicts each output's mean, the most frequent class, or for each label what holds more often; as
    probabilities it gives the frequencies.
    """
    n = len(y_test)
    if task == "regression":
        return scores(task, y_test, np.broadcast_to(np.nanmean(y_train, axis=0), y_test.shape))
    if task == "classification":
        classes, counts = np.unique(y_train, return_counts=True)
        frequencies = np.broadcast_to(counts / counts.sum(), (n, len(classes)))
        return scores(
            task, y_test, np.full(n, classes[int(np.argmax(counts))]), frequencies, classes
        )
    frequencies = np.broadcast_to(y_train.mean(axis=0), y_test.shape)
    return scores(task, y_test, (frequencies > 0.5).astype(int), frequencies)


def quantile_scores(
    y: np.ndarray, predicted: np.ndarray, levels: np.ndarray, weight: np.ndarray | None = None
) -> dict[str, float]:
    """How well quantiles were predicted.

    Parameters
    ----------
    y : ndarray of shape (n,) or (n, n_targets)
        NaN where not known.
    predicted : ndarray of shape (n, n_targets * n_levels)
        The levels of the first target first.
    levels : ndarray of shape (n_levels,)
        Between 0 and 1.
    weight : ndarray of shape (n,), optional
        How much each row counts.

    Returns
    -------
    dict of str to float
        For each level the pinball loss (Koenker and Bassett 1978), and the share of `y` that is not above its
        prediction, which should be the level; means over all known targets.
    """
    Y = np.asarray(y, dtype=np.float64).reshape(len(y), -1)
    by_level = np.asarray(predicted, dtype=np.float64).reshape(*Y.shape, len(levels))
    found, known = {}, ~np.isnan(Y)
    counts = None if weight is None else np.broadcast_to(weight[:, None], Y.shape)[known]
    for i, level in enumerate(levels):
        error = (Y - by_level[..., i])[known]
        loss = np.maximum(level * error, (level - 1) * error)
        found[f"pinball loss q{level:g}"] = float(np.average(loss, weights=counts))
        found[f"share below q{level:g}"] = float(np.average(error <= 0, weights=counts))
    return found


def distribution_scores(
    y: np.ndarray, distribution: Distribution, weight: np.ndarray | None = None
) -> dict[str, float]:
    """How well distributions were predicted.

    Parameters
    ----------
    y : ndarray of the shape of the distributions, (n,) or (n, n_targets)
        NaN where not known.
    distribution : Distribution
    weight : ndarray of shape (n,), optional
        How much each row counts.

    Returns
    -------
    dict of str to float
        Means over all known targets: the negative log-likelihood (NLL, in nats), the continuous ranked
        probability score (CRPS, in the unit of y), and the share of y inside central intervals of 90 %.
    """
    known = ~np.isnan(y)
    counts = (
        None
        if weight is None
        else np.broadcast_to(weight.reshape(-1, *[1] * (y.ndim - 1)), y.shape)[known]
    )
    bounds = distribution.interval(0.9)
    found = {
        "NLL": -distribution.logpdf(y),
        "CRPS": distribution.crps(y),
        "share in 90 %": (bounds[..., 0] <= y) & (y <= bounds[..., 1]),
    }
    return {
        name: float(np.average(values[known], weights=counts)) for name, values in found.items()
    }


def _regression_scores(
    y: np.ndarray, predicted: np.ndarray, weight: np.ndarray | None = None
) -> dict[str, float]:
    Y = np.asarray(y, dtype=np.float64).reshape(len(y), -1)
    known = ~np.isnan(Y)
    of_cells = None if known.all() and weight is None else known.astype(np.float64)
    if of_cells is not None and weight is not None:
        of_cells *= weight[:, None]
    given = (
        np.where(known, Y, 0.0),
        np.asarray(predicted, dtype=np.float64).reshape(Y.shape),
        of_cells,
    )
    found = {"RMSE": metrics.rmse(*given)}
    if Y.shape[1] > 1:
        found["aRMSE"] = metrics.armse(*given)
    return {**found, "MAE": metrics.mae(*given), "R2": metrics.r2(*given)}


def _classification_scores(
    y: np.ndarray,
    predicted: np.ndarray,
    probabilities: np.ndarray | None,
    classes: np.ndarray | None,
    weight: np.ndarray | None,
) -> dict[str, float]:
    from sklearn.metrics import f1_score

    found = {
        "accuracy": float(np.average(y == predicted, weights=weight)),
        "macro F1": float(
            f1_score(y, predicted, average="macro", zero_division=0, sample_weight=weight)
        ),
    }
    if probabilities is not None and classes is not None:
        column = np.minimum(np.searchsorted(classes, y), len(classes) - 1)
        # A class that training never saw has probability zero.
        of_truth = np.where(classes[column] == y, probabilities[np.arange(len(y)), column], 0.0)
        found["log loss"] = float(np.average(-np.log(_away_from_zero(of_truth)), weights=weight))
    return found


def _multilabel_scores(
    y: np.ndarray,
    predicted: np.ndarray,
    probabilities: np.ndarray | None,
    weight: np.ndarray | None,
) -> dict[str, float]:
    from sklearn.metrics import f1_score

    right = np.asarray(y) == np.asarray(predicted)
    # One label alone is two classes to scikit-learn, of which F1 is that of "yes".
    averages = ("micro", "macro") if right.shape[1] > 1 else ("binary",)
    found = {
        "label accuracy": float(np.average(right.mean(axis=1), weights=weight)),
        "subset accuracy": float(np.average(right.all(axis=1), weights=weight)),
    }
    for average in averages:
        f1 = f1_score(y, predicted, average=average, zero_division=0, sample_weight=weight)
        found[f"{average} F1".removeprefix("binary ")] = float(f1)
    if probabilities is not None:
        of_truth = np.where(np.asarray(y) == 1, probabilities, 1 - probabilities)
        loss = -np.log(_away_from_zero(of_truth)).mean(axis=1)
        found["log loss"] = float(np.average(loss, weights=weight))
    return found


def _away_from_zero(probabilities: np.ndarray) -> np.ndarray:
    """So that one row that was thought impossible does not make the mean infinite (as scikit-learn does)."""
    return np.clip(np.asarray(probabilities, dtype=np.float64), np.finfo(np.float64).eps, 1.0)
