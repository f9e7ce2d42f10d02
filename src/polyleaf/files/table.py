"""`Table`: the columns of a data file, read as the kinds that a schema gives."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from polyleaf.files.cells import (
    INTEGER,
    NUMBER,
    CellFormat,
    convert,
    infer_kind,
    infer_written_kind,
)
from polyleaf.files.io import ReadError
from polyleaf.user_data.features import read_features
from polyleaf.user_data.parquet import get_category_columns, iter_tables

if TYPE_CHECKING:
    import pyarrow as pa

    from polyleaf.files.schema import Schema
    from polyleaf.runtime.types import ArrowColumn

_BATCH_ROWS = 65_536


@dataclass(frozen=True)
class Table:
    """Named columns of equal length."""

    data: Any
    names: tuple[str, ...]  # unique column names
    # columns of text cells without types, as all of a CSV file
    written: frozenset[str] = frozenset()
    # how text cells stand for numbers and missing values
    format: CellFormat = field(default_factory=CellFormat)
    targets: tuple[str, ...] = ()  # columns that the file marks as targets, as LIBSVM files do
    query: str | None = None  # column that the file marks as the query of each row

    def __post_init__(self) -> None:
        if len(self._name_set) < len(self.names):
            repeated = next(name for name in self.names if self.names.count(name) > 1)
            raise ReadError(f"Two columns have the same name {repeated!r}; rename one of them.")

    @cached_property
    def _name_set(self) -> frozenset[str]:
        return frozenset(self.names)

    @cached_property
    def category_columns(self) -> frozenset[str]:
        """Columns that are categories by their type."""
        return frozenset(() if self.is_sparse else get_category_columns(self.data.schema))

    @property
    def is_sparse(self) -> bool:
        return sp.issparse(self.data)

    @property
    def is_folder(self) -> bool:
        return hasattr(self.data, "count_rows")

    @property
    def is_dense_file(self) -> bool:
        """Whether estimators take the features as they are."""
        return not (self.is_sparse or self.is_folder)

    @property
    def n_rows(self) -> int:
        return int(self.data.count_rows() if self.is_folder else self.data.shape[0])

    def check_columns(self, names: Sequence[str]) -> None:
        """Raise a `ReadError` if a column is missing; a sparse table lacks columns of zeros."""
        absent = [repr(name) for name in names if name not in self._name_set]
        if absent and not self.is_sparse:
            raise ReadError(
                f"The file has no column {abbreviate(absent)}; its columns are "
                f"{abbreviate(self.names)}."
            )

    def column(self, name: str) -> ArrowColumn:
        """Return a column as it is in the file, an Arrow ChunkedArray."""
        import pyarrow as pa

        self.check_columns([name])
        if self.is_sparse:
            dense = self._take_columns([name]).toarray().ravel()
            return pa.chunked_array([pa.array(dense, from_pandas=True)])
        if self.is_folder:
            batches = list(iter_tables(self.data, _BATCH_ROWS, [name]))
            return pa.concat_tables(batches).column(0)
        return self.data.column(name)

    def infer_kind(self, name: str, as_category: bool = False) -> str:
        """Return the kind that a column of training data has: see `cells.KINDS`."""
        self.check_columns([name])
        if self.is_sparse:
            return INTEGER if as_category else NUMBER
        if name in self.written:
            return infer_written_kind(self.column(name), self.format, as_category)
        type_ = self.data.schema.field(name).type
        kind = infer_kind(type_, as_category or name in self.category_columns)
        if kind is None:
            raise ReadError(
                f"Column {name!r} has type {type_}, neither numbers nor text; drop or convert it."
            )
        return kind

    def read(self, name: str, kind: str, kept: Sequence[str] = ()) -> ArrowColumn:
        """Return a column as values of a kind: see `cells.convert`."""
        return convert(self.column(name), kind, name, self.format, kept)

    def take_rows(self, rows: np.ndarray) -> Table:
        """Return the rows with these numbers."""
        return replace(self, data=self.data[rows] if self.is_sparse else self.data.take(rows))

    def read_features(self, schema: Schema) -> Any:
        """Return the features of a schema as `Dataset` takes them."""
        self.check_columns(schema.features)
        if self.is_sparse:
            # Names of numbers, which LIBSVM files have, are names too.
            matrix = self._take_columns(schema.features)
            return read_features(matrix, feature_names=schema.features)
        return self._convert_features(self.data, schema, 0)

    def iter_features(self, schema: Schema) -> Iterator[pa.Table]:
        """Yield the features of a folder in batches."""
        self.check_columns(schema.features)
        start = 0
        for batch in iter_tables(self.data, _BATCH_ROWS, schema.features):
            yield self._convert_features(batch, schema, start)
            start += batch.num_rows

    def _convert_features(self, data: pa.Table, schema: Schema, start: int) -> pa.Table:
        import pyarrow as pa

        columns = {}
        for name in schema.features:
            kind, kept = schema.kinds[name], schema.kept_values.get(name, ())
            column = convert(data.column(name), kind, name, self.format, kept, start)
            if name in schema.categorical:
                column = column.dictionary_encode()
            columns[name] = column
        return pa.table(columns)

    def _take_columns(self, names: Sequence[str]) -> sp.csr_matrix:
        """Return columns of a sparse table; absent ones are 0."""
        position = {name: i for i, name in enumerate(self.names)}
        index = [position.get(name, len(self.names)) for name in names]
        zeros = sp.csr_matrix((self.n_rows, 1))
        return sp.hstack([self.data, zeros], format="csr")[:, index]


def abbreviate(names: Sequence[str]) -> str:
    """Join the first eight names, and add their number if there are more."""
    suffix = f", ... ({len(names)} in total)" if len(names) > 8 else ""
    return ", ".join(names[:8]) + suffix
