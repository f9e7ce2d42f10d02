"""`Folder`: Parquet files that together are one table, read a few rows at a time.

Owns: the header of such a table, some of its columns, its rows in turn. Must not know what columns mean.
"""

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

__all__ = ["Folder"]

_ROWS_AT_A_TIME = 65_536


@dataclass(frozen=True)
class Folder:
    """A folder of Parquet files.

    Attributes
    ----------
    files : list of str
        Sorted; the first one tells the columns.
    header : Table
        Without rows: names, and which columns are text.
    """

    files: list[str]
    header: Table

    @classmethod
    def open(cls, path: Path) -> Folder:
        """Look for files.

        Raises
        ------
        ReadError
            Where there is none, the first is damaged, or PyArrow is not installed.
        """
        if find_spec("pyarrow") is None:
            raise ReadError(
                f'{path} is a folder, and Parquet needs PyArrow: pip install "polyleaf[arrow]".'
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

    def table(self, columns: Sequence[str]) -> Table:
        """All rows of some columns."""
        return from_arrow(self._arrow(columns)).select(columns)

    def cells(self, columns: Sequence[str]) -> dict[str, np.ndarray]:
        """The same as they stand in the files; see `readers.read_cells`."""
        table = self._arrow(columns)
        return {name: arrow_to_cells(table.column(name)) for name in columns}

    def _arrow(self, columns: Sequence[str]) -> Any:
        import pyarrow as pa

        parts = list(iter_tables(self.files, _ROWS_AT_A_TIME, list(columns)))
        if not parts:
            raise ReadError("The Parquet files of the folder have no rows.")
        return pa.concat_tables(parts, promote_options="permissive")

    def parts(self, columns: Sequence[str]) -> Iterator[Table]:
        """All rows of some columns, a few at a time."""
        for part in iter_tables(self.files, _ROWS_AT_A_TIME, list(columns)):
            table = from_arrow(part).select(columns)
            text = {name for name in columns if name in self.header.categories}
            # A column of nothing but nulls may lose its type from file to file.
            lost = [
                name for name in text if name not in table.categories and _is_empty(table, name)
            ]
            yield replace(table, categories=table.categories | dict.fromkeys(lost, ()))


def _is_empty(table: Table, name: str) -> bool:
    return bool(np.isnan(table.column(name)).all())
