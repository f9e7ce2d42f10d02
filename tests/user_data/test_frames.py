"""All ways to read a frame give the same numbers, in time linear in the columns."""

import cProfile
import decimal
import itertools
import pstats

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse

from polyleaf import PolyleafRegressor
from polyleaf.user_data import frames
from polyleaf.user_data.features import read_features

N = 50


def columns(k):
    rng = np.random.default_rng(0)
    return {f"c{i}": rng.integers(-99, 99, N) / 8 for i in range(k)}


def mixed(k=12):
    """Return a frame of float32, float64, integers beyond 2^53 and booleans, with NaN."""
    dtypes = itertools.cycle([np.float64, np.float32, np.int64, np.int8, bool, np.uint16])
    data = {name: values.astype(next(dtypes)) for name, values in columns(k).items()}
    data["c0"][3] = data["c1"][4] = np.nan
    data["c2"][:] = 2**53 + np.arange(N)
    return data


def add_nulls():
    """Add columns of integers, floats and booleans with nulls."""
    numbers = list(range(N))
    return {
        "i": [None, *numbers[1:]],
        "j": numbers,
        "f": [1.5, None, *numbers[2:]],
        "b": [True, None, *[False] * (N - 2)],
        "d": [decimal.Decimal(25 * i).scaleb(-2) for i in numbers],
    }


def chunk(table):
    return pa.concat_tables([table.slice(0, 7), table.slice(7)])


KINDS = {
    "pandas": pd.DataFrame,
    "pandas by column": lambda data: pd.concat(map(pd.Series, data.values()), axis=1, keys=data),
    "polars": pl.DataFrame,
    "arrow": pa.table,
    "arrow chunks": lambda data: chunk(pa.table(data)),
}


def read_numbers(X):
    """Return the values that are binned, by feature; they must equal the numbers as float64."""
    return {
        int(feature): block.values[:, i].astype(np.float64)
        for block in read_features(X).dense
        for i, feature in enumerate(block.features)
    }


@pytest.mark.parametrize("kind", KINDS)
def test_columns_keep_their_values(kind):
    found, data = read_numbers(KINDS[kind](mixed())), mixed()
    assert sorted(found) == list(range(len(data)))
    for i, values in enumerate(data.values()):
        np.testing.assert_array_equal(found[i], values.astype(np.float64))


@pytest.mark.parametrize("kind", ["polars", "arrow", "arrow chunks"])
def test_nulls_become_nan(kind):
    found = read_numbers(KINDS[kind](add_nulls()))
    np.testing.assert_array_equal(found[1], np.arange(N))
    for feature, row in ((0, 0), (2, 1), (3, 1)):
        assert np.flatnonzero(np.isnan(found[feature])).tolist() == [row]
    np.testing.assert_array_equal(found[4], np.arange(N) / 4)


class OtherFrame:
    """A frame of another library, with one of the methods by which libraries exchange data."""

    def __init__(self, method, result):
        self.columns, self.shape = list(mixed()), (N, len(mixed()))
        setattr(type(self), method, lambda self, *arguments: result)

    columns = None


@pytest.mark.parametrize("method", ["to_pandas", "_to_pandas", "__arrow_c_stream__"])
def test_frames_of_other_libraries_are_converted(method):
    kind = type("Frame", (OtherFrame,), {})
    table = pa.table(mixed())
    is_arrow = method == "__arrow_c_stream__"
    X = kind(method, table.__arrow_c_stream__() if is_arrow else table.to_pandas())
    found = read_numbers(X)
    for i, values in enumerate(mixed().values()):
        np.testing.assert_array_equal(found[i], values.astype(np.float64))


NUMBERS = [f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)]
NUMBERS += ["float32", "float64"]


@pytest.mark.parametrize("n_rows", [1, 2, 3, 40])
@pytest.mark.parametrize("seed", range(25))
def test_mixed_numeric_types_and_nulls_keep_their_values(seed, n_rows):
    """One row, few rows and many rows have separate code paths."""
    rng = np.random.default_rng(seed)
    types = rng.choice(NUMBERS, rng.integers(1, 6)).tolist()
    bits = [rng.integers(0, 256, (n_rows, np.dtype(kind).itemsize), np.uint8) for kind in types]
    values = [(b[:, :4] / 7.0 @ [1, -9, 4e3, -6e5][: b.shape[1]]).astype(kind) if kind[0] == "f"
              else b.view(kind)[:, 0] for b, kind in zip(bits, types, strict=True)]  # fmt: skip
    rows = [[None if rng.random() < 0.2 else x for x in column.tolist()] for column in values]
    expected = np.array([[np.nan if x is None else float(x) for x in column] for column in rows]).T
    names = [f"c{i}" for i in range(len(types))]
    table = pa.table(list(map(pa.array, rows, types)), names=names)
    for X in (table, pl.from_arrow(table)):
        ((block, features),) = frames.as_frame(X).blocks()
        np.testing.assert_array_equal(block.astype(np.float64), expected)
        assert features.tolist() == list(range(len(types)))
    X = pd.DataFrame(dict(zip(names, values, strict=True)))
    ((block, _),) = frames.as_frame(X).blocks()
    expected = np.array(values, dtype=object).T.astype(np.float64)
    np.testing.assert_array_equal(block.astype(np.float64), expected)


def test_arrow_float16_columns():
    halves = pa.table({"a": pa.array(np.array([1.5, np.nan], np.float16)), "b": [1, 2]})
    for X in (halves, pa.concat_tables([halves] * 20)):
        np.testing.assert_array_equal(read_numbers(X)[0][:2], [1.5, np.nan])
        np.testing.assert_array_equal(read_numbers(X)[1][:2], [1, 2])


@pytest.mark.parametrize("kind", KINDS)
def test_large_frames_read_by_column_give_the_same_numbers(kind, monkeypatch):
    expected = read_numbers(KINDS[kind](mixed()))
    monkeypatch.setattr(frames, "_MAX_COPIED_BYTES", 0)
    X = KINDS[kind](mixed())
    assert frames.as_frame(X).blocks() == []
    for feature, values in read_numbers(X).items():
        np.testing.assert_array_equal(values, expected[feature])


def count_calls(function):
    """Count the Python and C functions that are called."""
    profile = cProfile.Profile()
    profile.runcall(function)
    return pstats.Stats(profile).total_calls


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [float, "text"])
def test_number_of_calls_is_linear_in_columns(kind, dtype):
    def work(k):
        data = columns(k)
        if dtype == "text":
            data = {name: [f"t{x % 3:g}" for x in values] for name, values in data.items()}
        X = KINDS[kind](data)
        model = PolyleafRegressor(n_estimators=1).fit(X, np.arange(N) % 7)
        one_row = X.iloc[[0]] if isinstance(X, pd.DataFrame) else X[:1]
        model.predict(one_row)  # imports, caches
        return count_calls(lambda: model.predict(one_row))

    assert work(240) < 5 * work(60)


def category_columns():
    """Return frames with a categorical column, and its values (None: missing)."""
    texts = ["b", None, "a", "b", "", "é", None, "a"] * 20
    numbers = [3, None, 2**53 + 1, 3, 0, -7, None, 2**53] * 20
    floats = [0.5, None, 1e17, 0.5, 0.0, -7.25, None, 0.1] * 20
    booleans = [True, None, False, True] * 40
    mixed = ["a", 1, None, 2.5, "1", float("nan"), "a", 1] * 20
    dictionary = pa.DictionaryArray.from_arrays([0, 1, 2, 3, None], ["x", "x", "y", None])
    arrays = {"text": texts, "integers": numbers, "floats": floats, "booleans": booleans}
    for name, values in arrays.items():
        yield f"arrow {name}", pa.table({"c": values}), values
        encoded = pa.array(values).dictionary_encode()
        yield f"arrow dictionary {name}", pa.table({"c": encoded}), values
        yield f"polars {name}", pl.DataFrame({"c": values}), values
        yield f"pandas object {name}", pd.DataFrame({"c": pd.Series(values, dtype=object)}), values
        yield f"pandas category {name}", pd.DataFrame({"c": pd.Categorical(values)}), values
    for dtype in ("str", "string[python]", "string[pyarrow]"):
        yield f"pandas {dtype}", pd.DataFrame({"c": pd.Series(texts, dtype=dtype)}), texts
    yield "pandas Int64", pd.DataFrame({"c": pd.array(numbers, "Int64")}), numbers
    yield "pandas boolean", pd.DataFrame({"c": pd.array(booleans, "boolean")}), booleans
    known = [None if value != value else value for value in mixed]
    yield "pandas mixed", pd.DataFrame({"c": pd.Series(mixed, dtype=object)}), known
    sparse = pd.arrays.SparseArray([0.0, 0, 5, 0, np.nan], fill_value=0)
    yield "pandas Sparse", pd.DataFrame({"c": sparse}), [0, 0, 5, 0, None]
    for dtype in (pl.Categorical, pl.Enum(["z", "", "b", "a", "é"])):
        yield f"polars {dtype}", pl.DataFrame({"c": pl.Series(texts).cast(dtype)}), texts
    views = pa.array(texts).cast(pa.string_view())
    yield "arrow string_view", pa.table({"c": views}), texts
    yield "arrow chunks", chunk(pa.table({"c": texts})), texts
    repeated = pa.chunked_array([dictionary, dictionary])
    yield "arrow repeated", pa.table({"c": repeated}), ["x", "x", "y", None, None] * 2


@pytest.mark.parametrize(("X", "expected"), [
    pytest.param(X, values, id=name) for name, X, values in category_columns()
])  # fmt: skip
def test_categories_equal_the_values_of_the_column(X, expected):
    (column,) = read_features(X, categorical_features=["c"]).categories
    found = [None if i < 0 else column.categories[i] for i in column.index]
    assert found == expected
    assert len(set(column.categories)) == len(column.categories)
    assert set(column.categories) == set(expected) - {None}


def test_sparse_pandas_columns_are_read_as_a_matrix():
    rng = np.random.default_rng(0)
    values = np.where(rng.random((60, 4)) < 0.2, rng.normal(size=(60, 4)), 0)
    values[3, 1] = np.nan
    sparse, is_zero = pd.arrays.SparseArray, values[:, 0] == 0
    columns = {
        "a": sparse(values[:, 0], fill_value=0),
        "dense": values[:, 0],
        "b": sparse(values[:, 1], fill_value=0),
        "flag": sparse(values[:, 2] != 0, fill_value=False),
        "count": sparse((values[:, 3] * 9).astype(np.int64), fill_value=0),
        "filled": sparse(np.where(is_zero, 7.0, 1.0), fill_value=7.0),
        "gaps": sparse(np.where(is_zero, np.nan, 1.0)),
    }
    frame = pd.DataFrame(columns)
    table = read_features(frame)
    (block,) = table.sparse
    assert block.features.tolist() == [0, 2, 3, 4]
    dense = pd.DataFrame({name: np.asarray(column.array) for name, column in frame.items()})
    matrix = scipy.sparse.csc_matrix((block.data, block.indices, block.indptr), (60, 4))
    np.testing.assert_array_equal(matrix.toarray(), dense.iloc[:, [0, 2, 3, 4]].to_numpy(float))
    model = PolyleafRegressor(n_estimators=3).fit(frame, np.arange(60) % 7)
    same = PolyleafRegressor(n_estimators=3).fit(dense, np.arange(60) % 7)
    np.testing.assert_array_equal(model.predict(frame), same.predict(dense))
    np.testing.assert_array_equal(model.predict(frame.iloc[:5]), same.predict(dense.iloc[:5]))
    frame["a"] = pd.arrays.SparseArray([np.inf, *[0] * 59], fill_value=0)
    with pytest.raises(ValueError, match=r"infinity.*row 0, column 'a'"):
        read_features(frame)


DECIMALS = [decimal.Decimal(25 * i).scaleb(-2) for i in range(300)]
NULLS = [None if i % 7 == 0 else i % 11 for i in range(300)]


@pytest.mark.parametrize("X", [
    pytest.param(X, id=name) for name, X in {
        "decimals of pandas": pd.DataFrame(
            {"c": pd.Series(DECIMALS, dtype=pd.ArrowDtype(pa.decimal128(9, 2)))}
        ),
        "decimals of Arrow": pa.table({"c": DECIMALS}),
        "decimals of polars": pl.DataFrame({"c": DECIMALS}),
        "integers with nulls": pd.DataFrame({"c": pd.array(NULLS, "Int64")}),
        "nulls": pa.table({"c": pa.nulls(300)}),
        "text": pd.DataFrame({"c": pd.Series(["a", "b", None] * 100, dtype="str")}),
        "text of polars": pl.DataFrame({"c": ["a", "b", None] * 100}),
        "text of Arrow": pa.table({"c": ["a", "b", None] * 100}),
        "categories": pd.DataFrame({"c": pd.Categorical(NULLS)}),
        "Sparse": pd.DataFrame({"c": pd.arrays.SparseArray([0, 1, 0] * 100)}),
        "Sparse with another fill": pd.DataFrame({"c": pd.arrays.SparseArray([1.0, 2, 3] * 100)}),
    }.items()
])  # fmt: skip
def test_converted_columns_need_no_call_per_cell(X):
    half = X.iloc[:150] if isinstance(X, pd.DataFrame) else X[:150]
    read_features(X)  # imports, caches
    assert count_calls(lambda: read_features(X)) - count_calls(lambda: read_features(half)) < 100


@pytest.mark.parametrize("kind", ["pandas", "polars", "arrow"])
def test_numeric_frames_need_no_call_per_column(kind):
    def work(k):
        X = KINDS[kind](columns(k))
        return count_calls(lambda: read_features(X, reference=table))

    table = None
    assert work(400) - work(40) < 100
