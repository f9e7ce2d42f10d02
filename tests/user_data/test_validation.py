"""Validation: corrupt sparse matrices, masks, dates, too many columns."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from polyleaf import Dataset, PolyleafClassifier, PolyleafRegressor, RowData
from polyleaf.user_data.features import read_features
from polyleaf.user_data.target import encode_regression
from polyleaf.user_data.validation import check_data

RNG = np.random.default_rng(0)
DENSE = np.where(RNG.random((60, 8)) < 0.4, RNG.normal(size=(60, 8)), 0.0)
Y = DENSE[:, 0] + DENSE[:, 1]


def column_far_away(A):
    A.indices[0] = 10**6


def column_one_past_the_end(A):
    A.indices[0] = 100


def negative_column(A):
    A.indices[3] = -5


def falling_starts(A):
    A.indptr[2], A.indptr[3] = A.indptr[3], A.indptr[2] - 1


def starts_beyond_the_end(A):
    A.indptr[-1] += 1000


def starts_late(A):
    A.indptr[0] = 1


def starts_of_too_few(A):
    A.indptr = A.indptr[:-2]


def fewer_values_than_indices(A):
    A.data = A.data[:3]


CORRUPT = [
    column_far_away,
    column_one_past_the_end,
    negative_column,
    falling_starts,
    starts_beyond_the_end,
    starts_late,
    starts_of_too_few,
    fewer_values_than_indices,
]


@pytest.mark.parametrize("make", [sp.csr_matrix, sp.csc_matrix, sp.bsr_matrix, sp.csr_array])
@pytest.mark.parametrize("spoil", CORRUPT)
def test_corrupt_sparse_matrices_raise(spoil, make):
    fitted = PolyleafRegressor(n_estimators=2).fit(DENSE, Y)
    corrupt = make(DENSE)
    spoil(corrupt)
    labels = make((DENSE > 0).astype(np.float32))
    spoil(labels)
    with pytest.raises(ValueError, match="X is not a valid sparse matrix"):
        PolyleafRegressor().fit(corrupt, Y)
    with pytest.raises(ValueError, match="X is not a valid sparse matrix"):
        PolyleafRegressor(projection="gaussian", projection_dim=2).fit(corrupt, Y)
    with pytest.raises(ValueError, match="X is not a valid sparse matrix"):
        fitted.predict(corrupt)
    for settings in ({}, {"leaf": "sparse", "leaf_k": 2}):
        with pytest.raises(ValueError, match="y is not a valid sparse matrix"):
            PolyleafClassifier(**settings).fit(DENSE, labels)


def test_coo_entries_outside_the_shape_raise():
    for row, column in ((-1, 0), (60, 0), (0, 8), (0, -2)):
        A = sp.coo_matrix(DENSE)
        A.row[0], A.col[0] = row, column
        with pytest.raises(ValueError, match="not a valid sparse matrix: it stores"):
            read_features(A)


@pytest.mark.parametrize("format", ["csr", "csc", "bsr", "coo", "lil", "dok", "dia"])
def test_valid_matrices_are_unchanged(format):
    A = sp.csr_matrix(DENSE).asformat(format)
    np.testing.assert_array_equal(check_data(A, "X").toarray(), DENSE)
    assert check_data(DENSE, "X") is DENSE


def test_masked_values_are_missing():
    mask = np.random.default_rng(1).random(DENSE.shape) < 0.2
    masked, missing = np.ma.masked_array(DENSE, mask), np.where(mask, np.nan, DENSE)
    settings = {"n_estimators": 5, "random_state": 0}
    of_masked, of_missing = (
        PolyleafRegressor(**settings).fit(X, Y).model_ for X in (masked, missing)
    )
    assert of_masked.equals(of_missing)
    fitted = PolyleafRegressor(**settings).fit(missing, Y)
    np.testing.assert_array_equal(fitted.predict(masked), fitted.predict(missing))
    integers = np.ma.masked_array(DENSE.round().astype(int), mask)
    assert np.isnan(read_features(integers).get_raw_values().T).sum() == mask.sum()
    assert read_features(np.ma.masked_array(DENSE)).dense[0].values.dtype == np.float64


def test_masked_targets_are_missing():
    target = np.ma.masked_array(Y, np.arange(60) % 7 == 0)
    with pytest.raises(ValueError, match='missing_targets="ignore"'):
        PolyleafRegressor().fit(DENSE, target)
    ignored = encode_regression(RowData(target), missing="ignore")
    assert (ignored.weight == 0).sum() == 9
    with pytest.raises(ValueError, match=r"sample_weight must be finite.*row 0 has nan"):
        PolyleafRegressor().fit(
            DENSE, Y, sample_weight=np.ma.masked_array(np.ones(60), target.mask)
        )


@pytest.mark.parametrize("make", [np.asarray, pd.Series, lambda y: pd.DataFrame({"a": y, "b": y})])
@pytest.mark.parametrize("dtype", ["datetime64[s]", "timedelta64[h]"])
def test_dates_as_targets_raise(make, dtype):
    y = make(np.arange(60).astype(dtype))
    with pytest.raises(ValueError, match="y holds dates or times"):
        PolyleafRegressor().fit(DENSE, y)


@pytest.mark.parametrize("scale", [1e-16, 1e-20, 1e-25, 1e-29])
def test_targets_on_a_tiny_scale(scale):
    X = np.random.default_rng(2).normal(size=(300, 3))
    for y in (X[:, 0], X[:, :2]):
        fitted = PolyleafRegressor(n_estimators=100, random_state=0).fit(X, y * scale)
        assert fitted.score(X, y * scale) > 0.95


def test_too_many_features_raise_before_binning(monkeypatch):
    X = sp.csr_matrix((np.ones(3), ([0, 1, 2], [0, 5, 4_999_999])), shape=(60, 5_000_000))
    monkeypatch.setattr(
        "polyleaf.binned_data.binning.BinMapper.fit", lambda *args: pytest.fail("was binned")
    )
    for train in (lambda: PolyleafRegressor().fit(X, Y), lambda: Dataset(X, Y)):
        with pytest.raises(ValueError, match=r"X has 5000000 features.*4194304.*projection"):
            train()
