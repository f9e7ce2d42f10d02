"""Offset and scale of regression targets, and checks of the range of float32 sums."""

from __future__ import annotations

from typing import Literal, TypeAlias

import numpy as np

import polyleaf._core as _core
from polyleaf.runtime.collective import SINGLE_PROCESS, Communicator
from polyleaf.runtime.context import Context
from polyleaf.runtime.row_data import RowData
from polyleaf.runtime.user_warnings import warn_user

Normalize: TypeAlias = bool | Literal["auto"]
TargetScale: TypeAlias = tuple[np.ndarray, np.ndarray] | tuple[None, None]

# The split search squares sums of float32 gradients: larger sums overflow to infinity, and the
# squares of smaller values underflow.
_MAX_SUM = 1e18
_MIN_RANGE = 1e-15

_SMALL_MEAN_WEIGHT = 0.1
_BLOCK_CELLS = 1 << 22  # of the columns whose deviations a rank computes together

# Smallest share of the largest spread that "auto" gives to an output. Trees fit outputs of slightly
# different scale one after the other, which is mostly better than equal scales; below a tenth, the
# small outputs are fitted too late.
MIN_SPREAD = 0.1


def compute_target_scale(
    rows: RowData, normalize: Normalize, ranks: Communicator = SINGLE_PROCESS
) -> TargetScale:
    """Compute the offset to subtract from each output, and the scale to divide it by.

    Raises a ValueError if values are too large to be summed or squared.

    Parameters
    ----------
    rows : RowData
        Target values (n_rows, n_outputs); NaN is missing.
    normalize : bool or "auto"
        True: the weighted mean and standard deviation of each output. "auto": if the deviation of
        some output is less than `MIN_SPREAD` of the largest, the means, and the largest deviation;
        for such an output its own deviation over `MIN_SPREAD`. If all are too small for float32,
        as for True.
    ranks : Communicator
        Connection to the other rows.

    Returns
    -------
    offset, scale : ndarray of shape (n_outputs,), float64; or None, None
        None if outputs are not scaled.
    """
    columns = rows.target
    if normalize != "auto":
        if normalize:
            offset, spread = compute_mean_and_deviation(rows, ranks)
            return offset, np.where(spread > 0, spread, 1.0)
        _check_range(_max_range(columns, ranks), rows, ranks)
        return None, None
    value_range = _max_range(columns, ranks)
    if 0 < value_range < _MIN_RANGE:
        return compute_target_scale(rows, True, ranks)
    _check_range(value_range, rows, ranks)
    is_alone = ranks.size == 1
    if columns.shape[1] == 1 or (
        is_alone and rows.weight is None and _has_similar_spreads(columns)
    ):
        return None, None
    offset, spread = compute_mean_and_deviation(rows, ranks)
    largest, varies = spread.max(), spread > np.finfo(columns.dtype).eps * abs(offset)
    if not (varies & (spread < MIN_SPREAD * largest)).any():
        return None, None
    return offset, np.where(varies, np.minimum(spread / MIN_SPREAD, largest), largest)


def _has_similar_spreads(columns: np.ndarray) -> bool:
    """Return whether all deviations are well above `MIN_SPREAD` of the largest.

    One quick pass; False if that is not certain, or if values are missing.
    """
    sums = squares = np.zeros(columns.shape[1])
    for first in range(0, len(columns), 4096):
        block = columns[first : first + 4096].astype(np.float64) - columns[0]
        sums, squares = sums + block.sum(axis=0), squares + np.einsum("ij,ij->j", block, block)
    variance = squares - sums**2 / len(columns)
    is_certain = (variance > 1e-6 * squares).all()
    return bool(is_certain and variance.min() > 1.1 * MIN_SPREAD**2 * variance.max())


def compute_mean_and_deviation(
    rows: RowData, ranks: Communicator = SINGLE_PROCESS
) -> tuple[np.ndarray, np.ndarray]:
    """Compute the weighted mean and standard deviation of each column, without missing values."""
    n_columns = rows.target.shape[1]
    offset, deviation = np.zeros(n_columns), np.zeros(n_columns)
    most_rows = np.array([rows.n_rows])
    ranks.allreduce_max(most_rows)  # also where a partition is encoded by itself, on one rank
    step = max(1, _BLOCK_CELLS // max(1, int(most_rows[0])))
    for first in range(0, n_columns, step):
        block = slice(first, first + step)
        offset[block], deviation[block] = _measure_columns(rows, block, ranks)
    return offset, deviation


def _measure_columns(
    rows: RowData, block: slice, ranks: Communicator
) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean and the standard deviation of each of some columns."""
    values, weight = rows.target[:, block].astype(np.float64), rows.weight
    w = (~np.isnan(values)).astype(np.float64)
    if weight is not None:
        w *= weight[:, None] if weight.ndim == 1 else weight[:, block]
    values[w == 0] = 0.0
    total_weight = sum_columns(w, ranks)
    largest = np.abs(values).max(axis=0, initial=0.0)
    ranks.allreduce_max(largest)
    exponent = np.frexp(largest)[1]  # squares stay in range
    values = np.ldexp(values, -exponent)
    mean = sum_columns(w * values, ranks) / total_weight
    square = sum_columns(w * (values - mean) ** 2, ranks) / total_weight
    return np.ldexp(mean, exponent), np.ldexp(np.sqrt(square), exponent)


def sum_columns(values: np.ndarray, ranks: Communicator = SINGLE_PROCESS) -> np.ndarray:
    """Return the sums (K,) of float32 or float64 columns (n, K), independent of their order."""
    threads = Context(1, ranks).n_threads_or_context
    return _core.exact_totals(np.ascontiguousarray(values), None, None, 1, threads)[0, 0]


def _max_range(columns: np.ndarray, ranks: Communicator) -> float:
    """Return the largest difference of two values of an output."""
    extremes = np.stack([np.fmax.reduce(columns, axis=0), -np.fmin.reduce(columns, axis=0)])
    extremes = np.where(np.isnan(extremes), -np.inf, extremes.astype(np.float64))
    ranks.allreduce_max(extremes)
    with np.errstate(over="ignore", invalid="ignore"):
        return float(extremes.sum(axis=0).max())


def _max_total(weight: np.ndarray, ranks: Communicator) -> float:
    """Return the sum of the weights of rows, or the largest sum of an output."""
    return float(np.max(sum_columns(weight.reshape(len(weight), -1), ranks)))


def check_total_weight(weight: np.ndarray, ranks: Communicator = SINGLE_PROCESS) -> None:
    """Raise a ValueError if the sum of the weights is too large for float32 sums of squares."""
    total = _max_total(weight, ranks)
    if total > _MAX_SUM:
        raise ValueError(
            f"sample_weight is too large: its sum is {total:.3g}, but must not exceed "
            f"{_MAX_SUM:.0e}, because sums of weighted gradients are squared in float32. Divide "
            "the weights by a constant; a mean of 1 is usual."
        )


def warn_small_weights(
    weight: np.ndarray, min_total: float, ranks: Communicator = SINGLE_PROCESS
) -> None:
    """Warn if the sum of the weights is small compared with the penalties."""
    sums = sum_columns(weight.reshape(len(weight), -1), ranks)
    total, mean = float(sums.max()), sums.mean() / ranks.sum(len(weight))
    if total < min_total and mean < _SMALL_MEAN_WEIGHT:
        warn_user(
            f"sample_weight sums to {total:.3g}, no more than the penalties that are compared with "
            "sums of weights (reg_lambda, min_child_weight), so that trees have few and small "
            "leaves. Multiply the weights by a constant; a mean of 1 is usual."
        )


def _check_range(value_range: float, rows: RowData, ranks: Communicator) -> None:
    """Check that squared sums of gradients fit in float32; warn if they underflow."""
    n_rows = ranks.sum(rows.n_rows)
    total, reason = float(n_rows), f"{n_rows} rows"
    total_weight = 0.0 if rows.weight is None else _max_total(rows.weight, ranks)
    if total_weight > total:
        total, reason = total_weight, f"a total weight of {total_weight:.3g}"
    limit = _MAX_SUM / total
    if value_range > limit:
        raise ValueError(
            f"y contains a value too large: with {reason}, an output must not vary by more than "
            f"{limit:.3g}. Divide y by a constant, or set normalize_targets=True if the objective "
            "allows it."
        )
    if 0 < value_range < _MIN_RANGE:
        warn_user(
            f"y varies by at most {value_range:.3g}, too little for float32 sums of squares: "
            "multiply y by a constant, or set normalize_targets=True if the objective allows it."
        )
