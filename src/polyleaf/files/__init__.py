"""Readers and writers of data files."""

from __future__ import annotations

from polyleaf.files import xmc

__all__ = ["xmc"]


def __dir__() -> list[str]:
    return __all__
