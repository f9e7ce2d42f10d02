"""Sparse matrices in canonical CSR form, as the core reads them."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from polyleaf.inputs.validation import check_data
from polyleaf.runtime.types import DataLike

__all__ = ["find_row", "get_csr_arrays", "to_canonical_csr"]


def to_canonical_csr(
    values: DataLike,
    name: str,
    *,
    repeated: Literal["add", "raise"] = "add",
    allow_empty: bool = False,
    nan_hint: str = "",
) -> sp.csr_matrix:
    """Convert a matrix to canonical CSR: columns ascend, no duplicates, no zeros, all finite.

    Parameters
    ----------
    values : ndarray or sparse matrix of shape (n_rows, n_columns)
        Numbers; it is not changed.
    name : str
        Name of the matrix in error messages.
    repeated : {"add", "raise"}
        Whether entries that are stored twice are added or raise an error.
    allow_empty : bool
        Whether a matrix without rows is valid.
    nan_hint : str
        End of the error message about NaN.

    Returns
    -------
    csr_matrix, float32
        It may share its arrays with `values`.

    Raises
    ------
    ValueError
        For other shapes and dtypes, values that float32 cannot hold, column indices out of bounds,
        and repeated entries if `repeated` is "raise".
    """
    values = check_data(values, name)
    values = values if sp.issparse(values) else np.asarray(values)
    _check_shape_and_dtype(values, name, 0 if allow_empty else 1)
    with np.errstate(over="ignore"):  # overflow gives infinity, which raises below
        rows = sp.csr_matrix(values, dtype=np.float32)
    if not np.isfinite(rows.data).all():
        entry = int(np.argmin(np.isfinite(rows.data)))
        place = f"in row {find_row(rows, entry)}, column {rows.indices[entry]}"
        if np.isnan(rows.data[entry]):
            raise ValueError(f"{name} holds NaN {place}.{nan_hint}")
        raise ValueError(f"{name} holds infinity or a value too large for float32 {place}.")
    if not rows.has_canonical_format or not rows.data.all():
        rows = rows.copy()  # it may share its arrays with the caller's
        n_stored = rows.nnz
        rows.sum_duplicates()
        if rows.nnz < n_stored and repeated == "raise":
            raise ValueError(
                f"{name} stores {n_stored - rows.nnz} entries twice: call sum_duplicates() on it "
                "if "
                "they should be added."
            )
        rows.eliminate_zeros()
    return rows


def _check_shape_and_dtype(values: Any, name: str, min_rows: int) -> None:
    if len(values.shape) != 2:
        raise ValueError(
            f"{name} must have two dimensions, (n_rows, n_columns), not shape {values.shape}."
        )
    if values.dtype.kind not in "buif":
        raise ValueError(f"{name} must hold numbers, not {values.dtype}.")
    if values.shape[0] < min_rows or values.shape[1] < 1:
        raise ValueError(
            f"{name} has shape {values.shape}, but needs at least one row and one column."
        )
    max_columns = np.iinfo(np.int32).max
    if values.shape[1] > max_columns:
        raise ValueError(
            f"{name} has {values.shape[1]} columns; at most {max_columns} are allowed."
        )


def find_row(rows: sp.csr_matrix, entry: int) -> int:
    """Return the row of a stored entry."""
    return int(np.searchsorted(rows.indptr, entry, side="right")) - 1


def get_csr_arrays(
    rows: sp.csr_matrix,
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float32]]:
    """Return indptr, indices and data in the dtypes of the core."""
    return (
        rows.indptr.astype(np.int64, copy=False),
        rows.indices.astype(np.int32, copy=False),
        rows.data.astype(np.float32, copy=False),
    )
