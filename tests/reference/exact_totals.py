"""Exact totals over rows, in integers, independent of the order of rows."""

import math

import numpy as np

BITS = (
    94  # bits of a total's unit below the power of two above all products: 2^31 rows fit 128 bits
)
MAX_TERM_BITS = 41  # for less exact sums: 4,096 such terms still add up exactly in float64
SUM_BITS = 62


def term_bits(n_rows):
    """Return the bits of the terms of such a sum over `n_rows` rows, so that it fits int64."""
    return min(MAX_TERM_BITS, SUM_BITS - (max(n_rows, 1) - 1).bit_length())


def exponent_above(largest):
    """Return the power of two above a magnitude; 0 for 0."""
    return math.frexp(float(largest))[1]


def exact_totals(values, weight=None, group=None, n_groups=1):
    """Sum weight * value and weight by group: float64 (2, n_groups, n_columns)."""
    n, k = values.shape
    w = np.ones((n, k)) if weight is None else np.broadcast_to(weight.astype(np.float64), (n, k))
    groups = np.zeros(n, int) if group is None else group
    products = w * values.astype(np.float64)  # the only rounding of a row
    return np.array([_sums(products, groups, n_groups), _sums(w, groups, n_groups)])


def _sums(terms, groups, n_groups):
    out = np.zeros((n_groups, terms.shape[1]))
    for j, column in enumerate(terms.T):
        if not np.isfinite(column).all():
            out[:, j] = np.nan
            continue
        unit = (
            math.frexp(np.abs(column).max(initial=0.0))[1] - BITS
        )  # of all rows, regardless of their group
        for g in range(n_groups):
            out[g, j] = _scale_by_power(sum(_to_units(x, unit) for x in column[groups == g]), unit)
    return out


def _to_units(x, unit):
    """Return the integer part of x / 2^unit, without a float intermediate."""
    top, bottom = float(x).as_integer_ratio()
    power = 2 ** abs(unit)
    top, bottom = (top, bottom * power) if unit > 0 else (top * power, bottom)
    return abs(top) // bottom * (1 if top > 0 else -1)


def _scale_by_power(total, unit):
    try:
        return math.ldexp(float(total), unit)  # rounds to the nearest float, ties to even
    except OverflowError:
        return math.copysign(math.inf, total)
