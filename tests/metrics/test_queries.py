"""Metrics of queries: other libraries, ties, queries without relevant rows, goals and weights."""

from itertools import permutations

import numpy as np
import pytest
from sklearn.metrics import ndcg_score

from polyleaf import PolyleafRanker
from polyleaf.metrics.metric import get_metric, get_metrics
from polyleaf.metrics.queries import KINDS, QueryMetric, parse_query_metric
from polyleaf.objectives import LambdaRank, XeNdcg
from polyleaf.runtime.row_data import RowData


def make_rows(seed=0, n_queries=30, levels=4, n_goals=1, empty=False):
    rng = np.random.default_rng(seed)
    query = np.repeat(np.arange(n_queries), rng.integers(2, 25, n_queries))
    y = rng.integers(0, levels, (len(query), n_goals)).astype(float)
    y[np.unique(query, return_index=True)[1]] = levels - 1
    if empty:
        y[query % 5 == 0] = 0.0
    return RowData(y, query=query), rng.normal(size=y.shape).astype(np.float32)


def evaluate(name, rows, scores, objective=None):
    return get_metric(name, objective or XeNdcg())(rows, scores)


def compute_one(kind, y, order, k, largest):
    """Return a metric of one query in a given order, by its definition."""
    y = y[list(order)]
    shown, n_relevant = y[:k], np.count_nonzero(y > 0)
    ranks = np.arange(1, len(shown) + 1)
    if kind == "ndcg":
        best = np.sort(y)[::-1][:k]
        return np.sum((2.0**shown - 1) / np.log2(ranks + 1)) / np.sum(
            (2.0**best - 1) / np.log2(ranks + 1)
        )
    hits = shown > 0
    if kind == "precision":
        return hits.mean()
    if kind == "map":
        return np.sum(hits * np.cumsum(hits) / ranks) / min(n_relevant, k)
    if kind == "mrr":
        return 1.0 / (np.argmax(hits) + 1) if hits.any() else 0.0
    stop = (2.0**shown - 1) / 2.0**largest
    return np.sum(stop * np.cumprod(np.concatenate([[1.0], 1 - stop]))[:-1] / ranks)


# --- other libraries ---


@pytest.mark.parametrize("k", [1, 5, None])
def test_ndcg_of_scikit_learn(k):
    rows, scores = make_rows()
    scores = np.round(scores, 1)  # ties count alike there
    name = "ndcg" if k is None else f"ndcg@{k}"
    each = [
        ndcg_score(rows.target[of].T, scores[of].T, k=k)
        for of in (rows.query == q for q in np.unique(rows.query))
    ]
    value = evaluate(name, rows, scores, XeNdcg(gains="linear"))
    assert value == pytest.approx(np.mean(each), abs=1e-12)


@pytest.mark.parametrize("name", ["ndcg@3", "ndcg@10", "ndcg", "ndcg@5-", "map@3", "map", "map@4-"])
@pytest.mark.parametrize("weighted", [False, True])
def test_xgboost(name, weighted):
    xgboost = pytest.importorskip("xgboost")
    # It does not weigh queries without relevant rows.
    rows, scores = make_rows(levels=2 if "map" in name else 4, empty=not weighted)
    weight = np.random.default_rng(1).uniform(0.5, 2, rows.query.max() + 1).astype(np.float32)
    data = xgboost.DMatrix(scores, rows.target, qid=rows.query)
    if weighted:
        data.set_weight(weight)
        rows = rows.replace(weight=weight[rows.query])
    data.set_base_margin(scores[:, 0])
    options = {"objective": "rank:ndcg", "eval_metric": name, "base_score": 0.0}
    booster = xgboost.train(options, data, 0)
    message = booster.eval_set([(data, "data")], 0, output_margin=True)
    value = float(message.rpartition(":")[2])
    assert evaluate(name, rows, scores) == pytest.approx(value, abs=1e-12)


@pytest.mark.parametrize("k", [1, 3, 10])
@pytest.mark.parametrize("kind", ["ndcg", "map"])
@pytest.mark.parametrize("weighted", [False, True])
def test_lightgbm(kind, k, weighted):
    lightgbm = pytest.importorskip("lightgbm")
    # It does not weigh queries without relevant rows.
    rows, scores = make_rows(levels=2 if kind == "map" else 4, empty=not weighted)
    sizes, weight = np.unique(rows.query, return_counts=True)[1], None
    if weighted:
        weight = np.array([0.5, 1.0, 2.0])[rows.query % 3].astype(np.float32)
    data = lightgbm.Dataset(
        np.zeros((len(scores), 1)),
        rows.target[:, 0],
        group=sizes,
        weight=weight,
        init_score=scores[:, 0].astype(np.float64),
        params={"min_data_in_bin": 1, "feature_pre_filter": False},
    )
    options = {"objective": "lambdarank", "metric": kind, "eval_at": [k], "verbose": -1}
    options |= {"metric_freq": 1, "is_provide_training_metric": True}
    log = {}
    lightgbm.train(
        options,
        data,
        1,
        valid_sets=[data],
        valid_names=["data"],
        callbacks=[lightgbm.record_evaluation(log)],
    )
    value = log["data"][f"{kind}@{k}"][0]
    assert evaluate(f"{kind}@{k}", rows.replace(weight=weight), scores) == pytest.approx(
        value, abs=1e-12
    )


# --- definitions ---


@pytest.mark.parametrize("k", [1, 2, 3, 6])
@pytest.mark.parametrize("kind", KINDS)
def test_all_orders_of_equal_scores(kind, k):
    """The metric is the mean over the orders of equal scores; ERR only without ties."""
    rng = np.random.default_rng(k)
    for _ in range(4):
        y, scores = rng.integers(0, 3, 6).astype(float), rng.integers(0, 3, 6).astype(float)
        y[0] = 2.0
        if kind == "err":
            scores = rng.permutation(6).astype(float)
        values = [
            compute_one(kind, y, order, k, 2)
            for order in permutations(range(6))
            if (np.diff(scores[list(order)]) <= 0).all()
        ]
        rows = RowData(y[:, None], query=np.zeros(6, np.int64))
        assert evaluate(f"{kind}@{k}", rows, scores) == pytest.approx(np.mean(values), abs=1e-12)


def test_err_takes_the_largest_gain_of_the_training_rows():
    rows = RowData(np.array([[1.0], [0.0]]), query=np.zeros(2, np.int64))
    training = RowData(np.array([[4.0], [0.0]]), query=np.zeros(2, np.int64))
    metric, scores = get_metric("err", XeNdcg()), np.array([1.0, 0.0])
    assert metric.bind(rows)(scores) == pytest.approx(1 / 2)
    assert metric.bind(rows, training)(scores) == pytest.approx(1 / 16)


@pytest.mark.parametrize("kind", KINDS)
def test_queries_without_relevant_rows(kind):
    query = np.array([0, 0, 1, 1])
    rows = RowData(np.array([[2.0], [0.0], [0.0], [0.0]]), query=query)
    scores = np.array([1.0, 0.0, 0.5, 0.0])
    whole = 0.5 if kind == "precision" else 0.75 if kind == "err" else 1.0
    for empty, expected in (("one", (whole + 1) / 2), ("zero", whole / 2), ("skip", whole)):
        metric = get_metric(QueryMetric(kind, empty=empty))
        assert metric(rows, scores) == pytest.approx(expected), empty
    default = QueryMetric(kind)(rows, scores)
    assert default == pytest.approx((whole + (kind in ("ndcg", "map"))) / 2)
    none = rows.replace(target=np.zeros((4, 1)))
    assert np.isnan(QueryMetric(kind, empty="skip")(none, scores))


@pytest.mark.parametrize("kind", KINDS)
def test_order_of_rows_does_not_matter(kind):
    rows, scores = make_rows(n_goals=2, empty=True)
    scores = np.round(scores, 1)
    order = np.random.default_rng(0).permutation(rows.n_rows)
    metric = get_metric(f"{kind}@5" if kind != "err" else kind, XeNdcg())
    assert metric(rows.take(order), scores[order]) == metric(rows, scores)


# --- goals and weights ---


def test_goals_are_averaged():
    rows, scores = make_rows(n_goals=3)
    metric = get_metric("ndcg@5", XeNdcg())
    value, each = metric.bind(rows).value_and_per_output(scores)
    assert value == pytest.approx(each.mean())
    np.testing.assert_array_equal(each, metric.bind(rows).per_output(scores))
    for k in range(3):
        assert each[k] == metric(rows.column(k), scores[:, k])


@pytest.mark.parametrize("kind", KINDS)
def test_rows_without_weight_are_left_out(kind):
    rows, scores = make_rows(n_goals=3)
    weight = np.random.default_rng(0).choice([0.0, 1.0], rows.target.shape)
    weight[:, 2], rows.target[weight == 0] = 0.0, 9.0
    metric = get_metric(kind, XeNdcg())
    value, each = metric.bind(rows.replace(weight=weight)).value_and_per_output(scores)
    for k in range(2):
        known = weight[:, k] > 0
        part = RowData(rows.target[known, k], query=rows.query[known])
        assert each[k] == pytest.approx(metric(part, scores[known, k]), abs=1e-14)
    assert np.isnan(each[2]) and value == pytest.approx(each[:2].mean())


def test_goal_weights_average_goals():
    rows, scores = make_rows(n_goals=2)
    scores = np.hstack([scores, scores[:, :1] + scores[:, 1:]])
    objective = LambdaRank(goal_weights=((1.0, 0.0), (0.0, 2.0), (1.0, 3.0)))
    value, each = get_metric("ndcg@5", objective).bind(rows).value_and_per_output(scores)
    single = [[evaluate("ndcg@5", rows.column(k), s) for k in range(2)] for s in scores.T]
    expected = [single[0][0], single[1][1], single[2][0] / 4 + single[2][1] * 3 / 4]
    np.testing.assert_allclose(each, expected, rtol=1e-12)
    assert value == pytest.approx(np.mean(expected))


def test_names():
    objective = XeNdcg(gains="linear")
    assert get_metrics(None, objective)[0].name == "ndcg@10"
    assert get_metric("pre@3", objective).name == get_metric("p@3", objective).name == "precision@3"
    assert get_metric("NDCG@7-", objective).name == "ndcg@7-"
    assert get_metric("ndcg@7", objective).function.gains == "linear"
    assert get_metric("ndcg@7").function != get_metric("ndcg@7", objective).function
    assert parse_query_metric("ndcg@0") is None
    with pytest.raises(ValueError, match="Unknown metric"):
        get_metric("ndcg@x", objective)
    with pytest.raises(ValueError, match="pass qid"):
        get_metric("ndcg@7", objective).bind(RowData(np.zeros((2, 1))))
    for options in ({"kind": "dcg"}, {"kind": "map", "empty": "two"}):
        with pytest.raises(ValueError, match="must be"):
            QueryMetric(**options)


def test_options_in_a_fit():
    rows, _ = make_rows(empty=True)
    X = np.random.default_rng(0).normal(size=(rows.n_rows, 3))
    metrics = [QueryMetric("ndcg", 5, empty="skip"), "ndcg@5-", "mrr"]
    model = PolyleafRanker(n_estimators=3, eval_metric=metrics)
    y = rows.target[:, 0]
    model.fit(X, y, qid=rows.query, eval_set=[(X, y)], eval_qid=[rows.query])
    log = model.evals_result_["validation_0"]
    assert list(log) == ["ndcg@5", "ndcg@5-", "mrr"]
    assert log["ndcg@5"][-1] == metrics[0](rows, model.predict(X))
