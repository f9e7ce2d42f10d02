"""The command `predict`: predictions as columns, written as CSV, Parquet or JSON lines."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from polyleaf.cli import options, xmc
from polyleaf.cli.input import open_source_and_cells, read_prediction_rows
from polyleaf.cli.messages import Reporter, pluralise
from polyleaf.cli.model_file import check_single_task, load_table_model, load_xmc_model
from polyleaf.files.io import ReadError, write_csv
from polyleaf.files.readers import FORMATS
from polyleaf.files.schema import Schema, select_columns
from polyleaf.inputs.validation import get_missing_mask

Columns = dict[str, np.ndarray]
_JSON_LINES = (".jsonl", ".ndjson")


def predict(
    file: options.FileArgument,
    model: options.ModelOption,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            help="Output file: CSV, Parquet or JSON lines (.jsonl), by extension. Default: CSV "
            "on standard output.",
        ),
    ] = None,
    proba: Annotated[
        bool, typer.Option("--proba", help="Add the probability of each class or label.")
    ] = False,
    intervals: Annotated[
        bool,
        typer.Option("--intervals", help="Add prediction intervals or sets of a calibrated model."),
    ] = False,
    levels: Annotated[
        str | None,
        typer.Option(
            help="Add quantiles of predicted distributions at these levels, such as 0.05,0.5,0.95."
        ),
    ] = None,
    top: Annotated[
        int, typer.Option(help=f"Labels per row with --format {xmc.FORMAT}.", min=1)
    ] = 5,
    keep: Annotated[
        str | None,
        typer.Option(
            help="Columns of FILE to copy before the predictions; same syntax as train --target."
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Write JSON lines, one object per row.")
    ] = False,
    threads: options.ThreadsOption = None,
    format: options.FormatOption = None,
    no_header: options.NoHeaderOption = False,
    sep: options.SepOption = None,
    decimal: options.DecimalOption = ".",
    encoding: options.EncodingOption = "utf-8",
    quiet: options.QuietOption = False,
) -> None:
    """Predict every row of a data file."""
    if out is not None:
        options.check_writable(out)
    if xmc.is_xmc(file, format):
        estimator, rows = load_xmc_model(model, file, threads)
        xmc.write_topk(estimator, rows.X, top, out)
        return
    estimator, schema = load_table_model(model, threads)
    if intervals:
        check_single_task(schema, model, "--intervals")
    parsed_levels = [] if levels is None else _parse_levels(levels)
    csv_options = options.make_csv_options(no_header, sep, decimal, encoding)
    source, kept = open_source_and_cells(
        file,
        format,
        csv_options,
        lambda header: select_columns(header, keep, "--keep") if keep else (),
    )
    _, X = read_prediction_rows(source, schema, estimator)
    columns = _predict_columns(estimator, schema, X, proba, parsed_levels, intervals)
    write_columns(_merge_columns(kept, columns), out, as_json)
    if out is not None:
        Reporter(quiet).hint(f"{pluralise(X.shape[0], 'prediction')} written to {out}")


def _parse_levels(text: str) -> list[float]:
    try:
        levels = [float(level) for level in text.split(",")]
    except ValueError:
        levels = []
    if not levels or not all(0 < level < 1 for level in levels):
        raise ReadError(
            f"--levels must be numbers between 0 and 1 separated by commas, not {text!r}."
        )
    return levels


def _predict_columns(
    estimator: Any, schema: Schema, X: Any, proba: bool, levels: Sequence[float], intervals: bool
) -> Columns:
    """Return predictions and the requested additions as named columns."""
    columns: Columns = {}
    tasks = list(_iter_tasks(estimator, schema))
    if levels and not any(own.model_.objective.has_distribution for _, own, _ in tasks):
        raise ReadError(
            "--levels needs a model that predicts distributions; train one with --objective normal."
        )
    if proba and not any(hasattr(own, "predict_proba") for _, own, _ in tasks):
        raise ReadError("--proba: this model predicts no probabilities.")
    for _, own, own_schema in tasks:
        columns |= _name_columns(_get_output_names(own, own_schema), own.predict(X))
    for prefix, own, own_schema in tasks:
        if levels and own.model_.objective.has_distribution:
            columns |= _quantile_columns(own_schema.targets, own.predict_dist(X), levels)
        if proba and hasattr(own, "predict_proba"):
            classes = [f"{prefix}{label}" for label in getattr(own, "classes_", [])]
            names = own_schema.targets if own_schema.task == "multilabel" else classes
            columns |= _name_columns([f"proba_{name}" for name in names], own.predict_proba(X))
        if intervals:
            columns |= _interval_columns(own, own_schema, X)
    return columns


def _iter_tasks(estimator: Any, schema: Schema) -> Iterator[tuple[str, Any, Schema]]:
    """Yield the prefix of class names, the estimator and the schema of each task."""
    if not schema.task_columns:
        yield "", estimator, schema
    for name, own_schema in schema.task_schemas.items():
        yield f"{name}_", estimator.task_estimator(name), own_schema


def _get_output_names(estimator: Any, schema: Schema) -> list[str]:
    suffixes = [f"_q{level:g}" for level in estimator.model_.objective.quantile_levels]
    return [f"{target}{suffix}" for target in schema.targets for suffix in suffixes or [""]]


def _name_columns(names: Sequence[str], values: np.ndarray) -> Columns:
    return dict(zip(names, values.reshape(len(values), -1).T, strict=True))


def _quantile_columns(
    targets: Sequence[str], distribution: Any, levels: Sequence[float]
) -> Columns:
    """Return quantiles as columns: all levels of the first target, then of the next."""
    found = {level: _name_columns(targets, distribution.ppf(level)) for level in levels}
    return {f"{target}_q{level:g}": found[level][target] for target in targets for level in levels}


def _interval_columns(estimator: Any, schema: Schema, X: Any) -> Columns:
    """Return the bounds of each target, or whether each class or label is in the set."""
    if schema.task == "regression":
        names = [f"{target}_{bound}" for target in schema.targets for bound in ("low", "high")]
        return _name_columns(names, estimator.predict_interval(X))
    labels = schema.targets if schema.task == "multilabel" else estimator.classes_
    members = estimator.predict_set(X).astype(np.int64)
    return _name_columns([f"set_{label}" for label in labels], members)


def _merge_columns(kept: Columns, predictions: Columns) -> Columns:
    """Put columns of the data before the predictions."""
    clashes = [name for name in kept if name in predictions]
    if clashes:
        raise ReadError(f"--keep {clashes[0]}: the predictions have a column of this name too.")
    return kept | predictions


# ---- output --------------------------------------------------------------------------------


def write_columns(columns: Columns, out: Path | None, as_json: bool) -> None:
    """Write columns to a file, in the format of its extension, or to standard output."""
    extension = "" if out is None else out.suffix.lower()
    if as_json or extension in _JSON_LINES:
        _write_json_lines(columns, out)
    elif out is not None and extension in FORMATS["parquet"]:
        _write_parquet(columns, out)
    elif out is not None and extension not in FORMATS["csv"]:
        raise ReadError(
            f"--out {out.name}: unknown extension; use .csv, .parquet or .jsonl (JSON lines)."
        )
    else:
        # astype(str) gives the shortest text that reads back as the same float32.
        cells = (np.where(get_missing_mask(c), "", c.astype(str)) for c in columns.values())
        write_csv(out, columns, zip(*(column.tolist() for column in cells), strict=True))


def _write_json_lines(columns: Columns, out: Path | None) -> None:
    rows = zip(*(_replace_missing(column) for column in columns.values()), strict=True)
    lines = (
        json.dumps(dict(zip(columns, row, strict=True)), ensure_ascii=False, default=str) + "\n"
        for row in rows
    )
    if out is None:
        sys.stdout.writelines(lines)
        return
    with open(out, "w", encoding="utf-8") as stream:
        stream.writelines(lines)


def _replace_missing(column: np.ndarray) -> list[Any]:
    """Replace missing values by None, since JSON has no NaN."""
    missing = get_missing_mask(column)
    return [None if is_nan else v for v, is_nan in zip(column.tolist(), missing, strict=True)]


def _write_parquet(columns: Columns, out: Path) -> None:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise ReadError('Writing Parquet needs PyArrow: pip install "polyleaf[arrow]".') from None
    arrays = {name: pa.array(np.ascontiguousarray(column)) for name, column in columns.items()}
    pq.write_table(pa.table(arrays), out)
