"""Nonconformity scores of prediction sets against a loop over rows and classes."""

import numpy as np
import pytest

from polyleaf.training.cross_fitting import (
    class_nonconformity,
    label_nonconformity,
    truth_nonconformity,
)


def compute_reference(p):
    found = np.zeros(p.shape)
    for i, row in enumerate(p):
        for k, own in enumerate(row):
            found[i, k] = sum(
                other for j, other in enumerate(row) if other > own or (other == own and j < k)
            )
    return found


@pytest.mark.parametrize("k", [2, 3, 10])
def test_class_nonconformity(k):
    p = np.random.default_rng(k).dirichlet(np.full(k, 0.5), 50)
    p[::5] = 1 / k  # for ties the first class is used
    np.testing.assert_allclose(class_nonconformity(p), compute_reference(p), atol=1e-12)
    assert (class_nonconformity(p).min(axis=1) == 0).all()


def test_sets_are_minimal():
    """Sets have the fewest of the most probable classes whose total probability exceeds the
    depth."""
    p = np.random.default_rng(0).dirichlet(np.full(6, 0.4), 200)
    for depth in (0.0, 0.3, 0.9):
        held = class_nonconformity(p) <= depth
        for row, chosen in zip(p, held, strict=True):
            falling = np.sort(row)[::-1]
            n = 1 + int((np.cumsum(falling)[:-1] <= depth).sum())
            assert chosen.sum() == n and row[chosen].sum() == pytest.approx(falling[:n].sum())


def test_sets_contain_all_true_labels():
    p = np.array([[0.9, 0.2, 0.5], [0.1, 0.2, 0.3], [0.6, 0.6, 0.6]])
    truth = np.array([[1, 1, 0], [0, 0, 0], [0, 0, 1]])
    np.testing.assert_allclose(truth_nonconformity(label_nonconformity(p), truth), [0.8, -1.0, 0.4])
