"""Files: formats and compression by extension, standard input, errors, and writers of results."""

from __future__ import annotations

import bz2
import csv
import gzip
import json
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from polyleaf.runtime.types import ArrowColumn

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

STANDARD_INPUT = Path("-")

FORMATS = {
    "csv": (".csv", ".tsv", ".txt"),
    "parquet": (".parquet", ".pq"),
    "arrow": (".arrow", ".feather", ".ipc"),
    "arff": (".arff",),
    "libsvm": (".libsvm", ".svmlight", ".svm"),
    "excel": (".xlsx", ".xlsm", ".xls", ".ods"),
}
"""Format of a table -> its file extensions, which ``.gz`` or ``.bz2`` may follow."""

_COMPRESSED: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".bz2": bz2.open}
_JSON_LINES = (".jsonl", ".ndjson")

Columns = Mapping[str, Sequence[object] | np.ndarray]
"""Columns of a result by name: NumPy or Arrow arrays."""


class ReadError(ValueError):
    """A file cannot be read; the message names the file, the place and what is wrong there."""


def require(condition: object, message: str) -> None:
    """Raise a `ReadError` with the message unless the condition holds."""
    if not condition:
        raise ReadError(message)


def get_extension(path: Path) -> str:
    """Return the file extension in lower case, without that of a compression."""
    stem = path.with_suffix("") if path.suffix.lower() in _COMPRESSED else path
    return stem.suffix.lower()


def detect_format(path: Path, format: str | None = None) -> str:
    """Return `format` if it is given, otherwise the format of the file's extension."""
    is_known = format is None or format in FORMATS
    require(is_known, f"Unknown format {format!r}; choose one of {', '.join(FORMATS)}.")
    if format is not None or path == STANDARD_INPUT:
        return format or "csv"
    for name, extensions in FORMATS.items():
        if get_extension(path) in extensions:
            return name
    known = ", ".join(e for extensions in FORMATS.values() for e in extensions)
    raise ReadError(
        f"Unknown file extension of {path.name!r}: rename the file to one of {known}, or give the "
        f"format ({', '.join(FORMATS)})."
    )


@contextmanager
def wrap_read_errors(path: Path) -> Iterator[None]:
    """Turn errors while a file is read into a `ReadError` that names the file."""
    name = "standard input" if path == STANDARD_INPUT else str(path)
    if path != STANDARD_INPUT and not path.exists():
        raise ReadError(f"There is no file {name!r}.")
    try:
        yield
    except UnicodeDecodeError as error:
        raise ReadError(
            f"{name} is not {error.encoding} text (byte {error.start}); convert it, or give "
            "--encoding."
        ) from error
    except (OSError, EOFError, zlib.error) as error:
        raise ReadError(f"{name} cannot be read: {error}.") from error
    except ValueError as error:
        message = str(error)
        raise ReadError(message if name in message else f"{name}: {message}") from error
    except (MemoryError, ImportError):
        raise
    except Exception as error:  # other libraries raise anything for a damaged file
        raise ReadError(
            f"{name} is damaged or of another format ({type(error).__name__}: {error})."
        ) from error


def read_bytes(path: Path) -> np.ndarray:
    """Return a file's bytes as uint8, memory-mapped if it is neither compressed nor a stream."""
    open_file = _COMPRESSED.get(path.suffix.lower())
    if path == STANDARD_INPUT:
        return np.frombuffer(sys.stdin.buffer.read(), np.uint8)
    if open_file is not None:
        with open_file(path, "rb") as stream:
            return np.frombuffer(stream.read(), np.uint8)
    return np.memmap(path, np.uint8, "r") if path.stat().st_size else np.empty(0, np.uint8)


def read_text(path: Path) -> str:
    """Return the text of a UTF-8 file, with its line ends and without a byte order mark."""
    return bytes(read_bytes(path)).decode("utf-8-sig")


# ---- writing ---------------------------------------------------------------------------------


def open_for_writing(path: Path) -> IO[bytes]:
    """Open a binary file for writing, compressed if its extension says so."""
    return _COMPRESSED.get(path.suffix.lower(), open)(path, "wb")


@contextmanager
def open_writer(out: Path | None, as_json: bool = False) -> Iterator[Callable[[Columns], None]]:
    """Yield a function that writes a batch of columns; every batch has the same ones.

    The extension of `out` says whether it is CSV, Parquet or JSON lines, unless `as_json`; None is
    CSV on standard output.
    """
    extension = "" if out is None else out.suffix.lower()
    if not as_json and extension in FORMATS["parquet"]:
        import pyarrow.parquet as pq

        with ExitStack() as stack:
            writers: list[pq.ParquetWriter] = []

            def write_table(columns: Columns) -> None:
                table = _to_arrow(columns)
                if not writers:  # the first batch gives the types
                    writers.append(stack.enter_context(pq.ParquetWriter(out, table.schema)))
                writers[0].write_table(table)

            yield write_table
        return
    if not as_json and out is not None and extension not in (*FORMATS["csv"], *_JSON_LINES):
        raise ReadError(
            f"--out {out.name}: unknown extension; use .csv, .parquet or .jsonl (JSON lines)."
        )
    write_batch = _write_json if as_json or extension in _JSON_LINES else _make_csv_writer()
    if out is None:
        yield lambda columns: write_batch(sys.stdout, columns)
        return
    with open(out, "w", newline="", encoding="utf-8") as stream:
        yield lambda columns: write_batch(stream, columns)


def write_columns(columns: Columns, out: Path | None, as_json: bool = False) -> None:
    """Write columns in one batch."""
    with open_writer(out, as_json) as write:
        write(columns)


def _to_arrow(columns: Columns) -> pa.Table:
    import pyarrow as pa

    return pa.table({
        name: pa.array(np.ascontiguousarray(c), from_pandas=True) if hasattr(c, "dtype") else c
        for name, c in columns.items()
    })  # fmt: skip


def _make_csv_writer() -> Callable[[IO[str], Columns], None]:
    has_header = False

    def write(stream: IO[str], columns: Columns) -> None:
        nonlocal has_header
        writer = csv.writer(stream, lineterminator="\n")
        if not has_header:
            writer.writerow(columns)
            has_header = True
        cells = map(_format_cells, _to_arrow(columns).columns)
        writer.writerows(zip(*cells, strict=True))

    return write


def _format_cells(column: ArrowColumn) -> list[str]:
    """Return cells as text; a number is the shortest text that reads back as the same number."""
    from pyarrow.types import is_floating

    if is_floating(column.type):
        numbers = column.to_numpy()
        return np.where(np.isnan(numbers), "", numbers.astype(str)).tolist()
    return ["" if cell is None else str(cell) for cell in column.to_pylist()]


def _write_json(stream: IO[str], columns: Columns) -> None:
    for row in _to_arrow(columns).to_pylist():
        stream.write(json.dumps(row, ensure_ascii=False, default=str) + "\n")
