"""Folders of Parquet files that are one table, read in batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from polyleaf.files.io import ReadError
from polyleaf.files.readers import arrow_to_cells, from_arrow
from polyleaf.files.table import Table
from polyleaf.inputs.parquet import find_parquet_files, iter_tables

__all__ = ["ParquetFolder"]

_BATCH_ROWS = 65_536


@dataclass(frozen=True)
class ParquetFolder:
    """A folder of Parquet files.

    Attributes
    ----------
    files : list of str
        Sorted paths; the first file defines the columns.
    header : Table
        Table without rows: the names of the columns, and which are text.
    """

    files: list[str]
    header: Table

    @classmethod
    def open(cls, path: Path) -> ParquetFolder:
        """List the files of a folder and read the columns of the first.

        Raises
        ------
        ReadError
            If there is no Parquet file, the first is damaged, or PyArrow is not installed.
        """
        if find_spec("pyarrow") is None:
            raise ReadError(
                f"Reading the folder {path} of Parquet files needs PyArrow: "
                'pip install "polyleaf[arrow]".'
            )
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            files = find_parquet_files(path)
        except FileNotFoundError:
            raise ReadError(f"There is no Parquet file in the folder {str(path)!r}.") from None
        try:
            header = from_arrow(pq.read_schema(files[0]).empty_table())
        except pa.ArrowException as error:
            raise ReadError(f"{files[0]} is not a readable Parquet file: {error}.") from error
        return cls(files, header)

    def read_columns(self, columns: Sequence[str]) -> Table:
        """Return all rows of some columns."""
        return from_arrow(self._read_arrow(columns)).select(columns)

    def read_cells(self, columns: Sequence[str]) -> dict[str, np.ndarray]:
        """Return all rows of some columns as `readers.read_cells` does."""
        table = self._read_arrow(columns)
        return {name: arrow_to_cells(table.column(name)) for name in columns}

    def _read_arrow(self, columns: Sequence[str]) -> Any:
        import pyarrow as pa

        batches = list(iter_tables(self.files, _BATCH_ROWS, list(columns)))
        if not batches:
            raise ReadError("The Parquet files of the folder have no rows.")
        return pa.concat_tables(batches, promote_options="permissive")

    def iter_tables(self, columns: Sequence[str]) -> Iterator[Table]:
        """Yield all rows of some columns in batches."""
        texts = [name for name in columns if name in self.header.categories]
        for batch in iter_tables(self.files, _BATCH_ROWS, list(columns)):
            table = from_arrow(batch).select(columns)
            # A text column with only nulls has another type in the file.
            empty = [
                name for name in texts if name not in table.categories and _is_empty(table, name)
            ]
            yield replace(table, categories=table.categories | dict.fromkeys(empty, ()))


def _is_empty(table: Table, name: str) -> bool:
    return bool(np.isnan(table.column(name)).all())
