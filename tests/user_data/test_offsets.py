"""Forms of offsets, and errors for invalid ones."""

import numpy as np
import pandas as pd
import polars as pl
import pytest

from polyleaf import RowData
from polyleaf.user_data.offsets import OffsetReader, check_all_or_none
from polyleaf.user_data.target import encode_classification, encode_regression

Y = np.arange(12.0).reshape(6, 2)
TWO = OffsetReader(
    encode_regression(RowData(pd.DataFrame(Y, columns=["a", "b"]))).encoding, 2, (True,)
)
ONE = OffsetReader(encode_regression(RowData(Y[:, 0])).encoding, 1, (True,))
LEVELS = OffsetReader(encode_regression(RowData(Y)).encoding, 6, (True, True, True))
SPREADS = OffsetReader(encode_regression(RowData(Y)).encoding, 4, (True, False))
CLASSES = OffsetReader(encode_classification(RowData(["x", "y", "z"] * 2)).encoding, 3, (True,))


@pytest.mark.parametrize(
    "given",
    [
        Y,
        Y.tolist(),
        pd.DataFrame(Y, columns=["a", "b"]),
        pd.DataFrame(Y),
        pl.DataFrame(Y),
        Y.astype(object),
    ],
    ids=["array", "lists", "names of y", "numbers", "polars", "objects"],
)
def test_one_column_per_output(given):
    found = TWO.read(given, 6)
    assert found.dtype == np.float64
    np.testing.assert_array_equal(found, Y)


@pytest.mark.parametrize(
    "given", [Y[:, 1], Y[:, 1:], pd.Series(Y[:, 1])], ids=["flat", "column", "series"]
)
def test_one_number_per_row_applies_to_all_outputs(given):
    np.testing.assert_array_equal(TWO.read(given, 6), np.column_stack([Y[:, 1], Y[:, 1]]))
    np.testing.assert_array_equal(ONE.read(given, 6), Y[:, 1:])


def test_offsets_of_zero_rows():
    assert TWO.read(Y[:0], 0).shape == (0, 2)
    assert ONE.read(Y[:0, 0]).shape == (0, 1)


def test_quantile_levels_of_a_target_share_an_offset():
    np.testing.assert_array_equal(LEVELS.read(Y, 6), np.repeat(Y, 3, axis=1))


def test_offsets_do_not_change_scale_parameters():
    expected = np.stack([Y, np.zeros_like(Y)], axis=2).reshape(6, 4)
    np.testing.assert_array_equal(SPREADS.read(Y, 6), expected)


@pytest.mark.parametrize(
    "reader, given, words",
    [
        (ONE, Y, r"offset must have shape"),
        (TWO, np.zeros((6, 3)), r"offset must have shape"),
        (LEVELS, np.zeros((6, 6)), "all quantiles"),
        (TWO, np.zeros(5), "offset has 5 rows, but X has 6"),
        (
            TWO,
            np.zeros((6, 2, 1)),
            r"must have shape \(n_rows,\) or \(n_rows, 2\), got \(6, 2, 1\)",
        ),
        (CLASSES, np.zeros(6), "one value per row"),
        (CLASSES, np.zeros((6, 2)), r"must have shape \(6, 3\)"),
        (ONE, [0, 1, 2, -np.inf, 4, 5], "offset holds -inf in row 3: offsets must be finite"),
        (ONE, [0, 1, None, 3, 4, 5], "offset holds nan in row 2"),
        (ONE, [0, 1, 1e39, 3, 4, 5], "fit in float32"),
        (ONE, ["0", "1", "much", "3", "4", "5"], "offset holds a str in row 2"),
        (
            TWO,
            pd.DataFrame(Y, columns=["b", "a"]),
            "offset has the columns of the training y in another order",
        ),
        (CLASSES, pd.DataFrame(np.zeros((6, 3)), columns=["z", "y", "x"]), "in another order"),
    ],
)
def test_invalid_offsets_raise(reader, given, words):
    with pytest.raises(ValueError, match=words):
        reader.read(given, 6)


def test_offset_column_names_may_differ():
    assert CLASSES.read(pd.DataFrame(np.zeros((6, 3)), columns=["p", "q", "r"]), 6).shape == (6, 3)


def test_offsets_of_training_and_evaluation_sets_must_match():
    check_all_or_none(["training", "a"], [True, True], False)
    check_all_or_none(["training", "a"], [False, False], False)
    with pytest.raises(
        ValueError, match="training rows have an offset, but the evaluation set 'a' has none"
    ):
        check_all_or_none(["training", "a"], [True, False], False)
    with pytest.raises(
        ValueError, match="training rows have no offset, but the evaluation set 'b' has one"
    ):
        check_all_or_none(["training", "a", "b"], [False, False, True], False)
    with pytest.raises(ValueError, match="was trained with offset"):
        check_all_or_none(["training"], [False], True)
