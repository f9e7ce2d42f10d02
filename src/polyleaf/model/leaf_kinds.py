"""Leaf kinds: how leaves of each kind are stored, viewed and listed.

Code that reads leaves looks up a descriptor in `LEAF_KINDS` instead of naming a kind.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, NamedTuple, TypeAlias, TypeVar

import numpy as np

import polyleaf._core as _core

if TYPE_CHECKING:
    from polyleaf.runtime.types import JsonObject

Leaves: TypeAlias = np.ndarray | _core.LeafBlock
"""The values of all leaves of a tree: a matrix (n_leaves, n_outputs or 1), or a core block."""

TreeOutputs: TypeAlias = np.ndarray | None
"""The outputs that a tree is for: int32 (m,), ascending; None: all."""

_Leaves = TypeVar("_Leaves")
_Block = TypeVar("_Block", _core.TopkLeaves, _core.LinearLeaves)

TakeMatrix: TypeAlias = Callable[[str, int, int], np.ndarray]
"""`take(name, n_rows, n_columns)` returns the next matrix of a flat array."""


class NameLookup(NamedTuple):
    """Functions from the number of a feature or an output to its name."""

    feature: Callable[[int], str]
    output: Callable[[int], str]


class LeafLinear(NamedTuple):
    """The linear function of one leaf, multiplied by the learning rate.

    It adds `clip(intercept + coefficients.T @ (x[features] - centre), lower, upper)` to the raw
    scores of a row x (before target_scale); a missing x_j is replaced by its centre.
    """

    features: np.ndarray  # (m,), numbers of its features, ascending
    centre: np.ndarray  # (m,), in the unit of each feature
    # (m, K), coefficients of each feature and output; K is 1 for a tree of one output
    coefficients: np.ndarray
    intercept: np.ndarray  # (K,), the value at the centre
    # lower, upper: (K,), bounds of the value; infinite if there is none
    lower: np.ndarray
    upper: np.ndarray


def _mix(old: np.ndarray, new: np.ndarray, share: np.ndarray) -> np.ndarray:
    """Return share * old + (1 - share) * new, float32; the bits of one of them for 0 and 1."""
    with np.errstate(invalid="ignore"):  # 0 * inf, which is not used
        mixed = (share * old + (1.0 - share) * new).astype(np.float32)
    return np.where(share == 0, new, np.where(share == 1, old, mixed))


class LeafFunctions(NamedTuple):
    """The leaves of a tree as functions of one form, which exporters read.

    For each output that a leaf has a value for, a row x gets
    `clip(values + weights.T @ (x[features] - centre), lower, upper)`; a missing x_j is replaced by
    its centre. Either outputs or features are listed, or neither; then `indptr` is None.
    """

    values: np.ndarray  # (n_leaves, K)
    # (n_leaves + 1,), leaf l has the entries `indptr[l] : indptr[l + 1]`
    indptr: np.ndarray | None = None
    # (n_entries,), the outputs of `values`, ascending in a leaf; None: all outputs of the tree
    outputs: np.ndarray | None = None
    # (n_entries,), numbers of features, ascending in a leaf; None: values are constants
    features: np.ndarray | None = None
    centre: np.ndarray | None = None  # (n_entries,)
    weights: np.ndarray | None = None  # (n_entries, K)
    # lower, upper: (n_leaves, K)
    lower: np.ndarray | None = None
    upper: np.ndarray | None = None

    @property
    def form(self) -> Literal["dense", "sparse", "linear"]:
        """Return "sparse" if outputs are listed, "linear" if features are, otherwise "dense"."""
        if self.outputs is not None:
            return "sparse"
        return "dense" if self.features is None else "linear"

    def to_dense(self, n_outputs: int) -> np.ndarray:
        """Return `values` as float64 (n_leaves, n_outputs or 1), 0 where none is listed."""
        if self.indptr is None or self.outputs is None:
            return np.asarray(self.values, np.float64)
        dense = np.zeros((len(self.indptr) - 1, n_outputs))
        leaf = np.repeat(np.arange(len(dense)), np.diff(self.indptr))
        dense[leaf, self.outputs] = self.values
        return dense


class LeafKind(ABC, Generic[_Leaves]):
    """The properties of a leaf kind."""

    name: ClassVar[str]  # the result of `Forest.kind` in the core
    number: ClassVar[int]  # its id in files
    # flat arrays of a forest in addition to `values`, which kinds may share
    arrays: ClassVar[dict[str, type]] = {}
    # columns of a table of nodes in addition to `value`, and their types
    columns: ClassVar[dict[str, str]] = {}
    lists_outputs: ClassVar[bool] = False  # whether a leaf lists the outputs that it has values for
    reads_features: ClassVar[bool] = False  # whether leaf values depend on raw features
    label_column: ClassVar[str | None] = None  # the column whose names label a leaf in plots

    @abstractmethod
    def functions(self, leaves: _Leaves) -> LeafFunctions:
        """Return the leaves as functions of one form."""

    @abstractmethod
    def values(self, leaves: _Leaves) -> np.ndarray:
        """Return the values of a tree that files may round: a float32 matrix."""

    @abstractmethod
    def scale(self, leaves: _Leaves, factor: np.ndarray) -> _Leaves:
        """Return leaves multiplied by positive factors, float32 (n_columns,)."""

    @abstractmethod
    def select_outputs(self, leaves: _Leaves, columns: np.ndarray) -> _Leaves:
        """Return the leaves of some columns, ascending, renumbered from 0."""

    @abstractmethod
    def expand(self, leaves: _Leaves, outputs: np.ndarray, n_outputs: int) -> _Leaves:
        """Return leaves of all outputs: column j becomes column `outputs[j]`."""

    @abstractmethod
    def blend(self, old: _Leaves, new: _Leaves, share: np.ndarray) -> _Leaves:
        """Return `share` of old leaves and the rest of new ones, of the same tree; a share of 0 or
        1, float64 (n_leaves, 1 or n_columns), gives the bits of one of them."""

    def to_arrays(self, leaves: _Leaves) -> dict[str, np.ndarray]:
        """Return the flat `arrays` of a tree."""
        return {}

    @abstractmethod
    def from_arrays(
        self, take: TakeMatrix, n_leaves: int, n_columns: int, n_features: int
    ) -> _Leaves:
        """Return the leaves of the next tree of the flat arrays; raise ValueError if invalid."""

    @abstractmethod
    def value(self, leaves: _Leaves, leaf: int) -> np.ndarray:
        """Return what a leaf adds to raw scores, float32 (K,); at the centre if it is linear."""

    def to_record(self, leaves: _Leaves, leaf: int, names: NameLookup) -> JsonObject:
        """Return a leaf for a table of nodes: `value` and `columns` as JSON types."""
        return {"value": self.value(leaves, leaf).tolist()}


AnyLeafKind: TypeAlias = LeafKind[Any]
"""A kind of unknown leaves: one that is looked up by its name."""


class DenseLeaves(LeafKind[np.ndarray]):
    """Leaves with a value per output."""

    name, number = "dense", 0

    def functions(self, leaves: np.ndarray) -> LeafFunctions:
        return LeafFunctions(leaves)

    def values(self, leaves: np.ndarray) -> np.ndarray:
        return leaves

    def scale(self, leaves: np.ndarray, factor: np.ndarray) -> np.ndarray:
        return leaves * factor

    def shift(self, leaves: np.ndarray, shift: np.ndarray) -> np.ndarray:
        """Return leaves with a constant, float32 (n_columns,), added for all rows."""
        return leaves + shift

    def blend(self, old: np.ndarray, new: np.ndarray, share: np.ndarray) -> np.ndarray:
        return _mix(old, new, share)

    def select_outputs(self, leaves: np.ndarray, columns: np.ndarray) -> np.ndarray:
        return np.take(leaves, columns, axis=1)

    def expand(self, leaves: np.ndarray, outputs: np.ndarray, n_outputs: int) -> np.ndarray:
        return _expand(leaves, outputs, n_outputs)

    def from_arrays(
        self, take: TakeMatrix, n_leaves: int, n_columns: int, n_features: int
    ) -> np.ndarray:
        return take("values", n_leaves, n_columns)

    def value(self, leaves: np.ndarray, leaf: int) -> np.ndarray:
        return leaves[leaf]


def _expand(values: np.ndarray, outputs: np.ndarray, n_outputs: int) -> np.ndarray:
    """Return a matrix (n, n_outputs) with the columns of some outputs, and zeros."""
    expanded = np.zeros((len(values), n_outputs), values.dtype)
    expanded[:, outputs] = values
    return expanded


class _EntryLeaves(LeafKind[_Block]):
    """A kind whose leaves have a variable number of entries."""

    arrays: ClassVar[dict[str, type]] = {
        "leaf_entries": np.int32,  # per leaf: the number of entries
        "entry": np.int32,  # output or feature of each, ascending in a leaf
    }

    @staticmethod
    def _entry_slice(leaves: _Block, leaf: int) -> slice:
        """Return the range of the entries of a leaf."""
        return slice(int(leaves.indptr[leaf]), int(leaves.indptr[leaf + 1]))

    @staticmethod
    def _join_entries(
        old: _Block, new: _Block, entries: tuple[np.ndarray, np.ndarray], share: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Return the joint entries of two blocks, ascending.

        `entries` are the entries of the two blocks. The result is the leaf and the entry of each
        joint entry, and its position in either block, or -1.
        """
        leaves = [np.repeat(np.arange(len(b.indptr) - 1), np.diff(b.indptr)) for b in (old, new)]
        uses = np.any(share > 0, axis=1), np.any(share < 1, axis=1)
        kept = [used[leaf] for used, leaf in zip(uses, leaves, strict=True)]
        size = 1 + max(int(e.max(initial=0)) for e in entries)
        keys = [leaf * np.int64(size) + e for leaf, e in zip(leaves, entries, strict=True)]
        joint = np.union1d(keys[0][kept[0]], keys[1][kept[1]])
        before, after = np.full(len(joint), -1), np.full(len(joint), -1)
        for position, block_keys, is_kept in zip((before, after), keys, kept, strict=True):
            position[np.searchsorted(joint, block_keys[is_kept])] = np.flatnonzero(is_kept)
        return joint // size, (joint % size).astype(np.int32), before, after

    @staticmethod
    def _entry_arrays(leaves: _Block, entry: np.ndarray) -> dict[str, np.ndarray]:
        return {"leaf_entries": np.diff(leaves.indptr).astype(np.int32), "entry": entry}

    @staticmethod
    def _take_entries(take: TakeMatrix, n_leaves: int) -> tuple[np.ndarray, np.ndarray]:
        counts = take("leaf_entries", n_leaves, 1)[:, 0]
        if (counts < 0).any():
            raise ValueError("The forest's array 'leaf_entries' contains a negative number.")
        indptr = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
        return indptr, take("entry", int(indptr[-1]), 1)[:, 0]


class TopkLeaves(_EntryLeaves[_core.TopkLeaves]):
    """Leaves with values for a few outputs, which are the entries."""

    name, number = "sparse", 1
    columns: ClassVar[dict[str, str]] = {"value_outputs": "list str"}
    lists_outputs = True
    label_column = "value_outputs"

    def functions(self, leaves: _core.TopkLeaves) -> LeafFunctions:
        return LeafFunctions(leaves.values, leaves.indptr, outputs=leaves.outputs)

    def values(self, leaves: _core.TopkLeaves) -> np.ndarray:
        return leaves.values[:, None]

    def scale(self, leaves: _core.TopkLeaves, factor: np.ndarray) -> _core.TopkLeaves:
        values = leaves.values * factor[leaves.outputs]
        return _core.TopkLeaves(leaves.indptr, leaves.outputs, values, leaves.n_outputs)

    def shift(self, leaves: _core.TopkLeaves, shift: np.ndarray) -> _core.TopkLeaves:
        """Return leaves with a constant, float32 (n_columns,), added where they have a value."""
        values = leaves.values + shift[leaves.outputs]
        return _core.TopkLeaves(leaves.indptr, leaves.outputs, values, leaves.n_outputs)

    def blend(
        self, old: _core.TopkLeaves, new: _core.TopkLeaves, share: np.ndarray
    ) -> _core.TopkLeaves:
        """Keep as many of the joint entries of a leaf as the longer one has: the largest."""
        share = share.max(axis=1)
        entries = old.outputs, new.outputs
        leaf, outputs, *at = self._join_entries(old, new, entries, share[:, None])
        before, after = (
            np.where(position < 0, np.float32(0), np.append(block.values, np.float32(0))[position])
            for block, position in zip((old, new), at, strict=True)
        )
        values = _mix(before, after, share[leaf])
        room = np.maximum(np.diff(old.indptr), np.diff(new.indptr))
        order = np.lexsort((outputs, -np.abs(values), leaf))
        first = np.searchsorted(leaf, np.arange(len(share)))
        rank = np.empty(len(leaf), np.intp)
        rank[order] = np.arange(len(leaf)) - first[leaf]
        kept = rank < room[leaf]
        indptr = np.cumsum([0, *np.bincount(leaf[kept], minlength=len(share))])
        return _core.TopkLeaves(indptr, outputs[kept], values[kept], new.n_outputs)

    def select_outputs(self, leaves: _core.TopkLeaves, columns: np.ndarray) -> _core.TopkLeaves:
        kept = np.isin(leaves.outputs, columns)
        indptr = np.concatenate([[0], np.cumsum(kept, dtype=np.int64)])[leaves.indptr]
        outputs = np.searchsorted(columns, leaves.outputs[kept]).astype(np.int32)
        return _core.TopkLeaves(indptr, outputs, leaves.values[kept], len(columns))

    def expand(
        self, leaves: _core.TopkLeaves, outputs: np.ndarray, n_outputs: int
    ) -> _core.TopkLeaves:
        return _core.TopkLeaves(leaves.indptr, outputs[leaves.outputs], leaves.values, n_outputs)

    def to_arrays(self, leaves: _core.TopkLeaves) -> dict[str, np.ndarray]:
        return self._entry_arrays(leaves, leaves.outputs)

    def from_arrays(
        self, take: TakeMatrix, n_leaves: int, n_columns: int, n_features: int
    ) -> _core.TopkLeaves:
        indptr, outputs = self._take_entries(take, n_leaves)
        return _core.TopkLeaves(indptr, outputs, take("values", len(outputs), 1)[:, 0], n_columns)

    def value(self, leaves: _core.TopkLeaves, leaf: int) -> np.ndarray:
        outputs, values = self.entries(leaves, leaf)
        dense = np.zeros(leaves.n_outputs, np.float32)
        dense[outputs] = values
        return dense

    def to_record(self, leaves: _core.TopkLeaves, leaf: int, names: NameLookup) -> JsonObject:
        outputs, values = self.entries(leaves, leaf)
        return {
            "value": values.tolist(),
            "value_outputs": [names.output(k) for k in outputs.tolist()],
        }

    def entries(self, leaves: _core.TopkLeaves, leaf: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the outputs of a leaf, and their values."""
        entries = self._entry_slice(leaves, leaf)
        return leaves.outputs[entries], leaves.values[entries]


class LinearLeaves(_EntryLeaves[_core.LinearLeaves]):
    """Leaves with a linear function of a few features, which are the entries."""

    name, number = "linear", 2
    arrays: ClassVar[dict[str, type]] = _EntryLeaves.arrays | {
        "weights": np.float32,  # (entries, n_outputs or 1)
        "centre": np.float32,  # (entries,)
        "lower": np.float32,  # (n_leaves, n_outputs or 1)
        "upper": np.float32,
    }
    _per_output = ("weights", "intercept", "lower", "upper")
    columns: ClassVar[dict[str, str]] = {
        "regressors": "list str",
        "centre": "list float",
        "coefficients": "list list float",
        "lower": "list float",
        "upper": "list float",
    }
    reads_features = True
    label_column = "regressors"

    def functions(self, leaves: _core.LinearLeaves) -> LeafFunctions:
        return LeafFunctions(
            leaves.intercept,
            leaves.indptr,
            features=leaves.features,
            centre=leaves.centre,
            weights=leaves.weights,
            lower=leaves.lower,
            upper=leaves.upper,
        )

    def values(self, leaves: _core.LinearLeaves) -> np.ndarray:
        return leaves.intercept

    def _change_values(
        self, leaves: _core.LinearLeaves, change: Callable[[np.ndarray], np.ndarray]
    ) -> _core.LinearLeaves:
        """Return leaves with other numbers of each output, and the same features."""
        changed = {name: change(getattr(leaves, name)) for name in self._per_output}
        return _core.LinearLeaves(leaves.indptr, leaves.features, centre=leaves.centre, **changed)

    def scale(self, leaves: _core.LinearLeaves, factor: np.ndarray) -> _core.LinearLeaves:
        return self._change_values(leaves, lambda values: values * factor)

    def shift(self, leaves: _core.LinearLeaves, shift: np.ndarray) -> _core.LinearLeaves:
        """Return leaves with a constant, float32 (n_columns,), added for all rows."""
        return _core.LinearLeaves(
            leaves.indptr,
            leaves.features,
            weights=leaves.weights,
            centre=leaves.centre,
            intercept=leaves.intercept + shift,
            lower=leaves.lower + shift,
            upper=leaves.upper + shift,
        )

    def blend(
        self, old: _core.LinearLeaves, new: _core.LinearLeaves, share: np.ndarray
    ) -> _core.LinearLeaves:
        """Blend the functions and their bounds; it has the features of both.

        Where a feature of both is missing, the blend has its value at the new centre.
        """
        entries = old.features, new.features
        leaf, features, before, after = self._join_entries(old, new, entries, share)
        share = np.broadcast_to(share, new.intercept.shape)
        entry_share = share[leaf]

        def read(block: _core.LinearLeaves, position: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            there, n = (position >= 0)[:, None], new.intercept.shape[1]
            weights = np.append(block.weights, np.zeros((1, n), np.float32), axis=0)[position]
            centre = np.append(block.centre, np.float32(0))[position]
            return np.where(there, weights, np.float32(0)), centre

        (old_weights, old_centre), (new_weights, new_centre) = read(old, before), read(new, after)
        centre = np.where(after >= 0, new_centre, old_centre)
        moved = np.where(before >= 0, centre.astype(np.float64) - old_centre, 0.0)
        shift = np.zeros(new.intercept.shape)
        np.add.at(shift, leaf, old_weights * moved[:, None])
        moved_intercept = (old.intercept + shift).astype(np.float32)
        intercept = np.where(shift == 0, old.intercept, moved_intercept)  # keeps -0.0
        return _core.LinearLeaves(
            np.cumsum([0, *np.bincount(leaf, minlength=len(share))]),
            features,
            weights=_mix(old_weights, new_weights, entry_share),
            centre=centre,
            intercept=_mix(intercept, new.intercept, share),
            lower=_mix(old.lower, new.lower, share),
            upper=_mix(old.upper, new.upper, share),
        )

    def select_outputs(self, leaves: _core.LinearLeaves, columns: np.ndarray) -> _core.LinearLeaves:
        return self._change_values(leaves, lambda values: np.take(values, columns, axis=1))

    def expand(
        self, leaves: _core.LinearLeaves, outputs: np.ndarray, n_outputs: int
    ) -> _core.LinearLeaves:
        return self._change_values(leaves, lambda values: _expand(values, outputs, n_outputs))

    def to_arrays(self, leaves: _core.LinearLeaves) -> dict[str, np.ndarray]:
        flat = {
            name: getattr(leaves, name).ravel() for name in ("weights", "centre", "lower", "upper")
        }
        return self._entry_arrays(leaves, leaves.features) | flat

    def from_arrays(
        self, take: TakeMatrix, n_leaves: int, n_columns: int, n_features: int
    ) -> _core.LinearLeaves:
        indptr, features = self._take_entries(take, n_leaves)
        if (features >= n_features).any():
            raise ValueError(f"A linear leaf has a feature that is not below {n_features}.")
        return _core.LinearLeaves(
            indptr,
            features,
            weights=take("weights", len(features), n_columns),
            centre=take("centre", len(features), 1)[:, 0],
            intercept=take("values", n_leaves, n_columns),
            lower=take("lower", n_leaves, n_columns),
            upper=take("upper", n_leaves, n_columns),
        )

    def value(self, leaves: _core.LinearLeaves, leaf: int) -> np.ndarray:
        return leaves.intercept[leaf]

    def to_record(self, leaves: _core.LinearLeaves, leaf: int, names: NameLookup) -> JsonObject:
        function = self.function(leaves, leaf)
        return super().to_record(leaves, leaf, names) | {
            "regressors": [names.feature(f) for f in function.features.tolist()],
            "centre": function.centre.tolist(),
            "coefficients": function.coefficients.tolist(),
            "lower": [b if np.isfinite(b) else None for b in function.lower.tolist()],
            "upper": [b if np.isfinite(b) else None for b in function.upper.tolist()],
        }

    def function(self, leaves: _core.LinearLeaves, leaf: int) -> LeafLinear:
        """Return the function of a leaf."""
        entries = self._entry_slice(leaves, leaf)
        return LeafLinear(
            leaves.features[entries],
            leaves.centre[entries],
            leaves.weights[entries],
            leaves.intercept[leaf],
            leaves.lower[leaf],
            leaves.upper[leaf],
        )


DENSE, SPARSE, LINEAR = DenseLeaves(), TopkLeaves(), LinearLeaves()

LEAF_KINDS: dict[str, AnyLeafKind] = {kind.name: kind for kind in (DENSE, SPARSE, LINEAR)}
"""All leaf kinds by name."""


def scale_leaves(leaves: Leaves, factor: float) -> Leaves:
    """Return leaves of any kind multiplied by a positive factor."""
    if factor == 1:
        return leaves
    if isinstance(leaves, _core.TopkLeaves):
        return SPARSE.scale(leaves, np.full(leaves.n_outputs, factor, np.float32))
    if isinstance(leaves, _core.LinearLeaves):
        return LINEAR.scale(leaves, np.array([factor], np.float32))
    assert isinstance(leaves, np.ndarray)
    return DENSE.scale(leaves, np.array([factor], np.float32))
