"""Read-only views of the trees of a model: structure, splits and leaves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, overload

import numpy as np

import polyleaf._core as _core
from polyleaf.model.html import render_tree
from polyleaf.model.leaf_kinds import (
    LEAF_KINDS,
    LINEAR,
    SPARSE,
    AnyLeafKind,
    LeafLinear,
    NameLookup,
    TreeOutputs,
)
from polyleaf.model.prediction import bin_features

if TYPE_CHECKING:
    from polyleaf.binned_data.binning import BinMapper
    from polyleaf.model.model import ModelData
    from polyleaf.user_data.feature_table import FeatureTable


def node_depths(tree: _core.Tree) -> np.ndarray:
    """Return the depth of each node; 0 for the root."""
    depths = [0] * tree.n_nodes
    for node, (left, right) in enumerate(zip(tree.left.tolist(), tree.right.tolist(), strict=True)):
        if left >= 0:
            depths[left] = depths[right] = depths[node] + 1
    return np.array(depths)


class SplitThresholds:
    """Thresholds of splits in the unit of the features, computed once each."""

    def __init__(self, mapper: BinMapper):
        self._mapper = mapper
        self._cache: dict[tuple[int, int], float | None] = {}

    def value(self, feature: int, code: int) -> float | None:
        """Return the value up to which rows go left at a split after a bin.

        None where all rows with a value go left.
        """
        key = (feature, code)
        if key not in self._cache:
            is_last = code >= int(self._mapper.n_bins_[feature]) - 1
            self._cache[key] = (
                None if is_last else float(self._mapper.threshold_value(feature, code))
            )
        return self._cache[key]

    def describe(self, tree: _core.Tree, node: int, name: str) -> str:
        """Return the condition for going left at a split on the feature of a name."""
        feature = int(tree.feature[node])
        missing = " or missing" if tree.missing_left[node] else ""
        if tree.category_set[node] >= 0:
            left = left_categories(self._mapper, feature, tree.categories[tree.category_set[node]])
            return f"{name} in {{{', '.join(left)}}}{missing}"
        value = self.value(feature, int(tree.threshold[node]))
        return f"{name} is not missing" if value is None else f"{name} <= {value:.6g}{missing}"


def left_categories(mapper: Any, feature: int, words: np.ndarray) -> list[str]:
    """Return the categories that go left; rare ones share the last bin and go together."""
    kept, rare = mapper.categories_[feature], mapper.rare_categories_[feature]

    def goes_left(code: int) -> bool:
        return bool(int(words[code // 64]) >> (code % 64) & 1)

    names = [str(name) for code, name in enumerate(kept) if goes_left(code)]
    return names + ([str(name) for name in rare] if rare and goes_left(len(kept)) else [])


class Tree:
    """One tree of a model, read-only.

    Attributes
    ----------
    number : int
        Its index in the model.
    round : int
        Its boosting round, counted from 0.
    structure : _core.Tree
        Arrays with one entry per node: feature, threshold, left, right, leaf, gain, count, cover
        and so on. The last three are 0 if `Model.has_statistics` is False.
    leaves : ndarray, TopkLeaves or LinearLeaves
        The values of all leaves.
    """

    def __init__(self, model: ModelData, number: int):
        self._model = model
        self.number, self.round = number, model.rounds[number]
        self.structure: _core.Tree = model.forest.tree(number)
        self.leaves: Any = model.forest.values(number)

    @property
    def outputs(self) -> TreeOutputs:
        """The outputs that the tree predicts, int32 (m,), ascending; None: all outputs."""
        return self._model.forest.outputs(self.number)

    @property
    def kind(self) -> str:
        """The kind of its leaves, a key of `leaf_kinds.LEAF_KINDS`."""
        return self._model.forest.kind(self.number)

    @property
    def n_nodes(self) -> int:
        """Number of nodes."""
        return self.structure.n_nodes

    @property
    def n_leaves(self) -> int:
        """Number of leaves."""
        return self.structure.n_leaves

    def apply(self, table: FeatureTable, n_threads: int = 1) -> np.ndarray:
        """Return the leaf ids of the rows of a FeatureTable: int32 (n_rows,)."""
        tree = self.number, self.number + 1
        codes = bin_features(self._model, table, tree, n_threads)
        return self._model.forest.apply(codes, *tree, n_threads)[:, 0]

    def leaf_values(self, leaf: int) -> np.ndarray:
        """Return what a leaf adds to the raw scores of a row.

        Returns
        -------
        ndarray of shape (K,), float32
            For a sparse leaf 0 for the outputs without a value; for a linear leaf the value at its
            centre. A tree of some outputs has a value for each of them.
        """
        return LEAF_KINDS[self.kind].value(self.leaves, self._check_leaf(leaf))

    def leaf_sparse(self, leaf: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the outputs of a sparse leaf, int32 ascending, and their values, float32."""
        return SPARSE.entries(self.leaves, self._check_leaf(leaf, SPARSE))

    def leaf_linear(self, leaf: int) -> LeafLinear:
        """Return the function of a linear leaf."""
        return LINEAR.function(self.leaves, self._check_leaf(leaf, LINEAR))

    def to_record(self, leaf: int, names: NameLookup) -> dict[str, Any]:
        """Return a leaf as JSON types: its `value`, and the `columns` of its kind."""
        return LEAF_KINDS[self.kind].to_record(self.leaves, self._check_leaf(leaf), names)

    def _check_leaf(self, leaf: int, kind: AnyLeafKind | None = None) -> int:
        if kind is not None and self.kind != kind.name:
            raise ValueError(
                f"Tree {self.number} has {self.kind} leaves, not {kind.name} ones; see Tree.kind."
            )
        if not 0 <= leaf < self.n_leaves:
            raise IndexError(f"leaf={leaf} must be below {self.n_leaves} in tree {self.number}.")
        return leaf

    def _repr_html_(self) -> str:
        thresholds = SplitThresholds(self._model.mapper)

        def describe_split(node: int) -> str:
            name = self._model.feature_name(int(self.structure.feature[node]))
            return thresholds.describe(self.structure, node, name)

        return render_tree(self, node_depths(self.structure), describe_split)

    def __repr__(self) -> str:
        return (
            f"<polyleaf tree {self.number}: {self.n_leaves} {self.kind} leaves, round {self.round}>"
        )


class Trees(Sequence[Tree]):
    """The trees of a model in their order: a view, which changes with the model."""

    def __init__(self, model: ModelData):
        self._model = model

    def __len__(self) -> int:
        return self._model.n_trees

    @overload
    def __getitem__(self, index: int) -> Tree: ...
    @overload
    def __getitem__(self, index: slice) -> list[Tree]: ...
    def __getitem__(self, index: int | slice) -> Tree | list[Tree]:
        numbers = range(len(self))[index]
        if isinstance(numbers, int):
            return Tree(self._model, numbers)
        return [Tree(self._model, number) for number in numbers]

    def __repr__(self) -> str:
        return f"<polyleaf trees: {len(self)}>"
