"""The trees of a model, to be read: structure, and what their leaves hold.

Owns: the views. Must not know: how trees are stored in files, or grown.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, overload

import numpy as np

import polyleaf._core as _core
from polyleaf.model.batch_predict import bin_features
from polyleaf.model.html import render_tree
from polyleaf.model.leaf_kinds import LEAF_KINDS, LINEAR, SPARSE, LeafKind, LeafLinear, NameLookup

__all__ = ["LeafLinear", "Tree", "Trees"]


class Tree:
    """One tree of a model. Everything in it is read-only.

    Attributes
    ----------
    number : int
        Its place in the model.
    round : int
        Of boosting, from 0.
    structure : _core.Tree
        Arrays with one entry a node: feature, threshold, left, right, leaf, gain, count, cover, ... The last
        three are 0 where `Model.has_statistics` is False.
    leaves : ndarray, TopkLeaves or LinearLeaves
        What all of its leaves hold.
    """

    def __init__(self, forest: _core.Forest, number: int, round: int, mapper: Any):
        self._forest, self._mapper = forest, mapper
        self.number, self.round = number, round
        self.structure: _core.Tree = forest.tree(number)
        self.leaves: Any = forest.values(number)

    @property
    def output(self) -> int | None:
        """The one output that the tree is for; None: all."""
        output = self._forest.output(self.number)
        return None if output < 0 else output

    @property
    def kind(self) -> str:
        """What its leaves are: a name of `leaf_kinds.LEAF_KINDS`."""
        return self._forest.kind(self.number)

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
        codes = bin_features(self._forest, self._mapper, table, *tree, n_threads)
        return self._forest.apply(codes, *tree, n_threads)[:, 0]

    def leaf_values(self, leaf: int) -> np.ndarray:
        """What a leaf adds to the raw scores of a row.

        Returns
        -------
        ndarray of shape (K,), float32
            Of a sparse leaf 0 for the outputs that it does not hold; of a linear leaf its value at the centre
            of its features. K is 1 for a tree of one output.
        """
        return LEAF_KINDS[self.kind].value(self.leaves, self._checked(leaf))

    def leaf_sparse(self, leaf: int) -> tuple[np.ndarray, np.ndarray]:
        """The outputs that a sparse leaf holds, int32 ascending, and their values, float32."""
        return SPARSE.entries(self.leaves, self._checked(leaf, SPARSE))

    def leaf_linear(self, leaf: int) -> LeafLinear:
        """The function of a linear leaf."""
        return LINEAR.function(self.leaves, self._checked(leaf, LINEAR))

    def to_record(self, leaf: int, names: NameLookup) -> dict[str, Any]:
        """A leaf as JSON types: `value`, and what its kind has besides (`LeafKind.columns`)."""
        return LEAF_KINDS[self.kind].to_record(self.leaves, self._checked(leaf), names)

    def _checked(self, leaf: int, of: LeafKind | None = None) -> int:
        if of is not None and self.kind != of.name:
            raise ValueError(
                f"The leaves of tree {self.number} are {self.kind}, not {of.name}; see Tree.kind."
            )
        if not 0 <= leaf < self.n_leaves:
            raise IndexError(
                f"Tree {self.number} has {self.n_leaves} leaves, so it has no leaf {leaf}."
            )
        return leaf

    def _repr_html_(self) -> str:
        return render_tree(self, self._mapper)

    def __repr__(self) -> str:
        return (
            f"<polyleaf tree {self.number}: {self.n_leaves} {self.kind} leaves, round {self.round}>"
        )


class Trees(Sequence[Tree]):
    """The trees of a forest in their order: a view, which goes with the forest.

    Parameters
    ----------
    forest : _core.Forest
    rounds : sequence of int
        Of boosting, one a tree.
    mapper : BinMapper
        From features to codes.
    """

    def __init__(self, forest: _core.Forest, rounds: Sequence[int], mapper: Any):
        self._forest, self._rounds, self._mapper = forest, rounds, mapper

    def __len__(self) -> int:
        return len(self._forest)

    @overload
    def __getitem__(self, index: int) -> Tree: ...
    @overload
    def __getitem__(self, index: slice) -> list[Tree]: ...
    def __getitem__(self, index: int | slice) -> Tree | list[Tree]:
        numbers = range(len(self))[index]
        return (
            [self._tree(t) for t in numbers] if isinstance(numbers, range) else self._tree(numbers)
        )

    def __iter__(self) -> Iterator[Tree]:
        return map(self._tree, range(len(self)))

    def _tree(self, number: int) -> Tree:
        return Tree(self._forest, number, self._rounds[number], self._mapper)

    def __repr__(self) -> str:
        return f"<polyleaf trees: {len(self)}>"
