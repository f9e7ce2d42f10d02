"""sktime's reduction to regression, and the class that adds quantiles, intervals and variances."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("sktime")

import pandas as pd
from numpy.lib.stride_tricks import sliding_window_view
from sklearn.base import clone
from sklearn.linear_model import Ridge
from sktime.forecasting.compose import make_reduction

from polyleaf import PolyleafRegressor
from polyleaf.integrations.sktime import MultioutputTabularRegressionForecaster

pytestmark = [pytest.mark.full, pytest.mark.filterwarnings("ignore::FutureWarning")]

N, LAGS, STEPS = 150, 12, 6
SHIFTS = (("north", 0), ("south", 5))


VALUES = np.sin(np.arange(N) / 4) + 0.1 * np.random.default_rng(0).normal(size=N)
HOURS = pd.period_range("2024-01-01", periods=N, freq="h")
WINDOWS = sliding_window_view(VALUES, LAGS + STEPS)


def fit(y=None, **settings):
    """Return a forecaster, and the model of its rows."""
    regressor = PolyleafRegressor(n_estimators=10, max_leaves=6, n_jobs=1, **settings)
    y = pd.Series(VALUES, HOURS, name="load") if y is None else y
    found = MultioutputTabularRegressionForecaster(regressor, LAGS).fit(y, fh=range(1, STEPS + 1))
    ours = {"init": "auto", "validation_order": "time", "missing_targets": "ignore"}
    model = clone(regressor).set_params(**ours).fit(WINDOWS[:, :LAGS], WINDOWS[:, LAGS:])
    return found, model


def test_one_model_of_all_windows():
    y = pd.Series(VALUES, HOURS, name="y")
    settings = {"max_leaves": 6, "n_jobs": 1, "validation_order": "time"}
    found = make_reduction(PolyleafRegressor(**settings), "multioutput", window_length=LAGS)
    found.fit(y, fh=np.arange(1, STEPS + 1))
    model = PolyleafRegressor(**settings).fit(WINDOWS[:, :LAGS], WINDOWS[:, LAGS:])
    expected = model.predict(y.to_numpy()[None, -LAGS:])[0]
    np.testing.assert_allclose(found.predict(), expected, rtol=1e-12)
    assert found.estimator_.n_outputs_ == STEPS and found.estimator_.n_iter_ == model.n_iter_


def test_distributions_have_quantiles_intervals_and_variances():
    found, model = fit(objective="normal")
    last = VALUES[None, -LAGS:]
    predicted = model.predict_dist(last)
    np.testing.assert_allclose(found.predict(), predicted.mean()[0], rtol=1e-12)
    quantiles = found.predict_quantiles(alpha=[0.1, 0.7])
    assert quantiles.columns.tolist() == [("load", 0.1), ("load", 0.7)]
    assert quantiles.index.equals(found.predict().index)
    np.testing.assert_allclose(quantiles[("load", 0.7)], predicted.ppf(0.7)[0], rtol=1e-12)
    bounds = found.predict_interval(coverage=0.8)
    np.testing.assert_allclose(bounds[("load", 0.8, "lower")], predicted.ppf(0.1)[0], rtol=1e-9)
    np.testing.assert_allclose(found.predict_var()["load"], predicted.std()[0] ** 2, rtol=1e-12)


def test_levels_of_quantiles():
    found, model = fit(objective="quantile", quantile_alpha=[0.1, 0.5, 0.9])
    expected = model.predict(VALUES[None, -LAGS:]).reshape(STEPS, 3)
    np.testing.assert_array_equal(found.predict(), expected[:, 1])
    np.testing.assert_array_equal(found.predict_interval(coverage=0.8), expected[:, [0, 2]])
    with pytest.raises(ValueError, match=r"no quantile of level 0.2: use"):
        found.predict_quantiles(alpha=0.2)
    with pytest.raises(ValueError, match="predict_var needs a model of a distribution"):
        found.predict_var()


def test_models_without_quantiles_name_objectives():
    found, _ = fit()
    with pytest.raises(ValueError, match=r"level 0.1: use objective=\"normal\""):
        found.predict_interval(coverage=0.8)
    with pytest.raises(TypeError, match="must be a PolyleafRegressor"):
        MultioutputTabularRegressionForecaster(Ridge())


def test_panels_have_a_model_each():
    y = pd.concat({name: pd.DataFrame({"load": VALUES + shift}, HOURS) for name, shift in SHIFTS})
    found, model = fit(y, objective="normal")
    bounds = found.predict_interval(coverage=0.8)
    expected = model.predict_dist(VALUES[None, -LAGS:]).ppf(0.9)[0]
    upper = bounds[("load", 0.8, "upper")]
    np.testing.assert_allclose(upper["north"], expected, rtol=1e-9)
    np.testing.assert_allclose(upper["south"], expected + 5, rtol=1e-3)


def test_checks_of_sktime():
    from sktime.utils.estimator_checks import check_estimator

    results = check_estimator(
        MultioutputTabularRegressionForecaster,
        tests_to_run=["test_predict_quantiles", "test_predict_interval", "test_fit_predict"],
        raise_exceptions=True,
        verbose=False,
    )
    assert results


@pytest.mark.filterwarnings("error:A column-vector y was passed")
def test_one_step():
    found = MultioutputTabularRegressionForecaster(
        PolyleafRegressor(objective="normal", n_estimators=10, n_jobs=1), LAGS
    )
    bounds = found.fit(pd.Series(VALUES, HOURS), fh=[1]).predict_interval(coverage=0.8)
    assert (bounds.iloc[:, 0] < found.predict()).all() and bounds.shape == (1, 2)


def test_missing_values_at_the_end_are_features():
    y = pd.Series(VALUES, HOURS, name="load")
    y.iloc[-1] = np.nan
    found, _ = fit(y, objective="normal")
    assert np.isfinite(found.predict_interval(coverage=0.8)).all(axis=None)
