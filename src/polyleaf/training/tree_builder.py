"""Tree building: derivatives for splits, one of the core's searches, the grower, and layers.

With `boosting_step="layer"`, every layer of a tree is a step of boosting (TFBT, section V).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Protocol

import numpy as np

import polyleaf._core as _core
from polyleaf.binned_data.random_rows import SCORED_ROWS, derive_seed
from polyleaf.model import Model
from polyleaf.model.leaf_kinds import Leaves, TreeOutputs
from polyleaf.runtime.timing import measure_phase
from polyleaf.settings.train_config import COUPLED, TopkLeaf, TrainConfig
from polyleaf.sketching.sketches import CountSketch, Sketch
from polyleaf.training.balance import Balance
from polyleaf.training.leaf_fitters import LeafFitter, MonotoneFitter, make_leaf_config
from polyleaf.training.raw_scores import (
    MAX_DIAGONAL_OUTPUTS,
    DenseState,
    DerivativeMatrices,
    Derivatives,
    GrownTree,
    SparseState,
    extract_columns,
    number_tree,
)
from polyleaf.training.sampling import Sampler, TreeSample
from polyleaf.user_data.weights import average_weights

# Columns of the count-sketch that proposes splits for sparse targets, chosen by measurement.
LABEL_SKETCH_DIM = 32


class SplitFinder(Protocol):
    """A search of the core with its input."""

    def configure(self, sample: TreeSample, outputs: TreeOutputs) -> _core.Search:
        """Return the search, set up for the next tree or layer."""
        ...


class TreeBuilder:
    """Grows trees, at once or layer by layer.

    `leaf_limits`: fields of `_core.SplitConfig` that limit leaf values in split gains.
    `gain_factors` (n_columns,): factors of gains, from `feature_penalties`.
    """

    def __init__(
        self,
        grower: _core.Grower,
        finder: SplitFinder,
        leaf_limits: Mapping[str, Any],
        gain_factors: np.ndarray | None,
        settings: TrainConfig,
    ) -> None:
        growth, regularisation = settings.growth, settings.regularisation
        self._finder, self._grower, self._growth = finder, grower, growth
        split = _core.SplitConfig(
            reg_lambda=regularisation.reg_lambda,
            min_split_gain=growth.min_split_gain,
            min_child_weight=growth.min_child_weight,
            min_child_samples=growth.min_child_samples,
            max_cat_to_onehot=growth.max_cat_to_onehot,
            cat_smooth=growth.cat_smooth,
            block_size=settings.hessian.split_block_size,
            **leaf_limits,
        )
        self._config_fields: dict[str, Any] = {
            "split": split,
            "max_leaves": growth.max_leaves if growth.max_leaves is not None else 2**31 - 1,
            "max_depth": growth.max_depth if growth.max_depth is not None else -1,
            "level_wise": growth.grow_policy == "depthwise",
            "post_prune": growth.pruning == "post",
            "colsample_bynode": growth.colsample_bynode,
            "histogram_memory": growth.histogram_memory,
            "factors": gain_factors,
        }
        self._config = _core.GrowConfig(seed=0, **self._config_fields)

    def grow(self, sample: TreeSample, outputs: TreeOutputs) -> GrownTree:
        """Grow one tree."""
        search = self._configure(sample, outputs)
        tree = self._grower.grow(search, self._make_config(sample.round, outputs), sample.features)
        search.reset()  # frees memory before scores and leaves are computed
        return GrownTree(tree, self._grower)

    # --- layer by layer: begin, then split, get_tree, evaluate in turn, finish ---

    def begin(self, sample: TreeSample, outputs: TreeOutputs) -> None:
        """Find the best split of the root of a tree."""
        search = self._configure(sample, outputs)
        self._grower.begin(search, self._make_config(sample.round, outputs), sample.features)

    def split(self) -> bool:
        """Split the nodes of the next layer; return False if growth has ended."""
        return self._grower.split()

    def get_tree(self) -> GrownTree:
        """Return the tree grown so far."""
        return GrownTree(self._grower.assign_leaf_ids(), self._grower)

    @property
    def can_split_further(self) -> bool:
        """Whether the nodes of the last `split` may have children."""
        return self._grower.can_split_further

    def evaluate(self, sample: TreeSample, outputs: TreeOutputs) -> None:
        """Find the best splits of the nodes of the last `split`."""
        self._configure(sample, outputs)
        self._grower.evaluate()

    def finish(self) -> GrownTree:
        """Return the finished tree, after post-pruning."""
        return GrownTree(self._grower.finish(), self._grower)

    @property
    def node_of_leaf(self) -> np.ndarray:
        """Node of each leaf of the tree, by node ids before pruning."""
        return self._grower.node_of_leaf

    def _configure(self, sample: TreeSample, outputs: TreeOutputs) -> _core.Search:
        with measure_phase("quantisation"):
            return self._finder.configure(sample, outputs)

    def _make_config(self, round: int, outputs: TreeOutputs) -> _core.GrowConfig:
        if self._growth.colsample_bynode >= 1:  # no random numbers, and seeds take time to make
            return self._config
        seed = derive_seed(self._growth.seed, round, number_tree(outputs))
        return _core.GrowConfig(seed=seed, **self._config_fields)


class SplitGradients:
    """Gradients and Hessians in the form that histograms sum, in host memory or on a device."""

    def __init__(
        self, derivatives: DerivativeMatrices, sketch: Sketch | None, settings: TrainConfig
    ) -> None:
        self._derivatives, self._sketch, self._workers = derivatives, sketch, settings.workers
        self._hessian, self._seed = settings.hessian.hessian, settings.sampling.seed
        self._averages_weights = sketch is not None or settings.leaf.shares_weights

    def select(self, sample: TreeSample, outputs: TreeOutputs) -> tuple[str, Any, Any]:
        """Return the kind of Hessian, gradients and Hessians of the outputs of a tree."""
        derivatives, sketch = self._derivatives, self._sketch
        g, h = derivatives.select(outputs)
        kind = resolve_hessian_kind(self._hessian, None if h is None else h.shape[1], g.shape[1])
        if derivatives.gain_scale is not None:
            shares_hessian = kind in ("none", "shared") or sketch is not None
            weight = self._select_weight(outputs) if kind == "none" else None
            g = derivatives.scaled_gradients(outputs, shares_hessian, weight)
        if sketch is not None:
            h = None if self._hessian == "none" else h
            g, h = derivatives.sketch(sketch, g, h, sample.round, self._seed)
            kind = resolve_hessian_kind(
                self._hessian, None if h is None else h.shape[1], g.shape[1]
            )
        if kind == "full":
            h = derivatives.full
        elif kind == "none" or h is None:
            kind, h = count_hessian(g.shape[0], self._select_weight(outputs), sample)
            h = derivatives.hold_weight(h, "splits", outputs)
        elif kind == "shared":
            h = derivatives.average_outputs(h)
        elif h.shape[1] < g.shape[1]:
            h = derivatives.repeat_column(h, g.shape[1])
        if derivatives.heavy_rows is not None:
            g = derivatives.heavy_rows.round(g, sample, outputs, stream=0)
            h = None if h is None else derivatives.heavy_rows.round(h, sample, outputs, stream=1)
        return kind, g, h

    def _select_weight(self, outputs: TreeOutputs) -> np.ndarray | None:
        weight = self._derivatives.select_weight(outputs)
        return average_weights(weight) if self._averages_weights and weight is not None else weight


class HistogramSplitFinder:
    """Splits by histograms of quantised gradients of all outputs, or of the columns of a sketch.

    `quantised`: those of the core, which each tree overwrites.

    `quantises_nodes`: whether gradients are quantised anew in every node.
    """

    def __init__(
        self,
        bins: _core.Bins,
        derivatives: Derivatives,
        sketch: Sketch | None,
        quantised: _core.QuantisedGradients | _core.LinearGradients,
        monotone: np.ndarray | None,
        settings: TrainConfig,
    ) -> None:
        self.gradients = SplitGradients(derivatives, sketch, settings)
        self.quantises_nodes = isinstance(quantised, _core.LinearGradients)
        self._quantised, self._workers = quantised, settings.workers
        self._search, self._monotone = _core.HistogramSearch(bins, settings.workers), monotone

    def configure(self, sample: TreeSample, outputs: TreeOutputs) -> _core.Search:
        if self._monotone is not None:
            self._search.set_monotone_constraints(extract_columns(self._monotone, outputs))
        kind, g, h = self.gradients.select(sample, outputs)
        self._quantised.quantise(g, h, kind, sample.rows, sample.multiplier, self._workers)
        self._search.use(self._quantised)
        return self._search


class VerifiedSplitFinder:
    """Splits for sparse targets: proposed by histograms of a count-sketch, chosen by exact
    gains."""

    def __init__(
        self,
        bins: _core.Bins,
        state: SparseState,
        leaf: TopkLeaf,
        row_ids: np.ndarray | None,
        settings: TrainConfig,
    ) -> None:
        self._state, self._leaf, self._row_ids = state, leaf, row_ids
        self._workers = settings.workers
        self._step = make_leaf_config(settings.regularisation)
        self._seed = settings.sampling.seed
        self._sketch = CountSketch(settings.boosting.sketch_dim or LABEL_SKETCH_DIM)
        self._quantised = _core.QuantisedGradients()
        histograms = _core.HistogramSearch(bins, self._workers)
        self._search = _core.VerifiedSearch(histograms, self._workers)

    @property
    def weight(self) -> np.ndarray | None:
        """Weights of the rows, which are their Hessians; None: 1."""
        return self._state.weight

    def configure(self, sample: TreeSample, outputs: TreeOutputs) -> _core.Search:
        gradients, weight = self._state.gradients, self._state.weight
        g = self._sketch.sketch_labels(gradients, sample.round, self._seed, self._workers.n_threads)
        columns = None if weight is None else weight.reshape(-1, 1)
        kind, h = count_hessian(len(g), columns, sample)
        self._quantised.quantise(g, h, kind, sample.rows, sample.multiplier, self._workers)
        seed = derive_seed(self._seed, sample.round, SCORED_ROWS)
        self._search.use(
            gradients, weight, self._quantised, self._step, self._leaf.leaf_k, self._row_ids, seed
        )
        return self._search


class ExactSplitFinder:
    """Splits for sparse targets by exact gains of every feature (GBDT-SPARSE, Algorithm 1)."""

    def __init__(
        self, bins: _core.Bins, state: SparseState, leaf: TopkLeaf, settings: TrainConfig
    ) -> None:
        self._state, self._leaf = state, leaf
        self._step = make_leaf_config(settings.regularisation)
        self._search = _core.ExactSearch(bins, settings.workers)

    @property
    def weight(self) -> np.ndarray | None:
        """Weights of the rows, which are their Hessians; None: 1."""
        return self._state.weight

    def configure(self, sample: TreeSample, outputs: TreeOutputs) -> _core.Search:
        self._search.use(
            self._state.gradients,
            self._state.weight,
            sample.rows,
            sample.multiplier,
            self._step,
            self._leaf.leaf_k,
            self._leaf.threshold_step,
        )
        return self._search


def count_hessian(
    n_rows: int, weight: np.ndarray | None, sample: TreeSample
) -> tuple[str, np.ndarray | None]:
    """Return the kind and the Hessian of rows that count 1, or their weight (n_rows, 1 or K)."""
    if weight is None:
        is_unit = sample.multiplier is None
        return ("unit", None) if is_unit else ("shared", np.ones((n_rows, 1), np.float32))
    if 1 < weight.shape[1] <= MAX_DIAGONAL_OUTPUTS:
        return "diagonal", weight
    return "shared", average_weights(weight)


def resolve_hessian_kind(hessian: str, h_columns: int | None, n_outputs: int) -> str:
    """Return the Hessian that split gains use: "none", "shared", "diagonal" or "full".

    "auto" is "none" if the Hessian of the objective is constant; "shared" if one column serves all
    outputs, or there is only one, or more than `MAX_DIAGONAL_OUTPUTS`; "diagonal" otherwise.
    "block" reads full Hessians.

    `hessian`: parameter of the estimator. `h_columns`: columns of the objective's Hessian; None: it
    is constant.
    """
    if hessian == "none" or h_columns is None:
        return "none"
    if n_outputs == 1:
        return "shared"
    if hessian in COUPLED:
        return "full"
    if hessian == "auto":
        hessian = "diagonal" if 1 < h_columns <= MAX_DIAGONAL_OUTPUTS else "shared"
    return hessian


class LayerBooster:
    """Builds trees layer by layer.

    A node adds its own step to those of its ancestors; the leaves of the finished tree hold the
    sums.

    `state`, `builder`, `fitter`, `sampler`, `model`: components of the training.
    `report_layer(round, tree, leaves)` is called after every layer but the last of a tree of all
    outputs.
    """

    def __init__(
        self,
        state: DenseState,
        builder: TreeBuilder,
        fitter: LeafFitter,
        sampler: Sampler,
        model: Model,
        report_layer: Callable[[int, _core.Tree, Callable[[], Leaves]], object],
        balance: Balance | None = None,
    ) -> None:
        self._balance = balance
        self._state, self._builder = state, builder
        # Monotone constraints apply to sums of steps, not to the steps of new nodes.
        self._monotone = fitter if isinstance(fitter, MonotoneFitter) else None
        self._fitter = fitter.base_fitter if isinstance(fitter, MonotoneFitter) else fitter
        self._sampler, self._model, self._report_layer = sampler, model, report_layer

    def build_tree(self, sample: TreeSample, outputs: TreeOutputs) -> tuple[GrownTree, Leaves]:
        """Return one tree and its leaves."""
        state, builder, layer, leaves = self._state, self._builder, 0, np.empty(0, np.float32)
        # Sums of steps of each node of the tree, ancestors included.
        sums = np.zeros((1, self._model.n_outputs if outputs is None else len(outputs)), np.float32)
        layer_sample = sample
        builder.begin(sample, outputs)
        while builder.split():
            layer += 1
            grown = builder.get_tree()
            with measure_phase("leaf values"):
                steps = self._fitter.fit(grown, layer_sample, outputs, self._model.learning_rate)
                sums = _add_steps(sums, grown.tree, steps)
                leaves = self._complete_sums(sums, grown, layer_sample, outputs)
            if not builder.can_split_further:
                break
            if outputs is None:
                make_leaves = partial(self._add_balance, grown, leaves, outputs)
                self._report_layer(sample.round, grown.tree, make_leaves)
            with measure_phase("derivatives"):
                state.compute_with_tree(grown, leaves, outputs)
            layer_sample = self._sampler.draw(state.sampling_gradients, sample.round, layer)
            builder.evaluate(layer_sample, outputs)
        grown = builder.finish()
        state.show(None)
        if len(sums) == 1:  # no split was found: one step for all rows, as for a tree of one leaf
            step = self._fitter.fit(grown, sample, outputs, self._model.learning_rate)
            return grown, self._add_balance(grown, step, outputs)
        leaves = self._complete_sums(sums, grown, sample, outputs)
        return grown, self._add_balance(grown, leaves, outputs)

    def _complete_sums(
        self, sums: np.ndarray, grown: GrownTree, sample: TreeSample, outputs: TreeOutputs
    ) -> np.ndarray:
        """Project the sums of the current leaves to monotone constraints, in place, and return
        them."""
        nodes = self._builder.node_of_leaf
        if self._monotone is not None:
            sums[nodes] = self._monotone.project(sums[nodes], grown, sample, outputs)
        return sums[nodes]

    def _add_balance(self, grown: GrownTree, leaves: Leaves, outputs: TreeOutputs) -> Leaves:
        """Return balanced leaves of a whole tree: the next layer goes on from its steps alone, so
        that the layers do not depend on nodes that are pruned at the end."""
        if self._balance is None:
            return leaves
        return self._balance.apply(grown, leaves, outputs)


def _add_steps(sums: np.ndarray, tree: _core.Tree, steps: Any) -> np.ndarray:
    """Return the sums of steps of all nodes of a tree, (n_nodes, K or 1), float32.

    `sums` are those of the older nodes; `steps` are those of the leaves, of which the new ones
    count. The last split has made them, a pair for each parent, in the order of the parents.
    """
    n_older = len(sums)
    parents = np.repeat(np.flatnonzero(tree.left >= n_older), 2)
    return np.concatenate([sums, sums[parents] + steps[tree.leaf[n_older:]]])
