"""A y of one column counts as one-dimensional in all predictions."""

import numpy as np
import pandas as pd
import pytest

from polyleaf import PolyleafRegressor

X = np.random.default_rng(0).normal(size=(100, 3))
COLUMN = X[:, :1]


@pytest.mark.parametrize("y", [COLUMN, pd.DataFrame(COLUMN, columns=["t"]), COLUMN.tolist()])
@pytest.mark.parametrize("objective", ["squared_error", "normal", "quantile"])
def test_one_column_is_one_dimension(y, objective):
    model = PolyleafRegressor(objective, n_estimators=3).set_output(predict="pandas").fit(X, y)
    flat = PolyleafRegressor(objective, n_estimators=3).fit(X, COLUMN[:, 0])
    assert isinstance(model.predict(X), np.ndarray)
    np.testing.assert_array_equal(model.predict(X), flat.predict(X))
    for method in (model.calibrate(X, y).predict_interval, model.predict):
        assert method(X).shape[0] == 100
    assert model.predict_interval(X).shape == (100, 2)
    if objective == "normal":
        assert model.predict_dist(X).mean().shape == (100,)
