"""skforecast's direct forecaster with one Polyleaf model for all steps.

It requires skforecast (extra ``polyleaf[skforecast]``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import clone

from polyleaf.estimators import PolyleafRegressor
from polyleaf.integrations._output_view import (
    OutputView,
    SharedModel,
    has_quantiles,
    predict_middle,
    predict_quantile,
    use_linear_model,
)
from polyleaf.runtime.optional_packages import optional_package

if TYPE_CHECKING:
    from polyleaf.runtime.types import DataLike

with optional_package("polyleaf.integrations.skforecast requires skforecast", "skforecast"):
    import pandas as pd
    import skforecast.direct
    from skforecast.utils import check_interval

__all__ = ["ForecasterDirect"]


def __dir__() -> list[str]:
    return __all__


class ForecasterDirect(skforecast.direct.ForecasterDirect):
    """`skforecast.direct.ForecasterDirect` that trains one Polyleaf model for all steps.

    The features are the lags and window features, and the exogenous variables and calendar features
    of all steps. `weight_func` weights each step by its own time. Splits of the fit are in the
    order of time. `init=None` means "auto": a linear model follows levels that trees cannot reach.
    A model of `objective="normal"`, or of another distribution, has `predict_quantiles` and
    `predict_interval` of all levels, without residuals; a model of `objective="quantile"` has the
    levels of its `quantile_alpha`, and forecasts the level 0.5, or the middle one.
    Where some steps are forecast only, the others have the exogenous and calendar
    features of the nearest of these.

    Parameters
    ----------
    estimator : PolyleafRegressor or PolyleafRegressorCV
        Estimator, which is cloned.
    steps : int
        Number of steps.
    **options
        Further arguments of `skforecast.direct.ForecasterDirect`, such as `lags`; `n_jobs` is that
        of the estimator.

    Attributes
    ----------
    model_ : PolyleafRegressor
        The model of all steps.
    estimators_ : dict of int
        By step, an estimator that predicts it by the model.

    Raises
    ------
    TypeError
        If the estimator is another one.
    ValueError
        If quantiles are asked for that the model does not have, or of differences of the series.

    Examples
    --------
    >>> forecaster = ForecasterDirect(PolyleafRegressor(), steps=24, lags=48)  # doctest: +SKIP
    >>> forecaster.fit(y)  # doctest: +SKIP
    >>> forecaster.predict()  # doctest: +SKIP
    """

    def __init__(self, estimator: PolyleafRegressor, steps: int, **options: object) -> None:
        if not isinstance(estimator, PolyleafRegressor):
            raise TypeError(
                "estimator must be a PolyleafRegressor or PolyleafRegressorCV, got "
                f"{type(estimator).__name__}: use skforecast.direct.ForecasterDirect for others."
            )
        super().__init__(estimator, steps, **options | {"n_jobs": 1})
        self.estimator: Any
        self._wide: tuple[Any, Any] = (None, None)
        self._level: float | None = None  # that `_direct_predict` returns

    def fit(
        self,
        y: DataLike,
        exog: object = None,
        store_last_window: bool = True,
        store_in_sample_residuals: bool = False,
        suppress_warnings: bool = False,
        **options: object,
    ) -> None:
        """Train the model.

        Parameters
        ----------
        y, exog, store_last_window, store_in_sample_residuals, suppress_warnings, **options
            See `skforecast.direct.ForecasterDirect.fit`.
        """
        self.is_fitted = False  # transformers are fitted again
        X, targets = self.create_train_X_y(y, exog, suppress_warnings=suppress_warnings)
        X, Y = X.astype(float), np.column_stack([targets[step] for step in self.steps])
        weights = [self.create_sample_weights(targets[step].index) for step in self.steps]
        W = None if weights[0] is None else np.column_stack(weights)
        if self.dropna_from_series:
            known = X.notna().all(axis=1).to_numpy()
            X, Y, W = X[known], Y[known], None if W is None else W[known]
        model = clone(self.estimator).set_params(missing_targets="ignore", validation_order="time")
        use_linear_model(model)
        categories = set(getattr(self.categorical_encoder, "feature_names_in_", ()))
        if exog is not None and categories:
            names = [name for name in X.columns if name.rsplit("_step_", 1)[0] in categories]
            model.set_params(categorical_features=names)
        model.fit(X, Y, sample_weight=W, **self.fit_kwargs)
        self.model_, shared = model, SharedModel(model, predict_middle)
        estimator, self.estimator = self.estimator, _Steps(shared)
        try:
            super().fit(
                y,
                exog,
                store_last_window,
                store_in_sample_residuals,
                suppress_warnings=True,
                **options,
            )
        finally:
            self.estimator, self._wide = estimator, (None, None)
            shared.release()
        self.X_train_features_names_out_ = self.X_train_direct_features_names_out_

    def _create_train_X_y_step(
        self,
        X_train_autoreg: np.ndarray,
        X_train_exog: np.ndarray | None,
        X_train_calendar: np.ndarray | None,
        y_train: dict[int, np.ndarray],
        step: int,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the features of all steps, and the targets of one."""
        if self._wide[0] is not X_train_autoreg:
            n_rows, parts = len(X_train_autoreg), [X_train_autoreg]
            for values in X_train_exog, X_train_calendar:
                if values is not None:
                    parts += [values[i : i + n_rows] for i in range(self.max_step)]
            self._wide = X_train_autoreg, np.hstack(parts).astype(float)
        return self._wide[1], y_train[step]

    def _direct_predict(self, steps: list[int], Xs: list[np.ndarray]) -> np.ndarray:
        """Return the predictions of some steps, whose features are given."""
        columns, x = self.X_train_direct_features_names_out_, np.vstack(Xs)
        nearest = abs(np.subtract.outer(self.steps, steps)).argmin(axis=1)
        exog = self.X_train_exog_names_out_ or ()
        n_calendar = len(self.X_train_calendar_features_names_out_ or ())
        n_lags = x.shape[1] - len(exog) - n_calendar
        lags, exog_values, calendar = np.split(x, [n_lags, n_lags + len(exog)], axis=1)
        row = np.concatenate([lags[0], exog_values[nearest].ravel(), calendar[nearest].ravel()])
        X = pd.DataFrame(row[None], columns=columns)
        if self._level is None:
            predicted = predict_middle(self.model_, X)
        else:
            predicted = predict_quantile(self.model_, X, self._level)
        return predicted[0, np.asarray(steps) - 1]

    def predict_quantiles(
        self,
        steps: int | list[int] | None = None,
        last_window: object = None,
        exog: object = None,
        quantiles: Sequence[float] = (0.05, 0.5, 0.95),
        **options: object,
    ) -> pd.DataFrame:
        """Predict quantiles, of the model if it has some, otherwise by residuals.

        Parameters
        ----------
        steps, last_window, exog, quantiles, **options
            See `skforecast.direct.ForecasterDirect.predict_quantiles`.
        """
        if not self.is_fitted or not has_quantiles(self.model_):
            return super().predict_quantiles(steps, last_window, exog, quantiles, **options)
        if self.differentiation:
            raise ValueError(
                "differentiation: the model has quantiles of differences, which are none of the "
                'series. Leave differentiation out (init="auto" follows levels), or use '
                'predict_interval(method="conformal").'
            )
        check_interval(quantiles=list(quantiles))
        columns = {}
        try:
            for self._level in quantiles:
                columns[f"q_{self._level}"] = self.predict(steps, last_window, exog)
        finally:
            self._level = None
        return pd.DataFrame(columns)

    def predict_interval(
        self,
        steps: int | list[int] | None = None,
        last_window: object = None,
        exog: object = None,
        method: str = "bootstrapping",
        interval: float | Sequence[float] = (0.05, 0.95),
        **options: object,
    ) -> pd.DataFrame:
        """Predict intervals, of the model if it has quantiles, otherwise by residuals.

        Parameters
        ----------
        steps, last_window, exog, interval, **options
            See `skforecast.direct.ForecasterDirect.predict_interval`.
        method : {"bootstrapping", "conformal"}
            How residuals are used. "conformal" uses them also if the model has quantiles.
        """
        if method == "conformal" or not self.is_fitted or not has_quantiles(self.model_):
            return super().predict_interval(steps, last_window, exog, method, interval, **options)
        if isinstance(interval, float):
            interval = 0.5 - interval / 2, 0.5 + interval / 2
        bounds = self.predict_quantiles(steps, last_window, exog, list(interval))
        bounds.columns = ["lower_bound", "upper_bound"]
        bounds.insert(0, "pred", self.predict(steps, last_window, exog))
        return bounds


class _Steps:
    """Makes the fitted estimators of steps 1, 2, ..., one with each clone."""

    def __init__(self, shared: SharedModel) -> None:
        self._shared, self._n_made = shared, 0

    def __sklearn_clone__(self) -> _Step:
        self._n_made += 1
        return _Step(self._shared, self._n_made - 1)


class _Step(OutputView):
    """One step of a fitted model."""

    def fit(self, X: DataLike, y: DataLike, **options: object) -> _Step:
        """Do nothing: the model is fitted."""
        return self
