"""Matrices of few columns. Owns in which pieces NumPy goes through them: row by row it takes several times as
long for the few numbers of each as for one column after the other, or for many rows as if they were one."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["assign_columns", "copy_columns", "apply_rowwise"]

FEW = 12  # columns up to which copying one after the other is faster
AT_ONCE, LEAST = (
    1024,
    4096,
)  # numbers of rows that are taken as one, and of matrices for which that is faster


def copy_columns(matrix: NDArray[Any], columns: slice) -> NDArray[Any]:
    """A contiguous copy of columns ``columns.start .. columns.stop - 1``; the matrix itself where it has no
    others and is contiguous."""
    some = matrix[:, columns]
    if some.flags.c_contiguous or some.shape[1] > FEW:
        return np.ascontiguousarray(some)
    taken = np.empty(some.shape, some.dtype)
    assign_columns(taken, slice(0, some.shape[1]), some)
    return taken


def assign_columns(matrix: NDArray[Any], columns: slice, values: NDArray[Any]) -> None:
    """Write these columns, of as many values each."""
    if values.shape[1] > FEW:
        matrix[:, columns] = values
        return
    for k in range(values.shape[1]):
        matrix[:, columns.start + k] = values[:, k]


def apply_rowwise(
    operation: np.ufunc, matrix: NDArray[Any], row: NDArray[Any], out: NDArray[Any]
) -> None:
    """``out[...] = operation(matrix, row)``, both contiguous and (n, K), row (K,)."""
    k = matrix.shape[1]
    rows_at_once = AT_ONCE // k if matrix.size >= LEAST else 0
    n = len(matrix) // rows_at_once * rows_at_once if rows_at_once > 1 else 0
    if n > 0:
        as_one = (-1, rows_at_once * k)
        operation(
            matrix[:n].reshape(as_one), np.tile(row, rows_at_once), out=out[:n].reshape(as_one)
        )
    operation(matrix[n:], row, out=out[n:])
