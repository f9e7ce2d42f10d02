"""Sparse targets end to end: never dense, and the same model for all input forms."""

import numpy as np
import pytest
import scipy.sparse as sp

import polyleaf
from polyleaf import PolyleafClassifier, PolyleafRegressor
from polyleaf.model import prediction as prediction_module
from polyleaf.model import storage
from polyleaf.settings import presets
from polyleaf.user_data.read_target import to_numpy


@pytest.fixture(scope="module")
def data():
    """Return rows of eight groups; each group has its own labels, some of them rare."""
    rng = np.random.default_rng(0)
    group = rng.integers(0, 8, 900)
    X = rng.normal(size=(900, 12)) + 3.0 * rng.normal(size=(8, 12))[group]
    chance = np.where(rng.random((8, 60)) < 0.1, 0.9, 0.01)
    Y = sp.csr_matrix((rng.random((900, 60)) < chance[group]).astype(np.float32))
    return X.astype(np.float32), Y


SMALL = {"n_estimators": 30, "min_child_samples": 10, "leaf_k": 5, "random_state": 0}
SMALL |= {"projection": None, "projection_dim": None, "tfidf": False}


def fit_model(data, n_jobs=1, **parameters):
    X, Y = data
    settings = presets.gbdt_sparse() | SMALL | {"n_jobs": n_jobs}
    return PolyleafClassifier(**{**settings, **parameters}).fit(X, Y)


def precision(model, X, Y, k=1):
    labels, _ = model.predict_topk(X, k)
    return float(np.mean(np.take_along_axis(Y.toarray(), labels, axis=1)))


@pytest.mark.parametrize("search", ["count_sketch", "exact"])
def test_labels_are_learned(data, search):
    X, Y = data
    model = fit_model(data, split_search=search)
    most_frequent = Y.toarray()[:, int(np.argmax(Y.sum(0)))].mean()
    assert precision(model, X, Y) > 0.85 > most_frequent
    labels, scores = model.predict_topk(X, 5)
    assert labels.shape == scores.shape == (900, 5)
    assert (np.diff(scores, axis=1) <= 0).all()


def test_model_is_independent_of_the_order_of_indices(data):
    X, Y = data
    shuffled = Y.copy()
    for row in range(Y.shape[0]):
        part = slice(Y.indptr[row], Y.indptr[row + 1])
        shuffled.indices[part] = Y.indices[part][::-1]
    shuffled.has_sorted_indices = False
    assert fit_model(data).model_.equals(fit_model((X, shuffled)).model_)


def test_many_rows_without_labels():
    """Leaves give rows without labels scores and therefore gradients."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 4)).astype(np.float32)
    Y = sp.lil_matrix((3000, 5), dtype=np.float32)
    Y[2500:, 1] = X[2500:, :1] > 0
    model = fit_model((X, Y.tocsr()), n_estimators=5)
    assert model.model_.n_trees == 5 and precision(model, X[2500:], Y.tocsr()[2500:]) > 0.4


def test_save_and_load(data, tmp_path):
    X, _ = data
    model = fit_model(data, projection="leml", projection_dim=6)
    model.save_model(tmp_path / "sparse.polyleaf")
    again = polyleaf.load_model(tmp_path / "sparse.polyleaf")
    for mine, theirs in zip(model.predict_topk(X, 3), again.predict_topk(X, 3), strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_leaves_have_few_outputs(data):
    trees = fit_model(data).model_.forest
    for t in range(len(trees)):
        assert trees.kind(t) == "sparse"
        assert np.diff(trees.values(t).indptr).max() <= 5


def test_columns_without_labels(data):
    """Absent labels are not predicted, and constant features are not used."""
    X, Y = data
    wide = sp.hstack([Y, sp.csr_matrix((900, 500))]).tocsr()
    padded = np.hstack([X, np.zeros((900, 3)), np.full((900, 1), np.nan)])
    model, plain = fit_model((padded, wide)), fit_model(data)
    for ours, theirs in zip(model.predict_topk(padded, 4), plain.predict_topk(X, 4), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert model.predict(padded, sparse=True).shape == (900, 560)


def test_sparse_prediction(data):
    X, Y = data
    model = fit_model(data)
    found = model.predict(X, sparse=True)
    assert sp.issparse(found) and found.dtype == np.int64 and found.has_canonical_format
    np.testing.assert_array_equal(found.toarray(), model.predict(X))
    assert 0 < found.nnz < 3 * Y.nnz
    regressor = PolyleafRegressor(**presets.gbdt_sparse() | SMALL).fit(X, Y * 2.5)
    numbers = regressor.predict(X, sparse=True)
    np.testing.assert_array_equal(numbers.toarray(), regressor.predict(X))


def test_labels_by_name(data):
    import pandas as pd

    X, Y = data
    frame = pd.DataFrame(Y.toarray(), columns=[f"tag {k}" for k in range(60)])
    model, plain = fit_model((X, frame), split_search="count_sketch"), fit_model(data)
    labels, scores = model.predict_topk(X, 3, names=True)
    numbers, theirs = plain.predict_topk(X, 3)
    np.testing.assert_array_equal(scores, theirs)
    assert labels.tolist() == [[f"tag {k}" if k >= 0 else "" for k in row] for row in numbers]
    with pytest.raises(ValueError, match="have no names"):
        plain.predict_topk(X, 3, names=True)


def replace_arrays(Y, **arrays):
    """Return a changed copy, which may be inconsistent, as SciPy does not check it."""
    made = Y.copy()
    for name, change in arrays.items():
        change(getattr(made, name))
    return made


def put(at, value):
    return lambda array: array.__setitem__(at, value)


def repeat_first(array):
    array[1] = array[0]


BAD = {
    "a label above": (lambda Y: replace_arrays(Y, indices=put(5, 60)), "column 60, outside 0 .. 5"),
    "a label below": (lambda Y: replace_arrays(Y, indices=put(5, -1)), "stores column -1"),
    "a label twice": (lambda Y: replace_arrays(Y, indices=repeat_first), "twice"),
    "not an indicator": (lambda Y: replace_arrays(Y, data=put(3, 0.5)), "0 and 1 only"),
    "not a number": (lambda Y: replace_arrays(Y, data=put(3, np.nan)), "NaN"),
    "nothing": (lambda Y: sp.csr_matrix(Y.shape), "only zeros"),
    "other rows": (lambda Y: Y[:-1], "899"),
    "too many labels": (
        lambda Y: sp.csr_matrix((Y.data, Y.indices.astype(np.int64), Y.indptr), (900, 2**31)),
        "2147483647",
    ),
    "no labels": (lambda Y: sp.csr_matrix((900, 0)), "at least one row and one column|shape"),
    "complex numbers": (lambda Y: Y.astype(complex), "must hold numbers"),
}


@pytest.mark.parametrize("projection", [None, "leml"])
@pytest.mark.parametrize("what", BAD)
def test_invalid_targets_raise(data, what, projection):
    make, message = BAD[what]
    X, Y = data
    Y.sort_indices()
    options = {"projection": projection, "projection_dim": None if projection is None else 5}
    with pytest.raises(ValueError, match=message):
        fit_model((X, make(Y)), split_search="count_sketch", **options)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"objective": "logistic"}, "squared_hinge"),
        ({"objective": "absolute_error"}, "absolute_error"),
        ({"leaf": "dense"}, "leaf"),
        ({"leaf": "linear"}, "leaf"),
        ({"leaf_k": 0}, "leaf_k"),
        ({"threshold_step": 1.0, "split_search": "exact"}, "threshold_step"),
        ({"base_score": 0.5}, "base"),
        ({"split_search": "exact", "categorical_features": [0]}, "categorical"),
    ],
)
def test_incompatible_parameters_raise(data, parameters, message):
    X, Y = data
    X = X.round()  # derived columns of high-cardinality features are numeric
    model = PolyleafClassifier(**presets.gbdt_sparse() | SMALL | parameters)
    with pytest.raises(ValueError, match=message):
        model.fit(X, Y, eval_set=[(X, Y)])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda X, Y: (X[:, :5], Y), "5 features"),
        (lambda X, Y: (X, Y[:, :30]), "30 column"),
        (lambda X, Y: (X[:9], Y), "900 rows, but X has 9"),
    ],
)
def test_evaluation_sets(data, make, message):
    X, Y = data
    with pytest.raises(ValueError, match=message):
        PolyleafClassifier(**presets.gbdt_sparse() | SMALL).fit(X, Y, eval_set=[make(X, Y)])


def test_early_stopping(data):
    X, Y = data
    stopping = {"n_estimators": 60, "learning_rate": 0.5, "early_stopping_rounds": 5}
    model = PolyleafClassifier(**presets.gbdt_sparse() | SMALL | stopping)
    model.fit(X[:600], Y[:600], eval_set=[(X[600:], Y[600:])])
    best = model.best_iteration_
    assert best < 59
    labels, _ = model.predict_topk(X[600:], 5)
    watched = model.evals_result_["validation_0"]["p@1"][best]
    assert np.mean(np.take_along_axis(Y[600:].toarray(), labels, 1)[:, 0]) == pytest.approx(watched)


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"subsample": 0.7},
        {"sampling_method": "goss"},
        {"colsample_bynode": 0.5},
        {"max_bins": 5},
        {"n_jobs": 3},
    ],
    ids=str,
)
def test_sketch_search_gives_the_same_trees_for_sparse_x(parameters):
    """There are columns of few and many bins, sparse and dense, in more tiles than are verified."""
    rng = np.random.default_rng(0)
    dense = np.where(rng.random((1500, 160)) < 0.03, rng.integers(1, 40, (1500, 160)), 0).astype(
        np.float32
    )
    dense[:, 5::10] = rng.normal(size=(1500, 16))
    dense[:, 3::10] = np.minimum(dense[:, 3::10], 1)
    chance = np.where(rng.random((160, 40)) < 0.05, 1.5, 0.0)
    Y = sp.csr_matrix(
        (dense[:, :160].clip(0, 2) @ chance > 2.5) | (rng.random((1500, 40)) < 0.02)
    ).astype(np.float32)
    settings = {
        "leaf": "sparse",
        "leaf_k": 4,
        "split_search": "count_sketch",
        "n_estimators": 4,
        "random_state": 0,
    }
    settings |= {"sketch_dim": 8, "n_jobs": 1} | parameters
    models = [
        PolyleafClassifier(**settings).fit(X, Y).model_ for X in (dense, sp.csr_matrix(dense))
    ]
    assert models[0].trees[0].n_nodes > 10
    mine, theirs = (storage.to_arrays(model.forest) for model in models)
    for name in mine:
        np.testing.assert_array_equal(mine[name], theirs[name])


# --- more outputs than fit in memory --------------------------------------------------------------


def test_score_of_sparse_labels_uses_no_dense_scores(data, monkeypatch):
    X, Y = data
    model = fit_model(data)
    weight = np.random.default_rng(1).integers(0, 3, len(X))
    dense = [model.score(X, Y.toarray()), model.score(X, Y.toarray(), sample_weight=weight)]
    monkeypatch.setattr(type(model), "_raw", None)
    assert [model.score(X, Y), model.score(X, Y, sample_weight=weight)] == pytest.approx(dense)
    with pytest.raises(ValueError, match="rows"):
        model.score(X[:-1], Y)


class NumpyWithoutMemory:
    """NumPy whose `empty` fails."""

    def __getattr__(self, name):
        return getattr(np, name)

    def empty(self, shape):
        raise MemoryError("Unable to allocate an array.")


def test_scores_that_do_not_fit_name_the_alternatives(data, monkeypatch):
    X, _ = data
    model = fit_model(data)
    monkeypatch.setattr(prediction_module, "np", NumpyWithoutMemory())
    for predict in (model.predict, model.decision_function):
        with pytest.raises(MemoryError, match=r"900 rows and 60 outputs .*predict_topk.*sparse=T"):
            predict(X)
    assert model.predict(X, sparse=True).shape == (900, 60)


def test_targets_that_do_not_fit_name_the_alternatives():
    Y = sp.csr_matrix((4, 1 << 50))
    with pytest.raises(MemoryError, match=r'y is sparse.*GiB.*leaf="sparse"'):
        to_numpy(Y)
