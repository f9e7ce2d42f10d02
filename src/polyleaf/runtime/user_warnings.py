"""Warnings that point at the user's line of code."""

from __future__ import annotations

import sys
import warnings


def warn_user(message: str | Warning, category: type[Warning] = UserWarning) -> None:
    """Warn at the first calling frame outside of Polyleaf and scikit-learn."""
    level, frame = 2, sys._getframe(1)
    # scikit-learn wraps `fit`, and calls it from pipelines and searches.
    while frame.f_back is not None:
        package = frame.f_globals.get("__name__", "").partition(".")[0]
        if package not in ("polyleaf", "sklearn"):
            break
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)
