"""Matrices of which few values are not 0, as the core reads them: compressed rows of float32.

Owns what canonical means: columns ascend within a row, nothing is stored twice, no zero is stored, all is
finite and lies within the shape. Must not know what the values mean.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from polyleaf.inputs.validation import check_data

__all__ = ["get_csr_arrays", "to_canonical_csr", "find_row"]


def to_canonical_csr(
    values: Any,
    name: str,
    *,
    repeated: Literal["add", "refuse"] = "add",
    may_be_empty: bool = False,
    if_missing: str = "",
) -> sp.csr_matrix:
    """The same matrix in canonical form; the input is not changed.

    Parameters
    ----------
    values : ndarray or sparse matrix of shape (n_rows, n_columns)
        Numbers; at least one row and one column.
    name : str
        What messages call it.
    repeated : {"add", "refuse"}
        Of entries that are stored twice: add them up, or raise.
    may_be_empty : bool
        No rows will do.
    if_missing : str
        What is to be done about NaN: the end of its message.

    Returns
    -------
    csr_matrix, float32
        It may share its arrays with `values`.

    Raises
    ------
    ValueError
        For another shape, for what is no number, for numbers that float32 does not hold, for stored columns
        that do not exist, and for entries stored twice where they are refused.
    """
    values = check_data(values, name)
    values = values if sp.issparse(values) else np.asarray(values)
    _check_kind(values, name, 0 if may_be_empty else 1)
    with np.errstate(
        over="ignore"
    ):  # what float32 cannot hold becomes infinite, and is refused below
        rows = sp.csr_matrix(values, dtype=np.float32)
    if not np.isfinite(rows.data).all():
        entry = int(np.argmin(np.isfinite(rows.data)))
        row, column = find_row(rows, entry), rows.indices[entry]
        place = f"in row {row}, column {column}"
        if np.isnan(rows.data[entry]):
            raise ValueError(f"{name} holds NaN {place}.{if_missing}")
        raise ValueError(f"{name} holds infinity or a number beyond float32 {place}.")
    if not rows.has_canonical_format or not rows.data.all():
        rows = rows.copy()  # it may share its arrays with the caller's
        stored = rows.nnz
        rows.sum_duplicates()
        if rows.nnz < stored and repeated == "refuse":
            raise ValueError(
                f"{name} stores {stored - rows.nnz} entries twice; call sum_duplicates() on it if their sums "
                "are meant."
            )
        rows.eliminate_zeros()
    return rows


def _check_kind(values: Any, name: str, fewest_rows: int) -> None:
    if len(values.shape) != 2:
        raise ValueError(
            f"{name} must have two dimensions, (n_rows, n_columns), not shape {values.shape}."
        )
    if values.dtype.kind not in "buif":
        raise ValueError(f"{name} must hold numbers, not {values.dtype}.")
    if values.shape[0] < fewest_rows or values.shape[1] < 1:
        raise ValueError(f"{name} has shape {values.shape}; it needs a row and a column.")
    largest = np.iinfo(np.int32).max
    if values.shape[1] > largest:
        raise ValueError(
            f"{name} has {values.shape[1]} columns; more than {largest} are not possible."
        )


def find_row(rows: sp.csr_matrix, entry: int) -> int:
    """The row of a stored entry."""
    return int(np.searchsorted(rows.indptr, entry, side="right")) - 1


def get_csr_arrays(
    rows: sp.csr_matrix,
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float32]]:
    """Where rows begin, columns and values, in the types that the core reads."""
    return (
        rows.indptr.astype(np.int64, copy=False),
        rows.indices.astype(np.int32, copy=False),
        rows.data.astype(np.float32, copy=False),
    )
