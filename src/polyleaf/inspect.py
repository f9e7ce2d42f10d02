"""Looking into a model: a table of its nodes, a JSON dump, sizes and a summary in words.

Owns: trees in the user's terms (names, thresholds, categories). Must not know: how trees are stored or grown.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

import polyleaf._core as _core
from polyleaf import forest
from polyleaf.leaf_storage import LEAF_DTYPES
from polyleaf.model import Model
from polyleaf.trees import Tree

# What leaves hold.
_VALUES = ("values", "value_scales", *forest.KIND_ARRAYS)

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
        number for each output of the tree). What a node does not have is None; so are `gain`,
        `count` and `cover` of a model that was saved without its statistics.

        Where a tree has sparse leaves, also `value_outputs` (names of the outputs that `value` is for; None:
        all). Where one has linear leaves, whose `value` is that at the centre, also `regressors` (names of
        features), `centre`, `coefficients` (a list for each regressor, one number for each output), `lower`
        and `upper` (bounds for each output; None: no bound).
    """
    if kind not in TABLE_KINDS:
        raise ValueError(f"kind={kind!r} is unknown; it must be one of {', '.join(TABLE_KINDS)}.")
    types = _COLUMNS | {
        name: entry
        for leaves in sorted(set(forest.kinds_of(model.forest)))
        for name, entry in _COLUMNS_OF_KIND[leaves].items()
    }
    columns: dict[str, list[Any]] = {name: [] for name in types}
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

        return polars.DataFrame(columns, schema={name: _polars_type(t) for name, t in types.items()})
    import pyarrow

    return pyarrow.table(
        columns, schema=pyarrow.schema([(name, _arrow_type(t)) for name, t in types.items()])
    )


def _polars_type(name: str) -> Any:
    import polars

    if name.startswith("list "):
        return polars.List(_polars_type(name.removeprefix("list ")))
    plain = {"int": polars.Int64, "float": polars.Float64, "bool": polars.Boolean, "str": polars.String}
    return plain[name]


def _arrow_type(name: str) -> Any:
    import pyarrow

    if name.startswith("list "):
        return pyarrow.list_(_arrow_type(name.removeprefix("list ")))
    plain = {"int": "int64", "float": "float64", "bool": "bool", "str": "string"}
    return pyarrow.type_for_alias(plain[name])


_COLUMNS = {
    "tree": "int",
    "round": "int",
    "output": "str",
    "node": "int",
    "depth": "int",
    "feature": "str",
    "threshold": "float",
    "categories": "list str",
    "missing_left": "bool",
    "left": "int",
    "right": "int",
    "gain": "float",
    "leaf": "int",
    "value": "list float",
    "count": "int",
    "cover": "float",
}

_COLUMNS_OF_KIND: dict[str, dict[str, str]] = {
    "dense": {},
    "sparse": {"value_outputs": "list str"},
    "linear": {
        "regressors": "list str",
        "centre": "list float",
        "coefficients": "list list float",
        "lower": "list float",
        "upper": "list float",
    },
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


def size_report(
    model: Model,
    X: Any = None,
    y: Any = None,
    sample_weight: Any = None,
    *,
    metrics: Any = None,
    rounds: Sequence[int] | None = None,
    n_threads: int = 1,
) -> dict[str, Any]:
    """How large a model is, and with data, how good it is with its first rounds only.

    Parameters
    ----------
    model : Model
    X, y, sample_weight : optional
        Data as its estimator takes them: of a test set, say.
    metrics : str, callable or list of these, optional
        As the estimators' `eval_metric`. Default: the metric that goes with the objective.
    rounds : sequence of int, optional
        Sizes to score. Default: 1, 2, 5, 10, 25, 50, 100, 250, ... and all.

    Returns
    -------
    dict
        `rounds`, `trees`, `nodes`, `leaves`, `features`, `features_used` (in splits or by linear leaves),
        `outputs`, `kinds` (number of trees with each kind of leaves that occurs), `bytes` (of the trees in a
        file), `bytes_of` ("structure", "statistics", "values": their parts), `bytes_by_leaf_dtype` (what
        `bytes` is with that `leaf_dtype`; None where values do not fit it), `depth` and `leaves_per_tree`
        (each `min`, `mean`, `max` over trees); where there are sparse or linear leaves `entries_per_leaf`,
        the mean number of outputs or regressors of these. With data also `scores`: for each size a dict of
        `rounds`, `trees`, `nodes`, `bytes` and the metrics by name.
    """
    trees = [tree for tree, _, _ in forest.trees_of(model.forest)]
    used = np.union1d(model.forest.split_features(), model.forest.regressors())
    kinds = forest.kinds_of(model.forest)
    arrays = forest.to_arrays(model.forest, statistics=model.has_statistics)
    sizes = {name: array.nbytes for name, array in arrays.items()}
    statistics = sum(sizes.get(name, 0) for name in forest.STATISTICS)
    values = sum(sizes[name] for name in _VALUES if name in sizes)
    report: dict[str, Any] = {
        "rounds": model.n_rounds,
        "trees": len(trees),
        "nodes": sum(tree.n_nodes for tree in trees),
        "leaves": sum(tree.n_leaves for tree in trees),
        "features": model.n_features,
        "features_used": len(used),
        "outputs": model.n_outputs,
        "bytes": sum(sizes.values()),
        "bytes_of": {
            "structure": sum(sizes.values()) - statistics - values,
            "statistics": statistics,
            "values": values,
        },
        "bytes_by_leaf_dtype": {dtype: _bytes_of_trees(model, dtype) for dtype in LEAF_DTYPES},
        "depth": _spread([int(_depths(tree).max()) for tree in trees]),
        "leaves_per_tree": _spread([tree.n_leaves for tree in trees]),
        "kinds": {kind: kinds.count(kind) for kind in forest.KINDS if kind in kinds},
    }
    if "leaf_entries" in arrays:
        report["entries_per_leaf"] = float(arrays["leaf_entries"].mean())
    if X is not None:
        scorer = _Scorer(model, X, y, sample_weight, metrics, n_threads)
        report["scores"] = [scorer.at(size) for size in _sizes(model.n_rounds, rounds)]
    return report


def leaf_dtype_report(
    model: Model,
    X: Any,
    y: Any,
    sample_weight: Any = None,
    *,
    metrics: Any = None,
    n_threads: int = 1,
) -> list[dict[str, Any]]:
    """What each `leaf_dtype` of `Model.save` saves, and what it costs in accuracy.

    Parameters
    ----------
    model : Model
    X, y, sample_weight
        Data to measure on, as the model's estimator takes them.
    metrics : str, callable or list of these, optional
        As the estimators' `eval_metric`. Default: the metric that goes with the objective.

    Returns
    -------
    list of dict
        For each: `leaf_dtype`, `file_bytes`, `file_bytes_without_statistics` (see `Model.save`),
        `largest_change` of a raw score (in its unit) and the metrics by name; or `leaf_dtype` and `error`
        where the values do not fit.
    """
    from polyleaf.serialize import from_bytes, to_bytes

    exact = _Scorer(model, X, y, sample_weight, metrics, n_threads)
    rows: list[dict[str, Any]] = []
    for dtype in LEAF_DTYPES:
        try:
            data = to_bytes(model, dtype)
        except ValueError as error:
            rows.append({"leaf_dtype": dtype, "error": str(error)})
            continue
        rounded = from_bytes(data).raw_predict(exact.table, n_threads=n_threads)
        change = float(np.abs(rounded - exact.raw(model.n_rounds)).max(initial=0.0))
        bare = len(to_bytes(model, dtype, statistics=False))
        about = {"leaf_dtype": dtype, "file_bytes": len(data), "file_bytes_without_statistics": bare}
        rows.append(about | {"largest_change": change} | exact.metrics_of(rounded))
    return rows


class _Scorer:
    """Metrics of a model on one data set, whose target is in the user's terms."""

    def __init__(
        self, model: Model, X: Any, y: Any, sample_weight: Any, metrics: Any, n_threads: int
    ) -> None:
        from polyleaf.features import as_features
        from polyleaf.metrics import get_metrics
        from polyleaf.targets import TargetEncoding

        if "one_dimensional" not in model.metadata:
            raise ValueError(
                "This model does not say what its target is, because no estimator trained it: it cannot be "
                "scored."
            )
        self.model, self.n_threads = model, n_threads
        self.table = as_features(X, reference=model.mapper)
        encoding = TargetEncoding.from_dict(model.metadata)
        self.target = encoding.encode(y, sample_weight, normalized=False)
        if self.target.n_rows != self.table.n_rows:
            raise ValueError(f"X has {self.table.n_rows} rows, but y has {self.target.n_rows}.")
        self.metrics = get_metrics(metrics, model.objective)

    def raw(self, n_rounds: int) -> np.ndarray:
        return self.model.raw_predict(self.table, 0, n_rounds, self.n_threads)

    def metrics_of(self, raw: np.ndarray) -> dict[str, float]:
        prediction = self.model.objective.transform(raw)
        data = self.target.values, self.target.weight
        return {
            metric.name: float(metric(data[0], raw if metric.needs == "raw" else prediction, data[1]))
            for metric in self.metrics
        }

    def at(self, n_rounds: int) -> dict[str, Any]:
        part = self.model.copy()
        part.truncate(n_rounds)
        nodes = sum(tree.n_nodes for tree, _, _ in forest.trees_of(part.forest))
        about = {"rounds": n_rounds, "trees": part.n_trees, "nodes": nodes}
        return about | {"bytes": _bytes_of_trees(part, "float32")} | self.metrics_of(self.raw(n_rounds))


def _sizes(n_rounds: int, wanted: Sequence[int] | None) -> list[int]:
    """Numbers of rounds to score: those wanted, or a geometric series up to all."""
    if wanted is None:
        decades = [1, 2, 5] + [digits * 10**power for power in range(7) for digits in (10, 25, 50)]
        return sorted({size for size in decades if size < n_rounds} | {n_rounds})
    bad = [size for size in wanted if not 0 <= size <= n_rounds]
    if bad:
        raise ValueError(f"rounds has {bad[0]}, but the model has {n_rounds} rounds.")
    return list(wanted)


def _bytes_of_trees(model: Model, leaf_dtype: str) -> int | None:
    """Bytes of the trees in a file; None where leaf values do not fit."""
    try:
        arrays = forest.to_arrays(model.forest, leaf_dtype, model.has_statistics)
        return sum(array.nbytes for array in arrays.values())
    except ValueError:
        return None


def summary(model: Model, n_features: int = 10) -> str:
    """A model in a few lines of text, with its `n_features` most important features by gain."""
    size = size_report(model)
    depth, leaves = size["depth"], size["leaves_per_tree"]
    others = ", ".join(
        f"{dtype} {'does not fit' if number is None else _in_mib(number)}"
        for dtype, number in size["bytes_by_leaf_dtype"].items()
        if dtype != "float32"
    )
    lines = [
        f"{model.metadata.get('kind', 'model')} with {size['outputs']} output(s), "
        f"objective {model.objective.to_dict().get('name', 'unknown')}",
        f"{size['trees']} trees in {size['rounds']} rounds, {size['nodes']:,} nodes, "
        f"{size['leaves']:,} leaves, {_in_mib(size['bytes'])} in a file "
        f"(of that leaf values {_in_mib(size['bytes_of']['values'])}; with leaf_dtype {others})",
        f"depth {depth['min']} to {depth['max']} (mean {depth['mean']:.1f}), "
        f"leaves a tree {leaves['min']} to {leaves['max']} (mean {leaves['mean']:.1f})",
        f"{size['features_used']} of {size['features']} features used",
    ]
    if "entries_per_leaf" in size:
        kinds = ", ".join(f"{n} trees have {kind} leaves" for kind, n in size["kinds"].items())
        lines.append(
            f"{kinds}; {size['entries_per_leaf']:.1f} outputs or regressors a leaf that is not dense"
        )
    if model.best_iteration is not None:
        lines.append(f"best round {model.best_iteration + 1}, validation score {model.best_score}")
    by = "gain" if model.has_statistics else "split"
    gains = model.feature_importance(by)  # type: ignore[arg-type]
    total = gains.sum()
    order = [f for f in np.argsort(-gains, kind="stable")[:n_features] if gains[f] > 0]
    if order:
        width = max(len(model.feature_name(f)) for f in order)
        lines.append("share of the gain:" if by == "gain" else "share of the splits:")
        lines += [f"  {model.feature_name(f):<{width}}  {gains[f] / total:6.1%}" for f in order]
    return "\n".join(lines)


def _trees(model: Model) -> Iterator[dict[str, Any]]:
    """Each tree in the user's terms."""
    thresholds = Thresholds(model.mapper)
    for tree in model.trees:
        yield {
            "tree": tree.number,
            "round": tree.round,
            "output": None if tree.output is None else model.output_name(tree.output),
            "nodes": list(_nodes(model, thresholds, tree)),
        }


def _nodes(model: Model, thresholds: Thresholds, view: Tree) -> Iterator[dict[str, Any]]:
    tree = view.structure
    depths = _depths(tree).tolist()
    arrays = {name: getattr(tree, name).tolist() for name in forest.NODE_ARRAYS}
    for node, depth in enumerate(depths):
        entry = {name: array[node] for name, array in arrays.items()}
        common = {"node": node, "depth": depth}
        if model.has_statistics:
            common |= {"count": entry["count"], "cover": entry["cover"]}
        feature = entry["feature"]
        if feature < 0:
            yield common | {"leaf": entry["leaf"]} | _payload(model, view, entry["leaf"])
            continue
        rule: dict[str, Any]
        if entry["category_set"] >= 0:
            rule = {
                "categories": _category_names(model.mapper, feature, tree.categories[entry["category_set"]])
            }
        else:
            rule = {"threshold": thresholds.value(feature, entry["threshold"])}
        kept = {name: entry[name] for name in ("missing_left", "left", "right")}
        if model.has_statistics:
            kept["gain"] = entry["gain"]
        yield common | {"feature": model.feature_name(feature)} | rule | kept


def _payload(model: Model, tree: Tree, leaf: int) -> dict[str, Any]:
    """What a leaf holds."""
    if tree.kind == "sparse":
        outputs, values = tree.leaf_sparse(leaf)
        return {
            "value": values.tolist(),
            "value_outputs": [model.output_name(k) for k in outputs.tolist()],
        }
    payload: dict[str, Any] = {"value": tree.leaf_values(leaf).tolist()}
    if tree.kind == "linear":
        function = tree.leaf_linear(leaf)
        payload |= {
            "regressors": [model.feature_name(f) for f in function.features.tolist()],
            "centre": function.centre.tolist(),
            "coefficients": function.coefficients.tolist(),
            "lower": [b if np.isfinite(b) else None for b in function.lower.tolist()],
            "upper": [b if np.isfinite(b) else None for b in function.upper.tolist()],
        }
    return payload


class Thresholds:
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


def _in_mib(size: int) -> str:
    return f"{size / 2**20:.2f} MiB"


def _spread(numbers: list[int]) -> dict[str, float]:
    if not numbers:
        return {"min": 0, "mean": 0.0, "max": 0}
    return {"min": min(numbers), "mean": float(np.mean(numbers)), "max": max(numbers)}
