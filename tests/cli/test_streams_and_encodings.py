"""Standard streams, CSV options, and messages in terms of options."""

import csv
import io
import json
import sys

import numpy as np
import pytest
from support.commands import fails, polyleaf
from support.small_fits import bits

from polyleaf import load_model
from polyleaf.cli.messages import translate_message

RNG = np.random.default_rng(0)
ROWS = [
    {
        "id": f"r{i:03}",
        "width": f"{width:.3f}",
        "town": "Bern" if width > 0 else "Genève",
        "price": f"{10 * width + (i % 7):.2f}",
        "size": f"{-3 * width + (i % 5):.2f}",
        "rooms": i % 3,
        "weight": 1 + i % 2,
    }
    for i, width in enumerate(RNG.normal(size=120))
]
FAST = "--rounds 8 --drop id"


def write_rows(path, separator=",", decimal=".", encoding="utf-8", header=True):
    """Write the rows to a file."""
    out = io.StringIO()
    writer = csv.DictWriter(out, list(ROWS[0]), delimiter=separator)
    if header:
        writer.writeheader()
    writer.writerows({k: str(v).replace(".", decimal) for k, v in row.items()} for row in ROWS)
    path.write_bytes(out.getvalue().encode(encoding))
    return path


@pytest.fixture
def houses(tmp_path):
    return write_rows(tmp_path / "houses.csv")


@pytest.fixture
def model(houses, tmp_path):
    polyleaf(f"train {houses} -t price,size -m {tmp_path}/m --quiet --drop id,weight")
    return tmp_path / "m"


def test_train_prints_a_summary(houses, tmp_path, capsys):
    polyleaf(f"train {houses} -t price -m {tmp_path}/m {FAST} --validation 0.25")
    printed = capsys.readouterr()
    assert printed.out == ""
    lines = printed.err.splitlines()
    assert lines[0] == "regression of price (inferred; set it with --task), 90 rows, 5 features"
    assert lines[1] == "features: width, town, size, rooms, weight"
    assert lines[2] == "text columns read as categories: town"
    assert lines[3].startswith("8 rounds, validation rmse ")
    assert lines[3].endswith(f"saved to {tmp_path / 'm'}")
    polyleaf(f"train {houses} -t rooms --task classification -m {tmp_path}/m {FAST}")
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "classification of rooms, 120 rows, 5 features"
    assert lines[3] == f"8 rounds, saved to {tmp_path / 'm'}"


def test_train_prints_the_best_round(houses, tmp_path, capsys):
    stop = "--validation 0.25 --early-stopping 3 --rounds 400 --drop id"
    polyleaf(f"train {houses} -t price -m {tmp_path}/m {stop}")
    best = load_model(tmp_path / "m")
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith(
        f"{best.best_iteration_ + 1} rounds, validation rmse {best.best_score_:.6g}, the best of "
    )


def test_standard_input(houses, model, tmp_path, monkeypatch, capsys):
    def set_stdin(content):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))

    set_stdin(houses.read_bytes())
    polyleaf(f"train - -t price,size -m {tmp_path}/n --quiet --drop id,weight")
    polyleaf(f"predict {houses} -m {model}")
    expected = capsys.readouterr().out
    set_stdin(houses.read_bytes())
    polyleaf(f"predict - -m {tmp_path}/n")
    assert capsys.readouterr().out == expected
    set_stdin(b"a,b\n1\n")
    assert "standard input" in fails(capsys, f"predict - -m {model}")
    assert "needs a file" in fails(capsys, f"predict - -m {model} --format parquet")
    set_stdin(b"2 3 2\n0 1:1\n1 2:1\n")
    polyleaf(f"train - --format xmc -m {tmp_path}/l --quiet --leaf sparse")


@pytest.mark.parametrize(
    ("options", "style"),
    [
        ("--sep ';' --decimal ,", {"separator": ";", "decimal": ","}),
        ("--decimal ,", {"separator": ";", "decimal": ","}),
        ("--sep tab --encoding latin-1", {"separator": "\t", "encoding": "latin-1"}),
        ("--encoding utf-16", {"encoding": "utf-16"}),
        ("--sep :", {"separator": ":"}),
    ],
)
def test_csv_options(options, style, model, houses, tmp_path, capsys):
    polyleaf(f"predict {houses} -m {model}")
    expected = capsys.readouterr().out
    other = write_rows(tmp_path / "other.csv", **style)
    polyleaf(f"predict {other} -m {model} {options}")
    assert capsys.readouterr().out == expected
    polyleaf(f"evaluate {other} -m {model} {options}")
    train = f"train {other} -t price,size -m {tmp_path}/n --drop id,weight --quiet"
    polyleaf(f"{train} {options}")
    assert bits(load_model(tmp_path / "n")) == bits(load_model(model))


def test_no_header(tmp_path, houses, capsys):
    path = write_rows(tmp_path / "bare.csv", header=False)
    polyleaf(f"train {path} --no-header -t c3 -m {tmp_path}/m --drop c0")
    assert "120 rows, 5 features" in capsys.readouterr().err
    polyleaf(f"predict {path} --no-header -m {tmp_path}/m --keep c0")
    assert capsys.readouterr().out.splitlines()[:1] == ["c0,c3"]
    assert "no column" in fails(capsys, f"predict {path} -m {tmp_path}/m")


def test_invalid_csv_options(houses, model, capsys):
    for options, message in [
        ("--sep ab", "one character"),
        ("--decimal x", "decimal mark"),
        ("--decimal , --sep ,", "decimal mark"),
        ("--encoding klingon", "encoding 'klingon'"),
        ("--encoding ascii", "is not ascii text"),
    ]:
        assert message in fails(capsys, f"predict {houses} -m {model} {options}")


def test_evaluate_prints_a_line_per_target(houses, model, capsys):
    polyleaf(f"evaluate {houses} -m {model}")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["target", "RMSE", "MAE", "R2"]
    assert [line.split()[0] for line in lines[1:3]] == ["price", "size"]
    assert lines[3:5] == ["", "all targets"] and lines[5].startswith("RMSE")
    polyleaf(f"evaluate {houses} -m {model} --json")
    scores = json.loads(capsys.readouterr().out)
    each = scores["targets"]
    assert list(each) == ["price", "size"]
    together = np.sqrt(np.mean([each[name]["RMSE"] ** 2 for name in each]))
    assert scores["RMSE"] == pytest.approx(together)


def test_evaluate_with_weights(houses, model, tmp_path, capsys):
    """A row of weight 2 counts as two rows."""
    polyleaf(f"evaluate {houses} -m {model} --weight weight --json")
    weighted = json.loads(capsys.readouterr().out)
    head, *lines = houses.read_text().splitlines()
    twice = tmp_path / "twice.csv"
    twice.write_text(
        "\n".join([head, *lines, *(line for line in lines if line.endswith(",2"))]) + "\n"
    )
    polyleaf(f"evaluate {twice} -m {model} --json")
    repeated = json.loads(capsys.readouterr().out)
    assert weighted["targets"]["size"] == pytest.approx(repeated["targets"]["size"])
    assert weighted["R2"] == pytest.approx(repeated["R2"])
    assert "one column" in fails(capsys, f"evaluate {houses} -m {model} --weight weight,id")


def test_predict_keeps_columns(houses, model, capsys):
    polyleaf(f"predict {houses} -m {model} --keep id,rooms,width")
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert list(rows[0]) == ["id", "rooms", "width", "price", "size"]
    assert [row["id"] for row in rows] == [row["id"] for row in ROWS]
    assert [row["rooms"] for row in rows] == [str(row["rooms"]) for row in ROWS]
    assert [float(row["width"]) for row in rows] == [float(row["width"]) for row in ROWS]
    assert "predictions have a column" in fails(capsys, f"predict {houses} -m {model} --keep price")
    assert "no column 'x'" in fails(capsys, f"predict {houses} -m {model} --keep x")


def test_json_lines(houses, model, tmp_path, capsys):
    polyleaf(f"predict {houses} -m {model} --keep id --json")
    lines = capsys.readouterr().out
    rows = [json.loads(line) for line in lines.splitlines()]
    assert len(rows) == 120 and list(rows[0]) == ["id", "price", "size"]
    assert rows[5]["id"] == "r005" and isinstance(rows[5]["price"], float)
    polyleaf(f"predict {houses} -m {model} --keep id -o {tmp_path}/p.jsonl")
    assert (tmp_path / "p.jsonl").read_text() == lines


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (
            "The 'n_estimators' parameter of PolyleafRegressor must be an int. Got -3 instead.",
            "--rounds must be an int. Got -3 instead.",
        ),
        (
            "The 'subsample' parameter of PolyleafClassifier must be a float. Got 3 instead.",
            "--set subsample must be a float. Got 3 instead.",
        ),
        ('set missing_targets="ignore" to', "use --set missing_targets=ignore to"),
        ('leaf="linear" needs it', "--leaf linear needs it"),
        ("nothing=1 of the kind", "nothing=1 of the kind"),
    ],
)
def test_translate_message(message, expected):
    assert translate_message(message) == expected


def test_errors_name_options(houses, tmp_path, capsys):
    train = f"train {houses} -t price -m {tmp_path}/m"
    assert "--rounds must be" in fails(capsys, f"{train} --rounds -3")
    assert "--set subsample must be" in fails(capsys, f"{train} --set subsample=7")


@pytest.mark.parametrize(
    "command", ["train", "predict", "evaluate", "explain", "report", "inspect", "demo"]
)
def test_help_fits_eighty_columns(command, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    polyleaf(f"{command} --help")
    printed = capsys.readouterr().out
    assert "…" not in printed and "..." not in printed.replace("c1, ...", "")
    lines = [line for line in printed.split("Examples")[0].splitlines() if len(line) > 80]
    assert lines == []
    if command == "train":
        for option in (
            "--early-stopping",
            "--learning-rate",
            "--label-names",
            "--leaf-dtype",
            "--no-header",
        ):
            assert option in printed
