"""The features that a parameter names, by text or whole number.

Owns how they are found, and what is said where there is none. Must not know what the parameter asks of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

__all__ = ["get_feature_index"]


def get_feature_index(
    feature: Any, names: Sequence[str] | None, n_features: int, parameter: str
) -> int:
    """The number of a feature of X; digits that are no name are a number, as keys of JSON have them.

    Raises
    ------
    TypeError
        Where it is neither text nor a whole number.
    ValueError
        Where there is no such feature.
    """
    if isinstance(feature, str) and feature.isdecimal() and feature not in (names or ()):
        feature = int(feature)
    if isinstance(feature, str):
        if names is None:
            raise ValueError(
                f"{parameter} names the feature {feature!r}, but X has no names; use numbers."
            )
        if feature not in names:
            raise ValueError(f"{parameter} names {feature!r}, which is no feature of X.")
        return names.index(feature)
    if isinstance(feature, bool | np.bool_) or not isinstance(feature, int | np.integer):
        raise TypeError(f"{parameter} names features by text or whole number, not by {feature!r}.")
    if not 0 <= feature < n_features:
        raise ValueError(
            f"{parameter} names feature {feature}, but X has {n_features}, from 0 to {n_features - 1}."
        )
    return int(feature)
