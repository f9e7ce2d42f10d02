"""skforecast's direct forecaster that fits once: equal to a model of the same windows."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("skforecast")

import pandas as pd
from numpy.lib.stride_tricks import sliding_window_view
from skforecast.model_selection import (
    TimeSeriesFold,
    backtesting_forecaster,
    grid_search_forecaster,
)
from sklearn.linear_model import Ridge
from sklearn.preprocessing import StandardScaler

from polyleaf import PolyleafRegressor
from polyleaf.integrations.skforecast import ForecasterDirect

pytestmark = pytest.mark.full

SMALL = {"n_estimators": 30, "max_leaves": 6, "n_jobs": 1}
N, LAGS, STEPS = 200, 6, 4
INDEX = pd.date_range("2024-01-01", periods=N + STEPS, freq="h")


def make_data():
    """Return a series, and numeric and categorical exogenous variables beyond its end."""
    rng = np.random.default_rng(0)
    temperature, kind = rng.normal(size=N + STEPS), rng.choice(list("abc"), N + STEPS)
    y = np.sin(np.arange(N + STEPS) / 4) + temperature + 3.0 * (kind == "b")
    exog = pd.DataFrame({"temperature": temperature, "kind": kind}, index=INDEX)
    return pd.Series(y[:N], INDEX[:N], name="y"), exog


def make_windows(y, exog=None):
    windows = sliding_window_view(y.to_numpy(), LAGS + STEPS)
    X, last = windows[:, LAGS - 1 :: -1], y.to_numpy()[: -LAGS - 1 : -1][None]
    if exog is not None:
        exog = np.column_stack([exog["temperature"], exog["kind"].map({"a": 0, "b": 1, "c": 2})])
        later = sliding_window_view(exog[LAGS:], STEPS, axis=0).transpose(0, 2, 1)
        later = later.reshape(len(later), -1)
        X, last = np.hstack([X, later[: len(X)]]), np.hstack([last, later[-1:]])
    return X, windows[:, LAGS:], last


def make(**options):
    return ForecasterDirect(PolyleafRegressor(**SMALL), steps=STEPS, lags=LAGS, **options)


def fit_by_hand(X, Y, sample_weight=None, **settings):
    model = PolyleafRegressor(**SMALL | settings, missing_targets="ignore", init="auto")
    return model.fit(X, Y, sample_weight=sample_weight, time=np.arange(len(X)))


@pytest.mark.parametrize("has_exog", [False, True])
def test_one_model_of_all_windows(has_exog):
    y, exog = make_data()
    X, Y, last = make_windows(y, exog if has_exog else None)
    known, later = (exog[:N], exog[N:]) if has_exog else (None, None)
    found = make()
    found.fit(y, known, store_in_sample_residuals=True)
    columns = [LAGS + 1 + 2 * step for step in range(STEPS)] if has_exog else "from_dtype"
    model = fit_by_hand(X, Y, categorical_features=columns)
    forecast = found.predict(exog=later)
    np.testing.assert_array_equal(forecast, model.predict(last)[0])
    residuals = Y - model.predict(X)
    assert found.in_sample_residuals_.mean() == pytest.approx(residuals.mean(), abs=1e-9)
    before = np.sort(found.in_sample_residuals_)
    found.set_in_sample_residuals(y, known)
    np.testing.assert_array_equal(np.sort(found.in_sample_residuals_), before)
    interval = found.predict_interval(exog=later, n_boot=20)
    assert (interval["lower_bound"] < interval["upper_bound"]).all()
    assert len(found.get_feature_importances(2)) == X.shape[1]
    assert all(found.estimators_[step].model is found.model_ for step in found.steps)


def test_some_steps():
    """Check that the other steps have the exogenous variables of the nearest step."""
    y, exog = make_data()
    X, Y, last = make_windows(y, exog)
    found = make()
    found.fit(y, exog[:N])
    columns = [LAGS + 1 + 2 * step for step in range(STEPS)]
    last[0, LAGS + 2 :] = last[0, LAGS : LAGS + 2].tolist() * (STEPS - 1)
    expected = fit_by_hand(X, Y, categorical_features=columns).predict(last)[0, 0]
    assert found.predict(steps=1, exog=exog[N:]).tolist() == [expected]
    fold = TimeSeriesFold(steps=STEPS, initial_train_size=N - 6)  # the last has two steps
    _, forecasts = backtesting_forecaster(
        make(), y, fold, "mean_absolute_error", exog=exog[:N], show_progress=False
    )
    assert len(forecasts) == 6 and forecasts["pred"].notna().all()


def weight_later_hours(index):
    return (index >= INDEX[100]).astype(float)


def test_weights_of_each_step():
    y, _ = make_data()
    X, Y, last = make_windows(y)
    W = sliding_window_view(weight_later_hours(INDEX[:N]), LAGS + STEPS)[:, LAGS:]
    assert len(set(map(tuple, W))) == STEPS + 1
    found = make(weight_func=weight_later_hours)
    found.fit(y)
    np.testing.assert_array_equal(found.predict(), fit_by_hand(X, Y, W).predict(last)[0])


def test_missing_values():
    y, _ = make_data()
    y = y.mask(np.arange(N) == 50)
    X, Y, last = make_windows(y)
    found = make()
    found.fit(y, suppress_warnings=True)
    np.testing.assert_array_equal(found.predict(), fit_by_hand(X, Y).predict(last)[0])
    found = make(dropna_from_series=True)
    found.fit(y, suppress_warnings=True)
    known = ~np.isnan(X).any(axis=1)
    expected = fit_by_hand(X[known], Y[known]).predict(last)[0]
    np.testing.assert_array_equal(found.predict(), expected)


def test_transformed_and_differenced_series():
    y, _ = make_data()
    trend = y + 0.1 * np.arange(N)
    found = make(transformer_y=StandardScaler(), differentiation=1)
    found.fit(trend)
    assert abs(found.predict().mean() - trend[-24:].mean()) < 3.0
    found.fit(trend[:100])  # with new transformers
    assert found.training_range_[1] == INDEX[99]


def test_search():
    y, _ = make_data()
    found = grid_search_forecaster(
        make(),
        y,
        TimeSeriesFold(steps=STEPS, initial_train_size=150),
        param_grid={"max_leaves": [4, 8]},
        metric="mean_absolute_error",
        show_progress=False,
        verbose=False,
    )
    assert (
        sorted(found["max_leaves"]) == [4, 8]
        and found["mean_absolute_error"].is_monotonic_increasing
    )


def test_other_estimators_raise():
    with pytest.raises(TypeError, match=r"estimator must be a PolyleafRegressor.*got Ridge"):
        ForecasterDirect(Ridge(), steps=2, lags=3)


@pytest.mark.parametrize("transformer", [None, StandardScaler()])
def test_quantiles_and_intervals_of_the_model(transformer):
    y, exog = make_data()
    X, Y, last = make_windows(y, exog)
    columns = [LAGS + 1 + 2 * step for step in range(STEPS)]
    distribution = PolyleafRegressor(**SMALL, objective="normal")
    found = ForecasterDirect(distribution, steps=STEPS, lags=LAGS, transformer_y=transformer)
    found.fit(y, exog[:N])
    quantiles = found.predict_quantiles(exog=exog[N:], quantiles=[0.1, 0.5])
    bounds = found.predict_interval(exog=exog[N:], interval=[0.1, 0.9])
    assert bounds.columns.tolist() == ["pred", "lower_bound", "upper_bound"]
    assert quantiles.columns.tolist() == ["q_0.1", "q_0.5"]
    np.testing.assert_array_equal(bounds["lower_bound"], quantiles["q_0.1"])
    np.testing.assert_array_equal(bounds["pred"], found.predict(exog=exog[N:]))
    if transformer is None:
        model = fit_by_hand(X, Y, objective="normal", categorical_features=columns)
        expected = model.predict_dist(last).ppf(0.9)[0]
        np.testing.assert_allclose(bounds["upper_bound"], expected, rtol=1e-9)
    narrower = found.predict_interval(steps=2, exog=exog[N:], interval=0.5)
    assert len(narrower) == 2
    assert (narrower["upper_bound"] < bounds["upper_bound"][:2]).all()
    with pytest.raises(ValueError, match="quantiles"):
        found.predict_interval(exog=exog[N:], interval=[10, 90])


def test_levels_of_quantiles():
    y, _ = make_data()
    X, Y, last = make_windows(y)
    levels = {"objective": "quantile", "quantile_alpha": [0.1, 0.5, 0.9]}
    found = ForecasterDirect(PolyleafRegressor(**SMALL, **levels), steps=STEPS, lags=LAGS)
    found.fit(y, store_in_sample_residuals=True)
    expected = fit_by_hand(X, Y, **levels).predict(last).reshape(STEPS, 3)
    np.testing.assert_array_equal(found.predict(), expected[:, 1])
    np.testing.assert_array_equal(found.predict_interval(interval=0.8), expected[:, [1, 0, 2]])
    with pytest.raises(ValueError, match=r"no quantile of level 0.2: use"):
        found.predict_quantiles(quantiles=[0.2])
    widths = found.predict_interval(method="conformal", interval=0.8).diff(axis=1)
    assert (widths["lower_bound"] < 0).all()


def test_backtests_have_intervals_of_the_model():
    y, _ = make_data()
    found = ForecasterDirect(PolyleafRegressor(**SMALL, objective="normal"), STEPS, lags=LAGS)
    fold = TimeSeriesFold(steps=STEPS, initial_train_size=N - 8)
    options = {"interval": [0.1, 0.9], "show_progress": False}
    _, forecasts = backtesting_forecaster(found, y, fold, "mean_absolute_error", **options)
    assert (forecasts["lower_bound"] < forecasts["upper_bound"]).all()


def test_quantiles_of_differences_are_none_of_the_series():
    found = make(differentiation=1)
    found.set_params({"objective": "normal"})
    found.fit(make_data()[0])
    with pytest.raises(ValueError, match=r"differentiation: .*predict_interval\(method"):
        found.predict_interval(interval=0.8)
