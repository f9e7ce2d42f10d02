"""Memory limits of datasets."""

from __future__ import annotations

import tempfile

import pytest

from polyleaf.binned_data.binned import MemoryBudget, parse_size


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        (5000, 5000),
        ("5000", 5000),
        ("4 GiB", 4 << 30),
        ("1.5gib", 3 << 29),
        ("4GB", 4 * 10**9),
        ("200 M", 200 * 10**6),
        ("512Ki", 512 << 10),
        (".5 TiB", 1 << 39),
        ("70 b", 70),
    ],
)
def test_memory_sizes(size, expected):
    assert parse_size(size) == expected


@pytest.mark.parametrize("size", ["much", "4 GiBs", "-1", "", 1.5, True, "4 XB", 0, -5, "0 GiB"])
def test_invalid_sizes_raise(size):
    with pytest.raises(ValueError, match="is not a size"):
        parse_size(size)


def test_storage_of_bins():
    assert MemoryBudget.from_params(None, None).choose_bin_folder(10**9, 1000) is None
    assert MemoryBudget.from_params(None, "disk").choose_bin_folder(1, 1) == "disk"
    limited = MemoryBudget.from_params(8 * 10_000, "disk")  # 4 bytes a value may take half
    assert limited.choose_bin_folder(100, 100) is None
    assert limited.choose_bin_folder(100, 101) == "disk"
    assert (
        MemoryBudget.from_params("1 B", None).choose_bin_folder(100, 101) == tempfile.gettempdir()
    )
