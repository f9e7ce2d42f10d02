"""The demo, and the bundled data sets, which SOURCES.md describes."""

from __future__ import annotations

import numpy as np
import pytest

import polyleaf
from polyleaf import datasets
from polyleaf.cli.main import run as command


@pytest.mark.full
def test_quick_demo(tmp_path, capsys):
    pytest.importorskip("matplotlib")
    assert command(["demo", "--quick", "--out", str(tmp_path / "out")]) == 0
    shown = capsys.readouterr().out
    for word in (
        "Energy",
        "Letter",
        "Emotions",
        "RMSE",
        "accuracy",
        "micro F1",
        "exactly the same",
        "out/",
    ):
        assert word in shown
    files = {path.name for path in (tmp_path / "out").iterdir()}
    assert files == {
        *(f"{name}.polyleaf" for name in datasets.NAMES),
        *("learning_curves.png", "energy_train.csv", "energy_test.csv"),
    }
    assert (tmp_path / "out" / "learning_curves.png").read_bytes().startswith(b"\x89PNG")

    # The printed commands work.
    for line in shown.splitlines():
        if line.strip().startswith("polyleaf "):
            assert command(line.split()[1:]) == 0
    assert "R2" in capsys.readouterr().out


@pytest.mark.full
def test_demo_beats_the_baselines(tmp_path):
    from polyleaf.cli.demo import JOBS, run

    for name, (scores, baseline, model) in run(tmp_path).items():
        error, quality = JOBS[name][1]
        assert scores[error] < 0.9 * baseline[error]
        assert scores[quality] > baseline[quality] + 0.1
        curves = [next(iter(metrics.values())) for metrics in model.evals_result_.values()]
        assert len(curves[0]) == len(curves[1]) > model.best_iteration_


def test_demo_compares_saved_models(tmp_path, monkeypatch, capsys):
    pytest.importorskip("matplotlib")
    load_model = polyleaf.load_model

    def load_another(path):
        model = load_model(path)
        model.model_.truncate(1)
        return model

    monkeypatch.setattr("polyleaf.estimators.load_model", load_another)
    assert command(["demo", "--quick", "--out", str(tmp_path)]) == 2
    assert "predicts differently" in capsys.readouterr().err


@pytest.mark.parametrize(
    "name, shape, n_outputs, n_test",
    [
        ("energy", (768, 8), 2, 153),
        ("letter", (20000, 16), 26, 4000),
        ("emotions", (593, 72), 6, 202),
    ],
)
def test_data(name, shape, n_outputs, n_test):
    small = datasets.load(name)
    assert small.X.shape == shape and small.X.dtype == np.float32 and np.isfinite(small.X).all()
    assert len(small.feature_names) == shape[1] and len(small.output_names) == n_outputs
    assert len(small.test) == n_test
    np.testing.assert_array_equal(
        np.sort(np.concatenate([small.train, small.test])), np.arange(shape[0])
    )
    X, X_test, y, y_test = small.split()
    assert len(X) == len(y) == shape[0] - n_test and len(X_test) == len(y_test) == n_test


def test_data_values():
    np.testing.assert_allclose(datasets.load("energy").y[0], [15.55, 21.33])
    assert "".join(datasets.load("letter").y[:5]) == "TIDNG"
    assert datasets.load("emotions").y.sum() == 1108
    with pytest.raises(ValueError, match="no data set 'iris'"):
        datasets.load("iris")
