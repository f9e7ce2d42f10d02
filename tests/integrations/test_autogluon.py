"""Polyleaf behind AutoGluon's interface: AutoGluon's checks, and features of Polyleaf."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("autogluon.tabular")

import pandas as pd
from autogluon.tabular import TabularPredictor
from autogluon.tabular.testing import FitHelper

from polyleaf.integrations.autogluon import PolyleafModel, search_space

pytestmark = pytest.mark.full

ONE_BAG = {
    "num_bag_folds": 3,
    "fit_weighted_ensemble": False,
    "ag_args_ensemble": {"fold_fitting_strategy": "sequential_local"},
}


@pytest.fixture(autouse=True)
def change_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def table():
    rng = np.random.default_rng(0)
    number = rng.normal(size=300)
    number[::7] = np.nan
    kind = pd.Categorical(rng.choice(list("abc"), 300))
    target = np.nan_to_num(number) + 2.0 * (kind == "b") + 0.1 * rng.normal(size=300)
    return pd.DataFrame({"number": number, "kind": kind, "target": target})


def fit_predictor(table, problem, hyperparameters, **options):
    predictor = TabularPredictor("target", problem_type=problem, verbosity=0, **options)
    return predictor.fit(table, hyperparameters={PolyleafModel: hyperparameters}, **ONE_BAG)


def get_models(predictor):
    bag = predictor._trainer.load_model(predictor.model_names()[0])
    return [bag.load_child(child) for child in bag.models]


def test_autogluon_checks():
    FitHelper.verify_model(PolyleafModel, {"n_estimators": 20})


def test_categories_and_missing_values(table):
    predictor = fit_predictor(table, "regression", {"n_estimators": 60})
    error = predictor.evaluate(table)["root_mean_squared_error"]
    assert -0.5 < error < 0
    assert all(
        list(child.model.model_.mapper.is_categorical_) == [False, True]
        for child in get_models(predictor)
    )


def test_refit_uses_the_rounds_of_early_stopped_folds(table):
    predictor = fit_predictor(table, "regression", {})
    rounds = [child.params_trained["n_estimators"] for child in get_models(predictor)]
    assert all(1 <= n < 1200 for n in rounds)
    name = next(iter(predictor.refit_full().values()))
    again = predictor._trainer.load_model(name)
    model = again.load_child(again.models[0]).model
    assert min(rounds) <= model.n_estimators <= max(rounds) and model.early_stopping_rounds is None
    assert model.learning_rate == 0.05


def test_time_limit_stops_training(table):
    model = PolyleafModel(
        problem_type="regression",
        eval_metric="root_mean_squared_error",
        hyperparameters={"n_estimators": 10**6},
    )
    model.fit(X=table[["number", "kind"]], y=table["target"], time_limit=1.0)
    assert 1 <= model.params_trained["n_estimators"] < 10**6


def test_quantiles_share_one_model(table):
    predictor = fit_predictor(
        table, "quantile", {"n_estimators": 40}, quantile_levels=[0.1, 0.5, 0.9]
    )
    low, middle, high = predictor.predict(table).to_numpy().T
    assert ((low <= middle) & (middle <= high)).all() and 0.5 < (table["target"] < high).mean() < 1


def test_class_absent_from_a_fold_has_probability_zero(table):
    model = PolyleafModel(problem_type="multiclass", hyperparameters={"n_estimators": 3})
    y = pd.Series(np.repeat([0, 1, 3], 100))
    model.fit(X=table[["number", "kind"]], y=y, num_classes=4)
    found = model.predict_proba(table[["number", "kind"]])
    assert found.shape == (300, 4) and (found[:, 2] == 0).all()
    np.testing.assert_allclose(found.sum(axis=1), 1, rtol=1e-6)


def test_memory_is_estimated_before_training():
    X = pd.DataFrame(np.zeros((20_000, 10), np.float32))
    few = PolyleafModel.estimate_memory_usage_static(
        X=X, problem_type="regression", num_classes=None
    )
    many = PolyleafModel.estimate_memory_usage_static(
        X=X, problem_type="multiclass", num_classes=20
    )
    assert X.to_numpy().nbytes < few < many < 2**30


def test_search_space_equals_that_of_optuna_studies():
    space = search_space("multiclass")
    assert {"learning_rate", "max_leaves", "leaf", "multi_strategy"} <= set(space)
    assert space["max_leaves"].data[0] == 4 and space["max_leaves"].data[-1] == 256
    assert "multi_strategy" not in search_space("regression") and "leaf" not in search_space(
        linear=False
    )
