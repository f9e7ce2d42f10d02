"""The study of exports: what it compares, and the figures of its committed table."""

from pathlib import Path

import numpy as np
import pytest
from benchmarks import exports
from benchmarks.harness.context import Context, Unavailable
from benchmarks.harness.store import Store

COMMITTED = Store(Path(__file__).parents[2] / "benchmarks" / "results" / "exports.jsonl")
CELLS = [(name, fmt) for name in exports.SETS for fmt in exports.FORMATS]


def get_figures(name):
    (table,) = exports.PAPER.tables
    return COMMITTED.figures(exports.PAPER.task(table, name, table.subjects[0]).key)


@pytest.mark.parametrize("name", exports.SETS)
def test_every_set_was_measured(name):
    assert set(get_figures(name)) >= {"C, gcc", "C, clang", "ONNX 5", "Treelite"}


@pytest.mark.parametrize(("name", "fmt"), CELLS)
def test_every_cell_is_within_its_tolerance(name, fmt):
    found = get_figures(name).get(fmt)
    if found is None:  # categories in version 3, linear leaves of sparse features
        assert fmt == "ONNX 3" or "linear" in fmt
    elif fmt.startswith("C"):
        assert found == -1.0
    else:
        assert found <= 1000.0


def test_difference_of_a_bit_is_detected():
    expected = np.array([[1.0, 4.0], [0.0, 0.5]])
    assert exports.difference(expected.copy(), expected) == -1.0
    assert exports.difference(np.negative(np.negative(expected) + 0.0), expected) == 0.0  # -0.0
    found = expected + np.array([[0.0, 4e-9], [0.0, 0.0]])
    assert exports.difference(found, expected) == pytest.approx(1.0)
    found = expected + np.array([[0.0, 0.0], [0.0, 2e-9]])
    assert exports.difference(found, expected) == pytest.approx(2.0)


@pytest.fixture
def context(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 4)).astype(np.float32)
    X[:, 3] = rng.integers(0, 6, 300)
    np.savez(tmp_path / "enb.npz", X=X, y=X[:, :2] + X[:, 3:], is_categorical=[0, 0, 0, 1])
    return Context(tmp_path, quick=True)


def test_formats_are_compared_on_real_and_on_hard_rows(context):
    pytest.importorskip("onnxruntime")
    figures = exports.exports(context, "enb", "raw scores")
    assert "ONNX 3" not in figures  # there are categories
    assert all(value == -1.0 for name, value in figures.items() if name.startswith("C"))
    assert 0 <= figures["ONNX 5"] <= 1000 and 0 <= figures["ONNX, linear leaves"] <= 1000


def test_program_of_another_model_is_detected(context, monkeypatch):
    def other(est, folder):
        return lambda X: est.model_.predict_raw(exports.prepare_features(est, X), 0, 1)

    monkeypatch.setattr(exports, "FORMATS", {"Treelite": (other, {})})
    assert exports.exports(context, "enb", "raw scores")["Treelite"] > 1e5


def test_missing_data_set_is_reported(tmp_path):
    with pytest.raises(Unavailable, match=r"casp.npz does not exist"):
        exports.exports(Context(tmp_path), "casp", "raw scores")
