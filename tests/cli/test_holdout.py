"""Hold-out rows and the option `--validation`."""

import numpy as np
import pytest

from polyleaf.data.random_rows import split_rows, split_validation


def test_every_row_is_in_one_part():
    kept, held = split_rows(100, 30, seed=3)
    assert len(held) == 30 and np.all(np.diff(kept) > 0) and np.all(np.diff(held) > 0)
    np.testing.assert_array_equal(np.sort(np.concatenate([kept, held])), np.arange(100))


def test_seeds_draw_different_rows():
    assert set(split_rows(100, 30, seed=3)[1]) != set(split_rows(100, 30, seed=4)[1])


def test_validation_option():
    assert split_validation("valid.csv", 10, 0) is None
    for mine, drawn_ones in zip(split_validation("0.26", 10, 5), split_rows(10, 3, 5), strict=True):
        np.testing.assert_array_equal(mine, drawn_ones)


@pytest.mark.parametrize("fraction", ["0", "1", "1.5", "-0.5", "nan", "inf", "0.01", "0.99"])
def test_no_part_is_empty(fraction):
    with pytest.raises(ValueError, match=f"--validation {fraction} leaves no row"):
        split_validation(fraction, 10, 0)
