"""Checks that raise a ValueError: of arguments, and of files, which may be of any origin."""

from __future__ import annotations

from collections.abc import Iterable


def require(condition: object, problem: str) -> None:
    """Raise a ValueError with the problem unless the condition holds."""
    if not condition:
        raise ValueError(problem)


def require_choice(value: object, choices: Iterable[object], name: str) -> None:
    """Raise a ValueError unless an argument has one of some values."""
    choices = list(choices)
    if value not in choices:
        known = ", ".join(map(repr, choices))
        raise ValueError(f"{name} must be one of {known}; got {value!r}.")


def require_entry(condition: object, name: str, rule: str) -> None:
    """Raise a ValueError unless an entry of a model's metadata follows a rule."""
    require(condition, f"The metadata entry {name!r} of the model {rule}.")


def format_bytes(size: float) -> str:
    """Return a size for a message: in bytes, KiB, MiB or GiB."""
    for unit in ("bytes", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} bytes" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.2f} GiB"


def require_bins(condition: object, problem: str) -> None:
    """Raise a ValueError with what is wrong with the saved bins unless the condition holds."""
    require(
        condition,
        f"The saved bins cannot be read: the file {problem}. It is damaged or was not written by "
        "Polyleaf.",
    )
