"""The user's X, whatever it is, as a `FeatureTable`: views of columns, checked, not yet binned.

Owns: reading NumPy arrays, data frames (through narwhals) and SciPy matrices; which columns are categorical;
the checks of shape, names and infinities. Must not know: bins, trees, estimators (beyond scikit-learn's
bookkeeping of names).
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from sklearn.utils.validation import check_array, validate_data

import polyleaf._core as _core
from polyleaf.inputs.feature_numbers import get_feature_index
from polyleaf.inputs.frames import Frame, as_frame, check_in_memory, check_unique_names
from polyleaf.inputs.objects import find_non_number, is_missing, replace_nulls_with_nan, what
from polyleaf.inputs.text import all_distinct, find_stray_categories
from polyleaf.inputs.validation import check_data
from polyleaf.runtime.cuda import get_device
from polyleaf.runtime.device_arrays import as_device_array, is_device_array

FROM_DTYPE: Literal["from_dtype"] = "from_dtype"  # columns are categories where their type says so
MAX_ROWS = 2**31 - 1
CATEGORY_TYPES = (str, bool, int, float)

# Rows that are transposed at a time: their columns stay in the cache.
_ROWS_AT_A_TIME = 2048


@dataclass(frozen=True)
class FeatureSpec:
    """What a table must look like to fit a mapper or model: number, names and kinds of its features.

    Attributes
    ----------
    n_features : int
    feature_names : tuple of str, or None where the training data had none
    is_categorical : ndarray of bool, shape (n_features,)
    """

    n_features: int
    feature_names: tuple[str, ...] | None
    is_categorical: NDArray[np.bool_]


@dataclass(frozen=True)
class DenseBlock:
    """Numeric columns of one dtype (float32, float64 or integers), with any strides."""

    values: NDArray[Any]  # (n_rows, k)
    features: NDArray[np.int64]  # which features they are (k,)


@dataclass(frozen=True)
class SparseBlock:
    """Numeric columns in compressed form (CSC without duplicates); rows that are not stored hold 0."""

    data: NDArray[Any]  # float32 or float64 (nnz,)
    indices: NDArray[np.int32]  # rows (nnz,)
    indptr: NDArray[np.int64]  # (k + 1,)
    features: NDArray[np.int64]  # (k,)

    def rows(self, start: int, stop: int, n_rows: int) -> SparseBlock:
        """Rows ``start .. stop - 1`` of `n_rows`."""
        shape = (n_rows, len(self.features))
        part = scipy.sparse.csc_matrix((self.data, self.indices, self.indptr), shape)[start:stop]
        return _columns_of(part, self.features)

    def take(self, columns: NDArray[Any]) -> SparseBlock:
        """Some of the columns, by mask or position."""
        number = np.arange(len(self.features))[columns]
        sizes = np.diff(self.indptr)[number]
        indptr = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        stored = np.repeat(self.indptr[number] - indptr[:-1], sizes) + np.arange(indptr[-1])
        return SparseBlock(self.data[stored], self.indices[stored], indptr, self.features[number])

    @staticmethod
    def joined(blocks: Sequence[SparseBlock | SparseRows]) -> SparseBlock | SparseRows:
        """The columns of several blocks."""
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
    """A `SparseBlock` of all features that is held by rows as it was given; columns are made when asked for.

    Prediction asks for those alone that trees split on, which are few of many thousands.

    Parameters
    ----------
    matrix : SciPy CSR matrix of float32 or float64, columns ascending in each row, without duplicates
    """

    def __init__(self, matrix: Any):
        self.matrix = matrix
        self.features = np.arange(matrix.shape[1])

    def take(self, columns: NDArray[Any]) -> SparseBlock:
        """Some of the columns, by mask or position."""
        number = self.features[columns]
        return _columns_of(self.matrix[:, number], number)

    def rows(self, start: int, stop: int, n_rows: int) -> SparseRows:
        """Rows ``start .. stop - 1`` of `n_rows`."""
        return SparseRows(self.matrix[start:stop])

    @cached_property
    def _columns(self) -> SparseBlock:
        return _columns_of(self.matrix, self.features)

    @property
    def data(self) -> NDArray[Any]:
        return self._columns.data

    @property
    def indices(self) -> NDArray[np.int32]:
        return self._columns.indices

    @property
    def indptr(self) -> NDArray[np.int64]:
        return self._columns.indptr


def _columns_of(matrix: Any, features: NDArray[np.int64]) -> SparseBlock:
    """A SciPy matrix without duplicates by its columns."""
    columns = matrix.tocsc()
    indices, indptr = (
        columns.indices.astype(np.int32, copy=False),
        columns.indptr.astype(np.int64, copy=False),
    )
    return SparseBlock(columns.data, indices, indptr, features)


@dataclass(frozen=True)
class CategoryColumn:
    """One categorical column: row i holds ``categories[index[i]]``; ``index[i]`` -1 is missing."""

    index: NDArray[np.int32]
    categories: tuple[str | bool | int | float, ...]
    feature: int


@dataclass(frozen=True)
class FeatureTable:
    """Checked features, held by column or block so that no dtype forces a large copy of the others.

    Attributes
    ----------
    n_rows, n_features : int
    feature_names : tuple of str, or None
    dense, sparse, categories : lists of blocks; every feature is in exactly one of them
    texts : list of int
        Categorical features that are text which nobody called categories.
    device_array : DeviceArray or None
        All features, where they are numbers that lie on a card: then there are no blocks.
    """

    n_rows: int
    n_features: int
    feature_names: tuple[str, ...] | None
    dense: list[DenseBlock] = field(default_factory=list)
    sparse: list[SparseBlock | SparseRows] = field(default_factory=list)
    categories: list[CategoryColumn] = field(default_factory=list)
    texts: list[int] = field(default_factory=list)
    device_array: _core.DeviceArray | None = None

    def sample(self, rows: NDArray[np.int64] | None) -> FeatureTable:
        """Some rows of a table on a card, or all, in memory of this machine."""
        assert self.device_array is not None
        block = DenseBlock(self.device_array.read(rows), np.arange(self.n_features))
        n_rows = self.n_rows if rows is None else len(rows)
        return FeatureTable(n_rows, self.n_features, self.feature_names, [block])

    @property
    def is_categorical(self) -> NDArray[np.bool_]:
        """Bool, shape (n_features,)."""
        mask = np.zeros(self.n_features, dtype=bool)
        if self.categories:
            mask[[column.feature for column in self.categories]] = True
        return mask

    def rows(self, start: int, stop: int) -> FeatureTable:
        """Rows ``start .. stop - 1``: views, except of sparse blocks and of what lies on a card."""
        if self.device_array is not None:
            return self.sample(np.arange(start, stop))
        return FeatureTable(
            stop - start,
            self.n_features,
            self.feature_names,
            [DenseBlock(block.values[start:stop], block.features) for block in self.dense],
            [block.rows(start, stop, self.n_rows) for block in self.sparse],
            [CategoryColumn(c.index[start:stop], c.categories, c.feature) for c in self.categories],
        )

    def get_raw_values(self, only: NDArray[np.bool_] | None = None) -> NDArray[np.float32]:
        """The raw values of the features, as linear leaves read them.

        Parameters
        ----------
        only : ndarray of bool, shape (n_features,), optional
            The features that are wanted; the others are zeros that take no memory until they are read.

        Returns
        -------
        ndarray of shape (n_features, n_rows), float32, C order
            NaN where missing, and everywhere for categorical features. What float32 cannot hold becomes its
            largest number of that sign.
        """
        if self.device_array is not None:
            return self.sample(None).get_raw_values(only)
        wanted = np.ones(self.n_features, bool) if only is None else only
        numbers = np.zeros((self.n_features, self.n_rows), np.float32)
        for block in self.dense:
            columns = np.flatnonzero(wanted[block.features])
            features = block.features[columns]
            for begin in range(0, self.n_rows if len(columns) else 0, _ROWS_AT_A_TIME):
                rows = slice(begin, begin + _ROWS_AT_A_TIME)
                numbers[features, rows] = _narrow(block.values[rows, columns]).T
        for stored_columns in self.sparse:
            part = stored_columns.take(wanted[stored_columns.features])
            for column in range(len(part.features)):
                stored = slice(part.indptr[column], part.indptr[column + 1])
                numbers[part.features[column], part.indices[stored]] = _narrow(part.data[stored])
        for category in self.categories:
            if wanted[category.feature]:
                numbers[category.feature] = np.nan
        return numbers

    def describe_feature(self, feature: int) -> str:
        """How messages call a feature: its name in quotes, or its position."""
        return _label(feature, self.feature_names)


@dataclass(frozen=True)
class TextColumnSummary:
    """What rows hold of one column of text that nobody called categories.

    Attributes
    ----------
    name : str
        How messages call the column.
    categories : sequence
    counts, first : ndarray of int64, shape (n_categories,)
        How many rows hold each category, and the first of them.
    """

    name: str
    categories: Sequence[Any]
    counts: NDArray[np.int64]
    first: NDArray[np.int64]

    @staticmethod
    def of(table: FeatureTable, column: CategoryColumn) -> TextColumnSummary:
        """A column of a table that holds all rows."""
        counts = np.zeros(len(column.categories), np.int64)
        first = counts.copy()
        present = np.flatnonzero(column.index >= 0)
        found, at, n = np.unique(column.index[present], return_index=True, return_counts=True)
        counts[found], first[found] = n, present[at]
        return TextColumnSummary(
            table.describe_feature(column.feature), column.categories, counts, first
        )


def read_features(
    X: Any,
    *,
    categorical_features: Any = FROM_DTYPE,
    feature_names: Sequence[str] | None = None,
    reference: Any = None,
    estimator: Any = None,
    reset: bool = False,
    n_threads: int = 1,
    whole: bool = True,
) -> FeatureTable:
    """Read and check the user's features.

    Parameters
    ----------
    X : array-like, data frame or sparse matrix, shape (n_rows, n_features)
        NumPy arrays of float32, float64 or integers are used in place in any memory order. Data frames are
        read column by column. Sparse matrices are read as compressed columns; what they do not store is 0,
        not missing. NaN and nulls are missing values. Arrays on a card stay there, where the estimator is
        one with ``device="cuda"``.
    categorical_features : "from_dtype", None, list of names or positions, or bool mask
        "from_dtype": data frame columns of type category, Categorical, Enum or text. A list or mask names
        exactly the categorical columns. Ignored where ``reference`` is given.
    feature_names : sequence of str, optional
        Names of the columns; by default those of the data frame.
    reference : FeatureSpec, or anything with an attribute ``spec_`` that is one
        What the table must agree with: number, names and kinds of features.
    estimator, reset
        A scikit-learn estimator whose ``n_features_in_`` and ``feature_names_in_`` are set (``reset=True``)
        or checked, by scikit-learn's own `validate_data`.
    n_threads : int
        For the search for infinities.
    whole : bool
        False: X is some rows of a table, and what only all of them tell is for the caller to judge
        (`check_text_columns`).

    Returns
    -------
    FeatureTable

    Raises
    ------
    ValueError
        Wrong shape, infinities, names or kinds that do not match, values that are neither numbers nor
        categories.
    TypeError
        Objects that cannot be read as numbers at all.
    """
    device = get_device(getattr(estimator, "device", None)) if is_device_array(X) else None
    if device is None:
        check_in_memory(X, "X")
        X = check_data(X, "X")
    spec = getattr(reference, "spec_", reference)
    wanted = spec.is_categorical if spec is not None else categorical_features
    reader = _Reader(wanted, feature_names, spec, estimator, reset, n_threads, whole)
    if device is not None:
        return reader.read_on_card(as_device_array(device, X, "X"))
    if isinstance(X, FeatureTable):
        reader.check_names(X.feature_names, X.n_features)
        return X
    if scipy.sparse.issparse(X):
        return reader.read_sparse(X)
    if type(X) is not np.ndarray:
        frame = as_frame(X)
        if frame is not None:
            return reader.read_frame(X, frame)
    return reader.read_array(X)


@dataclass
class _Reader:
    """One call of `read_features`: its options, and one ``read_*`` method per kind of X."""

    categorical_features: Any
    given_names: Sequence[str] | None
    spec: FeatureSpec | None
    estimator: Any
    reset: bool
    n_threads: int
    whole: bool

    # -- what is common to all kinds

    def start(self, X: Any, shape: tuple[int, int], names: Sequence[Any] | None) -> FeatureTable:
        """An empty table, once shape and names are checked."""
        n_rows, n_features = shape
        _check_shape(n_rows, n_features, self.fewest_rows)
        if self.given_names is not None:
            names = _checked_names(self.given_names, n_features)
        else:
            check_unique_names(names, "X")
        table = FeatureTable(n_rows, n_features, None if names is None else _text_names(names))
        if self.estimator is not None and not self.is_as_expected(X, names, table):
            validate_data(self.estimator, X, skip_check_array=True, reset=self.reset)
        if self.estimator is not None and self.given_names is None:
            check_column_labels(self.estimator, names, self.reset)
        self.check_names(table.feature_names, n_features)
        return table

    @property
    def fewest_rows(self) -> int:
        """No rows are enough to predict."""
        return 1 if self.spec is None else 0

    def is_as_expected(self, X: Any, names: Sequence[Any] | None, table: FeatureTable) -> bool:
        """Whether names are those that were learned, or number and lack of names are, so that scikit-learn's
        slower checks need not look."""
        if self.reset or self.spec is None:
            return False
        if self.spec.feature_names is not None:
            return table.feature_names == self.spec.feature_names
        books = vars(self.estimator)
        without_names = type(X) is np.ndarray if names is None else set(map(type, names)) == {int}
        same_number = table.n_features == books.get("n_features_in_") == self.spec.n_features
        return without_names and same_number and "feature_names_in_" not in books

    def check_names(self, names: tuple[str, ...] | None, n_features: int) -> None:
        """Against the reference, in scikit-learn's words. Data without names is taken in the order it has."""
        if self.spec is None:
            return
        if (
            names is not None
            and self.spec.feature_names is not None
            and names != self.spec.feature_names
        ):
            raise ValueError(_name_mismatch(names, self.spec.feature_names))
        if n_features != self.spec.n_features:
            who = "BinMapper" if self.estimator is None else type(self.estimator).__name__
            raise ValueError(
                f"X has {n_features} features, but {who} is expecting {self.spec.n_features} features "
                "as input."
            )

    def mask(self, table: FeatureTable) -> NDArray[np.bool_] | None:
        """Which columns the user (or the reference) calls categorical; None: each column's dtype decides."""
        return resolve_categorical_mask(self.categorical_features, table)

    def add_numbers(
        self, table: FeatureTable, values: NDArray[Any], features: NDArray[np.int64]
    ) -> None:
        """Add numeric columns (n_rows, k), converting only dtypes the core does not read."""
        values = _readable(values)
        if values.dtype.kind == "f" and _core.has_infinite(values, self.n_threads):
            row, column = (int(i) for i in np.argwhere(np.isinf(values))[0])
            raise ValueError(_infinity_message(row, table.describe_feature(int(features[column]))))
        table.dense.append(DenseBlock(values, features))

    # -- NumPy and everything NumPy understands

    def read_array(self, X: Any) -> FeatureTable:
        plain = type(X) is np.ndarray and X.ndim == 2 and X.dtype.kind in "fiub" and X.size > 0
        has_text = not plain and self.may_hold_categories() and np.asarray(X).dtype.kind in "OUST"
        dtype = None if has_text else "numeric"
        values = X if plain else self.checked(X, dtype)
        table = self.start(values, values.shape, None)
        mask = self.mask(table)
        if mask is None:
            mask = np.zeros(table.n_features, dtype=bool)
        for feature in np.flatnonzero(mask).tolist() if mask.any() else ():
            table.categories.append(_encode_array(values[:, feature], feature, table))
        for begin, end in _runs(~mask):
            numbers = values[:, begin:end]
            if has_text:
                numbers = check_array(numbers, ensure_all_finite=False, input_name="X")
            self.add_numbers(table, numbers, np.arange(begin, end))
        return table

    def checked(self, X: Any, dtype: Any) -> NDArray[Any]:
        """X by scikit-learn's rules; of Python objects that are no numbers, which row and column it is."""
        given = np.asarray(X)
        is_objects = given.dtype == object and given.ndim == 2
        if is_objects:
            X = replace_nulls_with_nan(given)
        try:
            return check_array(
                X,
                dtype=dtype,
                ensure_all_finite=False,
                input_name="X",
                ensure_min_samples=self.fewest_rows,
            )
        except (TypeError, ValueError) as error:
            place = find_non_number(X) if is_objects else None
            if place is None:
                raise
            row, column = place
            trained = self.spec is not None
            sentence = _not_a_number(X[place], row, f"number {column}", trained)
            # scikit-learn's tools look for the words of the library below.
            raise type(sentence)(f"{sentence} ({error})") from None

    def may_hold_categories(self) -> bool:
        """Whether an array's text could be asked for as categories."""
        asked = self.categorical_features
        if asked is None or (isinstance(asked, str) and asked == FROM_DTYPE):
            return False
        return not isinstance(asked, np.ndarray) or asked.dtype != bool or bool(asked.any())

    # -- arrays on a card

    def read_on_card(self, X: _core.DeviceArray) -> FeatureTable:
        """Numbers alone, which stay where they are."""
        if X.ndim != 2:
            raise ValueError(
                "Expected 2D array, got 1D array instead: X on a card must be (n_rows, n_features)."
            )
        table = replace(self.start(X, X.shape, None), device_array=X)
        mask = self.mask(table)
        if mask is not None and mask.any():
            name = table.describe_feature(int(np.flatnonzero(mask)[0]))
            raise ValueError(
                f"Feature {name} is categorical, and what lies on a card is read as numbers: pass a copy of "
                "X in memory of this machine."
            )
        found = X.find_infinity()
        if found is not None:
            raise ValueError(_infinity_message(found[0], table.describe_feature(found[1])))
        return table

    # -- SciPy

    def read_sparse(self, X: Any) -> FeatureTable:
        # What was trained on is known: its rows may stay rows.
        formats = "csc" if self.spec is None else ("csc", "csr")
        matrix = check_array(
            X,
            accept_sparse=formats,
            ensure_all_finite=False,
            input_name="X",
            ensure_min_samples=self.fewest_rows,
        )
        table = self.start(X, matrix.shape, None)
        mask = self.mask(table)
        is_plain = mask is None or not mask.any()
        if matrix.format == "csr" and not (is_plain and matrix.has_canonical_format):
            matrix = matrix.tocsc()
        if not matrix.has_canonical_format:
            matrix = matrix.copy() if matrix is X else matrix
            matrix.sum_duplicates()
        if matrix.data.dtype not in (np.float32, np.float64):
            matrix = matrix.astype(np.float64)
        if np.isinf(matrix.data).any():
            row, feature = _first_infinity(matrix)
            raise ValueError(_infinity_message(row, table.describe_feature(feature)))
        if matrix.format == "csr":
            table.sparse.append(SparseRows(matrix))
            return table
        whole = _columns_of(matrix, np.arange(table.n_features))
        for begin, end in _runs(np.ones(table.n_features, bool) if mask is None else ~mask):
            inside = slice(whole.indptr[begin], whole.indptr[end])
            starts = whole.indptr[begin : end + 1] - whole.indptr[begin]
            block = SparseBlock(
                whole.data[inside], whole.indices[inside], starts, np.arange(begin, end)
            )
            table.sparse.append(block)
        for feature in np.flatnonzero(mask).tolist() if mask is not None else ():
            column = np.zeros(table.n_rows, whole.data.dtype)
            inside = slice(whole.indptr[feature], whole.indptr[feature + 1])
            column[whole.indices[inside]] = whole.data[inside]
            table.categories.append(_encode_array(column, int(feature), table))
        return table

    # -- data frames

    def read_frame(self, X: Any, frame: Frame) -> FeatureTable:
        table = self.start(X, frame.shape, frame.names)
        mask = self.mask(table)
        alone = np.ones(table.n_features, bool)  # still to be read, column by column
        for values, features in frame.blocks():
            if mask is not None and mask[features].any():
                values, features = values[:, ~mask[features]], features[~mask[features]]
            if len(features):
                self.add_numbers(table, values, features)
                alone[features] = False
        for feature in np.flatnonzero(alone).tolist() if alone.any() else ():
            series = frame.series(feature)
            is_guessed = mask is None and _is_category_series(series)
            if is_guessed or (mask is not None and mask[feature]):
                column = _encode_values(series.to_list(), feature, table)
                table.categories.append(column)
                if is_guessed and self.spec is None and _is_text_series(series):
                    table.texts.append(feature)
            else:
                values = self.numbers_of_series(series, table.describe_feature(feature))
                self.add_numbers(table, values.reshape(-1, 1), np.array([feature]))
        if self.whole:
            check_text_columns(
                TextColumnSummary.of(table, c) for c in table.categories if c.feature in table.texts
            )
        return table

    def numbers_of_series(self, series: Any, name: str) -> NDArray[Any]:
        """One numeric column (n_rows,): a view where it has no nulls and a NumPy dtype."""
        import narwhals.stable.v1 as nw

        dtype = series.dtype
        if dtype.is_numeric() or dtype == nw.Boolean:
            floating = dtype in (nw.Float32, nw.Float64)
            as_it_is = floating or not (series.null_count() or dtype in (nw.Int128, nw.UInt128))
            values = (series if as_it_is else series.cast(nw.Float64)).to_numpy()
            if values.dtype.kind in "fiub":
                return values
            # Objects: decimals, or nulls that this kind of frame does not turn into NaN.
            return _numbers_from_objects(values.tolist(), name, trained=self.spec is not None)
        if dtype in (nw.String, nw.Categorical, nw.Enum, nw.Object) or dtype == nw.Unknown:
            return _numbers_from_objects(series.to_list(), name, trained=self.spec is not None)
        raise ValueError(
            f"Column {name} of X is of type {dtype}, which is neither a number nor a category; "
            "convert it to a number (for a date: a number of days) or to text."
        )


# ---- checks ------------------------------------------------------------------------------------------------


def _label(feature: int, names: tuple[str, ...] | None) -> str:
    return f"{names[feature]!r}" if names is not None else f"number {feature}"


def _infinity_message(row: int, column: str) -> str:
    return (
        "Input X contains infinity or a value too large for dtype('float64'): "
        f"the first is in row {row}, column {column}. "
        "Replace it by a finite number, or by NaN where it means missing."
    )


def _first_infinity(matrix: Any) -> tuple[int, int]:
    """Row and column of the first one stored by a CSR or CSC matrix."""
    place = int(np.flatnonzero(np.isinf(matrix.data))[0])
    across, along = (
        int(matrix.indices[place]),
        int(np.searchsorted(matrix.indptr, place, side="right")) - 1,
    )
    return (along, across) if matrix.format == "csr" else (across, along)


def _check_shape(n_rows: int, n_features: int, fewest_rows: int) -> None:
    """Empty tables in scikit-learn's words; tables too long for 32-bit row numbers in ours."""
    for count, fewest, unit in ((n_rows, fewest_rows, "sample"), (n_features, 1, "feature")):
        if count < fewest:
            raise ValueError(
                f"Found array with {count} {unit}(s) (shape={(n_rows, n_features)}) while a minimum of 1 is "
                "required."
            )
    if n_rows > MAX_ROWS:
        raise ValueError(
            f"X has {n_rows} rows, and the most a table can have is {MAX_ROWS} (2^31 - 1); "
            "train on a sample of them."
        )


def _text_names(names: Sequence[Any]) -> tuple[str, ...] | None:
    """The names where all are text, as those of features have to be."""
    kinds = set(map(type, names))
    return tuple(names) if kinds == {str} or all(issubclass(kind, str) for kind in kinds) else None


def _checked_names(names: Sequence[str], n_features: int) -> Sequence[str]:
    names = list(names)
    if not all(isinstance(name, str) for name in names):
        raise ValueError("feature_names must be strings.")
    if len(names) != n_features:
        raise ValueError(f"feature_names has {len(names)} names, but X has {n_features} features.")
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(
            f"feature_names must differ from one another, but {twice!r} occurs more than once."
        )
    return names


def _name_mismatch(names: tuple[str, ...], expected: tuple[str, ...]) -> str:
    """scikit-learn's message for names that differ from those of the training data."""
    lines = ["The feature names should match those that were passed during fit."]
    for title, extra in (
        ("Feature names unseen at fit time:", sorted(set(names) - set(expected))),
        ("Feature names seen at fit time, yet now missing:", sorted(set(expected) - set(names))),
    ):
        if extra:
            lines += [
                title,
                *(f"- {name}" for name in extra[:5]),
                *(["- ..."] if len(extra) > 5 else []),
            ]
    if len(lines) == 1:
        lines.append("Feature names must be in the same order as they were in fit.")
    return "\n".join(lines) + "\n"


def check_column_labels(estimator: Any, names: Sequence[Any] | None, reset: bool) -> None:
    """Of columns whose names are no text (numbers of pandas), for which scikit-learn has no books: keep them
    (`reset`), or compare. Only the same ones in another order are refused, for numbers often say no more than
    where a column is."""
    labels = None if names is None or _text_names(names) is not None else tuple(names)
    if reset:
        estimator._column_labels = labels
        return
    known = None if labels is None else getattr(estimator, "_column_labels", None)
    if labels is None or known is None or labels == known or set(labels) != set(known):
        return
    place = next(i for i, label in enumerate(labels) if label != known[i])
    raise ValueError(
        f"The columns of X are those of the training data in another order: column number {place} is "
        f"{labels[place]!r}, and was {known[place]!r}. Reorder them."
    )


def resolve_categorical_mask(asked: Any, table: FeatureTable) -> NDArray[np.bool_] | None:
    """Bool (n_features,), or None for "from_dtype"."""
    if isinstance(asked, str):
        if asked == FROM_DTYPE:
            return None
        raise ValueError(
            f"categorical_features={asked!r} is unknown; it must be 'from_dtype', None, a list of names or "
            "positions, or a mask."
        )
    mask = np.zeros(table.n_features, dtype=bool)
    if asked is None:
        return mask
    if isinstance(asked, np.ndarray) and asked.dtype == bool and asked.shape == mask.shape:
        return asked
    entries = np.asarray(list(asked), dtype=object)
    if all(isinstance(entry, bool | np.bool_) for entry in entries) and len(entries):
        if len(entries) != table.n_features:
            raise ValueError(
                f"categorical_features is a mask of {len(entries)} entries, but X has {table.n_features} "
                "features."
            )
        return entries.astype(bool)
    for entry in entries:
        number = get_feature_index(
            entry, table.feature_names, table.n_features, "categorical_features"
        )
        mask[number] = True
    return mask


# ---- numbers -----------------------------------------------------------------------------------------------


def _runs(mask: NDArray[np.bool_]) -> Iterator[tuple[int, int]]:
    """Half-open ranges of consecutive True entries: their columns are one view."""
    if mask.all():  # most often, and as much work as a row
        yield 0, len(mask)
        return
    edges = np.flatnonzero(np.diff(np.concatenate([[False], mask, [False]]).astype(np.int8)))
    yield from zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True)


def _readable(values: NDArray[Any]) -> NDArray[Any]:
    """The same numbers in a dtype the core reads (float32, float64, integers); copied only if need be."""
    dtype = values.dtype
    if dtype.kind == "b":
        return values.view(np.uint8)
    if dtype.kind == "f" and dtype.itemsize not in (4, 8):
        return values.astype(np.float32 if dtype.itemsize == 2 else np.float64)
    if dtype.kind not in "fiu":
        raise ValueError(
            f"X holds values of dtype {dtype}, which are no numbers; convert them first."
        )
    if not dtype.isnative or not values.flags.aligned:
        return np.array(values, dtype=dtype.newbyteorder("="), order="K")
    return values


def _narrow(values: NDArray[Any]) -> NDArray[np.float32]:
    """As float32; what is too large becomes the largest number there is (NaN stays)."""
    with np.errstate(over="ignore"):
        narrow = values.astype(np.float32, copy=False)
    if values.dtype == np.float64:
        largest = np.finfo(np.float32).max
        np.clip(narrow, -largest, largest, out=narrow)
    return narrow


def _numbers_from_objects(values: list[Any], name: str, trained: bool) -> NDArray[np.float64]:
    """Python objects as float64; text is accepted where it spells a number."""
    objects = replace_nulls_with_nan(np.fromiter(values, dtype=object, count=len(values)))
    try:
        return objects.astype(np.float64)
    except (TypeError, ValueError):
        place = find_non_number(objects)
        if place is None:
            raise
        raise _not_a_number(objects[place], place[0], name, trained) from None


def _not_a_number(value: Any, row: int, name: str, trained: bool) -> Exception:
    """A sentence about a value in a column that is not categorical."""
    if isinstance(value, str):
        hint = (
            "it held numbers when the model was fitted"
            if trained
            else "list it in categorical_features, or convert it to numbers"
        )
        return ValueError(
            f"Column {name} of X holds text, such as {value!r} in row {row}, but is not categorical: {hint}."
        )
    return TypeError(
        f"Column {name} of X holds {what(value)} in row {row}, which is neither a number nor text: convert "
        "it to a number (for a date or period: a number of days) or to text; give each entry of a list a "
        "column of its own."
    )


# ---- categories --------------------------------------------------------------------------------------------


def _is_category_series(series: Any) -> bool:
    """Whether a column's own dtype makes it categorical; Python objects do where one of them is text."""
    import narwhals.stable.v1 as nw

    if series.dtype in (nw.Categorical, nw.Enum, nw.String):
        return True
    return series.dtype == nw.Object and any(isinstance(value, str) for value in series.to_list())


def _is_text_series(series: Any) -> bool:
    """Whether it is text that nobody called categories."""
    import narwhals.stable.v1 as nw

    return series.dtype not in (nw.Categorical, nw.Enum)


def check_text_columns(texts: Iterable[TextColumnSummary]) -> None:
    """Refuse columns of numbers that a stray cell has made text, and warn of text that says nothing."""
    useless = []
    for text in texts:
        is_stray = find_stray_categories(text.categories, text.counts)
        if is_stray is not None:
            place = min(
                np.flatnonzero(is_stray & (text.counts > 0)).tolist(), key=text.first.__getitem__
            )
            raise _stray_text(text.name, int(text.first[place]), text.categories[place])
        if all_distinct(text.categories, text.counts):
            useless.append(text.name)
    _warn_of_useless(useless)


def _stray_text(name: str, row: int, cell: Any) -> ValueError:
    return ValueError(
        f"Column {name} of X holds numbers, but row {row} holds the text {cell!r}, which would make "
        "categories of all of them. Correct the cell, or make it missing (pandas.to_numeric with "
        f'errors="coerce"); if they are categories, give the column such a type, or list {name} in '
        "categorical_features."
    )


def _warn_of_useless(names: Sequence[str]) -> None:
    if names:
        which = f"Column {names[0]}" if len(names) == 1 else f"Columns {', '.join(names[:5])}"
        more = f" and {len(names) - 5} more" if len(names) > 5 else ""
        warnings.warn(
            f"{which}{more} of X: text that differs in every row, as names and dates do, so that nothing "
            "can be learned from it for other rows. Leave it out, or make numbers of it.",
            stacklevel=2,
        )


def _encode_array(values: NDArray[Any], feature: int, table: FeatureTable) -> CategoryColumn:
    """A column of a NumPy array (n_rows,) as categories."""
    if values.dtype.kind not in "fiub":
        return _encode_values(values.tolist(), feature, table)
    found, index = np.unique(values, return_inverse=True)
    return _category_column(found.tolist(), index.reshape(-1).astype(np.int32), feature, table)


def _encode_values(values: Iterable[Any], feature: int, table: FeatureTable) -> CategoryColumn:
    """Python objects as categories, numbered as they first occur."""
    place: dict[Any, int] = {}
    try:
        index = np.fromiter(
            (place.setdefault(value, len(place)) for value in values), np.int32, table.n_rows
        )
    except TypeError as error:
        raise ValueError(
            f"Column {table.describe_feature(feature)} of X holds values that cannot be categories: {error}."
        ) from None
    return _category_column(list(place), index, feature, table)


def _category_column(
    found: list[Any], index: NDArray[np.int32], feature: int, table: FeatureTable
) -> CategoryColumn:
    """Move missing values out of the categories, and check the types of the others."""
    categories: list[Any] = []
    new_index = np.full(len(found), -1, dtype=np.int32)
    for i, value in enumerate(found):
        value = value.item() if isinstance(value, np.generic) else value
        if is_missing(value):
            continue
        if not isinstance(value, CATEGORY_TYPES):
            raise ValueError(
                f"Column {table.describe_feature(feature)} of X holds a category of type {type(value).__name__}; "
                "categories must be text, numbers or booleans: convert the column to text."
            )
        if isinstance(value, float) and np.isinf(value):
            row = int(np.flatnonzero(index == i)[0])
            raise ValueError(_infinity_message(row, table.describe_feature(feature)))
        new_index[i] = len(categories)
        categories.append(value)
    return CategoryColumn(new_index[index], tuple(categories), feature)
