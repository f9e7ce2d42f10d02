"""Ranking losses: the core and the reference, derivatives by hand, and what must not matter."""

import json
import math

import numpy as np
import pytest
from reference import ranking as reference
from support.isa import run_on_each_isa

from polyleaf import PolyleafRanker, _core
from polyleaf.objectives import (
    LambdaRank,
    PairwiseRank,
    XeNdcg,
    YetiRank,
    get_objective,
    objective_from_dict,
)
from polyleaf.runtime.row_data import RowData

F32 = np.float32
LOSSES = {
    "xendcg": XeNdcg(),
    "linear": XeNdcg(gains="linear"),
    "lambdarank": LambdaRank(),
    "plain": LambdaRank(lambda_normalization=False, truncation=None),
    "truncated": LambdaRank(truncation=3, gains=(0.0, 1.0, 1.5, 4.0, 4.0)),
    "map": LambdaRank(lambda_metric="map", lambda_normalization=False),
    "map@4": LambdaRank(lambda_metric="map", truncation=4),
    "pairwise": PairwiseRank(),
    "pairs": PairwiseRank(lambda_normalization=False),
    "yetirank": YetiRank(),
}
WEIGHTS = ["none", "query", "goals"]


def make_problem(seed=0, n_queries=12, n_goals=2, weights="none", levels=5):
    """Return raw scores with ties, and rows of queries of 1 to 40 documents in any order."""
    rng = np.random.default_rng(seed)
    query = np.repeat(np.arange(n_queries) * 3, rng.integers(1, 40, n_queries))
    rng.shuffle(query)
    n = len(query)
    y = rng.integers(0, levels, (n, n_goals)).astype(np.float64)
    y[query == query[0]] = 2.0  # one relevance
    raw = np.round(rng.normal(size=(n, n_goals)), 1).astype(F32)
    weight = None
    if weights == "query":
        weight = rng.choice([0.5, 1.0, 1.7], query.max() + 1)[query].astype(F32)
    if weights == "goals":
        weight = rng.uniform(0.1, 3.0, (n, n_goals)).astype(F32)
        weight[rng.random((n, n_goals)) < 0.3] = 0.0
    return raw, RowData(y, weight, query=query)


def compute(objective, rows, raw, n_threads=1):
    bound = objective.bind(rows)
    g, h = np.empty_like(raw), np.empty_like(raw)
    bound.derivatives(raw, g, h, n_threads)
    return g, h


def sum_queries(values, query):
    return np.array(
        [[math.fsum(column) for column in values[query == q].T] for q in np.unique(query)]
    )


def compute_reference(objective, rows, raw):
    """Return the derivatives by tests/reference/ranking.py."""
    y, n_goals = rows.target, rows.target.shape[1]
    weight = np.ones(y.shape) if rows.weight is None else rows.weight
    weight = np.broadcast_to(weight.reshape(len(y), -1), y.shape)
    rated, query = weight > 0, rows.query
    gains = {"exponential": 2.0**y - 1, "linear": y}
    table = objective.gains
    gain = gains[table] if isinstance(table, str) else np.asarray(table)[y.astype(int)]
    varies = np.zeros((len(np.unique(query)), n_goals), bool)
    for number, q in enumerate(np.unique(query)):
        for k in range(n_goals):
            varies[number, k] = len(np.unique(y[(query == q) & rated[:, k], k])) > 1

    if isinstance(objective, XeNdcg):
        share = np.where(rated, gain + 0.5, 0.0)
        total = sum_queries(share, query)[np.searchsorted(np.unique(query), query)]
        target = np.divide(share, total, out=np.zeros_like(share), where=rated) * weight
        target = target.astype(F32).astype(np.float64)
        scale, loss = sum_queries(target, query), reference.listwise
    elif isinstance(objective, YetiRank):
        target, best = y, np.zeros(varies.shape)
        for number, k in np.ndindex(best.shape):
            rows_of_query = (query == np.unique(query)[number]) & rated[:, k]
            best[number, k] = y[rows_of_query, k].max(initial=0)
        scale = np.divide(1.0, best, out=np.zeros_like(best), where=best > 0)
        levels = (np.arange(4096) + 0.5) / 4096
        noise = (-_core.log(-_core.log(levels))).astype(F32)

        def loss(*arrays):
            return reference.neighbours(*arrays, 10, np.cumprod([1.0] + 29 * [0.85]), noise)
    else:
        measure, difference, truncation = "none", 1.0, np.iinfo(np.int64).max
        target = np.searchsorted(np.unique(y), y).astype(np.float64)
        scale = np.ones(varies.shape)
        if isinstance(objective, LambdaRank):
            truncation = objective.truncation or truncation
            measure, difference, target = objective.lambda_metric, np.inf, gain
            if measure == "map":
                difference, target = 1.0, (y > 0).astype(np.float64)
                best = sum_queries(np.where(rated, target, 0.0), query)
            else:
                best = np.zeros(varies.shape)
                for number, k in np.ndindex(best.shape):
                    rows_of_query = (query == np.unique(query)[number]) & rated[:, k]
                    ideal = np.sort(gain[rows_of_query, k])[::-1][:truncation]
                    best[number, k] = math.fsum(ideal * reference.discounts(len(ideal)))
            scale = np.divide(1.0, best, out=np.zeros_like(best), where=best > 0)

        def loss(*arrays):
            normalise = objective.lambda_normalization
            return reference.pairs(*arrays, measure, truncation, difference, normalise)

    goal_weights = objective.goal_weights or np.eye(n_goals)
    scale = np.where(varies, scale, 0.0)
    return reference.derivatives(raw, query, target, weight, scale, goal_weights, loss)


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("name", LOSSES)
def test_core_and_reference(name, weights):
    raw, rows = make_problem(weights=weights)
    g, h = compute(LOSSES[name], rows, raw)
    expected_g, expected_h = compute_reference(LOSSES[name], rows, raw)
    np.testing.assert_array_equal(g, expected_g)
    np.testing.assert_array_equal(h, expected_h)


@pytest.mark.parametrize("loss", [XeNdcg, LambdaRank, PairwiseRank, YetiRank])
def test_goal_weights_add_the_losses_of_goals(loss):
    raw, rows = make_problem(weights="goals")
    weights = ((1.0, 0.0), (0.7, 0.3), (0.0, 2.0))
    objective = loss(goal_weights=weights)
    scores = np.random.default_rng(1).normal(size=(len(raw), 3)).astype(F32)
    g, h = compute(objective, rows, scores)
    expected = compute_reference(objective, rows, scores)
    np.testing.assert_array_equal((g, h), expected)
    first = compute(loss(), rows, np.ascontiguousarray(scores[:, [0, 2]]))
    np.testing.assert_array_equal((g[:, 0], h[:, 0]), (first[0][:, 0], first[1][:, 0]))
    np.testing.assert_array_equal(g[:, 2], 2 * first[0][:, 1])
    assert objective.n_scores(2) == 3
    assert objective.bind(rows).weight.shape == (len(raw), 3)


@pytest.mark.parametrize("name", ["lambdarank", "yetirank"])
def test_queries_whose_ranks_are_sorted(name):
    """Ranks of up to 256 documents are counted."""
    rng = np.random.default_rng(2)
    query = np.repeat([0, 1, 2], [256, 257, 400])
    y = rng.integers(0, 4, (len(query), 1)).astype(np.float64)
    raw = np.round(rng.normal(size=y.shape), 1).astype(F32)
    rows = RowData(y, query=query)
    g, h = compute(LOSSES[name], rows, raw)
    np.testing.assert_array_equal((g, h), compute_reference(LOSSES[name], rows, raw))


@pytest.mark.parametrize("gains", ["exponential", "linear", (0.0, 2.0, 5.0)])
def test_xendcg_of_two_documents(gains):
    raw = np.array([[0.3], [-0.4]], F32)
    rows = RowData(np.array([[0.0], [2.0]]), query=np.array([7, 7]))
    g, h = compute(XeNdcg(gains=gains), rows, raw)
    r = np.exp(raw[:, 0].astype(float)) / np.exp(raw.astype(float)).sum()
    gain = {"exponential": 3.0, "linear": 2.0}.get(gains, 5.0) if isinstance(gains, str) else 5.0
    p = np.array([0.5, gain + 0.5]) / (gain + 1.0)
    np.testing.assert_allclose(g[:, 0], r - p, rtol=1e-6)
    np.testing.assert_allclose(h[:, 0], r * (1 - r), rtol=1e-6)


@pytest.mark.parametrize("name", ["plain", "map", "pairs", "yetirank"])
def test_pair_of_two_documents(name):
    raw = np.array([[0.3], [-0.4]], F32)
    rows = RowData(np.array([[0.0], [2.0]]), query=np.array([7, 7]))
    g, h = compute(LOSSES[name], rows, raw)
    p = 1 / (1 + np.exp(-0.7))
    # The gain of the ideal order is that of rank 1: the change is 1 - 1 / log2(3), or 1 / 2 of MAP.
    size = {"plain": 1 - 1 / np.log2(3), "map": 0.5, "pairs": 1.0, "yetirank": 10.0}[name]
    np.testing.assert_allclose(g[:, 0], [size * p, -size * p], rtol=1e-6)
    np.testing.assert_allclose(h[:, 0], size * p * (1 - p), rtol=1e-6)


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("name", ["xendcg", "linear", "pairs"])
def test_gradient_is_the_slope_of_the_loss(name, weights):
    raw, rows = make_problem(weights=weights, n_queries=4)
    bound = LOSSES[name].bind(rows)
    g = compute(LOSSES[name], rows, raw)[0]
    rng, step = np.random.default_rng(0), 2.0**-9
    for _ in range(5):
        direction = rng.choice([-step, step], raw.shape).astype(F32)
        sides = [bound._loss.losses(raw + sign * direction, 1).sum() for sign in (1, -1)]
        slope = (sides[0] - sides[1]) / 2
        assert slope == pytest.approx(np.sum(g * direction, dtype=np.float64), rel=2e-3, abs=1e-5)
    total = np.where(bound._used, bound.queries.weight, 0.0).sum()
    assert bound.loss(raw) == pytest.approx(bound._loss.losses(raw, 1).sum() / total)


@pytest.mark.parametrize("name", LOSSES)
def test_queries_without_pairs_have_no_derivatives(name):
    """One document, one relevance, no judgement, or one rated document."""
    query = np.array([0, 1, 1, 1, 2, 2, 3, 3])
    y = np.array([3.0, 2.0, 2.0, 2.0, 0.0, 4.0, 0.0, 1.0])
    weight = np.array([1, 1, 1, 1, 0, 0, 1, 0], F32)
    raw = np.zeros((8, 1), F32)
    g, h = compute(LOSSES[name], RowData(y[:, None], weight, query=query), raw)
    assert not g.any()
    assert not h.any()
    bound = LOSSES[name].bind(RowData(y[:, None], weight, query=query))
    assert bound.loss(raw) == 0.0


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("name", LOSSES)
def test_order_of_rows_and_threads_do_not_matter(name, weights):
    raw, rows = make_problem(weights=weights, n_queries=30)
    g, h = compute(LOSSES[name], rows, raw)
    loss = LOSSES[name].bind(rows).loss(raw)
    order = np.random.default_rng(3).permutation(len(raw))
    for n_threads in (1, 4):
        moved = compute(LOSSES[name], rows.take(order), raw[order], n_threads)
        np.testing.assert_array_equal(moved, (g[order], h[order]))
    assert LOSSES[name].bind(rows.take(order)).loss(raw[order]) == loss
    renamed = rows.replace(query=1000 - 7 * rows.query)
    np.testing.assert_array_equal(compute(LOSSES[name], renamed, raw), (g, h))


@pytest.mark.parametrize("name", LOSSES)
def test_a_query_twice_is_weight_two(name):
    raw, rows = make_problem(n_goals=1)
    g, h = compute(LOSSES[name], rows, raw)
    heavy = rows.replace(weight=np.full(len(raw), 2.0, F32))
    g2, h2 = compute(LOSSES[name], heavy, raw)
    np.testing.assert_array_equal(g2, 2 * g)
    np.testing.assert_array_equal(h2[h2 > 1e-15], 2 * h[h2 > 1e-15])
    twice = RowData.concatenate([rows, rows.replace(query=rows.query + 1000)])
    np.testing.assert_array_equal(compute(LOSSES[name], twice, np.tile(raw, (2, 1)))[0], [*g, *g])


@pytest.mark.parametrize("name", LOSSES)
def test_equal_goals_and_scores_have_equal_derivatives(name):
    raw, rows = make_problem(n_goals=1)
    g, h = compute(LOSSES[name], rows, raw)
    three = rows.replace(target=np.tile(rows.target, (1, 3)))
    g3, h3 = compute(LOSSES[name], three, np.tile(raw, (1, 3)))
    np.testing.assert_array_equal(g3, np.tile(g, (1, 3)))
    np.testing.assert_array_equal(h3, np.tile(h, (1, 3)))


def test_gradients_of_a_query_add_up_to_zero():
    raw, rows = make_problem(weights="goals")
    for objective in LOSSES.values():
        g = compute(objective, rows, raw)[0].astype(np.float64)
        sums = sum_queries(g, rows.query)
        assert np.abs(sums).max() < 1e-5 * max(1.0, np.abs(g).max())


def test_instruction_sets_give_the_same_bits():
    program = """
import numpy as np
from objectives.test_ranking import LOSSES, compute, make_problem
raw, rows = make_problem(weights="goals", n_queries=20)
for objective in LOSSES.values():
    print(*(array.tobytes().hex() for array in compute(objective, rows, raw)))
"""
    outputs = run_on_each_isa(program)
    assert len(set(outputs)) == 1


@pytest.mark.parametrize("name", LOSSES)
def test_extreme_scores_are_finite(name):
    _, rows = make_problem(n_goals=1)
    raw = np.random.default_rng(0).choice([-1e30, -50.0, 0.0, 3e38], (rows.n_rows, 1)).astype(F32)
    assert all(np.isfinite(array).all() for array in compute(LOSSES[name], rows, raw))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: XeNdcg(gains="square"), "gains must be"),
        (lambda: XeNdcg(gains=(1.0, 0.5)), "gains must be"),
        (lambda: XeNdcg(goal_weights=((0.0, 0.0),)), "not all 0 in a row"),
        (lambda: XeNdcg(goal_weights=((1e300, 1.0),)), "0 or from 1e-9 to 1e9"),
        (lambda: LambdaRank(gains=(0.0, 1e300)), "0 or from 1e-30 to 1e30"),
        (lambda: XeNdcg(goal_weights=(1.0, 0.0)), "a row for each output"),
        (lambda: LambdaRank(truncation=0), "truncation must be at least 1"),
        (lambda: LambdaRank(lambda_metric="mrr"), "lambda_metric"),
    ],
)
def test_parameters_out_of_range(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_targets_out_of_range():
    query = np.zeros(3, np.int64)
    for y, message in (([0, -1, 2], "at least 0|from 0"), ([0, 0.5, 1], "gains=.linear.")):
        with pytest.raises(ValueError, match=message):
            XeNdcg().bind(RowData(np.array(y, float), query=query))
    with pytest.raises(ValueError, match="pass qid"):
        XeNdcg().bind(RowData(np.array([0.0, 1.0, 2.0])))
    with pytest.raises(ValueError, match="goal_weights has 2 columns, but y has 1 goals"):
        rows = RowData(np.array([0.0, 1.0, 2.0]), query=query)
        XeNdcg(goal_weights=((1.0, 0.0),)).bind(rows)
    assert XeNdcg(gains="linear").bind(RowData(np.array([0.0, 0.5, 2.0]), query=query))
    for size in (1e-40, 1e31, np.inf):
        with pytest.raises(ValueError, match="0 or from 1e-30 to 1e30"):
            LambdaRank(gains="linear").bind(RowData(np.array([0.0, size]), query=query[:2]))


def test_names_of_other_libraries_and_stored_parameters():
    assert isinstance(get_objective("rank:ndcg"), LambdaRank)
    assert isinstance(get_objective("rank_xendcg"), XeNdcg)
    assert isinstance(get_objective("rank:pairwise"), PairwiseRank)
    objective = LambdaRank(goal_weights=((1, 0), (0.5, 0.5)), gains=(0, 1, 3))
    stored = json.loads(json.dumps(objective.to_dict()))
    assert objective_from_dict(stored) == objective


# --- models ---

OBJECTIVES = ["xendcg", "lambdarank", "pairwise", "yetirank"]


def make_rows():
    rng = np.random.default_rng(0)
    X, query = rng.normal(size=(900, 6)), np.repeat(np.arange(45), 20)
    return X, np.clip(np.round(X[:, 0] + X[:, 1] * X[:, 2] + 1), 0, 4), query


def fit(objective, X, y, query, **options):
    arguments = {"sample_weight": options.pop("sample_weight", None)}
    model = PolyleafRanker(objective=objective, n_estimators=12, max_leaves=8, **options)
    return model.fit(X, y, qid=query, **arguments)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_models_have_the_same_bytes(objective):
    """For any order of rows and queries, and any number of threads."""
    X, y, query = make_rows()
    model = fit(objective, X, y, query, n_jobs=1).model_.to_bytes()
    order = np.random.default_rng(1).permutation(len(X))
    moved = fit(objective, X[order], y[order], 7 - query[order], n_jobs=1)
    assert moved.model_.to_bytes() == model
    scores = [fit(objective, X, y, query, n_jobs=n).predict(X) for n in (1, 2, 4)]
    assert all(np.array_equal(scores[0], other) for other in scores)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_model_of_queries_twice_and_of_weight_two(objective):
    X, y, query = make_rows()
    twice = fit(objective, np.tile(X, (2, 1)), np.tile(y, 2), np.concatenate([query, query + 99]))
    heavy = fit(objective, X, y, query, sample_weight=np.full(len(X), 2.0))
    np.testing.assert_array_equal(twice.predict(X), heavy.predict(X))


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_model_of_equal_goals_is_the_model_of_one(objective):
    X, y, query = make_rows()
    one = fit(objective, X, y, query).predict(X)
    goals = np.column_stack([y, y])
    for options in ({}, {"goal_weights": [(1, 0), (0.5, 0.5)]}):
        scores = fit(objective, X, goals, query, **options).predict(X)
        np.testing.assert_array_equal(scores, np.column_stack([one, one]))
