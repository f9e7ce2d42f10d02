"""Targets: containers, label types, weight shapes, missing values and errors."""

import json
from decimal import Decimal
from itertools import product

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse as sp
from sklearn.exceptions import DataConversionWarning
from sklearn.utils.class_weight import compute_class_weight

from polyleaf import RowData
from polyleaf.user_data.read_target import is_sparse, sort_classes
from polyleaf.user_data.target import (
    TargetEncoding,
    encode_classification,
    encode_regression,
    encode_sparse,
)

NAN = np.nan


def save_and_load(target):
    values, encoding = target.values, target.encoding
    return values if encoding.scale is None else values * encoding.scale + encoding.offset


# --- regression ---


def test_one_dimension():
    target = encode_regression(RowData([1, 2, 6]))
    assert target.values.shape == (3, 1)
    assert target.weight is None and target.n_rows == 3
    assert target.encoding.one_dimensional and target.encoding.kind == "regression"
    np.testing.assert_array_equal(save_and_load(target)[:, 0], [1, 2, 6])


def test_two_dimensions():
    target = encode_regression(RowData(np.arange(6.0).reshape(3, 2)))
    assert target.values.shape == (3, 2) and not target.encoding.one_dimensional
    with pytest.warns(DataConversionWarning, match="column-vector"):
        target = encode_regression(RowData(np.arange(3.0)[:, None]))
    assert target.encoding.one_dimensional


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_values_keep_float64_precision(dtype):
    """1e9 +- 1 must not be rounded before the base score is subtracted."""
    y = np.array([1e9 - 1, 1e9, 1e9 + 1], dtype)
    target = encode_regression(RowData(y))
    assert target.values.dtype == dtype
    np.testing.assert_array_equal(target.values[:, 0], y)


def test_normalization_is_weighted_and_ignores_missing_values():
    y = np.array([[1.0, 10], [3, NAN], [100, 30]])
    target = encode_regression(RowData(y, [1, 1, 0]), normalize=True, missing="ignore")
    np.testing.assert_allclose(target.values[:2, 0], [-1, 1])
    assert target.values[1, 1] == 0 and target.weight[1, 1] == 0
    np.testing.assert_allclose(target.encoding.offset, [2, 10])
    # A single value of positive weight has no scale.
    np.testing.assert_allclose(target.encoding.scale, [1, 1])
    np.testing.assert_allclose(save_and_load(target)[0], y[0])


def test_normalization_gives_unit_scale():
    y = np.random.default_rng(0).normal([1e9, 1e-9], [1e4, 1e-12], (1000, 2))
    target = encode_regression(RowData(y), normalize=True)
    np.testing.assert_allclose(target.values.std(0), 1, rtol=1e-3)
    np.testing.assert_allclose(save_and_load(target)[:, 0], y[:, 0], atol=0.1)
    target = encode_regression(RowData([0.0, 1e30]), normalize=True)
    np.testing.assert_allclose(target.values[:, 0], [-1, 1], rtol=1e-6)
    with pytest.warns(UserWarning, match="normalize_targets"):
        encode_regression(RowData([1e-20, 2e-20]))


def test_missing_values_have_weight_zero():
    y = np.array([[1.0, NAN], [2, 3], [NAN, 4]])
    target = encode_regression(RowData(y), missing="ignore")
    np.testing.assert_array_equal(target.weight, [[1, 0], [1, 1], [0, 1]])
    assert np.isfinite(target.values).all()
    weighted = encode_regression(RowData(y, [2, 3, 4]), missing="ignore")
    np.testing.assert_array_equal(weighted.weight, [[2, 0], [3, 3], [0, 4]])
    single = encode_regression(RowData(y[:, 0]), missing="ignore")
    np.testing.assert_array_equal(single.weight, [1, 1, 0])


def test_take():
    whole = encode_regression(RowData([[1.0, NAN], [2, 3], [4, 4]]), missing="ignore")
    target = whole.take(np.array([2, 0]))
    np.testing.assert_array_equal(target.values, [[4, 4], [1, 0]])
    np.testing.assert_array_equal(target.weight, [[1, 1], [1, 0]])


@pytest.mark.parametrize(
    "make",
    [
        lambda y: y,
        lambda y: y.tolist(),
        lambda y: np.asfortranarray(y),
        lambda y: y.astype(np.float32),
        lambda y: y.astype(int),
        lambda y: pd.DataFrame(y, columns=["a", "b"]),
        lambda y: pd.DataFrame(y, columns=["a", "b"]).astype("Int64"),
        lambda y: pl.DataFrame(y, schema=["a", "b"]),
        lambda y: pa.table({"a": y[:, 0], "b": y[:, 1]}),
    ],
)
def test_containers_of_regression_targets(make):
    y = np.array([[1.0, 2], [3, 4], [5, 9]])
    target = encode_regression(RowData(make(y)))
    np.testing.assert_array_equal(save_and_load(target), y)
    named = hasattr(make(y), "columns")
    assert target.encoding.output_names == (("a", "b") if named else None)


def test_series_with_missing_values():
    for y in (
        pd.Series([1, None, 3], dtype="Int64"),
        pd.Series([1, NAN, 3]),
        pl.Series([1, None, 3]),
        pa.array([1, None, 3]),
        pa.chunked_array([[1, None], [3]]),
    ):
        target = encode_regression(RowData(y), missing="ignore")
        np.testing.assert_array_equal(target.weight, [1, 0, 1])
        with pytest.raises(ValueError, match="Input y contains NaN"):
            encode_regression(RowData(y))


@pytest.mark.parametrize(
    ("y", "options", "match"),
    [
        ([1.0, NAN], {}, r"Input y contains NaN: .* row 1\. .*missing_targets"),
        ([[1.0, 2.0], [1.0, NAN]], {}, r"NaN: the first is in row 1, column 1\."),
        ([1.0, np.inf], {}, r"Input y contains infinity.*row 1\. Correct"),
        ([1.0, np.inf], {"missing": "ignore"}, "Input y contains infinity"),
        ([1.0, 1e300], {}, "too large"),
        ([0.0, 1e30], {}, "too large.*normalize_targets"),
        ([1.0, 1j], {}, "Complex"),
        (["a", "b"], {}, "PolyleafClassifier"),
        (None, {}, "requires y"),
        ([], {}, "0 sample"),
        (np.ones((3, 0)), {}, r"\(3, 0\)"),
        (np.ones((3, 2, 2)), {}, "dim"),
        ([[1.0, NAN], [2.0, NAN]], {"missing": "ignore"}, "Output 1 of y"),
        (pd.DataFrame({"a": [1.0], "b": [NAN]}), {"missing": "ignore"}, "Output 'b' of y"),
        ([[1.0], [1.0, 2.0]], {}, "different lengths"),
    ],
)
def test_invalid_regression_targets_raise(y, options, match):
    with pytest.raises(ValueError, match=match):
        encode_regression(RowData(y), **options)


# --- weights ---


def test_weights():
    matrix = np.arange(6.0).reshape(3, 2)
    for weight in ([1, 2, 3], matrix, pd.DataFrame(matrix)):
        target = encode_regression(RowData(np.ones((3, 2)), weight))
        np.testing.assert_array_equal(target.weight, weight)
    np.testing.assert_array_equal(encode_regression(RowData(np.ones(3), 2)).weight, [2, 2, 2])


@pytest.mark.parametrize(
    ("weight", "match"),
    [
        ([1, 2], r"shape \(2,\)"),
        (np.ones((3, 3)), r"shape \(3, 3\)"),
        ([1, -1, 1], "negative"),
        ([0, 0, 0], "zero for every row"),
        ([1, NAN, 1], "row 1 has nan"),
        ([1, 1, np.inf], "row 2 has inf"),
        ([[1, 0], [1, 0], [1, 0]], "Output 1 of y"),
    ],
)
def test_invalid_weights_raise(weight, match):
    with pytest.raises(ValueError, match=match):
        encode_regression(RowData(np.ones((3, 2)), weight))


def test_weights_per_output_of_classes_raise():
    with pytest.raises(ValueError, match="sample_weight"):
        encode_regression(RowData([1.0, 2.0], np.ones((2, 2))))
    with pytest.raises(ValueError, match="sample_weight"):
        encode_classification(RowData([0, 1], np.ones((2, 2))))


# --- classes ---


@pytest.mark.parametrize(
    ("y", "classes"),
    [
        (["no", "yes", "no"], ["no", "yes"]),
        ([True, False, True], [False, True]),
        ([-1, 1, -1], [-1, 1]),
        ([0.0, 2.0, 0.0], [0.0, 2.0]),
        (pd.Series(["b", "a", "b"], dtype="category"), ["a", "b"]),
        (pd.Series(["b", "a", "b"]), ["a", "b"]),
        (pl.Series(["b", "a", "b"]), ["a", "b"]),
        (pl.Series(["b", "a", "b"], dtype=pl.Categorical), ["a", "b"]),
        (pa.array(["b", "a", "b"]), ["a", "b"]),
        (np.array(["b", "a", "b"], dtype=object), ["a", "b"]),
        (np.array([3, 1, 3], dtype=object), [1, 3]),
        (np.array([3.0, 1.0, 3.0], dtype=object), [1.0, 3.0]),
        (pd.Series([3, 1, 3], dtype="Int64"), [1, 3]),
        (pd.Series([True, False, True], dtype=object), [False, True]),
        (np.array([np.True_, np.False_, np.True_], dtype=object), [False, True]),
        (pd.Series([True, False, True], dtype="boolean"), [False, True]),
        (pd.Series([True, False, True], dtype="bool[pyarrow]"), [False, True]),
        (pd.Series([True, False, True], dtype="category"), [False, True]),
        (pl.Series([True, False, True]), [False, True]),
        (pd.Series(pd.arrays.SparseArray([3, 0, 3])), [0, 3]),
    ],
)
def test_binary_labels_of_any_type(y, classes):
    target = encode_classification(RowData(y))
    assert target.encoding.kind == "binary" and target.encoding.n_outputs == 1
    assert target.encoding.classes.tolist() == classes
    assert list(map(type, target.encoding.classes.tolist())) == list(map(type, classes))
    assert target.values.dtype == np.float32 and target.values.shape == (3, 1)
    labels = target.encoding.classes[target.values[:, 0].astype(int)]
    np.testing.assert_array_equal(labels, np.asarray(y))


@pytest.mark.parametrize(
    "labels",
    [
        np.arange(-128, 128, dtype=np.int8),
        np.arange(200, 256, dtype=np.uint8),
        np.array([False, True]),
        np.array([2**63 + 1, 2**63 + 4, 2**63 + 9], np.uint64),
        np.array([-(2**63), 0, 2**63 - 1]),
        np.array([2**40 + 5, 2**40 + 60_000]),
        np.array([2**40 + 5, 2**40 + 70_000]),
        np.array([7, 3, -5, 700]),
    ],
)
def test_integers_are_sorted_like_unique(labels):
    rows = np.random.default_rng(0).permutation(np.resize(labels, 70_000))
    classes, ids = sort_classes(rows, "y")
    expected, expected_ids = np.unique(rows, return_inverse=True)
    assert classes.dtype == expected.dtype
    np.testing.assert_array_equal(classes, expected)
    np.testing.assert_array_equal(ids, expected_ids)


def test_multiclass_and_one_vs_rest():
    target = encode_classification(RowData(["c", "a", "b", "a"]))
    assert target.encoding.kind == "multiclass" and target.encoding.n_outputs == 3
    assert target.values.dtype == np.int32
    np.testing.assert_array_equal(target.values, [2, 0, 1, 0])
    target = encode_classification(RowData(["c", "a", "b"]), one_vs_rest=True)
    np.testing.assert_array_equal(target.values, np.eye(3, dtype=np.float32)[[2, 0, 1]])
    np.testing.assert_array_equal(target.encoding.encode(RowData(["b"])).values, [[0, 1, 0]])


INDICATOR = np.array([[1, 0, 1], [0, 0, 1], [0, 1, 0]])


@pytest.mark.parametrize(
    "make",
    [
        lambda y: y,
        lambda y: y.tolist(),
        lambda y: y.astype(bool),
        lambda y: y.astype(float),
        sp.csr_matrix,
        sp.csc_array,
        sp.coo_array,
        lambda y: y.astype(object),
        lambda y: pd.DataFrame(y, columns=list("abc")),
        lambda y: pd.DataFrame(y, columns=list("abc"), dtype=object),
        lambda y: pd.DataFrame(y.astype(bool), columns=list("abc")).astype(object),
        lambda y: pd.DataFrame(y.astype(bool), columns=list("abc"), dtype="boolean"),
        lambda y: pd.DataFrame.sparse.from_spmatrix(sp.csr_matrix(y), columns=list("abc")),
        lambda y: pd.DataFrame(y, columns=list("abc")).astype({"b": pd.SparseDtype(int, 1)}),
        lambda y: pl.DataFrame(y, schema=list("abc")),
        lambda y: pa.table({name: y[:, i] for i, name in enumerate("abc")}),
    ],
)
def test_multilabel_containers(make):
    target = encode_classification(RowData(make(INDICATOR)))
    assert target.encoding.kind == "multilabel"
    np.testing.assert_array_equal(target.values, INDICATOR.astype(np.float32))
    np.testing.assert_array_equal(target.encoding.classes, [0, 1, 2])
    named = hasattr(make(INDICATOR), "columns")
    assert target.encoding.output_names == (("a", "b", "c") if named else None)


def test_multilabel_with_missing_values():
    y = INDICATOR.astype(float)
    y[0, 1] = NAN
    target = encode_classification(RowData(y), missing="ignore")
    expected = np.ones((3, 3))
    expected[0, 1] = 0
    np.testing.assert_array_equal(target.weight, expected)
    with pytest.raises(ValueError, match="missing_targets"):
        encode_classification(RowData(y))


@pytest.mark.parametrize(
    ("y", "options", "match"),
    [
        ([1, 1, 1], {}, "one class"),
        ([1], {}, "1 sample"),
        (RowData([0, 1, 1], [0, 1, 1]), {}, "class"),
        ([0.1, 0.2, 0.3], {}, "Unknown label type"),
        ([0, NAN, 1], {}, "Input y contains NaN"),
        (["a", None, "b"], {}, "row 1 has no label"),
        (np.array([1, "a", 2], dtype=object), {}, "int, str"),
        ([[1, 2], [0, 1], [3, 1]], {}, "MultiLabelBinarizer"),
        ([[1], [1, 2], []], {}, "MultiLabelBinarizer"),
        ([[0, 1], [1, 2], [1, 0]], {"missing": "ignore"}, r"y\[1, 1\] is 2"),
        ([0, 1, 2], {"missing": "ignore"}, "missing_targets"),
        ([0, 1, 1], {"class_weight": {5: 2.0}}, "has the label 5"),
        ([0, 1, 1], {"class_weight": [{0: 2.0}]}, "multi-label"),
        ([0, 1, 1], {"class_weight": {0: -2.0}}, "not negative"),
        (INDICATOR, {"class_weight": [{0: 1}]}, "has 1 dicts"),
        (INDICATOR, {"class_weight": {"a": 1}}, "keys 0 and 1"),
    ],
)
def test_invalid_labels_raise(y, options, match):
    rows = y if isinstance(y, RowData) else RowData(y)
    with pytest.raises(ValueError, match=match):
        encode_classification(rows, **options)


def test_class_weights():
    for weight, class_weight, expected in (
        (None, {"a": 3}, [3, 1, 1, 1]),
        (None, "balanced", [4 / 3, 2 / 3, 2 / 3, 4 / 3]),
        ([1, 2, 3, 4], {"b": 2}, [1, 4, 6, 4]),
    ):
        rows = RowData(["a", "b", "b", "c"], weight)
        target = encode_classification(rows, class_weight=class_weight)
        np.testing.assert_allclose(target.weight, expected)


def test_balanced_class_weights_count_rows_by_their_weight():
    rng, counts = np.random.default_rng(0), np.array([0, 1, 2, 3] * 10)
    repeated = np.repeat(np.arange(40), counts)
    known = counts > 0
    ids = np.arange(40) % 3
    shares = rng.dirichlet(np.ones(3), 40)
    missing = np.where(rng.random((40, 3)) < 0.2, np.nan, np.eye(3)[ids])
    for y, options in (
        (ids, {}),
        (ids == 1, {}),
        (shares, {"shares": "always"}),
        (np.eye(3)[ids], {}),
        (missing, {"missing": "ignore"}),
    ):
        options["class_weight"] = "balanced"
        of_rows = encode_classification(RowData(y[repeated]), **options)
        of_weights = encode_classification(RowData(y, counts), **options)
        factors = of_rows.weight[np.unique(repeated, return_index=True)[1]]
        expected = (counts[known] * factors.T).T
        np.testing.assert_allclose(of_weights.weight[known], expected, rtol=1e-6)
    weight = encode_classification(RowData(ids, counts), class_weight="balanced").weight
    factors = compute_class_weight("balanced", classes=np.arange(3), y=ids, sample_weight=counts)
    np.testing.assert_allclose(weight, counts * factors[ids], rtol=1e-6)


def test_class_weights_per_label():
    one = encode_classification(RowData(INDICATOR), class_weight=[{1: 2}, {0: 3}, {}]).weight
    np.testing.assert_array_equal(one, [[2, 3, 1], [1, 3, 1], [1, 1, 1]])
    balanced = encode_classification(RowData(INDICATOR), class_weight="balanced").weight
    np.testing.assert_allclose(balanced, [[1.5, 0.75, 0.75], [0.75, 0.75, 0.75], [0.75, 1.5, 1.5]])


# --- validation data and files ---


def test_validation_data_are_encoded_as_training_data():
    encoding = encode_classification(RowData(["a", "c", "b"])).encoding
    np.testing.assert_array_equal(encoding.encode(RowData(["c", "a"], [1, 2])).values, [2, 0])
    with pytest.raises(ValueError, match=r"y_val has the label 'z'.*'a', 'b', 'c'"):
        encoding.encode(RowData(["a", "z"]), name="y_val")
    encoding = encode_regression(RowData([1.0, 2.0, 9.0]), normalize=True).encoding
    rows = RowData([4.0, 7.0])
    np.testing.assert_allclose(save_and_load(encoding.encode(rows))[:, 0], [4, 7], rtol=1e-6)
    np.testing.assert_array_equal(encoding.encode(rows, normalized=False).values[:, 0], [4, 7])
    with pytest.raises(ValueError, match="y_val has 2 column"):
        encoding.encode(RowData(np.ones((3, 2))), name="y_val")
    encoding = encode_classification(RowData(INDICATOR)).encoding
    with pytest.raises(ValueError, match="fitted on 3"):
        encoding.encode(RowData(INDICATOR[:, :2]))


@pytest.mark.parametrize(
    "target",
    [
        encode_regression(RowData([[1.0, 2.0], [3.0, 4.0]]), normalize=True),
        encode_classification(RowData(["a", "c", "b"])),
        encode_classification(RowData(np.array(["a", "c", "b"], dtype=object))),
        encode_classification(RowData([True, False])),
        encode_classification(RowData(np.array([3, 5, 7], np.int16))),
        encode_classification(RowData(pd.DataFrame(INDICATOR, columns=list("xyz")))),
    ],
)
def test_encoding_round_trip_through_json(target):
    encoding = TargetEncoding.from_dict(json.loads(json.dumps(target.encoding.to_dict())), 3)
    assert encoding.to_dict() == target.encoding.to_dict()
    if encoding.classes is not None:
        assert encoding.classes.dtype == target.encoding.classes.dtype
        np.testing.assert_array_equal(encoding.classes, target.encoding.classes)


def test_labels_without_json_form_raise_on_saving():
    encoding = TargetEncoding("binary", 1, True, classes=np.array([b"a", b"b"], dtype=object))
    with pytest.raises(ValueError, match="model file"):
        encoding.to_dict()


DAYS = np.array(["2020-01-01", "2020-01-02", "2020-01-03"], dtype="datetime64[D]")


@pytest.mark.parametrize(
    "y",
    [
        DAYS,
        DAYS.astype(object),
        pd.Series(DAYS),
        DAYS - DAYS[0],
        np.array(list(DAYS), dtype=object),
        np.array([Decimal(1), Decimal(2), Decimal(1)], dtype=object),
        np.array([1, 2j, 1], dtype=object),
    ],
)
def test_dates_and_unusual_numbers_as_labels_raise(y):
    with pytest.raises(ValueError, match="labels are text, numbers or booleans: convert them to"):
        encode_classification(RowData(y))


def test_old_models_of_booleans_read_booleans():
    fields = encode_classification(RowData([1.0, 0.0])).encoding.to_dict()
    of_file = TargetEncoding.from_dict(json.loads(json.dumps(fields)), 1)
    for y in (pd.Series([True, False], dtype="boolean"), np.array([True, False]), [1.0, 0.0]):
        np.testing.assert_array_equal(of_file.encode(RowData(y)).values[:, 0], [1, 0])


@pytest.mark.parametrize("kind", ["multilabel", "regression"])
def test_sparse_pandas_columns_stay_sparse(kind):
    frame = pd.DataFrame.sparse.from_spmatrix(sp.csr_matrix(INDICATOR), columns=list("abc"))
    target = encode_sparse(RowData(frame), kind=kind)
    assert is_sparse(frame) and sp.issparse(target.values)
    np.testing.assert_array_equal(target.values.toarray(), INDICATOR)
    assert target.encoding.output_names == ("a", "b", "c")
    for dense in (frame.astype({"a": int}), INDICATOR, frame["a"]):
        assert not is_sparse(dense)
    with pytest.raises(ValueError, match="several columns named 'a'"):
        encode_sparse(RowData(frame.rename(columns={"b": "a"})), kind=kind)


# --- names of columns ---

NAMED = pd.DataFrame({"a": [1.0, 2.0, 4.0], "b": [0.0, 8.0, 3.0]})
FLAGS = pd.DataFrame({"a": [1, 0, 1], "b": [0, 0, 1]})


@pytest.mark.parametrize("encode", [encode_regression, encode_classification, encode_sparse])
@pytest.mark.parametrize("frame", [lambda y: y, pl.DataFrame, pa.Table.from_pandas])
def test_columns_of_further_targets_must_match(encode, frame):
    data = NAMED if encode is encode_regression else FLAGS
    kind = {"kind": "multilabel"} if encode is encode_sparse else {}
    encoding = encode(RowData(frame(data)), **kind).encoding

    def again(y):
        rows, name = RowData(frame(y)), "y of 'test'"
        if encode is encode_sparse:
            return encode_sparse(rows, **kind, name=name, like=encoding)
        return encoding.encode(rows, name=name)

    again(data)
    with pytest.raises(ValueError, match=r"y of 'test' .* another order"):
        again(data[["b", "a"]])
    message = "y of 'test' has a column 'c', which the training y does not have"
    with pytest.raises(ValueError, match=message):
        again(data.rename(columns={"b": "c"}))


def test_unnamed_columns_are_matched_by_position():
    values = NAMED.to_numpy()
    for first, other in product((NAMED, values, pd.DataFrame(values)), repeat=2):
        encoding = encode_regression(RowData(first)).encoding
        np.testing.assert_array_equal(encoding.encode(RowData(other)).values, values)


@pytest.mark.parametrize("data", [NAMED, FLAGS])
def test_weight_columns_must_match_y(data):
    encode = encode_regression if data is NAMED else encode_classification
    weights = pd.DataFrame({"a": [1.0, 2.0, 1.0], "b": [3.0, 1.0, 1.0]})
    encoding = encode(RowData(data, weights)).encoding
    for names in (["b", "a"], ["a", "c"]):
        swapped = weights.set_axis(names, axis=1)
        with pytest.raises(ValueError, match="sample_weight of y"):
            encode(RowData(data, swapped))
        with pytest.raises(ValueError, match="sample_weight of y of 'test'"):
            encoding.encode(RowData(data, swapped), name="y of 'test'")
    own = encode(RowData(data, weights.add_prefix("weight of ")))
    np.testing.assert_array_equal(own.weight, weights.to_numpy())
