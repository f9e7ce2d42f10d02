"""Intervals of a fitted regressor, calibrated on rows that it was not trained on.

Owns: the bounds that a model has by itself, and how far they miss. Must not know: ranks of residuals
(`intervals`), where a calibration is kept, how models are trained.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from polyleaf.distributions import Distribution
from polyleaf.distributions.parametric import check_coverage
from polyleaf.estimators.calibration_state import keep, kept
from polyleaf.inputs.targets import TargetEncoding, check_same_rows
from polyleaf.model import Model
from polyleaf.training.conformal import interval_widths

__all__ = ["PredictsIntervals"]


class PredictsIntervals:
    """`calibrate` and `predict_interval`, for regressors."""

    model_: Model
    _encoding: TargetEncoding

    def predict(self, X: Any, *, iteration_range: Any = None, offset: Any = None) -> Any:
        raise NotImplementedError

    def _distributions(self, X: Any, iteration_range: Any, offset: Any) -> Distribution:
        raise NotImplementedError

    def calibrate(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        coverage: float = 0.9,
        joint: bool = False,
        offset: Any = None,
    ) -> Self:
        """Find how wide intervals must be, on rows that the model was not trained on (split conformal).

        Bounds are the predictions, or of several quantiles the lowest and the highest (Romano, Patterson and
        Candès, "Conformalized quantile regression", NeurIPS 2019). They are moved outwards by one number for
        each target, or inwards where they are too wide. Of predicted distributions it is the probability in
        their tails that is changed, alike for all rows, so that bounds keep to their shape (Chernozhukov,
        Wüthrich and Zhu, "Distributional conformal prediction", PNAS 118, 2021). New rows like these lie
        between them with the probability `coverage`, at least, whatever the model is worth. Kept in the
        model, and in its file, until it is fitted anew.

        Parameters
        ----------
        X : array, sparse matrix or table of shape (n_rows, n_features)
        y : array-like of shape (n_rows,) or (n_rows, n_targets)
        sample_weight : array-like of shape (n_rows,) or (n_rows, n_targets), optional
        coverage : float in (0, 1)
        joint : bool
            Of all targets of a row at once, instead of each for itself.
        offset : optional
            As in `predict`.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            Where rows are too few for the coverage: it takes 9 for 0.9, 99 for 0.99.
        """
        check_is_fitted(self)
        check_coverage(coverage)
        target = self._encoding.encode(y, sample_weight, normalized=False)
        scores = self._misses(X, target.values, offset)
        found = interval_widths(scores, coverage, target.weight, joint)
        asked = {"coverage": float(coverage), "joint": bool(joint)}
        keep(self.model_, "intervals", **asked, widths=found.tolist())
        return self

    def predict_interval(
        self, X: Any, *, iteration_range: tuple[int, int] | None = None, offset: Any = None
    ) -> np.ndarray:
        """Lower and upper bounds between which new rows lie with the coverage of the last `calibrate`.

        Parameters
        ----------
        X : array, sparse matrix or table of shape (n_rows, n_features)
        iteration_range, offset : optional
            As in `predict`; `calibrate` was of the default range.

        Returns
        -------
        ndarray of shape (n_rows, 2), or (n_rows, n_targets, 2) where y had two dimensions; float64
        """
        check_is_fitted(self)
        width = np.asarray(kept(self.model_, "intervals")["widths"], np.float64)
        bounds = self._widened(X, width, iteration_range, offset)
        return bounds[:, 0] if self._encoding.one_dimensional else bounds

    def _misses(self, X: Any, y: np.ndarray, offset: Any) -> np.ndarray:
        """How far each value (n_rows, n_targets) is out: beyond the bounds, or -ln of the probability of
        what is as far out or farther."""
        if not self.model_.objective.has_distribution:
            low, high = self._bounds(X, None, offset)
            check_same_rows(len(low), len(y))
            return np.maximum(low - y, y - high)
        predicted = self._distributions(X, None, offset)
        check_same_rows(len(predicted), len(y))
        above = predicted.sf(y - 1 if predicted.is_discrete else y)
        return -np.log(np.maximum(np.minimum(predicted.cdf(y), above), np.finfo(np.float64).tiny))

    def _widened(
        self, X: Any, width: np.ndarray, rounds: tuple[int, int] | None, offset: Any
    ) -> np.ndarray:
        """The bounds that miss no more than `width` (n_targets,): (n_rows, n_targets, 2)."""
        if self.model_.objective.has_distribution:
            predicted, tail = (
                self._distributions(X, rounds, offset),
                np.minimum(np.exp(-width), 0.5),
            )
            return np.stack([predicted.ppf(tail), predicted.isf(tail)], axis=2)
        low, high = self._bounds(X, rounds, offset)
        # Bounds that were too wide may be moved past each other: then both are their middle.
        middle = (low + high) / 2
        return np.stack([np.minimum(low - width, middle), np.maximum(high + width, middle)], axis=2)

    def _bounds(
        self, X: Any, iteration_range: tuple[int, int] | None, offset: Any
    ) -> tuple[np.ndarray, np.ndarray]:
        """Of each row and target, (n_rows, n_targets): the outermost quantiles, or the prediction twice."""
        predicted = np.asarray(self.predict(X, iteration_range=iteration_range, offset=offset))
        levels = self.model_.objective.quantile_levels
        predicted = predicted.reshape(len(predicted), self._encoding.n_outputs, max(1, len(levels)))
        if len(levels) < 2:
            return predicted[..., 0], predicted[..., 0]
        return predicted[..., int(np.argmin(levels))], predicted[..., int(np.argmax(levels))]
