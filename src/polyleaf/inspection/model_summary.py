"""Tables, JSON dumps, sizes and summaries of models, with names, thresholds and categories."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

import polyleaf._core as _core
from polyleaf.binned_data.dataset import Dataset
from polyleaf.estimators.multitask import TaskOffsetReader
from polyleaf.metrics import get_metrics
from polyleaf.metrics.metric import BoundMetric
from polyleaf.model import Model, storage
from polyleaf.model.leaf_kinds import LEAF_KINDS, NameLookup
from polyleaf.model.model import get_model
from polyleaf.model.serialize import TextDestination, write_text
from polyleaf.model.storage import LEAF_DTYPES
from polyleaf.model.trees import SplitThresholds, Tree, left_categories, node_depths
from polyleaf.runtime.checks import format_bytes, require_choice
from polyleaf.runtime.row_data import RowData
from polyleaf.runtime.types import DataLike, JsonObject, ModelLike
from polyleaf.user_data.feature_table import FeatureTable
from polyleaf.user_data.multitask import TaskEncodings, decode_target_encoding
from polyleaf.user_data.offsets import OffsetReader
from polyleaf.user_data.read_target import check_same_rows

if TYPE_CHECKING:
    import pyarrow as pa
    from polars.datatypes import DataType, DataTypeClass

TABLE_KINDS = ("dict", "pandas", "polars", "pyarrow")


def nodes_table(
    model: ModelLike, kind: Literal["dict", "pandas", "polars", "pyarrow"] = "pandas"
) -> Any:
    """Return all nodes of all trees, one row per node.

    Parameters
    ----------
    model : Model or fitted estimator
    kind : {"dict", "pandas", "polars", "pyarrow"}
        The type of the result; the last three require the package of that name.

    Returns
    -------
    dict of column name -> list, or a data frame, or an Arrow table
        Columns of all nodes: `tree`, `round`, `outputs` (names; None: all), `node` (0 is the root),
        `depth`, `count` (training rows), `cover` (the sum of their Hessians). Of splits: `feature`
        (name), `threshold` (x <= threshold goes left; None: all rows with a value) or `categories`
        (those that go left), `missing_left`, `left` and `right` (nodes), `gain`. Of leaves: `leaf`
        (id), `value` (list, one number per output of the tree). Entries that do not apply are None;
        so are `gain`, `count` and `cover` if the model was saved without statistics.

        If a tree has sparse leaves, also `value_outputs` (names of the outputs of `value`; None:
        all). If one has linear leaves, whose `value` is that at the centre, also `regressors`
        (names of features), `centre`, `coefficients` (a list per regressor, one number per output),
        `lower` and `upper` (bounds per output; None: no bound).
    """
    require_choice(kind, TABLE_KINDS, "kind")
    model = get_model(model)
    kinds = sorted(set(storage.get_leaf_kinds(model.forest)), key=lambda kind: kind.name)
    types = _COLUMNS | {name: entry for kind in kinds for name, entry in kind.columns.items()}
    columns: dict[str, list[object]] = {name: [] for name in types}
    for tree in _trees(model):
        for node in tree["nodes"]:
            for name, column in columns.items():
                column.append(node[name] if name in node else tree.get(name))
    if kind == "dict":
        return columns
    # pandas keeps lists as objects; polars and Arrow have list types.
    if kind == "pandas":
        import pandas

        dtypes = {name: "Int64" for name in ("left", "right", "leaf")}
        dtypes |= {"missing_left": "boolean", "threshold": "float64"}
        return pandas.DataFrame(columns).astype(dtypes)
    if kind == "polars":
        import polars

        schema = {name: _polars_type(t) for name, t in types.items()}
        return polars.DataFrame(columns, schema=schema)
    import pyarrow

    schema = pyarrow.schema([(name, _arrow_type(t)) for name, t in types.items()])
    return pyarrow.table(columns, schema=schema)


def _polars_type(name: str) -> DataType | DataTypeClass:
    import polars

    if name.startswith("list "):
        return polars.List(_polars_type(name.removeprefix("list ")))
    plain = {"int": "Int64", "float": "Float64", "bool": "Boolean", "str": "String"}
    data_type: DataType | DataTypeClass = getattr(polars, plain[name])
    return data_type


def _arrow_type(name: str) -> pa.DataType:
    import pyarrow

    if name.startswith("list "):
        return pyarrow.list_(_arrow_type(name.removeprefix("list ")))
    plain = {"int": "int64", "float": "float64", "bool": "bool", "str": "string"}
    return pyarrow.type_for_alias(plain[name])


_COLUMNS = {
    "tree": "int",
    "round": "int",
    "outputs": "list str",
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


def dump_json(model: Any, path: TextDestination | None = None) -> JsonObject:
    """Return the model as JSON types; it cannot be loaded from them.

    Parameters
    ----------
    model : Model or fitted estimator
    path : str, path or open text file, optional
        A file to write as well.

    Returns
    -------
    dict
        `base_score`, names, objective, and `trees`: each a flat list of nodes, see `nodes_table`,
        without entries that do not apply.
    """
    model = get_model(model)
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
        write_text(path, json.dumps(content, indent=1, default=str))
    return content


def format_tree(model: ModelLike, tree: int) -> str:
    """Return a tree as indented lines: splits with their gain, leaves with their values."""
    content = get_model(model)
    trees = list(_trees(content))
    if not 0 <= tree < len(trees):
        raise ValueError(f"There is no tree {tree}: the model has {len(trees)}, counted from 0.")
    nodes, outputs = list(trees[tree]["nodes"]), trees[tree]["outputs"]
    suffix = "" if outputs is None else f" for {', '.join(outputs)}"
    lines = [f"tree {tree}{suffix}, round {trees[tree]['round']}"]

    def add(number: int, depth: int, answer: str) -> None:
        node = nodes[number]
        details = [f"gain {node['gain']:.4g}"] if "gain" in node else []
        details += [f"{node['count']} row{'s'[: node['count'] != 1]}"] if "count" in node else []
        suffix = f" ({', '.join(details)})" if details else ""
        if "leaf" in node:
            values = " ".join(f"{value:.4g}" for value in node["value"])
            lines.append(f"{'  ' * depth}{answer}leaf {node['leaf']}: {values}{suffix}")
            return
        lines.append(f"{'  ' * depth}{answer}{_format_condition(node)}{suffix}")
        add(node["left"], depth + 1, "yes: ")
        add(node["right"], depth + 1, "no: ")

    add(0, 1, "")
    return "\n".join(lines)


def tree_to_dot(model: ModelLike, tree: int = 0) -> str:
    """Return a tree as text in the DOT language, which Graphviz draws.

    Parameters
    ----------
    model : Model or fitted estimator
    tree : int
        Its index, from 0.

    Returns
    -------
    str
        For `graphviz.Source`, or a file for the program `dot`. Solid lines are answers "yes".
    """
    lines = [f"digraph tree_{tree} {{", "  node [shape=box, fontname=Helvetica];"]
    for number, node in enumerate(tree_nodes(model, tree)):
        rows = f"\n{node['count']:,} rows" if "count" in node else ""
        if "leaf" in node:
            shown = [f"{value:.4g}" for value in node["value"][:_MAX_DOT_VALUES]]
            more = len(node["value"]) - len(shown)
            text = ", ".join(shown) + (f", and {more} more" if more else "")
            lines.append(f"  {number} [label={_quote(text + rows)}, style=rounded];")
            continue
        gain = f", gain {node['gain']:.4g}" if "gain" in node else ""
        lines.append(f"  {number} [label={_quote(_format_condition(node) + rows + gain)}];")
        lines.append(f"  {number} -> {node['left']} [label=yes];")
        lines.append(f"  {number} -> {node['right']} [label=no, style=dashed];")
    return "\n".join([*lines, "}"])


_MAX_DOT_VALUES = 8  # of a leaf


def _quote(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _format_condition(node: JsonObject) -> str:
    if "categories" in node:
        condition = f"{node['feature']} in {{{', '.join(map(str, node['categories']))}}}"
    elif node["threshold"] is None:
        condition = f"{node['feature']} is not missing"
    else:
        condition = f"{node['feature']} <= {node['threshold']:.6g}"
    return f"{condition}{' or missing' if node['missing_left'] else ''}"


def size_report(
    model: Any,
    X: Any = None,
    y: Any = None,
    sample_weight: DataLike | None = None,
    *,
    metrics: object = None,
    rounds: Sequence[int] | None = None,
    n_threads: int = 1,
) -> JsonObject:
    """Return the size of a model, and with data its accuracy after fewer rounds.

    Parameters
    ----------
    model : Model or fitted estimator
    X, y, sample_weight : optional
        Data as the model's estimator takes them, such as a test set.
    metrics : str, callable or list of these, optional
        See `eval_metric` of the estimators. Default: the metric of the objective.
    rounds : sequence of int, optional
        Numbers of rounds to score. Default: 1, 2, 5, 10, 25, 50, 100, 250 and so on, and all.
    n_threads : int

    Returns
    -------
    dict
        `rounds`, `features`, `outputs`, `trees`, `nodes`, `leaves`, `features_used` (by splits or
        linear leaves), `kinds` (number of trees of each leaf kind), `bytes` (of the trees in a
        file), `bytes_of` (its parts "structure", "statistics" and "values"), `bytes_by_leaf_dtype`
        (`bytes` with that `leaf_dtype`; None if values do not fit), `depth` and `leaves_per_tree`
        (`min`, `mean` and `max` over trees); with sparse or linear leaves `entries_per_leaf`, the
        mean number of outputs or regressors. With data also `scores`: for each number of rounds
        `rounds`, `trees`, `nodes`, `bytes` and the metrics by name.
    """
    model = get_model(model)
    report = {
        "rounds": model.n_rounds,
        "features": model.n_features,
        "outputs": model.n_outputs,
        **_forest_size(model.forest, model.has_statistics),
    }
    if X is not None:
        scorer = Scorer(model, X, y, sample_weight, metrics)
        report["scores"] = [
            _truncated_size(model, n) | scorer(model.predict_raw(scorer.table, 0, n, n_threads))
            for n in _choose_rounds(model.n_rounds, rounds)
        ]
    return report


def _forest_size(forest: _core.Forest, statistics: bool) -> dict[str, object]:
    """Return counts and bytes of all trees."""
    trees = [tree for tree, _, _ in storage.iter_trees(forest)]
    kinds = [kind.name for kind in storage.get_leaf_kinds(forest)]
    arrays = storage.to_arrays(forest, statistics=statistics)
    sizes = {name: array.nbytes for name, array in arrays.items()}
    statistics_size = sum(sizes.get(name, 0) for name in storage.STATISTICS)
    values_size = sum(sizes.get(name, 0) for name in storage.LEAF_ARRAYS)
    report: dict[str, object] = {
        "trees": len(trees),
        "nodes": _count_nodes(forest),
        "leaves": sum(tree.n_leaves for tree in trees),
        "features_used": len(np.union1d(forest.split_features(), forest.regressors())),
        "bytes": sum(sizes.values()),
        "bytes_of": {
            "structure": sum(sizes.values()) - statistics_size - values_size,
            "statistics": statistics_size,
            "values": values_size,
        },
        "bytes_by_leaf_dtype": {
            dtype: _stored_bytes(forest, statistics, dtype) for dtype in LEAF_DTYPES
        },
        "depth": _range_and_mean([int(node_depths(tree).max()) for tree in trees]),
        "leaves_per_tree": _range_and_mean([tree.n_leaves for tree in trees]),
        "kinds": {kind: kinds.count(kind) for kind in LEAF_KINDS if kind in kinds},
    }
    if len(arrays["leaf_entries"]):
        report["entries_per_leaf"] = float(arrays["leaf_entries"].mean())
    return report


def _truncated_size(model: Model, n_rounds: int) -> dict[str, object]:
    part = model.copy()
    part.truncate(n_rounds)
    return {
        "rounds": n_rounds,
        "trees": part.n_trees,
        "nodes": _count_nodes(part.forest),
        "bytes": _stored_bytes(part.forest, model.has_statistics),
    }


def _count_nodes(forest: _core.Forest) -> int:
    return sum(tree.n_nodes for tree, _, _ in storage.iter_trees(forest))


def _stored_bytes(
    forest: _core.Forest, statistics: bool, leaf_dtype: str = "float32"
) -> int | None:
    """Return the bytes of the trees in a file; None if leaf values do not fit the dtype."""
    try:
        arrays = storage.to_arrays(forest, leaf_dtype, statistics)
        return sum(array.nbytes for array in arrays.values())
    except ValueError:
        return None


def _range_and_mean(numbers: list[int]) -> dict[str, float]:
    if not numbers:
        return {"min": 0, "mean": 0.0, "max": 0}
    return {"min": min(numbers), "mean": float(np.mean(numbers)), "max": max(numbers)}


def _choose_rounds(n_rounds: int, rounds: Sequence[int] | None) -> list[int]:
    """Return the numbers of rounds to score: as given, or a geometric series up to all."""
    if rounds is None:
        series = [1, 2, 5] + [digits * 10**power for power in range(7) for digits in (10, 25, 50)]
        return sorted({size for size in series if size < n_rounds} | {n_rounds})
    invalid = [size for size in rounds if not 0 <= size <= n_rounds]
    if invalid:
        raise ValueError(f"rounds contains {invalid[0]}, but the model has {n_rounds} rounds.")
    return list(rounds)


def leaf_dtype_report(
    model: Any,
    X: DataLike,
    y: DataLike,
    sample_weight: DataLike | None = None,
    *,
    metrics: object = None,
    n_threads: int = 1,
) -> list[JsonObject]:
    """Return the file size and the loss of accuracy for each `leaf_dtype` of `Model.save`.

    Parameters
    ----------
    model : Model or fitted estimator
    X, y, sample_weight
        Data to evaluate on, as the model's estimator takes them.
    metrics : str, callable or list of these, optional
        See `eval_metric` of the estimators. Default: the metric of the objective.
    n_threads : int

    Returns
    -------
    list of dict
        For each: `leaf_dtype`, `file_bytes`, `file_bytes_without_statistics` (see `Model.save`),
        `largest_change` of a raw score and the metrics by name; or `leaf_dtype` and `error` if the
        values do not fit.
    """
    model = get_model(model)
    scorer = Scorer(model, X, y, sample_weight, metrics)
    exact = model.predict_raw(scorer.table, n_threads=n_threads)
    rows: list[JsonObject] = []
    for dtype in LEAF_DTYPES:
        try:
            data = model.to_bytes(dtype)
        except ValueError as error:
            rows.append({"leaf_dtype": dtype, "error": str(error)})
            continue
        rounded = Model.from_bytes(data).predict_raw(scorer.table, n_threads=n_threads)
        record = {
            "leaf_dtype": dtype,
            "file_bytes": len(data),
            "file_bytes_without_statistics": len(model.to_bytes(dtype, statistics=False)),
            "largest_change": float(np.abs(rounded - exact).max(initial=0.0)),
        }
        rows.append(record | scorer(rounded))
    return rows


def summary(model: Any, n_features: int = 10) -> str:
    """Return a short text about a model.

    Parameters
    ----------
    model : Model or fitted estimator
    n_features : int
        The number of most important features to list: by gain, or by number of splits if the model
        was saved without statistics.
    """
    model = get_model(model)
    size = size_report(model)
    depth, leaves = size["depth"], size["leaves_per_tree"]
    is_ranking = "relevance" in model.objective.target_kinds
    kind = "ranking" if is_ranking else model.metadata.get("kind", "model")
    others = ", ".join(
        f"{dtype} {'does not fit' if number is None else format_bytes(number)}"
        for dtype, number in size["bytes_by_leaf_dtype"].items()
        if dtype != "float32"
    )
    lines = [
        f"{kind} with {size['outputs']} output(s), "
        f"objective {model.objective.to_dict().get('name', 'unknown')}",
        f"{size['trees']} trees in {size['rounds']} rounds, {size['nodes']:,} nodes, "
        f"{size['leaves']:,} leaves, {format_bytes(size['bytes'])} in a file (leaf values "
        f"{format_bytes(size['bytes_of']['values'])}; with leaf_dtype {others})",
        f"depth {depth['min']} to {depth['max']} (mean {depth['mean']:.1f}), "
        f"leaves per tree {leaves['min']} to {leaves['max']} (mean {leaves['mean']:.1f})",
        f"{size['features_used']} of {size['features']} features used",
    ]
    if "entries_per_leaf" in size:
        kinds = ", ".join(f"{n} trees have {kind} leaves" for kind, n in size["kinds"].items())
        lines.append(
            f"{kinds}; {size['entries_per_leaf']:.1f} outputs or regressors per non-dense leaf"
        )
    if model.best_iteration is not None:
        lines.append(f"best round {model.best_iteration + 1}, validation score {model.best_score}")
    by = "gain" if model.has_statistics else "split"
    gains = model.feature_importance(by)
    total = gains.sum()
    order = [f for f in np.argsort(-gains, kind="stable")[:n_features] if gains[f] > 0]
    if order:
        width = max(len(model.feature_name(f)) for f in order)
        lines.append("share of the gain:" if by == "gain" else "share of the splits:")
        lines += [f"  {model.feature_name(f):<{width}}  {gains[f] / total:6.1%}" for f in order]
    return "\n".join(lines)


def _trees(model: Model) -> Iterator[JsonObject]:
    """Yield each tree as JSON types."""
    thresholds = SplitThresholds(model.mapper)
    for tree in model.trees:
        yield {
            "tree": tree.number,
            "round": tree.round,
            "outputs": None
            if tree.outputs is None
            else [model.output_name(k) for k in tree.outputs.tolist()],
            "nodes": list(_nodes(model, thresholds, tree)),
        }


def tree_nodes(model: ModelLike, tree: int) -> list[JsonObject]:
    """Return the nodes of one tree.

    Parameters
    ----------
    model : Model or fitted estimator
    tree : int
        Its index, from 0.

    Returns
    -------
    list of dict
        Node 0 first; keys are the columns of `nodes_table`.
    """
    model = get_model(model)
    return list(_nodes(model, SplitThresholds(model.mapper), model.trees[tree]))


def _nodes(model: Model, thresholds: SplitThresholds, view: Tree) -> Iterator[JsonObject]:
    tree = view.structure
    depths, names = node_depths(tree).tolist(), NameLookup(model.feature_name, model.output_name)
    arrays = {name: getattr(tree, name).tolist() for name in storage.NODE_ARRAYS}
    for node, depth in enumerate(depths):
        entry = {name: array[node] for name, array in arrays.items()}
        common = {"node": node, "depth": depth}
        if model.has_statistics:
            common |= {"count": entry["count"], "cover": entry["cover"]}
        feature = entry["feature"]
        if feature < 0:
            yield common | {"leaf": entry["leaf"]} | view.to_record(entry["leaf"], names)
            continue
        rule: JsonObject
        if entry["category_set"] >= 0:
            rule = {
                "categories": left_categories(
                    model.mapper, feature, tree.categories[entry["category_set"]]
                )
            }
        else:
            rule = {"threshold": thresholds.value(feature, entry["threshold"])}
        kept = {name: entry[name] for name in ("missing_left", "left", "right")}
        if model.has_statistics:
            kept["gain"] = entry["gain"]
        yield common | {"feature": model.feature_name(feature)} | rule | kept


def read_raw_offset(model: Model, offset: DataLike | None) -> np.ndarray | float:
    """Return the offset as raw scores."""
    if offset is None:
        return 0.0
    encoding, objective = decode_target_encoding(model.metadata, model.n_outputs), model.objective
    if isinstance(encoding, TaskEncodings):
        return TaskOffsetReader(encoding, objective.tasks).read(offset)
    return OffsetReader(encoding, model.n_outputs, objective.offset_mask).read(offset)


def get_output_names(model: Model) -> list[str]:
    """Return the names of all outputs."""
    return [model.output_name(k) for k in range(model.n_outputs)]


def get_target_names(model: Model) -> list[str]:
    """Return the names of the columns of y.

    They are the names of the outputs, unless a column has several (quantiles, or parameters of a
    distribution).
    """
    names, parts = get_output_names(model), model.objective.score_names
    if len(parts) < 2:
        return names
    end = f"_{parts[0]}"
    firsts = enumerate(names[:: len(parts)])
    return [name.removesuffix(end) if name.endswith(end) else str(t) for t, name in firsts]


class Scorer:
    """Metrics of a model's raw scores on one data set.

    `X`, `y`, `sample_weight`: data as the model's estimator takes them. `metrics`: see
    `eval_metric` of the estimators. Default: the metric of the objective. `table`: X as
    `Model.predict_raw` takes it.
    """

    def __init__(
        self,
        model: Model,
        X: DataLike | FeatureTable,
        y: DataLike,
        sample_weight: DataLike | None = None,
        metrics: object = None,
    ) -> None:
        if "one_dimensional" not in model.metadata:
            raise ValueError(
                "The model cannot be scored: no estimator trained it, so its kind of target is "
                "unknown."
            )
        if "relevance" in model.objective.target_kinds:
            raise ValueError("y is not taken for a ranking: score_goals evaluates the queries.")
        self.table = X if isinstance(X, Dataset) else model.prepare_features(X)
        encoding = decode_target_encoding(model.metadata, model.n_outputs)
        target = encoding.encode(RowData(y, sample_weight), normalized=False)
        check_same_rows(self.table.n_rows, target.n_rows)
        self._objective, rows = model.objective, target.rows
        self._metrics = [
            replace(metric, has_classes=encoding.has_class_ids).bind(rows)
            for metric in get_metrics(metrics, model.objective)
        ]

    def per_output(self, raw: np.ndarray) -> tuple[np.ndarray, str]:
        """Return the first metric of each output, (n_outputs,), and its name.

        Raises a ValueError if it is not defined for a single output.
        """
        metric = self._metrics[0]
        values, name = metric.per_output(self._prediction(metric, raw)), metric.metric.name
        if values is None:
            raise ValueError(f"metric={name!r} is not defined for a single output: choose another.")
        return values, name

    def __call__(self, raw: np.ndarray) -> dict[str, float]:
        """Return the metrics, by name, of raw scores (n_rows, n_outputs)."""
        return {
            metric.metric.name: metric(self._prediction(metric, raw)) for metric in self._metrics
        }

    def _prediction(self, metric: BoundMetric, raw: np.ndarray) -> np.ndarray:
        return raw if metric.metric.prediction_type == "raw" else self._objective.transform(raw)
