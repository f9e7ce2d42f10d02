"""Packages that are installed with an extra of Polyleaf."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def optional_package(purpose: str, extra: str) -> Iterator[None]:
    """Say in an ImportError how to install what is missing.

    `purpose`: the beginning of the message: what needs which package. `extra`: the extra of
    Polyleaf with which the package is installed.
    """
    try:
        yield
    except ImportError as error:
        raise ImportError(f'{purpose}: pip install "polyleaf[{extra}]".') from error
