"""Sparse codes equal dense codes and give the same models."""

import mmap
import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from support.problems import (
    Core,
    assert_same_tree,
    core_bins,
    make_problem,
    sample_rows,
    sparse_arrays,
)

from polyleaf import Dataset, PolyleafClassifier, PolyleafRegressor, _core
from polyleaf.binned_data import binning
from polyleaf.binned_data.binned import empty_codes
from polyleaf.user_data.features import read_features

SETTINGS = {
    "plain": {},
    "rows sampled": {"subsample": 0.6},
    "features sampled": {"colsample_bytree": 0.5, "colsample_bynode": 0.5},
    "larger leaves": {"min_child_samples": 12},
    "layers": {"boosting_step": "layer", "grow_policy": "depthwise", "max_depth": 4},
    "layers, rows sampled": {
        "boosting_step": "layer", "grow_policy": "depthwise", "max_depth": 4, "subsample": 0.6,
    },
    "sparse leaves": {"leaf": "sparse", "leaf_k": 2},
    "tree per output": {"multi_strategy": "one_output_per_tree"},
    "goss": {"sampling_method": "goss"},
}  # fmt: skip


def words(n=600, n_features=40, density=0.03, seed=0):
    """Return sparse word counts, some negative or missing, and three dense columns."""
    rng = np.random.default_rng(seed)
    X = sp.random(n, n_features, density, format="csr", dtype=np.float32, random_state=seed)
    X.data = np.where(rng.random(X.nnz) < 0.05, np.nan, np.round(6 * X.data - 1)).astype(np.float32)
    return sp.hstack([X, sp.csr_matrix(rng.normal(size=(n, 3)).astype(np.float32))], format="csr")


def targets(X, n_outputs=3, seed=1):
    rng = np.random.default_rng(seed)
    signal = np.nan_to_num(X[:, :6].toarray()) @ rng.normal(size=(6, n_outputs))
    return signal + 0.3 * rng.normal(size=signal.shape)


@pytest.mark.parametrize(
    "X", [words(), words().tocsc(), words(density=0.5), words().astype(np.float64)]
)
def test_codes_equal_those_of_the_dense_matrix(X):
    data = Dataset(X)
    dense = Dataset(X.toarray(), reference=data)
    np.testing.assert_array_equal(data.codes, dense.codes)
    assert data.codes is data.codes
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(data)).codes, dense.codes)


def test_rows_of_bins_are_counted_in_any_storage(tmp_path):
    X = words()
    dense, sparse = Dataset(X.toarray()), Dataset(X)
    on_disk = Dataset.from_batches([X.toarray()], cache_dir=tmp_path)
    assert on_disk.is_memmapped
    n_bins, expected = dense.mapper.n_bins_.tolist(), []
    for codes, n in zip(dense.codes, n_bins, strict=True):
        expected += [np.count_nonzero(codes == code) for code in [*range(n), 255]]
    for data in (dense, sparse, on_disk):
        np.testing.assert_array_equal(data.count_bins(), expected)
    assert sum(expected) == X.shape[0] * X.shape[1]


def test_only_mostly_zero_columns_are_stored_sparse():
    X = words(n_features=300)
    data = Dataset(X)
    held = data.nbytes
    assert held < X.shape[0] * 30 + 20 * X.nnz
    assert data.bins.nbytes < X.shape[0] * 8 * 8 + 20 * X.nnz
    assert data.codes.nbytes == X.shape[0] * X.shape[1]
    assert data.nbytes == held + data.codes.nbytes


@pytest.mark.full
def test_memory_of_a_wide_table_depends_on_its_non_zeros():
    """Dense codes would take 1.2 GB."""
    rng = np.random.default_rng(0)
    columns = np.where(rng.random(40_000) < 0.02, 7, rng.integers(0, 300_000, 40_000))
    X = sp.csr_matrix(
        (np.ones(40_000), (rng.integers(0, 4_000, 40_000), columns)), (4_000, 300_000)
    )
    y = X[:, [7]].toarray().ravel()
    data = Dataset(X)
    assert data.nbytes < 2**23 and data.bins.nbytes < 2**20
    model = PolyleafRegressor(n_estimators=2, max_leaves=4, colsample_bynode=1.0).fit(data, y)
    assert model.score(X[:500], y[:500]) > 0.3


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_models_are_independent_of_code_storage(settings, monkeypatch):
    X = words()
    Y = targets(X)
    models = []
    for share in (0.2, -1):
        monkeypatch.setattr(binning, "SPARSE_SHARE", share)
        for n_jobs in (1, 2):
            model = PolyleafRegressor(n_estimators=6, random_state=3, n_jobs=n_jobs, **settings)
            models.append(model.fit(X, Y).predict(X))
    for other in models[1:]:
        np.testing.assert_array_equal(models[0], other)


@pytest.mark.parametrize("hessian", ["none", "shared", "diagonal", "full", "block"])
def test_multiclass_models_are_independent_of_code_storage(hessian, monkeypatch):
    X = words()
    y = targets(X).argmax(axis=1)
    models = []
    for share in (0.2, -1):
        monkeypatch.setattr(binning, "SPARSE_SHARE", share)
        models.append(PolyleafClassifier(n_estimators=5, hessian=hessian, n_jobs=2).fit(X, y))
    np.testing.assert_array_equal(models[0].predict_proba(X), models[1].predict_proba(X))


@pytest.mark.parametrize("n_outputs", [1, 20])
@pytest.mark.parametrize("take", [lambda p: p, sample_rows], ids=["all rows", "some rows"])
def test_many_rows_and_non_zeros(take, n_outputs):
    """There are several blocks of rows, of non-zeros and of features."""
    p = make_problem(
        5, 30_000, (3, 90, 5, 200, 7, 4), n_outputs=n_outputs, missing=0.01, max_leaves=40
    )
    p = take(replace(p, kind="unit"))
    tree, leaf_of_row = Core.grow(p)
    for features in (None, (1, 3, 5)):
        for n_threads in (1, 2, 3):
            same, same_leaves = Core.grow(p.store_sparse(features), n_threads)
            assert_same_tree(tree, same)
            np.testing.assert_array_equal(leaf_of_row, same_leaves)


def test_validation_and_continued_training(monkeypatch):
    X = words()
    Y = targets(X)
    found = []
    for share in (0.2, -1):
        monkeypatch.setattr(binning, "SPARSE_SHARE", share)
        model = PolyleafRegressor(n_estimators=4, warm_start=True)
        model.fit(X[:500], Y[:500], eval_set=[(X[500:], Y[500:])])
        model.set_params(n_estimators=8).fit(X[:500], Y[:500], eval_set=[(X[500:], Y[500:])])
        found.append(model.predict(X))
    np.testing.assert_array_equal(*found)


def test_linear_leaves_use_dense_codes():
    X = words()
    data = Dataset(X.toarray(), keep_features=True)
    assert PolyleafRegressor(n_estimators=2, leaf="linear").fit(data, targets(X)).predict(
        data
    ).shape == (600, 3)
    p = make_problem(1).store_sparse()
    with pytest.raises(ValueError, match="need dense features"):
        bins = core_bins(p.codes, p.n_bins, p.is_categorical, p.sparse_features)
        _core.LinearTable(bins, p.codes.astype(np.float32), None, 1)


def test_explicit_zeros_and_values_in_the_bin_of_zero_are_not_stored():
    X = sp.csc_matrix(np.array([[0, 5], [1, 0], [2, 0], [0, 0]] * 30, np.float32))
    X.data[::4] = 0
    table = read_features(X)
    mapper = binning.BinMapper().fit(table)
    codes = mapper.encode(table)
    np.testing.assert_array_equal(codes.array(), mapper.transform(table))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda a: {"features": a["features"][::-1].copy()}, "ascending order"),
        (lambda a: {"features": a["features"] + 9}, "ascending order"),
        (lambda a: {"common": a["common"] + np.uint8(200)}, "common code"),
        (lambda a: {"codes": np.full_like(a["codes"], 250)}, "below the number of bins"),
        (lambda a: {"rows": a["rows"][::-1].copy()}, "Rows of a sparse feature.*ascending"),
        (lambda a: {"rows": a["rows"] + 200}, "below the number of rows"),
        (lambda a: {"begin": a["begin"] - 1}, "one after another"),
        (lambda a: {"begin": a["begin"] + 10**6}, "outside their arrays"),
        (lambda a: {"common": a["common"][1:]}, "do not match"),
    ],
)
def test_malformed_non_zeros_raise(change, message):
    p = make_problem(2, n_bins=(5, 8))
    names = ("features", "common", "begin", "rows", "codes")
    arrays = dict(zip(names, sparse_arrays(p.codes, (0, 1)), strict=True))
    with pytest.raises(ValueError, match=message):
        _core.Bins(
            p.codes[:0], p.n_bins, p.is_categorical, 1, tuple((arrays | change(arrays)).values())
        )


def test_categories_are_stored_dense():
    p = make_problem(2, n_bins=(5, 8), categorical=[1])
    with pytest.raises(ValueError, match="categorical"):
        core_bins(p.codes, p.n_bins, p.is_categorical, (1,))


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads /proc")
def test_memory_of_partly_used_codes_depends_on_touched_pages():
    def held():
        return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE

    before = held()
    codes = empty_codes(1000, 100_000, partly_used=True)
    codes[::50, :100] = 7  # one page each
    assert codes.shape == (1000, 100_000) and codes.flags.c_contiguous and codes.flags.writeable
    assert held() - before < 10_000_000
    with pytest.raises(MemoryError, match="1000000 rows"):
        empty_codes(2**40, 1_000_000, partly_used=True)
