"""Metrics of the rows of queries, for rankings: NDCG, MAP, MRR, ERR and precision.

Ranks are those of descending scores. For rows of equal score, NDCG, MAP, MRR and precision are the
mean over their possible orders (McSherry and Najork, "Computing information retrieval performance
measures efficiently in the presence of tied scores", ECIR 2008), so that a metric does not depend
on the order of the rows. Rows of weight 0 for a goal are not part of its queries.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from polyleaf.runtime.checks import require_choice
from polyleaf.runtime.queries import Gains, Queries, check_gains, compute_gains, make_discounts
from polyleaf.runtime.row_data import RowData

Floats = NDArray[np.float64]
Empty = Literal["one", "zero", "skip"]

KINDS = ("ndcg", "map", "mrr", "err", "precision")
_NAME = re.compile(r"(ndcg|map|mrr|err|precision|p|pre)(?:@([1-9][0-9]*))?(-?)")


@dataclass(frozen=True)
class QueryMetric:
    """A metric of a ranking, the weighted mean over queries, as `eval_metric` takes it.

    Call it with rows that have queries, and their scores (n,), (n, K) or (n, m).

    Parameters
    ----------
    kind : {"ndcg", "map", "mrr", "err", "precision"}
        Precision is the share of relevant rows among the first k, or among all of a shorter query.
        Average precision is divided by the number of relevant rows, at most k. The expected
        reciprocal rank (Chapelle et al., CIKM 2009) has stop probabilities gain / (1 + largest
        gain of the evaluated and the training rows).
    k : int, optional
        Only the first k ranks count. None: all.
    empty : {"one", "zero", "skip"}, optional
        Value of a query without relevant rows; "skip" leaves it out. Default: 1 for NDCG and MAP,
        which do not exist for it, as in XGBoost and LightGBM; else 0.
    gains : {"exponential", "linear"} or tuple of float
        Gains of relevances, for "ndcg" and "err". Other metrics count rows of relevance above 0.
    goal_weights : tuple of tuple of float, shape (m, K), optional
        Weights of the goals in each of m outputs. Default: output k is evaluated by goal k.
    """

    kind: str
    k: int | None = None
    empty: Empty | None = None
    gains: Gains = "exponential"
    goal_weights: tuple[tuple[float, ...], ...] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "gains", check_gains(self.gains))
        require_choice(self.kind, KINDS, "kind")
        require_choice(self.empty, (None, *get_args(Empty)), "empty")

    def __call__(self, rows: RowData, scores: np.ndarray) -> float:
        return self.bind(rows)(scores)

    @property
    def name(self) -> str:
        """Name of the metric, such as "ndcg@10"."""
        suffix = "-" if self.empty == "zero" and self.kind in ("ndcg", "map") else ""
        return self.kind + ("" if self.k is None else f"@{self.k}") + suffix

    @property
    def empty_value(self) -> float:
        """Value of a query without relevant rows; NaN: it is left out."""
        empty = self.empty or ("one" if self.kind in ("ndcg", "map") else "zero")
        return {"one": 1.0, "zero": 0.0, "skip": np.nan}[empty]

    def bind(
        self, rows: RowData, training: RowData | None = None, n_outputs: int | None = None
    ) -> BoundQueryMetric:
        """Return the metric as a function of the scores of these rows.

        Parameters
        ----------
        rows, training, n_outputs
            See :meth:`polyleaf.metrics.Metric.bind`.

        Raises a ValueError if the rows have no queries.
        """
        return BoundQueryMetric(self, rows, training)


def parse_query_metric(
    name: str,
    gains: Gains = "exponential",
    goal_weights: tuple[tuple[float, ...], ...] | None = None,
) -> QueryMetric | None:
    """Return the metric of a name such as "ndcg@5", "map", "mrr@10", "err" or "precision@3".

    A trailing "-", as in XGBoost: queries without relevant rows count 0.

    Returns QueryMetric or None if it is no metric of a ranking.
    """
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    kind = {"p": "precision", "pre": "precision"}.get(match[1], match[1])
    k = None if match[2] is None else int(match[2])
    return QueryMetric(kind, k, "zero" if match[3] else None, gains, goal_weights)


@dataclass(frozen=True, eq=False)
class _Goal:
    """The rated rows of one goal."""

    rows: NDArray[np.intp]  # (n,)
    queries: Queries  # of these rows
    relevant: Floats  # (n,), gain, or 1 and 0, by which ranks are evaluated
    rank: NDArray[np.int64]  # (n,), by `relevant`: the order of rows of equal score in sums
    # (n_queries,), what the sum over ranks is divided by; 0 for queries without relevant rows
    best: Floats


class BoundQueryMetric:
    """A `QueryMetric` bound to rows. Call it with their scores (n, K) or (n,)."""

    def __init__(self, metric: QueryMetric, rows: RowData, training: RowData | None) -> None:
        if rows.query is None:
            raise ValueError(f"Metric {metric.name!r} ranks the rows of queries: pass qid.")
        self.metric = metric
        self._target = np.asarray(rows.target, np.float64).reshape(rows.n_rows, -1)
        whole = Queries.make(rows.query, self._target.shape[1], rows.weight)
        self._largest_gain = _find_largest_gain(metric.gains, (rows, training))
        self._goals = [
            self._make_goal(rows.query, whole, goal) for goal in range(self._target.shape[1])
        ]
        self._weights = np.eye(len(self._goals))
        if metric.goal_weights is not None:
            self._weights = np.asarray(metric.goal_weights, np.float64)
            self._weights /= self._weights.sum(axis=1, keepdims=True)

    def _make_goal(self, query: np.ndarray, whole: Queries, goal: int) -> _Goal | None:
        """Return the rated rows of a goal; None if there are none."""
        metric, rows = self.metric, np.flatnonzero(whole.is_rated[:, goal])
        if not len(rows):
            return None
        target = self._target[rows, goal]
        queries = Queries.make(query[rows], 1, whole.row_weight[rows, goal])
        relevant = (target > 0).astype(np.float64)
        if metric.kind in ("ndcg", "err"):
            relevant = compute_gains(target, metric.gains)
        sizes = np.diff(queries.begin)
        if metric.kind == "ndcg":
            best = queries.compute_ideal_dcg(relevant[:, None], metric.k)[:, 0]
        else:
            best = queries.sum((relevant > 0).astype(np.float64)[:, None])[:, 0]
            if metric.kind == "map" and metric.k is not None:
                best = np.minimum(best, metric.k)
            if metric.kind == "precision":
                shown = sizes if metric.k is None else np.minimum(sizes, metric.k)
                best = np.where(best > 0, shown, 0.0)
            if metric.kind in ("mrr", "err"):
                best = np.minimum(best, 1.0)
        return _Goal(rows, queries, relevant, queries.rank(relevant), best)

    def __call__(self, scores: np.ndarray) -> float:
        return self.value_and_per_output(scores)[0]

    def value_and_per_output(self, scores: np.ndarray) -> tuple[float, Floats]:
        """Return the mean over outputs, and the metric of each output, (K,) or (m,)."""
        scores = np.asarray(scores, np.float64).reshape(len(self._target), -1)
        each = np.full(self._weights.shape, np.nan)
        for output, goal in np.argwhere(self._weights > 0):
            each[output, goal] = self._evaluate(self._goals[goal], scores[:, output])
        known = ~np.isnan(each)
        weights = np.where(known, self._weights, 0.0)
        total = weights.sum(axis=1)
        sums = (weights * np.where(known, each, 0.0)).sum(axis=1)
        per_output = np.divide(sums, total, out=np.full_like(sums, np.nan), where=total > 0)
        is_known = total > 0
        return (float(per_output[is_known].mean()) if is_known.any() else np.nan), per_output

    def _evaluate(self, goal: _Goal | None, scores: Floats) -> float:
        if goal is None:
            return np.nan
        values = self._evaluate_queries(goal, scores)
        is_used = ~np.isnan(values)
        weight, values = goal.queries.weight[is_used, 0], values[is_used]
        return float(np.average(values, weights=weight)) if weight.any() else np.nan

    def _evaluate_queries(self, goal: _Goal, scores: Floats) -> Floats:
        ranking = _Ranking.make(goal, scores[goal.rows])
        kind, k = self.metric.kind, self.metric.k
        if kind == "err":
            sums = ranking.expect_reciprocal_ranks(k, 1.0 + self._largest_gain)
        else:
            sums = _SUMS[kind](ranking, k)
        empty = np.full_like(sums, self.metric.empty_value)
        return np.divide(sums, goal.best, out=empty, where=goal.best > 0)


def _find_largest_gain(gains: Gains, parts: tuple[RowData | None, ...]) -> float:
    largest = 0.0
    for rows in (rows for rows in parts if rows is not None):
        target = np.asarray(rows.target, np.float64).reshape(rows.n_rows, -1)
        weight = 1.0 if rows.weight is None else np.reshape(rows.weight, (rows.n_rows, -1))
        largest = max(largest, float(np.where(weight > 0, target, 0.0).max(initial=0.0)))
    return float(compute_gains(np.array([largest]), gains)[0])


@dataclass(frozen=True, eq=False)
class _Ranking:
    """Rows in the order of their queries and descending scores; rows of equal score are a run."""

    number: NDArray[np.int32]  # (n,), query of each row
    n_queries: int
    rank: NDArray[np.intp]  # (n,), from 0
    relevant: Floats  # (n,)
    mean: Floats  # (n,), mean of `relevant` in the run
    run: NDArray[np.intp]  # (n,)
    # run_begin, run_size: (n_runs,)
    run_begin: NDArray[np.intp]
    run_size: NDArray[np.intp]

    @classmethod
    def make(cls, goal: _Goal, scores: Floats) -> _Ranking:
        queries, order = goal.queries, goal.queries.sort(scores, goal.rank)
        number, scores, relevant = queries.number[order], scores[order], goal.relevant[order]
        rank = np.arange(len(order)) - queries.begin[:-1][number]
        is_new = np.ones(len(order), bool)
        is_new[1:] = (number[1:] != number[:-1]) | (scores[1:] != scores[:-1])
        run, run_begin = np.cumsum(is_new) - 1, np.flatnonzero(is_new)
        size = np.diff(np.append(run_begin, len(order)))
        mean = (np.bincount(run, relevant, len(size)) / np.maximum(size, 1))[run]
        return cls(number, queries.n, rank, relevant, mean, run, run_begin, size)

    def _sum(self, terms: Floats, k: int | None) -> Floats:
        """Return the sums of terms of the first k ranks of each query."""
        if k is not None:
            terms = np.where(self.rank < k, terms, 0.0)
        return np.bincount(self.number, terms, self.n_queries).astype(np.float64)

    def sum_gains(self, k: int | None) -> Floats:
        """Return the discounted gains of each query."""
        discounts = make_discounts(int(self.rank.max(initial=-1)) + 1)[0]
        return self._sum(self.mean * discounts[self.rank], k)

    def sum_relevant(self, k: int | None) -> Floats:
        """Return the number of relevant rows of each query."""
        return self._sum(self.mean, k)

    def sum_precisions(self, k: int | None) -> Floats:
        """Return the sum of the precisions at relevant rows of each query."""
        total = np.cumsum(self.relevant)
        query_begin = np.flatnonzero(self.rank == 0)
        above_query = (total - self.relevant)[query_begin][self.number]
        above_run = (total - self.relevant)[self.run_begin][self.run] - above_query
        size = self.run_size[self.run]
        position = np.arange(len(self.run)) - self.run_begin[self.run]
        others = self.mean * size - 1.0  # relevant rows of the run besides one
        before = position * others / np.maximum(size - 1, 1)
        return self._sum(self.mean * (above_run + before + 1.0) / (self.rank + 1.0), k)

    def find_reciprocal_ranks(self, k: int | None) -> Floats:
        """Return the reciprocal rank of the first relevant row of each query."""
        relevant_runs = np.flatnonzero(self.mean[self.run_begin] > 0)
        number = self.number[self.run_begin]
        firsts = relevant_runs[np.unique(number[relevant_runs], return_index=True)[1]]
        size, begin = self.run_size[firsts], self.rank[self.run_begin[firsts]]
        n_relevant = np.rint(self.mean[self.run_begin[firsts]] * size)
        values = np.zeros(self.n_queries)
        # Probability that none of the positions before is relevant, then that the next one is.
        missed = np.ones(len(firsts))
        for position in range(int((size - n_relevant).max(initial=-1)) + 1):
            left = np.maximum(size - position, 1)
            hit = np.minimum(n_relevant / left, 1.0)
            counts = True if k is None else begin + position < k
            values[number[firsts]] += np.where(counts, missed * hit / (begin + position + 1.0), 0.0)
            missed = missed * (1.0 - hit)
        return values

    def expect_reciprocal_ranks(self, k: int | None, scale: float) -> Floats:
        """Return the expected reciprocal rank at which a user of each query stops.

        Each row of a run has the mean stop probability of the run.
        """
        stop = self.mean / scale
        begin = np.flatnonzero(self.rank == 0)
        size = np.bincount(self.number, minlength=self.n_queries)
        values, goes_on = np.zeros(self.n_queries), np.ones(self.n_queries)
        for rank in range(min(int(size.max(initial=0)), k or len(stop))):
            reached = np.flatnonzero(size > rank)
            here = stop[begin[reached] + rank]
            values[reached] += goes_on[reached] * here / (rank + 1.0)
            goes_on[reached] *= 1.0 - here
        return values


_SUMS: dict[str, Callable[[_Ranking, int | None], Floats]] = {
    "ndcg": _Ranking.sum_gains,
    "precision": _Ranking.sum_relevant,
    "map": _Ranking.sum_precisions,
    "mrr": _Ranking.find_reciprocal_ranks,
}
