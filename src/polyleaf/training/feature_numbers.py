"""Features that a parameter names, by text or whole number, as the numbers of the mapper.

Must not know what the parameter asks of them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from polyleaf.inputs.binning import BinMapper

__all__ = ["feature_number"]


def feature_number(feature: Any, mapper: BinMapper, parameter: str) -> int:
    """The number of a feature.

    Raises
    ------
    TypeError
        Where it is neither text nor a whole number.
    ValueError
        Where there is no such feature.
    """
    if isinstance(feature, str):
        names = mapper.feature_names_
        if names is None:
            raise ValueError(f"{parameter} names the feature {feature!r}, but X has no names; use numbers.")
        found = np.flatnonzero(np.asarray(names, dtype=object) == feature)
        if len(found) == 0:
            raise ValueError(f"{parameter} names {feature!r}, which is no feature of X.")
        return int(found[0])
    if isinstance(feature, bool | np.bool_) or not isinstance(feature, int | np.integer):
        raise TypeError(f"{parameter} names features by text or whole number, not by {feature!r}.")
    if not 0 <= feature < mapper.n_features_:
        raise ValueError(
            f"{parameter} names feature {feature}, but X has {mapper.n_features_}, from 0 to "
            f"{mapper.n_features_ - 1}."
        )
    return int(feature)
