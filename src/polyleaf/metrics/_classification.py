"""Metrics of classes and labels, and the choice of a decision threshold by F1.

Raw scores are used where a metric compares decisions or measures a log loss; ranking metrics and
the Brier score take probabilities.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import entr

import polyleaf._core as _core
from polyleaf.metrics._regression import (
    as_matrices,
    as_matrix,
    mean_over_outputs,
    mse,
    safe_divide,
    weighted_means,
)
from polyleaf.runtime.row_data import RowData
from polyleaf.user_data.read_target import SHARES_TOLERANCE

Array = np.ndarray
Floats = NDArray[np.float64]


# --- targets and decisions ---


def _check_labels(y: Array, smallest: float = -1.0) -> Array:
    """Return y if it holds 0 (or `smallest`), 1 or probabilities; NaN marks a missing label."""
    invalid = np.flatnonzero(((y < 0) & (y != smallest)) | (y > 1))
    if len(invalid):
        raise ValueError(
            f"This metric requires labels 0 and 1, but y contains {np.ravel(y)[invalid[0]]:.6g}: "
            "use a regression metric, such as 'rmse', 'mae' or 'r2'."
        )
    return y


def _check_class_ids(y: Array, name: str) -> NDArray[np.int32]:
    y = np.asarray(y)
    if y.ndim != 1:
        raise ValueError(
            f"Metric {name!r} requires class ids of shape (n,), but y has shape {y.shape}. For "
            "binary and multi-label targets use 'logloss' or 'error'."
        )
    return np.ascontiguousarray(y, dtype=np.int32)


def _as_float32(values: Array | None) -> Any:
    return None if values is None else np.ascontiguousarray(as_matrix(values), dtype=np.float32)


def get_decisions(y: Array, raw: Array) -> tuple[Array, Array]:
    """Return truth and decision: class ids ``(n,)``, or booleans ``(n, K)`` for labels.

    A label is predicted where its raw score is above 0.
    """
    raw = as_matrix(raw)
    if np.ndim(y) == 1 and raw.shape[1] > 1:
        return np.asarray(y), raw.argmax(axis=1)
    y, raw = as_matrices(y, raw)
    return _check_labels(y) > 0.5, raw > 0


def _one_vs_rest(rows: RowData, proba: Array) -> tuple[RowData, Array]:
    """Return labels and probabilities ``(n, K)`` with contiguous columns, one per class."""
    proba, y = np.asfortranarray(as_matrix(proba)), rows.target
    if np.ndim(y) == 1 and proba.shape[1] > 1:
        labels = (np.arange(proba.shape[1])[:, None] == np.asarray(y)).T
    else:
        labels = np.asfortranarray(as_matrix(_check_labels(y))) > 0.5
    return rows.replace(target=labels), proba


# --- losses ---


def logloss(rows: RowData, raw: Array) -> float:
    """Return the mean binary cross-entropy of raw scores over rows and labels, without clipping."""
    y, raw = as_matrices(_check_labels(rows.target, 0.0), raw)
    n_outputs = raw.shape[1]
    zeros, ones = np.zeros(n_outputs, np.float32), np.ones(n_outputs, np.float32)
    loss = _core.Loss("logistic", {})
    return _core.loss_mean(
        loss, _as_float32(raw), _as_float32(y), _as_float32(rows.weight), zeros, ones, 1
    )


def mlogloss(rows: RowData, raw: Array) -> float:
    """Return the mean cross-entropy of raw scores ``(n, K)`` and class ids or shares of classes."""
    y = rows.target
    target = _as_float32(y) if _is_shares(y, raw) else _check_class_ids(y, "mlogloss")
    zeros = np.zeros(raw.shape[1], np.float32)
    loss = _core.ClassLoss("softmax", {"factor": 1.0})
    return _core.class_mean(loss, _as_float32(raw), target, _as_float32(rows.weight), zeros, 1)


def _is_shares(y: Array, raw: Array) -> bool:
    if np.ndim(y) != 2 or y.shape[1] < 2 or y.shape != np.shape(raw):
        return False
    return bool((y >= 0).all() and (np.abs(y.sum(axis=1) - 1) <= SHARES_TOLERANCE).all())


def kl_divergence(rows: RowData, raw: Array) -> float:
    """Return `mlogloss` less the entropy of the shares, which is its smallest value."""
    cross_entropy = mlogloss(rows, raw)
    if np.ndim(rows.target) == 1:
        return cross_entropy
    entropy = entr(rows.target).sum(axis=1, keepdims=True)
    return cross_entropy - weighted_means(entropy, rows.weight)[0]


def brier_of_shares(rows: RowData, proba: Array) -> float:
    """Return the mean squared error of probabilities of classes, summed over classes."""
    squares = np.square(proba - rows.target).sum(axis=1, keepdims=True)
    return weighted_means(squares, rows.weight)[0]


def brier(rows: RowData, proba: Array) -> float:
    """Return the mean squared error of probabilities, summed over classes for class ids."""
    proba, y = as_matrix(proba), rows.target
    if np.ndim(y) == 1 and proba.shape[1] > 1:
        truth = np.asarray(y)[:, None] == np.arange(proba.shape[1])
        return brier_of_shares(rows.replace(target=truth), proba)
    _check_labels(y, 0.0)
    return mse(rows, proba)


# --- decisions ---


def error(rows: RowData, raw: Array) -> float:
    """Return the share of wrong decisions; for labels the Hamming loss."""
    truth, decision = get_decisions(rows.target, raw)
    return weighted_means(as_matrix(truth != decision), rows.weight)[0]


def accuracy(rows: RowData, raw: Array) -> float:
    """Return the share of right decisions, 1 - `error`."""
    return 1.0 - error(rows, raw)


def subset_accuracy(rows: RowData, raw: Array) -> float:
    """Return the share of rows whose labels are all right; labels of weight 0 are ignored."""
    truth, decision = (as_matrix(values) for values in get_decisions(rows.target, raw))
    wrong = truth != decision
    if rows.weight is None:
        return float(1.0 - wrong.any(axis=1).mean())
    weight = as_matrix(rows.weight)
    row_weight = weight.mean(axis=1)
    right = ~(wrong & (weight > 0)).any(axis=1)
    return float(safe_divide((right * row_weight).sum(), row_weight.sum()))


def _f1_counts(rows: RowData, raw: Array) -> tuple[Array, Array]:
    """Return twice the true positives, and positives plus predicted positives, of each label."""
    truth, decision = get_decisions(rows.target, raw)
    if truth.ndim == 1:
        classes = np.arange(raw.shape[1])
        truth, decision = truth[:, None] == classes, decision[:, None] == classes
    weight = np.ones((len(truth), 1))
    if rows.weight is not None:
        weight = as_matrix(rows.weight).astype(np.float64)
    hits = 2.0 * (weight * (truth & decision)).sum(axis=0)
    return hits, (weight * truth + weight * decision).sum(axis=0)


def f1_micro(rows: RowData, raw: Array) -> float:
    """Return F1 of all labels or classes counted together."""
    hits, counts = _f1_counts(rows, raw)
    total = float(counts.sum())
    return float(hits.sum()) / total if total > 0 else 0.0


def f1_macro(rows: RowData, raw: Array) -> float:
    """Return the mean F1 of labels or classes; 0 for one that neither occurs nor is predicted."""
    hits, counts = _f1_counts(rows, raw)
    return float(np.divide(hits, counts, out=np.zeros_like(hits), where=counts > 0).mean())


def confusion_score(score: Callable[[Floats], float], rows: RowData, raw: Array) -> float:
    """Apply a score of confusion matrices to classes, or average it over labels."""
    truth, decision = get_decisions(rows.target, raw)
    rows = rows.replace(target=truth)
    if truth.ndim == 1:
        return score(confusion_matrix(rows, decision, as_matrix(raw).shape[1]))
    return mean_over_outputs(
        lambda label, decided: score(confusion_matrix(label, decided, 2)), rows, decision
    )


def confusion_matrix(rows: RowData, decision: Array, n_classes: int) -> Floats:
    """Return the weight of the rows of each true class (rows) and predicted class (columns)."""
    cell = rows.target.astype(np.int64) * n_classes + decision.astype(np.int64)
    weight = None if rows.weight is None else as_matrix(rows.weight)[:, 0]
    counts = np.bincount(cell, weight, n_classes**2)
    return counts.astype(np.float64).reshape(n_classes, n_classes)


def balanced_accuracy(matrix: Floats) -> float:
    """Return the mean recall of the classes that occur; NaN if none does."""
    totals = matrix.sum(axis=1)
    occurs = totals > 0
    return (
        float(np.mean(np.diag(matrix)[occurs] / totals[occurs])) if occurs.any() else float("nan")
    )


def matthews_correlation(matrix: Floats) -> float:
    """Return the correlation of truth and decision (Matthews 1975, Gorodkin 2004).

    It is 0 where truth or decision is the same for all rows.
    """
    true, predicted, total = matrix.sum(axis=1), matrix.sum(axis=0), matrix.sum()
    covariance = np.trace(matrix) * total - true @ predicted
    variance = (total**2 - true @ true) * (total**2 - predicted @ predicted)
    return float(covariance / np.sqrt(variance)) if variance > 0 else 0.0


def cohen_kappa(matrix: Floats, power: int) -> float:
    """Return Cohen's kappa: 1 - disagreement / disagreement expected by chance.

    A disagreement costs 1 (`power` 0) or the distance of the class ids to this power (Cohen 1968).
    NaN where chance would not disagree.
    """
    ids = np.arange(len(matrix), dtype=np.float64)
    distance = np.abs(ids[:, None] - ids)
    cost = distance**power if power else (distance > 0).astype(np.float64)
    chance = np.outer(matrix.sum(axis=1), matrix.sum(axis=0)) / max(matrix.sum(), 1e-300)
    expected = float((cost * chance).sum())
    return 1.0 - float((cost * matrix).sum()) / expected if expected > 0 else float("nan")


# --- ranked probabilities ---


def auc(rows: RowData, proba: Array) -> float:
    """Return the area under the ROC curve, averaged over labels or one-vs-rest classes.

    Labels that are the same in all rows are left out; NaN if none is left.
    """
    return mean_over_outputs(binary_roc_auc, *_one_vs_rest(rows, proba))


def average_precision(rows: RowData, proba: Array) -> float:
    """Return the average precision, averaged over labels or one-vs-rest classes.

    Labels that are the same in all rows are left out; NaN if none is left.
    """
    return mean_over_outputs(binary_average_precision, *_one_vs_rest(rows, proba))


def binary_roc_auc(rows: RowData, score: Array) -> float:
    """Return the probability that a positive row has the larger score; ties count one half.

    Returns NaN where all rows are of one class.

    `rows`: its target is an ndarray of bool, shape (n,), and weights have the same shape. `score`
    (n,).
    """
    y, weight = rows.target, rows.weight
    n_positive = int(np.count_nonzero(y))
    if n_positive in (0, len(y)):
        return float("nan")
    rarer = y if 2 * n_positive <= len(y) else ~y
    cumulative = _CumulativeWeight(score, weight)
    scores = score[rarer]
    # Twice the weight below each score, so that a tie counts one half.
    below = cumulative.up_to(scores, "left") + cumulative.up_to(scores, "right")
    if weight is None:
        rarer_weight, pairs = float(len(scores)), 0.5 * float(below.sum())
    else:
        row_weight = weight[rarer].astype(np.float64)
        rarer_weight, pairs = float(row_weight.sum()), 0.5 * float(row_weight @ below)
    # Pairs within the rarer class count one half each.
    area = (pairs - 0.5 * rarer_weight**2) / (rarer_weight * (cumulative.total - rarer_weight))
    return area if rarer is y else 1.0 - area


def binary_average_precision(rows: RowData, score: Array) -> float:
    """Return the mean, over positive rows, of the precision among rows with no smaller a score.

    Parameters and the undefined case are as in `binary_roc_auc`.
    """
    y, weight = rows.target, rows.weight
    n_positive = int(np.count_nonzero(y))
    if n_positive in (0, len(y)):
        return float("nan")
    positive_scores, positive_weight = score[y], None if weight is None else weight[y]
    positives = _CumulativeWeight(positive_scores, positive_weight)
    every = _CumulativeWeight(score, weight)
    n_right = positives.total - positives.up_to(positive_scores, "left")
    precision = n_right / (every.total - every.up_to(positive_scores, "left"))
    return float(np.average(precision, weights=positive_weight))


class _CumulativeWeight:
    """The weight of the rows below a score ("left") or up to it ("right").

    Scores are sorted once and looked up for the rows of one class only.
    """

    def __init__(self, score: Array, weight: Array | None) -> None:
        order = None if weight is None else np.argsort(score)
        self._sorted = np.sort(score) if order is None else score[order]
        self._sums = None
        if weight is not None:
            self._sums = np.concatenate([[0.0], np.cumsum(weight[order], dtype=np.float64)])
        self.total = float(len(score)) if self._sums is None else float(self._sums[-1])

    def up_to(self, scores: Array, side: Any) -> Array:
        position = np.searchsorted(self._sorted, scores, side)
        return position if self._sums is None else self._sums[position]


# --- decision thresholds by F1 ---


def best_f1_threshold(
    probability: Array, truth: Array, weight: Array | None = None, macro: bool = False
) -> float:
    """Return the decision threshold, shared by all labels, with the largest F1.

    Returns the midpoint between two probabilities that occur, the highest one on ties; 0.5
    where no label is true.

    Parameters
    ----------
    probability : ndarray of shape (n_rows, n_labels)
    truth : ndarray of shape (n_rows, n_labels)
        0 or 1. With the probabilities themselves, the expected F1 is maximised without labels, up
        to the ratio of expectations in place of the expected ratio (Lipton, Elkan and
        Naryanaswamy, "Optimal thresholding of classifiers to maximize F1 measure", ECML PKDD 2014).
    weight : ndarray of shape (n_rows,) or (n_rows, n_labels), optional
        Non-negative weights; 0 leaves a row or a label out.
    macro : bool
        Average the F1 of the labels, leaving out labels that no row has; for a single label,
        average the F1 of both classes. False: F1 of all labels counted together.
    """
    values, f1 = f1_by_threshold(probability, truth, weight, macro)
    if not len(f1) or f1.max() <= 0:
        return 0.5
    best = int(np.argmax(f1))
    below = values[best + 1] if best + 1 < len(values) else 0.0
    return float((values[best] + below) / 2)


def f1_by_threshold(
    probability: Array, truth: Array, weight: Array | None = None, macro: bool = False
) -> tuple[Floats, Floats]:
    """Return the distinct probabilities, descending, and F1 with each as the threshold.

    Parameters are as in `best_f1_threshold`.
    """
    p, y = (
        np.asarray(values, np.float64).reshape(len(values), -1) for values in (probability, truth)
    )
    w = np.ones(p.shape) if weight is None else np.asarray(weight, np.float64)
    w = np.broadcast_to(w.reshape(len(w), -1), p.shape)
    order = np.argsort(-p, axis=None, kind="stable")
    sorted_p, sorted_y, sorted_w = p.ravel()[order], y.ravel()[order], w.ravel()[order]
    f1 = np.zeros(p.size)
    if not macro:
        f1 = _cumulative_f1(sorted_y, sorted_w)
    elif p.shape[1] == 1:
        f1 = (_cumulative_f1(sorted_y, sorted_w) + _cumulative_negative_f1(sorted_y, sorted_w)) / 2
    else:
        label = np.tile(np.arange(p.shape[1]), len(p))[order]
        present = [k for k in range(p.shape[1]) if (w[:, k] * y[:, k]).sum() > 0]
        for k in present:  # the change by each entry of the label, summed up below
            at = np.flatnonzero(label == k)
            f1[at] = np.diff(_cumulative_f1(sorted_y[at], sorted_w[at]), prepend=0.0)
        f1 = np.cumsum(f1) / max(1, len(present))
    is_last = np.append(sorted_p[1:] < sorted_p[:-1], True)  # of a run of equal probabilities
    return sorted_p[is_last], f1[is_last]


def _cumulative_f1(y: Array, w: Array) -> Floats:
    """Return F1 of predicting the first entry, the first two, and so on."""
    right, predicted, true = np.cumsum(w * y), np.cumsum(w), (w * y).sum()
    total = predicted + true
    return np.divide(2 * right, total, out=np.zeros(len(y)), where=total > 0)


def _cumulative_negative_f1(y: Array, w: Array) -> Floats:
    """Return F1 of the negative class for the same predictions."""
    wrong, predicted, true = np.cumsum(w * (1 - y)), w.sum() - np.cumsum(w), (w * (1 - y)).sum()
    total = predicted + true
    return np.divide(2 * (true - wrong), total, out=np.zeros(len(y)), where=total > 0)
