"""thresholds.py: the largest F1, against every cut by scikit-learn's F1."""

import numpy as np
import pytest
from sklearn.metrics import f1_score

from polyleaf.metrics.thresholds import best_f1_threshold, f1_by_threshold


def drawn(n=60, k=3, seed=0):
    """Probabilities of few values, and labels that they know something of."""
    rng = np.random.default_rng(seed)
    p = np.round(rng.random((n, k)), 1) * 0.98 + 0.01
    return p, (rng.random((n, k)) < p).astype(float), rng.integers(0, 4, (n, k)).astype(float)


def by_hand(p, y, w, macro, t):
    """F1 of saying yes where p > t."""
    said = p > t
    if not macro:
        return f1_score(y.ravel(), said.ravel(), sample_weight=w.ravel(), zero_division=0)
    if p.shape[1] == 1:
        return f1_score(
            y[:, 0], said[:, 0], sample_weight=w[:, 0], average="macro", zero_division=0
        )
    there = (w * y).sum(axis=0) > 0
    each = [
        f1_score(y[:, k], said[:, k], sample_weight=w[:, k], zero_division=0)
        for k in np.flatnonzero(there)
    ]
    return np.mean(each)


@pytest.mark.parametrize("macro", [False, True])
@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("how", ["plain", "weights of rows", "weights of cells"])
@pytest.mark.parametrize("seed", range(3))
def test_no_cut_is_better(macro, k, how, seed):
    p, y, w = drawn(k=k, seed=seed)
    weight = {"plain": None, "weights of rows": w[:, 0], "weights of cells": w}[how]
    full = (
        np.ones(p.shape) if weight is None else np.broadcast_to(weight.reshape(len(p), -1), p.shape)
    )
    found = by_hand(p, y, full, macro, best_f1_threshold(p, y, weight, macro))
    values = np.unique(p)
    cuts = [values[0] / 2, *(values[:-1] + values[1:]) / 2]
    assert found == pytest.approx(max(by_hand(p, y, full, macro, t) for t in cuts))
    falling, f1 = f1_by_threshold(p, y, weight, macro)
    np.testing.assert_array_equal(falling, values[::-1])
    np.testing.assert_allclose(f1, [by_hand(p, y, full, macro, t) for t in cuts[::-1]], atol=1e-12)


def test_the_threshold_is_half_way_and_the_highest_of_equals():
    assert best_f1_threshold(
        np.array([[0.9], [0.5], [0.1]]), np.array([[1], [0], [0]])
    ) == pytest.approx(0.7)
    # Yes to one of two (1 right) and to both of three (2 right, 1 wrong) are level: 2/3 and ... the first.
    p, y = np.array([[0.9], [0.6], [0.3]]), np.array([[1], [0], [0]])
    assert best_f1_threshold(p, y) == pytest.approx(0.75)
    assert best_f1_threshold(np.array([[0.4], [0.3]]), np.ones((2, 1))) == pytest.approx(
        0.15
    )  # all of them


def test_where_nothing_holds_it_is_one_half():
    assert best_f1_threshold(np.array([[0.2, 0.9]]), np.zeros((1, 2))) == 0.5
    assert best_f1_threshold(np.array([[0.2], [0.9]]), np.ones((2, 1)), np.zeros(2)) == 0.5


def test_a_label_that_no_row_has_is_left_out_of_the_mean():
    p, y, _ = drawn()
    with_empty = np.column_stack([p, np.full(len(p), 0.55)])
    labels = np.column_stack([y, np.zeros(len(y))])
    _, f1 = f1_by_threshold(p, y, macro=True)
    assert f1_by_threshold(with_empty, labels, macro=True)[1].max() == pytest.approx(f1.max())


def test_without_labels_it_is_what_right_probabilities_would_choose():
    """The plug-in rule: of many rows whose labels follow the probabilities, the same threshold, nearly."""
    rng = np.random.default_rng(0)
    p = rng.beta(0.6, 2.0, (200_000, 1))
    y = (rng.random(p.shape) < p).astype(float)
    assert best_f1_threshold(p, p) == pytest.approx(best_f1_threshold(p, y), abs=0.01)
    # The best threshold of right probabilities is half the F1 that it gives (Lipton and others, 2014).
    _, f1 = f1_by_threshold(p, y)
    assert best_f1_threshold(p, p) == pytest.approx(f1.max() / 2, abs=0.01)
