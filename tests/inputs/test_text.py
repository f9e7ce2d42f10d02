"""Text that is hardly categories: a stray cell among numbers, texts that all differ."""

import warnings

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from polyleaf import PolyleafRegressor
from polyleaf.inputs.features import read_features
from polyleaf.inputs.validation import all_distinct, find_stray_text, has_decimal_commas


def numbers(n=60):
    return [float(i) / 4 for i in range(n)]


def add_stray(cell="oops", row=5):
    values = numbers()
    return [*values[:row], cell, *values[row + 1 :]]


FRAMES = {
    "pandas objects": lambda values: pd.DataFrame(
        {"a": numbers(), "x": pd.Series(values, dtype=object)}
    ),
    "pandas text": lambda values: pd.DataFrame(
        {"a": numbers(), "x": pd.Series(map(str, values), dtype=str)}
    ),
    "polars text": lambda values: pl.DataFrame({"a": numbers(), "x": list(map(str, values))}),
    "arrow text": lambda values: pa.table({"a": numbers(), "x": list(map(str, values))}),
}


@pytest.mark.parametrize("kind", FRAMES)
def test_a_number_column_with_one_text_cell_is_refused_with_row_column_cell_and_way_out(kind):
    X = FRAMES[kind](add_stray())
    with pytest.raises(
        ValueError, match=r"Column 'x' of X .* row 5 .* 'oops'.*missing.*categorical_features"
    ):
        PolyleafRegressor(n_estimators=1).fit(X, numbers())


def test_the_ways_out_of_the_message_are_ways_out():
    X = FRAMES["pandas objects"](add_stray())
    assert read_features(X, categorical_features=["x"]).is_categorical.tolist() == [False, True]
    assert read_features(
        X.astype({"x": str}).astype({"x": "category"})
    ).is_categorical.tolist() == [False, True]
    X["x"] = pd.to_numeric(X["x"], errors="coerce")
    assert np.isnan(read_features(X).dense[0].values[5, 1])


def test_a_spelled_number_among_numbers_is_no_stray_text():
    table = read_features(FRAMES["pandas text"](add_stray("12.5")))
    assert table.is_categorical.tolist() == [False, True]  # all text: what its type says


@pytest.mark.parametrize(
    "values",
    [
        ["0", "1", "2", "3+"] * 15,  # few numbers for the one text: categories
        [f"{i}{'a' if i % 3 else ''}" for i in range(60)],  # house numbers
        ["red", "blue", None] * 20,
        [None] * 60,
    ],
)
def test_categories_stay_categories(values):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*differs in every row")
        table = read_features(pl.DataFrame({"x": values}, schema={"x": pl.String}))
    assert table.is_categorical.tolist() == [True]


def test_the_first_stray_cell_is_the_first_by_row():
    index, categories = np.array([3, 2, 0, -1, 5, 4, 6, 7, 8, 9, 10, 1]), ["no", "?", *"123456789"]
    assert find_stray_text(index, categories) == (2, "no")
    assert find_stray_text(index, ["5.5", *categories[1:]]) == (11, "?")
    assert find_stray_text(index, list("abcdefghijk")) is None
    assert find_stray_text(np.array([], int), []) is None


def test_text_that_differs_in_every_row_is_warned_of_once():
    names, dates = [f"name {i}" for i in range(40)], [f"2026-{i}-{i}" for i in range(40)]
    X = pd.DataFrame({"a": numbers(40), "name": names, "date": dates, "kind": ["x", "y"] * 20})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = PolyleafRegressor(n_estimators=1).fit(X, numbers(40), eval_set=[(X, numbers(40))])
        model.predict(X)
    (warning,) = [w for w in caught if issubclass(w.category, UserWarning)]
    assert str(warning.message).startswith(
        "Columns 'name', 'date' of X: text that differs in every row"
    )


def test_missing_cells_do_not_make_texts_alike_nor_differ():
    texts = [f"t{i}" for i in range(30)]
    once = np.ones(30, np.int64)
    assert all_distinct(texts, once)  # however many rows are missing
    assert not all_distinct(texts, once + (np.arange(30) == 3))
    assert not all_distinct(texts[:5], once[:5])  # so few may differ by chance
    assert not all_distinct(list(range(30)), once)


@pytest.mark.parametrize(
    ("cells", "are"),
    [
        (["0,5", "1,25", "-3,1"], True),
        (["1,5e3", ",5", "7"], True),
        (["0,500", "12,125"], True),  # no thousands begin with 0
        (["1,500", "12,125"], False),  # thousands, or three decimals
        (["1,5", "a", "b"], False),  # not most rows
        (["1,2,3", "1,"], False),
        (["1.5", "2"], False),
        ([], False),
    ],
)
def test_decimal_commas(cells, are):
    assert has_decimal_commas(cells, np.ones(len(cells), int)) == are


def test_rows_that_are_not_there_say_nothing_of_decimal_commas():
    assert not has_decimal_commas(["0,5", "a"], np.array([0, 3]))
    assert has_decimal_commas(["0,5", "a"], np.array([4, 3]))
