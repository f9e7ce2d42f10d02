"""Bundled data sets equal their sources, bit for bit."""

import hashlib

import numpy as np
import pytest

from polyleaf.datasets import NAMES, load

# Digests of X with the row numbers of both parts, and of y as text.
KNOWN = {
    "energy": ("2a60d0a56ea7b4dc", "08b55c1396bdb30e"),
    "letter": ("0feebbd425bfeffa", "580d12fe62c6eaec"),
    "emotions": ("0995c048739c0441", "ec7643472e0b2aa2"),
}


def digest(data):
    return hashlib.sha256(data).hexdigest()[:16]


@pytest.mark.parametrize("name", NAMES)
def test_digests_of_data(name):
    data = load(name)
    parts = (data.X, data.train, data.test)
    y = "\n".join(map(str, data.y.ravel().tolist()))
    assert (digest(b"".join(part.tobytes() for part in parts)), digest(y.encode())) == KNOWN[name]


@pytest.mark.parametrize("name", NAMES)
def test_split_has_each_row_once(name):
    data = load(name)
    assert data.X.dtype == np.float32 and data.train.dtype == data.test.dtype == np.int64
    rows = np.concatenate([data.train, data.test])
    np.testing.assert_array_equal(np.sort(rows), np.arange(len(data.X)))
    assert data.X.shape[1] == len(data.feature_names)


def test_unknown_name_raises_with_known_names():
    with pytest.raises(ValueError, match="energy, letter, emotions"):
        load("iris")
