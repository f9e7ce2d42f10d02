"""Pruning of Optuna trials."""

from __future__ import annotations

import numpy as np
import pytest

from polyleaf import PolyleafClassifier, PolyleafRanker, PolyleafRegressor
from polyleaf.integrations.optuna import PruningCallback, suggest_params

pytestmark = pytest.mark.full

X = np.random.default_rng(0).normal(size=(80, 3))
Y = X[:, :2] * 2


class Trial:
    def __init__(self, prune_at=None):
        self.reported, self.prune_at = {}, prune_at

    def report(self, value, step):
        self.reported[step] = value

    def should_prune(self):
        return len(self.reported) == self.prune_at


def fit(callback, **evaluated):
    return PolyleafRegressor(n_estimators=6, n_jobs=1, callbacks=[callback]).fit(
        X[:60], Y[:60], **evaluated
    )


def test_each_round_is_reported():
    trial, data = Trial(), {"eval_set": [(X[60:], Y[60:])]}
    log = fit(PruningCallback(trial), **data).evals_result_["validation_0"]
    assert list(trial.reported.values()) == log["relative_rmse"]
    named = Trial()
    fit(PruningCallback(named, metric="rmse", data="validation_0"), **data)
    assert list(named.reported.values()) == log["rmse"]


def test_trial_is_pruned():
    optuna = pytest.importorskip("optuna")
    trial = Trial(prune_at=3)
    with pytest.raises(optuna.TrialPruned, match="after round 3"):
        fit(PruningCallback(trial), eval_set=[(X[60:], Y[60:])])
    assert len(trial.reported) == 3


@pytest.mark.parametrize(
    ("chosen", "evaluated", "message"),
    [
        ({}, {}, "eval_set"),
        ({"metric": "mae"}, {"eval_set": [(X, Y)]}, "metric='mae'"),
        ({"data": "test"}, {"eval_set": [(X, Y)]}, "data='test'"),
    ],
)
def test_missing_evaluation_set_or_metric_raises(chosen, evaluated, message):
    with pytest.raises(ValueError, match=message):
        fit(PruningCallback(Trial(), **chosen), **evaluated)


class ExtremeTrial:
    """A trial that suggests the lowest or the highest value of each parameter."""

    def __init__(self, highest):
        self.highest = highest

    def suggest_float(self, name, low, high, log):
        return high if self.highest else low

    suggest_int = suggest_float

    def suggest_categorical(self, name, choices):
        return choices[-1 if self.highest else 0]


@pytest.mark.parametrize("task", ["regression", "binary", "multiclass", "multilabel", "ranking"])
@pytest.mark.parametrize("highest", [False, True])
def test_estimators_accept_suggested_parameters(task, highest):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 4))
    y = {
        "regression": X[:, :2],
        "binary": X[:, 0] > 0,
        "multiclass": rng.integers(3, size=120),
        "multilabel": (X[:, :2] > 0).astype(int),
        "ranking": rng.integers(3, size=(120, 2)),
    }[task]
    kinds = {"regression": PolyleafRegressor, "ranking": PolyleafRanker}
    parameters = suggest_params(ExtremeTrial(highest), task)
    model = kinds.get(task, PolyleafClassifier)(n_estimators=3, n_jobs=1, **parameters)
    queries = {"qid": np.arange(120) // 10} if task == "ranking" else {}
    assert model.fit(X, y, **queries).n_iter_ == 3
    assert ("objective" in parameters) == (task == "ranking")
    assert ("multi_strategy" in parameters) == (task != "binary")


def test_inapplicable_parameters_are_not_suggested():
    assert "leaf" not in suggest_params(ExtremeTrial(True), "regression", linear=False)
    assert "multi_strategy" not in suggest_params(ExtremeTrial(True), "regression", n_outputs=1)
    assert "multi_strategy" not in suggest_params(ExtremeTrial(True), "binary", n_outputs=2)


def test_unknown_task_raises():
    with pytest.raises(ValueError, match="task"):
        suggest_params(None, "foo")
