"""Position bias: its steps by the reference, clicks that it makes up for, and what must not
matter."""

import numpy as np
import pytest
from reference import ranking as reference
from support.distributed_fits import fit_on_threads

from polyleaf import PolyleafRanker, PolyleafRankerCV, RowData, blend, load_model
from polyleaf.metrics.queries import QueryMetric

OBJECTIVES = ["xendcg", "lambdarank", "pairwise", "yetirank"]
N_QUERIES, N_SHOWN = 1_000, 8
SMALL = {"n_estimators": 6, "max_leaves": 6, "n_jobs": 1}


def simulate(seed=0, n_queries=N_QUERIES):
    """Return X, relevance, clicks, positions and queries.

    Products are shown in the order of a column that says nothing about relevance, such as the
    price. Users look at position p with the probability 1 / p, and click relevant products.
    """
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_queries, N_SHOWN, 5))
    score = X[..., 0] + X[..., 1] * (X[..., 2] > 0)
    relevance = np.digitize(score, [-0.5, 0.7, 1.5, 2.3])
    price = 4 * X[..., 4] + rng.normal(size=score.shape)
    position = 1 + np.argsort(np.argsort(-price, axis=1), axis=1)
    chance = (0.05 + 0.95 * (2.0**relevance - 1) / 15) / position
    clicks = rng.random(chance.shape) < chance
    query = np.repeat(np.arange(n_queries), N_SHOWN)
    return X.reshape(-1, 5), *(
        np.ravel(a).astype(int) for a in (relevance, clicks, position, query)
    )


X, RELEVANCE, CLICKS, POSITION, QUERY = simulate()
GOALS = np.column_stack([CLICKS, RELEVANCE])


def fit(objective="lambdarank", y=CLICKS, positions=POSITION, **parameters):
    model = PolyleafRanker(objective, **{**SMALL, **parameters})
    return model.fit(X, y, qid=QUERY, positions=positions)


@pytest.mark.parametrize(
    "parameters",
    [
        {"learning_rate": 0.3},
        {"goal_weights": ((1.0, 0.0), (0.6, 0.4), (0.0, 1.0))},
        {"reg_lambda": 0.0, "subsample": 0.5},
        {"position_lambda": 0.02},
        {"position_lambda": 0.02, "multi_strategy": "one_output_per_tree"},
        {"multi_strategy": "one_output_per_tree"},
        {"grow_policy": "depthwise", "leaf": "linear"},
    ],
)
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_steps_of_the_reference(objective, parameters):
    y = GOALS if parameters.keys() & {"goal_weights", "multi_strategy"} else CLICKS
    model = fit(objective, y, **parameters)
    bound = model.model_.objective.bind(RowData(y.reshape(len(y), -1), query=QUERY))
    bias = np.zeros((N_SHOWN, bound.n_outputs), np.float32)
    scores = np.zeros((len(X), bound.n_outputs), np.float32)
    for round in range(SMALL["n_estimators"]):
        seen = scores + bias[POSITION - 1]
        g, h = np.empty_like(seen), np.empty_like(seen)
        bound.derivatives(seen, g, h)
        penalties = model.reg_lambda, bias, model.position_lambda
        rate = model.model_.learning_rate
        bias += reference.position_step(g, h, POSITION - 1, rate, *penalties)
        scores = model.predict_raw(X, iteration_range=(0, round + 1)).reshape(scores.shape)
        scores = scores.astype(np.float32)
    np.testing.assert_array_equal(model.position_bias_, bias)
    np.testing.assert_array_equal(model.positions_, np.arange(1, N_SHOWN + 1))


def test_a_penalty_without_hessians():
    plain, penalised = (fit(hessian="none", position_lambda=x).position_bias_ for x in (0, 1e3))
    assert np.abs(penalised).max() < 1e-2 * np.abs(plain).max()


def test_a_penalty_makes_the_bias_smaller():
    sizes = [
        np.abs(fit("xendcg", n_estimators=40, position_lambda=penalty).position_bias_).max()
        for penalty in (0.0, 0.01, 0.1, 1e6)
    ]
    assert sizes[0] > 1.1 * sizes[1] > 1.3 * sizes[2] > 1e3 * sizes[3]


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_one_position_is_none(objective):
    model = fit(objective, positions=np.full(len(X), 3))
    np.testing.assert_array_equal(model.predict(X), fit(objective, positions=None).predict(X))
    np.testing.assert_array_equal(model.position_bias_, [[0.0]])


@pytest.mark.parametrize("parameters", [{"n_estimators": 60}, {"n_estimators": None}])
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_clicks_of_an_order_without_relevance(objective, parameters):
    """NDCG by relevance is higher, also with numbers of rounds and members by held-out clicks."""
    X_new, relevance, _, _, query = simulate(seed=1)
    metric = QueryMetric("ndcg", 5).bind(RowData(relevance[:, None], query=query))
    models = [fit(objective, positions=p, random_state=0, **parameters) for p in (None, POSITION)]
    biased, unbiased = (metric(model.predict(X_new)) for model in models)
    assert unbiased > biased + 0.05
    bias = models[1].position_bias_[:, 0]
    assert (np.diff(bias[[0, 1, 3, 7]]) < 0).all()


def test_order_of_rows_and_threads_do_not_matter():
    model = fit(y=GOALS)
    order = np.random.default_rng(0).permutation(len(X))
    for n_jobs in (1, 3):
        moved = PolyleafRanker("lambdarank", **{**SMALL, "n_jobs": n_jobs})
        moved.fit(X[order], GOALS[order], qid=QUERY[order], positions=POSITION[order])
        np.testing.assert_array_equal(moved.predict(X), model.predict(X))
        np.testing.assert_array_equal(moved.position_bias_, model.position_bias_)


@pytest.mark.parametrize("judged", [False, True])
def test_a_search_trains_with_positions(judged):
    """The candidates, whose scores are those of fits, and the final fit."""
    X_new, relevance, _, _, query = simulate(seed=1, n_queries=100)
    search = PolyleafRankerCV("lambdarank", n_candidates=2, n_estimators=6, n_jobs=1)
    evaluated = {"eval_set": [(X_new, relevance)], "eval_qid": [query]} if judged else {}
    search.fit(X, CLICKS, qid=QUERY, positions=POSITION, **evaluated)
    assert search.position_bias_.any()
    if judged:
        best = fit(**{"max_leaves": 31} | search.best_params_)
        metric = QueryMetric("ndcg", 10).bind(RowData(relevance[:, None], query=query))
        assert search.best_score_ == metric(best.predict(X_new))


def test_continued_training_and_refit(tmp_path):
    whole = fit(n_estimators=9)
    first = fit(n_estimators=4)
    first.save_model(tmp_path / "first")
    first = load_model(tmp_path / "first")
    more = PolyleafRanker("lambdarank", **{**SMALL, "n_estimators": 5})
    more.fit(X, CLICKS, qid=QUERY, positions=POSITION, init_model=first)
    again = fit(n_estimators=9).refit(X, CLICKS, qid=QUERY, positions=POSITION)
    for model in (more, again):
        np.testing.assert_array_equal(model.predict(X), whole.predict(X))
        np.testing.assert_array_equal(model.position_bias_, whole.position_bias_)
    for model in (fit(positions=None), blend([first, whole])):
        assert model.position_bias_ is None


def test_bias_of_the_best_round():
    """Early stopping keeps it beside that of the last round, from which training goes on."""
    X_new, relevance, _, _, query = simulate(seed=1, n_queries=50)
    val = {"X_val": X_new, "y_val": relevance, "qid_val": query}
    stopped = PolyleafRanker("lambdarank", n_estimators=60, learning_rate=0.3, n_jobs=1)
    stopped.set_params(early_stopping_rounds=3)
    stopped.fit(X, CLICKS, qid=QUERY, positions=POSITION, **val)
    n_best = stopped.best_iteration_ + 1
    assert n_best < stopped.n_iter_
    expected = [
        PolyleafRanker("lambdarank", n_estimators=n, learning_rate=0.3, n_jobs=1)
        .fit(X, CLICKS, qid=QUERY, positions=POSITION)
        .position_bias_
        for n in (n_best, stopped.n_iter_)
    ]
    np.testing.assert_array_equal(stopped.position_bias_, expected[0])
    stopped.refit(X, CLICKS, qid=QUERY, positions=POSITION)
    np.testing.assert_array_equal(stopped.position_bias_, expected[0])
    stopped.model_.best_iteration = None
    np.testing.assert_array_equal(stopped.position_bias_, expected[1])
    stopped.model_.truncate(n_best - 1)
    assert stopped.position_bias_ is None
    assert fit().refit(X, CLICKS, qid=QUERY).position_bias_ is None


def test_replayed_rounds_have_the_same_bias():
    estimator = PolyleafRanker("lambdarank", **SMALL)
    whole = fit_on_threads(estimator, X, CLICKS, 2, qid=QUERY, positions=POSITION)[0]
    part = whole.model_.copy()
    part.truncate(4)
    again = fit_on_threads(
        estimator, X, CLICKS, 3, qid=QUERY, positions=POSITION, resume_from=part
    )[0]
    assert again.save_model() == whole.save_model()


def test_a_penalty_needs_positions():
    with pytest.raises(ValueError, match=r"position_lambda=.* has no effect without positions"):
        fit(positions=None, position_lambda=0.1)


def test_offsets_are_added():
    offset = np.random.default_rng(0).normal(size=len(X))
    shifted = PolyleafRanker("lambdarank", **SMALL)
    shifted.fit(X, CLICKS, qid=QUERY, positions=np.ones(len(X), int), offset=offset)
    plain = PolyleafRanker("lambdarank", **SMALL).fit(X, CLICKS, qid=QUERY, offset=offset)
    np.testing.assert_array_equal(shifted.model_.predict_raw(X), plain.model_.predict_raw(X))


@pytest.mark.parametrize(
    ("positions", "message"),
    [
        (POSITION[:-1], "positions has .* entries"),
        (POSITION + 0.5, "positions must be integers"),
        (POSITION.astype(str), "positions must be integers"),
        (POSITION.astype(np.uint64) + np.uint64(2**63), "positions must be at most"),
    ],
)
def test_wrong_positions(positions, message):
    with pytest.raises(ValueError, match=message):
        fit(positions=positions)
