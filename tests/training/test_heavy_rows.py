"""Weights and exposures over many orders of magnitude: other rows keep their influence."""

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from polyleaf import PolyleafClassifier, PolyleafRegressor, _core
from polyleaf.runtime.collective import ThreadCommunicator
from polyleaf.runtime.context import Context
from polyleaf.training.raw_scores import MAX_RATIO, ROUNDING_RATIO, HeavyRows, limit_weights
from polyleaf.training.sampling import TreeSample

N = 1500
RNG = np.random.default_rng(0)
X, X_TEST = RNG.standard_normal((2, N, 4))
NOISE = 0.1 * RNG.standard_normal(N)
SAMPLE = TreeSample(3, None, None, None)


def truth(X):
    return np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2]


def r2(predictions, true):
    return 1 - np.mean((predictions - true) ** 2) / true.var()


def make_weights(weight, n=N):
    values = np.ones(n)
    values[0] = weight
    return values


def fit(weight=None, **parameters):
    settings = {"n_estimators": 60, "n_jobs": 1} | parameters
    return PolyleafRegressor(**settings).fit(X, truth(X) + NOISE, sample_weight=weight)


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"leaf": "linear"},
        {"min_child_weight": 0},
        {"boosting_step": "layer", "grow_policy": "depthwise", "max_depth": 5},
        {"hessian": "none", "leaf_hessian": "none"},
        {"sampling_method": "goss", "top_rate": 0.4, "other_rate": 0.4},
    ],
    ids=lambda parameters: next(iter(parameters), "defaults"),
)
@pytest.mark.parametrize("weight", [1e5, 1e10])
def test_one_heavy_row_does_not_dominate(weight, parameters):
    plain = r2(fit(**parameters).predict(X_TEST), truth(X_TEST))
    found = r2(fit(make_weights(weight), **parameters).predict(X_TEST), truth(X_TEST))
    assert found > plain - 0.03


def test_weights_per_output():
    """Check a heavy row of one output, and of both outputs."""
    Y = np.column_stack([truth(X), truth(X[:, ::-1])])
    true = np.column_stack([truth(X_TEST), truth(X_TEST[:, ::-1])])
    for columns in ([0], [0, 1]):
        weight = np.ones(Y.shape)
        weight[0, columns] = 1e7
        model = PolyleafRegressor(n_estimators=60, n_jobs=1).fit(X, Y, sample_weight=weight)
        assert r2(model.predict(X_TEST), true) > 0.7  # 0.77 without weights


def test_classes_of_heavy_rows():
    y = (truth(X) > 0).astype(int) + (truth(X) > 1)
    model = PolyleafClassifier(n_estimators=40, n_jobs=1).fit(X, y, sample_weight=make_weights(1e5))
    assert model.score(X_TEST, (truth(X_TEST) > 0).astype(int) + (truth(X_TEST) > 1)) > 0.8


@pytest.mark.parametrize("spread", [3.0, 8.0])
def test_exposures_over_many_orders_of_magnitude(spread):
    exposure = np.exp(spread * np.random.default_rng(1).standard_normal(N))
    counts = np.random.default_rng(2).poisson(np.exp(truth(X)) * exposure)
    model = PolyleafRegressor(objective="poisson", n_estimators=150, n_jobs=1)
    model.fit(X, counts, offset=np.log(exposure))
    assert r2(np.log(model.predict(X_TEST, offset=np.zeros(N))), truth(X_TEST)) > 0.75


def test_limited_weights_are_reported():
    with pytest.warns(UserWarning, match="1 rows have so much of the weight"):
        fit(make_weights(1e10), n_estimators=2)
    labels = csr_matrix(np.eye(5)[np.arange(N) % 5])
    model = PolyleafClassifier(leaf="sparse", objective="squared_hinge", n_estimators=2)
    with pytest.warns(UserWarning, match="1 rows have so much of the weight"):
        model.fit(X, labels, sample_weight=make_weights(1e10))


def test_heavy_tails_of_weights():
    weight = np.exp(6 * np.random.default_rng(3).standard_normal(N))
    assert r2(fit(weight).predict(X_TEST), truth(X_TEST)) > 0.7


@pytest.mark.parametrize("half_life", [30, 17, 10, 7, 3])
@pytest.mark.filterwarnings("error")
def test_weights_with_a_half_life_give_weighted_means(half_life):
    age = np.arange(3 * 365)[::-1]
    weight, x = 0.5 ** (age / half_life), np.arange(len(age)) % 2
    weight /= weight.mean()
    y = np.where(age < 6 * half_life, 1.0, -1.0) * x
    model = PolyleafRegressor(n_estimators=100, n_jobs=1).fit(x[:, None], y, sample_weight=weight)
    means = [np.average(y[x == value], weights=weight[x == value]) for value in (0, 1)]
    np.testing.assert_allclose(model.predict([[0], [1]]), means, atol=0.01)


def test_rows_of_certain_outcome_do_not_hide_the_others():
    rng = np.random.default_rng(0)
    x, is_certain = rng.integers(0, 2, 4000), np.arange(4000) % 2 == 1
    y = (rng.random(4000) < np.where(x == 1, 0.9, 0.1)) & ~is_certain
    model = PolyleafClassifier(n_estimators=100, n_jobs=1)
    model.fit(x[:, None], y, offset=np.where(is_certain, -25.0, 0.0))
    shares = [y[(x == value) & ~is_certain].mean() for value in (0, 1)]
    found = model.predict_proba([[0], [1]], offset=np.zeros(2))[:, 1]
    np.testing.assert_allclose(found, shares, atol=0.03)


def test_exposures_of_two_sizes():
    rng = np.random.default_rng(0)
    x, offset = rng.integers(0, 2, 4000), np.where(np.arange(4000) % 2, -22.0, 20.0)
    counts = rng.poisson(np.exp(offset) * np.where(x == 1, 2.23, 0.449))
    model = PolyleafRegressor(objective="poisson", n_estimators=100, n_jobs=1)
    model.fit(x[:, None], counts, offset=offset)
    found = model.predict([[0], [1]], offset=np.zeros(2))
    np.testing.assert_allclose(found, [0.449, 2.23], rtol=0.03)


def test_ordinary_weights_are_not_changed():
    size = RNG.uniform(1.0, 2000.0, (N, 2)).astype(np.float32)
    size[7] = 0
    assert HeavyRows.find(size, None, 0, Context(1)) is None
    assert HeavyRows.find(np.zeros((3, 1), np.float32), None, 0, Context(1)) is None


def test_factors_limit_heavy_rows_only():
    size = np.ones((N, 1), np.float32)
    size[:3, 0] = 2.0**20, 2.0**15, 0
    factor = HeavyRows.find(size, None, 0, Context(1)).factor
    assert factor[0] == MAX_RATIO / 2.0**20
    assert (factor[1:] == 1).all()
    assert limit_weights(size[:, 0])[0] == ROUNDING_RATIO


@pytest.mark.parametrize("uses_multiplier", [False, True])
def test_rounding_is_unbiased_and_equals_quantisation_of_the_core(uses_multiplier):
    values = np.full((20_000, 2), 0.3, np.float32)
    values[0] = 32767.0, -2.0 * 32767
    multiplier = np.full(len(values), 4.0, np.float32) if uses_multiplier else None
    sample = SAMPLE._replace(multiplier=multiplier)
    rounded = HeavyRows(None, None, 0, Context(1)).round(values, sample, None, 0)
    integers = np.rint(rounded / np.array([1.0, 2.0]))
    np.testing.assert_allclose(rounded, integers * [1.0, 2.0], rtol=1e-6)
    assert np.isin(integers[1:], [0, 1]).all()
    np.testing.assert_allclose(integers[1:].mean(axis=0), [0.3, 0.15], atol=0.01)
    quantised = _core.QuantisedGradients()
    quantised.quantise(rounded, None, "unit", None, multiplier, 1)
    assert np.array_equal(quantised.dense()[:, :2], integers)


def test_rounding_is_independent_of_ranks():
    values = np.exp(8 * RNG.standard_normal((N, 1))).astype(np.float32)
    ids, half = np.arange(N), N // 3
    alone = HeavyRows.find(values, None, 5, Context(2))

    def run_rank(communicator):
        part = slice(0, half) if communicator.rank == 0 else slice(half, N)
        found = HeavyRows.find(values[part], ids[part], 5, Context(1, communicator))
        return found.factor, found.round(values[part], SAMPLE, None, 0)

    parts = ThreadCommunicator.run(2, run_rank)
    assert np.array_equal(np.concatenate([factor for factor, _ in parts]), alone.factor)
    together = np.concatenate([rounded for _, rounded in parts])
    assert np.array_equal(together, alone.round(values, SAMPLE, None, 0))


@pytest.mark.parametrize("search", ["count_sketch", "exact"])
def test_heavy_row_of_sparse_labels(search):
    group = np.random.default_rng(4).integers(0, 5, N)
    rows = X[:, :2] + 4.0 * np.random.default_rng(5).standard_normal((5, 2))[group]
    Y = csr_matrix(np.eye(5)[group])
    settings = {"leaf": "sparse", "leaf_k": 2, "objective": "squared_hinge", "n_estimators": 20}
    model = PolyleafClassifier(split_search=search, n_jobs=1, **settings)
    model.fit(rows, Y, sample_weight=make_weights(1e8))
    assert np.mean(model.predict_topk(rows, 1)[0][:, 0] == group) > 0.9


def test_measured_weights_reuse_derivatives():
    n_calls = []

    def count(y, z):
        n_calls.append(1)
        return z - y, np.ones_like(y)

    model = PolyleafRegressor(objective=count, n_estimators=4, n_jobs=1)
    y = truth(X) + NOISE
    model.fit(X, y)
    n_alone, n_calls[:] = len(n_calls), []
    model.fit(X, y, sample_weight=np.ones(N))
    assert len(n_calls) == n_alone
