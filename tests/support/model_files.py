"""Model files of earlier versions, and modified files with a valid checksum."""

import json
from functools import lru_cache
from pathlib import Path

import numpy as np
from safetensors.numpy import load, save

import polyleaf.model.serialize as serialize

FILES = Path(__file__).parent / "files"


def read_header(data):
    """Return the description of the model in the file's header."""
    size = int.from_bytes(data[:8], "little")
    return json.loads(json.loads(data[8 : 8 + size])["__metadata__"][serialize.FORMAT])


@lru_cache(maxsize=32)
def _parts(data):
    return json.dumps(read_header(data)), load(data)


def reseal(data, change):
    """Return the file with its header or arrays changed, and a valid checksum."""
    text, kept = _parts(bytes(data))
    metadata, arrays = json.loads(text), {k: np.array(v) for k, v in kept.items()}
    change(metadata["model"], arrays)
    metadata["checksum"] = serialize._checksum(metadata["model"], arrays)
    return save(arrays, {serialize.FORMAT: json.dumps(metadata)})
