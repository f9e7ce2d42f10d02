"""Prediction sets of a fitted classifier, calibrated on rows that it was not trained on.

Owns: whose depths are ranked. Must not know: depths and ranks (`intervals`), where a calibration is kept,
how models are trained.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from polyleaf.distributions.parametric import check_coverage
from polyleaf.estimators.calibration_state import keep, kept
from polyleaf.inputs.targets import TargetEncoding, check_same_rows
from polyleaf.model import Model
from polyleaf.training.conformal import (
    class_nonconformity,
    interval_widths,
    label_nonconformity,
    truth_nonconformity,
)

__all__ = ["PredictsSets"]


class PredictsSets:
    """`calibrate` and `predict_set`, for classifiers."""

    if TYPE_CHECKING:  # what estimators have
        model_: Model
        _encoding: TargetEncoding

        def predict_proba(
            self, X: Any, *, iteration_range: Any = None, offset: Any = None
        ) -> Any: ...
        def _get_class_names(self) -> list[str]: ...
        def _wrap_output(self, values: Any, names: Any, X: Any) -> Any: ...

    def calibrate(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        coverage: float = 0.9,
        offset: Any = None,
    ) -> Self:
        """Find how many classes a prediction set must hold, on rows that the model was not trained on.

        Sets hold the classes of largest probability, as many as it takes (Romano, Sesia and Candès, NeurIPS
        2020): few where the model is sure, more where it is not. New rows like these have their class among
        them with the probability `coverage`, at least, whatever the model is worth. Of labels a set holds
        all labels of a row with that probability. One number is kept, in the model and its file, until it
        is fitted anew.

        Parameters
        ----------
        X : array, sparse matrix or table of shape (n_rows, n_features)
        y : array-like of shape (n_rows,), or indicator matrix (n_rows, n_labels)
            Of labels, rows with one that is not known (NaN) are left out.
        sample_weight : array-like of shape (n_rows,), optional
        coverage : float in (0, 1)
        offset : optional
            As in `predict`.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            Where rows are too few for the coverage: it takes 9 for 0.9, 99 for 0.99.
        AttributeError
            Where the objective gives no probabilities.
        """
        check_is_fitted(self)
        check_coverage(coverage)
        depths = self._depths(X, None, offset)
        target = self._encoding.encode(y, sample_weight, normalized=False)
        check_same_rows(len(depths), target.n_rows)
        truth, classes = target.values, target.get_row_classes()
        if classes is not None:
            truth = np.arange(depths.shape[1]) == np.asarray(classes, np.int64)[:, None]
        weight = np.ones(len(depths)) if target.weight is None else target.weight
        weight = weight if weight.ndim == 1 else weight.min(axis=1)
        depth = interval_widths(truth_nonconformity(depths, truth)[:, None], coverage, weight)[0]
        keep(self.model_, "prediction sets", coverage=float(coverage), depth=float(depth))
        return self

    def predict_set(
        self, X: Any, *, iteration_range: tuple[int, int] | None = None, offset: Any = None
    ) -> np.ndarray:
        """The classes, or labels, among which the truth is with the coverage of the last `calibrate`.

        Parameters
        ----------
        X : array, sparse matrix or table of shape (n_rows, n_features)
        iteration_range, offset : optional
            As in `predict`; `calibrate` was of the default range.

        Returns
        -------
        ndarray of shape (n_rows, n_classes), or (n_rows, n_labels); bool
            Columns in the order of `classes_`. Of classes one at least is in every set, the likeliest.
        """
        check_is_fitted(self)
        deepest = float(kept(self.model_, "prediction sets")["depth"])
        depths = self._depths(X, iteration_range, offset)
        return self._wrap_output(depths <= deepest, self._get_class_names, X)

    def _depths(self, X: Any, iteration_range: tuple[int, int] | None, offset: Any) -> np.ndarray:
        """How deep a set must reach to hold each class or label: (n_rows, n)."""
        found = self.predict_proba(X, iteration_range=iteration_range, offset=offset)
        depths = label_nonconformity if self._encoding.kind == "multilabel" else class_nonconformity
        return depths(np.asarray(found))
