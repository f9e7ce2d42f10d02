"""`BinMapper`: features to uint8 codes. The core does the work (``cpp/data/binning.cpp``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_random_state

import polyleaf._core as _core
from polyleaf.binned_data.binned import Codes, DeviceCodes, MemmapCodes, SparseCodes, empty_codes
from polyleaf.binned_data.high_cardinality import (
    Category,
    DerivedColumns,
    check_unseen_categories,
    choose_categories,
    sum_category_weights,
)
from polyleaf.binned_data.mapper_state import CategoryLists, read_state, write_state
from polyleaf.binned_data.random_rows import BINNED_ROWS, draw
from polyleaf.runtime.types import JsonObject, RandomState
from polyleaf.user_data.feature_table import (
    FeatureSpec,
    FeatureTable,
    RegressorTransform,
    SparseBlock,
    SparseRows,
)
from polyleaf.user_data.weights import quantise_weights

MISSING_CODE = 255
MAX_BINS = 255
# Largest fraction of stored rows of a sparse column that stays sparse.
SPARSE_SHARE = 0.05

_BLOCK_ROWS = 1 << 14  # rows that are compared with ranges at a time

_CACHED_ATTRIBUTES = ("_bin_table", "_code_of", "regressor_transform_")


class BinMapper:
    """Cuts features into at most 255 bins, and maps tables to codes.

    A numeric feature with at most ``max_bins`` distinct values gets one bin per value; otherwise
    the bins are weighted quantiles, where a value heavier than a bin's share has its own bin.
    Values are compared as float32, so float32 and float64 input of the same data give the same
    bins; a feature of which float32 would merge more than a quarter of the distinct values
    (timestamps, large ids), or whose values exceed its range, is compared as float64
    (``float64_bins_``). Integers are converted to float64: above 2^53 neighbours are merged.

    A categorical feature has a bin per category, whatever ``max_bins``. Unseen categories, like
    NaN, are missing. A feature of more than 255 categories is replaced by derived columns once a
    target is known (`with_derived_columns`); then all attributes except ``spec_`` are about columns
    instead of features. Until then the most frequent (by weight) have a bin of their own and all
    others share the last one, "rare".

    Parameters
    ----------
    max_bins : int, default 255
        Bins per numeric feature, from 2 to 255, not counting the one for missing values.
    subsample : int or None, default 200000
        Number of rows, drawn without replacement, that thresholds are chosen from; None: all rows.
        Categories are always counted on all rows.
    random_state : int, RandomState or None, default 0
        Seed of the draw.

    Attributes
    ----------
    spec_ : FeatureSpec
        Number, names and kinds of the features.
    n_bins_ : ndarray of uint16, shape (n_features,)
        Bins in use, at least 1, not counting missing.
    thresholds_ : list of ndarray of float64
        Ascending; the code of a value x is the number of thresholds t with x > t. Empty for a
        categorical feature.
    categories_ : list
        Per feature None (numeric), or the categories that have their own bin, in order of code.
    rare_categories_ : list
        Per feature None, or the categories that share the last bin; mostly empty.
    float64_bins_ : ndarray of bool, shape (n_features,)
        Features that are compared as float64.
    derived_columns_ : DerivedColumns or None
        Columns that replace high-cardinality features.
    regressor_transform_ : RegressorTransform or None
        Changes values that linear leaves read; None: none.
    ranges_ : ndarray of float64, shape (2, n_features), or None
        Least and largest value of each feature in the rows that thresholds are chosen from; NaN for
        categories and features without a value. None in mappers of files that lack them.
    """

    spec_: FeatureSpec
    n_bins_: NDArray[np.uint16]
    thresholds_: list[NDArray[np.float64]]
    categories_: CategoryLists
    rare_categories_: CategoryLists
    float64_bins_: NDArray[np.bool_]
    derived_columns_: DerivedColumns | None
    ranges_: NDArray[np.float64] | None = None

    def __init__(
        self,
        max_bins: int = MAX_BINS,
        *,
        subsample: int | None = 200_000,
        random_state: RandomState = 0,
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
        """Number of columns with codes: the features, and further derived columns."""
        return len(self.n_bins_)

    @property
    def feature_names_(self) -> tuple[str, ...] | None:
        """Names of the features of X, or None."""
        return self.spec_.feature_names

    @property
    def column_names_(self) -> tuple[str, ...] | None:
        """Names of the columns; None if features have no names and there are no derived columns."""
        derived, names = self.derived_columns_, self.spec_.feature_names
        return names if derived is None else derived.names(names)

    @property
    def column_to_feature_(self) -> NDArray[np.int64]:
        """Feature of X of each column, (n_columns,)."""
        derived = self.derived_columns_
        return np.arange(self.n_features_) if derived is None else derived.column_to_feature()

    def sum_by_feature(self, per_column: np.ndarray) -> np.ndarray:
        """Sum the values `per_column` (..., n_columns) by feature of X, (..., n_features)."""
        if self.derived_columns_ is None:
            return per_column
        total = np.zeros((*per_column.shape[:-1], self.n_features_), per_column.dtype)
        for column, feature in enumerate(self.column_to_feature_.tolist()):
            total[..., feature] += per_column[..., column]
        return total

    @property
    def is_categorical_(self) -> NDArray[np.bool_]:
        """Whether columns are split by sets of categories, bool (n_columns,)."""
        return np.array([kept is not None for kept in self.categories_])

    @property
    def informative_columns_(self) -> NDArray[np.bool_]:
        """Columns that are not constant by construction, bool (n_columns,)."""
        mask = np.ones(len(self.n_bins_), bool)
        if self.derived_columns_ is not None:
            for feature, columns in self.derived_columns_.iter_columns():
                mask[columns] = feature.is_informative
        return mask

    @property
    def high_cardinality_features_(self) -> list[int]:
        """Features with more categories than fit in one byte."""
        if self.derived_columns_ is not None:
            return [feature.feature for feature in self.derived_columns_.features]
        pairs = zip(self.categories_, self.rare_categories_, strict=True)
        return [
            f
            for f, (kept, rare) in enumerate(pairs)
            if kept and rare and len(kept + rare) > MAX_BINS
        ]

    @cached_property
    def regressor_transform_(self) -> RegressorTransform | None:
        """See the class; only models with linear leaves need it."""
        if not self._transforms_regressors:
            return None
        return RegressorTransform.from_thresholds(self.thresholds_, self.float64_bins_)

    # ---- fit

    def fit(
        self, table: FeatureTable, sample_weight: ArrayLike | None = None, n_threads: int = 1
    ) -> BinMapper:
        """Choose thresholds and categories.

        Parameters
        ----------
        table : FeatureTable
            Training features.
        sample_weight : array-like of shape (n_rows,) or (n_rows, n_outputs), optional
            Finite and not negative; weights per output are summed. A row of weight 0 counts as
            absent, an integer weight as that many rows.
        n_threads : int
            Number of threads; it does not change the result.
        """
        self.check_params()
        weights = None if sample_weight is None else quantise_weights(sample_weight, table.n_rows)
        thresholds, is_float64, ranges = self._find_thresholds(
            table, weights, self.max_bins, n_threads
        )
        counted = {
            column.feature: (column.categories, sum_category_weights(column, weights))
            for column in table.categories
        }
        spec = FeatureSpec.describe(table)
        self._set_fitted(spec, thresholds, is_float64, ranges, counted)
        return self

    def fit_from_summary(
        self,
        spec: FeatureSpec,
        sample: FeatureTable,
        weights: NDArray[np.int64] | None,
        counted: Mapping[int, tuple[Sequence[Category], NDArray[np.float64]]],
        n_threads: int = 1,
    ) -> BinMapper:
        """Choose what `fit` does, from a summary of rows that are no longer in memory.

        Parameters
        ----------
        spec : FeatureSpec
            Number, names and kinds of the features.
        sample : FeatureTable
            Values of the rows that `fit` would draw, or of all rows of positive weight.
        weights : ndarray of int64, or None
            Their weights, from `quantise_weights` of all rows.
        counted : mapping of int to (categories, totals)
            For each categorical feature, on all rows: see `sum_category_weights`.
        n_threads : int
            Number of threads.
        """
        thresholds, is_float64, ranges = _compute_thresholds(
            sample, None, weights, self.max_bins, n_threads
        )
        self._set_fitted(spec, thresholds, is_float64, ranges, counted)
        return self

    def check_params(self) -> None:
        """Raise a ValueError for invalid parameters."""
        if not isinstance(self.max_bins, int | np.integer) or not 2 <= self.max_bins <= MAX_BINS:
            raise ValueError(
                f"max_bins must be an integer from 2 to {MAX_BINS}, got {self.max_bins!r}."
            )
        if self.subsample is not None and self.subsample < 1:
            raise ValueError(
                f"subsample must be a positive number of rows or None, got {self.subsample!r}."
            )

    def _set_fitted(
        self,
        spec: FeatureSpec,
        thresholds: list[NDArray[np.float64]],
        is_float64: NDArray[np.bool_],
        ranges: NDArray[np.float64],
        counted: Mapping[int, tuple[Sequence[Category], NDArray[np.float64]]],
    ) -> None:
        categories: CategoryLists = [None] * spec.n_features
        rare: CategoryLists = [None] * spec.n_features
        for feature, (known, totals) in counted.items():
            categories[feature], rare[feature] = choose_categories(known, totals, MAX_BINS)
        self._set_state(spec, thresholds, is_float64, categories, rare, None, ranges)

    def _find_thresholds(
        self, table: FeatureTable, weights: NDArray[np.int64] | None, max_bins: int, n_threads: int
    ) -> _Thresholds:
        """Find the thresholds on a sample of the rows."""
        rows = self.sample_rows(table.n_rows, weights)
        if weights is not None and rows is not None:
            weights = weights[rows]
        if table.device_array is not None:
            table, rows = table.copy_to_host(rows), None
        return _compute_thresholds(table, rows, weights, max_bins, n_threads)

    def with_derived_columns(
        self,
        derived: DerivedColumns,
        training: FeatureTable,
        sample_weight: ArrayLike | None = None,
        n_threads: int = 1,
    ) -> BinMapper:
        """Return a mapper with derived columns in place of high-cardinality features.

        Parameters
        ----------
        derived : DerivedColumns
            The columns.
        training : FeatureTable
            Derived columns of the training rows; only these columns are read.
        sample_weight, n_threads
            See `fit`.
        """
        weights = None
        if sample_weight is not None:
            weights = quantise_weights(sample_weight, training.n_rows)
        derived_thresholds, derived_float64, _ = self._find_thresholds(
            training, weights, MAX_BINS, n_threads
        )
        n_further = derived.n_columns - derived.n_features
        thresholds = self.thresholds_ + [np.empty(0)] * n_further
        is_float64 = np.append(self.float64_bins_, np.zeros(n_further, bool))
        categories = self.categories_ + [None] * n_further
        rare: CategoryLists = self.rare_categories_ + [None] * n_further
        for _, columns in derived.iter_columns():
            for column in columns.tolist():
                thresholds[column] = derived_thresholds[column]
                is_float64[column] = derived_float64[column]
                categories[column] = rare[column] = None
        mapper = BinMapper(self.max_bins, subsample=self.subsample, random_state=self.random_state)
        mapper._set_state(
            self.spec_, thresholds, is_float64, categories, rare, derived, self.ranges_
        )
        return mapper

    def add_features(self, other: BinMapper) -> BinMapper:
        """Return a mapper with these features, and those that `other` has after them.

        There are no derived columns.
        """
        n, spec = self.n_features_, other.spec_
        is_categorical = np.append(self.spec_.is_categorical, spec.is_categorical[n:])
        ranges = None
        if self.ranges_ is not None and other.ranges_ is not None:
            ranges = np.hstack([self.ranges_, other.ranges_[:, n:]])
        mapper = BinMapper(max(self.max_bins, other.max_bins), subsample=self.subsample)
        mapper._set_state(
            replace(spec, is_categorical=is_categorical),
            self.thresholds_ + other.thresholds_[n:],
            np.append(self.float64_bins_, other.float64_bins_[n:]),
            self.categories_ + other.categories_[n:],
            self.rare_categories_ + other.rare_categories_[n:],
            None,
            ranges,
        )
        return mapper

    def sample_rows(
        self, n_rows: int, weights: NDArray[np.int64] | None
    ) -> NDArray[np.int64] | None:
        """Draw the rows that thresholds are chosen from.

        Parameters
        ----------
        n_rows : int
            Number of rows.
        weights : ndarray of shape (n_rows,), int64, or None
            Rows of weight 0 are never drawn.

        Returns
        -------
        ndarray of shape (n_drawn,), int64, or None
            Ascending; None: all rows.
        """
        present = None if weights is None or weights.all() else np.flatnonzero(weights)
        n_present = n_rows if present is None else len(present)
        if self.subsample is None or n_present <= self.subsample:
            return present
        drawn = np.flatnonzero(draw(n_present, self.subsample, *self.draw_seed()))
        return drawn if present is None else present[drawn]

    def draw_seed(self) -> tuple[int, int, int]:
        """Return seed, round and stream of the draw of rows."""
        return check_random_state(self.random_state).randint(2**31 - 1), 0, BINNED_ROWS

    # ---- transform

    def transform(
        self,
        table: FeatureTable,
        n_threads: int = 1,
        only: NDArray[np.bool_] | None = None,
        compact: bool = False,
    ) -> NDArray[np.uint8]:
        """Return the codes of a table, uint8, shape (n_columns, n_rows), C order.

        Parameters
        ----------
        table : FeatureTable
            Features.
        n_threads : int
            Number of threads.
        only : ndarray of bool, shape (n_columns,), optional
            Columns to compute; the others are undefined and take no memory until they are used.
        compact : bool
            Whether to return the columns of `only` alone, in order.

        Raises
        ------
        ValueError
            If number, names or kinds of the features are not those of `fit`.
        MemoryError
            If the codes (one byte per value) do not fit in memory.
        """
        table = self._to_columns(table)
        if table.device_array is not None:
            codes = _core.encode_device_array(self._bin_table, table.device_array)
            return codes[only] if compact else codes
        kept = only if compact else None
        n_kept = len(self.n_bins_) if kept is None else int(np.count_nonzero(kept))
        codes = empty_codes(n_kept, table.n_rows, partly_used=only is not None and kept is None)
        blocks = *_get_numeric_blocks(table, only), self._encode_categories(table)
        self._bin_table.transform(*blocks, codes, n_threads, only, compact=kept is not None)
        return codes

    def get_raw_values(
        self, table: FeatureTable, only: NDArray[np.bool_] | None = None
    ) -> NDArray[np.float32]:
        """Return the raw values of all columns of `table`, or of those in `only` (n_columns,)."""
        return self._to_columns(table).get_raw_values(only, self.regressor_transform_)

    def transform_derived(self, columns: FeatureTable, n_threads: int = 1) -> NDArray[np.uint8]:
        """Return the codes of derived columns.

        Parameters
        ----------
        columns : FeatureTable
            A table with the derived columns at their positions.
        n_threads : int
            Number of threads.

        Returns
        -------
        ndarray of shape (n_derived, n_rows), uint8
        """
        assert self.derived_columns_ is not None
        mask = np.zeros(self.n_columns_, bool)
        for _, positions in self.derived_columns_.iter_columns():
            mask[positions] = True
        codes = empty_codes(int(mask.sum()), columns.n_rows)
        dense, sparse = _get_numeric_blocks(columns)
        self._bin_table.transform(dense, sparse, [], codes, n_threads, mask, compact=True)
        return codes

    def encode(
        self,
        table: FeatureTable,
        n_threads: int = 1,
        *,
        sparse: bool = True,
        rare: NDArray[np.int64] | None = None,
    ) -> Codes | DeviceCodes:
        """Return the codes of `transform`, with sparse columns and GPU arrays kept as such.

        A column that stores more than `SPARSE_SHARE` of the rows becomes dense: its histograms are
        built faster from all rows.

        Parameters
        ----------
        table : FeatureTable
            Features.
        n_threads : int
            Number of threads.
        sparse : bool
            False makes all columns dense.
        rare : ndarray of int64, optional
            Features that stay sparse, ascending, where the table has some of all rows only.

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
            dense, block = _split_sparse_columns(table, rare)
            if len(block.features) > 0:
                return self._encode_sparse(self._to_columns(dense), block, n_threads)
        return Codes(table.n_rows, len(self.n_bins_), self.transform(table, n_threads))

    def _encode_sparse(self, dense: FeatureTable, rare: SparseBlock, n_threads: int) -> Codes:
        n_rows, is_dense = dense.n_rows, np.ones(dense.n_features, bool)
        is_dense[rare.features] = False
        codes = empty_codes(int(is_dense.sum()), n_rows)
        blocks = *_get_numeric_blocks(dense), self._encode_categories(dense)
        self._bin_table.transform(*blocks, codes, n_threads, is_dense, compact=True)
        stored, common = self._bin_table.transform_stored(_get_arrays(rare), n_rows, n_threads)
        features = rare.features.astype(np.int32)
        sparse = SparseCodes(features, common, rare.indptr, rare.indices, stored)
        return Codes(n_rows, dense.n_features, codes, sparse)

    def threshold_value(self, feature: int, code: int) -> float:
        """Return the t for which ``code(x) <= code`` means ``x <= t``; infinity for the last bin.

        `feature` is the index of the feature, and t in its unit.
        """
        if self.is_categorical_[feature]:
            raise ValueError(f"Feature {feature} is categorical and has no thresholds.")
        thresholds = self.thresholds_[feature]
        return float(thresholds[code]) if code < len(thresholds) else float("inf")

    def category_codes(self, feature: int) -> dict[Category, int]:
        """Return the code of each category of `feature`, an index; rare ones share the last."""
        return dict(self._code_of[feature])

    @property
    def bin_table(self) -> _core.BinTable:
        """The thresholds as the core searches them."""
        return self._bin_table

    @property
    def counted_columns_(self) -> NDArray[np.bool_]:
        """Columns whose training rows a model counts by bin, bool (n_columns,): those that are not
        derived."""
        mask = np.ones(self.n_columns_, bool)
        if self.derived_columns_ is not None:
            for _, columns in self.derived_columns_.iter_columns():
                mask[columns] = False
        return mask

    def count_bins(
        self, codes: Codes | DeviceCodes | MemmapCodes, n_threads: int = 1
    ) -> NDArray[np.int64]:
        """Return the rows in each bin of the counted columns; see `Dataset.count_bins`.

        `codes`: codes of the rows, such as `encode` returns. `n_threads`: number of threads.
        """
        counts = codes.count_bins(self.n_bins_, n_threads)
        if self.derived_columns_ is None:
            return counts
        return counts[np.repeat(self.counted_columns_, self.n_bins_ + np.intp(1))]

    def count_outside(self, table: FeatureTable) -> NDArray[np.int64]:
        """Return the rows of `table` with a value beyond `ranges_`, by feature: (n_features,)."""
        assert self.ranges_ is not None
        if table.device_array is not None:
            table = table.copy_to_host(None)
        counts = np.zeros(table.n_features, np.int64)
        is_float64, (low, high) = self.float64_bins_, self.ranges_
        for block in table.dense:
            f = block.features
            for first in range(0, table.n_rows, _BLOCK_ROWS):
                values = _round(block.values[first : first + _BLOCK_ROWS], is_float64[f])
                counts[f] += ((values < low[f]) | (values > high[f])).sum(axis=0)
        for sparse in table.sparse:
            sizes, f = np.diff(sparse.indptr), np.repeat(sparse.features, np.diff(sparse.indptr))
            values = _round(sparse.data, is_float64[f])
            beyond = (values < low[f]) | (values > high[f])
            counts += np.bincount(f[beyond], minlength=table.n_features)
            has_no_zero = (low[sparse.features] > 0) | (high[sparse.features] < 0)
            counts[sparse.features] += np.where(has_no_zero, table.n_rows - sizes, 0)
        return counts

    # ---- comparison

    def has_same_bins(self, other: BinMapper) -> bool:
        """Whether the mapper `other` gives every table the same codes."""
        if self is other:
            return True
        derived = self.derived_columns_
        if derived is not None and not derived.equals(other.derived_columns_):
            return False
        return (derived is None) == (other.derived_columns_ is None) and (
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
        """Whether this is the mapper `other` with derived columns in place of some features."""
        if self.derived_columns_ is None or other.derived_columns_ is not None:
            return False
        if self.n_features_ != other.n_features_:
            return False
        replaced = set(self.high_cardinality_features_)
        return replaced <= set(other.high_cardinality_features_) and all(
            self.float64_bins_[f] == other.float64_bins_[f]
            and np.array_equal(self.thresholds_[f], other.thresholds_[f])
            and self.categories_[f] == other.categories_[f]
            and self.rare_categories_[f] == other.rare_categories_[f]
            for f in range(self.n_features_)
            if f not in replaced
        )

    # ---- saved form

    def to_state(self) -> tuple[JsonObject, dict[str, np.ndarray]]:
        """Return the state for `from_state`, as `mapper_state.write_state` describes it."""
        return write_state(self)

    @classmethod
    def from_state(cls, meta: Mapping[str, object], arrays: Mapping[str, np.ndarray]) -> BinMapper:
        """Read `meta` and `arrays` of `to_state`; raise a ValueError if they are no mapper."""
        max_bins, state = read_state(meta, arrays, MAX_BINS)
        mapper = cls(max_bins)
        mapper._set_state(*state)
        return mapper

    def _set_state(
        self,
        spec: FeatureSpec,
        thresholds: list[NDArray[np.float64]],
        is_float64: NDArray[np.bool_],
        categories: CategoryLists,
        rare: CategoryLists,
        derived: DerivedColumns | None,
        ranges: NDArray[np.float64] | None,
        transforms: bool = True,
    ) -> None:
        self.spec_, self.thresholds_, self.float64_bins_ = spec, thresholds, is_float64
        self.categories_, self.rare_categories_ = categories, rare
        self.derived_columns_, self.ranges_ = derived, ranges
        n_bins = np.array([len(each) + 1 for each in thresholds], np.int64)
        for feature, (kept, others) in enumerate(zip(categories, rare, strict=True)):
            if kept is not None:
                n_bins[feature] = max(1, len(kept) + bool(others))
        self.n_bins_ = n_bins.astype(np.uint16)
        self._transforms_regressors = transforms
        vars(self).pop("regressor_transform_", None)
        self._build_lookups()

    def _build_lookups(self) -> None:
        """Build the search table and the dicts from category to code, which are not saved."""
        values, offsets = self.concatenate_thresholds()
        is_float64 = np.ascontiguousarray(self.float64_bins_)
        self._bin_table = _core.BinTable(values, offsets, is_float64)
        self._code_of: dict[int, dict[Category, int]] = {}
        pairs = zip(self.categories_, self.rare_categories_, strict=True)
        for feature, (kept, rare) in enumerate(pairs):
            if kept is not None and rare is not None:
                codes = {category: code for code, category in enumerate(kept)}
                self._code_of[feature] = codes | dict.fromkeys(rare, len(kept))

    def __getstate__(self) -> dict[str, object]:
        state = {k: v for k, v in self.__dict__.items() if k not in _CACHED_ATTRIBUTES}
        if "spec_" in state:  # Dask sends every array of a pickle as a message of its own
            state["thresholds_"] = self.concatenate_thresholds()
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if "spec_" in state:
            values, offsets = state["thresholds_"]
            self.thresholds_ = np.split(values, offsets[1:-1])
            self._build_lookups()

    def concatenate_thresholds(self) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Return the thresholds of all columns, and where each column begins and the last ends."""
        values = np.concatenate([np.empty(0), *self.thresholds_])
        return values, np.cumsum([0, *map(len, self.thresholds_)])

    # ---- tables

    def _to_columns(self, table: FeatureTable) -> FeatureTable:
        """Check a table and replace its high-cardinality features by derived columns."""
        self._check_table(table)
        if self.derived_columns_ is None:
            return table
        replaced = {feature.feature: feature.codes for feature in self.derived_columns_.features}
        for column in table.categories:
            if column.feature in replaced:
                name = table.describe_feature(column.feature)
                check_unseen_categories(replaced[column.feature], column, name)
        return self.derived_columns_.expand(table)

    def _check_table(self, table: FeatureTable) -> None:
        expected = self.spec_.is_categorical
        if table.n_features != len(expected):
            raise ValueError(
                f"X has {table.n_features} features, but BinMapper is expecting {len(expected)} "
                "features as input."
            )
        if not table.categories and not expected.any():
            return
        different = table.is_categorical != expected
        if different.any():
            feature = int(np.argmax(different))
            was, now = ("categories", "numbers") if expected[feature] else ("numbers", "categories")
            raise ValueError(
                f"Column {table.describe_feature(feature)} of X held {was} when the mapper was "
                f"fitted, but is read as {now} now: pass the mapper as `reference` to "
                "read_features."
            )

    def _encode_categories(self, table: FeatureTable) -> list[tuple[object, ...]]:
        """Return, for each categorical column, what the core reads: the category of each row, the
        code of each category, 255 for unseen ones, and the feature."""
        blocks: list[tuple[object, ...]] = []
        for column in table.categories:
            code_of = self._code_of[column.feature]
            codes = [code_of.get(c, MISSING_CODE) for c in column.categories]
            if MISSING_CODE in codes:
                check_unseen_categories(code_of, column, table.describe_feature(column.feature))
            blocks.append((column.index, np.array(codes, np.uint8), column.feature))
        return blocks


def _get_numeric_blocks(
    table: FeatureTable, only: NDArray[np.bool_] | None = None
) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
    """Return dense and sparse blocks as the core takes them; of sparse rows some columns only."""
    dense = [(block.values, block.features) for block in table.dense]
    sparse = [
        block.take(only[block.features])
        if only is not None and isinstance(block, SparseRows)
        else block
        for block in table.sparse
    ]
    return dense, [_get_arrays(block) for block in sparse]


_Thresholds: TypeAlias = tuple[list[NDArray[np.float64]], NDArray[np.bool_], NDArray[np.float64]]
"""Thresholds, `float64_bins_` and `ranges_` of the numeric features."""


def _compute_thresholds(
    table: FeatureTable,
    rows: NDArray[np.int64] | None,
    weights: NDArray[np.int64] | None,
    max_bins: int,
    n_threads: int,
) -> _Thresholds:
    dense, sparse = _get_numeric_blocks(table)
    thresholds, is_float64, ranges = _core.find_thresholds(
        dense, sparse, table.n_rows, table.n_features, rows, weights, max_bins, n_threads
    )
    return thresholds, is_float64, ranges


def _round(values: np.ndarray, is_float64: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return values as bins compare them, float32 numbers where `is_float64` is False."""
    with np.errstate(over="ignore"):
        return np.where(is_float64, values, values.astype(np.float32))


def _get_arrays(block: SparseBlock | SparseRows) -> tuple[object, ...]:
    return block.data, block.indices, block.indptr, block.features


def _split_sparse_columns(
    table: FeatureTable, features: NDArray[np.int64] | None
) -> tuple[FeatureTable, SparseBlock]:
    """Return the table without some of its sparse columns, by default those with few stored rows,
    and these columns, ascending."""
    block = SparseBlock.concatenate(table.sparse)
    if features is None:
        is_rare = np.diff(block.indptr) <= SPARSE_SHARE * table.n_rows
    else:
        is_rare = np.isin(block.features, features)
    rare = np.flatnonzero(is_rare)
    rare = rare[np.argsort(block.features[rare])]
    return replace(table, sparse=[block.take(~is_rare)]), block.take(rare)
