"""SHAP values and trees in the formats of the `shap` package, which is imported lazily."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from polyleaf.model import Model
from polyleaf.model.leaf_kinds import LEAF_KINDS
from polyleaf.model.shap import BinnedRows, resolve_outputs
from polyleaf.model.trees import SplitThresholds, Tree
from polyleaf.runtime.capabilities import refuse
from polyleaf.runtime.types import DataLike, JsonObject
from polyleaf.user_data.feature_table import FeatureTable

if TYPE_CHECKING:
    import polyleaf._core as _core
    from polyleaf.estimators.base import PolyleafEstimator


def make_shap_explanation(
    estimator: PolyleafEstimator,
    X: DataLike,
    background: DataLike | None = None,
    outputs: Any = None,
) -> Any:
    """Contributions for the plots of the `shap` package.

    Parameters
    ----------
    estimator : fitted PolyleafRegressor or PolyleafClassifier
    X, background, outputs
        See `shap_values` of the estimators.

    Returns
    -------
    shap.Explanation
        With `values` and `base_values` of every row, `data`, `feature_names`, and `output_names` if
        there are several outputs.

    Raises
    ------
    ImportError
        If `shap` is not installed.
    """
    try:
        import shap
    except ImportError:
        raise ImportError(
            "make_shap_explanation requires the shap package: pip install shap."
        ) from None
    values = estimator.shap_values(X, background, outputs=outputs)
    base = np.asarray(estimator.shap_base_values(background, outputs))
    model: Model = estimator.model_
    selection = resolve_outputs(outputs, model.n_outputs, model.output_names)
    if selection.indices.ndim == 2:
        raise ValueError("outputs must be the same for all rows in make_shap_explanation.")
    rows = estimator._read_shap_rows(X)
    names = [model.output_name(k) for k in selection.indices.tolist()]
    return shap.Explanation(
        values,
        np.broadcast_to(base, (len(values), *base.shape)).copy(),
        None if isinstance(rows, BinnedRows) else _get_values(rows),
        feature_names=model.input_names,
        output_names=None if selection.is_single else names,
    )


def _get_values(table: FeatureTable) -> np.ndarray:
    """Return the values of a table (n_rows, n_features): float64, or objects with categories."""
    data: np.ndarray = table.get_raw_values().T.astype(np.float64)
    if table.categories:
        data = data.astype(object)
        for column in table.categories:
            data[:, column.feature] = np.array([*column.categories, None], object)[column.index]
    return data


def export_shap_trees(estimator: Any) -> JsonObject:
    """Return the trees in the format of `shap.TreeExplainer`, which then explains raw scores.

    Parameters
    ----------
    estimator : fitted PolyleafRegressor or PolyleafClassifier, or Model
        Rounds up to the best one are exported, if early stopping found one.

    Raises
    ------
    ValueError
        If the model has an initial model, a projection, splits on categories or linear leaves,
        which `shap` does not support; use `shap_values`.
    """
    if not isinstance(estimator, Model):
        check_is_fitted(estimator)
        estimator = estimator.model_
    model: Model = estimator
    if model.initial is not None:
        refuse("init", "shap_trees")
    if model.projection is not None:
        refuse("projection", "shap_trees")
    if model.mapper.derived_columns_ is not None:
        refuse("high_cardinality", "shap_trees")
    n_rounds = model.n_rounds if model.best_iteration is None else model.best_iteration + 1
    n_trees = int(np.searchsorted(model.round_of_tree, n_rounds))
    scale = np.ones(model.n_outputs) if model.target_scale is None else model.target_scale
    offset = 0.0 if model.target_offset is None else model.target_offset
    return {
        "trees": list(_shap_trees(model, n_trees, scale)),
        "base_offset": model.base_score * scale + offset,
        "internal_dtype": np.float64,
        "input_dtype": np.float64,
    }


def _shap_trees(model: Model, n_trees: int, scale: np.ndarray) -> Iterator[dict[str, np.ndarray]]:
    thresholds = SplitThresholds(model.mapper)
    for view in itertools.islice(model.trees, n_trees):
        tree = view.structure
        if (tree.category_set >= 0).any():
            refuse("categories", "shap_trees")
        if LEAF_KINDS[view.kind].reads_features:
            refuse("linear_leaves", "shap_trees")
        splits = zip(tree.feature.tolist(), tree.threshold.tolist(), strict=True)
        values = [-1.0 if f < 0 else thresholds.value(f, code) for f, code in splits]
        weight = _weights(tree)
        yield {
            "children_left": tree.left,
            "children_right": tree.right,
            "children_default": np.where(tree.missing_left, tree.left, tree.right),
            "features": tree.feature,
            "thresholds": np.array([np.inf if value is None else value for value in values]),
            "values": _node_values(tree, _leaf_values(view, model.n_outputs) * scale, weight),
            "node_sample_weight": weight,
        }


def _leaf_values(tree: Tree, n_outputs: int) -> np.ndarray:
    """Return the values of the leaves for all outputs: (n_leaves, n_outputs), float64."""
    values = np.array([tree.leaf_values(leaf) for leaf in range(tree.n_leaves)], np.float64)
    if tree.outputs is None or values.shape[1] == n_outputs:  # sparse leaves have all outputs
        return values
    dense = np.zeros((tree.n_leaves, n_outputs))
    dense[:, tree.outputs] = values
    return dense


def _weights(tree: _core.Tree) -> np.ndarray:
    """Return the row counts of nodes, rescaled so that children add up to their parent."""
    weight = np.ones(tree.n_nodes)
    weight[0] = max(1, tree.count[0])
    for node in np.flatnonzero(tree.left >= 0):
        left, right = tree.left[node], tree.right[node]
        both = tree.count[left] + tree.count[right]
        share = tree.count[left] / both if both > 0 else 0.5
        weight[left], weight[right] = weight[node] * share, weight[node] * (1.0 - share)
    return weight


def _node_values(tree: _core.Tree, leaf_values: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Return the values of leaves, and of inner nodes the mean of their leaves."""
    values = np.zeros((tree.n_nodes, leaf_values.shape[1]))
    is_leaf = tree.leaf >= 0
    values[is_leaf] = leaf_values[tree.leaf[is_leaf]]
    for node in np.flatnonzero(~is_leaf)[::-1]:
        children = [tree.left[node], tree.right[node]]
        total = weight[children].sum()
        share = weight[children] / total if total > 0 else np.full(2, 0.5)
        values[node] = share @ values[children]
    return values
