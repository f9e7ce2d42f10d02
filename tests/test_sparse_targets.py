"""Sparse targets end to end: never made dense, the same model however they come."""

import numpy as np
import pytest
import scipy.sparse as sp

import polyleaf
from polyleaf import PolyleafClassifier, forest, recipes


@pytest.fixture(scope="module")
def data():
    """Rows of eight groups; each group has labels of its own, some of them rare."""
    rng = np.random.default_rng(0)
    group = rng.integers(0, 8, 900)
    X = rng.normal(size=(900, 12)) + 3.0 * rng.normal(size=(8, 12))[group]
    chance = np.where(rng.random((8, 60)) < 0.1, 0.9, 0.01)
    Y = sp.csr_matrix((rng.random((900, 60)) < chance[group]).astype(np.float32))
    return X.astype(np.float32), Y


def fitted(data, n_jobs=1, **parameters):
    X, Y = data
    settings = recipes.gbdt_sparse() | {
        "n_estimators": 30,
        "projection": None,
        "projection_dim": None,
        "min_child_samples": 10,
        "leaf_k": 5,
        "random_state": 0,
        "n_jobs": n_jobs,
    }
    return PolyleafClassifier(**{**settings, **parameters}).fit(X, Y)


def precision(model, X, Y, k=1):
    labels, _ = model.predict_topk(X, k)
    return float(np.mean(np.take_along_axis(Y.toarray(), labels, axis=1)))


@pytest.mark.parametrize("search", ["sketch", "exact"])
def test_labels_are_learnt(data, search):
    X, Y = data
    model = fitted(data, split_search=search)
    most_frequent = Y.toarray()[:, int(np.argmax(Y.sum(0)))].mean()
    assert precision(model, X, Y) > 0.85 > most_frequent
    labels, scores = model.predict_topk(X, 5)
    assert labels.shape == scores.shape == (900, 5)
    assert (np.diff(scores, axis=1) <= 0).all()


@pytest.mark.parametrize("search", ["sketch", "exact"])
def test_threads_do_not_matter(data, search):
    one, three = (fitted(data, n_jobs=n, split_search=search) for n in (1, 3))
    mine, theirs = (forest.to_arrays(model.model_.forest) for model in (one, three))
    for name in mine:
        np.testing.assert_array_equal(mine[name], theirs[name])


def test_order_of_indices_does_not_matter(data):
    X, Y = data
    shuffled = Y.copy()
    for row in range(Y.shape[0]):
        part = slice(Y.indptr[row], Y.indptr[row + 1])
        shuffled.indices[part] = Y.indices[part][::-1]
    shuffled.has_sorted_indices = False
    assert fitted(data).model_.equals(fitted((X, shuffled)).model_)


def test_rows_without_labels_are_legal(data):
    X, Y = data
    emptied = Y.tolil()
    emptied[::7] = 0
    model = fitted((X, emptied.tocsr()))
    assert model.predict_topk(X[:3], 2)[0].shape == (3, 2)


def test_saved_and_loaded(data, tmp_path):
    X, _ = data
    model = fitted(data, projection="leml", projection_dim=6)
    model.save_model(tmp_path / "sparse.polyleaf")
    again = polyleaf.load_model(tmp_path / "sparse.polyleaf")
    for mine, theirs in zip(model.predict_topk(X, 3), again.predict_topk(X, 3), strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_leaves_hold_few_outputs(data):
    trees = fitted(data).model_.forest
    for t in range(len(trees)):
        assert trees.kind(t) == "sparse"
        assert np.diff(trees.values(t).indptr).max() <= 5
