"""SHAP values of fitted estimators, at once or in chunks, and importances computed from them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from polyleaf.data.dataset import Dataset
from polyleaf.inputs.feature_table import FeatureTable
from polyleaf.model import Model
from polyleaf.model.shap import BinnedRows, OutputSelection, ShapExplainer, resolve_outputs

__all__ = ["ShapMixin", "iter_shap_values", "mean_abs_shap"]


class ShapMixin:
    """The SHAP methods of estimators."""

    if TYPE_CHECKING:  # provided by the estimators
        model_: Model

        def _rounds(self, iteration_range: tuple[int, int] | None) -> tuple[int, int]: ...
        def _features(self, X: Any, n_threads: int | None = None) -> FeatureTable: ...
        def _n_threads(self) -> int: ...

    def shap_values(
        self,
        X: Any,
        background: Any = None,
        interactions: bool = False,
        outputs: Any = None,
        *,
        iteration_range: tuple[int, int] | None = None,
    ) -> np.ndarray:
        """Return SHAP values: the contribution of each feature to the raw scores of each row.

        They and `shap_base_values` add up to the raw scores (`predict_raw`; `decision_function` of
        a classifier, except for two classes of an objective that scores both, such as "softmax"),
        without offsets and up to float32 rounding.

        Parameters
        ----------
        X : array, sparse matrix, table or Dataset of shape (n_rows, n_features)
        background : like X, optional
            Reference rows: interventional values, the change of the scores against these rows.
            Their number does not affect the running time, except with linear leaves. Default:
            path-dependent values, the change against the training rows as the row counts of the
            nodes represent them.
        interactions : bool
            Return interaction values of each pair of features, half on either side; the diagonal
            has the main effects.
        outputs : int, str, list of these, or ndarray of shape (n_rows, m), optional
            Numbers or names of the raw scores to explain; a matrix selects other outputs for each
            row, as `predict_topk` returns them (0 where it has -1). Default: all.
        iteration_range : (int, int), optional
            See `predict`. Default: up to the best round, if early stopping found one.

        Returns
        -------
        ndarray of shape (n_rows, n_features, n_outputs), float32
            In the unit of the raw scores, which is that of y if y was normalised. Without the last
            axis if there is one raw score, or `outputs` is a number or a name; with interactions
            (n_rows, n_features, n_features, n_outputs). With `projection` the features are the
            projected ones; columns derived from a high-cardinality feature count as that feature.

        Raises
        ------
        ValueError
            If X or the background do not have the features of the training data, for unknown
            outputs, or without a background if the model was saved without row counts.
        MemoryError
            If the result does not fit in memory.
        """
        selection, explainer = self._prepare_shap(background, outputs, iteration_range)
        values = explainer.values(self._read_shap_rows(X), selection, interactions)
        return values[..., 0] if selection.is_single else values

    def shap_base_values(
        self,
        background: Any = None,
        outputs: Any = None,
        *,
        iteration_range: tuple[int, int] | None = None,
    ) -> np.ndarray | np.float64:
        """Return the expected raw scores, to which SHAP values are added.

        Parameters
        ----------
        background, outputs, iteration_range
            See `shap_values`.

        Returns
        -------
        ndarray of shape (n_outputs,), float64, or a float64 number
            A number if `shap_values` has no axis of outputs. For a matrix of `outputs` in its
            shape, NaN for -1.
        """
        selection, explainer = self._prepare_shap(background, outputs, iteration_range)
        base = explainer.base_values(selection)
        return np.float64(base[0]) if selection.is_single else base

    def _prepare_shap(
        self,
        background: Any = None,
        outputs: Any = None,
        iteration_range: tuple[int, int] | None = None,
    ) -> tuple[OutputSelection, ShapExplainer]:
        check_is_fitted(self)
        first, last = self._rounds(iteration_range)
        reference = None if background is None else self._read_shap_rows(background, "background")
        model, n_threads = self.model_, self._n_threads()
        selection = resolve_outputs(outputs, model.n_outputs, model.output_names)
        return selection, model.make_shap_explainer(first, last, reference, n_threads)

    def _read_shap_rows(self, X: Any, name: str = "X") -> FeatureTable | BinnedRows:
        if isinstance(X, Dataset):
            X = X.rebinned_to(self.model_.mapper)
            return BinnedRows(X.codes, X.features)
        if name != "X" and getattr(X, "shape", (1,))[0] == 0:
            raise ValueError(f"{name} must have at least one row.")
        return self._features(X)


def iter_shap_values(
    estimator: Any, X: Any, background: Any = None, outputs: Any = None
) -> Iterator[tuple[slice, np.ndarray]]:
    """Yield SHAP values in chunks of rows, for data whose values do not fit in memory.

    Parameters
    ----------
    estimator : fitted PolyleafRegressor or PolyleafClassifier
    X, background, outputs
        See `shap_values` of the estimators.

    Yields
    ------
    rows : slice
    values : ndarray of shape (n_chunk_rows, n_features, n_outputs), float32
    """
    selection, explainer = estimator._prepare_shap(background, outputs)
    return explainer.iter_values(estimator._read_shap_rows(X), selection)


def mean_abs_shap(chunks: Iterable[tuple[slice, np.ndarray]]) -> np.ndarray:
    """Return the mean absolute SHAP values.

    Parameters
    ----------
    chunks : iterable of (slice, ndarray of shape (n_chunk_rows, n_features, n_outputs), float32)
        The result of `iter_shap_values`.

    Returns
    -------
    ndarray of shape (n_outputs, n_features), float64
        In the unit of raw scores.
    """
    total, n_rows = 0.0, 0
    for rows, values in chunks:
        total, n_rows = total + np.abs(values).sum(axis=0, dtype=np.float64), rows.stop
    if not n_rows:
        raise ValueError("X must have at least one row for importances by SHAP values.")
    return np.asarray(total).T / n_rows
