"""skforecast's direct forecaster with one Polyleaf model for all steps.

It requires skforecast (extra ``polyleaf[skforecast]``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import clone

from polyleaf.estimators import PolyleafRegressor
from polyleaf.integrations._output_view import OutputView, SharedModel, use_linear_model
from polyleaf.runtime.optional_packages import optional_package

if TYPE_CHECKING:
    from polyleaf.runtime.types import DataLike

with optional_package("polyleaf.integrations.skforecast requires skforecast", "skforecast"):
    import pandas as pd
    import skforecast.direct

__all__ = ["ForecasterDirect"]


def __dir__() -> list[str]:
    return __all__


class ForecasterDirect(skforecast.direct.ForecasterDirect):
    """`skforecast.direct.ForecasterDirect` that trains one Polyleaf model for all steps.

    The features are the lags and window features, and the exogenous variables and calendar features
    of all steps. `weight_func` weights each step by its own time. Splits of the fit are in the
    order of time. `init=None` means "auto": a linear model follows levels that trees cannot reach.
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
        If `fit` finds several levels of `quantile_alpha`.

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
        levels = self.estimator.quantile_alpha
        if self.estimator.objective == "quantile" and np.size(levels) > 1:
            raise ValueError(
                f"quantile_alpha={levels!r}: skforecast has one forecast per step. Pass one level, "
                "with one forecaster for each."
            )
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
        self.model_, shared = model, SharedModel(model)
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
        predicted = self.model_.predict(pd.DataFrame(row[None], columns=columns))
        return predicted.reshape(-1)[np.asarray(steps) - 1]


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

    @property
    def feature_importances_(self) -> np.ndarray:
        """Importance of each feature to the model of all steps."""
        return self.model.feature_importances_
