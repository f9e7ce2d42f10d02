"""Arrays in bytes are those of the package safetensors."""

import json

import numpy as np
import pytest
from safetensors.numpy import load, save

from polyleaf.model.container import read_arrays, write_arrays

DTYPES = ["?", "u1", "i1", "<i2", "<u2", "<f2", "<i4", "<u4", "<f4", "<f8", "<i8", "<u8"]


def random_arrays(rng):
    """Return arrays of any dtype and of up to three dimensions, some of them empty."""
    arrays = {}
    for i in range(rng.integers(0, 14)):
        shape = tuple(rng.integers(0, 4, rng.integers(0, 4)))
        values = np.asarray(rng.integers(0, 100, shape))
        arrays[f'ä/"\\{rng.integers(100)}.{i}\t'] = values.astype(rng.choice(DTYPES))
    return arrays


def make_file(header, data=b"\0" * 16):
    """Return a file with this header."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


@pytest.mark.parametrize("seed", range(50))
def test_bytes_equal_those_of_safetensors(seed):
    arrays = random_arrays(np.random.default_rng(seed))
    metadata = {"model": json.dumps({"text": 'ü\n\x7f\u2028 "" \\'})}
    data = write_arrays(arrays, metadata)
    assert data == save(arrays, metadata)
    read, read_metadata = read_arrays(data)
    assert read_metadata == metadata and read.keys() == load(data).keys() == arrays.keys()
    for name, array in arrays.items():
        assert read[name].dtype == array.dtype and read[name].flags.writeable
        np.testing.assert_array_equal(read[name], array, strict=True)


def test_order_and_layout_of_arrays_do_not_matter():
    one, two = np.arange(6.0).reshape(2, 3), np.arange(3, dtype=">i4")
    data = write_arrays({"a": one, "b": two}, {})
    assert data == write_arrays({"b": two.astype("<i4"), "a": np.asfortranarray(one)}, {})


ENTRY = {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\0" * 7, "header is missing"),
        (b"\xff" * 8 + b"{}", "longer than the file"),
        (make_file([], b""), "not a JSON object"),
        (make_file({"__metadata__": [1]}, b""), "metadata"),
        (make_file({"a": ENTRY | {"dtype": "F31"}}), "dtype of a"),
        (make_file({"a": ENTRY | {"shape": [2, 2.0]}}), "shape of a"),
        (make_file({"a": ENTRY | {"shape": [-2, -2]}}), "shape of a"),
        (make_file({"a": ENTRY | {"shape": [True, 4]}}), "shape of a"),
        (make_file({"a": ENTRY | {"shape": [2**62, 4]}}), "position of a"),
        (make_file({"a": ENTRY | {"data_offsets": [0, 12]}}), "position of a"),
        (make_file({"a": ENTRY | {"data_offsets": [8, 24]}}, b"\0" * 24), "position of a"),
        (make_file({"a": ENTRY | {"data_offsets": [-8, 8]}}), "position of a"),
        (make_file({"a": ENTRY, "b": ENTRY}), "position of b"),
        (make_file({"a": ENTRY}, b"\0" * 15), "a ends after the file"),
        (make_file({"a": ENTRY}, b"\0" * 17), "more bytes than its arrays"),
        (make_file({}), "more bytes than its arrays"),
    ],
)
def test_malformed_files_raise(data, message):
    with pytest.raises(ValueError, match=message):
        read_arrays(data)


@pytest.mark.parametrize(
    "header",
    [
        b"{",
        b"\xff{}",
        {"a": 1},
        {"a": {}},
        {"a": ENTRY | {"shape": 4}},
        {"a": ENTRY | {"data_offsets": None}},
        {"a": ENTRY | {"data_offsets": []}},
        {"a": ENTRY | {"data_offsets": ["0", 16]}},
        {"a": ENTRY | {"dtype": ["F32"]}},
    ],
)
def test_malformed_headers_raise(header):
    with pytest.raises((ValueError, TypeError, KeyError, IndexError)):
        read_arrays(make_file(header))
