"""Ranking metrics equal definitions written as loops, for all forms of input, and in training."""

import math

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from support.pairwise import parametrize_pairs

from polyleaf import PolyleafClassifier, RowData
from polyleaf.metrics import get_metric
from polyleaf.metrics.ranking import (
    ndcg_at,
    precision_at,
    propensities,
    psndcg_at,
    psp_at,
    ranking_scores,
    top_labels,
)


def problem(n=20, n_labels=12, seed=0, density=0.25, ties=False):
    rng = np.random.default_rng(seed)
    y = (rng.random((n, n_labels)) < density).astype(np.float64)
    scores = rng.integers(0, 3, y.shape).astype(float) if ties else rng.standard_normal(y.shape)
    return y, scores


def best_labels(scores, k):
    return np.argsort(-scores, axis=1, kind="stable")[:, :k]


def order(scores):
    """Return the labels of one row, best first, ties by index."""
    return sorted(range(len(scores)), key=lambda l: (-scores[l], l))


def slow_precision(y, scores, k):
    return np.mean([sum(y[i][l] for l in order(s)[:k]) / k for i, s in enumerate(scores)])


def slow_ndcg(y, scores, k):
    values = []
    for i, s in enumerate(scores):
        dcg = sum(y[i][l] / math.log2(place + 2) for place, l in enumerate(order(s)[:k]))
        best = sum(1 / math.log2(place + 2) for place in range(min(k, int(sum(y[i])))))
        values.append(dcg / best if best > 0 else 0.0)
    return np.mean(values)


def slow_scored(y, scores, k, p, discounted):
    """Return PSP@k or PSnDCG@k: the mean over rows divided by that of the best ranking."""
    means = []
    for ranking in (scores, y / p):
        values = []
        for i, s in enumerate(ranking):
            gain = [
                y[i][l] / p[l] / (math.log2(place + 2) if discounted else 1)
                for place, l in enumerate(order(s)[:k])
            ]
            places = min(k, max(1, int(sum(y[i]))))
            ideal = sum(1 / math.log2(place + 2) for place in range(places)) if discounted else k
            values.append(sum(gain) / ideal)
        means.append(np.mean(values))
    return means[0] / means[1]


FORMS = {
    "dense": lambda y, s: (y, s),
    "csr truth": lambda y, s: (sp.csr_matrix(y), s),
    "csr both": lambda y, s: (sp.csr_matrix(y), sp.csr_matrix(s - s.min() + 1)),
    "pairs": lambda y, s: (y, (best_labels(s, 8), -np.sort(-s, axis=1)[:, :8])),
    "pairs in any order": lambda y, s: (
        sp.csr_matrix(y),
        (np.tile(np.arange(s.shape[1]), (len(s), 1)), s),
    ),
}


@parametrize_pairs(form=FORMS, ties=[False, True], k=[1, 2, 5, 8])
def test_values_equal_the_definition(form, ties, k):
    y, scores = problem(ties=ties)
    p = propensities(y)
    given_ = FORMS[form](y, scores)
    assert precision_at(*given_, k) == pytest.approx(slow_precision(y, scores, k), rel=1e-12)
    assert ndcg_at(*given_, k) == pytest.approx(slow_ndcg(y, scores, k), rel=1e-12)
    assert psp_at(*given_, k, p) == pytest.approx(slow_scored(y, scores, k, p, False), rel=1e-12)
    assert psndcg_at(*given_, k, p) == pytest.approx(slow_scored(y, scores, k, p, True), rel=1e-12)


@settings(max_examples=50, deadline=None)
@given(
    n=st.integers(1, 15),
    n_labels=st.integers(1, 9),
    k=st.integers(1, 12),
    seed=st.integers(0, 1000),
    density=st.sampled_from([0.0, 0.1, 0.9, 1.0]),
)
def test_random_shapes(n, n_labels, k, seed, density):
    y, scores = problem(n, n_labels, seed, density, ties=seed % 2 == 0)
    expected = pytest.approx(slow_precision(y, scores, min(k, 8)))
    for form in FORMS.values():
        assert precision_at(*form(y, scores), min(k, 8)) == expected
    p = propensities(y)
    assert ndcg_at(y, scores, k) == pytest.approx(slow_ndcg(y, scores, k))
    if y.any():
        assert psp_at(y, scores, k, p) == pytest.approx(slow_scored(y, scores, k, p, False))
        assert psp_at(y, y, k, p) <= 1 + 1e-12
        assert psp_at(y, y / p, k, p) == psndcg_at(y, y / p, k, p) == 1
    else:
        assert math.isnan(psp_at(y, scores, k, p))


def test_perfect_ranking():
    y, _ = problem(density=0.9)
    assert precision_at(y, y, 3) == 1
    assert ndcg_at(y, y, 12) == pytest.approx(1)
    y, _ = problem(density=0.1)
    rows = y.sum(axis=1)
    assert ndcg_at(y, y, 5) == pytest.approx(np.mean(rows > 0))  # a row without labels scores 0
    assert precision_at(y, y, 5) == pytest.approx(np.mean(np.minimum(rows, 5) / 5))


def test_class_ids():
    ids = np.array([2, 0, 1, 1])
    scores = np.array([[0, 1, 2], [0, 1, 2], [1, 2, 0], [2, 1, 0]], float)
    assert precision_at(ids, scores, 1) == 0.5
    assert 2 * precision_at(ids, scores, 2) == 0.75  # accuracy among the best two
    pairs = np.array([[2, 7]] * 4), np.array([[1.0, 0.5]] * 4)
    assert precision_at(ids, pairs, 1) == 0.25
    assert ndcg_at(ids, scores, 3) == pytest.approx((1 + 0.5 + 1 + 1 / math.log2(3)) / 4)


def test_top_labels():
    scores = np.array([[1, 3, 3, 0], [-np.inf, -np.inf, 5, -np.inf]])
    assert top_labels(scores, 3).tolist() == [[1, 2, 0], [2, 0, 1]]
    assert top_labels(scores, 6).tolist() == [[1, 2, 0, 3, -1, -1], [2, 0, 1, 3, -1, -1]]
    sparse = sp.csr_matrix(np.array([[0, -3.0, 0, 2], [0, 0, 0, 0]]))
    assert top_labels(sparse, 3).tolist() == [[3, 1, -1], [-1, -1, -1]]
    pairs = np.array([[4, -1, 2], [-1, -1, -1]]), np.array([[0.5, 9, 1], [0, 0, 0]])
    assert top_labels(pairs, 2).tolist() == [[2, 4], [-1, -1]]
    blocks = np.random.default_rng(0).standard_normal((5000, 1000)).astype(np.float32)
    np.testing.assert_array_equal(top_labels(blocks, 2), best_labels(blocks, 2))


def test_padded_labels_never_hit():
    y = np.array([[1, 0], [1, 1]])
    pairs = np.array([[-1, 0], [-1, -1]]), np.array([[5.0, 1], [0, 0]])
    assert precision_at(y, pairs, 1) == 0.5
    assert precision_at(sp.csr_matrix((2, 5)), pairs, 1) == 0


def test_propensities_equal_the_paper():
    y = np.zeros((1000, 3))
    y[:, 0], y[:10, 1] = 1, 1
    p = propensities(y)
    c = (math.log(1000) - 1) * 2.5**0.55
    expected = [1 / (1 + c * math.exp(-0.55 * math.log(f + 1.5))) for f in (1000, 10, 0)]
    np.testing.assert_allclose(p, expected)
    assert p[0] > p[1] > p[2] > 0
    np.testing.assert_allclose(propensities(sp.csr_matrix(y)), p)
    np.testing.assert_allclose(propensities(np.array([0, 0, 1, 3]), n_labels=5).shape, (5,))
    # The formula leaves (0, 1] below three rows.
    assert propensities(np.ones((1, 2))).tolist() == [1, 1]


def test_weights():
    y, scores = problem()
    weight = np.random.default_rng(1).integers(0, 3, len(y)).astype(float)
    repeated = np.repeat(np.arange(len(y)), weight.astype(int))
    p = propensities(y)
    rows = y[repeated], scores[repeated], 3
    for metric in (precision_at, ndcg_at):
        assert metric(y, scores, 3, weight) == pytest.approx(metric(*rows))
        assert metric(y, scores, 3, weight[:, None]) == metric(y, scores, 3, weight)
    assert psp_at(y, scores, 3, p, weight) == pytest.approx(psp_at(*rows, p))
    assert math.isnan(precision_at(y, scores, 1, np.zeros(len(y))))


def test_missing_labels_are_ignored():
    y, scores = problem()
    known = np.ones(y.shape)
    known[:, 4] = 0
    rest = [l for l in range(y.shape[1]) if l != 4]
    expected = precision_at(y[:, rest], scores[:, rest], 3)
    assert precision_at(y, scores, 3, known) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda y, s: precision_at(y, s, 0), "at least 1"),
        (lambda y, s: precision_at(y[:5], s, 1), "5 rows"),
        (lambda y, s: precision_at(y[:, :5], s, 1), "5 labels"),
        (lambda y, s: precision_at(y, np.where(s > 1, np.nan, s), 1), "NaN"),
        (lambda y, s: precision_at(y, (np.zeros((20, 2)), np.zeros((20, 3))), 1), "shape"),
        (lambda y, s: precision_at(y, (np.full((20, 1), 12), np.zeros((20, 1))), 1), "label 12"),
        (lambda y, s: psp_at(y, s, 1, np.ones(5)), "propensity"),
        (lambda y, s: precision_at(sp.csr_matrix(y), s, 1, np.ones(y.shape)), "dense"),
        (lambda y, s: get_metric("psp@1")(RowData(y), s), "bind"),
        (lambda y, s: get_metric("p@0"), "Unknown metric"),
    ],
)
def test_invalid_input_raises(call, message):
    with pytest.raises(ValueError, match=message):
        call(*problem())


def test_names():
    y, scores = problem()
    names = {"P@1": "p@1", "precision@3": "p@3", "nDCG@5": "ndcg@5", "PSP@3": "psp@3"}
    for name, canonical in names.items():
        metric = get_metric(name)
        assert (metric.name, metric.prediction_type) == (canonical, "raw")
        assert metric.greater_is_better is True
        assert metric.bind(RowData(y), RowData(y)).per_output(scores) is None
    assert get_metric("psndcg@10").name == "psndcg@10"


def test_ranking_scores():
    y, scores = problem()
    p = propensities(y)
    found = ranking_scores(sp.csr_matrix(y), scores, (1, 3), p)
    assert found["P@3"] == precision_at(y, scores, 3)
    assert found["nDCG@3"] == ndcg_at(y, scores, 3)
    assert found["PSP@1"] == psp_at(y, scores, 1, p)
    assert found["PSnDCG@3"] == psndcg_at(y, scores, 3, p)
    assert set(ranking_scores(y, scores)) == {"P@1", "P@3", "P@5", "nDCG@1", "nDCG@3", "nDCG@5"}


def test_ranking_metrics_in_training():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 4))
    Y = (X @ rng.standard_normal((4, 9)) > 1).astype(int)
    names = ["p@1", "ndcg@3", "psp@3", "psndcg@2"]
    options = {"n_estimators": 15, "early_stopping_rounds": 5, "n_jobs": 1}
    model = PolyleafClassifier(eval_metric=names, **options)
    model.fit(X[:200], Y[:200], eval_set=[(X[200:], Y[200:])])
    log = model.evals_result_["validation_0"]
    scores = model.decision_function(X[200:])
    at = model.best_iteration_
    assert log["p@1"][at] == precision_at(Y[200:], scores, 1)
    assert log["psp@3"][at] == psp_at(Y[200:], scores, 3, propensities(Y[:200]))
    assert log["psndcg@2"][at] == max(log["psndcg@2"])
    three = PolyleafClassifier(n_estimators=3, eval_metric=["p@2", "psp@1"], n_jobs=1)
    three.fit(X[:200], Y[:200, :3].sum(axis=1), eval_set=[(X[200:], Y[200:, :3].sum(axis=1))])
    assert 2 * three.evals_result_["validation_0"]["p@2"][-1] > 0.7


def test_narrow_integer_matrix_holds_labels():
    rng = np.random.default_rng(0)
    y = (rng.random((30, 12)) < 0.3).astype(int)
    y[:, 0] = 1
    labels = best_labels(y, 3)
    ranks = np.broadcast_to(-np.arange(3.0), labels.shape)
    for truth in (y, sp.csr_matrix(y)):
        found = ranking_scores(truth, labels, (1, 3), propensities(y))
        assert found == ranking_scores(truth, (labels, ranks), (1, 3), propensities(y))
        assert found["P@1"] == found["nDCG@3"] == precision_at(truth, labels, 1) == 1
    assert precision_at(np.array([2, 0]), (np.array([[2, 1], [1, 0]]), ranks[:2, :2]), 1) == 0.5
    assert precision_at(y, 2 * y + 1, 1) == 1  # scores


@pytest.mark.parametrize("y", [np.eye(3), np.array([0, 1, 2])])
def test_ambiguous_integer_matrix_raises(y):
    both = np.array([[2, 0, 1], [1, 0, 2], [0, 1, 2]])
    for score in (precision_at, ranking_scores):
        with pytest.raises(ValueError, match="scores or labels"):
            score(y, both)
    assert precision_at(y, both.astype(float), 1) == 2 / 3


def test_wrong_number_of_score_columns_raises():
    with pytest.raises(ValueError, match="y has 4 labels, but the prediction has 3"):
        ranking_scores(np.eye(4), np.eye(4)[:, :3])
