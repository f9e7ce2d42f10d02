"""Curvature that a user's function gives: what boosting can use of it. Owns checks and mending; must not know
where it came from.

Newton's step needs curvature that is not negative. What is done where it is, is the user's choice
(`Custom.curvature`): "exact" refuses, "absolute" takes the absolute value (of the eigenvalues, where there
are full Hessians: saddle-free Newton, Dauphin et al., 2014), "clip" takes 0 in its place.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from polyleaf.objectives.packed_symmetric import pack, packed_diagonal, unpack

CHOICES = ("exact", "absolute", "clip", "none")

# Below this part of the largest curvature, a negative one is the rounding of 0.
_ROUNDING = 1e-7

FloatArray = NDArray[np.float64]


# What to do about a function that has none.
FIRST_ORDER = 'Set hessian="none" and leaf_hessian="none" for first-order boosting'


def settled(
    h: FloatArray, choice: str, where: Callable[[int], str], n_outputs: int | None = None
) -> FloatArray:
    """Curvature (n, 1) or (n, K), or with `n_outputs` packed Hessians, such that no diagonal is negative.

    `where` names a row in an error.

    Raises
    ------
    ValueError
        With `choice` "exact", where a diagonal entry is negative beyond rounding.
    """
    if n_outputs is not None and n_outputs > 1 and choice in ("absolute", "clip"):
        values, vectors = np.linalg.eigh(unpack(h, n_outputs))
        values = np.abs(values) if choice == "absolute" else np.maximum(values, 0.0)
        return pack((vectors * values[:, None, :]) @ vectors.transpose(0, 2, 1))
    at = slice(None) if n_outputs is None else packed_diagonal(n_outputs)
    own = h[:, at]
    if choice == "absolute":
        own = np.abs(own)
    elif (own < 0).any():
        if choice == "exact":
            check_hessian_not_negative(own, where)
        own = np.maximum(own, 0.0)
    h = h.copy()
    h[:, at] = own
    return h


def check_hessian_not_zero(is_flat: NDArray[np.bool_]) -> None:
    """Raise ValueError where of an output (K,) no row has curvature, while some have a gradient."""
    if is_flat.any():
        raise ValueError(
            f"The custom objective has no curvature: it returned 0 for output {int(np.argmax(is_flat))} in "
            f"all rows, though not all gradients are 0, and a Newton step would have no end. {FIRST_ORDER}, "
            "or return an upper bound of the second derivative, or None, which stands for 1."
        )


def check_hessian_not_negative(own: FloatArray, where: Callable[[int], str]) -> None:
    """Raise ValueError where curvatures or eigenvalues (n, m) are negative beyond rounding."""
    negative = own < -_ROUNDING * np.abs(own).max(initial=0.0)
    if negative.any():
        row, k = np.argwhere(negative)[0]
        raise ValueError(
            f"The custom objective has a negative curvature, {own[row, k]:.6g}, at {where(int(row))}: it is "
            "not convex there, and a Newton step would go uphill. Make it Custom(function, "
            'hessian="absolute") to use the absolute value, "clip" to use 0 in its place or "none" for '
            "first-order boosting (Custom is in polyleaf.objectives), or return an upper bound of the second "
            "derivative."
        )
