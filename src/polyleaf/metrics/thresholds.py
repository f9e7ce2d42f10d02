"""From which probability on a label is said to hold, so that F1 is largest.

Owns this search. Must not know where probabilities come from.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["f1_by_threshold", "best_f1_threshold"]

Array = NDArray[Any]


def best_f1_threshold(
    probability: Array, truth: Array, weight: Array | None = None, macro: bool = False
) -> float:
    """The one threshold of all labels above which saying yes has the largest F1.

    Parameters
    ----------
    probability : ndarray of shape (n_rows, n_labels)
    truth : ndarray of shape (n_rows, n_labels)
        0 or 1. Or the probabilities themselves: then it is the expected F1, but for the quotient of
        expectations in place of the expectation of the quotient, and needs no labels (Lipton, Elkan and
        Naryanaswamy, "Optimal thresholding of classifiers to maximize F1 measure", ECML PKDD 2014).
    weight : ndarray of shape (n_rows,) or (n_rows, n_labels), optional
        Not negative; 0: does not count.
    macro : bool
        The mean of the labels' F1, labels that no row has left out; with one label the mean of yes and of no.
        False: of all cells together.

    Returns
    -------
    float
        Half-way between two probabilities that occur, the highest such on ties; 0.5 where no label holds.
    """
    values, f1 = f1_by_threshold(probability, truth, weight, macro)
    if not len(f1) or f1.max() <= 0:
        return 0.5
    best = int(np.argmax(f1))
    below = values[best + 1] if best + 1 < len(values) else 0.0
    return float((values[best] + below) / 2)


def f1_by_threshold(
    probability: Array, truth: Array, weight: Array | None = None, macro: bool = False
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Probabilities that occur, falling, and the F1 of saying yes from each on; see `best_f1_threshold`."""
    p, y = (
        np.asarray(values, np.float64).reshape(len(values), -1) for values in (probability, truth)
    )
    given = np.ones(p.shape) if weight is None else np.asarray(weight, np.float64)
    w = np.broadcast_to(given.reshape(len(given), -1), p.shape)
    order = np.argsort(-p, axis=None, kind="stable")
    cells = p.ravel()[order], y.ravel()[order], w.ravel()[order]
    found = np.zeros(p.size)
    if not macro:
        found = _f1(*cells[1:])
    elif p.shape[1] == 1:
        found = (_f1(*cells[1:]) + _f1_of_no(*cells[1:])) / 2
    else:
        label = np.tile(np.arange(p.shape[1]), len(p))[order]
        there = [k for k in range(p.shape[1]) if (w[:, k] * y[:, k]).sum() > 0]
        for k in there:  # what each of its cells changes, summed up below
            at = np.flatnonzero(label == k)
            found[at] = np.diff(_f1(cells[1][at], cells[2][at]), prepend=0.0)
        found = np.cumsum(found) / max(1, len(there))
    last = np.append(
        cells[0][1:] < cells[0][:-1], True
    )  # of those that are equal, none can be told apart
    return cells[0][last], found[last]


def _f1(y: Array, w: Array) -> NDArray[np.float64]:
    """F1 of saying yes to the first cell, the first two, ... of cells in order."""
    right, said, true = np.cumsum(w * y), np.cumsum(w), (w * y).sum()
    return np.divide(2 * right, said + true, out=np.zeros(len(y)), where=said + true > 0)


def _f1_of_no(y: Array, w: Array) -> NDArray[np.float64]:
    """F1 of saying no to all others."""
    wrong, said, true = np.cumsum(w * (1 - y)), w.sum() - np.cumsum(w), (w * (1 - y)).sum()
    return np.divide(2 * (true - wrong), said + true, out=np.zeros(len(y)), where=said + true > 0)
