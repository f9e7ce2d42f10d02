"""The command `explain`: SHAP values as CSV or Parquet, written batch by batch."""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, TextIO

import numpy as np
import typer

from polyleaf.cli import options, xmc
from polyleaf.cli.input import make_prediction_dataset, open_source
from polyleaf.cli.messages import Reporter, pluralise
from polyleaf.cli.model_file import load_table_model
from polyleaf.files.io import ReadError
from polyleaf.files.readers import FORMATS
from polyleaf.model import Model
from polyleaf.model.shap import resolve_outputs

Columns = dict[str, np.ndarray]
ColumnWriter = Callable[[Columns], None]


def explain(
    file: options.FileArgument,
    model: options.ModelOption,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", help="CSV or Parquet file to write. Default: CSV on standard output."
        ),
    ] = None,
    background: Annotated[
        Path | None,
        typer.Option(
            help="File with background rows for interventional SHAP values. Default: "
            "path-dependent values, from the row counts of training."
        ),
    ] = None,
    outputs: Annotated[
        str | None,
        typer.Option(
            help="Outputs to explain: names or numbers, separated by commas. Default: all."
        ),
    ] = None,
    importance: Annotated[
        bool, typer.Option("--importance", help="Write only the mean |SHAP| of each feature.")
    ] = False,
    threads: options.ThreadsOption = None,
    format: options.FormatOption = None,
    no_header: options.NoHeaderOption = False,
    sep: options.SepOption = None,
    decimal: options.DecimalOption = ".",
    encoding: options.EncodingOption = "utf-8",
) -> None:
    """Write SHAP values of each row, or feature importances.

    SHAP values say what each feature adds to the raw score of a row.
    """
    from polyleaf.estimators._prediction import iter_shap_values, mean_abs_shap

    if out is not None:
        options.check_writable(out)
    if xmc.is_xmc(file, format):
        raise ReadError(
            f"explain does not support --format {xmc.FORMAT}; use shap_values in Python."
        )
    estimator, schema = load_table_model(model, threads)
    csv_options, reference = options.make_csv_options(no_header, sep, decimal, encoding), None
    rows = make_prediction_dataset(open_source(file, format, csv_options), schema, estimator)
    if background is not None:
        source = open_source(background, format, csv_options)
        reference = make_prediction_dataset(source, schema, estimator)
    chosen = _parse_outputs(outputs, estimator.model_)
    batches = iter_shap_values(estimator, rows, reference, chosen)
    writer = _ShapWriter(estimator.model_, chosen, out, sys.stdout)
    if importance:
        writer.write_importance(mean_abs_shap(batches))
    else:
        writer.write(np.atleast_1d(estimator.shap_base_values(reference, chosen)), batches)
        if out is not None:
            Reporter().hint(f"SHAP values of {pluralise(rows.n_rows, 'row')} written to {out}")


def _parse_outputs(text: str | None, model: Any) -> list[str | int]:
    """Split a comma-separated list of output names, or of numbers that are no output's name."""
    if text is None:
        return list(range(model.n_outputs))
    parts = [part.strip() for part in text.split(",")]
    names = model.output_names or ()
    return [int(part) if part.isdecimal() and part not in names else part for part in parts]


class _ShapWriter:
    """Write SHAP values of some outputs of a model.

    Parameters
    ----------
    model : Model
    outputs : list of int or str
        Numbers or names.
    out : Path or None
        CSV or Parquet file, by extension; None: CSV to `stream`.
    stream : text stream
    """

    def __init__(
        self, model: Model, outputs: Sequence[int | str], out: Path | None, stream: TextIO
    ):
        self._features = model.input_names
        chosen = resolve_outputs(outputs, model.n_outputs, model.output_names)
        self._outputs = [model.output_name(k) for k in chosen.indices.tolist()]
        self._out, self._stream = out, stream

    def write(self, base: np.ndarray, batches: Iterable[tuple[slice, np.ndarray]]) -> None:
        """Write a line for each row and output.

        The columns are `row` (from 0), `output` (its name, if there are several), `base_value`,
        `shap_<feature>` for each feature, and their sum with the base value, `raw_score`.

        Parameters
        ----------
        base : ndarray of shape (n_outputs,)
        batches : iterable of (rows, values (n_rows, n_features, n_outputs))
        """
        n_outputs = len(self._outputs)
        with _open_writer(self._out, self._stream) as write:
            for rows, values in batches:
                # Row after row, with all outputs of a row in succession.
                lines = values.transpose(0, 2, 1).reshape(-1, len(self._features))
                columns: Columns = {"row": np.repeat(np.arange(rows.start, rows.stop), n_outputs)}
                if n_outputs > 1:
                    columns["output"] = np.tile(np.array(self._outputs, object), len(values))
                columns["base_value"] = np.tile(base, len(values))
                columns |= {f"shap_{name}": lines[:, f] for f, name in enumerate(self._features)}
                columns["raw_score"] = columns["base_value"] + lines.sum(axis=1, dtype=np.float64)
                write(columns)

    def write_importance(self, importance: np.ndarray) -> None:
        """Write mean |SHAP| (n_outputs, n_features), a line per feature, the largest mean first."""
        order = np.argsort(-importance.mean(axis=0), kind="stable")
        columns: Columns = {"feature": np.array(self._features, object)[order]}
        for output, values in zip(self._outputs, importance, strict=True):
            suffix = f"_{output}" if len(self._outputs) > 1 else ""
            columns[f"mean_shap{suffix}"] = values[order]
        with _open_writer(self._out, self._stream) as write:
            write(columns)


@contextmanager
def _open_writer(out: Path | None, stream: TextIO) -> Iterator[ColumnWriter]:
    if out is not None and out.suffix.lower() in FORMATS["parquet"]:
        with _open_parquet_writer(out) as write:
            yield write
    elif out is not None and out.suffix.lower() not in FORMATS["csv"]:
        raise ReadError(f"--out {out.name}: unknown extension; use .csv or .parquet.")
    elif out is None:
        yield _make_csv_writer(stream)
    else:
        with open(out, "w", newline="", encoding="utf-8") as file:
            yield _make_csv_writer(file)


def _make_csv_writer(stream: TextIO) -> ColumnWriter:
    writer = csv.writer(stream, lineterminator="\n")
    has_header = False

    def write(columns: Columns) -> None:
        nonlocal has_header
        if not has_header:
            writer.writerow(columns)
        has_header = True
        # astype(str) gives the shortest text that reads back as the same number.
        cells = (column.astype(str).tolist() for column in columns.values())
        writer.writerows(zip(*cells, strict=True))

    return write


@contextmanager
def _open_parquet_writer(out: Path) -> Iterator[ColumnWriter]:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise ReadError('Writing Parquet needs PyArrow: pip install "polyleaf[arrow]".') from None
    writer = None

    def write(columns: Columns) -> None:
        nonlocal writer
        arrays = {name: pa.array(np.ascontiguousarray(column)) for name, column in columns.items()}
        table = pa.table(arrays)
        if writer is None:
            writer = pq.ParquetWriter(out, table.schema)
        writer.write_table(table)

    try:
        yield write
    finally:
        if writer is not None:
            writer.close()
