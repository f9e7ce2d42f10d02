"""Warnings that point at the user's line of code."""

from __future__ import annotations

import sys
import warnings

__all__ = ["warn_user"]


def warn_user(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the first calling frame outside of the package."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None:
        module = frame.f_globals.get("__name__", "")
        # scikit-learn wraps `fit`.
        if module.partition(".")[0] != "polyleaf" and module != "sklearn.base":
            break
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)
