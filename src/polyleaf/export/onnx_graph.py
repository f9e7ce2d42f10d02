"""Export to ONNX.

A tree ensemble operator finds the leaf of each row in each tree, and plain operators gather and sum
leaf values. So leaves can be vectors, sparse or linear, without a copy of a tree per output. Dense
leaves in version 3 of ai.onnx.ml are the votes of the tree ensemble operator itself.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from polyleaf.binned_data.binning import MISSING_CODE
from polyleaf.export.ir import (
    FLOAT32_MAX,
    ModelIR,
    TreeIR,
    build_ir,
    category_mapping,
    check_scores,
    choose_key_dtype,
)
from polyleaf.model.initial import LinearInitialModel
from polyleaf.model.serialize import Destination, as_path, write_open
from polyleaf.runtime.capabilities import refuse
from polyleaf.runtime.checks import require_choice
from polyleaf.runtime.compatibility import polyleaf_version
from polyleaf.runtime.optional_packages import optional_package
from polyleaf.runtime.types import DataLike, ModelLike

if TYPE_CHECKING:
    from numpy.typing import DTypeLike
    from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto

    from polyleaf.binned_data.high_cardinality import Category
    from polyleaf.user_data.feature_table import FeatureTable

_OPSET, _IR_VERSIONS = 18, {3: 9, 5: 10}
_INPUT = "X"
_UNKNOWN_KEYS: dict[type, str | int] = {object: "\0", np.int64: np.iinfo(np.int64).min}


def to_onnx(
    model: ModelLike,
    path: Destination | None = None,
    *,
    opset_ml: Literal[3, 5] | None = None,
    input: Literal["matrix", "columns"] = "matrix",
    check: bool = True,
) -> ModelProto:
    """Convert a model to an ONNX graph.

    Parameters
    ----------
    model : Model or fitted estimator
        An estimator with a best iteration is exported up to it.
    path : str, path or open binary file, optional
        File to write the graph to.
    opset_ml : {3, 5}, optional
        Version of the operators ai.onnx.ml. More runtimes support 3, which has no categorical
        splits. Default: 5 if the model has categorical splits, otherwise 3.
    input : {"matrix", "columns"}
        "matrix": one input `X` (n_rows, n_features), a matrix of
        :func:`polyleaf.export.to_numeric_matrix`. "columns": an input (n_rows, 1) with the name of
        each feature; categorical features take their categories, text or numbers (int64 if some
        are integers beyond 2^24, which float32 cannot hold, and float64 for such fractions).
    check : bool
        Whether to compare the raw scores with the model's, on 64 rows of thresholds, categories and
        missing values, if onnxruntime is installed.

    Returns
    -------
    onnx.ModelProto
        Graph with the output `scores` (n_rows, n_scores), float64, and if possible `predictions`
        for regressors, `probabilities` and `label` for classifiers. Multi-task models give scores
        only. An output that has the name of an input gets the prefix ``output_``.

    Raises
    ------
    ImportError
        If the package onnx is not installed.
    ValueError
        If the model projects its features, has categorical splits in version 3, or a feature has
        no name or categories of both text and numbers, with inputs by column.
    RuntimeError
        If the graph gives other scores than the model.
    """
    with optional_package("to_onnx needs the package onnx", "onnx"):
        import onnx
    require_choice(input, ("matrix", "columns"), "input")
    require_choice(opset_ml, (None, *_IR_VERSIONS), "opset_ml")
    ir = build_ir(model)
    has_sets = any(tree.codes_left for tree in ir.trees)
    version = (5 if has_sets else 3) if opset_ml is None else opset_ml
    if version == 3 and has_sets:
        refuse("categories", "onnx_3")
    builder = _GraphBuilder(onnx, ir, version, category_mapping(model))
    proto = builder.build(columns=input == "columns")
    if check:
        check_scores(model, "ONNX", builder.run)
    if hasattr(path, "write"):
        write_open(path, proto.SerializeToString())
    elif path is not None:
        onnx.save(proto, as_path(path))
    return proto


class _Graph:
    """Nodes and constants of a graph; methods return names of values."""

    def __init__(self, onnx: ModuleType, inputs: Sequence[str]):
        self._onnx, self._inputs = onnx, set(inputs)
        # Longer than underscores of inputs, so that no value of the graph has a name of an input.
        self.prefix = "_" * (1 + max((len(i) - len(i.lstrip("_")) for i in inputs), default=0))
        self.nodes: list[NodeProto] = []
        self.constants: list[TensorProto] = []

    def add_constant(self, values: DataLike | None) -> str:
        name = f"{self.prefix}c{len(self.constants)}"
        self.constants.append(self._onnx.numpy_helper.from_array(np.asarray(values), name))
        return name

    def add(
        self,
        operator: str,
        *inputs: str,
        name: str | None = None,
        domain: str = "",
        **attributes: object,
    ) -> str:
        output = self.prefix + f"{operator.lower()}{len(self.nodes)}" if name is None else name
        node = self._onnx.helper.make_node(
            operator, list(inputs), [output], domain=domain, **attributes
        )
        self.nodes.append(node)
        return output

    def output_name(self, name: str) -> str:
        """Return the name of an output that no input has."""
        while name in self._inputs:
            name = f"output_{name}"
        return name

    def cast(self, value: str, dtype: DTypeLike) -> str:
        return self.add(
            "Cast", value, to=self._onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        )

    def sum(self, value: str, axis: int) -> str:
        return self.add("ReduceSum", value, self.add_constant(np.array([axis])), keepdims=0)


class _GraphBuilder:
    """Builder of the graph of a model, from its inputs to its outputs."""

    def __init__(
        self,
        onnx: ModuleType,
        ir: ModelIR,
        version: int,
        categories: dict[int, dict[Category, int]],
    ):
        self._onnx, self._ir, self._version = onnx, ir, version
        self._categories = categories
        self._graph = _Graph(onnx, [])
        self._proto: Any = None
        self._is_columns = False
        self._key_dtypes: dict[int, type] = {}
        self._inputs: list[ValueInfoProto] = []
        self._outputs: list[ValueInfoProto] = []

    def build(self, columns: bool) -> ModelProto:
        helper, model = self._onnx.helper, self._ir.model
        names = [model.feature_name(f) for f in range(model.n_features)] if columns else [_INPUT]
        if "" in names:
            raise ValueError(
                "Feature number {} has an empty name, which ONNX does not allow: use "
                'input="matrix", or name it.'.format(names.index(""))
            )
        self._graph, self._is_columns = _Graph(self._onnx, names), columns
        if columns:
            rows = self._add_column_inputs()
        else:
            rows = self._add_input(_INPUT, self._ir.dtype, self._ir.model.n_features)
        self._add_outputs(self._add_scores(rows))
        graph = helper.make_graph(
            self._graph.nodes, "polyleaf", self._inputs, self._outputs, self._graph.constants
        )
        opsets = [helper.make_opsetid("", _OPSET), helper.make_opsetid("ai.onnx.ml", self._version)]
        producer = {"producer_name": "polyleaf", "producer_version": polyleaf_version()}
        proto = helper.make_model(graph, opset_imports=opsets, **producer)
        proto.ir_version = _IR_VERSIONS[self._version]
        categories = {f: list(map(list, codes.items())) for f, codes in self._categories.items()}
        properties = {
            "polyleaf.features": [model.feature_name(f) for f in range(model.n_features)],
            "polyleaf.outputs": [model.output_name(k) for k in range(min(model.n_outputs, 10_000))],
            "polyleaf.categories": categories,
        }
        helper.set_model_props(proto, {name: json.dumps(v) for name, v in properties.items()})
        self._onnx.checker.check_model(proto)
        self._proto = proto
        return proto

    def run(self, table: FeatureTable, matrix: np.ndarray) -> np.ndarray | None:
        """Return the raw scores of the graph, or None if onnxruntime is not installed."""
        inputs: dict[str, np.ndarray] = {_INPUT: matrix}
        if self._is_columns:
            names = [self._ir.model.feature_name(f) for f in range(matrix.shape[1])]
            inputs = {name: matrix[:, [f]] for f, name in enumerate(names)}
            for column in table.categories:
                dtype = self._key_dtypes[column.feature]
                unknown = _UNKNOWN_KEYS.get(dtype, np.nan)
                keys = [str(c) if dtype is object else c for c in column.categories]
                values: np.ndarray = np.array([*keys, unknown], dtype)[column.index]
                inputs[names[column.feature]] = values[:, None]
        try:
            import onnxruntime
        except ImportError:
            return None
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        content, providers = self._proto.SerializeToString(), ["CPUExecutionProvider"]
        session = onnxruntime.InferenceSession(content, options, providers=providers)
        return session.run([self._graph.output_name("scores")], inputs)[0]

    # -- inputs

    def _add_input(self, name: str, dtype: DTypeLike, width: int) -> str:
        elem_type = self._onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        self._inputs.append(self._onnx.helper.make_tensor_value_info(name, elem_type, ["n", width]))
        return name

    def _add_column_inputs(self) -> str:
        parts = []
        for feature in range(self._ir.model.n_features):
            name = self._ir.model.feature_name(feature)
            codes = self._categories.get(feature)
            if codes is None:
                parts.append(self._add_input(name, self._ir.dtype, 1))
                continue
            dtype = self._key_dtypes[feature] = choose_key_dtype(name, list(codes))
            column = self._add_input(name, dtype, 1)
            encoded = self._graph.add(
                "LabelEncoder", column, domain="ai.onnx.ml", **self._make_keys(codes, dtype)
            )
            is_float32 = dtype is not np.float64
            same = self._ir.dtype is (np.float32 if is_float32 else np.float64)
            parts.append(encoded if same else self._graph.cast(encoded, self._ir.dtype))
        return self._graph.add("Concat", *parts, axis=1)

    def _make_keys(self, codes: dict[Category, int], dtype: Any) -> dict[str, Any]:
        """Return the attributes of the operator that maps categories to codes, -1 if unknown."""
        values = [float(code) for code in codes.values()]
        if dtype is np.float64:
            tensor = self._onnx.numpy_helper.from_array
            return {
                "keys_tensor": tensor(np.array(list(codes), np.float64), "keys"),
                "values_tensor": tensor(np.array(values, np.float64), "values"),
                "default_tensor": tensor(np.array([-1.0]), "default"),
            }
        kind = {object: "strings", np.int64: "int64s"}.get(dtype, "floats")
        keys = [str(c) if dtype is object else dtype(c).item() for c in codes]
        return {f"keys_{kind}": keys, "values_floats": values, "default_float": -1.0}

    def _prepare_rows(self, rows: str) -> str:
        """Prepare rows for the trees.

        Features are rounded to float32 unless they need float64, unknown category codes become
        missing values, and infinities the largest number, so that an infinite threshold is one too.
        """
        graph, ir = self._graph, self._ir
        dtype, mapper = ir.dtype, ir.model.mapper
        if dtype is np.float64 and not ir.is_float64.all():
            narrow = graph.cast(graph.cast(rows, np.float32), np.float64)
            rows = graph.add("Where", graph.add_constant(ir.is_float64), rows, narrow)
        if any(np.isinf(tree.threshold).any() for tree in ir.trees):
            largest = graph.add_constant(np.finfo(dtype).max)
            rows = graph.add("Where", graph.add("Greater", rows, largest), largest, rows)
        if self._categories:
            counts: np.ndarray = np.where(mapper.is_categorical_, mapper.n_bins_, 0).astype(dtype)
            low = graph.add("GreaterOrEqual", rows, graph.add_constant(dtype(0)))
            known = graph.add("And", low, graph.add("Less", rows, graph.add_constant(counts)))
            keeps = graph.add("Or", known, graph.add_constant(~mapper.is_categorical_))
            rows = graph.add("Where", keeps, rows, graph.add_constant(dtype(MISSING_CODE)))
        return rows

    # -- trees

    def _add_scores(self, rows: str) -> str:
        graph, ir = self._graph, self._ir
        model = ir.model
        base = graph.add_constant(model.base_score[None])
        if not ir.trees:
            shape = graph.add("Shape", rows, start=0, end=1)
            ones = graph.add_constant(np.array([1]))
            total = graph.add("Expand", base, graph.add("Concat", shape, ones, axis=0))
        else:
            total = graph.add("Add", self._sum_trees(rows), base)
        if model.target_scale is not None and model.target_offset is not None:
            scaled = graph.add("Mul", total, graph.add_constant(model.target_scale[None]))
            total = graph.add("Add", scaled, graph.add_constant(model.target_offset[None]))
        if ir.linear is not None:
            total = graph.add("Add", total, self._add_linear_model(rows, ir.linear))
        return total

    def _add_linear_model(self, rows: str, linear: LinearInitialModel) -> str:
        """Return scores of the linear model (n, n_outputs), float64."""
        graph = self._graph
        numbers = graph.cast(rows, np.float64)
        assert linear.fill is not None
        fill = graph.add_constant(linear.fill[None])
        numbers = graph.add("Where", graph.add("IsNaN", numbers), fill, numbers)
        product = graph.add("MatMul", numbers, graph.add_constant(linear.to_dense()))
        return graph.add("Add", product, graph.add_constant(linear.intercept[None]))

    def _sum_trees(self, rows: str) -> str:
        """Return sums of leaf values (n, n_outputs), float64."""
        ir, graph = self._ir, self._graph
        prepared = self._prepare_rows(rows)
        is_dense = all(tree.leaves.form == "dense" for tree in ir.trees)
        if is_dense and self._version == 3 and ir.dtype is np.float32:
            votes = _make_nodes_v3(ir) | _make_targets_v3(ir, votes=True)
            return graph.cast(self._add_trees(prepared, votes), np.float64)
        groups: dict[tuple[str, bool], list[int]] = {}
        for number, tree in enumerate(ir.trees):
            groups.setdefault((tree.leaves.form, tree.output >= 0), []).append(number)
        # The leaf of each tree, int64 (n, n_trees).
        make_leaf_ids = _make_leaf_ids_v3 if self._version == 3 else _make_leaf_ids_v5
        leaf_ids = self._add_trees(prepared, make_leaf_ids(self._onnx, ir))
        leaf_ids = graph.cast(leaf_ids, np.int64)
        add_leaves = {
            "dense": self._add_dense_leaves,
            "sparse": self._add_sparse_leaves,
            "linear": self._add_linear_leaves,
        }
        sums = []
        for (form, is_scalar), numbers in groups.items():
            trees = [ir.trees[t] for t in numbers]
            leaves = graph.add("Gather", leaf_ids, graph.add_constant(np.array(numbers)), axis=1)
            first = np.cumsum([0, *(len(tree.leaf_nodes) for tree in trees[:-1])])
            leaves = graph.add("Add", leaves, graph.add_constant(first[None]))
            sums.append(add_leaves[form](trees, leaves, rows, is_scalar))
        total = sums[0]
        for part in sums[1:]:
            total = graph.add("Add", total, part)
        return total

    def _add_trees(self, rows: str, attributes: dict[str, Any]) -> str:
        """Return the targets of a tree ensemble operator, (n, n_targets)."""
        operator = "TreeEnsembleRegressor" if self._version == 3 else "TreeEnsemble"
        return self._graph.add(operator, rows, domain="ai.onnx.ml", **attributes)

    # -- leaves: from leaf numbers (n, n_trees) to sums (n, n_outputs), float64

    def _sum_values(self, values: str, trees: list[TreeIR], is_scalar: bool) -> str:
        """Sum leaf values (n, n_trees, n_outputs), or (n, n_trees) of trees for one output."""
        graph = self._graph
        values = graph.cast(values, np.float64)
        if not is_scalar:
            return graph.sum(values, 1)
        outputs = np.zeros((len(trees), self._ir.model.n_outputs))
        outputs[np.arange(len(trees)), [tree.output for tree in trees]] = 1.0
        return graph.add("MatMul", values, graph.add_constant(outputs))

    def _add_dense_leaves(
        self, trees: list[TreeIR], leaves: str, rows: str, is_scalar: bool
    ) -> str:
        values = np.concatenate([tree.leaves.values for tree in trees])
        table = self._graph.add_constant(values[:, 0] if is_scalar else values)
        return self._sum_values(self._graph.add("Gather", table, leaves), trees, is_scalar)

    def _add_sparse_leaves(
        self, trees: list[TreeIR], leaves: str, rows: str, is_scalar: bool
    ) -> str:
        graph, n_outputs = self._graph, self._ir.model.n_outputs
        outputs, values, _ = _pad_entries(trees, "outputs", "values")
        count = graph.add("Shape", rows, start=0, end=1)
        flat = graph.add("Concat", count, graph.add_constant(np.array([-1])), axis=0)
        indices = graph.add("Gather", graph.add_constant(outputs), leaves)
        indices = graph.add("Reshape", indices, flat)
        updates = graph.add("Gather", graph.add_constant(values.astype(np.float64)), leaves)
        updates = graph.add("Reshape", updates, flat)
        shape = graph.add("Concat", count, graph.add_constant(np.array([n_outputs])), axis=0)
        zeros = graph.add("Expand", graph.add_constant(np.zeros((1, 1))), shape)
        return graph.add("ScatterElements", zeros, indices, updates, axis=1, reduction="add")

    def _add_linear_leaves(
        self, trees: list[TreeIR], leaves: str, rows: str, is_scalar: bool
    ) -> str:
        """Evaluate in float32 in the order of the core, so that only sums over trees can differ."""
        graph = self._graph
        features, centre, is_entry = _pad_entries(trees, "features", "centre")
        weights = _pad_entries(trees, "features", "weights")[1]
        shifts = self._add_shifts(leaves, rows, features, centre, is_entry)

        def gather(name: str) -> str:
            values = np.concatenate([getattr(tree.leaves, name) for tree in trees])
            return graph.add("Gather", graph.add_constant(values), leaves)

        intercept = gather("values")
        total = intercept
        for m, shift in enumerate(shifts):
            slopes = graph.add_constant(np.ascontiguousarray(weights[:, m]))
            slope = graph.add("Gather", slopes, leaves)
            total = graph.add("Add", total, graph.add("Mul", slope, shift))
        total = graph.add("Where", graph.add("IsNaN", total), intercept, total)
        for bound, operator in (("lower", "Max"), ("upper", "Min")):
            total = graph.add(operator, total, gather(bound))
        high = graph.add_constant(np.float32(FLOAT32_MAX))
        low = graph.add_constant(np.float32(-FLOAT32_MAX))
        total = graph.add("Max", graph.add("Min", total, high), low)
        if is_scalar:
            total = graph.add("Squeeze", total, graph.add_constant(np.array([2])))
        return self._sum_values(total, trees, is_scalar)

    def _add_shifts(
        self, leaves: str, rows: str, features: np.ndarray, centre: np.ndarray, is_entry: np.ndarray
    ) -> list[str]:
        """Return the distance of each regressor from its centre, (n, n_trees, 1), 0 if missing."""
        graph = self._graph
        numbers, transform = rows, self._ir.model.mapper.regressor_transform_
        if transform is not None:
            numbers = graph.cast(rows, np.float64)
            for operator, limits in (("Less", transform.low), ("Greater", transform.high)):
                limit = graph.add_constant(limits)
                is_beyond = graph.add(operator, numbers, limit)
                numbers = graph.add("Where", is_beyond, limit, numbers)
            numbers = graph.add("Sub", numbers, graph.add_constant(transform.centre))
        if self._ir.dtype is np.float64 or transform is not None:
            high, low = graph.add_constant(FLOAT32_MAX), graph.add_constant(-FLOAT32_MAX)
            numbers = graph.add("Where", graph.add("Greater", numbers, high), high, numbers)
            numbers = graph.add("Where", graph.add("Less", numbers, low), low, numbers)
            numbers = graph.cast(numbers, np.float32)
        zero, last = graph.add_constant(np.float32(0)), graph.add_constant(np.array([2]))

        def gather(table: np.ndarray, m: int) -> str:
            column = graph.add_constant(np.ascontiguousarray(table[:, m]))
            return graph.add("Gather", column, leaves)

        shifts = []
        for m in range(features.shape[1]):
            x = graph.add("GatherElements", numbers, gather(features, m), axis=1)
            centres, mask = gather(centre, m), gather(is_entry, m)
            is_used = graph.add("And", mask, graph.add("Not", graph.add("IsNaN", x)))
            shift = graph.add("Where", is_used, graph.add("Sub", x, centres), zero)
            shifts.append(graph.add("Unsqueeze", shift, last))
        return shifts

    # -- outputs

    def _add_output(self, value: str, name: str, dtype: DTypeLike, width: int | None) -> None:
        helper, name = self._onnx.helper, self._graph.output_name(name)
        self._graph.add("Identity", value, name=name)
        elem_type = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        shape = ["n"] if width is None else ["n", width]
        self._outputs.append(helper.make_tensor_value_info(name, elem_type, shape))

    def _add_outputs(self, scores: str) -> None:
        ir, n_outputs = self._ir, self._ir.model.n_outputs
        self._add_output(scores, "scores", np.float64, n_outputs)
        if ir.kind in ("regression", "tasks"):  # tasks have no common link
            if ir.link is not None:
                self._add_output(self._apply_link(scores), "predictions", np.float64, n_outputs)
            return
        if ir.link is not None and ir.model.objective.probabilities:
            width = 2 if ir.kind == "binary" else n_outputs
            probabilities = self._compute_probabilities(scores)
            self._add_output(probabilities, "probabilities", np.float64, width)
        self._add_label(scores)

    def _apply_link(self, scores: str) -> str:
        graph, link = self._graph, self._ir.link
        if link == "logistic":
            return graph.add("Sigmoid", scores)
        if link == "softmax":
            return graph.add("Softmax", scores, axis=1)
        if link == "exponential":
            largest = graph.add_constant(np.finfo(np.float64).max)
            return graph.add("Min", graph.add("Exp", scores), largest)
        return self._sort_quantiles(scores) if link == "sorted_levels" else scores

    def _sort_quantiles(self, scores: str) -> str:
        graph, levels = self._graph, self._ir.model.objective.quantile_levels
        groups = graph.add("Reshape", scores, graph.add_constant(np.array([0, -1, len(levels)])))
        ascending = f"sorted{len(graph.nodes)}"
        count = graph.add_constant(np.array([len(levels)]))
        node = self._onnx.helper.make_node(
            "TopK", [groups, count], [ascending, f"{ascending}_at"], axis=2, largest=0, sorted=1
        )
        graph.nodes.append(node)
        ranks = np.argsort(np.argsort(levels))
        placed = graph.add("Gather", ascending, graph.add_constant(ranks), axis=2)
        shape = graph.add_constant(np.array([0, self._ir.model.n_outputs]))
        return graph.add("Reshape", placed, shape)

    def _compute_probabilities(self, scores: str) -> str:
        graph, linked = self._graph, self._apply_link(scores)
        if self._ir.kind == "binary":
            other = graph.add("Sub", graph.add_constant(1.0), linked)
            return graph.add("Concat", other, linked, axis=1)
        if self._ir.is_one_vs_rest:
            total = graph.add("ReduceSum", linked, graph.add_constant(np.array([1])), keepdims=1)
            is_positive = graph.add("Greater", total, graph.add_constant(0.0))
            even = graph.add_constant(1.0 / self._ir.model.n_outputs)
            return graph.add("Where", is_positive, graph.add("Div", linked, total), even)
        return linked

    def _add_label(self, scores: str) -> None:
        graph, classes = self._graph, self._ir.classes
        above = graph.add("Greater", scores, graph.add_constant(self._ir.decision_thresholds))
        if classes is None:
            above = graph.cast(above, np.int64)
            return self._add_output(above, "label", np.int64, self._ir.model.n_outputs)
        if self._ir.kind == "binary":
            above = graph.cast(above, np.int64)
            number = graph.add("Squeeze", above, graph.add_constant(np.array([1])))
        else:
            number = graph.add("ArgMax", scores, axis=1, keepdims=0)
        labels = np.array(classes)
        labels = labels.astype(np.int64) if labels.dtype.kind in "biu" else labels
        is_text = labels.dtype.kind not in "if"
        table = graph.add_constant(labels.astype(object) if is_text else labels)
        label = graph.add("Gather", table, number)
        self._add_output(label, "label", object if is_text else labels.dtype, None)


def _pad_entries(
    trees: list[TreeIR], index: str, value: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return indices, values and a mask of the entries of all leaves, padded to equal length."""
    blocks = [tree.leaves for tree in trees]
    counts = np.concatenate([np.diff(b.indptr) for b in blocks if b.indptr is not None])
    is_entry = np.arange(max(1, counts.max())) < counts[:, None]
    entries = np.concatenate([getattr(block, index) for block in blocks]).astype(np.int64)
    held = np.concatenate([getattr(block, value) for block in blocks])
    numbers = np.zeros(is_entry.shape, np.int64)
    values = np.zeros(is_entry.shape + held.shape[1:], held.dtype)
    numbers[is_entry], values[is_entry] = entries, held
    return numbers, values, is_entry


# ---- tree ensemble attributes --------------------------------------------------------------


def _make_nodes_v3(ir: ModelIR) -> dict[str, Any]:
    """Return the nodes of all trees for version 3."""
    names = ("treeids", "nodeids", "featureids", "values", "modes", "truenodeids", "falsenodeids")
    nodes: dict[str, Any] = {f"nodes_{name}": [] for name in names}
    nodes["nodes_missing_value_tracks_true"] = []
    largest = float(np.finfo(ir.dtype).max)
    for number, tree in enumerate(ir.trees):
        is_leaf = tree.is_leaf
        nodes["nodes_treeids"] += [number] * len(is_leaf)
        nodes["nodes_nodeids"] += range(len(is_leaf))
        nodes["nodes_featureids"] += np.where(is_leaf, 0, tree.feature).tolist()
        nodes["nodes_values"] += np.minimum(tree.threshold, largest).tolist()
        nodes["nodes_modes"] += np.where(is_leaf, "LEAF", "BRANCH_LEQ").tolist()
        nodes["nodes_truenodeids"] += np.where(is_leaf, 0, tree.left).tolist()
        nodes["nodes_falsenodeids"] += np.where(is_leaf, 0, tree.right).tolist()
        nodes["nodes_missing_value_tracks_true"] += tree.missing_left.astype(int).tolist()
    return nodes


def _make_targets_v3(ir: ModelIR, votes: bool) -> dict[str, Any]:
    """Return what leaves add to the targets of version 3.

    The leaves of tree t add their number to target t, or with `votes` their values to the outputs.
    """
    targets: dict[str, Any] = {
        f"target_{name}": [] for name in ("treeids", "nodeids", "ids", "weights")
    }
    for number, tree in enumerate(ir.trees):
        ids, weights = [number], tree.leaf[tree.leaf_nodes, None].astype(float)
        if votes:
            ids = [tree.output] if tree.output >= 0 else list(range(ir.model.n_outputs))
            weights = tree.leaves.values[tree.leaf[tree.leaf_nodes]]
        targets["target_treeids"] += [number] * weights.size
        targets["target_nodeids"] += np.repeat(tree.leaf_nodes, len(ids)).tolist()
        targets["target_ids"] += ids * len(weights)
        targets["target_weights"] += weights.ravel().tolist()
    return targets | {"n_targets": ir.model.n_outputs if votes else len(ir.trees)}


def _make_leaf_ids_v3(onnx: ModuleType, ir: ModelIR) -> dict[str, Any]:
    """Return attributes of a TreeEnsembleRegressor whose target t is the leaf of tree t."""
    attributes = _make_nodes_v3(ir) | _make_targets_v3(ir, votes=False)
    if ir.dtype is np.float64:
        for name in ("nodes_values", "target_weights"):
            values = np.array(attributes.pop(name), np.float64)
            attributes[f"{name}_as_tensor"] = onnx.numpy_helper.from_array(values, name)
    return attributes


_LEQ, _MEMBER = 0, 6  # modes of nodes in version 5
_UNUSED_CODE = 256.0  # ONNX Runtime does not support empty sets


def _make_leaf_ids_v5(onnx: ModuleType, ir: ModelIR) -> dict[str, Any]:
    """Return attributes of a TreeEnsemble whose target t is the leaf of tree t."""
    names = (
        *("featureids", "splits", "modes", "missing_value_tracks_true"),
        *("truenodeids", "trueleafs", "falsenodeids", "falseleafs"),
    )
    columns: dict[str, Any] = {f"nodes_{name}": [] for name in names}
    members: list[float] = []  # members of all sets, each ended by NaN
    roots: list[int] = []
    targets: list[int] = []
    weights: list[float] = []
    largest = float(np.finfo(ir.dtype).max)
    for number, tree in enumerate(ir.trees):
        nodes, leaves = tree.split_nodes, tree.leaf_nodes
        roots.append(len(columns["nodes_modes"]))
        place = np.zeros(len(tree.feature), np.int64)
        place[nodes] = roots[-1] + np.arange(len(nodes))
        place[leaves] = len(targets) + np.arange(len(leaves))
        targets += [number] * len(leaves)
        weights += tree.leaf[leaves].astype(float).tolist()
        left, right = tree.left[nodes], tree.right[nodes]
        if not len(nodes):  # a tree needs a split; both of its children are the leaf
            nodes = left = right = leaves
        is_set = np.isin(nodes, list(tree.codes_left))
        columns["nodes_featureids"] += np.maximum(tree.feature[nodes], 0).tolist()
        columns["nodes_splits"] += np.minimum(tree.threshold[nodes], largest).tolist()
        columns["nodes_modes"] += np.where(is_set, _MEMBER, _LEQ).tolist()
        missing_left = tree.missing_left[nodes].astype(int)
        columns["nodes_missing_value_tracks_true"] += missing_left.tolist()
        for side, children in (("true", left), ("false", right)):
            columns[f"nodes_{side}nodeids"] += place[children].tolist()
            columns[f"nodes_{side}leafs"] += tree.is_leaf[children].astype(int).tolist()
        for node in sorted(tree.codes_left):
            codes = tree.codes_left[node].astype(float).tolist()
            codes += [float(MISSING_CODE)] * bool(tree.missing_left[node])
            members += [*(codes or [_UNUSED_CODE]), np.nan]
    tensor = onnx.numpy_helper.from_array
    attributes = columns | {
        "nodes_splits": tensor(np.array(columns["nodes_splits"], ir.dtype)),
        "nodes_modes": tensor(np.array(columns["nodes_modes"], np.uint8)),
        "tree_roots": roots,
        "leaf_targetids": targets,
        "leaf_weights": tensor(np.array(weights, ir.dtype)),
        "n_targets": len(ir.trees),
        "aggregate_function": 1,
        "post_transform": 0,
    }
    if members:
        attributes["membership_values"] = tensor(np.array(members, ir.dtype))
    return attributes
