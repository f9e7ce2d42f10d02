"""The portfolio of candidates, and variations of the best."""

from __future__ import annotations

from itertools import islice

import pytest

from polyleaf import PolyleafClassifier, PolyleafRegressor
from polyleaf.search import candidates
from polyleaf.search.candidates import LADDERS, LearningRates, generate_variations, get_portfolio

DEFAULTS = {
    "learning_rate": 0.1,
    "max_leaves": 31,
    "min_child_samples": 1,
    "reg_lambda": 1.0,
    "colsample_bynode": 0.5,
    "subsample": 1.0,
}


@pytest.mark.parametrize("task", ["regression", "binary", "multiclass", "multilabel"])
def test_portfolio_starts_with_the_defaults_and_is_valid(task):
    portfolio = get_portfolio(task, 3, True, ())
    estimator = PolyleafRegressor if task == "regression" else PolyleafClassifier
    assert portfolio[0] == {} and all(
        parameters not in portfolio[:i] for i, parameters in enumerate(portfolio)
    )
    for parameters in portfolio:
        estimator(**parameters)


def test_fixed_parameters_and_duplicates_are_dropped(monkeypatch):
    portfolio = ({}, {"learning_rate": 0.05}, {"max_leaves": 8, "learning_rate": 0.05})
    monkeypatch.setitem(candidates.PORTFOLIO, "regression", portfolio)
    assert get_portfolio("regression", 1, True, {"learning_rate"}) == [{}, {"max_leaves": 8}]


@pytest.mark.parametrize(
    ("task", "n_outputs", "linear", "kept"),
    [
        ("regression", 1, True, ["leaf"]),
        ("regression", 3, False, ["multi_strategy", "output_groups"]),
        ("binary", 2, True, ["leaf"]),
        ("multiclass", 26, True, ["leaf", "hessian", "multi_strategy", "output_groups"]),
        ("multiclass", 27, True, ["leaf", "multi_strategy", "output_groups"]),
        ("multilabel", 5, True, ["leaf", "multi_strategy", "output_groups"]),
    ],
)
def test_inapplicable_candidates_are_dropped(task, n_outputs, linear, kept, monkeypatch):
    portfolio = (
        {"leaf": "linear"},
        {"hessian": "full"},
        {"multi_strategy": "one_output_per_tree"},
        {"output_groups": "auto"},
    )
    monkeypatch.setattr(candidates, "PORTFOLIO", dict.fromkeys(candidates.PORTFOLIO, portfolio))
    found = get_portfolio(task, n_outputs, linear, ())
    assert [next(iter(parameters)) for parameters in found] == kept


def test_learning_rates_are_raised_with_fewer_rounds():
    rates = LearningRates(0.1)
    slow = {"learning_rate": 0.05, "n_estimators": 3000}
    assert rates.raise_to(slow, 0.2) == {"learning_rate": 0.2, "n_estimators": 750}
    assert rates.raise_to(slow, 0.1) == {"n_estimators": 1500}  # the rate of the defaults
    assert rates.raise_to({}, 0.05) == {} and rates.raise_to({}, 0.3) == {"learning_rate": 0.3}
    assert LearningRates(0.1, is_free=False).raise_to({"max_leaves": 8}, 0.3) == {"max_leaves": 8}


def test_variations_move_up_to_three_parameters_by_one_step():
    parent = {"leaf": "linear", "max_leaves": 15}
    for child in islice(generate_variations([parent], DEFAULTS, {"subsample"}, 0), 200):
        assert child["leaf"] == "linear" and "subsample" not in child
        moved = {
            name
            for name in LADDERS
            if child.get(name, DEFAULTS.get(name)) != parent.get(name, DEFAULTS[name])
        }
        assert len(moved) <= 3
        assert child["max_leaves"] in (8, 15, 31)


def test_variations_depend_on_the_seed_only():
    first, second = (list(islice(generate_variations([{}], DEFAULTS, (), 7), 20)) for _ in range(2))
    assert first == second
    assert first != list(islice(generate_variations([{}], DEFAULTS, (), 8), 20))
