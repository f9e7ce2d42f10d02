"""Weights of rows, of single target values, and of classes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_array

import polyleaf._core as _core
from polyleaf.runtime.collective import SINGLE_PROCESS, Communicator
from polyleaf.runtime.context import Context
from polyleaf.runtime.row_data import RowData
from polyleaf.runtime.types import DataLike
from polyleaf.user_data.read_target import is_sparse, to_numpy
from polyleaf.user_data.target_scaling import check_total_weight, sum_columns
from polyleaf.user_data.validation import get_index

_BLOCK_ROWS = 1 << 10  # rows whose weights are averaged at a time


def read_weight(
    rows: RowData, target: Any, n_columns: int, name: str, ranks: Communicator = SINGLE_PROCESS
) -> RowData:
    """Return the target that has been read, with the weights of the user as float32.

    Weights have shape (n_rows,) or, if `n_columns` > 0, also (n_rows, n_columns). `ranks`:
    connection to the other rows.
    """
    if rows.weight is None:
        return RowData(target, query=rows.query, positions=rows.positions)
    sample_weight, n_rows = to_numpy(rows.weight, "sample_weight"), target.shape[0]
    if np.ndim(sample_weight) == 0:
        sample_weight = np.full(n_rows, sample_weight)
    if np.asarray(sample_weight).dtype.kind in "US":
        raise ValueError(
            "sample_weight holds text, but must hold numbers; for weights of classes use "
            "class_weight."
        )
    weight = check_array(
        sample_weight,
        dtype=np.float32,
        ensure_2d=False,
        ensure_all_finite=False,  # below, with the row
        ensure_min_features=0,
        input_name="sample_weight",
    )
    allowed = [(n_rows,)] + ([(n_rows, n_columns)] if n_columns else [])
    if weight.shape not in allowed:
        raise ValueError(
            f"sample_weight has shape {weight.shape}, but {name} needs "
            f"{' or '.join(map(str, allowed))}."
        )
    _check_weights(weight, ranks)
    check_total_weight(weight, ranks)
    return RowData(target, weight, query=rows.query, positions=rows.positions)


def _check_weights(weight: np.ndarray, ranks: Communicator) -> None:
    """Raise a ValueError unless weights are finite, not negative, and not all 0."""
    is_valid = np.isfinite(weight) & (weight >= 0)
    if not is_valid.all():
        row = np.argwhere(~is_valid)[0][0]
        raise ValueError(
            f"sample_weight must be finite and not negative, but row {row} has {weight[row]}."
        )
    if not ranks.any(weight.any()):
        raise ValueError("sample_weight is zero for every row; at least one must be positive.")


def multiply_weights(weight: np.ndarray | None, factor: np.ndarray) -> np.ndarray:
    """Return the product of weights of shapes (n,) and (n, K)."""
    if weight is None:
        return factor
    if weight.ndim < factor.ndim:
        weight = weight[:, None]
    return weight * factor


# ---- weights of known targets, for the quantiles of bins ---------------------------------------


def weight_known_targets(rows: RowData) -> Any:
    """Return the weights of rows in the quantiles of bins: per target, 0 where it is missing.

    `rows`: as given to a `Dataset`. NaN is missing; values other than numbers are all known.
    Returns the weights themselves if all targets are known, or none is.
    """
    known = find_known_targets(rows.target)
    if known is None or known.all() or not known.any():
        return None if rows.weight is None else np.asarray(rows.weight, np.float32)  # as in fit
    return mask_weights(known, rows.weight)


def find_known_targets(y: DataLike) -> np.ndarray | None:
    """Return a mask of the targets that are not NaN; None if y cannot hold NaN."""
    if y is None or isinstance(y, Mapping) or is_sparse(y):
        return None
    values = np.asarray(y)
    return None if values.dtype.kind != "f" else ~np.isnan(values)


def mask_weights(known: np.ndarray, sample_weight: DataLike) -> np.ndarray:
    """Return the weights with 0 where a target is missing."""
    if sample_weight is None:
        return known.astype(np.float32)
    weight = np.asarray(sample_weight, np.float32)
    return (weight[:, None] if weight.ndim < known.ndim else weight) * known


# ---- outputs and classes without weight --------------------------------------------------------


def check_outputs_have_weight(
    rows: RowData, names: tuple[str, ...] | None, ranks: Communicator = SINGLE_PROCESS
) -> None:
    """Raise a ValueError for an output without a known value of positive weight."""
    present, weight = ~np.isnan(rows.target), rows.weight
    if weight is not None:
        present &= (weight if weight.ndim == 2 else weight[:, None]) > 0
    empty = np.flatnonzero(~ranks.any(present.any(axis=0)))
    if len(empty):
        output = f"{names[empty[0]]!r}" if names else f"{empty[0]}"
        raise ValueError(
            f"Output {output} of y has no value of positive weight to learn from: remove the "
            "column."
        )


def check_two_classes(
    classes: np.ndarray, rows: RowData, ranks: Communicator = SINGLE_PROCESS
) -> None:
    """Raise a ValueError unless two classes have rows, or shares of rows, of positive weight.

    `rows` hold class ids, or shares of the classes.
    """
    used = rows.target if rows.weight is None else rows.target[rows.weight > 0]
    if used.ndim == 1:
        is_present = np.bincount(used, minlength=len(classes)) > 0
    else:
        is_present = (used > 0).any(axis=0)
    present = np.flatnonzero(ranks.any(is_present))
    if len(present) >= 2:
        return
    problem = f"Only one class, {classes.tolist()[present[0]]!r}, has rows of positive weight"
    if ranks.sum(rows.n_rows) == 1:
        problem = "y has 1 sample (n_samples=1), hence one class"
    elif len(classes) < 2:
        problem = f"y has one class only, {classes.tolist()[0]!r}"
    raise ValueError(f"{problem}: a classifier needs at least two classes.")


# ---- target weights ----------------------------------------------------------------------------


def read_target_weight(
    target_weight: object, n_outputs: int, names: tuple[str, ...] | None
) -> NDArray[np.float32]:
    """Return the weight of each target, (n_outputs,).

    `target_weight`: a number for each target, or a mapping from names or numbers of targets to
    weights; 1 for the others.
    """
    if isinstance(target_weight, Mapping):
        values = np.ones(n_outputs)
        for target, value in target_weight.items():
            values[get_index(target, names, n_outputs, "target_weight", "target")] = value
    else:
        values = np.asarray(target_weight, np.float64)
    if values.shape != (n_outputs,):
        raise ValueError(
            f"target_weight must have {n_outputs} numbers, one for each target of y; got "
            f"{target_weight!r}."
        )
    weight = values.astype(np.float32)
    if not (np.isfinite(weight) & (weight > 0)).all():
        raise ValueError(f"target_weight must be positive and finite, got {target_weight!r}.")
    return weight


# ---- class weights -----------------------------------------------------------------------------


def negatives_per_positive(rows: RowData, ranks: Communicator = SINGLE_PROCESS) -> np.ndarray:
    """Return the weight of the negatives of each label over that of its positives.

    float64, (n_labels,); 1 where a label has no positives or no negatives.
    """
    values, weight = rows.target, rows.weight
    negative, positive = _sum_labels(values, weight, ranks)
    has_both = (positive > 0) & (negative > 0)
    return np.divide(negative, positive, out=np.ones(len(positive)), where=has_both)


def _sum_labels(
    values: np.ndarray, weight: np.ndarray | None, ranks: Communicator
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the weights of the zeros and of the ones of each label, without missing labels."""
    known = (~np.isnan(values)).astype(np.float64)
    if weight is not None:
        known *= np.broadcast_to(weight.T, values.T.shape).T
    positive = sum_columns(known * (values == 1), ranks)
    return sum_columns(known, ranks) - positive, positive


def _sum_classes(rows: RowData, n_classes: int, ranks: Communicator) -> NDArray[np.float64]:
    """Return the weight of the rows of each class: rows hold class ids, or shares of classes."""
    values, threads = rows.target, Context(1, ranks).n_threads_or_context
    weight = None if rows.weight is None else np.ascontiguousarray(rows.weight[:, None])
    if values.ndim == 2:
        return _core.exact_totals(np.ascontiguousarray(values), weight, None, 1, threads)[0, 0]
    ones, ids = np.ones((len(values), 1), np.float32), values.astype(np.int32)
    return _core.exact_totals(ones, weight, ids, n_classes, threads)[0, :, 0]


def compute_class_factors(
    class_weight: object, classes: np.ndarray, rows: RowData, ranks: Communicator = SINGLE_PROCESS
) -> np.ndarray | None:
    """Return the weight factor of each class, float64 (n_classes,); None: all 1.

    `rows` hold class ids, or shares of the classes.
    """
    if class_weight is None:
        return None
    if isinstance(class_weight, str):
        totals = _sum_classes(rows, len(classes), ranks)
        ones, is_there = np.ones(len(classes)), totals > 0
        return np.divide(math.fsum(totals), len(classes) * totals, out=ones, where=is_there)
    if not isinstance(class_weight, Mapping):
        raise ValueError(
            'class_weight must be a dict {label: weight} or "balanced"; a list of dicts is for '
            "multi-label targets."
        )
    labels = classes.tolist()
    unknown = [label for label in class_weight if label not in labels]
    if unknown:
        raise ValueError(f"class_weight has the label {unknown[0]!r}, which is not in y.")
    return _check_factors([class_weight.get(label, 1.0) for label in labels])


def weight_shares(rows: RowData, factors: np.ndarray) -> RowData:
    """Multiply the shares of classes by factors: return shares of sum 1, and weights of rows."""
    shares = rows.target
    weighted = shares * factors
    sums = np.cumsum(weighted, axis=1)[:, -1]
    scaled = np.divide(
        weighted, sums[:, None], out=shares.astype(np.float64), where=sums[:, None] > 0
    )
    weight = multiply_weights(rows.weight, sums.astype(np.float32))
    return RowData(scaled.astype(np.float32), weight)


def compute_label_factors(
    class_weight: Any,
    rows: RowData,
    names: tuple[str, ...] | None,
    ranks: Communicator = SINGLE_PROCESS,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the weight factors of 0 and 1 of each label, two float64 arrays (n_labels,)."""
    n_labels = rows.target.shape[1]
    if class_weight is None:
        return np.ones(n_labels), np.ones(n_labels)
    if isinstance(class_weight, str):
        totals = np.stack(_sum_labels(rows.target, rows.weight, ranks))
        negative, positive = np.divide(
            totals.sum(axis=0), 2 * totals, out=np.ones(totals.shape), where=totals.min(axis=0) > 0
        )
        return negative, positive
    if isinstance(class_weight, Mapping) and any(
        isinstance(w, Mapping) for w in class_weight.values()
    ):
        class_weight = _list_label_weights(class_weight, n_labels, names)
    weights = [class_weight] * n_labels if isinstance(class_weight, Mapping) else list(class_weight)
    if len(weights) != n_labels:
        raise ValueError(f"class_weight has {len(weights)} dicts, but y has {n_labels} labels.")
    unknown = [value for entry in weights for value in entry if value not in (0, 1)]
    if unknown:
        raise ValueError(
            f"class_weight of a multi-label target must have the keys 0 and 1, got {unknown[0]!r}."
        )
    negative = _check_factors([entry.get(0, 1.0) for entry in weights])
    return negative, _check_factors([entry.get(1, 1.0) for entry in weights])


def _list_label_weights(
    class_weight: Mapping[object, object], n_labels: int, names: tuple[str, ...] | None
) -> list[Mapping[object, object]]:
    """Convert `{label: {0: weight, 1: weight}}` to a list with one entry per label."""
    weights: list[Mapping[object, object]] = [{}] * n_labels
    for label, entry in class_weight.items():
        if not isinstance(entry, Mapping):
            raise ValueError(
                f"class_weight has {label!r}: {entry!r}; it must be "
                "{label: {0: weight, 1: weight}}."
            )
        weights[get_index(label, names, n_labels, "class_weight", "label")] = entry
    return weights


def _check_factors(factors: object) -> np.ndarray:
    array = np.asarray(factors, np.float64)
    if not np.all(np.isfinite(array) & (array >= 0)):
        raise ValueError(f"class_weight must be finite and not negative, got {factors}.")
    return array


def quantise_weights(
    sample_weight: ArrayLike, n_rows: int, ranks: Communicator = SINGLE_PROCESS
) -> NDArray[np.int64]:
    """Scale weights (n_rows,) by a power of two and round them to integers of sum <= 2^53.

    Their float64 sums are exact. Integer weights keep their proportions exactly, so they count as
    repeated rows. Positive weights stay positive.
    """
    weights = np.asarray(sample_weight, dtype=np.float64)
    if weights.ndim == 2:
        weights = np.cumsum(weights, axis=1)[:, -1]
    if weights.shape != (n_rows,):
        raise ValueError(
            f"sample_weight has shape {np.shape(sample_weight)}, but X has {n_rows} rows."
        )
    _check_weights(weights, ranks)
    largest = weights.max(keepdims=True)
    ranks.allreduce_max(largest)
    _, exponent = np.frexp(largest[0])
    scaled = np.ldexp(weights, -exponent)  # in [0, 1]: the sum cannot overflow
    _, exponent = np.frexp(sum_columns(scaled[:, None], ranks)[0])
    rounded = np.rint(np.ldexp(scaled, 51 - exponent)).astype(np.int64)
    return np.where(weights > 0, np.maximum(rounded, 1), 0)


def average_weights(weight: np.ndarray) -> np.ndarray:
    """Return the mean weight (n_rows, 1) of each row; equal weights are their own mean."""
    if weight.shape[1] == 1:
        return weight
    means = np.empty((len(weight), 1), np.float32)
    for start in range(0, len(weight), _BLOCK_ROWS):
        sums = np.cumsum(weight[start : start + _BLOCK_ROWS], axis=1, dtype=np.float64)[:, -1:]
        means[start : start + _BLOCK_ROWS] = sums / weight.shape[1]
    return means
