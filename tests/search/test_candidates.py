"""The score of a candidate: one number of rounds for all folds."""

from __future__ import annotations

import math

from polyleaf.search.candidates import Candidate, better_first


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
