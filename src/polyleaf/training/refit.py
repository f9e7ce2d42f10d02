"""Refit: the boosting loop on other rows, with known trees in place of the split search.

Every leaf kind, objective and boosting step is fitted by the training code itself. Only the tree
builder differs: `KnownTreeBuilder` sends the rows down the trees of a model. On the training rows
the result is therefore the model itself, bit for bit.
"""

from __future__ import annotations

from functools import cached_property
from numbers import Real
from typing import NamedTuple

import numpy as np

import polyleaf._core as _core
from polyleaf.binned_data.dataset import Dataset
from polyleaf.model import Model
from polyleaf.model.leaf_kinds import DENSE, LEAF_KINDS, Leaves, TreeOutputs
from polyleaf.model.storage import NODE_ARRAYS, iter_trees
from polyleaf.model.trees import node_depths
from polyleaf.objectives._utils import packed_diagonal
from polyleaf.runtime.context import Context
from polyleaf.settings.train_config import TrainConfig
from polyleaf.training.leaf_fitters import LeafFitter, MonotoneFitter
from polyleaf.training.raw_scores import GrownTree, extract_columns, number_tree
from polyleaf.training.sampling import TreeSample
from polyleaf.training.tree_builder import (
    ExactSplitFinder,
    HistogramSplitFinder,
    LayerBooster,
    SplitFinder,
    TreeBuilder,
    VerifiedSplitFinder,
)


class KnownTrees(NamedTuple):
    """The model whose trees are refitted, and the share of its old values in the new ones."""

    model: Model
    decay_rate: float | np.ndarray  # (n_scores,) where outputs differ


def check_decay_rate(decay_rate: object) -> None:
    """Raise a ValueError unless this is a share."""
    if not (isinstance(decay_rate, Real) and 0 <= float(decay_rate) <= 1):
        raise ValueError(f"decay_rate must be a number from 0 to 1, got {decay_rate!r}.")


def check_leaf_kinds(forest: _core.Forest, settings: TrainConfig) -> None:
    """Raise a ValueError for trees with another kind of leaves than the settings."""
    kind = settings.leaf.kind.name
    for t in range(len(forest)):
        if forest.kind(t) != kind:
            old, new = (
                "constant" if name == DENSE.name else name for name in (forest.kind(t), kind)
            )
            raise ValueError(
                f"leaf={new!r} cannot refit tree {t}, which has leaf={old!r}: set leaf={old!r}, as "
                "in training."
            )


class _Nodes:
    """The nodes of a known tree, and where they lie."""

    def __init__(self, tree: _core.Tree) -> None:
        self.tree = tree
        self.node_of_leaf = np.empty(tree.n_leaves, np.intp)
        leaves = np.flatnonzero(tree.left < 0)
        self.node_of_leaf[tree.leaf[leaves]] = leaves

    @cached_property
    def depth(self) -> np.ndarray:
        return node_depths(self.tree)

    @cached_property
    def parent(self) -> np.ndarray:
        parent = np.full(self.tree.n_nodes, -1)
        inner = np.flatnonzero(self.tree.left >= 0)
        parent[self.tree.left[inner]] = parent[self.tree.right[inner]] = inner
        return parent

    def find_ancestors(self, depth: int) -> np.ndarray:
        """Return the node above each leaf at this depth, or the leaf itself if it is higher."""
        nodes = self.node_of_leaf.copy()
        for _ in range(self.depth.max() - depth):
            deep = self.depth[nodes] > depth
            nodes[deep] = self.parent[nodes[deep]]
        return nodes

    def cut(self, depth: int) -> tuple[_core.Tree, np.ndarray, np.ndarray]:
        """Return the tree down to this depth, its leaf below each leaf of the tree, and the nodes
        of its leaves."""
        tree, n_nodes = self.tree, int(np.count_nonzero(self.depth <= depth))
        arrays = {name: getattr(tree, name)[:n_nodes].copy() for name in NODE_ARRAYS}
        gains = tree.output_gain[:n_nodes].copy()
        is_leaf = (tree.left[:n_nodes] < 0) | (self.depth[:n_nodes] == depth)
        for name, value in _LEAF_NODE.items():
            arrays[name][is_leaf] = value
        gains[is_leaf] = 0
        arrays["leaf"] = np.where(is_leaf, np.cumsum(is_leaf) - 1, -1).astype(np.int32)
        used = arrays["category_set"].max(initial=-1) + 1
        cut = _make_tree(tree, arrays, gains, tree.categories[:used])
        return cut, arrays["leaf"][self.find_ancestors(depth)], np.flatnonzero(is_leaf)


_LEAF_NODE: dict[str, object] = {
    "feature": -1,
    "threshold": -1,
    "missing_left": False,
    "left": -1,
    "right": -1,
    "category_set": -1,
    "gain": 0.0,
}


def _make_tree(
    tree: _core.Tree, arrays: dict[str, np.ndarray], gains: np.ndarray, sets: np.ndarray
) -> _core.Tree:
    n_features = int(arrays["feature"].max(initial=0)) + 1
    return _core.Tree.from_arrays(
        **arrays, categories=sets, output_gain=gains, n_features=n_features
    )


def _select_codes(dataset: Dataset, forest: _core.Forest) -> tuple[np.ndarray, _core.Forest]:
    """Return codes of the features that trees split on, and trees with the numbers of these.

    With sparse features, which are many, only these few become dense.
    """
    features = np.union1d(forest.split_features(0, len(forest)), [0])
    codes = dataset.select_codes(features)
    if codes is None:
        return dataset.codes, forest
    splits = _core.Forest(1)
    for tree, _, _ in iter_trees(forest):
        arrays = {name: getattr(tree, name) for name in NODE_ARRAYS}
        numbers = np.searchsorted(features, tree.feature)
        arrays["feature"] = np.where(tree.feature < 0, -1, numbers).astype(np.int32)
        renumbered = _make_tree(tree, arrays, tree.output_gain, tree.categories)
        splits.append(renumbered, np.zeros((tree.n_leaves, 1), np.float32))
    return codes, splits


class KnownTreeBuilder(TreeBuilder):
    """Sends rows down the trees of a model, one tree after another, at once or layer by layer.

    `forest`: the trees, with their old leaf values, whose share in the new ones is `decay_rate`.
    `finder`: source of the Hessians that the nodes count. `output_weight` (n_rows, 1): weights of
    the outputs of each row. `leaf_of_row` (n_rows,): leaf of every row in the last tree or layer.
    """

    def __init__(
        self,
        forest: _core.Forest,
        decay_rate: float | np.ndarray,
        dataset: Dataset,
        finder: SplitFinder,
        output_weight: np.ndarray | None,
        workers: Context,
    ) -> None:
        self._forest, self._decay_rate = forest, decay_rate
        self._codes, self._splits = _select_codes(dataset, forest)
        self._finder, self._workers = finder, workers
        has_columns = output_weight is not None and output_weight.shape[1] > 1
        self._weight = output_weight if has_columns else None
        self._number = -1

    # --- the interface of TreeBuilder ---

    def grow(self, sample: TreeSample, outputs: TreeOutputs) -> GrownTree:
        self._read_next(outputs)
        self._statistics = self._measure(sample, outputs)
        return self._finish()

    def begin(self, sample: TreeSample, outputs: TreeOutputs) -> None:
        self._read_next(outputs)
        self._layer = 0
        depth, left = self._nodes.depth, self._nodes.tree.left
        if np.any(np.diff(depth) < 0) or np.any(np.diff(left[left >= 0]) < 0):
            raise ValueError(
                f"Tree {self._number} was not grown by level, so it cannot be refitted with "
                'boosting_step="layer": set boosting_step to that of the training.'
            )
        self._statistics = self._measure(sample, outputs)

    def split(self) -> bool:
        if not self.can_split_further:
            return False
        self._layer += 1
        return True

    def get_tree(self) -> GrownTree:
        tree, leaf_of_leaf, self._node_of_leaf = self._nodes.cut(self._layer)
        self.leaf_of_row = leaf_of_leaf[self._last_leaves]
        return GrownTree(tree, self)

    @property
    def can_split_further(self) -> bool:
        return self._layer < int(self._nodes.depth.max())

    def evaluate(self, sample: TreeSample, outputs: TreeOutputs) -> None:
        new = self._nodes.depth > self._layer
        for kept, renewed in zip(self._statistics, self._measure(sample, outputs), strict=True):
            kept[new] = renewed[new]

    def finish(self) -> GrownTree:
        return self._finish()

    @property
    def node_of_leaf(self) -> np.ndarray:
        return self._node_of_leaf

    # --- leaves ---

    def blend(self, leaves: Leaves, sample: TreeSample, outputs: TreeOutputs) -> Leaves:
        """Return leaves with their share of the old values; those that no row has trained keep
        them."""
        counts, decay = self._count_trained(sample, outputs), np.asarray(self._decay_rate)
        if decay.ndim and outputs is not None:
            decay = decay[outputs]
        if not decay.any() and counts.all():
            return leaves
        share = np.where(counts > 0, decay, 1.0)
        kind = LEAF_KINDS[self._forest.kind(self._number)]
        return kind.blend(self._forest.values(self._number), leaves, share)

    def _count_trained(self, sample: TreeSample, outputs: TreeOutputs) -> np.ndarray:
        """Return how many rows train each leaf, or each of its outputs where weights differ."""
        counts = self._statistics[0][self._nodes.node_of_leaf][:, None]
        if self._weight is None:
            return counts
        weight = extract_columns(self._weight, outputs)
        leaves = self._last_leaves
        if sample.rows is not None:
            weight, leaves = weight[sample.rows], leaves[sample.rows]
        counts = np.zeros((len(counts), weight.shape[1]), np.int64)
        for k in range(weight.shape[1]):
            counts[:, k] = np.bincount(leaves[weight[:, k] > 0], minlength=len(counts))
        self._workers.communicator.allreduce_sum(counts)
        return counts

    # --- statistics of nodes ---

    def _read_next(self, outputs: TreeOutputs) -> None:
        self._number += 1
        t = self._number
        assert number_tree(self._forest.outputs(t)) == number_tree(outputs)
        self._nodes = _Nodes(self._forest.tree(t))
        self._last_leaves = self._splits.apply(self._codes, t, t + 1, self._workers).ravel()
        self.leaf_of_row = self._last_leaves

    def _finish(self) -> GrownTree:
        """Return the tree with the rows and Hessians of its nodes."""
        tree, self.leaf_of_row = self._nodes.tree, self._last_leaves
        self._node_of_leaf = self._nodes.node_of_leaf
        arrays = {name: getattr(tree, name) for name in NODE_ARRAYS}
        arrays["count"], arrays["cover"] = self._statistics
        return GrownTree(_make_tree(tree, arrays, tree.output_gain, tree.categories), self)

    def _measure(self, sample: TreeSample, outputs: TreeOutputs) -> tuple[np.ndarray, np.ndarray]:
        """Return the number of rows and the sum of Hessians of each node, int64 and float64."""
        workers, finder = self._workers, self._finder
        sums = _core.NodeSums(
            self._nodes.tree, self._last_leaves, sample.rows, sample.multiplier, workers
        )
        if not isinstance(finder, HistogramSplitFinder):
            assert isinstance(finder, ExactSplitFinder | VerifiedSplitFinder)
            return sums.counts, sums.weights(finder.weight, workers)
        kind, g, h = finder.gradients.select(sample, outputs)
        if kind == "full":
            h = np.ascontiguousarray(h[:, packed_diagonal(g.shape[1])])
        return sums.counts, sums.hessians(h, finder.quantises_nodes, workers)


class BlendingFitter:
    """Leaf values of another fitter, blended with the old ones of a `KnownTreeBuilder`.

    `monotone`: constraints, which blends with leaves that no row has trained may violate.
    """

    def __init__(
        self, fitter: LeafFitter, builder: KnownTreeBuilder, monotone: MonotoneFitter | None
    ) -> None:
        self._fitter, self._builder, self._monotone = fitter, builder, monotone

    def fit(
        self, grown: GrownTree, sample: TreeSample, outputs: TreeOutputs, rate: float
    ) -> Leaves:
        """Return the leaves of one tree, see `LeafFitter`."""
        fitted = self._fitter.fit(grown, sample, outputs, rate)
        return self.blend(fitted, grown, sample, outputs)

    def blend(
        self, fitted: Leaves, grown: GrownTree, sample: TreeSample, outputs: TreeOutputs
    ) -> Leaves:
        """Return leaves blended with the old ones, within the constraints."""
        leaves = self._builder.blend(fitted, sample, outputs)
        if self._monotone is None or leaves is fitted:
            return leaves
        assert isinstance(leaves, np.ndarray)
        return self._monotone.project(leaves, grown, sample, outputs)


class BlendingLayers:
    """Trees of a `LayerBooster`, whose leaves are blended with the old ones once all layers are
    fitted."""

    def __init__(self, layers: LayerBooster, blending: BlendingFitter) -> None:
        self._layers, self._blending = layers, blending

    def build_tree(self, sample: TreeSample, outputs: TreeOutputs) -> tuple[GrownTree, Leaves]:
        """Return one tree and its leaves, see `LayerBooster`."""
        grown, fitted = self._layers.build_tree(sample, outputs)
        return grown, self._blending.blend(fitted, grown, sample, outputs)
