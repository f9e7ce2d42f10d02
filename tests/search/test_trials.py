"""The score of a candidate: one number of rounds for all folds."""

from __future__ import annotations

import math

import pytest

from polyleaf.search.trials import Candidate, better_first, is_near, winner_first


def test_rounds_are_those_of_the_best_mean():
    candidate = Candidate(0, {}, "portfolio", [[3.0, 1.0, 2.0], [4.0, 4.0, 1.0, 5.0]])
    # The first fold stays at 2 after its end: means 3.5, 2.5, 1.5, 3.5.
    assert candidate.rounds == 3
    assert candidate.losses == [2.0, 1.0]
    assert candidate.loss == 1.5


def test_a_candidate_that_was_not_tried_has_no_score():
    assert Candidate(0, {}, "portfolio").loss == math.inf
    assert better_first([Candidate(0, {}, "portfolio")]) == []


def test_more_folds_come_before_a_lower_loss():
    one, two = Candidate(0, {}, "portfolio", [[1.0]]), Candidate(1, {}, "portfolio", [[2.0], [2.0]])
    assert better_first([one, two]) == [two, one]


def tried(number, *losses, beginning=9.0):
    return Candidate(number, {}, "portfolio", [[beginning, loss] for loss in losses])


@pytest.mark.filterwarnings("error")
def test_a_loss_that_was_no_number_is_worse_than_any():
    first, lost = tried(0, 1.0, 1.0), tried(1, 0.5, math.inf, beginning=math.inf)
    assert winner_first([first, lost]) == [first, lost]
    assert not is_near(lost, first, 2.0) and is_near(first, tried(1, 0.9, 1.0), 2.0)


@pytest.mark.parametrize(
    ("first", "other", "wins"),
    [
        ([1.0, 1.0, 1.0], [0.98, 0.99, 0.985], True),  # little, but everywhere
        ([1.0, 1.0, 1.0], [0.7, 1.1, 1.0], False),  # more on average, by one fold
        ([1.0, 1.0, 1.0], [1.2, 1.3, 1.1], False),
        ([1.0], [0.91], True),  # of the 8 that the defaults have learned more than a hundredth
        ([1.0], [0.93], False),
        ([1.0, 3.0], [0.5], True),  # time was over: judged on the fold that both have
        ([1.0, 0.2], [1.1], False),
    ],
)
def test_the_defaults_win_unless_another_is_better_by_more_than_noise(first, other, wins):
    candidates = [tried(0, *first), tried(1, *other), tried(2, *(loss + 5 for loss in other))]
    assert [c.number for c in winner_first(candidates)] == ([1, 0, 2] if wins else [0, 1, 2])


def test_among_others_the_order_is_theirs():
    candidates = [tried(3, 1.0, 2.0), tried(4, 1.0, 1.9)]
    assert winner_first(candidates) == better_first(candidates) == candidates[::-1]
