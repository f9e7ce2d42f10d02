"""Estimators of single outputs of a model, for frameworks that have one model per step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from polyleaf.estimators import PolyleafRegressor
from polyleaf.search.base import PolyleafRegressorCV

if TYPE_CHECKING:
    from polyleaf.runtime.types import DataLike


class SharedModel:
    """A fitted model whose last predictions are kept for the views of its outputs.

    Parameters
    ----------
    model : PolyleafRegressor
        Fitted.
    """

    def __init__(self, model: PolyleafRegressor) -> None:
        self.model = model
        self._X: object = None
        self.release()

    def predict(self, X: DataLike) -> np.ndarray:
        """Predict all outputs; the same object is predicted once."""
        if not self._is_held and X is not self._X:
            predicted = np.asarray(self.model.predict(X))
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

    def predict(self, X: DataLike) -> np.ndarray:
        """Predict this output."""
        return self.shared.predict(X)[:, self.output]


def use_linear_model(model: PolyleafRegressor) -> None:
    """Set `init=None` of an estimator to "auto"; a search does not support it."""
    if model.init is None and not isinstance(model, PolyleafRegressorCV):
        model.set_params(init="auto")
