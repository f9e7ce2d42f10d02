"""Frames: every way of reading one gives the same numbers, and the work grows no faster than the columns."""

import cProfile
import decimal
import pstats

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from polyleaf import PolyleafRegressor
from polyleaf.inputs import frames
from polyleaf.inputs.features import as_features

N = 50


def columns(k):
    rng = np.random.default_rng(0)
    return {f"c{i}": rng.integers(-99, 99, N) / 8 for i in range(k)}


def mixed(k=12):
    """Floats of two widths, integers, booleans, side by side, with NaN and integers beyond 2^53."""
    dtypes = [np.float64, np.float32, np.int64, np.int8, bool, np.uint16]
    data = {name: values.astype(dtypes[i % 6]) for i, (name, values) in enumerate(columns(k).items())}
    data["c0"][3] = data["c1"][4] = np.nan
    data["c2"][:] = 2**53 + np.arange(N)
    return data


def with_nulls():
    """Integers, floats and booleans with nulls, beside those without."""
    numbers = list(range(N))
    return {
        "i": [None, *numbers[1:]],
        "j": numbers,
        "f": [1.5, None, *numbers[2:]],
        "b": [True, None, *[False] * (N - 2)],
        "d": [decimal.Decimal(i) / 4 for i in numbers],
    }


KINDS = {
    "pandas": pd.DataFrame,
    "pandas by column": lambda data: pd.concat([pd.Series(v, name=k) for k, v in data.items()], axis=1),
    "polars": pl.DataFrame,
    "arrow": pa.table,
    "arrow chunks": lambda data: pa.concat_tables([pa.table(data).slice(0, 7), pa.table(data).slice(7)]),
}


def numbers_of(X):
    """What bins are made of, float64 but for large integers: {feature: values}."""
    return {
        int(feature): block.values[:, i]
        for block in as_features(X).dense
        for i, feature in enumerate(block.features)
    }


@pytest.mark.parametrize("kind", KINDS)
def test_every_column_is_read_with_its_own_dtype_and_values(kind):
    found, data = numbers_of(KINDS[kind](mixed())), mixed()
    assert sorted(found) == list(range(len(data)))
    for i, values in enumerate(data.values()):
        expected = values.view(np.uint8) if values.dtype == bool else values
        assert found[i].dtype == expected.dtype
        np.testing.assert_array_equal(found[i], expected)


@pytest.mark.parametrize("kind", ["polars", "arrow", "arrow chunks"])
def test_nulls_are_nan_and_their_neighbours_stay_integers(kind):
    found = numbers_of(KINDS[kind](with_nulls()))
    assert found[1].dtype == np.int64
    for feature, row in ((0, 0), (2, 1), (3, 1)):
        assert np.flatnonzero(np.isnan(found[feature])).tolist() == [row]
    np.testing.assert_array_equal(found[4], np.arange(N) / 4)


@pytest.mark.parametrize("kind", KINDS)
def test_large_frames_are_read_column_by_column_to_the_same_numbers(kind, monkeypatch):
    expected = numbers_of(KINDS[kind](mixed()))
    monkeypatch.setattr(frames, "_MOST_COPIED_BYTES", 0)
    X = KINDS[kind](mixed())
    assert frames.as_frame(X).blocks() == []
    for feature, values in numbers_of(X).items():
        np.testing.assert_array_equal(values, expected[feature])


def calls(function):
    """Python and C functions that are called."""
    profile = cProfile.Profile()
    profile.runcall(function)
    return pstats.Stats(profile).total_calls


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [float, "text"])
def test_line_8_the_work_for_a_frame_is_not_quadratic_in_its_columns(kind, dtype):
    def work(k):
        data = columns(k)
        if dtype == "text":
            data = {name: [f"t{x % 3:g}" for x in values] for name, values in data.items()}
        X = KINDS[kind](data)
        model = PolyleafRegressor(n_estimators=1).fit(X, np.arange(N) % 7)
        one_row = X.iloc[[0]] if isinstance(X, pd.DataFrame) else X[:1]
        model.predict(one_row)  # imports, caches
        return calls(lambda: model.predict(one_row))

    assert work(240) < 5 * work(60)


@pytest.mark.parametrize("kind", ["pandas", "polars", "arrow"])
def test_line_8_plain_numbers_cost_no_call_for_each_column(kind):
    def work(k):
        X = KINDS[kind](columns(k))
        return calls(lambda: as_features(X, reference=table))

    table = None
    assert work(400) - work(40) < 100
