"""Rows that a fit holds out itself weigh as in training."""

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import f1_score, log_loss

from polyleaf import PolyleafClassifier, PolyleafMultiTask, PolyleafRegressor
from polyleaf.objectives import Logistic
from polyleaf.search.base import PolyleafClassifierCV


def make_rare(n=800, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 5))
    y = rng.random(n) < 1 / (1 + np.exp(3 - 1.5 * X[:, 0] - X[:, 1] * X[:, 2]))
    return X, y.astype(int)


HELD = slice(600, 800)  # of make_rare
HOLD_OUT = dict(validation_fraction=0.25, validation_order="time", n_estimators=5)
POSITIVES = [
    (PolyleafClassifier, dict(scale_pos_weight=8.0)),
    (PolyleafClassifier, dict(class_weight={0: 1, 1: 8})),
    (PolyleafClassifier, dict(objective=Logistic(8.0))),
    (PolyleafRegressor, dict(objective=Logistic(8.0))),
    (PolyleafMultiTask, dict(objective={"a": Logistic(8.0)})),
]


@pytest.mark.parametrize("cls, parameters", POSITIVES)
@pytest.mark.parametrize("has_weights", [False, True])
def test_the_loss_of_held_out_rows_has_the_weights_of_training(cls, parameters, has_weights):
    X, y = make_rare()
    own = np.random.default_rng(1).uniform(0.5, 2, len(y)) if has_weights else np.ones(len(y))
    target = pd.DataFrame({"a": y}) if cls is PolyleafMultiTask else y
    weight = own if has_weights else None
    model = cls(**parameters, **HOLD_OUT).fit(X, target, sample_weight=weight)
    if cls is PolyleafMultiTask:
        p = np.reshape(model.predict_proba(X)["a"], (len(y), -1))[:, -1]
    else:
        p = model.predict(X) if cls is PolyleafRegressor else model.predict_proba(X)[:, 1]
    logged = next(iter(model.evals_result_["validation"].values()))[-1]
    weights = own * np.where(y == 1, 8.0, 1.0)
    expected = log_loss(y[HELD], p[HELD], sample_weight=weights[HELD])
    assert logged == pytest.approx(expected, rel=1e-4)


def test_the_loss_of_held_out_labels_has_the_weights_of_training():
    X, y = make_rare()
    Y = np.column_stack([y, X[:, 3] > 1]).astype(int)
    for option in (
        dict(scale_pos_weight=[6.0, 3.0]),
        dict(class_weight=[{0: 1, 1: 6}, {0: 1, 1: 3}]),
    ):
        model = PolyleafClassifier(**option, **HOLD_OUT).fit(X, Y)
        p = model.predict_proba(X)[HELD]
        weights = np.where(Y == 1, [6.0, 3.0], 1.0)[HELD]
        expected = log_loss(Y[HELD].ravel(), p.ravel(), sample_weight=weights.ravel())
        logged = model.evals_result_["validation"]["logloss"][-1]
        assert logged == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("as_shares", [False, True])
def test_the_loss_of_held_out_classes_has_the_weights_of_training(as_shares):
    X, y = make_rare()
    y = y + 2 * (X[:, 3] > 1)
    factors = {0: 1.0, 1: 5.0, 2: 2.0, 3: 7.0}
    target, objective = (np.eye(4)[y], "softmax") if as_shares else (y, "auto")
    model = PolyleafClassifier(objective, class_weight=factors, **HOLD_OUT).fit(X, target)
    weights = np.vectorize(factors.get)(y)[HELD]
    expected = log_loss(y[HELD], model.predict_proba(X)[HELD], sample_weight=weights)
    logged = next(iter(model.evals_result_["validation"].values()))[-1]
    assert logged == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("cls, parameters", POSITIVES)
def test_weighted_positives_do_not_lengthen_automatic_rounds(cls, parameters):
    X, y = make_rare(2_000)
    target = pd.DataFrame({"a": y}) if cls is PolyleafMultiTask else y
    weighted = PolyleafClassifier().fit(X, y, sample_weight=np.where(y == 1, 8.0, 1.0))
    model = cls(**parameters).fit(X, target)
    assert model.n_iter_ <= 2 * weighted.n_iter_  # 4 times as many before


@pytest.mark.parametrize("option", [dict(scale_pos_weight=8.0), dict(class_weight={1: 8.0})])
def test_thresholds_by_f1_count_held_out_rows_once(option):
    X, y = make_rare()
    model = PolyleafClassifier(threshold="f1", **option, **HOLD_OUT).fit(X, y)
    p = model.predict_proba(X)[HELD, 1]
    best = max(f1_score(y[HELD], p >= threshold) for threshold in p)
    assert f1_score(y[HELD], model.predict(X)[HELD]) == pytest.approx(best)


def test_the_search_weighs_folds_as_training():
    X, y = make_rare(400)
    search = dict(n_candidates=2, cv=2, max_leaves=4)
    weighted = PolyleafClassifierCV(**search).fit(X, y, sample_weight=np.where(y == 1, 8.0, 1.0))
    for option in (dict(scale_pos_weight=8.0), dict(class_weight={1: 8.0})):
        model = PolyleafClassifierCV(**search, **option).fit(X, y)
        np.testing.assert_allclose(
            model.cv_results_["mean_test_score"], weighted.cv_results_["mean_test_score"], 0.02
        )


def test_evaluation_sets_of_the_user_count_as_passed():
    X, y = make_rare()
    logs = [
        PolyleafClassifier(n_estimators=1, learning_rate=1e-9, **option)
        .fit(X, y, eval_set=[(X, y)])
        .evals_result_
        for option in ({}, dict(scale_pos_weight=1.0 + 1e-12))
    ]
    np.testing.assert_allclose(*(log["validation_0"]["logloss"] for log in logs), 1e-6)
