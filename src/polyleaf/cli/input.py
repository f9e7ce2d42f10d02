"""Data that commands read: a file as a whole, a folder of Parquet files in batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from polyleaf.files.folders import ParquetFolder
from polyleaf.files.io import STANDARD_INPUT, ReadError, spool_to_disk
from polyleaf.files.readers import CsvOptions, read_cells, read_table
from polyleaf.files.schema import Schema, read_weights, select_columns
from polyleaf.files.table import Table
from polyleaf.settings.parameters import SearchParameters

Source = Table | ParquetFolder


def open_source(path: Path, format: str | None, csv_options: CsvOptions) -> Source:
    """Read a file, or open a folder of Parquet files."""
    if path.is_dir():
        return ParquetFolder.open(path)
    return read_table(path, format, csv_options)


def open_source_and_cells(
    path: Path,
    format: str | None,
    csv_options: CsvOptions,
    choose: Callable[[Table], Sequence[str]],
) -> tuple[Source, dict[str, np.ndarray]]:
    """Open a file or folder, and read some of its columns as they are written there.

    `choose` is called with the header and returns the names of these columns.
    """
    if path == STANDARD_INPUT:
        format = format or "csv"
    with spool_to_disk(path, "") as file:
        source = open_source(file, format, csv_options)
        names = choose(get_header(source))
        if isinstance(source, ParquetFolder):
            return source, source.read_cells(names) if names else {}
        return source, read_cells(file, source, names, format, csv_options)


def get_header(source: Source) -> Table:
    """Return a table with the names and types of the columns; that of a folder has no rows."""
    return source.header if isinstance(source, ParquetFolder) else source


def read_columns(source: Source, columns: Sequence[str]) -> Table:
    """Return a table with all rows that has at least these columns; of a folder, no others."""
    if not isinstance(source, ParquetFolder):
        return source
    return source.read_columns(tuple(dict.fromkeys(columns))) if columns else source.header


def select_weight_column(header: Table, weight: str | None) -> tuple[str, ...]:
    """Return the column that `--weight` names, if any."""
    chosen = select_columns(header, weight, "--weight") if weight else ()
    if len(chosen) > 1:
        raise ReadError(f"--weight takes one column, but {weight!r} selects {len(chosen)}.")
    return chosen


def make_prediction_dataset(source: Source, schema: Schema, estimator: Any) -> Any:
    """Return the features as a `Dataset` in the bins of a model."""
    from polyleaf.data.dataset import Dataset

    options: dict[str, Any] = {
        "reference": estimator.model_.mapper,
        "keep_features": estimator.model_.has_linear_leaves,
        "n_jobs": estimator.n_jobs,
    }
    if not isinstance(source, ParquetFolder):
        return Dataset(schema.read_features(source), **options)
    batches = source.iter_tables
    return Dataset.from_batches(
        lambda: map(schema.read_features, batches(schema.features)), **options
    )


def read_prediction_rows(
    source: Source, schema: Schema, estimator: Any, columns: Sequence[str] = ()
) -> tuple[Table, Any]:
    """Return a table with further columns, and the features with offsets as a `Dataset`.

    Parameters
    ----------
    source : Table or ParquetFolder
    schema : Schema
    estimator : fitted estimator
    columns : sequence of str
        Columns that the table must have; that of a folder has no others.
    """
    table = read_columns(source, (*columns, *schema.offset))
    X = make_prediction_dataset(source, schema, estimator)
    X.offset = schema.read_offset(table)
    return table, X


def read_labelled_rows(
    source: Source, schema: Schema, estimator: Any, weight: str | None = None
) -> tuple[Table, Any, np.ndarray | None]:
    """Return a table with the targets, the features as a `Dataset`, and sample weights if any."""
    weight_column = select_weight_column(get_header(source), weight)
    table, X = read_prediction_rows(source, schema, estimator, (*schema.targets, *weight_column))
    return table, X, read_weights(table, weight_column[0]) if weight_column else None


def make_training_dataset(
    source: Source,
    schema: Schema,
    estimator: Any,
    weights: np.ndarray | None,
    texts: set[str],
    cache: Path | None,
    memory_limit: str | None,
) -> Any:
    """Return the features as a `Dataset` with bins of its own.

    Parameters
    ----------
    source : Table or ParquetFolder
    schema : Schema
    estimator : estimator
        It gives the number of bins, and whether the dataset keeps the features.
    weights : ndarray of shape (n_rows,) or (n_rows, n_targets), or None
        Sample weights for the choice of bins.
    texts : set of str
        Text columns of a folder that `--categorical` does not name.
    cache : Path or None
        `cache_dir` of `Dataset.from_batches`.
    memory_limit : str or None
        `memory_limit` of `Dataset.from_batches`.
    """
    from polyleaf.data.dataset import Dataset

    options: dict[str, Any] = {"max_bins": estimator.max_bins, "n_jobs": estimator.n_jobs}
    is_linear, is_search = estimator.leaf == "linear", isinstance(estimator, SearchParameters)
    if not isinstance(source, ParquetFolder):
        X = schema.read_features(source)
        keep = is_linear or (is_search and not X.sparse)
        return Dataset(X, sample_weight=weights, keep_features=keep, **options)

    def read_batches() -> Iterator[Any]:
        start = 0
        for table in source.iter_tables(schema.features):
            X = schema.read_features(table)
            X.texts.extend(c.feature for c in X.categories if schema.features[c.feature] in texts)
            stop = start + table.n_rows
            yield X, None, None if weights is None else weights[start:stop]
            start = stop

    options |= {"cache_dir": cache, "memory_limit": memory_limit}
    return Dataset.from_batches(read_batches, keep_features=is_linear or is_search, **options)
