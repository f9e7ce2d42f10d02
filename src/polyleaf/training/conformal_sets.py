"""Which classes, or labels, a prediction set must hold, so that it has the truth as often as was asked.

Owns what is ranked: how far down a row's order the truth lies. Must not know models, or where probabilities
come from; ranks are those of `ranks.widths`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["label_nonconformity", "class_nonconformity", "truth_nonconformity"]

Array = NDArray[Any]


def class_nonconformity(probability: Array) -> NDArray[np.float64]:
    """The probability of all classes that are class_nonconformity than each, (n_rows, n_classes); of equals the first.

    So the likeliest class has 0. Classes up to a depth are the set that adaptive prediction sets take
    (Romano, Sesia and Candès, "Classification with valid and adaptive coverage", NeurIPS 2020), without
    their draw: a set is never empty, and the same each time.
    """
    order = np.argsort(-np.asarray(probability, np.float64), axis=1, kind="stable")
    falling = np.take_along_axis(np.asarray(probability, np.float64), order, axis=1)
    before = np.cumsum(falling, axis=1) - falling
    before[:, 0] = 0.0
    found = np.empty_like(before)
    np.put_along_axis(found, order, before, axis=1)
    return found


def label_nonconformity(probability: Array) -> NDArray[np.float64]:
    """How unlikely each label is, (n_rows, n_labels)."""
    return 1.0 - np.asarray(probability, np.float64)


def truth_nonconformity(depths: Array, truth: Array) -> NDArray[np.float64]:
    """The depth to which a set must reach to hold all that is true of a row, (n_rows,).

    Parameters
    ----------
    depths, truth : ndarray of shape (n_rows, n)
        Of each class or label; and whether it is true. Where nothing is, the depth is below all others.
    """
    return np.where(truth > 0, depths, -1.0).max(axis=1)
