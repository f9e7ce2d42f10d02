"""Folders of Parquet files give the results of one file."""

import numpy as np
import pandas as pd
import pytest
from support.commands import fails, polyleaf

from polyleaf import load_model

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")


@pytest.fixture
def folder(tmp_path):
    rng = np.random.default_rng(0)
    n = 300
    columns = {
        "x": rng.normal(size=n),
        "size": rng.integers(0, 4, n),
        "colour": np.where(np.arange(n) < 100, None, rng.choice(["red", "blue"], n)),
        "weight": rng.random(n),
        "price": rng.normal(size=n),
        "kind": rng.choice(["cheap", "expensive"], n),
    }
    table = pa.table(columns)
    pq.write_table(table, tmp_path / "all.parquet")
    parts = tmp_path / "parts"
    parts.mkdir()
    for number, (begin, end) in enumerate([(0, 100), (100, 100), (100, 300)]):
        pq.write_table(table.slice(begin, end - begin), parts / f"{number}.parquet")
    return tmp_path


@pytest.mark.parametrize(
    "options",
    [
        ["-t", "price", "--drop", "kind,weight"],
        ["-t", "kind", "--weight", "weight", "--categorical", "size"],
        ["-t", "price,x", "--drop", "kind", "--leaf", "linear"],
    ],
)
def test_train_on_a_folder(folder, options, capsys):
    printed = []
    for name in ("all.parquet", "parts"):
        polyleaf("train", folder / name, "-m", folder / f"{name}.model", "--rounds", "5", *options)
        printed.append(capsys.readouterr().err.replace(name, ""))
    for name, files in {
        "cached": ["--cache", folder],
        "limited": ["--memory-limit", "8 MiB"],
    }.items():
        train = "train", folder / "parts", "-m", folder / f"{name}.model", *files
        polyleaf(*train, "--rounds", "5", "--quiet", *options)
    for name in ("parts", "cached", "limited"):
        assert (folder / "all.parquet.model").read_bytes() == (
            folder / f"{name}.model"
        ).read_bytes()
    assert printed[0] == printed[1] and "300 rows" in printed[0]


@pytest.fixture
def model(folder):
    """A model with an offset and linear leaves, which read features."""
    options = (
        "-t",
        "price",
        "--drop",
        "kind,weight",
        "--offset",
        "x",
        "--leaf",
        "linear",
        "--rounds",
        "5",
    )
    polyleaf("train", folder / "all.parquet", "-m", folder / "m", *options, "--quiet")
    estimator, rows = load_model(folder / "m"), pd.read_parquet(folder / "all.parquet")
    X, offset = rows[["size", "colour"]], rows["x"].to_numpy()
    estimator.calibrate(X, rows["price"], offset=offset).save_model(folder / "m")
    return folder / "m"


@pytest.mark.parametrize(
    "command",
    [
        ["predict", "--keep", "kind,weight", "--intervals"],
        ["predict", "--json"],
        ["evaluate"],
        ["evaluate", "--weight", "weight"],
        ["explain"],
        ["explain", "--importance", "--background"],
    ],
)
def test_commands_on_a_folder(folder, model, command, capsys):
    printed = []
    for name in ("all.parquet", "parts"):
        background = [folder / name] if command[-1] == "--background" else []
        polyleaf(command[0], folder / name, "-m", model, *command[1:], *background)
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1] and printed[0].count("\n") > 1


@pytest.mark.full
def test_report_on_a_folder(folder, model):
    pytest.importorskip("matplotlib")
    for name in ("all.parquet", "parts"):
        polyleaf("report", folder / name, "-m", model, "-o", folder / f"{name}.html", "--quiet")
    assert (folder / "all.parquet.html").read_bytes() == (folder / "parts.html").read_bytes()


def test_folder_that_lacks_a_column(folder, model, capsys):
    for name in ("0", "1", "2"):
        file = folder / "parts" / f"{name}.parquet"
        pq.write_table(pq.read_table(file).drop_columns(["size"]), file)
    assert "no column 'size'" in fails(capsys, "predict", folder / "parts", "-m", model)


def test_validation_must_be_a_file(folder, capsys):
    train = "train", folder / "parts", "-t", "price", "-m", folder / "m", "--rounds", "5"
    polyleaf(*train, "--validation", folder / "all.parquet")
    assert "validation" in capsys.readouterr().err
    assert "give a file of evaluation data" in fails(capsys, *train, "--validation", "0.2")


def test_errors(folder, capsys):
    (folder / "empty").mkdir()
    train = "-t", "price", "-m", folder / "m"
    assert "no Parquet file at" in fails(capsys, "train", folder / "empty", *train)
    for option in (["--cache", folder], ["--memory-limit", "1 GiB"]):
        assert "needs a folder of Parquet files" in fails(
            capsys, "train", folder / "all.parquet", *train, *option
        )
    limited = "train", folder / "parts", *train, "--memory-limit"
    assert "memory_limit='much' is not a size" in fails(capsys, *limited, "much")
    assert "memory_limit" in fails(capsys, *limited, "1 kB")
    (folder / "empty" / "a.parquet").write_text("no")
    assert "not a readable Parquet or Arrow file" in fails(
        capsys, "train", folder / "empty", *train
    )


def test_unsupported_columns_can_be_dropped(folder, capsys):
    table = pq.read_table(folder / "all.parquet")
    times = pa.array(np.arange(table.num_rows).astype("datetime64[ms]"))
    pq.write_table(table.append_column("when", times), folder / "all.parquet")
    (folder / "parts" / "0.parquet").unlink()
    pq.write_table(table.append_column("when", times), folder / "parts" / "0.parquet")
    given = "-t", "price", "-m", folder / "m", "--rounds", "3"
    for source in (folder / "all.parquet", folder / "parts"):
        message = fails(capsys, "train", source, *given)
        assert "'when' has type timestamp[ms]" in message
        polyleaf("train", source, *given, "--drop", "when,kind")
    capsys.readouterr()
    polyleaf("predict", folder / "all.parquet", "-m", folder / "m", "--keep", "when")
    first, second = capsys.readouterr().out.splitlines()[:2]
    assert first == "when,price" and second.startswith("1970-01-01")
