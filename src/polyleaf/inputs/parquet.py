"""Batches of rows from Parquet files, with features, target and weight apart."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["ParquetRows", "find_parquet_files", "iter_tables"]


def find_parquet_files(
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
) -> list[str]:
    """Return the files of a path: a file, a folder, a pattern like ``data/*.parquet``, or a list.

    A list keeps its order; other files are sorted. Of a folder, files at any depth are taken that
    end in ``.parquet`` or ``.pq`` and whose name begins with neither a dot nor an underscore.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    """
    if not isinstance(path, str | os.PathLike):
        files = [os.fspath(one) for one in path]
        if not files:
            raise FileNotFoundError("The list of Parquet files is empty.")
        return files
    name = os.fspath(path)
    if os.path.isdir(name):
        files = sorted(
            os.path.join(name, one)
            for one in glob.glob("**/*", root_dir=name, recursive=True)
            if one.endswith((".parquet", ".pq")) and os.path.basename(one)[0] != "_"
        )
    else:
        files = [name] if os.path.isfile(name) else sorted(glob.glob(name, recursive=True))
    if not files:
        raise FileNotFoundError(f"There is no Parquet file at {name!r}.")
    return files


@dataclass(frozen=True)
class ParquetRows:
    """A callable that returns an iterator of (X, y, weight), as `Dataset.from_batches` takes it.

    Attributes
    ----------
    files : list of str
        Files in order.
    target : str, sequence of str, or None
        A column gives a vector, a sequence a table.
    weight : str or None
        Column of weights.
    drop : sequence of str
        Columns that are not features.
    batch_rows : int
        Largest number of rows of a batch.
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
                'Reading Parquet files needs PyArrow: pip install "polyleaf[arrow]".'
            ) from None
        targets = [self.target] if isinstance(self.target, str) else list(self.target or ())
        others = {*targets, *self.drop} | ({self.weight} if self.weight is not None else set())
        for table in iter_tables(self.files, self.batch_rows):
            missing = [name for name in others if name not in table.column_names]
            if missing:
                dots = ", ..." if table.num_columns > 8 else ""
                raise ValueError(
                    f"There is no column {sorted(missing)[0]!r}; the columns are "
                    f"{', '.join(table.column_names[:8])}{dots}."
                )
            X = table.select([name for name in table.column_names if name not in others])
            y: Any = None if self.target is None else table.select(targets)
            if isinstance(self.target, str):
                y = _to_vector(pa, table.column(self.target))
            yield X, y, None if self.weight is None else _to_vector(pa, table.column(self.weight))


def iter_tables(
    files: Sequence[str], batch_rows: int, columns: Sequence[str] | None = None
) -> Iterator[Any]:
    """Yield the rows of files as Arrow tables of at most `batch_rows` rows."""
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


def _to_vector(pa: Any, column: Any) -> np.ndarray:
    """Convert a column to an array: numbers unchanged, other values as Python objects."""
    dtype = column.type
    if pa.types.is_integer(dtype) or pa.types.is_floating(dtype) or pa.types.is_boolean(dtype):
        return column.to_numpy()
    objects = np.empty(len(column), object)
    objects[:] = column.to_pylist()
    return objects
