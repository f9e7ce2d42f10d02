"""Areas under curves of ranked scores: ROC and precision-recall, of one output.

Owns these two formulas. Must not know how outputs are averaged. Scores are sorted once; what is below a score
is then looked up for the rows of one class alone, so that many classes cost little more than the sorting.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["binary_average_precision", "binary_roc_auc"]

Array = NDArray[Any]


def binary_roc_auc(y: Array, score: Array, weight: Array | None = None) -> float:
    """Area under the ROC curve: the chance that a positive row has the larger score; ties count a half.

    Parameters
    ----------
    y : ndarray of bool, shape (n,)
    score : ndarray of shape (n,)
    weight : ndarray of shape (n,), optional

    Returns
    -------
    float
        NaN where all rows are of one class.
    """
    n_positive = int(np.count_nonzero(y))
    if n_positive in (0, len(y)):
        return float("nan")
    fewer = y if 2 * n_positive <= len(y) else ~y
    below = _Below(score, weight)
    scores = score[fewer]
    under = below.up_to(scores, "left") + below.up_to(
        scores, "right"
    )  # twice, so that a tie is one half
    if weight is None:
        own, pairs = float(len(scores)), 0.5 * float(under.sum())
    else:
        of_row = weight[fewer].astype(np.float64)
        own, pairs = float(of_row.sum()), 0.5 * float(of_row @ under)
    # Among themselves the rows of one class lie below each other half of the time.
    area = (pairs - 0.5 * own**2) / (own * (below.total - own))
    return area if fewer is y else 1.0 - area


def binary_average_precision(y: Array, score: Array, weight: Array | None = None) -> float:
    """Mean, over the positive rows, of the precision among the rows with no smaller a score.

    Parameters and what is returned are those of `binary_roc_auc`.
    """
    n_positive = int(np.count_nonzero(y))
    if n_positive in (0, len(y)):
        return float("nan")
    own = score[y]
    all_rows, positive = _Below(score, weight), _Below(own, None if weight is None else weight[y])
    above = [below.total - below.up_to(own, "left") for below in (positive, all_rows)]
    precision = above[0] / above[1]
    return float(np.average(precision, weights=None if weight is None else weight[y]))


class _Below:
    """How much weight lies below a score ("left"), or up to it ("right")."""

    def __init__(self, score: Array, weight: Array | None) -> None:
        order = None if weight is None else np.argsort(score)
        self._sorted = np.sort(score) if order is None else score[order]
        self._sums = None
        if weight is not None:
            self._sums = np.concatenate([[0.0], np.cumsum(weight[order], dtype=np.float64)])
        self.total = float(len(score)) if self._sums is None else float(self._sums[-1])

    def up_to(self, scores: Array, side: Any) -> Array:
        place = np.searchsorted(self._sorted, scores, side)
        return place if self._sums is None else self._sums[place]
