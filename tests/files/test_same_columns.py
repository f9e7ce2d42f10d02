"""A column has the same meaning in all file formats: kinds of columns x training format x
prediction format."""

from __future__ import annotations

import gzip
import io
import json
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from pyarrow import feather, parquet

from polyleaf import load_model
from polyleaf.cli.main import run
from polyleaf.files.cells import MISSING_VALUES, CellFormat
from polyleaf.files.io import ReadError
from polyleaf.files.readers import CsvOptions, read_table

N = 24
BIG = 2**53


# Kind of column -> six pandas values; each is a category unless they are numbers.
KINDS = {
    "integers": [1, 2, 3, 10, 20, 30],
    "decimals": [0.1, 0.25, 1.5, -2.0, 1e-3, 3e5],
    "codes with leading zeros": ["007", "7", "010", "10", "0001", "1"],
    "codes of digits and letters": ["A17", "B2", "007", "1.10", "1.1", "12E4"],
    "exponents": ["12E4", "3E2", "1E1", "A", "B", "C"],
    "hexadecimal": ["0x1F", "0x20", "0x0A", "0xFF", "0x01", "0x10"],
    "booleans": [True, False, True, False, True, False],
    "missing spellings": ["None", "NA", "nan", "x", "y", "z"],
    "large ids": [BIG, BIG + 1, BIG + 2, BIG + 3, BIG + 4, BIG + 5],
    "large ids as text": [str(BIG + i) for i in range(6)],
    "mixed text": ["1", "2.50", "true", "red", "blue sky", "é"],
    "padded text": [" a", "a", "a ", "b", "B", "ß"],
    "dates": pd.date_range("2026-01-01", periods=6).date.tolist(),
}
CATEGORIES = {"integers", "large ids", "large ids as text"}  # named with --categorical
FORMATS = ("csv", "csv.gz", "parquet", "arrow", "folder", "pandas", "polars")


def make_frame(kind, rows):
    return pd.DataFrame({"c": pd.Series([KINDS[kind][i] for i in rows]), "x": np.zeros(len(rows))})


def write(frame, format, path):
    """Write a frame in a format, and return the path."""
    path = path.with_suffix(f".{format}" if format != "folder" else "")
    if format == "csv":
        frame.to_csv(path, index=False)
    elif format == "csv.gz":
        path.write_bytes(gzip.compress(frame.to_csv(index=False).encode()))
    elif format == "parquet":
        frame.to_parquet(path)
    elif format == "arrow":
        feather.write_feather(pa.Table.from_pandas(frame), str(path))
    else:
        path.mkdir()
        for i, part in enumerate((frame.iloc[:4], frame.iloc[4:])):
            parquet.write_table(pa.Table.from_pandas(part), path / f"{i}.parquet")
    return path


def predict(model, frame, format, path, capsys):
    """Return predictions of a frame in a format, or the error that it raises."""
    if format in ("pandas", "polars"):
        X = frame if format == "pandas" else pl.from_pandas(frame)
        try:
            return load_model(model).predict(X)
        except (ValueError, TypeError) as error:
            return str(error)
    capsys.readouterr()
    code = run(["predict", str(write(frame, format, path)), "-m", str(model), "--json"])
    printed = capsys.readouterr()
    if code:
        return printed.err
    return np.array([json.loads(line)["y"] for line in printed.out.splitlines()])


@pytest.mark.parametrize("training", [f for f in FORMATS if f not in ("pandas", "polars")])
@pytest.mark.parametrize("kind", KINDS)
def test_formats_give_equal_predictions_or_raise(kind, training, tmp_path, capsys):
    """All formats give the predictions of the training format, or an error message."""
    rows = np.arange(N) % 6
    frame = make_frame(kind, rows).assign(y=10.0 * rows)
    file = write(frame, training, tmp_path / "train")
    options = "--set min_child_samples=1 -r 0.5 -n 40 -q --task regression".split()
    options += ["--categorical", "c"] if kind in CATEGORIES else []
    model = tmp_path / "m"
    command = ["train", str(file), "-t", "y", "-m", str(model), *options]
    if kind == "dates":
        assert run(command) == 2
        assert "c" in capsys.readouterr().err and not model.exists()
        return
    assert run(command) == 0, capsys.readouterr().err
    answers = {}
    for part, rows in {"all": np.arange(6), "some": np.array([1, 3]), "one": np.array([2])}.items():
        own = make_frame(kind, rows)
        expected = predict(model, own, training, tmp_path / f"own_{part}", capsys)
        if not isinstance(expected, str):
            if kind != "booleans" and not (kind == "missing spellings" and "csv" in training):
                np.testing.assert_allclose(expected, 10.0 * rows, atol=0.1)
        for format in FORMATS:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found = predict(model, own, format, tmp_path / f"{part}_{format[:3]}", capsys)
            answers[part, format] = found
            if isinstance(found, str):
                assert "Traceback" not in found and "c" in found
            else:
                np.testing.assert_array_equal(found, expected, err_msg=f"{part} {format}")
    same = [format for format in FORMATS if not isinstance(answers["all", format], str)]
    assert training in same and len(same) >= 2  # at least one other format must work


@pytest.mark.parametrize("labels", [False, True])
def test_evaluation_data_is_read_by_the_schema(labels, tmp_path, capsys):
    """Codes and labels of digits only are not numbers in --validation and evaluate."""
    codes = KINDS["codes of digits and letters"] * 4
    y = codes if labels else [10.5 * (i % 6) for i in range(24)]
    frame = pd.DataFrame({"code": codes, "x": 0.0, "y": y})
    frame.to_csv(tmp_path / "train.csv", index=False)
    digits = frame[frame["code"].isin(["007", "1.10", "1.1", "12E4"])]
    digits.to_csv(tmp_path / "v.csv", index=False)
    train = ["train", tmp_path / "train.csv", "-t", "y", "-m", tmp_path / "m", "-n", "60"]
    train += ["-r", "0.5", "--validation", tmp_path / "v.csv", "--set", "min_child_samples=1"]
    assert run(list(map(str, train))) == 0
    capsys.readouterr()
    assert run(["evaluate", str(tmp_path / "v.csv"), "-m", str(tmp_path / "m"), "--json"]) == 0
    scores = json.loads(capsys.readouterr().out)
    history = next(iter(load_model(tmp_path / "m").evals_result_.values()))
    assert next(iter(history.values()))[-1] < 0.05
    assert scores["accuracy"] == 1 if labels else scores["RMSE"] < 0.01


# ---- random CSV files ------------------------------------------------------------------------

CELLS = {
    "number": ["1", "-2.5", "+3", "4e3", ".5", "7.", "1E-2", "0", "-0", "007", " 8 ", "1e400"],
    "integer": ["1", "-2", "+3", "40", "0", "5.0", "123456789"],
    "boolean": ["True", "False", "TRUE", "FALSE", "true", "false"],
    "text": ["a", "007", "1.10", "x y", "é", 'say "yes"', "two\nlines", "a,b;c", "'q'", " pad"],
}
CELLS["text"].append("1e5")
ODD = ["NA", "", "nan", "-", "n/a", "None", "inf", "abc", "1,5", "1.5", "#N/A", "?", "0x1F", "1_0"]
DTYPES = {"number": "float64", "integer": "Int64", "boolean": "boolean", "text": "str"}


def write_random_csv(rng):
    """Return a CSV file, the kinds of its columns, and the options to read it."""
    separator, decimal = rng.choice([",", ";", "\t", "|"]), rng.choice([".", ","], p=[0.8, 0.2])
    decimal = "." if separator == "," else decimal
    thousands = rng.choice([None, ",", ".", " "], p=[0.7, 0.1, 0.1, 0.1])
    thousands = None if thousands in (decimal, separator) else thousands
    na_values = [["-"], []][rng.integers(2)]
    kinds = {f"k{i}": rng.choice(list(CELLS)) for i in range(rng.integers(1, 5))}
    n_rows = int(rng.integers(1, 8))
    columns = []
    for kind in kinds.values():
        odd = 0.02 if rng.random() < 0.5 else 0.2
        cells = [rng.choice(ODD if rng.random() < odd else CELLS[kind]) for _ in range(n_rows)]
        if kind == "number" and decimal == ",":
            cells = [cell.replace(".", ",") for cell in cells]
        if kind == "number" and thousands is not None and rng.random() < 0.5:
            cells[0] = f"1{thousands}234"
        columns.append(cells)
    out = io.StringIO()
    end = rng.choice(["\n", "\r\n"])
    for row in [list(kinds), *zip(*columns, strict=True)]:
        quote = [rng.random() < 0.2 or any(c in cell for c in f'{separator}"\n\r') for cell in row]
        out.write(separator.join(
            '"' + cell.replace('"', '""') + '"' if q else cell
            for cell, q in zip(row, quote, strict=True)
        ) + end)  # fmt: skip
        if rng.random() < 0.05:
            out.write(end)  # a blank line
    marks = {"sep": str(separator), "decimal": str(decimal), "thousands": thousands}
    return out.getvalue(), kinds, marks | {"na_values": na_values}


def check_random_csv(seed, path):
    """Return whether a random file can be read; its table must equal that of pandas."""
    text, kinds, options = write_random_csv(np.random.default_rng(seed))
    path.write_text(text, encoding="utf-8", newline="")
    cells = CellFormat(options["decimal"], options["thousands"], tuple(options["na_values"]))
    try:
        table = read_table(path, None, CsvOptions(True, options["sep"], "utf-8", cells))
        found = {name: table.read(name, str(kind)).to_pylist() for name, kind in kinds.items()}
    except ReadError as error:
        assert str(error)
        return False
    dtypes = {name: DTYPES[kind] for name, kind in kinds.items()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # newer versions of pandas need no option
        frame = pd.read_csv(path, dtype=dtypes, float_precision="round_trip", **options)
    expected = {
        name: [None if pd.isna(value) else value for value in column.tolist()]
        for name, column in frame.items()
    }
    assert found == expected, (seed, text, options)
    return True


@pytest.mark.skipif(
    int(pd.__version__.split(".")[0]) < 3, reason="older pandas refuse float64 for some columns"
)
def test_random_csv_files_equal_pandas(tmp_path):
    read = [check_random_csv(seed, tmp_path / "t.csv") for seed in range(400)]
    assert 100 < sum(read) < 400


@pytest.mark.full
def test_many_random_csv_files_equal_pandas(tmp_path):
    read = [check_random_csv(seed, tmp_path / "t.csv") for seed in range(1000, 21_000)]
    assert 5000 < sum(read) < 20_000


def test_missing_value_spellings_equal_pandas():
    from pandas._libs.parsers import STR_NA_VALUES

    assert MISSING_VALUES == STR_NA_VALUES
