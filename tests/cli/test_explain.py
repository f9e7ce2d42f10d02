"""The command `explain`."""

import csv
import io

import numpy as np
import pandas as pd
import pytest

from polyleaf import load_model
from polyleaf.cli.main import run
from polyleaf.datasets import load
from polyleaf.model import shap


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Energy as CSV files, and models of both targets and of one."""
    folder = tmp_path_factory.mktemp("explain")
    X, X_test, y, y_test = load("energy").split()
    for name, rows, targets in (("train", X, y), ("test", X_test[:30], y_test[:30])):
        frame = pd.DataFrame(rows, columns=[f"x{f}" for f in range(rows.shape[1])])
        frame["corner"] = np.where(rows[:, 5] > 3, "north", "south")
        frame["heating"], frame["cooling"] = targets.T
        frame.to_csv(folder / f"{name}.csv", index=False)
    for targets, model in (("heating,cooling", "both"), ("heating", "one")):
        arguments = ["-t", targets, "--drop", "cooling"] if model == "one" else ["-t", targets]
        assert (
            run(
                [
                    "train",
                    str(folder / "train.csv"),
                    *arguments,
                    "-m",
                    str(folder / model),
                    "-n",
                    "20",
                ]
            )
            == 0
        )
    return folder


def run_explain(files, capsys, *options, model="both"):
    assert run(["explain", str(files / "test.csv"), "--model", str(files / model), *options]) == 0
    text = capsys.readouterr().out
    return list(csv.DictReader(io.StringIO(text)))


def compute_shap(files, model="both", **options):
    """Return the estimator, its SHAP values of the same rows, and these rows."""
    frame = pd.read_csv(files / "test.csv").drop(columns=["heating", "cooling"])
    frame["corner"] = frame["corner"].astype("category")
    estimator = load_model(files / model)
    return estimator, estimator.shap_values(frame, **options), frame


def test_lines_per_row_and_output(files, capsys, monkeypatch):
    monkeypatch.setattr(shap, "_CHUNK_VALUES", 7 * 2 * 9)
    lines = run_explain(files, capsys)
    estimator, values, frame = compute_shap(files)
    assert [(line["row"], line["output"]) for line in lines] == [
        (str(row), name) for row in range(30) for name in ("heating", "cooling")
    ]
    names = [f"shap_{name}" for name in frame.columns]
    assert list(lines[0]) == ["row", "output", "base_value", *names, "raw_score"]
    found = np.array([[float(line[name]) for name in names] for line in lines]).reshape(30, 2, 9)
    assert (found.astype(np.float32) == values.transpose(0, 2, 1)).all()
    scores = np.array([float(line["raw_score"]) for line in lines]).reshape(30, 2)
    np.testing.assert_allclose(scores, estimator.predict(frame), atol=1e-5)


def test_single_output_has_no_name(files, capsys):
    lines = run_explain(files, capsys, model="one")
    assert "output" not in lines[0] and len(lines) == 30
    lines = run_explain(
        files, capsys, "--outputs", "cooling", "--background", str(files / "train.csv")
    )
    assert "output" not in lines[0] and len(lines) == 30
    lines = run_explain(files, capsys, "--outputs", "1,heating")
    assert [line["output"] for line in lines[:2]] == ["cooling", "heating"]


def test_output_files(files, capsys):
    pytest.importorskip("pyarrow")
    for name in ("values.csv", "values.parquet"):
        run_explain(files, capsys, "--out", str(files / name))
    as_text, as_table = pd.read_csv(files / "values.csv"), pd.read_parquet(files / "values.parquet")
    assert list(as_text) == list(as_table) and len(as_text) == 60
    np.testing.assert_allclose(as_text["shap_x0"], as_table["shap_x0"], rtol=1e-6)
    assert (
        run(
            ["explain", str(files / "test.csv"), "--model", str(files / "both"), "-o", "values.xyz"]
        )
        == 2
    )
    assert "unknown extension" in capsys.readouterr().err


def test_importance(files, capsys):
    lines = run_explain(files, capsys, "--importance")
    _, values, frame = compute_shap(files)
    mean = np.abs(values).mean(axis=0)
    order = np.argsort(-mean.mean(axis=1), kind="stable")
    assert [line["feature"] for line in lines] == [frame.columns[f] for f in order]
    found = np.array(
        [[float(line["mean_shap_heating"]), float(line["mean_shap_cooling"])] for line in lines]
    )
    np.testing.assert_allclose(found, mean[order], rtol=1e-6)
    assert list(run_explain(files, capsys, "--importance", model="one")[0]) == [
        "feature",
        "mean_shap",
    ]


def test_errors(files, capsys):
    command = ["explain", str(files / "test.csv"), "--model", str(files / "both")]
    assert run([*command, "--outputs", "warming"]) == 2
    assert "no output 'warming'; there are heating, cooling" in capsys.readouterr().err
    assert run([*command, "--outputs", "2"]) == 2
    assert "2, but the model has 2 outputs" in capsys.readouterr().err
    assert run(["explain", "rows.xmc", "--model", str(files / "both")]) == 2
    assert "explain does not support --format xmc" in capsys.readouterr().err
    assert run(["explain", str(files / "test.csv"), "--model", "nowhere"]) == 2
    assert "no model file" in capsys.readouterr().err
