"""Files of rows with many labels: the extreme classification repository's text format, multi-label LIBSVM and
multi-label ARFF -> CSR features and CSR labels, and back.

Owns what each format says about labels. The grammar of a row is the core's, that of ARFF is `arff`'s; must
not know models, tasks or the command line. `readers` reads tables instead: named columns, some of them
targets.

Nothing is dropped in silence: a header that does not agree with its rows, an index out of range, an index
that comes twice in a row, and what is no finite number are errors that name the line. Rows without labels or
without features are legal. Indices may come in any order; zeros are not stored.
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
from polyleaf.inputs.sparse import get_csr_arrays, to_canonical_csr
from polyleaf.inputs.targets import check_same_rows

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
"""Format -> the endings by which a file is recognised (a further ``.gz`` or ``.bz2`` is taken off first)."""

_LARGEST = np.iinfo(np.int32).max
_ROWS_AT_A_TIME = 1 << 14  # written


@dataclass(frozen=True)
class LabelledRows:
    """Features and labels of the same rows.

    Attributes
    ----------
    X : csr_matrix of shape (n, n_features), float32
    Y : csr_matrix of shape (n, n_labels), float32
        1 where a label holds.
    feature_names, label_names : tuple of str, or None
        None where the file does not name them.
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
    """Read rows with labels.

    Parameters
    ----------
    path : str or Path
        The file; it may be compressed (``.gz``, ``.bz2``).
    format : {"xmc", "libsvm", "arff"}, optional
        By default the file's ending decides. "xmc": a line ``n d L``, then a line ``3,17 0:0.5 12:1`` for
        each of the n rows, features below d and labels below L, both counted from 0. "libsvm": the same
        lines without the first; ``#`` starts a comment, blank lines are skipped. "arff": dense or sparse,
        labels are attributes ``{0,1}``.
    n_features, n_labels : int, optional
        "libsvm" only: the number of columns, so that test files have those of the training file. By default
        the largest index there is decides.
    zero_based : bool, optional
        "libsvm" only: whether features are counted from 0 or from 1. By default from 0 where one of them is
        0. Labels are counted from 0.
    labels : str, Path or sequence of str, optional
        "xmc" and "libsvm": names of the labels, or a file with one name a line; label k has the k-th. "arff":
        the names of the attributes that are labels, or Mulan's XML file that lists them; by default what
        MEKA's ``-C`` in the relation says.
    n_threads : int
        Threads.

    Returns
    -------
    LabelledRows

    Raises
    ------
    ReadError
        When the file is missing, breaks its format, or has no rows; the message names the line.
    """
    path = Path(path)
    format = detect_format(path, MULTILABEL_FORMATS, format)
    if format != "libsvm" and (n_features, n_labels, zero_based) != (None, None, None):
        raise ReadError(
            f"n_features, n_labels and zero_based are for LIBSVM files; {path} is of format {format!r}."
        )
    with wrap_read_errors(path):
        if format == "arff":
            return _read_arff(path, labels, n_threads)
        text = read_bytes(path)
        if format == "xmc":
            X, Y = _read_xmc(text, n_threads)
        else:
            X, Y = _read_libsvm(text, n_features, n_labels, zero_based, n_threads)
        return LabelledRows(X, Y, label_names=_label_names(labels, Y.shape[1]))


def write_multilabel(
    path: str | Path, X: Any, Y: Any, format: str | None = None, *, zero_based: bool = True
) -> None:
    """Write rows with labels, so that `read_multilabel` gives them back.

    Parameters
    ----------
    path : str or Path
        Compressed where it ends in ``.gz`` or ``.bz2``.
    X : ndarray or sparse matrix of shape (n, n_features)
        Written as float32, in as many digits as that needs.
    Y : ndarray or sparse matrix of shape (n, n_labels)
        0 and 1.
    format : {"xmc", "libsvm"}, optional
        By default the file's ending decides.
    zero_based : bool
        "libsvm": count features from 0, or from 1.

    Raises
    ------
    ValueError
        Where X and Y do not have the same rows, or hold what the format cannot.
    """
    path = Path(path)
    format = detect_format(path, MULTILABEL_FORMATS) if format is None else format
    if format not in ("xmc", "libsvm"):
        raise ValueError(f"Format {format!r} is not written; 'xmc' and 'libsvm' are.")
    rows, labels = to_canonical_csr(X, "X"), to_canonical_csr(Y, "Y")
    check_same_rows(rows.shape[0], labels.shape[0], "Y")
    if np.any(labels.data != 1):
        raise ValueError("Y must hold 0 and 1; these formats cannot write anything else.")
    blank = (np.diff(rows.indptr) == 0) & (np.diff(labels.indptr) == 0)
    if format == "libsvm" and blank.any():
        row = int(np.argmax(blank))
        raise ValueError(
            f"Row {row} has neither labels nor features; a LIBSVM file skips such lines. Use 'xmc'."
        )
    with open_for_writing(path) as stream:
        if format == "xmc":
            stream.write(f"{rows.shape[0]} {rows.shape[1]} {labels.shape[1]}\n".encode())
        _write_rows(stream, rows, labels, 0 if format == "xmc" or zero_based else 1)


def read_sparse_matrix(path: str | Path, *, n_threads: int = 1) -> sp.csr_matrix:
    """Read one matrix as newer sets of the repository have it: a line ``n d``, then ``0:0.5 12:1`` for each
    row.

    Features (``..._X_Xf.txt``) and labels (``..._X_Y.txt``) then lie in files of their own.

    Parameters
    ----------
    path : str or Path
    n_threads : int

    Returns
    -------
    csr_matrix of shape (n, d), float32

    Raises
    ------
    ReadError
        As `read_multilabel`.
    """
    path = Path(path)
    with wrap_read_errors(path):
        text = read_bytes(path)
        (n, d), body = _header(text, ("rows", "columns"))
        _, _, indptr, indices, data = _parse(body, "pairs", d, 0, 2, n_threads)
        _check_believable(d, len(indices), "columns")
        return _csr(indptr, indices, data, _check_rows(indptr, n), d)


def write_sparse_matrix(path: str | Path, matrix: Any) -> None:
    """Write one matrix, so that `read_sparse_matrix` gives it back.

    Parameters
    ----------
    path : str or Path
    matrix : array or sparse matrix of shape (n, d)
        Numbers, written as float32.
    """
    rows = to_canonical_csr(matrix, "The matrix")
    with open_for_writing(Path(path)) as stream:
        stream.write(f"{rows.shape[0]} {rows.shape[1]}\n".encode())
        _write_rows(stream, rows, None, 0)


def read_names(path: str | Path) -> tuple[str, ...]:
    """Names, one a line; spaces around them do not count, blank lines at the end neither.

    Parameters
    ----------
    path : str or Path

    Returns
    -------
    tuple of str

    Raises
    ------
    ReadError
        When there is no such file, it is not UTF-8, or a name is missing or comes twice.
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
            raise ReadError(f"{path}: line {number} is blank; a name is needed.")
        if name in seen:
            raise ReadError(f"{path}: line {number} has the name of line {seen[name]}, {name!r}.")
        seen[name] = number
    return tuple(names)


# --- rows ---


def _parse(
    text: np.ndarray, syntax: str, n_features: int, n_labels: int, first_line: int, n_threads: int
) -> Any:
    return _core.read_xmc_text(
        np.asarray(text), syntax, n_features, n_labels, first_line=first_line, n_threads=n_threads
    )


def _header(text: np.ndarray, nouns: Sequence[str]) -> tuple[list[int], np.ndarray]:
    """The numbers of the first line, and the bytes after it."""
    ends = np.flatnonzero(text[:1000] == ord("\n"))
    end = int(ends[0]) if len(ends) else min(len(text), 1000)
    line = bytes(text[:end]).decode("ascii", "replace").strip()
    words = line.split()
    if len(words) != len(nouns) or not all(re.fullmatch(r"[0-9]{1,18}", word) for word in words):
        raise ReadError(
            f"line 1: the numbers of {', '.join(nouns)} were expected, not {line[:40]!r}."
        )
    counts = [int(word) for word in words]
    for count, noun in zip(counts[1:], nouns[1:], strict=True):
        if count > _LARGEST:
            raise ReadError(
                f"line 1: {count} {noun} are more than the {_LARGEST} that 32-bit indices hold."
            )
    return counts, text[end + 1 :]


def _check_rows(indptr: np.ndarray, n: int) -> int:
    """The number of rows, which may be followed by blank lines."""
    found = len(indptr) - 1
    while found > n and indptr[found] == indptr[found - 1]:
        found -= 1
    if found != n:
        raise ReadError(f"the first line says {n} rows, but there are {found}.")
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
    (n, d, n_labels), body = _header(text, ("rows", "features", "labels"))
    label_indptr, labels, indptr, indices, data = _parse(
        body, "labelled", d, n_labels, 2, n_threads
    )
    _check_rows(label_indptr + indptr, n)
    for noun, count in (("features", d), ("labels", n_labels)):
        _check_believable(count, len(indices) + len(labels), noun)
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
        text, "libsvm", _LARGEST, _LARGEST, 1, n_threads
    )
    n = len(indptr) - 1
    if n == 0:
        raise ReadError("there are no rows.")
    if zero_based is None:
        zero_based = bool((indices == 0).any())
    if not zero_based:
        if (indices == 0).any():
            row = int(np.searchsorted(indptr, np.argmax(indices == 0), side="right"))
            raise ReadError(f"row {row} has feature 0, but features are said to be counted from 1.")
        indices -= 1
    n_stored = len(indices) + len(labels)
    n_features = _width(indices, n_features, n_stored, "feature")
    n_labels = _width(labels, n_labels, n_stored, "label")
    Y = _csr(label_indptr, labels, np.ones(len(labels), np.float32), n, n_labels)
    return _csr(indptr, indices, data, n, n_features), Y


# Columns that are believed of any file, and for each entry that is stored: some memory is spent on each.
_COLUMNS, _COLUMNS_AN_ENTRY = 1 << 24, 64


def _check_believable(count: int, n_stored: int, nouns: str) -> None:
    if count > _COLUMNS + _COLUMNS_AN_ENTRY * n_stored:
        raise ReadError(
            f"it has {count} {nouns} for the {n_stored} entries that it stores, more than {_COLUMNS} and "
            f"{_COLUMNS_AN_ENTRY} an entry: number the {nouns} anew."
        )


def _width(indices: np.ndarray, wanted: int | None, n_stored: int, noun: str) -> int:
    needed = int(np.max(indices, initial=-1)) + 1
    if wanted is None:
        _check_believable(needed, n_stored, f"{noun}s")
        return needed
    if needed > wanted:
        raise ReadError(
            f"there is a {noun} {needed - 1}, counted from 0, but there are to be {wanted} {noun}s."
        )
    return wanted


def _label_names(
    labels: str | Path | Sequence[str] | None, n_labels: int
) -> tuple[str, ...] | None:
    if labels is None:
        return None
    names = read_names(labels) if isinstance(labels, str | Path) else tuple(map(str, labels))
    if len(names) != n_labels:
        raise ReadError(f"there are {len(names)} label names, but {n_labels} labels.")
    return names


def _write_rows(
    stream: Any, rows: sp.csr_matrix, labels: sp.csr_matrix | None, index_base: int
) -> None:
    for begin in range(0, rows.shape[0], _ROWS_AT_A_TIME):
        part = slice(begin, begin + _ROWS_AT_A_TIME)
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
    names, values, categories = _arff_columns(path, n_threads)
    chosen = _arff_labels(path, names, labels)
    for column in chosen:
        if names[column] in categories:
            found = ", ".join(categories[names[column]][:5])
            raise ReadError(
                f"label {names[column]!r} must be an attribute {{0,1}}, not {{{found}}}."
            )
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


def _arff_columns(
    path: Path, n_threads: int
) -> tuple[tuple[str, ...], Any, dict[str, tuple[str, ...]]]:
    """Names of all attributes, their values, and the categories of those that have others than 0 and 1."""
    fast = _numeric_sparse_arff(path, n_threads)
    if fast is not None:
        return (*fast, {})
    with open_text(path) as stream:
        table = read_arff(stream)
    return table.names, table.values, table.categories


def _numeric_sparse_arff(
    path: Path, n_threads: int
) -> tuple[tuple[str, ...], sp.csr_matrix] | None:
    """The core's way for sparse files of numbers; None where this is another file, or something is wrong."""
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
        # Its own header and one empty row: the slow way says what the attributes are.
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


def _arff_labels(
    path: Path, names: tuple[str, ...], labels: str | Path | Sequence[str] | None
) -> list[int]:
    if labels is None:
        return _meka_labels(path, len(names))
    wanted = _names_in_xml(Path(labels)) if isinstance(labels, str | Path) else tuple(labels)
    position = {name: i for i, name in enumerate(names)}
    absent = [name for name in wanted if name not in position]
    if absent:
        raise ReadError(f"there is no attribute {absent[0]!r}, which is to be a label.")
    if len(set(wanted)) < len(wanted) or not wanted:
        raise ReadError("label names must be given, each once.")
    return [position[name] for name in wanted]


def _names_in_xml(path: Path) -> tuple[str, ...]:
    """Mulan's list of labels: ``<label name="..."/>``, perhaps within each other."""
    check_file_exists(path)
    try:
        root = ElementTree.parse(path).getroot()
    except ElementTree.ParseError as error:
        raise ReadError(f"{path} is no readable XML: {error}.") from error
    found = [element for element in root.iter() if element.tag.rpartition("}")[2] == "label"]
    if not found or not all(element.get("name") for element in found):
        raise ReadError(f'{path} lists no labels; <label name="..."/> is looked for.')
    return tuple(str(element.get("name")) for element in found)


def _meka_labels(path: Path, n_attributes: int) -> list[int]:
    """The first n attributes where the relation has ``-C n``, the last n where it has ``-C -n``."""
    with open_text(path) as stream:
        for line in stream:
            if line.strip().lower().startswith("@relation"):
                match = re.search(r"-C\s+(-?[0-9]+)", line)
                if match is not None and 0 < abs(int(match.group(1))) <= n_attributes:
                    count = int(match.group(1))
                    return (
                        list(range(count))
                        if count > 0
                        else list(range(n_attributes + count, n_attributes))
                    )
                break
    raise ReadError(
        "which attributes are labels? Give labels= their names or Mulan's XML file, or '-C n' in the "
        "relation."
    )
