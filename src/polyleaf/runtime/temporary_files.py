"""Temporary files that are renamed once they are complete."""

from __future__ import annotations

import re
import secrets
from contextlib import suppress
from pathlib import Path


def make_temporary_path(path: Path) -> Path:
    """Return a new name in the same directory."""
    return path.with_name(f".{path.name[:100]}.{secrets.token_hex(6)}.tmp")


def remove_temporary_files(directory: Path, name: str) -> None:
    """Remove temporary files left by a process that was killed.

    `name` is a regular expression of the final names; none of the files may be being written.
    """
    pattern = re.compile(rf"\.(?:{name})\.[0-9a-f]{{12}}\.tmp")
    for path in directory.glob(".*.tmp"):
        if pattern.fullmatch(path.name) and path.is_file():
            with suppress(OSError):
                path.unlink()
