"""Rows that are held out of a file to be watched while a model learns from the others.

Owns how they are drawn, and what ``--validation`` means. Must not know what the rows hold.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from polyleaf.opening import ReadError

__all__ = ["drawn", "held_out"]

Rows = NDArray[np.int64]


def drawn(n_rows: int, n_held: int, seed: int) -> tuple[Rows, Rows]:
    """The rows to learn from and `n_held` to watch, at random, both ascending."""
    order = np.random.default_rng(seed).permutation(n_rows)
    return np.sort(order[n_held:]), np.sort(order[:n_held])


def held_out(validation: str, n_rows: int, seed: int) -> tuple[Rows, Rows] | None:
    """The parts that ``--validation`` asks for, as `drawn` has them; None where it is no number but a file.

    Raises
    ------
    ReadError
        Where a part would have no rows.
    """
    try:
        fraction = float(validation)
    except ValueError:
        return None
    n_held = round(fraction * n_rows) if 0 < fraction < 1 else 0
    if not 0 < n_held < n_rows:
        raise ReadError(f"--validation {validation} leaves no row to learn from, or none to watch.")
    return drawn(n_rows, n_held, seed)
