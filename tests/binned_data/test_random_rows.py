"""Random splits of rows, and equal rows."""

import numpy as np
import pytest
import scipy.sparse

from polyleaf import Dataset
from polyleaf.binned_data.random_rows import (
    SplitRules,
    find_repeated_rows,
    hash64,
    hash_values,
    split_folds,
)


def find(X, y, offset=None):
    return find_repeated_rows(Dataset(X).hash_rows(), y, offset)


def test_hashes_are_those_of_splitmix64():
    # The generator adds its constant to the state before each number; from seed 0.
    state = np.arange(3).astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    expected = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    assert hash64(state).tolist() == expected


def test_copies_share_the_number_of_the_first_row():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((50, 3)), rng.standard_normal(50)
    X[::7, 1] = np.nan
    rows = np.concatenate([np.arange(50), [3, 7, 3]])
    expected = np.concatenate([np.arange(50), [3, 7, 3]])
    np.testing.assert_array_equal(find(X[rows], y[rows]), expected)
    assert find(X, y) is None
    offset = np.zeros(53)
    offset[50] = 1.0  # another exposure makes another row
    expected[50] = 50
    expected[51:] = [7, 3]
    np.testing.assert_array_equal(find(X[rows], y[rows], offset), expected)


def test_dense_and_sparse_features_have_the_same_copies():
    rng = np.random.default_rng(0)
    X = rng.integers(1, 9, (300, 12)) * (rng.random((300, 12)) < 0.2)
    X[:, 0] = rng.standard_normal(300) * 1000
    X, y = np.tile(X, (2, 1)), np.tile(rng.standard_normal((300, 2)), (2, 1))
    found = find(X, y)
    np.testing.assert_array_equal(found, np.tile(np.arange(300), 2))
    np.testing.assert_array_equal(found, find(scipy.sparse.csr_matrix(X), y))
    labels = (y > 0.5).astype(float)
    dense = find_repeated_rows(hash_values(X), labels)
    sparse = scipy.sparse.csr_matrix(labels)
    np.testing.assert_array_equal(dense, find_repeated_rows(hash_values(X), sparse))


def test_rows_equal_by_chance_are_not_copies():
    rng = np.random.default_rng(0)
    X = rng.integers(0, 4, (500, 2))
    y = (rng.random(500) < 0.2 + 0.2 * X[:, 0]).astype(int)
    assert find(X, y) is None
    assert find(X, (rng.random(500) < 0.01).astype(int)) is None  # nearly all targets are equal
    twice = find(np.tile(X, (2, 1)), np.tile(rng.standard_normal(500), 2))
    np.testing.assert_array_equal(twice, np.tile(np.arange(500), 2))


@pytest.mark.parametrize("n_groups", [3, 40])
def test_groups_are_not_split(n_groups):
    rng = np.random.default_rng(0)
    groups = rng.integers(0, n_groups, 200)
    for classes in (None, groups % 2):
        train, held = SplitRules(groups).split(200, 0.2, 0, classes)
        assert not set(groups[train]) & set(groups[held])
        np.testing.assert_array_equal(np.sort([*train, *held]), np.arange(200))
    fold = split_folds(200, 10, rng, groups)
    assert len(np.unique(fold)) == fold.max() + 1 == min(10, len(np.unique(groups)))
    for group in np.unique(groups):
        assert len(set(fold[groups == group])) == 1
    assert np.bincount(fold).max() <= 200 / min(10, n_groups) + np.bincount(groups).max()


@pytest.mark.parametrize("has_groups", [False, True])
def test_training_rows_are_earlier_than_evaluation_rows(has_groups):
    rng = np.random.default_rng(0)
    time = rng.permutation(np.repeat(np.arange(60), 5))  # several rows have the same time
    rules = SplitRules(rng.integers(0, 150, 300) if has_groups else None, time)
    folds = [rules.split(300, 0.2, 0, None), *rules.iter_folds(300, 10, 0)]
    assert len(folds) == 7 and 55 <= len(folds[0][1]) <= 65
    for train, held in folds:
        assert time[train].max() < time[held].min()
        assert len(train) >= (40 if has_groups else 110)
        if has_groups:
            assert not set(rules.groups[train]) & set(rules.groups[held])
    held = np.concatenate([held for _, held in folds[1:]])
    assert len(held) == len(set(held)) >= 150
    part = rules.take(np.flatnonzero(time % 7 < 2))
    assert sum(len(held) for _, held in part.iter_folds(len(part.time), 10, 0)) > 30


def test_connected_groups_are_merged():
    first, second = np.array([0, 0, 1, 2, 3]), np.array([0, 1, 1, 2, 3])
    joined = SplitRules(first).join(second).groups
    assert joined[0] == joined[1] == joined[2] and len(set(joined)) == 3
    assert SplitRules(first).join(None).groups is first
    assert SplitRules().join(second).groups is second


def test_copies_that_join_all_groups_are_divided():
    groups, copies = np.array([0, 0, 1, 1, 2, 2]), np.array([0, 1, 1, 2, 2, 3])
    assert not SplitRules(groups).join(copies).groups.any()
    assert SplitRules(groups).keep_copies(copies).groups is groups
    some = np.array([0, 1, 1, 2, 3, 4])
    np.testing.assert_array_equal(SplitRules(groups).keep_copies(some).groups, [0, 0, 0, 0, 1, 1])
    with pytest.raises(ValueError, match="groups join all queries to one"):
        SplitRules(groups).keep_queries(copies)
