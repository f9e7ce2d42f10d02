"""Features, targets and tasks of tables."""

from __future__ import annotations

import json

import numpy as np
import pytest
import scipy.sparse as sp

from polyleaf.files.schema import Schema, infer_task, select_columns
from polyleaf.files.table import ReadError, Table

nan = np.nan


def table(**columns):
    """A table from lists of numbers, or of texts (None: missing)."""
    values, categories = [], {}
    for name, cells in columns.items():
        if any(isinstance(cell, str) for cell in cells):
            known = tuple(dict.fromkeys(cell for cell in cells if cell is not None))
            categories[name] = known
            cells = [nan if cell is None else known.index(cell) for cell in cells]
        values.append(np.array(cells, dtype=float))
    return Table(tuple(columns), np.column_stack(values), categories)


@pytest.mark.parametrize(
    "columns, task",
    [
        ({"y": ["a", "b", "a"]}, "classification"),
        ({"y": [0, 1, 7]}, "classification"),
        ({"y": [0.5, 1, 7]}, "regression"),
        ({"y": list(range(30))}, "regression"),
        ({"y": [0, 1, 1], "z": [1, 1, 1]}, "multilabel"),
        ({"y": ["yes", "no", "no"], "z": [1, 0, 1]}, "multilabel"),
        ({"y": [0, 1, 2], "z": [1, 0, 1]}, "regression"),
        ({"y": [0, 1, nan], "z": [1, 0, 1]}, "regression"),
    ],
)
def test_infer_task(columns, task):
    assert infer_task(table(**columns), tuple(columns)) == task


def test_infer_task_rejects_several_text_columns():
    with pytest.raises(ReadError, match="'y' holds text"):
        infer_task(table(y=["a", "b", "c"], z=[1, 0, 1]), ("y", "z"))


def test_select_columns():
    given = table(**{"a": [1], "label_1": [0], "label_2": [1], "x,": [1], "last:1": [3], "z": [2]})
    assert select_columns(given, "z, a", "--target") == ("z", "a")
    assert select_columns(given, "label_*", "--target") == ("label_1", "label_2")
    assert select_columns(given, "first:2,a", "--target") == ("a", "label_1")
    assert select_columns(given, "last:2", "--target") == ("last:1", "z")
    assert select_columns(given, "last:1", "--target") == ("last:1",)
    with pytest.raises(ReadError, match="--target: there is no column 'b'"):
        select_columns(given, "a,b", "--target")


def feature_values(features, name):
    """Return a feature of a FeatureTable as a list, None where missing."""
    i = features.feature_names.index(name)
    for column in features.categories:
        if column.feature == i:
            return [None if code < 0 else column.categories[code] for code in column.index]
    for block in features.dense:
        if i in block.features:
            cells = block.values[:, list(block.features).index(i)]
            return [None if np.isnan(cell) else cell for cell in cells]
    (block,) = features.sparse
    matrix = sp.csc_matrix(
        (block.data, block.indices, block.indptr), (features.n_rows, len(block.features))
    )
    return matrix.toarray()[:, list(block.features).index(i)].tolist()


def test_other_files_are_read_by_column_names():
    train = table(x=[1, 2, 3], colour=["red", "blue", None], y=["u", "v", "u"], id=[7, 8, 9])
    schema = Schema.from_table(train, ("y",), drop=("id",))
    assert schema.features == ("x", "colour") and schema.categorical == ("colour",)
    features = schema.read_features(train)
    assert features.n_rows == 3 and features.feature_names == ("x", "colour")
    assert feature_values(features, "x") == [1, 2, 3]
    assert feature_values(features, "colour") == ["red", "blue", None]
    np.testing.assert_array_equal(schema.read_targets(train), ["u", "v", "u"])
    other = table(colour=["blue", "green", "red"], x=[nan, 5, 6], more=[0, 0, 0])
    features = schema.read_features(other)
    assert feature_values(features, "x") == [None, 5, 6]
    assert feature_values(features, "colour") == ["blue", "green", "red"]
    with pytest.raises(ReadError, match="no column 'y'"):
        schema.read_targets(other)
    with pytest.raises(ReadError, match="no column 'x'"):
        schema.read_features(table(colour=["blue"]))
    with pytest.raises(ReadError, match="'x' holds text, but it was numeric"):
        schema.read_features(table(x=["a"], colour=["red"]))
    with pytest.raises(ReadError, match="'x' holds an infinite number in row 2"):
        schema.read_features(table(x=[1, np.inf], colour=["red", "red"]))


def test_categorical_numbers_stay_categorical():
    schema = Schema.from_table(
        table(c=[5, 3, 5], y=[0.5, 1, 2]).convert_to_categorical(["c"]), ("y",)
    )
    assert feature_values(schema.read_features(table(c=[3, 4.5, nan])), "c") == ["3", "4.5", None]


def test_dict_round_trip():
    schema = Schema.from_table(table(x=[1, 2], c=["ä", "b"], y=[0, 1]), ("y",))
    assert Schema.from_dict(json.loads(json.dumps(schema.to_dict()))) == schema


def test_absent_sparse_features_are_zero():
    train = Table(
        ("1", "2", "target"), sp.csr_matrix([[1.0, 2, 1], [0, 3, 0]]), targets=("target",)
    )
    schema = Schema.from_table(train, ("target",))
    other = Table(("2", "3", "target"), sp.csr_matrix([[4.0, 5, 1]]))
    features = schema.read_features(other)
    assert feature_values(features, "1") == [0] and feature_values(features, "2") == [4]
    np.testing.assert_array_equal(schema.read_targets(other), [1])


def test_targets_by_task():
    both = table(x=[1, 2], a=["true", "false"], b=[0, 1])
    np.testing.assert_array_equal(
        Schema.from_table(both, ("a", "b")).read_targets(both), [[1, 0], [0, 1]]
    )
    one = table(x=[1, 2], y=[0.5, nan])
    np.testing.assert_array_equal(Schema.from_table(one, ("y",)).read_targets(one), [0.5, nan])
    declared = Table(("x", "y"), np.array([[1.0, 1], [2, nan]]), {"y": ("10", "20")})
    np.testing.assert_array_equal(
        Schema.from_table(declared, ("y",), "regression").read_targets(declared), [20, nan]
    )


@pytest.mark.parametrize(
    "columns, task, message",
    [
        ({"y": ["a", None, "b"]}, "classification", "no label in row 2"),
        ({"y": [0.5, 1, 2]}, "classification", "fractional numbers"),
        ({"y": ["a", "b", "b"]}, "regression", "holds text, but regression needs numbers"),
        ({"y": [0, 1, 2], "z": [0, 1, 0]}, "multilabel", "0 or 1"),
        ({"y": [0, 1, 1], "z": [0, 1, 0]}, "classification", "one target, not 2"),
        ({"y": [0, 1, 1]}, "ranking", "task 'ranking'"),
    ],
)
def test_targets_that_do_not_fit_the_task(columns, task, message):
    given = table(x=[1, 2, 3], **columns)
    with pytest.raises(ReadError, match=message):
        Schema.from_table(given, tuple(columns), task).read_targets(given)


def test_no_feature_left():
    with pytest.raises(ReadError, match="No feature is left"):
        Schema.from_table(table(y=[1, 2]), ("y",))


@pytest.mark.parametrize(
    "fields",
    [
        None,
        {},
        {"task": "regression", "features": ["a"], "targets": ["y"]},
        {"task": "nonsense", "features": ["a"], "targets": ["y"], "categorical": []},
        {"task": "regression", "features": [1], "targets": ["y"], "categorical": []},
        {"task": "regression", "features": ["a"], "targets": [], "categorical": []},
        {"task": "regression", "features": ["a"], "targets": ["y"], "categorical": ["b"]},
    ],
)
def test_from_dict_checks_fields(fields):
    with pytest.raises(ValueError, match="training columns"):
        Schema.from_dict(fields)


def numbers_and_a_text(n=30):
    return [str(i / 4) for i in range(n - 1)] + ["oops"]


def test_stray_text_in_a_feature_is_rejected_unless_categorical():
    given = table(x=numbers_and_a_text(), y=list(range(30)))
    schema = Schema.from_table(given, ("y",))
    with pytest.raises(
        ReadError, match=r"Column 'x' holds numbers, but row 30 .* 'oops'.*--categorical"
    ):
        schema.check_stray_text(given)
    schema.check_stray_text(given, ("x",))
    fine = table(x=["a", "b", None] * 10, y=["1", "2", "3", "4", "5", "other"] * 5)
    Schema.from_table(fine, ("y",)).check_stray_text(fine)


def test_stray_text_in_a_target_is_rejected():
    given = table(x=list(range(30)), y=numbers_and_a_text())
    with pytest.raises(ReadError, match=r"Column 'y' holds numbers, but row 30"):
        Schema.from_table(given, ("y",)).check_stray_text(given)
