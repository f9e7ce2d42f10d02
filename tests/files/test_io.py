"""Extensions, compression, and errors that name their file."""

import bz2
import gzip
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from polyleaf.files.io import (
    ReadError,
    detect_format,
    get_extension,
    open_for_writing,
    open_writer,
    read_bytes,
    read_text,
    wrap_read_errors,
    write_columns,
)


@pytest.mark.parametrize(
    ("name", "extension"),
    [("a.csv", ".csv"), ("a.CSV.GZ", ".csv"), ("a.b.bz2", ".b"), ("a.gz", ""), ("a", "")],
)
def test_extensions(name, extension):
    assert get_extension(Path(name)) == extension


def test_formats():
    assert detect_format(Path("a.TSV.gz")) == "csv" == detect_format(Path("-"))
    assert detect_format(Path("a.csv"), "arff") == "arff"
    with pytest.raises(ReadError, match=r"extension of 'a\.x'.* \.csv, \.tsv"):
        detect_format(Path("folder/a.x"))
    with pytest.raises(ReadError, match=r"format 'xls'.* csv, parquet"):
        detect_format(Path("a.csv"), "xls")


@pytest.mark.parametrize(
    ("extension", "decompress"), [("", bytes), (".gz", gzip.decompress), (".bz2", bz2.decompress)]
)
def test_bytes_and_text_round_trip(tmp_path, extension, decompress):
    path, content = tmp_path / f"a.txt{extension}", "\ufeffü\r\n".encode()
    with open_for_writing(path) as stream:
        stream.write(content)
    assert decompress(path.read_bytes()) == content == read_bytes(path).tobytes()
    assert read_text(path) == "ü\r\n"


def test_empty_file(tmp_path):
    (tmp_path / "a").touch()
    assert len(read_bytes(tmp_path / "a")) == 0


def test_errors_name_the_file(tmp_path):
    with pytest.raises(ReadError, match="There is no file"), wrap_read_errors(tmp_path / "absent"):
        pass
    path = tmp_path / "a.gz"
    damaged = gzip.compress(b"a" * 1000, mtime=0)[:12] + b"\xff" * 20
    path.write_bytes(damaged)
    with pytest.raises(ReadError, match=r"a\.gz cannot be read"), wrap_read_errors(path):
        read_bytes(path)
    for message in ("line 3: a word.", f"{path} is odd."):
        with pytest.raises(ReadError, match=re.escape(message)) as caught, wrap_read_errors(path):
            raise ValueError(message)
        assert str(caught.value).count(str(path)) == 1


COLUMNS = {
    "a": np.array([1, 2**60]),
    "b,c": np.array([None, 'say "y"'], object),
    "x": np.array([0.1, np.nan], np.float32),
}


def test_write_csv(tmp_path, capsys):
    write_columns(COLUMNS, tmp_path / "a.csv")
    write_columns(COLUMNS, None)
    text = f'a,"b,c",x\n1,,0.1\n{2**60},"say ""y""",\n'
    assert (tmp_path / "a.csv").read_bytes().decode() == text == capsys.readouterr().out


@pytest.mark.parametrize("name", ["a.csv", "a.parquet", "a.jsonl"])
def test_batches(tmp_path, name):
    with open_writer(tmp_path / name) as write:
        write(COLUMNS)
        write(COLUMNS)
    read = {"a.csv": pd.read_csv, "a.parquet": pd.read_parquet}.get(
        name, lambda path: pd.read_json(path, lines=True)
    )
    found = read(tmp_path / name)
    assert found["a"].tolist() == [1, 2**60] * 2 and found["x"].isna().tolist() == [False, True] * 2
    with pytest.raises(ReadError, match="unknown extension"), open_writer(tmp_path / "a.xlsx"):
        pass
