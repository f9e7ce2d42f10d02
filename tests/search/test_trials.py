"""Scores and ranking of candidates."""

from __future__ import annotations

import math

import pytest

from polyleaf.search.trials import Candidate, rank_candidates, rank_with_defaults


def test_rounds_minimise_the_mean_loss():
    candidate = Candidate(0, {}, "portfolio", {}, [[3.0, 1.0, 2.0], [4.0, 4.0, 1.0, 5.0]])
    # The first curve is extended by its last loss: means 3.5, 2.5, 1.5, 3.5.
    assert candidate.rounds == 3
    assert candidate.losses == [2.0, 1.0]
    assert candidate.loss == 1.5


def test_candidate_without_trials_has_no_score():
    assert Candidate(0, {}, "portfolio", {}).loss == math.inf
    assert rank_candidates([Candidate(0, {}, "portfolio", {})]) == []


def test_candidates_with_more_folds_rank_first():
    one, two = (
        Candidate(0, {}, "portfolio", {}, [[1.0]]),
        Candidate(1, {}, "portfolio", {}, [[2.0], [2.0]]),
    )
    assert rank_candidates([one, two]) == [two, one]


def make_candidate(number, *losses, start=9.0):
    return Candidate(number, {}, "portfolio", {}, [[start, loss] for loss in losses])


@pytest.mark.filterwarnings("error")
def test_nan_loss_is_worse_than_any():
    first, lost = make_candidate(0, 1.0, 1.0), make_candidate(1, 0.5, math.inf, start=math.inf)
    assert rank_with_defaults([first, lost]) == [first, lost]


@pytest.mark.parametrize(
    ("first", "other", "wins"),
    [
        ([1.0, 1.0, 1.0], [0.98, 0.99, 0.985], True),  # a small gain on each fold
        ([1.0, 1.0, 1.0], [0.7, 1.1, 1.0], False),  # a larger mean gain, due to one fold
        ([1.0, 1.0, 1.0], [1.2, 1.3, 1.1], False),
        ([1.0], [0.91], True),  # more than 1 % of the improvement by the defaults
        ([1.0], [0.93], False),
        ([1.0, 3.0], [0.5], True),  # timed out: compared on the common fold
        ([1.0, 0.2], [1.1], False),
    ],
)
def test_defaults_win_unless_another_is_better_by_more_than_noise(first, other, wins):
    candidates = [
        make_candidate(0, *first),
        make_candidate(1, *other),
        make_candidate(2, *(loss + 5 for loss in other)),
    ]
    assert [c.number for c in rank_with_defaults(candidates)] == ([1, 0, 2] if wins else [0, 1, 2])


def test_both_rankings_are_equal_without_the_defaults():
    candidates = [make_candidate(3, 1.0, 2.0), make_candidate(4, 1.0, 1.9)]
    assert rank_with_defaults(candidates) == rank_candidates(candidates) == candidates[::-1]
