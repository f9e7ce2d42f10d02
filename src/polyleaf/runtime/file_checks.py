"""Checks of the content of files, which may be of any origin."""

from __future__ import annotations


def require(condition: object, problem: str) -> None:
    """Raise a ValueError with the problem unless the condition holds."""
    if not condition:
        raise ValueError(problem)
