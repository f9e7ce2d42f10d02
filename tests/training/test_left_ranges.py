"""Fits in order of time name the features that leave the range of the earlier rows."""

import warnings

import numpy as np
import pandas as pd
import pytest

from polyleaf import Dataset, PolyleafRegressor

N = 1000
RNG = np.random.default_rng(0)
YEARS = np.arange(N) // 100
X = pd.DataFrame({"hour": RNG.integers(0, 24, N), "trend": np.arange(N), "year": YEARS})
X["season"] = np.sin(np.arange(N) / 8)
X["level"] = RNG.normal(size=N) + 2.5 * (np.arange(N) >= 900)
Y = X["season"] + RNG.normal(size=N)
TIMED = {"validation_order": "time", "n_jobs": 1}


def fit_messages(X, time=None, **parameters):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        PolyleafRegressor(**parameters).fit(X, Y, time=time)
    return [str(w.message) for w in caught if "In order of time" in str(w.message)]


@pytest.mark.parametrize(
    "parameters", [{"n_estimators": 5, "validation_fraction": 0.2}, {"quality": "fast"}]
)
def test_features_are_named(parameters):
    """All values of a year that no earlier row has are in the last bin of the earlier ones."""
    (message,) = fit_messages(X, **TIMED, **parameters)
    assert "trend (100%), year (100%), level (5" in message
    assert "hour" not in message and "season" not in message
    assert message.endswith('or try a linear model beside the trees (init="auto").')
    (message,) = fit_messages(X, **TIMED, **parameters, init="linear")
    assert message.endswith("or replace them by differences to earlier values.")


def test_arrays_data_sets_and_times():
    shuffled = np.random.default_rng(1).permutation(N)
    fast = {"quality": "fast", "n_jobs": 1}
    for data, name in ((X.to_numpy(), "f1"), (Dataset(X), "trend")):
        (message,) = fit_messages(data, **TIMED, quality="fast")
        assert f"{name} (100%)" in message
    (message,) = fit_messages(X, time=np.arange(N), **fast)
    assert "trend" in message
    assert fit_messages(X, time=shuffled, **fast) == fit_messages(X, **fast) == []


def test_few_rows_and_no_shift_are_silent():
    assert fit_messages(X[["hour", "season"]], **TIMED, quality="fast") == []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        few = X[["trend"]].iloc[:200]
        PolyleafRegressor(n_estimators=5, validation_fraction=0.2, **TIMED).fit(few, Y[:200])
