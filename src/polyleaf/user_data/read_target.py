"""Users' y as checked NumPy or sparse arrays: numbers, class labels or indicator matrices.

Regression targets keep float64 where the user has it: objectives subtract the base score before
they round to float32.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import scipy.sparse
from sklearn.exceptions import DataConversionWarning
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import check_array

from polyleaf.runtime.capabilities import refuse
from polyleaf.runtime.collective import SINGLE_PROCESS, Communicator
from polyleaf.runtime.types import DataLike
from polyleaf.runtime.user_warnings import warn_user
from polyleaf.user_data.validation import (
    abbreviate_names,
    check_data,
    check_in_memory,
    check_unique_names,
    convert_objects,
    describe_type,
    is_missing,
    number_values,
)

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

# ---- containers --------------------------------------------------------------------------------


def _to_dense(y: Any, name: str) -> np.ndarray:
    try:
        return y.toarray()
    except MemoryError:
        size = y.shape[0] * y.shape[1] * y.dtype.itemsize / 2**30
        raise MemoryError(
            f"{name} is sparse, and as an array it needs {size:.1f} GiB. Training keeps it sparse "
            'with leaf="sparse" and objective="squared_hinge" (labels) or "squared_error" '
            "(numbers); see polyleaf.presets.gbdt_sparse."
        ) from None


def to_numpy(y: DataLike, name: str = "y") -> Any:
    """Convert to NumPy, except pandas objects, whose missing values `check_array` reads."""
    if type(y) is np.ndarray:
        return y
    if y is None:
        raise ValueError("This estimator requires y to be passed, but the target y is None.")
    check_in_memory(y, name)
    y = check_data(y, name)
    if scipy.sparse.issparse(y):
        return _to_dense(y, name)
    check_unique_names(get_column_names(y), name)
    if hasattr(y, "iloc"):
        return _densify_pandas(y)
    if hasattr(y, "column_names") and hasattr(y, "columns"):  # an Arrow table
        return np.column_stack([np.asarray(column) for column in y.columns])
    try:
        return np.asarray(y)
    except ValueError:
        raise ValueError(
            f"{name} holds lists of different lengths. Several labels per row go into an indicator "
            "matrix of 0 and 1: sklearn.preprocessing.MultiLabelBinarizer makes one."
        ) from None


def is_sparse(y: Any) -> bool:
    """Whether y is a SciPy sparse matrix or a pandas frame of Sparse columns only."""
    if scipy.sparse.issparse(y):
        return True
    if not hasattr(y, "iloc") or np.ndim(y) != 2 or len(y.dtypes) == 0:
        return False
    return all(_is_sparse_dtype(dtype) and dtype.fill_value == 0 for dtype in y.dtypes)


def _is_sparse_dtype(dtype: DTypeLike) -> bool:
    return type(dtype).__name__ == "SparseDtype"  # pandas may not be installed


def _densify_pandas(y: Any) -> object:
    """Convert the Sparse columns of a pandas series or frame."""
    if np.ndim(y) == 1:
        return y.astype(y.dtype.subtype) if _is_sparse_dtype(y.dtype) else y
    subtypes = {name: dtype.subtype for name, dtype in y.dtypes.items() if _is_sparse_dtype(dtype)}
    return y.astype(subtypes) if subtypes else y


def check_same_rows(n_rows: int, n_targets: int, name: str = "y") -> None:
    """Raise a ValueError if features and target have different numbers of rows."""
    if n_rows != n_targets:
        raise ValueError(f"{name} has {n_targets} rows, but X has {n_rows}.")


# ---- column names ------------------------------------------------------------------------------


def get_column_names(y: DataLike) -> tuple[str, ...] | None:
    """Return the column names of a data frame as text, or None."""
    columns = getattr(y, "column_names", getattr(y, "columns", None))  # Arrow; pandas, polars
    return None if columns is None else tuple(str(column) for column in columns)


def get_given_names(data: DataLike) -> tuple[str, ...] | None:
    """Return the column names that the user chose: not the default numbers of pandas."""
    names = get_column_names(data)
    return None if names is None or names == tuple(map(str, range(len(names)))) else names


def get_class_names(y: DataLike, n_columns: int) -> np.ndarray:
    """Return the class of each column of shares: its name, or its number without names."""
    labels = list(getattr(y, "columns", ()) if hasattr(y, "iloc") else ())
    if labels and all(isinstance(label, int | np.integer) for label in labels):
        return np.array(labels)
    names = get_column_names(y)
    return np.arange(n_columns) if names is None else np.array(names)


def check_column_order(
    names: tuple[str, ...] | None, known: tuple[str, ...] | None, name: str
) -> None:
    """Raise a ValueError if names differ from those of the training y, or have another order."""
    if names is None or known is None or names == known:
        return
    is_permuted = sorted(names) == sorted(known)
    if known == tuple(map(str, range(len(known)))) and not is_permuted:
        return  # the default numbers of pandas: the columns may be named elsewhere
    if is_permuted:
        raise ValueError(
            f"{name} has the columns of the training y in another order, "
            f"{abbreviate_names(names)} instead of {abbreviate_names(known)}: reorder them."
        )
    unknown = next((column for column in names if column not in known), None)
    if unknown is not None:
        raise ValueError(
            f"{name} has a column {unknown!r}, which the training y does not have: it needs the "
            f"columns {abbreviate_names(known)} in this order."
        )


def check_related_names(data: DataLike, known: tuple[str, ...] | None, name: str) -> None:
    """Check the names of weights or offsets: names of y must have its order."""
    names = None if data is None else get_given_names(data)
    if names is not None and known is not None and set(names) & set(known):
        check_column_order(names, known, name)


# ---- numbers -----------------------------------------------------------------------------------


def _check_finite(y: DataLike | None, name: str, missing: str, dtype: Any) -> np.ndarray:
    """Apply scikit-learn's checks: at most two dimensions, at least one row, finite."""
    finite: bool | Literal["allow-nan"] = "allow-nan" if missing == "ignore" else True
    try:
        return check_array(
            y,
            dtype=dtype,
            ensure_2d=False,
            ensure_all_finite=finite,
            input_name=name,
            ensure_min_features=0,
        )
    except ValueError as error:
        if f"Input {name} contains " not in str(error):
            raise
        is_nan = "contains NaN" in str(error)
        remedy = "Correct the value, or remove the row."
        if is_nan and missing == "error":
            remedy = (
                'Remove those rows, or set missing_targets="ignore" (regression and multi-label) '
                "to learn from the other values."
            )
        place = _find_first(y, np.isnan if is_nan else np.isinf, dtype)
        raise ValueError(f"{str(error).rstrip('.')}{place}. {remedy}") from None


def _find_first(y: DataLike | None, is_wrong: np.ufunc, dtype: Any) -> str:
    """Return where y has its first wrong number, as the end of a sentence; "" if unknown."""
    try:
        with np.errstate(over="ignore"):
            numbers = np.asarray(y).astype(dtype[0] if isinstance(dtype, list) else dtype or float)
    except (TypeError, ValueError):  # text and numbers together
        return ""
    row, *columns = np.argwhere(is_wrong(numbers))[0].tolist()
    return f": the first is in row {row}" + "".join(f", column {column}" for column in columns)


def read_regression_values(y: DataLike, name: str, missing: str) -> np.ndarray:
    """Return y as float32 or float64, (n_rows,) or (n_rows, n_outputs)."""
    given, dtypes = to_numpy(y, name), [np.float64, np.float32]
    if np.ndim(given) == 0:
        raise ValueError(
            f"{name} is {y!r}, which is not an array: pass the values, such as the column of that "
            "name."
        )
    _check_no_dates(given, name)
    try:
        values = _check_finite(given, name, missing, dtypes)
    except (TypeError, ValueError):
        if np.asarray(given).dtype.kind not in "OUST":
            raise
        numbers = convert_objects(given, partial(_describe_non_number, name=name))
        values = _check_finite(numbers, name, missing, dtypes)
    if values.ndim > 2 or (values.ndim == 2 and values.shape[1] == 0):
        raise ValueError(
            f"{name} must have shape (n_rows,) or (n_rows, n_outputs), got {values.shape}."
        )
    return values


def _describe_non_number(value: object, place: tuple[int, ...], name: str) -> Exception:
    where = f"row {place[0]}" + "".join(f", column {column}" for column in place[1:])
    if isinstance(value, str):
        return ValueError(
            f"{name} holds the text {value!r} in {where}, but must hold numbers: use "
            "PolyleafClassifier for labels, or correct the cell."
        )
    if isinstance(value, list | tuple | np.ndarray):
        return ValueError(
            f"{name} holds {describe_type(value)} in {where}: pass several targets as a matrix "
            f"(n_rows, n_outputs), for example numpy.stack({name})."
        )
    return ValueError(
        f"{name} holds {describe_type(value)} in {where}, which is not a number: convert it (for "
        "example a date to days)."
    )


def _check_no_dates(values: Any, name: str) -> None:
    """Raise for dates, which NumPy would convert to nanoseconds."""
    column_dtypes = getattr(values, "dtypes", None) if np.ndim(values) == 2 else None
    dtypes = [getattr(values, "dtype", None)] if column_dtypes is None else list(column_dtypes)
    if any(getattr(dtype, "kind", "") in ("m", "M") for dtype in dtypes):
        raise ValueError(
            f"{name} holds dates or times, which are not numbers. Convert them, for example to "
            "days: (y - y.min()) / numpy.timedelta64(1, 'D')."
        )


def ravel_column(values: np.ndarray) -> tuple[np.ndarray, bool]:
    """Flatten a column vector, with scikit-learn's warning; also return whether y is 1-d."""
    if values.ndim == 2 and values.shape[1] == 1:
        warn_user(
            "A column-vector y was passed when a 1d array was expected. Please change the shape of "
            "y to (n_samples,), for example using ravel().",
            DataConversionWarning,
        )
        values = values[:, 0]
    return values, values.ndim == 1


# ---- multi-label -------------------------------------------------------------------------------


def is_multilabel(y: Any, missing: str, ranks: Communicator = SINGLE_PROCESS) -> bool:
    """Whether y, with the rows of other ranks, is an indicator matrix rather than one label per
    row."""
    y = to_numpy(y)
    shape = np.shape(y)
    if len(shape) > 2:
        raise ValueError(f"y must have shape (n_rows,) or (n_rows, n_labels), got {shape}.")
    if len(shape) != 2 or shape[1] <= 1:
        return False
    if missing == "ignore":
        return True
    values = _unbox_numbers(_check_finite(y, "y", missing, None))
    is_indicator = values.dtype.kind in "biuf" and np.all((values == 0) | (values == 1))
    if not ranks.any(not is_indicator):
        return True
    if has_fractions(values):
        raise ValueError(
            "y is a matrix with fractions. Shares of classes are learned by PolyleafClassifier "
            'with objective="softmax"; several labels per row go into an indicator matrix of 0 and '
            "1; numbers are learned by PolyleafRegressor."
        )
    if type_of_target(values) == "multiclass-multioutput":
        raise ValueError(
            "y has several columns with other values than 0 and 1. Several labels per row go into "
            "an indicator matrix of 0 and 1 (sklearn.preprocessing.MultiLabelBinarizer makes one); "
            "several columns of classes are tasks of one model, PolyleafMultiTask, which takes y "
            "as a data frame or a dict of columns."
        )
    check_classification_targets(values)
    return True


def read_indicators(y: DataLike, name: str, missing: str) -> np.ndarray:
    """Return an indicator matrix as float32, (n_rows, n_labels)."""
    values = _check_finite(to_numpy(y, name), name, missing, np.float32)
    if values.ndim != 2:
        raise ValueError(
            f"{name} must be an indicator matrix (n_rows, n_labels), got shape {values.shape}."
        )
    refuse_cells(values, (values != 0) & (values != 1) & ~np.isnan(values), name, INDICATOR_RULE)
    return values


INDICATOR_RULE = "an indicator matrix holds 0 and 1 only"


def refuse_cells(values: np.ndarray, is_wrong: np.ndarray, name: str, rule: str) -> None:
    """Raise a ValueError for the first of the cells of a matrix that break a rule."""
    if is_wrong.any():
        row, column = np.argwhere(is_wrong)[0]
        raise ValueError(f"{name}[{row}, {column}] is {values[row, column]:g}, but {rule}.")


# ---- shares of classes -------------------------------------------------------------------------

SHARES_TOLERANCE = 1e-3  # of the sum of a row: probabilities in float16 pass


def count_columns(y: Any) -> int:
    """Return the number of columns of y; 1 if it has one dimension."""
    shape = np.shape(y if hasattr(y, "shape") else to_numpy(y))
    return int(shape[1]) if len(shape) == 2 else 1


def has_columns(y: Any) -> bool:
    """Whether y is a matrix with several columns."""
    return count_columns(y) > 1


def has_fractions(y: Any) -> bool:
    """Whether y is a matrix with a number between 0 and 1."""
    if not has_columns(y):
        return False
    values = _unbox_numbers(np.asarray(to_numpy(y)))
    return values.dtype.kind == "f" and bool(((values > 0) & (values < 1)).any())


def read_shares(y: DataLike, name: str) -> np.ndarray:
    """Return the shares of the classes of each row as float32, (n_rows, n_classes), of sum 1."""
    values = _check_finite(to_numpy(y, name), name, "error", [np.float64, np.float32])
    sums = check_shares(values, name)
    return (values / sums[:, None]).astype(np.float32)


def check_shares(values: np.ndarray, name: str) -> np.ndarray:
    """Return the sums of rows of shares, (n_rows,); raise a ValueError unless they are about 1."""
    refuse_cells(values, values < 0, name, "shares of classes must not be negative")
    sums: np.ndarray = np.cumsum(values, axis=1, dtype=np.float64)[:, -1]
    wrong = np.flatnonzero(~(np.abs(sums - 1) <= SHARES_TOLERANCE))
    if len(wrong):
        raise ValueError(
            f"Row {wrong[0]} of {name} sums to {sums[wrong[0]]:g}, but shares of the classes sum "
            "to 1 in each row: divide each row by its sum. For a multi-label y (0 and 1) with "
            'several labels per row: use "logistic"; for numbers use PolyleafRegressor.'
        )
    return sums


def read_sparse_matrix(y: Any, name: str) -> Any:
    """Return y as a SciPy matrix, or as a dense matrix to be converted to one."""
    if scipy.sparse.issparse(y):
        return y
    if is_sparse(y):
        check_unique_names(get_column_names(y), name)
        return y.sparse.to_coo()
    dense = to_numpy(y, name)
    if np.ndim(dense) == 1:
        refuse("sparse_targets", "one_label", name=name)
    return _check_finite(dense, name, "error", np.float32)


# ---- class labels ------------------------------------------------------------------------------


def read_labels(y: DataLike, name: str = "y", warn: bool = False) -> np.ndarray:
    """Return class labels (n_rows,), with pandas dtypes and boxed numbers as NumPy dtypes.

    Raises a ValueError if there is not one label per row.
    """
    typed = to_numpy(y, name)
    values = np.asarray(typed)
    _check_labels(values, name)
    values = _unbox_numbers(values)
    # Numbers and booleans keep their dtype, also those of pandas' own dtypes.
    labels = _check_finite(values if values.dtype.kind in "iubf" else typed, name, "error", None)
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = ravel_column(labels)[0] if warn else labels[:, 0]
    if labels.ndim != 1:
        raise ValueError(f"{name} must hold one label per row, got shape {labels.shape}.")
    return labels


def _unbox_numbers(values: np.ndarray) -> np.ndarray:
    """Convert an object array of numbers or booleans only to their dtype."""
    numbers = int | float | np.integer | np.floating | np.bool_
    if values.dtype != object or not all(isinstance(v, numbers) for v in values.ravel().tolist()):
        return values
    return np.array(values.tolist())


def _check_labels(labels: np.ndarray, name: str) -> None:
    """Raise for the first label that is missing or of a type that labels cannot have."""
    if labels.dtype.kind in "mM":
        raise ValueError(
            f"{name} holds dates or times, but labels are text, numbers or booleans: convert them "
            f"to text ({name}.astype(str))."
        )
    if labels.dtype.kind == "f" and np.isnan(labels).any():
        raise _missing_label(int(np.isnan(labels.ravel()).argmax()), name)
    if labels.dtype != object or labels.ndim != 1:
        return
    for row, label in enumerate(labels.tolist()):
        if is_missing(label):
            raise _missing_label(row, name)
        if isinstance(label, list | tuple | set | np.ndarray):
            raise ValueError(
                f"{name} holds {describe_type(label)} in row {row}. Several labels per row go into "
                "an indicator matrix of 0 and 1: sklearn.preprocessing.MultiLabelBinarizer makes "
                "one."
            )
        is_time = isinstance(label, np.datetime64 | np.timedelta64)
        if is_time or not isinstance(label, str | bytes | int | float | np.generic):
            raise ValueError(
                f"{name} holds {describe_type(label)} in row {row}, but labels are text, numbers "
                "or booleans: convert them to text."
            )


def _missing_label(row: int, name: str) -> ValueError:
    return ValueError(
        f"Input {name} contains NaN: row {row} has no label. Nothing can be learned from a row "
        "without its only label: remove it. If the row has labels of other tasks, set "
        'missing_targets="ignore" of PolyleafMultiTask.'
    )


def sort_classes_of_ranks(
    labels: np.ndarray, name: str, ranks: Communicator
) -> tuple[np.ndarray, np.ndarray]:
    """Return the sorted classes of all ranks, and the class index of each row of this one."""
    present, ids = sort_classes(labels, name)
    if ranks.size == 1:
        return present, ids
    parts = ranks.allgather_objects(present)
    check_same_kind(parts, name)
    classes, _ = sort_classes(np.concatenate(parts), name)
    index = {label: i for i, label in enumerate(classes.tolist())}
    return classes, np.array([index[label] for label in present.tolist()], np.int64)[ids]


def check_same_kind(arrays: Sequence[np.ndarray], name: str) -> None:
    """Raise a ValueError if some arrays hold text and others numbers."""
    if len({array.dtype.kind in "US" for array in arrays}) > 1:
        raise ValueError(f"{name} holds text in some batches and numbers in others.")


def sort_classes(labels: np.ndarray, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the sorted classes, and the class index of each row."""
    try:
        if labels.dtype.kind in "OUS":  # many times faster than sorting a million strings
            rows = labels.tolist()
            classes = np.array(sorted(set(rows)), dtype=labels.dtype)
            index = {label: i for i, label in enumerate(classes.tolist())}
            ids = np.fromiter(map(index.__getitem__, rows), np.int64, len(rows))
        else:
            classes, ids = number_values(labels)
            classes = classes + 0 if classes.dtype.kind == "f" else classes  # no -0.0
    except TypeError:
        types = sorted({type(label).__name__ for label in labels.tolist()})
        raise ValueError(
            f"{name} mixes labels of the types {', '.join(types)}: use one type."
        ) from None
    # Repeated, because scikit-learn warns that mostly distinct labels may be continuous.
    check_classification_targets(np.repeat(classes, 3))
    return classes, ids


SMALL_N_CLASSES = 20  # as many classes are plausible even for few rows


def check_n_classes(classes: np.ndarray, n_rows: int) -> None:
    """Raise a ValueError for more labels than the rows can teach."""
    if len(classes) > SMALL_N_CLASSES and 2 * len(classes) > n_rows:
        examples = ", ".join(map(repr, classes[:3].tolist()))
        raise ValueError(
            f"y has {len(classes)} different labels ({examples}, ...) in {n_rows} rows, too many "
            "to learn. Use PolyleafRegressor for numbers; a stray cell of text turns numbers into "
            "labels, so correct it. If they are classes, keep those with several rows."
        )
