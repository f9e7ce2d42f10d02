"""Export to XGBoost's JSON format, and import of XGBoost models from JSON and UBJSON."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from polyleaf.binned_data.binning import MAX_BINS
from polyleaf.export.import_trees import (
    ImportedModel,
    ImportedTree,
    build_model,
    refuse_objective,
    report_damaged_file,
)
from polyleaf.export.ir import FLOAT32_MAX, ModelIR, TreeIR, build_ir, check_scores
from polyleaf.model import Model
from polyleaf.model.leaf_kinds import LeafFunctions
from polyleaf.model.serialize import TextDestination, as_path, format_source, write_text
from polyleaf.runtime.types import JsonObject, ModelLike
from polyleaf.runtime.user_warnings import warn_user

# ---- export --------------------------------------------------------------------------------

_VERSION = [3, 1, 0]  # the oldest version that reads the files
_NO_PARENT = (1 << 31) - 1

# Link -> objective, its parameters, and the base score of raw score 0.
_UNWEIGHTED = {"reg_loss_param": {"scale_pos_weight": "1"}}
_POISSON = {"poisson_regression_param": {"max_delta_step": "7E-1"}}
_SQUARED_ERROR: tuple[str, JsonObject, str] = ("reg:squarederror", _UNWEIGHTED, "0E0")
_LINK_OBJECTIVES: dict[str, tuple[str, JsonObject, str]] = {
    "logistic": ("binary:logistic", _UNWEIGHTED, "5E-1"),
    "softmax": ("multi:softprob", {}, "0E0"),
    "exponential": ("count:poisson", _POISSON, "1E0"),
}


def to_xgboost(model: ModelLike, path: TextDestination, *, check: bool = True) -> None:
    """Write a model in XGBoost's JSON format, for XGBoost 3.1 and later.

    Parameters
    ----------
    model : Model or fitted estimator
        An estimator with a best iteration is exported up to it.
    path : str, path or open text file
        The file. The extension must be ".json", by which XGBoost detects the format.
    check : bool
        Whether to compare the raw scores with the model's, on 64 rows of thresholds, categories and
        missing values, if XGBoost is installed.

    Raises
    ------
    ValueError
        If the model projects its features, has linear leaves or features that need float64, dense
        leaf vectors would fill the memory, or the path has another extension.

    Notes
    -----
    XGBoost reads rows of :func:`polyleaf.export.to_numeric_matrix`, with categories as codes. The
    objective has the link of the model, so that predictions are equal: logistic of each output,
    softmax or exponential; otherwise predictions are raw scores. Columns have no names. A first
    round of single leaves holds the base scores.
    """
    if not hasattr(path, "write") and as_path(path).suffix != ".json":
        raise ValueError(f"path={format_source(path)} must have the extension .json.")
    ir = build_ir(model, "xgboost")
    ir.check_constant_leaves("xgboost")
    text = json.dumps(_export_model(ir))
    if check:
        check_scores(model, "XGBoost", lambda _, matrix: _predict_margin(ir, text, matrix))
    write_text(path, text)


def _predict_margin(ir: ModelIR, text: str, matrix: np.ndarray) -> np.ndarray | None:
    """Return the raw scores of an exported model, or None if XGBoost is not installed."""
    try:
        import xgboost
    except ImportError:
        return None
    booster = xgboost.Booster({"nthread": 1})
    booster.load_model(bytearray(text, "utf-8"))
    types = _list_feature_types(ir)
    options = {"feature_types": types, "enable_categorical": True} if types else {}
    return booster.predict(xgboost.DMatrix(matrix, nthread=1, **options), output_margin=True)


def _list_feature_types(ir: ModelIR) -> list[str]:
    """Return the type of each feature; empty if all are numeric."""
    is_categorical = ir.model.mapper.is_categorical_
    return ["c" if is_set else "float" for is_set in is_categorical if is_categorical.any()]


def _export_model(ir: ModelIR) -> JsonObject:
    model = ir.model
    link = "" if ir.is_one_vs_rest else ir.link or ""
    objective, parameters, base_score = _LINK_OBJECTIVES.get(link, _SQUARED_ERROR)
    is_softmax = objective == "multi:softprob"
    if is_softmax:
        parameters = {"softmax_multiclass_param": {"num_class": str(model.n_outputs)}}
    model_params = {
        "base_score": base_score,
        "boost_from_average": "1",
        "num_class": str(model.n_outputs if is_softmax else 0),
        "num_feature": str(model.n_features),
        "num_target": str(1 if is_softmax else model.n_outputs),
    }
    learner = {
        "attributes": {},
        "feature_names": [],
        "feature_types": _list_feature_types(ir),
        "gradient_booster": {"model": _export_booster(ir), "name": "gbtree"},
        "learner_model_param": model_params,
        "objective": {"name": objective, **parameters},
    }
    return {"learner": learner, "version": _VERSION}


def _export_booster(ir: ModelIR) -> JsonObject:
    base = ir.base_score[:, None] if ir.has_scalar_trees else ir.base_score[None, :]
    # Round 0 has the base scores, as trees of a single leaf.
    trees = [(_make_leaf_tree(output), value[None]) for output, value in enumerate(base)]
    trees += [(replace(tree, round=1 + tree.round), ir.leaf_values(tree)) for tree in ir.trees]
    rounds = [tree.round for tree, _ in trees]
    ends = np.searchsorted(rounds, np.arange(rounds[-1] + 1), side="right").tolist()
    return {
        "cats": {"enc": [], "feature_segments": [], "sorted_idx": []},
        "gbtree_model_param": {"num_parallel_tree": "1", "num_trees": str(len(trees))},
        "iteration_indptr": [0, *ends],
        "tree_info": [max(0, tree.output) for tree, _ in trees],
        "trees": [
            {"id": number, **_export_tree(ir, tree, values)}
            for number, (tree, values) in enumerate(trees)
        ],
    }


def _make_leaf_tree(output: int) -> TreeIR:
    no_node, zero = np.array([-1]), np.zeros(1)
    return TreeIR(
        feature=no_node,
        left=no_node,
        right=no_node,
        leaf=np.array([0]),
        threshold=zero,
        codes_left={},
        missing_left=np.array([False]),
        count=zero,
        gain=zero,
        cover=zero,
        leaves=LeafFunctions(np.zeros((1, 1), np.float32)),
        output=output,
        round=0,
    )


def _export_tree(ir: ModelIR, tree: TreeIR, values: np.ndarray) -> JsonObject:
    """Return a tree with leaf `values` (n_leaves, width) in XGBoost's layout.

    The right child of a leaf is the row of its vector; the split condition of a scalar leaf is its
    value.
    """
    values = values.astype(np.float32)
    is_leaf, splits = tree.is_leaf, tree.split_nodes
    n, width = len(is_leaf), values.shape[1]
    parents = np.full(n, _NO_PARENT if width == 1 else -1)
    parents[tree.left[splits]] = parents[tree.right[splits]] = splits
    weights = np.zeros((n, width), np.float32)
    weights[is_leaf] = values[tree.leaf[is_leaf]]
    # x <= t is x < the float32 number after t; infinity stays.
    conditions = np.nextafter(tree.threshold.astype(np.float32), np.float32(np.inf))
    conditions[is_leaf] = weights[is_leaf, 0] if width == 1 else 0
    right = tree.right if width == 1 else np.where(is_leaf, tree.leaf, tree.right)
    sets = {node: _get_codes_right(ir, tree, node) for node in sorted(tree.codes_left)}
    sizes = [len(codes) for codes in sets.values()]
    content = {
        "base_weights": _shorten(weights.ravel()),
        "categories": [code for codes in sets.values() for code in codes],
        "categories_nodes": list(sets),
        "categories_segments": np.cumsum([0, *sizes])[: len(sizes)].tolist(),
        "categories_sizes": sizes,
        "default_left": np.where(is_leaf, 0, tree.missing_left).tolist(),
        "left_children": tree.left.tolist(),
        "loss_changes": _shorten(tree.gain),
        "parents": parents.tolist(),
        "right_children": right.tolist(),
        "split_conditions": _shorten(conditions),
        "split_indices": np.where(is_leaf, 0, tree.feature).tolist(),
        "split_type": [int(node in sets) for node in range(n)],
        "sum_hessian": _shorten(tree.cover),
        "tree_param": {
            "num_deleted": "0",
            "num_feature": str(ir.model.n_features),
            "num_nodes": str(n),
            "size_leaf_vector": str(width),
        },
    }
    return content if width == 1 else {**content, "leaf_weights": _shorten(values.ravel())}


def _get_codes_right(ir: ModelIR, tree: TreeIR, node: int) -> list[int]:
    """Return the codes that go right.

    XGBoost sends codes that are not listed to the left, Polyleaf where missing values go. XGBoost
    does not load an empty list; then it holds a code that no row has.
    """
    n_codes = MAX_BINS
    if tree.missing_left[node]:
        n_codes = int(ir.model.mapper.n_bins_[tree.feature[node]])
    return np.setdiff1d(np.arange(n_codes), tree.codes_left[node]).tolist() or [n_codes + 1]


def _shorten(values: Sequence[float] | np.ndarray) -> list[float]:
    """Return numbers of the fewest digits that read back as the same float32."""
    return [float(str(value)) for value in np.asarray(values, np.float32)]


# ---- import --------------------------------------------------------------------------------

# Objective of XGBoost -> objective of Polyleaf, and the link from base score to raw score.
_OBJECTIVES = {
    "reg:squarederror": ("squared_error", "identity"),
    "reg:absoluteerror": ("absolute_error", "identity"),
    "reg:squaredlogerror": ("squared_error", "identity"),
    "reg:pseudohubererror": ("squared_error", "identity"),
    "reg:quantileerror": ("squared_error", "identity"),
    "reg:logistic": ("logistic", "logit"),
    "reg:gamma": ("gamma", "log"),
    "reg:tweedie": ("tweedie", "log"),
    "count:poisson": ("poisson", "log"),
    "binary:logistic": ("logistic", "logit"),
    "binary:logitraw": ("squared_error", "identity"),
    "binary:hinge": ("squared_hinge", "identity"),
    "multi:softmax": ("softmax", "identity"),
    "multi:softprob": ("softmax", "identity"),
    "rank:ndcg": ("squared_error", "identity"),
    "rank:map": ("squared_error", "identity"),
    "rank:pairwise": ("squared_error", "identity"),
}


def from_xgboost(model: object) -> Model:
    """Convert an XGBoost model to a Polyleaf model with equal predictions.

    Parameters
    ----------
    model : str, path, Booster or estimator of XGBoost
        A file must be JSON or UBJSON (`save_model("model.json")` or `"model.ubj"`) of XGBoost 2 or
        later.

        An estimator with early stopping is converted up to its best iteration, with which it
        predicts; a Booster and a file are converted with all rounds.

    Returns
    -------
    Model
        After `save_model`, `polyleaf.load_model` loads it as an estimator. Classes are 0, 1, ...;
        models of quantiles and ranking become regressors. For `binary:hinge` the model predicts
        scores, and the estimator XGBoost's classes. Categories are XGBoost's codes. XGBoost sends
        unknown categories to the left; here they are missing values.

    Warns
    -----
    UserWarning
        If `missing` of an estimator is not NaN.

    Raises
    ------
    ValueError
        If the file is of another format, the model is linear, its objective is not supported, or a
        feature has more than 254 thresholds.
    """
    learner = _read_json(model)["learner"]
    with report_damaged_file("XGBoost"):
        converted = _convert_model(learner)
    if hasattr(model, "get_booster"):
        _apply_estimator_settings(converted, model)
    return converted


def _apply_estimator_settings(model: Model, estimator: object) -> None:
    """Truncate to the best iteration, and warn about a `missing` that boosters do not store."""
    best = getattr(estimator, "best_iteration", None)  # None without early stopping
    if best is not None and best + 1 < model.n_rounds:
        model.truncate(int(best) + 1)
    missing = getattr(estimator, "missing", None)
    if missing is not None and not np.isnan(missing):
        warn_user(
            f"The XGBoost estimator treats {missing} as missing (missing={missing}), which is not "
            "part of the model: replace it by NaN in the data."
        )


def _convert_model(learner: JsonObject) -> Model:
    booster = learner["gradient_booster"]
    weights = booster.get("weight_drop", ())  # dart before XGBoost 3.4
    booster = booster.get("gbtree", booster)
    if "model" not in booster or "trees" not in booster["model"]:
        raise ValueError(
            "The XGBoost model has no trees: the boosters gbtree and dart are "
            "supported, gblinear is not."
        )
    content = booster["model"]
    trees = _convert_trees(content, np.array(content.get("weight_drop", weights), np.float64))
    return build_model(_convert_parameters(learner, content), trees)


def _read_json(model: Any) -> JsonObject:
    """Return the model as JSON types."""
    if hasattr(model, "get_booster"):
        model = model.get_booster()
    if hasattr(model, "save_raw"):
        data = bytes(model.save_raw("json"))
    else:
        data = Path(os.fspath(model)).read_bytes()
    try:
        is_json = data[1:2] in (b"\n", b" ", b'"')
        content = json.loads(data) if is_json else _UbjsonReader(data).read()
        if "learner" not in content:
            raise ValueError('there is no key "learner"')
    except (ValueError, TypeError, KeyError, struct.error, IndexError) as error:
        raise ValueError(
            f"model is not an XGBoost model in JSON or UBJSON ({error}); save it as .json or .ubj."
        ) from error
    return content


def _convert_parameters(learner: JsonObject, content: JsonObject) -> ImportedModel:
    params, name = learner["learner_model_param"], learner["objective"]["name"]
    if name not in _OBJECTIVES:
        refuse_objective("XGBoost", name, _OBJECTIVES)
    objective, link = _OBJECTIVES[name]
    n_outputs = max(1, int(params["num_class"]), int(params.get("num_target", 1)))
    text = params["base_score"]
    base_scores = json.loads(text if text.startswith("[") else f"[{text}]")
    base = np.resize(np.array(base_scores, np.float64), n_outputs)
    if link == "logit":
        base = np.log(base) - np.log1p(-base)
    elif link == "log":
        base = np.log(base)
    kinds = {"multi:softmax": "multiclass", "multi:softprob": "multiclass"}
    kinds["binary:logistic"] = kinds["binary:hinge"] = "binary" if n_outputs == 1 else "multilabel"
    parameters = {}
    if objective == "tweedie":
        tweedie = learner["objective"]["tweedie_regression_param"]
        parameters = {"variance_power": float(tweedie["tweedie_variance_power"])}
    return ImportedModel(
        library="XGBoost",
        n_features=int(params["num_feature"]),
        feature_names=learner.get("feature_names") or None,
        is_float64=False,
        base_score=base,
        objective=objective,
        parameters=parameters,
        kind=kinds.get(name, "regression"),
        categories=_collect_categories(learner, content),
    )


def _collect_categories(learner: JsonObject, content: JsonObject) -> dict[int, range]:
    """Return the codes of each categorical feature, up to the largest that a split lists."""
    types = learner.get("feature_types") or []
    largest = {f: 0 for f, kind in enumerate(types) if kind in ("c", "categorical")}
    largest |= _find_largest_codes(content["trees"])
    return {feature: range(code + 1) for feature, code in largest.items()}


def _parse_category_sets(tree: JsonObject) -> dict[int, list[int]]:
    """Return node -> categories that go right."""
    codes = np.asarray(tree.get("categories", ()), np.int64)
    segments = zip(
        tree.get("categories_nodes", ()),
        tree.get("categories_segments", ()),
        tree.get("categories_sizes", ()),
        strict=True,
    )
    return {int(node): codes[int(at) : int(at) + int(size)].tolist() for node, at, size in segments}


def _find_largest_codes(trees: list[JsonObject]) -> dict[int, int]:
    """Return feature -> largest category that a split lists."""
    largest: dict[int, int] = {}
    for tree in trees:
        for node, codes in _parse_category_sets(tree).items():
            feature = int(tree["split_indices"][node])
            largest[feature] = max([largest.get(feature, 0), *codes])
    return largest


def _convert_trees(content: JsonObject, weights: np.ndarray) -> list[ImportedTree]:
    ends = content.get("iteration_indptr")
    trees, groups = content["trees"], content["tree_info"]
    n_groups = max([0, *map(int, groups)]) + 1
    if ends is None:  # before XGBoost 2.1
        n_parallel = int(content["gbtree_model_param"].get("num_parallel_tree") or 1)
        per_round = n_groups * n_parallel
        ends = range(0, len(trees) + per_round, per_round)
    rounds = np.searchsorted(np.asarray(ends, np.int64), np.arange(len(trees)), side="right") - 1
    largest = _find_largest_codes(trees)
    return [
        _convert_tree(tree, int(group), int(round), weights[t] if len(weights) else 1.0, largest)
        for t, (tree, group, round) in enumerate(zip(trees, groups, rounds, strict=True))
    ]


def _convert_tree(
    tree: JsonObject, group: int, round: int, weight: float, largest: dict[int, int]
) -> ImportedTree:
    left = np.array(tree["left_children"], np.int64)
    right = np.array(tree["right_children"], np.int64)
    split = np.array(tree["split_conditions"], np.float32)
    feature = np.array(tree["split_indices"], np.int64)
    width = int(tree["tree_param"].get("size_leaf_vector") or 1)
    values = split.astype(np.float64)[:, None]
    if width > 1:
        values = np.zeros((len(left), width))
        leaves = np.array(tree["leaf_weights"], np.float64).reshape(-1, width)
        values[left < 0] = leaves[right[left < 0]]
    categories_left = {
        node: set(range(largest[int(feature[node])] + 1)) - set(codes)
        for node, codes in _parse_category_sets(tree).items()
    }
    return ImportedTree(
        feature=feature,
        left=left,
        right=right,
        threshold=_get_largest_below(split),
        missing_left=np.array(tree["default_left"], bool),
        categories_left=categories_left,
        values=values * weight,
        output=-1 if width > 1 else group,
        round=round,
        gain=np.array(tree["loss_changes"], np.float64),
        cover=np.array(tree["sum_hessian"], np.float64),
    )


def _get_largest_below(split: np.ndarray) -> np.ndarray:
    """Return t' with x < t equal to x <= t': the float32 number before t."""
    before = np.nextafter(split, np.float32(-np.inf)).astype(np.float64)
    return np.where(before >= FLOAT32_MAX, np.inf, np.maximum(before, -FLOAT32_MAX))


_UBJSON_NUMBERS = {
    "i": ">i1",
    "U": ">u1",
    "I": ">i2",
    "l": ">i4",
    "L": ">i8",
    "d": ">f4",
    "D": ">f8",
}


class _UbjsonReader:
    """Reader of one value of https://ubjson.org, with typed arrays."""

    def __init__(self, data: bytes):
        self._data, self._position = data, 0

    def read(self, marker: str | None = None) -> Any:
        marker = self._read_marker() if marker is None else marker
        if marker == "{":
            return self._read_object()
        if marker == "[":
            return self._read_array()
        if marker in _UBJSON_NUMBERS:
            return self._read_numbers(marker, 1)[0].item()
        if marker in ("S", "H"):
            return self._read_text()
        if marker == "C":
            return self._read_bytes(1).decode()
        constants = {"Z": None, "T": True, "F": False}
        if marker not in constants:
            raise ValueError(f"unknown marker {marker!r} at byte {self._position}")
        return constants[marker]

    def _read_bytes(self, size: int) -> bytes:
        data = self._data[self._position : self._position + size]
        if size < 0 or len(data) < size:
            raise ValueError("unexpected end of the file")
        self._position += size
        return data

    def _read_marker(self) -> str:
        marker = self._read_bytes(1).decode("latin-1")
        return self._read_marker() if marker == "N" else marker

    def _peek(self) -> str:
        return self._data[self._position : self._position + 1].decode("latin-1")

    def _read_numbers(self, marker: str, count: int) -> np.ndarray:
        dtype = np.dtype(_UBJSON_NUMBERS[marker])
        return np.frombuffer(self._read_bytes(count * dtype.itemsize), dtype)

    def _read_text(self) -> str:
        return self._read_bytes(int(self.read())).decode()

    def _read_container_header(self) -> tuple[str | None, int | None]:
        """Return type and number of the elements, None where they are not given."""
        kind = count = None
        if self._peek() == "$":
            self._read_bytes(1)
            kind = self._read_marker()
        if self._peek() == "#":
            self._read_bytes(1)
            count = int(self.read())
        return kind, count

    def _read_object(self) -> JsonObject:
        kind, count = self._read_container_header()
        values: JsonObject = {}
        while self._peek() != "}" if count is None else len(values) < count:
            name = self._read_text()
            values[name] = self.read(kind)
        if count is None:
            self._read_bytes(1)
        return values

    def _read_array(self) -> Any:
        kind, count = self._read_container_header()
        if kind in _UBJSON_NUMBERS and count is not None:
            return self._read_numbers(kind, count).tolist()
        values: list[Any] = []
        while self._peek() != "]" if count is None else len(values) < count:
            values.append(self.read(kind))
        if count is None:
            self._read_bytes(1)
        return values
