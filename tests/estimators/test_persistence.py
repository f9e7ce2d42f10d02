"""Tests of parameters in model files."""

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.linear_model import Ridge

from polyleaf import PolyleafClassifier, PolyleafMultiTask, PolyleafRegressor, load_model, refit
from polyleaf.callbacks import EvaluationMonitor
from polyleaf.objectives import Quantile


def make_data(n=200, seed=0):
    X = np.random.default_rng(seed).normal(size=(n, 3))
    return X, X[:, 0] + X[:, 1] * X[:, 2]


def as_plain(value):
    if isinstance(value, dict):
        return {key: as_plain(entry) for key, entry in value.items()}
    if isinstance(value, set):
        return value
    if isinstance(value, list | tuple | np.ndarray):
        return [as_plain(entry) for entry in value]
    return value


PARAMETERS = [
    dict(monotone_constraints={0: 1, np.int64(1): -1}),
    dict(monotone_constraints={"x0": {0: 1}}),
    dict(monotone_constraints=np.array([1, 0, 0])),
    dict(feature_penalties={2: 0.5}),
    dict(interaction_constraints=[{0, 1}, {2}]),
    dict(interaction_constraints=({"x0"}, ["x1", "x2"])),
    dict(categorical_features=[True, False, False]),
    dict(objective="quantile", quantile_alpha=(0.1, 0.9)),
    dict(base_score=np.float32(0.5)),
    dict(leaf="linear", linear_lambda=np.inf),
]


@pytest.mark.parametrize("parameters", PARAMETERS, ids=lambda p: next(iter(p)))
def test_a_loaded_regressor_has_all_parameters(parameters):
    X, y = make_data()
    X[:, 0] = np.round(X[:, 0])
    X = pd.DataFrame(X, columns=["x0", "x1", "x2"])
    model = PolyleafRegressor(n_estimators=5, **parameters).fit(X, y)
    loaded = load_model(model.save_model())
    for name, value in model.get_params().items():
        assert as_plain(loaded.get_params()[name]) == as_plain(value), name
    for fit in (
        lambda estimator: clone(estimator).fit(X, y),
        lambda estimator: refit(estimator, X, y),
        lambda estimator: clone(estimator).fit(X, y, init_model=estimator),
    ):
        assert fit(loaded).save_model() == fit(model).save_model()


@pytest.mark.parametrize(
    "labels, parameters",
    [
        ([0, 1], dict(class_weight={0: 5, 1: 1})),
        ([False, True], dict(class_weight={True: 5})),
        (["__pairs__", "b"], dict(class_weight={"__pairs__": 3})),
        ([1.0, 2.0, 3.0], dict(class_weight={2.0: 5})),
    ],
    ids=str,
)
def test_a_loaded_classifier_keeps_class_weights(labels, parameters):
    X, y = make_data()
    y = np.array(labels)[np.digitize(y, [-0.5, 0.5][: len(labels) - 1])]
    model = PolyleafClassifier(n_estimators=5, **parameters).fit(X, y)
    loaded = load_model(model.save_model())
    assert loaded.class_weight == parameters["class_weight"]
    for fit in (lambda e: refit(e, X, y), lambda e: clone(e).fit(X, y)):
        np.testing.assert_array_equal(fit(loaded).predict_proba(X), fit(model).predict_proba(X))


def test_a_loaded_multi_label_model_keeps_thresholds_and_weights():
    X, y = make_data()
    Y = np.column_stack([y > 0, y > 1]).astype(int)
    weights = [{0: 1, 1: 5}, {0: 1, 1: 2}]
    model = PolyleafClassifier(n_estimators=5, class_weight=weights, threshold={0: 0.2}).fit(X, Y)
    loaded = load_model(model.save_model())
    assert (loaded.class_weight, loaded.threshold) == (weights, {0: 0.2})
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))


def test_a_loaded_multi_task_model_keeps_groups_of_columns_and_weights():
    X, y = make_data()
    Y = pd.DataFrame({"a": y, "b": 2 * y, "c": y > 0})
    objective = {("a", "b"): "squared_error", "c": "logistic"}
    model = PolyleafMultiTask(objective, task_weight={"c": 2.0}, n_estimators=5).fit(X, Y)
    loaded = load_model(model.save_model())
    assert loaded.objective == objective
    assert loaded.task_weight == {"c": 2.0}
    assert clone(loaded).fit(X, Y).save_model() == model.save_model()


@pytest.mark.parametrize(
    "parameters",
    [
        dict(random_state=np.random.RandomState(0)),
        dict(init=Ridge()),
        dict(callbacks=[EvaluationMonitor()]),
        dict(eval_metric=lambda y, p: 0.0),
    ],
    ids=lambda p: next(iter(p)),
)
def test_saving_names_the_parameters_that_a_file_does_not_hold(parameters):
    X, y = make_data()
    model = PolyleafRegressor(n_estimators=2, **parameters).fit(X, y)
    with pytest.warns(UserWarning, match=f"the values of {next(iter(parameters))},"):
        data = model.save_model()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load_model(data).save_model()


def test_objectives_are_no_loss():
    X, y = make_data()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        data = PolyleafRegressor(Quantile((0.2, 0.8)), n_estimators=2).fit(X, y).save_model()
    assert load_model(data).objective == Quantile((0.2, 0.8))
