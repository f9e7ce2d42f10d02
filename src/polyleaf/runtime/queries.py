"""Queries of a ranking: the rows that are ordered together, and the gains of their relevances."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

import polyleaf._core as _core
from polyleaf.runtime.collective import Communicator

Gains: TypeAlias = str | tuple[float, ...]
Floats = NDArray[np.float64]


def count_queries(query: np.ndarray, ranks: Communicator) -> int:
    """Return the number of queries of all ranks, which are numbered from 0."""
    n_queries = np.array([query.max(initial=-1) + 1])
    ranks.allreduce_max(n_queries)
    return int(n_queries[0])


@dataclass(frozen=True, eq=False)
class Queries:
    """The queries of some rows, for K goals."""

    rows: NDArray[np.int32]  # (n_rows,), rows of the queries one after the other
    begin: NDArray[np.int64]  # (n_queries + 1,), query q has ``rows[begin[q] : begin[q + 1]]``
    number: NDArray[np.int32]  # (n_rows,), query of each row
    # (n_rows, K), whether the row has a weight for the goal; others are not part of the query
    is_rated: NDArray[np.bool_]
    row_weight: Floats  # (n_rows, K)
    weight: Floats  # (n_queries, K), mean weight of the rated rows; 0 without any

    @classmethod
    def make(cls, query: np.ndarray, n_goals: int, weight: np.ndarray | None) -> Queries:
        """Make the queries of rows.

        `query` (n_rows,), int64: number of the query of each row, in any order. `weight` (n_rows,)
        or (n_rows, 1) or (n_rows, K).
        """
        _, inverse, counts = np.unique(query, return_inverse=True, return_counts=True)
        number = inverse.astype(np.int32)
        begin = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        rows = np.argsort(number, kind="stable").astype(np.int32)
        row_weight = np.ones((len(query), n_goals))
        if weight is not None:
            row_weight *= np.asarray(weight).reshape(len(query), -1)
        is_rated = row_weight > 0
        n_rated = _sum_groups(is_rated.astype(np.float64), number, len(counts))
        total = _sum_groups(row_weight, number, len(counts))
        mean = np.divide(total, n_rated, out=np.zeros_like(total), where=n_rated > 0)
        return cls(rows, begin, number, is_rated, row_weight, mean)

    @property
    def n(self) -> int:
        """Number of queries."""
        return len(self.begin) - 1

    @property
    def n_longest(self) -> int:
        """Number of rows of the largest query."""
        return int(np.diff(self.begin).max(initial=0))

    def sum(self, values: Floats) -> Floats:
        """Return the sums over the rows of each query, (n_queries, K), whatever their order is."""
        return _sum_groups(values, self.number, self.n)

    def find_varied(self, values: np.ndarray) -> NDArray[np.bool_]:
        """Return whether the rated rows of a query have different `values` (n_rows, K)."""
        ordered = values[self.rows].astype(np.float64)
        rated = self.is_rated[self.rows]
        starts = self.begin[:-1]
        least = np.minimum.reduceat(np.where(rated, ordered, np.inf), starts, axis=0)
        largest = np.maximum.reduceat(np.where(rated, ordered, -np.inf), starts, axis=0)
        return least < largest

    def find_largest(self, values: np.ndarray) -> Floats:
        """Return the largest of the rated `values` (n_rows, K) of each query, at least 0."""
        rated = np.where(self.is_rated, values, 0.0)[self.rows]
        return np.maximum.reduceat(rated, self.begin[:-1], axis=0)

    def sort(self, values: np.ndarray, ties: np.ndarray | int = 0) -> NDArray[np.intp]:
        """Return the rows by query, descending value (n_rows,), and `ties` (n_rows,) from 0."""
        # NumPy vectorises sorts of one key: two of them take a fifth of the time of a lexsort.
        order = np.argsort(-values)
        ordered, level = values[order], np.zeros(len(order), np.int64)
        level[order[1:]] = np.cumsum(ordered[1:] != ordered[:-1])
        return np.argsort((self.number * np.int64(len(order)) + level) * (np.max(ties) + 1) + ties)

    def rank(self, values: np.ndarray) -> NDArray[np.int64]:
        """Return the rank, from 0, of each value (n_rows,) in its query, the greatest first."""
        order = self.sort(values)
        ranks = np.empty(len(order), np.int64)
        ranks[order] = np.arange(len(order)) - self.begin[:-1][self.number[order]]
        return ranks

    def compute_ideal_dcg(self, gains: Floats, k: int | None = None) -> Floats:
        """Return the largest possible DCG of the first `k` ranks of each query, (n_queries, K)."""
        discounts = make_discounts(self.n_longest)[0]
        discounted = np.zeros(gains.shape)
        for goal in range(gains.shape[1]):
            ranks = self.rank(np.where(self.is_rated[:, goal], gains[:, goal], -1.0))
            counts = self.is_rated[:, goal] & (True if k is None else ranks < k)
            discounted[counts, goal] = (gains[:, goal] * discounts[ranks])[counts]
        return self.sum(discounted)


def _sum_groups(values: Floats, number: NDArray[np.int32], n: int) -> Floats:
    """Return the sums of the rows (n_rows, K) of each group, whatever their order is."""
    return _core.exact_totals(np.ascontiguousarray(values), None, number, n, 1)[0]


def make_discounts(n: int) -> tuple[Floats, Floats]:
    """Return 1 / log2(rank + 1) of the first `n` ranks, and the sums before each rank, (n + 1,)."""
    ranks = np.arange(1.0, n + 1.0)
    discounts = _core.log(2.0) / _core.log(ranks + 1.0)
    return discounts, np.concatenate([[0.0], np.cumsum(discounts)])


GAIN_RANGE = "0 or from 1e-30 to 1e30"  # which float32 holds, and quotients of two


def is_gain(values: np.ndarray) -> NDArray[np.bool_]:
    """Return whether gains are in `GAIN_RANGE`."""
    return (values == 0) | ((values >= 1e-30) & (values <= 1e30))


def check_gains(gains: str | Sequence[float]) -> Gains:
    """Return gains as "exponential", "linear" or a tuple; raise ValueError for anything else."""
    if isinstance(gains, str):
        if gains in ("exponential", "linear"):
            return gains
    else:
        table = np.asarray(gains, dtype=np.float64)
        is_valid = table.ndim == 1 and len(table) > 1 and is_gain(table).all()
        if is_valid and (np.diff(table) >= 0).all():
            return tuple(table.tolist())
    raise ValueError(
        'gains must be "exponential", "linear", or the gains of relevance 0, 1, 2 and so on, which '
        f"must be {GAIN_RANGE} and not decrease; got {gains!r}."
    )


def compute_gains(relevance: Any, gains: Gains) -> Floats:
    """Return the gain of each relevance; those outside of a table have that of its ends."""
    values = np.asarray(relevance, dtype=np.float64)
    if gains == "linear":
        return values
    if gains == "exponential":
        return np.ldexp(1.0, values.astype(np.int32)) - 1.0
    table = np.asarray(gains)
    return table[np.clip(values.astype(np.int64), 0, len(table) - 1)]
