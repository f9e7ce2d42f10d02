"""Extreme multi-label data as sparse features and labels: readers and writers.

The text format is that of the extreme classification repository (XMC): a line ``n d L``, then a
line ``3,17 0:0.5 12:1`` for each of the n rows, with features below d and labels below L, both
counted from 0. Indices may come in any order; zeros are not stored; rows may have no labels or no
features. A header that does not match its rows, an index out of range, a repeated index and a value
that is not finite are errors that name the line.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
import scipy.sparse as sp

import polyleaf._core as _core
from polyleaf.files.io import (
    ReadError,
    open_for_writing,
    read_bytes,
    read_text,
    require,
    wrap_read_errors,
)
from polyleaf.runtime.types import DataLike
from polyleaf.user_data.read_target import check_same_rows
from polyleaf.user_data.validation import get_csr_arrays, to_canonical_csr

__all__ = [
    "LabelledRows",
    "read_multilabel",
    "read_names",
    "read_sparse_matrix",
    "write_multilabel",
    "write_sparse_matrix",
]


def __dir__() -> list[str]:
    return __all__


_INT32_MAX = np.iinfo(np.int32).max
_BATCH_ROWS = 1 << 14  # rows written at a time


@dataclass(frozen=True)
class LabelledRows:
    """Features and labels of the same rows.

    Attributes
    ----------
    X : csr_matrix of shape (n, n_features), float32
    Y : csr_matrix of shape (n, n_labels), float32
        1 where a label applies.
    label_names : tuple of str, or None
    """

    X: sp.csr_matrix
    Y: sp.csr_matrix
    label_names: tuple[str, ...] | None = None


def read_multilabel(
    path: str | Path, *, labels: str | Path | Sequence[str] | None = None, n_threads: int = 1
) -> LabelledRows:
    """Read multi-label data.

    Parameters
    ----------
    path : str or Path
        The file; it may be compressed (``.gz``, ``.bz2``).
    labels : str, Path or sequence of str, optional
        Names of all labels in order, or a file with one name per line.
    n_threads : int
        Number of threads.

    Returns
    -------
    LabelledRows

    Raises
    ------
    ReadError
        If the file is missing, breaks its format, or has no rows; the message names the line.
    """
    path = Path(path)
    with wrap_read_errors(path):
        (n, d, n_labels), body = _parse_header(read_bytes(path), ("rows", "features", "labels"))
        arrays = _core.read_xmc_text(np.asarray(body), "labelled", d, n_labels, 2, n_threads)
        label_indptr, own_labels, indptr, indices, data = arrays
        _check_rows(label_indptr + indptr, n)
        for noun, count in (("features", d), ("labels", n_labels)):
            _check_column_count(count, len(indices) + len(own_labels), noun)
        Y = _csr(label_indptr, own_labels, np.ones(len(own_labels), np.float32), n, n_labels)
        names = read_names(labels) if isinstance(labels, str | Path) else labels
        if names is not None and len(names) != n_labels:
            raise ReadError(f"labels= has {len(names)} names, but the file has {n_labels} labels.")
        names = None if names is None else tuple(map(str, names))
        return LabelledRows(_csr(indptr, indices, data, n, d), Y, names)


def write_multilabel(path: str | Path, X: DataLike, Y: DataLike) -> None:
    """Write multi-label data; `read_multilabel` reads it back.

    Parameters
    ----------
    path : str or Path
        The file; it is compressed if the extension is ``.gz`` or ``.bz2``.
    X : ndarray or sparse matrix of shape (n, n_features)
        Features, written as float32 with as many digits as that needs.
    Y : ndarray or sparse matrix of shape (n, n_labels)
        Labels, 0 and 1.

    Raises
    ------
    ValueError
        If X and Y differ in rows, or the format cannot hold them.
    """
    rows, labels = to_canonical_csr(X, "X"), to_canonical_csr(Y, "Y")
    check_same_rows(rows.shape[0], labels.shape[0], "Y")
    if np.any(labels.data != 1):
        raise ValueError("Y must hold only 0 and 1.")
    with open_for_writing(Path(path)) as stream:
        stream.write(f"{rows.shape[0]} {rows.shape[1]} {labels.shape[1]}\n".encode())
        _write_rows(stream, rows, labels)


def read_sparse_matrix(path: str | Path, *, n_threads: int = 1) -> sp.csr_matrix:
    """Read a sparse matrix: a line ``n d``, then a line ``0:0.5 12:1`` for each row.

    Newer data sets of the extreme classification repository have features (``..._X_Xf.txt``) and
    labels (``..._X_Y.txt``) in two such files.

    Parameters
    ----------
    path : str or Path
        The file; it may be compressed (``.gz``, ``.bz2``).
    n_threads : int
        Number of threads.

    Returns
    -------
    csr_matrix of shape (n, d), float32

    Raises
    ------
    ReadError
        If the file is missing, breaks its format, or has no rows; the message names the line.
    """
    path = Path(path)
    with wrap_read_errors(path):
        text = read_bytes(path)
        (n, d), body = _parse_header(text, ("rows", "columns"))
        body = np.asarray(body)
        _, _, indptr, indices, data = _core.read_xmc_text(body, "pairs", d, 0, 2, n_threads)
        _check_column_count(d, len(indices), "columns")
        return _csr(indptr, indices, data, _check_rows(indptr, n), d)


def write_sparse_matrix(path: str | Path, matrix: DataLike) -> None:
    """Write a sparse matrix; `read_sparse_matrix` reads it back.

    Parameters
    ----------
    path : str or Path
        The file; it is compressed if the extension is ``.gz`` or ``.bz2``.
    matrix : array or sparse matrix of shape (n, d)
        Numbers, written as float32.
    """
    rows = to_canonical_csr(matrix, "The matrix")
    with open_for_writing(Path(path)) as stream:
        stream.write(f"{rows.shape[0]} {rows.shape[1]}\n".encode())
        _write_rows(stream, rows, None)


def read_names(path: str | Path) -> tuple[str, ...]:
    """Read a file with one name per line.

    Parameters
    ----------
    path : str or Path
        The file; it may be compressed (``.gz``, ``.bz2``).

    Raises
    ------
    ReadError
        If there is no such file, it is not UTF-8, or a name is missing or repeated.
    """
    path = Path(path)
    with wrap_read_errors(path):
        names = [line.strip() for line in read_text(path).rstrip().split("\n")]
        blank = names.index("") + 1 if "" in names else 0
        require(not blank, f"line {blank} is blank; every line needs a name.")
        first: dict[str, int] = {}
        for number, name in enumerate(names, 1):
            if first.setdefault(name, number) < number:
                raise ReadError(f"lines {first[name]} and {number} have the same name {name!r}.")
    return tuple(names)


# --- rows ---


def _parse_header(text: np.ndarray, nouns: Sequence[str]) -> tuple[list[int], np.ndarray]:
    """Return the numbers of the first line, and the bytes after it."""
    ends = np.flatnonzero(text[:1000] == ord("\n"))
    end = int(ends[0]) if len(ends) else min(len(text), 1000)
    line = bytes(text[:end]).decode("ascii", "replace").strip()
    words = line.split()
    are_numbers = all(re.fullmatch(r"[0-9]{1,18}", word) for word in words)
    require(
        len(words) == len(nouns) and are_numbers,
        f"line 1: expected the numbers of {', '.join(nouns)}, not {line[:40]!r}.",
    )
    counts = [int(word) for word in words]
    if max(counts[1:]) > _INT32_MAX:
        noun = nouns[1 + int(np.argmax(counts[1:]))]
        raise ReadError(f"line 1: {max(counts[1:])} {noun} are more than {_INT32_MAX}.")
    return counts, text[end + 1 :]


def _check_rows(indptr: np.ndarray, n: int) -> int:
    """Return the number of rows, which may be followed by blank lines."""
    n_lines = len(indptr) - 1
    if n_lines >= n:
        n_lines = max(n, int(np.searchsorted(indptr, indptr[-1])))
    require(n_lines == n, f"line 1 declares {n} rows, but the file has {n_lines}.")
    require(n > 0, "there are no rows.")
    return n


def _csr(
    indptr: np.ndarray, indices: np.ndarray, data: np.ndarray, n: int, n_columns: int
) -> sp.csr_matrix:
    matrix = sp.csr_matrix((data, indices, indptr[: n + 1]), shape=(n, n_columns))
    matrix.has_canonical_format = True
    return matrix


# Limit of columns, which all take some memory: a base, and a number per stored entry.
_MAX_COLUMNS, _MAX_COLUMNS_PER_ENTRY = 1 << 24, 64


def _check_column_count(count: int, n_stored: int, nouns: str) -> None:
    limit = _MAX_COLUMNS + _MAX_COLUMNS_PER_ENTRY * n_stored
    require(
        count <= limit,
        f"it has {count} {nouns}, but at most {limit} are allowed for the {n_stored} entries "
        f"that it stores: renumber the {nouns}.",
    )


def _write_rows(stream: IO[bytes], rows: sp.csr_matrix, labels: sp.csr_matrix | None) -> None:
    for begin in range(0, rows.shape[0], _BATCH_ROWS):
        part = slice(begin, begin + _BATCH_ROWS)
        label_arrays = (None, None) if labels is None else get_csr_arrays(labels[part])[:2]
        arrays = get_csr_arrays(rows[part])
        stream.write(_core.write_xmc_text(label_arrays[0], label_arrays[1], *arrays, 0))
