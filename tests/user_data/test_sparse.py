"""Canonical CSR is independent of the order of entries; inputs are not modified."""

import numpy as np
import pytest
import scipy.sparse as sp

from polyleaf.user_data.features import read_features
from polyleaf.user_data.validation import get_csr_arrays, to_canonical_csr


def make_csr(data, indices, indptr, shape):
    return sp.csr_matrix(
        (np.array(data, np.float32), np.array(indices, np.int32), np.array(indptr)), shape
    )


def test_order_of_entries_has_no_effect():
    mixed = make_csr([3, 1, 0, 2, 5], [2, 0, 1, 0, 2], [0, 3, 5], (2, 3))
    before = [array.copy() for array in (mixed.data, mixed.indices, mixed.indptr)]
    found = to_canonical_csr(mixed, "X")
    assert found.indices.tolist() == [0, 2, 0, 2] and found.data.tolist() == [1, 3, 2, 5]
    for now, then in zip((mixed.data, mixed.indices, mixed.indptr), before, strict=True):
        np.testing.assert_array_equal(now, then)


def test_canonical_matrices_are_not_copied():
    rows = sp.csr_matrix(np.eye(3, dtype=np.float32))
    assert np.shares_memory(to_canonical_csr(rows, "X").data, rows.data)


@pytest.mark.parametrize("container", [np.asarray, sp.csc_matrix, sp.coo_array])
def test_all_containers(container):
    dense = np.array([[0, 2.5], [1, 0]])
    found = to_canonical_csr(container(dense), "X")
    assert found.dtype == np.float32 and found.nnz == 2
    np.testing.assert_array_equal(found.toarray(), dense)


def test_duplicate_entries_are_summed_or_raise():
    twice = make_csr([1, 2, 4], [1, 1, 0], [0, 3], (1, 2))
    assert to_canonical_csr(twice, "Y").toarray().tolist() == [[4, 3]]
    with pytest.raises(ValueError, match="Y stores 1 entries twice: call sum_duplicates"):
        to_canonical_csr(twice, "Y", repeated="raise")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (np.ones(3), r"two dimensions, \(n_rows, n_columns\), not shape \(3,\)"),
        (np.array([["a"]]), "must hold numbers, not <U1"),
        (np.empty((2, 0)), "at least one row and one column"),
        (sp.csr_matrix((1, 2**31)), "2147483648 columns"),
        (np.array([[1e39]]), "too large for float32"),
        (
            make_csr([1, 1], [0, 7], [0, 1, 2], (2, 3)),
            "M is not a valid sparse matrix: it stores column 7, outside 0 .. 2",
        ),
    ],
)
def test_invalid_matrices_raise(values, message):
    with pytest.raises(ValueError, match=message):
        to_canonical_csr(values, "M")


def test_one_dimensional_features_raise():
    with pytest.raises(ValueError, match="Expected 2D array, got 1D array"):
        read_features(sp.coo_array(np.ones(3)))


def test_dtypes_for_the_core():
    arrays = get_csr_arrays(sp.csr_matrix(np.eye(2)))
    assert [array.dtype for array in arrays] == [np.int64, np.int32, np.float32]
