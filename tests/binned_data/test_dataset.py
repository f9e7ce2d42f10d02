"""Dataset: it is binned once and consistent with its mapper."""

import pickle

import numpy as np
import pytest
from sklearn.base import clone

from polyleaf import PolyleafRegressor
from polyleaf.binned_data.binning import BinMapper
from polyleaf.binned_data.dataset import Dataset
from polyleaf.user_data.features import read_features


@pytest.fixture
def X():
    return np.random.default_rng(0).normal(size=(500, 4))


def test_codes_equal_those_of_the_mapper(X):
    data = Dataset(X, feature_names=list("abcd"))
    np.testing.assert_array_equal(data.codes, data.mapper.transform(read_features(X)))
    assert data.codes.dtype == np.uint8 and data.codes.flags.c_contiguous
    assert (data.n_rows, data.n_features, data.shape, len(data)) == (500, 4, (500, 4), 500)
    assert data.feature_names == ("a", "b", "c", "d") and data.nbytes == 2000
    assert repr(data).startswith("Dataset(500 rows, 4 features")


@pytest.mark.parametrize("as_reference", [lambda data: data, lambda data: data.mapper])
def test_reference_shares_bins(X, as_reference):
    train = Dataset(X, max_bins=16, categorical_features=[3])
    other = Dataset(X[::-1] * 2, reference=as_reference(train))
    assert other.mapper is train.mapper
    with pytest.raises(ValueError, match="expecting 4 features"):
        Dataset(X[:, :2], reference=as_reference(train))


def test_integer_weights_equal_repeated_rows(X):
    weights = np.random.default_rng(1).integers(0, 4, len(X))
    weighted = Dataset(X, sample_weight=weights, max_bins=8)
    assert weighted.mapper.has_same_bins(Dataset(np.repeat(X, weights, axis=0), max_bins=8).mapper)
    assert not weighted.mapper.has_same_bins(Dataset(X, max_bins=8).mapper)


@pytest.mark.parametrize("columns", [None, 1, 2])
@pytest.mark.parametrize("weighted", [False, True])
def test_rows_without_targets_are_binned_as_in_a_fit_on_arrays(X, columns, weighted):
    rng = np.random.default_rng(1)
    y = X[:, :2] + rng.normal(size=(len(X), 2))
    y[X[:, 0] > 0.3, 0] = np.nan  # so that bins of its first feature show it
    y = y[:, 0] if columns is None else y[:, :columns]
    weight = rng.integers(1, 4, len(X)) if weighted else None
    model = PolyleafRegressor(n_estimators=2, missing_targets="ignore", max_bins=16)
    on_arrays = model.fit(X, y, sample_weight=weight).model_.mapper
    data = Dataset(X, y, sample_weight=weight, max_bins=16)
    assert data.mapper.has_same_bins(on_arrays)
    assert not Dataset(X, sample_weight=weight, max_bins=16).mapper.has_same_bins(on_arrays)
    np.testing.assert_array_equal(clone(model).fit(data).predict(X), model.predict(X))


def test_targets_that_are_not_numbers_are_known(X):
    labels = np.where(X[:, 0] > 0, "yes", "no")
    unknown = np.full(len(X), np.nan)
    for y in (labels, labels.astype(object), unknown, X[:, 0]):
        assert Dataset(X, y).mapper.has_same_bins(Dataset(X).mapper)


def test_codes_are_independent_of_threads_and_calls(X):
    large = np.tile(X, (100, 1)) + np.arange(50_000)[:, None] * 1e-4
    first = Dataset(large, n_jobs=1)
    for n_jobs in (2, 5):
        again = Dataset(large, n_jobs=n_jobs)
        assert again.mapper.has_same_bins(first.mapper)
        np.testing.assert_array_equal(again.codes, first.codes)


def test_pickle_round_trip(X):
    data = Dataset(X, np.arange(500), sample_weight=np.ones(500))
    copy = pickle.loads(pickle.dumps(data))
    np.testing.assert_array_equal(copy.codes, data.codes)
    np.testing.assert_array_equal(copy.y, data.y)
    assert copy.mapper.has_same_bins(data.mapper)


def test_different_lengths_raise(X):
    with pytest.raises(ValueError, match="y has 3 rows, but X has 500"):
        Dataset(X, [1, 2, 3])
    with pytest.raises(ValueError, match="sample_weight has 3 rows"):
        Dataset(X, sample_weight=np.ones(3))


def test_codes_too_large_to_allocate_raise():
    mapper = BinMapper().fit(read_features(np.ones((2, 1))))
    table = read_features(np.ones((2, 1)))
    object.__setattr__(table, "n_rows", 2**62)
    with pytest.raises(MemoryError, match=r"4294967296.0 GiB, more than can be allocated"):
        mapper.transform(table)


def test_bins_are_computed_once(X):
    data = Dataset(X)
    assert data.bins is data.bins


def test_training_bins_have_the_bins_and_features_of_a_dataset():
    X = np.random.default_rng(0).normal(size=(50, 3))
    data = Dataset(X, keep_features=True)
    bins = data.to_training_bins()
    assert bins.mapper is data.mapper and bins.bins is data.bins and bins.n_rows == 50
    np.testing.assert_array_equal(bins.raw_features(), data.features)
    with pytest.raises(ValueError, match="keep_features=True"):
        Dataset(X).to_training_bins().raw_features()
