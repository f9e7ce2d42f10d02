"""Multi-label data as sparse features and labels: readers and writers.

The formats are the text format of the extreme classification repository (XMC), multi-label LIBSVM
and multi-label ARFF. A header that does not match its rows, an index out of range, a repeated index
and a value that is not finite are errors that name the line. Rows may have no labels or no
features. Indices may come in any order; zeros are not stored.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import scipy.sparse as sp

import polyleaf._core as _core
from polyleaf.files.arff import read_arff
from polyleaf.files.io import (
    ReadError,
    check_file_exists,
    detect_format,
    open_for_writing,
    open_text,
    read_bytes,
    wrap_read_errors,
)
from polyleaf.inputs.read_target import check_same_rows
from polyleaf.inputs.sparse import get_csr_arrays, to_canonical_csr

__all__ = [
    "MULTILABEL_FORMATS",
    "LabelledRows",
    "read_multilabel",
    "read_names",
    "read_sparse_matrix",
    "write_multilabel",
    "write_sparse_matrix",
]

MULTILABEL_FORMATS = {
    "xmc": (".txt", ".xmc"),
    "libsvm": (".libsvm", ".svmlight", ".svm"),
    "arff": (".arff",),
}
"""Format -> its file extensions, which ``.gz`` or ``.bz2`` may follow."""

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
    feature_names, label_names : tuple of str, or None
        None if the file does not name them.
    """

    X: sp.csr_matrix
    Y: sp.csr_matrix
    feature_names: tuple[str, ...] | None = None
    label_names: tuple[str, ...] | None = None


def read_multilabel(
    path: str | Path,
    format: str | None = None,
    *,
    n_features: int | None = None,
    n_labels: int | None = None,
    zero_based: bool | None = None,
    labels: str | Path | Sequence[str] | None = None,
    n_threads: int = 1,
) -> LabelledRows:
    """Read multi-label data.

    Parameters
    ----------
    path : str or Path
        The file; it may be compressed (``.gz``, ``.bz2``).
    format : {"xmc", "libsvm", "arff"}, optional
        By default the format of the file's extension. "xmc": a line ``n d L``, then a line
        ``3,17 0:0.5 12:1`` for each of the n rows, with features below d and labels below L, both
        counted from 0. "libsvm": the same lines without the first; ``#`` starts a comment, blank
        lines are skipped. "arff": dense or sparse, with labels as attributes ``{0,1}``.
    n_features, n_labels : int, optional
        Numbers of columns, for "libsvm" only: give those of the training file for a test file. By
        default the largest index in the file plus one.
    zero_based : bool, optional
        Whether features are counted from 0 or from 1, for "libsvm" only. By default from 0 if the
        file has a feature 0. Labels are always counted from 0.
    labels : str, Path or sequence of str, optional
        For "xmc" and "libsvm": the names of all labels in order, or a file with one name per line.
        For "arff": the names of the attributes that are labels, or Mulan's XML file that lists
        them; by default the attributes that MEKA's option ``-C`` in the relation selects.
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
    format = detect_format(path, MULTILABEL_FORMATS, format)
    if format != "libsvm" and (n_features, n_labels, zero_based) != (None, None, None):
        raise ReadError(
            "n_features, n_labels and zero_based are for LIBSVM files only, but the format of "
            f"{path} is {format!r}."
        )
    with wrap_read_errors(path):
        if format == "arff":
            return _read_arff(path, labels, n_threads)
        text = read_bytes(path)
        if format == "xmc":
            X, Y = _read_xmc(text, n_threads)
        else:
            X, Y = _read_libsvm(text, n_features, n_labels, zero_based, n_threads)
        return LabelledRows(X, Y, label_names=_get_label_names(labels, Y.shape[1]))


def write_multilabel(
    path: str | Path, X: Any, Y: Any, format: str | None = None, *, zero_based: bool = True
) -> None:
    """Write multi-label data; `read_multilabel` reads it back.

    Parameters
    ----------
    path : str or Path
        The file; it is compressed if the extension is ``.gz`` or ``.bz2``.
    X : ndarray or sparse matrix of shape (n, n_features)
        Features, written as float32 with as many digits as that needs.
    Y : ndarray or sparse matrix of shape (n, n_labels)
        Labels, 0 and 1.
    format : {"xmc", "libsvm"}, optional
        By default the format of the file's extension.
    zero_based : bool
        Whether "libsvm" counts features from 0 or from 1.

    Raises
    ------
    ValueError
        If X and Y differ in rows, or the format cannot hold them.
    """
    path = Path(path)
    format = detect_format(path, MULTILABEL_FORMATS) if format is None else format
    if format not in ("xmc", "libsvm"):
        raise ValueError(f"format={format!r} cannot be written; use 'xmc' or 'libsvm'.")
    rows, labels = to_canonical_csr(X, "X"), to_canonical_csr(Y, "Y")
    check_same_rows(rows.shape[0], labels.shape[0], "Y")
    if np.any(labels.data != 1):
        raise ValueError("Y must hold only 0 and 1.")
    is_empty = (np.diff(rows.indptr) == 0) & (np.diff(labels.indptr) == 0)
    if format == "libsvm" and is_empty.any():
        raise ValueError(
            f"Row {int(np.argmax(is_empty))} has neither labels nor features, and readers of "
            "LIBSVM files skip such rows; use format='xmc'."
        )
    with open_for_writing(path) as stream:
        if format == "xmc":
            stream.write(f"{rows.shape[0]} {rows.shape[1]} {labels.shape[1]}\n".encode())
        _write_rows(stream, rows, labels, 0 if format == "xmc" or zero_based else 1)


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
        _, _, indptr, indices, data = _parse(body, "pairs", d, 0, 2, n_threads)
        _check_column_count(d, len(indices), "columns")
        return _csr(indptr, indices, data, _check_rows(indptr, n), d)


def write_sparse_matrix(path: str | Path, matrix: Any) -> None:
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
        _write_rows(stream, rows, None, 0)


def read_names(path: str | Path) -> tuple[str, ...]:
    """Read a file with one name per line, stripped of spaces.

    Parameters
    ----------
    path : str or Path
        The file; it may be compressed (``.gz``, ``.bz2``).

    Returns
    -------
    tuple of str

    Raises
    ------
    ReadError
        If there is no such file, it is not UTF-8, or a name is missing or repeated.
    """
    path = Path(path)
    with wrap_read_errors(path):
        with open_text(path) as stream:
            names = [line.strip() for line in stream]
    while names and not names[-1]:
        names.pop()
    seen: dict[str, int] = {}
    for number, name in enumerate(names, 1):
        if not name:
            raise ReadError(f"{path}: line {number} is blank; every line needs a name.")
        if name in seen:
            raise ReadError(f"{path}: lines {seen[name]} and {number} have the same name {name!r}.")
        seen[name] = number
    return tuple(names)


# --- rows ---


def _parse(
    text: np.ndarray, syntax: str, n_features: int, n_labels: int, first_line: int, n_threads: int
) -> Any:
    return _core.read_xmc_text(
        np.asarray(text), syntax, n_features, n_labels, first_line=first_line, n_threads=n_threads
    )


def _parse_header(text: np.ndarray, nouns: Sequence[str]) -> tuple[list[int], np.ndarray]:
    """Return the numbers of the first line, and the bytes after it."""
    ends = np.flatnonzero(text[:1000] == ord("\n"))
    end = int(ends[0]) if len(ends) else min(len(text), 1000)
    line = bytes(text[:end]).decode("ascii", "replace").strip()
    words = line.split()
    if len(words) != len(nouns) or not all(re.fullmatch(r"[0-9]{1,18}", word) for word in words):
        raise ReadError(f"line 1: expected the numbers of {', '.join(nouns)}, not {line[:40]!r}.")
    counts = [int(word) for word in words]
    for count, noun in zip(counts[1:], nouns[1:], strict=True):
        if count > _INT32_MAX:
            raise ReadError(f"line 1: {count} {noun} are more than the maximum of {_INT32_MAX}.")
    return counts, text[end + 1 :]


def _check_rows(indptr: np.ndarray, n: int) -> int:
    """Return the number of rows, which may be followed by blank lines."""
    found = len(indptr) - 1
    while found > n and indptr[found] == indptr[found - 1]:
        found -= 1
    if found != n:
        raise ReadError(f"line 1 declares {n} rows, but the file has {found}.")
    if n == 0:
        raise ReadError("there are no rows.")
    return n


def _csr(
    indptr: np.ndarray, indices: np.ndarray, data: np.ndarray, n: int, n_columns: int
) -> sp.csr_matrix:
    matrix = sp.csr_matrix((data, indices, indptr[: n + 1]), shape=(n, n_columns))
    matrix.has_canonical_format = True
    return matrix


def _read_xmc(text: np.ndarray, n_threads: int) -> tuple[sp.csr_matrix, sp.csr_matrix]:
    (n, d, n_labels), body = _parse_header(text, ("rows", "features", "labels"))
    label_indptr, labels, indptr, indices, data = _parse(
        body, "labelled", d, n_labels, 2, n_threads
    )
    _check_rows(label_indptr + indptr, n)
    for noun, count in (("features", d), ("labels", n_labels)):
        _check_column_count(count, len(indices) + len(labels), noun)
    Y = _csr(label_indptr, labels, np.ones(len(labels), np.float32), n, n_labels)
    return _csr(indptr, indices, data, n, d), Y


def _read_libsvm(
    text: np.ndarray,
    n_features: int | None,
    n_labels: int | None,
    zero_based: bool | None,
    n_threads: int,
) -> tuple[sp.csr_matrix, sp.csr_matrix]:
    label_indptr, labels, indptr, indices, data = _parse(
        text, "libsvm", _INT32_MAX, _INT32_MAX, 1, n_threads
    )
    n = len(indptr) - 1
    if n == 0:
        raise ReadError("there are no rows.")
    if zero_based is None:
        zero_based = bool((indices == 0).any())
    if not zero_based:
        if (indices == 0).any():
            row = int(np.searchsorted(indptr, np.argmax(indices == 0), side="right"))
            raise ReadError(f"row {row} has feature 0, but with zero_based=False they start at 1.")
        indices -= 1
    n_stored = len(indices) + len(labels)
    n_features = _count_columns(indices, n_features, n_stored, "feature")
    n_labels = _count_columns(labels, n_labels, n_stored, "label")
    Y = _csr(label_indptr, labels, np.ones(len(labels), np.float32), n, n_labels)
    return _csr(indptr, indices, data, n, n_features), Y


# Limit of columns, which all take some memory: a base, and a number per stored entry.
_MAX_COLUMNS, _MAX_COLUMNS_PER_ENTRY = 1 << 24, 64


def _check_column_count(count: int, n_stored: int, nouns: str) -> None:
    limit = _MAX_COLUMNS + _MAX_COLUMNS_PER_ENTRY * n_stored
    if count > limit:
        raise ReadError(
            f"it has {count} {nouns}, but at most {limit} are allowed for the {n_stored} entries "
            f"that it stores: renumber the {nouns}."
        )


def _count_columns(indices: np.ndarray, given: int | None, n_stored: int, noun: str) -> int:
    found = int(np.max(indices, initial=-1)) + 1
    if given is None:
        _check_column_count(found, n_stored, f"{noun}s")
        return found
    if found > given:
        raise ReadError(
            f"n_{noun}s={given} is too few: the file has {noun} {found - 1}, counted from 0."
        )
    return given


def _get_label_names(
    labels: str | Path | Sequence[str] | None, n_labels: int
) -> tuple[str, ...] | None:
    if labels is None:
        return None
    names = read_names(labels) if isinstance(labels, str | Path) else tuple(map(str, labels))
    if len(names) != n_labels:
        raise ReadError(f"labels= has {len(names)} names, but the file has {n_labels} labels.")
    return names


def _write_rows(
    stream: Any, rows: sp.csr_matrix, labels: sp.csr_matrix | None, index_base: int
) -> None:
    for begin in range(0, rows.shape[0], _BATCH_ROWS):
        part = slice(begin, begin + _BATCH_ROWS)
        label_indptr, label_indices = (
            (None, None) if labels is None else get_csr_arrays(labels[part])[:2]
        )
        stream.write(
            _core.write_xmc_text(
                label_indptr, label_indices, *get_csr_arrays(rows[part]), index_base
            )
        )


# --- ARFF ---


def _read_arff(
    path: Path, labels: str | Path | Sequence[str] | None, n_threads: int
) -> LabelledRows:
    names, values, categories = _read_arff_columns(path, n_threads)
    chosen = _select_arff_labels(path, names, labels)
    for column in chosen:
        if names[column] in categories:
            found = ", ".join(categories[names[column]][:5])
            raise ReadError(f"label {names[column]!r} must have the type {{0,1}}, not {{{found}}}.")
    is_label = np.zeros(len(names), bool)
    is_label[chosen] = True
    columns = sp.csc_matrix(values, dtype=np.float32)
    Y = columns[:, chosen].tocsr()
    if not np.isin(Y.data, (0.0, 1.0)).all():
        raise ReadError("a label is neither 0 nor 1.")
    Y.eliminate_zeros()
    X = columns[:, np.flatnonzero(~is_label)].tocsr()
    return LabelledRows(
        X,
        Y,
        tuple(name for name, label in zip(names, is_label, strict=True) if not label),
        tuple(names[column] for column in chosen),
    )


def _read_arff_columns(
    path: Path, n_threads: int
) -> tuple[tuple[str, ...], Any, dict[str, tuple[str, ...]]]:
    """Return names and values of all attributes, and categories other than 0 and 1."""
    columns = _read_numeric_sparse_arff(path, n_threads)
    if columns is not None:
        return (*columns, {})
    with open_text(path) as stream:
        table = read_arff(stream)
    return table.names, table.values, table.categories


def _read_numeric_sparse_arff(
    path: Path, n_threads: int
) -> tuple[tuple[str, ...], sp.csr_matrix] | None:
    """Read a sparse file of numbers in C++; None for other files, and if something is wrong."""
    text = read_bytes(path)
    match = re.search(
        rb"^[ \t]*@data[^\n]*\n",
        memoryview(np.ascontiguousarray(text)),  # type: ignore[arg-type, unused-ignore]
        re.MULTILINE | re.IGNORECASE,
    )
    if match is None:
        return None
    head = bytes(text[: match.end()]).decode("utf-8-sig")
    try:
        # The attributes, from the header and one empty row.
        attributes = read_arff(iter([*head.splitlines(), "{}"]))  # type: ignore[arg-type]
        if attributes.categories:
            return None
        first_line = head.count("\n") + 1
        n_columns = len(attributes.names)
        _, _, indptr, indices, data = _parse(
            text[match.end() :], "arff", n_columns, 0, first_line, n_threads
        )
    except ValueError:
        return None
    n = len(indptr) - 1
    return (attributes.names, _csr(indptr, indices, data, n, n_columns)) if n > 0 else None


def _select_arff_labels(
    path: Path, names: tuple[str, ...], labels: str | Path | Sequence[str] | None
) -> list[int]:
    if labels is None:
        return _read_meka_labels(path, len(names))
    chosen = _read_label_xml(Path(labels)) if isinstance(labels, str | Path) else tuple(labels)
    position = {name: i for i, name in enumerate(names)}
    absent = [name for name in chosen if name not in position]
    if absent:
        raise ReadError(f"labels= names {absent[0]!r}, but there is no such attribute.")
    if len(set(chosen)) < len(chosen) or not chosen:
        raise ReadError("labels= must name at least one attribute, and none twice.")
    return [position[name] for name in chosen]


def _read_label_xml(path: Path) -> tuple[str, ...]:
    """Read Mulan's list of labels: ``<label name="..."/>``, which may be nested."""
    check_file_exists(path)
    try:
        root = ElementTree.parse(path).getroot()
    except ElementTree.ParseError as error:
        raise ReadError(f"{path} is not valid XML: {error}.") from error
    found = [element for element in root.iter() if element.tag.rpartition("}")[2] == "label"]
    if not found or not all(element.get("name") for element in found):
        raise ReadError(f'{path} lists no labels; it needs elements <label name="..."/>.')
    return tuple(str(element.get("name")) for element in found)


def _read_meka_labels(path: Path, n_attributes: int) -> list[int]:
    """Return the first n attributes for ``-C n`` in the relation, the last n for ``-C -n``."""
    with open_text(path) as stream:
        for line in stream:
            if line.strip().lower().startswith("@relation"):
                match = re.search(r"-C\s+(-?[0-9]+)", line)
                if match is not None and 0 < abs(int(match.group(1))) <= n_attributes:
                    count = int(match.group(1))
                    attributes = list(range(n_attributes))
                    return attributes[:count] if count > 0 else attributes[count:]
                break
    raise ReadError(
        "it is not known which attributes are labels: give labels= their names or Mulan's XML "
        "file, or add '-C n' to the relation."
    )
