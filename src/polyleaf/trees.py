"""The trees of a model, to be read: structure, and what their leaves hold.

Owns: the views. Must not know: how trees are stored in files, or grown.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, overload

import numpy as np

import polyleaf._core as _core
from polyleaf.forest import Leaves

if TYPE_CHECKING:
    from polyleaf.model import Model

__all__ = ["LeafLinear", "Tree", "Trees"]


class LeafLinear(NamedTuple):
    """The linear function of one leaf, with the learning rate in it.

    A row x adds `clip(intercept + coefficients.T @ (x[features] - centre), lower, upper)` to its raw scores
    (before target_scale); a missing x_j counts as its centre.

    Attributes
    ----------
    features : ndarray of shape (m,), int32
        Numbers of the features it reads, ascending.
    centre : ndarray of shape (m,), float32
        In the unit of each feature.
    coefficients : ndarray of shape (m, K), float32
        For each feature and output; K is 1 for a tree of one output.
    intercept : ndarray of shape (K,), float32
        The value at the centre.
    lower, upper : ndarray of shape (K,), float32
        Bounds of the value; infinite where there is none.
    """

    features: np.ndarray
    centre: np.ndarray
    coefficients: np.ndarray
    intercept: np.ndarray
    lower: np.ndarray
    upper: np.ndarray


class Tree:
    """One tree of a model. Everything in it is read-only.

    Attributes
    ----------
    number : int
        Its place in the model.
    structure : _core.Tree
        Arrays with one entry a node: feature, threshold, left, right, leaf, gain, count, cover, ... The last
        three are 0 where `Model.has_statistics` is False.
    leaves : ndarray, SparseLeaves or LinearLeaves
        What all of its leaves hold.
    """

    def __init__(self, model: Model, number: int):
        self._model = model
        self.number = number
        self.structure: _core.Tree = model.forest.tree(number)
        self.leaves: Leaves = model.forest.values(number)

    @property
    def round(self) -> int:
        """Round of boosting, from 0."""
        return int(self._model.round_of_tree[self.number])

    @property
    def output(self) -> int | None:
        """The one output that the tree is for; None: all."""
        output = self._model.forest.output(self.number)
        return None if output < 0 else output

    @property
    def kind(self) -> str:
        """What its leaves are: "dense", "sparse" or "linear"."""
        return self._model.forest.kind(self.number)

    @property
    def n_nodes(self) -> int:
        """Number of nodes."""
        return self.structure.n_nodes

    @property
    def n_leaves(self) -> int:
        """Number of leaves."""
        return self.structure.n_leaves

    def apply(self, table: Any, n_threads: int = 1) -> np.ndarray:
        """Leaf ids of a FeatureTable: int32 (n_rows,)."""
        tree = self.number, self.number + 1
        codes = self._model.codes_of(table, *tree, n_threads)
        return self._model.forest.apply(codes, *tree, n_threads)[:, 0]

    def leaf_values(self, leaf: int) -> np.ndarray:
        """What a leaf adds to the raw scores of a row.

        Returns
        -------
        ndarray of shape (K,), float32
            Of a sparse leaf 0 for the outputs that it does not hold; of a linear leaf its value at the centre
            of its features. K is 1 for a tree of one output.
        """
        leaf = self._checked(leaf)
        if isinstance(self.leaves, _core.SparseLeaves):
            outputs, values = self.leaf_sparse(leaf)
            dense = np.zeros(self.leaves.n_outputs, np.float32)
            dense[outputs] = values
            return dense
        return (
            self.leaves.intercept[leaf] if isinstance(self.leaves, _core.LinearLeaves) else self.leaves[leaf]
        )

    def leaf_sparse(self, leaf: int) -> tuple[np.ndarray, np.ndarray]:
        """The outputs that a sparse leaf holds, int32 ascending, and their values, float32."""
        if not isinstance(self.leaves, _core.SparseLeaves):
            raise ValueError(self._other_kind("sparse"))
        entries = self._entries(self.leaves.indptr, leaf)
        return self.leaves.outputs[entries], self.leaves.values[entries]

    def leaf_linear(self, leaf: int) -> LeafLinear:
        """The function of a linear leaf."""
        if not isinstance(self.leaves, _core.LinearLeaves):
            raise ValueError(self._other_kind("linear"))
        entries, leaves = self._entries(self.leaves.indptr, leaf), self.leaves
        return LeafLinear(
            leaves.features[entries],
            leaves.centre[entries],
            leaves.weights[entries],
            leaves.intercept[leaf],
            leaves.lower[leaf],
            leaves.upper[leaf],
        )

    def _entries(self, indptr: np.ndarray, leaf: int) -> slice:
        leaf = self._checked(leaf)
        return slice(int(indptr[leaf]), int(indptr[leaf + 1]))

    def _checked(self, leaf: int) -> int:
        if not 0 <= leaf < self.n_leaves:
            raise IndexError(f"Tree {self.number} has {self.n_leaves} leaves, so it has no leaf {leaf}.")
        return leaf

    def _other_kind(self, asked: str) -> str:
        return f"The leaves of tree {self.number} are {self.kind}, not {asked}; see Tree.kind."

    def __repr__(self) -> str:
        return f"<polyleaf tree {self.number}: {self.n_leaves} {self.kind} leaves, round {self.round}>"


class Trees(Sequence[Tree]):
    """The trees of a model in their order."""

    def __init__(self, model: Model):
        self._model = model

    def __len__(self) -> int:
        return self._model.n_trees

    @overload
    def __getitem__(self, index: int) -> Tree: ...
    @overload
    def __getitem__(self, index: slice) -> list[Tree]: ...
    def __getitem__(self, index: int | slice) -> Tree | list[Tree]:
        if isinstance(index, slice):
            return [Tree(self._model, t) for t in range(len(self))[index]]
        return Tree(self._model, range(len(self))[index])

    def __iter__(self) -> Iterator[Tree]:
        return (Tree(self._model, t) for t in range(len(self)))

    def __repr__(self) -> str:
        return f"<polyleaf trees: {len(self)}>"
