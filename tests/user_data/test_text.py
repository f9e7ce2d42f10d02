"""Text that is unlikely to be categorical: a text cell among numbers, unique texts."""

import warnings

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from polyleaf import PolyleafRegressor
from polyleaf.user_data.features import read_features
from polyleaf.user_data.numeric_text import (
    TextColumnError,
    all_distinct,
    describe_number,
    find_text_problem,
)


def numbers(n=60):
    return [float(i) / 4 for i in range(n)]


def add_stray(cell="oops", row=5):
    values = numbers()
    return [*values[:row], cell, *values[row + 1 :]]


FRAMES = {
    "pandas objects": lambda values: pd.DataFrame({"x": pd.Series(values, dtype=object)}),
    "pandas text": lambda values: pd.DataFrame({"x": pd.Series(map(str, values), dtype=str)}),
    "polars text": lambda values: pl.DataFrame({"x": list(map(str, values))}),
    "arrow text": lambda values: pa.table({"x": list(map(str, values))}),
}


def is_categorical(X, **options):
    return read_features(X, **options).is_categorical.tolist()


@pytest.mark.parametrize("kind", FRAMES)
def test_text_cell_in_a_numeric_column_raises(kind):
    X = FRAMES[kind](add_stray())
    message = r"Column 'x' of X .* row 5 .* 'oops'.*missing.*categorical_features"
    with pytest.raises(ValueError, match=message):
        PolyleafRegressor(n_estimators=1).fit(X, numbers())


def test_remedies_in_the_message_work():
    X = FRAMES["pandas objects"](add_stray())
    X.insert(0, "a", numbers())
    assert is_categorical(X, categorical_features=["x"]) == [False, True]
    assert is_categorical(X.astype({"x": str}).astype({"x": "category"})) == [False, True]
    X["x"] = pd.to_numeric(X["x"], errors="coerce")
    assert np.isnan(read_features(X).dense[0].values[5, 1])


NUMBER_COLUMNS = {
    "number": ["12", "7", "-1.5e3"] * 20,
    "one number": ["12"] * 60,
    "separators": [f"{i},5" for i in range(60)],
    "thousands": [f"{i + 1},234.50" for i in range(60)],
    "spaces": [f"{i + 1} 000" for i in range(60)],
    "no-break spaces": [f"{i + 1}\u202f000" for i in range(60)],
    "minus signs": [f"\u2212{i}" for i in range(60)],
    "per cent": ["12%", "7 %"] * 30,
    "currency": ["$1,200", "$3"] * 30,
    "currency code": ["12.50 EUR", "7 EUR"] * 30,
    "unit": [f"{i} km" for i in range(60)],
    "date": [f"2026-0{i % 9 + 1}-{i % 28 + 1:02}" for i in range(60)],
}


@pytest.mark.parametrize("kind", list(FRAMES)[1:])
@pytest.mark.parametrize("style", NUMBER_COLUMNS)
def test_text_column_of_numbers_raises(kind, style):
    cells = NUMBER_COLUMNS[style]
    with pytest.raises(TextColumnError, match=r"row 0 holds .*categorical_features") as caught:
        read_features(FRAMES[kind](cells))
    assert caught.value.row == 0 and caught.value.cell == cells[0]
    assert repr("x") in str(caught.value)
    assert is_categorical(FRAMES[kind](cells), categorical_features=["x"]) == [True]


def test_formatted_number_among_numbers_raises():
    with pytest.raises(TextColumnError, match=r"numbers as text: row 5 holds '12.5'"):
        read_features(FRAMES["pandas objects"](add_stray("12.5")))


@pytest.mark.parametrize(
    "values",
    [
        ["0", "1", "2", "3+"] * 15,  # too few numbers per text: categories
        [f"{i}{'a' if i % 3 else ''}" for i in range(60)],  # house numbers
        [f"{i}{'abc'[i % 3]}" for i in range(60)],
        [f"{i % 40:03}" for i in range(60)],  # codes
        [str(2**53 + 1 + i % 40) for i in range(60)],
        [f"A{i % 40}" for i in range(60)],
        [f"{i % 40}-{i % 7}" for i in range(60)],
        ["2XL", "3XL"] * 30,
        ["10 ml", "20 ml"] * 30,
        ["192.168.0.1", "10.0.0.7"] * 30,
        ["red", "blue", None] * 20,
        [None] * 60,
    ],
)
def test_categories_are_accepted(values):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*differs in every row")
        assert is_categorical(pl.DataFrame({"x": values}, schema={"x": pl.String})) == [True]


def test_text_cells_among_numbers_are_found():
    numbers = list("123456789")
    counts = np.ones(11, np.int64)
    problem = find_text_problem(["no", "?", *numbers], counts)
    assert problem.kind == "text" and problem.is_cell.tolist() == [True, True] + [False] * 9
    counts[0] = 0
    assert find_text_problem(["no", "?", *numbers], counts).is_cell.sum() == 1
    counts[1] = 30
    assert find_text_problem(["no", "?", *numbers], counts) is None  # most rows are text
    assert find_text_problem(list("abcdefghijk"), np.ones(11, np.int64)) is None
    assert find_text_problem([], np.array([], int)) is None


def test_many_categories_are_sampled():
    counts = np.ones(5000, np.int64)
    names = [f"name {i}" for i in range(5000)]
    assert find_text_problem(names, counts) is None
    assert find_text_problem([*map(str, range(4999)), "oops"], counts).is_cell.sum() == 1


SEPARATORS = ["1.234,56", "1'234", "1,8133", "3,2132", "-1,5e3", ",5", "\u22121,5"]


@pytest.mark.parametrize(
    ("style", "texts"),
    [
        ("number", ["1e5", " 12 ", "12."]),
        ("separators", SEPARATORS),
        ("per cent", ["10%"]),
        ("currency", ["-$5", "€ 5,00", "5,00 €"]),
        ("unit", ["12°C", "3 m2", "80 km/h"]),
        ("minus", ["\u221212", "\u22120.5"]),
        ("date", ["3.12.2026", "12/31/2026", "31-12-2026", "1/2/2026 3:45 PM", "2026-01-02T03:04"]),
        (None, ["0x1F", "1_a", "a", "", "nan", "12-13", "12-13-14", "1.2.3"]),
    ],
)
def test_number_formats(style, texts):
    assert {text: describe_number(text) for text in texts} == dict.fromkeys(texts, style)


def test_text_that_differs_in_every_row_warns_once():
    names, dates = [f"name {i}" for i in range(40)], [f"2026-{i}-{i}" for i in range(40)]
    X = pd.DataFrame({"a": numbers(40), "name": names, "date": dates, "kind": ["x", "y"] * 20})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = PolyleafRegressor(n_estimators=1).fit(X, numbers(40), eval_set=[(X, numbers(40))])
        model.predict(X)
    (warning,) = [w for w in caught if issubclass(w.category, UserWarning)]
    expected = "Columns 'name', 'date' of X: text that differs in every row"
    assert str(warning.message).startswith(expected)


def test_missing_cells_do_not_count_as_texts():
    texts = [f"t{i}" for i in range(30)]
    once = np.ones(30, np.int64)
    assert all_distinct(texts, once)  # for any number of missing rows
    assert not all_distinct(texts, once + (np.arange(30) == 3))
    assert not all_distinct(texts[:5], once[:5])  # so few texts may differ by chance
    assert not all_distinct(list(range(30)), once)
