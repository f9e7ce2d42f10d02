"""Python objects where numbers should be: which are missing, which are numbers, and what the others are.

Owns these questions about single objects. Must not know where they stand.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["get_missing_mask", "find_non_number", "is_missing", "replace_nulls_with_nan", "what"]


def is_missing(value: Any) -> bool:
    """None, NaN and the null objects of pandas (compared by name, so that pandas need not be there)."""
    return (
        value is None
        or (isinstance(value, float) and value != value)
        or type(value).__name__ in ("NAType", "NaTType")
    )


def get_missing_mask(values: NDArray[Any]) -> NDArray[np.bool_]:
    """`is_missing` of each value of an array of any type, in its shape."""
    if values.dtype.kind in "fmM":
        return np.isnan(values)
    if values.dtype != object:
        return np.zeros(values.shape, bool)
    with np.errstate(invalid="ignore"):  # NaN is compared
        return np.frompyfunc(is_missing, 1, 1)(values).astype(bool)


def replace_nulls_with_nan(objects: NDArray[np.object_]) -> NDArray[np.object_]:
    """The same objects, of any shape, with NaN where one is missing."""
    return np.where(get_missing_mask(objects), np.nan, objects)


def find_non_number(objects: NDArray[np.object_]) -> tuple[int, ...] | None:
    """Where the first object stands that is neither a number nor text that spells one; None: all are."""
    found = np.argwhere(~np.frompyfunc(_is_number, 1, 1)(objects).astype(bool))
    return tuple(found[0].tolist()) if len(found) else None


def what(value: Any) -> str:
    """The type of an object with its article: "a Period", "an Interval"."""
    kind = type(value).__name__
    return f"{'an' if kind[0] in 'aeiouAEIOU' else 'a'} {kind}"


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True
