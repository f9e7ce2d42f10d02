"""Models of LightGBM: what its text files hold, as a model of Polyleaf.

Owns: this format. Must not know: how a model is built of trees (`building`).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from polyleaf.export.import_trees import ImportedModel, ImportedTree, build, report_damaged_file
from polyleaf.model import Model

__all__ = ["from_lightgbm"]

# Objective of LightGBM -> that of Polyleaf.
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
_CATEGORICAL, _DEFAULT_LEFT = 1, 2  # bits of decision_type; the next two say what is missing:
_NONE, _ZERO = 0, 1


def from_lightgbm(model: Any) -> Model:
    """A model of LightGBM as a model of Polyleaf, with equal predictions.

    Parameters
    ----------
    model : str, path, Booster or estimator of LightGBM
        A file is text, as `Booster.save_model` writes it.

    Returns
    -------
    Model
        Saved, it is read as an estimator by `polyleaf.load_model`: of classes 0, 1, ...; quantiles and ranks
        are plain numbers. Categories are LightGBM's codes of them. Features are compared as float64, and leaf
        values are rounded to float32.

    Raises
    ------
    ValueError
        When it is no such file, leaves are linear, zeros are missing values, its objective has no
        counterpart, or a feature has more than 254 thresholds.
    """
    model = getattr(model, "booster_", model)
    text = (
        model.model_to_string()
        if hasattr(model, "model_to_string")
        else Path(os.fspath(model)).read_text("utf-8", errors="replace")
    )
    if not text.startswith("tree\n") or ("\nTree=" not in text and "end of trees" not in text):
        raise ValueError(
            'This is no LightGBM model in text; save it with Booster.save_model("model.txt").'
        )
    with report_damaged_file("LightGBM"):
        return _model(text)


def _model(text: str) -> Model:
    head, *blocks = text.split("end of trees")[0].split("\nTree=")
    about = _fields(head)
    name, options = _objective(about)
    per_round = int(about.get("num_tree_per_iteration", 1))
    factor = 1.0 if "average_output" not in about else per_round / max(1, len(blocks))
    factor *= float(options.get("sigmoid", 1.0)) if _OBJECTIVES[name] == "logistic" else 1.0
    trees = [_tree(_fields(block), t, per_round, factor) for t, block in enumerate(blocks)]
    given = ImportedModel(
        library="LightGBM",
        n_features=int(about["max_feature_idx"]) + 1,
        feature_names=_names(about),
        wide=True,
        base_score=np.zeros(per_round),
        objective=_OBJECTIVES[name],
        kind=_KINDS.get(name, "regression"),
        categories=_categories(trees),
    )
    return build(given, trees)


def _fields(block: str) -> dict[str, str]:
    """Lines `name=value`; a line without a value is a flag."""
    pairs = (line.partition("=") for line in block.splitlines() if line)
    return {name: value for name, _, value in pairs}


def _names(about: dict[str, str]) -> list[str] | None:
    names = about.get("feature_names", "").split(" ")
    generated = [f"Column_{i}" for i in range(len(names))]
    return None if names == generated or len(set(names)) < len(names) else names


def _objective(about: dict[str, str]) -> tuple[str, dict[str, str]]:
    """Name, and options as in "binary sigmoid:1"."""
    name, *words = about.get("objective", "custom").split(" ")
    options = dict(word.partition(":")[::2] for word in words)
    if name not in _OBJECTIVES or "sqrt" in options:
        raise ValueError(
            f"Objective {about['objective']!r} of LightGBM has no counterpart here; known are "
            f"{', '.join(_OBJECTIVES)}."
        )
    return name, options


def _array(fields: dict[str, str], name: str, dtype: Any) -> np.ndarray:
    return np.array(fields.get(name, "").split(), dtype)


def _tree(fields: dict[str, str], number: int, per_round: int, factor: float) -> ImportedTree:
    if fields.get("is_linear", "0") != "0":
        raise ValueError(
            "The LightGBM model has linear leaves, which fall back to a constant where a value is missing; "
            "those of Polyleaf do not. Train it without linear_tree."
        )
    n_leaves = int(fields["num_leaves"])
    n_inner = n_leaves - 1
    values = np.concatenate([np.zeros(n_inner), _array(fields, "leaf_value", np.float64)])
    zeros, kinds = np.zeros(n_leaves), _array(fields, "decision_type", np.int64)
    threshold = np.concatenate([_array(fields, "threshold", np.float64), zeros])
    is_set = (kinds & _CATEGORICAL) > 0
    missing = np.where(is_set, _NONE, kinds >> 2)
    if (missing == _ZERO).any():
        raise ValueError(
            "The LightGBM model takes zeros as missing values, which Polyleaf does not. Train it without "
            "zero_as_missing."
        )
    # Where nothing was missing in training, NaN counts as 0; a category that is none goes right.
    as_zero = (missing == _NONE) & (threshold[:n_inner] >= 0)
    by_default = (missing != _NONE) & ((kinds & _DEFAULT_LEFT) > 0)
    children = [_children(fields, side, n_inner, n_leaves) for side in ("left", "right")]
    return ImportedTree(
        feature=np.concatenate(
            [_array(fields, "split_feature", np.int64), zeros.astype(np.int64) - 1]
        ),
        left=children[0],
        right=children[1],
        threshold=threshold,
        missing_left=np.concatenate([~is_set & (as_zero | by_default), zeros > 0]),
        categories_left=_sets(fields, np.flatnonzero(is_set), threshold),
        values=values[:, None] * factor,
        output=number % per_round,
        round=number // per_round,
        gain=_node_values(fields, "split_gain", "", n_leaves),
        cover=_node_values(fields, "internal_weight", "leaf_weight", n_leaves),
        count=_node_values(fields, "internal_count", "leaf_count", n_leaves),
    )


def _children(fields: dict[str, str], side: str, n_inner: int, n_leaves: int) -> np.ndarray:
    """Inner nodes keep their numbers, leaves follow; a tree of one leaf is that leaf."""
    given = _array(fields, f"{side}_child", np.int64)
    return np.concatenate(
        [np.where(given < 0, n_inner + ~given, given)[:n_inner], np.full(n_leaves, -1)]
    )


def _node_values(fields: dict[str, str], inner: str, leaf: str, n_leaves: int) -> np.ndarray:
    found = _array(fields, inner, np.float64)[: n_leaves - 1], _array(fields, leaf, np.float64)
    sizes = n_leaves - 1, n_leaves
    return np.concatenate(
        [a if len(a) == n else np.zeros(n) for a, n in zip(found, sizes, strict=True)]
    )


def _sets(fields: dict[str, str], nodes: np.ndarray, threshold: np.ndarray) -> dict[int, set[int]]:
    begin = _array(fields, "cat_boundaries", np.int64)
    words = _array(fields, "cat_threshold", np.int64).astype("<u4")
    found = {}
    for node in nodes.tolist():
        row = int(threshold[node])
        bits = np.unpackbits(words[begin[row] : begin[row + 1]].view(np.uint8), bitorder="little")
        found[node] = set(np.flatnonzero(bits).tolist())
    return found


def _categories(trees: list[ImportedTree]) -> dict[int, list[int]]:
    """Of each categorical feature the categories that some split names; all others go right everywhere."""
    found: dict[int, set[int]] = {}
    for tree in trees:
        for node, categories in tree.categories_left.items():
            found.setdefault(int(tree.feature[node]), set()).update(categories)
    return {feature: sorted(categories) for feature, categories in found.items()}
