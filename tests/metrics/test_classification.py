"""Areas under curves, scores from confusion counts, and decision thresholds by F1."""

import numpy as np
import pytest
import sklearn.metrics as sk
from sklearn.metrics import f1_score
from support.pairwise import parametrize_pairs

from polyleaf import RowData
from polyleaf.metrics import get_metric
from polyleaf.metrics._classification import (
    best_f1_threshold,
    binary_average_precision,
    binary_roc_auc,
    f1_by_threshold,
)


@parametrize_pairs(share=[0.01, 0.2, 0.5, 0.9], decimals=[0, 1, 12], weighted=[False, True])
def test_areas_equal_scikit_learn(share, decimals, weighted):
    """Compare with ties, few positives and many."""
    rng = np.random.default_rng(int(share * 100) + decimals)
    y = rng.random(500) < share
    y[:2] = [True, False]
    score = (rng.normal(size=500) + y).round(decimals)
    weight = rng.integers(1, 5, 500) / 2 if weighted else None
    assert binary_roc_auc(RowData(y, weight), score) == pytest.approx(
        sk.roc_auc_score(y, score, sample_weight=weight)
    )
    expected = sk.average_precision_score(y, score, sample_weight=weight)
    assert binary_average_precision(RowData(y, weight), score) == pytest.approx(expected)
    for one_class in (np.zeros(5, bool), np.ones(5, bool)):
        assert np.isnan(binary_roc_auc(RowData(one_class), score[:5])) and np.isnan(
            binary_average_precision(RowData(one_class), score[:5])
        )


def test_confusion_scores_are_averaged_over_labels():
    rng = np.random.default_rng(0)
    Y, raw = rng.random((200, 3)) < 0.3, rng.normal(size=(200, 3))
    for name, reference in (
        ("balanced_accuracy", sk.balanced_accuracy_score),
        ("mcc", sk.matthews_corrcoef),
        ("kappa", sk.cohen_kappa_score),
    ):
        each = [reference(Y[:, k], raw[:, k] > 0) for k in range(3)]
        metric = get_metric(name)
        assert metric(RowData(Y.astype(np.float32)), raw) == pytest.approx(np.mean(each))
        np.testing.assert_allclose(metric.per_output(RowData(Y.astype(np.float32)), raw), each)
        assert metric.greater_is_better
    constant = np.ones((200, 1), np.float32)
    assert get_metric("mcc")(RowData(constant), constant) == 0.0


def sample_probabilities(n=60, k=3, seed=0):
    """Return probabilities with few distinct values, labels drawn from them, and weights."""
    rng = np.random.default_rng(seed)
    p = np.round(rng.random((n, k)), 1) * 0.98 + 0.01
    return p, (rng.random((n, k)) < p).astype(float), rng.integers(0, 4, (n, k)).astype(float)


def f1_above(p, y, w, macro, t):
    """Return F1 of predicting labels where p > t."""
    predicted = p > t
    if not macro:
        return f1_score(y.ravel(), predicted.ravel(), sample_weight=w.ravel(), zero_division=0)
    if p.shape[1] == 1:
        return f1_score(
            y[:, 0], predicted[:, 0], sample_weight=w[:, 0], average="macro", zero_division=0
        )
    present = (w * y).sum(axis=0) > 0
    each = [
        f1_score(y[:, k], predicted[:, k], sample_weight=w[:, k], zero_division=0)
        for k in np.flatnonzero(present)
    ]
    return np.mean(each)


@parametrize_pairs(
    macro=[False, True], k=[1, 3], how=["plain", "row weights", "label weights"], seed=range(3)
)
def test_f1_threshold_is_optimal(macro, k, how, seed):
    p, y, w = sample_probabilities(k=k, seed=seed)
    weight = {"plain": None, "row weights": w[:, 0], "label weights": w}[how]
    full = (
        np.ones(p.shape) if weight is None else np.broadcast_to(weight.reshape(len(p), -1), p.shape)
    )
    found = f1_above(p, y, full, macro, best_f1_threshold(p, y, weight, macro))
    values = np.unique(p)
    thresholds = [values[0] / 2, *(values[:-1] + values[1:]) / 2]
    assert found == pytest.approx(max(f1_above(p, y, full, macro, t) for t in thresholds))
    falling, f1 = f1_by_threshold(p, y, weight, macro)
    np.testing.assert_array_equal(falling, values[::-1])
    np.testing.assert_allclose(
        f1, [f1_above(p, y, full, macro, t) for t in thresholds[::-1]], atol=1e-12
    )


def test_f1_threshold_is_a_midpoint_and_the_highest_on_ties():
    assert best_f1_threshold(
        np.array([[0.9], [0.5], [0.1]]), np.array([[1], [0], [0]])
    ) == pytest.approx(0.7)
    # The highest of the thresholds with equal F1 is chosen.
    p, y = np.array([[0.9], [0.6], [0.3]]), np.array([[1], [0], [0]])
    assert best_f1_threshold(p, y) == pytest.approx(0.75)
    assert best_f1_threshold(np.array([[0.4], [0.3]]), np.ones((2, 1))) == pytest.approx(
        0.15
    )  # every label is predicted


def test_f1_threshold_without_positives_is_one_half():
    assert best_f1_threshold(np.array([[0.2, 0.9]]), np.zeros((1, 2))) == 0.5
    assert best_f1_threshold(np.array([[0.2], [0.9]]), np.ones((2, 1)), np.zeros(2)) == 0.5


def test_macro_f1_ignores_absent_labels():
    p, y, _ = sample_probabilities()
    with_empty = np.column_stack([p, np.full(len(p), 0.55)])
    labels = np.column_stack([y, np.zeros(len(y))])
    _, f1 = f1_by_threshold(p, y, macro=True)
    assert f1_by_threshold(with_empty, labels, macro=True)[1].max() == pytest.approx(f1.max())


def test_f1_threshold_from_probabilities_alone():
    """With calibrated probabilities the threshold is nearly that chosen with labels."""
    rng = np.random.default_rng(0)
    p = rng.beta(0.6, 2.0, (200_000, 1))
    y = (rng.random(p.shape) < p).astype(float)
    assert best_f1_threshold(p, p) == pytest.approx(best_f1_threshold(p, y), abs=0.01)
    # The best threshold of calibrated probabilities is half its F1 (Lipton et al., 2014).
    _, f1 = f1_by_threshold(p, y)
    assert best_f1_threshold(p, p) == pytest.approx(f1.max() / 2, abs=0.01)
