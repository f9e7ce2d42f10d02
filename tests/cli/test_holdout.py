"""Hold-out rows and the option `--validation`."""

import numpy as np
import pytest
import scipy.sparse
from support.commands import polyleaf

from polyleaf import PolyleafRegressor
from polyleaf.binned_data.random_rows import split_rows, split_validation
from polyleaf.cli.xmc import fit_labels
from polyleaf.files.xmc import LabelledRows


def test_each_row_is_in_one_part():
    kept, held = split_rows(100, 30, seed=3)
    assert len(held) == 30 and np.all(np.diff(kept) > 0) and np.all(np.diff(held) > 0)
    np.testing.assert_array_equal(np.sort(np.concatenate([kept, held])), np.arange(100))


def test_seeds_draw_different_rows():
    assert set(split_rows(100, 30, seed=3)[1]) != set(split_rows(100, 30, seed=4)[1])


def test_validation_option():
    assert split_validation("valid.csv", "random", 10, 0) is None
    parts = split_validation("0.26", "random", 10, 5)
    for mine, drawn_ones in zip(parts, split_rows(10, 3, 5), strict=True):
        np.testing.assert_array_equal(mine, drawn_ones)
    kept, held = split_validation("0.26", "time", 10, 5)
    assert kept.tolist() == [*range(7)] and held.tolist() == [7, 8, 9]


@pytest.mark.parametrize("fraction", ["0", "1", "1.5", "-0.5", "nan", "inf", "0.01", "0.99"])
def test_no_part_is_empty(fraction):
    with pytest.raises(ValueError, match=f"--validation {fraction} leaves no row"):
        split_validation(fraction, "random", 10, 0)


def test_copies_of_rows_are_in_one_part(tmp_path):
    rng = np.random.default_rng(0)
    numbers, colours = rng.standard_normal((300, 3)), rng.choice(["red", "blue"], 300)
    lines = [f"{a},{b},{c},{colour}" for (a, b, c), colour in zip(numbers, colours, strict=True)]
    rows = rng.permutation(np.repeat(np.arange(300), 2))
    (tmp_path / "rows.csv").write_text("\n".join(["a,b,y,c", *(lines[row] for row in rows)]) + "\n")
    model = tmp_path / "model.polyleaf"
    train = f"train {tmp_path}/rows.csv --target y -m {model} --validation 0.3"
    polyleaf(f"{train} --early-stopping 20 --rounds 100")
    assert PolyleafRegressor.load_model(model).best_iteration_ < 40  # noise


def test_copies_of_labelled_rows_are_in_one_part():
    X = scipy.sparse.random(200, 60, 0.1, "csr", random_state=0)
    Y = scipy.sparse.random(200, 9, 0.3, "csr", random_state=1)
    rows = np.random.default_rng(0).permutation(np.repeat(np.arange(200), 2))
    parts = []

    class Estimator:
        validation_order = "random"

        def fit(self, X, Y, eval_set):
            parts.extend([X, eval_set[0][0]])

    fit_labels(Estimator(), LabelledRows(X[rows], Y[rows]), "0.3", 0, 1)
    kept, held = ({row.tobytes() for row in part.toarray()} for part in parts)
    assert not kept & held and len(kept) + len(held) == 200
