"""Targets in units that parameters of a fixed unit do not suit: a warning names the remedy."""

import numpy as np
import pytest

from polyleaf import PolyleafMultiTask, PolyleafRegressor

RNG = np.random.default_rng(0)
X = RNG.normal(size=(1000, 3))
Y = X[:, 0] + np.sin(2 * X[:, 1]) + 0.3 * RNG.standard_t(3, size=1000)
AMOUNTS = np.exp(X[:, 0]) * RNG.gamma(2, size=1000)
SMALL = {"n_estimators": 100, "max_leaves": 8}


@pytest.mark.parametrize(
    "parameters, y",
    [
        ({"objective": "huber"}, Y),
        ({"objective": "huber"}, 1e-6 * Y),
        ({"objective": "huber", "normalize_targets": True}, 1e6 * Y),
        ({"objective": "huber", "huber_delta": 1e3}, 1e3 * Y),
        ({"objective": "poisson"}, AMOUNTS),
        ({"objective": "gamma"}, 1e-6 * AMOUNTS),
        ({"objective": "poisson"}, RNG.poisson(0.003, 1000)),
    ],
)
@pytest.mark.filterwarnings("error")
def test_no_warning_where_trees_learn(parameters, y):
    PolyleafRegressor(**SMALL | parameters).fit(X, y)


@pytest.mark.parametrize(
    "objective, y, words",
    [
        ("huber", 1e3 * Y, "Set huber_delta"),
        ("huber", np.column_stack([Y, 1e3 * Y]), "Set huber_delta"),
        ("poisson", 1e-6 * AMOUNTS, "Multiply y by a constant"),
        ("tweedie", 1e-9 * AMOUNTS, "Multiply y by a constant"),
    ],
)
def test_units_of_targets_that_trees_cannot_learn(objective, y, words):
    model = PolyleafRegressor(objective=objective, **SMALL)
    with pytest.warns(UserWarning, match=words):
        model.fit(X, y)
    one_column = y if y.ndim == 1 else y[:, 1]
    task = PolyleafMultiTask({"a": objective, "b": "squared_error"}, **SMALL)
    with pytest.warns(UserWarning, match=f"Task 'a': .*{words}"):
        task.fit(X, {"a": one_column, "b": Y})
