"""Checks of users' data and functions before anything reads them, and canonical CSR matrices."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from polyleaf.runtime.cuda import is_device_array
from polyleaf.runtime.types import DataLike
from polyleaf.runtime.user_warnings import warn_user


def to_canonical_csr(
    values: DataLike,
    name: str,
    *,
    repeated: Literal["add", "raise"] = "add",
    allow_empty: bool = False,
    nan_hint: str = "",
) -> sp.csr_matrix:
    """Convert a matrix to canonical CSR: columns ascend, no duplicates, no zeros, all finite.

    Raises a ValueError for other shapes and dtypes, values that float32 cannot hold, column indices
    out of bounds, and repeated entries if `repeated` is "raise". The
    float32 csr_matrix may share its arrays with `values`.

    Parameters
    ----------
    values : ndarray or sparse matrix of shape (n_rows, n_columns)
        Numbers; it is not changed.
    name : str
        Name of the matrix in error messages.
    repeated : {"add", "raise"}
        Whether entries that are stored twice are added or raise an error.
    allow_empty : bool
        Whether a matrix without rows is valid.
    nan_hint : str
        End of the error message about NaN.
    """
    values = check_data(values, name)
    values = values if sp.issparse(values) else np.asarray(values)
    problem = _find_matrix_problem(values, 0 if allow_empty else 1)
    if problem is not None:
        raise ValueError(f"{name} {problem}.")
    with np.errstate(over="ignore"):  # overflow gives infinity, which raises below
        rows = sp.csr_matrix(values, dtype=np.float32)
    if not np.isfinite(rows.data).all():
        entry = int(np.argmin(np.isfinite(rows.data)))
        place = f"in row {find_row(rows, entry)}, column {rows.indices[entry]}"
        if np.isnan(rows.data[entry]):
            raise ValueError(f"{name} holds NaN {place}.{nan_hint}")
        raise ValueError(f"{name} holds infinity or a value too large for float32 {place}.")
    if not rows.has_canonical_format or not rows.data.all():
        rows = rows.copy()  # it may share its arrays with the caller's
        n_stored = rows.nnz
        rows.sum_duplicates()
        if rows.nnz < n_stored and repeated == "raise":
            raise ValueError(
                f"{name} stores {n_stored - rows.nnz} entries twice: call sum_duplicates() on it "
                "if they should be added."
            )
        rows.eliminate_zeros()
    return rows


def _find_matrix_problem(values: Any, min_rows: int) -> str | None:
    if len(values.shape) != 2:
        return f"must have two dimensions, (n_rows, n_columns), not shape {values.shape}"
    if values.dtype.kind not in "buif":
        return f"must hold numbers, not {values.dtype}"
    if values.shape[0] < min_rows or values.shape[1] < 1:
        return f"has shape {values.shape}, but needs at least one row and one column"
    max_columns = np.iinfo(np.int32).max
    if values.shape[1] > max_columns:
        return f"has {values.shape[1]} columns; at most {max_columns} are allowed"
    return None


def find_row(rows: sp.csr_matrix, entry: int) -> int:
    """Return the row of a stored entry."""
    return int(np.searchsorted(rows.indptr, entry, side="right")) - 1


def get_csr_arrays(
    rows: sp.csr_matrix,
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float32]]:
    """Return indptr, indices and data in the dtypes of the core."""
    return (
        rows.indptr.astype(np.int64, copy=False),
        rows.indices.astype(np.int32, copy=False),
        rows.data.astype(np.float32, copy=False),
    )


# ---- arrays and frames -------------------------------------------------------------------------


def check_in_memory(data: Any, name: str) -> None:
    """Raise a TypeError for lazy data and for arrays in GPU memory."""
    if type(data) is np.ndarray:
        return
    library, kind = type(data).__module__.split(".")[0], type(data).__name__
    if is_device_array(data):
        copies = {
            "cupy": f"{name}.get()",
            "torch": f"{name}.cpu()",
            "jaxlib": f"jax.device_get({name})",
        }
        raise TypeError(
            f"{name} is an array in GPU memory, which only fit and predict of estimators with "
            f'device="cuda" can read: set that, or pass {copies.get(library, "a copy on the CPU")}.'
        )
    noun = remedy = None
    if kind == "LazyFrame":
        noun, remedy = "lazy frame", f"{name}.collect()"
    elif library in ("dask", "dask_expr") or (library == "distributed" and kind == "Future"):
        noun, remedy = f"Dask {kind}", f"{name}.compute(), or use an estimator of polyleaf.dask"
    if noun is not None:
        raise TypeError(f"{name} is a {noun} without values: pass {remedy}.")


def check_is_table(X: object) -> None:
    """Raise a ValueError for texts and dicts, which reshaping would not turn into features."""
    shape = getattr(X, "shape", None)
    is_list = isinstance(X, list | tuple) if shape is None else len(shape) == 1
    if shape is not None and not is_list:
        return
    first = next(iter(X), None) if is_list and hasattr(X, "__iter__") else X
    if isinstance(first, str | bytes):
        raise ValueError(
            f"X is {'a list of texts' if is_list else 'a text'}, such as {first[:40]!r}, but must "
            "be a table of features. Turn documents into features first, for example by "
            "sklearn.feature_extraction.text.TfidfVectorizer; for a single categorical feature, "
            "pass a data frame of one column."
        )
    if isinstance(first, Mapping):
        raise ValueError(
            f"X is {'a list of dicts' if is_list else 'a dict'}, but must be a table of features: "
            "pass pandas.DataFrame(X)."
        )


def count_rows(X: Any) -> int:
    """Return the number of rows of X before it is read."""
    if type(X) is np.ndarray and X.ndim == 2:
        return len(X)
    if not is_device_array(X):
        check_in_memory(X, "X")
        check_is_table(X)
    shape = getattr(X, "shape", None)
    if shape is None:
        shape = np.asarray(X).shape
    check_two_dimensions(shape)
    return int(shape[0])


def check_two_dimensions(shape: Sequence[int]) -> None:
    """Raise a ValueError, in scikit-learn's words, unless X has rows and columns."""
    if len(shape) > 2:
        raise ValueError(
            f"Found array with dim {len(shape)}, while dim <= 2 is required: X is {shape}."
        )
    if len(shape) < 2:
        kind = "1D array" if shape else "scalar array"
        raise ValueError(
            f"Expected 2D array, got {kind} instead. Reshape your data either using "
            "array.reshape(-1, 1) if your data has a single feature or array.reshape(1, -1) if it "
            "contains a single sample."
        )


def check_unique_names(names: Sequence[object] | None, name: str) -> None:
    """Raise a ValueError if two columns of `name` have the same name."""
    if names is None or len(set(names)) == len(names):
        return
    repeated = next(column for i, column in enumerate(names) if column in names[:i])
    raise ValueError(f"{name} has several columns named {repeated!r}: rename all but one of them.")


def check_data(values: Any, name: str) -> Any:
    """Return the data in a form that is safe to read.

    Raises a ValueError for a sparse matrix with inconsistent index arrays.

    `values`: a masked array becomes an array with NaN (None for objects and text) in masked places.
    The index arrays of a sparse matrix are checked, because SciPy reads out of bounds where they
    are wrong. Anything else is returned unchanged. `name`: name of the data in error messages.
    """
    if type(values) is np.ndarray:
        return values
    if isinstance(values, np.ma.MaskedArray):
        return _fill_masked(values)
    if sp.issparse(values) and len(values.shape) == 2:
        is_known = values.format in ("csr", "csc", "bsr", "coo")
        matrix = values if is_known else values.tocsr()
        problem = _find_index_problem(matrix)
        if problem is not None:
            raise ValueError(f"{name} is not a valid sparse matrix: {problem}.")
        return matrix
    return values


def _fill_masked(values: np.ma.MaskedArray) -> np.ndarray:
    mask = np.ma.getmaskarray(values)
    plain = np.asarray(values.data)
    if not mask.any():
        return plain
    if plain.dtype.kind in "biu":
        plain = plain.astype(np.float64)
    missing = np.nan if plain.dtype.kind in "fc" else None
    plain = plain.astype(object) if missing is None else plain.copy()
    plain[mask] = missing
    return plain


def _find_index_problem(matrix: Any) -> str | None:
    """Return what is wrong with the index arrays of a CSR, CSC, BSR or COO matrix."""
    axes = ("row", "column")
    if matrix.format == "coo":
        arrays = {"row": matrix.row, "column": matrix.col}
        sizes = matrix.shape
        n_stored = max(len(matrix.row), len(matrix.col))
    else:
        block = matrix.blocksize if matrix.format == "bsr" else (1, 1)
        sizes = (matrix.shape[0] // block[0], matrix.shape[1] // block[1])
        major = 1 if matrix.format == "csc" else 0
        arrays = {axes[1 - major]: matrix.indices}
        indptr, n_steps = matrix.indptr, sizes[major]
        if len(indptr) != n_steps + 1 or indptr[0] != 0 or (indptr[1:] < indptr[:-1]).any():
            return f"its indptr does not ascend from 0 in {n_steps} steps"
        n_stored = int(indptr[-1])
    for array in (*arrays.values(), matrix.data):
        if len(array) < n_stored:
            return f"it has {len(array)} entries instead of {n_stored}"
    for axis, array in arrays.items():
        n = sizes[axes.index(axis)]
        indices = array[:n_stored]
        if n_stored and not (0 <= indices.min() and indices.max() < n):
            index = indices.min() if indices.min() < 0 else indices.max()
            return f"it stores {axis} {index}, outside 0 .. {n - 1}"
    return None


# ---- Python objects in place of numbers --------------------------------------------------------


def is_missing(value: object) -> bool:
    """Return whether a value is None, NaN or a null object of pandas.

    Null objects are recognised by class name, so that pandas is not imported.
    """
    return (
        value is None
        or (isinstance(value, float) and value != value)
        or type(value).__name__ in ("NAType", "NaTType")
    )


def read_row_values(values: Any, name: str, n_rows: int) -> np.ndarray:
    """Return an argument with one value per row, such as `groups`, as an array (n_rows,).

    Raises a ValueError for another number of values, missing values, or several columns.
    """
    array = np.asarray(values)
    if array.ndim == 0:
        raise ValueError(
            f"{name} is {values!r}, which is not an array: pass the values, such as the column of "
            "that name."
        )
    if len(array) != n_rows:
        raise ValueError(f"{name} has {len(array)} entries, but X has {n_rows} rows.")
    if array.ndim == 2 and array.shape[1] == 1:
        values = array = array[:, 0]
    if array.dtype.kind not in "iub" and any(map(is_missing, values)):
        raise ValueError(f"{name} has missing values: give every row one.")
    if array.ndim != 1:
        raise ValueError(f"{name} must have one value per row, got shape {array.shape}.")
    return array


def get_missing_mask(values: np.ndarray) -> NDArray[np.bool_]:
    """Return `is_missing` of each value of an array of any dtype, in its shape."""
    if values.dtype.kind in "fmM":
        return np.isnan(values)
    if values.dtype != object:
        return np.zeros(values.shape, bool)
    with np.errstate(invalid="ignore"):  # comparing NaN
        return np.frompyfunc(is_missing, 1, 1)(values).astype(bool)


def replace_nulls_with_nan(objects: NDArray[np.object_]) -> NDArray[np.object_]:
    """Return the objects with NaN in place of missing values."""
    return np.where(get_missing_mask(objects), np.nan, objects)


def convert_objects(
    values: object, describe: Callable[[Any, tuple[int, ...]], Exception]
) -> NDArray[np.float64]:
    """Convert Python objects to float64: nulls become NaN, and text of numbers is read.

    `describe(value, place)` returns the exception to raise for the first other object.
    """
    objects = replace_nulls_with_nan(np.asarray(values, dtype=object))
    try:
        return objects.astype(np.float64)
    except (TypeError, ValueError):
        place = find_non_number(objects)
        if place is None:
            raise
        raise describe(objects[place], place) from None


def find_non_number(objects: NDArray[np.object_]) -> tuple[int, ...] | None:
    """Return the index of the first object that is neither a number nor numeric text, or None."""
    places = np.argwhere(~np.frompyfunc(_converts_to_float, 1, 1)(objects).astype(bool))
    return tuple(places[0].tolist()) if len(places) else None


def _converts_to_float(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True


def describe_type(value: object) -> str:
    """Return the type of a value with its article: "a Period", "an Interval"."""
    kind = type(value).__name__
    return f"{'an' if kind[0] in 'aeiouAEIOU' else 'a'} {kind}"


# ---- parameters --------------------------------------------------------------------------------


def abbreviate_names(names: Sequence[object]) -> str:
    """Return the first five names for a message."""
    return ", ".join(map(repr, names[:5])) + (", ..." if len(names) > 5 else "")


def get_index(
    entry: object, names: Sequence[str] | None, n: int, parameter: str, noun: str = "feature"
) -> int:
    """Return the index of one of n features, or outputs, that a parameter names by text or number.

    Digits that are not a name are a number, because keys of JSON are text.

    Raises a TypeError if it is neither text nor an integer, and a ValueError if there is none.
    """
    if isinstance(entry, str) and entry.isdecimal() and entry not in (names or ()):
        entry = int(entry)
    if isinstance(entry, str):
        if names is None:
            owner = "X has" if noun == "feature" else f"{noun}s have"
            raise ValueError(
                f"{parameter} names the {noun} {entry!r}, but {owner} no names: use numbers."
            )
        if entry not in names:
            raise ValueError(
                f"{parameter} names the {noun} {entry!r}; the {noun}s are "
                f"{abbreviate_names(names)}."
            )
        return list(names).index(entry)
    if isinstance(entry, bool | np.bool_) or not isinstance(entry, int | np.integer):
        raise TypeError(f"{parameter} must name {noun}s by text or whole number; got {entry!r}.")
    if not 0 <= entry < n:
        raise ValueError(
            f"{parameter} names {noun} {entry}, but {noun}s are numbered from 0 to {n - 1}."
        )
    return int(entry)


def describe_signature_mismatch(
    function: Callable[..., object], n_arguments: int, keywords: tuple[str, ...] = ()
) -> str:
    """Return why a function does not accept these arguments, to complete an error message.

    The text is empty if it does, or if Python cannot tell, as for some built-in functions.
    """
    try:
        signature = inspect.signature(function)
    except ValueError:
        return ""
    try:
        signature.bind(*[None] * n_arguments, **dict.fromkeys(keywords))
    except TypeError as error:
        name = getattr(function, "__name__", type(function).__name__)
        return f"{name}{signature} does not accept them: {error}"
    return ""


def check_names(names: Sequence[str] | None, size: int, argument: str) -> tuple[str, ...] | None:
    """Return names as a tuple of this size; None if there are none."""
    if names is None:
        return None
    if len(names) != size:
        raise ValueError(f"{argument} has {len(names)} names, but {size} are required.")
    return tuple(str(name) for name in names)


def check_vector(values: object, n_outputs: int, argument: str) -> np.ndarray | None:
    """Return one finite number per output, float64; None if there are none."""
    if values is None:
        return None
    array = np.array(values, np.float64, ndmin=1)
    if array.shape != (n_outputs,) or not np.isfinite(array).all():
        raise ValueError(f"{argument} must have {n_outputs} finite numbers, one per output.")
    return array


# ---- distinct values ---------------------------------------------------------------------------

_BLOCK_ROWS = 1 << 16


def shorten_floats(values: Iterable[Any]) -> list[Any]:
    """Return float32 numbers as the float64 numbers of their shortest decimal form: 0.1 is 0.1.

    So a category is the same in float32 and float64. Integers from 2^24 on are rounded in float32:
    a warning says so.
    """
    floats = [value if value is None else float(str(np.float32(value))) for value in values]
    if any(value is not None and abs(value) > 2**24 for value in floats):
        warn_user(
            "Categories of type float32 include numbers above 2^24, of which some are rounded to "
            "the same number: use float64, integers or text."
        )
    return floats


def number_values(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the sorted distinct values, and the number of each row's value, (n_rows,).

    Integers that are close together are not sorted.
    """
    bounds = _find_close_bounds(values)
    if bounds is None:
        return np.unique(values, return_inverse=True)
    low, high = bounds
    ids = np.empty(len(values), np.int32)
    np.subtract(values, low, out=ids, dtype=np.int64, casting="unsafe")
    blocks = [ids[start : start + _BLOCK_ROWS] for start in range(0, len(ids), _BLOCK_ROWS)]
    is_held = np.zeros(high - low + 1, dtype=bool)
    for block in blocks:  # an index becomes 64-bit integers
        is_held[block] = True
    if not is_held.all():
        rank = np.cumsum(is_held, dtype=np.int32) - np.int32(1)
        for block in blocks:
            block[:] = rank[block]
    return (np.flatnonzero(is_held) + low).astype(values.dtype), ids


def _find_close_bounds(values: np.ndarray) -> tuple[int, int] | None:
    """Return the smallest and the largest integer, if a table of all between them is small."""
    if values.dtype.kind not in "biu" or len(values) == 0:
        return None
    low, high = int(values.min()), int(values.max())
    is_small = high - low < min(len(values), _BLOCK_ROWS) and -(2**62) < low <= high < 2**62
    return (low, high) if is_small else None
