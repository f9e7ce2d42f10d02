"""Hessians as their lower triangles, row after row: entry (i, j), j <= i, at ``i (i + 1) / 2 + j``. Owns that
layout, as cpp/base/packed.h does for the core; must not know what a Hessian is of."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["pack", "packed_diagonal", "packed_lower", "packed_size", "unpack"]


def packed_size(n_outputs: int) -> int:
    """Entries of a packed Hessian."""
    return n_outputs * (n_outputs + 1) // 2


def packed_diagonal(n_outputs: int) -> NDArray[np.intp]:
    """Where the entries ``(i, i)`` are: ``(K,)``."""
    i = np.arange(n_outputs)
    return i * (i + 3) // 2


def packed_lower(n_outputs: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Rows and columns of the entries, in order."""
    return np.tril_indices(n_outputs)


def pack(hessians: NDArray[Any]) -> NDArray[Any]:
    """Lower triangles (n, K (K + 1) / 2) of Hessians (n, K, K)."""
    return hessians[(slice(None), *packed_lower(hessians.shape[1]))]


def unpack(packed: NDArray[Any], n_outputs: int) -> NDArray[np.float64]:
    """Symmetric matrices (n, K, K) of packed ones."""
    rows, columns = packed_lower(n_outputs)
    hessians = np.empty((len(packed), n_outputs, n_outputs))
    hessians[:, rows, columns] = packed
    hessians[:, columns, rows] = packed
    return hessians
