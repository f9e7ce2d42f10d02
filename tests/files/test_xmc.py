"""Multi-label data files: round trips, and errors that name the line."""

import bz2
import gzip

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

import polyleaf._core as core
from polyleaf.files.io import ReadError
from polyleaf.files.xmc import (
    read_multilabel,
    read_names,
    read_sparse_matrix,
    write_multilabel,
    write_sparse_matrix,
)


def file(tmp_path, text, name="data.txt"):
    path = tmp_path / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def assert_equal(matrix, dense):
    assert isinstance(matrix, sp.csr_matrix) and matrix.dtype == np.float32
    assert matrix.has_sorted_indices
    np.testing.assert_array_equal(matrix.toarray(), dense)
    assert matrix.nnz == np.count_nonzero(dense)


# ---- XMC format ----


def test_xmc_file(tmp_path):
    text = "4 5 3\n0,2 0:0.5 4:1e-3\n 1:2\n1\n\n"
    found = read_multilabel(file(tmp_path, text))
    X = np.array([[0.5, 0, 0, 0, 1e-3], [0, 2, 0, 0, 0], [0] * 5, [0] * 5], np.float32)
    assert_equal(found.X, X)
    assert_equal(found.Y, np.array([[1, 0, 1], [0, 0, 0], [0, 1, 0], [0, 0, 0]]))
    assert found.label_names is None


@pytest.mark.parametrize(
    "text",
    [
        "2 3 4\n3,1 2:1 0:2\n0 1:3\n",  # indices in any order
        "2 3 4\r\n1,3 0:2 2:1\r\n0 1:3\r\n",  # Windows line ends
        "2 3 4\n1,3 0:2 2:1\n0 1:3",  # no line end at the end
        "2 3 4\n1,3\t0:2\t2:1  \n0   1:3 0:0\n\n\n",  # tabs, spaces, a zero, blank lines at the end
        "  2 3 4 \n1,3 0:+2 2:1.0e0\n0 1:.3e1\n",
    ],
)
def test_equivalent_spellings(tmp_path, text):
    found = read_multilabel(file(tmp_path, text))
    assert_equal(found.X, [[2, 0, 1], [0, 3, 0]])
    assert_equal(found.Y, [[0, 1, 0, 1], [1, 0, 0, 0]])


BROKEN = [
    ("", "line 1: expected the numbers of rows, features, labels"),
    ("2 3\n", "line 1: expected the numbers of"),
    ("2 3 x\n", "line 1: expected the numbers of"),
    ("-1 3 4\n", "line 1: expected the numbers of"),
    ("1 3 2147483648\n0 1:1\n", "line 1: 2147483648 labels are more than"),
    ("1 99999999999 4\n0 1:1\n", "line 1: 99999999999 features are more than"),
    ("0 3 4\n", "no rows"),
    ("3 3 4\n0 1:1\n1 1:1\n", "line 1 declares 3 rows, but the file has 2"),
    ("1 3 4\n0 1:1\n1 1:1\n", "line 1 declares 1 rows, but the file has 2"),
    ("2 3 4\n0 1:1\n4 1:1\n", "line 3: label 4 is outside 0 .. 3"),
    ("2 3 4\n0 1:1\n1 3:1\n", "line 3: feature 3 is outside 0 .. 2"),
    ("1 3 4\n99999999999999999999 1:1\n", "line 2: label 99999999999999999999 is outside"),
    ("1 3 4\n1,2,1 1:1\n", "line 2: label 1 comes twice"),
    ("1 3 4\n1 1:1 1:2\n", "line 2: feature 1 comes twice"),
    ("1 3 4\n1 2:1 0:1 2:2\n", "line 2: feature 2 comes twice"),
    ("1 3 4\n-1 1:1\n", "line 2: '-1' is no label"),
    ("1 3 4\n1, 1:1\n", "line 2: '' is no label"),
    ("1 3 4\n1;2 1:1\n", "line 2: ';2' follows a label"),
    ("1 3 4\n1.5 1:1\n", "line 2: '.5' follows a label"),
    ("1 3 4\n1 2 1:1\n", "line 2: '2' is no feature:value"),
    ("1 3 4\n1 1:\n", "line 2: '' is no number"),
    ("1 3 4\n1 1:abc\n", "line 2: 'abc' is no number"),
    ("1 3 4\n1 1:1x\n", "line 2: '1:1x' is no feature:value"),
    ("1 3 4\n1 1:+-1\n", "line 2: '+-1' is no number"),
    ("1 3 4\n1 1:nan\n", "line 2: 'nan' is no finite number"),
    ("1 3 4\n1 1:-inf\n", "line 2: '-inf' is no finite number"),
    ("1 3 4\n1 1:1e39\n", "line 2: '1e39' is no finite number that float32 can hold"),
    ("1 3 4\n1 1:-1e999\n", "line 2: '-1e999' is no finite number"),
    ("1 3 4\n1 a:1\n", "line 2: 'a:1' is no feature"),
    ("1 3 4\n1 1:1 # x\n", "line 2: '#' is no feature"),
]


@pytest.mark.parametrize(("text", "message"), BROKEN)
def test_invalid_files_name_the_line(tmp_path, text, message):
    path = file(tmp_path, text)
    with pytest.raises(ReadError) as error:
        read_multilabel(path)
    assert message in str(error.value)
    assert str(path) in str(error.value)


def test_line_numbers_in_large_files(tmp_path):
    """Large files are parsed in chunks of 1 MiB; the first error in the file is reported."""
    rows = [f"{i % 7} {i % 50}:{i}.25" for i in range(300_000)]
    rows[250_001] = "7 0:1"
    rows[290_000] = "8 0:1"
    path = file(tmp_path, "300000 50 7\n" + "\n".join(rows))
    assert path.stat().st_size > 3 << 20
    for n_threads in (1, 3):
        with pytest.raises(ReadError, match="line 250003: label 7 is outside"):
            read_multilabel(path, n_threads=n_threads)
    rows[250_001] = rows[290_000] = "6 0:1"
    path = file(tmp_path, "300000 50 7\n" + "\n".join(rows))
    one, three = (read_multilabel(path, n_threads=n) for n in (1, 3))
    assert (one.X != three.X).nnz == (one.Y != three.Y).nnz == 0
    assert one.X.shape == (300_000, 50) and one.X[299_999, 49] == 299_999.25


NUMBERS = ["0.1", "123456.789", "3.4028235e38", "1e-45", "1e-400"]


@pytest.mark.parametrize("text", [*NUMBERS, "0." + 400 * "0" + "1", "0.1" + 30 * "0" + "1"])
def test_numbers_are_rounded_correctly(tmp_path, text):
    found = read_multilabel(file(tmp_path, f"1 1 1\n0 0:{text}\n"))
    assert found.X.toarray()[0, 0] == np.float32(text)


@settings(max_examples=200, deadline=None)
@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_numbers_round_trip(x):
    arrays = np.array([0, 1]), np.zeros(1, np.int32), np.array([x], np.float32)
    text = core.write_xmc_text(None, None, arrays[0].astype(np.int64), *arrays[1:], 0)
    back = core.read_xmc_text(np.frombuffer(text, np.uint8), "pairs", 1, 0, 1, 1)
    assert back[4].tolist() == ([np.float32(x)] if x != 0 else [])


@settings(max_examples=30, deadline=None)
@given(*[st.integers(1, 30)] * 3, st.sampled_from([0, 0.1, 0.7]))
def test_round_trip(tmp_path_factory, n, d, n_labels, density):
    rng = np.random.default_rng(n * 1000 + d * 30 + n_labels)
    X = sp.random(n, d, density, "csr", dtype=np.float32, random_state=rng)
    Y = sp.random(n, n_labels, density, "csr", random_state=rng)
    Y.data[:] = 1
    folder = tmp_path_factory.mktemp("files")
    write_multilabel(folder / "a.txt", X, Y)
    found = read_multilabel(folder / "a.txt")
    assert_equal(found.X, X.toarray())
    assert_equal(found.Y, Y.toarray())
    write_sparse_matrix(folder / "b.txt", X)
    assert_equal(read_sparse_matrix(folder / "b.txt"), X.toarray())


@pytest.mark.parametrize(
    ("extension", "compress"), [(".gz", gzip.compress), (".bz2", bz2.compress)]
)
def test_compressed_files(tmp_path, extension, compress):
    path = file(tmp_path, compress(b"1 2 2\n1 0:3\n"), f"data.txt{extension}")
    assert_equal(read_multilabel(path).X, [[3, 0]])
    write_multilabel(path, [[0, 4]], [[1, 0]])
    assert_equal(read_multilabel(path).X, [[0, 4]])
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(ReadError, match="cannot be read"):
        read_multilabel(path)


@pytest.mark.parametrize(
    ("X", "Y", "message"),
    [
        ([[1.0]], [[1], [0]], "Y has 2 rows, but X has 1"),
        ([[1.0]], [[2]], "Y must hold only 0 and 1"),
        ([[np.nan]], [[1]], "X holds NaN"),
    ],
)
def test_write_errors(tmp_path, X, Y, message):
    with pytest.raises(ValueError, match=message):
        write_multilabel(tmp_path / "out.txt", X, Y)


def test_read_sparse_matrix(tmp_path):
    path = file(tmp_path, "3 4\n0:1 3:0.5\n\n2:7\n")
    assert_equal(read_sparse_matrix(path), [[1, 0, 0, 0.5], [0] * 4, [0, 0, 7, 0]])
    for text, message in {
        "3 4\n0:1\n1:1\n": "declares 3 rows",
        "1 4\n4:1\n": "line 2: feature 4 is outside",
        "1 4\n1,2 3:1\n": "line 2: '1,2' is no feature:value",
        "1 4 5\n": "line 1",
    }.items():
        with pytest.raises(ReadError, match=message):
            read_sparse_matrix(file(tmp_path, text))


# ---- label names ----


def test_label_names(tmp_path):
    path = file(tmp_path, "1 1 3\n0,2 0:1\n")
    names = file(tmp_path, "cats\n dogs \nKälte\n\n", "names.txt")
    assert read_multilabel(path, labels=names).label_names == ("cats", "dogs", "Kälte")
    assert read_multilabel(path, labels=["a", "b", "c"]).label_names == ("a", "b", "c")
    with pytest.raises(ReadError, match="2 names, but the file has 3 labels"):
        read_multilabel(path, labels=["a", "b"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a\n\nb\n", "line 2 is blank"),
        ("a\nb\na\n", "lines 1 and 3"),
        (b"\xff\xfe", "is not utf-8 text"),
    ],
)
def test_invalid_names_raise(tmp_path, text, message):
    with pytest.raises(ReadError, match=message):
        read_names(file(tmp_path, text, "names.txt"))


# ---- paths ----


def test_missing_files_raise(tmp_path):
    for call in (read_multilabel, read_sparse_matrix, read_names):
        with pytest.raises(ReadError, match="no file"):
            call(tmp_path / "absent.txt")


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        (([0, 2], [0], [1.0]), "within the stored"),
        (([0, 1, 0], [0], [1.0]), "ascend"),
        (([0, 1], [0, 1], [1.0]), "same length"),
        (([], [], []), "one entry per row"),
    ],
)
def test_core_checks_array_bounds(arrays, message):
    indptr, indices, data = (
        np.array(a, t) for a, t in zip(arrays, (np.int64, np.int32, np.float32), strict=True)
    )
    with pytest.raises(ValueError, match=message):
        core.write_xmc_text(None, None, indptr, indices, data, 0)
