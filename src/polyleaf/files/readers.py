"""Readers of CSV, Parquet, Arrow or Feather, ARFF and LIBSVM files.

CSV, ARFF and LIBSVM work with the base install. Parquet and Arrow need the extra
``polyleaf[arrow]``, which also makes CSV faster.
"""

from __future__ import annotations

import codecs
import csv
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from polyleaf.files.arff import read_arff, read_arff_cells
from polyleaf.files.io import (
    STANDARD_INPUT,
    UTF_8,
    ReadError,
    check_file_exists,
    detect_format,
    open_text,
    spool_to_disk,
    wrap_read_errors,
)
from polyleaf.files.table import (
    CHUNK_ROWS,
    MISSING_VALUES,
    Table,
    build_table,
    encode_categories,
    parse_numbers,
    parse_texts,
)

__all__ = [
    "FORMATS",
    "CsvOptions",
    "ReadError",
    "Table",
    "arrow_to_cells",
    "from_arrow",
    "read_cells",
    "read_table",
]

FORMATS = {
    "csv": (".csv", ".tsv", ".txt"),
    "parquet": (".parquet", ".pq"),
    "arrow": (".arrow", ".feather", ".ipc"),
    "arff": (".arff",),
    "libsvm": (".libsvm", ".svmlight", ".svm"),
}
"""Format -> its file extensions, which ``.gz`` or ``.bz2`` may follow."""


@dataclass(frozen=True)
class CsvOptions:
    """Options of CSV files.

    Attributes
    ----------
    header : bool or None
        Whether the first line names the columns; None: whether it holds anything but numbers.
    separator : str or None
        Character between cells; None: the one of ``, ; tab |`` that the first line has most of.
    decimal : str
        Decimal mark, "." or ",".
    encoding : str
    """

    header: bool | None = None
    separator: str | None = None
    decimal: str = "."
    encoding: str = UTF_8

    def __post_init__(self) -> None:
        if self.separator is not None and (len(self.separator) != 1 or self.separator in '\r\n"'):
            raise ReadError(
                f"The separator must be one character, such as ; or tab, not {self.separator!r}."
            )
        if self.decimal not in (".", ",") or self.decimal == self.separator:
            raise ReadError(
                "The decimal mark must be . or , and differ from the separator, not "
                f"{self.decimal!r}."
            )
        try:
            codecs.lookup(self.encoding)
        except LookupError:
            raise ReadError(
                f"Unknown encoding {self.encoding!r}; use for example utf-8, latin-1 or cp1252."
            ) from None


def read_table(
    path: str | Path, format: str | None = None, csv_options: CsvOptions | None = None
) -> Table:
    """Read a data file.

    Text columns and ARFF nominal attributes become categories, everything else numbers. A CSV file
    whose first line holds only numbers has no header; its columns are named ``c0``, ``c1``, ... The
    columns of a LIBSVM file are named by their index, and its target ``target``, or ``label_<l>``
    for each label l of a multi-label file.

    Parameters
    ----------
    path : str or Path
        The file; text files may be compressed (``.gz``, ``.bz2``). "-" is standard input, which is
        CSV by default.
    format : {"csv", "parquet", "arrow", "arff", "libsvm"}, optional
        By default the format of the file's extension.
    csv_options : CsvOptions, optional
        Header, separator, decimal mark and encoding of a CSV file.

    Returns
    -------
    Table

    Raises
    ------
    ReadError
        If the file is missing, of another format or empty, or an extra is not installed.
    """
    path = Path(path)
    if path == STANDARD_INPUT:
        format = format or "csv"
    with spool_to_disk(path, "") as file:
        check_file_exists(file)
        format = detect_format(file, FORMATS, format)
        with wrap_read_errors(file):
            if format == "csv":
                table = _read_csv(file, csv_options or CsvOptions())
            else:
                table = _READERS[format](file)
        if table.n_rows == 0:
            raise ReadError(f"{file} has no rows.")
    return table


def read_cells(
    path: Path, table: Table, names: Sequence[str], format: str | None, csv_options: CsvOptions
) -> dict[str, np.ndarray]:
    """Read columns as they are written in a file, without encoding them as numbers or categories.

    Parameters
    ----------
    path, format, csv_options
        See `read_table`; standard input is not possible.
    table : Table
        The table that `read_table` returned for the file.
    names : sequence of str
        Columns to read.

    Returns
    -------
    dict of str to ndarray of shape (n_rows,)
        Text for CSV and dense ARFF; values of the columns' types for Parquet and Arrow; numbers and
        names of categories for sparse files. An empty cell is None, or NaN among floats.
    """
    format = detect_format(path, FORMATS, format)
    if not names or table.is_sparse:
        return {name: _decode_sparse(table, name) for name in names}
    with wrap_read_errors(path):
        if format == "csv":
            return _read_csv_cells(path, table.n_rows, names, csv_options)
        if format == "arff":
            with open_text(path) as stream:
                return read_arff_cells(stream, names)
        arrow = (_read_parquet_file if format == "parquet" else _read_arrow_file)(path)
        return {name: arrow_to_cells(arrow.column(name)) for name in names}


def _decode_sparse(table: Table, name: str) -> np.ndarray:
    numbers = table.column(name)
    known = ~np.isnan(numbers)
    if name in table.categories:
        texts = np.array([*table.categories[name], None], dtype=object)
        return texts[np.where(known, numbers, -1).astype(np.int64)]
    is_integer = (numbers == np.round(numbers)).all() and (np.abs(numbers) < 2**53).all()
    return numbers.astype(np.int64) if known.all() and is_integer else numbers


# ---- CSV ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _CsvLayout:
    """Layout of a CSV file, from its options and its first line."""

    delimiter: str
    names: tuple[str, ...]
    has_header: bool
    decimal: str
    encoding: str

    def parse_numbers(self, cells: Sequence[str]) -> np.ndarray | None:
        """Parse cells with this decimal mark, as `table.parse_numbers` does."""
        if self.decimal != ".":
            cells = [cell.replace(self.decimal, ".") for cell in cells]
        return parse_numbers(cells)


def _detect_csv_layout(path: Path, options: CsvOptions) -> _CsvLayout:
    with open_text(path, options.encoding) as stream:
        first = stream.readline()
    if not first.strip():
        raise ReadError("the first line is empty; a CSV file must start with column names or data.")
    unquoted = re.sub(r'"[^"]*"', "", first)
    delimiter = options.separator or max(",;\t|".replace(options.decimal, ""), key=unquoted.count)
    with open_text(path, options.encoding) as stream:
        cells = next(csv.reader(stream, delimiter=delimiter))
    layout = _CsvLayout(delimiter, (), False, options.decimal, options.encoding)
    is_numeric = all(cell.strip() and layout.parse_numbers([cell]) is not None for cell in cells)
    if options.header is False or (options.header is None and is_numeric):
        return replace(layout, names=tuple(f"c{i}" for i in range(len(cells))))
    names = tuple(cell.strip() or f"c{i}" for i, cell in enumerate(cells))
    return replace(layout, names=names, has_header=True)


def _read_csv(path: Path, options: CsvOptions) -> Table:
    layout = _detect_csv_layout(path, options)
    if find_spec("pyarrow") is not None and (options.decimal, options.encoding) == (".", UTF_8):
        table = _read_csv_arrow(path, layout)
        if table is not None:
            return table
    return _read_csv_python(path, layout)


def _iter_csv_rows(stream: Iterable[str], layout: _CsvLayout) -> Iterator[list[str]]:
    reader = csv.reader(stream, delimiter=layout.delimiter)
    if layout.has_header:
        next(reader)
    width = len(layout.names)
    try:
        for row in reader:
            if len(row) == width:
                yield row
            elif row and (len(row) > 1 or row[0].strip()):
                raise ReadError(
                    f"line {reader.line_num} has {len(row)} cells, but the header has {width}; "
                    "correct the line, or give the separator."
                )
            elif width == 1:
                yield [""]
    except csv.Error as error:
        raise ReadError(f"line {reader.line_num}: {error}.") from error


def _read_csv_python(path: Path, layout: _CsvLayout) -> Table:
    """Read with the standard library alone.

    A column is numeric until a cell is text. If that is not in the first chunk, the file is read
    again with this column as text, since the spelling of the earlier numbers (``01``) is lost.
    """
    width = len(layout.names)
    is_text = [False] * width
    while True:
        chunks: list[list] = [[] for _ in range(width)]
        must_reread = False
        with open_text(path, layout.encoding) as stream:
            rows = _iter_csv_rows(stream, layout)
            while chunk := list(islice(rows, CHUNK_ROWS)):
                for i, cells in enumerate(zip(*chunk, strict=True)):
                    numbers = None if is_text[i] else layout.parse_numbers(cells)
                    if numbers is None and not is_text[i]:
                        is_text[i] = True
                        must_reread = must_reread or bool(chunks[i])
                    chunks[i].append(parse_texts(cells) if numbers is None else numbers)
        if not must_reread:
            return build_table(layout.names, chunks, is_text)


def _read_csv_cells(
    path: Path, n_rows: int, names: Sequence[str], options: CsvOptions
) -> dict[str, np.ndarray]:
    """Return the text of some columns, None for an empty cell."""
    layout = _detect_csv_layout(path, options)
    positions = [layout.names.index(name) for name in names]
    columns: Sequence[Sequence[str]] | None = None
    if find_spec("pyarrow") is not None and options.encoding == UTF_8:
        columns = _read_csv_cells_arrow(path, layout, positions)
    if columns is None or len(columns[0]) != n_rows:
        with open_text(path, layout.encoding) as stream:
            rows = [[row[i] for i in positions] for row in _iter_csv_rows(stream, layout)]
        columns = list(zip(*rows, strict=True))
    return {
        name: np.array([cell or None for cell in cells], dtype=object)
        for name, cells in zip(names, columns, strict=True)
    }


def _read_csv_cells_arrow(
    path: Path, layout: _CsvLayout, positions: Sequence[int]
) -> list[list[str]] | None:
    import pyarrow as pa

    names = list(map(str, positions))
    types = dict.fromkeys(names, pa.string())
    table = _read_csv_file_arrow(path, layout, include_columns=names, column_types=types)
    return None if table is None else [table.column(name).to_pylist() for name in names]


def _read_csv_file_arrow(path: Path, layout: _CsvLayout, **convert: Any) -> Any:
    """Read a CSV file with PyArrow, with columns named by position; None if PyArrow fails."""
    import pyarrow as pa
    import pyarrow.csv as pa_csv

    try:
        return pa_csv.read_csv(
            path,
            read_options=pa_csv.ReadOptions(
                column_names=list(map(str, range(len(layout.names)))),
                skip_rows=int(layout.has_header),
            ),
            parse_options=pa_csv.ParseOptions(delimiter=layout.delimiter, newlines_in_values=True),
            convert_options=pa_csv.ConvertOptions(**convert),
        )
    except pa.ArrowInvalid:
        return None


def _read_csv_arrow(path: Path, layout: _CsvLayout) -> Table | None:
    """Read with PyArrow; None if it fails, so that `_read_csv_python` reads the file."""
    table = _read_csv_file_arrow(
        path,
        layout,
        null_values=sorted(MISSING_VALUES),
        true_values=[],
        false_values=[],
        strings_can_be_null=True,
        quoted_strings_can_be_null=True,
        timestamp_parsers=["%Y no timestamps"],  # dates stay text, as in `_read_csv_python`
    )
    if table is None or any(not _is_number_or_text(column.type) for column in table.columns):
        return None
    return from_arrow(table.rename_columns(list(layout.names)), _parse_arrow_texts)


def _parse_arrow_texts(column: Any) -> tuple[np.ndarray, tuple[str, ...] | None]:
    """Parse text cells of PyArrow as `_read_csv_python` does, which reads ``+1`` as a number."""
    cells = ["" if cell is None else cell for cell in column.to_pylist()]
    numbers = parse_numbers(cells)
    return encode_categories(parse_texts(cells)) if numbers is None else (numbers, None)


def _is_number_or_text(type_: Any) -> bool:
    """Check for numbers, text or nulls, as opposed to dates and times."""
    from pyarrow.types import is_floating, is_integer, is_null, is_string

    return any(is_kind(type_) for is_kind in (is_integer, is_floating, is_string, is_null))


# ---- Parquet and Arrow ----------------------------------------------------------------------


def _import_pyarrow(path: Path) -> Any:
    if find_spec("pyarrow") is None:
        raise ReadError(f'Reading {path} needs PyArrow: pip install "polyleaf[arrow]".')
    import pyarrow

    return pyarrow


def _read_parquet(path: Path) -> Table:
    return from_arrow(_read_parquet_file(path))


def _read_arrow(path: Path) -> Table:
    return from_arrow(_read_arrow_file(path))


def _read_parquet_file(path: Path) -> Any:
    pa = _import_pyarrow(path)
    import pyarrow.parquet as pq

    try:
        return _validate(pq.read_table(path))
    except pa.ArrowException as error:
        raise ReadError(f"{path} is not a readable Parquet file: {_one_line(error)}.") from error


def _read_arrow_file(path: Path) -> Any:
    pa = _import_pyarrow(path)
    import pyarrow.feather as feather

    try:
        with open(path, "rb") as stream:
            is_file_format = (
                stream.read(6) in (b"ARROW1", b"FEA1\0\0") or path.suffix.lower() == ".feather"
            )
        if is_file_format:
            return _validate(feather.read_table(path))
        with pa.OSFile(str(path)) as source, pa.ipc.open_stream(source) as reader:
            return _validate(reader.read_all())
    except pa.ArrowException as error:
        raise ReadError(f"{path} is not a readable Arrow file: {_one_line(error)}.") from error


def _validate(table: Any) -> Any:
    """Check offsets and lengths, which PyArrow trusts by default; raises ArrowInvalid."""
    table.validate(full=True)
    return table


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split()).rstrip(".")


def _encode_texts(column: Any) -> tuple[np.ndarray, tuple[str, ...] | None]:
    return encode_categories(column.to_pylist())


def from_arrow(table: Any, read_texts: Callable = _encode_texts) -> Table:
    """Convert an Arrow table; `read_texts` returns values and categories of a text column."""
    names = tuple(table.column_names)
    values = np.empty((table.num_rows, len(names)), dtype=np.float64, order="F")
    categories, unsupported = {}, {}
    for i, name in enumerate(names):
        converted = _convert_arrow_column(table.column(i), read_texts)
        if converted is None:
            values[:, i], unsupported[name] = np.nan, str(table.column(i).type)
            continue
        values[:, i], found = converted
        if found is not None:
            categories[name] = found
    return Table(names, values, categories, unsupported=unsupported)


def _convert_arrow_column(
    column: Any, read_texts: Callable
) -> tuple[np.ndarray, tuple[str, ...] | None] | None:
    """Return a column as float64 (NaN: missing), with its categories if it has any.

    Returns None if the column is neither numbers nor text.
    """
    import pyarrow as pa

    kinds = pa.types
    type_ = column.type
    if kinds.is_dictionary(type_):
        array = pa.chunked_array([column.unify_dictionaries().combine_chunks()]).chunk(0)
        return _arrow_to_float64(array.indices), tuple(
            str(value) for value in array.dictionary.to_pylist()
        )
    if kinds.is_boolean(type_) or kinds.is_decimal(type_):
        return _arrow_to_float64(column.cast(pa.float64())), None
    if kinds.is_integer(type_) or kinds.is_floating(type_):
        return _arrow_to_float64(column), None
    if kinds.is_null(type_):
        return np.full(len(column), np.nan), None
    if kinds.is_string(type_) or kinds.is_large_string(type_) or str(type_) == "string_view":
        return read_texts(column)
    return None


def arrow_to_cells(column: Any) -> np.ndarray:
    """Return an Arrow column as numbers of its type, or as Python objects, None where missing."""
    from pyarrow.types import is_floating, is_integer

    if is_floating(column.type) or (is_integer(column.type) and column.null_count == 0):
        return column.to_numpy()
    cells = np.empty(len(column), dtype=object)
    cells[:] = column.to_pylist()
    return cells


def _arrow_to_float64(column: Any) -> np.ndarray:
    import pyarrow as pa

    # safe=False: integers above 2^53 are rounded, as in any float column
    return (
        column.cast(pa.float64(), safe=False)
        .to_numpy(zero_copy_only=False)
        .astype(np.float64, copy=False)
    )


# ---- ARFF and LIBSVM ------------------------------------------------------------------------


def _read_arff(path: Path) -> Table:
    with open_text(path) as stream:
        return read_arff(stream)


def _read_libsvm(path: Path) -> Table:
    """Read a LIBSVM file; columns are named by index, so that 0- and 1-based files differ.

    If there are more columns than `_MAX_COLUMNS` and than stored values, columns without a stored
    value are left out. So memory is bounded by the size of the file, not by its largest index.
    """
    from sklearn.datasets import load_svmlight_file

    multilabel = _is_multilabel(path)
    try:
        X, y = load_svmlight_file(str(path), multilabel=multilabel, zero_based=True)
    except (ValueError, OverflowError) as error:
        raise ReadError(f"{path} is not a readable LIBSVM file: {_one_line(error)}.") from error
    X, indices = _drop_empty_columns(sp.csr_matrix(X))
    names = tuple(map(str, indices.tolist()))
    targets, Y = (
        _encode_libsvm_labels(y) if multilabel else (("target",), sp.csr_matrix(y.reshape(-1, 1)))
    )
    return Table((*names, *targets), sp.hstack([X, Y], format="csr"), targets=targets)


_MAX_COLUMNS = 1 << 20


def _drop_empty_columns(X: sp.csr_matrix) -> tuple[sp.csr_matrix, np.ndarray]:
    """Return the columns of a LIBSVM file and their indices, without column 0 if it is empty."""
    if X.shape[1] > max(_MAX_COLUMNS, X.nnz):
        indices, position = np.unique(X.indices, return_inverse=True)
        return sp.csr_matrix((X.data, position, X.indptr), (X.shape[0], len(indices))), indices
    first = 0 if X.shape[1] and X[:, 0].nnz else 1
    return X[:, first:], np.arange(first, max(first, X.shape[1]))


def _is_multilabel(path: Path) -> bool:
    """Check whether some row has several labels, or none."""
    with open_text(path) as stream:
        for line in stream:
            words = line.partition("#")[0].split()
            if words and ("," in words[0] or ":" in words[0]):
                return True
    return False


def _encode_libsvm_labels(y: list[tuple[float, ...]]) -> tuple[tuple[str, ...], sp.csr_matrix]:
    labels = sorted({label for row in y for label in row})
    column = {label: i for i, label in enumerate(labels)}
    rows = [i for i, row in enumerate(y) for _ in row]
    columns = [column[label] for row in y for label in row]
    Y = sp.csr_matrix((np.ones(len(rows)), (rows, columns)), shape=(len(y), len(labels)))
    Y.data[:] = 1.0  # a label that is named twice counts once
    return tuple(f"label_{label:g}" for label in labels), Y


_READERS: dict[str, Callable[[Path], Table]] = {
    "parquet": _read_parquet,
    "arrow": _read_arrow,
    "arff": _read_arff,
    "libsvm": _read_libsvm,
}
