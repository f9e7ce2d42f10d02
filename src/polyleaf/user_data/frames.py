"""Data frames by column: names, blocks of numbers, and single columns of other types.

There is a reader for pandas, polars and Arrow each. Frames of other libraries are converted to
Arrow, or to pandas. Blocks are read at once, so that the work per column is small.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from polyleaf.user_data.validation import shorten_floats

if TYPE_CHECKING:
    import pyarrow as pa

# Blocks may be copies. Larger ones are read column by column, as views where possible.
_MAX_COPIED_BYTES = 1 << 26

# Small Arrow tables are first converted without reading the type of each column, which costs more.
_SMALL_ROWS = 16


class Frame(ABC):
    """A data frame; one subclass for each library.

    `native`: the user's frame, or its conversion. `names`: column names. `shape`: (n_rows,
    n_columns).
    """

    def __init__(self, native: Any, names: Sequence[Any]) -> None:
        self.native, self.names = native, list(names)
        self.shape: tuple[int, int] = native.shape

    @abstractmethod
    def get_kind(self, column: int) -> str:
        """Return what a column holds: "number", "category" (its type is categorical), "text",
        "object" (Python objects without text), or the name of a type that no feature can have."""

    @abstractmethod
    def to_numpy(self, column: int) -> np.ndarray:
        """Return a column of numbers (n_rows,), a view if it has a NumPy dtype and no nulls."""

    @abstractmethod
    def to_list(self, column: int) -> list[Any]:
        """Return the values of a column as Python objects."""

    @abstractmethod
    def factorize(self, column: int) -> tuple[np.ndarray, list[Any]]:
        """Return the index of each row's value among the distinct ones (-1: missing), and these.

        Raises a TypeError for values that cannot be hashed.
        """

    def sparse_columns(self) -> tuple[Any, NDArray[np.int64]]:
        """Return the columns that store only what is not 0, as a SciPy matrix, and their places."""
        return None, np.empty(0, np.int64)

    @abstractmethod
    def blocks(self) -> list[tuple[np.ndarray, NDArray[np.int64]]]:
        """Return blocks of numeric (or boolean) columns without nulls other than NaN.

        Returns
        -------
        list of (values, columns)
            Values (n_rows, k) with any strides, in a common dtype, at most float64; columns (k,),
            ascending. The caller reads columns that are in no block one by one.
        """

    def _select_numeric(
        self, dtypes: Sequence[object], is_number: Callable[[Any], bool]
    ) -> NDArray[np.int64]:
        """Return the numeric columns, or none where their copy would be large.

        Each distinct dtype is tested once: most frames have very few.
        """
        distinct = set(dtypes)
        numeric = {dtype for dtype in distinct if is_number(dtype)}
        if numeric == distinct:
            columns = np.arange(len(dtypes))
        else:
            columns = np.array([c for c, dtype in enumerate(dtypes) if dtype in numeric], np.int64)
        is_small = 8 * self.shape[0] * len(columns) <= _MAX_COPIED_BYTES
        return columns if is_small else columns[:0]


# ---- pandas --------------------------------------------------------------------------------------


class _Pandas(Frame):
    def get_kind(self, column: int) -> str:
        import pandas

        series = self._get_series(column)
        dtype = series.dtype
        if isinstance(dtype, pandas.CategoricalDtype):
            return "category"
        if isinstance(dtype, pandas.StringDtype):
            return "text"
        if isinstance(dtype, pandas.ArrowDtype):
            return _get_arrow_kind(dtype.pyarrow_dtype)
        if dtype.kind in "fiub":
            return "number"
        if dtype.kind == "O" and any(isinstance(value, str) for value in series):
            return "text"
        return str(dtype) if dtype.kind in "mM" else "object"

    def to_numpy(self, column: int) -> np.ndarray:
        import pandas

        series = self._get_series(column)
        if isinstance(series.dtype, np.dtype):
            return series.to_numpy()
        if isinstance(series.dtype, pandas.ArrowDtype):
            return _arrow_to_numpy(series.array.__arrow_array__())
        dtype = series.dtype.numpy_dtype  # of pandas' own types with nulls
        has_nulls = dtype.kind != "f" and series.isna().any()
        return series.to_numpy(np.dtype(float) if has_nulls else dtype, na_value=np.nan)

    def to_list(self, column: int) -> list[Any]:
        return self._get_series(column).tolist()

    def factorize(self, column: int) -> tuple[np.ndarray, list[Any]]:
        import pandas

        series = self._get_series(column)
        if isinstance(series.dtype, pandas.CategoricalDtype):
            codes, distinct = series.cat.codes.to_numpy(), series.cat.categories
        else:
            codes, distinct = pandas.factorize(series)
        is_short = str(distinct.dtype).lower() in ("float16", "float32", "float[pyarrow]")
        return codes, shorten_floats(distinct) if is_short else distinct.tolist()

    def _get_series(self, column: int) -> Any:
        """Return a column, without Sparse dtype."""
        series = self.native.iloc[:, column]
        return series.sparse.to_dense() if _is_sparse(series.dtype) else series

    def sparse_columns(self) -> tuple[Any, NDArray[np.int64]]:
        dtypes = enumerate(self.native.dtypes.tolist())
        columns = [
            i for i, t in dtypes if _is_sparse(t) and t.subtype.kind in "fiub" and t.fill_value == 0
        ]
        matrix = None
        if columns:
            part = self.native.iloc[:, columns]
            booleans = [i for i, t in enumerate(part.dtypes) if t.subtype.kind == "b"]
            if booleans:  # to_coo takes one kind of fill value
                part = part.astype({part.columns[i]: "Sparse[uint8]" for i in booleans})
            matrix = part.sparse.to_coo()
        return matrix, np.array(columns, np.int64)

    def blocks(self) -> list[tuple[np.ndarray, NDArray[np.int64]]]:
        dtypes = self.native.dtypes.tolist()
        blocks = []
        # Apart, because pandas converts numbers and booleans together to objects.
        for is_plain in (_is_number, _is_boolean):
            columns = self._select_numeric(dtypes, is_plain)
            if len(columns):
                is_whole = len(columns) == len(dtypes)
                part = self.native if is_whole else self.native.take(columns, axis=1)
                blocks.append((part.to_numpy(), columns))
                if is_whole:
                    break
        return blocks


def _is_number(dtype: Any) -> bool:
    """Whether a pandas dtype is a numeric NumPy dtype: others may hold nulls."""
    return isinstance(dtype, np.dtype) and dtype.kind in "fiu"


def _is_boolean(dtype: Any) -> bool:
    """Whether a pandas dtype is NumPy's boolean dtype, which has no nulls."""
    return isinstance(dtype, np.dtype) and dtype.kind == "b"


def _is_sparse(dtype: object) -> bool:
    """Whether a pandas dtype is Sparse."""
    return type(dtype).__name__ == "SparseDtype"


# ---- polars --------------------------------------------------------------------------------------


def _has_numpy_dtype(dtype: Any) -> bool:
    """Whether NumPy has the numeric type of a polars column: 128-bit integers it has not."""
    is_number = dtype.is_integer() or dtype.is_float()
    return is_number and dtype.__name__ not in ("Int128", "UInt128")


class _Polars(Frame):
    def get_kind(self, column: int) -> str:
        import polars

        values = self.native.to_series(column)
        dtype = values.dtype
        if dtype.is_numeric() or dtype == polars.Boolean:
            return "number"
        if dtype in (polars.Categorical, polars.Enum):
            return "category"
        if dtype == polars.String:
            return "text"
        if dtype == polars.Object:
            return "text" if any(isinstance(value, str) for value in values) else "object"
        return "object" if dtype == polars.Null else str(dtype)

    def to_numpy(self, column: int) -> np.ndarray:
        import polars

        values = self.native.to_series(column)
        dtype = values.dtype
        is_plain = dtype == polars.Boolean or _has_numpy_dtype(type(dtype))
        if dtype.is_float() or (is_plain and not values.null_count()):
            return values.to_numpy()
        return values.cast(polars.Float64).to_numpy()

    def to_list(self, column: int) -> list[Any]:
        return self.native.to_series(column).to_list()

    def factorize(self, column: int) -> tuple[np.ndarray, list[Any]]:
        import polars

        values = self.native.to_series(column)
        if values.dtype == polars.Object:
            return factorize_objects(values.to_list())
        known = np.flatnonzero(values.is_not_null().to_numpy())
        values, index = values.gather(known), np.full(len(values), -1)
        if values.dtype in (polars.String, polars.Categorical, polars.Enum):
            codes = values.cast(polars.Categorical).to_physical().to_numpy()
            row = np.full(int(codes.max(initial=0)) + 1, -1)
            row[codes] = np.arange(len(codes))
            first, index[known] = row[row >= 0], (np.cumsum(row >= 0) - 1)[codes]
        else:
            _, first, inverse = np.unique(values.to_numpy(), return_index=True, return_inverse=True)
            index[known] = inverse
        distinct = values.gather(first).to_list()
        return index, shorten_floats(distinct) if values.dtype == polars.Float32 else distinct

    def blocks(self) -> list[tuple[np.ndarray, NDArray[np.int64]]]:
        dtypes = list(map(type, self.native.dtypes))
        columns = self._select_numeric(dtypes, _has_numpy_dtype)
        if not len(columns):
            return []
        is_whole = len(columns) == len(dtypes)
        if len(self.native) == 1:  # polars starts its threads even for one row
            row = self.native.row(0)
            numbers = row if is_whole else [row[column] for column in columns.tolist()]
            return [(np.array([numbers], dtype=np.float64), columns)]
        values = (self.native if is_whole else self.native[:, columns.tolist()]).to_numpy()
        return [(values, columns)] if values.dtype.kind in "fiu" else []


def factorize_objects(values: Sequence[Any]) -> tuple[np.ndarray, list[Any]]:
    """Return the index of each object among the distinct ones, and these, in order."""
    codes: dict[Any, int] = {}
    index = [codes.setdefault(value, len(codes)) for value in values]
    return np.array(index, np.int64), list(codes)


# ---- Arrow ---------------------------------------------------------------------------------------


class _Arrow(Frame):
    def get_kind(self, column: int) -> str:
        return _get_arrow_kind(self.native.schema.field(column).type)

    def to_numpy(self, column: int) -> np.ndarray:
        return _arrow_to_numpy(self.native.column(column))

    def to_list(self, column: int) -> list[Any]:
        return self.native.column(column).to_pylist()

    def factorize(self, column: int) -> tuple[np.ndarray, list[Any]]:
        import pyarrow as pa

        values = self.native.column(column)
        if str(values.type) == "string_view":
            values = values.cast(pa.string())
        if pa.types.is_dictionary(values.type) and values.num_chunks > 1:
            values = values.cast(values.type.value_type)
        if not pa.types.is_dictionary(values.type):
            values = values.combine_chunks().dictionary_encode()
        whole = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
        if isinstance(whole, pa.ChunkedArray):
            whole = whole.chunk(0) if whole.num_chunks else pa.array([], values.type)
        index = whole.indices.cast(pa.int64()).fill_null(-1).to_numpy()
        distinct = whole.dictionary.to_pylist()
        is_short = whole.dictionary.type in (pa.float16(), pa.float32())
        return index, shorten_floats(distinct) if is_short else distinct

    def blocks(self) -> list[tuple[np.ndarray, NDArray[np.int64]]]:
        import pyarrow as pa

        if self.shape[0] == 0:
            return []
        if self.shape[0] <= _SMALL_ROWS:
            try:
                return [(_to_array(self.native), np.arange(self.shape[1]))]
            except pa.ArrowException:  # some columns are not numeric
                pass
        is_float = {pa.float32().id, pa.float64().id}.__contains__  # float16 has no tensors
        types = self.native.schema.types
        ids = [dtype.id for dtype in types]  # identifies numeric types
        type_of_id = dict(zip(ids, types, strict=True))
        columns = self._select_numeric(
            ids, lambda i: is_float(i) or pa.types.is_integer(type_of_id[i])
        )
        if not len(columns):
            return []
        is_whole = len(columns) == len(types)
        part = self.native if is_whole else self.native.select(columns.tolist())
        return [(_to_array(part), columns)]


def _get_arrow_kind(dtype: pa.DataType) -> str:
    import pyarrow.types as types

    if types.is_integer(dtype) or types.is_floating(dtype) or types.is_decimal(dtype):
        return "number"
    if types.is_boolean(dtype) or types.is_null(dtype):
        return "number"
    if types.is_dictionary(dtype):
        return "category"
    is_text = types.is_string(dtype) or types.is_large_string(dtype)
    return "text" if is_text or str(dtype) == "string_view" else str(dtype)


def _arrow_to_numpy(values: pa.ChunkedArray) -> np.ndarray:
    """Convert numbers of any type; nulls become NaN."""
    import pyarrow as pa

    dtype = values.type
    is_float = pa.types.is_floating(dtype)
    is_plain = is_float or pa.types.is_integer(dtype) or pa.types.is_boolean(dtype)
    if is_float or (is_plain and not values.null_count):
        return values.to_numpy()
    return values.cast(pa.float64(), safe=False).to_numpy()


def _to_array(table: pa.Table) -> np.ndarray:
    """Convert an Arrow table of numbers to an array (n_rows, k); nulls become NaN."""
    batch = table.combine_chunks().to_batches()[0]
    return batch.to_tensor(null_to_nan=True, row_major=False).to_numpy()


# ---- choice --------------------------------------------------------------------------------------


def as_frame(X: Any) -> Frame | None:
    """Return X as a frame, or None if it is not a data frame."""
    if not hasattr(type(X), "columns"):  # some frames compute attributes of instances
        return None
    pandas, polars, arrow = (sys.modules.get(name) for name in ("pandas", "polars", "pyarrow"))
    if pandas is not None and isinstance(X, pandas.DataFrame):
        return _Pandas(X, X.columns.tolist())
    if polars is not None and isinstance(X, polars.DataFrame):
        return _Polars(X, X.columns)
    if arrow is not None and isinstance(X, arrow.Table):
        return _Arrow(X, X.schema.names)
    if arrow is not None and isinstance(X, arrow.RecordBatch):
        return _Arrow(arrow.Table.from_batches([X]), X.schema.names)
    if hasattr(X, "to_pandas"):  # cuDF
        return as_frame(X.to_pandas())
    if hasattr(X, "_to_pandas"):  # Modin
        return as_frame(X._to_pandas())
    if hasattr(X, "__arrow_c_stream__"):
        import pyarrow

        return as_frame(pyarrow.table(X))
    return None


def concatenate_frames(frames: Sequence[Frame]) -> Any:
    """Return the rows of frames of one library, with the same columns, as one native frame."""
    natives = [frame.native for frame in frames]
    if isinstance(frames[0], _Pandas):
        import pandas

        return pandas.concat(natives)
    if isinstance(frames[0], _Polars):
        import polars

        return polars.concat(natives)
    import pyarrow

    return pyarrow.concat_tables(natives)
