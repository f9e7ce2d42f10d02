"""sktime's reduction to regression with one Polyleaf model for all steps and quantiles.

It requires sktime (extra ``polyleaf[sktime]``).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Self

import numpy as np
from sklearn.base import clone

from polyleaf.estimators import PolyleafRegressor
from polyleaf.integrations._output_view import predict_middle, predict_quantile, use_linear_model
from polyleaf.runtime.optional_packages import optional_package

with optional_package("polyleaf.integrations.sktime requires sktime", "sktime"):
    import pandas as pd
    import sktime.forecasting.compose

__all__ = ["MultioutputTabularRegressionForecaster"]


def __dir__() -> list[str]:
    return __all__


class MultioutputTabularRegressionForecaster(
    sktime.forecasting.compose.MultioutputTabularRegressionForecaster
):
    """`sktime`'s class of this name with quantiles, intervals and variances.

    A model of `objective="normal"`, or of another distribution, has `predict_quantiles` and
    `predict_interval` of all levels, and `predict_var`. A model of `objective="quantile"` has the
    levels of its `quantile_alpha`, and forecasts the level 0.5, or the middle one. Splits of the
    fit are in the order of time. `init=None` means "auto": a linear model follows levels that
    trees cannot reach.

    Parameters
    ----------
    estimator : PolyleafRegressor or PolyleafRegressorCV
        Estimator, which is cloned.
    window_length, transformers, pooling
        See `sktime.forecasting.compose.make_reduction`.

    Attributes
    ----------
    estimator_ : PolyleafRegressor
        The model of all steps.

    Raises
    ------
    TypeError
        If the estimator is another one.
    ValueError
        If `predict_quantiles` or `predict_interval` is called for levels that the model does not
        have, or `predict_var` for a model without a distribution.

    Examples
    --------
    >>> regressor = PolyleafRegressor(objective="normal")  # doctest: +SKIP
    >>> forecaster = MultioutputTabularRegressionForecaster(regressor, 48)  # doctest: +SKIP
    >>> forecaster.fit(y, fh=range(1, 25)).predict_interval(coverage=0.8)  # doctest: +SKIP
    """

    def __init__(
        self,
        estimator: PolyleafRegressor,
        window_length: int = 10,
        transformers: object = None,
        pooling: str = "local",
    ) -> None:
        if not isinstance(estimator, PolyleafRegressor):
            raise TypeError(
                "estimator must be a PolyleafRegressor or PolyleafRegressorCV, got "
                f"{type(estimator).__name__}: use sktime.forecasting.compose.make_reduction."
            )
        super().__init__(estimator, window_length, transformers, pooling)
        self.estimator: Any
        self.estimator_: Any
        self.set_tags(**{"capability:pred_int": True})

    def _fit(self, y: object, X: object, fh: object) -> Self:
        estimator = self.estimator
        self.estimator = clone(estimator).set_params(
            missing_targets="ignore", validation_order="time"
        )
        use_linear_model(self.estimator)
        try:
            with warnings.catch_warnings():  # sktime passes one step as a column
                warnings.filterwarnings("ignore", "A column-vector y was passed")
                super()._fit(y, X, fh)
        finally:
            self.estimator = estimator
        return self

    def _is_predictable(self, last_window: Any) -> bool:
        return len(last_window) == self.window_length_  # missing values are features, too

    def _predict(self, fh: object, X: object) -> Any:
        return self._predict_by(predict_middle, fh, X)

    def _predict_quantiles(self, fh: object, X: object, alpha: Sequence[float]) -> Any:
        columns = [self._predict_by(partial(predict_quantile, level=a), fh, X) for a in alpha]
        names = pd.MultiIndex.from_product([self._get_varnames(), alpha])
        return pd.DataFrame(np.column_stack(columns), columns[0].index, names)

    def _predict_var(self, fh: object, X: object = None, cov: bool = False) -> Any:
        if cov or not self.estimator_.model_.objective.has_distribution:
            raise ValueError(
                'predict_var needs a model of a distribution, such as objective="normal", and '
                "cov=False."
            )
        variance = self._predict_by(lambda model, x: model.predict_dist(x).std() ** 2, fh, X)
        return pd.DataFrame(variance.to_numpy(), variance.index, self._get_varnames())

    @classmethod
    def get_test_params(cls, parameter_set: str = "default") -> dict[str, object]:
        """Return parameters for the tests of sktime."""
        return {"estimator": PolyleafRegressor(objective="normal"), "window_length": 3}

    def _predict_by(self, predict: Callable[[Any, Any], np.ndarray], fh: object, X: object) -> Any:
        """Return the forecasts of a function of the model and the features."""
        model = self.estimator_
        self.estimator_ = _Prediction(lambda x: predict(model, x))
        try:
            return super()._predict(fh, X)
        finally:
            self.estimator_ = model


class _Prediction:
    """A function as the fitted estimator that sktime calls."""

    def __init__(self, predict: Callable[[Any], np.ndarray]) -> None:
        self.predict = predict
