"""Estimated memory of a training on dense targets, and whether its arrays are memory-mapped files.

`polyleaf.estimators.memory_estimate` estimates the same before there are data.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

import polyleaf._core as _core
from polyleaf.binned_data.binned import create_memmap
from polyleaf.binned_data.dataset import Dataset
from polyleaf.objectives.base import BoundObjective
from polyleaf.runtime.checks import format_bytes
from polyleaf.settings.train_config import GrowthConfig, TrainConfig
from polyleaf.sketching.sketches import get_sketch
from polyleaf.training.output_groups import count_groups
from polyleaf.training.raw_scores import hessian_columns
from polyleaf.training.tree_builder import resolve_hessian_kind

_SHORT, _FLOAT, _DOUBLE = 2, 4, 8  # bytes of a number
TILE_FEATURES = 8  # that a histogram pads the number of features to
HISTOGRAM_BINS = 256  # of a feature
_NODE = 72  # bytes of a node of a tree, without gains by output


class ColumnCounts(NamedTuple):
    """Numbers per row of each kind."""

    targets: int
    scores: int
    hessians: int
    sketched: int  # 0: no sketch
    lanes: int
    bin_numbers: int  # per bin of a histogram: sums and the number of rows, padded
    sent_numbers: int  # numbers per bin that workers exchange
    goals: int  # of a ranking; 0: there are no queries
    trees_per_round: int


class RowBytes(NamedTuple):
    """Bytes per row."""

    bins: int  # bins as training stores them in memory, with the raw features for linear leaves
    # raw scores, gradients and Hessians, which are read and written in the order of rows
    state: int
    others: int  # targets, quantised gradients, row partition: what stays in memory


def count_columns(bound: BoundObjective, settings: TrainConfig, n_targets: int) -> ColumnCounts:
    """Return the numbers per row of a training whose target has `n_targets` columns."""
    boosting, leaf, scores = settings.boosting, settings.leaf, bound.n_outputs
    groups = count_groups(boosting, scores)
    h_columns, full_columns = hessian_columns(bound, settings.hessian)
    sketch = get_sketch(boosting.sketch, boosting.sketch_dim, scores)
    summed = max(groups)
    if sketch is not None:
        summed = getattr(sketch, "dim", scores)
    keeps_hessian = h_columns is None or (sketch is None and summed > 1)
    used_columns = h_columns if keeps_hessian else 1
    kind = resolve_hessian_kind(settings.hessian.hessian, used_columns, summed)
    lanes = _core.channel_lanes(summed, "unit" if kind == "none" else kind, leaf.gain_regressors)
    pairs = summed * (summed + 1) // 2
    n_hessian = {"none": 0, "shared": 1, "diagonal": summed, "full": pairs}[kind]
    bin_numbers = lanes + (summed + n_hessian == lanes)  # without a lane to spare
    has_products = leaf.gain_regressors >= 0
    return ColumnCounts(
        targets=n_targets,
        scores=scores,
        hessians=(h_columns or 0) + full_columns,
        sketched=0 if sketch is None else summed,
        goals=0 if bound.rows.query is None else bound.rows.target.shape[1],
        lanes=lanes,
        bin_numbers=bin_numbers,
        sent_numbers=bin_numbers if has_products else summed + n_hessian + 1,
        trees_per_round=len(groups),
    )


def row_bytes(n_features: int, columns: ColumnCounts, settings: TrainConfig) -> RowBytes:
    """Return the bytes per row in training."""
    words = TILE_FEATURES * -(-n_features // TILE_FEATURES)
    reads_features = settings.leaf.kind.reads_features
    quantised = 2 * _SHORT * columns.lanes  # of all rows, and gathered for nodes
    split_inputs = _FLOAT * (columns.sketched + 1 + (columns.lanes if reads_features else 0))
    partition = 4 * _FLOAT  # ids of rows, twice, their leaves, and bits
    features = _FLOAT * n_features if reads_features else 0
    # Numbers and order of queries, and of each goal a weight and whether there is a judgement.
    queries = 2 * _DOUBLE + (_DOUBLE + 1) * columns.goals if columns.goals else 0
    return RowBytes(
        bins=words + features,
        state=_FLOAT * (2 * columns.scores + columns.hessians),
        others=(_FLOAT + _DOUBLE) * columns.targets
        + split_inputs
        + quantised
        + partition
        + queries,
    )


def histogram_bytes(
    n_rows: int, n_features: int, columns: ColumnCounts, settings: TrainConfig
) -> int:
    """Return the bytes of histograms kept for nodes that may be split, and of those of threads."""
    growth, threads = settings.growth, settings.workers.n_threads
    per_node = n_features * HISTOGRAM_BINS * _FLOAT * (columns.lanes + 1)
    per_thread = 3 * TILE_FEATURES * HISTOGRAM_BINS * _FLOAT * (columns.lanes + 1)
    if settings.leaf.gain_regressors >= 0:
        return threads * per_thread  # gradients of linear leaves differ between nodes
    min_rows = _core.count_unkept_rows(HISTOGRAM_BINS, columns.lanes)
    kept = min(count_leaves(growth), n_rows // min_rows) + 1  # open nodes, which share no rows
    return min(growth.histogram_memory, kept * per_node) + threads * per_thread


def count_leaves(growth: GrowthConfig) -> int:
    """Return the largest number of leaves of a tree."""
    return min(growth.max_leaves or 2**31, 2 ** min(31, growth.max_depth or 31))


def tree_bytes(columns: ColumnCounts, settings: TrainConfig) -> int:
    """Return the bytes of the trees of all rounds."""
    leaves = count_leaves(settings.growth)
    per_round = columns.trees_per_round * 2 * leaves * _NODE + 3 * leaves * _FLOAT * columns.scores
    return settings.boosting.n_estimators * per_round


def make_row_allocator(
    bound: BoundObjective, settings: TrainConfig, dataset: Dataset
) -> Callable[..., np.ndarray]:
    """Return the allocator of zeroed arrays of raw scores and derivatives.

    The allocator uses memory, or memory-mapped files if `memory_limit` requires them. The bins of
    the data set are moved to files first if they do not fit in memory with the other arrays. Raises
    a ValueError if the limit is too small for the arrays that must stay in memory.
    """
    limit, folder = dataset.memory.limit, dataset.memory.folder
    if limit is None or folder is None:
        return np.zeros
    n_rows, n_features = dataset.n_rows, dataset.mapper.n_columns_
    n_targets = 1 if bound.objective.target_kinds == ("classes",) else bound.n_outputs
    columns = count_columns(bound, settings, n_targets)
    row = row_bytes(n_features, columns, settings)
    histograms = histogram_bytes(n_rows, n_features, columns, settings)
    needed = n_rows * row.others + histograms + tree_bytes(columns, settings)
    if needed > limit:
        raise ValueError(
            f"memory_limit is {format_bytes(limit)}, but with bins, scores and derivatives in "
            f"files this training still needs {format_bytes(needed)}: "
            f"{format_bytes(n_rows * row.others)} for targets, quantised gradients and the "
            f"partition of {n_rows} rows, {format_bytes(histograms)} for histograms "
            "(histogram_memory), and the rest for trees. Raise memory_limit, or train on fewer "
            "rows or outputs."
        )
    bins = n_rows * (row.bins + n_features)  # the data set also stores bin codes by feature
    if needed + bins > limit:
        dataset.release_memory()
    if needed + (0 if dataset.is_memmapped else bins) + n_rows * row.state <= limit:
        return np.zeros
    return lambda shape, dtype: create_memmap(shape, dtype, folder)
