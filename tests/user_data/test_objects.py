"""Objects that are neither numbers nor categories raise errors of this package."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from polyleaf import PolyleafClassifier, PolyleafRegressor
from polyleaf.user_data.validation import describe_type, find_non_number, replace_nulls_with_nan

N = 30
NUMBERS = np.arange(float(N))
PERIODS = pd.period_range("2020-01", periods=N, freq="M")
PLAIN = pd.DataFrame({"a": NUMBERS})


class DaskFrame:
    """Like a Dask frame: its shape is not known yet."""

    __module__ = "dask.dataframe.core"
    columns = ("a",)
    shape = (object(), 1)


def regressor():
    return PolyleafRegressor(n_estimators=1, n_jobs=1)


@pytest.mark.parametrize(
    ("X", "sentence"),
    [
        (
            pd.DataFrame({"p": PERIODS}),
            "Column 'p' of X holds a Period in row 0.*convert it to a number",
        ),
        (
            pd.DataFrame({"l": [[1, 2]] * N}),
            "Column 'l' of X holds a list in row 0.*its own column",
        ),
        (
            np.array([[1.0], [PERIODS[0]]] * 15, dtype=object),
            "Column number 0 of X holds a Period in row 1",
        ),
        (pd.DataFrame(np.ones((N, 2)), columns=["a", "a"]), "X has several columns named 'a'"),
        (pa.table([NUMBERS, NUMBERS], names=["a", "a"]), "X has several columns named 'a'"),
        (pl.LazyFrame({"a": NUMBERS}), r"X is a lazy frame.*X\.collect\(\)"),
        (DaskFrame(), r"X is a Dask DaskFrame.*X\.compute\(\)"),
    ],
)
def test_invalid_features_raise(X, sentence):
    with pytest.raises((TypeError, ValueError), match=sentence):
        regressor().fit(X, NUMBERS)


@pytest.mark.parametrize(
    ("y", "sentence"),
    [
        (pd.Series(PERIODS), "y holds a Period in row 0"),
        (pd.Series([[1]] * N), "y holds a list in row 0.*matrix"),
        (pd.DataFrame(np.ones((N, 2)), columns=["a", "a"]), "y has several columns named 'a'"),
        (pl.LazyFrame({"a": NUMBERS}), r"y is a lazy frame.*y\.collect\(\)"),
        (pd.Series([pd.NA, *NUMBERS[1:]], dtype=object), "Input y contains NaN.*missing_targets"),
    ],
)
def test_invalid_targets_raise(y, sentence):
    with pytest.raises((TypeError, ValueError), match=sentence):
        regressor().fit(PLAIN, y)


@pytest.mark.parametrize(
    ("y", "sentence"),
    [
        (pd.Series(PERIODS), "y holds a Period in row 0.*text"),
        (pd.Series([[1], [2]] * 15), "y holds a list in row 0.*MultiLabelBinarizer"),
        (pd.Series(["a", pd.NA, "b"] * 10, dtype=object), "row 1 has no label"),
        (pd.Series([0, 1, None] * 10), "row 2 has no label"),
        (pd.Series([0, None, 1] * 10, dtype="Int64"), "row 1 has no label"),
        (pd.Series([0, None, 1] * 10, dtype="category"), "row 1 has no label"),
    ],
)
def test_invalid_labels_raise(y, sentence):
    with pytest.raises(ValueError, match=sentence):
        PolyleafClassifier(n_estimators=1).fit(PLAIN, y)


def test_record_batches_and_pandas_nulls():
    expected = regressor().fit(PLAIN, NUMBERS).predict(PLAIN)
    batch = pa.RecordBatch.from_pydict({"a": NUMBERS})
    np.testing.assert_array_equal(regressor().fit(batch, batch).predict(batch), expected)
    nulls = np.array([[pd.NA], [1.0]], dtype=object)
    model = regressor().fit(PLAIN, NUMBERS)
    np.testing.assert_array_equal(model.predict(nulls), model.predict([[np.nan], [1.0]]))


def test_nulls_in_objects_are_missing_targets():
    objects = pd.Series([pd.NA, None, *NUMBERS[2:]], dtype=object)
    model = PolyleafRegressor(n_estimators=2, missing_targets="ignore").fit(PLAIN, objects)
    expected = PolyleafRegressor(n_estimators=2, missing_targets="ignore").fit(
        PLAIN, [np.nan, np.nan, *NUMBERS[2:]]
    )
    assert model.model_.to_bytes() == expected.model_.to_bytes()


def test_text_targets_of_a_regressor_raise():
    for labels in (
        ["a", "b"] * 15,
        pd.Series(["a", "b"] * 15, dtype="category"),
        np.array(["a", "b"] * 15),
    ):
        with pytest.raises(ValueError, match=r"text 'a' in row 0.*PolyleafClassifier"):
            regressor().fit(PLAIN, labels)


def test_almost_as_many_classes_as_rows_raises():
    stray = ["?unknown", *map(str, NUMBERS[1:])]
    for labels in (stray, NUMBERS):
        with pytest.raises(
            ValueError, match=r"30 different labels .* in 30 rows.*PolyleafRegressor"
        ):
            PolyleafClassifier(n_estimators=1).fit(PLAIN, labels)
    few = np.arange(12) // 2 * 2
    assert len(PolyleafClassifier(n_estimators=1).fit(PLAIN[:12], few).classes_) == 6


def test_object_types_are_checked_per_element():
    objects = np.array([[1, "2"], [None, True]], dtype=object)
    assert find_non_number(replace_nulls_with_nan(objects)) is None
    assert find_non_number(objects) == (1, 0)
    assert (describe_type(1), describe_type([]), describe_type(pd.Interval(0, 1))) == (
        "an int",
        "a list",
        "an Interval",
    )
