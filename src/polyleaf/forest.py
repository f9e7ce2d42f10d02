"""A forest as flat arrays, and back: all trees one after another, with offsets. What files and pickles hold.

Owns: the names, dtypes and layout of these arrays.
Must not know: files, models, what features and outputs mean.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TypeAlias

import numpy as np

import polyleaf._core as _core
from polyleaf import leaf_storage

Leaves: TypeAlias = np.ndarray | _core.SparseLeaves | _core.LinearLeaves
"""What the leaves of one tree hold: a matrix (n_leaves, n_outputs or 1), or one of the other two kinds."""

KINDS = ("dense", "sparse", "linear")
"""Kinds of leaves, by their number in the array `leaf_kind`."""

NODE_ARRAYS: dict[str, type] = {
    "feature": np.int32,
    "threshold": np.int32,
    "missing_left": np.bool_,
    "left": np.int32,
    "right": np.int32,
    "leaf": np.int32,
    "category_set": np.int32,
    "gain": np.float64,
    "count": np.int64,
    "cover": np.float64,
}
"""One entry a node. Node numbers (`left`, `right`), leaf ids and category sets count from 0 in each tree."""

_OTHER_ARRAYS: dict[str, tuple[type, int]] = {
    "node_offsets": (np.int64, 1),  # nodes of tree t: node_offsets[t] .. node_offsets[t + 1]
    "set_offsets": (np.int64, 1),  # likewise its rows of `categories`
    "categories": (np.uint64, 2),  # (n_sets, 4), bit c: code c goes left
    "output": (np.int32, 1),  # one a tree; -1: all outputs
    "gain_outputs": (np.int32, 1),  # one a tree: columns of its part of `output_gain`
    "output_gain": (np.float32, 1),  # tree after tree, (n_nodes, gain_outputs[t]) each
}
STATISTICS = ("gain", "count", "cover", "gain_outputs", "output_gain")
"""How the trees came about. Prediction does not read them; a file may be without all of them."""

# `values`: tree after tree, see `_leaf_arrays`; of one of `leaf_storage.LEAF_DTYPES`, and where that has
# scales, `value_scales`: float32, tree after tree, one a column.

KIND_ARRAYS: dict[str, type] = {
    "leaf_kind": np.uint8,  # one a tree: position in KINDS
    "leaf_entries": np.int32,  # one a leaf of each sparse or linear tree: its outputs, or its regressors
    "entry": np.int32,  # of these, tree after tree: output, or feature; ascending in a leaf
    "weights": np.float32,  # of linear trees: (entries, n_outputs or 1)
    "centre": np.float32,  # (entries,)
    "lower": np.float32,  # (n_leaves, n_outputs or 1)
    "upper": np.float32,
}
"""Only where a tree has leaves that are not dense; each flat, tree after tree."""


def trees_of(forest: _core.Forest, first: int = 0, last: int | None = None) -> Iterator[tuple]:
    """Yield (tree, leaves, output) of trees `first` .. `last - 1`."""
    for t in range(first, len(forest) if last is None else last):
        yield forest.tree(t), forest.values(t), forest.output(t)


def kinds_of(forest: _core.Forest) -> list[str]:
    """The kind of leaves of each tree."""
    return [forest.kind(t) for t in range(len(forest))]


def to_arrays(
    forest: _core.Forest, leaf_dtype: str = "float32", statistics: bool = True
) -> dict[str, np.ndarray]:
    """All trees of a forest, as flat arrays (`NODE_ARRAYS` and the offsets).

    Leaf values are rounded as `leaf_dtype` says; `statistics=False` leaves out the arrays `STATISTICS`.
    """
    trees, leaves, outputs = zip(*trees_of(forest), strict=True) if len(forest) else ((), (), ())
    arrays = {name: _joined([getattr(t, name) for t in trees], dtype) for name, dtype in NODE_ARRAYS.items()}
    arrays["node_offsets"] = np.cumsum([0, *(t.n_nodes for t in trees)], dtype=np.int64)
    arrays["set_offsets"] = np.cumsum([0, *(len(t.categories) for t in trees)], dtype=np.int64)
    arrays["categories"] = _joined([t.categories for t in trees], np.uint64, (0, 4))
    arrays["output"] = np.array(outputs, np.int32)
    arrays["gain_outputs"] = np.array([t.n_outputs for t in trees], np.int32)
    arrays["output_gain"] = _joined([t.output_gain.ravel() for t in trees], np.float32)
    if not statistics:
        arrays = {name: array for name, array in arrays.items() if name not in STATISTICS}
    return arrays | _leaf_arrays(leaves, kinds_of(forest), leaf_dtype)


def _joined(parts: Sequence[np.ndarray], dtype: type, shape: tuple[int, ...] = (0,)) -> np.ndarray:
    return np.concatenate([np.zeros(shape, dtype), *parts])


def _leaf_arrays(leaves: Sequence[Leaves], kinds: Sequence[str], leaf_dtype: str) -> dict[str, np.ndarray]:
    """What the leaves hold, as flat arrays.

    `values` are, of each tree, a matrix (n_leaves, n_outputs or 1) of dense values; or one number for each
    entry of sparse leaves; or the intercepts of linear leaves, a matrix again.
    """
    numbers = {"dense": lambda v: v, "sparse": lambda v: v.values[:, None], "linear": lambda v: v.intercept}
    arrays = _stored([numbers[kind](v) for v, kind in zip(leaves, kinds, strict=True)], leaf_dtype)
    if all(kind == "dense" for kind in kinds):
        return arrays
    of_entries = [v for v in leaves if not isinstance(v, np.ndarray)]
    linear = [v for v in leaves if isinstance(v, _core.LinearLeaves)]
    parts: dict[str, list[np.ndarray]] = {
        "leaf_kind": [np.array([KINDS.index(kind) for kind in kinds], np.uint8)],
        "leaf_entries": [np.diff(v.indptr).astype(np.int32) for v in of_entries],
        "entry": [v.outputs if isinstance(v, _core.SparseLeaves) else v.features for v in of_entries],
    }
    for name in ("weights", "centre", "lower", "upper"):
        parts[name] = [getattr(v, name).ravel() for v in linear]
    return arrays | {name: _joined(parts[name], dtype) for name, dtype in KIND_ARRAYS.items()}


def _stored(values: Sequence[np.ndarray], leaf_dtype: str) -> dict[str, np.ndarray]:
    """Values of leaves as they are kept; where they have scales, these too."""
    stored, scales = leaf_storage.encode(list(values), leaf_dtype)
    arrays = {"values": _joined([v.ravel() for v in stored], leaf_storage.LEAF_DTYPES[leaf_dtype])}
    if leaf_storage.has_scales(arrays["values"].dtype):
        arrays["value_scales"] = _joined(scales, np.float32)
    return arrays


def from_arrays(arrays: Mapping[str, np.ndarray], n_outputs: int, n_features: int) -> _core.Forest:
    """Build a forest from arrays of any origin; the inverse of `to_arrays`.

    Raises
    ------
    ValueError
        Unless the arrays describe trees on `n_features` features with finite leaves for `n_outputs` outputs.
    """
    if not has_statistics(arrays):
        arrays = {**arrays, **_no_statistics(arrays)}
    _check_arrays(arrays)
    n_trees = len(arrays["output"])
    nodes = _offsets(arrays, "node_offsets", n_trees, len(arrays["feature"]))
    sets = _offsets(arrays, "set_offsets", n_trees, len(arrays["categories"]))
    forest = _core.Forest(n_outputs)
    gains, leaves = _Reader(arrays, "output_gain"), _LeafReader(arrays)
    per_tree = zip(pairwise(nodes), pairwise(sets), arrays["output"], arrays["gain_outputs"], strict=True)
    for t, ((begin, end), (first_set, last_set), output, gain_outputs) in enumerate(per_tree):
        tree = _core.Tree.from_arrays(
            **{name: arrays[name][begin:end] for name in NODE_ARRAYS},
            categories=arrays["categories"][first_set:last_set],
            output_gain=gains.take(end - begin, int(gain_outputs)),
            n_features=n_features,
        )
        n_columns = n_outputs if output < 0 else 1
        forest.append(tree, leaves.take(t, tree.n_leaves, n_columns, n_features), int(output))
    gains.check_end()
    leaves.check_end()
    return forest


def has_statistics(arrays: Mapping[str, np.ndarray]) -> bool:
    """Whether the arrays have any of `STATISTICS`."""
    return any(name in arrays for name in STATISTICS)


def _no_statistics(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Zeros in the place of statistics that are not there."""
    n_nodes, n_trees = (len(arrays.get(name, ())) for name in ("feature", "output"))
    zeros: dict[str, np.ndarray] = {
        name: np.zeros(n_nodes, NODE_ARRAYS[name]) for name in STATISTICS if name in NODE_ARRAYS
    }
    return zeros | {"gain_outputs": np.zeros(n_trees, np.int32), "output_gain": np.zeros(0, np.float32)}


def _check_arrays(arrays: Mapping[str, np.ndarray]) -> None:
    wanted = {name: (dtype, 1) for name, dtype in NODE_ARRAYS.items()} | _OTHER_ARRAYS
    values = arrays.get("values")
    if values is not None and leaf_storage.has_scales(values.dtype):
        wanted["value_scales"] = (np.float32, 1)
    wanted["values"] = (np.float32 if values is None else values.dtype.type, 1)
    if any(name in arrays for name in KIND_ARRAYS):
        wanted |= {name: (dtype, 1) for name, dtype in KIND_ARRAYS.items()}
    for name, (dtype, ndim) in wanted.items():
        array = arrays.get(name)
        if array is None:
            raise ValueError(f"The forest's array {name!r} is missing.")
        if array.dtype != dtype or array.ndim != ndim:
            raise ValueError(
                f"The forest's array {name!r} must be {np.dtype(dtype)} with {ndim} dimension(s), "
                f"but is {array.dtype} with {array.ndim}."
            )
    n_nodes = {len(arrays[name]) for name in NODE_ARRAYS}
    if len(n_nodes) > 1:
        raise ValueError(f"The forest's node arrays differ in length: {sorted(n_nodes)}.")
    for name in ("gain_outputs", "leaf_kind"):
        if name in arrays and len(arrays[name]) != len(arrays["output"]):
            raise ValueError(f"The forest's arrays 'output' and {name!r} differ in length.")
    largest = arrays.get("value_scales", np.zeros(1, np.float32)).astype(np.float64) * 127
    if not np.isfinite(arrays["values"]).all() or not (np.abs(largest) < np.finfo(np.float32).max).all():
        raise ValueError("The forest has leaf values that are not finite.")


def _offsets(arrays: Mapping[str, np.ndarray], name: str, n_trees: int, size: int) -> list[int]:
    offsets = arrays[name]
    right = len(offsets) == n_trees + 1 and offsets[0] == 0 and offsets[-1] == size
    if not right or (offsets[1:] < offsets[:-1]).any():
        raise ValueError(
            f"The forest's array {name!r} must rise from 0 to {size} in {n_trees} steps, one a tree."
        )
    return offsets.tolist()


class _Values:
    """Takes leaf values, tree after tree."""

    def __init__(self, arrays: Mapping[str, np.ndarray]):
        self._values = _Reader(arrays, "values")
        scaled = leaf_storage.has_scales(arrays["values"].dtype)
        self._scales = _Reader(arrays, "value_scales") if scaled else None

    def take(self, n_rows: int, n_columns: int) -> np.ndarray:
        stored = self._values.take(n_rows, n_columns)
        scales = None if self._scales is None else self._scales.take(1, n_columns)[0]
        return leaf_storage.decode(stored, scales)

    def check_end(self) -> None:
        self._values.check_end()
        if self._scales is not None:
            self._scales.check_end()


class _Reader:
    """Takes matrices one after another from a flat array."""

    def __init__(self, arrays: Mapping[str, np.ndarray], name: str):
        self._flat, self._name, self._at = arrays[name], name, 0

    def take(self, n_rows: int, n_columns: int) -> np.ndarray:
        begin, self._at = self._at, self._at + n_rows * n_columns
        if n_columns < 0 or self._at > len(self._flat):
            raise ValueError(f"The forest's array {self._name!r} is too short for its trees.")
        return self._flat[begin : self._at].reshape(n_rows, n_columns)

    def check_end(self) -> None:
        if self._at != len(self._flat):
            raise ValueError(f"The forest's array {self._name!r} is longer than its trees need.")


class _LeafReader:
    """Takes the leaves of one tree after another from the flat arrays."""

    def __init__(self, arrays: Mapping[str, np.ndarray]):
        names = [name for name in KIND_ARRAYS if name in arrays and name != "leaf_kind"]
        self._flat = {name: _Reader(arrays, name) for name in names}
        self._values = _Values(arrays)
        self._kinds = arrays.get("leaf_kind")
        if self._kinds is not None and (self._kinds >= len(KINDS)).any():
            raise ValueError("The forest's array 'leaf_kind' names a kind of leaves that does not exist.")

    def take(self, t: int, n_leaves: int, n_columns: int, n_features: int) -> Leaves:
        kind = "dense" if self._kinds is None else KINDS[self._kinds[t]]
        if kind == "dense":
            return self._values.take(n_leaves, n_columns)
        counts = self._take("leaf_entries", n_leaves)
        if (counts < 0).any():
            raise ValueError("The forest's array 'leaf_entries' holds a negative number.")
        indptr = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
        n_entries = int(indptr[-1])
        entry = self._take("entry", n_entries)
        if kind == "sparse":
            return _core.SparseLeaves(indptr, entry, self._values.take(n_entries, 1)[:, 0], n_columns)
        if (entry >= n_features).any():
            raise ValueError(f"Linear leaves read a feature that is not among the {n_features} there are.")
        return _core.LinearLeaves(
            indptr,
            entry,
            weights=self._flat["weights"].take(n_entries, n_columns),
            centre=self._take("centre", n_entries),
            intercept=self._values.take(n_leaves, n_columns),
            lower=self._flat["lower"].take(n_leaves, n_columns),
            upper=self._flat["upper"].take(n_leaves, n_columns),
        )

    def _take(self, name: str, n: int) -> np.ndarray:
        return self._flat[name].take(n, 1)[:, 0]

    def check_end(self) -> None:
        self._values.check_end()
        for reader in self._flat.values():
            reader.check_end()
