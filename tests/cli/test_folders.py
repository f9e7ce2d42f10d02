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
        "-t price --drop kind,weight",
        "-t kind --weight weight --categorical size",
        "-t price,x --drop kind --leaf linear",
    ],
)
def test_train_on_a_folder(folder, options, capsys):
    printed = []
    options += " --rounds 5"
    for name in ("all.parquet", "parts"):
        polyleaf(f"train {folder}/{name} -m {folder}/{name}.model {options}")
        printed.append(capsys.readouterr().err.replace(name, ""))
    train = f"train {folder}/parts {options} --quiet"
    polyleaf(f"{train} -m {folder}/cached.model --cache {folder}")
    polyleaf(f"{train} -m {folder}/limited.model --memory-limit '8 MiB'")
    expected = (folder / "all.parquet.model").read_bytes()
    for name in ("parts", "cached", "limited"):
        assert (folder / f"{name}.model").read_bytes() == expected
    assert printed[0] == printed[1] and "300 rows" in printed[0]


@pytest.fixture
def model(folder):
    """A model with an offset and linear leaves, which read features."""
    options = "-t price --drop kind,weight --offset x --leaf linear --rounds 5"
    polyleaf(f"train {folder}/all.parquet -m {folder}/m {options} --quiet")
    estimator, rows = load_model(folder / "m"), pd.read_parquet(folder / "all.parquet")
    X, offset = rows[["size", "colour"]], rows["x"].to_numpy()
    estimator.calibrate(X, rows["price"], offset=offset).save_model(folder / "m")
    return folder / "m"


@pytest.mark.parametrize(
    "command",
    [
        "predict {} --keep kind,weight --intervals",
        "predict {} --json",
        "evaluate {}",
        "evaluate {} --weight weight",
        "explain {}",
        "explain {} --importance --background {}",
    ],
)
def test_commands_on_a_folder(folder, model, command, capsys):
    printed = []
    for name in ("all.parquet", "parts"):
        polyleaf(f"{command.replace('{}', str(folder / name))} -m {model}")
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1] and printed[0].count("\n") > 1


@pytest.mark.full
def test_report_on_a_folder(folder, model):
    pytest.importorskip("matplotlib")
    for name in ("all.parquet", "parts"):
        polyleaf(f"report {folder}/{name} -m {model} -o {folder}/{name}.html --quiet")
    assert (folder / "all.parquet.html").read_bytes() == (folder / "parts.html").read_bytes()


def test_folder_that_lacks_a_column(folder, model, capsys):
    for name in ("0", "1", "2"):
        file = folder / "parts" / f"{name}.parquet"
        pq.write_table(pq.read_table(file).drop_columns(["size"]), file)
    assert "no column 'size'" in fails(capsys, f"predict {folder}/parts -m {model}")


def test_validation_must_be_a_file(folder, capsys):
    train = f"train {folder}/parts -t price -m {folder}/m --rounds 5"
    polyleaf(f"{train} --validation {folder}/all.parquet")
    assert "validation" in capsys.readouterr().err
    assert "give a file of evaluation data" in fails(capsys, f"{train} --validation 0.2")


def test_errors(folder, capsys):
    (folder / "empty").mkdir()
    train = f"-t price -m {folder}/m"
    assert "no Parquet file at" in fails(capsys, f"train {folder}/empty {train}")
    for option in (f"--cache {folder}", "--memory-limit '1 GiB'"):
        message = fails(capsys, f"train {folder}/all.parquet {train} {option}")
        assert "needs a folder of Parquet files" in message
    limited = f"train {folder}/parts {train} --memory-limit"
    assert "memory_limit='much' is not a size" in fails(capsys, f"{limited} much")
    assert "memory_limit" in fails(capsys, f"{limited} '1 kB'")
    (folder / "empty" / "a.parquet").write_text("no")
    assert "not a readable Parquet or Arrow file" in fails(capsys, f"train {folder}/empty {train}")


def test_unsupported_columns_can_be_dropped(folder, capsys):
    table = pq.read_table(folder / "all.parquet")
    times = pa.array(np.arange(table.num_rows).astype("datetime64[ms]"))
    pq.write_table(table.append_column("when", times), folder / "all.parquet")
    (folder / "parts" / "0.parquet").unlink()
    pq.write_table(table.append_column("when", times), folder / "parts" / "0.parquet")
    arguments = f"-t price -m {folder}/m --rounds 3"
    for source in (folder / "all.parquet", folder / "parts"):
        message = fails(capsys, f"train {source} {arguments}")
        assert "'when' has type timestamp[ms]" in message
        polyleaf(f"train {source} {arguments} --drop when,kind")
    capsys.readouterr()
    polyleaf(f"predict {folder}/all.parquet -m {folder}/m --keep when")
    first, second = capsys.readouterr().out.splitlines()[:2]
    assert first == "when,price" and second.startswith("1970-01-01")
