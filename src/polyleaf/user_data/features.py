"""Users' X, an array, data frame or sparse matrix, as a checked `FeatureTable`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from sklearn.utils.validation import check_array, validate_data

import polyleaf._core as _core
from polyleaf.runtime.cuda import as_device_array, get_device, is_device_array
from polyleaf.runtime.types import DataLike
from polyleaf.runtime.user_warnings import warn_user
from polyleaf.user_data.feature_table import (
    CATEGORY_TYPES,
    CategoryColumn,
    DenseBlock,
    FeatureSpec,
    FeatureTable,
    SparseRows,
    TextColumnSummary,
    to_sparse_block,
)
from polyleaf.user_data.frames import Frame, as_frame, factorize_objects
from polyleaf.user_data.numeric_text import TextColumnError, all_distinct, find_text_problem
from polyleaf.user_data.validation import (
    check_data,
    check_in_memory,
    check_is_table,
    check_names,
    check_two_dimensions,
    check_unique_names,
    convert_objects,
    describe_type,
    find_non_number,
    get_index,
    is_missing,
    number_values,
    replace_nulls_with_nan,
    shorten_floats,
)

FROM_DTYPE: Literal["from_dtype"] = "from_dtype"
MAX_ROWS = 2**31 - 1


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

    Raises a ValueError for a wrong shape, infinities, names or kinds that do not match, and values
    that are neither numbers nor categories, and a TypeError for objects that cannot be converted to
    numbers.

    Parameters
    ----------
    X : array-like, data frame or sparse matrix, shape (n_rows, n_features)
        NumPy arrays of float32, float64 or integers are used in place, in any memory order. Data
        frames are read by column. Entries that a sparse matrix does not store are 0, not missing.
        NaN and nulls are missing values. Arrays in GPU memory stay there if the estimator has
        ``device="cuda"``.
    categorical_features : "from_dtype", None, list of names or positions, or bool mask
        "from_dtype": data frame columns of type category, Categorical, Enum or text. A list or
        mask names exactly the categorical columns. Ignored if ``reference`` is given.
    feature_names : sequence of str, optional
        Names of the columns; by default those of the data frame.
    reference : FeatureSpec, or an object with such an attribute ``spec_``
        Number, names and kinds of features that the table must have.
    estimator : estimator, optional
        A scikit-learn estimator whose ``n_features_in_`` and ``feature_names_in_`` are set or
        checked by scikit-learn's `validate_data`.
    reset : bool
        Whether to set them.
    n_threads : int
        Threads that search for infinities.
    whole : bool
        False: X has some rows of a table, and the caller checks columns of text when it has read
        all rows (`check_text_columns`).
    """
    spec = getattr(reference, "spec_", reference)
    categorical = spec.is_categorical if spec is not None else categorical_features
    reader = _Reader(categorical, feature_names, spec, estimator, reset, n_threads, whole)
    if type(X) is np.ndarray:
        return reader.read_array(X)
    if isinstance(X, FeatureTable):
        reader.check_names(X)
        return X
    if is_device_array(X):
        device = get_device(getattr(estimator, "device", None))
        if device is not None:
            return reader.read_device_array(as_device_array(device, X, "X"))
    check_in_memory(X, "X")
    X = check_data(X, "X")
    if scipy.sparse.issparse(X):
        return reader.read_sparse(X)
    frame = as_frame(X)
    return reader.read_array(X) if frame is None else reader.read_frame(X, frame)


@dataclass
class _Reader:
    """The options of one call of `read_features`, with one method per kind of X."""

    categorical_features: Any
    given_names: Sequence[str] | None
    spec: FeatureSpec | None
    estimator: Any
    reset: bool
    n_threads: int
    whole: bool

    # ---- steps for all kinds

    def make_table(
        self, X: Any, shape: tuple[int, int], names: Sequence[object] | None
    ) -> FeatureTable:
        """Check shape and names, and return an empty table."""
        n_rows, n_features = shape
        _check_shape(n_rows, n_features, self.min_rows)
        if self.given_names is not None:
            names = _check_given_names(self.given_names, n_features)
        elif names is not None:
            check_unique_names(names, "X")
        text = None if names is None else _to_text(names)
        labels = None if names is None or text is not None else tuple(map(str, names))
        table = FeatureTable(n_rows, n_features, text, column_labels=labels)
        if self.estimator is not None and (
            self.reset or not self.matches_training(X, names, table)
        ):
            validate_data(self.estimator, X, skip_check_array=True, reset=self.reset)
        self.check_names(table)
        return table

    @property
    def min_rows(self) -> int:
        """Prediction accepts tables without rows."""
        return 1 if self.spec is None else 0

    def matches_training(
        self, X: DataLike | None, names: Sequence[object] | None, table: FeatureTable
    ) -> bool:
        """Whether names, or their number, equal those of training."""
        if self.spec is None:
            return False
        if self.spec.feature_names is not None:
            return table.feature_names == self.spec.feature_names
        fitted = vars(self.estimator)
        has_no_names = type(X) is np.ndarray if names is None else set(map(type, names)) == {int}
        same_number = table.n_features == fitted.get("n_features_in_") == self.spec.n_features
        return has_no_names and same_number and "feature_names_in_" not in fitted

    def check_names(self, table: FeatureTable) -> None:
        """Compare with the reference; data without names is taken in its order."""
        if self.spec is None:
            return
        names, n_features = table.feature_names, table.n_features
        expected = self.spec.feature_names
        if names is not None and expected is not None and names != expected:
            raise ValueError(_describe_name_mismatch(names, expected))
        if n_features != self.spec.n_features:
            reader = "BinMapper" if self.estimator is None else type(self.estimator).__name__
            raise ValueError(
                f"X has {n_features} features, but {reader} is expecting {self.spec.n_features} "
                "features as input."
            )
        if table.column_labels is not None:
            self.spec.check_labels(table.column_labels)

    def add_numbers(
        self, table: FeatureTable, values: np.ndarray, features: NDArray[np.int64]
    ) -> None:
        """Add numeric columns (n_rows, k), converting only dtypes that the core does not read."""
        values = _to_core_dtype(values)
        if values.dtype.kind == "f" and _core.has_infinite(values, self.n_threads):
            row, column = (int(i) for i in np.argwhere(np.isinf(values))[0])
            raise make_infinity_error(row, table.describe_feature(int(features[column])))
        table.dense.append(DenseBlock(values, features))

    # ---- arrays

    def read_array(self, X: Any) -> FeatureTable:
        """Read a NumPy array or what NumPy can convert."""
        is_plain = type(X) is np.ndarray and X.ndim == 2 and X.dtype.kind in "fiub" and X.size > 0
        if not is_plain:
            check_is_table(X)
        has_text = (
            not is_plain and self.may_have_categories() and np.asarray(X).dtype.kind in "OUST"
        )
        values = X if is_plain else self.convert(X, None if has_text else "numeric")
        table = self.make_table(values, values.shape, None)
        mask = resolve_categorical_mask(self.categorical_features, table)
        if mask is None:
            mask = np.zeros(table.n_features, dtype=bool)
        for feature in np.flatnonzero(mask).tolist() if mask.any() else ():
            table.categories.append(_encode_array(values[:, feature], feature, table))
        for begin, end in _find_runs(~mask):
            numbers = values[:, begin:end]
            if has_text:
                numbers = check_array(numbers, ensure_all_finite=False, input_name="X")
            self.add_numbers(table, numbers, np.arange(begin, end))
        return table

    def convert(self, X: Any, dtype: object) -> np.ndarray:
        """Apply scikit-learn's checks; name row and column of an object that is not a number."""
        array = np.asarray(X)
        is_objects = array.dtype == object and array.ndim == 2
        if is_objects:
            X = replace_nulls_with_nan(array)
        try:
            return check_array(
                X,
                dtype=dtype,
                ensure_all_finite=False,
                input_name="X",
                ensure_min_samples=self.min_rows,
            )
        except (TypeError, ValueError) as error:
            place = find_non_number(X) if is_objects else None
            if place is None:
                raise
            row, column = place
            is_fitted = self.spec is not None
            problem = _non_number(X[place], row, f"number {column}", is_fitted)
            # scikit-learn's estimator checks look for the words of the original error.
            raise type(problem)(f"{problem} ({error})") from None

    def may_have_categories(self) -> bool:
        """Whether an array of text can have categorical columns."""
        requested = self.categorical_features
        if requested is None or (isinstance(requested, str) and requested == FROM_DTYPE):
            return False
        is_mask = isinstance(requested, np.ndarray) and requested.dtype == bool
        return not is_mask or bool(requested.any())

    def read_device_array(self, X: _core.DeviceArray) -> FeatureTable:
        """Read numbers in GPU memory without a copy."""
        check_two_dimensions(X.shape)
        table = replace(self.make_table(X, X.shape, None), device_array=X)
        mask = resolve_categorical_mask(self.categorical_features, table)
        if mask is not None and mask.any():
            name = table.describe_feature(int(np.flatnonzero(mask)[0]))
            raise ValueError(
                f"Feature {name} is categorical, but arrays in GPU memory hold numbers only: pass "
                "a copy of X on the CPU."
            )
        infinity = X.find_infinity()
        if infinity is not None:
            raise make_infinity_error(infinity[0], table.describe_feature(infinity[1]))
        return table

    # ---- SciPy

    def read_sparse(self, X: Any) -> FeatureTable:
        """Read a sparse matrix by columns; for prediction, a CSR matrix may stay one."""
        check_two_dimensions(X.shape)
        matrix = check_array(
            X,
            accept_sparse="csc" if self.spec is None else ("csc", "csr"),
            ensure_all_finite=False,
            input_name="X",
            ensure_min_samples=self.min_rows,
        )
        table = self.make_table(X, matrix.shape, None)
        mask = resolve_categorical_mask(self.categorical_features, table)
        has_categories = mask is not None and mask.any()
        if matrix.format == "csr" and (has_categories or not matrix.has_canonical_format):
            matrix = matrix.tocsc()
        if not matrix.has_canonical_format:
            matrix = matrix.copy() if matrix is X else matrix
            matrix.sum_duplicates()
        if matrix.format == "csr":
            matrix = matrix.astype(_get_core_float(matrix.dtype), copy=False)
            _check_no_infinity(matrix, np.arange(table.n_features), table)
            table.sparse.append(SparseRows(matrix))
            return table
        is_number = np.ones(table.n_features, bool) if mask is None else ~mask
        if is_number.any():
            numbers = matrix if is_number.all() else matrix[:, is_number]
            self.add_sparse(table, numbers, np.flatnonzero(is_number))
        for feature in np.flatnonzero(~is_number).tolist():
            column = matrix[:, [feature]].toarray().ravel()
            table.categories.append(_encode_array(column, int(feature), table))
        return table

    def add_sparse(self, table: FeatureTable, matrix: Any, features: NDArray[np.int64]) -> None:
        """Add numeric columns of a CSC matrix without duplicates."""
        matrix = matrix.astype(_get_core_float(matrix.dtype), copy=False)
        _check_no_infinity(matrix, features, table)
        table.sparse.append(to_sparse_block(matrix, features))

    # ---- data frames

    def read_frame(self, X: DataLike | None, frame: Frame) -> FeatureTable:
        """Read blocks of numbers, then the other columns one by one."""
        table = self.make_table(X, frame.shape, frame.names)
        mask = resolve_categorical_mask(self.categorical_features, table)
        is_unread = np.ones(table.n_features, bool)
        for values, features in frame.blocks():
            if mask is not None and mask[features].any():
                values, features = values[:, ~mask[features]], features[~mask[features]]
            if len(features):
                self.add_numbers(table, values, features)
                is_unread[features] = False
        matrix, places = frame.sparse_columns() if is_unread.any() else (None, is_unread)
        chosen = np.ones(len(places), bool) if mask is None else ~mask[places]
        if matrix is not None and chosen.any():
            features = places[chosen]
            self.add_sparse(table, matrix.tocsc()[:, chosen], features)
            is_unread[features] = False
        for feature in np.flatnonzero(is_unread).tolist() if is_unread.any() else ():
            kind = frame.get_kind(feature)
            by_dtype = mask is None and kind in ("category", "text")
            if by_dtype or (mask is not None and mask[feature]):
                table.categories.append(_encode_distinct(frame.factorize, feature, feature, table))
                if by_dtype and self.spec is None and kind == "text":
                    table.texts.append(feature)
            else:
                values = self.read_numbers(frame, feature, kind, table.describe_feature(feature))
                self.add_numbers(table, values.reshape(-1, 1), np.array([feature]))
        if self.whole:
            texts = (column for column in table.categories if column.feature in table.texts)
            check_text_columns(TextColumnSummary.from_column(table, column) for column in texts)
        return table

    def read_numbers(self, frame: Frame, feature: int, kind: str, name: str) -> np.ndarray:
        """Read a numeric column (n_rows,), as a view if it has a NumPy dtype and no nulls."""
        if kind == "number":
            return frame.to_numpy(feature)
        if kind in ("category", "text", "object"):
            return _objects_to_numbers(frame.to_list(feature), name, self.spec is not None)
        raise ValueError(
            f"Column {name} of X has dtype {kind}, which is neither numeric nor categorical: "
            "convert it to a number (for a date: a number of days) or to text."
        )


# ---- shape and names ---------------------------------------------------------------------------


def _check_shape(n_rows: int, n_features: int, min_rows: int) -> None:
    """Raise for empty tables, in scikit-learn's words, and for more rows than 32 bits can index."""
    for count, minimum, unit in ((n_rows, min_rows, "sample"), (n_features, 1, "feature")):
        if count < minimum:
            raise ValueError(
                f"Found array with {count} {unit}(s) (shape={(n_rows, n_features)}) while a "
                "minimum of 1 is required."
            )
    if n_rows > MAX_ROWS:
        raise ValueError(
            f"X has {n_rows} rows, but at most {MAX_ROWS} (2^31 - 1) are supported: train on a "
            "sample of them."
        )


def _to_text(names: Sequence[Any]) -> tuple[str, ...] | None:
    """Return the names if all of them are text."""
    kinds = set(map(type, names))
    return tuple(names) if kinds == {str} or all(issubclass(kind, str) for kind in kinds) else None


def _check_given_names(names: Sequence[str], n_features: int) -> Sequence[str]:
    names = list(names)
    if not all(isinstance(name, str) for name in names):
        raise ValueError("feature_names must be strings.")
    check_names(names, n_features, "feature_names")
    check_unique_names(names, "feature_names")
    return names


def _describe_name_mismatch(names: tuple[str, ...], expected: tuple[str, ...]) -> str:
    """Return scikit-learn's message for names that differ from those of the training data."""
    lines = ["The feature names should match those that were passed during fit."]
    for title, extra in (
        ("Feature names unseen at fit time:", sorted(set(names) - set(expected))),
        ("Feature names seen at fit time, yet now missing:", sorted(set(expected) - set(names))),
    ):
        if extra:
            more = ["- ..."] if len(extra) > 5 else []
            lines += [title, *(f"- {name}" for name in extra[:5]), *more]
    if len(lines) == 1:
        lines.append("Feature names must be in the same order as they were in fit.")
    return "\n".join(lines) + "\n"


def check_column_labels(estimator: Any, names: Sequence[object] | None, reset: bool) -> None:
    """Store (`reset`) or compare labels of columns that are not all text, which scikit-learn
    ignores, of a model with a projection; other models have them in their bins."""
    has_labels = names is not None and _to_text(names) is None
    labels = tuple(map(str, names or ())) if has_labels else None
    if reset:
        estimator._column_labels = labels
    elif labels is not None and not hasattr(estimator, "feature_names_in_"):
        known = getattr(estimator, "_column_labels", None)
        FeatureSpec(len(labels), None, np.zeros(0, bool), known).check_labels(labels)


def check_columns(names: Sequence[object] | None, spec: FeatureSpec) -> None:
    """Compare the columns of a frame with the columns of the training data."""
    text = None if names is None else _to_text(names)
    if text is not None and spec.feature_names is not None and text != spec.feature_names:
        raise ValueError(_describe_name_mismatch(text, spec.feature_names))
    if names is not None and text is None:
        spec.check_labels(tuple(map(str, names)))


def resolve_categorical_mask(requested: Any, table: FeatureTable) -> NDArray[np.bool_] | None:
    """Return the mask of categorical features (n_features,), or None for "from_dtype"."""
    if isinstance(requested, str):
        if requested == FROM_DTYPE:
            return None
        raise ValueError(
            f"categorical_features={requested!r} is unknown; it must be 'from_dtype', None, a list "
            "of names or positions, or a mask."
        )
    mask = np.zeros(table.n_features, dtype=bool)
    if requested is None:
        return mask
    if isinstance(requested, np.ndarray) and requested.dtype == bool:
        if requested.shape == mask.shape:
            return requested
    entries = np.asarray(list(requested), dtype=object)
    if all(isinstance(entry, bool | np.bool_) for entry in entries) and len(entries):
        if len(entries) != table.n_features:
            raise ValueError(
                f"categorical_features is a mask of {len(entries)} entries, but X has "
                f"{table.n_features} features."
            )
        return entries.astype(bool)
    for entry in entries:
        parameter = "categorical_features"
        mask[get_index(entry, table.feature_names, table.n_features, parameter)] = True
    return mask


# ---- numbers -----------------------------------------------------------------------------------


def make_infinity_error(row: int, column: str) -> ValueError:
    """Return the error of an infinity in this row and described column."""
    return ValueError(
        "Input X contains infinity or a value too large for dtype('float64'): the first is in row "
        f"{row}, column {column}. Replace it by a finite number, or by NaN if it is missing."
    )


def _get_core_float(dtype: object) -> object:
    """Return the dtype in which the core reads stored entries."""
    return dtype if dtype in (np.float32, np.float64) else np.float64


def _check_no_infinity(matrix: Any, features: NDArray[np.int64], table: FeatureTable) -> None:
    """Raise for the first infinity that a CSR or CSC matrix stores."""
    entries = np.flatnonzero(np.isinf(matrix.data))
    if len(entries):
        minor = int(matrix.indices[entries[0]])
        major = int(np.searchsorted(matrix.indptr, entries[0], side="right")) - 1
        row, column = (major, minor) if matrix.format == "csr" else (minor, major)
        raise make_infinity_error(row, table.describe_feature(int(features[column])))


def _find_runs(mask: NDArray[np.bool_]) -> Iterator[tuple[int, int]]:
    """Yield half-open ranges of consecutive True entries, whose columns are one view."""
    if mask.all():
        yield 0, len(mask)
        return
    edges = np.flatnonzero(np.diff(np.concatenate([[False], mask, [False]]).astype(np.int8)))
    yield from zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True)


def _to_core_dtype(values: np.ndarray) -> np.ndarray:
    """Convert to float32, float64 or integers, with a copy only if needed."""
    dtype = values.dtype
    if dtype.kind == "b":
        return values.view(np.uint8)
    if dtype.kind == "f" and dtype.itemsize not in (4, 8):
        return values.astype(np.float32 if dtype.itemsize == 2 else np.float64)
    if dtype.kind not in "fiu":
        raise ValueError(f"X has dtype {dtype}, which is not numeric: convert it first.")
    if not dtype.isnative or not values.flags.aligned:
        return np.array(values, dtype=dtype.newbyteorder("="), order="K")
    return values


def _objects_to_numbers(
    values: Sequence[object], name: str, is_fitted: bool
) -> NDArray[np.float64]:
    """Convert Python objects to float64; numeric text is accepted."""
    objects = np.fromiter(values, dtype=object, count=len(values))
    with suppress(TypeError, ValueError):
        return objects.astype(np.float64)  # None is NaN
    return convert_objects(
        objects, lambda value, place: _non_number(value, place[0], name, is_fitted)
    )


def _non_number(value: object, row: int, name: str, is_fitted: bool) -> Exception:
    if isinstance(value, str):
        hint = (
            "it held numbers when the model was fitted"
            if is_fitted
            else "list it in categorical_features, or convert it to numbers"
        )
        return ValueError(
            f"Column {name} of X holds text, such as {value!r} in row {row}, but is not "
            f"categorical: {hint}."
        )
    return TypeError(
        f"Column {name} of X holds {describe_type(value)} in row {row}, which is neither a number "
        "nor text: convert it to a number (for a date or period: a number of days) or to text; "
        "give each entry of a list its own column."
    )


# ---- categories --------------------------------------------------------------------------------


def check_text_columns(texts: Iterable[TextColumnSummary]) -> None:
    """Raise for numbers and dates as text; warn of text that is all distinct."""
    useless = []
    for text in texts:
        problem = find_text_problem(text.categories, text.counts)
        if problem is not None:
            cells = np.flatnonzero(problem.is_cell).tolist()
            first = min(cells, key=text.first.__getitem__)
            cell = str(text.categories[first])
            raise TextColumnError(text.name, int(text.first[first]), cell, problem.kind)
        if all_distinct(text.categories, text.counts):
            useless.append(text.name)
    if useless:
        columns = (
            f"Column {useless[0]}" if len(useless) == 1 else f"Columns {', '.join(useless[:5])}"
        )
        more = f" and {len(useless) - 5} more" if len(useless) > 5 else ""
        warn_user(
            f"{columns}{more} of X: text that differs in every row, like names or dates, tells "
            "nothing about other rows. Leave it out, or convert it to numbers."
        )


def _encode_distinct(
    factorize: Callable[[Any], tuple[np.ndarray, list[Any]]],
    values: Any,
    feature: int,
    table: FeatureTable,
) -> CategoryColumn:
    """Encode values as categories: `factorize` returns their indices and the distinct values."""
    try:
        index, distinct = factorize(values)
    except TypeError as error:
        raise ValueError(
            f"Column {table.describe_feature(feature)} of X holds values that cannot be "
            f"categories: {error}."
        ) from None
    return _make_category_column(distinct, index.astype(np.int32), feature, table)


def _encode_array(values: np.ndarray, feature: int, table: FeatureTable) -> CategoryColumn:
    """Encode a column of a NumPy array (n_rows,) as categories."""
    if values.dtype.kind not in "fiub":
        return _encode_distinct(factorize_objects, values.tolist(), feature, table)
    distinct, index = number_values(np.ascontiguousarray(values))  # columns are read three times
    codes = index.astype(np.int32, copy=False)
    is_short = distinct.dtype.kind == "f" and distinct.dtype.itemsize < 8
    categories = shorten_floats(distinct) if is_short else distinct.tolist()
    return _make_category_column(categories, codes, feature, table)


def _make_category_column(
    distinct: list[Any], index: NDArray[np.int32], feature: int, table: FeatureTable
) -> CategoryColumn:
    """Separate missing values from categories, and check the types of these."""
    categories: dict[Any, Any] = {}
    new_index = np.full(len(distinct) + 1, -1, dtype=np.int32)  # the last is of index -1
    name = table.describe_feature(feature)
    is_held = np.zeros(len(new_index), bool)
    is_held[index] = True
    held = np.flatnonzero(is_held[:-1])
    if set(map(type, distinct)) == {str} and len(set(distinct)) == len(distinct):
        new_index[held] = np.arange(len(held))
        categories = dict.fromkeys(distinct[i] for i in held.tolist())
    else:
        for i in held.tolist():
            value = distinct[i]
            if isinstance(value, np.float32 | np.float16):
                (value,) = shorten_floats([value])
            value = value.item() if isinstance(value, np.generic) else value
            if is_missing(value):
                continue
            if not isinstance(value, CATEGORY_TYPES):
                raise ValueError(
                    f"Column {name} of X holds a category of type {type(value).__name__}, but "
                    "categories must be text, numbers or booleans: convert the column to text."
                )
            if isinstance(value, float) and np.isinf(value):
                raise make_infinity_error(int(np.flatnonzero(index == i)[0]), name)
            new_index[i] = categories.setdefault(_unify_equal_numbers(value), len(categories))
    if not np.array_equal(new_index[:-1], np.arange(len(distinct))):
        index = new_index[index]
    return CategoryColumn(index, tuple(categories), feature)


def _unify_equal_numbers(category: Any) -> object:
    """Return equal categories in one form: -0.0, booleans and whole numbers as integers."""
    if isinstance(category, str):
        return str.__str__(category)  # of subclasses
    is_whole = -(2**63) <= category < 2**64 and category == int(category)
    return int(category) if is_whole else category
