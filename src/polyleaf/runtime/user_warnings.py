"""Warnings that point at the user's line of code."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_IS_SUPPRESSED: ContextVar[bool] = ContextVar("polyleaf_warnings_are_suppressed", default=False)


@contextmanager
def suppress_warnings() -> Iterator[None]:
    """Drop warnings of `warn_user`, for fits that a final fit repeats.

    The filters of Python belong to all threads, so that fits in threads would restore each other's.
    """
    token = _IS_SUPPRESSED.set(True)
    try:
        yield
    finally:
        _IS_SUPPRESSED.reset(token)


def warn_user(message: str | Warning, category: type[Warning] = UserWarning) -> None:
    """Warn at the first calling frame outside of Polyleaf and scikit-learn."""
    if _IS_SUPPRESSED.get():
        return
    level, frame = 2, sys._getframe(1)
    # scikit-learn wraps `fit`, and calls it from pipelines and searches.
    while frame.f_back is not None:
        package = frame.f_globals.get("__name__", "").partition(".")[0]
        if package not in ("polyleaf", "sklearn"):
            break
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)
