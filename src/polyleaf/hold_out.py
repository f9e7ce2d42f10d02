"""Which rows are set aside to watch a training. Owns the draw; must not know what rows are.

Two draws, which are not alike: whoever trains again gets the rows that he got before.
"""

from __future__ import annotations

import numpy as np

__all__ = ["hold_out", "hold_out_by_class"]

Split = tuple[np.ndarray, np.ndarray]


def hold_out(n_rows: int, n_aside: int, seed: int) -> Split:
    """Rows to train on and rows to set aside, both ascending: what the command line and the demo do."""
    order = np.random.default_rng(seed).permutation(n_rows)
    return np.sort(order[n_aside:]), np.sort(order[:n_aside])


def hold_out_by_class(n_rows: int, fraction: float, seed: int, classes: np.ndarray | None) -> Split:
    """The same for `validation_fraction`: at least one row of two on either side.

    Parameters
    ----------
    n_rows : int
    fraction : float
        Of the rows, to set aside.
    seed : int
    classes : ndarray of shape (n_rows,), or None
        Stratified by these, where every class has two rows and both sides have room for all classes.
    """
    from sklearn.model_selection import train_test_split

    n_aside = min(max(1, round(fraction * n_rows)), n_rows - 1)
    if classes is not None:
        _, counts = np.unique(classes, return_counts=True)
        if np.any(counts < 2) or min(n_aside, n_rows - n_aside) < len(counts):
            classes = None
    rows = np.arange(n_rows)
    train, aside = train_test_split(rows, test_size=n_aside, random_state=seed % 2**32, stratify=classes)
    return np.sort(train), np.sort(aside)
