"""Explanations of fitted estimators: Shapley's values, and what the `shap` package makes of them.

Owns what estimators say about contributions, importances made of these, and the forms that `shap` takes. Must
not know how contributions are computed (`contributions`, the core's `Explainer`). What they mean:
docs/explaining.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

import polyleaf._core as _core
from polyleaf import forest
from polyleaf.contributions import ChosenOutputs, CodedRows, Contributions, choose_outputs
from polyleaf.dataset import Dataset
from polyleaf.features import FeatureTable
from polyleaf.inspect import Thresholds
from polyleaf.model import Model

__all__ = ["Explained", "explanation", "in_chunks", "mean_magnitude", "shap_trees"]


class Explained:
    """What estimators can say about why they predict what they predict."""

    def shap_values(
        self,
        X: Any,
        background: Any = None,
        interactions: bool = False,
        outputs: Any = None,
        *,
        iteration_range: tuple[int, int] | None = None,
    ) -> np.ndarray:
        """What each feature adds to the raw scores of each row: Shapley's values.

        Together with `shap_base_values` they add up to the raw scores (`decision_function` of a classifier,
        what the link makes predictions of): exactly, but for the rounding of float32.

        Parameters
        ----------
        X : array, sparse matrix, table or Dataset of shape (n_rows, n_features)
        background : like X, optional
            Rows that stand for what is usual: a feature is worth what it changes against them (interventional
            values). However many they are, explaining takes no longer, except with linear leaves. None: a
            feature is worth what it changes against the training rows, as the counts of the trees' nodes have
            them (path-dependent values).
        interactions : bool
            For each pair of features what they do together, half on either side; the diagonal has what a
            feature does alone.
        outputs : int, str, list of these, or ndarray of shape (n_rows, m), optional
            Numbers or names of the raw scores to explain; other numbers for each row, as `predict_topk` gives
            them for labels (0 where one is -1). Default: all.
        iteration_range : (int, int), optional
            As in `predict`: by default up to the best round, where early stopping chose one.

        Returns
        -------
        ndarray of shape (n_rows, n_features, n_outputs), float32
            In the unit of the raw scores, y's own where that was normalised. Without the last axis where
            there is one raw score, or `outputs` is a number or name; with interactions (n_rows, n_features,
            n_features, n_outputs). Features are those that trees see: with `projection` the projected ones.

        Raises
        ------
        ValueError
            Where X or the background are not like the training data, for outputs that do not exist, and where
            the model was saved without its counts and there is no background.
        MemoryError
            Where the result does not fit in memory.
        """
        contributions, chosen = self._contributions(background, outputs, iteration_range)
        rows = self._rows_to_explain(X)
        if chosen.numbers.ndim == 2 and len(chosen.numbers) != rows.n_rows:
            raise ValueError(f"outputs has {len(chosen.numbers)} rows, but X has {rows.n_rows}.")
        values = contributions.values(rows, chosen, interactions)
        return values[..., 0] if chosen.is_one else values

    def shap_base_values(
        self,
        background: Any = None,
        outputs: Any = None,
        *,
        iteration_range: tuple[int, int] | None = None,
    ) -> np.ndarray | np.float64:
        """The raw scores of a row of which nothing is known: what contributions start from.

        Parameters
        ----------
        background, outputs, iteration_range
            As in `shap_values`.

        Returns
        -------
        ndarray of shape (n_outputs,), float64, or one number where `shap_values` has no axis of outputs
            With `outputs` of two dimensions in their shape, NaN for -1.
        """
        contributions, chosen = self._contributions(background, outputs, iteration_range)
        base = contributions.base_values(chosen)
        return np.float64(base[0]) if chosen.is_one else base

    def _contributions(
        self, background: Any, outputs: Any, iteration_range: tuple[int, int] | None
    ) -> tuple[Contributions, ChosenOutputs]:
        check_is_fitted(self)
        estimator: Any = self
        model: Model = estimator.model_
        chosen = choose_outputs(outputs, model)
        rows = None if background is None else self._rows_to_explain(background, "background")
        first, last = estimator._rounds(iteration_range)
        return Contributions(model, first, last, rows, estimator._n_threads()), chosen

    def _rows_to_explain(self, X: Any, name: str = "X") -> FeatureTable | CodedRows:
        estimator: Any = self
        if isinstance(X, Dataset):
            return CodedRows(estimator._codes(X, estimator.model_.mapper), X.features)
        if name != "X" and getattr(X, "shape", (1,))[0] == 0:
            raise ValueError(f"The {name} has no rows; it needs at least one.")
        return estimator._features(X, estimator.model_.mapper)


def in_chunks(
    estimator: Any, X: Any, background: Any = None, outputs: Any = None
) -> Iterator[tuple[slice, np.ndarray]]:
    """Contributions of some rows after the other, for tables whose contributions do not fit in memory.

    Parameters
    ----------
    estimator : fitted PolyleafRegressor or PolyleafClassifier
    X, background, outputs
        As in `shap_values`.

    Yields
    ------
    rows : slice
    contributions : ndarray of shape (n_rows, n_features, n_outputs), float32
    """
    contributions, chosen = estimator._contributions(background, outputs, None)
    return contributions.in_chunks(estimator._rows_to_explain(X), chosen)


def mean_magnitude(chunks: Iterable[tuple[slice, np.ndarray]]) -> np.ndarray:
    """The mean magnitude of contributions: (n_outputs, n_features), float64, of what `in_chunks` yields."""
    total, n_rows = 0.0, 0
    for rows, values in chunks:
        total, n_rows = total + np.abs(values).sum(axis=0, dtype=np.float64), rows.stop
    return np.asarray(total).T / n_rows


def explanation(estimator: Any, X: Any, background: Any = None, outputs: Any = None) -> Any:
    """Contributions in the form that the plots of the `shap` package take.

    Parameters
    ----------
    estimator : fitted PolyleafRegressor or PolyleafClassifier
    X, background, outputs
        As in `shap_values`.

    Returns
    -------
    shap.Explanation
        `values` and `base_values` of every row, `data`, `feature_names`, and `output_names` where there are
        several outputs.

    Raises
    ------
    ImportError
        Where `shap` is not installed.
    """
    try:
        import shap
    except ImportError:
        raise ImportError("explanation makes an object of the shap package: pip install shap.") from None
    values = estimator.shap_values(X, background, outputs=outputs)
    base = np.asarray(estimator.shap_base_values(background, outputs))
    model: Model = estimator.model_
    chosen = choose_outputs(outputs, model)
    if chosen.numbers.ndim == 2:
        raise ValueError("explanation needs the same outputs for all rows.")
    rows = estimator._rows_to_explain(X)
    names = [model.output_name(k) for k in chosen.numbers.tolist()]
    return shap.Explanation(
        values,
        np.broadcast_to(base, (len(values), *base.shape)).copy(),
        None if isinstance(rows, CodedRows) else _display(rows),
        feature_names=[model.feature_name(f) for f in range(model.n_features)],
        output_names=None if chosen.is_one else names,
    )


def _display(table: FeatureTable) -> np.ndarray:
    """The features of a table as people read them, (n_rows, n_features): float64; objects with categories."""
    data: np.ndarray = table.numbers().T.astype(np.float64)
    if table.categories:
        data = data.astype(object)
        for column in table.categories:
            data[:, column.feature] = np.array([*column.categories, None], object)[column.index]
    return data


def shap_trees(estimator: Any) -> dict[str, Any]:
    """The trees in the form that `shap.TreeExplainer` takes, which then explains the raw scores.

    Parameters
    ----------
    estimator : fitted PolyleafRegressor or PolyleafClassifier, or Model
        Up to its best round, where early stopping chose one.

    Raises
    ------
    ValueError
        Where a tree splits on categories, or has linear leaves: `shap` has neither. `shap_values` explains
        both.
    """
    if not isinstance(estimator, Model):
        check_is_fitted(estimator)
        estimator = estimator.model_
    model: Model = estimator
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
    thresholds = Thresholds(model.mapper)
    for tree, leaves, output in forest.trees_of(model.forest, 0, n_trees):
        if (tree.category_set >= 0).any():
            raise ValueError("shap knows no splits on categories, which this model has; use shap_values.")
        if isinstance(leaves, _core.LinearLeaves):
            raise ValueError("shap knows no linear leaves, which this model has; use shap_values.")
        splits = zip(tree.feature.tolist(), tree.threshold.tolist(), strict=True)
        cuts = [-1.0 if f < 0 else thresholds.value(f, code) for f, code in splits]
        weight = _weights(tree)
        yield {
            "children_left": tree.left,
            "children_right": tree.right,
            "children_default": np.where(tree.missing_left, tree.left, tree.right),
            "features": tree.feature,
            "thresholds": np.array([np.inf if cut is None else cut for cut in cuts]),
            "values": _node_values(tree, _dense(leaves, output, model.n_outputs) * scale, weight),
            "node_sample_weight": weight,
        }


def _dense(leaves: Any, output: int, n_outputs: int) -> np.ndarray:
    """Payloads as vectors over all outputs, float64."""
    if not isinstance(leaves, _core.SparseLeaves):
        dense = np.zeros((len(leaves), n_outputs))
        dense[:, output if output >= 0 else slice(None)] = leaves[:, 0] if output >= 0 else leaves
        return dense
    dense = np.zeros((len(leaves.indptr) - 1, n_outputs))
    dense[np.repeat(np.arange(len(dense)), np.diff(leaves.indptr)), leaves.outputs] = leaves.values
    return dense


def _weights(tree: Any) -> np.ndarray:
    """Training rows of the nodes; both children together have what their parent has, as in the core."""
    weight = np.ones(tree.n_nodes)
    weight[0] = max(1, tree.count[0])
    for node in np.flatnonzero(tree.left >= 0):
        left, right = tree.left[node], tree.right[node]
        both = tree.count[left] + tree.count[right]
        share = tree.count[left] / both if both > 0 else 0.5
        weight[left], weight[right] = weight[node] * share, weight[node] * (1.0 - share)
    return weight


def _node_values(tree: Any, of_leaves: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Payloads of leaves, and of inner nodes the expectation of what lies below."""
    values = np.zeros((tree.n_nodes, of_leaves.shape[1]))
    is_leaf = tree.leaf >= 0
    values[is_leaf] = of_leaves[tree.leaf[is_leaf]]
    for node in np.flatnonzero(~is_leaf)[::-1]:
        children = [tree.left[node], tree.right[node]]
        total = weight[children].sum()
        share = weight[children] / total if total > 0 else np.full(2, 0.5)
        values[node] = share @ values[children]
    return values
