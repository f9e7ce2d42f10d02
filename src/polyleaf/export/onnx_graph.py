"""A model as an ONNX graph: trees say which leaf a row is in, plain operators add what the leaves hold.

Owns: the graph. Must not know: how models are made. docs/export.md describes its inputs and outputs. Leaf
numbers instead of votes let leaves hold anything (vectors, few outputs, linear functions), and need no copy
of a tree for each output; only dense leaves can be votes, in the third version of ai.onnx.ml.
"""

from __future__ import annotations

import json
from typing import Any, Literal

import numpy as np

from polyleaf.data.binning import MISSING_CODE
from polyleaf.export.ir import FLOAT32_MAX, ModelIR, TreeIR, build_ir, category_mapping
from polyleaf.model.io import Destination, as_path, write_open
from polyleaf.model.serialize import polyleaf_version

__all__ = ["to_onnx"]

_OPSET, _IR_VERSIONS = 18, {3: 9, 5: 10}
_INPUT = "X"


def to_onnx(
    model: Any,
    path: Destination | None = None,
    *,
    opset_ml: Literal[3, 5] | None = None,
    input: Literal["matrix", "columns"] = "matrix",
) -> Any:
    """A model as an ONNX graph.

    Parameters
    ----------
    model : Model or fitted estimator
        An estimator with a best round is written up to it, as it predicts.
    path : str, path or open binary file, optional
        A file to write it to as well.
    opset_ml : {3, 5}, optional
        Version of the operators ai.onnx.ml. 3 is read by more runtimes and has no splits by categories.
        Default: 3, or 5 where there are such splits.
    input : {"matrix", "columns"}
        "matrix": one input `X` (n_rows, n_features), as :func:`polyleaf.export.to_numeric_matrix` makes it.
        "columns": an input (n_rows, 1) for each feature, called as the feature is; those of categories take
        the categories themselves, text or numbers.

    Returns
    -------
    onnx.ModelProto
        With the outputs `scores` (n_rows, n_scores), float64, and where they are known `predictions` of
        regression, `probabilities` and `label` of classifiers. Of several tasks the scores alone.

    Raises
    ------
    ImportError
        Without the package onnx.
    ValueError
        When the model projects its features, or splits by categories in version 3.
    """
    onnx = _onnx()
    if input not in ("matrix", "columns"):
        raise ValueError(f'input={input!r} is unknown; it must be "matrix" or "columns".')
    source = build_ir(model)
    has_sets = any(tree.codes_left for tree in source.trees)
    version = (5 if has_sets else 3) if opset_ml is None else opset_ml
    if version not in _IR_VERSIONS:
        raise ValueError(f"opset_ml={opset_ml!r} is not written; it must be 3 or 5.")
    if version == 3 and has_sets:
        raise ValueError(
            "The model splits by categories, which version 3 of ai.onnx.ml cannot say: use opset_ml=5."
        )
    made = _Model(onnx, source, version, category_mapping(model)).proto(columns=input == "columns")
    if hasattr(path, "write"):
        write_open(path, made.SerializeToString())
    elif path is not None:
        onnx.save(made, as_path(path))
    return made


def _onnx() -> Any:
    try:
        import onnx
    except ImportError as error:
        raise ImportError(
            'to_onnx needs the package onnx: pip install "polyleaf[onnx]".'
        ) from error
    return onnx


class _Graph:
    """Nodes and constants, one after another; values are known by name."""

    def __init__(self, onnx: Any):
        self._onnx = onnx
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def constant(self, values: Any) -> str:
        name = f"c{len(self.constants)}"
        array = np.asarray(values)
        self.constants.append(self._onnx.numpy_helper.from_array(array, name))
        return name

    def add(
        self,
        operator: str,
        *inputs: str,
        name: str | None = None,
        domain: str = "",
        **attributes: Any,
    ) -> str:
        output = f"{operator.lower()}{len(self.nodes)}" if name is None else name
        node = self._onnx.helper.make_node(
            operator, list(inputs), [output], domain=domain, **attributes
        )
        self.nodes.append(node)
        return output

    def cast(self, value: str, dtype: Any) -> str:
        return self.add(
            "Cast", value, to=self._onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        )

    def sum(self, value: str, axis: int) -> str:
        return self.add("ReduceSum", value, self.constant(np.array([axis])), keepdims=0)


class _Model:
    """The graph of one model, from its inputs to its outputs."""

    def __init__(
        self, onnx: Any, source: ModelIR, version: int, categories: dict[int, dict[Any, int]]
    ):
        self._onnx, self._source, self._version = onnx, source, version
        self._categories = categories
        self._graph = _Graph(onnx)
        self._inputs: list[Any] = []
        self._outputs: list[Any] = []

    def proto(self, columns: bool) -> Any:
        helper = self._onnx.helper
        rows = self._columns() if columns else self._matrix()
        self._put_outputs(self._scores(rows))
        graph = helper.make_graph(
            self._graph.nodes, "polyleaf", self._inputs, self._outputs, self._graph.constants
        )
        opsets = [helper.make_opsetid("", _OPSET), helper.make_opsetid("ai.onnx.ml", self._version)]
        made = helper.make_model(
            graph,
            opset_imports=opsets,
            producer_name="polyleaf",
            producer_version=polyleaf_version(),
        )
        made.ir_version = _IR_VERSIONS[self._version]
        model = self._source.model
        about = {
            "polyleaf.features": [model.feature_name(f) for f in range(model.n_features)],
            "polyleaf.outputs": [model.output_name(k) for k in range(min(model.n_outputs, 10_000))],
            "polyleaf.categories": {
                f: list(map(list, codes.items())) for f, codes in self._categories.items()
            },
        }
        helper.set_model_props(made, {name: json.dumps(value) for name, value in about.items()})
        self._onnx.checker.check_model(made)
        return made

    # -- what goes in

    def _input(self, name: str, dtype: Any, width: int) -> str:
        kind = self._onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        self._inputs.append(self._onnx.helper.make_tensor_value_info(name, kind, ["n", width]))
        return name

    def _matrix(self) -> str:
        return self._input(_INPUT, self._source.dtype, self._source.model.n_features)

    def _columns(self) -> str:
        parts = []
        for feature in range(self._source.model.n_features):
            name = self._source.model.feature_name(feature)
            codes = self._categories.get(feature)
            if codes is None:
                parts.append(self._input(name, self._source.dtype, 1))
                continue
            text = any(isinstance(category, str) for category in codes)
            kind = "strings" if text else "floats"
            keys = [str(c) if text else float(c) for c in codes]
            column = self._input(name, object if text else np.float32, 1)
            table: dict[str, Any] = {
                f"keys_{kind}": keys,
                "values_floats": [float(code) for code in codes.values()],
                "default_float": -1.0,
            }
            encoded = self._graph.add("LabelEncoder", column, domain="ai.onnx.ml", **table)
            parts.append(
                encoded
                if self._source.dtype is np.float32
                else self._graph.cast(encoded, np.float64)
            )
        return self._graph.add("Concat", *parts, axis=1)

    def _tree_input(self, rows: str) -> str:
        """What the trees read: narrow features as float32, codes of no category as missing ones, and nothing
        above the largest number, so that a threshold of that lets all through but missing values."""
        graph, source = self._graph, self._source
        dtype, mapper = source.dtype, source.model.mapper
        if dtype is np.float64 and not source.is_wide.all():
            narrow = graph.cast(graph.cast(rows, np.float32), np.float64)
            rows = graph.add("Where", graph.constant(source.is_wide), rows, narrow)
        if any(np.isinf(tree.threshold).any() for tree in source.trees):
            largest = graph.constant(np.finfo(dtype).max)
            rows = graph.add("Where", graph.add("Greater", rows, largest), largest, rows)
        if self._categories:
            counts: np.ndarray = np.where(mapper.is_categorical_, mapper.n_bins_, 0).astype(dtype)
            low = graph.add("GreaterOrEqual", rows, graph.constant(dtype(0)))
            known = graph.add("And", low, graph.add("Less", rows, graph.constant(counts)))
            keeps = graph.add("Or", known, graph.constant(~mapper.is_categorical_))
            rows = graph.add("Where", keeps, rows, graph.constant(dtype(MISSING_CODE)))
        return rows

    # -- trees

    def _scores(self, rows: str) -> str:
        graph, source = self._graph, self._source
        model = source.model
        base = graph.constant(model.base_score[None])
        if not source.trees:
            shape = graph.add("Shape", rows, start=0, end=1)
            ones = graph.constant(np.array([1]))
            total = graph.add("Expand", base, graph.add("Concat", shape, ones, axis=0))
        else:
            total = graph.add("Add", self._sums(rows), base)
        if model.target_scale is not None and model.target_offset is not None:
            scaled = graph.add("Mul", total, graph.constant(model.target_scale[None]))
            total = graph.add("Add", scaled, graph.constant(model.target_offset[None]))
        return graph.add("Identity", total, name="scores")

    def _sums(self, rows: str) -> str:
        """Sums of payloads (n, K), float64."""
        source, graph = self._source, self._graph
        read = self._tree_input(rows)
        dense = all(tree.kind == "dense" for tree in source.trees)
        if dense and self._version == 3 and source.dtype is np.float32:
            return graph.cast(_Votes(source).add_to(graph, read), np.float64)
        groups: dict[tuple[str, bool], list[int]] = {}
        for number, tree in enumerate(source.trees):
            groups.setdefault((tree.kind, tree.output >= 0), []).append(number)
        leaves = self._leaf_numbers(read)
        parts = []
        for (kind, column), numbers in groups.items():
            trees = [source.trees[t] for t in numbers]
            here = graph.add("Gather", leaves, graph.constant(np.array(numbers)), axis=1)
            first = np.cumsum([0, *(tree.structure.n_leaves for tree in trees[:-1])])
            here = graph.add("Add", here, graph.constant(first[None]))
            parts.append(getattr(self, f"_{kind}")(trees, here, rows, column))
        total = parts[0]
        for part in parts[1:]:
            total = graph.add("Add", total, part)
        return total

    def _leaf_numbers(self, read: str) -> str:
        """Leaf ids (n, n_trees), int64."""
        attributes = (_ids3 if self._version == 3 else _ids5)(self._onnx, self._source)
        operator = "TreeEnsembleRegressor" if self._version == 3 else "TreeEnsemble"
        found = self._graph.add(operator, read, domain="ai.onnx.ml", **attributes)
        return self._graph.cast(found, np.int64)

    # -- leaves: from numbers of leaves (n, trees) to sums (n, K), float64

    def _to_outputs(self, payload: str, trees: list[TreeIR], column: bool) -> str:
        """Payloads (n, trees, K), or (n, trees) of trees of one output."""
        graph = self._graph
        payload = graph.cast(payload, np.float64)
        if not column:
            return graph.sum(payload, 1)
        places = np.zeros((len(trees), self._source.model.n_outputs))
        places[np.arange(len(trees)), [tree.output for tree in trees]] = 1.0
        return graph.add("MatMul", payload, graph.constant(places))

    def _dense(self, trees: list[TreeIR], leaves: str, rows: str, column: bool) -> str:
        values = np.concatenate([tree.leaves for tree in trees])
        table = self._graph.constant(values[:, 0] if column else values)
        return self._to_outputs(self._graph.add("Gather", table, leaves), trees, column)

    def _sparse(self, trees: list[TreeIR], leaves: str, rows: str, column: bool) -> str:
        graph, n_outputs = self._graph, self._source.model.n_outputs
        outputs, values, _ = _padded(trees, "outputs", "values")
        count = graph.add("Shape", rows, start=0, end=1)
        flat = graph.add("Concat", count, graph.constant(np.array([-1])), axis=0)
        at = graph.add("Reshape", graph.add("Gather", graph.constant(outputs), leaves), flat)
        held = graph.add(
            "Reshape", graph.add("Gather", graph.constant(values.astype(np.float64)), leaves), flat
        )
        shape = graph.add("Concat", count, graph.constant(np.array([n_outputs])), axis=0)
        zeros = graph.add("Expand", graph.constant(np.zeros((1, 1))), shape)
        return graph.add("ScatterElements", zeros, at, held, axis=1, reduction="add")

    def _linear(self, trees: list[TreeIR], leaves: str, rows: str, column: bool) -> str:
        """In float32 and in the order of the core: bits can differ in the sum over trees only."""
        graph = self._graph
        features, centre, is_entry = _padded(trees, "features", "centre")
        weights = _padded(trees, "features", "weights")[1]
        shifts = self._shifts(leaves, rows, features, centre, is_entry)

        def table(name: str) -> str:
            values = np.concatenate([getattr(tree.leaves, name) for tree in trees])
            return graph.add("Gather", graph.constant(values), leaves)

        intercept = table("intercept")
        total = intercept
        for m, shift in enumerate(shifts):
            slope = graph.add("Gather", graph.constant(np.ascontiguousarray(weights[:, m])), leaves)
            total = graph.add("Add", total, graph.add("Mul", slope, shift))
        total = graph.add("Where", graph.add("IsNaN", total), intercept, total)
        for bound, operator in (("lower", "Max"), ("upper", "Min")):
            total = graph.add(operator, total, table(bound))
        largest = graph.constant(np.float32(FLOAT32_MAX)), graph.constant(np.float32(-FLOAT32_MAX))
        total = graph.add("Max", graph.add("Min", total, largest[0]), largest[1])
        if column:
            total = graph.add("Squeeze", total, graph.constant(np.array([2])))
        return self._to_outputs(total, trees, column)

    def _shifts(
        self, leaves: str, rows: str, features: np.ndarray, centre: np.ndarray, is_entry: np.ndarray
    ) -> list[str]:
        """Of the m-th regressor of each leaf, (n, trees, 1): how far it is from its centre, 0 if missing."""
        graph = self._graph
        numbers = rows
        if self._source.dtype is np.float64:
            high, low = graph.constant(FLOAT32_MAX), graph.constant(-FLOAT32_MAX)
            numbers = graph.add("Where", graph.add("Greater", rows, high), high, rows)
            numbers = graph.add("Where", graph.add("Less", numbers, low), low, numbers)
            numbers = graph.cast(numbers, np.float32)
        zero, last, shifts = graph.constant(np.float32(0)), graph.constant(np.array([2])), []
        for m in range(features.shape[1]):
            at = graph.add("Gather", graph.constant(np.ascontiguousarray(features[:, m])), leaves)
            x = graph.add("GatherElements", numbers, at, axis=1)
            here = graph.add("Gather", graph.constant(np.ascontiguousarray(centre[:, m])), leaves)
            entry = graph.add(
                "Gather", graph.constant(np.ascontiguousarray(is_entry[:, m])), leaves
            )
            counts = graph.add("And", entry, graph.add("Not", graph.add("IsNaN", x)))
            shift = graph.add("Where", counts, graph.add("Sub", x, here), zero)
            shifts.append(graph.add("Unsqueeze", shift, last))
        return shifts

    # -- what comes out

    def _output(self, name: str, dtype: Any, width: int | None) -> None:
        kind = self._onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        shape = ["n"] if width is None else ["n", width]
        self._outputs.append(self._onnx.helper.make_tensor_value_info(name, kind, shape))

    def _put_outputs(self, scores: str) -> None:
        source, n_outputs = self._source, self._source.model.n_outputs
        self._output(scores, np.float64, n_outputs)
        if source.kind in (
            "regression",
            "tasks",
        ):  # tasks have no one link, and labels each of their own
            if source.link is not None:
                self._graph.add("Identity", self._linked(scores), name="predictions")
                self._output("predictions", np.float64, n_outputs)
            return
        if source.link is not None and source.model.objective.probabilities:
            self._graph.add("Identity", self._probabilities(scores), name="probabilities")
            self._output("probabilities", np.float64, 2 if source.kind == "binary" else n_outputs)
        self._label(scores)

    def _linked(self, scores: str) -> str:
        graph, link = self._graph, self._source.link
        if link == "logistic":
            return graph.add("Sigmoid", scores)
        if link == "softmax":
            return graph.add("Softmax", scores, axis=1)
        if link == "exponential":
            return graph.add("Exp", scores)
        return self._sorted_levels(scores) if link == "sorted_levels" else scores

    def _sorted_levels(self, scores: str) -> str:
        graph, levels = self._graph, self._source.model.objective.quantile_levels
        groups = graph.add("Reshape", scores, graph.constant(np.array([0, -1, len(levels)])))
        ascending = f"sorted{len(graph.nodes)}"
        count = graph.constant(np.array([len(levels)]))
        node = self._onnx.helper.make_node(
            "TopK", [groups, count], [ascending, f"{ascending}_at"], axis=2, largest=0, sorted=1
        )
        graph.nodes.append(node)
        ranks = np.argsort(np.argsort(levels))
        placed = graph.add("Gather", ascending, graph.constant(ranks), axis=2)
        return graph.add(
            "Reshape", placed, graph.constant(np.array([0, self._source.model.n_outputs]))
        )

    def _probabilities(self, scores: str) -> str:
        graph, found = self._graph, self._linked(scores)
        if self._source.kind == "binary":
            other = graph.add("Sub", graph.constant(1.0), found)
            return graph.add("Concat", other, found, axis=1)
        if self._source.one_vs_rest:
            total = graph.add("ReduceSum", found, graph.constant(np.array([1])), keepdims=1)
            some = graph.add("Greater", total, graph.constant(0.0))
            even = graph.constant(1.0 / self._source.model.n_outputs)
            return graph.add("Where", some, graph.add("Div", found, total), even)
        return found

    def _label(self, scores: str) -> None:
        graph, classes = self._graph, self._source.classes
        above = graph.add("Greater", scores, graph.constant(self._source.cuts))
        if classes is None:
            self._graph.add("Cast", above, to=self._onnx.TensorProto.INT64, name="label")
            return self._output("label", np.int64, self._source.model.n_outputs)
        if self._source.kind == "binary":
            number = graph.add(
                "Squeeze", graph.cast(above, np.int64), graph.constant(np.array([1]))
            )
        else:
            number = graph.add("ArgMax", scores, axis=1, keepdims=0)
        labels = np.array(classes)
        labels = labels.astype(np.int64) if labels.dtype.kind in "biu" else labels
        is_text = labels.dtype.kind not in "if"
        table = graph.constant(labels.astype(object) if is_text else labels)
        graph.add("Gather", table, number, name="label")
        self._output("label", object if is_text else labels.dtype, None)


def _padded(
    trees: list[TreeIR], index: str, value: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Entries of all leaves as tables (leaves, most entries, ...): numbers, values, and which are entries."""
    blocks = [tree.leaves for tree in trees]
    counts = np.concatenate([np.diff(block.indptr) for block in blocks])  # type: ignore[union-attr]
    is_entry = np.arange(max(1, counts.max())) < counts[:, None]
    entries = np.concatenate([getattr(block, index) for block in blocks]).astype(np.int64)
    held = np.concatenate([getattr(block, value) for block in blocks])
    numbers = np.zeros(is_entry.shape, np.int64)
    values = np.zeros(is_entry.shape + held.shape[1:], held.dtype)
    numbers[is_entry], values[is_entry] = entries, held
    return numbers, values, is_entry


# ---- trees as attributes -----------------------------------------------------------------------------------


def _nodes3(source: ModelIR) -> dict[str, list[Any]]:
    """Nodes of all trees as version 3 has them."""
    names = ("treeids", "nodeids", "featureids", "values", "modes", "truenodeids", "falsenodeids")
    nodes: dict[str, list[Any]] = {f"nodes_{name}": [] for name in names}
    nodes["nodes_missing_value_tracks_true"] = []
    largest = float(np.finfo(source.dtype).max)
    for number, tree in enumerate(source.trees):
        at = tree.structure
        leaf = at.feature < 0
        nodes["nodes_treeids"] += [number] * at.n_nodes
        nodes["nodes_nodeids"] += range(at.n_nodes)
        nodes["nodes_featureids"] += np.where(leaf, 0, at.feature).tolist()
        nodes["nodes_values"] += np.minimum(tree.threshold, largest).tolist()
        nodes["nodes_modes"] += ["LEAF" if is_leaf else "BRANCH_LEQ" for is_leaf in leaf.tolist()]
        nodes["nodes_truenodeids"] += np.where(leaf, 0, at.left).tolist()
        nodes["nodes_falsenodeids"] += np.where(leaf, 0, at.right).tolist()
        nodes["nodes_missing_value_tracks_true"] += at.missing_left.astype(int).tolist()
    return nodes


def _ids3(onnx: Any, source: ModelIR) -> dict[str, Any]:
    """Attributes of a TreeEnsembleRegressor whose target t is the leaf of tree t."""
    nodes: dict[str, Any] = dict(_nodes3(source))
    targets: dict[str, list[Any]] = {
        f"target_{name}": [] for name in ("treeids", "nodeids", "ids", "weights")
    }
    for number, tree in enumerate(source.trees):
        found = np.flatnonzero(tree.structure.feature < 0)
        targets["target_treeids"] += [number] * len(found)
        targets["target_nodeids"] += found.tolist()
        targets["target_ids"] += [number] * len(found)
        targets["target_weights"] += tree.structure.leaf[found].astype(float).tolist()
    if source.dtype is np.float64:
        for name, holder in (("nodes_values", nodes), ("target_weights", targets)):
            as_tensor = onnx.numpy_helper.from_array(np.array(holder.pop(name), np.float64), name)
            holder[f"{name}_as_tensor"] = as_tensor  # type: ignore[assignment]
    return nodes | targets | {"n_targets": len(source.trees)}


class _Votes:
    """Dense leaves as votes: version 3 only, where a leaf may have one for each output."""

    def __init__(self, source: ModelIR):
        self._source = source

    def add_to(self, graph: _Graph, read: str) -> str:
        targets: dict[str, Any] = {
            f"target_{name}": [] for name in ("treeids", "nodeids", "ids", "weights")
        }
        n_outputs = self._source.model.n_outputs
        for number, tree in enumerate(self._source.trees):
            outputs = [tree.output] if tree.output >= 0 else range(n_outputs)
            for node in np.flatnonzero(tree.structure.feature < 0).tolist():
                targets["target_treeids"] += [number] * len(outputs)
                targets["target_nodeids"] += [node] * len(outputs)
                targets["target_ids"] += outputs
                targets["target_weights"] += np.asarray(tree.leaves)[
                    tree.structure.leaf[node]
                ].tolist()
        attributes = targets | _nodes3(self._source) | {"n_targets": n_outputs}
        return graph.add("TreeEnsembleRegressor", read, domain="ai.onnx.ml", **attributes)


_LEQ, _MEMBER = 0, 6  # modes of nodes in version 5
_NO_CODE = 256.0  # onnxruntime wants a member of every set


class _Nodes5:
    """Inner nodes of all trees as version 5 has them, leaves apart."""

    def __init__(self, source: ModelIR):
        self.columns: dict[str, list[Any]] = {
            name: []
            for name in (
                *("featureids", "splits", "modes", "missing_value_tracks_true"),
                *("truenodeids", "trueleafs", "falsenodeids", "falseleafs"),
            )
        }
        self.members: list[float] = []  # of all sets, each closed by NaN
        self.roots: list[int] = []
        self.targets: list[int] = []
        self.weights: list[float] = []
        self._largest = float(np.finfo(source.dtype).max)
        for number, tree in enumerate(source.trees):
            self._add(number, tree)

    def _add(self, number: int, tree: TreeIR) -> None:
        at = tree.structure
        inner = np.flatnonzero(at.feature >= 0)
        place = np.zeros(at.n_nodes, np.int64)
        place[inner] = len(self.columns["modes"]) + np.arange(len(inner))
        ends = np.flatnonzero(at.feature < 0)
        place[ends] = len(self.targets) + np.arange(len(ends))
        self.roots.append(len(self.columns["modes"]))
        for node in inner.tolist():
            self._put(tree, node, place)
        if not len(inner):  # a tree is at least one node: whatever it says, the leaf is the same
            row = {"featureids": 0, "splits": 0.0, "modes": _LEQ, "missing_value_tracks_true": 0}
            both = {"nodeids": int(place[0]), "leafs": 1}
            sides = {
                f"{side}{name}": value for side in ("true", "false") for name, value in both.items()
            }
            self._append(row | sides)
        self.targets += [number] * len(ends)
        self.weights += at.leaf[ends].astype(float).tolist()

    def _put(self, tree: TreeIR, node: int, place: np.ndarray) -> None:
        at, codes = tree.structure, tree.codes_left.get(node)
        row: dict[str, Any] = {
            "featureids": int(at.feature[node]),
            "splits": min(float(tree.threshold[node]), self._largest),
            "modes": _LEQ if codes is None else _MEMBER,
            "missing_value_tracks_true": int(at.missing_left[node]),
        }
        if codes is not None:
            missing = [float(MISSING_CODE)] if at.missing_left[node] else []
            members = [*codes.astype(float).tolist(), *missing]
            self.members += [*(members or [_NO_CODE]), np.nan]
        for side, child in (("true", int(at.left[node])), ("false", int(at.right[node]))):
            row[f"{side}nodeids"], row[f"{side}leafs"] = (
                int(place[child]),
                int(at.feature[child] < 0),
            )
        self._append(row)

    def _append(self, row: dict[str, Any]) -> None:
        for name, value in row.items():
            self.columns[name].append(value)


def _ids5(onnx: Any, source: ModelIR) -> dict[str, Any]:
    """Attributes of a TreeEnsemble whose target t is the leaf of tree t."""
    nodes, tensor = _Nodes5(source), onnx.numpy_helper.from_array
    columns = {f"nodes_{name}": values for name, values in nodes.columns.items()}
    found: dict[str, Any] = columns | {
        "nodes_splits": tensor(np.array(columns["nodes_splits"], source.dtype)),
        "nodes_modes": tensor(np.array(columns["nodes_modes"], np.uint8)),
        "tree_roots": nodes.roots,
        "leaf_targetids": nodes.targets,
        "leaf_weights": tensor(np.array(nodes.weights, source.dtype)),
        "n_targets": len(source.trees),
        "aggregate_function": 1,
        "post_transform": 0,
    }
    if nodes.members:
        found["membership_values"] = tensor(np.array(nodes.members, source.dtype))
    return found
