"""Metrics of ranked labels: P@k, nDCG@k and their propensity-scored forms. Owns what a ranking is and how it
is judged; must not know models, boosting, or the names under which training watches a metric (`metrics`).

Truth is an indicator matrix ``(n, L)``, dense or CSR (a label holds where the value is above 1/2), or class
ids ``(n,)``. A prediction is a matrix of scores ``(n, L)``, dense or CSR (what is not stored is not
predicted), or a pair ``(labels, scores)`` of the best of each row, ``(n, m)`` each, as `predict_topk` gives
it; label -1 fills a row that has fewer. Labels of equal score are ranked in order of their index. The k-th
place may be beyond the last label: it is then a place without a hit.

Definitions: the extreme classification repository (Bhatia et al., 2016); propensities: Jain, Prabhu and
Varma, "Extreme Multi-label Loss Functions for Recommendation, Tagging, Ranking & Other Missing Label
Applications", KDD 2016.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

__all__ = [
    "NdcgAt",
    "PrecisionAt",
    "PropensityNdcgAt",
    "PropensityPrecisionAt",
    "ndcg_at",
    "precision_at",
    "propensities",
    "psndcg_at",
    "psp_at",
    "parse_ranking_metric",
    "ranking_scores",
    "top_labels",
]

Array = NDArray[Any]
_BLOCK = 1 << 22  # scores copied at a time


def top_labels(prediction: Any, k: int) -> NDArray[np.int64]:
    """The k best labels of each row.

    Parameters
    ----------
    prediction : ndarray or sparse matrix of shape (n, L), or pair (labels, scores) of shape (n, m)
        Scores, larger is better.
    k : int

    Returns
    -------
    ndarray of shape (n, k), int64
        Best first; -1 where there are fewer than k.

    Raises
    ------
    ValueError
        Where a score is NaN, or labels and scores differ in shape.
    """
    if k < 1:
        raise ValueError(f"k must be at least 1, got {k}.")
    if isinstance(prediction, tuple):
        labels, scores = prediction
        return _top_of_pairs(labels, scores, k)
    if sp.issparse(prediction):
        return _top_of_csr(sp.csr_matrix(prediction), k)
    return _top_of_scores(np.asarray(prediction), k)


def _top_of_pairs(labels: Any, scores: Any, k: int) -> NDArray[np.int64]:
    labels, scores = np.asarray(labels), np.asarray(scores, dtype=np.float64)
    if labels.ndim != 2 or labels.shape != scores.shape:
        raise ValueError(
            f"Labels {labels.shape} and scores {scores.shape} must have one shape (n, m)."
        )
    _no_nan(scores)
    scores = np.where(labels < 0, -np.inf, scores)
    by_label = np.argsort(labels, axis=1, kind="stable")
    order = np.argsort(-np.take_along_axis(scores, by_label, axis=1), axis=1, kind="stable")
    best = np.take_along_axis(labels, np.take_along_axis(by_label, order, axis=1), axis=1)
    return _filled(best[:, :k].astype(np.int64), k)


def _top_of_csr(scores: sp.csr_matrix, k: int) -> NDArray[np.int64]:
    scores.sort_indices()
    _no_nan(scores.data)
    row = np.repeat(np.arange(scores.shape[0]), np.diff(scores.indptr))
    order = np.lexsort((scores.indices, -scores.data, row))
    place = np.arange(len(order)) - scores.indptr[row]
    best = np.full((scores.shape[0], k), -1, np.int64)
    chosen = place < k
    best[row[chosen], place[chosen]] = scores.indices[order[chosen]]
    return best


def _top_of_scores(scores: Array, k: int) -> NDArray[np.int64]:
    """k times the largest: exact about ties, and for small k faster than a partition."""
    if scores.ndim != 2:
        raise ValueError(f"Scores to rank must have shape (n, L), not {scores.shape}.")
    n, n_labels = scores.shape
    best = np.empty((n, min(k, n_labels)), np.int64)
    size = max(1, _BLOCK // max(1, n_labels))
    for begin in range(0, n, size):
        block = scores[begin : begin + size].astype(np.float64)
        _no_nan(block)
        np.maximum(block, -np.finfo(np.float64).max, out=block)  # -inf is for what has been taken
        rows = np.arange(len(block))
        for place in range(best.shape[1]):
            found = block.argmax(axis=1)
            best[begin : begin + size, place] = found
            block[rows, found] = -np.inf
    return _filled(best, k)


def _no_nan(scores: Array) -> None:
    if np.isnan(scores).any():
        raise ValueError("Scores to rank hold NaN.")


def _filled(best: NDArray[np.int64], k: int) -> NDArray[np.int64]:
    missing = k - best.shape[1]
    return np.pad(best, ((0, 0), (0, missing)), constant_values=-1) if missing > 0 else best


class _Truth:
    """Which labels hold: sorted pairs (row, label), so that nothing of size n * L is made."""

    def __init__(self, y: Any, n_labels: int | None) -> None:
        """`n_labels`: L, needed for class ids only; None: the largest of them and one more."""
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

    def holds(self, best: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Whether each of the labels (n, k) holds in its row."""
        if len(best) != self.n:
            raise ValueError(f"y has {self.n} rows, the prediction {len(best)}.")
        largest = int(np.max(best, initial=-1))
        if largest >= self.n_labels:
            raise ValueError(f"The prediction names label {largest}, but y has {self.n_labels}.")
        if len(self.keys) == 0:
            return np.zeros(best.shape, bool)
        wanted = np.arange(self.n)[:, None] * self.n_labels + best
        at = np.minimum(np.searchsorted(self.keys, wanted), len(self.keys) - 1)
        return (self.keys[at] == wanted) & (best >= 0)

    def best_possible(self, value: NDArray[np.float64], k: int) -> NDArray[np.int64]:
        """The k labels of largest value that hold, (n, k), -1 where there are fewer."""
        shape = self.n, self.n_labels
        return _top_of_csr(
            sp.csr_matrix((value[self.label], (self.row, self.label)), shape=shape), k
        )


def _read(
    y: Any, prediction: Any, weight: Any
) -> tuple[Any, Any, NDArray[np.float64] | None, int | None]:
    """y and prediction without the labels that are missing (weight 0), the weight of each row, and L."""
    n_labels = None
    if isinstance(prediction, tuple):
        if np.ndim(y) == 1 and not sp.issparse(y):
            n_labels = 1 + max(np.max(part, initial=-1) for part in (y, prediction[0]))
    else:
        prediction = prediction if sp.issparse(prediction) else np.asarray(prediction)
        if prediction.ndim == 1:
            prediction = prediction[:, None]
        n_labels = prediction.shape[1]
        shape = np.shape(y) if not sp.issparse(y) else y.shape
        if len(shape) == 2 and shape[1] != n_labels:
            raise ValueError(f"y has {shape[1]} labels, the prediction {n_labels}.")
    if weight is None:
        return y, prediction, None, n_labels
    weight = np.asarray(weight, dtype=np.float64)
    if weight.ndim == 2 and weight.shape[1] > 1:
        if sp.issparse(y) or sp.issparse(prediction) or isinstance(prediction, tuple):
            raise ValueError("Weights of single labels go with dense y and dense scores.")
        y = np.where(weight > 0, y, 0)
        prediction = np.where(weight > 0, prediction, -np.inf)
        weight = weight.mean(axis=1)
    return y, prediction, weight.reshape(-1), n_labels


def _mean(values: NDArray[np.float64], weight: NDArray[np.float64] | None) -> float:
    if weight is None:
        return float(values.mean()) if len(values) else float("nan")
    total = weight.sum()
    return float(weight @ values / total) if total > 0 else float("nan")


def _discounts(k: int) -> NDArray[np.float64]:
    return 1.0 / np.log2(np.arange(2, k + 2))


def precision_at(y: Any, prediction: Any, k: int = 1, weight: Any = None) -> float:
    """P@k: the share of the k best labels of a row that hold, mean over rows.

    Parameters
    ----------
    y : ndarray or sparse matrix of shape (n, L), or class ids (n,)
    prediction : scores of shape (n, L), dense or sparse, or pair (labels, scores)
    k : int
    weight : ndarray of shape (n,) or (n, L), optional
        Of rows; of labels, where 0 marks one that is not known.

    Returns
    -------
    float
        Between 0 and 1. Rows without any label count, with 0.
    """
    y, prediction, weight, n_labels = _read(y, prediction, weight)
    hits = _Truth(y, n_labels).holds(top_labels(prediction, k))
    return _mean(hits.mean(axis=1), weight)


def ndcg_at(y: Any, prediction: Any, k: int = 5, weight: Any = None) -> float:
    """nDCG@k: hits discounted by ``log2(place + 1)``, over the most that the row allows; mean over rows.

    Parameters
    ----------
    y, prediction, k, weight
        As in `precision_at`.

    Returns
    -------
    float
        Between 0 and 1. Rows without any label count, with 0.
    """
    y, prediction, weight, n_labels = _read(y, prediction, weight)
    truth = _Truth(y, n_labels)
    hits = truth.holds(top_labels(prediction, k))
    return _mean((hits @ _discounts(k)) / _ideal(truth, k), weight)


def _ideal(truth: _Truth, k: int) -> NDArray[np.float64]:
    """Discounts of as many places as the row has labels, at most k, at least one: (n,)."""
    return np.cumsum(_discounts(k))[np.clip(truth.counts, 1, k) - 1]


def propensities(
    y: Any, a: float = 0.55, b: float = 1.5, n_labels: int | None = None
) -> NDArray[np.float64]:
    """How likely a label that holds was seen to hold (Jain et al., 2016, eq. 3), from its frequency.

    Parameters
    ----------
    y : ndarray or sparse matrix of shape (n, L), or class ids (n,)
        The training rows.
    a, b : float
        The model's parameters; 0.55 and 1.5 fit most data, 0.5 and 0.4 the Wikipedia sets, 0.6 and 2.6 the
        Amazon sets.
    n_labels : int, optional
        For class ids: L.

    Returns
    -------
    ndarray of shape (L,), float64
        ``1 / (1 + C (N_l + b)^-a)`` with ``C = (ln N - 1) (b + 1)^a``; in (0, 1], where N >= 3.
    """
    truth = _Truth(y, n_labels)
    frequency = np.bincount(truth.label, minlength=truth.n_labels)
    c = max(0.0, np.log(max(1, truth.n)) - 1.0) * (b + 1.0) ** a
    return 1.0 / (1.0 + c * (frequency + b) ** -a)


def psp_at(y: Any, prediction: Any, k: int, propensity: Array, weight: Any = None) -> float:
    """Propensity-scored P@k: a hit counts ``1 / propensity``; over the most that could be reached.

    Parameters
    ----------
    y, prediction, k, weight
        As in `precision_at`.
    propensity : ndarray of shape (L,)
        Of the training rows: `propensities`.

    Returns
    -------
    float
        Ratio of the means over rows (as the repository's tables have it), at most 1; NaN where no label
        holds.
    """
    return _propensity_scored(y, prediction, k, propensity, weight, np.ones(k), normalise=False)


def psndcg_at(y: Any, prediction: Any, k: int, propensity: Array, weight: Any = None) -> float:
    """Propensity-scored nDCG@k.

    Parameters
    ----------
    y, prediction, k, propensity, weight
        As in `psp_at`.

    Returns
    -------
    float
        As `psp_at`.
    """
    return _propensity_scored(y, prediction, k, propensity, weight, _discounts(k), normalise=True)


def _propensity_scored(
    y: Any,
    prediction: Any,
    k: int,
    propensity: Array,
    weight: Any,
    discount: Array,
    normalise: bool,
) -> float:
    y, prediction, weight, n_labels = _read(y, prediction, weight)
    value = 1.0 / np.asarray(propensity, dtype=np.float64)
    truth = _Truth(y, n_labels if n_labels is not None else len(value))
    if len(value) != truth.n_labels:
        raise ValueError(f"There are {len(value)} propensities, but {truth.n_labels} labels.")
    ideal = _ideal(truth, k) if normalise else np.ones(truth.n)

    def gain(best: NDArray[np.int64]) -> float:
        return _mean((np.where(truth.holds(best), value[best], 0.0) @ discount) / ideal, weight)

    most = gain(truth.best_possible(value, k))
    return gain(top_labels(prediction, k)) / most if most > 0 else float("nan")


def ranking_scores(
    y: Any, prediction: Any, ks: Sequence[int] = (1, 3, 5), propensity: Array | None = None
) -> dict[str, float]:
    """P@k and nDCG@k for each k, and with `propensity` PSP@k and PSnDCG@k.

    Parameters
    ----------
    y, prediction
        As in `precision_at`.
    ks : sequence of int
    propensity : ndarray of shape (L,), optional
        As in `psp_at`.

    Returns
    -------
    dict of str to float
        Keys "P@1", "nDCG@1", "PSP@1", "PSnDCG@1" and so on.
    """
    best = top_labels(prediction, max(ks))
    ranked = best, np.where(best < 0, -np.inf, -np.arange(best.shape[1], dtype=float))
    found = {f"P@{k}": precision_at(y, ranked, k) for k in ks}
    found |= {f"nDCG@{k}": ndcg_at(y, ranked, k) for k in ks}
    if propensity is not None:
        found |= {f"PSP@{k}": psp_at(y, ranked, k, propensity) for k in ks}
        found |= {f"PSnDCG@{k}": psndcg_at(y, ranked, k, propensity) for k in ks}
    return found


# --- as metrics that training can watch ---


@dataclass(frozen=True)
class PrecisionAt:
    """`precision_at` of one `k`."""

    k: int

    def __call__(self, y: Any, prediction: Any, weight: Any = None) -> float:
        return precision_at(y, prediction, self.k, weight)


@dataclass(frozen=True)
class NdcgAt:
    """`ndcg_at` of one `k`."""

    k: int

    def __call__(self, y: Any, prediction: Any, weight: Any = None) -> float:
        return ndcg_at(y, prediction, self.k, weight)


@dataclass
class PropensityPrecisionAt:
    """`psp_at` of one k; the propensities are those of the rows trained on, which `set_train_target` is told.

    Parameters
    ----------
    k : int
    a, b : float
        As in `propensities`.
    propensity : ndarray of shape (L,), optional
        In place of what training tells.
    """

    k: int
    a: float = 0.55
    b: float = 1.5
    propensity: Array | None = None

    def set_train_target(self, y: Any, n_labels: int) -> None:
        """Take the propensities from the target trained on.

        Parameters
        ----------
        y : ndarray or sparse matrix of shape (n, L), or class ids (n,)
        n_labels : int
            L.
        """
        self.propensity = propensities(y, self.a, self.b, n_labels)

    def __call__(self, y: Any, prediction: Any, weight: Any = None) -> float:
        return psp_at(y, prediction, self.k, self._known(), weight)

    def _known(self) -> Array:
        if self.propensity is None:
            raise ValueError(
                "A propensity-scored metric needs the frequency of labels in the training data: call "
                "set_train_target, or use psp_at and psndcg_at with propensities of your own."
            )
        return self.propensity


@dataclass
class PropensityNdcgAt(PropensityPrecisionAt):
    """`psndcg_at` of one k; parameters as those of `PropensityPrecisionAt`."""

    def __call__(self, y: Any, prediction: Any, weight: Any = None) -> float:
        return psndcg_at(y, prediction, self.k, self._known(), weight)


_KINDS: dict[str, type] = {
    "p": PrecisionAt,
    "ndcg": NdcgAt,
    "psp": PropensityPrecisionAt,
    "psndcg": PropensityNdcgAt,
}


def parse_ranking_metric(name: str) -> tuple[str, Any] | None:
    """Canonical name and function of a metric of ranks.

    Parameters
    ----------
    name : str
        "p@3" (or "precision@3"), "ndcg@5", "psp@3", "psndcg@5", say.

    Returns
    -------
    (str, callable) or None
        None where it is none.
    """
    match = re.fullmatch(r"(p|precision|ndcg|psp|psndcg)@([1-9][0-9]*)", name)
    if match is None:
        return None
    kind, k = match.group(1).replace("precision", "p"), int(match.group(2))
    return f"{kind}@{k}", _KINDS[kind](k)
