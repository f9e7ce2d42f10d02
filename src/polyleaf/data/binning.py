"""`BinMapper`: features -> uint8 codes (what a code means: docs/development/arithmetic.md.

Owns: thresholds, categories and their numbering, the sample they are chosen from, their saved form. Must not
know: how X was read, trees. The work is done in ``cpp/data/binning.cpp``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_random_state

import polyleaf._core as _core
from polyleaf.data.binned import Cells, Codes, DeviceCodes, empty_codes
from polyleaf.data.high_cardinality import (
    Category,
    DerivedColumns,
    category_key,
    check_category_types,
    is_category,
)
from polyleaf.data.random import BINNED_ROWS, draw
from polyleaf.inputs.features import (
    CategoryColumn,
    FeatureSpec,
    FeatureTable,
    SparseBlock,
    SparseRows,
)

MISSING_CODE = 255
_DERIVED = ("_bin_table", "_code_of", "_types_of_made")
MAX_BINS = 255
# Of the rows; a column of a sparse matrix that stores no more is held sparse.
SPARSE_SHARE = 0.05


class BinMapper:
    """Cuts features into at most 255 bins, and turns tables into codes.

    A numeric feature with at most ``max_bins`` distinct values gets one bin for each; otherwise the bins are
    weighted quantiles, where a value heavier than a bin's share has a bin of its own. Values are compared as
    float32, so float32 and float64 input of the same data give the same bins; a feature of which float32
    would merge more than a quarter of the distinct values (timestamps, large ids), or whose values exceed its
    range, is compared as float64 (``float64_bins_``). Integers are taken as float64: above 2^53 neighbours fall
    together.

    A categorical feature has a bin for each category. With more than ``max_bins`` of them, the most frequent
    (by weight) keep theirs and all others share the last bin, "rare". Categories that were never seen, like
    NaN, are missing. A feature of more than 255 categories gets columns in its place once a target is known
    (`with_derived_columns`); then what is said of features below, except in ``spec_``, holds for columns.

    Parameters
    ----------
    max_bins : int, default 255
        Bins per feature besides the one for missing values; from 2 to 255.
    subsample : int or None, default 200000
        Thresholds are chosen from this many rows, drawn without replacement, where there are more; None: from
        all. Categories are always counted on all rows.
    random_state : int, RandomState or None, default 0
        For the draw.

    Attributes
    ----------
    spec_ : FeatureSpec
        Number, names and kinds of the features.
    n_bins_ : ndarray of uint16, shape (n_features,)
        Bins in use, at least 1, not counting missing.
    thresholds_ : list of ndarray of float64
        Ascending; a value x has as code the number of thresholds t with x > t. Empty for a categorical
        feature.
    categories_ : list
        Per feature None (numeric), or the categories that have a bin of their own, in order of code.
    rare_categories_ : list
        Per feature None, or the categories that share the last bin; mostly empty.
    float64_bins_ : ndarray of bool, shape (n_features,)
    derived_columns_ : DerivedColumns or None
        What stands in place of features of very many categories.
    """

    spec_: FeatureSpec
    n_bins_: NDArray[np.uint16]
    thresholds_: list[NDArray[np.float64]]
    categories_: list[list[Category] | None]
    rare_categories_: list[list[Category] | None]
    float64_bins_: NDArray[np.bool_]
    derived_columns_: DerivedColumns | None

    def __init__(
        self, max_bins: int = MAX_BINS, *, subsample: int | None = 200_000, random_state: Any = 0
    ) -> None:
        self.max_bins = max_bins
        self.subsample = subsample
        self.random_state = random_state

    @property
    def n_features_(self) -> int:
        """Number of features of X."""
        return self.spec_.n_features

    @property
    def n_columns_(self) -> int:
        """Number of columns that have codes: the features, and what was made of them besides."""
        return len(self.n_bins_)

    @property
    def feature_names_(self) -> tuple[str, ...] | None:
        """Names of the features of X, or None."""
        return self.spec_.feature_names

    @property
    def column_names_(self) -> tuple[str, ...] | None:
        """Names of the columns, or None where features have none and nothing is made of them."""
        return (
            self.feature_names_
            if self.derived_columns_ is None
            else self.derived_columns_.names(self.feature_names_)
        )

    @property
    def column_to_feature_(self) -> NDArray[np.int64]:
        """The feature of X that each column comes from, (n_columns,)."""
        return (
            np.arange(self.n_features_)
            if self.derived_columns_ is None
            else self.derived_columns_.source()
        )

    def sum_by_feature(self, of_columns: NDArray[Any]) -> NDArray[Any]:
        """Numbers that belong to the features of X, (..., n_features), from those of its columns,
        `of_columns` (..., n_columns): their sums."""
        if self.derived_columns_ is None:
            return of_columns
        total = np.zeros((*of_columns.shape[:-1], self.n_features_), of_columns.dtype)
        for column, feature in enumerate(self.column_to_feature_.tolist()):
            total[..., feature] += of_columns[..., column]
        return total

    @property
    def is_categorical_(self) -> NDArray[np.bool_]:
        """Whether columns are split by sets of categories, bool (n_columns,)."""
        return np.array([kept is not None for kept in self.categories_])

    @property
    def informative_columns_(self) -> NDArray[np.bool_]:
        """Columns that can tell rows apart, bool (n_columns,): all but those made of categories that say
        nothing."""
        telling = np.ones(self.n_columns_, bool)
        for wide, columns in (
            self.derived_columns_.places() if self.derived_columns_ is not None else ()
        ):
            telling[columns] = wide.is_informative
        return telling

    @property
    def high_cardinality_features_(self) -> list[int]:
        """Features of more categories than fit in one byte."""
        if self.derived_columns_ is not None:
            return [wide.feature for wide in self.derived_columns_.wide]
        pairs = zip(self.categories_, self.rare_categories_, strict=True)
        return [
            f
            for f, (kept, rare) in enumerate(pairs)
            if kept and rare and len(kept + rare) > MAX_BINS
        ]

    # ---- fit and transform

    def fit(
        self, table: FeatureTable, sample_weight: ArrayLike | None = None, n_threads: int = 1
    ) -> BinMapper:
        """Choose thresholds and categories.

        Parameters
        ----------
        table : FeatureTable
        sample_weight : array-like of shape (n_rows,) or (n_rows, n_outputs), optional
            Finite and not negative; per output, a row counts with the sum. A row of weight 0 counts as
            absent, an integer weight as that many rows.
        n_threads : int
            Any number gives the same result.
        """
        self.check()
        weights = None if sample_weight is None else quantise_weights(sample_weight, table.n_rows)
        thresholds, wide = self._find_thresholds(table, weights, n_threads)
        counted = {
            c.feature: (c.categories, sum_category_weights(c, weights)) for c in table.categories
        }
        spec = FeatureSpec(table.n_features, table.feature_names, table.is_categorical)
        self._set_found(spec, thresholds, wide, counted)
        return self

    def fit_from_summary(
        self,
        spec: FeatureSpec,
        sample: FeatureTable,
        weights: NDArray[np.int64] | None,
        counted: Mapping[int, tuple[Sequence[Category], NDArray[np.float64]]],
        n_threads: int = 1,
    ) -> BinMapper:
        """What `fit` chooses, from what was found in rows that are gone.

        Parameters
        ----------
        spec : FeatureSpec
        sample : FeatureTable
            The numbers of the rows that `fit` would draw, or of all of positive weight where there are few.
        weights : ndarray of int64, or None
            Theirs, of `quantise_weights` of all rows.
        counted : mapping of int to (categories, totals)
            Of each categorical feature, on all rows: see `sum_category_weights`.
        n_threads : int
        """
        thresholds, wide = _core.find_thresholds(
            *_numeric_blocks(sample),
            sample.n_rows,
            sample.n_features,
            None,
            weights,
            self.max_bins,
            n_threads,
        )
        self._set_found(spec, thresholds, wide, counted)
        return self

    def check(self) -> None:
        """Refuse parameters that mean nothing."""
        if not isinstance(self.max_bins, int | np.integer) or not 2 <= self.max_bins <= MAX_BINS:
            raise ValueError(
                f"max_bins must be an integer from 2 to {MAX_BINS}, got {self.max_bins!r}."
            )
        if self.subsample is not None and self.subsample < 1:
            raise ValueError(
                f"subsample must be a positive number of rows or None, got {self.subsample!r}."
            )

    def _set_found(
        self,
        spec: FeatureSpec,
        thresholds: list[NDArray[np.float64]],
        wide: NDArray[np.bool_],
        counted: Mapping[int, tuple[Sequence[Category], NDArray[np.float64]]],
    ) -> None:
        categories: list[list[Category] | None] = [None] * spec.n_features
        rare: list[list[Category] | None] = [None] * spec.n_features
        for feature, (known, totals) in counted.items():
            categories[feature], rare[feature] = _choose_categories(known, totals, self.max_bins)
        self._set_state(spec, thresholds, wide, categories, rare, None)

    def _find_thresholds(
        self, table: FeatureTable, weights: NDArray[np.int64] | None, n_threads: int
    ) -> tuple[list[NDArray[np.float64]], NDArray[np.bool_]]:
        rows = self.sample_rows(table.n_rows, weights)
        if weights is not None and rows is not None:
            weights = weights[rows]
        if table.device_array is not None:  # only these leave it
            table, rows = table.sample(rows), None
        thresholds, wide = _core.find_thresholds(
            *_numeric_blocks(table),
            table.n_rows,
            table.n_features,
            rows,
            weights,
            self.max_bins,
            n_threads,
        )
        return thresholds, wide

    def with_derived_columns(
        self,
        made: DerivedColumns,
        training: FeatureTable,
        sample_weight: ArrayLike | None = None,
        n_threads: int = 1,
    ) -> BinMapper:
        """A mapper that has made columns in place of features of very many categories.

        Parameters
        ----------
        made : DerivedColumns
        training : FeatureTable
            What it makes of training rows; only these columns are read.
        sample_weight, n_threads
            As those of `fit`.
        """
        weights = (
            None if sample_weight is None else quantise_weights(sample_weight, training.n_rows)
        )
        found, found_wide = self._find_thresholds(training, weights, n_threads)
        further = made.n_columns - made.n_features
        thresholds = self.thresholds_ + [np.empty(0)] * further
        wide = np.append(self.float64_bins_, np.zeros(further, bool))
        categories = self.categories_ + [None] * further
        rare: list[list[Category] | None] = self.rare_categories_ + [None] * further
        group_of = {column.feature: column for column in training.categories}
        for feature, columns in made.places():
            for column in columns.tolist():
                thresholds[column], wide[column] = found[column], found_wide[column]
                categories[column] = rare[column] = None
            groups = columns[feature.n_numeric :].tolist()
            for column, group in zip(
                groups, _groups(group_of, groups, weights, self.max_bins), strict=True
            ):
                categories[column], rare[column] = group, []
        mapper = BinMapper(self.max_bins, subsample=self.subsample, random_state=self.random_state)
        mapper._set_state(self.spec_, thresholds, wide, categories, rare, made)
        return mapper

    def transform(
        self,
        table: FeatureTable,
        n_threads: int = 1,
        only: NDArray[np.bool_] | None = None,
        compact: bool = False,
    ) -> NDArray[np.uint8]:
        """Codes of a table, uint8, shape (n_columns, n_rows), C order.

        Parameters
        ----------
        table : FeatureTable
        n_threads : int
        only : ndarray of bool, shape (n_columns,), optional
            The columns whose codes are wanted; the rows of others hold anything and take no memory until
            they are touched.
        compact : bool
            Give rows for the columns of `only` alone, in order.

        Raises
        ------
        ValueError
            Where number, names or kinds of the features are not those of `fit`.
        MemoryError
            Where the codes (one byte per value) do not fit in memory.
        """
        table = self._columns_of(table)
        if table.device_array is not None:
            found = _core.encode_device_array(self._bin_table, table.device_array)
            return found[only] if compact else found
        held = only if compact else None
        n_codes = self.n_columns_ if held is None else int(np.count_nonzero(held))
        codes = empty_codes(n_codes, table.n_rows, few=only is not None and held is None)
        blocks = *_numeric_blocks(table, only), self._category_blocks(table)
        self._bin_table.transform(*blocks, codes, n_threads, only, compact=held is not None)
        return codes

    def get_raw_values(
        self, table: FeatureTable, only: NDArray[np.bool_] | None = None
    ) -> NDArray[np.float32]:
        """`FeatureTable.get_raw_values` of the columns of `table`: all, or those of `only`, bool (n_columns,)."""
        return self._columns_of(table).get_raw_values(only)

    def transform_derived(self, columns: FeatureTable, n_threads: int = 1) -> NDArray[np.uint8]:
        """Codes of the made columns of a table that has columns already.

        Parameters
        ----------
        columns : FeatureTable
            Those columns, by their number.
        n_threads : int

        Returns
        -------
        ndarray of shape (n_columns, n_rows), uint8
        """
        assert self.derived_columns_ is not None
        wanted = np.zeros(self.n_columns_, bool)
        for _, places in self.derived_columns_.places():
            wanted[places] = True
        codes = empty_codes(int(wanted.sum()), columns.n_rows)
        categories = [c for c in columns.categories if wanted[c.feature]]
        blocks = self._category_blocks(replace(columns, categories=categories))
        self._bin_table.transform(
            *_numeric_blocks(columns), blocks, codes, n_threads, wanted, compact=True
        )
        return codes

    def encode(
        self, table: FeatureTable, n_threads: int = 1, *, sparse: bool = True
    ) -> Codes | DeviceCodes:
        """The same codes as `transform` gives, with columns of a sparse matrix held sparse where they may be.

        A column that stores more than `SPARSE_SHARE` of the rows is dense: its histograms are built faster
        from all rows than from those. Codes of a table that lies on a card are there, too.

        Parameters
        ----------
        table : FeatureTable
        n_threads : int
        sparse : bool
            False holds all columns dense.

        Returns
        -------
        Codes or DeviceCodes
        """
        if table.device_array is not None:
            self._check_table(table)
            kinds = self.n_bins_, self.is_categorical_
            return DeviceCodes(
                _core.DeviceBins.from_array(table.device_array, self._bin_table, *kinds)
            )
        if sparse and table.sparse:
            dense, rare = _part_by_share(table)
            if len(rare.features) > 0:
                return self._encode_apart(self._columns_of(dense), rare, n_threads)
        return Codes(table.n_rows, self.n_columns_, self.transform(table, n_threads))

    def _encode_apart(self, dense: FeatureTable, rare: SparseBlock, n_threads: int) -> Codes:
        n_rows, is_dense = dense.n_rows, np.ones(dense.n_features, bool)
        is_dense[rare.features] = False
        codes = empty_codes(int(is_dense.sum()), n_rows)
        blocks = *_numeric_blocks(dense), self._category_blocks(dense)
        self._bin_table.transform(*blocks, codes, n_threads, is_dense, compact=True)
        stored, common = self._bin_table.transform_stored(_arrays_of(rare), n_rows, n_threads)
        cells = Cells(rare.features.astype(np.int32), common, rare.indptr, rare.indices, stored)
        return Codes(n_rows, dense.n_features, codes, cells)

    def threshold_value(self, feature: int, code: int) -> float:
        """The number t such that ``code(x) <= code`` means ``x <= t`` for the feature of number `feature`, in
        its unit; infinity for the last bin."""
        if self.is_categorical_[feature]:
            raise ValueError(f"Feature {feature} is categorical and has no thresholds.")
        thresholds = self.thresholds_[feature]
        return float(thresholds[code]) if code < len(thresholds) else float("inf")

    def category_codes(self, feature: int) -> dict[Category, int]:
        """Code of each category of the feature of number `feature`; rare ones share the last."""
        return dict(self._code_of[feature])

    @property
    def bin_table(self) -> _core.BinTable:
        """The thresholds as the core searches them."""
        return self._bin_table

    def has_same_bins(self, other: BinMapper) -> bool:
        """Whether the mapper `other` gives every table the same codes."""
        if self is other:
            return True
        if self.derived_columns_ is not None and not self.derived_columns_.equals(
            other.derived_columns_
        ):
            return False
        return (self.derived_columns_ is None) == (other.derived_columns_ is None) and (
            np.array_equal(self.is_categorical_, other.is_categorical_)
            and np.array_equal(self.float64_bins_, other.float64_bins_)
            and all(
                np.array_equal(a, b)
                for a, b in zip(self.thresholds_, other.thresholds_, strict=True)
            )
            and self.categories_ == other.categories_
            and self.rare_categories_ == other.rare_categories_
        )

    def is_extension_of(self, other: BinMapper) -> bool:
        """Whether this is the mapper `other` with made columns in place of some features."""
        if (
            self.derived_columns_ is None
            or other.derived_columns_ is not None
            or self.n_features_ != other.n_features_
        ):
            return False
        made = set(self.high_cardinality_features_)
        return made <= set(other.high_cardinality_features_) and all(
            self.float64_bins_[f] == other.float64_bins_[f]
            and np.array_equal(self.thresholds_[f], other.thresholds_[f])
            and self.categories_[f] == other.categories_[f]
            and self.rare_categories_[f] == other.rare_categories_[f]
            for f in range(self.n_features_)
            if f not in made
        )

    # ---- saved form

    def to_state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """What `from_state` needs: a dict that JSON can hold, and arrays.

        Returns
        -------
        meta : dict
            ``max_bins``, ``n_features``, ``feature_names`` (or None), ``categories``: one entry
            ``{"feature", "kept", "rare"}`` per categorical column; ``made``, where columns are made.
        arrays : dict
            ``thresholds`` float64 (all columns one after another), ``offsets`` int64 (n_columns + 1,),
            ``wide`` uint8 (n_columns,), and those of the made columns.
        """
        names = self.feature_names_
        meta = {
            "max_bins": int(self.max_bins),
            "n_features": self.n_features_,
            "feature_names": None if names is None else list(names),
            "categories": [
                {"feature": int(f), "kept": self.categories_[f], "rare": self.rare_categories_[f]}
                for f in np.flatnonzero(self.is_categorical_)
            ],
        }
        arrays: dict[str, NDArray[Any]] = {
            "thresholds": np.concatenate([np.empty(0), *self.thresholds_])
        }
        arrays |= {"offsets": self._offsets(), "wide": self.float64_bins_.astype(np.uint8)}
        if self.derived_columns_ is not None:
            meta["made"], made_arrays = self.derived_columns_.to_state()
            arrays |= made_arrays
        return meta, arrays

    @classmethod
    def from_state(cls, meta: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> BinMapper:
        """The mapper that `to_state` described by `meta` and `arrays`. Trusts nothing: anything odd is a
        ValueError."""
        _require(
            isinstance(meta, Mapping) and isinstance(arrays, Mapping), "is not a pair of mappings"
        )
        n_features: Any = meta.get("n_features")
        max_bins: Any = meta.get("max_bins")
        _require(_is_int(n_features) and 1 <= n_features < 2**31, "has no valid number of features")
        _require(_is_int(max_bins) and 2 <= max_bins <= MAX_BINS, "has a max_bins outside 2..255")
        names = _read_names(meta.get("feature_names"), n_features)
        made = (
            DerivedColumns.from_state(meta["made"], arrays, n_features) if "made" in meta else None
        )
        n_columns = n_features if made is None else made.n_columns
        thresholds, wide = _read_thresholds(arrays, n_columns, max_bins)
        categories, rare = _read_categories(meta.get("categories"), n_columns, max_bins)
        is_categorical = np.array([kept is not None for kept in categories])
        _require(
            not any(len(t) for t, c in zip(thresholds, is_categorical, strict=True) if c),
            "gives thresholds to a categorical feature",
        )
        for feature, columns in () if made is None else made.places():
            groups = np.arange(feature.n_columns) >= feature.n_numeric
            _require(
                np.array_equal(is_categorical[columns], groups), "takes numbers for categories"
            )
            is_categorical[feature.feature] = True
        mapper = cls(max_bins)
        spec = FeatureSpec(n_features, names, is_categorical[:n_features])
        mapper._set_state(spec, thresholds, wide, categories, rare, made)
        return mapper

    # ---- parts

    def _set_state(
        self,
        spec: FeatureSpec,
        thresholds: list[NDArray[np.float64]],
        wide: NDArray[np.bool_],
        categories: list[list[Category] | None],
        rare: list[list[Category] | None],
        made: DerivedColumns | None,
    ) -> None:
        self.spec_, self.thresholds_, self.float64_bins_, self.derived_columns_ = (
            spec,
            thresholds,
            wide,
            made,
        )
        self.categories_, self.rare_categories_ = categories, rare
        n_bins = _lengths(thresholds) + 1
        for feature, (kept, others) in enumerate(zip(categories, rare, strict=True)):
            if kept is not None:
                n_bins[feature] = max(1, len(kept) + bool(others))
        self.n_bins_ = n_bins.astype(np.uint16)
        self._prepare()

    def _prepare(self) -> None:
        """What is derived from the state and not saved: the search table, and dicts category -> code."""
        values = np.concatenate([np.empty(0), *self.thresholds_])
        self._bin_table = _core.BinTable(
            values, self._offsets(), np.ascontiguousarray(self.float64_bins_)
        )
        made = () if self.derived_columns_ is None else self.derived_columns_.wide
        self._types_of_made = {wide.feature: _one_of_each_type(wide.categories) for wide in made}
        self._code_of: dict[int, dict[Category, int]] = {}
        for feature, (kept, rare) in enumerate(
            zip(self.categories_, self.rare_categories_, strict=True)
        ):
            if kept is not None and rare is not None:
                self._code_of[feature] = {c: i for i, c in enumerate(kept)} | dict.fromkeys(
                    rare, len(kept)
                )

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k not in _DERIVED}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update({"derived_columns_": None} | state)
        if "spec_" in state:
            self._prepare()

    def _offsets(self) -> NDArray[np.int64]:
        return np.cumsum(np.append(0, _lengths(self.thresholds_)))

    def sample_rows(
        self, n_rows: int, weights: NDArray[np.int64] | None
    ) -> NDArray[np.int64] | None:
        """The rows that thresholds are chosen from.

        Parameters
        ----------
        n_rows : int
        weights : ndarray of shape (n_rows,), int64, or None
            Rows of weight 0 are never chosen.

        Returns
        -------
        ndarray of shape (n_chosen,), int64, or None
            Ascending; None: all.
        """
        present = None if weights is None or weights.all() else np.flatnonzero(weights)
        n_present = n_rows if present is None else len(present)
        if self.subsample is None or n_present <= self.subsample:
            return present
        chosen = np.flatnonzero(draw(n_present, self.subsample, *self.draw_seed()))
        return chosen if present is None else present[chosen]

    def draw_seed(self) -> tuple[int, int, int]:
        """What rows are drawn by: seed, round and stream."""
        return check_random_state(self.random_state).randint(2**31 - 1), 0, BINNED_ROWS

    def _columns_of(self, table: FeatureTable) -> FeatureTable:
        """A checked table, with made columns where there are such."""
        self._check_table(table)
        if self.derived_columns_ is None:
            return table
        for column in table.categories:
            known = self._types_of_made.get(column.feature)
            if known is not None:
                check_category_types(known, column, table.describe_feature(column.feature))
        return self.derived_columns_.expand(table)

    def _check_table(self, table: FeatureTable) -> None:
        if table.n_features != self.n_features_:
            raise ValueError(
                f"X has {table.n_features} features, but BinMapper is expecting {self.n_features_} features "
                "as input."
            )
        expected = self.spec_.is_categorical
        different = table.is_categorical != expected
        if different.any():
            feature = int(np.argmax(different))
            was, now = ("categories", "numbers") if expected[feature] else ("numbers", "categories")
            raise ValueError(
                f"Column {table.describe_feature(feature)} of X held {was} when the mapper was fitted and is read as "
                f"{now} now; pass the mapper as `reference` to read_features."
            )

    def _category_blocks(self, table: FeatureTable) -> list[tuple[Any, ...]]:
        return [(c.index, self._codes_of_categories(c, table), c.feature) for c in table.categories]

    def _codes_of_categories(
        self, column: CategoryColumn, table: FeatureTable
    ) -> NDArray[np.uint8]:
        """Code of each category of a column, uint8; 255 where it was not seen in `fit`."""
        code_of = self._code_of[column.feature]
        codes = np.array([code_of.get(c, MISSING_CODE) for c in column.categories], dtype=np.uint8)
        if len(codes) and code_of and (codes == MISSING_CODE).all():
            check_category_types(list(code_of), column, table.describe_feature(column.feature))
        return codes


def _lengths(arrays: list[NDArray[np.float64]]) -> NDArray[np.int64]:
    return np.fromiter(map(len, arrays), np.int64, len(arrays))


def _numeric_blocks(
    table: FeatureTable, only: NDArray[np.bool_] | None = None
) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
    """Dense and sparse blocks as the core takes them; of sparse rows only the columns that are wanted."""
    dense = [(block.values, block.features) for block in table.dense]
    sparse = [
        block.take(only[block.features])
        if only is not None and isinstance(block, SparseRows)
        else block
        for block in table.sparse
    ]
    return dense, [_arrays_of(block) for block in sparse]


def _arrays_of(block: SparseBlock | SparseRows) -> tuple[Any, ...]:
    return block.data, block.indices, block.indptr, block.features


def _part_by_share(table: FeatureTable) -> tuple[FeatureTable, SparseBlock]:
    """The table without its columns that few rows store, and these: features ascend."""
    block = SparseBlock.joined(table.sparse)
    is_rare = np.diff(block.indptr) <= SPARSE_SHARE * table.n_rows
    rare = np.flatnonzero(is_rare)
    rare = rare[np.argsort(block.features[rare])]
    return replace(table, sparse=[block.take(~is_rare)]), block.take(rare)


def quantise_weights(sample_weight: ArrayLike, n_rows: int) -> NDArray[np.int64]:
    """Weights (n_rows,) times a power of two, rounded to integers of sum <= 2^53: sums of them are exact.

    Integers stay in proportion exactly, so integer weights are repeated rows. Positive weights stay positive.
    """
    weights = np.asarray(sample_weight, dtype=np.float64)
    if weights.ndim == 2:
        weights = weights.sum(axis=1)
    if weights.shape != (n_rows,):
        raise ValueError(
            f"sample_weight has shape {np.shape(sample_weight)}, but X has {n_rows} rows."
        )
    bad = np.flatnonzero(~(np.isfinite(weights) & (weights >= 0)))
    if len(bad):
        raise ValueError(
            f"sample_weight must be finite and not negative; row {bad[0]} has {weights[bad[0]]}."
        )
    if not weights.any():
        raise ValueError(
            "sample_weight is 0 for every row; at least one row must have a positive weight."
        )
    _, largest = np.frexp(np.max(weights))
    relative = np.ldexp(weights, -largest)  # in [0, 1]: the sum cannot overflow
    _, exponent = np.frexp(_core.exact_totals(relative[:, None], None, None, 1, 1)[0, 0, 0])
    scaled = np.rint(np.ldexp(relative, 51 - exponent)).astype(np.int64)
    return np.where(weights > 0, np.maximum(scaled, 1), 0)


def sum_category_weights(
    column: CategoryColumn, weights: NDArray[np.int64] | None
) -> NDArray[np.float64]:
    """What the rows of each category weigh; integers up to 2^53."""
    present = column.index >= 0
    return np.bincount(
        column.index[present],
        weights=None if weights is None else weights[present].astype(np.float64),
        minlength=len(column.categories),
    ).astype(np.float64)


def _choose_categories(
    categories: Sequence[Category], totals: NDArray[np.float64], max_bins: int
) -> tuple[list[Category], list[Category]]:
    """Categories with a bin of their own, and those that share the last one; both sorted."""
    ordered = sorted(
        zip(categories, totals.tolist(), strict=True), key=lambda pair: category_key(pair[0])
    )
    seen = [(category, total) for category, total in ordered if total > 0]
    if len(seen) <= max_bins:
        return [category for category, _ in seen], []
    by_weight = sorted(range(len(seen)), key=lambda i: (-seen[i][1], i))
    kept = set(by_weight[: max_bins - 1])
    return [c for i, (c, _) in enumerate(seen) if i in kept], [
        c for i, (c, _) in enumerate(seen) if i not in kept
    ]


def _one_of_each_type(categories: Sequence[Category]) -> list[Category]:
    """Enough to tell text from numbers."""
    return [
        next(c for c in categories if isinstance(c, str) == t)
        for t in {isinstance(c, str) for c in categories}
    ]


def _groups(
    columns: Mapping[int, CategoryColumn],
    groups: list[int],
    weights: NDArray[np.int64] | None,
    max_bins: int,
) -> list[list[Category]]:
    """The categories that each of these columns of one feature knows: the most frequent in the first."""
    if not groups:
        return []
    column = columns[groups[0]]
    totals = sum_category_weights(column, weights)
    seen = [i for i in np.flatnonzero(totals > 0).tolist()]
    seen.sort(key=lambda i: (-totals[i], category_key(column.categories[i])))
    size = min(max_bins, -(-len(seen) // len(groups)))
    parts = [seen[begin * size : (begin + 1) * size] for begin in range(len(groups))]
    return [sorted((column.categories[i] for i in part), key=category_key) for part in parts]


# ---- reading a saved state ---------------------------------------------------------------------------------


def _require(condition: bool, problem: str) -> None:
    if not condition:
        raise ValueError(
            f"The saved bins cannot be read: the file {problem}. "
            "It is damaged or was not written by Polyleaf."
        )


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _read_names(names: Any, n_features: int) -> tuple[str, ...] | None:
    if names is None:
        return None
    _require(
        isinstance(names, list) and all(isinstance(name, str) for name in names),
        "has feature names that are no text",
    )
    _require(len(names) == n_features, f"has {len(names)} feature names for {n_features} features")
    return tuple(names)


def _read_thresholds(
    arrays: Mapping[str, Any], n_features: int, max_bins: int
) -> tuple[list[NDArray[np.float64]], NDArray[np.bool_]]:
    values = _read_array(arrays, "thresholds", np.float64)
    offsets = _read_array(arrays, "offsets", np.int64)
    wide = _read_array(arrays, "wide", np.uint8)
    _require(
        len(offsets) == n_features + 1 and len(wide) == n_features, "has arrays of the wrong length"
    )
    _require(
        offsets[0] == 0 and offsets[-1] == len(values), "has thresholds that belong to no feature"
    )
    _require(
        bool(np.all((offsets >= 0) & (offsets <= len(values)))),
        "has offsets outside its thresholds",
    )
    counts = np.diff(offsets)
    _require(
        bool(np.all((counts >= 0) & (counts < max_bins))), "has a feature with too many thresholds"
    )
    _require(bool(np.isfinite(values).all()), "has thresholds that are not finite")
    _require(bool(np.all(wide <= 1)), "has flags other than 0 and 1")
    thresholds = [values[begin:end].copy() for begin, end in pairwise(offsets)]
    for feature, t in enumerate(thresholds):
        _require(
            bool(np.all(np.diff(t) > 0)), f"has thresholds of feature {feature} that do not ascend"
        )
        with np.errstate(over="ignore"):
            narrow = t.astype(np.float32)
        _require(
            bool(wide[feature]) or np.array_equal(narrow, t),
            f"has thresholds of feature {feature} that are no float32 numbers",
        )
    return thresholds, wide.astype(bool)


def _read_array(arrays: Mapping[str, Any], name: str, dtype: type) -> NDArray[Any]:
    array = arrays.get(name)
    if not isinstance(array, np.ndarray) or array.ndim != 1 or array.dtype != dtype:
        raise ValueError(
            f"The saved bins cannot be read: {name!r} must be a one-dimensional {np.dtype(dtype)} array."
        )
    return np.ascontiguousarray(array)


def _read_categories(
    entries: Any, n_features: int, max_bins: int
) -> tuple[list[list[Category] | None], list[list[Category] | None]]:
    kept: list[list[Category] | None] = [None] * n_features
    rare: list[list[Category] | None] = [None] * n_features
    _require(isinstance(entries, list), "has no list of categories")
    for entry in entries:
        _require(
            isinstance(entry, Mapping) and set(entry) == {"feature", "kept", "rare"},
            "has malformed categories",
        )
        feature = entry["feature"]
        _require(
            _is_int(feature) and 0 <= feature < n_features,
            "has categories of a feature that does not exist",
        )
        _require(kept[feature] is None, f"has the categories of feature {feature} twice")
        for group in (entry["kept"], entry["rare"]):
            _require(
                isinstance(group, list) and all(is_category(c) for c in group),
                f"has categories of feature {feature} that are neither text nor finite numbers nor booleans",
            )
        together = entry["kept"] + entry["rare"]
        _require(len(set(together)) == len(together), f"repeats a category of feature {feature}")
        _require(
            len(entry["kept"]) + bool(entry["rare"]) <= max_bins,
            f"has too many categories for feature {feature}",
        )
        kept[feature], rare[feature] = list(entry["kept"]), list(entry["rare"])
    return kept, rare
