"""Reading X: all containers give the same table, and unsupported input raises."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import BaseEstimator

from polyleaf.binned_data.binning import BinMapper
from polyleaf.user_data.feature_table import FeatureTable, SparseBlock, SparseRows
from polyleaf.user_data.features import read_features

pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")
pa = pytest.importorskip("pyarrow")

NUMBERS = [1.5, None, 3.0, -2.0]
TEXT = ["red", "blue", None, "red"]
INTS = [3, 1, 2, 2]
BOOLS = [True, False, True, True]
FIRST = {"categorical_features": [0]}


def codes(X, reference=None, **options):
    """Return the codes of X under a mapper fitted to the reference, or to X."""
    table = read_features(X, **options)
    mapper = BinMapper().fit(table) if reference is None else reference
    return mapper.transform(table)


def pandas_frame():
    return pd.DataFrame({"n": NUMBERS, "t": pd.Categorical(TEXT), "i": INTS, "b": BOOLS})


FRAMES = {
    "pandas category": pandas_frame,
    "pandas text": lambda: pandas_frame().astype({"t": object}),
    "pandas string": lambda: pandas_frame().assign(t=pd.Series(TEXT, dtype="string")),
    "pandas nullable": lambda: pandas_frame().astype({"n": "Float64", "i": "Int32", "b": "bool"}),
    "pandas arrow": lambda: pandas_frame().astype({"n": "double[pyarrow]", "i": "int64[pyarrow]"}),
    "polars text": lambda: pl.DataFrame({"n": NUMBERS, "t": TEXT, "i": INTS, "b": BOOLS}),
    "polars categorical": lambda: FRAMES["polars text"]().cast({"t": pl.Categorical}),
    "polars enum": lambda: FRAMES["polars text"]().cast({"t": pl.Enum(["red", "x", "blue"])}),
    "arrow text": lambda: pa.table({"n": NUMBERS, "t": TEXT, "i": INTS, "b": BOOLS}),
    "arrow dictionary": lambda: pa.table(
        {"n": NUMBERS, "t": pa.array(TEXT).dictionary_encode(), "i": INTS, "b": BOOLS}
    ),
}
EXPECTED = np.array([[1, 255, 2, 0], [1, 0, 255, 1], [2, 0, 1, 1], [1, 0, 1, 1]], dtype=np.uint8)


@pytest.mark.parametrize("kind", FRAMES)
def test_all_frames_give_the_same_codes(kind):
    table = read_features(FRAMES[kind]())
    assert table.feature_names == ("n", "t", "i", "b")
    assert table.is_categorical.tolist() == [False, True, False, False]
    np.testing.assert_array_equal(codes(FRAMES[kind]()), EXPECTED)


@pytest.mark.parametrize("fitted", FRAMES)
@pytest.mark.parametrize("kind", ["pandas category", "polars enum", "arrow dictionary"])
def test_mapper_reads_other_kinds_of_frames(fitted, kind):
    mapper = BinMapper().fit(read_features(FRAMES[fitted]()))
    table = read_features(FRAMES[kind](), reference=mapper)
    np.testing.assert_array_equal(mapper.transform(table), EXPECTED)


def test_object_array_of_numbers_and_categories():
    X = np.array(list(zip(NUMBERS, TEXT, INTS, BOOLS, strict=True)), dtype=object)
    mask = [False, True, False, False]
    np.testing.assert_array_equal(codes(X, categorical_features=[1]), EXPECTED)
    np.testing.assert_array_equal(codes(X.tolist(), categorical_features=mask), EXPECTED)


@pytest.mark.parametrize(
    "dtype", [np.float16, np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64]
)
@pytest.mark.parametrize("order", ["C", "F"])
def test_small_integers_of_all_dtypes_are_equal(dtype, order):
    X = np.random.default_rng(0).integers(0, 100, (300, 3))
    expected = codes(X.astype(np.float64))
    np.testing.assert_array_equal(codes(np.asarray(X, dtype=dtype, order=order)), expected)


def test_object_array_of_numbers_with_and_without_a_reference():
    X = np.random.default_rng(0).normal(size=(20, 3))
    mapper = BinMapper().fit(read_features(X.astype(object)))
    for options in ({}, {"reference": mapper}, {"categorical_features": [False] * 3}):
        table = read_features(X.astype(object), **options)
        np.testing.assert_array_equal(mapper.transform(table), codes(X))


def test_byte_swapped_unaligned_and_reversed_arrays():
    X = np.random.default_rng(0).integers(-100, 100, (2000, 3)).astype(np.float64)
    expected = codes(X)
    np.testing.assert_array_equal(codes(X.astype(np.int8)), expected)
    np.testing.assert_array_equal(codes(X.astype(">f8")), expected)
    np.testing.assert_array_equal(codes(X[::-1, ::-1])[::-1, ::-1], expected)
    raw = np.zeros(X.nbytes + 1, dtype=np.uint8)
    unaligned = raw[1:].view(np.float64).reshape(X.shape)
    unaligned[:] = X
    np.testing.assert_array_equal(codes(unaligned), expected)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_float_matrices_are_not_copied(dtype, order):
    X = np.ones((10, 4), dtype=dtype, order=order)
    table = read_features(X)
    assert len(table.dense) == 1 and np.shares_memory(table.dense[0].values, X)
    table = read_features(X, categorical_features=[1])
    assert [np.shares_memory(block.values, X) for block in table.dense] == [True, True]


def test_columns_of_different_dtypes_are_copied_only_if_small(monkeypatch):
    frame = pd.DataFrame({"a": np.ones(5, np.float32), "b": np.ones(5, np.int8), "c": np.ones(5)})
    assert [block.values.shape for block in read_features(frame).dense] == [(5, 3)]
    monkeypatch.setattr("polyleaf.user_data.frames._MAX_COPIED_BYTES", 8 * 5 * 3 - 1)
    dtypes = [block.values.dtype for block in read_features(frame).dense]
    assert dtypes == [np.float32, np.int8, np.float64]


@pytest.mark.parametrize(
    "container", [sp.csr_matrix, sp.csc_matrix, sp.coo_matrix, sp.csr_array, sp.csc_array]
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32])
def test_sparse_equals_dense(container, dtype):
    rng = np.random.default_rng(0)
    X = np.where(rng.random((500, 6)) < 0.2, rng.integers(-50, 50, (500, 6)), 0).astype(dtype)
    table = read_features(container(X))
    assert not table.dense and table.sparse[0].data.size == np.count_nonzero(X)
    for options in ({}, {"categorical_features": [2]}):
        np.testing.assert_array_equal(codes(container(X), **options), codes(X, **options))


WHOLE = [-0.0, 0.0, 1.0, None, -3.0, 1.0, 0.0]
COLUMNS_OF_EQUAL_NUMBERS = {
    "float64": lambda: np.array(WHOLE, float)[:, None],
    "float16": lambda: np.array(WHOLE, np.float16)[:, None],
    "sparse": lambda: sp.csr_matrix(np.array(WHOLE, float)[:, None]),
    "objects": lambda: np.array([0, -0.0, True, pd.NA, np.int8(-3), 1, False], object)[:, None],
    "pandas float": lambda: pd.DataFrame({"a": np.array(WHOLE, float)}),
    "pandas nullable": lambda: pd.DataFrame({"a": pd.array([0, 0, 1, None, -3, 1, 0], "Int8")}),
    "pandas category": lambda: pd.DataFrame({"a": pd.Categorical(WHOLE)}),
    "polars": lambda: pl.DataFrame({"a": WHOLE}),
    "arrow": lambda: pa.table({"a": pa.array([0, 0, 1, None, -3, 1, 0], pa.int16())}),
}


@pytest.mark.parametrize("kind", COLUMNS_OF_EQUAL_NUMBERS)
def test_equal_numbers_are_one_category(kind):
    mapper = BinMapper().fit(read_features(COLUMNS_OF_EQUAL_NUMBERS[kind](), **FIRST))
    (kept,) = mapper.categories_
    assert repr(kept) == "[-3, 0, 1]"


@pytest.mark.parametrize("value", [0.5, 1e300, 2**53 + 1, np.int64(2**62 + 1), -(2**63)])
def test_numeric_categories_keep_their_value(value):
    for X in (np.array([[value]]), pd.DataFrame({"a": [value]}), sp.csr_matrix([[value]])):
        (column,) = read_features(X, **FIRST).categories
        assert column.categories == (value,)


def test_text_subclasses_are_text():
    class Name(str):
        pass

    X = np.array([[Name("a")], [np.str_("b")]], object)
    (column,) = read_features(X, **FIRST).categories
    assert [type(category) for category in column.categories] == [str, str]


def test_sparse_duplicates_are_summed_without_changing_the_input():
    X = sp.csc_matrix(([1.0, 2.0, 5.0], [0, 0, 1], [0, 2, 3]), shape=(3, 2))
    np.testing.assert_array_equal(codes(X), codes(X.toarray()))
    assert X.nnz == 3


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
def test_csr_and_csc_give_equal_codes_with_a_reference(dtype):
    stored = np.random.default_rng(3).random((60, 30)) < 0.2
    X = np.where(stored, np.arange(30) - 9, 0).astype(dtype)
    mapper = BinMapper().fit(read_features(sp.csr_matrix(X)))
    rows, columns = (
        read_features(form(X), reference=mapper) for form in (sp.csr_matrix, sp.csc_matrix)
    )
    assert isinstance(rows.sparse[0], SparseRows) and isinstance(columns.sparse[0], SparseBlock)
    only = np.arange(30) % 7 == 2
    for first, second in ((rows, columns), (rows.rows(11, 40), columns.rows(11, 40))):
        for needed in (only, np.zeros(30, bool)):
            pair = first, second
            codes_of = [mapper.transform(table, only=needed)[needed] for table in pair]
            np.testing.assert_array_equal(*codes_of)
            np.testing.assert_array_equal(*(table.get_raw_values(needed) for table in pair))
        np.testing.assert_array_equal(mapper.transform(first), mapper.transform(second))
        np.testing.assert_array_equal(first.get_raw_values(), second.get_raw_values())


@pytest.mark.parametrize("form", [sp.csr_matrix, sp.csc_matrix])
def test_error_names_an_infinity_in_a_sparse_matrix(form):
    mapper = BinMapper().fit(read_features(sp.csr_matrix(np.eye(5))))
    X = np.eye(5)
    X[3, 1] = np.inf
    for reference in (None, mapper):
        with pytest.raises(ValueError, match="row 3, column number 1"):
            read_features(form(X), reference=reference)


def test_unsorted_csr_rows_are_read():
    X = sp.csr_matrix(([2.0, 1.0, 4.0, 5.0], [2, 0, 1, 1], [0, 2, 4]), (2, 3))
    mapper = BinMapper().fit(read_features(np.array([[0.0, 1, 2], [1, 9, 3], [4, 4, 4]])))
    found = read_features(X, reference=mapper)
    np.testing.assert_array_equal(found.get_raw_values(), [[1, 0], [0, 9], [2, 0]])
    assert X.nnz == 4 and X.indices.tolist() == [2, 0, 1, 1]


def test_nan_in_sparse_features_is_missing():
    X = sp.csr_matrix(np.array([[np.nan, 0.0], [1.0, 2.0]]))
    np.testing.assert_array_equal(codes(X), [[255, 0], [0, 1]])


def test_sparse_rows_outside_the_shape_raise():
    X = sp.csc_matrix(np.eye(3))
    X.indices[1] = 7
    X.has_canonical_format = True
    with pytest.raises(ValueError, match="stores row 7, outside"):
        BinMapper().fit(read_features(X))


@pytest.mark.parametrize(
    "make", [np.asarray, np.asfortranarray, sp.csr_matrix, lambda X: X.astype(np.float32)]
)
def test_error_names_an_infinity(make):
    X = np.ones((50, 4))
    X[30, 2] = -np.inf
    message = r"infinity or a value too large for dtype\('float64'\).*row 30, column number 2"
    with pytest.raises(ValueError, match=message):
        read_features(make(X))
    with pytest.raises(ValueError, match="row 1, column 'width'"):
        read_features(pd.DataFrame({"height": [1.0, 2.0], "width": [1.0, np.inf]}))


NEITHER = "neither numeric nor categorical"


@pytest.mark.parametrize(
    ("X", "error", "words"),
    [
        (np.ones(3), ValueError, "Reshape your data"),
        (["good film", "bad film"], ValueError, "X is a list of texts, such as 'good film'"),
        (np.array(["a", "b"]), ValueError, "X is a list of texts.*TfidfVectorizer"),
        (pl.Series(["a", "b"]), ValueError, "X is a list of texts"),
        ("text", ValueError, "X is a text"),
        ({"a": [1, 2]}, ValueError, "X is a dict.*pandas.DataFrame"),
        ([{"a": 1}, {"a": 2}], ValueError, "X is a list of dicts"),
        (np.ones((3, 0)), ValueError, r"0 feature\(s\)"),
        (np.ones((0, 3)), ValueError, r"0 sample\(s\)"),
        (pd.DataFrame({"a": []}), ValueError, r"0 sample\(s\)"),
        (np.ones((2, 2), dtype=complex), ValueError, "Complex data not supported"),
        (np.array([[{"a": 1}], [2]], dtype=object), TypeError, "must be a string or a real number"),
        (pd.DataFrame({"d": pd.to_datetime(["2020-01-01"])}), ValueError, f"'d'.*{NEITHER}"),
        (pl.DataFrame({"d": [[1, 2]]}), ValueError, f"Column 'd'.*{NEITHER}"),
        (pl.LazyFrame({"d": [1]}), TypeError, "collect"),
        (pd.DataFrame({"d": pd.Categorical([(1, 2)])}), ValueError, "category of type tuple"),
        (np.ones((2, 2), dtype="M8[s]"), ValueError, "dtype datetime64"),
    ],
)
def test_unsupported_input_raises(X, error, words):
    with pytest.raises(error, match=words):
        read_features(X)


def test_too_many_rows_raise():
    X = np.lib.stride_tricks.as_strided(np.ones(1, np.float32), (2**31, 1), (0, 4))
    with pytest.raises(ValueError, match="2147483648 rows"):
        read_features(X)


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ("all", ValueError, "unknown"),
        (["x"], ValueError, "names the feature 'x'; the features are"),
        ([5], ValueError, "names feature 5, but features are numbered from 0 to 3"),
        ([-1], ValueError, "names feature -1"),
        ([True], ValueError, "mask of 1 entries"),
        ([1.5], TypeError, "got 1.5"),
    ],
)
def test_invalid_categorical_features_raise(given, error, words):
    with pytest.raises(error, match=words):
        read_features(pandas_frame(), categorical_features=given)


def test_categorical_features_by_name_position_and_mask_are_equal():
    for given in (["t", "i"], [1, 2], np.array([1, 2]), np.array([False, True, True, False])):
        table = read_features(pandas_frame(), categorical_features=given)
        assert table.is_categorical.tolist() == [0, 1, 1, 0]
    with pytest.raises(ValueError, match="X has no names"):
        read_features(np.ones((2, 2)), categorical_features=["t"])


def test_text_outside_categorical_features_raises():
    message = r"Column 't' of X holds text, such as 'red'.*categorical_features"
    with pytest.raises(ValueError, match=message):
        read_features(FRAMES["polars text"](), categorical_features=None)
    spelled = pl.DataFrame({"a": ["1.5", "2", None]})
    np.testing.assert_array_equal(codes(spelled, categorical_features=None), [[0, 1, 255]])


def test_decimals_are_numbers():
    cents = pl.DataFrame({"a": ["1.50", None, "2.25"]}).cast(pl.Decimal(10, 2))
    np.testing.assert_array_equal(codes(cents), [[0, 255, 1]])


def test_feature_names():
    assert read_features(np.ones((2, 2)), feature_names=["a", "b"]).feature_names == ("a", "b")
    assert read_features(np.ones((2, 2))).feature_names is None
    assert read_features(pd.DataFrame(np.ones((2, 2)))).feature_names is None
    with pytest.raises(ValueError, match="feature_names has 1 names, but 2 are required"):
        read_features(np.ones((2, 2)), feature_names=["a"])
    with pytest.raises(ValueError, match="several columns named 'a'"):
        read_features(np.ones((2, 2)), feature_names=["a", "a"])


def test_reference_checks_names_and_types():
    mapper = BinMapper().fit(read_features(pandas_frame()))
    with pytest.raises(ValueError, match=r"unseen at fit time:\n- z\n.*now missing:\n- n"):
        read_features(pandas_frame().rename(columns={"n": "z"}), reference=mapper)
    with pytest.raises(ValueError, match="same order as they were in fit"):
        read_features(pandas_frame()[["t", "n", "i", "b"]], reference=mapper)
    message = "X has 2 features, but BinMapper is expecting 4 features as input"
    with pytest.raises(ValueError, match=message):
        read_features(np.ones((3, 2)), reference=mapper)
    with pytest.raises(ValueError, match=r"Column 'n' of X holds text, such as 'x'.*held numbers"):
        read_features(pandas_frame().assign(n="x"), reference=mapper)


def test_n_features_in_and_feature_names_in():
    class Estimator(BaseEstimator):
        pass

    estimator = Estimator()
    read_features(pandas_frame(), estimator=estimator, reset=True)
    assert estimator.n_features_in_ == 4 and list(estimator.feature_names_in_) == list("ntib")
    with pytest.raises(ValueError, match="feature names should match"):
        read_features(pandas_frame().rename(columns={"n": "z"}), estimator=estimator)
    with (
        pytest.warns(UserWarning, match="does not have valid feature names"),
        pytest.raises(ValueError, match="X has 3 features, but Estimator is expecting 4 features"),
    ):
        read_features(np.ones((2, 3)), estimator=estimator)
    with pytest.raises(ValueError, match="Reshape your data"):
        read_features(np.ones(4), estimator=estimator)


def test_feature_table_is_returned_unchanged():
    table = read_features(pandas_frame())
    assert isinstance(table, FeatureTable) and read_features(table) is table


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.uint8])
@pytest.mark.parametrize("order", ["C", "F"])
def test_raw_values_by_feature(dtype, order):
    X = np.asarray(np.random.default_rng(0).integers(0, 200, (30, 4)), dtype=dtype, order=order)
    numbers = read_features(X).get_raw_values()
    assert numbers.dtype == np.float32 and numbers.flags.c_contiguous
    np.testing.assert_array_equal(numbers, X.T)
    only = np.array([False, True, False, True])
    some = read_features(X).get_raw_values(only)
    np.testing.assert_array_equal(some, np.where(only[:, None], X.T, 0))


def test_raw_values_of_all_kinds_of_columns():
    frame = pd.DataFrame({"x": [1.5, np.nan, 1e300], "c": pd.Categorical(["a", "b", "a"])})
    table = read_features(frame.assign(y=[-1e300, 0.0, 3.0]))
    largest = np.finfo(np.float32).max
    expected = [[1.5, np.nan, largest], [np.nan] * 3, [-largest, 0.0, 3.0]]
    np.testing.assert_array_equal(table.get_raw_values(), np.array(expected, np.float32))
    sparse = sp.csc_matrix(np.array([[0.0, 2.0], [np.nan, 0.0]]))
    np.testing.assert_array_equal(read_features(sparse).get_raw_values(), [[0, np.nan], [2, 0]])
