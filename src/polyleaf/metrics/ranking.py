"""Metrics of ranked labels: P@k, nDCG@k and their propensity-scored forms.

The truth is an indicator matrix ``(n, L)``, dense or CSR (a label is true where the value is above
1/2), or class ids ``(n,)``. A prediction is a matrix of scores ``(n, L)``, dense or CSR (labels
that are not stored are not predicted), or a pair ``(labels, scores)`` of the best labels of each
row, ``(n, m)`` each, as returned by `predict_topk`; label -1 pads rows with fewer labels. An
integer matrix with fewer columns than there are labels holds the best labels of each row, best
first. Labels with equal scores are ranked by index. Positions beyond the last label are misses.

Definitions are as in the extreme classification repository (Bhatia et al., 2016), propensities as
in Jain, Prabhu and Varma, "Extreme Multi-label Loss Functions for
Recommendation, Tagging, Ranking & Other Missing Label Applications", KDD 2016.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from polyleaf.runtime.row_data import RowData

if TYPE_CHECKING:
    from polyleaf.runtime.types import DataLike

__all__ = [
    "NdcgAt",
    "PrecisionAt",
    "PropensityNdcgAt",
    "PropensityPrecisionAt",
    "ndcg_at",
    "parse_ranking_metric",
    "precision_at",
    "propensities",
    "psndcg_at",
    "psp_at",
    "ranking_scores",
    "top_labels",
]


def __dir__() -> list[str]:
    return __all__


Prediction: TypeAlias = "DataLike | tuple[np.ndarray, np.ndarray]"
"""Scores, labels, or a pair (labels, scores)."""

Array = np.ndarray
_BLOCK_SIZE = 1 << 22  # scores copied at a time


def top_labels(prediction: DataLike, k: int) -> NDArray[np.int64]:
    """Return the k best labels of each row.

    Parameters
    ----------
    prediction : ndarray or sparse matrix of shape (n, L), or pair (labels, scores) of shape (n, m)
        Scores; larger is better.
    k : int

    Returns
    -------
    ndarray of shape (n, k), int64
        Best first; -1 where there are fewer than k.

    Raises
    ------
    ValueError
        If a score is NaN, or labels and scores differ in shape.
    """
    if k < 1:
        raise ValueError(f"k must be at least 1, got {k}.")
    if isinstance(prediction, tuple):
        labels, scores = prediction
        return _top_of_pairs(labels, scores, k)
    if sp.issparse(prediction):
        return _top_of_csr(sp.csr_matrix(prediction), k)
    return _top_of_scores(np.asarray(prediction), k)


def _top_of_pairs(labels: DataLike, scores: DataLike, k: int) -> NDArray[np.int64]:
    labels, scores = np.asarray(labels), np.asarray(scores, dtype=np.float64)
    if labels.ndim != 2 or labels.shape != scores.shape:
        raise ValueError(
            f"Labels {labels.shape} and scores {scores.shape} must have the same shape (n, m)."
        )
    _check_no_nan(scores)
    scores = np.where(labels < 0, -np.inf, scores)
    by_label = np.argsort(labels, axis=1, kind="stable")
    order = np.argsort(-np.take_along_axis(scores, by_label, axis=1), axis=1, kind="stable")
    best = np.take_along_axis(labels, np.take_along_axis(by_label, order, axis=1), axis=1)
    return _pad(best[:, :k].astype(np.int64), k)


def _top_of_csr(scores: sp.csr_matrix, k: int) -> NDArray[np.int64]:
    scores.sort_indices()
    _check_no_nan(scores.data)
    row = np.repeat(np.arange(scores.shape[0]), np.diff(scores.indptr))
    order = np.lexsort((scores.indices, -scores.data, row))
    rank = np.arange(len(order)) - scores.indptr[row]
    best = np.full((scores.shape[0], k), -1, np.int64)
    chosen = rank < k
    best[row[chosen], rank[chosen]] = scores.indices[order[chosen]]
    return best


def _top_of_scores(scores: Array, k: int) -> NDArray[np.int64]:
    """Take the largest score k times: exact for ties, and for small k faster than a partition."""
    if scores.ndim != 2:
        raise ValueError(f"Scores to rank must have shape (n, L); got {scores.shape}.")
    n, n_labels = scores.shape
    best = np.empty((n, min(k, n_labels)), np.int64)
    size = max(1, _BLOCK_SIZE // max(1, n_labels))
    for begin in range(0, n, size):
        block = scores[begin : begin + size].astype(np.float64)
        _check_no_nan(block)
        np.maximum(block, -np.finfo(np.float64).max, out=block)  # -inf marks labels taken
        rows = np.arange(len(block))
        for rank in range(best.shape[1]):
            label = block.argmax(axis=1)
            best[begin : begin + size, rank] = label
            block[rows, label] = -np.inf
    return _pad(best, k)


def _check_no_nan(scores: Array) -> None:
    if np.isnan(scores).any():
        raise ValueError("Scores to rank contain NaN.")


def _pad(best: NDArray[np.int64], k: int) -> NDArray[np.int64]:
    missing = k - best.shape[1]
    return np.pad(best, ((0, 0), (0, missing)), constant_values=-1) if missing > 0 else best


class _TrueLabels:
    """The true labels as sorted pairs (row, label), so that nothing of size n * L is allocated.

    `n_labels` is required for class ids only; None: the largest id plus one.
    """

    def __init__(self, y: Any, n_labels: int | None) -> None:
        label: Array
        if sp.issparse(y):
            y = sp.coo_matrix(y)
            row, label = y.row[y.data > 0.5], y.col[y.data > 0.5]
        elif np.ndim(y) == 1:
            row, label = np.arange(len(y)), np.asarray(y, dtype=np.int64)
        else:
            row, label = np.nonzero(np.asarray(y) > 0.5)
        self.n: int = y.shape[0]
        if len(y.shape) == 2:
            n_labels = y.shape[1]
        self.n_labels: int = int(np.max(label, initial=-1)) + 1 if n_labels is None else n_labels
        keys = row.astype(np.int64) * self.n_labels + label
        self.keys = np.unique(keys)
        self.row, self.label = np.divmod(self.keys, max(1, self.n_labels))
        self.counts = np.bincount(self.row, minlength=self.n)

    def contains(self, best: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return whether each of the labels (n, k) is true in its row."""
        if len(best) != self.n:
            raise ValueError(f"y has {self.n} rows, but the prediction has {len(best)}.")
        largest = int(np.max(best, initial=-1))
        if largest >= self.n_labels:
            raise ValueError(
                f"The prediction contains label {largest}, but y has {self.n_labels} labels."
            )
        if len(self.keys) == 0:
            return np.zeros(best.shape, bool)
        keys = np.arange(self.n)[:, None] * self.n_labels + best
        at = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        return (self.keys[at] == keys) & (best >= 0)

    def top_true_labels(self, value: NDArray[np.float64], k: int) -> NDArray[np.int64]:
        """Return the k true labels of largest value, (n, k), -1 where there are fewer."""
        shape = self.n, self.n_labels
        return _top_of_csr(
            sp.csr_matrix((value[self.label], (self.row, self.label)), shape=shape), k
        )


def _read(
    y: Any, prediction: Any, weight: Any
) -> tuple[Any, Any, NDArray[np.float64] | None, int | None]:
    """Return y and prediction without missing labels (weight 0), the row weights, and L."""
    n_labels = None
    if isinstance(prediction, tuple):
        if np.ndim(y) == 1 and not sp.issparse(y):
            n_labels = 1 + max(np.max(part, initial=-1) for part in (y, prediction[0]))
    else:
        prediction = prediction if sp.issparse(prediction) else np.asarray(prediction)
        if prediction.ndim == 1:
            prediction = prediction[:, None]
        shape = np.shape(y) if not sp.issparse(y) else y.shape
        if _is_label_matrix(prediction, shape):
            scores = np.broadcast_to(-np.arange(prediction.shape[1], dtype=float), prediction.shape)
            return _read(y, (prediction, scores), weight)
        n_labels = prediction.shape[1]
        if len(shape) == 2 and shape[1] != n_labels:
            raise ValueError(f"y has {shape[1]} labels, but the prediction has {n_labels}.")
    if weight is None:
        return y, prediction, None, n_labels
    weight = np.asarray(weight, dtype=np.float64)
    if weight.ndim == 2 and weight.shape[1] > 1:
        if sp.issparse(y) or sp.issparse(prediction) or isinstance(prediction, tuple):
            raise ValueError("Per-label weights require dense y and dense scores.")
        y = np.where(weight > 0, y, 0)
        prediction = np.where(weight > 0, prediction, -np.inf)
        weight = weight.mean(axis=1)
    return y, prediction, weight.reshape(-1), n_labels


def _is_label_matrix(prediction: np.ndarray, shape: tuple[int, ...]) -> bool:
    """Return whether a prediction holds labels instead of scores; raise if it may be either."""
    if sp.issparse(prediction) or prediction.dtype.kind not in "iu" or prediction.shape[1] < 2:
        return False
    if len(shape) == 2 and prediction.shape[1] < shape[1]:
        return True
    ranked = np.sort(prediction, axis=1)
    if (ranked[:, 0] >= -1).all() and (np.diff(ranked, axis=1) > 0).all():
        raise ValueError(
            "The prediction is an integer matrix with different numbers in each row: scores or "
            "labels? Pass scores as floats, or labels as the pair (labels, scores)."
        )
    return False


def _weighted_mean(values: NDArray[np.float64], weight: NDArray[np.float64] | None) -> float:
    if weight is None:
        return float(values.mean()) if len(values) else float("nan")
    total = weight.sum()
    return float(weight @ values / total) if total > 0 else float("nan")


def _discounts(k: int) -> NDArray[np.float64]:
    return 1.0 / np.log2(np.arange(2, k + 2))


def precision_at(
    y: DataLike, prediction: Prediction, k: int = 1, weight: DataLike | None = None
) -> float:
    """Return P@k: the share of the k best labels that are true, averaged over rows.

    Parameters
    ----------
    y : ndarray or sparse matrix of shape (n, L), or class ids (n,)
    prediction : scores of shape (n, L), dense or sparse, or pair (labels, scores)
    k : int
    weight : ndarray of shape (n,) or (n, L), optional
        Weights of rows or of labels; 0 marks a missing label.

    Returns
    -------
    float
        Between 0 and 1. Rows without any label count as 0.
    """
    y, prediction, weight, n_labels = _read(y, prediction, weight)
    hits = _TrueLabels(y, n_labels).contains(top_labels(prediction, k))
    return _weighted_mean(hits.mean(axis=1), weight)


def ndcg_at(
    y: DataLike, prediction: Prediction, k: int = 5, weight: DataLike | None = None
) -> float:
    """Return nDCG@k: hits discounted by ``log2(rank + 1)`` over the maximum, averaged over rows.

    Parameters
    ----------
    y, prediction, k, weight
        See `precision_at`.

    Returns
    -------
    float
        Between 0 and 1. Rows without any label count as 0.
    """
    y, prediction, weight, n_labels = _read(y, prediction, weight)
    truth = _TrueLabels(y, n_labels)
    hits = truth.contains(top_labels(prediction, k))
    return _weighted_mean((hits @ _discounts(k)) / _ideal_dcg(truth, k), weight)


def _ideal_dcg(truth: _TrueLabels, k: int) -> NDArray[np.float64]:
    """Sum the discounts of as many ranks as the row has labels, between 1 and k: (n,)."""
    return np.cumsum(_discounts(k))[np.clip(truth.counts, 1, k) - 1]


def propensities(
    y: DataLike, a: float = 0.55, b: float = 1.5, n_labels: int | None = None
) -> NDArray[np.float64]:
    """Estimate the propensities of labels from their frequencies (Jain et al., 2016, eq. 3).

    The propensity of a label is the probability that it is observed where it is true.

    Parameters
    ----------
    y : ndarray or sparse matrix of shape (n, L), or class ids (n,)
        The training rows.
    a, b : float
        Parameters of the model: 0.55 and 1.5 fit most data, 0.5 and 0.4 the Wikipedia data sets,
        0.6 and 2.6 the Amazon data sets.
    n_labels : int, optional
        The number L of labels, for class ids.

    Returns
    -------
    ndarray of shape (L,), float64
        ``1 / (1 + C (N_l + b)^-a)`` with ``C = (ln N - 1) (b + 1)^a``; in (0, 1] for N >= 3.
    """
    truth = _TrueLabels(y, n_labels)
    frequency = np.bincount(truth.label, minlength=truth.n_labels)
    c = max(0.0, np.log(max(1, truth.n)) - 1.0) * (b + 1.0) ** a
    return 1.0 / (1.0 + c * (frequency + b) ** -a)


def psp_at(
    y: DataLike, prediction: Prediction, k: int, propensity: Array, weight: DataLike | None = None
) -> float:
    """Return propensity-scored P@k: hits weighted by ``1 / propensity``, over the maximum.

    Parameters
    ----------
    y, prediction, k, weight
        See `precision_at`.
    propensity : ndarray of shape (L,)
        The `propensities` of the training rows.

    Returns
    -------
    float
        Ratio of the means over rows, as in the tables of the repository, at most 1; NaN if no label
        is true.
    """
    return _propensity_scored(y, prediction, k, propensity, weight, np.ones(k), normalise=False)


def psndcg_at(
    y: DataLike, prediction: Prediction, k: int, propensity: Array, weight: DataLike | None = None
) -> float:
    """Return propensity-scored nDCG@k; see `psp_at`.

    Parameters
    ----------
    y, prediction, k, propensity, weight
        See `psp_at`.

    Returns
    -------
    float
        See `psp_at`.
    """
    return _propensity_scored(y, prediction, k, propensity, weight, _discounts(k), normalise=True)


def _propensity_scored(
    y: DataLike,
    prediction: Prediction,
    k: int,
    propensity: Array,
    weight: DataLike | None,
    discount: Array,
    normalise: bool,
) -> float:
    y, prediction, weight, n_labels = _read(y, prediction, weight)
    value = 1.0 / np.asarray(propensity, dtype=np.float64)
    truth = _TrueLabels(y, n_labels if n_labels is not None else len(value))
    if len(value) != truth.n_labels:
        raise ValueError(
            f"propensity has {len(value)} entries, but there are {truth.n_labels} labels."
        )
    ideal = _ideal_dcg(truth, k) if normalise else np.ones(truth.n)

    def mean_gain(best: NDArray[np.int64]) -> float:
        return _weighted_mean(
            (np.where(truth.contains(best), value[best], 0.0) @ discount) / ideal, weight
        )

    best_gain = mean_gain(truth.top_true_labels(value, k))
    return mean_gain(top_labels(prediction, k)) / best_gain if best_gain > 0 else float("nan")


def ranking_scores(
    y: DataLike,
    prediction: Prediction,
    ks: Sequence[int] = (1, 3, 5),
    propensity: Array | None = None,
) -> dict[str, float]:
    """Return P@k and nDCG@k for each k, and with `propensity` PSP@k and PSnDCG@k.

    Parameters
    ----------
    y, prediction
        See `precision_at`.
    ks : sequence of int
    propensity : ndarray of shape (L,), optional
        See `psp_at`.

    Returns
    -------
    dict of str to float
        With keys "P@1", "nDCG@1", "PSP@1", "PSnDCG@1" and so on.
    """
    y, prediction, _, _ = _read(y, prediction, None)
    best = top_labels(prediction, max(ks))
    ranked = best, np.where(best < 0, -np.inf, -np.arange(best.shape[1], dtype=float))
    scores = {f"P@{k}": precision_at(y, ranked, k) for k in ks}
    scores |= {f"nDCG@{k}": ndcg_at(y, ranked, k) for k in ks}
    if propensity is not None:
        scores |= {f"PSP@{k}": psp_at(y, ranked, k, propensity) for k in ks}
        scores |= {f"PSnDCG@{k}": psndcg_at(y, ranked, k, propensity) for k in ks}
    return scores


# --- metrics for eval_metric ---


@dataclass(frozen=True)
class PrecisionAt:
    """`precision_at` with a fixed `k`."""

    k: int

    def __call__(self, rows: RowData, prediction: Prediction) -> float:
        return precision_at(rows.target, prediction, self.k, rows.weight)


@dataclass(frozen=True)
class NdcgAt:
    """`ndcg_at` with a fixed `k`."""

    k: int

    def __call__(self, rows: RowData, prediction: Prediction) -> float:
        return ndcg_at(rows.target, prediction, self.k, rows.weight)


@dataclass(frozen=True)
class PropensityPrecisionAt:
    """`psp_at` with a fixed k and the propensities of the training rows.

    Parameters
    ----------
    k : int
    a, b : float
        See `propensities`.
    """

    k: int
    a: float = 0.55
    b: float = 1.5
    needs_label_frequencies: ClassVar[bool] = True  # of all training rows
    _score = staticmethod(psp_at)

    def bind(
        self, rows: RowData, training: RowData | None, n_outputs: int | None
    ) -> Callable[[Prediction], float]:
        """Return the metric as a function of the predictions of these rows.

        Parameters
        ----------
        rows, training, n_outputs
            See :meth:`polyleaf.metrics.Metric.bind`.
        """
        if training is None:
            raise ValueError(
                "A propensity-scored metric requires the label frequencies of the training data: "
                "call bind(rows, training), or use psp_at and psndcg_at with given propensities."
            )
        propensity = propensities(training.target, self.a, self.b, n_outputs)
        return lambda prediction: self._score(
            rows.target, prediction, self.k, propensity, rows.weight
        )


@dataclass(frozen=True)
class PropensityNdcgAt(PropensityPrecisionAt):
    """`psndcg_at` with a fixed k; parameters are as in `PropensityPrecisionAt`."""

    _score = staticmethod(psndcg_at)


_METRICS: dict[str, type] = {
    "p": PrecisionAt,
    "ndcg": NdcgAt,
    "psp": PropensityPrecisionAt,
    "psndcg": PropensityNdcgAt,
}


def parse_ranking_metric(name: str) -> tuple[str, Any] | None:
    """Return the canonical name and the function of a ranking metric.

    Parameters
    ----------
    name : str
        Such as "p@3" (or "precision@3"), "ndcg@5", "psp@3" or "psndcg@5".

    Returns
    -------
    (str, callable) or None
        None if it is not a ranking metric.
    """
    match = re.fullmatch(r"(p|precision|ndcg|psp|psndcg)@([1-9][0-9]*)", name)
    if match is None:
        return None
    kind, k = match.group(1).replace("precision", "p"), int(match.group(2))
    return f"{kind}@{k}", _METRICS[kind](k)
