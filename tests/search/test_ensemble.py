"""Greedy ensemble selection on given raw scores."""

from __future__ import annotations

import numpy as np
import pytest

from polyleaf.search.ensemble import MAX_STEPS, compute_weights

TARGET = np.zeros((4, 1))
LOSSES = [lambda raw: float(np.mean((raw - TARGET) ** 2))] * 2


def never():
    return False


def make_raw_scores(*values):
    return [[np.full((4, 1), value)] * 2 for value in values]


def test_errors_of_opposite_signs_cancel():
    weights, loss = compute_weights(make_raw_scores(1.0, -1.0, 9.0), LOSSES, 3, never)
    assert weights.tolist() == [0.5, 0.5, 0.0] and loss == 0.0


def test_weights_are_the_frequencies_of_additions():
    weights, loss = compute_weights(make_raw_scores(1.0, -2.0), LOSSES, 3, never)
    assert weights == pytest.approx([2 / 3, 1 / 3]) and loss == pytest.approx(0.0)


def test_best_step_is_returned():
    # All steps after the first are worse.
    weights, loss = compute_weights(make_raw_scores(0.1, 2.0), LOSSES, 3, never)
    assert weights.tolist() == [1.0, 0.0] and loss == pytest.approx(0.01)


def test_number_of_members_is_bounded():
    rng = np.random.default_rng(0)
    raw_scores = [[rng.normal(size=(4, 1))] * 2 for _ in range(8)]
    counts = [np.count_nonzero(compute_weights(raw_scores, LOSSES, n, never)[0]) for n in (2, 3, 8)]
    assert counts[0] <= 2 and counts[1] <= 3 < counts[2]


def test_blend_so_far_is_returned_when_time_is_over():
    left = iter([False, True] + [True] * MAX_STEPS)
    weights, _ = compute_weights(make_raw_scores(3.0, -1.0, -1.5), LOSSES, 3, lambda: next(left))
    assert np.count_nonzero(weights) == 2
