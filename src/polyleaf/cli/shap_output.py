"""Contributions as files: one line for each row and output, written chunk by chunk.

Owns the columns of such a file, and writing them as CSV or Parquet. Must not know options (`cli`),
estimators, how contributions are computed.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from polyleaf.files.io import ReadError
from polyleaf.files.readers import FORMATS
from polyleaf.model import Model
from polyleaf.model.shap import resolve_outputs

__all__ = ["ContributionWriter"]

Columns = dict[str, np.ndarray]


class ContributionWriter:
    """Writes contributions to some outputs of a model.

    Parameters
    ----------
    model : Model
    outputs : list of int or str
        Numbers or names.
    out : Path or None
        CSV or Parquet by its ending; None: CSV to `stream`.
    stream : text stream
    """

    def __init__(
        self, model: Model, outputs: Sequence[int | str], out: Path | None, stream: TextIO
    ):
        self._features = model.input_names
        chosen = resolve_outputs(outputs, model.n_outputs, model.output_names)
        self._outputs = [model.output_name(k) for k in chosen.numbers.tolist()]
        self._out, self._stream = out, stream

    def write(self, base: np.ndarray, chunks: Iterable[tuple[slice, np.ndarray]]) -> None:
        """Write a line for each row and output.

        Columns are `row` (from 0), `output` (its name, where there are several), `base_value`,
        `shap_<feature>` for each feature, and `raw_score`, which is the sum of all of these.

        Parameters
        ----------
        base : ndarray of shape (n_outputs,)
        chunks : iterable of (rows, contributions (n_rows, n_features, n_outputs))
        """
        with _writer(self._out, self._stream) as write:
            for rows, values in chunks:
                lines = values.transpose(0, 2, 1).reshape(
                    -1, len(self._features)
                )  # row after row, its outputs
                columns: Columns = {
                    "row": np.repeat(np.arange(rows.start, rows.stop), len(self._outputs))
                }
                if len(self._outputs) > 1:
                    columns["output"] = np.tile(np.array(self._outputs, object), len(values))
                columns["base_value"] = np.tile(base, len(values))
                columns |= {f"shap_{name}": lines[:, f] for f, name in enumerate(self._features)}
                columns["raw_score"] = columns["base_value"] + lines.sum(axis=1, dtype=np.float64)
                write(columns)

    def write_importance(self, importance: np.ndarray) -> None:
        """Write mean magnitudes (n_outputs, n_features), a line a feature, the largest mean first."""
        order = np.argsort(-importance.mean(axis=0), kind="stable")
        columns: Columns = {"feature": np.array(self._features, object)[order]}
        for name, of_output in zip(self._outputs, importance, strict=True):
            columns[f"mean_shap_{name}" if len(self._outputs) > 1 else "mean_shap"] = of_output[
                order
            ]
        with _writer(self._out, self._stream) as write:
            write(columns)


@contextmanager
def _writer(out: Path | None, stream: TextIO) -> Iterator[Any]:
    if out is not None and out.suffix.lower() in FORMATS["parquet"]:
        with _parquet_writer(out) as write:
            yield write
    elif out is not None and out.suffix.lower() not in FORMATS["csv"]:
        raise ReadError(f"--out writes CSV or Parquet; {out.name!r} ends like neither.")
    elif out is None:
        yield _csv_writer(stream)
    else:
        with open(out, "w", newline="", encoding="utf-8") as file:
            yield _csv_writer(file)


def _csv_writer(stream: TextIO) -> Any:
    writer = csv.writer(stream, lineterminator="\n")
    is_first = True

    def write(columns: Columns) -> None:
        nonlocal is_first
        if is_first:
            writer.writerow(columns)
        is_first = False
        # astype(str) gives the shortest text that reads back as the same number
        writer.writerows(
            zip(*(column.astype(str).tolist() for column in columns.values()), strict=True)
        )

    return write


@contextmanager
def _parquet_writer(out: Path) -> Iterator[Any]:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise ReadError('Writing Parquet needs PyArrow: pip install "polyleaf[arrow]".') from None
    writer = None

    def write(columns: Columns) -> None:
        nonlocal writer
        table = pa.table(
            {name: pa.array(np.ascontiguousarray(column)) for name, column in columns.items()}
        )
        if writer is None:
            writer = pq.ParquetWriter(out, table.schema)
        writer.write_table(table)

    try:
        yield write
    finally:
        if writer is not None:
            writer.close()
