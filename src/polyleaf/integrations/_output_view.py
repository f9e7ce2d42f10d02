"""Estimators of single outputs of a model, for frameworks that have one model per step."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from polyleaf.estimators import PolyleafRegressor
from polyleaf.search.base import PolyleafRegressorCV

if TYPE_CHECKING:
    from polyleaf.runtime.types import DataLike


def has_quantiles(model: PolyleafRegressor) -> bool:
    """Return whether a fitted model predicts a distribution or several levels."""
    objective = model.model_.objective
    return bool(objective.has_distribution) or len(objective.quantile_levels) > 1


def predict_middle(model: Any, X: DataLike) -> np.ndarray:
    """Return one forecast per step (n_rows, n_steps); of several levels 0.5, or the middle one."""
    levels = model.model_.objective.quantile_levels
    predicted = np.asarray(model.predict(X))
    middle = int(np.abs(np.subtract(levels, 0.5)).argmin()) if len(levels) else 0
    return predicted.reshape(len(predicted), -1, max(1, len(levels)))[..., middle]


def predict_quantile(model: Any, X: DataLike, level: float) -> np.ndarray:
    """Return a quantile of each step (n_rows, n_steps).

    Raises
    ------
    ValueError
        If the model has neither a distribution nor this level.
    """
    objective = model.model_.objective
    if objective.has_distribution:
        quantile: np.ndarray = model.predict_dist(X).ppf(level)
        return quantile.reshape(len(quantile), -1)
    same = np.flatnonzero(np.isclose(objective.quantile_levels, level))
    if not len(same):
        raise ValueError(
            f'The model has no quantile of level {level:g}: use objective="normal", or '
            'objective="quantile" with this level in quantile_alpha.'
        )
    predicted = np.asarray(model.predict(X))
    return predicted.reshape(len(predicted), -1, len(objective.quantile_levels))[..., same[0]]


class SharedModel:
    """A fitted model whose last predictions are kept for the views of its outputs.

    Parameters
    ----------
    model : PolyleafRegressor
        Fitted.
    predict : callable, optional
        `predict(model, X)` returns what the views show. Default: all outputs.
    """

    def __init__(
        self,
        model: PolyleafRegressor,
        predict: Callable[[PolyleafRegressor, DataLike], np.ndarray] | None = None,
    ) -> None:
        self.model = model
        self._predict = predict
        self._X: object = None
        self.release()

    def predict(self, X: DataLike) -> np.ndarray:
        """Predict all outputs; the same object is predicted once."""
        if not self._is_held and X is not self._X:
            predicted = np.asarray(
                self.model.predict(X) if self._predict is None else self._predict(self.model, X)
            )
            self._X, self._predicted = X, predicted.reshape(len(predicted), -1)
        return self._predicted

    def hold(self, X: DataLike) -> None:
        """Return the predictions for X until `release`, whatever is passed."""
        self.predict(X)
        self._is_held = True

    def release(self) -> None:
        """Forget the last predictions."""
        self._X, self._predicted = None, np.empty((0, 0))
        self._is_held = False


class OutputView:
    """One output of a shared model, as a fitted estimator.

    Parameters
    ----------
    shared : SharedModel
    output : int
        Number of the output.
    """

    def __init__(self, shared: SharedModel, output: int) -> None:
        self.shared, self.output = shared, output

    @property
    def model(self) -> PolyleafRegressor:
        """The model of all outputs."""
        return self.shared.model

    @property
    def feature_importances_(self) -> np.ndarray:
        """Importance of each feature to the model of all outputs."""
        return self.model.feature_importances_

    def predict(self, X: DataLike) -> np.ndarray:
        """Predict this output."""
        return self.shared.predict(X)[:, self.output]


def use_linear_model(model: PolyleafRegressor) -> None:
    """Set `init=None` of an estimator to "auto"; a search does not support it."""
    if model.init is None and not isinstance(model, PolyleafRegressorCV):
        model.set_params(init="auto")
