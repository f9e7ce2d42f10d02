"""Looking into a model: a table of its nodes, a JSON dump, sizes and a summary in words.

Owns: trees in the user's terms (names, thresholds, categories). Must not know: how trees are stored or grown.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np

import polyleaf._core as _core
from polyleaf import forest
from polyleaf.model import Model

TABLE_KINDS = ("dict", "pandas", "polars", "pyarrow")


def nodes_table(model: Model, kind: Literal["dict", "pandas", "polars", "pyarrow"] = "pandas") -> Any:
    """All nodes of all trees, one row a node.

    Parameters
    ----------
    kind : {"dict", "pandas", "polars", "pyarrow"}
        The last three need the package of that name.

    Returns
    -------
    dict of column name -> list, or a data frame, or an Arrow table
        Of every node: `tree`, `round`, `output` (name; None: all), `node` (0 is the root), `depth`, `count`
        (training rows), `cover` (their summed curvature). Of a split: `feature` (name), `threshold`
        (x <= threshold goes left; None: all present values do) or `categories` (those that go left),
        `missing_left`, `left` and `right` (nodes), `gain`. Of a leaf: `leaf` (its id), `value` (list, one
        number for each output of the tree). What a node does not have is None.
    """
    if kind not in TABLE_KINDS:
        raise ValueError(f"kind={kind!r} is unknown; it must be one of {', '.join(TABLE_KINDS)}.")
    columns: dict[str, list[Any]] = {name: [] for name in _COLUMNS}
    for tree in _trees(model):
        for node in tree["nodes"]:
            for name, column in columns.items():
                column.append(node[name] if name in node else tree.get(name))
    if kind == "dict":
        return columns
    # Through Arrow's or polars' own types where there are lists; pandas keeps lists as objects.
    if kind == "pandas":
        import pandas

        integers = {name: "Int64" for name in ("left", "right", "leaf")}
        return pandas.DataFrame(columns).astype(
            integers | {"missing_left": "boolean", "threshold": "float64"}
        )
    if kind == "polars":
        import polars

        types = {"int": polars.Int64, "float": polars.Float64, "bool": polars.Boolean, "str": polars.String}
        lists = {"strs": polars.List(polars.String), "floats": polars.List(polars.Float64)}
        return polars.DataFrame(columns, schema={name: (types | lists)[t] for name, t in _COLUMNS.items()})
    import pyarrow as pa

    types = {"int": pa.int64(), "float": pa.float64(), "bool": pa.bool_(), "str": pa.string()}
    types |= {"strs": pa.list_(pa.string()), "floats": pa.list_(pa.float64())}
    return pa.table(columns, schema=pa.schema([(name, types[t]) for name, t in _COLUMNS.items()]))


_COLUMNS = {
    "tree": "int",
    "round": "int",
    "output": "str",
    "node": "int",
    "depth": "int",
    "feature": "str",
    "threshold": "float",
    "categories": "strs",
    "missing_left": "bool",
    "left": "int",
    "right": "int",
    "gain": "float",
    "leaf": "int",
    "value": "floats",
    "count": "int",
    "cover": "float",
}


def dump_json(model: Model, path: str | Path | None = None) -> dict[str, Any]:
    """The model as JSON types, to be read by people and other programs; it cannot be loaded back.

    Parameters
    ----------
    path : str or Path, optional
        A file to write it to as well.

    Returns
    -------
    dict
        `base_score`, names, objective, and `trees`: each a flat list of nodes, as in `nodes_table`, without
        the entries that a node does not have.
    """
    content = {
        "n_features": model.n_features,
        "n_outputs": model.n_outputs,
        "feature_names": [model.feature_name(f) for f in range(model.n_features)],
        "output_names": [model.output_name(k) for k in range(model.n_outputs)],
        "objective": model.objective.to_dict(),
        "base_score": model.base_score.tolist(),
        "target_scale": None if model.target_scale is None else model.target_scale.tolist(),
        "target_offset": None if model.target_offset is None else model.target_offset.tolist(),
        "trees": list(_trees(model)),
    }
    if path is not None:
        text = json.dumps(content, indent=1, default=str)
        Path(path).write_text(text, encoding="utf-8")
    return content


def size_report(model: Model) -> dict[str, Any]:
    """How large a model is.

    Returns
    -------
    dict
        `rounds`, `trees`, `nodes`, `leaves`, `features`, `features_used`, `outputs`, `bytes` (of the trees in
        a file), `depth` and `leaves_per_tree` (each `min`, `mean`, `max` over trees).
    """
    trees = [tree for tree, _, _ in forest.trees_of(model.forest)]
    used = {int(f) for tree in trees for f in np.unique(tree.feature) if f >= 0}
    arrays = forest.to_arrays(model.forest)
    return {
        "rounds": model.n_rounds,
        "trees": len(trees),
        "nodes": sum(tree.n_nodes for tree in trees),
        "leaves": sum(tree.n_leaves for tree in trees),
        "features": model.n_features,
        "features_used": len(used),
        "outputs": model.n_outputs,
        "bytes": sum(array.nbytes for array in arrays.values()),
        "depth": _spread([int(_depths(tree).max()) for tree in trees]),
        "leaves_per_tree": _spread([tree.n_leaves for tree in trees]),
    }


def summary(model: Model, n_features: int = 10) -> str:
    """A model in a few lines of text, with its `n_features` most important features by gain."""
    size = size_report(model)
    depth, leaves = size["depth"], size["leaves_per_tree"]
    lines = [
        f"{model.metadata.get('kind', 'model')} with {size['outputs']} output(s), "
        f"objective {model.objective.to_dict().get('name', 'unknown')}",
        f"{size['trees']} trees in {size['rounds']} rounds, {size['nodes']:,} nodes, "
        f"{size['leaves']:,} leaves, {size['bytes'] / 2**20:.2f} MiB",
        f"depth {depth['min']} to {depth['max']} (mean {depth['mean']:.1f}), "
        f"leaves a tree {leaves['min']} to {leaves['max']} (mean {leaves['mean']:.1f})",
        f"{size['features_used']} of {size['features']} features used",
    ]
    if model.best_iteration is not None:
        lines.append(f"best round {model.best_iteration + 1}, validation score {model.best_score}")
    gains = model.feature_importance("gain")
    total = gains.sum()
    order = [f for f in np.argsort(-gains, kind="stable")[:n_features] if gains[f] > 0]
    if order:
        width = max(len(model.feature_name(f)) for f in order)
        lines.append("share of the gain:")
        lines += [f"  {model.feature_name(f):<{width}}  {gains[f] / total:6.1%}" for f in order]
    return "\n".join(lines)


def _trees(model: Model) -> Iterator[dict[str, Any]]:
    """Each tree in the user's terms."""
    thresholds = _Thresholds(model.mapper)
    for t, (tree, values, output) in enumerate(forest.trees_of(model.forest)):
        yield {
            "tree": t,
            "round": int(model.round_of_tree[t]),
            "output": None if output < 0 else model.output_name(output),
            "nodes": list(_nodes(model, thresholds, tree, values)),
        }


def _nodes(
    model: Model, thresholds: _Thresholds, tree: _core.Tree, values: np.ndarray
) -> Iterator[dict[str, Any]]:
    depths = _depths(tree).tolist()
    arrays = {name: getattr(tree, name).tolist() for name in forest.NODE_ARRAYS}
    for node, depth in enumerate(depths):
        entry = {name: array[node] for name, array in arrays.items()}
        common = {"node": node, "depth": depth, "count": entry["count"], "cover": entry["cover"]}
        feature = entry["feature"]
        if feature < 0:
            yield common | {"leaf": entry["leaf"], "value": values[entry["leaf"]].tolist()}
            continue
        rule: dict[str, Any]
        if entry["category_set"] >= 0:
            rule = {
                "categories": _category_names(model.mapper, feature, tree.categories[entry["category_set"]])
            }
        else:
            rule = {"threshold": thresholds.value(feature, entry["threshold"])}
        kept = {name: entry[name] for name in ("missing_left", "left", "right", "gain")}
        yield common | {"feature": model.feature_name(feature)} | rule | kept


class _Thresholds:
    """Thresholds of codes in the unit of the features; None where every present value goes left."""

    def __init__(self, mapper: Any):
        self._mapper = mapper
        self._known: dict[tuple[int, int], float | None] = {}

    def value(self, feature: int, code: int) -> float | None:
        key = (feature, code)
        if key not in self._known:
            is_last = code >= int(self._mapper.n_bins_[feature]) - 1
            self._known[key] = None if is_last else float(self._mapper.threshold_value(feature, code))
        return self._known[key]


def _category_names(mapper: Any, feature: int, words: np.ndarray) -> list[str]:
    """Categories that go left; those that share the last bin for being rare go together."""
    kept, rare = mapper.categories_[feature], mapper.rare_categories_[feature]

    def goes_left(code: int) -> bool:
        return bool(int(words[code // 64]) >> (code % 64) & 1)

    names = [str(name) for code, name in enumerate(kept) if goes_left(code)]
    return names + ([str(name) for name in rare] if rare and goes_left(len(kept)) else [])


def _depths(tree: _core.Tree) -> np.ndarray:
    """Depth of each node; 0 for the root."""
    depths = [0] * tree.n_nodes
    for node, (left, right) in enumerate(zip(tree.left.tolist(), tree.right.tolist(), strict=True)):
        if left >= 0:
            depths[left] = depths[right] = depths[node] + 1
    return np.array(depths)


def _spread(numbers: list[int]) -> dict[str, float]:
    if not numbers:
        return {"min": 0, "mean": 0.0, "max": 0}
    return {"min": min(numbers), "mean": float(np.mean(numbers)), "max": max(numbers)}
