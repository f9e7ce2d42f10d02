"""Extensions, compression, and errors that name their file."""

import bz2
import gzip
from pathlib import Path

import pytest

from polyleaf.files.io import (
    ReadError,
    detect_format,
    get_extension,
    open_for_writing,
    open_text,
    read_bytes,
    wrap_read_errors,
    write_csv,
)

FORMATS = {"csv": (".csv", ".tsv"), "arff": (".arff",)}


@pytest.mark.parametrize(
    ("name", "extension"),
    [("a.csv", ".csv"), ("a.CSV.GZ", ".csv"), ("a.b.bz2", ".b"), ("a.gz", ""), ("a", "")],
)
def test_extensions(name, extension):
    assert get_extension(Path(name)) == extension


def test_formats():
    assert detect_format(Path("a.TSV.gz"), FORMATS) == "csv"
    assert detect_format(Path("a.csv"), FORMATS, "arff") == "arff"
    with pytest.raises(ReadError, match=r"extension of 'a\.x'.* \.csv, \.tsv, \.arff"):
        detect_format(Path("folder/a.x"), FORMATS)
    with pytest.raises(ReadError, match=r"format 'xls'.* csv, arff"):
        detect_format(Path("a.csv"), FORMATS, "xls")


@pytest.mark.parametrize(
    ("extension", "decompress"), [("", bytes), (".gz", gzip.decompress), (".bz2", bz2.decompress)]
)
def test_bytes_and_text_round_trip(tmp_path, extension, decompress):
    path, content = tmp_path / f"a.txt{extension}", "\ufeffü\r\n".encode()
    with open_for_writing(path) as stream:
        stream.write(content)
    assert decompress(path.read_bytes()) == content == read_bytes(path).tobytes()
    with open_text(path) as stream:
        assert stream.read() == "ü\r\n"


def test_an_empty_file_has_no_bytes(tmp_path):
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
        with pytest.raises(ReadError, match=message) as caught, wrap_read_errors(path):
            raise ValueError(message)
        assert str(caught.value).count(str(path)) == 1


def test_write_csv(tmp_path, capsys):
    lines = ["a", "b,c"], [[1, "x"], ["", 'say "y"']]
    write_csv(tmp_path / "a.csv", *lines)
    write_csv(None, *lines)
    text = 'a,"b,c"\n1,x\n,"say ""y"""\n'
    assert (tmp_path / "a.csv").read_bytes().decode() == text == capsys.readouterr().out
