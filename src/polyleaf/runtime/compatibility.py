"""Compatibility with other versions: the package's version, pickles, and names stored in files."""

from __future__ import annotations

from collections.abc import Container, Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from sklearn.exceptions import InconsistentVersionWarning

from polyleaf.runtime.user_warnings import warn_user

if TYPE_CHECKING:
    from polyleaf.runtime.types import JsonObject

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
    """Return the state of a pickle as it was; warn if another minor version wrote it.

    Parameters
    ----------
    name : str
        Name of the class.
    state : dict
        State of a pickle; those of the first versions have no version.
    """
    state = dict(state)
    current, original = polyleaf_version(), state.pop(_KEY, "of an earlier version")
    if current.split(".")[:2] != original.split(".")[:2]:
        warn_user(
            PickleVersionWarning(
                estimator_name=name,
                current_sklearn_version=current,
                original_sklearn_version=original,
            )
        )
    return state


_NAMES = {
    "hessian": "curvature",
    "leaf_hessian": "leaf_curvature",
    "softmax_hessian": "softmax_curvature",
    "boosting_step": "refresh",
    "leaf_output_set": "leaf_support",
}
_VALUES = {"linear_extrapolation": {"none": "free"}, "split_search": {"count_sketch": "sketch"}}

_NAMES_BACK = {stored: name for name, stored in _NAMES.items()}
_VALUES_BACK = {
    name: {stored: value for value, stored in values.items()} for name, values in _VALUES.items()
}


def to_stored(parameters: Mapping[str, object]) -> JsonObject:
    """Return parameters of an estimator or objective under the names that files use."""
    return {
        _NAMES.get(name, name): _translate(_VALUES, name, value)
        for name, value in parameters.items()
    }


def from_stored(parameters: Mapping[str, object], known: Container[str] = ()) -> JsonObject:
    """Return parameters read from a file under their names in Python; names in `known` stay."""
    return {
        name if name in known else _NAMES_BACK.get(name, name): _translate(
            _VALUES_BACK, name, value
        )
        for name, value in parameters.items()
    }


def _translate(values: Mapping[str, Mapping[str, str]], name: str, value: object) -> object:
    return values.get(name, {}).get(value, value) if isinstance(value, str) else value
