"""Data frames by columns: names, blocks of plain numbers, and single columns for all else.

Owns what pandas, polars and Arrow do quickly: whole blocks at a time, so that the work per column is small.
Other frames are read through narwhals. Must not know what the columns are for: categories, checks, names that
should match.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyleaf.runtime.device_arrays import is_device_array

__all__ = ["Frame", "as_frame", "check_in_memory", "repeated"]

# Blocks may be copies. Larger ones are read column by column, which are views where that is possible at all.
_MOST_COPIED_BYTES = 1 << 26

# Of so few rows of Arrow the types are read after one try without them: an object of each costs more.
_FEW_ROWS = 16


class Frame:
    """A data frame of any library that narwhals knows.

    Attributes
    ----------
    native
        The frame itself.
    """

    def __init__(self, native: Any) -> None:
        self.native = native

    @cached_property
    def names(self) -> list[Any]:
        """Names of the columns."""
        return list(self._through_narwhals.columns)

    @property
    def shape(self) -> tuple[int, int]:
        """(n_rows, n_columns)."""
        return self._through_narwhals.shape

    @cached_property
    def _through_narwhals(self) -> Any:
        import narwhals.stable.v1 as nw

        return nw.from_native(self.native, eager_only=True)

    def series(self, column: int) -> Any:
        """One column, as a narwhals Series."""
        return self._series[column]

    @cached_property
    def _series(self) -> list[Any]:
        return list(self._through_narwhals.iter_columns())

    def blocks(self) -> list[tuple[NDArray[Any], NDArray[np.int64]]]:
        """Columns of numbers (or booleans) without nulls but NaN, together, whatever their dtypes.

        Returns
        -------
        list of (values, columns)
            Values (n_rows, k), any strides; where dtypes differ they are of one that holds them all, float64
            beyond. Columns (k,), ascending. Those that are in no block are to be read one by one.
        """
        return []

    def _together(
        self, kinds: Sequence[Any], is_number: Callable[[Any], bool]
    ) -> NDArray[np.int64]:
        """The columns of numbers, which may be asked for by kind; none of them where the copy would be large.

        Each distinct kind is looked at once: most frames have very few.
        """
        distinct = set(kinds)
        numbers = {kind for kind in distinct if is_number(kind)}
        if numbers == distinct:
            columns = np.arange(len(kinds))
        else:
            columns = np.array(
                [c for c, kind in enumerate(kinds) if kind in numbers], dtype=np.int64
            )
        small = 8 * self.shape[0] * len(columns) <= _MOST_COPIED_BYTES
        return columns if small else columns[:0]


class _Pandas(Frame):
    @cached_property
    def names(self) -> list[Any]:
        return self.native.columns.tolist()

    @property
    def shape(self) -> tuple[int, int]:
        return self.native.shape

    def series(self, column: int) -> Any:
        return _narwhals_series(self.native.iloc[:, column])

    def blocks(self) -> list[tuple[NDArray[Any], NDArray[np.int64]]]:
        dtypes = self.native.dtypes.tolist()
        found = []
        for is_plain in (
            _is_number,
            _is_boolean,
        ):  # pandas makes objects of numbers beside booleans
            columns = self._together(dtypes, is_plain)
            if len(columns):
                all_of_them = len(columns) == len(dtypes)
                part = self.native if all_of_them else self.native.take(columns, axis=1)
                found.append((part.to_numpy(), columns))
                if all_of_them:
                    break
        return found


def _has_arrays(kind: Any) -> bool:
    """Whether a type of polars is one of numbers that NumPy has, too: integers of 128 bits are not."""
    is_number = kind.is_integer() or kind.is_float()
    return is_number and kind.__name__ not in ("Int128", "UInt128")


class _Polars(Frame):
    @cached_property
    def names(self) -> list[Any]:
        return self.native.columns

    @property
    def shape(self) -> tuple[int, int]:
        return self.native.shape

    def series(self, column: int) -> Any:
        return _narwhals_series(self.native.to_series(column))

    def blocks(self) -> list[tuple[NDArray[Any], NDArray[np.int64]]]:
        kinds = list(map(type, self.native.dtypes))
        columns = self._together(kinds, _has_arrays)
        if not len(columns):
            return []
        all_of_them = len(columns) == len(kinds)
        if (
            len(self.native) == 1
        ):  # polars makes arrays with many threads, which one row does not pay for
            row = self.native.row(0)
            numbers = row if all_of_them else [row[column] for column in columns.tolist()]
            return [(np.array([numbers], dtype=np.float64), columns)]
        values = (self.native if all_of_them else self.native[:, columns.tolist()]).to_numpy()
        return [(values, columns)] if values.dtype.kind in "fiu" else []


class _Arrow(Frame):
    @cached_property
    def names(self) -> list[Any]:
        return self.native.schema.names

    @property
    def shape(self) -> tuple[int, int]:
        return self.native.shape

    def series(self, column: int) -> Any:
        return _narwhals_series(self.native.column(column))

    def blocks(self) -> list[tuple[NDArray[Any], NDArray[np.int64]]]:
        import pyarrow as pa

        if not hasattr(pa.RecordBatch, "to_tensor") or self.shape[0] == 0:
            return []
        if self.shape[0] <= _FEW_ROWS:
            try:
                return [(_tensor(self.native), np.arange(self.shape[1]))]
            except pa.ArrowException:  # not all columns are numbers
                pass
        is_float = {
            pa.float32().id,
            pa.float64().id,
        }.__contains__  # not of halves: they become no tensors
        is_integer = pa.types.is_integer
        types = self.native.schema.types
        kinds = [kind.id for kind in types]  # a number, which is all that types of numbers are
        type_of = dict(zip(kinds, types, strict=True))
        columns = self._together(kinds, lambda kind: is_float(kind) or is_integer(type_of[kind]))
        if not len(columns):
            return []
        all_of_them = len(columns) == len(types)
        return [
            (_tensor(self.native if all_of_them else self.native.select(columns.tolist())), columns)
        ]


def as_frame(X: Any) -> Frame | None:
    """X as a frame, or None where it is none."""
    if not hasattr(type(X), "columns"):  # of the type: some frames compute the attribute
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

    found = nw.from_native(X, pass_through=True)
    return Frame(X) if isinstance(found, nw.DataFrame) else None


def check_in_memory(data: Any, name: str) -> None:
    """A TypeError for data whose values are not there yet, or lie on a card; it says how to get them."""
    home, kind = type(data).__module__.split(".")[0], type(data).__name__
    if is_device_array(data):
        ways = {
            "cupy": f"{name}.get()",
            "torch": f"{name}.cpu()",
            "jaxlib": f"jax.device_get({name})",
        }
        raise TypeError(
            f"{name} lies on a CUDA card, and is read there by fit and predict of estimators with "
            f'device="cuda" alone: set that, or pass {ways.get(home, "a copy in memory of this machine")}.'
        )
    if kind == "LazyFrame":
        raise TypeError(
            f"{name} is a lazy frame, whose values are not there yet: pass {name}.collect()."
        )
    if home in ("dask", "dask_expr") or (home == "distributed" and kind == "Future"):
        raise TypeError(
            f"{name} is a Dask {kind}, whose values are not there yet: pass {name}.compute(), or use an "
            "estimator of polyleaf.dask."
        )


def repeated(names: Sequence[Any]) -> Any:
    """The first name that occurs twice; None where all differ."""
    if len(set(names)) == len(names):
        return None
    return next(name for position, name in enumerate(names) if name in names[:position])


def check_unique_names(names: Sequence[Any] | None, name: str) -> None:
    """A ValueError where two columns of `name` have one name."""
    if names is not None and (twice := repeated(names)) is not None:
        raise ValueError(
            f"{name} has several columns of the name {twice!r}: rename all but one of them."
        )


def _tensor(table: Any) -> NDArray[Any]:
    """The columns (n_rows, k) of an Arrow table that has nothing but numbers; nulls are NaN."""
    batch = table.combine_chunks().to_batches()[0]
    return batch.to_tensor(null_to_nan=True, row_major=False).to_numpy()


def _is_number(dtype: Any) -> bool:
    """Whether a dtype of pandas is one of NumPy's numbers: others may hold nulls."""
    return isinstance(dtype, np.dtype) and dtype.kind in "fiu"


def _is_boolean(dtype: Any) -> bool:
    """Whether a dtype of pandas is NumPy's of booleans, without nulls."""
    return isinstance(dtype, np.dtype) and dtype.kind == "b"


def _narwhals_series(native: Any) -> Any:
    import narwhals.stable.v1 as nw

    return nw.from_native(native, series_only=True)
