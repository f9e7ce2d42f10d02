"""Temporary files that are renamed once they are complete."""

from __future__ import annotations

import os
import re
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO


@contextmanager
def open_replacement(path: Path) -> Iterator[BinaryIO]:
    """Open a file that takes the place of `path` once it is complete.

    It has the permissions of the file that it replaces. An exception leaves that file as it was.
    """
    path = Path(os.path.realpath(path))  # so that a link is kept
    if path.exists() and not path.is_file():  # a device or pipe, or a folder: OSError
        with open(path, "wb") as stream:
            yield stream
        return
    if not path.parent.is_dir():
        raise FileNotFoundError(
            f"{path} cannot be written: the folder {path.parent} does not exist."
        )
    temporary = path.with_name(f".{path.name[:100]}.{secrets.token_hex(6)}.tmp")
    try:
        with open(temporary, "xb") as file:
            if path.exists():
                os.chmod(temporary, stat.S_IMODE(path.stat().st_mode))
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise
    _sync_directory(path.parent)


def _sync_directory(directory: Path) -> None:
    """Make a rename survive a power failure, where the system supports it."""
    with suppress(OSError):
        handle = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def remove_temporary_files(directory: Path, name: str) -> None:
    """Remove temporary files left by a process that was killed.

    `name` is a regular expression of the final names; none of the files may be being written.
    """
    pattern = re.compile(rf"\.(?:{name})\.[0-9a-f]{{12}}\.tmp")
    for path in directory.glob(".*.tmp"):
        if pattern.fullmatch(path.name) and path.is_file():
            with suppress(OSError):
                path.unlink()
