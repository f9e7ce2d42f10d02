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

__all__ = ["Frame", "as_frame", "refuse_lazy", "repeated"]

# Blocks may be copies. Larger ones are read column by column, which are views where that is possible at all.
_MOST_COPIED_BYTES = 1 << 26


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
        """Columns of numbers (or booleans) without nulls but NaN, together where they have one dtype.

        Returns
        -------
        list of (values, columns)
            Values (n_rows, k), any strides, exactly those of the frame; columns (k,), ascending. Columns that
            are in no block are to be read one by one.
        """
        return []

    def _groups(self, kinds: Sequence[Any], are_numbers: Callable[[int], bool]) -> list[NDArray[np.int64]]:
        """Columns of numbers by kind; without those that would be large copies.

        `are_numbers(column)` is asked for one column of each kind.
        """
        if len(set(kinds)) == 1:  # the usual case, and the fastest
            groups = [np.arange(len(kinds))] if are_numbers(0) else []
        else:
            columns: dict[Any, list[int]] = {}
            for column, kind in enumerate(kinds):
                columns.setdefault(kind, []).append(column)
            groups = [np.array(group) for group in columns.values() if are_numbers(group[0])]
        size = 8 * self.shape[0]
        return [group for group in groups if len(group) * size <= _MOST_COPIED_BYTES]


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
        for columns in self._groups(dtypes, lambda i: _is_plain(dtypes[i])):
            all_of_them = len(columns) == len(dtypes)
            part = self.native if all_of_them else self.native.iloc[:, columns]
            found.append((part.to_numpy(), columns))
        return found


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
        dtypes = self.native.dtypes
        found = []
        kinds = list(map(type, dtypes))
        for columns in self._groups(kinds, lambda i: dtypes[i].is_numeric()):
            all_of_them = len(columns) == len(dtypes)
            values = (self.native if all_of_them else self.native[:, columns.tolist()]).to_numpy()
            # Integers with nulls have become floats, together with their neighbours.
            if values.dtype.kind == "f" if dtypes[columns[0]].is_float() else values.dtype.kind in "iu":
                found.append((values, columns))
        return found


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
        types = self.native.schema.types
        kinds = [kind.id for kind in types]  # a number, which is all that types of numbers are
        is_float, is_integer = pa.types.is_floating, pa.types.is_integer
        found = []
        for columns in self._groups(kinds, lambda i: is_float(types[i]) or is_integer(types[i])):
            all_of_them = len(columns) == len(types)
            part = (self.native if all_of_them else self.native.select(columns.tolist())).combine_chunks()
            try:
                tensor = part.to_batches()[0].to_tensor(
                    null_to_nan=is_float(types[columns[0]]), row_major=False
                )
            except pa.ArrowException:  # integers with nulls
                continue
            found.append((tensor.to_numpy(), columns))
        return found


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


def refuse_lazy(data: Any, name: str) -> None:
    """A TypeError for a frame whose values are not there yet; it says how to get them."""
    home, kind = type(data).__module__.split(".")[0], type(data).__name__
    if kind == "LazyFrame":
        raise TypeError(f"{name} is a lazy frame, whose values are not there yet: pass {name}.collect().")
    if home in ("dask", "dask_expr") or (home == "distributed" and kind == "Future"):
        raise TypeError(f"{name} is a Dask {kind}, whose values are not there yet: pass {name}.compute().")


def repeated(names: Sequence[Any]) -> Any:
    """The first name that occurs twice; None where all differ."""
    if len(set(names)) == len(names):
        return None
    return next(name for position, name in enumerate(names) if name in names[:position])


def _is_plain(dtype: Any) -> bool:
    """Whether a dtype of pandas is one of NumPy's numbers: others may hold nulls."""
    return isinstance(dtype, np.dtype) and dtype.kind in "fiub"


def _narwhals_series(native: Any) -> Any:
    import narwhals.stable.v1 as nw

    return nw.from_native(native, series_only=True)
