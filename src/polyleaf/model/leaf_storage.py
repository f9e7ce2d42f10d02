"""Stored leaf values: float32 as they are, or rounded to 16 or 8 bits.

"int8" is an integer from -127 to 127 times a scale for each output of a tree, so that outputs in
different units keep their precision. A scale has 16 significant bits, so that its products are
exact: values that were stored once are stored again without change.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["LEAF_DTYPES", "check_leaf_dtype", "decode", "encode", "has_scales"]

LEAF_DTYPES: dict[str, type] = {"float32": np.float32, "float16": np.float16, "int8": np.int8}

_MAX_INT8 = 127  # the range is symmetric
_MAX_FLOAT16 = 65504.0
# Below this largest value, float16 has fewer than 11 significant bits.
_MIN_FLOAT16_SCALE = 2.0**-13

Values = NDArray[np.float32]


def check_leaf_dtype(name: str) -> None:
    """Raise ValueError unless `name` is one of `LEAF_DTYPES`."""
    if name not in LEAF_DTYPES:
        raise ValueError(f"leaf_dtype must be one of {', '.join(LEAF_DTYPES)}; got {name!r}.")


def has_scales(dtype: np.dtype) -> bool:
    """Return whether values of a dtype have scales; raise ValueError for other dtypes."""
    if dtype not in [np.dtype(known) for known in LEAF_DTYPES.values()]:
        raise ValueError(f"Leaf values must be one of {', '.join(LEAF_DTYPES)}; got {dtype}.")
    return dtype == np.int8


def encode(blocks: list[Values], leaf_dtype: str) -> tuple[list[NDArray], list[Values]]:
    """Return the stored values (n_leaves, width) and scales (width,) of each tree.

    Raises
    ------
    ValueError
        If float16 cannot represent the largest value, or would lose precision.
    """
    check_leaf_dtype(leaf_dtype)
    if leaf_dtype == "float32":
        return list(blocks), []
    if leaf_dtype == "float16":
        _check_fits_float16(blocks)
        return [block.astype(np.float16) for block in blocks], []
    scales = [_compute_scales(block) for block in blocks]
    return [_quantise(*pair) for pair in zip(blocks, scales, strict=True)], scales


def decode(stored: NDArray, scales: Values | None) -> Values:
    """Return stored values (n_leaves, width) as float32, multiplied by scales (width,) if any."""
    values = stored.astype(np.float32)
    return values if scales is None else values * scales


def _compute_scales(block: Values) -> Values:
    """Return the smallest scales of 16 significant bits that bring all columns into range."""
    scales = np.abs(block).max(axis=0, initial=0.0).astype(np.float32) / np.float32(_MAX_INT8)
    return ((scales.view(np.int32) + 0xFF) & ~0xFF).view(np.float32)


def _quantise(block: Values, scales: Values) -> NDArray[np.int8]:
    quotient = np.divide(block, scales, out=np.zeros_like(block), where=scales > 0)
    return np.clip(np.rint(quotient), -_MAX_INT8, _MAX_INT8).astype(np.int8)


def _check_fits_float16(blocks: list[Values]) -> None:
    largest = max((float(np.abs(block).max(initial=0.0)) for block in blocks), default=0.0)
    advice = 'Use leaf_dtype="int8", which has a scale per output, or "float32"'
    if largest > _MAX_FLOAT16:
        raise ValueError(
            f"float16 represents numbers up to {_MAX_FLOAT16:g}, but a leaf value is {largest:g}. "
            f"{advice}; for targets on a large scale, normalize_targets=True keeps leaf values "
            "near 1."
        )
    if 0 < largest < _MIN_FLOAT16_SCALE:
        raise ValueError(
            f"Values underflow in float16: the largest leaf value is {largest:g}. {advice}."
        )
