"""`FeatureTable`: checked features, in blocks of columns, before binning.

Regressors of linear leaves are values of numeric columns as float32 numbers. Two kinds of columns
are transformed; other values are used as they are:

- Columns with float64 bins, such as seconds since 1970, are centred on the middle of their
  thresholds in float64, so that the differences between rows keep their digits.
- Codes for missing values, such as -999, become the nearest threshold of the other values. Codes
  are values beyond a gap between thresholds that is more than twice as wide as all other thresholds
  together; a few rows would otherwise decide the scale and the slopes of all others.

Everything follows from the thresholds, so a model file stores no more than that it is done.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from sklearn.utils import _safe_indexing

import polyleaf._core as _core

CATEGORY_TYPES = (str, bool, int, float)

_BLOCK_ROWS = 2048  # rows transposed at a time: their columns stay in the cache


@dataclass(frozen=True)
class FeatureSpec:
    """Number, names and kinds of the features of a table, mapper or model."""

    n_features: int  # number of features
    feature_names: tuple[str, ...] | None  # names, if the training data had any
    is_categorical: NDArray[np.bool_]  # (n_features,), which features are categorical
    # labels of the columns of a frame that are not all text, as text
    column_labels: tuple[str, ...] | None = None

    @classmethod
    def describe(cls, table: FeatureTable) -> FeatureSpec:
        """Return the features of a table."""
        labels = table.column_labels
        return cls(table.n_features, table.feature_names, table.is_categorical, labels)

    def check_labels(self, labels: tuple[str, ...] | None) -> None:
        """Raise a ValueError for the labels of the training data in another order.

        Other labels do not raise: numbers often are mere positions.
        """
        known = self.column_labels
        if labels is None or known is None:
            return
        if labels == known or sorted(labels) != sorted(known) or len(set(labels)) < len(labels):
            return
        position = next(i for i, label in enumerate(labels) if label != known[i])
        raise ValueError(
            "X has the columns of the training data in another order: column number "
            f"{position} is {labels[position]}, but was {known[position]}. Reorder them."
        )


@dataclass(frozen=True)
class DenseBlock:
    """Numeric columns of one dtype (float32, float64 or integers), with any strides."""

    values: np.ndarray  # (n_rows, k)
    features: NDArray[np.int64]  # indices of the features (k,)


@dataclass(frozen=True)
class SparseBlock:
    """Numeric columns in CSC format without duplicates; rows that are not stored hold 0."""

    data: np.ndarray  # float32 or float64 (nnz,)
    indices: NDArray[np.int32]  # rows (nnz,)
    indptr: NDArray[np.int64]  # (k + 1,)
    features: NDArray[np.int64]  # (k,)

    def rows(self, start: int, stop: int, n_rows: int) -> SparseBlock:
        """Return rows ``start .. stop - 1`` of `n_rows`."""
        shape = (n_rows, len(self.features))
        part = scipy.sparse.csc_matrix((self.data, self.indices, self.indptr), shape)[start:stop]
        return to_sparse_block(part, self.features)

    def take(self, columns: np.ndarray) -> SparseBlock:
        """Return some of the columns, by mask or position."""
        positions = np.arange(len(self.features))[columns]
        sizes = np.diff(self.indptr)[positions]
        indptr = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        stored = np.repeat(self.indptr[positions] - indptr[:-1], sizes) + np.arange(indptr[-1])
        features = self.features[positions]
        return SparseBlock(self.data[stored], self.indices[stored], indptr, features)

    @staticmethod
    def concatenate(blocks: Sequence[SparseBlock | SparseRows]) -> SparseBlock | SparseRows:
        """Return one block with the columns of all."""
        if len(blocks) == 1:
            return blocks[0]
        sizes = np.concatenate([np.diff(block.indptr) for block in blocks])
        return SparseBlock(
            np.concatenate([block.data for block in blocks]),
            np.concatenate([block.indices for block in blocks]),
            np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
            np.concatenate([block.features for block in blocks]),
        )


class SparseRows:
    """All features in CSR format; columns are converted on demand.

    Prediction needs only the columns that trees split on, which are few of many thousands.

    `matrix`: float32 or float64, in canonical format.
    """

    def __init__(self, matrix: Any):
        self.matrix = matrix
        self.features = np.arange(matrix.shape[1])

    def take(self, columns: np.ndarray) -> SparseBlock:
        """Return some of the columns, by mask or position."""
        features = self.features[columns]
        return to_sparse_block(self.matrix[:, features], features)

    def rows(self, start: int, stop: int, n_rows: int) -> SparseRows:
        """Return rows ``start .. stop - 1`` of `n_rows`."""
        return SparseRows(self.matrix[start:stop])

    @cached_property
    def _columns(self) -> SparseBlock:
        return to_sparse_block(self.matrix, self.features)

    @property
    def data(self) -> np.ndarray:
        return self._columns.data

    @property
    def indices(self) -> NDArray[np.int32]:
        return self._columns.indices

    @property
    def indptr(self) -> NDArray[np.int64]:
        return self._columns.indptr


def to_sparse_block(matrix: Any, features: NDArray[np.int64]) -> SparseBlock:
    """Convert a SciPy matrix without duplicates to a block of columns."""
    columns = matrix.tocsc()
    indices = columns.indices.astype(np.int32, copy=False)
    indptr = columns.indptr.astype(np.int64, copy=False)
    return SparseBlock(columns.data, indices, indptr, features)


@dataclass(frozen=True)
class CategoryColumn:
    """A categorical column: row i holds ``categories[index[i]]``; ``index[i]`` -1 is missing."""

    index: NDArray[np.int32]
    categories: tuple[str | bool | int | float, ...]
    feature: int


@dataclass(frozen=True)
class FeatureTable:
    """Checked features in blocks, so that no dtype forces a copy of the other columns."""

    # shape of X
    n_rows: int
    n_features: int
    feature_names: tuple[str, ...] | None  # names of the features
    # dense, sparse, categories: every feature is in exactly one block
    dense: list[DenseBlock] = field(default_factory=list)
    sparse: list[SparseBlock | SparseRows] = field(default_factory=list)
    categories: list[CategoryColumn] = field(default_factory=list)
    # categorical features that hold text without a categorical dtype
    texts: list[int] = field(default_factory=list)
    # all features, if they are numbers in GPU memory; then there are no blocks
    device_array: _core.DeviceArray | None = None
    source: object = None  # X as it was passed, for models with an initial model
    # labels of the columns of a frame that are not all text, as text
    column_labels: tuple[str, ...] | None = None

    def copy_to_host(self, rows: NDArray[np.int64] | None) -> FeatureTable:
        """Return some rows, or all, of a table in GPU memory as a table on the CPU."""
        assert self.device_array is not None
        block = DenseBlock(self.device_array.read(rows), np.arange(self.n_features))
        n_rows = self.n_rows if rows is None else len(rows)
        return FeatureTable(n_rows, self.n_features, self.feature_names, [block])

    @property
    def is_categorical(self) -> NDArray[np.bool_]:
        """Which features are categorical, bool (n_features,)."""
        mask = np.zeros(self.n_features, dtype=bool)
        if self.categories:
            mask[[column.feature for column in self.categories]] = True
        return mask

    def rows(self, start: int, stop: int) -> FeatureTable:
        """Return rows ``start .. stop - 1``, as views except for sparse and GPU data."""
        if self.device_array is not None:
            return self.copy_to_host(np.arange(start, stop))
        return FeatureTable(
            stop - start,
            self.n_features,
            self.feature_names,
            [DenseBlock(block.values[start:stop], block.features) for block in self.dense],
            [block.rows(start, stop, self.n_rows) for block in self.sparse],
            [CategoryColumn(c.index[start:stop], c.categories, c.feature) for c in self.categories],
            source=None
            if self.source is None
            else _safe_indexing(self.source, np.arange(start, stop)),
        )

    def get_raw_values(
        self, only: NDArray[np.bool_] | None = None, transform: RegressorTransform | None = None
    ) -> NDArray[np.float32]:
        """Return the values of the features, as linear leaves read them.

        `only` (n_features,): features to return; the others are zeros that take no memory until
        they are read. `transform`: applied before values are rounded to float32. Returns shape
        (n_features, n_rows), float32, C order: NaN for missing values and categorical features.
        Values beyond float32 become its largest number of that sign.
        """
        if self.device_array is not None:
            return self.copy_to_host(None).get_raw_values(only, transform)
        needed = np.ones(self.n_features, bool) if only is None else only
        values = np.zeros((self.n_features, self.n_rows), np.float32)
        for block in self.dense:
            columns = np.flatnonzero(needed[block.features])
            features = block.features[columns]
            for begin in range(0, self.n_rows if len(columns) else 0, _BLOCK_ROWS):
                rows = slice(begin, begin + _BLOCK_ROWS)
                chosen = _transform(block.values[rows, columns], features, transform)
                values[features, rows] = _to_float32(chosen).T
        for sparse in self.sparse:
            part = sparse.take(needed[sparse.features])
            for column in range(len(part.features)):
                stored = slice(part.indptr[column], part.indptr[column + 1])
                feature = part.features[column : column + 1]
                numbers = np.append(part.data[stored], 0.0)[:, None]  # and that of absent entries
                entries = _to_float32(_transform(numbers, feature, transform))[:, 0]
                values[feature[0]] = entries[-1]
                values[feature[0], part.indices[stored]] = entries[:-1]
        for category in self.categories:
            if needed[category.feature]:
                values[category.feature] = np.nan
        return values

    def to_float64(self) -> NDArray[np.float64]:
        """Return the values (n_rows, n_features), NaN where missing; 0 for categories."""
        if self.device_array is not None:
            return self.copy_to_host(None).to_float64()
        values = np.zeros((self.n_rows, self.n_features))
        for block in self.dense:
            values[:, block.features] = block.values
        for sparse in self.sparse:
            shape = (self.n_rows, len(sparse.features))
            stored = sparse.data, sparse.indices, sparse.indptr
            values[:, sparse.features] = scipy.sparse.csc_matrix(stored, shape).toarray()
        return values

    def describe_feature(self, feature: int) -> str:
        """Return a feature's name in quotes, or its position, for messages."""
        names = self.feature_names
        return f"{names[feature]!r}" if names is not None else f"number {feature}"


def _transform(
    values: np.ndarray, features: np.ndarray, transform: RegressorTransform | None
) -> np.ndarray:
    """Return values (n_rows, len(features)), transformed if some of the features are."""
    if transform is None or not transform.is_changed()[features].any():
        return values
    return transform.apply(values, features)


def _to_float32(values: np.ndarray) -> NDArray[np.float32]:
    """Convert to float32; values out of range become the largest number (NaN stays)."""
    with np.errstate(over="ignore"):
        converted = values.astype(np.float32, copy=False)
    if values.dtype == np.float64:
        largest = np.finfo(np.float32).max
        np.clip(converted, -largest, largest, out=converted)
    return converted


@dataclass(frozen=True)
class TextColumnSummary:
    """The categories of a column of text that has no categorical dtype."""

    name: str  # description of the column for messages
    categories: Sequence[object]  # distinct values
    # counts, first: (n_categories,), number of rows that hold each category, and the first of them
    counts: NDArray[np.int64]
    first: NDArray[np.int64]

    @staticmethod
    def from_column(table: FeatureTable, column: CategoryColumn) -> TextColumnSummary:
        """Summarise a column of a table with all rows."""
        present = np.flatnonzero(column.index >= 0)
        index = column.index[present]
        counts = np.bincount(index, minlength=len(column.categories)).astype(np.int64)
        first = np.zeros(len(column.categories), np.int64)
        first[index[::-1]] = present[::-1]  # the last assignment stays
        name = table.describe_feature(column.feature)
        return TextColumnSummary(name, column.categories, counts, first)


_GAP_RATIO = 2.0
_MIN_THRESHOLDS = 8  # of the values between the gaps
_MAX_CODES = 4  # of missing values per column


@dataclass(frozen=True)
class RegressorTransform:
    """The transform of all columns."""

    centre: NDArray[np.float64]  # (n_columns,), subtracted from values; 0 for float32 columns
    # low, high: (n_columns,), limits of values before that
    low: NDArray[np.float64]
    high: NDArray[np.float64]

    @staticmethod
    def from_thresholds(
        thresholds: Sequence[NDArray[np.float64]], is_float64: NDArray[np.bool_]
    ) -> RegressorTransform | None:
        """Return the transform for the thresholds of each column; None if it changes nothing."""
        n = len(thresholds)
        centre, low, high = np.zeros(n), np.full(n, -np.inf), np.full(n, np.inf)
        for column, t in enumerate(thresholds):
            low[column], high[column] = _find_codes(t)
            if is_float64[column] and len(t) > 0:
                kept = t[(t >= low[column]) & (t <= high[column])]
                centre[column] = kept[0] / 2 + kept[-1] / 2
        if not (centre.any() or np.isfinite(low).any() or np.isfinite(high).any()):
            return None
        return RegressorTransform(centre, low, high)

    def is_changed(self) -> NDArray[np.bool_]:
        """Return the mask (n_columns,) of the columns that are transformed."""
        return (self.centre != 0) | np.isfinite(self.low) | np.isfinite(self.high)

    def apply(self, values: np.ndarray, columns: np.ndarray) -> NDArray[np.float64]:
        """Return transformed values (n_rows, len(columns))."""
        limited = np.clip(values.astype(np.float64), self.low[columns], self.high[columns])
        return limited - self.centre[columns]


def _find_codes(t: NDArray[np.float64]) -> tuple[float, float]:
    """Return the least and the largest threshold of values that are no codes for missing ones."""
    first, last, low, high = 0, len(t) - 1, -np.inf, np.inf
    with np.errstate(over="ignore"):  # a gap may be larger than all numbers
        for _ in range(_MAX_CODES):
            if last - first < _MIN_THRESHOLDS:
                break
            if t[first + 1] - t[first] > _GAP_RATIO * (t[last] - t[first + 1]):
                first += 1
                low = t[first]
            elif t[last] - t[last - 1] > _GAP_RATIO * (t[last - 1] - t[first]):
                last -= 1
                high = t[last]
            else:
                break
    return float(low), float(high)
