"""Where the bytes, or the text, of a model are: in a file by name, in a file that is open, or in memory.

Owns which places there are, and names that would promise another format. Must not know what the bytes mean.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, TextIO, TypeAlias

__all__ = [
    "Destination",
    "Source",
    "TextDestination",
    "format_source",
    "as_path",
    "read_bytes",
    "write_bytes",
    "write_open",
    "write_text",
]

Source: TypeAlias = str | os.PathLike[str] | bytes | bytearray | memoryview | BinaryIO
"""A name, the bytes themselves, or a file that is open for reading bytes."""

Destination: TypeAlias = str | os.PathLike[str] | BinaryIO
"""A name, or a file that is open for writing bytes."""

TextDestination: TypeAlias = str | os.PathLike[str] | TextIO
"""A name, or a file that is open for writing text."""


def read_bytes(source: Source) -> bytes:
    """What is there: of an open file, from where it stands to the end.

    Raises
    ------
    OSError
        When it cannot be read.
    TypeError
        When it is no such place, or a file that is open as text.
    """
    if isinstance(source, bytes | bytearray | memoryview):
        return bytes(source)
    if hasattr(source, "read"):
        try:
            data = source.read()
        except UnicodeDecodeError:  # as text, which the content of a model is not
            data = ""
        if not isinstance(data, bytes):
            raise TypeError(
                f"{format_source(source)} gives {type(data).__name__}: open it for bytes, mode 'rb'."
            )
        return data
    return as_path(source).read_bytes()


def write_bytes(
    target: Destination, data: bytes, write_file: Callable[[Path, bytes], None]
) -> None:
    """Put them there; `write_file` is how a file is written by name.

    Raises
    ------
    OSError
        When it cannot be written.
    TypeError
        When it is no such place, or a file that is open as text.
    ValueError
        When the name is one of another format.
    """
    if not hasattr(target, "write"):
        path = as_path(target)
        if path.suffix.lower() == ".json":
            raise ValueError(
                f"{str(path)!r} promises JSON, but model files are binary: choose another ending, such as "
                "'.polyleaf'. polyleaf.inspection.model_summary.dump_json writes a model as JSON, to be read by others."
            )
        write_file(path, data)
        return
    write_open(target, data)


def write_text(target: TextDestination, text: str) -> None:
    """Put text there, in UTF-8 where it is a name.

    Raises
    ------
    OSError
        When it cannot be written.
    TypeError
        When it is no such place, or a file that is open for bytes.
    """
    if hasattr(target, "write"):
        write_open(target, text)
    else:
        as_path(target).write_text(text, "utf-8")


def write_open(target: Any, data: bytes | str) -> None:
    """Put bytes or text into a file that is open, or a TypeError that says how to open it."""
    try:
        target.write(data)
    except TypeError as error:
        what, mode = ("text", "w") if isinstance(data, str) else ("bytes", "wb")
        raise TypeError(
            f"{format_source(target)} takes no {what}: open it with mode {mode!r} ({error})."
        ) from None


def format_source(place: Source | Destination | TextDestination) -> str:
    """How messages call it."""
    if isinstance(place, bytes | bytearray | memoryview):
        return "a model in memory"
    if hasattr(place, "read") or hasattr(place, "write"):
        name = getattr(place, "name", None)
        return f"the file {name!r}" if isinstance(name, str) else "the open file"
    return repr(os.fspath(place))


def as_path(place: Any) -> Path:
    """A name as a path, or a TypeError that says what it is instead."""
    if not isinstance(place, str | os.PathLike):
        raise TypeError(
            f"A model is read from and written to a path, an open file or bytes; got {type(place).__name__}."
        )
    return Path(place)
