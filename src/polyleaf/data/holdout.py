"""Rows that are held out to be watched while a model learns from the others.

Owns how they are split_rows, and what ``--validation`` means. Must not know what the rows hold. The two draws are
not alike: whoever trains again gets the rows that he got before.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["split_rows", "split_rows_stratified", "split_validation"]

Rows = NDArray[np.int64]


def split_rows(n_rows: int, n_held: int, seed: int) -> tuple[Rows, Rows]:
    """The rows to learn from and `n_held` to watch, at random, both ascending."""
    order = np.random.default_rng(seed).permutation(n_rows)
    return np.sort(order[n_held:]), np.sort(order[:n_held])


def split_rows_stratified(
    n_rows: int, fraction: float, seed: int, classes: np.ndarray | None
) -> tuple[Rows, Rows]:
    """The same for `validation_fraction`: at least one row of two on either side.

    Parameters
    ----------
    n_rows : int
    fraction : float
        Of the rows, to watch.
    seed : int
    classes : ndarray of shape (n_rows,), or None
        Each keeps its share, where every class has two rows and both sides have room for all classes.
    """
    n_held = min(max(1, round(fraction * n_rows)), n_rows - 1)
    if classes is not None:
        _, counts = np.unique(classes, return_counts=True)
        if np.any(counts < 2) or min(n_held, n_rows - n_held) < len(counts):
            classes = None
    chance = {"random_state": seed % 2**32, "stratify": classes}
    from sklearn.model_selection import train_test_split  # an eighth of what importing us takes

    kept, watched = train_test_split(np.arange(n_rows), test_size=n_held, **chance)
    return np.sort(kept), np.sort(watched)


def split_validation(validation: str, n_rows: int, seed: int) -> tuple[Rows, Rows] | None:
    """The parts that ``--validation`` asks for, as `drawn` has them; None where it is no number but a file.

    Raises
    ------
    ValueError
        Where a part would have no rows.
    """
    try:
        fraction = float(validation)
    except ValueError:
        return None
    n_held = round(fraction * n_rows) if 0 < fraction < 1 else 0
    if not 0 < n_held < n_rows:
        raise ValueError(
            f"--validation {validation} leaves no row to learn from, or none to watch."
        )
    return split_rows(n_rows, n_held, seed)
