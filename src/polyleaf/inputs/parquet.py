"""Rows of Parquet files as batches: a few rows at a time, features and targets apart.

Owns: which files, which of their columns, how many rows at once. Must not know bins.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["ParquetRows", "find_parquet_files"]


def find_parquet_files(
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
) -> list[str]:
    """The files that are meant, sorted: a file, a folder, a pattern such as ``data/*.parquet``, or a list.

    A list stays in its order. Of a folder those are taken that end in ``.parquet`` or ``.pq``, in whatever
    folder below it, and whose name begins with neither a dot nor an underscore.

    Raises
    ------
    FileNotFoundError
        Where there is none.
    """
    if not isinstance(path, str | os.PathLike):
        found = [os.fspath(one) for one in path]
        if not found:
            raise FileNotFoundError("There is no Parquet file in an empty list.")
        return found
    name = os.fspath(path)
    if os.path.isdir(name):
        every = glob.glob("**/*", root_dir=name, recursive=True)
        kept = [
            one
            for one in every
            if one.endswith((".parquet", ".pq")) and os.path.basename(one)[0] != "_"
        ]
        found = sorted(os.path.join(name, one) for one in kept)
    else:
        found = [name] if os.path.isfile(name) else sorted(glob.glob(name, recursive=True))
    if not found:
        raise FileNotFoundError(f"There is no Parquet file at {name!r}.")
    return found


@dataclass(frozen=True)
class ParquetRows:
    """What a call returns: an iterator of (X, y, weight), or of X where there is no target.

    Attributes
    ----------
    files : list of str
    target : str, sequence of str, or None
        A column gives a vector, a sequence of them a table.
    weight : str or None
    drop : sequence of str
        Columns that are no features.
    batch_rows : int
        Rows at a time, at most.
    """

    files: list[str]
    target: str | Sequence[str] | None
    weight: str | None
    drop: Sequence[str]
    batch_rows: int

    def __call__(self) -> Iterator[Any]:
        try:
            import pyarrow as pa
        except ImportError:
            raise ImportError(
                'Parquet files need PyArrow to be read: pip install "polyleaf[arrow]".'
            ) from None
        targets = [self.target] if isinstance(self.target, str) else list(self.target or ())
        apart = {*targets, *self.drop} | ({self.weight} if self.weight is not None else set())
        for table in iter_tables(self.files, self.batch_rows):
            absent = [name for name in apart if name not in table.column_names]
            if absent:
                raise ValueError(
                    f"There is no column {sorted(absent)[0]!r}; the columns are "
                    f"{', '.join(table.column_names[:8])}{', ...' if table.num_columns > 8 else ''}."
                )
            X = table.select([name for name in table.column_names if name not in apart])
            y: Any = None if self.target is None else table.select(targets)
            if isinstance(self.target, str):
                y = _vector(pa, table.column(self.target))
            yield X, y, None if self.weight is None else _vector(pa, table.column(self.weight))


def iter_tables(
    files: Sequence[str], batch_rows: int, columns: Sequence[str] | None = None
) -> Iterator[Any]:
    """The files' rows as Arrow tables of at most so many rows; of all columns, or of some."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    for name in files:
        try:
            with pq.ParquetFile(name) as file:
                for batch in file.iter_batches(batch_rows, columns=columns):
                    yield pa.Table.from_batches([batch])
        except pa.ArrowException as error:
            reason = " ".join(str(error).split()).rstrip(".")
            raise ValueError(f"{name} is not a readable Parquet file: {reason}.") from error


def _vector(pa: Any, column: Any) -> np.ndarray:
    """A column as an array: numbers as they are, all else as Python objects."""
    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind):
        return column.to_numpy()
    objects = np.empty(len(column), object)
    objects[:] = column.to_pylist()
    return objects
