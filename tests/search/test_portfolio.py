"""The table of compositions, and steps away from the best."""

from __future__ import annotations

from itertools import islice

import pytest

from polyleaf import PolyleafClassifier, PolyleafRegressor
from polyleaf.search.portfolio import LADDERS, portfolio_of, suited, variations

USUAL = {
    "learning_rate": 0.1,
    "max_leaves": 31,
    "min_child_samples": 1,
    "reg_lambda": 1.0,
    "colsample_bynode": 0.5,
    "subsample": 1.0,
}


@pytest.mark.parametrize("task", ["regression", "binary", "multiclass", "multilabel"])
def test_a_portfolio_begins_with_the_defaults_and_is_the_estimator_s(task):
    table = portfolio_of(task)
    estimator = PolyleafRegressor if task == "regression" else PolyleafClassifier
    assert table[0] == {} and all(parameters not in table[:i] for i, parameters in enumerate(table))
    for parameters in table:
        estimator(**parameters)


def test_what_is_set_is_not_changed_and_duplicates_are_dropped():
    table = [{}, {"learning_rate": 0.05}, {"max_leaves": 8, "learning_rate": 0.05}]
    assert suited(table, {"learning_rate"}, "regression", 1, True) == [{}, {"max_leaves": 8}]


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
def test_what_means_nothing_for_the_data_is_not_tried(task, n_outputs, linear, kept):
    table = [{"leaf": "linear"}, {"hessian": "full"}, {"multi_strategy": "one_output_per_tree"}]
    assert [next(iter(found)) for found in suited(table, (), task, n_outputs, linear)] == kept


def test_variations_take_steps_on_ladders_and_keep_the_rest():
    parent = {"leaf": "linear", "max_leaves": 15}
    for child in islice(variations([parent], USUAL, {"subsample"}, 0), 200):
        assert child["leaf"] == "linear" and "subsample" not in child
        moved = {
            name
            for name in LADDERS
            if child.get(name, USUAL.get(name)) != parent.get(name, USUAL[name])
        }
        assert len(moved) <= 3
        assert child["max_leaves"] in (8, 15, 31)


def test_the_same_seed_gives_the_same_variations():
    first, second = (list(islice(variations([{}], USUAL, (), 7), 20)) for _ in range(2))
    assert first == second
    assert first != list(islice(variations([{}], USUAL, (), 8), 20))
