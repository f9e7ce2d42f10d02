"""Parquet and Arrow files, and folders of them, as Arrow datasets; and as batches for training."""

from __future__ import annotations

import glob
import json
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from polyleaf.runtime.optional_packages import optional_package
from polyleaf.runtime.types import ArrowColumn, StrPath

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.dataset as ds

_EXTENSIONS = {".parquet": "parquet", ".pq": "parquet"}
_EXTENSIONS |= dict.fromkeys((".arrow", ".feather", ".ipc"), "feather")
_ROW_INDEX = re.compile(r"__index_level_\d+__")  # pandas' nameless index


def find_data_files(path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> list[str]:
    """Return the files of a path: a file, a folder, a pattern like ``data/*.parquet``, or a list.

    A list keeps its order; other files are sorted. Of a folder, Parquet and Arrow files at any
    depth are taken, without files and folders whose name begins with a dot or an underscore. Raises
    a FileNotFoundError if there is no such file.
    """
    if not isinstance(path, str | os.PathLike):
        files = [os.fspath(one) for one in path]
        if not files:
            raise FileNotFoundError("The list of Parquet files is empty.")
        return files
    name = os.fspath(path)
    if os.path.isdir(name):
        paths = sorted(glob.glob("**/*", root_dir=name, recursive=True))
        files = [
            os.path.join(name, one)
            for one in paths
            if os.path.splitext(one)[1].lower() in _EXTENSIONS
            and not any(part.startswith(("_", ".")) for part in Path(one).parts)
            and os.path.isfile(os.path.join(name, one))
        ]
    else:
        files = [name] if os.path.isfile(name) else sorted(glob.glob(name, recursive=True))
    if not files:
        raise FileNotFoundError(f"There is no Parquet file at {name!r}.")
    return files


def open_dataset(path: StrPath, format: str | None = None) -> tuple[ds.Dataset, tuple[str, ...]]:
    """Open Parquet or Arrow files as one dataset with a common schema.

    The names of folders such as ``country=FR`` (Hive partitions) become columns of text. The
    nameless row index that pandas writes is left out.

    `path`: see `find_data_files`. `format`: by default by the extension of the first file. Raises a
    FileNotFoundError if there is no file, and a ValueError if a file is damaged, or its columns do
    not fit those of the others.

    Returns
    -------
    dataset : pyarrow.dataset.Dataset
    partitions : tuple of str
        Columns from the names of folders.
    """
    import pyarrow as pa
    import pyarrow.dataset as ds
    from pyarrow.fs import LocalFileSystem

    files = [os.path.abspath(file) for file in find_data_files(path)]
    is_folder = isinstance(path, str | os.PathLike) and os.path.isdir(path)
    base = os.path.abspath(path) if is_folder else os.path.dirname(os.path.commonpath(files))
    parts = [Path(file).relative_to(base).parts[:-1] for file in files] if is_folder else []
    names = dict.fromkeys(part.partition("=")[0] for dirs in parts for part in dirs if "=" in part)
    partitioning = ds.HivePartitioning(pa.schema([(name, pa.string()) for name in names]))
    options = ds.FileSystemFactoryOptions(partition_base_dir=base, partitioning=partitioning)
    kind = {"parquet": ds.ParquetFileFormat, "feather": ds.IpcFileFormat}[
        format or _EXTENSIONS.get(os.path.splitext(files[0])[1].lower(), "parquet")
    ]()
    factory = ds.FileSystemDatasetFactory(LocalFileSystem(), files, kind, options)
    try:
        schema = factory.inspect(promote_options="permissive")
    except (pa.ArrowException, OSError):
        _check_files(files, kind)
        raise
    kept = [field for field in schema if not _ROW_INDEX.fullmatch(field.name)]
    return factory.finish(pa.schema(kept, schema.metadata)), tuple(names)


def get_category_columns(schema: pa.Schema) -> set[str]:
    """Return the columns of an Arrow schema that are categories, also by pandas' metadata.

    Parquet keeps Arrow's type of categories for text only.
    """
    import pyarrow.types as kinds

    dictionaries = {field.name for field in schema if kinds.is_dictionary(field.type)}
    columns = json.loads((schema.metadata or {}).get(b"pandas", b"{}")).get("columns", [])
    is_category = {c["name"]: c.get("pandas_type") == "categorical" for c in columns}
    return dictionaries | {name for name in schema.names if is_category.get(name, False)}


def _check_files(files: Sequence[str], kind: ds.FileFormat) -> None:
    """Raise a ValueError that names the first file that is damaged, or differs from the first."""
    import pyarrow as pa
    from pyarrow.fs import LocalFileSystem

    first: pa.Schema | None = None
    for name in files:
        try:
            schema = kind.inspect(name, LocalFileSystem())
            first = schema if first is None else pa.unify_schemas(
                [first, schema], promote_options="permissive"
            )  # fmt: skip
        except (pa.ArrowException, OSError) as error:
            raise unreadable(name, error) from error


def unreadable(name: str, error: BaseException) -> ValueError:
    """Return an error that says that a file is damaged."""
    reason = " ".join(str(error).split()).rstrip(".")
    return ValueError(f"{name} is not a readable Parquet or Arrow file: {reason}.")


@dataclass(frozen=True)
class ParquetRows:
    """A callable that returns an iterator of batches, as `Dataset.from_batches` takes it."""

    path: Any  # see `find_data_files`
    target: str | Sequence[str] | None  # A column gives a vector, a sequence a table
    weight: str | None  # column of weights
    qid: str | None  # column of queries
    drop: Sequence[str]  # columns that are not features
    batch_rows: int  # largest number of rows of a batch

    def __call__(self) -> Iterator[object]:
        with optional_package("Reading Parquet files needs PyArrow", "arrow"):
            import pyarrow as pa
        dataset, partitions = open_dataset(self.path)
        numeric = [name for name in partitions if _holds_integers(dataset, name)]
        targets = [self.target] if isinstance(self.target, str) else list(self.target or ())
        single = (name for name in (self.weight, self.qid) if name is not None)
        others = {*targets, *self.drop, *single}
        names = dataset.schema.names
        missing = [name for name in others if name not in names]
        if missing:
            dots = ", ..." if len(names) > 8 else ""
            raise ValueError(
                f"There is no column {sorted(missing)[0]!r}; the columns are "
                f"{', '.join(names[:8])}{dots}."
            )
        features = [name for name in names if name not in others]
        for table in iter_tables(dataset, self.batch_rows):
            for name in numeric:
                column = table.column(name).cast(pa.int64())
                table = table.set_column(table.schema.get_field_index(name), name, column)
            y: pa.Table | np.ndarray | None = None if self.target is None else table.select(targets)
            if isinstance(self.target, str):
                y = _to_vector(pa, table.column(self.target))
            weight = None if self.weight is None else _to_vector(pa, table.column(self.weight))
            qid = None if self.qid is None else _to_vector(pa, table.column(self.qid))
            yield table.select(features), y, weight, qid


def _holds_integers(dataset: ds.Dataset, partition: str) -> bool:
    """Whether all values of a partition are integers without leading zeros."""
    from pyarrow.dataset import get_partition_keys

    fragments = dataset.get_fragments()
    values = {get_partition_keys(f.partition_expression).get(partition) for f in fragments}
    return all(v is None or re.fullmatch(r"-?(0|[1-9]\d{0,17})", v) for v in values)


def iter_tables(
    dataset: ds.Dataset, batch_rows: int, columns: Sequence[str] | None = None
) -> Iterator[pa.Table]:
    """Yield the rows of a dataset in order, as Arrow tables of at most `batch_rows` rows.

    Raises a ValueError if a file is damaged or lacks one of the columns.
    """
    import pyarrow as pa
    from pyarrow.dataset import get_partition_keys

    names = list(dataset.schema.names if columns is None else columns)
    categories = get_category_columns(dataset.schema)
    for fragment in dataset.get_fragments():
        partition = get_partition_keys(fragment.partition_expression)
        missing = set(names).difference(fragment.physical_schema.names, partition)
        if missing:
            raise ValueError(
                f"{fragment.path} has no column {min(missing)!r}, which other files of the same "
                "folder have."
            )
        try:
            batches = fragment.to_batches(
                schema=dataset.schema,
                columns=names,
                batch_size=batch_rows,
                batch_readahead=1,
                fragment_readahead=1,
            )
            for batch in batches:
                if batch.num_rows:
                    parts = {
                        name: c.dictionary_encode() if name in categories else c
                        for name, c in zip(names, batch.columns, strict=True)
                    }
                    yield pa.table(parts)
        except (pa.ArrowException, OSError) as error:
            raise unreadable(fragment.path, error) from error


def _to_vector(pa: ModuleType, column: ArrowColumn) -> np.ndarray:
    """Convert a column to an array: numbers unchanged, other values as Python objects."""
    dtype = column.type
    if pa.types.is_integer(dtype) or pa.types.is_floating(dtype) or pa.types.is_boolean(dtype):
        return column.to_numpy()
    objects = np.empty(len(column), object)
    objects[:] = column.to_pylist()
    return objects
