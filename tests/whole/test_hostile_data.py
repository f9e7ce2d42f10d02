"""Hostile data files: each is read or raises `ReadError`, and no command ends in a traceback."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from support import data_mutants, mutants
from support.model_files import reseal

from polyleaf.cli.main import run
from polyleaf.files.io import ReadError, wrap_read_errors
from polyleaf.files.readers import read_table
from polyleaf.files.xmc import read_multilabel, read_sparse_matrix

FUZZ = Path(__file__).parents[2] / "scripts" / "fuzz"


def write_and_read(name, content, read, folder):
    (folder / name).write_bytes(content)
    return data_mutants.take(folder / name, read)


@pytest.mark.parametrize("name", data_mutants.seeds())
def test_valid_files_are_read(name, tmp_path):
    assert write_and_read(name, *data_mutants.seeds()[name], tmp_path)


def test_hostile_files_are_read_or_raise_read_error(tmp_path):
    taken = [
        write_and_read(*data_mutants.mutant(np.random.default_rng(seed)), tmp_path)
        for seed in range(1500)
    ]
    assert 0 < sum(taken) < len(taken)


@pytest.mark.full
@pytest.mark.parametrize(("what", "count"), [("data", 100_000), ("models", 30_000)])
def test_many_files_in_a_subprocess(what, count):
    done = subprocess.run(
        [sys.executable, FUZZ, what, "--count", str(count), "--first", "10000"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout.splitlines()[0])["tried"] == count


def test_string_offsets_of_arrow_files_are_checked(tmp_path):
    pa = pytest.importorskip("pyarrow")
    offsets = pa.py_buffer(np.array([0, 1, 2**30, 3], np.int32).tobytes())
    text = pa.Array.from_buffers(pa.string(), 3, [None, offsets, pa.py_buffer(b"abc")])
    path = tmp_path / "t.arrow"
    table = pa.table({"y": [1.0, 2.0, 3.0], "text": text})
    with pa.OSFile(str(path), "wb") as out, pa.ipc.new_stream(out, table.schema) as writer:
        writer.write_table(table)
    with pytest.raises(ReadError, match="not a readable Parquet or Arrow file"):
        read_table(path)
    assert run(["train", str(path), "-t", "y", "-m", str(tmp_path / "m")]) == 2


@pytest.mark.parametrize("index", [20_000_000, 2_000_000_000])
def test_memory_of_libsvm_files_is_bounded_by_their_size(index, tmp_path):
    path = tmp_path / "t.svm"
    path.write_text(f"1 1:2 {index}:3\n0 7:1\n")
    table = read_table(path)
    assert table.names == ("1", "7", str(index), "target")
    np.testing.assert_array_equal(table.data.toarray(), [[2, 0, 3, 1], [0, 1, 0, 0]])
    assert len(read_table(write_data(tmp_path, "1 1:2 1000:3\n")).names) == 1001


def write_data(folder, text):
    path = folder / "u.svm"
    path.write_text(text)
    return path


def test_index_beyond_int64(tmp_path):
    with pytest.raises(ReadError, match="not a readable LIBSVM file"):
        read_table(write_data(tmp_path, "1 99999999999999999999:1\n"))


def test_columns_of_labelled_rows_are_bounded_by_stored_labels(tmp_path):
    path = tmp_path / "l.txt"
    for text, read in [
        ("2 2000000000 3\n0 1:1\n1 2:1\n", lambda p: read_multilabel(p)),
        ("2 3 2000000000\n0 1:1\n1 2:1\n", lambda p: read_multilabel(p)),
        ("1 2000000000\n1:1\n", read_sparse_matrix),
    ]:
        path.write_text(text)
        with pytest.raises(ReadError, match="entries that it stores"):
            read(path)
    path.write_text("2 16000000 3\n0 1:1\n1 2:1\n")
    assert read_multilabel(path).X.shape == (2, 16_000_000)


def test_errors_of_parsers_name_the_file(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("a\n1\n")
    for error in (
        KeyError("a"),
        SystemError("negative size"),
        OverflowError("too large"),
        TypeError("None"),
    ):
        with (
            pytest.raises(ReadError, match=r"t\.csv is damaged or of another format"),
            wrap_read_errors(path),
        ):
            raise error
    with pytest.raises(MemoryError), wrap_read_errors(path):
        raise MemoryError


@pytest.mark.parametrize("command", ["predict", "evaluate"])
def test_hostile_model_gives_no_traceback(command, tmp_path, capsys):
    def put(header, arrays):
        header["metadata"]["table"] = {"task": "regression", "features": 7}

    (tmp_path / "m").write_bytes(reseal(mutants.seeds()["numbers"][0], put))
    (tmp_path / "t.csv").write_text("a,b\n1,2\n")
    assert run([command, str(tmp_path / "t.csv"), "-m", str(tmp_path / "m")]) == 2
    assert "training columns" in capsys.readouterr().err


def test_internal_error_is_one_message(monkeypatch, tmp_path, capsys):
    def fail(*args):
        raise KeyError("nobody expected this")

    monkeypatch.setattr("polyleaf.cli.model_file.load_estimator", fail)
    assert run(["inspect", str(tmp_path / "m")]) == 2
    assert "POLYLEAF_TRACEBACK=1" in capsys.readouterr().err
    monkeypatch.setenv("POLYLEAF_TRACEBACK", "1")
    with pytest.raises(KeyError, match="nobody"):
        run(["inspect", str(tmp_path / "m")])
