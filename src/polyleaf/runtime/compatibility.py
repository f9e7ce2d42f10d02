"""Compatibility with other versions: the package's version, which pickles hold."""

from __future__ import annotations

from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from sklearn.exceptions import InconsistentVersionWarning

from polyleaf.runtime.user_warnings import warn_user

_KEY = "_polyleaf_version"  # in the states of pickles


@cache
def polyleaf_version() -> str:
    """Return the version of the installed package; "unknown" if it is not installed."""
    try:
        return version("polyleaf")
    except PackageNotFoundError:
        return "unknown"


class PickleVersionWarning(InconsistentVersionWarning):
    """A pickle was written by a version of Polyleaf with another MAJOR.MINOR."""

    def __str__(self) -> str:
        return (
            f"This {self.estimator_name} was pickled by Polyleaf {self.original_sklearn_version} "
            f"and is opened by {self.current_sklearn_version}, which may fail or predict something "
            "else. Pickles are for one minor version: open it with the version that wrote it and "
            "call save_model, whose files every later version reads."
        )


def add_version(state: dict[str, object]) -> dict[str, object]:
    """Return the state of a pickle with the version of the package."""
    return state | {_KEY: polyleaf_version()}


def remove_version(name: str, state: dict[str, Any]) -> dict[str, Any]:
    """Return the state that `add_version` got; warn if another minor version wrote it.

    `name` is the name of the class.
    """
    state = dict(state)
    current, original = polyleaf_version(), state.pop(_KEY)
    if current.split(".")[:2] != original.split(".")[:2]:
        warn_user(
            PickleVersionWarning(
                estimator_name=name,
                current_sklearn_version=current,
                original_sklearn_version=original,
            )
        )
    return state
