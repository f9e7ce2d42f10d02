"""Bins of rows in several partitions: summarised where the rows are, then merged.

The mapper equals that of all rows in one table, however they are partitioned.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from polyleaf.binned_data.binning import BinMapper
from polyleaf.binned_data.data_iter import (
    CategorySummary,
    DataSummary,
    stack_blocks,
    summarise_features,
    take_rows,
    take_sparse_rows,
)
from polyleaf.binned_data.high_cardinality import sum_category_weights
from polyleaf.runtime.types import DataLike
from polyleaf.user_data.feature_table import DenseBlock, FeatureSpec, SparseBlock, to_sparse_block
from polyleaf.user_data.features import read_features

# Share of stored values up to which columns stay sparse. It is larger than on one machine, since
# ranks send and keep the histograms of small nodes as well.
SPARSE_SHARE = 0.15


class PartitionSummary(NamedTuple):
    """Summary of one partition, from which bins are computed."""

    number: int
    spec: FeatureSpec
    has_numbers: NDArray[np.bool_]  # (n_features,), features with numbers
    categories: dict[int, CategorySummary]  # categories of each categorical feature
    # weight of the rows of each category, integers up to 2^53
    totals: dict[int, NDArray[np.float64]]
    texts: set[int]  # features of text without a categorical dtype
    sample: list[DenseBlock]  # values of the rows that thresholds are chosen from
    # sparse features of these rows, a csr_matrix, and the features of its columns
    sparse: tuple[Any, NDArray[np.int64]]
    weights: NDArray[np.int64] | None  # weights of these rows
    n_rows: int  # number of these rows


def summarise_partition(
    X: DataLike,
    number: int,
    first: int,
    weights: NDArray[np.int64] | None,
    sample_rows: NDArray[np.int64] | None,
    categorical_features: DataLike,
    feature_names: Sequence[str] | None = None,
    n_threads: int = 1,
) -> PartitionSummary:
    """Summarise one partition.

    Raises a ValueError for invalid features; the message names the partition.

    `X`: rows of the partition. `number`: number of the partition. `first`: index of its first row
    among all rows. `weights` (n_rows,), int64: weights of its rows, from `quantise_weights` of all
    rows. `sample_rows` (int64): rows of the partition that thresholds are chosen from; None: all.
    `feature_names`: names of columns of an array.
    """
    try:
        table = read_features(
            X,
            categorical_features=categorical_features,
            feature_names=feature_names,
            n_threads=n_threads,
            whole=False,
        )
    except (ValueError, TypeError) as error:
        raise type(error)(f"Partition {number}: {error}") from error
    categories, totals = {}, {}
    for column in table.categories:
        categories[column.feature] = CategorySummary()
        categories[column.feature].add(column, first, keep_rows=False)
        totals[column.feature] = sum_category_weights(column, weights)
    rows = np.arange(table.n_rows) if sample_rows is None else sample_rows
    sample = take_rows(table.dense, rows)
    sparse = take_sparse_rows(table.sparse, rows, table.n_rows)
    spec, has_numbers = summarise_features(table)
    texts = set(table.texts)
    sample_weights = None if weights is None else weights[rows]
    return PartitionSummary(
        number,
        spec,
        has_numbers,
        categories,
        totals,
        texts,
        sample,
        sparse,
        sample_weights,
        len(rows),
    )


def merge_summaries(
    summaries: Sequence[PartitionSummary], mapper: BinMapper, n_threads: int = 1
) -> BinMapper:
    """Fit the mapper to all rows.

    Raises a ValueError if partitions differ in names, numbers or kinds of columns; the message
    names one.

    `summaries`: in the order of their rows. `mapper`: mapper to fit.
    """
    mapper.check_params()
    merged = _MergedSummary(None, mapper.draw_seed)
    totals: dict[int, NDArray[np.float64]] = {}
    for summary in summaries:
        merged.add_features(summary.spec, summary.has_numbers, f"Partition {summary.number}")
        merged.texts |= summary.texts
        for feature, later in summary.categories.items():
            known = merged.categories.setdefault(feature, CategorySummary())
            codes = known.extend(later)
            sums = np.zeros(len(known.codes))
            before = totals.get(feature, np.empty(0))
            sums[: len(before)] = before
            sums[codes] += summary.totals[feature]
            totals[feature] = sums
    merged.check_text_columns()
    assert merged.spec is not None
    counted = {
        feature: (list(summary.codes), totals[feature])
        for feature, summary in merged.categories.items()
    }
    parts = [summary.sample for summary in summaries]
    sizes = [summary.n_rows for summary in summaries]
    sample = stack_blocks(parts, sizes, merged.spec, _stack_sparse(summaries))
    parts_of_weights = [s.weights for s in summaries if s.weights is not None]
    weights = np.concatenate(parts_of_weights) if parts_of_weights else None
    return mapper.fit_from_summary(merged.spec, sample, weights, counted, n_threads)


def find_rare_features(summaries: Sequence[PartitionSummary]) -> NDArray[np.int64]:
    """Return the features of which few rows are stored, ascending: all partitions bin them as
    sparse columns."""
    if not len(summaries[0].sparse[1]):
        return np.empty(0, np.int64)
    stored = sum(np.diff(summary.sparse[0].tocsc().indptr) for summary in summaries)
    n_rows = sum(summary.n_rows for summary in summaries)
    return np.sort(summaries[0].sparse[1][stored <= SPARSE_SHARE * n_rows])


def _stack_sparse(summaries: Sequence[PartitionSummary]) -> SparseBlock | None:
    """Return the sparse features of the rows that thresholds are chosen from."""
    parts = [(matrix, features.tolist()) for matrix, features in (s.sparse for s in summaries)]
    for summary, (_, features) in zip(summaries, parts, strict=True):
        if features != parts[0][1]:
            raise ValueError(
                f"Partition {summary.number}: columns of X are sparse in some partitions and dense "
                "in others: convert them alike."
            )
    if not parts[0][1]:
        return None
    matrix = scipy.sparse.vstack([matrix for matrix, _ in parts], format="csc")
    return to_sparse_block(matrix, summaries[0].sparse[1])


class _MergedSummary(DataSummary):
    part_name = "partitions"
