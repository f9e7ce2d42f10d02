"""Early stopping within a tree in layer-wise boosting."""

import numpy as np
import pytest
from sklearn.datasets import make_classification
from sklearn.metrics import log_loss

import polyleaf
from polyleaf.callbacks import EarlyStopping


@pytest.fixture
def problem():
    X, y = make_classification(600, 12, n_informative=5, n_classes=3, flip_y=0.3, random_state=1)
    return X[:300], y[:300], X[300:], y[300:]


def fit_model(problem, **parameters):
    X, y, X_val, y_val = problem
    parameters = {
        "n_estimators": 40,
        "max_depth": 5,
        "max_leaves": None,
        "learning_rate": 0.5,
    } | parameters
    model = polyleaf.PolyleafClassifier(
        boosting_step="layer",
        grow_policy="depthwise",
        min_child_samples=1,
        eval_metric="mlogloss",
        **parameters,
    )
    return model.fit(X, y, eval_set=[(X_val, y_val)])


def test_best_layer_is_kept(problem):
    """With this learning rate and depth the loss is lowest within a tree."""
    model = fit_model(problem, early_stopping_rounds=5)
    X_val, y_val = problem[2:]
    rounds = model.evals_result_["validation_0"]["mlogloss"]
    assert model.best_score_ < min(rounds)
    assert model.model_.n_rounds == model.best_iteration_ + 1 < len(rounds)
    loss = log_loss(y_val, model.predict_proba(X_val))
    assert loss == pytest.approx(model.best_score_, rel=1e-6)


def test_stopped_tree_is_a_truncated_full_tree(problem):
    whole, cut = fit_model(problem), fit_model(problem, early_stopping_rounds=5)
    last = cut.model_.n_rounds - 1
    mine, full = cut.model_.forest.tree(last), whole.model_.forest.tree(last)
    assert mine.n_nodes < full.n_nodes
    inner = mine.feature >= 0
    np.testing.assert_array_equal(mine.feature[inner], full.feature[: mine.n_nodes][inner])
    for t in range(last):
        np.testing.assert_array_equal(cut.model_.forest.values(t), whole.model_.forest.values(t))


def test_patience_is_counted_in_rounds(problem):
    model = fit_model(problem, early_stopping_rounds=3)
    rounds = model.evals_result_["validation_0"]["mlogloss"]
    assert len(rounds) == model.best_iteration_ + 1 + 3


def test_early_stopping_callback_can_be_reused(problem):
    stopper = EarlyStopping(4)
    first = fit_model(problem, callbacks=[stopper])
    second = fit_model(problem, callbacks=[stopper])
    assert first.model_.equals(second.model_)
