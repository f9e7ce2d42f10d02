"""What a limit of memory means to a data set."""

from __future__ import annotations

import tempfile

import pytest

from polyleaf.data.memory import Room, bytes_of


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
def test_sizes(size, expected):
    assert bytes_of(size) == expected


@pytest.mark.parametrize("size", ["much", "4 GiBs", "-1", "", 1.5, True, "4 XB"])
def test_what_is_no_size_is_said(size):
    with pytest.raises(ValueError, match="is no size: give bytes"):
        bytes_of(size)


@pytest.mark.parametrize("size", [0, -5, "0 GiB"])
def test_nothing_is_no_limit(size):
    with pytest.raises(ValueError, match="memory_limit must be at least 1 byte"):
        bytes_of(size)


def test_where_bins_go():
    assert Room.of(None, None).folder_of_bins(10**9, 1000) is None
    assert Room.of(None, "disk").folder_of_bins(1, 1) == "disk"
    limited = Room.of(8 * 10_000, "disk")  # four bytes a cell may take half of it
    assert limited.folder_of_bins(100, 100) is None
    assert limited.folder_of_bins(100, 101) == "disk"
    assert Room.of("1 B", None).folder_of_bins(100, 101) == tempfile.gettempdir()
