"""Opening files, compressed or not: which format a name tells, text and bytes to read, lines of CSV to write.

Owns endings, ``.gz`` and ``.bz2``, standard input, encodings, and errors that say which file they are about.
Must not know what a format means (`readers`, `arff`, `multilabel`), nor models.
"""

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
    "get_extension",
    "detect_format",
    "spool_to_disk",
    "open_for_writing",
    "open_text",
    "read_bytes",
    "wrap_read_errors",
    "check_file_exists",
    "write_csv",
]

_COMPRESSED: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".bz2": bz2.open}


UTF_8 = "utf-8-sig"


class ReadError(ValueError):
    """A file cannot be read; the message is one sentence: which file, what is wrong, in which line."""


def get_extension(path: Path) -> str:
    """The ending that tells a file's format, in lower case; that of its compression is taken off first."""
    stem = path.with_suffix("") if path.suffix.lower() in _COMPRESSED else path
    return stem.suffix.lower()


def detect_format(
    path: Path, formats: Mapping[str, tuple[str, ...]], given: str | None = None
) -> str:
    """The format that is given, by default the one whose endings the file has.

    Parameters
    ----------
    path : Path
    formats : mapping of str to tuple of str
        Format -> the endings by which a file is recognised.
    given : str, optional

    Raises
    ------
    ReadError
        When the format is none of `formats`, or the ending belongs to none.
    """
    if given is not None:
        if given not in formats:
            raise ReadError(f"Format {given!r} is not known; there are {', '.join(formats)}.")
        return given
    for format, endings in formats.items():
        if get_extension(path) in endings:
            return format
    known = ", ".join(ending for endings in formats.values() for ending in endings)
    raise ReadError(
        f"The ending of {path.name!r} does not tell its format; use one of {known}, or say the format."
    )


# --- wrap_read_errors ---


def check_file_exists(path: Path) -> None:
    """`ReadError` where there is no such file."""
    if not path.is_file():
        raise ReadError(f"There is no file {str(path)!r}.")


@contextmanager
def wrap_read_errors(path: Path) -> Iterator[None]:
    """Within it a file is read: what goes wrong is a `ReadError` that says which file it is about."""
    check_file_exists(path)
    try:
        yield
    except UnicodeDecodeError as error:
        kind = "UTF-8" if error.encoding in ("utf-8", "utf8", UTF_8) else error.encoding
        raise ReadError(
            f"{path} is not {kind} text (byte {error.start}); convert it first."
        ) from error
    except (OSError, EOFError, zlib.error) as error:
        raise ReadError(f"{path} cannot be read: {error}.") from error
    except ValueError as error:
        message = str(error)
        raise ReadError(message if str(path) in message else f"{path}: {message}") from error
    except (MemoryError, ImportError):
        raise
    except Exception as error:  # whatever a library below makes of a damaged file
        raise ReadError(
            f"{path} is damaged or of another format ({type(error).__name__}: {error})."
        ) from error


def open_text(path: Path, encoding: str = UTF_8) -> TextIO:
    """A file as text, its line ends as they are, a byte order mark taken off."""
    opened = _COMPRESSED.get(path.suffix.lower(), open)
    return opened(path, "rt", encoding=encoding, newline="")


STANDARD_INPUT = Path("-")


@contextmanager
def spool_to_disk(path: Path, ending: str) -> Iterator[Path]:
    """The file, or what standard input holds as one of this ending: readers go over it more than once."""
    if path != STANDARD_INPUT:
        yield path
        return
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / f"standard input{ending}"
        with open(copy, "wb") as out:
            shutil.copyfileobj(sys.stdin.buffer, out)
        try:
            yield copy
        except ReadError as error:
            raise ReadError(str(error).replace(str(copy), "standard input")) from error


def read_bytes(path: Path) -> np.ndarray:
    """A file's bytes, uint8; mapped where it is not compressed."""
    opened = _COMPRESSED.get(path.suffix.lower())
    if opened is not None:
        with opened(path, "rb") as stream:
            return np.frombuffer(stream.read(), np.uint8)
    return np.memmap(path, np.uint8, "r") if path.stat().st_size else np.empty(0, np.uint8)


# --- writing ---


def open_for_writing(path: Path) -> IO[bytes]:
    """A file to write bytes to, compressed as its ending says."""
    return _COMPRESSED.get(path.suffix.lower(), open)(path, "wb")


def write_csv(out: Path | None, header: Iterable[Any], rows: Iterable[Iterable[Any]]) -> None:
    """Write a line for the header and one for each row: to a file, or to the output where `out` is None."""
    if out is not None:
        with open(out, "w", newline="", encoding="utf-8") as stream:
            _write_lines(stream, header, rows)
    else:
        _write_lines(sys.stdout, header, rows)


def _write_lines(stream: TextIO, header: Iterable[Any], rows: Iterable[Iterable[Any]]) -> None:
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
