"""Tables in all formats, and errors that name the position in the file."""

from __future__ import annotations

import gzip

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from polyleaf.files import readers
from polyleaf.files.cells import CellFormat
from polyleaf.files.io import ReadError
from polyleaf.files.readers import CsvOptions, read_table

nan = np.nan


def write(tmp_path, name, text):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


def values(table, name, as_category=False):
    """Return the inferred kind of a column and its values, None where missing."""
    kind = table.infer_kind(name, as_category)
    return kind, table.read(name, kind).to_pylist()


MESSY = (
    'size, colour ,"a, name",flag,empty,plus,when\n'
    '1.5,red,"x, ""y""",true,,+1,2020-01-01\n'
    ",blue,é,false,,2, 2020-01-02\n"
    "-3e2,NA,z z,TRUE,,#N/A,2020-01-01\n"
    "nan,red,x,true,,4,NA\n"
)


def test_csv_numbers_texts_and_missing_values(tmp_path):
    table = read_table(write(tmp_path, "messy.csv", MESSY))
    assert table.names == ("size", "colour", "a, name", "flag", "empty", "plus", "when")
    assert values(table, "size") == ("number", [1.5, None, -300, None])
    assert values(table, "colour") == ("text", ["red", "blue", None, "red"])
    assert values(table, "a, name") == ("text", ['x, "y"', "é", "z z", "x"])
    assert values(table, "flag") == ("boolean", [True, False, True, True])
    assert values(table, "empty") == ("number", [None] * 4)
    assert values(table, "plus") == ("number", [1, 2, None, 4])
    assert values(table, "when")[0] == "text"


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_csv_separator_is_detected(tmp_path, separator):
    text = "a,b\n1,2\n3,4\n".replace(",", separator)
    table = read_table(write(tmp_path, "t.csv", text))
    assert values(table, "a")[1] == [1, 3] and values(table, "b")[1] == [2, 4]


@pytest.mark.parametrize(
    ("text", "names", "n_rows"),
    [
        ("x (m, net);z;y\n1;2;3\n4;5;6\n", ("x (m, net)", "z", "y"), 2),  # not only line 1
        ("sep=;\na,1;b\n1,5;2\n", ("a,1", "b"), 1),  # Excel's line
        ('"a;1",b\n"2;3",4\n', ("a;1", "b"), 1),
        ("a\n1\n2\n", ("a",), 2),
        ("a b\tc\n1\t2\n", ("a b", "c"), 1),
        ('"first\nline",b\n1,2\n3,4\n5,6\n', ("first\nline", "b"), 3),
        ("\ufeffa,b\r\n1,2\r\n", ("a", "b"), 1),
        ("1,2\n3,4\n", ("c0", "c1"), 2),
        (",x\n3,1\n1,2\n", ("x",), 2),  # pandas' row index without a name
        (",x,\n3,1,9\n", ("c0", "x", "c2"), 1),
        ("\n\na,b\n\n1,2\n\n", ("a", "b"), 1),
        ("a,b,\n1,2,\n3,4,\n", ("a", "b"), 2),  # a separator after the last cell
        ("a,b,\n1,2,\n3,4,5\n", ("a", "b", "c2"), 2),
    ],
)
def test_csv_names(tmp_path, text, names, n_rows):
    table = read_table(write(tmp_path, "t.csv", text))
    assert (table.names, table.n_rows) == (names, n_rows)


def test_csv_line_breaks_in_cells_and_compression(tmp_path):
    path = tmp_path / "t.csv.gz"
    with gzip.open(path, "wb") as stream:
        stream.write('\ufeffa,b\r\n1,"two\nlines"\r\n\r\n2,one\r\n'.encode())
    table = read_table(path)
    assert values(table, "b") == ("text", ["two\nlines", "one"])
    assert values(table, "a") == ("number", [1, 2])


def test_csv_kinds_of_one_column(tmp_path):
    for cells, kind, category in [
        (["1", "2"], "number", "integer"),
        (["1.0", "2"], "number", "integer"),
        (["1.5", "2"], "number", "text"),
        (["007", "10"], "text", "text"),
        (["0", "10"], "number", "integer"),
        (["0.5", "0"], "number", "text"),
        (["0x1F", "0x20"], "text", "text"),
        (["12E4", "3E2"], "number", "text"),
        (["True", "false"], "boolean", "boolean"),
        (["true", "1"], "text", "text"),
        ([str(2**53 + 1), "4"], "number", "integer"),
        ([str(2**70), "4"], "number", "text"),
        (["1_000", "5"], "text", "text"),
    ]:
        table = read_table(write(tmp_path, "t.csv", "a,b\n" + "".join(f"{c},x\n" for c in cells)))
        assert (table.infer_kind("a"), table.infer_kind("a", True)) == (kind, category), cells


def test_integers_keep_their_identity(tmp_path):
    ids = [2**53, 2**53 + 1, -(2**62) - 1, 7]
    table = read_table(write(tmp_path, "t.csv", "a\n" + "".join(f"{i}\n" for i in ids)))
    assert values(table, "a", as_category=True) == ("integer", ids)


def test_decimal_marks_thousands_and_missing_values(tmp_path):
    def read(cells, **format):
        text = "a;b\n" + "".join(f"{cell};x\n" for cell in cells)
        options = CsvOptions(format=CellFormat(**format))
        return values(read_table(write(tmp_path, "t.csv", text), None, options), "a")

    assert read(["1,5", "-2", ",5"], decimal=",") == ("number", [1.5, -2, 0.5])
    assert read(["1.234,56", "7"], decimal=",", thousands=".") == ("number", [1234.56, 7])
    assert read(["1,234.50", "-1,234,567"], thousands=",") == ("number", [1234.5, -1234567])
    assert read(["1 234", "7"], thousands=" ") == ("number", [1234, 7])
    assert read(["1,23", "12,34,567"], thousands=",")[0] == "text"  # not in groups of three digits
    assert read(["1.5", "2"], decimal=",")[0] == "text"
    assert read(["1", "-", ".", "na"], na_values=("-", ".", "na")) == ("number", [1] + [None] * 3)
    for bad in ({"decimal": ";"}, {"thousands": ".", "decimal": "."}, {"thousands": ".."}):
        with pytest.raises(ReadError, match="mark must"):
            CellFormat(**bad)


def test_csv_errors_name_the_position_and_the_separator(tmp_path):
    for text, message in {
        "a,b\n1,2\n1,2,3\n": r"t\.csv: record 3 has 3 cells, .* 2 .* separator ','",
        "a,a\n1,2\n": "same name 'a'",
        "a,b\n": "has no rows",
        "": "is empty",
    }.items():
        with pytest.raises(ReadError, match=message):
            read_table(write(tmp_path, "t.csv", text))
    table = read_table(write(tmp_path, "x.csv", "a,b\n1,2\n1,10%\n"))
    with pytest.raises(ReadError, match=r"'b' holds '10%' in row 1, .* remove the per cent"):
        table.read("b", "number")


def test_invalid_encoding_missing_and_unknown_files_raise(tmp_path, monkeypatch):
    (tmp_path / "l.csv").write_bytes("a,b\n1,é\n".encode("latin-1"))
    with pytest.raises(ReadError, match="is not utf-8 text"):
        read_table(tmp_path / "l.csv")
    table = read_table(tmp_path / "l.csv", None, CsvOptions(encoding="latin-1"))
    assert values(table, "b")[1] == ["é"]
    with pytest.raises(ReadError, match="There is no file"):
        read_table(tmp_path / "absent.csv")
    with pytest.raises(ReadError, match=r"extension of 't\.xyz'"):
        read_table(write(tmp_path, "t.xyz", "a\n1\n"))
    with pytest.raises(ReadError, match="format 'xls'"):
        read_table(tmp_path / "t.xyz", format="xls")
    (tmp_path / "b.csv.gz").write_bytes(b"not gzip")
    with pytest.raises(ReadError, match="cannot be read"):
        read_table(tmp_path / "b.csv.gz")
    monkeypatch.setattr(readers, "find_spec", lambda name: None)
    with pytest.raises(ReadError, match=r'pip install "polyleaf\[cli\]"'):
        read_table(tmp_path / "l.csv")


@pytest.mark.parametrize("extension", [".parquet", ".arrow", ".feather", ".ipc"])
def test_parquet_and_arrow(tmp_path, extension):
    import pyarrow.feather as feather
    import pyarrow.parquet as pq

    dictionary = pa.chunked_array(
        [pa.array(["u", "v"]).dictionary_encode(), pa.array(["w", None]).dictionary_encode()]
    )
    columns = {"i": pa.array([1, None, 3, 4], pa.int32()), "flag": [True, False, None, True]}
    columns["x"] = pa.array([0.5, nan, None, 2.0], pa.float32())
    columns["text"] = pa.array(["b", "a", None, "b"], pa.large_string())
    table = pa.table(columns | {"dictionary": dictionary, "list": [[1], [2], [3], []]})
    path = tmp_path / f"t{extension}"
    if extension == ".parquet":
        pq.write_table(table, path)
    elif extension == ".ipc":
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
    else:
        feather.write_feather(table, str(path))
    read = read_table(path)
    assert values(read, "i") == ("number", [1, None, 3, 4])
    found = read.read("x", "number").to_numpy()
    np.testing.assert_array_equal(found, [0.5, nan, nan, 2])
    assert values(read, "flag") == ("boolean", [True, False, None, True])
    assert values(read, "text") == ("text", ["b", "a", None, "b"])
    assert values(read, "dictionary") == ("text", ["u", "v", "w", None])
    assert read.category_columns == {"dictionary"}
    with pytest.raises(ReadError, match="Column 'list' has type list"):
        read.infer_kind("list")
    with pytest.raises(ReadError, match="not a readable Parquet or Arrow file"):
        read_table(write(tmp_path, f"u{extension}", "none"))


@pytest.mark.parametrize("extension", [".parquet", ".feather", ""])
def test_categories_of_pandas(tmp_path, extension):
    frame = pd.DataFrame({"c": pd.Categorical([7, 7, None, 9]), "d": [1, 2, 3, 4]})
    if extension == ".feather":
        frame.to_feather(tmp_path / "t.feather")
    else:
        (tmp_path / "t").mkdir()
        frame.to_parquet(tmp_path / ("t.parquet" if extension else "t/0.parquet"))
    table = read_table(tmp_path / f"t{extension}")
    assert values(table, "c") == ("integer", [7, 7, None, 9])
    assert table.category_columns == {"c"}


def test_hive_folders(tmp_path):
    columns = {"country": list("FFDDFF"), "zip": ["01", "2", "2", "01", "2", "2"]}
    frame = pd.DataFrame({"x": range(6), **columns})
    frame.to_parquet(tmp_path / "data", partition_cols=["country", "zip"])
    for name in ("_temporary", "_delta_log", ".hidden"):
        (tmp_path / "data" / name).mkdir()
        frame.to_parquet(tmp_path / "data" / name / "t.parquet")
    table = read_table(tmp_path / "data")
    assert table.names == ("x", "country", "zip") and table.n_rows == 6
    rows = zip(*(table.column(name).to_pylist() for name in table.names), strict=True)
    assert sorted(rows) == sorted(frame.itertuples(index=False, name=None))
    assert table.infer_kind("zip") == "text"


def test_folder_whose_first_file_has_only_missing_values(tmp_path):
    (tmp_path / "data").mkdir()
    for i, cells in enumerate([[None, None], ["a", None], [None, "b"]]):
        pd.DataFrame({"c": cells, "x": [i, i / 2]}).to_parquet(tmp_path / "data" / f"{i}.parquet")
    table = read_table(tmp_path / "data")
    assert values(table, "c") == ("text", [None, None, "a", None, None, "b"])
    pd.DataFrame({"c": [1, 2], "x": [3, 4]}).to_parquet(tmp_path / "data" / "3.parquet")
    with pytest.raises(ReadError, match=r"3\.parquet is not a readable"):
        read_table(tmp_path / "data")


@pytest.mark.parametrize("name", ["t.parquet", "t.csv"])
def test_pandas_row_index_is_not_a_column(tmp_path, name):
    frame = pd.DataFrame({"x": [1.5, 2, 3]}).sample(frac=1, random_state=0)
    frame.to_parquet(tmp_path / name) if name == "t.parquet" else frame.to_csv(tmp_path / name)
    assert read_table(tmp_path / name).names == ("x",)


ARFF = r"""% a comment
@RELATION 'weather data'

@attribute 'a b' numeric
@attribute outlook {sunny, 'over cast', 'rai,ny'}
@attribute note string
@attribute "its" REAL
@Attribute y {0,1}
@DATA
1, sunny, 'it\'s, fine', 2.5, 0
% in between
?, 'over cast', b, 3, 1
2e1, 'rai,ny', ?, -1, 1
"""


def test_arff_dense(tmp_path):
    table = read_table(write(tmp_path, "t.arff", ARFF))
    assert table.names == ("a b", "outlook", "note", "its", "y")
    assert values(table, "a b") == ("number", [1, None, 20])
    assert values(table, "outlook") == ("text", ["sunny", "over cast", "rai,ny"])
    assert values(table, "note") == ("text", ["it's, fine", "b", None])
    assert values(table, "y") == ("number", [0, 1, 1])
    assert table.category_columns == {"outlook"}


AB = "@attribute a numeric\n@attribute b {x,y}"


def test_arff_sparse(tmp_path):
    head = "@relation r\n@attribute a numeric\n@attribute c numeric\n@attribute l {0,1}\n"
    table = read_table(write(tmp_path, "t.arff", f"{head}@data\n{{0 1.5, 2 1}}\n{{}}\n{{1 ?}}\n"))
    assert table.is_sparse and table.n_rows == 3
    np.testing.assert_array_equal(table.data.toarray(), [[1.5, 0, 1], [0, 0, 0], [0, nan, 0]])


@pytest.mark.parametrize(
    "header, rows",
    [
        (AB, "1,x\n2,z"),
        (AB, "1,x\nq,y"),
        (AB, "1,x\n1"),
        (AB, "1,x\n'1,x"),
        (AB, "{0 1}\n{1 x}"),  # categories in a sparse file
        (AB, "{0 1}\n1,x"),
        (AB, "1,x,{0.5}"),  # a row weight
        ("@attribute a numeric", "{0 1},{5}"),
        ("@attribute a relational\n@attribute b {x,y}", "1,x"),
        ("@attribute a date", "2020"),
        ("hello", "1"),
        ("@attribute a numeric", ""),
    ],
)
def test_unsupported_arff_raises(tmp_path, header, rows):
    with pytest.raises(ReadError, match=r"t\.arff"):
        read_table(write(tmp_path, "t.arff", f"@relation r\n{header}\n@data\n{rows}\n"))


def test_libsvm_one_target(tmp_path):
    table = read_table(write(tmp_path, "t.libsvm", "-1 1:0.5 3:2 # comment\n+1 2:1\n"))
    assert table.names == ("1", "2", "3", "target") and table.targets == ("target",)
    np.testing.assert_array_equal(table.data.toarray(), [[0.5, 0, 2, -1], [0, 1, 0, 1]])
    assert values(table, "target", as_category=True) == ("integer", [-1, 1])


def test_libsvm_queries(tmp_path):
    table = read_table(write(tmp_path, "t.svm", "2 qid:7 1:0.5\n0 qid:3 2:1\n1 qid:7 1:2\n"))
    assert table.names == ("1", "2", "target", "qid") and table.query == "qid"
    np.testing.assert_array_equal(table.data.toarray()[:, 3], [7, 3, 7])


def test_libsvm_multilabel(tmp_path):
    table = read_table(write(tmp_path, "t.svm", "3,1 1:1\n 2:1\n1,1 1:2\n"))
    assert table.targets == ("label_1", "label_3")
    np.testing.assert_array_equal(table.data.toarray()[:, 2:], [[1, 1], [0, 0], [1, 0]])
    table = read_table(write(tmp_path, "u.svm", "1000000,1 1:1\n1000001 1:1\n"))
    assert table.targets == ("label_1", "label_1000000", "label_1000001")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1 a:b\n", "not a readable LIBSVM file"),
        ("1 qid:9007199254740993 1:2\n2 qid:3 1:1\n", "qid that is too large"),
        ("1:2 1:2\n2 1:1\n", "weights of rows"),
        ("1 99999999999999999999:1\n", "not a readable LIBSVM file"),
    ],
)
def test_invalid_libsvm_raises(tmp_path, text, message):
    with pytest.raises(ReadError, match=message):
        read_table(write(tmp_path, "t.svm", text))
