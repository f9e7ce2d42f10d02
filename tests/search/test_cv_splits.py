"""Rows and data of folds: validation rows have no influence on training."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
from sklearn.model_selection import TimeSeriesSplit

from polyleaf import Dataset, PolyleafRegressorCV, RowData
from polyleaf.binned_data.random_rows import SplitRules
from polyleaf.search.cv_splits import LARGE_N_ROWS, make_folds, split_rows
from polyleaf.training.prepare import read_split_rules
from polyleaf.training.training_run import TrainingData
from polyleaf.user_data.target import encode_classification, encode_regression


def make_data(X, y, groups=None):
    return TrainingData("training", X, RowData(y, groups=groups))


def split(y, cv=None, groups=None, classes=False, X=None):
    target = encode_classification(RowData(y)) if classes else encode_regression(RowData(y))
    rules = read_split_rules(PolyleafRegressorCV(), RowData(groups=groups), len(y))
    X = np.zeros((len(y), 1)) if X is None else X
    return split_rows(cv, make_data(X, y, groups), target, 0, rules)


def test_each_row_is_validated_once():
    rows = split(np.arange(31.0), cv=4)
    assert len(rows) == 4
    np.testing.assert_array_equal(
        np.sort(np.concatenate([valid for _, valid in rows])), np.arange(31)
    )
    for train, valid in rows:
        np.testing.assert_array_equal(np.sort(np.concatenate([train, valid])), np.arange(31))


def test_folds_are_stratified_and_rare_classes_are_always_trained_on():
    y = np.array([0] * 30 + [1] * 15 + [2])
    for train, valid in split(y, cv=3, classes=True):
        assert 45 in train
        assert np.bincount(y[valid]).tolist() == [10, 5]


def test_many_rows_have_a_single_hold_out():
    (rows,) = split(np.arange(LARGE_N_ROWS + 5.0))
    assert len(rows[1]) == 4001


@pytest.mark.parametrize("n_rows", [60, LARGE_N_ROWS + 5])
def test_groups_are_not_split(n_rows):
    groups = np.arange(n_rows) % 7
    for train, valid in split(np.arange(float(n_rows)), groups=groups):
        assert not set(groups[train]) & set(groups[valid])


@pytest.mark.parametrize("classes", [False, True])
@pytest.mark.parametrize("n_rows", [60, LARGE_N_ROWS + 5])
def test_equal_rows_are_not_split(n_rows, classes):
    repeated = np.random.default_rng(0).permutation(np.repeat(np.arange(n_rows), 2))
    y = repeated % 3 if classes else repeated / 7
    target = encode_classification(RowData(y)) if classes else encode_regression(RowData(y))
    found = split_rows(None, make_data(y[:, None], y), target, 0, SplitRules(repeated))
    for train, valid in found:
        assert not set(repeated[train]) & set(repeated[valid])
        assert len(train) + len(valid) == 2 * n_rows and 1.5 < len(train) / len(valid) < 4.5


@pytest.mark.parametrize(("cv", "n_folds"), [(None, 3), (4, 4)])
@pytest.mark.parametrize("n_rows", [60, LARGE_N_ROWS + 5])
def test_folds_in_time_order(n_rows, cv, n_folds):
    time = np.random.default_rng(0).permutation(n_rows)
    y = np.arange(float(n_rows))
    target, rules = encode_regression(RowData(y)), SplitRules(time=time)
    found = split_rows(cv, make_data(y[:, None], y), target, 0, rules)
    assert len(found) == (1 if cv is None and n_rows > 60 else n_folds)
    for train, valid in found:
        assert time[train].max() < time[valid].min() and len(valid) >= n_rows / 10


def test_groups_are_stratified_if_a_fold_would_lack_classes(recwarn):
    groups = np.repeat(np.arange(9), 4)
    y = np.where(groups < 2, 2, np.arange(36) % 2)  # the third class is in two groups of nine
    target, X = encode_classification(RowData(y)), np.zeros((36, 1))
    for seed in range(20):  # in a quarter of the draws both would be in one fold
        found = split_rows(None, make_data(X, y, groups), target, seed, SplitRules(groups))
        for train, valid in found:
            assert not set(groups[train]) & set(groups[valid]) and set(y[train]) == {0, 1, 2}
    assert not recwarn.list
    y = np.where(groups < 1, 2, np.arange(36) % 2)  # in one group
    with pytest.raises(ValueError, match="2 of the 3 classes"):
        split_rows(
            None, make_data(X, y, groups), encode_classification(RowData(y)), 0, SplitRules(groups)
        )


def test_time_series_splitter():
    rows = split(np.arange(40.0), cv=TimeSeriesSplit(3))
    assert all(train.max() < valid.min() for train, valid in rows)


def test_groups_that_span_the_whole_time_cannot_be_divided():
    X, rng = np.arange(40.0)[:, None], np.random.default_rng(0)
    search = PolyleafRegressorCV(n_candidates=2)
    with pytest.raises(ValueError, match="groups must not span the whole time"):
        search.fit(X, X[:, 0], groups=rng.integers(0, 3, 40), time=np.arange(40))


def test_splitter_with_a_dataset():
    y = np.arange(20.0)
    ours = split(y, cv=TimeSeriesSplit(3), X=Dataset(y[:, None]))
    assert [(t.tolist(), v.tolist()) for t, v in ours] == [
        (t.tolist(), v.tolist()) for t, v in split(y, cv=TimeSeriesSplit(3))
    ]


def test_masks_and_negative_indices():
    mask = np.arange(10) < 7
    ((train, valid), (_, last)) = split(np.arange(10.0), cv=[(mask, ~mask), (np.arange(9), [-1])])
    assert train.tolist() == list(range(7)) and valid.tolist() == [7, 8, 9] and last.tolist() == [9]


def test_validation_rows_of_unseen_classes_are_dropped():
    y = np.array([0, 1, 3] * 4 + [2, 0])
    ((_, valid),) = split(y, cv=[(np.arange(9), np.arange(9, 14))], classes=True)
    assert valid.tolist() == [9, 10, 11, 13]


@pytest.mark.parametrize(("y", "needs"), [([0, 1, 2], "at least 3"), ([0, 0, 1], "at least 2")])
def test_error_names_a_fold_with_too_few_classes(y, needs):
    y = np.repeat(y, 10)
    with pytest.raises(
        ValueError, match=f"Fold 1 of 3 has training rows of 1 of the . classes.*{needs}"
    ):
        split(y, cv=TimeSeriesSplit(3), classes=True)


@pytest.mark.parametrize(
    ("cv", "groups", "message"),
    [
        (1, None, "at least 2 folds"),
        ([(np.arange(5), [])], None, "without validation rows"),
        ([([0], [1])], None, "fewer than two training rows"),
        (3, [0, 1], "groups has 2 entries, but X has 12 rows"),
        (13, None, "12 rows are too few for 13 folds"),
        ("kfold", None, "a number of folds"),
        (3.0, None, "got 3.0"),
        ([0, 1, 2], None, r"cv\[0\] must be a pair"),
        ([(np.arange(5.0), [6])], None, r"cv\[0\] must hold row indices"),
        ([(np.zeros((2, 2), int), [6])], None, "row indices or a boolean mask"),
        ([(np.arange(5), [12])], None, r"cv\[0\] has row 12, but X has 12 rows"),
        ([(np.ones(8, bool), [10])], None, "a mask of 8 rows, but X has 12"),
        (
            [(np.arange(5), [8]), (np.arange(5), [4, 5])],
            None,
            r"cv\[1\] trains on 1 of its validation rows.*row 4",
        ),
        (3, [None, *range(11)], "groups has missing values"),
    ],
)
def test_invalid_cv_and_groups(cv, groups, message):
    with pytest.raises(ValueError, match=message):
        split(np.arange(12.0), cv=cv, groups=groups)


def test_classes_that_are_too_rare_for_folds_raise():
    with pytest.raises(ValueError, match="no class has enough rows for 4 folds"):
        split(np.arange(12) // 3, cv=4, classes=True)


@pytest.mark.parametrize("as_matrix", [np.asarray, scipy.sparse.csr_matrix])
def test_fold_data_equal_the_codes_of_its_rows(as_matrix):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 6)) * (rng.random((80, 6)) < [1, 1, 0.5, 0.1, 0.05, 0.03])
    dataset = Dataset(as_matrix(X))
    weight = rng.random(80)
    train, valid = np.arange(0, 80, 2), np.arange(1, 80, 2)
    (fold,) = make_folds(
        dataset, TrainingData("training", X, RowData(list(range(80)), weight)), [(train, valid)]
    )
    np.testing.assert_array_equal(fold.train.X.codes, dataset.codes[:, train])
    np.testing.assert_array_equal(fold.valid.X.codes, dataset.codes[:, valid])
    assert fold.train.rows.target == train.tolist() and fold.growth == 2.0
    np.testing.assert_array_equal(fold.valid.rows.weight, weight[valid])


def test_folds_are_made_on_first_use():
    y, sizes = np.arange(30.0), []

    class CountingDataset(Dataset):
        def rows(self, rows):
            sizes.append(len(rows))
            return super().rows(rows)

    data = make_data(y[:, None], y)
    folds = make_folds(CountingDataset(y[:, None]), data, split(y, cv=3))
    assert len(folds) == 3 and sizes == []
    assert folds[1] is folds[1] and sizes == [20, 10]
