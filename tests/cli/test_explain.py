"""The command `explain`."""

import csv
import io

import numpy as np
import pandas as pd
import pytest
from support.commands import fails, polyleaf

from polyleaf import load_model
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
        options = f"-t {targets} --drop cooling" if model == "one" else f"-t {targets}"
        polyleaf(f"train {folder}/train.csv {options} -m {folder}/{model} -n 20")
    return folder


def run_explain(files, capsys, options="", model="both"):
    polyleaf(f"explain {files}/test.csv --model {files}/{model} {options}")
    return list(csv.DictReader(io.StringIO(capsys.readouterr().out)))


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
    written = np.array([[float(line[name]) for name in names] for line in lines]).reshape(30, 2, 9)
    assert (written.astype(np.float32) == values.transpose(0, 2, 1)).all()
    scores = np.array([float(line["raw_score"]) for line in lines]).reshape(30, 2)
    np.testing.assert_allclose(scores, estimator.predict(frame), atol=1e-5)


def test_single_output_has_no_name(files, capsys):
    lines = run_explain(files, capsys, model="one")
    assert "output" not in lines[0] and len(lines) == 30
    lines = run_explain(files, capsys, f"--outputs cooling --background {files}/train.csv")
    assert "output" not in lines[0] and len(lines) == 30
    lines = run_explain(files, capsys, "--outputs 1,heating")
    assert [line["output"] for line in lines[:2]] == ["cooling", "heating"]


def test_output_files(files, capsys):
    pytest.importorskip("pyarrow")
    for name in ("values.csv", "values.parquet"):
        run_explain(files, capsys, f"--out {files}/{name}")
    as_text, as_table = pd.read_csv(files / "values.csv"), pd.read_parquet(files / "values.parquet")
    assert list(as_text) == list(as_table) and len(as_text) == 60
    np.testing.assert_allclose(as_text["shap_x0"], as_table["shap_x0"], rtol=1e-6)
    command = f"explain {files}/test.csv --model {files}/both"
    assert "unknown extension" in fails(capsys, f"{command} -o values.xyz")


def test_importance(files, capsys):
    lines = run_explain(files, capsys, "--importance")
    _, values, frame = compute_shap(files)
    mean = np.abs(values).mean(axis=0)
    order = np.argsort(-mean.mean(axis=1), kind="stable")
    assert [line["feature"] for line in lines] == [frame.columns[f] for f in order]
    written = np.array(
        [[float(line["mean_shap_heating"]), float(line["mean_shap_cooling"])] for line in lines]
    )
    np.testing.assert_allclose(written, mean[order], rtol=1e-6)
    assert list(run_explain(files, capsys, "--importance", model="one")[0]) == [
        "feature",
        "mean_shap",
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            "{0}/test.csv -m {0}/both --outputs warming",
            "names the output 'warming'; the outputs are 'heating', 'co",
        ),
        ("{0}/test.csv -m {0}/both --outputs 2", "output 2, but outputs are numbered from 0 to 1"),
        ("rows.xmc -m {0}/both", "explain does not support --format xmc"),
        ("{0}/test.csv -m nowhere", "no model file"),
    ],
)
def test_errors(files, capsys, arguments, message):
    assert message in fails(capsys, f"explain {arguments.format(files)}")
