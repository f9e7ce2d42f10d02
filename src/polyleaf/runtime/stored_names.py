"""Names and values of parameters in model files that differ from those in Python.

Files keep the names of format 3: files written before a renaming load, and equal models have equal
bytes.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any

__all__ = ["from_stored", "to_stored"]

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


def to_stored(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return parameters of an estimator or objective under the names that files use."""
    return {
        _NAMES.get(name, name): _translate(_VALUES, name, value)
        for name, value in parameters.items()
    }


def from_stored(parameters: Mapping[str, Any], known: Container[str] = ()) -> dict[str, Any]:
    """Return parameters read from a file under their names in Python; names in `known` stay."""
    return {
        name if name in known else _NAMES_BACK.get(name, name): _translate(
            _VALUES_BACK, name, value
        )
        for name, value in parameters.items()
    }


def _translate(values: Mapping[str, Mapping[str, str]], name: str, value: Any) -> Any:
    return values.get(name, {}).get(value, value) if isinstance(value, str) else value
