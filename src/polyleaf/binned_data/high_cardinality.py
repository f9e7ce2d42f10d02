"""High-cardinality categorical features and the columns that replace them.

A feature of more than 255 categories does not fit in one byte. `DerivedColumns` replaces it by
numeric columns of target statistics, which `target_encoding` learns.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from polyleaf.runtime.checks import require_bins
from polyleaf.runtime.user_warnings import warn_user
from polyleaf.user_data.feature_table import (
    CATEGORY_TYPES,
    CategoryColumn,
    DenseBlock,
    FeatureTable,
)

if TYPE_CHECKING:
    from polyleaf.runtime.types import JsonObject

Category = str | bool | int | float

# Shares of unknown values from which predictions warn; among many categories some are always new.
_SHARE_OF_WARNING, _SHARE_OF_MANY = 0.1, 0.5
_MIN_ROWS_OF_WARNING, _MANY_CATEGORIES = 5, 255


@dataclass(frozen=True)
class HighCardinalityFeature:
    """A high-cardinality feature and the columns that replace it."""

    feature: int  # index of the feature in X
    categories: tuple[Category, ...]  # all training categories, sorted by `category_key`
    labels: tuple[str, ...]  # descriptions of the statistics, of which each is a column
    # (n_categories, n_statistics), statistics of each category; unseen categories have 0
    values: NDArray[np.float32]
    # Whether the training data had missing values. If not, they count as unseen categories.
    missing_seen: bool = True

    @property
    def is_informative(self) -> bool:
        """Whether its columns can differ between rows."""
        return bool(self.missing_seen or self.values.any())

    @property
    def n_columns(self) -> int:
        return len(self.labels)

    def lookup_statistics(self, column: CategoryColumn) -> NDArray[np.float32]:
        """Return the statistics of rows: NaN for missing values, 0 for unseen categories."""
        unseen = len(self.categories)
        codes = [self.codes.get(category, unseen) for category in column.categories]
        positions = np.array([*codes, unseen + 1], np.int64)  # the last is for missing values
        return self._lookup[positions[column.index]]

    @cached_property
    def codes(self) -> dict[Category, int]:
        """Position of each category."""
        return dict(zip(self.categories, range(len(self.categories)), strict=True))

    @cached_property
    def _lookup(self) -> NDArray[np.float32]:
        """`values`, followed by the statistics of unseen and of missing categories."""
        row = np.ones((1, len(self.labels)), np.float32)
        return np.concatenate([self.values, row * 0, row * (np.nan if self.missing_seen else 0)])

    def __getstate__(self) -> dict[str, object]:
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def equals(self, other: HighCardinalityFeature) -> bool:
        """Whether both give the same columns for every table."""
        plain = ("feature", "categories", "labels", "missing_seen")
        is_equal = all(getattr(self, name) == getattr(other, name) for name in plain)
        return is_equal and np.array_equal(self.values, other.values)


@dataclass(frozen=True)
class DerivedColumns:
    """The columns of a table after its high-cardinality features are replaced.

    The first column of a feature has its index; further ones follow the features of X, with the
    columns of a feature side by side.
    """

    n_features: int  # number of features of X
    features: tuple[HighCardinalityFeature, ...]  # the replaced features, ascending

    @property
    def n_columns(self) -> int:
        """Number of columns after the replacement."""
        return self.n_features + sum(feature.n_columns - 1 for feature in self.features)

    def iter_columns(self) -> Iterator[tuple[HighCardinalityFeature, NDArray[np.int64]]]:
        """Yield each replaced feature with the indices of its columns."""
        begin = self.n_features
        for feature in self.features:
            end = begin + feature.n_columns - 1
            yield feature, np.array([feature.feature, *range(begin, end)])
            begin = end

    def column_to_feature(self) -> NDArray[np.int64]:
        """Return the feature of X of each column, (n_columns,)."""
        features = np.arange(self.n_columns)
        for feature, columns in self.iter_columns():
            features[columns] = feature.feature
        return features

    def names(self, feature_names: Sequence[str] | None) -> tuple[str, ...]:
        """Return the names of all columns: the feature, and for derived ones their content."""
        known = [f"f{f}" for f in range(self.n_features)]
        known = known if feature_names is None else list(feature_names)
        names = known + [""] * (self.n_columns - self.n_features)
        for feature, columns in self.iter_columns():
            for column, name in zip(columns.tolist(), feature.labels, strict=True):
                names[column] = f"{known[feature.feature]}: {name}"
        return tuple(names)

    def expand(
        self, table: FeatureTable, statistics: Mapping[int, NDArray[np.float32]] | None = None
    ) -> FeatureTable:
        """Replace the high-cardinality features of a table by derived columns.

        `statistics` (n_rows, n_statistics): statistics of the rows, where they differ from those of
        new rows: training rows.
        """
        replaced = {feature.feature for feature in self.features}
        column_of = {column.feature: column for column in table.categories}
        dense = list(table.dense)
        categories = [c for c in table.categories if c.feature not in replaced]
        for feature, positions in self.iter_columns():
            column = column_of[feature.feature]
            values = (
                feature.lookup_statistics(column)
                if statistics is None
                else statistics[feature.feature]
            )
            dense.append(DenseBlock(values, positions))
        names = None if table.feature_names is None else self.names(table.feature_names)
        return FeatureTable(table.n_rows, self.n_columns, names, dense, table.sparse, categories)

    def equals(self, other: DerivedColumns | None) -> bool:
        """Whether both give the same columns for every table."""
        return (
            other is not None
            and self.n_features == other.n_features
            and len(self.features) == len(other.features)
            and all(a.equals(b) for a, b in zip(self.features, other.features, strict=True))
        )

    # ---- saved form

    def to_state(self) -> tuple[list[JsonObject], dict[str, np.ndarray]]:
        """Return a list that JSON can hold, and arrays by name."""
        plain = [
            {
                "feature": feature.feature,
                "categories": list(feature.categories),
                "labels": list(feature.labels),
                "missing_seen": feature.missing_seen,
            }
            for feature in self.features
        ]
        arrays = {
            f"derived_columns.{i}.values": feature.values for i, feature in enumerate(self.features)
        }
        return plain, arrays

    @classmethod
    def from_state(
        cls, plain: list[JsonObject], arrays: Mapping[str, np.ndarray], n_features: int
    ) -> DerivedColumns:
        """Invert `to_state`, for untrusted files.

        Raises a ValueError if they do not describe derived columns.
        """
        require_bins(isinstance(plain, list) and len(plain) > 0, "names no feature")
        features = tuple(
            _read_feature(entry, arrays.get(f"derived_columns.{i}.values"), n_features)
            for i, entry in enumerate(plain)
        )
        indices = [feature.feature for feature in features]
        require_bins(sorted(set(indices)) == indices, "has features that do not ascend")
        return cls(n_features, features)


def category_key(category: Category) -> tuple[bool, Category]:
    """Return a sort key that orders numbers before text."""
    return isinstance(category, str), category


def is_category(value: object) -> bool:
    """Whether a value is a valid category."""
    return isinstance(value, CATEGORY_TYPES) and not (
        isinstance(value, float) and not np.isfinite(value)
    )


def check_unseen_categories(
    known: Mapping[Category, object], column: CategoryColumn, name: str
) -> None:
    """Warn if many values of a column are unknown; raise if only their type differs.

    Raises a ValueError if all categories were text and are numbers now or the reverse, or if a
    category that training did not see is a known one in the other type, such as 1 and "1".
    """
    is_unseen = np.array([category not in known for category in column.categories], bool)
    if not is_unseen.any() or not known:
        return
    counts = np.bincount(column.index[column.index >= 0], minlength=len(is_unseen))
    unseen = np.flatnonzero(is_unseen & (counts > 0)).tolist()
    examples = [column.categories[i] for i in unseen]
    words = {True: "text", False: "numbers"}
    was_text = {isinstance(category, str) for category in known}
    is_text = {isinstance(category, str) for category in examples}
    is_all = len(unseen) == np.count_nonzero(counts) > 0
    wrong = [c for c in examples if _convert_type(c) in known]
    if wrong or (is_all and not was_text & is_text):
        now = isinstance(wrong[0] if wrong else examples[0], str)
        raise ValueError(
            f"The categories of column {name} of X were {words[not now]} when the model was "
            f"fitted and are {words[now]} now: convert the column."
        )
    n_rows, n_unseen = int(counts.sum()), int(counts[unseen].sum())
    least = _SHARE_OF_MANY if len(known) > _MANY_CATEGORIES else _SHARE_OF_WARNING
    if n_rows >= _MIN_ROWS_OF_WARNING and n_unseen >= max(2, least * n_rows):
        share = "All" if n_unseen == n_rows else f"{n_unseen} of {n_rows}"
        warn_user(
            f"{share} values of column {name} of X are categories that the training data did not "
            f"have, such as {examples[0]!r}: the model cannot use them."
        )


def _convert_type(category: Category) -> Category | None:
    """Return a number as text, or text as a number; None for other text."""
    if not isinstance(category, str):
        return str(category)
    try:
        number = float(category)
    except ValueError:
        return None
    return int(number) if number.is_integer() else number


def _read_feature(entry: JsonObject, values: Any, n_features: int) -> HighCardinalityFeature:
    names = {"feature", "categories", "labels", "missing_seen"}
    require_bins(isinstance(entry, Mapping) and set(entry) == names, "has a malformed feature")
    feature, categories, labels = entry["feature"], entry["categories"], entry["labels"]
    is_valid = type(feature) is int and 0 <= feature < n_features
    require_bins(is_valid, "has a feature that does not exist")
    require_bins(type(entry["missing_seen"]) is bool, "has no flag for missing values")
    is_valid = isinstance(categories, list) and all(map(is_category, categories))
    require_bins(is_valid and len(set(categories)) == len(categories), "has invalid categories")
    is_valid = isinstance(labels, list) and all(isinstance(label, str) for label in labels)
    require_bins(is_valid and 0 < len(labels) < 2**16, "has invalid labels")
    is_valid = isinstance(values, np.ndarray) and values.dtype == np.float32
    is_valid = is_valid and values.shape == (len(categories), len(labels))
    require_bins(is_valid and bool(np.isfinite(values).all()), "has invalid statistics")
    values = np.ascontiguousarray(values)
    return HighCardinalityFeature(
        feature, tuple(categories), tuple(labels), values, entry["missing_seen"]
    )


def sum_category_weights(
    column: CategoryColumn, weights: NDArray[np.int64] | None
) -> NDArray[np.float64]:
    """Return the total weight of the rows of each category; integers up to 2^53."""
    totals = np.bincount(
        column.index + 1,  # missing values come first
        weights=None if weights is None else weights.astype(np.float64),
        minlength=len(column.categories) + 1,
    )
    return totals[1:].astype(np.float64)


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
