"""Sampling of rows and features for each tree: uniform row sampling, GOSS, features per tree."""

from __future__ import annotations

import math
from collections.abc import Callable
from numbers import Integral
from typing import NamedTuple

import numpy as np

import polyleaf._core as _core
from polyleaf.binned_data.random_rows import FEATURES, ROWS, draw, draw_ids, find_kth_smallest
from polyleaf.runtime.collective import SINGLE_PROCESS, Communicator
from polyleaf.runtime.queries import count_queries
from polyleaf.settings.train_config import SamplingConfig


class TreeSample(NamedTuple):
    """Rows and features of the trees of one round; None: all."""

    round: int
    # rows, multiplier: result of `sample_rows`
    rows: np.ndarray | None
    multiplier: np.ndarray | None
    features: np.ndarray | None  # result of `sample_features`


class GlobalRowIds(NamedTuple):
    """Ids of a rank's rows among the rows of all ranks."""

    # (n_usable,), for each row of this rank with positive weight, in order: the number of such rows
    # before it on all ranks
    ids: np.ndarray
    n: int  # number of rows with positive weight of all ranks
    communicator: Communicator

    @staticmethod
    def single_process(n: int) -> GlobalRowIds:
        """Return the ids of a process that has all rows."""
        return GlobalRowIds(np.arange(n), n, SINGLE_PROCESS)

    def draw(self, count: int, seed: int, round: int, stream: int) -> np.ndarray:
        """Return the mask of this rank's rows among `count` drawn from all."""
        if count >= self.n:
            return np.ones(len(self.ids), bool)
        return draw_ids(self.ids, count, seed, round, stream, self.communicator)


class QuerySampler(NamedTuple):
    """Draws whole queries of a ranking instead of rows."""

    # (n_usable,), for each row of positive weight the position of its query in `ids`
    query: np.ndarray
    # ids of the queries of this rank among the queries of all ranks that have such rows
    ids: GlobalRowIds

    @staticmethod
    def make(
        query: np.ndarray, usable: np.ndarray | None, communicator: Communicator
    ) -> QuerySampler:
        """Make the sampler of the rows of this rank.

        `query` (n_rows,): number of the query of each row, the same on all ranks. No query is on
        two ranks.
        """
        numbers, positions = np.unique(
            query if usable is None else query[usable], return_inverse=True
        )
        is_used = np.zeros(count_queries(numbers, communicator), np.int64)
        is_used[numbers] = 1
        communicator.allreduce_sum(is_used)
        ids = (np.cumsum(is_used) - 1)[numbers]
        return QuerySampler(positions, GlobalRowIds(ids, int(is_used.sum()), communicator))

    def draw(self, settings: SamplingConfig, round: int) -> np.ndarray:
        """Return the mask of the rows of positive weight whose queries are drawn."""
        count = _count_share(settings.subsample, self.ids.n)
        return self.ids.draw(count, settings.seed, round, ROWS)[self.query]


class Sampler:
    """Draws the sample of each round.

    `is_random`: whether trees of another round may use other rows or features.

    Parameters
    ----------
    informative_columns : ndarray of shape (n_features,), bool
        Mask of the features to draw from.
    weight : ndarray of shape (n_rows,) or (n_rows, K), or None
        Rows of weight 0 are never drawn.
    samples_nodes : bool
        Whether each node draws from the features of its tree.
    row_ids : GlobalRowIds, optional
        Ids of the rows in distributed training.
    query : ndarray of shape (n_rows,), int64, optional
        Number of the query of each row, in a ranking.
    """

    def __init__(
        self,
        settings: SamplingConfig,
        informative_columns: np.ndarray,
        n_rows: int,
        weight: np.ndarray | None,
        samples_nodes: bool,
        row_ids: GlobalRowIds | None = None,
        query: np.ndarray | None = None,
    ) -> None:
        self._settings, self._n_rows = settings, n_rows
        self._usable = None if weight is None else _find_usable_rows(weight)
        self._columns = (
            informative_columns if informative_columns.any() else np.ones_like(informative_columns)
        )
        self._row_ids = row_ids
        self._queries = None
        if query is not None and settings.subsample < 1.0:
            communicator = SINGLE_PROCESS if row_ids is None else row_ids.communicator
            self._queries = QuerySampler.make(query, self._usable, communicator)
        n = n_rows if self._usable is None else len(self._usable)
        n = n if row_ids is None else row_ids.n
        takes_all = _takes_all(settings, n, layer=0)
        self.is_random = samples_nodes or settings.colsample_bytree < 1.0 or not takes_all
        self._takes_all = takes_all and settings.rows_per_layer is None
        self._is_fixed = settings.colsample_bytree >= 1.0 and self._takes_all
        self._fixed_features = (
            sample_features(settings, self._columns, 0) if self._is_fixed else None
        )

    def draw(self, gradients: Callable[[], np.ndarray], round: int, layer: int = 0) -> TreeSample:
        """Return the rows and features of a round, or of a layer.

        `gradients`: returns the gradients or their norms; called only for GOSS. `round`, `layer`:
        parameters of `sample_rows`.
        """
        if self._is_fixed:
            return TreeSample(round, self._usable, None, self._fixed_features)
        rows, multiplier = self._usable, None
        if self._queries is not None:
            rows = self._draw_queries(self._queries, round)
        elif not self._takes_all:
            is_goss = self._settings.sampling_method == "goss"
            g = gradients() if is_goss else np.broadcast_to(np.float32(0.0), (self._n_rows, 1))
            rows, multiplier = sample_rows(
                self._settings, g, round, self._usable, layer, self._row_ids
            )
        features = sample_features(self._settings, self._columns, round)
        return TreeSample(round, rows, multiplier, features)

    def _draw_queries(self, queries: QuerySampler, round: int) -> np.ndarray:
        """Return the rows of the queries that are drawn, uint32 ascending."""
        chosen = np.flatnonzero(queries.draw(self._settings, round)).astype(np.uint32)
        return chosen if self._usable is None else self._usable[chosen]


def _find_usable_rows(weight: np.ndarray) -> np.ndarray | None:
    """Return the rows of positive weight, uint32 ascending; None: all."""
    used = weight > 0 if weight.ndim == 1 else (weight > 0).any(axis=1)
    return None if used.all() else np.flatnonzero(used).astype(np.uint32)


def count_usable_rows(n_rows: int, weight: np.ndarray | None) -> int:
    """Return the number of rows of positive weight."""
    usable = None if weight is None else _find_usable_rows(weight)
    return n_rows if usable is None else len(usable)


def global_row_ids(weight: np.ndarray | None, row_ids: GlobalRowIds | None) -> np.ndarray | None:
    """Return the global id of each row; 0 for rows of weight 0.

    Parameters
    ----------
    weight : ndarray of shape (n_rows,) or (n_rows, K), or None
    row_ids : GlobalRowIds, optional
        Ids of the rows of positive weight in distributed training.

    Returns
    -------
    ndarray of shape (n_rows,), int64, or None
        None: the position of each row.
    """
    usable = None if weight is None else _find_usable_rows(weight)
    if weight is None or usable is None:
        return None if row_ids is None else row_ids.ids
    ids = np.zeros(len(weight), np.int64)
    ids[usable] = np.arange(len(usable)) if row_ids is None else row_ids.ids
    return ids


def sample_rows(
    settings: SamplingConfig,
    g: np.ndarray,
    round: int,
    usable: np.ndarray | None = None,
    layer: int = 0,
    row_ids: GlobalRowIds | None = None,
) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Draw the rows of one tree, or of one of its layers.

    Parameters
    ----------
    g : ndarray of shape (n_rows, n_outputs) or (n_rows,), float32
        Gradients of this round, or their norms. Uniform sampling only uses the number of rows.
    round : int
        Number of the round, counted from the first one of the model (continued training goes on
        counting).
    usable : ndarray of shape (n_usable,), uint32, ascending, optional
        Rows to draw from (such as those of positive weight). Default: all.
    layer : int
        Depth of the nodes to split next. Used by `rows_per_layer`, whose samples contain each
        other, and by GOSS, which uses the layer's gradients.
    row_ids : GlobalRowIds, optional
        Ids of the rows in distributed training.

    Returns
    -------
    rows : ndarray of shape (n_sampled,), uint32, ascending, or None
        The rows drawn; None: all.
    multiplier : ndarray of shape (n_rows,), float32, or None
        Factors of the derivatives of the rows; None: 1.

    Notes
    -----
    Uniform: `ceil(subsample * n)` rows without replacement. GOSS (Ke et al., "LightGBM",
    NeurIPS 2017, section 3 and algorithm 2): the `top_rate * n` rows of largest gradient, here its
    Euclidean norm over outputs, the first on ties, are kept; `other_rate * n` of the rest are
    drawn and multiplied by `(1 - top_rate) / other_rate`.
    """
    n = len(g) if usable is None else len(usable)
    n = n if row_ids is None else row_ids.n
    if _takes_all(settings, n, layer):
        return usable, None
    row_ids = GlobalRowIds.single_process(n) if row_ids is None else row_ids
    if settings.sampling_method == "goss":
        return _sample_goss(settings, g, round, usable, row_ids)
    count = _count_rows(settings, n, layer)
    chosen = np.flatnonzero(row_ids.draw(count, settings.seed, round, ROWS))
    return (chosen.astype(np.uint32) if usable is None else usable[chosen]), None


def _takes_all(settings: SamplingConfig, n: int, layer: int) -> bool:
    """Return whether all of n rows are used."""
    if settings.sampling_method == "goss":
        return sum(_count_goss(settings, n)) >= n
    if settings.subsample < 1.0:
        return False
    return settings.rows_per_layer is None or _count_rows(settings, n, layer) >= n


def _count_rows(settings: SamplingConfig, n: int, layer: int) -> int:
    if settings.rows_per_layer is None:
        return _count_share(settings.subsample, n)
    size = settings.rows_per_layer[min(layer, len(settings.rows_per_layer) - 1)]
    is_count = isinstance(size, Integral) or size > 1
    return int(size) if is_count else _count_share(float(size), n)


def sample_features(
    settings: SamplingConfig, informative_columns: np.ndarray, round: int
) -> np.ndarray | None:
    """Draw the features of one tree: `ceil(colsample_bytree * n)` of the n informative ones.

    Parameters
    ----------
    informative_columns : ndarray of shape (n_features,), bool

    Returns
    -------
    mask : ndarray of shape (n_features,), bool, or None
        Features that the tree may split on; None: all.
    """
    if settings.colsample_bytree >= 1.0:
        return None if informative_columns.all() else informative_columns
    n = int(np.count_nonzero(informative_columns))
    count = _count_share(settings.colsample_bytree, n)
    mask = np.zeros(len(informative_columns), bool)
    mask[informative_columns] = draw(n, count, settings.seed, round, FEATURES)
    return mask


def _count_goss(settings: SamplingConfig, n: int) -> tuple[int, int]:
    """Return how many of n rows GOSS keeps, and how many it draws from the rest."""
    n_top = min(n, _count_share(settings.top_rate, n))
    return n_top, min(n - n_top, _count_share(settings.other_rate, n))


def _sample_goss(
    settings: SamplingConfig,
    g: np.ndarray,
    round: int,
    usable: np.ndarray | None,
    row_ids: GlobalRowIds,
) -> tuple[np.ndarray, np.ndarray]:
    columns = g[:, None] if g.ndim == 1 else g
    norm = _core.squared_norms(np.ascontiguousarray(columns), 1)
    if usable is not None:
        norm = norm[usable]
    n_top, n_other = _count_goss(settings, row_ids.n)
    kept = _find_largest(norm, n_top, row_ids)
    rest = np.flatnonzero(~kept)
    is_drawn = draw_ids(
        row_ids.ids[rest], n_other, settings.seed, round, ROWS, row_ids.communicator
    )
    other = rest[is_drawn]
    kept[other] = True
    rows = np.flatnonzero(kept).astype(np.uint32)
    if usable is not None:
        rows, other = usable[rows], usable[other]
    multiplier = np.ones(len(g), np.float32)
    multiplier[other] = np.float32((1.0 - settings.top_rate) / settings.other_rate)
    return rows, multiplier


def _find_largest(norm: np.ndarray, count: int, row_ids: GlobalRowIds) -> np.ndarray:
    """Return the mask of this rank's rows among the `count` of largest norm of all; ties: the
    first."""
    communicator = row_ids.communicator
    keys = ~norm.view(np.uint32)  # positive floats are ordered as their bits
    last = find_kth_smallest(keys, count, communicator)
    mask = keys < last
    ties = np.flatnonzero(keys == last)
    n_before = np.array([np.count_nonzero(mask)])
    communicator.allreduce_sum(n_before)
    tied_ids = row_ids.ids[ties].astype(np.uint32)
    mask[ties] = tied_ids <= find_kth_smallest(tied_ids, count - int(n_before[0]), communicator)
    return mask


def _count_share(fraction: float, n: int) -> int:
    # 0.1 * 30 is 3.0000000000000004 in floating point, and must be 3 rows, not 4.
    return max(1, math.ceil(round(fraction * n, 6)))
