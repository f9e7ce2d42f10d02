"""Pruning of Optuna trials."""

from __future__ import annotations

import numpy as np
import pytest

from polyleaf import PolyleafRegressor
from polyleaf.integrations.optuna import PruningCallback

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
