"""opening.py: endings, compression, and errors that say which file they are about."""

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
    ("name", "ending"),
    [("a.csv", ".csv"), ("a.CSV.GZ", ".csv"), ("a.b.bz2", ".b"), ("a.gz", ""), ("a", "")],
)
def test_endings(name, ending):
    assert get_extension(Path(name)) == ending


def test_formats():
    assert detect_format(Path("a.TSV.gz"), FORMATS) == "csv"
    assert detect_format(Path("a.csv"), FORMATS, "arff") == "arff"
    with pytest.raises(
        ReadError, match=r"'a\.x' does not tell its format; use one of \.csv, \.tsv, \.arff"
    ):
        detect_format(Path("folder/a.x"), FORMATS)
    with pytest.raises(ReadError, match="'xls' is not known; there are csv, arff"):
        detect_format(Path("a.csv"), FORMATS, "xls")


@pytest.mark.parametrize(
    ("ending", "decompress"), [("", bytes), (".gz", gzip.decompress), (".bz2", bz2.decompress)]
)
def test_bytes_and_text_come_back(tmp_path, ending, decompress):
    path, content = tmp_path / f"a.txt{ending}", "\ufeffü\r\n".encode()
    with open_for_writing(path) as stream:
        stream.write(content)
    assert decompress(path.read_bytes()) == content == read_bytes(path).tobytes()
    with open_text(path) as stream:
        assert stream.read() == "ü\r\n"


def test_an_empty_file_has_no_bytes(tmp_path):
    (tmp_path / "a").touch()
    assert len(read_bytes(tmp_path / "a")) == 0


def test_errors_say_which_file_they_are_about(tmp_path):
    with pytest.raises(ReadError, match="There is no file"), wrap_read_errors(tmp_path / "absent"):
        pass
    path = tmp_path / "a.gz"
    path.write_bytes(
        gzip.compress(b"a" * 1000, mtime=0)[:12] + b"\xff" * 20
    )  # its stream is damaged
    with pytest.raises(ReadError, match=r"a\.gz cannot be read"), wrap_read_errors(path):
        read_bytes(path)
    for message in ("line 3: a word.", f"{path} is odd."):
        with pytest.raises(ReadError, match=message) as caught, wrap_read_errors(path):
            raise ValueError(message)
        assert str(caught.value).count(str(path)) == 1


def test_lines_of_csv(tmp_path, capsys):
    lines = ["a", "b,c"], [[1, "x"], ["", 'say "y"']]
    write_csv(tmp_path / "a.csv", *lines)
    write_csv(None, *lines)
    text = 'a,"b,c"\n1,x\n,"say ""y"""\n'
    assert (tmp_path / "a.csv").read_bytes().decode() == text == capsys.readouterr().out
