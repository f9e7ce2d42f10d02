"""What the core reads of a table to predict: codes, and the features of linear leaves, in chunks of rows.

Owns: which features are binned for which trees, and how many rows at a time. Must not know: models, or what
is predicted.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

import polyleaf._core as _core

__all__ = ["Chunk", "iter_chunks", "bin_features", "read_regressors"]

# Codes (one byte per value) and raw features (four) held at a time in prediction: longer tables go in chunks.
_CHUNK_BYTES = 1 << 28
# Codes of fewer than one in so many features are held without the others: new memory costs more than they.
_RARE = 4
# So few are found faster than the features are that trees split on, for which all nodes are gone through.
_FEW_CODES = 1 << 14


class Chunk(NamedTuple):
    """Some rows of a table, as the core reads them."""

    rows: slice
    codes: np.ndarray  # uint8 (n_features, n_rows)
    features: np.ndarray | None  # float32 (n_features, n_rows), where leaves are linear
    coded: np.ndarray | None = (
        None  # int32: the features that codes has rows for, where it has not all
    )


def iter_chunks(
    forest: _core.Forest,
    mapper: Any,
    table: Any,
    trees: tuple[int, int],
    n_threads: int = 1,
    numbers: bool = True,
    all_features: bool = True,
) -> Iterator[Chunk]:
    """Go through a FeatureTable for trees `trees[0] .. trees[1] - 1`: memory stays bounded for any table.

    `numbers=False` leaves out the features that linear leaves read; with `all_features=False` codes may have
    rows for those features alone that trees split on.
    """
    coded = None if all_features else _rare_features(forest, mapper, table, trees)
    n_codes = len(mapper.n_bins_) if coded is None else len(coded)
    bytes_per_row = n_codes + 4 * len(forest.regressors(*trees))
    size = max(1, _CHUNK_BYTES // max(1, bytes_per_row))
    for begin in range(0, max(1, table.n_rows), size):
        end = min(begin + size, table.n_rows)
        part = table if end - begin == table.n_rows else table.rows(begin, end)
        if coded is None:
            codes = bin_features(forest, mapper, part, *trees, n_threads)
        else:
            codes = mapper.transform(part, n_threads, _mask(coded, mapper), compact=True)
        features = read_regressors(forest, mapper, part, *trees) if numbers else None
        yield Chunk(slice(begin, end), codes, features, coded)


def _rare_features(
    forest: _core.Forest, mapper: Any, table: Any, trees: tuple[int, int]
) -> np.ndarray | None:
    """The features that trees split on, ascending, where these are few of many; else None."""
    n_features = len(mapper.n_bins_)
    if table.n_rows * n_features <= _FEW_CODES:
        return None
    found = forest.split_features(*trees)
    return found if _RARE * len(found) < n_features else None


def _mask(features: np.ndarray, mapper: Any) -> np.ndarray:
    mask = np.zeros(len(mapper.n_bins_), bool)
    mask[features] = True
    return mask


def bin_features(
    forest: _core.Forest, mapper: Any, table: Any, first: int, last: int, n_threads: int = 1
) -> np.ndarray:
    """What trees `first .. last - 1` read of a FeatureTable.

    Returns
    -------
    ndarray of shape (n_features, n_rows), uint8
        See `BinMapper.transform`; rows of features that no tree splits on may hold anything.
    """
    only, n_features = None, len(mapper.n_bins_)
    if table.n_rows * n_features > _FEW_CODES:
        only = _mask(forest.split_features(first, last), mapper)
    return mapper.transform(table, n_threads, only)


def read_regressors(
    forest: _core.Forest, mapper: Any, table: Any, first: int, last: int
) -> np.ndarray | None:
    """What the linear leaves of trees `first .. last - 1` read of a FeatureTable.

    Returns
    -------
    ndarray of shape (n_features, n_rows), float32, or None where no leaf is linear
        See `FeatureTable.get_raw_values`.
    """
    wanted = forest.regressors(first, last)
    if not len(wanted):
        return None
    return mapper.get_raw_values(table, _mask(wanted, mapper))
