"""Training on sparse gradients equals the reference: searches, leaves, derivatives, models."""

from dataclasses import replace

import numpy as np
import pytest
import reference
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import extreme_multilabel
from support.core_settings import grow_config, leaf_config
from support.pairwise import parametrize_pairs
from support.problems import as_reference_tree, assert_same_tree, core_bins

from polyleaf import PolyleafClassifier, PolyleafRegressor, RowData, _core
from polyleaf.model import storage
from polyleaf.objectives import SquaredError, SquaredHinge
from polyleaf.objectives.sparse_multilabel import BoundSparseObjective
from polyleaf.settings import presets
from polyleaf.user_data.features import read_features

SEED = 2**63 + 5  # seed of the row samples of large nodes


class Problem:
    """Random codes whose first features determine the outputs of a row; `draw` is the seed."""

    def __init__(
        self, draw, n=400, n_bins=(5, 40, 12, 3, 90), categorical=(), n_outputs=30, missing=0.1
    ):
        rng = np.random.default_rng(draw)
        codes = np.stack([rng.integers(0, b, n) for b in n_bins])
        chance = np.where(rng.random((n_bins[0], n_outputs)) < 0.2, 0.7, 0.05)
        held = rng.random((n, n_outputs)) < chance[codes[0]]
        g = np.where(held, rng.normal(-1, 0.4, held.shape), 0).astype(np.float32)
        codes = np.where(rng.random(codes.shape) < missing, reference.MISSING, codes)
        is_categorical = np.isin(np.arange(len(n_bins)), categorical)
        self.data = codes.astype(np.uint8), np.array(n_bins, np.uint16), is_categorical
        self.gradients = extreme_multilabel.Gradients(g)
        self.numbers = None  # row IDs; None: row numbers
        self.rng = rng

    def weighted(self):
        weight = self.rng.uniform(0.2, 3, len(self.gradients.g)).astype(np.float32)
        g = self.gradients.g * weight[:, None]
        self.gradients = replace(self.gradients, g=g, weight=weight)
        return self

    def sampled(self, multiplied=True):
        n = len(self.gradients.g)
        rows = np.flatnonzero(self.rng.random(n) < 0.7).astype(np.uint32)
        multiplier = None
        if multiplied:
            multiplier = np.where(self.rng.random(n) < 0.5, 1, 3.7).astype(np.float32)
        self.gradients = replace(self.gradients, rows=rows, multiplier=multiplier)
        return self


VARIANTS = {
    "plain": lambda p: p,
    "weighted": Problem.weighted,
    "sampled": lambda p: p.sampled(multiplied=False),
    "goss": Problem.sampled,
    "weighted goss": lambda p: p.weighted().sampled(),
}


def core_gradients(g, n_threads=1):
    rows = sp.csr_matrix(g)
    indptr, indices = rows.indptr.astype(np.int64), rows.indices.astype(np.int32)
    return _core.SparseGradients(indptr, indices, rows.data, g.shape[1], n_threads)


def make_sketch(problem, d=8):
    """Return channels of a sketch: kind, sketch (n, d), Hessian (n, 1) or None."""
    p = problem.gradients
    g = core_gradients(p.g).count_sketch(d, 7, 0.5, 1)
    if p.weight is None and p.multiplier is None:
        return "unit", g, None
    weight = np.ones(len(g), np.float32) if p.weight is None else p.weight
    return "shared", g, weight[:, None]


def core_tree(problem, search, config, leaf_k, step, stored=(), n_threads=1, **options):
    """Grow a tree; `stored` features are stored by their non-zeros."""
    p, features = problem.gradients, options.get("features")
    threshold_step = options.get("threshold_step", 0.05)
    bins = core_bins(*problem.data, stored, n_threads)
    gradients, settings = core_gradients(p.g, n_threads), grow_config(config)
    step = leaf_config(step)
    if search == "exact":
        chosen = _core.ExactSearch(bins, n_threads)
        chosen.use(gradients, p.weight, p.rows, p.multiplier, step, leaf_k, threshold_step)
    else:
        kind, g, h = make_sketch(problem)
        channels = _core.QuantisedGradients(g, h, kind, p.rows, p.multiplier, n_threads)
        chosen = _core.VerifiedSearch(_core.HistogramSearch(bins, n_threads), n_threads)
        chosen.use(gradients, p.weight, channels, step, leaf_k, problem.numbers, SEED)
    grower = _core.Grower(bins, n_threads)
    tree = grower.grow(chosen, settings, features)
    return as_reference_tree(tree), np.array(grower.leaf_of_row)


def reference_tree(problem, search, config, leaf_k, step, threshold_step=0.05, features=None):
    p = problem.gradients
    codes, n_bins, is_categorical = problem.data
    data = codes if p.rows is None else codes[:, p.rows], n_bins, is_categorical
    if search == "exact":
        chosen = extreme_multilabel.ExactSearch(data, p, step, leaf_k, config, threshold_step)
    else:
        kind, g, h = make_sketch(problem)
        channels = reference.quantise(g, h, kind, p.rows, p.multiplier)
        n = len(p.g)
        numbers = np.arange(n) if problem.numbers is None else problem.numbers
        numbers = numbers if p.rows is None else numbers[p.rows]
        given = data, p, step, leaf_k, config, channels, numbers, SEED
        chosen = extreme_multilabel.VerifiedSearch(*given)
    tree = reference.grow(*problem.data, chosen, config, p.rows, features)
    return tree, reference.leaf_of_row(tree, codes)


def assert_same_growth(problem, search, config, leaf_k=4, step=None, stored=(), **options):
    step = extreme_multilabel.Step(reg_lambda=config.reg_lambda) if step is None else step
    growth = problem, search, config, leaf_k, step
    expected = reference_tree(*growth, **options)
    for n_threads in (1, 2, 3):
        tree, leaf_of_row = core_tree(*growth, stored, n_threads, **options)
        assert_same_tree(tree, expected[0])
        np.testing.assert_array_equal(leaf_of_row, expected[1])
    return expected[0]


def make_config(**changes):
    usual = {"max_leaves": 9, "min_child_samples": 12, "level_wise": True}
    return reference.GrowConfig(**usual | changes)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("search", ["count_sketch", "exact"])
def test_trees_equal_the_reference(search, variant):
    problem = VARIANTS[variant](Problem(3))
    tree = assert_same_growth(problem, search, make_config())
    assert tree.n_leaves > 3


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("search", ["count_sketch", "exact"])
def test_sparse_features(search, variant):
    problem = VARIANTS[variant](Problem(3))
    for stored in ((1, 3, 4), (0, 1, 2, 3, 4)):
        assert assert_same_growth(problem, search, make_config(), stored=stored).n_leaves > 3


@pytest.mark.parametrize("search", ["count_sketch", "exact"])
@pytest.mark.parametrize(
    "changes",
    [
        {"level_wise": False},
        {"max_depth": 3, "max_leaves": 8},
        {"min_child_weight": 60.0},
        {"colsample_bynode": 0.5, "seed": 9},
        {"min_split_gain": 0.05},
        {"post_prune": True, "min_split_gain": 0.4},
        {"reg_lambda": 0.0},
    ],
)
def test_growth_limits(search, changes):
    assert_same_growth(Problem(4).weighted(), search, make_config(**changes))


@pytest.mark.parametrize("search", ["count_sketch", "exact"])
@pytest.mark.parametrize("step", [{"reg_alpha": 3.0}, {"max_delta_step": 0.3}])
def test_max_delta_step(search, step):
    assert_same_growth(Problem(5), search, make_config(), step=extreme_multilabel.Step(**step))


@pytest.mark.parametrize("leaf_k", [1, 2, 29, 30, 99])
@pytest.mark.parametrize("search", ["count_sketch", "exact"])
def test_leaf_k(search, leaf_k):
    assert_same_growth(Problem(6), search, make_config(max_leaves=4), leaf_k=leaf_k)


@pytest.mark.parametrize("threshold_step", [0.0, 0.02, 0.3, 0.9])
def test_thresholds_of_the_exact_search(threshold_step):
    assert_same_growth(Problem(7), "exact", make_config(), threshold_step=threshold_step)


def test_coarser_thresholds_change_trees():
    """Otherwise the test above would not detect an ignored step."""
    growth = Problem(7), "exact", make_config(), 4, extreme_multilabel.Step()
    fine, coarse = (reference_tree(*growth, threshold_step=s) for s in (0.0, 0.3))
    assert not np.array_equal(fine[0].threshold, coarse[0].threshold)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("search", ["count_sketch", "exact"])
def test_gain_factors(search, variant):
    problem = VARIANTS[variant](Problem(3))
    factors = np.ones(len(problem.data[1]), np.float32)
    factors[[0, 2]] = 0.1, 0.6
    tree = assert_same_growth(problem, search, make_config(factors=factors))
    plain = assert_same_growth(problem, search, make_config())
    assert tree.n_leaves > 3 and not np.array_equal(tree.feature, plain.feature)


@pytest.mark.parametrize("search", ["count_sketch", "exact"])
def test_feature_subset(search):
    features = np.array([False, True, True, False, True])
    tree = assert_same_growth(Problem(8), search, make_config(), features=features)
    assert set(tree.feature[tree.feature >= 0]) <= {1, 2, 4}


@pytest.mark.parametrize("search", ["count_sketch", "exact"])
@pytest.mark.parametrize("missing", [0.0, 0.6])
def test_missing_values(search, missing):
    assert_same_growth(Problem(9, missing=missing), search, make_config())


@pytest.mark.parametrize("variant", VARIANTS)
def test_large_nodes_are_sampled(variant, monkeypatch):
    problem = VARIANTS[variant](Problem(12, n=9000))
    tree = assert_same_growth(problem, "count_sketch", make_config(max_leaves=6))
    monkeypatch.setattr(extreme_multilabel, "SAMPLED_ROWS", 10**9)
    step = extreme_multilabel.Step(reg_lambda=1.0)
    by_all, _ = reference_tree(problem, "count_sketch", make_config(max_leaves=6), 4, step)
    assert tree.gain[0] != by_all.gain[0]
    # A sample of 4,096 of 9,000 rows changes the gain by 2 to 11 per cent in these problems.
    np.testing.assert_allclose(tree.gain[0], by_all.gain[0], rtol=0.15)
    assert tree.cover[0] == by_all.cover[0]


def test_samples_depend_on_row_ids():
    """Permuted rows with the same IDs give the same trees."""
    problem, growth = Problem(12, n=9000), ("count_sketch", make_config(max_leaves=6))
    tree = assert_same_growth(problem, *growth)
    order = problem.rng.permutation(9000)
    codes, *about = problem.data
    moved = Problem(12, n=9000)
    moved.data = codes[:, order], *about
    moved.gradients = replace(problem.gradients, g=problem.gradients.g[order])
    moved.numbers = order
    assert_same_tree(assert_same_growth(moved, *growth), tree)
    moved.numbers = None
    assert assert_same_growth(moved, *growth).gain[0] != tree.gain[0]


def test_categorical_features():
    problem = Problem(10, n_bins=(9, 40, 4), categorical=(0, 2))
    tree = assert_same_growth(problem, "count_sketch", make_config(max_leaves=12))
    assert (tree.category_set >= 0).any()


def test_more_tiles_than_candidates():
    """Ninety features make twelve tiles; the splits of six are verified."""
    problem = Problem(11, n=300, n_bins=(5,) * 90)
    assert_same_growth(problem, "count_sketch", make_config(max_leaves=4))


@pytest.mark.full
@pytest.mark.parametrize("search", ["count_sketch", "exact"])
def test_nodes_of_several_row_blocks(search):
    problem = Problem(12, n=9000, n_bins=(5, 30)).sampled()
    assert_same_growth(problem, search, make_config(max_leaves=4))


@settings(max_examples=60, deadline=None)
@given(
    draw=st.integers(0, 2**32 - 1),
    search=st.sampled_from(["count_sketch", "exact"]),
    variant=st.sampled_from(sorted(VARIANTS)),
    n=st.sampled_from([1, 2, 25, 80]),
    n_outputs=st.sampled_from([1, 2, 17]),
    leaf_k=st.sampled_from([1, 3, 17]),
    missing=st.sampled_from([0.0, 0.3, 1.0]),
    least=st.sampled_from([1, 4]),
)
def test_random_problems(draw, search, variant, n, n_outputs, leaf_k, missing, least):
    problem = Problem(draw, n=n, n_bins=(5, 2), n_outputs=n_outputs, missing=missing)
    problem = VARIANTS[variant](problem)
    rows = problem.gradients.rows
    if rows is not None and len(rows) == 0:
        return
    config = make_config(min_child_samples=least, max_leaves=5)
    assert_same_growth(problem, search, config, leaf_k)


def test_constant_features_give_one_leaf():
    problem = Problem(13, n_bins=(1, 1), missing=0.0)
    for search in ("count_sketch", "exact"):
        assert assert_same_growth(problem, search, make_config()).n_leaves == 1


# --- leaves ---


def assert_same_leaves(core, expected):
    for name in ("indptr", "outputs", "values"):
        a, b = np.asarray(getattr(core, name)), getattr(expected, name)
        assert a.dtype == b.dtype, name
        np.testing.assert_array_equal(a, b, err_msg=name)


@parametrize_pairs(
    variant=VARIANTS,
    leaf_k=[1, 4, 40],
    step=[{}, {"reg_alpha": 4.0}, {"max_delta_step": 0.2, "learning_rate": 0.1}],
)
def test_leaves_equal_the_reference(variant, leaf_k, step):
    p = VARIANTS[variant](Problem(14)).gradients
    leaf_of_row = np.random.default_rng(0).integers(0, 6, len(p.g)).astype(np.int32)
    leaf_of_row[leaf_of_row == 4] = 5  # a leaf without rows
    step = extreme_multilabel.Step(**step)
    expected = extreme_multilabel.fit_topk_leaves(p, leaf_of_row, 6, leaf_k, step)
    for n_threads in (1, 3):
        args = p.weight, leaf_of_row, 6, leaf_k, leaf_config(step), p.rows, p.multiplier
        found = _core.fit_topk_leaves_sparse(core_gradients(p.g), *args, n_threads)
        assert_same_leaves(found, expected)


def test_ties_of_leaf_sums_keep_the_first_outputs():
    g = np.full((10, 6), -1, np.float32)
    p = extreme_multilabel.Gradients(g)
    given = np.zeros(10, np.int32), 1, 2
    options = leaf_config(), None, None, 1
    leaves = _core.fit_topk_leaves_sparse(core_gradients(g), None, *given, *options)
    expected = extreme_multilabel.fit_topk_leaves(p, *given, extreme_multilabel.Step())
    assert_same_leaves(leaves, expected)
    assert list(leaves.outputs) == [0, 1]


# --- derivatives ---


@pytest.mark.parametrize("objective", [SquaredHinge(), SquaredError()])
@pytest.mark.parametrize("weighted", [False, True])
def test_sparse_derivatives_equal_dense_ones(objective, weighted):
    """Raw scores are sums of leaf values; there are several blocks of rows."""
    rng = np.random.default_rng(1)
    n, K = 2500, 40
    Y = sp.random(n, K, 0.1, "csr", np.float32, random_state=1)
    Y.data[:] = 1 if objective.sparse_base_score else rng.normal(size=Y.nnz)
    weight = rng.uniform(0.5, 2, n).astype(np.float32) if weighted else None
    problem = BoundSparseObjective(objective, RowData(Y, weight))
    scores, raw = problem.make_raw_scores(), np.zeros((n, K), np.float32)
    for _ in range(5):
        leaf_of_row = rng.integers(0, 7, n).astype(np.int32)
        table = np.where(rng.random((7, K)) < 0.2, rng.normal(size=(7, K)), 0).astype(np.float32)
        rows = sp.csr_matrix(table)
        leaves = _core.TopkLeaves(rows.indptr.astype(np.int64), rows.indices, rows.data, K)
        scores.add(leaf_of_row, leaves, 2)
        raw += table[leaf_of_row]
    expected = np.empty((n, K), np.float32)
    dense = objective.bind(RowData(Y.toarray(), None if weight is None else weight[:, None]))
    dense.set_base_score(np.full(K, objective.sparse_base_score))
    dense.derivatives(raw, expected, None)
    for n_threads in (1, 3):
        gradients = problem.gradients(scores, n_threads)
        indptr, outputs, values = gradients.csr()
        np.testing.assert_array_equal(gradients.dense(n_threads), expected)
        assert len(values) < expected.size
        found = sp.csr_matrix((values, outputs, indptr), (n, K))
        np.testing.assert_array_equal(found.toarray(), expected)


@pytest.mark.parametrize("name", ["squared_hinge", "squared_error"])
def test_derivatives_equal_the_reference(name):
    objective = {"squared_hinge": SquaredHinge(), "squared_error": SquaredError()}[name]
    rng = np.random.default_rng(2)
    y = (rng.random((50, 9)) < 0.3).astype(np.float32)
    raw = rng.normal(size=y.shape).astype(np.float32)
    dense, g = objective.bind(RowData(y)), np.empty_like(y)
    dense.set_base_score(np.full(9, objective.sparse_base_score))
    dense.derivatives(raw, g, None)
    scores = raw + np.float32(objective.sparse_base_score)
    np.testing.assert_array_equal(getattr(extreme_multilabel, name)(y, scores), g)


# --- whole models ---


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    group = rng.integers(0, 6, 500)
    X = rng.normal(size=(500, 7)) + 3.0 * rng.normal(size=(6, 7))[group]
    X[rng.random(X.shape) < 0.3] = 0  # sparse input has zeros
    chance = np.where(rng.random((6, 40)) < 0.15, 0.8, 0.02)
    Y = (rng.random((500, 40)) < chance[group]).astype(np.float32)
    return X.astype(np.float32), sp.csr_matrix(Y)


SMALL = {"n_estimators": 8, "min_child_samples": 15, "leaf_k": 4}
SMALL |= {"projection": None, "projection_dim": None, "tfidf": False, "learning_rate": 0.1}


def fit_model(X, Y, estimator=PolyleafClassifier, weight=None, **parameters):
    settings = presets.gbdt_sparse() | SMALL | {"random_state": 0, "n_jobs": 1}
    return estimator(**settings | parameters).fit(X, Y, sample_weight=weight)


@pytest.mark.full
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    ("estimator", "loss", "base"),
    [
        (PolyleafClassifier, extreme_multilabel.squared_hinge, -1),
        (PolyleafRegressor, extreme_multilabel.squared_error, 0),
    ],
)
def test_training_equals_the_reference(data, estimator, loss, base, weighted):
    """Exact search: derivatives and trees of all rounds are compared."""
    X, Y = data
    weight = np.random.default_rng(3).uniform(0.5, 2, len(X)).astype(np.float32)
    weight = weight if weighted else None
    options = {"split_search": "exact", "threshold_step": 0.05, "max_depth": 3}
    model = fit_model(X, Y, estimator, weight, **options).model_
    codes = model.mapper.transform(read_features(X))
    data = codes, model.mapper.n_bins_, np.zeros(7, bool)
    config = reference.GrowConfig(
        max_leaves=2**31 - 1, max_depth=3, level_wise=True, min_child_samples=15, reg_lambda=5.0
    )
    step = extreme_multilabel.Step(reg_lambda=5.0, learning_rate=model.learning_rate)

    def search(round, gradients):
        return extreme_multilabel.ExactSearch(data, gradients, step, 4, config, 0.05)

    Y = Y.toarray()
    raw, rounds = extreme_multilabel.boost(data, Y, loss, base, search, config, 4, step, 8, weight)
    for t, (tree, leaves) in enumerate(rounds):
        assert_same_tree(as_reference_tree(model.forest.tree(t)), tree)
        assert_same_leaves(model.forest.values(t), leaves)
    found = np.zeros_like(raw)
    model.forest.predict(codes, found)
    np.testing.assert_array_equal(found, raw)


def assert_same_models(a, b):
    mine, theirs = (storage.to_arrays(model.model_.forest) for model in (a, b))
    assert mine.keys() == theirs.keys()
    for name in mine:
        np.testing.assert_array_equal(mine[name], theirs[name], err_msg=name)


@pytest.mark.parametrize("projection", [None, "leml", "pca", "gaussian", "columns"])
@pytest.mark.parametrize("search", ["count_sketch", "exact"])
def test_sparse_and_dense_features_give_the_same_model(data, search, projection):
    X, Y = data
    dim = 5 if projection in ("leml", "pca", "gaussian") else None
    options = {"split_search": search, "projection": projection, "projection_dim": dim}
    assert_same_models(fit_model(X, Y, **options), fit_model(sp.csr_matrix(X), Y, **options))


@pytest.mark.parametrize("search", ["count_sketch", "exact"])
@pytest.mark.parametrize(
    "sampling",
    [
        {},
        {"subsample": 0.6},
        {"sampling_method": "goss", "top_rate": 0.2, "other_rate": 0.2},
        {"colsample_bytree": 0.6, "colsample_bynode": 0.7},
    ],
)
def test_model_is_independent_of_n_jobs(data, search, sampling):
    X, Y = data
    weight = np.linspace(0, 2, len(X))  # and a row of zero weight
    one, two, three = (
        fit_model(X, Y, weight=weight, split_search=search, n_jobs=n, **sampling) for n in (1, 2, 3)
    )
    assert_same_models(one, two)
    assert_same_models(one, three)


@pytest.mark.parametrize("search", ["count_sketch", "exact"])
def test_all_outputs_in_a_leaf(data, search):
    """With k = K leaves omit zeros only, and a larger k has no effect."""
    X, Y = data
    assert_same_models(*(fit_model(X, Y, split_search=search, leaf_k=k) for k in (40, 400)))


def test_weight_two_equals_two_rows(data):
    """For leaf values and gains; min_child_samples is 0."""
    X, Y = data
    options = {"split_search": "exact", "threshold_step": 0.0}
    options |= {"min_child_samples": 1, "max_depth": 3}
    weight = np.ones(len(X))
    weight[:100] = 2
    twice = fit_model(np.vstack([X, X[:100]]), sp.vstack([Y, Y[:100]]).tocsr(), **options)
    weighted = fit_model(X, Y, weight=weight, **options)
    a, b = (m.predict_topk(X, 3)[1] for m in (twice, weighted))
    np.testing.assert_allclose(a, b, rtol=1e-5)
