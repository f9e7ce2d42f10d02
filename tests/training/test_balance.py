"""Predictions of the training rows with a log link add up to their targets."""

import numpy as np
import pytest
import reference
from reference import GrowConfig

from polyleaf import PolyleafMultiTask, PolyleafRegressor
from polyleaf.objectives import Gamma, Poisson, Tweedie

LAYERS = {"boosting_step": "layer", "grow_policy": "depthwise", "max_depth": 4}
LOG_LINKS = ["poisson", "gamma", "tweedie"]
SETTINGS = {
    "plain": {},
    "sampled": {"subsample": 0.3},
    "goss": {"sampling_method": "goss", "top_rate": 0.2, "other_rate": 0.2},
    "linear": {"leaf": "linear"},
    "layers": LAYERS,
    "pruned layers": {**LAYERS, "pruning": "post", "min_split_gain": 0.5, "subsample": 0.5},
    "monotone": {"monotone_constraints": [1, -1, 0, 0]},
    "tree per output": {"multi_strategy": "one_output_per_tree"},
    "groups": {"output_groups": [[0, 2], [1]]},
    "full": {"hessian": "full", "leaf_hessian": "full"},
    "penalties": {"reg_alpha": 1.0, "max_delta_step": 0.3},
    "one leaf": {"min_split_gain": 1e9},
    "sparse": {"leaf": "sparse", "leaf_k": 2},
}


def make_rows(n=1500):
    """Return features, targets of about .1, .3 and 2 per row, weights and offsets."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 4))
    mean = np.exp(0.5 * X[:, :1] + 0.3 * np.sin(2 * X[:, 1:2])) * [0.1, 0.3, 2.0]
    return X, rng.poisson(mean).astype(float), rng.exponential(size=n), rng.normal(size=(n, 3)) / 2


def check_totals(y, prediction, weight=1.0):
    np.testing.assert_allclose((weight * prediction).sum(axis=0), (weight * y).sum(axis=0), 1e-5)


def test_totals_of_zeros_and_ones_after_every_round():
    y = np.r_[np.zeros(900), np.ones(100)]
    model = PolyleafRegressor(objective="poisson", n_estimators=30).fit(y[:, None], y)
    for prediction in model.staged_predict(y[:, None]):
        assert prediction.sum() == pytest.approx(100, rel=1e-5)


@pytest.mark.parametrize("objective", LOG_LINKS)
@pytest.mark.parametrize("name", [*SETTINGS, "unbounded"])
@pytest.mark.full
def test_totals_of_training_rows(name, objective):
    X, Y, weight, offset = make_rows()
    parameters = SETTINGS.get(name, {})
    Y = Y + 0.01 if objective == "gamma" else Y
    if name == "unbounded":
        classes = {"poisson": Poisson, "gamma": Gamma, "tweedie": Tweedie}
        objective = classes[objective](hessian="exact")
    model = PolyleafRegressor(objective=objective, n_estimators=8, **parameters)
    check_totals(Y, model.fit(X, Y).predict(X))
    check_totals(Y, model.fit(X, Y, weight).predict(X), weight[:, None])
    check_totals(Y, model.fit(X, Y, offset=offset).predict(X, offset=offset))
    matrix = weight[:, None] * [1, 0.5, 2] * (offset > -0.5)
    check_totals(Y, model.fit(X, Y, matrix).predict(X), matrix)
    missing = np.where(offset > 0.5, np.nan, Y)
    model.set_params(missing_targets="ignore").fit(X, missing)
    check_totals(np.nan_to_num(missing), model.predict(X), ~np.isnan(missing))


@pytest.mark.parametrize("name", ["plain", "sampled", "linear", "layers", "monotone"])
def test_refits_and_continued_trainings_add_up_too(name):
    X, Y, weight, _ = make_rows(600)
    model = PolyleafRegressor("poisson", n_estimators=6, random_state=0, **SETTINGS[name])
    model.fit(X, Y, weight)
    before, other = model.model_.to_bytes(), Y[::-1].copy()
    model.refit(X, Y, weight)
    assert model.model_.to_bytes() == before
    continued = PolyleafRegressor(objective="poisson", n_estimators=2, **SETTINGS[name])
    continued.fit(X, other, weight, init_model=model)
    check_totals(other, continued.predict(X), weight[:, None])
    model.refit(X, other, weight)
    check_totals(other, model.predict(X), weight[:, None])


def test_tasks_are_balanced_on_their_own():
    X, Y, _, _ = make_rows()
    model = PolyleafMultiTask({"a": "poisson", "b": "squared_error"}, n_estimators=5)
    model.fit(X, {"a": Y[:, :2], "b": Y[:, 2:]})
    check_totals(Y[:, :2], model.predict(X)["a"])


def test_constants_equal_the_reference():
    X, Y, *_ = make_rows()
    parameters = {"max_leaves": 8, "min_child_samples": 5, "reg_lambda": 1.0}
    options = {"hessian": "diagonal", "leaf_hessian": "diagonal", "colsample_bynode": 1.0}
    options |= {"n_estimators": 4, "learning_rate": 0.3, "n_jobs": 1}
    estimator = PolyleafRegressor("poisson", **parameters, **options).fit(X, Y)
    mapper = estimator.model_.mapper
    data = (
        mapper.transform(estimator._features(X), 1),
        np.asarray(mapper.n_bins_, np.uint16),
        np.asarray(mapper.is_categorical_),
    )
    config = GrowConfig(min_child_weight=1e-3, **parameters)
    growth = data, Y, reference.poisson, "diagonal", config, 4
    options = {"base": estimator.model_.base_score, "balance": reference.balance_totals}
    scores, _ = reference.boost(*growth, learning_rate=0.3, **options)
    np.testing.assert_allclose(estimator.predict_raw(X), scores[-1], atol=1e-5)
