"""Functions as objectives: what compares held-out rows needs a metric of the user."""

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import mean_poisson_deviance

from polyleaf import PolyleafClassifier, PolyleafMultiTask, PolyleafRegressor
from polyleaf.callbacks import EarlyStopping
from polyleaf.objectives import Custom
from polyleaf.search.base import PolyleafRegressorCV


def poisson(y, scores):
    return np.exp(scores) - y, np.exp(scores)


def squared(y, scores):
    return scores - y, np.ones_like(scores)


def logistic(y, scores):
    p = 1 / (1 + np.exp(-scores))
    return p - y, p * (1 - p) + 1e-9


def deviance(y, scores):
    return mean_poisson_deviance(np.ravel(y), np.exp(np.ravel(scores)))


def make_counts(n=1_000, mean=1.0, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4))
    return X, rng.poisson(mean * np.exp(X[:, 0] + 0.5 * np.sin(2 * X[:, 1]) - 0.5)).astype(float)


@pytest.mark.parametrize("objective", [poisson, Custom(poisson)])
def test_automatic_rounds_with_a_function_need_a_metric(objective):
    X, y = make_counts()
    with pytest.warns(UserWarning, match="n_estimators=None trains 300 rounds: .* eval_metric"):
        model = PolyleafRegressor(objective, learning_rate=0.3, max_leaves=3).fit(X, y)
    assert model.n_iter_ == 300
    found = PolyleafRegressor(objective, eval_metric=deviance).fit(X, y)
    X_new, y_new = make_counts(seed=1)
    constant = mean_poisson_deviance(y_new, np.full(len(y_new), y.mean()))
    built_in = PolyleafRegressor("poisson").fit(X, y)
    d2 = [
        1 - mean_poisson_deviance(y_new, mean) / constant
        for mean in (np.exp(found.predict(X_new)), built_in.predict(X_new))
    ]
    assert 10 < found.n_iter_ < 300
    assert d2[0] > d2[1] - 0.03


@pytest.mark.parametrize(
    "make",
    [
        lambda: (PolyleafRegressor(poisson), None),
        lambda: (PolyleafClassifier(logistic), lambda y: y > 0),
        lambda: (PolyleafMultiTask({"a": squared}), lambda y: pd.DataFrame({"a": y})),
        lambda: (
            PolyleafMultiTask({"a": squared, "b": "poisson"}),
            lambda y: pd.DataFrame({"a": y, "b": y}),
        ),
    ],
    ids=["numbers", "classes", "task", "tasks"],
)
def test_early_stopping_by_a_function_needs_a_metric(make):
    X, y = make_counts(300)
    estimator, encode = make()
    target = y if encode is None else encode(y)
    estimator.set_params(n_estimators=5, validation_fraction=0.2)
    estimator.fit(X, target)
    with pytest.raises(ValueError, match="Early stopping needs eval_metric with a custom obj"):
        estimator.set_params(early_stopping_rounds=2).fit(X, target)
    estimator.set_params(early_stopping_rounds=None)
    with pytest.raises(ValueError, match="Early stopping needs eval_metric"):
        estimator.fit(X, target, callbacks=[EarlyStopping(2)])


def test_early_stopping_by_a_named_metric_is_the_choice_of_the_user():
    X, y = make_counts(300)
    model = PolyleafRegressor(poisson, n_estimators=5, validation_fraction=0.2)
    model.fit(X, y, callbacks=[EarlyStopping(2, metric_name="rmse")])
    model.set_params(eval_metric=deviance, early_stopping_rounds=2).fit(X, y)
    assert model.best_iteration_ is not None


def test_groups_and_searches_with_a_function_need_a_metric():
    X, y = make_counts(200)
    Y = np.column_stack([y, -y, y])
    model = PolyleafRegressor(squared, n_estimators=5, output_groups="auto")
    with pytest.raises(ValueError, match='output_groups="auto" needs eval_metric'):
        model.fit(X, Y)
    model.set_params(eval_metric=lambda y, p: float(np.mean((y - p) ** 2))).fit(X, Y)
    with pytest.raises(ValueError, match="The search needs eval_metric"):
        PolyleafRegressorCV(poisson, n_candidates=1).fit(X, y)
    PolyleafRegressorCV(poisson, n_candidates=1, metric=deviance, cv=2).fit(X, y)


def test_initial_scores_are_not_shrunk_by_an_unknown_loss():
    X, y = make_counts(1_200)
    model = PolyleafClassifier(logistic, init=LogisticRegression(), n_estimators=5)
    assert model.fit(X, y > 0).score(X, y > 0) > 0.7
