"""A forest as flat arrays, as files and pickles store it: trees are concatenated, with offsets.

Leaf values are stored as float32, or rounded to 16 or 8 bits. "int8" is an integer from -127 to
127 times a scale for each output of a tree, so that outputs in different units keep their
precision. A scale has 16 significant bits, so that its products are exact: values that were stored
once are stored again without change.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

import polyleaf._core as _core
from polyleaf.model.leaf_kinds import LEAF_KINDS, AnyLeafKind, Leaves, TreeOutputs
from polyleaf.runtime.checks import require, require_choice

LEAF_DTYPES: dict[str, type] = {"float32": np.float32, "float16": np.float16, "int8": np.int8}

_MAX_INT8 = 127  # the range is symmetric
_MAX_FLOAT16 = 65504.0
# Below this largest value, float16 has fewer than 11 significant bits.
_MIN_FLOAT16_SCALE = 2.0**-13

Values = NDArray[np.float32]


def has_scales(dtype: np.dtype) -> bool:
    """Return whether values of a dtype have scales; raise ValueError for other dtypes."""
    if dtype not in [np.dtype(name) for name in LEAF_DTYPES]:
        raise ValueError(f"Leaf values must be one of {', '.join(LEAF_DTYPES)}; got {dtype}.")
    return dtype == np.int8


def encode(blocks: list[Values], leaf_dtype: str) -> tuple[list[np.ndarray], list[Values]]:
    """Return the stored values (n_leaves, width) and scales (width,) of each tree.

    Raises a ValueError if float16 cannot represent the largest value, or would lose precision.
    """
    require_choice(leaf_dtype, LEAF_DTYPES, "leaf_dtype")
    if leaf_dtype == "float32":
        return list(blocks), []
    if leaf_dtype == "float16":
        _check_fits_float16(blocks)
        return [block.astype(np.float16) for block in blocks], []
    scales = [_compute_scales(block) for block in blocks]
    return [_quantise(*pair) for pair in zip(blocks, scales, strict=True)], scales


def decode(stored: np.ndarray, scales: Values | None) -> Values:
    """Return stored values (n_leaves, width) as float32, multiplied by scales (width,) if any."""
    values = stored.astype(np.float32)
    return values if scales is None else values * scales


def _compute_scales(block: Values) -> Values:
    """Return the smallest scales of 16 significant bits that bring all columns into range."""
    scales = np.abs(block).max(axis=0, initial=0.0).astype(np.float32) / np.float32(_MAX_INT8)
    return ((scales.view(np.int32) + 0xFF) & ~0xFF).view(np.float32)


def _quantise(block: Values, scales: Values) -> NDArray[np.int8]:
    quotient = np.divide(block, scales, out=np.zeros_like(block), where=scales > 0)
    return np.clip(np.rint(quotient), -_MAX_INT8, _MAX_INT8).astype(np.int8)


def _check_fits_float16(blocks: list[Values]) -> None:
    largest = max((float(np.abs(block).max(initial=0.0)) for block in blocks), default=0.0)
    advice = 'Use leaf_dtype="int8", which has a scale per output, or "float32"'
    if largest > _MAX_FLOAT16:
        raise ValueError(
            f"float16 represents numbers up to {_MAX_FLOAT16:g}, but a leaf value is {largest:g}. "
            f"{advice}; PolyleafRegressor(normalize_targets=True) keeps leaf values near 1."
        )
    if 0 < largest < _MIN_FLOAT16_SCALE:
        raise ValueError(
            f"Values underflow in float16: the largest leaf value is {largest:g}. {advice}."
        )


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
"""Arrays with one entry per node. Nodes, leaf ids and category sets count from 0 in each tree."""

_OTHER_ARRAYS: dict[str, tuple[type, int]] = {
    "node_offsets": (np.int64, 1),  # tree t has nodes node_offsets[t] .. node_offsets[t + 1]
    "set_offsets": (np.int64, 1),  # the same for its rows of `categories`
    "categories": (np.uint64, 2),  # (n_sets, 4), bit c: code c goes left
    "output": (np.int32, 1),  # per tree; -1: all outputs; -2 - g: those of output group g
    "gain_outputs": (np.int32, 1),  # per tree: columns of its part of `output_gain`
    "output_gain": (np.float32, 1),  # per tree (n_nodes, gain_outputs[t]), concatenated
}
STATISTICS = ("gain", "count", "cover", "gain_outputs", "output_gain")
"""Arrays that prediction does not use; a file may omit all of them."""

# `values` has the concatenated `LeafKind.values` in one of `LEAF_DTYPES`; if that has
# scales, `value_scales` has one float32 per column of each tree.

_TREE_ARRAYS: dict[str, type] = {"leaf_kind": np.uint8}  # per tree: `LeafKind.number`
_KIND_ARRAYS: dict[str, type] = {}
for _kind in LEAF_KINDS.values():
    _KIND_ARRAYS |= _kind.arrays
"""Arrays of leaf kinds, concatenated; they are empty if no tree has such a kind."""

_GROUP_ARRAYS: dict[str, type] = {"group_sizes": np.int32, "group_outputs": np.int32}
"""The number of outputs of each group that trees are for, and the outputs, concatenated."""

LEAF_ARRAYS = ("values", "value_scales", *_KIND_ARRAYS)
"""Arrays of leaf values."""


def iter_trees(forest: _core.Forest) -> Iterator[tuple[_core.Tree, Any, TreeOutputs]]:
    """Yield (tree, leaves, outputs) of each tree."""
    for t in range(len(forest)):
        yield forest.tree(t), forest.values(t), forest.outputs(t)


def iter_output_trees(
    forest: _core.Forest, n_outputs: int, outputs: range, n_features: int
) -> Iterator[tuple[int, _core.Tree, Leaves, TreeOutputs]]:
    """Yield (number, tree, leaves, outputs) of the trees that predict a range of outputs.

    Outputs are renumbered from 0. The gain of a node becomes the mean of these outputs' if it is
    known for each output.
    """
    selected = np.arange(outputs.start, outputs.stop, dtype=np.int32)
    for t, (tree, leaves, listed) in enumerate(iter_trees(forest)):
        tree_outputs = np.arange(n_outputs, dtype=np.int32) if listed is None else listed
        columns = np.flatnonzero(np.isin(tree_outputs, selected))
        if len(columns) == 0:
            continue
        has_all = listed is None or 1 < len(columns) == len(selected)
        renumbered = None if has_all else tree_outputs[columns] - np.int32(outputs.start)
        kind = LEAF_KINDS[forest.kind(t)]
        if len(columns) == len(tree_outputs) < n_outputs and not kind.lists_outputs:
            yield t, tree, leaves, renumbered
            continue
        kept = kind.select_outputs(leaves, selected if kind.lists_outputs else columns)
        yield t, _select_gains(tree, len(tree_outputs), columns, n_features), kept, renumbered


def _select_gains(
    tree: _core.Tree, n_outputs: int, columns: np.ndarray, n_features: int
) -> _core.Tree:
    arrays = {name: getattr(tree, name) for name in NODE_ARRAYS}
    is_known = tree.n_outputs == n_outputs
    gains = np.take(tree.output_gain, columns if is_known else columns[:0], axis=1)
    if is_known:
        arrays["gain"] = np.cumsum(gains, axis=1, dtype=np.float64)[:, -1] / gains.shape[1]
    # Otherwise gains are of a sketch of the outputs, or unknown.
    return _core.Tree.from_arrays(
        **arrays, categories=tree.categories, output_gain=gains, n_features=n_features
    )


def get_leaf_kinds(forest: _core.Forest) -> list[AnyLeafKind]:
    """Return the leaf kind of each tree."""
    return [LEAF_KINDS[forest.kind(t)] for t in range(len(forest))]


def to_arrays(
    forest: _core.Forest, leaf_dtype: str = "float32", statistics: bool = True
) -> dict[str, np.ndarray]:
    """Return all trees of a forest as flat arrays.

    Leaf values are rounded to `leaf_dtype`; `statistics=False` omits the arrays `STATISTICS`.
    """
    trees, leaves, outputs = zip(*iter_trees(forest), strict=True) if len(forest) else ((), (), ())
    arrays = {
        name: _concatenate([getattr(t, name) for t in trees], dtype)
        for name, dtype in NODE_ARRAYS.items()
    }
    arrays["node_offsets"] = np.cumsum([0, *(t.n_nodes for t in trees)], dtype=np.int64)
    arrays["set_offsets"] = np.cumsum([0, *(len(t.categories) for t in trees)], dtype=np.int64)
    arrays["categories"] = _concatenate([t.categories for t in trees], np.uint64, (0, 4))
    arrays |= _encode_outputs(outputs)
    arrays["gain_outputs"] = np.array([t.n_outputs for t in trees], np.int32)
    arrays["output_gain"] = _concatenate([t.output_gain.ravel() for t in trees], np.float32)
    if not statistics:
        arrays = {name: array for name, array in arrays.items() if name not in STATISTICS}
    return arrays | _leaf_arrays(forest, leaves, leaf_dtype)


def _encode_outputs(outputs: Sequence[TreeOutputs]) -> dict[str, np.ndarray]:
    """Return the outputs of trees as flat arrays."""
    groups: dict[tuple[int, ...], int] = {}
    numbers = np.full(len(outputs), -1, np.int32)
    for t, listed in enumerate(outputs):
        if listed is not None and len(listed) == 1:
            numbers[t] = listed[0]
        elif listed is not None:
            numbers[t] = -2 - groups.setdefault(tuple(listed.tolist()), len(groups))
    return {
        "output": numbers,
        "group_sizes": np.array([len(group) for group in groups], np.int32),
        "group_outputs": np.array([k for group in groups for k in group], np.int32),
    }


def _decode_outputs(arrays: Mapping[str, np.ndarray]) -> list[TreeOutputs]:
    """Return the outputs of trees; the forest checks them."""
    sizes, members = arrays["group_sizes"], arrays["group_outputs"]
    fits = (sizes >= 1).all() and int(sizes.sum(dtype=np.int64)) == len(members)
    require(fits, "The forest's array 'group_sizes' does not fit 'group_outputs'.")
    groups = np.split(members, np.cumsum(sizes)[:-1])
    numbers = arrays["output"]
    is_known = int(numbers.min(initial=0)) >= -1 - len(sizes)
    require(is_known, "The forest's array 'output' has an unknown group of outputs.")
    return [
        None if k == -1 else groups[-2 - k] if k < -1 else np.array([k], np.int32)
        for k in numbers.tolist()
    ]


def _concatenate(
    parts: Sequence[np.ndarray], dtype: type, shape: tuple[int, ...] = (0,)
) -> np.ndarray:
    return np.concatenate([np.zeros(shape, dtype), *parts])


def _leaf_arrays(
    forest: _core.Forest, leaves: Sequence[Leaves], leaf_dtype: str
) -> dict[str, np.ndarray]:
    """Return the leaf values as flat arrays."""
    blocks = list(zip(get_leaf_kinds(forest), leaves, strict=True))
    arrays = _encode_values([kind.values(block) for kind, block in blocks], leaf_dtype)
    arrays["leaf_kind"] = np.array([kind.number for kind, _ in blocks], np.uint8)
    parts = [kind.to_arrays(block) for kind, block in blocks]
    for name, dtype in _KIND_ARRAYS.items():
        arrays[name] = _concatenate([part[name] for part in parts if name in part], dtype)
    return arrays


def _encode_values(values: Sequence[np.ndarray], leaf_dtype: str) -> dict[str, np.ndarray]:
    """Return stored leaf values, and their scales if the dtype has any."""
    stored, scales = encode(list(values), leaf_dtype)
    arrays = {"values": _concatenate([v.ravel() for v in stored], LEAF_DTYPES[leaf_dtype])}
    if has_scales(arrays["values"].dtype):
        arrays["value_scales"] = _concatenate(scales, np.float32)
    return arrays


def from_arrays(arrays: Mapping[str, np.ndarray], n_outputs: int, n_features: int) -> _core.Forest:
    """Build a forest from arrays of any origin; the inverse of `to_arrays`.

    Raises a ValueError unless the arrays describe trees with `n_features` features and finite leaf
    values for `n_outputs` outputs.
    """
    if not has_statistics(arrays):
        arrays = {**arrays, **_zero_statistics(arrays)}
    _check_arrays(arrays)
    n_trees = len(arrays["output"])
    nodes = _offsets(arrays, "node_offsets", n_trees, len(arrays["feature"]))
    sets = _offsets(arrays, "set_offsets", n_trees, len(arrays["categories"]))
    forest = _core.Forest(n_outputs)
    if _is_plain(arrays):
        flat = {name: arrays[name] for name in (*NODE_ARRAYS, *_OTHER_ARRAYS)}
        values = decode(arrays["values"], None)
        forest.extend(**flat, values=values, n_features=n_features)
        return forest
    is_scaled = has_scales(arrays["values"].dtype)
    names = ("values", "output_gain", *_KIND_ARRAYS, *(["value_scales"] if is_scaled else []))
    readers = {name: _ArrayReader(name, arrays[name]) for name in names}

    def take(name: str, n_rows: int, n_columns: int) -> np.ndarray:
        matrix = readers[name].take(n_rows, n_columns)
        if name != "values":
            return matrix
        return decode(matrix, take("value_scales", 1, n_columns)[0] if is_scaled else None)

    per_tree = zip(
        _kinds(arrays),
        pairwise(nodes.tolist()),
        pairwise(sets.tolist()),
        _decode_outputs(arrays),
        arrays["gain_outputs"],
        strict=True,
    )
    for kind, (begin, end), (first_set, last_set), outputs, gain_outputs in per_tree:
        tree = _core.Tree.from_arrays(
            **{name: arrays[name][begin:end] for name in NODE_ARRAYS},
            categories=arrays["categories"][first_set:last_set],
            output_gain=take("output_gain", end - begin, int(gain_outputs)),
            n_features=n_features,
        )
        n_columns = n_outputs if outputs is None or kind.lists_outputs else len(outputs)
        forest.append(tree, kind.from_arrays(take, tree.n_leaves, n_columns, n_features), outputs)
    for reader in readers.values():
        reader.check_end()
    return forest


def _is_plain(arrays: Mapping[str, np.ndarray]) -> bool:
    """Return whether all leaves are dense without scales, for one output or all, so that C++ builds
    the forest at once."""
    others = _KIND_ARRAYS | _GROUP_ARRAYS
    all_dense = bool((arrays["leaf_kind"] == LEAF_KINDS["dense"].number).all())
    return (
        all_dense and "value_scales" not in arrays and not any(len(arrays[name]) for name in others)
    )


def _kinds(arrays: Mapping[str, np.ndarray]) -> list[AnyLeafKind]:
    """Return the leaf kind of each stored tree."""
    numbers = arrays["leaf_kind"]
    kinds = {kind.number: kind for kind in LEAF_KINDS.values()}
    is_known = kinds.keys() >= set(np.unique(numbers).tolist())
    require(is_known, "The forest's array 'leaf_kind' has an unknown kind of leaves.")
    return [kinds[number] for number in numbers.tolist()]


def has_statistics(arrays: Mapping[str, np.ndarray]) -> bool:
    """Return whether the arrays have any of `STATISTICS`."""
    return any(name in arrays for name in STATISTICS)


def _zero_statistics(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return zeros in place of missing statistics."""
    n_nodes, n_trees = (len(arrays.get(name, ())) for name in ("feature", "output"))
    zeros: dict[str, np.ndarray] = {
        name: np.zeros(n_nodes, NODE_ARRAYS[name]) for name in STATISTICS if name in NODE_ARRAYS
    }
    return zeros | {
        "gain_outputs": np.zeros(n_trees, np.int32),
        "output_gain": np.zeros(0, np.float32),
    }


def _check_arrays(arrays: Mapping[str, np.ndarray]) -> None:
    vectors = NODE_ARRAYS | _TREE_ARRAYS | _KIND_ARRAYS | _GROUP_ARRAYS
    required = {name: (dtype, 1) for name, dtype in vectors.items()} | _OTHER_ARRAYS
    values = arrays.get("values")
    if values is not None and has_scales(values.dtype):
        required["value_scales"] = (np.float32, 1)
    required["values"] = (np.float32 if values is None else values.dtype.type, 1)
    for name, (dtype, ndim) in required.items():
        array = arrays.get(name)
        if array is None:
            raise ValueError(f"The forest's array {name!r} is missing.")
        require(
            array.dtype == dtype and array.ndim == ndim,
            f"The forest's array {name!r} must be {np.dtype(dtype)} with {ndim} dimension(s); got "
            f"{array.dtype} with {array.ndim}.",
        )
    n_nodes = {len(arrays[name]) for name in NODE_ARRAYS}
    require(len(n_nodes) == 1, f"The forest's node arrays differ in length: {sorted(n_nodes)}.")
    for name in ("gain_outputs", "leaf_kind"):
        is_same = len(arrays[name]) == len(arrays["output"])
        require(is_same, f"The forest's arrays 'output' and {name!r} differ in length.")
    largest = arrays.get("value_scales", np.zeros(1, np.float32)).astype(np.float64) * _MAX_INT8
    is_finite = (np.abs(largest) < np.finfo(np.float32).max).all()
    is_finite = is_finite and np.isfinite(arrays["values"]).all()
    require(is_finite, "The forest has leaf values that are not finite.")
    is_count = (arrays["count"] >= 0).all()
    require(is_count, "The forest has a node with a negative number of rows.")
    for name in ("gain", "output_gain"):
        require(np.isfinite(arrays[name]).all(), "The forest has gains that are not finite.")
    require(not np.isnan(arrays["cover"]).any(), "The forest has a node whose cover is NaN.")


def _offsets(arrays: Mapping[str, np.ndarray], name: str, n_trees: int, size: int) -> np.ndarray:
    offsets = arrays[name]
    has_ends = len(offsets) == n_trees + 1 and offsets[0] == 0 and offsets[-1] == size
    require(
        has_ends and (offsets[1:] >= offsets[:-1]).all(),
        f"The forest's array {name!r} must rise from 0 to {size} in {n_trees} steps.",
    )
    return offsets


class _ArrayReader:
    """Reads consecutive matrices from a flat array."""

    def __init__(self, name: str, flat: np.ndarray):
        self._name, self._flat = name, flat
        self._position = 0

    def take(self, n_rows: int, n_columns: int) -> np.ndarray:
        begin, self._position = self._position, self._position + n_rows * n_columns
        is_long = n_columns >= 0 and self._position <= len(self._flat)
        require(is_long, f"The forest's array {self._name!r} is too short for its trees.")
        return self._flat[begin : self._position].reshape(n_rows, n_columns)

    def check_end(self) -> None:
        is_read = self._position == len(self._flat)
        require(is_read, f"The forest's array {self._name!r} is longer than its trees require.")
