"""Projections equal the reference implementation; kinds, files and invalid input."""

import itertools
import json
from dataclasses import replace

import numpy as np
import pytest
import reference
import scipy.sparse as sp
from sklearn.decomposition import PCA
from sklearn.feature_extraction.text import TfidfTransformer

import polyleaf._core as core
from polyleaf.sketching import projections
from polyleaf.sketching.projections import PROJECTIONS, Projection, Projector
from polyleaf.user_data.validation import to_canonical_csr


def words(n=300, m=80, k=6, n_labels=12, seed=0, noise=0.3):
    """Return sparse word counts of k topics, and labels determined by the topics."""
    rng = np.random.default_rng(seed)
    topics = rng.gamma(0.3, size=(n, k))
    rate = 0.6 * topics @ rng.gamma(0.3, size=(k, m)) / k
    X = sp.csr_matrix(rng.poisson(rate).astype(np.float32))
    score = topics @ rng.standard_normal((k, n_labels)) + noise * rng.standard_normal((n, n_labels))
    return X, sp.csr_matrix((score > 1).astype(np.float32))


def csr_arrays(X):
    return X.indptr.astype(np.int64), X.indices.astype(np.int32), X.data.astype(np.float32)


# --- the product ---


@pytest.mark.parametrize("d", [1, 3, 4, 16, 17, 33, 100, 131, 260])
def test_product_equals_the_reference(d):
    rng = np.random.default_rng(d)
    parts = ((70, 0.05), (2, 0.9))  # few rows that are longer than a run
    parts = [sp.random(n, 400, share, "csr", np.float32, random_state=rng) for n, share in parts]
    X = sp.vstack(parts, "csr")
    matrix = rng.standard_normal((400, d)).astype(np.float32)
    expected = reference.csr_product(*csr_arrays(X), matrix)
    for n_threads in (1, 2, 5):
        np.testing.assert_array_equal(core.csr_product(*csr_arrays(X), matrix, n_threads), expected)
    np.testing.assert_allclose(expected, X @ matrix, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("indptr", "indices", "message"),
    [
        ([0, 1, 3], [0, 1], "from 0 to the number"),
        ([0, 2, 1, 2], [0, 1], "must ascend"),
        ([0, 1, 2], [0, 4], "out of range"),
        ([0, 1, 2], [0, -1], "out of range"),
    ],
)
def test_core_checks_for_memory_safety(indptr, indices, message):
    values, matrix = np.ones(len(indices), np.float32), np.ones((4, 3), np.float32)
    with pytest.raises(ValueError, match=message):
        core.csr_product(np.array(indptr), np.array(indices, np.int32), values, matrix, 1)


# --- all kinds ---


def dense(features):
    return features.toarray() if sp.issparse(features) else features


@pytest.mark.parametrize("kind", PROJECTIONS)
@pytest.mark.parametrize("tfidf", [False, True])
def test_shapes_forms_and_threads(kind, tfidf):
    X, Y = words()
    projector = Projector(kind, dim=7, tfidf=tfidf, min_rows=3)
    fitted, features = projector.fit_transform(X, Y, seed=3, n_threads=1)
    assert features.shape == (300, fitted.dim) == (300, len(fitted.feature_names))
    assert features.dtype == np.float32
    assert fitted.dim == (len(fitted.columns) if kind == "columns" else 7)

    again, twice = projector.fit_transform(X.toarray(), Y.toarray(), seed=3, n_threads=3)
    np.testing.assert_array_equal(dense(features), dense(twice))
    for other in (again, projector.fit(X.tocsc(), Y, seed=3)):
        found = other.transform(X.toarray(), 2)
        np.testing.assert_array_equal(dense(fitted.transform(X)), dense(found))
    rows, found = [5, 17, 200], dense(fitted.transform(X))
    np.testing.assert_array_equal(dense(fitted.transform(X[rows])), found[rows])
    if kind != "leml":
        np.testing.assert_array_equal(found, dense(features))


@pytest.mark.parametrize("kind", PROJECTIONS)
@pytest.mark.parametrize("tfidf", [False, True])
def test_files(kind, tfidf):
    X, Y = words()
    fitted = Projector(kind, dim=5, tfidf=tfidf, min_rows=2).fit(X, Y)
    plain = json.loads(json.dumps(fitted.to_dict()))
    read = Projection.from_dict(plain, {name: a.copy() for name, a in fitted.arrays().items()})
    np.testing.assert_array_equal(dense(fitted.transform(X)), dense(read.transform(X)))


@pytest.mark.parametrize("kind", ["gaussian", "pca", "leml"])
def test_dim_is_at_most_the_number_of_columns(kind):
    X, Y = words(m=5)
    assert Projector(kind, dim=50).fit(X, Y).dim <= 5
    one = sp.csr_matrix(np.array([[0.0], [2.0], [1.0]]))
    assert Projector(kind, dim=3).fit(one, one).transform(one).shape == (3, 1)


@pytest.mark.parametrize("kind", ["gaussian", "pca", "leml"])
def test_input_is_not_modified(kind):
    messy = sp.csr_matrix((np.ones(4, np.float32), [3, 1, 1, 0], [0, 3, 4]), shape=(2, 5))
    messy = sp.vstack([messy, sp.csr_matrix((2, 5), dtype=np.float32)], "csr")
    messy.data[0] = 0  # unsorted, duplicates, empty rows, and a stored zero
    before = messy.data.copy(), messy.indices.copy(), messy.indptr.copy()
    tidy = sp.csr_matrix(messy.toarray())
    projector = Projector(kind, dim=2)
    a, b = projector.fit(messy, np.eye(4)), projector.fit(tidy, np.eye(4))
    np.testing.assert_array_equal(a.transform(messy), b.transform(tidy))
    for old, new in zip(before, (messy.data, messy.indices, messy.indptr), strict=True):
        np.testing.assert_array_equal(old, new)


# --- columns and weights ---


def test_tfidf_equals_scikit_learn():
    X = sp.csr_matrix(words()[0].toarray() * (np.arange(300) != 7)[:, None])  # with an empty row
    mine = Projector("columns", tfidf=True).fit(X)
    theirs = TfidfTransformer().fit_transform(X).toarray()
    np.testing.assert_allclose(mine.transform(X).toarray(), theirs[:, mine.columns], rtol=1e-5)
    assert not np.delete(theirs, mine.columns, axis=1).any()


def test_rare_columns_are_dropped():
    X = sp.csr_matrix(np.array([[1, 0, 2, 0, 0], [0, 0, 3, 1, 0], [4, 0, 5, 0, -1.0]]))
    assert Projector("columns").fit(X).columns.tolist() == [0, 2, 3, 4]
    assert Projector("columns", min_rows=2).fit(X).columns.tolist() == [0, 2]
    assert Projector("columns", max_columns=3).fit(X).columns.tolist() == [0, 2, 3]
    cut = Projector("columns", min_rows=2).fit(X)
    np.testing.assert_array_equal(cut.transform(X).toarray(), X.toarray()[:, [0, 2]])
    assert cut.feature_names == ["column_0", "column_2"]
    assert not cut.transform(sp.csr_matrix((2, 5))).toarray().any()


# --- the kinds ---


def test_gaussian_keeps_distances():
    rng = np.random.default_rng(0)
    X = sp.random(40, 3000, 0.02, "csr", random_state=rng)
    Z = Projector("gaussian", dim=2000).fit(X).transform(X).astype(float)
    exact = np.square(X.toarray()[:, None] - X.toarray()[None]).sum(axis=2)
    found = np.square(Z[:, None] - Z[None]).sum(axis=2)
    pairs = np.triu_indices(40, 1)
    np.testing.assert_allclose(found[pairs], exact[pairs], rtol=0.2)


@pytest.mark.parametrize("shape", [(300, 80), (60, 200)])
def test_pca_equals_scikit_learn(shape):
    X, _ = words(*shape)
    mine = Projector("pca", dim=5, n_iterations=30).fit(X).transform(X)
    theirs = PCA(5, svd_solver="full").fit_transform(X.toarray().astype(np.float64))
    theirs *= np.sign(np.sum(mine * theirs, axis=0))
    np.testing.assert_allclose(mine, theirs, atol=2e-3 * np.abs(theirs).max())


def test_default_pca_keeps_nearly_the_optimal_variance():
    X, _ = words()
    mine = Projector("pca", dim=10).fit(X).transform(X)
    best = PCA(10, svd_solver="full").fit(X.toarray().astype(np.float64)).explained_variance_.sum()
    assert 0.98 * best < mine.var(axis=0, ddof=1).sum() <= best * 1.001


def leml(X, Y, dim=4, **settings):
    settings = Projector("leml", dim=dim, **settings)
    tables = to_canonical_csr(X, "X"), to_canonical_csr(Y, "Y")
    return projections._Leml(*tables, dim, settings, np.random.default_rng(0), 1)


def test_leml_loss_decreases():
    X, Y = words()
    problem = leml(X, Y, reg=2.0)

    def loss():
        residual = Y.toarray() - X.toarray() @ problem.W @ problem.H.T
        size = np.square(problem.W).sum() + np.square(problem.H).sum()
        return np.square(residual).sum() + 2.0 * size

    values = []
    for improve in [problem.improve_w, *[problem.improve_h, problem.improve_w] * 5]:
        improve()
        values.append(loss())
    assert np.all(np.diff(values) < 1e-3 * values[0])
    assert values[-1] < 0.9 * values[0]


def test_leml_steps_solve_their_ridge_regressions():
    X, Y = words(m=20)
    problem = leml(X, Y, reg=3.0, n_inner=60)
    H = problem.H.astype(np.float64)
    problem.improve_w()
    A, M = (X.T @ X).toarray().astype(np.float64), H.T @ H
    kron = np.kron(A, M) + 3.0 * np.eye(A.shape[0] * M.shape[0])
    exact = np.linalg.solve(kron, (X.T @ Y @ H).ravel()).reshape(20, -1)
    np.testing.assert_allclose(problem.W, exact, atol=1e-3 * np.abs(exact).max())
    problem.improve_h()
    Z = (X @ problem.W).astype(np.float64)
    exact = (Y.T @ Z) @ np.linalg.inv(Z.T @ Z + 3.0 * np.eye(4))
    np.testing.assert_allclose(problem.H, exact, atol=1e-4 * np.abs(exact).max())


def test_leml_predicts_labels_better_than_the_others():
    """Linear regression of the labels of new rows on three features of each kind, of two seeds:
    "leml" has 0.968 to 0.979 of the error of "pca" by the seed."""
    X, Y = words(n=1200, m=150, noise=0.1)
    train, test = np.arange(800), np.arange(800, 1200)
    error = dict.fromkeys(("gaussian", "pca", "leml"), 0.0)
    for kind, seed in itertools.product(error, range(2)):
        fitted = Projector(kind, dim=3, n_folds=1).fit(X[train], Y[train], seed=seed)
        A, B = (np.c_[np.ones(len(rows)), fitted.transform(X[rows])] for rows in (train, test))
        weights = np.linalg.lstsq(A, Y[train].toarray(), rcond=None)[0]
        error[kind] += np.square(B @ weights - Y[test].toarray()).mean()
    assert error["leml"] < 0.98 * error["pca"] < 0.9 * error["gaussian"]


def test_leml_features_are_uncorrelated_and_ordered():
    X, Y = words()
    problem = leml(X, Y, reg=2.0)
    Z = (X @ problem.solve()).astype(np.float64)
    np.testing.assert_allclose(Z.T @ Z, np.eye(4), atol=1e-3)
    fitted = X @ problem.W @ problem.H.T
    norms = np.linalg.norm(Z.T @ fitted, axis=1)
    np.testing.assert_allclose(norms, np.linalg.svd(fitted, compute_uv=False)[:4], rtol=1e-3)


def test_leml_folds_prevent_target_leakage():
    """The labels are random: without folds the training features would contain them."""
    rng = np.random.default_rng(0)
    X = sp.random(200, 500, 0.05, "csr", random_state=rng)
    Y = sp.csr_matrix((rng.random((200, 3)) < 0.5).astype(float))
    known = {}
    for n_folds in (1, 5, None):
        _, features = Projector("leml", dim=3, reg=0.1, n_folds=n_folds).fit_transform(X, Y)
        centred = [v - v.mean(axis=0) for v in (features, Y.toarray())]
        basis = np.linalg.qr(centred[0])[0]
        known[n_folds] = np.square(basis.T @ centred[1]).sum() / np.square(centred[1]).sum()
    assert known[1] > 0.9
    assert known[5] < 0.1
    assert known[None] < 0.1  # more columns than rows: folds by default
    narrow = Projector("leml", dim=3).fit_transform(X[:, :30], Y)
    np.testing.assert_array_equal(narrow[0].transform(X[:, :30]), narrow[1])


def test_folds_use_the_same_axes():
    X, Y = words(n=2000, m=40)
    fitted, features = Projector("leml", dim=3, n_folds=4).fit_transform(X, Y)
    plain = fitted.transform(X)
    assert not np.array_equal(features, plain)
    for j in range(3):
        assert np.corrcoef(features[:, j], plain[:, j])[0, 1] > 0.95


def test_leml_accepts_all_kinds_of_targets():
    X, Y = words()
    y = Y.toarray()[:, 0]
    a, b = Projector("leml", dim=2).fit(X, y), Projector("leml", dim=2).fit(X, y[:, None].tolist())
    np.testing.assert_array_equal(a.matrix, b.matrix)
    empty = Projector("leml", dim=2).fit(X, sp.csr_matrix((300, 5)))  # no row has a label
    assert np.isfinite(empty.transform(X)).all()


# --- bad input ---


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (dict(kind="svd"), "got 'svd'"),
        (dict(dim=0), "dim must be at least 1"),
        (dict(min_rows=0), "min_rows must be at least 1"),
        (dict(max_columns=0), "max_columns must be"),
        (dict(reg=0.0), "reg must be positive"),
        (dict(n_folds=0), "n_folds must be"),
    ],
)
def test_invalid_settings_raise(settings, message):
    with pytest.raises(ValueError, match=message):
        Projector(**settings)


@pytest.mark.parametrize(
    ("X", "Y", "message"),
    [
        (np.array([[1.0, np.nan]]), [[1]], "X holds NaN"),
        (np.array([[1.0, np.inf]]), [[1]], "X holds infinity"),
        (sp.csr_matrix([[1.0, 1e300]]), [[1]], "too large for float32 in row 0, column 1"),
        (np.array([1.0, 2.0]), [[1]], "two dimensions"),
        (np.array([["a", "b"]]), [[1]], "must hold numbers"),
        (np.empty((0, 3)), [[1]], "at least one row and one column"),
        (np.zeros((4, 3)), np.ones((4, 1)), "No column of X"),
        (np.ones((4, 3)), None, "needs Y"),
        (np.ones((4, 3)), np.ones((5, 2)), "Y has 5 rows, but X has 4"),
        (np.ones((4, 3)), np.full((4, 2), np.nan), "Y holds NaN"),
    ],
)
def test_invalid_input_raises(X, Y, message):
    with pytest.raises(ValueError, match=message):
        Projector("leml", dim=2).fit(X, Y)


def test_other_number_of_features_raises():
    X, Y = words()
    with pytest.raises(ValueError, match="79 features, but the projection was fitted on 80"):
        Projector("pca", dim=2).fit(X, Y).transform(X[:, :79])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda p, a: p.update(kind="svd"), "known kind"),
        (lambda p, a: p.update(n_features=0), "known kind"),
        (lambda p, a: a.pop("columns"), "needs the array 'columns'"),
        (lambda p, a: a.update(columns=a["columns"][::-1]), "must ascend"),
        (lambda p, a: a.update(columns=a["columns"] + 70), "must ascend"),
        (lambda p, a: a.pop("matrix"), "needs a matrix"),
        (lambda p, a: p.update(kind="columns"), "has no matrix"),
        (lambda p, a: a.update(matrix=a["matrix"][:3]), "finite row for each"),
        (lambda p, a: a.update(matrix=a["matrix"] * np.nan), "finite row for each"),
        (lambda p, a: a.update(idf=np.ones(3)), "array 'idf'"),
        (lambda p, a: a.update(offset=np.ones(3)), "array 'offset'"),
    ],
)
def test_damaged_files_raise(change, message):
    X, Y = words()
    fitted = Projector("pca", dim=2, tfidf=True).fit(X, Y)
    plain, arrays = fitted.to_dict(), dict(fitted.arrays())
    change(plain, arrays)
    with pytest.raises(ValueError, match=message):
        Projection.from_dict(plain, arrays)


def test_settings_are_immutable_values():
    assert replace(Projector("pca"), dim=3) == Projector("pca", dim=3)
    assert hash(Projector("pca")) == hash(Projector("pca"))


@pytest.mark.parametrize("kind", ["pca", "leml", "gaussian"])
@pytest.mark.parametrize("power", [60, 90, 120])
def test_huge_values_are_projected(kind, power):
    """Check that numbers are divided by a power of two before products can overflow."""
    rng = np.random.default_rng(0)
    X = rng.integers(-8, 9, (60, 20)).astype(np.float64) * (rng.random((60, 20)) < 0.4)
    Y = (rng.random((60, 3)) < 0.5).astype(np.float64)
    settings = Projector(kind=kind, dim=4, n_folds=1)
    _, expected = settings.fit_transform(X * 2.0**36, Y)
    projection, features = settings.fit_transform(X * 2.0**power, Y)
    np.testing.assert_array_equal(features, expected)
    # Directions of LEML are subnormal numbers for the largest X.
    tolerance = 1e-6 if (kind, power) == ("leml", 120) else 0
    projected = projection.transform(X * 2.0**power)
    np.testing.assert_allclose(projected, features, rtol=0, atol=tolerance)


# --- weights ---


@pytest.mark.parametrize("kind", ["leml", "pca"])
def test_weights_count_as_repeated_rows(kind):
    X, Y = words()
    weight = np.random.default_rng(0).integers(0, 4, X.shape[0])
    repeats = np.repeat(np.arange(X.shape[0]), weight)
    projector = Projector(kind, dim=4, n_iterations=30, n_folds=1)
    weighted = projector.fit(X, Y, sample_weight=weight).transform(X)
    repeated = projector.fit(X[repeats], Y[repeats]).transform(X)
    np.testing.assert_allclose(weighted, repeated, atol=0.02 * np.abs(repeated).max())


@pytest.mark.parametrize("kind", PROJECTIONS)
def test_rows_of_weight_0_are_left_out(kind):
    X, Y = words()
    weight = np.r_[np.ones(200), np.zeros(100)]
    projector = Projector(kind, dim=4, min_rows=3, tfidf=True, n_folds=3)
    fitted, features = projector.fit_transform(X, Y, sample_weight=weight)
    alone, expected = projector.fit_transform(X[:200], Y[:200])
    for name, array in alone.arrays().items():
        np.testing.assert_array_equal(fitted.arrays()[name], array)
    np.testing.assert_array_equal(dense(features[:200]), dense(expected))
    assert features.shape[0] == 300


def test_weights_are_checked():
    X, Y = words()
    for weight in (np.zeros(300), np.ones(3), np.full(300, -1.0), np.full(300, np.inf)):
        with pytest.raises(ValueError, match="sample_weight must be 300 finite numbers"):
            Projector(dim=3).fit(X, Y, sample_weight=weight)
