"""Sketches equal the reference implementation, preserve distances, and train models."""

import pickle
from dataclasses import FrozenInstanceError, replace

import numpy as np
import pytest
import reference
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from support.isa import run_on_each_isa

import polyleaf._core as core
from polyleaf import PolyleafClassifier, PolyleafRegressor
from polyleaf.sketching.sketches import (
    AUTO_ABOVE,
    DEFAULT_DIM,
    SKETCHES,
    CountSketch,
    CustomSketch,
    RandomProjection,
    RandomSampling,
    Sketch,
    TopOutputs,
    TruncatedSVD,
    get_sketch,
)

SHAPES = [
    (1, 1, 1),
    (7, 3, 2),
    (33, 17, 5),
    (40, 100, 16),
    (300, 40, 17),
    (19, 70, 70),
    (9, 50, 130),
]


def matrix(n, k, seed=0, rank=None):
    rng = np.random.default_rng(seed)
    if rank is None:
        return rng.standard_normal((n, k)).astype(np.float32)
    return (rng.standard_normal((n, rank)) @ rng.standard_normal((rank, k))).astype(np.float32)


def sparse_matrix(n, k, density=0.1, seed=0):
    rng = np.random.default_rng(seed)
    return np.where(rng.random((n, k)) < density, rng.standard_normal((n, k)), 0).astype(np.float32)


def csr_arrays(values):
    csr = sp.csr_matrix(values)
    return csr.indptr.astype(np.int64), csr.indices.astype(np.int32), csr.data


def same_bits(a, b):
    assert a.dtype == b.dtype
    np.testing.assert_array_equal(a, b)


# --- core against reference ---


@pytest.mark.parametrize(("n", "k", "d"), SHAPES)
def test_products_equal_the_reference(n, k, d):
    g, seed = matrix(n, k, seed=n), 2**63 + 12345
    same_bits(core.sketch_signs(g, d, seed, 0.3, 1), reference.signed_projection(g, d, seed, 0.3))
    same_bits(core.sketch_count(g, d, seed, 0.3, 1), reference.count_sketch(g, d, seed, 0.3))
    weights = matrix(k, d, seed=1)
    same_bits(core.sketch_project(g, weights, 0.7, 1), reference.project(g, weights, 0.7))
    same_bits(core.row_means(g, 1), reference.row_means(g))


@pytest.mark.parametrize(("n", "k", "d"), [(7, 3, 2), (40, 20, 5), (1100, 6, 3)])
@pytest.mark.parametrize("n_iterations", [0, 1, 3])
def test_subspace_equals_the_reference(n, k, d, n_iterations):
    g = matrix(n, k, seed=n, rank=min(n, k, 4))
    columns = core.sketch_subspace(g, d, 5, n_iterations, 0.5, 2)
    same_bits(columns, reference.subspace_projection(g, d, 5, n_iterations, 0.5))


@pytest.mark.parametrize("n", [1, 2048, 2049, 5000])
def test_energy_equals_the_reference(n):
    g = matrix(n, 3, seed=n)
    same_bits(core.column_energy(g, 2), reference.column_energy(g))
    np.testing.assert_allclose(
        core.column_energy(g, 1), np.square(g.astype(float)).sum(axis=0), rtol=1e-12
    )


@pytest.mark.parametrize("d", [1, 3, 8, 16, 17, 33, 64, 65, 200])
@pytest.mark.parametrize("n_threads", [1, 3])
def test_count_sketch_of_csr_equals_dense(d, n_threads):
    g = sparse_matrix(600, 900, density=0.02, seed=d)
    g[5] = matrix(1, 900)  # a row longer than a block of hashes
    g[6] = 0
    dense = core.sketch_count(g, d, 77, 1.5, n_threads)
    sparse = core.SparseGradients(*csr_arrays(g), 900, n_threads)
    same_bits(sparse.count_sketch(d, 77, 1.5, n_threads), dense)
    object_ = CountSketch(d)
    same_bits(object_.sketch_labels(sparse, 3, 9, n_threads), object_.sketch(g, None, 3, 9, 1)[0])


@settings(max_examples=30, deadline=None)
@given(
    n=st.integers(1, 60), k=st.integers(1, 80), d=st.integers(1, 40), seed=st.integers(0, 2**64 - 1)
)
def test_random_shapes_equal_the_reference(n, k, d, seed):
    g = sparse_matrix(n, k, 0.5, seed % 1000)
    same_bits(core.sketch_signs(g, d, seed, 1.0, 2), reference.signed_projection(g, d, seed, 1.0))
    sparse = core.SparseGradients(*csr_arrays(g), k, 1)
    same_bits(sparse.count_sketch(d, seed, 1.0, 2), reference.count_sketch(g, d, seed, 1.0))


@pytest.mark.parametrize("name", SKETCHES)
def test_sketches_are_independent_of_the_number_of_threads(name):
    g, h = matrix(2500, 70, rank=9), np.abs(matrix(2500, 70, seed=1))
    one = SKETCHES[name](6).sketch(g, h, 2, 8, 1)
    for n_threads in (2, 3, 7):
        for a, b in zip(one, SKETCHES[name](6).sketch(g, h, 2, 8, n_threads), strict=True):
            same_bits(a, b)


_HASH_OF_ALL = """
import hashlib, numpy as np
from polyleaf.sketching.sketches import SKETCHES
rng = np.random.default_rng(0)
g = rng.standard_normal((2500, 83)).astype(np.float32)
digest = hashlib.sha256()
for make in SKETCHES.values():
    for d in (3, 14, 40):
        for part in make(d).sketch(g, np.abs(g), 1, 2, 2):
            digest.update(part.tobytes())
print(digest.hexdigest())
"""


@pytest.mark.full
def test_instruction_sets_give_the_same_bits():
    assert len(set(run_on_each_isa(_HASH_OF_ALL))) == 1


# --- properties ---


def distances(a):
    """Return squared distances between rows, per column."""
    a = a.astype(np.float64)
    return np.square(a[:, None] - a[None]).sum(axis=2) / a.shape[1]


@pytest.mark.parametrize("name", ["random_projection", "random_sampling", "count_sketch"])
def test_squared_distances_are_unbiased(name):
    """The mean over seeds is within four standard errors of every pair's distance."""
    g = matrix(6, 40, rank=3)
    rounds = np.array(
        [distances(SKETCHES[name](5).sketch(g, None, 0, seed, 1)[0]) for seed in range(3000)]
    )
    off = np.abs(rounds.mean(axis=0) - distances(g))
    error = rounds.std(axis=0) / np.sqrt(len(rounds))
    assert np.all(off <= 4 * error + 1e-12)
    assert np.all(error[np.triu_indices(6, 1)] < 0.05 * distances(g)[np.triu_indices(6, 1)])


def test_sampling_prefers_large_outputs():
    g = matrix(50, 30)
    g[:, 7] *= 100
    columns = RandomSampling(200).sketch(g, None, 0, 0, 1)[0]
    scale = columns[0] / g[0, 7]
    assert np.isclose(columns, g[:, 7:8] * scale).all(axis=0).mean() > 0.8
    nothing = RandomSampling(4).sketch(np.zeros((5, 9), np.float32), None, 0, 0, 1)[0]
    same_bits(nothing, np.zeros((5, 4), np.float32))


def test_top_outputs_are_the_largest_and_keep_their_order():
    g = matrix(50, 9)
    g[:, [2, 5, 8]] *= 10
    columns, _ = TopOutputs(3).sketch(g, None, 0, 0, 1)
    np.testing.assert_allclose(columns, g[:, [2, 5, 8]] * np.sqrt(3 / 9), rtol=1e-6)
    tied, _ = TopOutputs(2).sketch(np.ones((4, 5), np.float32), None, 0, 0, 1)
    assert tied.shape == (4, 2)


def test_svd_is_exact_at_the_rank_and_near_the_best_below():
    g = matrix(200, 60, rank=5)
    columns, _ = TruncatedSVD(5).sketch(g, None, 0, 0, 1)
    np.testing.assert_allclose(distances(columns), distances(g), rtol=1e-4, atol=1e-5)
    columns, _ = TruncatedSVD(9).sketch(g, None, 0, 0, 1)  # more columns than the rank
    np.testing.assert_allclose(distances(columns), distances(g), rtol=1e-4, atol=1e-5)
    noisy = g + 0.3 * matrix(200, 60, seed=1)
    columns, _ = TruncatedSVD(5).sketch(noisy, None, 0, 0, 1)
    best = np.square(np.linalg.svd(noisy.astype(np.float64), compute_uv=False)[:5]).sum()
    kept = np.square(columns.astype(np.float64)).sum() * 60 / 5
    assert 0.999 * best <= kept <= best * (1 + 1e-6)


@pytest.mark.parametrize("name", SKETCHES)
def test_sketches_depend_on_round_and_seed(name):
    g = matrix(20, 50, rank=20)
    make = SKETCHES[name](4)
    first = make.sketch(g, None, 0, 1, 1)[0]
    same_bits(make.sketch(g, None, 0, 1, 1)[0], first)
    if name == "top_outputs":
        return
    assert not np.array_equal(make.sketch(g, None, 1, 1, 1)[0], first)
    assert not np.array_equal(make.sketch(g, None, 0, 2, 1)[0], first)


@pytest.mark.parametrize("name", SKETCHES)
def test_hessian_is_the_mean_over_outputs(name):
    g, h = matrix(20, 50), np.abs(matrix(20, 50, seed=1))
    make = SKETCHES[name](4)
    np.testing.assert_allclose(
        make.sketch(g, h, 0, 0, 1)[1], h.mean(axis=1, keepdims=True), rtol=1e-6
    )
    same_bits(make.sketch(g, h[:, :1].copy(), 0, 0, 1)[1], h[:, :1])
    assert make.sketch(g, None, 0, 0, 1)[1] is None


def test_sketches_are_immutable_values():
    for make in SKETCHES.values():
        sketch = make(5)
        assert isinstance(sketch, Sketch)
        assert pickle.loads(pickle.dumps(sketch)) == sketch == replace(sketch)
        with pytest.raises(FrozenInstanceError):
            sketch.dim = 3
        hash(sketch)


# --- the parameter ---


def test_get_sketch():
    assert get_sketch(None, None, 1000) is None
    assert get_sketch("auto", None, AUTO_ABOVE) is None
    assert get_sketch("auto", None, AUTO_ABOVE + 1) == RandomProjection(DEFAULT_DIM)
    assert get_sketch("auto", 7, 1000) == RandomProjection(7)
    for name, make in SKETCHES.items():
        assert get_sketch(name, 5, 6) == make(5)
        assert get_sketch(name, None, 1000) == make()
    assert get_sketch("top_outputs", 5, 5) is None  # as many columns as outputs: no sketch
    assert get_sketch(TopOutputs(5), None, 5) is None
    assert get_sketch(TopOutputs(4), None, 5) == TopOutputs(4)
    function = lambda g, h, round, seed, n_threads: (g, h)  # noqa: E731
    assert get_sketch(function, None, 5) == CustomSketch(function)


@pytest.mark.parametrize(
    ("sketch", "dim", "message"),
    [
        ("random", None, "got 'random'"),
        (TopOutputs(3), 4, "sketch_dim"),
        (7, None, "sketch must be"),
    ],
)
def test_get_sketch_raises(sketch, dim, message):
    with pytest.raises(ValueError, match=message):
        get_sketch(sketch, dim, 100)


def test_dimension_without_a_sketch_raises():
    with pytest.raises(ValueError, match="without a sketch"):
        PolyleafRegressor(sketch_dim=4).fit(matrix(20, 2), matrix(20, 3))


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (np.zeros((30, 2)), "must return"),
        ((np.zeros((29, 2)), None), "gradients of a sketch"),
        ((np.zeros(30), None), "gradients of a sketch"),
        ((np.zeros((30, 0)), None), "gradients of a sketch"),
        ((np.zeros((30, 2)), np.zeros((30, 2))), "of a sketch"),
        ((np.full((30, 2), np.nan), None), "not finite"),
    ],
)
def test_invalid_custom_sketch_raises(returned, message):
    X, Y = np.arange(30.0)[:, None], matrix(30, 4)
    model = PolyleafRegressor(n_estimators=2, sketch=lambda *_: returned)
    with pytest.raises(ValueError, match=message):
        model.fit(X, Y)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda g: core.sketch_signs(g, 0, 1, 1.0, 1), "between 1 and 4096"),
        (lambda g: core.sketch_project(g, g, 1.0, 1), "one row for each column"),
        (
            lambda g: core.sketch_take(g, np.array([4], np.int32), np.ones(1, np.float32), 1),
            "out of range",
        ),
        (
            lambda g: core.sketch_take(g, np.array([0], np.int32), np.ones(2, np.float32), 1),
            "needs a scale",
        ),
    ],
)
def test_core_checks_for_memory_safety(call, message):
    with pytest.raises(ValueError, match=message):
        call(matrix(5, 4))


@pytest.mark.parametrize("indptr", [[0, 2, 1, 3], [1, 2, 2, 3], [0, 1, 2, 4]])
def test_invalid_csr_raises(indptr):
    arrays = np.array(indptr, np.int64), np.zeros(3, np.int32), np.zeros(3, np.float32)
    with pytest.raises(ValueError, match="indptr"):
        core.SparseGradients(*arrays, 1, 1)


# --- training ---


def labels(n=400, k=50, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 6))
    return X, (X @ rng.standard_normal((6, k)) + rng.standard_normal((n, k)) > 1.5).astype(int)


@pytest.mark.full
@pytest.mark.parametrize("name", [*SKETCHES, "auto"])
def test_model_with_sketch_learns(name):
    X, Y = labels()
    plain = PolyleafClassifier(n_estimators=30, n_jobs=1).fit(X[:300], Y[:300])
    model = PolyleafClassifier(n_estimators=30, n_jobs=1, sketch=name, random_state=0).fit(
        X[:300], Y[:300]
    )
    again = PolyleafClassifier(n_estimators=30, n_jobs=2, sketch=name, random_state=0).fit(
        X[:300], Y[:300]
    )
    assert model.model_.forest.values(0).shape[1] == 50  # leaves hold all outputs
    np.testing.assert_array_equal(model.predict_proba(X), again.predict_proba(X))
    wrong = [np.mean(m.predict(X[300:]) != Y[300:]) for m in (plain, model)]
    assert wrong[1] < 0.85 * Y[300:].mean()  # errors of predicting 0 everywhere
    assert wrong[1] < 1.1 * wrong[0]


def test_sketch_decides_splits_and_leaves_have_all_outputs():
    """With a custom sketch of the first output, leaves have values of all outputs."""
    X, Y = labels(k=3)
    Y = Y.astype(np.float32)
    first = lambda g, h, round, seed, n_threads: (g[:, :1], None)  # noqa: E731
    settings_ = dict(n_estimators=1, learning_rate=1.0, reg_lambda=0.0, n_jobs=1)
    one = PolyleafRegressor(**settings_).fit(X, Y[:, 0])
    all_ = PolyleafRegressor(**settings_, sketch=first).fit(X, Y)
    leaves = all_.model_.apply(all_._features(X))[:, 0]
    np.testing.assert_array_equal(
        one.model_.forest.tree(0).feature, all_.model_.forest.tree(0).feature
    )
    predicted = all_.predict(X)
    for leaf in np.unique(leaves):
        rows = leaves == leaf
        np.testing.assert_allclose(
            predicted[rows], np.tile(Y[rows].mean(axis=0), (rows.sum(), 1)), atol=1e-5
        )


def test_identity_sketch_has_no_effect():
    X, Y = labels(k=5)
    identity = lambda g, h, round, seed, n_threads: (g, None)  # noqa: E731
    settings_ = dict(n_estimators=5, n_jobs=1, hessian="none")
    plain = PolyleafClassifier(**settings_).fit(X, Y)
    same = PolyleafClassifier(**settings_, sketch=identity).fit(X, Y)
    # With 5 outputs, 14 columns are too many.
    few = PolyleafClassifier(**settings_, sketch="random_projection").fit(X, Y)
    np.testing.assert_array_equal(plain.predict_proba(X), same.predict_proba(X))
    np.testing.assert_array_equal(plain.predict_proba(X), few.predict_proba(X))


def test_gains_are_comparable_with_and_without_sketch():
    """Gains are averaged over outputs with and without a sketch.

    The best of many noisy gains exceeds the true one, but not by the factor K / d = 4.3.
    """
    X, Y = labels(n=1000, k=60)
    root = lambda m: m.model_.forest.tree(0).gain[0]  # noqa: E731
    settings_ = dict(n_estimators=1, n_jobs=1, hessian="shared")
    plain = root(PolyleafClassifier(**settings_).fit(X, Y))
    sketched = [
        root(PolyleafClassifier(**settings_, sketch=RandomProjection(14), random_state=s).fit(X, Y))
        for s in range(20)
    ]
    assert 0.8 * plain < np.mean(sketched) < 1.8 * plain


def test_sketch_with_sampling_and_weights():
    X, Y = labels()
    weight = np.where(np.arange(len(X)) % 3 == 0, 0.0, 2.0)
    settings_ = dict(n_estimators=5, sketch="auto", random_state=0, n_jobs=1)
    dropped = PolyleafClassifier(**settings_).fit(X[weight > 0], Y[weight > 0])
    weighted = PolyleafClassifier(**settings_).fit(X, Y, weight)
    assert weighted.model_.forest.tree(0).count[0] == dropped.model_.forest.tree(0).count[0]
    for method in (dict(subsample=0.5), dict(sampling_method="goss")):
        model = PolyleafClassifier(**settings_, **method).fit(X, Y, weight)
        assert np.isfinite(model.predict_proba(X)).all()


def test_reg_alpha_and_max_delta_step_apply_to_leaves_only():
    X, Y = labels()
    settings_ = dict(n_estimators=1, sketch="auto", random_state=0, n_jobs=1)
    plain = PolyleafClassifier(**settings_).fit(X, Y).model_.forest
    strict = PolyleafClassifier(**settings_, max_delta_step=0.5).fit(X, Y).model_.forest
    np.testing.assert_array_equal(plain.tree(0).feature, strict.tree(0).feature)
    assert np.abs(strict.values(0)).max() == np.float32(0.05)
    shrunk = PolyleafClassifier(**settings_, reg_alpha=1e6).fit(X, Y).model_.forest
    assert shrunk.tree(0).n_leaves > 1 and not shrunk.values(0).any()


def test_importance_per_output_with_sketch_raises():
    X, Y = labels()
    model = PolyleafClassifier(n_estimators=2, sketch="auto").fit(X, Y).model_
    assert model.feature_importance().shape == (6,)
    with pytest.raises(ValueError, match="grown on a sketch"):
        model.feature_importance(per_output=True)
