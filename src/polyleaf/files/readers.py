"""Readers of CSV, Parquet, Arrow or Feather, ARFF and LIBSVM files; they need PyArrow."""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from polyleaf.files.cells import CellFormat
from polyleaf.files.io import (
    STANDARD_INPUT,
    ReadError,
    detect_format,
    read_bytes,
    read_text,
    require,
    wrap_read_errors,
)
from polyleaf.files.table import Table
from polyleaf.user_data.parquet import open_dataset, unreadable

_SEPARATORS = ",;\t|"
_SAMPLE_BYTES, _SAMPLE_RECORDS = 1 << 16, 50
_MAX_COLUMNS = 1 << 20  # of a LIBSVM file, unless it stores more values


@dataclass(frozen=True)
class CsvOptions:
    """Options of CSV files."""

    # whether the first record names the columns; None: whether it holds anything but numbers
    header: bool | None = None
    separator: str | None = None  # character between cells; None: detected in the first records
    encoding: str = "utf-8"
    # how cells stand for numbers and missing values
    format: CellFormat = field(default_factory=CellFormat)

    def __post_init__(self) -> None:
        if self.separator is not None:
            require(
                len(self.separator) == 1 and self.separator not in '\r\n"',
                f"The separator must be one character, such as ; or tab, not {self.separator!r}.",
            )
            differs = self.separator != self.format.decimal
            require(differs, "The separator and the decimal mark must differ.")
        try:
            codecs.lookup(self.encoding)
        except LookupError:
            raise ReadError(
                f"Unknown encoding {self.encoding!r}; use for example utf-8, latin-1 or cp1252."
            ) from None


def read_table(
    path: str | Path, format: str | None = None, options: CsvOptions = CsvOptions()
) -> Table:
    """Read a data file, or open a folder.

    Raises a ReadError if the file is missing, of another format or empty, or PyArrow is not
    installed.

    Parameters
    ----------
    path : str or Path
        A file, which may be compressed (``.gz``, ``.bz2``) if it is text; "-", standard input; or a
        folder of Parquet or Arrow files.
    format : {"csv", "parquet", "arrow", "arff", "libsvm", "excel"}, optional
        By default the format of the file's extension; CSV for standard input.
    options : CsvOptions
        The cell format applies to text in all formats.

    Returns
    -------
    Table
        The columns of a CSV file without names are ``c0``, ``c1``, ... Those of a LIBSVM file are
        named by their index, its target ``target``, or ``label_<l>`` for each label l, and the
        query of each row ``qid``.
    """
    path = Path(path)
    has_arrow = find_spec("pyarrow") is not None
    require(has_arrow, f'Reading {path} needs PyArrow: pip install "polyleaf[cli]".')
    with wrap_read_errors(path):
        if path.is_dir():
            dataset, partitions = open_dataset(path)
            names = tuple(dataset.schema.names)
            table = Table(dataset, names, frozenset(partitions), options.format)
        else:
            format = detect_format(path, format)
            is_text = format in ("csv", "arff", "libsvm")
            is_possible = is_text or path != STANDARD_INPUT
            require(is_possible, f"it cannot be {format}, which needs a file: give its path.")
            table = _READERS[format](path, options)
        require(table.n_rows, "it has no rows.")
    return table


# ---- CSV -------------------------------------------------------------------------------------


def _read_csv(path: Path, options: CsvOptions) -> Table:
    """Read all cells as text; the first record may hold the names."""
    return _read_csv_content(read_bytes(path), options)


def _read_excel(path: Path, options: CsvOptions) -> Table:
    """Read the first sheet as CSV text, so that a column means the same in both."""
    try:
        import pandas as pd

        sheet = pd.read_excel(path, header=None, dtype=object, keep_default_na=False)
    except ImportError as error:
        raise ReadError(
            f"Reading {path} needs pandas and a reader of Excel files (pip install pandas "
            "openpyxl); or save the sheet as CSV."
        ) from error
    content = sheet.to_csv(header=False, index=False).encode()
    # Numbers of cells have a point, whatever the sheet shows.
    plain = CellFormat(na_values=options.format.na_values)
    csv_options = replace(options, separator=",", encoding="utf-8", format=plain)
    return _read_csv_content(np.frombuffer(content, np.uint8), csv_options)


def _read_csv_content(content: np.ndarray, options: CsvOptions) -> Table:
    import pyarrow as pa
    import pyarrow.csv as pa_csv

    encoding = "utf-8-sig" if _is_utf_8(options.encoding) else options.encoding
    decoder = codecs.getincrementaldecoder(encoding)()
    sample = decoder.decode(content[:_SAMPLE_BYTES].tobytes())
    first = re.match("sep=(.)\r?\n", sample)  # Excel names the separator
    separator = options.separator or (first[1] if first else _detect_separator(sample, options))
    records = csv.reader(io.StringIO(sample[first.end() :] if first else sample, newline=""),
                         delimiter=separator)  # fmt: skip
    head = next((record for record in records if any(record)), None)
    if head is None:
        raise ReadError("it is empty; a CSV file must start with column names or data.")
    bad_rows: list[Any] = []

    def collect_bad_row(row: object) -> str:
        bad_rows.append(row)
        return "error"

    def read(use_threads: bool) -> Any:
        return pa_csv.read_csv(
            pa.BufferReader(content),
            read_options=pa_csv.ReadOptions(
                autogenerate_column_names=True,
                skip_rows=1 if first else 0,
                encoding="utf8" if _is_utf_8(options.encoding) else options.encoding,
                use_threads=use_threads,
            ),
            parse_options=pa_csv.ParseOptions(
                delimiter=separator, newlines_in_values=True, invalid_row_handler=collect_bad_row
            ),
            convert_options=pa_csv.ConvertOptions(
                column_types={f"f{i}": pa.string() for i in range(len(head))}
            ),
        )

    try:
        data = read(use_threads=True)
    except pa.ArrowInvalid as error:
        if "UTF8" in str(error):
            content.tobytes().decode("utf-8")  # names the first bad byte
        bad_rows.clear()
        try:
            read(use_threads=False)  # so that rows have numbers
        except pa.ArrowInvalid:
            if not bad_rows:
                raise
        row = bad_rows[0]
        raise ReadError(
            f"record {row.number} has {row.actual_columns} cells, but the first one has "
            f"{row.expected_columns} with the separator {separator!r}: correct it, or give --sep."
        ) from error
    cells = [column[0].as_py() for column in data.columns]
    names, has_header, dropped = _get_names(cells, options)
    data = data.rename_columns(names).slice(int(has_header))
    if dropped:
        data = data.remove_column(0)
    if has_header and not cells[-1].strip() and not any(data.column(-1).unique().to_pylist()):
        data = data.remove_column(data.num_columns - 1)  # records end with the separator
    return Table(data, tuple(data.column_names), frozenset(data.column_names), options.format)


def _is_utf_8(encoding: str) -> bool:
    return codecs.lookup(encoding).name in ("utf-8", "utf-8-sig")


def _detect_separator(sample: str, options: CsvOptions) -> str:
    """Return the separator that divides the first records into equally many cells, at least two."""
    best, most = "", 1
    separators = _SEPARATORS.replace(options.format.decimal, "")
    for separator in (*separators, *{options.format.decimal}.intersection(_SEPARATORS)):
        if best and separator not in separators:
            break
        records = csv.reader(io.StringIO(sample, newline=""), delimiter=separator)
        widths = []
        try:
            for record in records:
                widths += [len(record)] if any(record) else []
                if len(widths) == _SAMPLE_RECORDS:
                    break
        except csv.Error:
            continue
        if len(widths) < _SAMPLE_RECORDS and len(sample) >= _SAMPLE_BYTES - 4:
            widths = widths[:-1]  # the last record is cut
        if widths and len(set(widths)) == 1 and widths[0] > most:
            best, most = separator, widths[0]
    unquoted = re.sub(r'"[^"]*"', "", sample.partition("\n")[0])
    return best or max(separators, key=unquoted.count)


def _get_names(cells: list[str], options: CsvOptions) -> tuple[list[str], bool, bool]:
    """Return names of the columns, whether they are in the file, and whether to drop the first.

    The first column without a name is the row index that pandas and R write.
    """
    pattern = options.format.number_pattern
    is_numeric = all(re.match(pattern, cell.strip()) for cell in cells)
    if options.header is False or (options.header is None and is_numeric):
        return [f"c{i}" for i in range(len(cells))], False, False
    names = [cell.strip() or f"c{i}" for i, cell in enumerate(cells)]
    return names, True, len(cells) > 1 and not cells[0].strip() and all(cells[1:])


# ---- Parquet and Arrow -----------------------------------------------------------------------


def _read_parquet(path: Path, options: CsvOptions) -> Table:
    dataset, _ = open_dataset(path, "parquet")
    return _make_table(path, dataset.to_table, options)


def _read_arrow(path: Path, options: CsvOptions) -> Table:
    import pyarrow as pa

    with open(path, "rb") as stream:
        is_feather_1 = stream.read(4) == b"FEA1"

    def read() -> Any:
        if is_feather_1:
            from pyarrow.feather import read_table

            return read_table(path)
        with pa.OSFile(str(path)) as source:
            try:
                return pa.ipc.open_file(source).read_all()
            except pa.ArrowInvalid:
                source.seek(0)
                return pa.ipc.open_stream(source).read_all()

    return _make_table(path, read, options)


def _make_table(path: Path, read: Callable[[], Any], options: CsvOptions) -> Table:
    import pyarrow as pa

    try:
        data = read()
        data.validate(full=True)  # offsets and lengths, which PyArrow trusts by default
    except (pa.ArrowException, OSError) as error:
        raise unreadable(str(path), error) from error
    return Table(data, tuple(data.column_names), frozenset(), options.format)


# ---- ARFF and LIBSVM -------------------------------------------------------------------------


def _read_arff(path: Path, options: CsvOptions) -> Table:
    """Read with liac-arff, of which scikit-learn has a copy.

    Nominal attributes other than ``{0,1}`` are categories.
    """
    import pyarrow as pa
    from sklearn.externals import _arff as arff

    text = read_text(path)
    is_sparse = re.search(r"^\s*@data[^\n]*\s+(%[^\n]*\s+)*\{", text, re.M | re.I) is not None
    try:
        content = arff.loads(text, return_type=arff.LOD if is_sparse else arff.DENSE)
    except arff.ArffException as error:
        raise ReadError(str(error)) from error
    names, rows = tuple(name for name, _ in content["attributes"]), content["data"]
    if is_sparse:
        for name, kind in content["attributes"]:
            if kind == "STRING" or (not isinstance(kind, str) and list(kind) != ["0", "1"]):
                raise ReadError(
                    f"attribute {name!r} is not numeric, which sparse files must be: convert the "
                    "file to CSV."
                )
        values = np.array([np.nan if v is None else v for row in rows for v in row.values()], float)
        entries = ([i for i, row in enumerate(rows) for _ in row], [j for row in rows for j in row])
        matrix = sp.csr_matrix((values, entries), (len(rows), len(names)))
        return Table(matrix, names, format=options.format)
    columns = {}
    for (name, kind), cells in zip(content["attributes"], zip(*rows, strict=True), strict=True):
        if isinstance(kind, str):
            columns[name] = pa.array(cells, pa.string() if kind == "STRING" else pa.float64())
        elif list(kind) == ["0", "1"]:
            columns[name] = pa.array(cells, pa.string()).cast(pa.int64())
        else:
            columns[name] = pa.array(cells, pa.string()).dictionary_encode()
    return Table(pa.table(columns), names, frozenset(), options.format)


def _read_libsvm(path: Path, options: CsvOptions) -> Table:
    """Read a LIBSVM file; columns are named by index, so that 0- and 1-based files differ.

    If there are more columns than `_MAX_COLUMNS` and than stored values, columns without a stored
    value are left out. So memory is bounded by the size of the file, not by its largest index.
    """
    from sklearn.datasets import load_svmlight_file
    from sklearn.preprocessing import MultiLabelBinarizer

    content = read_bytes(path).tobytes()
    lines = [line.partition(b"#")[0] for line in content.splitlines()]
    words = [line.split(b" ", 1)[0] for line in lines if line.strip()]  # b"" before a space
    multilabel = any(b"," in word or not word for word in words)
    if any(b":" in word for word in words):
        raise ReadError(
            "a row starts with two numbers and a colon between them: weights of rows in LIBSVM "
            "files are not supported, and rows without labels start with a space."
        )
    try:
        X, y, queries = load_svmlight_file(
            io.BytesIO(content), multilabel=multilabel, zero_based=True, query_id=True
        )
    except (ValueError, OverflowError) as error:
        raise ReadError(f"it is not a readable LIBSVM file: {error}.") from error
    X = sp.csr_matrix(X)
    if X.shape[1] > max(_MAX_COLUMNS, X.nnz):
        indices, position = np.unique(X.indices, return_inverse=True)
        X = sp.csr_matrix((X.data, position, X.indptr), (X.shape[0], len(indices)))
    else:
        begin = 0 if X.shape[1] and X[:, 0].nnz else 1
        X, indices = X[:, begin:], np.arange(begin, max(begin, X.shape[1]))
    names = tuple(map(str, indices.tolist()))
    if multilabel:
        encoder = MultiLabelBinarizer(sparse_output=True)
        Y = encoder.fit_transform([set(row) for row in y])
        labels = encoder.classes_.tolist()
        targets = tuple(f"label_{int(l) if l == int(l) else l}" for l in labels)
    else:
        targets, Y = ("target",), sp.csr_matrix(np.reshape(y, (-1, 1)))
    columns, query = [X, Y], None
    if len(queries):
        is_exact = np.abs(queries).max() <= 2**53  # in float64, the type of all columns
        require(is_exact, "it has a qid that is too large: use numbers of at most 2^53.")
        columns, query = [*columns, sp.csr_matrix(queries.reshape(-1, 1), dtype=np.float64)], "qid"
    data = sp.hstack(columns, format="csr")
    names = (*names, *targets, *([] if query is None else [query]))
    return Table(data, names, format=options.format, targets=targets, query=query)


_READERS: dict[str, Callable[[Path, CsvOptions], Table]] = {
    "csv": _read_csv,
    "excel": _read_excel,
    "parquet": _read_parquet,
    "arrow": _read_arrow,
    "arff": _read_arff,
    "libsvm": _read_libsvm,
}
