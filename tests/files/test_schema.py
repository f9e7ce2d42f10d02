"""Features, targets and tasks of tables."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse as sp

from polyleaf.files.io import ReadError
from polyleaf.files.schema import Schema, infer_task, select_columns
from polyleaf.files.table import Table

nan = np.nan


def table(**columns):
    """Return a table of lists of typed values."""
    data = pa.table({name: pa.array(cells, from_pandas=True) for name, cells in columns.items()})
    return Table(data, tuple(columns))


def make_text_table(**columns):
    """Return a table of text cells, as in a CSV file."""
    data = pa.table({name: pa.array(cells, pa.string()) for name, cells in columns.items()})
    return Table(data, tuple(columns), frozenset(columns))


@pytest.mark.parametrize(
    "columns, task",
    [
        ({"y": ["a", "b", "a"]}, "classification"),
        ({"y": [True, False, True]}, "classification"),
        ({"y": [0, 1, 7]}, "classification"),
        ({"y": [0.5, 1, 7]}, "regression"),
        ({"y": list(range(30))}, "regression"),
        ({"y": [0, 1, 1], "z": [1, 1, 1]}, "multilabel"),
        ({"y": ["yes", "no", "no"], "z": [1, 0, 1]}, "multilabel"),
        ({"y": [True, False, True], "z": [1, 0, 1]}, "multilabel"),
        ({"y": [0, 1, 2], "z": [1, 0, 1]}, "regression"),
        ({"y": [0, 1, nan], "z": [1, 0, 1]}, "regression"),
    ],
)
def test_infer_task(columns, task):
    assert infer_task(table(**columns), tuple(columns)) == task
    if None not in columns and not any(nan in cells for cells in columns.values()):
        cells = {name: list(map(str, values)) for name, values in columns.items()}
        assert infer_task(make_text_table(**cells), tuple(columns)) == task


def test_infer_task_rejects_several_text_columns():
    with pytest.raises(ReadError, match="'y' holds text"):
        infer_task(table(y=["a", "b", "c"], z=[1, 0, 1]), ("y", "z"))


@pytest.mark.parametrize("cell", ["{},5", "{}%", "${}.00", "1.{},50"])
def test_infer_task_rejects_numeric_text(cell):
    cells = [cell.format(100 + i) for i in range(9)]
    with pytest.raises(ReadError, match=r"Column 'y' holds .* in row 0, .*--task classification"):
        infer_task(table(y=cells), ("y",))
    found = Schema.from_table(table(x=[1] * 9, y=cells), ("y",), "classification")
    assert found.read_targets(table(y=cells)).tolist() == cells


def test_select_columns():
    names = ("a", "label_1", "label_2", "price, EUR", "last:1", "z")
    given = table(**{name: [1] for name in names})
    assert select_columns(given, "z, a", "--target") == ("z", "a")
    assert select_columns(given, ["z", "a,z"], "--target") == ("z", "a")
    assert select_columns(given, "label_*", "--target") == ("label_1", "label_2")
    assert select_columns(given, "first:2,a", "--target") == ("a", "label_1")
    assert select_columns(given, "last:2", "--target") == ("last:1", "z")
    assert select_columns(given, "last:1", "--target") == ("last:1",)
    assert select_columns(given, ["price, EUR", "a"], "--target") == ("price, EUR", "a")
    assert select_columns(given, None, "--target") == ()
    with pytest.raises(ReadError, match="--target: there is no column 'b'"):
        select_columns(given, "a,b", "--target")
    with pytest.raises(ReadError, match=r"the only column is 'a b'\. CSV: --sep"):
        select_columns(table(**{"a b": [1]}), "b", "--target")


def read_features(schema, given):
    return {name: column.to_pylist() for name, column in zip(
        schema.features, given.read_features(schema).columns, strict=True
    )}  # fmt: skip


def test_other_files_are_matched_by_names_and_kinds():
    train = make_text_table(
        x=["1", "2", "3.5"], code=["007", "B2", ""], flag=["true", "False", "true"],
        y=["u", "v", "u"], id=["7", "8", "9"],
    )  # fmt: skip
    schema = Schema.from_table(train, ("y",), drop=("id",))
    assert schema.features == ("x", "code", "flag") and schema.text_features == ["code"]
    assert schema.kinds == {"x": "number", "code": "text", "flag": "boolean", "y": "text"}
    np.testing.assert_array_equal(schema.read_targets(train), ["u", "v", "u"])
    digits = make_text_table(code=["007", "7", "NA"], x=["", "5", "6"], flag=["0", "TRUE", ""])
    expected = {"x": [None, 5, 6], "code": ["007", "7", None], "flag": [False, True, None]}
    assert read_features(schema, digits) == expected
    typed = table(code=["007", "7", "NA"], x=[None, 5, 6], flag=[0.0, 1.0, nan])
    assert read_features(schema, typed) == expected
    with pytest.raises(ReadError, match="no column 'y'"):
        schema.read_targets(digits)
    with pytest.raises(ReadError, match="no column 'x', 'flag'"):
        digits_only = make_text_table(code=["blue"])
        digits_only.read_features(schema)
    for bad, message in [
        ({"x": ["a"]}, "'x' holds 'a' in row 0, which is not a number.*--na-values"),
        ({"x": ["1,5"]}, "'x' holds '1,5' in row 0.*--decimal"),
        ({"flag": ["yes"]}, "'flag' holds 'yes' in row 0, which is not true or false"),
    ]:
        with pytest.raises(ReadError, match=message):
            make_text_table(**({"x": ["1"], "code": ["a"], "flag": ["0"]} | bad)).read_features(
                schema
            )
    for bad, message in [
        ({"code": [7]}, "'code' has type int64, but it held text"),
        ({"flag": [2]}, "'flag' has type int64, but it held true or false"),
        ({"x": [[1]]}, "'x' has type list"),
    ]:
        with pytest.raises(ReadError, match=message):
            table(**({"x": [1], "code": ["a"], "flag": [0]} | bad)).read_features(schema)


def test_categories_of_numbers_keep_their_identity():
    big = [2**53, 2**53 + 1, 2**53 + 2]
    schema = Schema.from_table(table(c=big, f=[0.3, 0.1 + 0.2, 1e17], y=[0.5, 1, 2]), ("y",),
                               categorical=("c", "f"))  # fmt: skip
    assert schema.kinds["c"] == "integer" and schema.kinds["f"] == "number"
    cells = make_text_table(c=list(map(str, big)), f=["0.3", "0.30000000000000004", "1e17"])
    assert read_features(schema, cells) == {"c": big, "f": [0.3, 0.1 + 0.2, 1e17]}
    assert pa.types.is_dictionary(cells.read_features(schema).schema.field("c").type)
    with pytest.raises(ReadError, match="'c' has type double, but it held integers"):
        table(c=[float(big[0])], f=[0.3]).read_features(schema)


def test_missing_value_spellings_used_as_categories_stay_categories():
    train = table(c=["NA", "None", "x"], y=[0.5, 1, 2])
    schema = Schema.from_table(train, ("y",))
    assert read_features(schema, train) == {"c": ["NA", "None", "x"]}
    assert read_features(schema, make_text_table(c=["NA", "nan", "", "None"])) == {
        "c": ["NA", None, None, "None"]
    }


def test_dict_round_trip():
    train = table(x=[1, 2], c=["NA", "b"], y=[0, 1])
    schema = Schema.from_table(train, ("y",), categorical=("x",))
    assert Schema.from_dict(json.loads(json.dumps(schema.to_dict()))) == schema


def test_absent_sparse_features_are_zero():
    train = Table(
        sp.csr_matrix([[1.0, 2, 1], [0, 3, 0]]), ("1", "2", "target"), targets=("target",)
    )
    schema = Schema.from_table(train, ("target",))
    other = Table(sp.csr_matrix([[4.0, 5, 1]]), ("2", "3", "target"))
    (block,) = other.read_features(schema).sparse
    matrix = sp.csc_matrix((block.data, block.indices, block.indptr), (1, 2))
    np.testing.assert_array_equal(matrix.toarray(), [[0, 4]])
    np.testing.assert_array_equal(schema.read_targets(other), [1])
    with pytest.raises(ReadError, match="sparse file"):
        Schema.from_table(train, ("target",), categorical=("1",))


def test_targets_by_task():
    both = table(x=[1, 2], a=["true", "false"], b=[0, 1])
    np.testing.assert_array_equal(
        Schema.from_table(both, ("a", "b")).read_targets(both), [[1, 0], [0, 1]]
    )
    one = table(x=[1, 2], y=[0.5, nan])
    np.testing.assert_array_equal(Schema.from_table(one, ("y",)).read_targets(one), [0.5, nan])
    codes = make_text_table(x=["1", "2"], y=["007", "7"])
    assert Schema.from_table(codes, ("y",)).read_targets(codes).tolist() == ["007", "7"]
    flags = make_text_table(x=["1", "2"], y=["true", "False"])
    schema = Schema.from_table(flags, ("y",))
    assert schema.read_targets(flags).tolist() == [True, False]
    assert schema.read_targets(table(x=[1], y=[1])).tolist() == [True]


@pytest.mark.parametrize(
    "columns, task, message",
    [
        ({"y": ["a", None, "b"]}, "classification", "no label in row 1"),
        ({"y": [0.5, 1, 2]}, "classification", "fractional numbers"),
        ({"y": ["a", "b", "b"]}, "regression", "holds 'a' in row 0, which is not a number"),
        ({"y": [0, 1, 2], "z": [0, 1, 0]}, "multilabel", "0 or 1"),
        ({"y": [0, 1, 1], "z": [0, 1, 0]}, "classification", "one target, not 2"),
        ({"y": [0, 1, 1]}, "sorting", "task 'sorting'"),
        ({"y": ["a", "b", "b"]}, "ranking", "holds 'a' in row 0, which is not a number"),
    ],
)
def test_targets_that_do_not_fit_the_task_raise(columns, task, message):
    given = table(x=[1, 2, 3], **columns)
    with pytest.raises(ReadError, match=message):
        Schema.from_table(given, tuple(columns), task).read_targets(given)


def test_no_remaining_feature_raises():
    with pytest.raises(ReadError, match="No feature is left"):
        Schema.from_table(table(y=[1, 2]), ("y",))


def valid_fields():
    return Schema.from_table(table(a=[1, 2], y=[0.5, 1]), ("y",)).to_dict()


@pytest.mark.parametrize(
    "change",
    [
        None,
        {},
        {"task": "nonsense"},
        {"features": [1]},
        {"features": None},
        {"targets": []},
        {"categorical": ["b"]},
        {"kinds": {"a": "number"}},
        {"kinds": {"a": "number", "y": "date"}},
        {"kept_values": {"a": "x"}},
        {"format": [",", 3, []]},
        {"format": ["."]},
        {"parts": [["regression", ["y"]]]},
        {"parts": None},
    ],
)
def test_from_dict_checks_fields(change):
    with pytest.raises(ValueError, match="training columns"):
        Schema.from_dict({**valid_fields(), **change} if change else change)


def test_text_among_numbers_and_numbers_as_text_raise(tmp_path, capsys):
    from support.commands import fails, polyleaf

    def train(name, cells, *options):
        rows = "".join(f"{cell};{i}.5\n" for i, cell in enumerate(cells))
        (tmp_path / name).write_text(f"x;y\n{rows}")
        return "train", tmp_path / name, "-t", "y", "-m", tmp_path / "m", "-n", "1", *options

    stray = [str(i / 4) for i in range(29)] + ["oops"]
    message = fails(capsys, *train("a.csv", stray))
    assert "Column 'x' of X holds numbers, but row 29 holds the text 'oops'" in message
    assert "--categorical 'x'" in message and "--na-values" in message
    polyleaf(*train("a.csv", stray, "--categorical", "x"))
    polyleaf(*train("a.csv", stray, "--na-values", "oops"))
    for style, noun in SimpleNamespace(
        separators="separators", percent="a per cent sign", currency="a currency", unit="a unit"
    ).__dict__.items():
        cell = {"separators": "1,{}50", "percent": "{}%", "currency": "${}.00", "unit": "{} km"}
        cells = [cell[style].format(i + 1) for i in range(30)]
        message = fails(capsys, *train("b.csv", cells))
        assert f"Column 'x' of X holds numbers with {noun} as text: row 0 holds" in message
        polyleaf(*train("b.csv", cells, "--categorical", "x"))
