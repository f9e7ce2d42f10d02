"""Why fitted estimators predict what they predict: Shapley's values of features, whole or chunk by chunk.

Owns what estimators say about contributions, and importances made of these. Must not know how contributions
are computed (`polyleaf.model.shap`, the core's `Explainer`), or the `shap` package. What they mean:
docs/explaining.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from polyleaf.data.dataset import Dataset
from polyleaf.inputs.features import FeatureTable
from polyleaf.model import Model
from polyleaf.model.shap import BinnedRows, resolve_outputs

__all__ = ["ShapMixin", "iter_shap_values", "mean_abs_shap"]


class ShapMixin:
    """What estimators can say about why they predict what they predict."""

    if TYPE_CHECKING:  # what estimators have
        model_: Model

        def _rounds(self, iteration_range: tuple[int, int] | None) -> tuple[int, int]: ...
        def _features(self, X: Any) -> FeatureTable: ...
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
        """What each feature adds to the raw scores of each row: Shapley's values.

        Together with `shap_base_values` they add up to the raw scores (`predict_raw`, what the link makes
        predictions of; `decision_function` of a classifier, but for two classes of an objective that scores
        both, such as "softmax"), without offsets: exactly, but for the rounding of float32.

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
            n_features, n_outputs). With `projection` features are the projected ones; what is made of a
            feature of more than 255 categories counts as that feature.

        Raises
        ------
        ValueError
            Where X or the background are not like the training data, for outputs that do not exist, and where
            the model was saved without its counts and there is no background.
        MemoryError
            Where the result does not fit in memory.
        """
        first, last, n_threads = self._shap_range(iteration_range)
        others = None if background is None else self._read_shap_rows(background, "background")
        model: Model = self.model_
        rows = self._read_shap_rows(X)
        return model.shap_values(rows, others, interactions, outputs, first, last, n_threads)

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
        first, last, n_threads = self._shap_range(iteration_range)
        others = None if background is None else self._read_shap_rows(background, "background")
        return self.model_.shap_base_values(others, outputs, first, last, n_threads)

    def _shap_range(self, iteration_range: tuple[int, int] | None) -> tuple[int, int, int]:
        """First and last round (exclusive), and threads."""
        check_is_fitted(self)
        return *self._rounds(iteration_range), self._n_threads()

    def _read_shap_rows(self, X: Any, name: str = "X") -> FeatureTable | BinnedRows:
        if isinstance(X, Dataset):
            X = X.rebinned_to(self.model_.mapper)
            return BinnedRows(X.codes, X.features)
        if name != "X" and getattr(X, "shape", (1,))[0] == 0:
            raise ValueError(f"The {name} has no rows; it needs at least one.")
        return self._features(X)


def iter_shap_values(
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
    first, last, n_threads = estimator._shap_range(None)
    others = None if background is None else estimator._read_shap_rows(background, "background")
    model: Model = estimator.model_
    chosen = resolve_outputs(outputs, model.n_outputs, model.output_names)
    return model.make_shap_explainer(first, last, others, n_threads).iter_shap_values(
        estimator._read_shap_rows(X), chosen
    )


def mean_abs_shap(chunks: Iterable[tuple[slice, np.ndarray]]) -> np.ndarray:
    """The mean magnitude of contributions.

    Parameters
    ----------
    chunks : iterable of (slice, ndarray of shape (n_some, n_features, n_outputs), float32)
        What `iter_shap_values` yields.

    Returns
    -------
    ndarray of shape (n_outputs, n_features), float64
        In the unit of raw scores.
    """
    total, n_rows = 0.0, 0
    for rows, values in chunks:
        total, n_rows = total + np.abs(values).sum(axis=0, dtype=np.float64), rows.stop
    if not n_rows:
        raise ValueError("Importance by contributions is their mean over rows, and X has none.")
    return np.asarray(total).T / n_rows
