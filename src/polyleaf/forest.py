"""A forest as flat arrays, and back: all trees one after another, with offsets. What files and pickles hold.

Owns: the names, dtypes and layout of these arrays.
Must not know: files, models, what features and outputs mean.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise

import numpy as np

import polyleaf._core as _core

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
    "values": (np.float32, 1),  # tree after tree, (n_leaves, n_outputs or 1) each
}


def trees_of(forest: _core.Forest, first: int = 0, last: int | None = None) -> Iterator[tuple]:
    """Yield (tree, leaf values, output) of trees `first` .. `last - 1`."""
    for t in range(first, len(forest) if last is None else last):
        yield forest.tree(t), forest.values(t), forest.output(t)


def to_arrays(forest: _core.Forest) -> dict[str, np.ndarray]:
    """All trees of a forest, as flat arrays (`NODE_ARRAYS` and the offsets)."""
    trees, values, outputs = zip(*trees_of(forest), strict=True) if len(forest) else ((), (), ())

    def joined(parts, dtype, shape=(0,)):
        return np.concatenate([np.zeros(shape, dtype), *parts])

    arrays = {name: joined([getattr(t, name) for t in trees], dtype) for name, dtype in NODE_ARRAYS.items()}
    arrays["node_offsets"] = np.cumsum([0, *(t.n_nodes for t in trees)], dtype=np.int64)
    arrays["set_offsets"] = np.cumsum([0, *(len(t.categories) for t in trees)], dtype=np.int64)
    arrays["categories"] = joined([t.categories for t in trees], np.uint64, (0, 4))
    arrays["output"] = np.array(outputs, np.int32)
    arrays["gain_outputs"] = np.array([t.n_outputs for t in trees], np.int32)
    arrays["output_gain"] = joined([t.output_gain.ravel() for t in trees], np.float32)
    arrays["values"] = joined([v.ravel() for v in values], np.float32)
    return arrays


def from_arrays(arrays: Mapping[str, np.ndarray], n_outputs: int, n_features: int) -> _core.Forest:
    """Build a forest from arrays of any origin; the inverse of `to_arrays`.

    Raises
    ------
    ValueError
        Unless the arrays describe trees on `n_features` features with finite values for `n_outputs` outputs.
    """
    _check_arrays(arrays)
    n_trees = len(arrays["output"])
    nodes = _offsets(arrays, "node_offsets", n_trees, len(arrays["feature"]))
    sets = _offsets(arrays, "set_offsets", n_trees, len(arrays["categories"]))
    forest = _core.Forest(n_outputs)
    gains, values = _Reader(arrays["output_gain"], "output_gain"), _Reader(arrays["values"], "values")
    per_tree = zip(pairwise(nodes), pairwise(sets), arrays["output"], arrays["gain_outputs"], strict=True)
    for (begin, end), (first_set, last_set), output, gain_outputs in per_tree:
        tree = _core.Tree.from_arrays(
            **{name: arrays[name][begin:end] for name in NODE_ARRAYS},
            categories=arrays["categories"][first_set:last_set],
            output_gain=gains.take(end - begin, int(gain_outputs)),
            n_features=n_features,
        )
        forest.append(tree, values.take(tree.n_leaves, n_outputs if output < 0 else 1), int(output))
    gains.check_end()
    values.check_end()
    return forest


def _check_arrays(arrays: Mapping[str, np.ndarray]) -> None:
    wanted = {name: (dtype, 1) for name, dtype in NODE_ARRAYS.items()} | _OTHER_ARRAYS
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
    if len(arrays["gain_outputs"]) != len(arrays["output"]):
        raise ValueError("The forest's arrays 'output' and 'gain_outputs' differ in length.")
    if not np.isfinite(arrays["values"]).all():
        raise ValueError("The forest has leaf values that are not finite.")


def _offsets(arrays: Mapping[str, np.ndarray], name: str, n_trees: int, size: int) -> list[int]:
    offsets = arrays[name]
    right = len(offsets) == n_trees + 1 and offsets[0] == 0 and offsets[-1] == size
    if not right or (offsets[1:] < offsets[:-1]).any():
        raise ValueError(
            f"The forest's array {name!r} must rise from 0 to {size} in {n_trees} steps, one a tree."
        )
    return offsets.tolist()


class _Reader:
    """Takes matrices one after another from a flat array."""

    def __init__(self, flat: np.ndarray, name: str):
        self._flat, self._name, self._at = flat, name, 0

    def take(self, n_rows: int, n_columns: int) -> np.ndarray:
        begin, self._at = self._at, self._at + n_rows * n_columns
        if n_columns < 0 or self._at > len(self._flat):
            raise ValueError(f"The forest's array {self._name!r} is too short for its trees.")
        return self._flat[begin : self._at].reshape(n_rows, n_columns)

    def check_end(self) -> None:
        if self._at != len(self._flat):
            raise ValueError(f"The forest's array {self._name!r} is longer than its trees need.")
