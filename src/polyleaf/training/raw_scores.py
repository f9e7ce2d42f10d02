"""Raw scores of training rows and evaluation sets, and the derivatives of the objective there.

`HeavyRows` serves trainings whose Hessians differ by orders of magnitude (heavy-tailed weights and
exposures). Splits are found on 16-bit integers and leaf values on 31-bit ones, in units of the
largest row. Two measures keep the remaining rows from being rounded to zero; other trainings are
not affected.

- No row counts more than `MAX_RATIO` times a light row, the one at the quantile `LIGHT_QUANTILE`:
  the gradients and Hessians of heavier rows are multiplied by a factor below 1. There is no limit
  where enough rows share the weight, as with weights that halve every month: then the light rows
  are those that hardly count. The effective number of rows, (sum w)^2 / sum w^2 (Kish, "Survey
  Sampling", 1965), decides.
- If the heaviest row counts more than `ROUNDING_RATIO` light ones, quantised gradients are rounded
  up or down at random, by a hash of the row, so that sums over many light rows are unbiased where
  each of them would be rounded to 0.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np

import polyleaf._core as _core
from polyleaf.binned_data.dataset import Dataset, TrainingBins
from polyleaf.binned_data.random_rows import (
    ROUNDING,
    derive_seed,
    find_kth_smallest,
    make_hash_keys,
)
from polyleaf.metrics.metric import BoundMetric
from polyleaf.model import Model
from polyleaf.model.leaf_kinds import LEAF_KINDS, Leaves, TreeOutputs
from polyleaf.objectives._utils import (
    apply_rowwise,
    check_hessian_not_zero,
    packed_diagonal,
    packed_lower,
    packed_size,
)
from polyleaf.objectives.base import BoundObjective
from polyleaf.objectives.sparse_multilabel import BoundSparseObjective
from polyleaf.runtime.checks import format_bytes
from polyleaf.runtime.collective import SINGLE_PROCESS, Communicator
from polyleaf.runtime.context import Context
from polyleaf.runtime.row_data import RowData
from polyleaf.runtime.user_warnings import warn_user
from polyleaf.settings.train_config import COUPLED, HessianConfig
from polyleaf.sketching.sketches import Sketch, mean_over_outputs
from polyleaf.training.sampling import TreeSample, count_usable_rows
from polyleaf.user_data.weights import average_weights

MAX_RATIO = 2.0**16
ROUNDING_RATIO = 2.0**11
LIGHT_QUANTILE = 0.1
# Effective rows from which there is no limit: so many, or that share of the rows.
MIN_EFFECTIVE_ROWS, MIN_EFFECTIVE_SHARE = 8, 0.125

# As in the split search of the core: relative gains below it are indistinguishable from rounding.
_MIN_RELATIVE_GAIN = 2.0**-20

# Smallest constant, in scores, of a tree of one leaf that is more than rounding.
MIN_MOVE = 2.0**-16

# Most outputs for which hessian="auto" means one Hessian per output; above, their mean saves K
# histograms.
MAX_DIAGONAL_OUTPUTS = 64

_BLOCK_BINS = 8 * 256  # bins of eight features, which a thread sums at a time


class HeavyRows:
    """Factors of heavy rows, and unbiased rounding.

    `factor` (n_rows, 1) or (n_rows, K), float32: factor of the derivatives of each row; None: 1.
    """

    def __init__(
        self, factor: np.ndarray | None, row_ids: np.ndarray | None, seed: int, workers: Context
    ) -> None:
        self.factor, self._row_ids = factor, row_ids
        self._seed, self._workers = seed, workers

    @staticmethod
    def find(
        size: np.ndarray, row_ids: np.ndarray | None, seed: int, workers: Context
    ) -> HeavyRows | None:
        """Return the measures for rows of these sizes; None if they are not needed.

        `size` (n_rows, 1) or (n_rows, K), float32: Hessian of each row before training, 0 for rows
        without weight. `row_ids` (n_rows,), int64: id of each row among those of all ranks; None:
        its position.
        """
        ratio, limit = np.zeros(size.shape[1]), np.full(size.shape[1], np.inf)
        for k in range(size.shape[1]):
            ratio[k], limit[k] = _measure_column(size[:, k], workers.communicator)
        if not (ratio > ROUNDING_RATIO).any():
            return None
        factor = None
        if ((ratio > MAX_RATIO) & np.isfinite(limit)).any():
            positive = np.maximum(size, np.finfo(np.float32).tiny)
            factor = np.minimum(limit / positive, 1.0).astype(np.float32)
            _warn_of_limit(int((factor < 1).any(axis=1).sum()))
        return HeavyRows(factor, row_ids, seed, workers)

    def round(
        self, values: np.ndarray, sample: TreeSample, outputs: TreeOutputs, stream: int
    ) -> np.ndarray:
        """Return derivatives (n_rows, m) as multiples of the steps by which the core quantises
        them, each rounded up or down at random."""
        keys = []
        for k in range(values.shape[1]):
            seed = derive_seed(self._seed, k, stream + 2 * number_tree(outputs))
            keys.append(make_hash_keys(seed, sample.round, ROUNDING))
        return _core.round_at_random(
            values, sample.rows, sample.multiplier, self._row_ids, np.stack(keys), self._workers
        )


def limit_weights(
    weight: np.ndarray | None, communicator: Communicator = SINGLE_PROCESS
) -> np.ndarray | None:
    """Return weights (n_rows,) of which none is more than `ROUNDING_RATIO` light ones, so that no
    gradient of sparse targets has to be rounded at random."""
    if weight is None:
        return None
    _, limit = _measure_column(weight, communicator)
    limited = np.minimum(weight, np.float32(limit * (ROUNDING_RATIO / MAX_RATIO)))
    if (limited < weight).any():
        _warn_of_limit(int((limited < weight).sum()))
    return limited


def _warn_of_limit(n_rows: int) -> None:
    warn_user(
        f"{n_rows} rows have so much of the weight (sample_weight, or exposure in offset) that "
        "trees could not learn from the others: each of these rows counts as at most "
        f"{MAX_RATIO:.0f} light ones, the row at the tenth percentile of the weights. To have "
        "the weights as they are, leave out the rows that hardly count."
    )


def _measure_column(size: np.ndarray, communicator: Communicator) -> tuple[float, float]:
    """Return the ratio of the largest size and the light one, and the limit of sizes:
    `MAX_RATIO` light ones, or infinity."""
    positive = np.ascontiguousarray(size[size > 0], np.float32)
    ends = np.array([-np.inf, -np.inf])  # minus the smallest, and the largest
    if len(positive) > 0:
        ends[:] = -float(positive.min()), float(positive.max())
    communicator.allreduce_max(ends)
    if ends[1] <= -ends[0] * ROUNDING_RATIO or not np.isfinite(ends).all():
        return 1.0, np.inf
    n = np.array([len(positive)], np.int64)
    communicator.allreduce_sum(n)
    # Positive floats are ordered as their bits.
    rank = max(1, int(np.ceil(LIGHT_QUANTILE * int(n[0]))))
    light = find_kth_smallest(positive.view(np.uint32), rank, communicator).view(np.float32)
    column = np.divide(positive, np.float32(ends[1]))[:, None]
    workers = Context(1, communicator)
    squares, total = _core.exact_totals(column, column, None, 1, workers)[:, 0, 0]
    enough = min(MIN_EFFECTIVE_ROWS, MIN_EFFECTIVE_SHARE * int(n[0]))
    limit = np.inf if total**2 / squares >= enough else float(MAX_RATIO * light)
    return float(ends[1] / light), limit


class LeafAssignment(Protocol):
    """The leaf of every row in a tree: a grower of the core, or what takes its place."""

    @property
    def leaf_of_row(self) -> np.ndarray:
        """Leaf ids, int32 (n_rows,), which the next tree overwrites."""
        ...


class GrownTree(NamedTuple):
    """A tree whose leaves have no values yet.

    `grower`: the grower with the leaves of the rows.
    """

    tree: _core.Tree
    grower: LeafAssignment


class DerivativeMatrices(ABC):
    """Gradients and Hessians at the raw scores: arrays, or matrices of a device.

    What is decided from settings is decided here and in `SplitGradients`, once for the host and
    the device, which only compute differently.

    Attributes
    ----------
    g : matrix of shape (n_rows, K), float32
    h : matrix of shape (n_rows, 1) or (n_rows, K), float32, or None
        None: 1 everywhere, or not used.
    full : matrix of shape (n_rows, K (K + 1) / 2), float32, or None
        Packed Hessian of each row; None if full Hessians are not used.
    leaf_hessian : str
        Kind of Hessian of leaf values.
    gain_scale : ndarray of shape (K,), float64, or None
        Factors of the gradients in the split search; None: 1.
    heavy_rows : HeavyRows or None
        Treatment of rows whose weights differ by orders of magnitude.
    """

    g: Any
    h: Any
    full: Any
    leaf_hessian: str
    gain_scale: np.ndarray | None = None
    heavy_rows: HeavyRows | None = None

    @abstractmethod
    def select(self, outputs: TreeOutputs) -> tuple[Any, Any]:
        """Return gradients and Hessians of the outputs of a tree."""

    @abstractmethod
    def select_weight(self, outputs: TreeOutputs) -> np.ndarray | None:
        """Return what rows count where Hessians are not used, (n_rows, 1) or (n_rows, m); None:
        1."""

    def hold_weight(self, weight: np.ndarray | None, name: str, outputs: TreeOutputs) -> Any:
        """Return weights as a matrix like `g`, which never change for a name and tree."""
        return weight

    @abstractmethod
    def average_outputs(self, h: Any) -> Any:
        """Return one Hessian per row, (n_rows, 1)."""

    @abstractmethod
    def repeat_column(self, h: Any, n: int) -> Any:
        """Return one Hessian per row n times, (n_rows, n)."""

    @abstractmethod
    def sketch(self, sketch: Sketch, g: Any, h: Any, round: int, seed: int) -> tuple[Any, Any]:
        """Return the sketch of gradients and Hessians."""

    def scaled_gradients(
        self, outputs: TreeOutputs, shares_hessian: bool = False, weight: np.ndarray | None = None
    ) -> Any:
        """Return gradients as `select` does, scaled so that gains of all outputs add up.

        `shares_hessian`: whether gains use one Hessian for all outputs: the scale then makes the
        gain of each output on average equal to that with its own Hessian. `weight` (n_rows, 1) or
        (n_rows, K): what rows count in that Hessian, if it differs between outputs.
        """
        raise NotImplementedError  # not on a device, which does not serve such gains

    def select_for_leaves(self, outputs: TreeOutputs) -> tuple[Any, Any]:
        """Return g, and h of 1, K or K (K + 1) / 2 columns or None (1 per row), for leaf values."""
        g, h = self.select(outputs)
        if self.leaf_hessian in COUPLED and self.full is not None:
            return g, self.full
        if self.leaf_hessian == "none":
            return g, self.hold_weight(self.select_weight(outputs), "leaves", outputs)
        return g, h if self.leaf_hessian != "shared" or h is None else self.average_outputs(h)


class Derivatives(DerivativeMatrices):
    """Gradients and Hessians of an objective at the raw scores, in host memory.

    `weight` (n_rows, 1) or (n_rows, K), float32: what a row counts where Hessians are not used;
    None: 1.
    """

    def __init__(
        self,
        bound: BoundObjective,
        config: HessianConfig,
        memory_limit: int,
        workers: Context,
        allocate: Callable[..., np.ndarray] = np.zeros,
    ) -> None:
        n, k = bound.n_rows, bound.n_outputs
        self._bound, self.leaf_hessian, self._workers = bound, config.leaf_hessian, workers
        h_columns, full_columns = hessian_columns(bound, config)
        if full_columns > 0:
            _check_memory(n, k, config, memory_limit)
        self.g = allocate((n, k), np.float32)
        self.full = allocate((n, full_columns), np.float32) if full_columns > 0 else None
        self.h = None if h_columns is None else allocate((n, h_columns), np.float32)
        zero_mask = None if self.h is None else bound.zero_hessian_mask
        self._zero_hessian_mask = zero_mask if zero_mask is not None and zero_mask.any() else None
        self._scales_gains = type(bound).gain_scale is not BoundObjective.gain_scale

    @cached_property
    def weight(self) -> np.ndarray | None:
        weight = self._bound.output_weight
        factor = None if self.heavy_rows is None else self.heavy_rows.factor
        return weight if weight is None or factor is None else weight * factor

    def find_heavy_rows(self, raw: np.ndarray, row_ids: np.ndarray | None, seed: int) -> None:
        """Measure the Hessians at raw scores before training.

        Weights of targets, such as `scale_pos_weight`, are not counted: these weights are meant to
        influence the splits.
        """
        self.compute(raw)
        assert self.h is not None
        size, factor = self.h, self._bound.target_weight
        if factor is not None:
            size = np.divide(size, factor, out=np.zeros_like(factor), where=factor > 0)
        if size.shape[1] > MAX_DIAGONAL_OUTPUTS:
            size = average_weights(size)
        self.heavy_rows = HeavyRows.find(size, row_ids, seed, self._workers)
        if self.heavy_rows is not None and self.heavy_rows.factor is not None:
            self.compute(raw)

    def compute(self, raw: np.ndarray, *tree: Any) -> None:
        """Compute all derivatives at raw scores (n_rows, K), float32; `tree`: `adds_trees`."""
        n_threads = self._workers.n_threads
        if self.full is None:
            self._bound.derivatives(raw, self.g, self.h, n_threads, *tree)
        else:
            self._bound.full_hessian(raw, self.g, self.full, n_threads)
            np.take(self.full, packed_diagonal(self.g.shape[1]), axis=1, out=self.h, mode="clip")
        if self._zero_hessian_mask is not None:
            self._check_hessian(self._zero_hessian_mask)
        if self.heavy_rows is not None and self.heavy_rows.factor is not None:
            self._limit(self.heavy_rows.factor)
        if self._scales_gains:
            self.gain_scale = self._bound.gain_scale(self.g, self.h, n_threads)

    def _limit(self, factor: np.ndarray) -> None:
        """Multiply the derivatives of heavy rows by their factors."""
        assert self.h is not None
        self.g *= factor
        self.h *= factor if self.h.shape[1] >= factor.shape[1] else factor.min(axis=1)[:, None]
        if self.full is not None:
            i, j = packed_lower(self.g.shape[1])
            roots = np.sqrt(np.broadcast_to(factor, self.g.shape))
            self.full *= roots[:, i] * roots[:, j]

    def _check_hessian(self, zero_mask: np.ndarray) -> None:
        """Raise if the Hessian of an output is 0 in all rows of all ranks, but not its gradient."""
        assert self.h is not None
        found = np.zeros((2, self.g.shape[1]), np.int64)
        found[0], found[1] = self.g.any(axis=0), self.h.any(axis=0)
        self._workers.communicator.allreduce_max(found)
        check_hessian_not_zero(zero_mask & (found[0] > found[1]))

    def select(self, outputs: TreeOutputs) -> tuple[np.ndarray, np.ndarray | None]:
        if outputs is None:
            return self.g, self.h
        h = None if self.h is None else extract_columns(self.h, outputs)
        return extract_columns(self.g, outputs), h

    def select_weight(self, outputs: TreeOutputs) -> np.ndarray | None:
        return None if self.weight is None else extract_columns(self.weight, outputs)

    def average_outputs(self, h: np.ndarray) -> np.ndarray:
        return mean_over_outputs(h, self._workers.n_threads)

    def repeat_column(self, h: np.ndarray, n: int) -> np.ndarray:
        return np.repeat(h, n, axis=1)

    def sketch(self, sketch: Sketch, g: Any, h: Any, round: int, seed: int) -> tuple[Any, Any]:
        return sketch.sketch(g, h, round, seed, self._workers.n_threads_or_context)

    def scaled_gradients(
        self, outputs: TreeOutputs, shares_hessian: bool = False, weight: np.ndarray | None = None
    ) -> np.ndarray:
        g, h = self.select(outputs)
        if self.gain_scale is None or (outputs is not None and len(outputs) == 1):
            return g
        scale = self.gain_scale if outputs is None else self.gain_scale[outputs]
        if shares_hessian and h is not None and h.shape[1] > 1:
            total = _core.exact_totals(h, None, None, 1, self._workers)[0, 0]
            if weight is not None and weight.shape[1] > 1:
                counts = _core.exact_totals(weight, None, None, 1, self._workers)[0, 0]
                mean = math.fsum(counts) / len(counts)
                total = total * (mean / np.maximum(counts, np.finfo(np.float32).tiny))
            mean = math.fsum(total) / len(total)
            scale = scale * np.sqrt(mean / np.maximum(total, np.finfo(np.float32).tiny))
        scaled = np.empty_like(g)
        apply_rowwise(np.multiply, g, scale.astype(np.float32), scaled)
        return scaled

    def gradients_cancel_out(self, outputs: TreeOutputs) -> bool:
        """Return whether one step for all rows would gain almost nothing."""
        g = self.scaled_gradients(outputs)
        squares, sums = _core.exact_totals(g, g, None, 1, self._workers)[:, 0]
        n_usable = count_usable_rows(self._bound.n_rows, self._bound.weight)
        return gradients_cancel_out(sums, squares, self._workers.communicator.sum(n_usable))


class DenseScores:
    """Sums of leaf values of some rows.

    `raw` (n_rows, K), float32: raw scores without the base score. `has_outputs`: whether metrics of
    single outputs differ from that of all.
    """

    def __init__(self, raw: np.ndarray, workers: Context) -> None:
        self.raw, self.has_outputs, self._workers = raw, raw.shape[1] > 1, workers

    def copy(self) -> DenseScores:
        """Return an independent copy."""
        return DenseScores(self.raw.copy(), self._workers)

    def add_trees(
        self, forest: _core.Forest, first: int, codes: np.ndarray, features: np.ndarray | None
    ) -> None:
        """Add the trees from `first` on, for rows with these bin codes and, for linear leaves,
        features."""
        forest.predict(codes, self.raw, first, len(forest), self._workers, features)

    def iter_metrics(
        self, rows: RowData, metrics: Sequence[BoundMetric], model: Model
    ) -> Iterator[tuple[BoundMetric, Any]]:
        """Yield each metric of these rows with the prediction that it takes."""
        scores = rows.add_offset(model.to_target_scale(self.raw))
        is_raw = [metric.metric.prediction_type == "raw" for metric in metrics]
        predictions = scores if all(is_raw) else model.objective.transform(scores)
        for metric, takes_raw in zip(metrics, is_raw, strict=True):
            yield metric, scores if takes_raw else predictions


class DenseState:
    """Raw scores and derivatives of all training rows and outputs.

    The objective sees the raw scores with the offset of the rows, plus a temporary change (set by
    `show`) that is not part of predictions, such as an unfinished tree, or trees left out.

    `derivatives`: derivatives at the raw scores of the last `update_derivatives`.
    """

    def __init__(
        self,
        bound: BoundObjective,
        derivatives: Derivatives,
        dataset: Dataset | TrainingBins,
        forest: _core.Forest,
        workers: Context,
        offset: np.ndarray | None = None,
        row_ids: np.ndarray | None = None,
        seed: int = 0,
        allocate: Callable[..., np.ndarray] = np.zeros,
    ) -> None:
        self.bound, self.derivatives, self._allocate = bound, derivatives, allocate
        self._offset = None if offset is None else offset.astype(np.float32)
        self._dataset, self._features, self._workers = dataset, dataset.features, workers
        self._scores: Any = allocate((bound.n_rows, bound.n_outputs), np.float32)
        if len(forest) > 0:
            assert isinstance(dataset, Dataset)
            features = dataset.raw_features() if len(forest.regressors()) > 0 else None
            DenseScores(self._scores, workers).add_trees(forest, 0, dataset.codes, features)
        self._is_stale = True  # raw scores have changed since the derivatives were computed
        if derivatives.h is not None and (bound.weight is not None or offset is not None):
            start = np.zeros_like(self._scores) if self._offset is None else self._offset
            derivatives.find_heavy_rows(start, row_ids, seed)
            self._is_stale = len(forest) > 0
        self._adds_trees = bound.adds_trees and derivatives.full is None and offset is None
        self._shown: Any = None  # the raw scores after a change; None: the raw scores
        self._buffer: Any = None

    @property
    def raw(self) -> np.ndarray:
        """Sums of leaf values (n_rows, K), float32: the same bits that prediction computes."""
        return self._scores

    def update_derivatives(self) -> None:
        """Compute derivatives at the scores that the objective sees, unless they are up to date."""
        if self._is_stale:
            self.derivatives.compute(self.seen_scores())
        self._is_stale = False

    def set_offset(self, offset: np.ndarray) -> None:
        """Replace the offset of the rows, float32 (n_rows, K)."""
        self._offset, self._is_stale = offset, True

    def seen_scores(self, outputs: TreeOutputs = None) -> np.ndarray:
        """Return the scores that the objective sees, of the outputs of a tree."""
        return self._see_columns(self._scores if self._shown is None else self._shown, outputs)

    def show(self, change: Callable[[Any], object] | None) -> None:
        """Let the objective see the raw scores after a change, until the next call.

        `change`: `change(scores)` changes a copy of the raw scores (n_rows, K) in place: an
        ndarray, or the matrix of a device. None: no change.
        """
        self._shown, self._is_stale = None, True
        if change is not None:
            self._shown = self._copy_scores()
            change(self._shown)

    def _copy_scores(self) -> Any:
        """Return a copy of the raw scores, in memory that the next copy uses again."""
        if self._buffer is None:
            self._buffer = self._allocate(self._scores.shape, np.float32)
        np.copyto(self._buffer, self._scores)
        return self._buffer

    def sampling_gradients(self) -> np.ndarray:
        """Return the gradients (n_rows, K) that GOSS samples by."""
        return self.derivatives.scaled_gradients(None)

    def moves_all_rows(self, leaves: Leaves, outputs: TreeOutputs) -> bool:
        """Return whether a single leaf moves all rows."""
        if self.bound.objective.balances_totals and isinstance(leaves, np.ndarray):
            # Its step is undone where the totals agree already.
            return bool(np.abs(leaves).max() > MIN_MOVE)
        return not self._gradients_cancel_out(outputs)

    def _gradients_cancel_out(self, outputs: TreeOutputs) -> bool:
        """Return whether one step for all rows would gain almost nothing."""
        return self.derivatives.gradients_cancel_out(outputs)

    def add_tree(self, grown: GrownTree, leaves: Leaves, outputs: TreeOutputs) -> None:
        """Add a tree to the raw scores."""
        self._add_leaves(self._scores, grown, leaves, outputs)
        self._is_stale = True

    def compute_with_tree(self, grown: GrownTree, leaves: Leaves, outputs: TreeOutputs) -> None:
        """Compute derivatives with an unfinished tree, which the raw scores do not contain."""
        if self._adds_trees and outputs is None:
            self.derivatives.compute(self._scores, grown.grower.leaf_of_row, leaves)
            self._shown, self._is_stale = None, False
        else:
            self.show(lambda scores: self._add_leaves(scores, grown, leaves, outputs))
            self.update_derivatives()

    def scores_with_tree(
        self, grown: GrownTree, leaves: Leaves, outputs: TreeOutputs
    ) -> np.ndarray:
        """Return raw scores with offsets and a tree that they do not contain yet, of the outputs of
        the tree.

        They are a copy, in memory that the next copy uses again.
        """
        scores = self._copy_scores()
        self._add_leaves(scores, grown, leaves, outputs)
        return self._see_columns(scores, outputs)

    def _see_columns(self, scores: Any, outputs: TreeOutputs) -> np.ndarray:
        """Return scores of some outputs with their offsets, in host memory."""
        columns = extract_columns(scores, outputs)
        return columns if self._offset is None else columns + extract_columns(self._offset, outputs)

    def _add_leaves(
        self, scores: Any, grown: GrownTree, leaves: Leaves, outputs: TreeOutputs
    ) -> None:
        leaf_of_row = grown.grower.leaf_of_row
        _core.add_leaf_values(scores, leaf_of_row, leaves, outputs, self._workers, self._features)

    def add_last_tree(self, forest: _core.Forest) -> None:
        """Add the last tree of a forest, which was not grown here, to the raw scores."""
        assert isinstance(self._dataset, Dataset)
        scores = DenseScores(self.raw, self._workers)
        scores.add_trees(forest, len(forest) - 1, self._dataset.codes, self._features)
        self._is_stale = True


def hessian_columns(bound: BoundObjective, config: HessianConfig) -> tuple[int | None, int]:
    """Return the columns of `Derivatives.h`, None for a constant, and of `full`, 0 if it is not
    used."""
    k = bound.n_outputs
    if k > 1 and config.is_coupled:
        return k, packed_size(k)
    shape = bound.hessian_shape()
    return None if shape is None else shape[1], 0


def gradients_cancel_out(sums: np.ndarray, squares: np.ndarray, n_rows: int) -> bool:
    """Return whether gradients leave no step to take, given their sums and sums of squares over
    the rows.

    With a Hessian of 1, one step for all rows gains sum^2 / n; separate steps of all rows gain the
    squares.
    """
    return math.fsum(sums**2) <= _MIN_RELATIVE_GAIN * n_rows * math.fsum(squares)


def extract_columns(matrix: np.ndarray, outputs: TreeOutputs) -> np.ndarray:
    """Return a contiguous copy of the columns of some outputs.

    All outputs, and a matrix of one column for all of them, are returned as they are.
    """
    if outputs is None or matrix.shape[1] == 1:
        return matrix
    if len(outputs) == 1:
        return np.ascontiguousarray(matrix[:, outputs[0] : outputs[0] + 1])
    return np.take(matrix, outputs, axis=1)


def number_tree(outputs: TreeOutputs) -> int:
    """Return a number that differs between the trees of a round: 0 for one of all outputs."""
    return 0 if outputs is None else int(outputs[0]) + 1


def _check_memory(n_rows: int, n_outputs: int, config: HessianConfig, limit: int) -> None:
    """Raise if full Hessians do not fit in the memory limit of the user.

    They are stored as float32, and for splits as quantised 16-bit gradients too, which each thread
    sums into the bins of eight features at a time. The size is that of one thread, so that the
    number of threads does not decide whether a model can be trained.
    """
    entries = packed_size(n_outputs)
    needed = 4 * n_rows * entries
    if config.hessian in COUPLED:
        needed += (2 * n_rows + 4 * _BLOCK_BINS) * (entries + n_outputs)
    if needed > limit:
        raise ValueError(
            f"Full Hessians of {n_rows} rows and {n_outputs} outputs have {entries} entries per "
            f"row and need at least {format_bytes(needed)}, more than histogram_memory "
            f'({format_bytes(limit)}). Raise histogram_memory, or use "diagonal" for hessian and '
            "leaf_hessian."
        )


class SparseScores:
    """Sums of sparse leaf values of some rows, and of their offset, a csr_matrix."""

    has_outputs = False

    def __init__(self, scores: _core.SparseRawScores, workers: Context, offset: Any = None) -> None:
        self.scores, self._workers = scores, workers
        if offset is not None:  # each row is a leaf
            start = offset.sorted_indices().astype(np.float32)
            arrays = start.indptr.astype(np.int64), start.indices.astype(np.int32), start.data
            leaves = _core.TopkLeaves(*arrays, start.shape[1])
            self.add_tree(np.arange(start.shape[0], dtype=np.int32), leaves)

    def add_tree(self, leaf_of_row: np.ndarray, leaves: Any) -> None:
        """Add a tree."""
        self.scores.add(leaf_of_row, leaves, self._workers)

    def add_trees(
        self, forest: _core.Forest, first: int, codes: np.ndarray, features: np.ndarray | None
    ) -> None:
        """Add the trees from `first` on, for rows with these bin codes."""
        for t in range(first, len(forest)):
            if not LEAF_KINDS[forest.kind(t)].lists_outputs:
                raise ValueError(
                    "init_model has leaves that hold all outputs, which cannot be continued on "
                    "sparse targets."
                )
            leaf_of_row = forest.apply(codes, t, t + 1, self._workers).ravel()
            self.add_tree(leaf_of_row, forest.values(t))

    def iter_metrics(
        self, rows: RowData, metrics: Sequence[BoundMetric], model: Model
    ) -> Iterator[tuple[BoundMetric, Any]]:
        """Yield each metric of these rows with the best labels of each."""
        if not metrics:
            return
        best = self.scores.topk(max(metric.metric.function.k for metric in metrics), self._workers)
        for metric in metrics:
            yield metric, best


def make_scores(
    bound: BoundObjective | BoundSparseObjective, workers: Context, n_rows: int, offset: Any
) -> DenseScores | SparseScores:
    """Return raw scores of rows that are not trained on, without trees.

    They are 0 for dense targets, whose offset is added when metrics are computed, and the offset
    for sparse ones.
    """
    if isinstance(bound, BoundSparseObjective):
        scores = _core.SparseRawScores(n_rows, bound.n_outputs)
        return SparseScores(scores, workers, offset)
    return DenseScores(np.zeros((n_rows, bound.n_outputs), np.float32), workers)


class SparseState:
    """Raw scores and gradients of all training rows, for the labels that a row has or was
    predicted.

    `weight` (n_rows,), float32: weight, and Hessian, of each row. `gradients`: gradients at the raw
    scores of the last `update_derivatives`; None once the scores have changed, because both are
    large.
    """

    def __init__(
        self,
        bound: BoundSparseObjective,
        dataset: Dataset | TrainingBins,
        forest: _core.Forest,
        workers: Context,
        offset: object = None,
    ) -> None:
        self._bound, self._dataset, self._workers = bound, dataset, workers
        self.weight = bound.weight
        self._scores = SparseScores(bound.make_raw_scores(workers.n_threads), workers, offset)
        if len(forest) > 0:
            assert isinstance(dataset, Dataset)
            self._scores.add_trees(forest, 0, dataset.codes, None)
        self.gradients: Any = None

    def update_derivatives(self) -> None:
        """Compute gradients at the raw scores, unless they are up to date."""
        if self.gradients is None:
            self.gradients = self._bound.gradients(self._scores.scores, self._workers.n_threads)

    def sampling_gradients(self) -> np.ndarray:
        """Return the gradient norms (n_rows,) that GOSS samples by."""
        return self.gradients.norms(self._workers)

    def moves_all_rows(self, leaves: Leaves, outputs: TreeOutputs) -> bool:
        """Return whether a single leaf moves all rows: whether one step for all rows gains."""
        _, _, values = self.gradients.csr()
        squares = _core.exact_totals(values[:, None], values[:, None], None, 1, self._workers)[0, 0]
        n_usable = count_usable_rows(self._bound.n_rows, self.weight)
        n_rows = self._workers.communicator.sum(n_usable)
        return not gradients_cancel_out(self.gradients.totals(self._workers), squares, n_rows)

    def add_tree(self, grown: GrownTree, leaves: Leaves, outputs: TreeOutputs) -> None:
        """Add a tree to the raw scores."""
        self.gradients = None
        self._scores.add_tree(grown.grower.leaf_of_row, leaves)

    def add_last_tree(self, forest: _core.Forest) -> None:
        """Add the last tree of a forest, which was not grown here, to the raw scores."""
        assert isinstance(self._dataset, Dataset)
        self.gradients = None
        self._scores.add_trees(forest, len(forest) - 1, self._dataset.codes, None)
