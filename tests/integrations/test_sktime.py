"""sktime's reduction to regression trains one model for all steps without an adapter."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("sktime")

import pandas as pd
from numpy.lib.stride_tricks import sliding_window_view
from sktime.forecasting.compose import make_reduction

from polyleaf import PolyleafRegressor

pytestmark = [pytest.mark.full, pytest.mark.filterwarnings("ignore::FutureWarning")]

N, LAGS, STEPS = 150, 12, 6


def test_one_model_of_all_windows():
    values = np.sin(np.arange(N) / 4) + 0.1 * np.random.default_rng(0).normal(size=N)
    y = pd.Series(values, pd.period_range("2024-01-01", periods=N, freq="h"), name="y")
    settings = {"max_leaves": 6, "n_jobs": 1, "validation_order": "time"}
    found = make_reduction(PolyleafRegressor(**settings), "multioutput", window_length=LAGS)
    found.fit(y, fh=np.arange(1, STEPS + 1))
    windows = sliding_window_view(y.to_numpy(), LAGS + STEPS)
    model = PolyleafRegressor(**settings).fit(windows[:, :LAGS], windows[:, LAGS:])
    expected = model.predict(y.to_numpy()[None, -LAGS:])[0]
    np.testing.assert_allclose(found.predict(), expected, rtol=1e-12)
    assert found.estimator_.n_outputs_ == STEPS and found.estimator_.n_iter_ == model.n_iter_
