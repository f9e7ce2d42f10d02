"""Import of LightGBM models from its text format."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from polyleaf.export.import_trees import (
    ImportedModel,
    ImportedTree,
    build_model,
    refuse_objective,
    report_damaged_file,
)
from polyleaf.model import Model

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

# Objective of LightGBM -> objective of Polyleaf.
_OBJECTIVES = {
    "regression": "squared_error",
    "regression_l1": "absolute_error",
    "huber": "squared_error",
    "fair": "squared_error",
    "quantile": "squared_error",
    "mape": "squared_error",
    "poisson": "poisson",
    "gamma": "gamma",
    "tweedie": "tweedie",
    "binary": "logistic",
    "cross_entropy": "logistic",
    "multiclass": "softmax",
    "lambdarank": "squared_error",
    "rank_xendcg": "squared_error",
    "custom": "squared_error",
}
_KINDS = {"binary": "binary", "multiclass": "multiclass"}
_CATEGORICAL, _DEFAULT_LEFT = 1, 2  # bits of decision_type
_MISSING_NONE, _MISSING_ZERO = 0, 1  # values of the next two bits


def from_lightgbm(model: Any) -> Model:
    """Convert a LightGBM model to a Polyleaf model with equal predictions.

    Parameters
    ----------
    model : str, path, Booster or estimator of LightGBM
        A file must be in the text format of `Booster.save_model`.

    Returns
    -------
    Model
        After `save_model`, `polyleaf.load_model` loads it as an estimator. Classes are 0, 1, ...;
        models of quantiles and ranking become regressors. Categories are LightGBM's codes. Features
        are compared as float64, and leaf values are rounded to float32.

    Raises
    ------
    ValueError
        If the file is of another format, leaves are linear, zeros are missing values, the objective
        is not supported, or a feature has more than 254 thresholds.
    """
    model = getattr(model, "booster_", model)
    text = (
        model.model_to_string()
        if hasattr(model, "model_to_string")
        else Path(os.fspath(model)).read_text("utf-8", errors="replace")
    )
    if not text.startswith("tree\n") or ("\nTree=" not in text and "end of trees" not in text):
        raise ValueError(
            "model is not a LightGBM model in text format; save it with "
            'Booster.save_model("model.txt").'
        )
    with report_damaged_file("LightGBM"):
        return _parse_model(text)


def _parse_model(text: str) -> Model:
    head, *blocks = text.split("end of trees")[0].split("\nTree=")
    header = _parse_fields(head)
    name, options = _parse_objective(header)
    per_round = int(header.get("num_tree_per_iteration", 1))
    factor = 1.0 if "average_output" not in header else per_round / max(1, len(blocks))
    factor *= float(options.get("sigmoid", 1.0)) if _OBJECTIVES[name] == "logistic" else 1.0
    trees = [
        _parse_tree(_parse_fields(block), t, per_round, factor) for t, block in enumerate(blocks)
    ]
    imported = ImportedModel(
        library="LightGBM",
        n_features=int(header["max_feature_idx"]) + 1,
        feature_names=_parse_feature_names(header),
        is_float64=True,
        base_score=np.zeros(per_round),
        objective=_OBJECTIVES[name],
        kind=_KINDS.get(name, "regression"),
        categories=_collect_categories(trees),
    )
    return build_model(imported, trees)


def _parse_fields(block: str) -> dict[str, str]:
    """Parse lines `name=value`; a line without a value is a flag."""
    pairs = (line.partition("=") for line in block.splitlines() if line)
    return {name: value for name, _, value in pairs}


def _parse_feature_names(header: dict[str, str]) -> list[str] | None:
    names = header.get("feature_names", "").split(" ")
    generated = [f"Column_{i}" for i in range(len(names))]
    return None if names == generated or len(set(names)) < len(names) else names


def _parse_objective(header: dict[str, str]) -> tuple[str, dict[str, str]]:
    """Return name and options of an objective such as "binary sigmoid:1"."""
    name, *words = header.get("objective", "custom").split(" ")
    options = dict(word.partition(":")[::2] for word in words)
    if name not in _OBJECTIVES or "sqrt" in options:
        refuse_objective("LightGBM", header["objective"], _OBJECTIVES)
    return name, options


def _parse_array(fields: dict[str, str], name: str, dtype: DTypeLike) -> np.ndarray:
    return np.array(fields.get(name, "").split(), dtype)


def _parse_tree(fields: dict[str, str], number: int, per_round: int, factor: float) -> ImportedTree:
    if fields.get("is_linear", "0") != "0":
        raise ValueError(
            "The LightGBM model has linear leaves, which treat missing values in a way that "
            "Polyleaf does not support: train it without linear_tree."
        )
    n_leaves = int(fields["num_leaves"])
    n_inner = n_leaves - 1
    values = np.concatenate([np.zeros(n_inner), _parse_array(fields, "leaf_value", np.float64)])
    zeros, kinds = np.zeros(n_leaves), _parse_array(fields, "decision_type", np.int64)
    threshold = np.concatenate([_parse_array(fields, "threshold", np.float64), zeros])
    is_set = (kinds & _CATEGORICAL) > 0
    missing = np.where(is_set, _MISSING_NONE, kinds >> 2)
    if (missing == _MISSING_ZERO).any():
        raise ValueError(
            "The LightGBM model treats zeros as missing values, which Polyleaf does not support: "
            "train it without zero_as_missing."
        )
    # If nothing was missing in training, NaN is compared as 0; unknown categories go right.
    zero_left = (missing == _MISSING_NONE) & (threshold[:n_inner] >= 0)
    default_left = (missing != _MISSING_NONE) & ((kinds & _DEFAULT_LEFT) > 0)
    return ImportedTree(
        feature=np.concatenate(
            [_parse_array(fields, "split_feature", np.int64), zeros.astype(np.int64) - 1]
        ),
        left=_parse_children(fields, "left", n_inner, n_leaves),
        right=_parse_children(fields, "right", n_inner, n_leaves),
        threshold=threshold,
        missing_left=np.concatenate([~is_set & (zero_left | default_left), zeros > 0]),
        categories_left=_parse_category_sets(fields, np.flatnonzero(is_set), threshold),
        values=values[:, None] * factor,
        output=number % per_round,
        round=number // per_round,
        gain=_parse_node_values(fields, "split_gain", "", n_leaves),
        cover=_parse_node_values(fields, "internal_weight", "leaf_weight", n_leaves),
        count=_parse_node_values(fields, "internal_count", "leaf_count", n_leaves),
    )


def _parse_children(fields: dict[str, str], side: str, n_inner: int, n_leaves: int) -> np.ndarray:
    """Return children of all nodes; leaves are numbered after the inner nodes."""
    children = _parse_array(fields, f"{side}_child", np.int64)
    return np.concatenate(
        [np.where(children < 0, n_inner + ~children, children)[:n_inner], np.full(n_leaves, -1)]
    )


def _parse_node_values(fields: dict[str, str], inner: str, leaf: str, n_leaves: int) -> np.ndarray:
    inner_values = _parse_array(fields, inner, np.float64)[: n_leaves - 1]
    leaf_values = _parse_array(fields, leaf, np.float64)
    pairs = (inner_values, n_leaves - 1), (leaf_values, n_leaves)
    return np.concatenate([values if len(values) == n else np.zeros(n) for values, n in pairs])


def _parse_category_sets(
    fields: dict[str, str], nodes: np.ndarray, threshold: np.ndarray
) -> dict[int, set[int]]:
    begin = _parse_array(fields, "cat_boundaries", np.int64)
    words = _parse_array(fields, "cat_threshold", np.int64).astype("<u4")
    sets = {}
    for node in nodes.tolist():
        row = int(threshold[node])
        bits = np.unpackbits(words[begin[row] : begin[row + 1]].view(np.uint8), bitorder="little")
        sets[node] = set(np.flatnonzero(bits).tolist())
    return sets


def _collect_categories(trees: list[ImportedTree]) -> dict[int, list[int]]:
    """Return the categories of each feature that occur in splits; all others always go right."""
    by_feature: dict[int, set[int]] = {}
    for tree in trees:
        for node, categories in tree.categories_left.items():
            by_feature.setdefault(int(tree.feature[node]), set()).update(categories)
    return {feature: sorted(categories) for feature, categories in by_feature.items()}
