"""Categories: their order and types, and the columns that a feature of very many of them becomes.

A feature of more than 255 categories has no room in one byte. `DerivedColumns` puts numbers in its place: what
the target was, on average, in each category (`category_statistics` learns them), and where the categories say
nearly everything also the categories themselves, spread over several columns.

Owns: which columns are made of which feature, and how those of any table are looked up. Must not know: how
the numbers are learned, bins, trees.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyleaf.inputs.features import CATEGORY_TYPES, CategoryColumn, DenseBlock, FeatureTable

__all__ = [
    "Category",
    "DerivedColumns",
    "HighCardinalityFeature",
    "category_key",
    "check_category_types",
    "is_category",
]

Category = str | bool | int | float

_ARRAYS = ("values", "statistic", "lower", "upper")


@dataclass(frozen=True)
class HighCardinalityFeature:
    """A feature of very many categories, and the columns that stand for it.

    Attributes
    ----------
    feature : int
        Which one of X it is.
    categories : tuple
        All that training has seen, sorted by `category_key`.
    labels : tuple of str
        What its statistics are, in words.
    values : ndarray of shape (n_categories, n_statistics), float32
        The statistics of each category. 0 is what a category is worth of which nothing is known.
    statistic : ndarray of shape (n_numeric,), int32
        The numeric columns: each is one of the statistics,
    lower, upper : ndarray of shape (n_numeric,), float32
        cut off here: columns of one statistic share out its range, so that each has all bins for a part.
    n_groups : int
        Categorical columns that follow: each knows some of the categories, and the mapper which.
    missing_seen : bool
        Whether training saw missing values. If not, a missing value is worth what an unknown category is.
    """

    feature: int
    categories: tuple[Category, ...]
    labels: tuple[str, ...]
    values: NDArray[np.float32]
    statistic: NDArray[np.int32]
    lower: NDArray[np.float32]
    upper: NDArray[np.float32]
    n_groups: int
    missing_seen: bool = True

    @property
    def is_informative(self) -> bool:
        """Whether its columns can tell rows apart."""
        return bool(self.n_groups > 0 or self.missing_seen or self.values.any())

    @property
    def n_numeric(self) -> int:
        return len(self.statistic)

    @property
    def n_columns(self) -> int:
        return self.n_numeric + self.n_groups

    def numbers(self, statistics: NDArray[np.float32]) -> NDArray[np.float32]:
        """The numeric columns of rows (n, n_numeric), from their statistics (n, n_statistics)."""
        return np.clip(statistics[:, self.statistic], self.lower, self.upper)

    def lookup_statistics(self, column: CategoryColumn) -> NDArray[np.float32]:
        """Statistics of the rows of a table: NaN where missing, 0 for what was never seen."""
        unseen = len(self.categories)
        place = np.array(
            [self._place.get(c, unseen) for c in column.categories] + [unseen + 1], np.int64
        )
        return self._lookup[place[column.index]]

    @cached_property
    def _place(self) -> dict[Category, int]:
        return dict(zip(self.categories, range(len(self.categories)), strict=True))

    @cached_property
    def _lookup(self) -> NDArray[np.float32]:
        """`values`, and behind them what unseen and missing categories have."""
        row = np.ones((1, len(self.labels)), np.float32)
        return np.concatenate([self.values, row * 0, row * (np.nan if self.missing_seen else 0)])

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if not name.startswith("_")}

    def names(self) -> Iterator[str]:
        """Of its columns, without that of the feature."""
        parts = np.bincount(self.statistic, minlength=len(self.labels)).tolist()
        seen = [0] * len(self.labels)
        for statistic in self.statistic.tolist():
            seen[statistic] += 1
            part = (
                f" (part {seen[statistic]} of {parts[statistic]})" if parts[statistic] > 1 else ""
            )
            yield self.labels[statistic] + part
        yield from (f"group {group + 1}" for group in range(self.n_groups))

    def equals(self, other: HighCardinalityFeature) -> bool:
        """Whether both make the same of every table."""
        plain = ("feature", "categories", "labels", "n_groups", "missing_seen")
        return all(getattr(self, name) == getattr(other, name) for name in plain) and all(
            np.array_equal(getattr(self, name), getattr(other, name)) for name in _ARRAYS
        )


@dataclass(frozen=True)
class DerivedColumns:
    """The columns of a table once its features of very many categories are replaced.

    A column in place of such a feature has its number; further ones follow the features of X, those of one
    feature side by side.

    Attributes
    ----------
    n_features : int
        Of X.
    wide : tuple of HighCardinalityFeature
        By feature.
    """

    n_features: int
    wide: tuple[HighCardinalityFeature, ...]

    @property
    def n_columns(self) -> int:
        """Features of X and the columns made besides."""
        return self.n_features + sum(w.n_columns - 1 for w in self.wide)

    def places(self) -> Iterator[tuple[HighCardinalityFeature, NDArray[np.int64]]]:
        """Each wide feature with the numbers of its columns, numeric ones first."""
        begin = self.n_features
        for wide in self.wide:
            end = begin + wide.n_columns - 1
            yield wide, np.array([wide.feature, *range(begin, end)])
            begin = end

    def source(self) -> NDArray[np.int64]:
        """The feature of X that each column comes from, (n_columns,)."""
        source = np.arange(self.n_columns)
        for wide, columns in self.places():
            source[columns] = wide.feature
        return source

    def names(self, features: Sequence[str] | None) -> tuple[str, ...]:
        """Names of all columns: those of the features, and for what was made also what it is."""
        known = [f"f{f}" for f in range(self.n_features)] if features is None else list(features)
        names = known + [""] * (self.n_columns - self.n_features)
        for wide, columns in self.places():
            for column, name in zip(columns.tolist(), wide.names(), strict=True):
                names[column] = f"{known[wide.feature]}: {name}"
        return tuple(names)

    def expand(
        self, table: FeatureTable, statistics: Mapping[int, NDArray[np.float32]] | None = None
    ) -> FeatureTable:
        """A table with the made columns in place of wide features.

        Parameters
        ----------
        table : FeatureTable
            With the features of X.
        statistics : mapping from feature to ndarray (n_rows, n_statistics), optional
            What its rows are to see, where that is not what every table sees: training rows.
        """
        column_of = {column.feature: column for column in table.categories}
        dense, categories = (
            list(table.dense),
            [c for c in table.categories if c.feature not in self._features],
        )
        for wide, places in self.places():
            column = column_of[wide.feature]
            seen = (
                wide.lookup_statistics(column) if statistics is None else statistics[wide.feature]
            )
            dense.append(DenseBlock(wide.numbers(seen), places[: wide.n_numeric]))
            categories += [
                replace(column, feature=int(place)) for place in places[wide.n_numeric :]
            ]
        names = None if table.feature_names is None else self.names(table.feature_names)
        return FeatureTable(table.n_rows, self.n_columns, names, dense, table.sparse, categories)

    @property
    def _features(self) -> set[int]:
        return {wide.feature for wide in self.wide}

    def equals(self, other: DerivedColumns | None) -> bool:
        """Whether both make the same of every table."""
        return (
            other is not None
            and self.n_features == other.n_features
            and len(self.wide) == len(other.wide)
            and all(a.equals(b) for a, b in zip(self.wide, other.wide, strict=True))
        )

    # ---- saved form

    def to_state(self) -> tuple[list[dict[str, Any]], dict[str, NDArray[Any]]]:
        """What JSON holds of it, and arrays by name."""
        plain = [
            {
                "feature": wide.feature,
                "categories": list(wide.categories),
                "labels": list(wide.labels),
                "n_groups": wide.n_groups,
                "missing_seen": wide.missing_seen,
            }
            for wide in self.wide
        ]
        arrays = {
            f"made.{i}.{name}": np.asarray(getattr(wide, name))
            for i, wide in enumerate(self.wide)
            for name in _ARRAYS
        }
        return plain, arrays

    @classmethod
    def from_state(
        cls, plain: Any, arrays: Mapping[str, NDArray[Any]], n_features: int
    ) -> DerivedColumns:
        """The inverse of `to_state`; a ValueError where they describe no such columns."""
        _require(isinstance(plain, list) and len(plain) > 0, "names no feature")
        wide = tuple(
            _read_wide(entry, arrays, f"made.{i}.", n_features) for i, entry in enumerate(plain)
        )
        features = [w.feature for w in wide]
        _require(sorted(set(features)) == features, "has features that do not ascend")
        return cls(n_features, wide)


def category_key(category: Category) -> tuple[bool, Category]:
    """Sorts numbers before text."""
    return isinstance(category, str), category


def is_category(value: Any) -> bool:
    """Whether a category can have this value."""
    return isinstance(value, CATEGORY_TYPES) and not (
        isinstance(value, float) and not np.isfinite(value)
    )


def check_category_types(known: Sequence[Category], column: CategoryColumn, name: str) -> None:
    """Refuse a column of which no category is known, if that is because text became numbers or vice versa."""
    was_text = {isinstance(c, str) for c in known}
    is_text = {isinstance(c, str) for c in column.categories}
    if was_text and is_text and not was_text & is_text:
        words = {True: "text", False: "numbers"}
        raise ValueError(
            f"The categories of column {name} of X were {words[was_text.pop()]} when the model was fitted "
            f"and are {words[is_text.pop()]} now; convert the column."
        )


def _require(condition: bool, problem: str) -> None:
    if not condition:
        raise ValueError(f"The columns made of categories cannot be read: the file {problem}.")


def _read_wide(
    entry: Any, arrays: Mapping[str, Any], prefix: str, n_features: int
) -> HighCardinalityFeature:
    names = "feature", "categories", "labels", "n_groups", "missing_seen"
    _require(isinstance(entry, Mapping), "has a malformed feature")
    entry = {"missing_seen": True} | dict(entry)  # files had no such entry once
    _require(set(entry) == set(names), "has a malformed feature")
    feature, categories, labels, n_groups, missing_seen = (entry[name] for name in names)
    _require(
        type(feature) is int and 0 <= feature < n_features, "has a feature that does not exist"
    )
    _require(type(n_groups) is int and 0 <= n_groups < 2**16, "has a wrong number of groups")
    _require(type(missing_seen) is bool, "does not say whether values were missing")
    _require(
        isinstance(categories, list) and all(map(is_category, categories)), "has bad categories"
    )
    _require(len(set(categories)) == len(categories), "repeats a category")
    _require(
        isinstance(labels, list) and all(isinstance(label, str) for label in labels),
        "has bad labels",
    )
    found = [arrays.get(prefix + name) for name in _ARRAYS]
    types = (np.float32, np.int32, np.float32, np.float32)
    _require(
        all(isinstance(a, np.ndarray) and a.dtype == t for a, t in zip(found, types, strict=True)),
        "lacks an array",
    )
    values, statistic, lower, upper = (np.ascontiguousarray(array) for array in found)
    shape = len(categories), len(labels)
    _require(
        values.shape == shape and bool(np.isfinite(values).all()), "has values that do not fit"
    )
    _require(
        statistic.ndim == 1 and statistic.shape == lower.shape == upper.shape, "has uneven columns"
    )
    _require(0 < len(statistic) < 2**16, "has no column, or too many, for a feature")
    _require(
        bool(np.all((statistic >= 0) & (statistic < len(labels)))), "has a column of no statistic"
    )
    _require(bool(np.all(lower <= upper)), "has bounds that do not ascend")
    columns = statistic, lower, upper
    return HighCardinalityFeature(
        feature, tuple(categories), tuple(labels), values, *columns, n_groups, missing_seen
    )
