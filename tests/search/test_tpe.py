"""Candidates that Optuna proposes."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest

from polyleaf import PolyleafRegressorCV
from polyleaf.search import tpe
from polyleaf.search.portfolio import portfolio_of
from polyleaf.search.trials import Candidate
from polyleaf.settings.param_spec import get_param_specs
from polyleaf.settings.parameters import DEFAULTS, RegressorParameters

USUAL = {p.name: p.default for p in get_param_specs(RegressorParameters)} | DEFAULTS
X = np.random.default_rng(0).normal(size=(60, 3))


def proposed(best, n=8, fixed=(), seed=0):
    return list(islice(tpe.proposals(best, "regression", 2, True, USUAL, fixed, seed), n))


def test_proposals_are_near_the_best():
    pytest.importorskip("optuna")
    rates = np.geomspace(0.01, 0.3, 20).tolist()
    low, high = (
        [
            Candidate(i, {"learning_rate": rate}, "variation", [[1.0]])
            for i, rate in enumerate(order)
        ]
        for order in (rates, rates[::-1])
    )
    means = [np.mean([p["learning_rate"] for p in proposed(best, 20)]) for best in (low, high)]
    assert means[0] < means[1] / 2
    assert proposed(low) == proposed(low) != proposed(low, seed=1)


def test_what_is_set_is_not_proposed():
    pytest.importorskip("optuna")
    best = [Candidate(i, p, "portfolio", [[1.0]]) for i, p in enumerate(portfolio_of("multiclass"))]
    fixed = {"max_leaves", "learning_rate", "leaf"}
    found = proposed(best, fixed=fixed)
    assert all(not fixed & set(p) and "subsample" in p for p in found)
    every = set(proposed(best)[0])
    assert proposed(best, fixed=every) == []


@pytest.mark.parametrize("installed", [False, True])
def test_a_search_by_the_clock_asks_it_where_it_is_installed(installed, monkeypatch):
    if installed:
        pytest.importorskip("optuna")
    else:
        monkeypatch.setattr(tpe, "find_spec", lambda name: None)
    search = PolyleafRegressorCV(time_limit=10_000, n_candidates=14, n_estimators=3, n_jobs=1, cv=2)
    origins = search.fit(X, X[:, :2]).cv_results_["origin"]
    assert origins[-1] == ("tpe" if installed else "variation")
    assert (
        search.set_params(time_limit=None).fit(X, X[:, :2]).cv_results_["origin"][-1] == "variation"
    )


def test_there_must_be_time_to_load_it(monkeypatch):
    loaded = []
    monkeypatch.setattr(tpe, "find_spec", lambda name: True)
    monkeypatch.setattr(tpe, "import_module", loaded.append)
    assert not tpe.is_worth_asking(None) and not tpe.is_worth_asking(tpe.LEAST_SECONDS - 1)
    assert loaded == []
    assert tpe.is_worth_asking(tpe.LEAST_SECONDS) and loaded == ["optuna"]
