"""Hostile data files: small valid files of every format with random changes."""

import bz2
import gzip
import io
import warnings
from functools import cache

import scipy.sparse as sp

from polyleaf.files.io import ReadError
from polyleaf.files.readers import read_table
from polyleaf.files.xmc import read_multilabel, read_sparse_matrix

try:
    import pyarrow as pa
    import pyarrow.feather as feather
    import pyarrow.parquet as pq
except ImportError:
    pa = None

CSV = "a,b,colour,y\n" + "".join(
    f"{i / 4},{i % 3},{'red' if i % 2 else 'blue'},{i}\n" for i in range(12)
)
ARFF = """@relation 'some: -C 2'
@attribute l1 {0,1}
@attribute 'l 2' {0,1}
@attribute x numeric
@attribute c {red,'dark blue'}
@data
0,1,0.5,red
1,0,?,'dark blue'
1,1,1e3,red
"""
SPARSE_ARFF = ARFF.split("@attribute c")[0] + "@data\n{0 1,2 0.5}\n{1 1}\n{}\n{2 7}\n"
LIBSVM = "".join(f"{i % 3} 1:{i / 8} {i + 2}:1 40:-3e-2 # row\n" for i in range(10))
LABELLED = "".join(f"{i % 5},{5 + i % 3} 0:{i / 8} {i + 1}:1 30:-3e-2\n" for i in range(10))
MATRIX = "4 6\n0:0.5 5:1\n\n2:-1\n3:1e-3\n"

# Text that may or may not be valid in text files.
WORDS = (
    b"|?|nan|inf|-1|1e999|99999999999999999999|2147483647|2147483648|4294967296|0x10|:|::|,|{|}|'"
)
WORDS = *WORDS.split(b"|"), *b'"|%|#|\n|\r|\r\n|\x00|\xff\xfe|\xef\xbb\xbf|@data'.split(b"|")
WORDS = *WORDS, b"@attribute", b" ", b"\t", b"1" * 400, "é".encode()


@cache
def seeds():
    """Return {name of a file: (its valid content, its reader)}."""
    found = {
        "t.csv": (CSV.encode(), read_table),
        "t.tsv": (CSV.replace(",", "\t").encode(), read_table),
        "t.csv.gz": (gzip.compress(CSV.encode(), mtime=0), read_table),
        "t.csv.bz2": (bz2.compress(CSV.encode()), read_table),
        "t.arff": (ARFF.encode(), read_table),
        "s.arff": (SPARSE_ARFF.encode(), read_table),
        "t.svm": (LIBSVM.encode(), read_table),
        "m.svm": (LIBSVM.replace(" 1:", ",7 1:").encode(), read_table),
        "l.xmc": (b"10 31 8\n" + LABELLED.encode(), read_multilabel),
        "l.txt": (MATRIX.encode(), read_sparse_matrix),
    }
    return found | (_arrow_seeds() if pa is not None else {})


def _arrow_seeds():
    columns = {"x": [1.5, None, 3.0, 4.0], "i": [1, 2, 3, 2**40], "text": ["a", None, "ccc", "dd"]}
    columns["large"] = pa.array(["a", "bb", "", None], pa.large_string())
    columns["kind"] = pa.array(["u", "v", "u", None]).dictionary_encode()
    table = pa.table(columns | {"flag": [True, False, None, True]})
    outs = {name: io.BytesIO() for name in ("t.parquet", "t.feather", "t.arrow", "f.arrow")}
    pq.write_table(table, outs["t.parquet"])
    feather.write_feather(table, outs["t.feather"])
    for name, make in (("t.arrow", pa.ipc.new_stream), ("f.arrow", pa.ipc.new_file)):
        with make(outs[name], table.schema) as writer:
            writer.write_table(table)
    return {name: (out.getvalue(), read_table) for name, out in outs.items()}


def mutant(rng):
    """Return a name, changed content, and its reader."""
    name = list(seeds())[rng.integers(len(seeds()))]
    content, read = seeds()[name]
    changed = bytearray(content)
    for _ in range(rng.choice([1, 1, 2, 3])):
        changed = _changed(changed, rng)
    if name.endswith((".gz", ".bz2")) and rng.random() < 0.7:  # only the inner content is damaged
        inner = bytes(_changed(bytearray(CSV.encode()), rng))
        changed = gzip.compress(inner, mtime=0) if name.endswith("gz") else bz2.compress(inner)
    return name, bytes(changed), read


def _changed(content, rng):
    at = int(rng.integers(len(content) + 1))
    end = min(len(content), at + int(rng.integers(1, 12)))
    kind = rng.integers(7)
    if kind == 0 and at < len(content):
        content[at] ^= 1 << int(rng.integers(8))
    elif kind == 1:
        del content[at:]
    elif kind == 2:
        del content[at:end]
    elif kind == 3:
        content[at:at] = content[at:end] * int(rng.integers(1, 20))
    elif kind == 4:
        content[at:end] = WORDS[rng.integers(len(WORDS))]
    elif kind == 5:
        content[at:at] = WORDS[rng.integers(len(WORDS))]
    else:
        size = int(rng.choice([1, 2, 4, 8]))
        odd = int(rng.choice([0, 1, 127, 255, 2**15, 2**31 - 1, 2**31, 2**32 - 1, 2**62]))
        content[at : at + size] = odd.to_bytes(8, "little")[:size]
    return content


def take(path, read):
    """Return whether a file is read, and use the result.

    Exceptions other than `ReadError` propagate.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            found = read(path)
        except ReadError as error:
            assert str(error)
            return False
    for matrix in (found,) if read is read_sparse_matrix else _matrices(found):
        assert matrix.shape[0] > 0
        if sp.issparse(matrix):
            matrix.sum(axis=0) if matrix.shape[1] < 10**6 else matrix.sum(axis=1)
            matrix.tocsc() if matrix.shape[1] < 10**6 else None
    return True


def _matrices(found):
    if hasattr(found, "X"):
        return found.X, found.Y
    if found.is_sparse:
        return (found.data,)
    for name in found.names:
        try:
            kind = found.infer_kind(name)
        except ReadError:
            continue  # lists and the like
        found.read(name, kind)
    return (found.data,)
