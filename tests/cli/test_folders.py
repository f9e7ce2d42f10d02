"""A folder of Parquet files is learned from as one file would be."""

import numpy as np
import pytest
from commands import fails, polyleaf

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
        "kind": rng.choice(["cheap", "dear"], n),
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
def test_the_model_is_that_of_one_file(folder, options, capsys):
    said = []
    for name in ("all.parquet", "parts"):
        polyleaf("train", folder / name, "-m", folder / f"{name}.model", "--rounds", "5", *options)
        said.append(capsys.readouterr().err.replace(name, ""))
    cached = "train", folder / "parts", "-m", folder / "cached.model", "--cache", folder
    polyleaf(*cached, "--rounds", "5", "--quiet", *options)
    for name in ("parts", "cached"):
        assert (folder / "all.parquet.model").read_bytes() == (folder / f"{name}.model").read_bytes()
    assert said[0] == said[1] and "300 rows" in said[0]


def test_validation_is_a_file(folder, capsys):
    train = "train", folder / "parts", "-t", "price", "-m", folder / "m", "--rounds", "5"
    polyleaf(*train, "--validation", folder / "all.parquet")
    assert "validation" in capsys.readouterr().err
    assert "name a file of others" in fails(capsys, *train, "--validation", "0.2")


def test_what_is_wrong_is_said(folder, capsys):
    (folder / "empty").mkdir()
    train = "-t", "price", "-m", folder / "m"
    assert "no Parquet file in the folder" in fails(capsys, "train", folder / "empty", *train)
    assert "one file is read as a whole" in fails(
        capsys, "train", folder / "all.parquet", *train, "--cache", folder
    )
    (folder / "empty" / "a.parquet").write_text("no")
    assert "not a readable Parquet file" in fails(capsys, "train", folder / "empty", *train)
