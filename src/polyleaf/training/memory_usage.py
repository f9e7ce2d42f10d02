"""How many bytes a training on dense targets holds, part by part, and where these are to lie.

Owns: sizes, counted and not measured, and what of a training goes to files where memory is limited. Must not
know: how any part works; what is asked of the machine before there are data (`polyleaf.estimators.memory_estimate`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

import polyleaf._core as _core
from polyleaf.data.dataset import Dataset
from polyleaf.data.memmap import mapped
from polyleaf.objectives.base import BoundObjective
from polyleaf.settings.train_config import LinearLeaf, TrainConfig
from polyleaf.sketching.sketches import get_sketch
from polyleaf.training.derivatives import curvature_columns
from polyleaf.training.split_finder import resolve_hessian_kind

__all__ = [
    "Columns",
    "RowBytes",
    "count_columns",
    "histogram_bytes",
    "row_bytes",
    "tree_bytes",
    "row_state",
]

_SHORT, _FLOAT, _DOUBLE = 2, 4, 8  # bytes of a number
_FEATURES_OF_TILE = 8
_BINS = 256  # of a feature, in a histogram
# Nodes of fewer rows than this share of channels are built anew, so no histogram is kept for their children
# (HistogramSearch::lay_out_memory: where building costs what subtracting does).
_ROWS_OF_KEPT, _HALF_AT = 6800, 12
_NODE = 72  # bytes of a node of a tree, but for its gains by output


class Columns(NamedTuple):
    """How many numbers a row has of each kind."""

    of_y: int
    scores: int
    curvatures: int
    sketched: int  # 0: there is no sketch
    lanes: int
    trees_of_round: int


class RowBytes(NamedTuple):
    """Bytes of a row, by what they are.

    Attributes
    ----------
    bins : int
        As training holds them in memory, with the features themselves where leaves read them.
    state : int
        Raw scores, gradients and curvatures: what is read and written in order of rows.
    others : int
        Targets, channels, where rows are: what stays in memory.
    """

    bins: int
    state: int
    others: int


def count_columns(problem: BoundObjective, settings: TrainConfig, of_y: int) -> Columns:
    """Of a training whose target has `of_y` columns."""
    run, leaf, scores = settings.boosting, settings.leaf, problem.n_outputs
    one_tree = run.multi_strategy == "multi_output_tree" or scores == 1
    of_h, of_full = curvature_columns(problem, settings.hessian)
    sketch = get_sketch(run.sketch, run.sketch_dim, scores)
    grown = getattr(sketch, "dim", scores) if sketch is not None else scores if one_tree else 1
    seen = of_h if of_h is None or (sketch is None and one_tree) else 1
    kind = resolve_hessian_kind(settings.hessian.hessian, seen, grown)
    regressors = (
        leaf.linear_features if isinstance(leaf, LinearLeaf) and leaf.scores_linear_leaves else -1
    )
    return Columns(
        of_y=of_y,
        scores=scores,
        curvatures=(of_h or 0) + of_full,
        sketched=0 if sketch is None else grown,
        lanes=_core.channel_lanes(grown, "unit" if kind == "none" else kind, regressors),
        trees_of_round=1 if one_tree else scores,
    )


def row_bytes(n_features: int, columns: Columns, settings: TrainConfig) -> RowBytes:
    """In training."""
    words = _FEATURES_OF_TILE * -(-n_features // _FEATURES_OF_TILE)
    sampling = settings.sampling
    is_goss = sampling.sampling_method == "goss"
    share = sampling.top_rate + sampling.other_rate if is_goss else sampling.subsample
    # Of the words of the rows in use: one copy, whose words move in place while those that go right wait with
    # each thread; or another to move to, where there are too few tiles for the threads.
    threads = settings.workers.n_threads
    in_place = threads == 1 or words >= 2 * _FEATURES_OF_TILE * threads
    copies, waiting = (share, threads) if in_place else (2 * share, 0)
    is_linear = isinstance(settings.leaf, LinearLeaf)
    channels = 2 * _SHORT * columns.lanes  # those of all rows, and those gathered of nodes
    judged = _FLOAT * (columns.sketched + 1 + (columns.lanes if is_linear else 0))
    rows = 4 * _FLOAT  # ids of rows, twice, their leaves, and bits
    return RowBytes(
        bins=words
        + math.ceil(copies * words)
        + waiting
        + (_FLOAT * n_features if is_linear else 0),
        state=_FLOAT * (2 * columns.scores + columns.curvatures),
        others=(_FLOAT + _DOUBLE) * columns.of_y + judged + channels + rows,
    )


def histogram_bytes(n_rows: int, n_features: int, columns: Columns, settings: TrainConfig) -> int:
    """Kept for nodes whose turn may come, and those of threads."""
    growth, threads = settings.growth, settings.workers.n_threads
    leaves = min(growth.max_leaves or 2**31, 2 ** min(31, growth.max_depth or 31))
    one = n_features * _BINS * _FLOAT * (columns.lanes + 1)
    of_thread = 3 * _FEATURES_OF_TILE * _BINS * _FLOAT * (columns.lanes + 1)
    if isinstance(settings.leaf, LinearLeaf) and settings.leaf.scores_linear_leaves:
        return threads * of_thread  # whose channels are another node's no more
    least = _ROWS_OF_KEPT * columns.lanes // (columns.lanes + _HALF_AT)
    kept = min(leaves, n_rows // least) + 1  # nodes whose turn may come: no row is in two of them
    return min(growth.histogram_memory_bytes, kept * one) + threads * of_thread


def tree_bytes(columns: Columns, settings: TrainConfig) -> int:
    """Of all rounds."""
    growth, run = settings.growth, settings.boosting
    leaves = min(growth.max_leaves or 2**31, 2 ** min(31, growth.max_depth or 31))
    outputs = columns.scores if columns.trees_of_round == 1 else 1
    one = 2 * leaves * (_NODE + _FLOAT * outputs) + leaves * _FLOAT * outputs
    return run.n_estimators * columns.trees_of_round * one


def row_state(
    problem: BoundObjective, settings: TrainConfig, dataset: Dataset
) -> Callable[..., np.ndarray]:
    """What makes the arrays of raw scores and derivatives, all zero: in memory, or in files where its limit
    asks for that. Bins leave memory first, where they do not fit with what has to stay there.

    Raises
    ------
    ValueError
        Where the limit is too small for what has to stay in memory.
    """
    limit, folder = dataset.memory.limit, dataset.memory.folder
    if limit is None or folder is None:
        return np.zeros
    n_rows, n_features = dataset.n_rows, dataset.mapper.n_columns_
    of_y = 1 if problem.objective.target_kinds == ("classes",) else problem.n_outputs
    columns = count_columns(problem, settings, of_y)
    row = row_bytes(n_features, columns, settings)
    histograms = histogram_bytes(n_rows, n_features, columns, settings)
    needed = n_rows * row.others + histograms + tree_bytes(columns, settings)
    if needed > limit:
        raise ValueError(
            f"memory_limit is {_readable(limit)}, but with bins, scores and derivatives in files this "
            f"training still holds {_readable(needed)}: {_readable(n_rows * row.others)} for targets, "
            f"channels and the places of {n_rows} rows, {_readable(histograms)} for histograms "
            "(histogram_memory), the rest for trees. Allow that much, or train on fewer rows or outputs."
        )
    bins = n_rows * (row.bins + n_features)  # a data set has the codes by feature, too
    if needed + bins > limit:
        dataset.release_memory()
    if needed + (0 if dataset.is_memmapped else bins) + n_rows * row.state <= limit:
        return np.zeros
    return lambda shape, dtype: mapped(shape, dtype, folder)


def _readable(size: int) -> str:
    return f"{size / 2**30:.2f} GiB" if size >= 2**30 else f"{size / 2**20:.1f} MiB"
