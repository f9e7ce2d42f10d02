"""Tables of all formats, and errors that name the place in the file."""

from __future__ import annotations

import gzip

import numpy as np
import pytest
import scipy.sparse as sp

from polyleaf.files import readers
from polyleaf.files.readers import ReadError, Table, read_table

nan = np.nan


def write(tmp_path, name, text):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


@pytest.fixture(params=["pyarrow", "python"])
def csv_reader(request, monkeypatch):
    """Read CSV files with PyArrow and without."""
    if request.param == "python":
        monkeypatch.setattr(readers, "find_spec", lambda name: None)
    else:
        pytest.importorskip("pyarrow")
    return request.param


MESSY = (
    'size, colour ,"a, name",flag,empty,plus,when\n'
    '1.5,red,"x, ""y""",true,,+1,2020-01-01\n'
    ",blue,é,false,,2, 2020-01-02\n"
    "-3e2,NA,z z,true,,?,2020-01-01\n"
    "nan,red,x,true,,4,NA\n"
)


def test_csv_numbers_texts_and_missing_values(tmp_path, csv_reader):
    table = read_table(write(tmp_path, "messy.csv", MESSY))
    assert table.names == ("size", "colour", "a, name", "flag", "empty", "plus", "when")
    np.testing.assert_array_equal(table.column("size"), [1.5, nan, -300, nan])
    assert table.categories["colour"] == ("blue", "red")
    np.testing.assert_array_equal(table.column("colour"), [1, 0, nan, 1])
    assert table.categories["a, name"] == ("x", 'x, "y"', "z z", "é")
    assert table.categories["flag"] == ("false", "true")
    assert np.isnan(table.column("empty")).all() and "empty" not in table.categories
    np.testing.assert_array_equal(table.column("plus"), [1, 2, nan, 4])
    assert table.categories["when"] == ("2020-01-01", "2020-01-02")


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_csv_separator_is_detected(tmp_path, csv_reader, separator):
    text = "a,b\n1,2\n3,4\n".replace(",", separator)
    np.testing.assert_array_equal(
        read_table(write(tmp_path, "t.csv", text)).values, [[1, 2], [3, 4]]
    )


def test_csv_without_header(tmp_path, csv_reader):
    table = read_table(write(tmp_path, "t.csv", "1,2\n3,4\n"))
    assert table.names == ("c0", "c1")
    np.testing.assert_array_equal(table.values, [[1, 2], [3, 4]])


def test_csv_one_column_keeps_missing_rows(tmp_path):
    layout_rows = read_table(write(tmp_path, "t.csv", "a,b\n1,\n,\n3,\n")).column("a")
    np.testing.assert_array_equal(layout_rows, [1, nan, 3])


def test_csv_quoted_newline_bom_and_gzip(tmp_path, csv_reader):
    path = tmp_path / "t.csv.gz"
    with gzip.open(path, "wb") as stream:
        stream.write('\ufeffa,b\r\n1,"two\nlines"\r\n2,one\r\n'.encode())
    table = read_table(path)
    assert table.names == ("a", "b") and table.categories["b"] == ("one", "two\nlines")


def test_csv_text_after_many_numbers_keeps_its_spelling(tmp_path, monkeypatch):
    monkeypatch.setattr(readers, "find_spec", lambda name: None)
    monkeypatch.setattr(readers, "CHUNK_ROWS", 2)
    table = read_table(write(tmp_path, "t.csv", "a,b\n01,1\n02,2\n03,3\nx,4\n"))
    assert table.categories["a"] == ("01", "02", "03", "x")
    np.testing.assert_array_equal(table.column("b"), [1, 2, 3, 4])


def test_csv_errors_name_the_line(tmp_path, csv_reader):
    with pytest.raises(ReadError, match=r"t\.csv: line 3 has 3 cells, .* 2"):
        read_table(write(tmp_path, "t.csv", "a,b\n1,2\n1,2,3\n"))
    with pytest.raises(ReadError, match="same name 'a'"):
        read_table(write(tmp_path, "u.csv", "a,a\n1,2\n"))
    with pytest.raises(ReadError, match="has no rows"):
        read_table(write(tmp_path, "v.csv", "a,b\n"))
    with pytest.raises(ReadError, match="first line is empty"):
        read_table(write(tmp_path, "w.csv", ""))


def test_not_utf8_missing_and_unknown_files(tmp_path, monkeypatch):
    (tmp_path / "l.csv").write_bytes("a,b\n1,é\n".encode("latin-1"))
    with pytest.raises(ReadError, match="not UTF-8"):
        read_table(tmp_path / "l.csv")
    with pytest.raises(ReadError, match="There is no file"):
        read_table(tmp_path / "absent.csv")
    with pytest.raises(ReadError, match=r"extension of 't\.xyz'"):
        read_table(write(tmp_path, "t.xyz", "a\n1\n"))
    with pytest.raises(ReadError, match="format 'xls'"):
        read_table(tmp_path / "t.xyz", format="xls")
    (tmp_path / "b.csv.gz").write_bytes(b"not gzip")
    with pytest.raises(ReadError, match="cannot be read"):
        read_table(tmp_path / "b.csv.gz")


@pytest.mark.parametrize("extension", [".parquet", ".arrow", ".feather", ".ipc"])
def test_parquet_and_arrow(tmp_path, extension):
    pa = pytest.importorskip("pyarrow")
    import pyarrow.feather as feather
    import pyarrow.parquet as pq

    dictionary = pa.chunked_array(
        [pa.array(["u", "v"]).dictionary_encode(), pa.array(["w", None]).dictionary_encode()]
    )
    table = pa.table(
        {
            "i": pa.array([1, None, 3, 4], pa.int32()),
            "x": pa.array([0.5, nan, None, 2.0], pa.float32()),
            "flag": pa.array([True, False, None, True]),
            "text": pa.array(["b", "a", None, "b"], pa.large_string()),
            "dictionary": dictionary,
        }
    )
    path = tmp_path / f"t{extension}"
    if extension == ".parquet":
        pq.write_table(table, path)
    elif extension == ".ipc":
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
    else:
        feather.write_feather(table, str(path))
    read = read_table(path)
    np.testing.assert_array_equal(read.column("i"), [1, nan, 3, 4])
    np.testing.assert_array_equal(read.column("x"), [0.5, nan, nan, 2])
    np.testing.assert_array_equal(read.column("flag"), [1, 0, nan, 1])
    assert read.categories == {"text": ("a", "b"), "dictionary": ("u", "v", "w")}
    np.testing.assert_array_equal(read.column("dictionary"), [0, 1, 2, nan])


def test_unsupported_arrow_columns(tmp_path):
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"a": [[1, 2], [3]], "b": [1, 2]}), tmp_path / "t.parquet")
    table = read_table(tmp_path / "t.parquet")
    assert table.take_rows(np.array([1])).column("b") == [2]
    for part in (table, table.take_rows(np.array([1])), table.convert_to_categorical(["b"])):
        with pytest.raises(ReadError, match="Column 'a' has type list"):
            part.select(["b", "a"])
    with pytest.raises(ReadError, match="not a readable Parquet file"):
        read_table(write(tmp_path, "u.parquet", "no parquet"))


def test_parquet_needs_pyarrow(tmp_path, monkeypatch):
    monkeypatch.setattr(readers, "find_spec", lambda name: None)
    with pytest.raises(ReadError, match=r'pip install "polyleaf\[arrow\]"'):
        read_table(write(tmp_path, "t.parquet", "PAR1"))


ARFF = r"""% a comment
@RELATION 'weather data'

@attribute 'a b' numeric
@attribute outlook {sunny, 'over cast', "rai,ny"}
@attribute note string
@attribute "it's" REAL
@Attribute y {0,1}
@DATA
1, sunny, 'it\'s, fine', 2.5, 0
% in between
?, 'over cast', "b", 3, 1
2e1, 'rai,ny', ?, -1, 1, {0.5}
"""


def test_arff_dense(tmp_path):
    table = read_table(write(tmp_path, "t.arff", ARFF))
    assert table.names == ("a b", "outlook", "note", "it's", "y")
    np.testing.assert_array_equal(table.column("a b"), [1, nan, 20])
    assert table.categories == {
        "outlook": ("sunny", "over cast", "rai,ny"),
        "note": ("b", "it's, fine"),
    }
    np.testing.assert_array_equal(table.column("outlook"), [0, 1, 2])
    np.testing.assert_array_equal(table.column("note"), [1, 0, nan])
    np.testing.assert_array_equal(table.column("y"), [0, 1, 1])


AB = "@attribute a numeric\n@attribute b {x,y}"


def test_arff_sparse(tmp_path):
    text = (
        "@relation r\n@attribute a numeric\n@attribute b {x,'y z',w}\n@attribute c numeric\n"
        "@attribute l {0,1}\n@data\n{0 1.5, 1 'y z', 3 1}\n{}\n{2 ?,\t1 w}\n"
    )
    table = read_table(write(tmp_path, "t.arff", text))
    assert table.is_sparse and table.categories["b"] == ("x", "y z", "w")
    np.testing.assert_array_equal(
        table.values.toarray(), [[1.5, 1, 0, 1], [0, 0, 0, 0], [0, 2, nan, 0]]
    )


@pytest.mark.parametrize(
    "header, rows, message",
    [
        (AB, "1,x\n2,z", "line 6: 'z' is not a declared category"),
        (AB, "1,x\nq,y", "line 6: attribute 'a' is numeric"),
        (AB, "1,x\n1", "line 6 has 1 values, but there are 2 attributes"),
        (AB, "1,x\n'1,x", "line 6: cannot parse"),
        (AB, "{0 1}\n{2 1}", "line 6: there is no attribute 2"),
        (AB, "{0 1}\n{0 1, 0 2}", "line 6 gives the same attribute twice"),
        (AB, "{0 1}\n1,x", "line 6: not a sparse row"),
        (AB, "1,x\n{0 1}", "line 6 is sparse"),
        (
            "@attribute a relational\n@attribute b {x,y}",
            "1,x",
            "line 2: attribute 'a' has type 'relational'",
        ),
        ("@attribute a numeric\n@attribute b {x,y", "1,x", "line 3: the categories of 'b'"),
        (
            "@attribute a numeric\n@attribute b {x,x}",
            "1,x",
            "line 3: attribute 'b' declares a category twice",
        ),
        ("@attribute a", "1", "line 2: an attribute needs a name and a type"),
        ("hello", "1", "line 2: expected @relation"),
        ("@attribute a numeric", "", "there is no row after @data"),
    ],
)
def test_arff_errors_name_the_line(tmp_path, header, rows, message):
    with pytest.raises(ReadError) as caught:
        read_table(write(tmp_path, "t.arff", f"@relation r\n{header}\n@data\n{rows}\n"))
    assert message in str(caught.value) and "t.arff" in str(caught.value)


def test_arff_without_data_line(tmp_path):
    with pytest.raises(ReadError, match="no @data line"):
        read_table(write(tmp_path, "t.arff", "@relation r\n@attribute a numeric\n"))


def test_libsvm_one_target(tmp_path):
    table = read_table(write(tmp_path, "t.libsvm", "-1 1:0.5 3:2 # comment\n+1 2:1\n"))
    assert table.names == ("1", "2", "3", "target") and table.targets == ("target",)
    np.testing.assert_array_equal(table.values.toarray(), [[0.5, 0, 2, -1], [0, 1, 0, 1]])


def test_libsvm_columns_are_named_by_index(tmp_path):
    train = read_table(write(tmp_path, "a.svm", "1 0:5 2:7\n0 1:6\n"))
    test = read_table(write(tmp_path, "b.svm", "1 2:9\n"))
    assert train.names[:3] == ("0", "1", "2")
    np.testing.assert_array_equal(test.select(("0", "1", "2")).values.toarray(), [[0, 0, 9]])


def test_libsvm_multilabel(tmp_path):
    table = read_table(write(tmp_path, "t.svm", "3,1 1:1\n 2:1\n1,1 1:2\n"))
    assert table.targets == ("label_1", "label_3")
    np.testing.assert_array_equal(
        table.select(table.targets).values.toarray(), [[1, 1], [0, 0], [1, 0]]
    )


def test_libsvm_error(tmp_path):
    with pytest.raises(ReadError, match="not a readable LIBSVM file"):
        read_table(write(tmp_path, "t.svm", "1 a:b\n"))


def test_select_rows_and_categorical():
    table = Table(("a", "b"), np.array([[3.0, 1], [nan, 2], [3, 5], [10, 1]]))
    with pytest.raises(ReadError, match=r"no column 'z'; its columns are a, b"):
        table.select(["a", "z"])
    np.testing.assert_array_equal(table.take_rows(np.array([2, 0])).values, [[3, 5], [3, 1]])
    coded = table.convert_to_categorical(["a"])
    assert coded.categories == {"a": ("3", "10")}
    np.testing.assert_array_equal(coded.column("a"), [0, nan, 0, 1])
    np.testing.assert_array_equal(table.column("a"), [3, nan, 3, 10])
    with pytest.raises(ReadError, match="sparse file"):
        Table(("a",), sp.csr_matrix([[1.0]])).convert_to_categorical(["a"])
