"""A few neighbouring columns of a matrix, out of it and into it. Owns how they are copied: NumPy copies the
few numbers of each row, which takes several times as long as one column after the other."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["put_columns", "taken_columns"]

FEW = 12  # columns up to which that is so


def taken_columns(matrix: NDArray[Any], columns: slice) -> NDArray[Any]:
    """A contiguous copy of columns ``columns.start .. columns.stop - 1``; the matrix itself where it has no
    others and is contiguous."""
    some = matrix[:, columns]
    if some.flags.c_contiguous or some.shape[1] > FEW:
        return np.ascontiguousarray(some)
    taken = np.empty(some.shape, some.dtype)
    put_columns(taken, slice(0, some.shape[1]), some)
    return taken


def put_columns(matrix: NDArray[Any], columns: slice, values: NDArray[Any]) -> None:
    """Write these columns, of as many values each."""
    if values.shape[1] > FEW:
        matrix[:, columns] = values
        return
    for k in range(values.shape[1]):
        matrix[:, columns.start + k] = values[:, k]
