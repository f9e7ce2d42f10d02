"""Data files -> `Table`: CSV, Parquet, Arrow/Feather, ARFF (dense and sparse) and LIBSVM.

Owns how each format becomes a table (ARFF: `arff`); must not know models, tasks or the command line. CSV,
ARFF and LIBSVM work with the base install; Parquet and Arrow need the extra ``polyleaf[arrow]``, which also
makes CSV faster.
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
    MISSING,
    Table,
    assemble,
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
"""Format -> the endings by which a file is recognised (a further ``.gz`` or ``.bz2`` is taken off first)."""


@dataclass(frozen=True)
class CsvOptions:
    """What a CSV file does not say of itself.

    Attributes
    ----------
    header : bool or None
        Whether the first line names the columns; None: unless it holds nothing but numbers.
    separator : str or None
        One character between cells; None: that of ``, ; tab |`` that the first line has most of.
    decimal : str
        The decimal point of numbers: "." or ",".
    encoding : str
    """

    header: bool | None = None
    separator: str | None = None
    decimal: str = "."
    encoding: str = UTF_8

    def __post_init__(self) -> None:
        if self.separator is not None and (len(self.separator) != 1 or self.separator in '\r\n"'):
            raise ReadError(
                f"A separator is one character, such as ; or tab, not {self.separator!r}."
            )
        if self.decimal not in (".", ",") or self.decimal == self.separator:
            raise ReadError(
                f"The decimal point is . or , and not the separator, not {self.decimal!r}."
            )
        try:
            codecs.lookup(self.encoding)
        except LookupError:
            raise ReadError(
                f"There is no encoding {self.encoding!r}; utf-8, latin-1 and cp1252 are."
            ) from None


def read_table(
    path: str | Path, format: str | None = None, csv_options: CsvOptions | None = None
) -> Table:
    """Read a data file.

    Text columns and ARFF nominal attributes come out as categories, everything else as numbers. A CSV file
    whose first line holds nothing but numbers has no header: its columns are called ``c0``, ``c1``, ... In a
    LIBSVM file the columns are called by their index, and the target ``target`` (``label_<l>`` for each label
    l of a multi-label file).

    Parameters
    ----------
    path : str or Path
        The file; text files may be compressed (``.gz``, ``.bz2``). "-" is standard input, CSV unless `format`
        says otherwise.
    format : {"csv", "parquet", "arrow", "arff", "libsvm"}, optional
        By default the file's ending decides.
    csv_options : CsvOptions, optional
        Of a CSV file: header, separator, decimal point and encoding.

    Returns
    -------
    Table

    Raises
    ------
    ReadError
        When the file is missing, not of its format, empty, or needs an extra that is not installed.
    """
    path = Path(path)
    if path == STANDARD_INPUT:
        format = format or "csv"
    with spool_to_disk(path, "") as file:
        check_file_exists(file)
        known = detect_format(file, FORMATS, format)
        with wrap_read_errors(file):
            table = (
                _read_csv(file, csv_options or CsvOptions())
                if known == "csv"
                else _READERS[known](file)
            )
        if table.n_rows == 0:
            raise ReadError(f"{file} has no rows.")
    return table


def read_cells(
    path: Path, table: Table, names: Sequence[str], format: str | None, csv_options: CsvOptions
) -> dict[str, np.ndarray]:
    """Columns as they stand in a file: `read_table` makes numbers and categories of them.

    Parameters
    ----------
    path, format, csv_options
        As for `read_table`; no standard input, which can be read but once.
    table : Table
        What that has made of the file.
    names : sequence of str
        Of its columns.

    Returns
    -------
    dict of str to ndarray of shape (n_rows,)
        Of CSV and dense ARFF text, of Parquet and Arrow what their types are in NumPy or Python; None where a
        cell is empty, or NaN among floats. A sparse file holds numbers, and names of categories.
    """
    known = detect_format(path, FORMATS, format)
    if not names or table.is_sparse:
        return {name: _from_sparse(table, name) for name in names}
    with wrap_read_errors(path):
        if known == "csv":
            return _csv_cells(path, table.n_rows, names, csv_options)
        if known == "arff":
            with open_text(path) as stream:
                return read_arff_cells(stream, names)
        whole = (_parquet_table if known == "parquet" else _arrow_table)(path)
        return {name: arrow_to_cells(whole.column(name)) for name in names}


def _from_sparse(table: Table, name: str) -> np.ndarray:
    numbers = table.column(name)
    known = ~np.isnan(numbers)
    if name in table.categories:
        texts = np.array([*table.categories[name], None], dtype=object)
        return texts[np.where(known, numbers, -1).astype(np.int64)]
    whole = known.all() and (numbers == np.round(numbers)).all() and (np.abs(numbers) < 2**53).all()
    return numbers.astype(np.int64) if whole else numbers


# ---- CSV -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _CsvLayout:
    """What the first line of a CSV file tells."""

    delimiter: str
    names: tuple[str, ...]
    has_header: bool
    decimal: str
    encoding: str

    def numbers(self, cells: Sequence[str]) -> np.ndarray | None:
        """As `parse_numbers`, of cells with this decimal point."""
        return parse_numbers(
            cells if self.decimal == "." else [cell.replace(self.decimal, ".") for cell in cells]
        )


def _csv_layout(path: Path, style: CsvOptions) -> _CsvLayout:
    with open_text(path, style.encoding) as stream:
        first = stream.readline()
    if not first.strip():
        raise ReadError("the first line is empty; a CSV file starts with its column names.")
    unquoted = re.sub(r'"[^"]*"', "", first)
    delimiter = style.separator or max(",;\t|".replace(style.decimal, ""), key=unquoted.count)
    with open_text(path, style.encoding) as stream:
        cells = next(csv.reader(stream, delimiter=delimiter))
    layout = _CsvLayout(delimiter, (), False, style.decimal, style.encoding)
    is_numeric = all(cell.strip() and layout.numbers([cell]) is not None for cell in cells)
    if style.header is False or (style.header is None and is_numeric):
        return replace(layout, names=tuple(f"c{i}" for i in range(len(cells))))
    names = tuple(cell.strip() or f"c{i}" for i, cell in enumerate(cells))
    return replace(layout, names=names, has_header=True)


def _read_csv(path: Path, style: CsvOptions) -> Table:
    layout = _csv_layout(path, style)
    if find_spec("pyarrow") is not None and (style.decimal, style.encoding) == (".", UTF_8):
        table = _read_csv_arrow(path, layout)
        if table is not None:
            return table
    return _read_csv_plain(path, layout)


def _csv_rows(stream: Iterable[str], layout: _CsvLayout) -> Iterator[list[str]]:
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
                    f"line {reader.line_num} has {len(row)} cells, but there are {width} columns."
                )
            elif width == 1:
                yield [""]
    except csv.Error as error:
        raise ReadError(f"line {reader.line_num}: {error}.") from error


def _read_csv_plain(path: Path, layout: _CsvLayout) -> Table:
    """Read with the standard library alone.

    A column is taken for numbers until a cell is none; then the file is read again with this column as text,
    because the spelling of the numbers before (``01``) is lost by then. That costs a pass only where the
    first rows mislead.
    """
    width = len(layout.names)
    is_text = [False] * width
    while True:
        chunks: list[list] = [[] for _ in range(width)]
        again = False
        with open_text(path, layout.encoding) as stream:
            rows = _csv_rows(stream, layout)
            while chunk := list(islice(rows, CHUNK_ROWS)):
                for i, cells in enumerate(zip(*chunk, strict=True)):
                    numbers = None if is_text[i] else layout.numbers(cells)
                    if numbers is None and not is_text[i]:
                        is_text[i] = True
                        again = again or bool(chunks[i])
                    chunks[i].append(parse_texts(cells) if numbers is None else numbers)
        if not again:
            return assemble(layout.names, chunks, is_text)


def _csv_cells(
    path: Path, n_rows: int, names: Sequence[str], style: CsvOptions
) -> dict[str, np.ndarray]:
    """The text of some columns, None for an empty cell."""
    layout = _csv_layout(path, style)
    places = [layout.names.index(name) for name in names]
    columns: Sequence[Sequence[str]] | None = None
    if find_spec("pyarrow") is not None and style.encoding == UTF_8:
        columns = _csv_cells_arrow(path, layout, places)
    if columns is None or len(columns[0]) != n_rows:
        with open_text(path, layout.encoding) as stream:
            rows = [[row[place] for place in places] for row in _csv_rows(stream, layout)]
        columns = list(zip(*rows, strict=True))
    return {
        name: np.array([cell or None for cell in cells], dtype=object)
        for name, cells in zip(names, columns, strict=True)
    }


def _csv_cells_arrow(
    path: Path, layout: _CsvLayout, places: Sequence[int]
) -> list[list[str]] | None:
    import pyarrow as pa

    own = list(map(str, places))
    table = _arrow_of_csv(
        path, layout, include_columns=own, column_types=dict.fromkeys(own, pa.string())
    )
    return None if table is None else [table.column(name).to_pylist() for name in own]


def _arrow_of_csv(path: Path, layout: _CsvLayout, **convert: Any) -> Any:
    """A CSV file by PyArrow, columns named by their places; None where it gives up."""
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
    """The fast way, by PyArrow; None where it gives up: the plain way then reads the file or says why not."""
    table = _arrow_of_csv(
        path,
        layout,
        null_values=sorted(MISSING),
        true_values=[],
        false_values=[],
        strings_can_be_null=True,
        quoted_strings_can_be_null=True,
        timestamp_parsers=["%Y no timestamps"],  # dates stay text, as in the plain way
    )
    if table is None or any(not _is_plain(column.type) for column in table.columns):
        return None
    return from_arrow(table.rename_columns(list(layout.names)), _csv_texts)


def _csv_texts(column: Any) -> tuple[np.ndarray, tuple[str, ...] | None]:
    """Cells that PyArrow took for text: what the plain way makes of them, numbers such as ``+1`` included."""
    cells = ["" if cell is None else cell for cell in column.to_pylist()]
    numbers = parse_numbers(cells)
    return encode_categories(parse_texts(cells)) if numbers is None else (numbers, None)


def _is_plain(type_: Any) -> bool:
    """Numbers, text or nothing at all; not the dates and times that PyArrow also recognises."""
    from pyarrow.types import is_floating, is_integer, is_null, is_string

    return any(is_kind(type_) for is_kind in (is_integer, is_floating, is_string, is_null))


# ---- Parquet and Arrow ---------------------------------------------------------------------------------


def _pyarrow(path: Path) -> Any:
    if find_spec("pyarrow") is None:
        raise ReadError(f'{path} needs PyArrow to be read: pip install "polyleaf[arrow]".')
    import pyarrow

    return pyarrow


def _read_parquet(path: Path) -> Table:
    return from_arrow(_parquet_table(path))


def _read_arrow(path: Path) -> Table:
    return from_arrow(_arrow_table(path))


def _parquet_table(path: Path) -> Any:
    pa = _pyarrow(path)
    import pyarrow.parquet as pq

    try:
        return _validated(pq.read_table(path))
    except pa.ArrowException as error:
        raise ReadError(f"{path} is not a readable Parquet file: {_one_line(error)}.") from error


def _arrow_table(path: Path) -> Any:
    pa = _pyarrow(path)
    import pyarrow.feather as feather

    try:
        with open(path, "rb") as stream:
            is_file_format = (
                stream.read(6) in (b"ARROW1", b"FEA1\0\0") or path.suffix.lower() == ".feather"
            )
        if is_file_format:
            return _validated(feather.read_table(path))
        with pa.OSFile(str(path)) as source, pa.ipc.open_stream(source) as reader:
            return _validated(reader.read_all())
    except pa.ArrowException as error:
        raise ReadError(f"{path} is not a readable Arrow file: {_one_line(error)}.") from error


def _validated(table: Any) -> Any:
    """The table, whose offsets and lengths PyArrow trusts unless it is asked to look: ArrowInvalid."""
    table.validate(full=True)
    return table


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split()).rstrip(".")


def _texts_as_they_are(column: Any) -> tuple[np.ndarray, tuple[str, ...] | None]:
    return encode_categories(column.to_pylist())


def from_arrow(table: Any, read_texts: Callable = _texts_as_they_are) -> Table:
    """An Arrow table as one of ours."""
    names = tuple(table.column_names)
    values = np.empty((table.num_rows, len(names)), dtype=np.float64, order="F")
    categories, unsupported = {}, {}
    for i, name in enumerate(names):
        found = _from_arrow_column(table.column(i), read_texts)
        if found is None:
            values[:, i], unsupported[name] = np.nan, str(table.column(i).type)
            continue
        values[:, i], of_column = found
        if of_column is not None:
            categories[name] = of_column
    return Table(names, values, categories, unsupported=unsupported)


def _from_arrow_column(
    column: Any, read_texts: Callable
) -> tuple[np.ndarray, tuple[str, ...] | None] | None:
    """One Arrow column as float64 (NaN: missing) and its categories, if it has any. None: it is neither
    numbers nor text."""
    import pyarrow as pa

    kinds = pa.types
    type_ = column.type
    if kinds.is_dictionary(type_):
        array = pa.chunked_array([column.unify_dictionaries().combine_chunks()]).chunk(0)
        return _arrow_numbers(array.indices), tuple(
            str(value) for value in array.dictionary.to_pylist()
        )
    if kinds.is_boolean(type_) or kinds.is_decimal(type_):
        return _arrow_numbers(column.cast(pa.float64())), None
    if kinds.is_integer(type_) or kinds.is_floating(type_):
        return _arrow_numbers(column), None
    if kinds.is_null(type_):
        return np.full(len(column), np.nan), None
    if kinds.is_string(type_) or kinds.is_large_string(type_) or str(type_) == "string_view":
        return read_texts(column)
    return None


def arrow_to_cells(column: Any) -> np.ndarray:
    """An Arrow column as it stands: numbers of its own type, or Python objects, None where missing."""
    from pyarrow.types import is_floating, is_integer

    if is_floating(column.type) or (is_integer(column.type) and column.null_count == 0):
        return column.to_numpy()
    cells = np.empty(len(column), dtype=object)
    cells[:] = column.to_pylist()
    return cells


def _arrow_numbers(column: Any) -> np.ndarray:
    import pyarrow as pa

    # safe=False: an integer above 2^53 is rounded, as it would be in any float column
    return (
        column.cast(pa.float64(), safe=False)
        .to_numpy(zero_copy_only=False)
        .astype(np.float64, copy=False)
    )


# ---- ARFF and LIBSVM -----------------------------------------------------------------------------------


def _read_arff(path: Path) -> Table:
    with open_text(path) as stream:
        return read_arff(stream)


def _read_libsvm(path: Path) -> Table:
    """Columns are named by their index: files with and without an index 0 cannot shift each other.

    Of more columns than `_COLUMNS_HELD` and than values are stored, those that nothing is stored in are left
    out: what a file costs is bounded by what it stores, not by the largest index it names.
    """
    from sklearn.datasets import load_svmlight_file

    multilabel = _is_multilabel(path)
    try:
        X, y = load_svmlight_file(str(path), multilabel=multilabel, zero_based=True)
    except (ValueError, OverflowError) as error:
        raise ReadError(f"{path} is not a readable LIBSVM file: {_one_line(error)}.") from error
    X, indices = _held_columns(sp.csr_matrix(X))
    names = tuple(map(str, indices.tolist()))
    targets, Y = _libsvm_labels(y) if multilabel else (("target",), sp.csr_matrix(y.reshape(-1, 1)))
    return Table((*names, *targets), sp.hstack([X, Y], format="csr"), targets=targets)


_COLUMNS_HELD = 1 << 20


def _held_columns(X: sp.csr_matrix) -> tuple[sp.csr_matrix, np.ndarray]:
    """The columns of a LIBSVM file, and their indices; without column 0 where it is empty."""
    if X.shape[1] > max(_COLUMNS_HELD, X.nnz):
        indices, place = np.unique(X.indices, return_inverse=True)
        return sp.csr_matrix((X.data, place, X.indptr), (X.shape[0], len(indices))), indices
    first = 0 if X.shape[1] and X[:, 0].nnz else 1
    return X[:, first:], np.arange(first, max(first, X.shape[1]))


def _is_multilabel(path: Path) -> bool:
    """Whether some row has several labels or none."""
    with open_text(path) as stream:
        for line in stream:
            words = line.partition("#")[0].split()
            if words and ("," in words[0] or ":" in words[0]):
                return True
    return False


def _libsvm_labels(y: list[tuple[float, ...]]) -> tuple[tuple[str, ...], sp.csr_matrix]:
    labels = sorted({label for row in y for label in row})
    column = {label: i for i, label in enumerate(labels)}
    rows = [i for i, row in enumerate(y) for _ in row]
    columns = [column[label] for row in y for label in row]
    Y = sp.csr_matrix((np.ones(len(rows)), (rows, columns)), shape=(len(y), len(labels)))
    Y.data[:] = 1.0  # a label named twice in a row still applies once
    return tuple(f"label_{label:g}" for label in labels), Y


_READERS: dict[str, Callable[[Path], Table]] = {
    "parquet": _read_parquet,
    "arrow": _read_arrow,
    "arff": _read_arff,
    "libsvm": _read_libsvm,
}
