"""By what shares of their gains features compete, in the numbers of the core.

Owns the meaning of `feature_penalties`. Must not know how trees grow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from polyleaf.data.binning import BinMapper
from polyleaf.inputs.feature_numbers import get_feature_index

__all__ = ["encode_feature_penalties"]


def encode_feature_penalties(
    penalties: Mapping[Any, float] | Sequence[float] | np.ndarray | None, mapper: BinMapper
) -> np.ndarray | None:
    """What gains are multiplied by where features compete: float32 (n_columns,), or None where none is
    penalised. Columns are those of the mapper: what is made of a feature has its penalty.

    Raises
    ------
    TypeError
        Where penalties are no numbers.
    ValueError
        Where a feature does not exist, there are too few or too many, or a penalty is not in [0, 1).
    """
    if penalties is None:
        return None
    shares = np.zeros(mapper.n_features_)
    if isinstance(penalties, Mapping):
        known = mapper.feature_names_, mapper.n_features_, "feature_penalties"
        for feature, share in penalties.items():
            shares[get_feature_index(feature, *known)] = _share(share)
    else:
        if isinstance(penalties, str) or len(penalties) != mapper.n_features_:
            raise ValueError(
                f"feature_penalties must be one number for each of the {mapper.n_features_} features, or a "
                f"dict of some of them by name or number; got {penalties!r}."
            )
        shares[:] = [_share(share) for share in penalties]
    if not shares.any():
        return None
    return (1.0 - shares[mapper.column_to_feature_]).astype(np.float32)


def _share(share: Any) -> float:
    if isinstance(share, bool | np.bool_) or not isinstance(
        share, int | float | np.integer | np.floating
    ):
        raise TypeError(
            f"feature_penalties holds numbers from 0 to below 1; one of them is {share!r}."
        )
    if not 0 <= share < 1:
        raise ValueError(
            f"feature_penalties holds shares of gains, from 0 to below 1; one of them is {share!r}. Leave a "
            "feature out of X that is not to be used at all."
        )
    return float(share)
