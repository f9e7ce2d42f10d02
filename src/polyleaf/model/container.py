"""Named arrays in bytes, in the safetensors format: a JSON header, then the arrays.

Eight bytes hold the length of the header, little-endian. The header is padded by spaces to a
multiple of eight bytes. Bytes are those that the package safetensors writes, which has no wheels
for free-threaded Python.
"""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np

from polyleaf.runtime.checks import require

# Arrays are written in reverse order of this table, then by name, which aligns each of them.
_DTYPES = {
    "BOOL": np.dtype("?"),
    "U8": np.dtype("u1"),
    "I8": np.dtype("i1"),
    "I16": np.dtype("<i2"),
    "U16": np.dtype("<u2"),
    "F16": np.dtype("<f2"),
    "I32": np.dtype("<i4"),
    "U32": np.dtype("<u4"),
    "F32": np.dtype("<f4"),
    "F64": np.dtype("<f8"),
    "I64": np.dtype("<i8"),
    "U64": np.dtype("<u8"),
}
_CODES = {dtype: code for code, dtype in _DTYPES.items()}
_RANKS = {dtype: rank for rank, dtype in enumerate(_DTYPES.values())}
_METADATA = "__metadata__"


def write_arrays(arrays: dict[str, np.ndarray], metadata: dict[str, str]) -> bytes:
    """Return the bytes of arrays and metadata; equal content gives equal bytes."""
    arrays = {name: np.asarray(a, a.dtype.newbyteorder("<")) for name, a in arrays.items()}
    order = sorted(arrays, key=lambda name: (-_RANKS[arrays[name].dtype], name))
    header: dict[str, Any] = {_METADATA: metadata}
    end = 0
    for name in order:
        array = arrays[name]
        begin, end = end, end + array.nbytes
        header[name] = {
            "dtype": _CODES[array.dtype],
            "shape": list(array.shape),
            "data_offsets": [begin, end],
        }
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    parts = [len(text).to_bytes(8, "little"), text, *(arrays[name].tobytes() for name in order)]
    return b"".join(parts)


def read_arrays(data: bytes) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Return the arrays and the metadata of bytes of any origin.

    Raises a ValueError, or another exception of the JSON reader, if the bytes are malformed: the
    arrays must fill the bytes after the header without gaps.
    """
    require(len(data) >= 8, "the header is missing")
    first = 8 + int.from_bytes(data[:8], "little")
    require(first <= len(data), "the header is longer than the file")
    header = json.loads(data[8:first])
    require(isinstance(header, dict), "the header is not a JSON object")
    metadata = header.pop(_METADATA, {})
    require(isinstance(metadata, dict), "the metadata are not a JSON object")
    arrays = {}
    end = 0
    for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        require(entry["dtype"] in _DTYPES, f"the dtype of {name} is unknown")
        dtype, shape = _DTYPES[entry["dtype"]], entry["shape"]
        begin, previous_end = entry["data_offsets"][0], end
        is_valid = all(type(n) is int and n >= 0 for n in shape)
        require(is_valid, f"the shape of {name} is invalid")
        end = begin + math.prod(shape) * dtype.itemsize
        is_valid = begin == previous_end and entry["data_offsets"] == [begin, end]
        require(is_valid, f"the position of {name} is invalid")
        require(first + end <= len(data), f"{name} ends after the file")
        flat = np.frombuffer(data, dtype, math.prod(shape), first + begin)
        arrays[name] = flat.reshape(shape).copy()
    require(first + end == len(data), "the file has more bytes than its arrays")
    return arrays, metadata
