"""How leaf values are stored: float32 as they are, or rounded to 16 or to 8 bits.

Owns the rounding, the names of the choices, and what is refused. Must not know trees, files or models.

"int8" is a whole number from -127 to 127 times a scale, one for each output of a tree: outputs of unlike
units keep their digits, which a scale for the whole tree would cost them. A scale has 16 significant bits, so
that its products are exact: what was stored once is stored again without change.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["LEAF_DTYPES", "check_leaf_dtype", "decode", "encode", "has_scales"]

LEAF_DTYPES: dict[str, type] = {"float32": np.float32, "float16": np.float16, "int8": np.int8}

_LARGEST = 127  # of an int8: the range is symmetric
_LARGEST_HALF = 65504.0
# Where the largest value is smaller than this, float16 keeps less than the 11 bits it has elsewhere.
_SMALLEST_HALF = 2.0**-13

Values = NDArray[np.float32]


def check_leaf_dtype(name: str) -> None:
    """Raise ValueError unless it is one of `LEAF_DTYPES`."""
    if name not in LEAF_DTYPES:
        raise ValueError(f"leaf_dtype must be one of {', '.join(LEAF_DTYPES)}; got {name!r}.")


def has_scales(dtype: np.dtype) -> bool:
    """Whether values of this dtype come with scales; ValueError where leaf values are not stored in it."""
    if dtype not in [np.dtype(known) for known in LEAF_DTYPES.values()]:
        raise ValueError(f"Leaf values must be one of {', '.join(LEAF_DTYPES)}, but are {dtype}.")
    return dtype == np.int8


def encode(blocks: list[Values], leaf_dtype: str) -> tuple[list[NDArray], list[Values]]:
    """Leaf values of each tree, (n_leaves, width) each, as they are stored; and scales (width,) of each tree.

    Raises
    ------
    ValueError
        Where float16 would lose more than its last digits: the largest value overflows or is next to nothing.
    """
    check_leaf_dtype(leaf_dtype)
    if leaf_dtype == "float32":
        return list(blocks), []
    if leaf_dtype == "float16":
        _check_fits_half(blocks)
        return [block.astype(np.float16) for block in blocks], []
    scales = [_scales(block) for block in blocks]
    return [_whole_numbers(*pair) for pair in zip(blocks, scales, strict=True)], scales


def decode(stored: NDArray, scales: Values | None) -> Values:
    """Float32 values (n_leaves, width) of what is stored, times the scales (width,) where it has any."""
    values = stored.astype(np.float32)
    return values if scales is None else values * scales


def _scales(block: Values) -> Values:
    """The least scales of 16 significant bits that bring every column into range."""
    scales = np.abs(block).max(axis=0, initial=0.0).astype(np.float32) / np.float32(_LARGEST)
    return ((scales.view(np.int32) + 0xFF) & ~0xFF).view(np.float32)


def _whole_numbers(block: Values, scales: Values) -> NDArray[np.int8]:
    quotient = np.divide(block, scales, out=np.zeros_like(block), where=scales > 0)
    return np.clip(np.rint(quotient), -_LARGEST, _LARGEST).astype(np.int8)


def _check_fits_half(blocks: list[Values]) -> None:
    largest = max((float(np.abs(block).max(initial=0.0)) for block in blocks), default=0.0)
    advice = 'Use leaf_dtype="int8", which has a scale for each output, or "float32"'
    if largest > _LARGEST_HALF:
        raise ValueError(
            f"float16 holds numbers up to {_LARGEST_HALF:g}, but a leaf value is {largest:g}. {advice}; for "
            "targets on a large scale, normalize_targets=True keeps leaf values near 1."
        )
    if 0 < largest < _SMALLEST_HALF:
        raise ValueError(
            f"float16 has no digits left for numbers this small: the largest leaf value is {largest:g}. "
            f"{advice}."
        )
