"""Batches of rows in the form in which the core predicts them: bin codes and raw feature values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

import polyleaf._core as _core

__all__ = ["Chunk", "bin_features", "iter_chunks", "read_regressors"]

# Bytes of codes (one per value) and raw values (four) at a time; longer tables are split.
_CHUNK_BYTES = 1 << 28
# If fewer than one in so many features are used, only these are binned, to save memory.
_MIN_FEATURES_PER_USED = 4
# With so few codes, binning all features is faster than finding those that the trees use.
_SMALL_TABLE_CODES = 1 << 14


class Chunk(NamedTuple):
    """Some rows of a table in the form in which the core predicts them."""

    rows: slice
    codes: np.ndarray  # uint8 (n_features, n_rows)
    features: np.ndarray | None  # float32 (n_features, n_rows), if leaves are linear
    feature_ids: np.ndarray | None = None  # int32: the features of the rows of codes; None: all


def iter_chunks(
    forest: _core.Forest,
    mapper: Any,
    table: Any,
    trees: tuple[int, int],
    n_threads: int = 1,
    with_regressors: bool = True,
    all_features: bool = True,
) -> Iterator[Chunk]:
    """Iterate over a FeatureTable in chunks of bounded memory for trees `trees[0] .. trees[1] - 1`.

    `with_regressors=False` leaves out the raw values that linear leaves require. With
    `all_features=False`, codes may have rows only for the features that trees split on.
    """
    feature_ids = None if all_features else _find_rare_features(forest, mapper, table, trees)
    n_codes = len(mapper.n_bins_) if feature_ids is None else len(feature_ids)
    n_regressors = len(forest.regressors(*trees))
    size = max(1, _CHUNK_BYTES // max(1, n_codes + 4 * n_regressors))

    def read_chunk(begin: int) -> Chunk:
        end = min(begin + size, table.n_rows)
        part = table if end - begin == table.n_rows else table.rows(begin, end)
        if feature_ids is None:
            codes = bin_features(forest, mapper, part, *trees, n_threads)
        else:
            codes = mapper.transform(part, n_threads, _mask(feature_ids, mapper), compact=True)
        features = None
        if n_regressors and with_regressors:
            features = read_regressors(forest, mapper, part, *trees)
        return Chunk(slice(begin, end), codes, features, feature_ids)

    return map(read_chunk, range(0, max(1, table.n_rows), size))


def _find_rare_features(
    forest: _core.Forest, mapper: Any, table: Any, trees: tuple[int, int]
) -> np.ndarray | None:
    """Return the features that trees split on, ascending; None if they are not few of many."""
    n_features = len(mapper.n_bins_)
    if table.n_rows * n_features <= _SMALL_TABLE_CODES:
        return None
    used = forest.split_features(*trees)
    return used if _MIN_FEATURES_PER_USED * len(used) < n_features else None


def _mask(features: np.ndarray, mapper: Any) -> np.ndarray:
    mask = np.zeros(len(mapper.n_bins_), bool)
    mask[features] = True
    return mask


def bin_features(
    forest: _core.Forest, mapper: Any, table: Any, first: int, last: int, n_threads: int = 1
) -> np.ndarray:
    """Bin a FeatureTable for trees `first .. last - 1`.

    Returns
    -------
    ndarray of shape (n_features, n_rows), uint8
        See `BinMapper.transform`; the rows of unused features are undefined.
    """
    used = None
    if table.n_rows * len(mapper.n_bins_) > _SMALL_TABLE_CODES:
        used = _mask(forest.split_features(first, last), mapper)
    return mapper.transform(table, n_threads, used)


def read_regressors(
    forest: _core.Forest, mapper: Any, table: Any, first: int, last: int
) -> np.ndarray | None:
    """Return the raw values that the linear leaves of trees `first .. last - 1` require.

    Returns
    -------
    ndarray of shape (n_features, n_rows), float32, or None if no leaf is linear
        See `FeatureTable.get_raw_values`.
    """
    regressors = forest.regressors(first, last)
    if not len(regressors):
        return None
    return mapper.get_raw_values(table, _mask(regressors, mapper))
