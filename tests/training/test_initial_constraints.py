"""Initial models with constraints, with rows in another order, and with tables read in chunks."""

import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import Ridge

from polyleaf import PolyleafRegressor, refit
from polyleaf.user_data.features import read_features

RNG = np.random.default_rng(0)
X = RNG.normal(size=(200, 2))
Y = X[:, 0] * X[:, 1] - X[:, 0]


@pytest.mark.parametrize(
    "init, constraints, message",
    [
        (Ridge(), {"monotone_constraints": [1, 0]}, "init does not satisfy monotone_constraints"),
        (
            RandomForestRegressor(5, random_state=0),
            {"monotone_constraints": [-1, 0]},
            "init does not satisfy monotone_constraints",
        ),
        (
            RandomForestRegressor(5, random_state=0),
            {"interaction_constraints": "no_interactions"},
            "init may combine features",
        ),
    ],
)
def test_constraints_that_init_breaks_warn(init, constraints, message):
    with pytest.warns(UserWarning, match=message):
        PolyleafRegressor(n_estimators=3, init=init, **constraints).fit(X, Y)


@pytest.mark.parametrize(
    "constraints", [{"monotone_constraints": [-1, 0]}, {"interaction_constraints": [[0], [1]]}]
)
def test_a_linear_init_may_satisfy_constraints(constraints):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = PolyleafRegressor(n_estimators=20, init=Ridge(), **constraints).fit(X, Y)
    grid = np.column_stack([np.linspace(-2, 2, 50), np.zeros(50)])
    if "monotone_constraints" in constraints:
        assert (np.diff(model.predict(grid)) <= 1e-9).all()


def test_training_rows_in_another_order_are_recognised():
    init = RandomForestRegressor(20, random_state=0)
    model = PolyleafRegressor(n_estimators=30, init=init).fit(X, Y)
    X_new = RNG.normal(size=(500, 2))
    truth = X_new[:, 0] * X_new[:, 1] - X_new[:, 0]
    same = refit(model, X, Y).score(X_new, truth)
    assert refit(model, X[::-1], Y[::-1]).score(X_new, truth) > same - 0.02


@pytest.mark.parametrize("make", [np.asarray, pd.DataFrame], ids=["array", "frame"])
def test_chunks_of_a_table_have_its_rows_for_init(make):
    source = make(pd.DataFrame(X))
    part = replace(read_features(source), source=source).rows(50, 80)
    np.testing.assert_array_equal(np.asarray(part.source), X[50:80])
