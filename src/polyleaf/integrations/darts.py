"""Polyleaf as a forecasting model of Darts.

It requires Darts (extra ``polyleaf[darts]``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from polyleaf.estimators import PolyleafRegressor
from polyleaf.runtime.optional_packages import optional_package

if TYPE_CHECKING:
    from polyleaf.runtime.types import DataLike

with optional_package("polyleaf.integrations.darts requires Darts", "darts"):
    from darts.models.forecasting.sklearn_model import SKLearnModelWithCategoricalFeatures
    from darts.utils.data.tabularization import create_lagged_training_data
    from darts.utils.likelihood_models.sklearn import (
        GaussianLikelihood,
        MultiQuantileRegression,
        PoissonLikelihood,
    )
    from darts.utils.ts_utils import series2seq

__all__ = ["PolyleafForecastingModel"]


def __dir__() -> list[str]:
    return __all__


LIKELIHOODS = {
    "gaussian": "normal",
    "multiquantile": "quantile",
    "quantile": "quantile",
    "poisson": "poisson",
}
"""Objective of each likelihood."""


class PolyleafForecastingModel(SKLearnModelWithCategoricalFeatures):
    """One Polyleaf model for all steps, components and quantiles.

    `sample_weight` of `fit` weights each step and component. Missing values of the series are
    missing targets. Splits of the fit are in the order of time, over all series; `val_series` is an
    evaluation set, for `early_stopping_rounds`.

    Parameters
    ----------
    lags, lags_past_covariates, lags_future_covariates, output_chunk_length, output_chunk_shift, \
add_encoders, multi_models, use_static_covariates, categorical_past_covariates, \
categorical_future_covariates, categorical_static_covariates
        See `darts.models.LightGBMModel`.
    likelihood : {"gaussian", "multiquantile", "quantile", "poisson"}, optional
        "gaussian": a normal distribution of each value, for samples, or its mean and standard
        deviation. "multiquantile" or "quantile": one model for all `quantiles`. "poisson": the
        objective for counts.
    quantiles : list of float, optional
        Levels of "quantile", 0.5 among them. Default: nine levels from 0.01 to 0.99.
    random_state : int, optional
        Random seed. Default: the seed of `PolyleafRegressor`.
    *args, **kwargs
        Parameters of `PolyleafRegressor`; positional arguments are those above. `init` is "auto" by
        default: a linear model follows levels that trees cannot reach.

    Examples
    --------
    >>> model = PolyleafForecastingModel(lags=48, output_chunk_length=24)  # doctest: +SKIP
    >>> model.fit(series).predict(24)  # doctest: +SKIP
    """

    def __init__(
        self,
        lags: object = None,
        lags_past_covariates: object = None,
        lags_future_covariates: object = None,
        output_chunk_length: int = 1,
        output_chunk_shift: int = 0,
        add_encoders: dict[str, object] | None = None,
        likelihood: str | None = None,
        quantiles: list[float] | None = None,
        random_state: int | None = None,
        multi_models: bool = True,
        use_static_covariates: bool = True,
        categorical_past_covariates: str | list[str] | None = None,
        categorical_future_covariates: str | list[str] | None = None,
        categorical_static_covariates: str | list[str] | None = None,
        **kwargs: Any,
    ) -> None:
        n_outputs = output_chunk_length if multi_models else 1
        levels = getattr(kwargs.get("objective"), "alpha", kwargs.get("quantile_alpha", 0.5))
        if likelihood is None and np.size(levels) > 1:
            raise ValueError(
                f"quantile_alpha={levels!r}: several levels are a likelihood in Darts. Pass "
                'likelihood="quantile" and the levels as quantiles, or one level.'
            )
        if likelihood is not None:
            if likelihood not in LIKELIHOODS:
                names = ", ".join(map(repr, LIKELIHOODS))
                raise ValueError(f"likelihood must be None or one of {names}, got {likelihood!r}.")
            kwargs = {"objective": LIKELIHOODS[likelihood], **kwargs}
            if likelihood == "poisson":
                self._likelihood = PoissonLikelihood(n_outputs)
            elif likelihood == "gaussian":
                self._likelihood = _JointGaussian(n_outputs)
            else:
                self._likelihood = _JointQuantiles(n_outputs, quantiles)
                kwargs["quantile_alpha"] = self._likelihood.quantiles
        if random_state is not None:
            kwargs["random_state"] = random_state
        defaults = {"missing_targets": "ignore", "validation_order": "time", "init": "auto"}
        super().__init__(
            PolyleafRegressor(**defaults | kwargs),
            lags=lags,
            lags_past_covariates=lags_past_covariates,
            lags_future_covariates=lags_future_covariates,
            output_chunk_length=output_chunk_length,
            output_chunk_shift=output_chunk_shift,
            add_encoders=add_encoders,
            multi_models=multi_models,
            use_static_covariates=use_static_covariates,
            categorical_past_covariates=categorical_past_covariates,
            categorical_future_covariates=categorical_future_covariates,
            categorical_static_covariates=categorical_static_covariates,
            random_state=random_state,
        )

    def fit(
        self,
        series: object,
        *args: object,
        sample_weight: DataLike | None = None,
        **options: object,
    ) -> Self:
        """Train the model.

        Parameters
        ----------
        series : TimeSeries or sequence of TimeSeries
        *args, **options
            Further arguments of `darts.models.LightGBMModel.fit`, such as `past_covariates`.
        sample_weight : TimeSeries, sequence of TimeSeries or str, optional
            Weights of the values of the series, by component too.

        Returns
        -------
        self
        """
        # Darts would train one model per output for weights.
        is_name = isinstance(sample_weight, str)
        self._weight = sample_weight if is_name else series2seq(sample_weight)
        return super().fit(series, *args, **options)

    def _fit_model(
        self,
        series: object,
        past_covariates: object,
        future_covariates: object,
        max_samples_per_ts: object,
        sample_weight: DataLike,
        **options: object,
    ) -> None:
        columns, _ = self._get_categorical_features(series, past_covariates, future_covariates)
        if columns:
            self.model.set_params(categorical_features=columns)
        weight, self._weight = self._weight, None
        super()._fit_model(
            series, past_covariates, future_covariates, max_samples_per_ts, weight, **options
        )

    def _create_lagged_data(
        self,
        series: Sequence[object],
        past_covariates: object,
        future_covariates: object,
        max_samples_per_ts: object,
        sample_weight: DataLike | None = None,
        stride: int = 1,
        last_static_covariates_shape: object = None,
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        """Return features, targets and weights of all series in the order of time."""
        X, Y, times, self._static_covariates_shape, weights = create_lagged_training_data(
            target_series=series,
            output_chunk_length=self.output_chunk_length,
            output_chunk_shift=self.output_chunk_shift,
            past_covariates=past_covariates,
            future_covariates=future_covariates,
            lags=self._get_lags("target"),
            lags_past_covariates=self._get_lags("past"),
            lags_future_covariates=self._get_lags("future"),
            uses_static_covariates=self.uses_static_covariates,
            last_static_covariates_shape=last_static_covariates_shape,
            max_samples_per_ts=max_samples_per_ts,
            multi_models=self.multi_models,
            check_inputs=False,
            concatenate=True,
            sample_weight=sample_weight,
            stride=stride,
        )
        order = np.argsort(np.concatenate(times), kind="stable")
        X, Y = self._format_samples(X[order, :, 0], _flatten_column(Y[order, :, 0]))
        return X, Y, None if weights is None else _flatten_column(weights[order, :, 0])

    @property
    def _supports_val_series(self) -> bool:
        return True

    @property
    def val_set_params(self) -> tuple[str, str]:
        """Names of the arguments of `fit` for evaluation sets and their weights."""
        return "eval_set", "eval_sample_weight"

    @property
    def _categorical_fit_param(self) -> None:
        return None


class _JointQuantiles(MultiQuantileRegression):
    """Quantiles of all outputs by one model, which has the levels of an output together."""

    def _estimator_predict(self, model: Any, x: np.ndarray, **options: object) -> np.ndarray:
        predicted = model.model.predict(x, **options)
        return predicted.reshape(len(x), self._n_outputs, -1, len(self.quantiles))


class _JointGaussian(GaussianLikelihood):
    """Normal distributions of all outputs by one model.

    Predictions (n_rows, n_outputs, 2) are means and standard deviations, by step, then component.
    """

    def _estimator_predict(self, model: Any, x: np.ndarray, **options: Any) -> np.ndarray:
        predicted = model.model.predict_dist(x, **options)
        return np.stack([predicted.mean(), predicted.std()], axis=-1).reshape(len(x), -1, 2)

    def sample(self, model_output: np.ndarray) -> np.ndarray:
        # Darts takes variances, by output and row.
        samples: np.ndarray = super().sample((model_output ** (1, 2)).transpose(1, 0, 2))
        return samples

    def predict_likelihood_parameters(self, model_output: np.ndarray) -> np.ndarray:
        return self._divide(model_output)

    def _get_median_prediction(self, model_output: np.ndarray) -> np.ndarray:
        return self._divide(model_output[..., 0])

    def _divide(self, values: np.ndarray) -> np.ndarray:
        """Return values by step, and by component and parameter."""
        return values.reshape(len(values), self._n_outputs, -1)


def _flatten_column(values: np.ndarray) -> np.ndarray:
    return values.ravel() if values.shape[1] == 1 else values
