"""In which units the outputs of a regression are learned.

Owns: spreads of outputs, what is too large or too small for float32 sums, and which outputs of unlike scale
are brought nearer. Must not know objectives, trees or how y is read.
"""

from __future__ import annotations

import warnings
from typing import Literal, TypeAlias

import numpy as np

import polyleaf._core as _core

__all__ = ["Normalize", "check_total_weight", "compute_target_scale", "warn_small_weights"]

Normalize: TypeAlias = bool | Literal["auto"]
Unit: TypeAlias = tuple[np.ndarray, np.ndarray] | tuple[None, None]

# Sums of float32 gradients are squared in the split search: above this, n rows of them overflow to infinity.
_LARGEST_SUM = 1e18
_SMALLEST = 1e-15  # ... and the squares of smaller ones vanish

_LIGHT = 0.1  # a mean weight

# Of the largest spread: what "auto" gives each output at least. Trees that see outputs of somewhat unlike
# scale turn to one after the other, which is mostly better than equal scales (docs/target-scaling.md); from a tenth
# downwards the small ones come too late.
MIN_SPREAD = 0.1


def compute_target_scale(
    columns: np.ndarray, weight: np.ndarray | None, normalize: Normalize
) -> Unit:
    """What is taken off each output, and what it is then divided by.

    Parameters
    ----------
    columns : ndarray of shape (n_rows, n_outputs)
        NaN is a value that is not there.
    weight : ndarray of shape (n_rows,) or (n_rows, n_outputs), or None
    normalize : bool or "auto"
        True: the weighted mean and standard deviation of each output. "auto": where the deviation of some
        output is less than `MIN_SPREAD` of the largest, the mean, and the largest deviation; of such an
        output its own deviation over `MIN_SPREAD`. Where all are too small for float32, as True.

    Returns
    -------
    offset, scale : ndarray of shape (n_outputs,), float64; or None, None
        None where outputs are learned as they are.

    Raises
    ------
    ValueError
        Where values are too large to be summed or squared.
    """
    if normalize != "auto":
        if normalize:
            offset, spread = _mean_and_deviation(columns, weight)
            return offset, np.where(spread > 0, spread, 1.0)
        _check_range(_range_of(columns), len(columns), weight)
        return None, None
    most = _range_of(columns)
    if 0 < most < _SMALLEST:  # outputs vary, but too little for their squares to be told from 0
        return compute_target_scale(columns, weight, True)
    _check_range(most, len(columns), weight)
    if columns.shape[1] == 1:
        return None, None
    offset, spread = _mean_and_deviation(columns, weight)
    largest, varies = spread.max(), spread > np.finfo(columns.dtype).eps * abs(offset)
    if not (varies & (spread < MIN_SPREAD * largest)).any():
        return None, None
    return offset, np.where(varies, np.minimum(spread / MIN_SPREAD, largest), largest)


def _mean_and_deviation(
    columns: np.ndarray, weight: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """Weighted mean and standard deviation of each column, over the values it has."""
    offset, deviation = np.zeros(columns.shape[1]), np.zeros(columns.shape[1])
    for j in range(columns.shape[1]):
        values = columns[:, j].astype(np.float64)
        there = ~np.isnan(values)
        w = there.astype(np.float64)
        if weight is not None:
            w *= weight if weight.ndim == 1 else weight[:, j]
        values[~there] = 0.0
        weight_of_all = float(there.sum()) if weight is None else _total(w)
        with np.errstate(over="ignore", invalid="ignore"):
            offset[j] = _total(w * values) / weight_of_all
            deviation[j] = np.sqrt(_total(w * (values - offset[j]) ** 2) / weight_of_all)
        if not np.isfinite(deviation[j]):
            raise ValueError(
                f"Output {j} of y contains a value too large to be squared: divide it by a constant."
            )
    return offset, deviation


def _total(terms: np.ndarray) -> float:
    """Their sum, whatever their order."""
    return float(_core.exact_totals(terms[:, None], None, None, 1, 1)[0, 0, 0])


def _range_of(columns: np.ndarray) -> float:
    """By how much an output varies, the most of all of them."""
    with np.errstate(over="ignore", invalid="ignore"):
        return float((np.nanmax(columns, axis=0) - np.nanmin(columns, axis=0)).max())


def _largest_total(weight: np.ndarray) -> float:
    """Of the weights of rows; of those of outputs the largest one's."""
    return float(np.max(np.sum(weight, axis=0, dtype=np.float64)))


def check_total_weight(weight: np.ndarray) -> None:
    """Refuse weights whose sum is too large for sums of gradients to be squared in float32.

    Raises
    ------
    ValueError
        Where a sum over the rows is.
    """
    total = _largest_total(weight)
    if total > _LARGEST_SUM:
        raise ValueError(
            f"sample_weight is too large: its sum is {total:.3g}, but must not be more than "
            f"{_LARGEST_SUM:.0e}, because sums of weighted gradients are squared in float32. Divide the "
            "weights by a constant; a mean of 1 is usual."
        )


def warn_small_weights(weight: np.ndarray, least: float) -> None:
    """Warn where penalties, which know no unit of weights, leave leaves no room to move."""
    total = _largest_total(weight)
    if total < least and weight.mean(dtype=np.float64) < _LIGHT:
        warnings.warn(
            f"sample_weight is {total:.3g} in all, no more than the penalties that weights are compared with "
            "(reg_lambda, min_child_weight): leaves move little, and few are made. Multiply the weights by a "
            "constant; a mean of 1 is usual.",
            stacklevel=6,
        )


def _check_range(most: float, n_rows: int, weight: np.ndarray | None) -> None:
    """Sums of gradients are squared in float32: outputs must vary neither by much nor by next to nothing."""
    total, of = float(n_rows), f"{n_rows} rows"
    if weight is not None and _largest_total(weight) > total:
        total = _largest_total(weight)
        of = f"weights of {total:.3g} in all"
    limit = _LARGEST_SUM / total
    if most > limit:
        raise ValueError(
            f"y contains a value too large: with {of}, an output must not vary by more than "
            f"{limit:.3g}. Divide y by a constant, or set normalize_targets=True."
        )
    if 0 < most < _SMALLEST:
        warnings.warn(
            f"y varies by {most:.3g} at most, too little for float32 sums of squares: "
            "set normalize_targets=True or multiply y by a constant.",
            stacklevel=6,
        )
