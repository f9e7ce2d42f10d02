"""The portfolio of candidates, and variations of the best."""

from __future__ import annotations

from itertools import islice

import pytest

from polyleaf import PolyleafClassifier, PolyleafRegressor
from polyleaf.search.candidates import (
    LADDERS,
    filter_applicable,
    generate_variations,
    get_portfolio,
)

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
    portfolio = get_portfolio(task)
    estimator = PolyleafRegressor if task == "regression" else PolyleafClassifier
    assert portfolio[0] == {} and all(
        parameters not in portfolio[:i] for i, parameters in enumerate(portfolio)
    )
    for parameters in portfolio:
        estimator(**parameters)


def test_fixed_parameters_and_duplicates_are_dropped():
    portfolio = [{}, {"learning_rate": 0.05}, {"max_leaves": 8, "learning_rate": 0.05}]
    assert filter_applicable(portfolio, {"learning_rate"}, "regression", 1, True) == [
        {},
        {"max_leaves": 8},
    ]


@pytest.mark.parametrize(
    ("task", "n_outputs", "linear", "kept"),
    [
        ("regression", 1, True, ["leaf"]),
        ("regression", 3, False, ["multi_strategy"]),
        ("binary", 2, True, ["leaf"]),
        ("multiclass", 26, True, ["leaf", "hessian", "multi_strategy"]),
        ("multiclass", 27, True, ["leaf", "multi_strategy"]),
        ("multilabel", 5, True, ["leaf", "multi_strategy"]),
    ],
)
def test_inapplicable_candidates_are_dropped(task, n_outputs, linear, kept):
    portfolio = [{"leaf": "linear"}, {"hessian": "full"}, {"multi_strategy": "one_output_per_tree"}]
    assert [
        next(iter(found)) for found in filter_applicable(portfolio, (), task, n_outputs, linear)
    ] == kept


@pytest.mark.parametrize("task", ["regression", "multilabel"])
def test_groups_of_several_outputs_are_tried(task):
    auto = {"learning_rate": 0.05, "output_groups": "auto"}
    assert auto in filter_applicable(get_portfolio(task), (), task, 3, True)
    assert auto not in filter_applicable(get_portfolio(task), (), task, 1, True)
    fixed = filter_applicable(get_portfolio(task), {"output_groups"}, task, 3, True)
    assert not any("output_groups" in candidate for candidate in fixed)


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
