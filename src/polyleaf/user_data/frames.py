"""Data frames by column: names, blocks of numbers, and single columns of other dtypes.

Blocks of pandas, polars and Arrow are read at once, so that the work per column is small. Other
frames are read through narwhals.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from polyleaf.runtime.types import DataLike, NarwhalsSeries

if TYPE_CHECKING:
    import narwhals.stable.v1 as nw
    import pyarrow as pa
    from numpy.typing import DTypeLike

# Blocks may be copies. Larger ones are read column by column, as views where possible.
_MAX_COPIED_BYTES = 1 << 26

# Small Arrow tables are first converted without reading the type of each column, which costs more.
_SMALL_ROWS = 16


class Frame:
    """A data frame of a library that narwhals supports.

    Attributes
    ----------
    native : data frame
        The user's frame.
    """

    def __init__(self, native: Any) -> None:
        self.native = native

    @cached_property
    def names(self) -> list[Any]:
        """Column names."""
        return list(self._narwhals_frame.columns)

    @property
    def shape(self) -> tuple[int, int]:
        """(n_rows, n_columns)."""
        return self._narwhals_frame.shape

    @cached_property
    def _narwhals_frame(self) -> nw.DataFrame[Any]:
        import narwhals.stable.v1 as nw

        return nw.from_native(self.native, eager_only=True)

    def series(self, column: int) -> NarwhalsSeries:
        """Return a column as a narwhals Series."""
        return self._series[column]

    @cached_property
    def _series(self) -> list[NarwhalsSeries]:
        return list(self._narwhals_frame.iter_columns())

    def factorize(self, column: int) -> tuple[np.ndarray, list[Any]]:
        """Return the distinct values of a column, and the index of each row's; -1 is missing.

        Raises
        ------
        TypeError
            For values that cannot be hashed.
        """
        codes: dict[Any, int] = {}
        values = self.series(column).to_list()
        index = [codes.setdefault(value, len(codes)) for value in values]
        return np.array(index, np.int64), list(codes)

    def sparse_columns(self) -> tuple[Any, NDArray[np.int64]]:
        """Return the columns that store only what is not 0, as a SciPy matrix, and their places."""
        return None, np.empty(0, np.int64)

    def blocks(self) -> list[tuple[np.ndarray, NDArray[np.int64]]]:
        """Return blocks of numeric (or boolean) columns without nulls other than NaN.

        Returns
        -------
        list of (values, columns)
            Values (n_rows, k) with any strides, in a common dtype, at most float64; columns (k,),
            ascending. The caller reads columns that are in no block one by one.
        """
        return []

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


class _Pandas(Frame):
    @cached_property
    def names(self) -> list[Any]:
        return self.native.columns.tolist()

    @property
    def shape(self) -> tuple[int, int]:
        return self.native.shape

    def series(self, column: int) -> NarwhalsSeries:
        return _narwhals_series(_densify(self.native.iloc[:, column]))

    def factorize(self, column: int) -> tuple[np.ndarray, list[Any]]:
        import pandas

        native = self.native.iloc[:, column]
        if isinstance(native.dtype, pandas.CategoricalDtype):
            return native.cat.codes.to_numpy(), native.cat.categories.tolist()
        codes, distinct = pandas.factorize(_densify(native))
        return codes, distinct.tolist()

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


def _is_sparse(dtype: object) -> bool:
    """Whether a pandas dtype is Sparse."""
    return type(dtype).__name__ == "SparseDtype"


def _densify(series: Any) -> Any:
    """Return a pandas Series without Sparse dtype."""
    return series.sparse.to_dense() if _is_sparse(series.dtype) else series


def _is_numpy_number(dtype: Any) -> bool:
    """Whether NumPy has the numeric dtype of a polars column: 128-bit integers it has not."""
    is_number = dtype.is_integer() or dtype.is_float()
    return is_number and dtype.__name__ not in ("Int128", "UInt128")


class _Polars(Frame):
    @cached_property
    def names(self) -> list[Any]:
        return self.native.columns

    @property
    def shape(self) -> tuple[int, int]:
        return self.native.shape

    def series(self, column: int) -> NarwhalsSeries:
        return _narwhals_series(self.native.to_series(column))

    def factorize(self, column: int) -> tuple[np.ndarray, list[Any]]:
        import polars

        values = self.native.to_series(column)
        if values.dtype == polars.Object:
            return super().factorize(column)
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
        return index, values.gather(first).to_list()

    def blocks(self) -> list[tuple[np.ndarray, NDArray[np.int64]]]:
        dtypes = list(map(type, self.native.dtypes))
        columns = self._select_numeric(dtypes, _is_numpy_number)
        if not len(columns):
            return []
        is_whole = len(columns) == len(dtypes)
        if len(self.native) == 1:  # polars starts its threads even for one row
            row = self.native.row(0)
            numbers = row if is_whole else [row[column] for column in columns.tolist()]
            return [(np.array([numbers], dtype=np.float64), columns)]
        values = (self.native if is_whole else self.native[:, columns.tolist()]).to_numpy()
        return [(values, columns)] if values.dtype.kind in "fiu" else []


class _Arrow(Frame):
    @cached_property
    def names(self) -> list[Any]:
        return self.native.schema.names

    @property
    def shape(self) -> tuple[int, int]:
        return self.native.shape

    def series(self, column: int) -> NarwhalsSeries:
        values = self.native.column(column)
        if values.type == "null":
            values = values.cast("float64")
        return _narwhals_series(values)

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
        return index, whole.dictionary.to_pylist()

    def blocks(self) -> list[tuple[np.ndarray, NDArray[np.int64]]]:
        import pyarrow as pa

        if not hasattr(pa.RecordBatch, "to_tensor") or self.shape[0] == 0:
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


def as_frame(X: DataLike) -> Frame | None:
    """Return X as a frame, or None if it is not a data frame."""
    if not hasattr(type(X), "columns"):  # some frames compute attributes of instances
        return None
    pandas, polars, arrow = (sys.modules.get(name) for name in ("pandas", "polars", "pyarrow"))
    if pandas is not None and isinstance(X, pandas.DataFrame):
        return _Pandas(X)
    if polars is not None and isinstance(X, polars.DataFrame):
        return _Polars(X)
    if arrow is not None and isinstance(X, arrow.RecordBatch):
        X = arrow.Table.from_batches([X])
    if arrow is not None and isinstance(X, arrow.Table):
        return _Arrow(X)
    import narwhals.stable.v1 as nw

    return Frame(X) if isinstance(nw.from_native(X, pass_through=True), nw.DataFrame) else None


def _to_array(table: pa.Table) -> np.ndarray:
    """Convert an Arrow table of numbers to an array (n_rows, k); nulls become NaN."""
    batch = table.combine_chunks().to_batches()[0]
    return batch.to_tensor(null_to_nan=True, row_major=False).to_numpy()


def _is_number(dtype: DTypeLike) -> bool:
    """Whether a pandas dtype is a numeric NumPy dtype: others may hold nulls."""
    return isinstance(dtype, np.dtype) and dtype.kind in "fiu"


def _is_boolean(dtype: DTypeLike) -> bool:
    """Whether a pandas dtype is NumPy's boolean dtype, which has no nulls."""
    return isinstance(dtype, np.dtype) and dtype.kind == "b"


def _narwhals_series(native: object) -> NarwhalsSeries:
    import narwhals.stable.v1 as nw

    return nw.from_native(native, series_only=True)
