"""The one number that `score` gives, with unknown targets and weights of single outputs.

Owns how outputs, unknown values and weights make one number of scikit-learn's scores. Must not know
estimators, nor how targets are encoded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

__all__ = ["mean_d2_pinball", "mean_r2", "known_subset_accuracy"]


def mean_r2(y: np.ndarray, predicted: np.ndarray, weight: np.ndarray | None) -> float:
    """Coefficient of determination R2, the mean over outputs.

    Parameters
    ----------
    y, predicted : ndarray of shape (n_rows, n_outputs)
    weight : ndarray of shape (n_rows,) or (n_rows, n_outputs), or None
        0 where y is not known.

    Returns
    -------
    float
        Outputs with fewer than two values of positive weight do not count; NaN where none is left.
    """
    from sklearn.metrics import r2_score

    return _mean_over_outputs(r2_score, y, predicted, weight)


def mean_d2_pinball(
    y: np.ndarray, predicted: np.ndarray, levels: Sequence[float], weight: np.ndarray | None
) -> float:
    """Share of the pinball loss that quantiles explain (D2), the mean over outputs and levels.

    `predicted` has the levels of the first output first; see `mean_r2`.
    """
    from sklearn.metrics import d2_pinball_score

    scores = [
        _mean_over_outputs(d2_pinball_score, y, predicted[:, i :: len(levels)], weight, alpha=level)
        for i, level in enumerate(levels)
    ]
    return float(np.mean(scores))


def known_subset_accuracy(y: np.ndarray, predicted: np.ndarray, weight: np.ndarray | None) -> float:
    """Share of rows that are right in every label that is known.

    A row weighs what its known labels do on average; see `mean_r2`.
    """
    of_labels = np.ones(y.shape) if weight is None else _of_cells(weight, y.shape)
    known = of_labels > 0
    n_known = known.sum(axis=1)
    right = ((y == predicted) | ~known).all(axis=1)
    of_rows = of_labels.sum(axis=1, dtype=np.float64) / np.maximum(n_known, 1)
    return float(np.average(right, weights=of_rows)) if of_rows.any() else float("nan")


def _of_cells(weight: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    return np.broadcast_to(weight if weight.ndim == 2 else weight[:, None], shape)


def _mean_over_outputs(
    score: Callable[..., Any],
    y: np.ndarray,
    predicted: np.ndarray,
    weight: np.ndarray | None,
    **options: Any,
) -> float:
    if weight is None or weight.ndim == 1:
        return float(score(y, predicted, sample_weight=weight, **options))
    scores = []
    for truth, found, w in zip(y.T, predicted.T, weight.T, strict=True):
        known = w > 0
        if known.sum() > 1:
            scores.append(score(truth[known], found[known], sample_weight=w[known], **options))
    return float(np.mean(scores)) if scores else float("nan")
