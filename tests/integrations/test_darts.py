"""Polyleaf as a model of Darts: one model for all steps, components and quantiles."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("darts")

import pandas as pd
from darts import TimeSeries
from numpy.lib.stride_tricks import sliding_window_view

from polyleaf import PolyleafRegressor
from polyleaf.integrations.darts import PolyleafForecastingModel

pytestmark = pytest.mark.full

SMALL = {"n_estimators": 20, "max_leaves": 6, "n_jobs": 1}
N, LAGS, STEPS = 120, 5, 3
INDEX = pd.date_range("2024-01-01", periods=N, freq="h")


def make_series(i=0):
    rng = np.random.default_rng(i)
    a = 10.0 * i + np.sin(np.arange(N) / 4) + 0.1 * rng.normal(size=N)
    values = np.column_stack([a, rng.normal(size=N)])
    return TimeSeries.from_times_and_values(INDEX, values, columns=["a", "b"])


def make_windows(*series):
    """Return lags and targets by step, then component, in the order of time; and the last lags."""
    windows = [sliding_window_view(s.values(), LAGS + STEPS, axis=0) for s in series]
    rows = np.stack(windows, axis=1).reshape(-1, 2, LAGS + STEPS).transpose(0, 2, 1)
    rows = rows.reshape(len(rows), -1)
    last = np.array([s.values()[-LAGS:].ravel() for s in series])
    return rows[:, : 2 * LAGS], rows[:, 2 * LAGS :], last


def fit_by_hand(X, Y, sample_weight=None, **settings):
    defaults = {"missing_targets": "ignore", "validation_order": "time", "init": "auto"}
    settings = SMALL | defaults | settings
    return PolyleafRegressor(**settings).fit(X, Y, sample_weight=sample_weight)


def make(**options):
    return PolyleafForecastingModel(lags=LAGS, output_chunk_length=STEPS, **SMALL | options)


@pytest.mark.parametrize("rounds", [20, None])
def test_one_model_of_all_windows(rounds):
    """Check several series, and that automatic rounds are found in the order of time."""
    series = [make_series(i) for i in range(3)]
    X, Y, last = make_windows(*series)
    found = make(n_estimators=rounds).fit(series)
    expected = fit_by_hand(X, Y, n_estimators=rounds)
    assert found.model.n_iter_ == expected.n_iter_ and found.model.n_outputs_ == 2 * STEPS
    forecasts = np.array([f.values().ravel() for f in found.predict(STEPS, series)])
    np.testing.assert_array_equal(forecasts, expected.predict(last))
    assert found.get_estimator(0, 0) is found.model


def test_weights_of_components_and_steps():
    series = make_series()
    weights = series.with_values(np.column_stack([np.ones(N), np.arange(N) % 5]))
    X, Y, last = make_windows(series)
    _, W, _ = make_windows(weights)
    found = make().fit(series, sample_weight=weights)
    expected = fit_by_hand(X, Y, W).predict(last)
    np.testing.assert_array_equal(found.predict(STEPS).values().ravel(), expected[0])
    linear = make().fit(series, sample_weight="linear").predict(STEPS).values()
    assert not np.array_equal(linear.ravel(), expected[0])


@pytest.mark.parametrize("likelihood", ["multiquantile", "quantile"])
def test_quantiles_of_steps_and_components(likelihood):
    series, quantiles = make_series(), [0.1, 0.5, 0.9]
    X, Y, last = make_windows(series)
    options = {"likelihood": likelihood, "quantiles": quantiles}
    found = make(**options, calibrate_quantiles=False).fit(series)
    levels = {"objective": "quantile", "quantile_alpha": quantiles}
    expected = fit_by_hand(X, Y, **levels, calibrate_quantiles=False).predict(last)
    forecast = found.predict(STEPS, predict_likelihood_parameters=True)
    assert forecast.components.tolist()[::4] == ["a_q0.100", "b_q0.500"]
    np.testing.assert_array_equal(forecast.values().ravel(), expected[0])
    np.testing.assert_array_equal(found.predict(STEPS).values().ravel(), expected[0, 1::3])
    assert found.predict(STEPS, num_samples=9).n_samples == 9


def test_normal_distributions_of_steps_and_components():
    series = make_series()
    X, Y, last = make_windows(series)
    found = make(likelihood="gaussian").fit(series)
    expected = fit_by_hand(X, Y, objective="normal").predict_dist(last)
    forecast = found.predict(STEPS, predict_likelihood_parameters=True)
    assert forecast.components.tolist() == ["a_mu", "a_sigma", "b_mu", "b_sigma"]
    parameters = np.stack([expected.mean()[0], expected.std()[0]], axis=-1)
    np.testing.assert_array_equal(forecast.values().ravel(), parameters.ravel())
    np.testing.assert_array_equal(found.predict(STEPS).values().ravel(), expected.mean()[0])
    samples = found.predict(STEPS, num_samples=2_000, random_state=0).all_values()
    assert np.allclose(samples.mean(axis=2).ravel(), expected.mean()[0], atol=0.2)
    assert np.allclose(samples.std(axis=2).ravel(), expected.std()[0], rtol=0.1)


def test_counts():
    counts = TimeSeries.from_values(np.random.default_rng(0).poisson(3, N).astype(float))
    found = PolyleafForecastingModel(lags=LAGS, likelihood="poisson", **SMALL).fit(counts)
    assert found.model.objective == "poisson" and found.predict(3, num_samples=2).n_samples == 2


def test_evaluation_series_and_covariates():
    series = make_series()
    covariate = series["a"].with_values((np.arange(N) % 7)[:, None])
    options = {"lags_future_covariates": (0, STEPS), "categorical_future_covariates": "a"}
    found = make(**options, early_stopping_rounds=2, n_estimators=200)
    found.fit(
        series[:80],
        future_covariates=covariate,
        val_series=series[75:],
        val_future_covariates=covariate,
        val_sample_weight=series.with_values(np.ones((N, 2))),
    )
    assert 0 <= found.model.best_iteration_ < 199 > found.model.n_iter_
    assert found.model.categorical_features == [*range(2 * LAGS, 2 * LAGS + STEPS)]
    known = {"future_covariates": covariate, "val_future_covariates": covariate}
    found.fit(series[:80], val_series=series[75:], **known)
    assert list(found.model.evals_result_) == ["validation_0"]
    assert found.predict(STEPS, future_covariates=covariate).width == 2


def test_missing_values_and_models_of_one_step(tmp_path):
    values = make_series().values().copy()
    values[40:50, 1] = np.nan
    series = TimeSeries.from_times_and_values(INDEX, values)
    found = make().fit(series)
    X, Y, last = make_windows(series)
    expected = fit_by_hand(X, Y).predict(last)[0]
    np.testing.assert_array_equal(found.predict(STEPS).values().ravel(), expected)
    found.save(tmp_path / "model.pkl")
    loaded = PolyleafForecastingModel.load(tmp_path / "model.pkl", trusted=True)
    np.testing.assert_array_equal(loaded.predict(STEPS).values().ravel(), expected)
    single = make(multi_models=False).fit(series)
    assert single.model.n_outputs_ == 2 and single.predict(STEPS).shape == (STEPS, 2, 1)


def test_unknown_likelihood():
    with pytest.raises(ValueError, match="likelihood must be None or one of 'gaussian'"):
        make(likelihood="laplace")
