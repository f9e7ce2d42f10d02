"""Reading and writing files, compressed or not: formats, encodings, standard input, errors."""

from __future__ import annotations

import bz2
import csv
import gzip
import shutil
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, TextIO

import numpy as np

__all__ = [
    "STANDARD_INPUT",
    "UTF_8",
    "ReadError",
    "check_file_exists",
    "detect_format",
    "get_extension",
    "open_for_writing",
    "open_text",
    "read_bytes",
    "spool_to_disk",
    "wrap_read_errors",
    "write_csv",
]

UTF_8 = "utf-8-sig"
STANDARD_INPUT = Path("-")

_COMPRESSED: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".bz2": bz2.open}


class ReadError(ValueError):
    """A file cannot be read; the message names the file, the place and what is wrong there."""


def get_extension(path: Path) -> str:
    """Return the file extension in lower case, without that of a compression."""
    stem = path.with_suffix("") if path.suffix.lower() in _COMPRESSED else path
    return stem.suffix.lower()


def detect_format(
    path: Path, formats: Mapping[str, tuple[str, ...]], format: str | None = None
) -> str:
    """Return `format` if it is given, otherwise the format of the file's extension.

    Parameters
    ----------
    path : Path
    formats : mapping of str to tuple of str
        Format -> its file extensions.
    format : str, optional

    Raises
    ------
    ReadError
        If the format is not in `formats`, or no format has this extension.
    """
    if format is not None:
        if format not in formats:
            raise ReadError(f"Unknown format {format!r}; choose one of {', '.join(formats)}.")
        return format
    extension = get_extension(path)
    for name, extensions in formats.items():
        if extension in extensions:
            return name
    known = ", ".join(e for extensions in formats.values() for e in extensions)
    raise ReadError(
        f"Unknown file extension of {path.name!r}: rename the file to one of {known}, or give the "
        f"format ({', '.join(formats)})."
    )


# --- wrap_read_errors ---


def check_file_exists(path: Path) -> None:
    """Raise a `ReadError` if there is no such file."""
    if not path.is_file():
        raise ReadError(f"There is no file {str(path)!r}.")


@contextmanager
def wrap_read_errors(path: Path) -> Iterator[None]:
    """Turn errors while a file is read into a `ReadError` that names the file."""
    check_file_exists(path)
    try:
        yield
    except UnicodeDecodeError as error:
        encoding = "UTF-8" if error.encoding in ("utf-8", "utf8", UTF_8) else error.encoding
        raise ReadError(
            f"{path} is not {encoding} text (byte {error.start}); convert it first."
        ) from error
    except (OSError, EOFError, zlib.error) as error:
        raise ReadError(f"{path} cannot be read: {error}.") from error
    except ValueError as error:
        message = str(error)
        raise ReadError(message if str(path) in message else f"{path}: {message}") from error
    except (MemoryError, ImportError):
        raise
    except Exception as error:  # other libraries raise anything for a damaged file
        raise ReadError(
            f"{path} is damaged or of another format ({type(error).__name__}: {error})."
        ) from error


def open_text(path: Path, encoding: str = UTF_8) -> TextIO:
    """Open a file as text, with its line ends and without a byte order mark."""
    open_file = _COMPRESSED.get(path.suffix.lower(), open)
    return open_file(path, "rt", encoding=encoding, newline="")


@contextmanager
def spool_to_disk(path: Path, extension: str) -> Iterator[Path]:
    """Yield the path; standard input is copied to a temporary file, to be read more than once."""
    if path != STANDARD_INPUT:
        yield path
        return
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / f"standard input{extension}"
        with open(copy, "wb") as out:
            shutil.copyfileobj(sys.stdin.buffer, out)
        try:
            yield copy
        except ReadError as error:
            raise ReadError(str(error).replace(str(copy), "standard input")) from error


def read_bytes(path: Path) -> np.ndarray:
    """Return a file's bytes as uint8, memory-mapped if it is not compressed."""
    open_file = _COMPRESSED.get(path.suffix.lower())
    if open_file is not None:
        with open_file(path, "rb") as stream:
            return np.frombuffer(stream.read(), np.uint8)
    return np.memmap(path, np.uint8, "r") if path.stat().st_size else np.empty(0, np.uint8)


# --- writing ---


def open_for_writing(path: Path) -> IO[bytes]:
    """Open a binary file for writing, compressed if its extension says so."""
    return _COMPRESSED.get(path.suffix.lower(), open)(path, "wb")


def write_csv(out: Path | None, header: Iterable[Any], rows: Iterable[Iterable[Any]]) -> None:
    """Write a header and rows as CSV, to standard output if `out` is None."""
    if out is not None:
        with open(out, "w", newline="", encoding="utf-8") as stream:
            _write_csv_lines(stream, header, rows)
    else:
        _write_csv_lines(sys.stdout, header, rows)


def _write_csv_lines(stream: TextIO, header: Iterable[Any], rows: Iterable[Iterable[Any]]) -> None:
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
