"""Rows that lie in several places: what bins depend on is looked for where they are, and put together.

The mapper is the one that all rows together would give, whatever the places are.

Owns: what a place tells of its rows. Must not know: who carries it, what targets mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from polyleaf.data.binning import BinMapper, sum_category_weights
from polyleaf.data.data_iter import CategorySummary, DataSummary, summarise_features
from polyleaf.inputs.features import DenseBlock, FeatureSpec, FeatureTable, read_features

__all__ = ["PartitionSummary", "merge_summaries", "summarise_partition"]


class PartitionSummary(NamedTuple):
    """What one partition shows.

    Attributes
    ----------
    number : int
        Of the partition.
    spec : FeatureSpec
    has_numbers : ndarray of shape (n_features,), bool
    seen : dict of int to CategorySummary
        Of each categorical feature.
    totals : dict of int to ndarray of float64
        What the rows of its categories weigh, integers up to 2^53.
    texts : set of int
        Features of text.
    sample : list of DenseBlock
        The numbers of the rows that are wanted.
    n_rows : int
        That these are.
    """

    number: int
    spec: FeatureSpec
    has_numbers: NDArray[np.bool_]
    seen: dict[int, CategorySummary]
    totals: dict[int, NDArray[np.float64]]
    texts: set[int]
    sample: list[DenseBlock]
    n_rows: int


def summarise_partition(
    X: Any,
    number: int,
    first: int,
    weights: NDArray[np.int64] | None,
    wanted: NDArray[np.int64] | None,
    categorical_features: Any,
    n_threads: int = 1,
) -> PartitionSummary:
    """Look at one partition.

    Parameters
    ----------
    X : array-like or data frame
    number : int
        Of the partition.
    first : int
        Number of its first row among all.
    weights : ndarray of shape (n_rows,), int64, or None
        Of its rows, from `quantise_weights` of all.
    wanted : ndarray of int64, or None
        Its rows that thresholds are chosen from; None: all.
    categorical_features
        As `read_features` has it.
    n_threads : int

    Raises
    ------
    ValueError
        It names the partition.
    """
    try:
        table = read_features(
            X, categorical_features=categorical_features, n_threads=n_threads, whole=False
        )
    except (ValueError, TypeError) as error:
        raise type(error)(f"Partition {number}: {error}") from error
    if table.sparse:
        raise ValueError(
            f"Partition {number} is a sparse matrix: make X dense, or fit on one machine."
        )
    seen, totals = {}, {}
    for column in table.categories:
        seen[column.feature] = CategorySummary()
        seen[column.feature].add(column, first, keep=False)
        totals[column.feature] = sum_category_weights(column, weights)
    rows = np.arange(table.n_rows) if wanted is None else wanted
    sample = [DenseBlock(block.values[rows], block.features) for block in table.dense]
    return PartitionSummary(
        number, *summarise_features(table), seen, totals, set(table.texts), sample, len(rows)
    )


def merge_summaries(
    looks: Sequence[PartitionSummary],
    fresh: BinMapper,
    weights: NDArray[np.int64] | None,
    n_threads: int = 1,
) -> BinMapper:
    """The mapper of all rows.

    Parameters
    ----------
    looks : sequence of PartitionSummary
        In the order of their rows.
    fresh : BinMapper
        To be fitted.
    weights : ndarray of int64, or None
        Of the rows that thresholds are chosen from.
    n_threads : int

    Raises
    ------
    ValueError
        Where partitions differ in names, numbers or kinds of columns; it names one.
    """
    fresh.check()
    found = _InPartitions(None, fresh.draw_seed)
    totals: dict[int, NDArray[np.float64]] = {}
    for each in looks:
        found.agree(each.spec, each.has_numbers, f"Partition {each.number}")
        found.texts |= each.texts
        for feature, seen in each.seen.items():
            known = found.categories.setdefault(feature, CategorySummary())
            place = known.join(seen)
            more = np.zeros(len(known.place))
            before = totals.get(feature, np.empty(0))
            more[: len(before)] = before
            more[place] += each.totals[feature]
            totals[feature] = more
    found.check_text_columns()
    assert found.spec is not None
    counted = {
        feature: (list(seen.place), totals[feature]) for feature, seen in found.categories.items()
    }
    return fresh.fit_from_summary(
        found.spec, _sample(looks, found.spec), weights, counted, n_threads
    )


class _InPartitions(DataSummary):
    places = "partitions"


def _sample(looks: Sequence[PartitionSummary], spec: FeatureSpec) -> FeatureTable:
    """The numbers of the rows that thresholds are chosen from."""
    numeric = np.flatnonzero(~spec.is_categorical)
    table = FeatureTable(sum(each.n_rows for each in looks), spec.n_features, spec.feature_names)
    if len(numeric) == 0:
        return table
    blocks = [block for each in looks for block in each.sample]
    values = np.full(
        (table.n_rows, len(numeric)),
        np.nan,
        np.result_type(np.float32, *(block.values.dtype for block in blocks)),
    )
    place, begin = np.full(spec.n_features, -1), 0
    place[numeric] = np.arange(len(numeric))
    for each in looks:
        for block in each.sample:
            kept = place[block.features] >= 0
            values[begin : begin + each.n_rows, place[block.features[kept]]] = block.values[:, kept]
        begin += each.n_rows
    table.dense.append(DenseBlock(values, numeric))
    return table
