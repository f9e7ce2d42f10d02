"""Random samples of rows and features, and random splits into training and validation rows.

A draw sorts by a hash of (seed, round, id) and takes the smallest. The hash is a bijection of the
id, so there are no ties: the sample has exactly the requested size, and does not depend on the
NumPy version, the CPU, the number of threads, or the rank that holds a row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components

import polyleaf._core as _core
from polyleaf.runtime.collective import SINGLE_PROCESS, Communicator
from polyleaf.runtime.types import DataLike

Rows = NDArray[np.int64]

# Streams of random numbers: draws with the same seed must differ.
ROWS, FEATURES, BINNED_ROWS, SCORED_ROWS, ROUNDING = 1, 2, 3, 4, 5


def draw(n: int, count: int, seed: int, round: int, stream: int) -> NDArray[np.bool_]:
    """Draw `count` of `n` indices without replacement, as a mask."""
    if count >= n:
        return np.ones(n, bool)
    return draw_ids(np.arange(n), count, seed, round, stream, SINGLE_PROCESS)


def draw_ids(
    ids: NDArray[np.integer],
    count: int,
    seed: int,
    round: int,
    stream: int,
    communicator: Communicator,
) -> NDArray[np.bool_]:
    """Draw `count` of the unique ids of all ranks, as a mask of this rank's ids."""
    if count <= 0:
        return np.zeros(len(ids), bool)
    hashes = hash_ids(ids, seed, round, stream)
    return hashes <= find_kth_smallest(hashes, count, communicator)


def find_kth_smallest(values: NDArray[np.uint32], k: int, communicator: Communicator) -> np.uint32:
    """Find the `k`-th smallest value (from 1) of all ranks, eight bits at a time."""
    if communicator.size == 1:
        return np.uint32(np.partition(values, k - 1)[k - 1])
    prefix = 0
    for shift in (24, 16, 8, 0):
        digits = (values >> np.uint32(shift)) & np.uint32(255)
        counts = np.bincount(digits, minlength=256)
        communicator.allreduce_sum(counts)
        cumulative = np.cumsum(counts)
        digit = int(np.searchsorted(cumulative, k))
        k -= int(cumulative[digit] - counts[digit])
        values, prefix = values[digits == digit], prefix | digit << shift
    return np.uint32(prefix)


def derive_seed(seed: int, round: int, stream: int) -> int:
    """Return the 64-bit seed of draws in the core."""
    return int(np.random.SeedSequence([seed, round, stream]).generate_state(1, np.uint64)[0])


def hash_ids(ids: NDArray[np.integer], seed: int, round: int, stream: int) -> NDArray[np.uint32]:
    """Hash ids below 2^32."""
    return _core.hash_ids(ids.astype(np.uint32), make_hash_keys(seed, round, stream))


def make_hash_keys(seed: int, round: int, stream: int) -> NDArray[np.uint32]:
    """Return the two keys of a hash of ids."""
    words = np.random.SeedSequence([seed, round, stream]).generate_state(2, np.uint32)
    return words.astype(np.uint32, copy=False)


def hash64(numbers: np.ndarray) -> NDArray[np.uint64]:
    """Hash numbers to 64 bits (SplitMix64)."""
    z = numbers.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        z = (z ^ (z >> np.uint64(shift))) * np.uint64(factor)
    return z ^ (z >> np.uint64(31))


# ---- validation rows ---------------------------------------------------------------------------


def split_rows(n_rows: int, n_validation: int, seed: int) -> tuple[Rows, Rows]:
    """Split at random into training and `n_validation` validation rows, both ascending."""
    order = np.random.default_rng(seed).permutation(n_rows)
    return np.sort(order[n_validation:]), np.sort(order[:n_validation])


def split_rows_stratified(
    n_rows: int, fraction: float, seed: int, classes: np.ndarray | None
) -> tuple[Rows, Rows]:
    """Split for `validation_fraction`, with at least one row in either part.

    `fraction`: fraction of validation rows. `classes` (n_rows,): classes that keep their
    frequencies, if every class has two rows and both parts have room for all classes.
    """
    n_validation = min(max(1, round(fraction * n_rows)), n_rows - 1)
    if classes is not None:
        _, counts = np.unique(classes, return_counts=True)
        if np.any(counts < 2) or min(n_validation, n_rows - n_validation) < len(counts):
            classes = None
    # Imported here: it would take an eighth of the import time of the package.
    from sklearn.model_selection import train_test_split

    training, validation = train_test_split(
        np.arange(n_rows), test_size=n_validation, random_state=seed % 2**32, stratify=classes
    )
    return np.sort(training), np.sort(validation)


class SplitRules(NamedTuple):
    """What splits of rows respect."""

    # (n_rows,), group of each row: the rows of a group are in the same part
    groups: Rows | None = None
    # (n_rows,), time of each row, as a rank: models train on rows before those that they are
    # evaluated on
    time: Rows | None = None

    def take(self, rows: Rows) -> SplitRules:
        """Return the rules of some rows."""
        return SplitRules(*(None if values is None else values[rows] for values in self))

    def join(self, groups: Rows | None) -> SplitRules:
        """Return rules that keep the rows of other groups together, too."""
        if groups is None or self.groups is None:
            return self._replace(groups=self.groups if groups is None else groups)
        n_first, n_second = int(self.groups.max()) + 1, int(groups.max()) + 1
        pairs = (np.ones(len(groups)), (self.groups, groups + n_first))
        graph = sp.csr_matrix(pairs, shape=(n_first + n_second,) * 2)
        component = connected_components(graph, directed=False)[1]
        return self._replace(groups=component[self.groups].astype(np.int64))

    def keep_copies(self, copies: Rows | None) -> SplitRules:
        """Return rules that keep copies of rows together, unless this leaves nothing to split.

        `copies` (n_rows,): number of each different row, or None.
        """
        joined = self.join(copies)
        return joined if joined.groups is None or joined.groups.any() else self

    def keep_queries(self, query: Rows) -> SplitRules:
        """Return rules that keep queries whole; the time of a query is that of its last row."""
        time = self.time
        if time is not None:
            last = np.zeros(int(query.max()) + 1, np.int64)
            np.maximum.at(last, query, time)
            time = last[query]
        joined = SplitRules(self.groups, time).join(query)
        if self.groups is not None and joined.groups is not None and not joined.groups.any():
            raise ValueError(
                "groups join all queries to one, which leaves nothing to split: pass groups of "
                "whole queries."
            )
        return joined

    def split(
        self, n_rows: int, fraction: float, seed: int, classes: np.ndarray | None
    ) -> tuple[Rows, Rows]:
        """Split as `split_rows_stratified`: at random, or the last rows in time."""
        groups, time = self
        if time is not None:
            first = np.sort(time)[n_rows - max(1, round(fraction * n_rows))]
            is_validation = time >= max(first, time.min() + 1)
            return self._exclude(~is_validation, is_validation), np.flatnonzero(is_validation)
        if groups is None:
            return split_rows_stratified(n_rows, fraction, seed, classes)
        names, first_rows = np.unique(groups, return_index=True)
        group_classes = None if classes is None else classes[first_rows]
        _, chosen = split_rows_stratified(len(names), fraction, seed, group_classes)
        is_validation = np.isin(groups, names[chosen])
        return np.flatnonzero(~is_validation), np.flatnonzero(is_validation)

    def iter_folds(self, n_rows: int, n_folds: int, seed: int) -> Iterator[tuple[Rows, Rows]]:
        """Yield the rows to train on, and the rows to evaluate on, of each fold.

        In time order the folds are of the later half of the rows, the last ones first.
        """
        groups, time = self
        if time is None:
            fold = split_folds(n_rows, n_folds, np.random.default_rng(seed), groups)
            for j in range(int(fold.max()) + 1):
                yield np.flatnonzero(fold != j), np.flatnonzero(fold == j)
            return
        _, ranks, sizes = np.unique(time, return_inverse=True, return_counts=True)
        fold = _divide(sizes, n_folds)[ranks]
        last = int(fold.max())
        for j in range(last, max(last // 2, 1) - 1, -1):
            yield self._exclude(fold < j, fold == j), np.flatnonzero(fold == j)

    def iter_cross_fits(
        self, n_rows: int, n_folds: int, seed: int, classes: np.ndarray | None
    ) -> Iterator[tuple[Rows, Rows]]:
        """Yield the rows to train on, and the rows to score, so that every row is scored once.

        Folds are consecutive in time, else keep groups together, else have the frequencies of the
        classes.
        """
        groups, time = self
        if time is not None:
            _, ranks, sizes = np.unique(time, return_inverse=True, return_counts=True)
            fold = _divide(sizes, n_folds)[ranks]
        elif groups is not None or classes is None:
            fold = split_folds(n_rows, n_folds, np.random.default_rng(seed), groups)
        else:
            order = np.random.default_rng(seed).permutation(n_rows)
            fold = np.empty(n_rows, np.int64)
            order = order[np.argsort(classes[order], kind="stable")]
            fold[order] = np.arange(n_rows) % min(n_folds, n_rows)
        for j in range(int(fold.max()) + 1):
            yield self._exclude(fold != j, fold == j), np.flatnonzero(fold == j)

    def _exclude(self, training: NDArray[np.bool_], held: NDArray[np.bool_]) -> Rows:
        """Return the training rows without the groups of rows that are held out."""
        if self.groups is not None:
            training = training & ~np.isin(self.groups, self.groups[held])
        return np.flatnonzero(training)


def _divide(sizes: Rows, n_folds: int) -> Rows:
    """Divide consecutive groups of these sizes into folds of about equally many rows."""
    middle = 2 * np.cumsum(sizes) - sizes
    fold = middle * min(n_folds, len(sizes)) // (2 * sizes.sum())
    return np.unique(fold, return_inverse=True)[1]  # a large group may leave folds empty


def split_folds(
    n_rows: int, n_folds: int, rng: np.random.Generator, groups: Rows | None = None
) -> Rows:
    """Return the fold of each row, of `n_folds` at most; the rows of a group share one."""
    if groups is None:
        return rng.permutation(n_rows) % min(n_folds, n_rows)
    _, groups, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    order = rng.permutation(len(sizes))
    fold = np.empty(len(sizes), np.int64)
    fold[order] = _divide(sizes[order], n_folds)
    return fold[groups]


def split_validation(
    validation: str,
    order: str,
    n_rows: int,
    seed: int,
    find_groups: Callable[[], Rows | None] = lambda: None,
    query: Rows | None = None,
) -> tuple[Rows, Rows] | None:
    """Return the parts for the option ``--validation``; None if it names a file.

    `order` is `validation_order`. `find_groups()` returns groups of rows that are kept together,
    if there are any. `query` is the number of the query of each row: queries are kept whole.

    Raises a ValueError if a part has no rows.
    """
    try:
        fraction = float(validation)
    except ValueError:
        return None
    n_validation = round(fraction * n_rows) if 0 < fraction < 1 else 0
    if not 0 < n_validation < n_rows:
        raise ValueError(
            f"--validation {validation} leaves no rows for training, or none for validation: pass "
            "a fraction between 0 and 1."
        )
    rules = SplitRules(None, np.arange(n_rows) if order == "time" else None)
    rules = rules.keep_copies(find_groups()) if query is None else rules.keep_queries(query)
    if any(values is not None for values in rules):
        return rules.split(n_rows, fraction, seed, None)
    return split_rows(n_rows, n_validation, seed)


# ---- repeated rows ------------------------------------------------------------------------------

# Rows of equal features and targets are copies if rows of equal features differ in their targets by
# less than this share of what any two rows do, or if hardly any two rows have equal targets.
_MAX_DISAGREEMENT, _MAX_CHANCE = 0.01, 0.01
_MIN_GROUPS = 10


def find_repeated_rows(
    hashes: Any, values: DataLike, offset: DataLike | None = None
) -> Rows | None:
    """Find rows that are copies of others: their features and targets are equal.

    Where features and targets have few values, rows are equal by chance, and every part of the
    data should have such rows.

    `hashes` (n_rows,): hashes of the features of each row (`Dataset.hash_rows`, `hash_values`);
    None: unknown. `values`: targets. Returns shape (n_rows,), int64, or None: number of each
    distinct row, by first occurrence; None if no row is a copy.
    """
    n_equal = 0 if hashes is None else _count_pairs(hashes)
    if hashes is None or n_equal == 0:
        return None
    targets = hash_values(values)
    if offset is not None:
        targets = targets + hash64(hash_values(offset))
    both, n = hashes + hash64(targets), len(targets)
    n_copies, chance = _count_pairs(both), _count_pairs(targets) / (n * (n - 1) / 2)
    may_differ = n_copies < (1.0 - _MAX_DISAGREEMENT * (1.0 - chance)) * n_equal
    is_chance = may_differ and chance > _MAX_CHANCE
    if n_copies == 0 or is_chance:
        return None
    _, first, groups = np.unique(both, return_index=True, return_inverse=True)
    rank = np.empty(len(first), np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    return rank[groups] if len(first) >= _MIN_GROUPS else None


def find_repeated_queries(hashes: Any, values: DataLike, query: Rows) -> Rows | None:
    """Find queries that are copies of others: their rows have equal features and targets.

    A row alone tells nothing about the order of another query, so copies of rows do not matter.

    Parameters
    ----------
    hashes, values
        As in `find_repeated_rows`.
    query : ndarray of shape (n_rows,), int64
        Number of the query of each row.

    Returns
    -------
    ndarray of shape (n_rows,), int64, or None
        Number of the distinct query of each row; None if no query is a copy.
    """
    if hashes is None:
        return None
    positions = np.unique(query, return_inverse=True)[1]
    features, targets = np.zeros((2, int(positions.max()) + 1), np.uint64)
    np.add.at(features, positions, hash64(hashes))  # in any order of the rows
    np.add.at(targets, positions, hash64(hashes + hash64(hash_values(values))))
    distinct = find_repeated_rows(features, targets)
    return None if distinct is None else distinct[positions]


def _count_pairs(numbers: np.ndarray) -> float:
    """Return the number of pairs of equal numbers."""
    counts = np.unique(numbers, return_counts=True)[1].astype(np.float64)
    return float((counts * (counts - 1) / 2).sum())


def hash_values(values: Any) -> NDArray[np.uint64]:
    """Return numbers (n_rows,), uint64, that are equal for equal rows of a matrix or vector."""
    if sp.issparse(values):
        cells = hash64(np.asarray(values.data, np.float64).view(np.uint64))
        hashes = np.zeros(values.shape[0], np.uint64)
        row = np.repeat(np.arange(values.shape[0]), np.diff(values.indptr))
        np.add.at(hashes, row, hash64(cells + hash64(values.indices)))
        return hashes
    columns = np.asarray(values, np.float64).reshape(len(values), -1).T
    hashes = np.zeros(len(values), np.uint64)
    for column in columns:
        hashes = hash64(hashes) + hash64(np.ascontiguousarray(column).view(np.uint64))
    return hashes
