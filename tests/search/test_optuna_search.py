"""The Optuna search space, and candidates proposed by TPE."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest

from polyleaf import PolyleafClassifier, PolyleafRegressor, PolyleafRegressorCV
from polyleaf.search import optuna_search
from polyleaf.search.candidates import get_portfolio
from polyleaf.search.optuna_search import suggest_params
from polyleaf.search.trials import Candidate
from polyleaf.settings.param_spec import get_param_specs
from polyleaf.settings.parameters import DEFAULTS, RegressorParameters

pytestmark = pytest.mark.full

ALL_DEFAULTS = {p.name: p.default for p in get_param_specs(RegressorParameters)} | DEFAULTS
X = np.random.default_rng(0).normal(size=(60, 3))


class ExtremeTrial:
    """A trial that suggests the lowest or the highest value of each parameter."""

    def __init__(self, highest):
        self.highest = highest

    def suggest_float(self, name, low, high, log):
        return high if self.highest else low

    suggest_int = suggest_float

    def suggest_categorical(self, name, choices):
        return choices[-1 if self.highest else 0]


@pytest.mark.parametrize("task", ["regression", "binary", "multiclass", "multilabel"])
@pytest.mark.parametrize("highest", [False, True])
def test_estimators_accept_suggested_parameters(task, highest):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 4))
    y = {
        "regression": X[:, :2],
        "binary": X[:, 0] > 0,
        "multiclass": rng.integers(3, size=120),
        "multilabel": (X[:, :2] > 0).astype(int),
    }[task]
    kind = PolyleafRegressor if task == "regression" else PolyleafClassifier
    parameters = suggest_params(ExtremeTrial(highest), task)
    assert kind(n_estimators=3, n_jobs=1, **parameters).fit(X, y).n_iter_ == 3
    assert ("multi_strategy" in parameters) == (task != "binary")


def test_inapplicable_parameters_are_not_suggested():
    assert "leaf" not in suggest_params(ExtremeTrial(True), "regression", linear=False)
    assert "multi_strategy" not in suggest_params(ExtremeTrial(True), "regression", n_outputs=1)
    assert "multi_strategy" not in suggest_params(ExtremeTrial(True), "binary", n_outputs=2)


def test_unknown_task_raises():
    with pytest.raises(ValueError, match="task"):
        suggest_params(None, "foo")


def propose(best, n=8, fixed=(), seed=0):
    return list(
        islice(
            optuna_search.propose_candidates(
                best, "regression", 2, True, ALL_DEFAULTS, fixed, seed
            ),
            n,
        )
    )


def test_proposals_are_near_the_best_candidates():
    pytest.importorskip("optuna")
    rates = np.geomspace(0.01, 0.3, 20).tolist()
    low, high = (
        [
            Candidate(i, {"learning_rate": rate}, "variation", [[1.0]])
            for i, rate in enumerate(order)
        ]
        for order in (rates, rates[::-1])
    )
    means = [np.mean([p["learning_rate"] for p in propose(best, 20)]) for best in (low, high)]
    assert means[0] < means[1] / 2
    assert propose(low) == propose(low) != propose(low, seed=1)


def test_fixed_parameters_are_not_proposed():
    pytest.importorskip("optuna")
    best = [
        Candidate(i, p, "portfolio", [[1.0]]) for i, p in enumerate(get_portfolio("multiclass"))
    ]
    fixed = {"max_leaves", "learning_rate", "leaf"}
    found = propose(best, fixed=fixed)
    assert all(not fixed & set(p) and "subsample" in p for p in found)
    every = set(propose(best)[0])
    assert propose(best, fixed=every) == []


@pytest.mark.parametrize("installed", [False, True])
def test_search_with_a_time_limit_uses_optuna_if_it_is_installed(installed, monkeypatch):
    if installed:
        pytest.importorskip("optuna")
    else:
        monkeypatch.setattr(optuna_search, "find_spec", lambda name: None)
    search = PolyleafRegressorCV(time_limit=10_000, n_candidates=14, n_estimators=3, n_jobs=1, cv=2)
    origins = search.fit(X, X[:, :2]).cv_results_["origin"]
    assert origins[-1] == ("tpe" if installed else "variation")
    assert (
        search.set_params(time_limit=None).fit(X, X[:, :2]).cv_results_["origin"][-1] == "variation"
    )


def test_optuna_is_imported_only_with_enough_time(monkeypatch):
    loaded = []
    monkeypatch.setattr(optuna_search, "find_spec", lambda name: True)
    monkeypatch.setattr(optuna_search, "import_module", loaded.append)
    assert not optuna_search.is_optuna_useful(None) and not optuna_search.is_optuna_useful(
        optuna_search.MIN_SECONDS - 1
    )
    assert loaded == []
    assert optuna_search.is_optuna_useful(optuna_search.MIN_SECONDS) and loaded == ["optuna"]
