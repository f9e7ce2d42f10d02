"""Rows that commands read: of a file, or of a folder of which a few are held at a time, and their bins.

Owns: what is read whole and what in passing, for training and for answers. Must not know: options, what is
done with rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from polyleaf.files.folders import Folder
from polyleaf.files.io import STANDARD_INPUT, spool_to_disk
from polyleaf.files.readers import CsvOptions, read_cells, read_table
from polyleaf.files.schema import Schema
from polyleaf.files.table import Table
from polyleaf.settings.parameters import SearchParameters

__all__ = [
    "Source",
    "read_columns",
    "make_prediction_dataset",
    "open_source",
    "open_source_and_cells",
    "get_header",
    "read_prediction_rows",
    "make_training_dataset",
]

Source = Table | Folder


def open_source(path: Path, format: str | None, style: CsvOptions) -> Source:
    """A file, read whole, or a folder of Parquet files, of which nothing but the columns' names is read."""
    return Folder.open(path) if path.is_dir() else read_table(path, format, style)


def open_source_and_cells(
    path: Path, format: str | None, style: CsvOptions, choose: Callable[[Table], Sequence[str]]
) -> tuple[Source, dict[str, np.ndarray]]:
    """The same, and the columns that are chosen of its header, as they stand there."""
    if path == STANDARD_INPUT:
        format = format or "csv"
    with spool_to_disk(path, "") as file:
        source = open_source(file, format, style)
        names = choose(get_header(source))
        if isinstance(source, Folder):
            return source, source.cells(names) if names else {}
        return source, read_cells(file, source, names, format, style)


def get_header(source: Source) -> Table:
    """A table with the columns' names, and which of them are text; of a folder it has no rows."""
    return source.header if isinstance(source, Folder) else source


def read_columns(source: Source, columns: Sequence[str]) -> Table:
    """A table that has these columns, of all rows; of a folder no others."""
    if not isinstance(source, Folder):
        return source
    return source.table(tuple(dict.fromkeys(columns))) if columns else source.header


def read_prediction_rows(
    source: Source, schema: Schema, estimator: Any, beside: Sequence[str] = ()
) -> tuple[Table, Any]:
    """A table with the columns beside the features, and a `Dataset` in the bins of a model, with its offset.

    Parameters
    ----------
    source : Table or Folder
    schema : Schema
    estimator : fitted estimator
    beside : sequence of str
        Columns that the table must have; of a folder it has no others.
    """
    table, X = (
        read_columns(source, (*beside, *schema.offset)),
        make_prediction_dataset(source, schema, estimator),
    )
    X.offset = schema.read_offset(table)
    return table, X


def make_prediction_dataset(source: Source, schema: Schema, estimator: Any) -> Any:
    """The features alone, as a `Dataset` in the bins of a model."""
    from polyleaf.data.dataset import Dataset

    how: dict[str, Any] = {
        "reference": estimator.model_.mapper,
        "keep_features": estimator.model_.has_linear_leaves,
        "n_jobs": estimator.n_jobs,
    }
    if not isinstance(source, Folder):
        return Dataset(schema.read_features(source), **how)
    parts = source.parts
    return Dataset.from_batches(lambda: map(schema.read_features, parts(schema.features)), **how)


def make_training_dataset(
    source: Source,
    schema: Schema,
    estimator: Any,
    weights: np.ndarray | None,
    texts: set[str],
    cache: Path | None,
    memory_limit: str | None,
) -> Any:
    """A `Dataset` in bins of its own.

    Parameters
    ----------
    source : Table or Folder
    schema : Schema
    estimator : estimator
        Says how many bins, and whether the features themselves are to be kept.
    weights : ndarray of shape (n_rows,) or (n_rows, n_targets), or None
        What rows count for where bins are chosen.
    texts : set of str
        Columns of a folder that hold text without having been called categorical.
    cache : Path or None
        As `cache_dir` of `Dataset.from_batches`.
    memory_limit : str or None
        As there.
    """
    from polyleaf.data.dataset import Dataset

    how: dict[str, Any] = {"max_bins": estimator.max_bins, "n_jobs": estimator.n_jobs}
    is_linear, is_searched = estimator.leaf == "linear", isinstance(estimator, SearchParameters)
    if not isinstance(source, Folder):
        X = schema.read_features(source)
        kept = is_linear or (is_searched and not X.sparse)
        return Dataset(X, sample_weight=weights, keep_features=kept, **how)

    def batches() -> Iterator[Any]:
        first = 0
        for part in source.parts(schema.features):
            X = schema.read_features(part)
            X.texts.extend(c.feature for c in X.categories if schema.features[c.feature] in texts)
            last = first + part.n_rows
            yield X, None, None if weights is None else weights[first:last]
            first = last

    kept = is_linear or is_searched
    how |= {"cache_dir": cache, "memory_limit": memory_limit}
    return Dataset.from_batches(batches, keep_features=kept, **how)
