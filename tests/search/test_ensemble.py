"""Greedy blends, on scores that are told beforehand."""

from __future__ import annotations

import numpy as np
import pytest

from polyleaf.search.ensemble import STEPS, weights_of

TRUTH = np.zeros((4, 1))
JUDGES = [lambda raw: float(np.mean((raw - TRUTH) ** 2))] * 2


def never():
    return False


def raws_of(*values):
    return [[np.full((4, 1), value)] * 2 for value in values]


def test_errors_of_opposite_signs_meet_in_the_middle():
    weights, loss = weights_of(raws_of(1.0, -1.0, 9.0), JUDGES, 3, never)
    assert weights.tolist() == [0.5, 0.5, 0.0] and loss == 0.0


def test_shares_are_as_often_as_a_candidate_was_added():
    weights, loss = weights_of(raws_of(1.0, -2.0), JUDGES, 3, never)
    assert weights == pytest.approx([2 / 3, 1 / 3]) and loss == pytest.approx(0.0)


def test_the_best_on_the_way_counts():
    # The second step is worse than the first alone, all later ones too.
    weights, loss = weights_of(raws_of(0.1, 2.0), JUDGES, 3, never)
    assert weights.tolist() == [1.0, 0.0] and loss == pytest.approx(0.01)


def test_there_are_no_more_members_than_asked_for():
    rng = np.random.default_rng(0)
    raws = [[rng.normal(size=(4, 1))] * 2 for _ in range(8)]
    counts = [np.count_nonzero(weights_of(raws, JUDGES, most, never)[0]) for most in (2, 3, 8)]
    assert counts[0] <= 2 and counts[1] <= 3 < counts[2]


def test_where_time_is_spent_the_blend_so_far_is_taken():
    left = iter([False, True] + [True] * STEPS)
    weights, _ = weights_of(raws_of(3.0, -1.0, -1.5), JUDGES, 3, lambda: next(left))
    assert np.count_nonzero(weights) == 2
