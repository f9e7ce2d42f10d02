"""Which categories of a feature get bins of their own, and which share one or form groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from polyleaf.data.high_cardinality import Category, category_key
from polyleaf.inputs.feature_table import CategoryColumn

__all__ = ["choose_categories", "split_into_groups", "sum_category_weights", "take_each_type"]


def sum_category_weights(
    column: CategoryColumn, weights: NDArray[np.int64] | None
) -> NDArray[np.float64]:
    """Return the total weight of the rows of each category; integers up to 2^53."""
    present = column.index >= 0
    return np.bincount(
        column.index[present],
        weights=None if weights is None else weights[present].astype(np.float64),
        minlength=len(column.categories),
    ).astype(np.float64)


def choose_categories(
    categories: Sequence[Category], totals: NDArray[np.float64], max_bins: int
) -> tuple[list[Category], list[Category]]:
    """Return the categories with their own bin, and those that share the last; both sorted."""
    pairs = zip(categories, totals.tolist(), strict=True)
    ordered = sorted(pairs, key=lambda pair: category_key(pair[0]))
    present = [(category, total) for category, total in ordered if total > 0]
    if len(present) <= max_bins:
        return [category for category, _ in present], []
    by_weight = sorted(range(len(present)), key=lambda i: (-present[i][1], i))
    kept = set(by_weight[: max_bins - 1])
    return (
        [category for i, (category, _) in enumerate(present) if i in kept],
        [category for i, (category, _) in enumerate(present) if i not in kept],
    )


def take_each_type(categories: Sequence[Category]) -> list[Category]:
    """Return one text and one number of the categories, as far as there are any."""
    return [
        next(category for category in categories if isinstance(category, str) == is_text)
        for is_text in {isinstance(category, str) for category in categories}
    ]


def split_into_groups(
    columns: Mapping[int, CategoryColumn],
    groups: list[int],
    weights: NDArray[np.int64] | None,
    max_bins: int,
) -> list[list[Category]]:
    """Split the categories of a feature into one group per column, the most frequent first."""
    if not groups:
        return []
    column = columns[groups[0]]
    totals = sum_category_weights(column, weights)
    present = [i for i in np.flatnonzero(totals > 0).tolist()]
    present.sort(key=lambda i: (-totals[i], category_key(column.categories[i])))
    size = min(max_bins, -(-len(present) // len(groups)))
    parts = [present[begin * size : (begin + 1) * size] for begin in range(len(groups))]
    return [sorted((column.categories[i] for i in part), key=category_key) for part in parts]
