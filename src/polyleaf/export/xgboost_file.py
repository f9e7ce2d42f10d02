"""A model as a file of XGBoost, for what reads such files: other languages, services, explainers.

Owns: the translation into XGBoost's JSON. Must not know: how XGBoost's files are read (`xgboost_model`).
docs/export.md says what goes and what does not.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from polyleaf.data.binning import MAX_BINS
from polyleaf.export.ir import ModelIR, TreeIR, build_ir
from polyleaf.model.io import TextDestination, as_path, format_source, write_text

__all__ = ["to_xgboost"]

_VERSION = [3, 1, 0]  # the first whose files have all that is written
_NO_PARENT = (1 << 31) - 1

# Link -> objective, its parameters, and the base score that is the raw score 0.
_SQUARES: tuple[str, dict[str, Any], str] = (
    "reg:squarederror",
    {"reg_loss_param": {"scale_pos_weight": "1"}},
    "0E0",
)
_OBJECTIVES: dict[str, tuple[str, dict[str, Any], str]] = {
    "logistic": ("binary:logistic", {"reg_loss_param": {"scale_pos_weight": "1"}}, "5E-1"),
    "softmax": ("multi:softprob", {}, "0E0"),
    "exponential": (
        "count:poisson",
        {"poisson_regression_param": {"max_delta_step": "7E-1"}},
        "1E0",
    ),
}


def to_xgboost(model: Any, path: TextDestination) -> None:
    """Write a model as XGBoost's JSON, for XGBoost 3.1 and later.

    Parameters
    ----------
    model : Model or fitted estimator
        An estimator with a best round is written up to it, as it predicts.
    path : str, path or open text file
        Of the file, whose name ends in ".json": XGBoost goes by the ending.

    Raises
    ------
    ValueError
        When the model projects its features, has linear leaves, leaves of so many outputs that dense vectors
        of them would fill the memory, or features that float32 would merge, because XGBoost knows no others;
        or when the path ends in something else.

    Notes
    -----
    XGBoost reads rows as :func:`polyleaf.export.to_numeric_matrix` makes them, categories as their codes. The
    objective is that of the link, so that predictions are ours: logistic of each output, softmax,
    exponential; otherwise predictions are raw scores. Columns have no names. A first round of single leaves
    holds the base scores.
    """
    if not hasattr(path, "write") and as_path(path).suffix != ".json":
        raise ValueError(
            f"{format_source(path)} must end in .json: XGBoost goes by the ending of a file."
        )
    source = build_ir(model)
    source.check_constant_leaves("XGBoost", "to_onnx or to_c")
    for feature in np.flatnonzero(source.is_wide).tolist():
        raise ValueError(
            f"Feature {source.model.feature_name(feature)!r} has values that float32 would merge, and "
            "XGBoost compares float32 numbers: use to_onnx, to_treelite or to_c."
        )
    write_text(path, json.dumps(_content(source)))


def _content(source: ModelIR) -> dict[str, Any]:
    model = source.model
    objective, parameters, base = _OBJECTIVES.get(
        "" if source.one_vs_rest else source.link or "", _SQUARES
    )
    classes = objective == "multi:softprob"
    if classes:
        parameters = {"softmax_multiclass_param": {"num_class": str(model.n_outputs)}}
    about = {
        "base_score": base,
        "boost_from_average": "1",
        "num_class": str(model.n_outputs if classes else 0),
        "num_feature": str(model.n_features),
        "num_target": str(1 if classes else model.n_outputs),
    }
    categorical = model.mapper.is_categorical_
    learner = {
        "attributes": {},
        "feature_names": [],
        "feature_types": ["c" if is_one else "float" for is_one in categorical]
        if categorical.any()
        else [],
        "gradient_booster": {"model": _booster(source), "name": "gbtree"},
        "learner_model_param": about,
        "objective": {"name": objective, **parameters},
    }
    return {"learner": learner, "version": _VERSION}


def _booster(source: ModelIR) -> dict[str, Any]:
    trees: list[dict[str, Any]] = []
    groups, rounds = [], []
    for tree, group, round in _all_trees(source):
        trees.append({"id": len(trees), **tree})
        groups.append(group)
        rounds.append(round)
    ends = np.searchsorted(rounds, np.arange(rounds[-1] + 1), side="right").tolist()
    return {
        "cats": {"enc": [], "feature_segments": [], "sorted_idx": []},
        "gbtree_model_param": {"num_parallel_tree": "1", "num_trees": str(len(trees))},
        "iteration_indptr": [0, *ends],
        "tree_info": groups,
        "trees": trees,
    }


def _all_trees(source: ModelIR) -> Iterator[tuple[dict[str, Any], int, int]]:
    """Trees, the output that each is for, 0 where it is for all, and their rounds."""
    base = source.base[:, None] if source.has_scalar_trees else source.base[None, :]
    for output, values in enumerate(base):
        yield _leaf(source, values), output, 0
    views = source.model.trees
    for view, tree in zip(views, source.trees, strict=False):
        yield _tree(source, tree), max(0, tree.output), 1 + view.round


def _leaf(source: ModelIR, values: np.ndarray) -> dict[str, Any]:
    return _fields(
        source,
        left=[-1],
        right=[-1],
        feature=[0],
        split=[0.0],
        missing_left=[0],
        gain=[0.0],
        cover=[0.0],
        sets={},
        leaves=[0],
        values=values[None],
    )


def _tree(source: ModelIR, tree: TreeIR) -> dict[str, Any]:
    at = tree.structure
    inner = np.asarray(at.left) >= 0
    # x <= t is x < the float32 number after t; infinity stays.
    after = np.nextafter(tree.threshold.astype(np.float32), np.float32(np.inf))
    return _fields(
        source,
        left=at.left.tolist(),
        right=at.right.tolist(),
        feature=np.where(inner, at.feature, 0).tolist(),
        split=np.where(inner, after, np.float32(0)).tolist(),
        missing_left=np.where(inner, at.missing_left, False).astype(int).tolist(),
        gain=np.asarray(at.gain).tolist(),
        cover=np.asarray(at.cover).tolist(),
        sets={node: _to_right(source, tree, node) for node in sorted(tree.codes_left)},
        leaves=at.leaf.tolist(),
        values=source.constants(tree),
    )


def _to_right(source: ModelIR, tree: TreeIR, node: int) -> list[int]:
    """What is in no set goes left in XGBoost; here it goes where missing values go."""
    codes = MAX_BINS
    if tree.structure.missing_left[node]:
        codes = int(source.model.mapper.n_bins_[int(tree.structure.feature[node])])
    return np.setdiff1d(np.arange(codes), tree.codes_left[node]).tolist()


def _fields(
    source: ModelIR,
    *,
    left: list[int],
    right: list[int],
    feature: list[int],
    split: list[float],
    missing_left: list[int],
    gain: list[float],
    cover: list[float],
    sets: dict[int, list[int]],
    leaves: list[int],
    values: np.ndarray,
) -> dict[str, Any]:
    """A tree as XGBoost has it. A leaf's right child is the row of its vector, or its split is its value."""
    n, width = len(left), values.shape[1]
    values = values.astype(np.float32)
    is_leaf = [child < 0 for child in left]
    parents = [_NO_PARENT if width == 1 else -1] * n
    for node in range(n):
        if not is_leaf[node]:
            parents[left[node]] = parents[right[node]] = node
    weights = np.zeros((n, width), np.float32)
    weights[is_leaf] = values[[leaf for leaf, ends in zip(leaves, is_leaf, strict=True) if ends]]
    if width == 1:
        split = [float(weights[i, 0]) if is_leaf[i] else split[i] for i in range(n)]
    else:
        right = [leaves[i] if is_leaf[i] else right[i] for i in range(n)]
    sizes = [len(codes) for codes in sets.values()]
    tree = {
        "base_weights": _short(weights.ravel()),
        "categories": [code for codes in sets.values() for code in codes],
        "categories_nodes": list(sets),
        "categories_segments": np.cumsum([0, *sizes])[: len(sizes)].tolist(),
        "categories_sizes": sizes,
        "default_left": missing_left,
        "left_children": left,
        "loss_changes": _short(gain),
        "parents": parents,
        "right_children": right,
        "split_conditions": _short(split),
        "split_indices": feature,
        "split_type": [int(node in sets) for node in range(n)],
        "sum_hessian": _short(cover),
        "tree_param": {
            "num_deleted": "0",
            "num_feature": str(source.model.n_features),
            "num_nodes": str(n),
            "size_leaf_vector": str(width),
        },
    }
    return tree if width == 1 else {**tree, "leaf_weights": _short(values.ravel())}


def _short(values: Sequence[float] | np.ndarray) -> list[float]:
    """As float32 numbers of the fewest digits that tell them apart."""
    return [float(str(value)) for value in np.asarray(values, np.float32)]
