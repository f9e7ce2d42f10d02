"""A model that was saved and loaded is the living one: in `refit`, continued training and `clone`,
over every parameter of the constructor; and what `init` takes does not depend on the container."""

import inspect

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.linear_model import LinearRegression
from sklearn.tree import DecisionTreeRegressor

from polyleaf import PolyleafClassifier, PolyleafRegressor, load_model, refit

LAYERS = {"boosting_step": "layer", "grow_policy": "depthwise", "max_depth": 3}
GOSS = {"sampling_method": "goss"}
EXACT = {"leaf": "sparse", "leaf_k": 1, "split_search": "exact"}
STOPPED = {"early_stopping_rounds": 2, "validation_fraction": 0.3}
VALUES = [
    {"learning_rate": 0.3},
    {"max_leaves": 5},
    {"max_depth": 2},
    {"grow_policy": "depthwise"},
    {"min_child_samples": 30},
    {"min_child_weight": 20.0},
    {"min_split_gain": 0.01},
    {"reg_lambda": 5.0},
    {"reg_alpha": 0.5},
    {"max_delta_step": 0.05},
    {"subsample": 0.5},
    {"colsample_bytree": 0.5},
    {"colsample_bynode": 0.5},
    {**GOSS, "top_rate": 0.3, "other_rate": 0.2},
    {"max_bins": 16},
    {"leaf": "linear", "linear_lambda": 2.0},
    {"leaf": "sparse", "leaf_k": 1},
    LAYERS,
    {**LAYERS, "pruning": "post", "min_split_gain": 0.01},
    {"multi_strategy": "one_output_per_tree"},
    {"output_groups": [[0], [1]]},
    {"output_groups": 2},
    {"sketch": "top_outputs", "sketch_dim": 1},
    {"projection": "gaussian", "projection_dim": 2},
    {"hessian": "full", "leaf_hessian": "full"},
    {"monotone_constraints": {0: 1}},
    {"monotone_constraints": {1: {0: -1}}},
    {"interaction_constraints": [[0, 1], [2]]},
    {"feature_penalties": [0.9, 0.5, 0.2]},
    {"categorical_features": [2]},
    {"objective": "huber", "huber_delta": 2.0},
    {"leaf": "linear", "linear_fit": "full"},
    {"leaf": "sparse", "leaf_k": 1, "leaf_output_set": "shared"},
    {"categorical_features": [2], "cat_smooth": 50.0},
    {"categorical_features": [2], "max_cat_to_onehot": 10},
    {"hessian": "block", "block_size": 1},
    {**LAYERS, "rows_per_layer": [0.5, 1.0]},
    {"objective": "quantile", "quantile_alpha": [0.2, 0.8], "calibrate_quantiles": False},
    {"base_score": 0.5},
    {"normalize_targets": True},
    {"missing_targets": "ignore"},
    {"target_weight": [2.0, 1.0]},
    {"leaf": "linear", "linear_features": 1},
    {"leaf": "linear", "linear_extrapolation": "none"},
    {**EXACT, "threshold_step": 0.3},
    {"projection": "gaussian", "projection_dim": 2, "tfidf": True},
    {"objective": "student_t", "student_t_df": 3.0},
    {"objective": "tweedie", "tweedie_variance_power": 1.2},
    {**STOPPED, "validation_order": "time"},
    {**STOPPED, "eval_metric": "mae"},
    {"n_estimators": None, "quality": "fast"},
    {"n_estimators": None, "quality": "high"},
]
CLASS_VALUES = [
    {"class_weight": {0: 5, 1: 1}},
    {"class_weight": "balanced"},
    {"softmax_hessian": "upper", "objective": "softmax"},
    {"scale_pos_weight": 4.0},
    {"threshold": 0.3},
]
# Parameters that change how a model is computed or reported, but not the model.
WITHOUT_EFFECT = {
    *("callbacks", "device", "histogram_memory", "n_jobs", "on_interrupt", "random_state"),
    *("verbose", "warm_start"),
}


def make_data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3))
    X[:, 2] = rng.integers(0, 4, 200)
    Y = np.column_stack([X[:, 0] + X[:, 2], X[:, 1] ** 2]) + 0.1 * rng.normal(size=(200, 2))
    return X, Y - Y.min()  # not negative, for Tweedie losses


def check_same(cls, parameters, X, y):
    if not set(parameters) <= set(inspect.signature(cls).parameters):
        pytest.fail(f"{cls.__name__} has no parameter of {parameters}.")
    model = cls(**{"n_estimators": 4, "random_state": 0, "n_jobs": 1} | parameters).fit(X, y)
    loaded = load_model(model.save_model())
    assert loaded.save_model() == model.save_model()
    others = X[::-1].copy(), y[::-1].copy()
    more = model.model_.n_rounds + 3
    assert refit(loaded, *others).save_model() == refit(model, *others).save_model()
    again = clone(model).fit(*others).save_model()
    assert clone(loaded).fit(*others).save_model() == again
    continued = [
        known.set_params(warm_start=True, n_estimators=more).fit(X, y).predict(X)
        for known in (model, loaded)
    ]
    np.testing.assert_array_equal(*continued)


def test_every_parameter_is_varied():
    everything = {
        name
        for cls in (PolyleafRegressor, PolyleafClassifier)
        for name in inspect.signature(cls).parameters
    }
    varied = set().union(*VALUES, *CLASS_VALUES)
    assert everything == varied | WITHOUT_EFFECT | {"init"}
    assert not varied & WITHOUT_EFFECT


def test_a_loaded_model_names_what_its_file_does_not_hold():
    X, Y = make_data()
    model = PolyleafRegressor(init=LinearRegression(), n_estimators=2, n_jobs=1).fit(X, Y)
    with pytest.warns(UserWarning, match="does not hold the values of init"):
        loaded = load_model(model.save_model())
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))


@pytest.mark.full
@pytest.mark.parametrize("parameters", VALUES, ids=str)
def test_loaded_regressors(parameters):
    check_same(PolyleafRegressor, parameters, *make_data())


@pytest.mark.full
@pytest.mark.parametrize("parameters", CLASS_VALUES, ids=str)
def test_loaded_classifiers(parameters):
    X, Y = make_data()
    check_same(PolyleafClassifier, parameters, X, (Y[:, 0] > 1).astype(int))


@pytest.mark.full
@pytest.mark.parametrize("has_copies", [False, True])
@pytest.mark.parametrize("init", [LinearRegression(), DecisionTreeRegressor(random_state=0)])
def test_init_does_not_depend_on_the_container(init, has_copies):
    polars = pytest.importorskip("polars")
    X, Y = make_data()
    if has_copies:
        X, Y = np.repeat(X, 2, axis=0), np.repeat(Y, 2, axis=0)
    names = ["a", "b", "c"]
    model = PolyleafRegressor(init=init, n_estimators=5, random_state=0, n_jobs=1)
    expected = clone(model).fit(X, Y).predict(X)
    for table in (pd.DataFrame(X, columns=names), polars.DataFrame(X, schema=names), X.tolist()):
        found = clone(model).fit(table, Y).predict(table)
        np.testing.assert_allclose(found, expected, rtol=1e-9)  # sums of BLAS differ by order
