"""What must hold of data before anybody below reads it: SciPy's compiled loops trust indices, and NumPy's
functions look past a mask.

Owns: the check of sparse matrices, and what a mask means. Must not know features, targets or what
values mean.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

__all__ = ["check_data"]


def check_data(values: Any, name: str) -> Any:
    """The same data, safe to be read.

    Parameters
    ----------
    values : anything
        A masked array becomes one with NaN (None, where it holds objects or text) where it is masked. A
        sparse matrix is looked through, once: whoever wrote to its `indices` or `indptr` may have made it one
        that SciPy reads beyond its end. All else is returned as it is.
    name : str
        What messages call it.

    Raises
    ------
    ValueError
        Where a sparse matrix does not hold together.
    """
    if isinstance(values, np.ma.MaskedArray):
        return _unmasked(values)
    if sp.issparse(values) and len(values.shape) == 2:
        return _checked(values, name)
    return values


def _unmasked(values: np.ma.MaskedArray) -> np.ndarray:
    mask = np.ma.getmaskarray(values)
    plain = np.asarray(values.data)
    if not mask.any():
        return plain
    if plain.dtype.kind in "biu":
        plain = plain.astype(np.float64)
    nothing = np.nan if plain.dtype.kind in "fc" else None
    plain = plain.astype(object) if nothing is None else plain.copy()
    plain[mask] = nothing
    return plain


def _checked(matrix: Any, name: str) -> Any:
    """The matrix, in a form that is looked through: rows, columns, blocks or triples."""
    if matrix.format not in ("csr", "csc", "bsr", "coo"):
        matrix = matrix.tocsr()
    if matrix.format == "coo":
        for indices, n, what in zip(matrix.coords, matrix.shape, ("row", "column"), strict=True):
            _check_indices(indices, n, what, name)
        _check_length(len(matrix.data), max(map(len, matrix.coords)), name)
        return matrix
    sizes = (1, 1) if matrix.format != "bsr" else matrix.blocksize
    n_rows, n_columns = (n // size for n, size in zip(matrix.shape, sizes, strict=True))
    by_row = matrix.format != "csc"
    stored = _check_starts(matrix.indptr, n_rows if by_row else n_columns, name)
    for array in (matrix.indices, matrix.data):
        _check_length(len(array), stored, name)
    n, what = (n_columns, "column") if by_row else (n_rows, "row")
    _check_indices(matrix.indices[:stored], n, what, name)
    return matrix


def _check_starts(indptr: Any, n: int, name: str) -> int:
    """Where rows (or columns) begin must rise from 0; how many entries there are then."""
    if len(indptr) != n + 1 or indptr[0] != 0 or (indptr[1:] < indptr[:-1]).any():
        raise ValueError(
            f"{name} is no sound sparse matrix: its indptr does not rise from 0 in {n} steps."
        )
    return int(indptr[-1])


def _check_length(found: int, wanted: int, name: str) -> None:
    if found < wanted:
        raise ValueError(
            f"{name} is no sound sparse matrix: it has {found} entries in place of {wanted}."
        )


def _check_indices(indices: Any, n: int, what: str, name: str) -> None:
    if len(indices) == 0:
        return
    for index in (int(indices.min()), int(indices.max())):
        if not 0 <= index < n:
            raise ValueError(
                f"{name} is no sound sparse matrix: it stores {what} {index}, outside 0 .. {n - 1}."
            )
