"""Warnings that point at the user's line of code."""

from __future__ import annotations

import sys
import warnings
from types import FrameType


def warn_user(message: str | Warning, category: type[Warning] = UserWarning) -> None:
    """Warn at the first calling frame outside of Polyleaf and scikit-learn."""
    level, frame = 2, sys._getframe(1)
    # scikit-learn wraps `fit`, and calls it from pipelines and searches.
    while frame.f_back is not None and _get_package(frame) in ("polyleaf", "sklearn"):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


def _get_package(frame: FrameType) -> str:
    return frame.f_globals.get("__name__", "").partition(".")[0]
