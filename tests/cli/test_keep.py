"""Columns that `predict --keep` copies, in all formats of input and output."""

import csv
import io
import json
import sys

import numpy as np
import pytest
from support.commands import polyleaf

BIG = 2**53 + 1  # not exact in float64
IDS = [str(BIG + i) for i in range(60)]
ZIPS = [f"{i % 7:05}" for i in range(60)]
NOTES = ["NA", " a b ", "", "1e3", 'say "yes", or', "1.10"] * 10
KEPT = {"id": IDS, "zip": ZIPS, "note": NOTES}


def to_csv(columns, separator=","):
    out = io.StringIO()
    csv.writer(out, delimiter=separator).writerows([columns, *zip(*columns.values(), strict=True)])
    return out.getvalue()


@pytest.fixture
def numbers():
    x = np.random.default_rng(0).random(60).round(3)
    return {"x": x.tolist(), "y": (3 * x).round(3).tolist()}


@pytest.fixture
def model(tmp_path, numbers):
    (tmp_path / "train.csv").write_text(to_csv(numbers))
    polyleaf(f"train {tmp_path}/train.csv -t y -m {tmp_path}/m --rounds 2 --quiet")
    return tmp_path / "m"


def predict_columns(capsys, arguments):
    """Return the columns that predict writes to standard output."""
    capsys.readouterr()
    polyleaf(f"predict {arguments}")
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    return {name: [row[name] for row in rows] for name in rows[0]}


@pytest.mark.parametrize("style", ["", "--sep ';' --encoding utf-16"])
def test_csv_cells_are_copied(style, numbers, model, tmp_path, monkeypatch, capsys):
    text = to_csv(KEPT | numbers, ";" if style else ",")
    (tmp_path / "t.csv").write_bytes(text.encode("utf-16" if style else "utf-8"))
    options = f"-m {model} --keep zip,note,id {style}"
    columns = predict_columns(capsys, f"{tmp_path}/t.csv {options}")
    assert list(columns) == ["zip", "note", "id", "y"]
    assert {name: columns[name] for name in KEPT} == KEPT
    monkeypatch.setattr(
        sys, "stdin", io.TextIOWrapper(io.BytesIO((tmp_path / "t.csv").read_bytes()))
    )
    assert predict_columns(capsys, f"- {options}") == columns


def test_csv_text_stays_text_in_json_and_parquet(numbers, model, tmp_path, capsys):
    (tmp_path / "t.csv").write_text(to_csv(KEPT | numbers))
    predict = f"predict {tmp_path}/t.csv -m {model} --keep id,zip,note"
    expected = KEPT | {"note": [note or None for note in NOTES]}
    capsys.readouterr()
    polyleaf(f"{predict} --json")
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {name: [row[name] for row in rows] for name in KEPT} == expected
    pq = pytest.importorskip("pyarrow.parquet")
    polyleaf(f"{predict} -o {tmp_path}/p.parquet")
    assert pq.read_table(tmp_path / "p.parquet").select(list(KEPT)).to_pydict() == expected


@pytest.mark.parametrize("kind", ["parquet", "arrow", "folder"])
def test_arrow_types_are_kept(kind, numbers, model, tmp_path, capsys):
    pa = pytest.importorskip("pyarrow")
    from pyarrow import feather
    from pyarrow import parquet as pq

    whole = [BIG + i for i in range(60)]
    gaps = [None if i % 3 == 0 else BIG + i for i in range(60)]
    table = pa.table(
        {
            "id": whole,
            "gaps": gaps,
            "huge": pa.array([2**63 + i for i in range(60)], pa.uint64()),
            "small": pa.array(np.arange(60) / 10, pa.float32()),
            "zip": pa.array(ZIPS).dictionary_encode(),
            **numbers,
        }
    )
    file = tmp_path / f"t.{kind}"
    if kind == "arrow":
        feather.write_feather(table, str(file))
    elif kind == "parquet":
        pq.write_table(table, file)
    else:
        file.mkdir()
        pq.write_table(table.slice(0, 25), file / "1.parquet")
        pq.write_table(table.slice(25), file / "2.parquet")
    arguments = f"{file} -m {model} --keep id,gaps,huge,small,zip"
    columns = predict_columns(capsys, arguments)
    assert columns["id"] == IDS and columns["zip"] == ZIPS
    assert columns["gaps"] == ["" if gap is None else str(gap) for gap in gaps]
    assert columns["huge"][1] == str(2**63 + 1)
    assert columns["small"][:4] == ["0.0", "0.1", "0.2", "0.3"]
    polyleaf(f"predict {arguments} -o {tmp_path}/p.parquet")
    predictions = pq.read_table(tmp_path / "p.parquet")
    assert (
        predictions.column("id").to_pylist() == whole
        and predictions.column("gaps").to_pylist() == gaps
    )
    assert predictions.schema.field("gaps").type == pa.int64()
    assert predictions.schema.field("small").type == pa.float32()
    polyleaf(f"predict {arguments} -o {tmp_path}/p.jsonl")
    last = json.loads((tmp_path / "p.jsonl").read_text().splitlines()[0])
    assert last["id"] == BIG and last["gaps"] is None and last["zip"] == "00000"


def test_arff_cells_are_copied(numbers, model, tmp_path, capsys):
    head = "@relation r\n@attribute id string\n@attribute 'a name' {'b c',d}\n"
    head += "@attribute x numeric\n@data\n"
    names = ["'b c'", "?"] * 30
    rows = (f"{i},{name},{x}" for i, name, x in zip(IDS, names, numbers["x"], strict=True))
    (tmp_path / "t.arff").write_text(head + "\n".join(rows) + "\n")
    columns = predict_columns(capsys, f"{tmp_path}/t.arff -m {model} --keep 'id,a name'")
    assert columns["id"] == IDS and columns["a name"] == ["b c", ""] * 30
