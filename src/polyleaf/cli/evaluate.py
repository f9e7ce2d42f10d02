"""The commands `evaluate`, `calibrate` and `report`, which read rows with known targets."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from polyleaf.cli import options, xmc
from polyleaf.cli.input import open_source, read_labelled_rows
from polyleaf.cli.messages import Reporter, pluralise, write_scores, write_task_scores
from polyleaf.cli.model_file import (
    check_single_task,
    load_table_model,
    load_xmc_model,
    save_table_model,
)
from polyleaf.files.io import ReadError
from polyleaf.files.schema import Schema
from polyleaf.files.table import Table
from polyleaf.metrics._multitask import compute_scores_per_target

Scores = tuple[dict[str, float], dict[str, dict[str, float]]]
"""Scores over all targets, and those of each of several targets."""


def evaluate(
    file: options.FileArgument,
    model: options.ModelOption,
    weight: options.WeightOption = None,
    as_json: Annotated[
        bool,
        typer.Option("--json", help='Print JSON; scores of single targets are under "targets".'),
    ] = False,
    threads: options.ThreadsOption = None,
    format: options.FormatOption = None,
    no_header: options.NoHeaderOption = False,
    sep: options.SepOption = None,
    decimal: options.DecimalOption = ".",
    encoding: options.EncodingOption = "utf-8",
) -> None:
    """Print scores of a model on data with known targets."""
    if xmc.is_xmc(file, format):
        write_scores(xmc.evaluate_labels(*load_xmc_model(model, file, threads)), as_json)
        return
    estimator, schema = load_table_model(model, threads)
    source = open_source(file, format, options.make_csv_options(no_header, sep, decimal, encoding))
    table, X, weights = read_labelled_rows(source, schema, estimator, weight)
    if schema.task_columns:
        write_task_scores(*_compute_task_scores(estimator, schema, table, X, weights), as_json)
        return
    y = schema.read_targets(table)
    if warning := _describe_unknown_labels(estimator, schema, y):
        Reporter().info(warning)
    scores, targets = _compute_scores(estimator, schema, y, X, weights)
    write_scores(scores, as_json, targets)


def calibrate(
    file: options.FileArgument,
    model: options.ModelOption,
    coverage: Annotated[
        float, typer.Option(help="Share of new rows that intervals or sets are to cover.")
    ] = 0.9,
    joint: Annotated[
        bool,
        typer.Option("--joint", help="Cover all targets of a row at once, not each separately."),
    ] = False,
    weight: options.WeightOption = None,
    threads: options.ThreadsOption = None,
    format: options.FormatOption = None,
    no_header: options.NoHeaderOption = False,
    sep: options.SepOption = None,
    decimal: options.DecimalOption = ".",
    encoding: options.EncodingOption = "utf-8",
) -> None:
    """Calibrate prediction intervals or sets on held-out data.

    The calibration is saved in the model file; predict --intervals uses it.
    """
    if xmc.is_xmc(file, format):
        raise ReadError(f"calibrate does not support --format {xmc.FORMAT}.")
    estimator, schema = load_table_model(model, threads)
    check_single_task(schema, model, "calibrate")
    if joint and schema.task != "regression":
        raise ReadError("--joint is for regression; a prediction set covers all labels of a row.")
    source = open_source(file, format, options.make_csv_options(no_header, sep, decimal, encoding))
    table, X, weights = read_labelled_rows(source, schema, estimator, weight)
    kwargs = {"joint": joint} if schema.task == "regression" else {}
    estimator.calibrate(X, schema.read_targets(table), weights, coverage=coverage, **kwargs)
    save_table_model(estimator, schema, model)


def report(
    file: options.FileArgument,
    model: options.ModelOption,
    out: Annotated[Path, typer.Option("--out", "-o", help="HTML file to write.")] = Path(
        "report.html"
    ),
    title: Annotated[
        str | None, typer.Option(help="Title of the report. Default: name of the model file.")
    ] = None,
    threads: options.ThreadsOption = None,
    format: options.FormatOption = None,
    no_header: options.NoHeaderOption = False,
    sep: options.SepOption = None,
    decimal: options.DecimalOption = ".",
    encoding: options.EncodingOption = "utf-8",
    quiet: options.QuietOption = False,
) -> None:
    """Write an HTML report of a model on data with known targets."""
    from polyleaf.inspection import make_report  # matplotlib is optional

    if xmc.is_xmc(file, format):
        raise ReadError(f"report does not support --format {xmc.FORMAT}.")
    estimator, schema = load_table_model(model, threads)
    source = open_source(file, format, options.make_csv_options(no_header, sep, decimal, encoding))
    table, X, _ = read_labelled_rows(source, schema, estimator)
    y = schema.read_targets(table)
    options.check_writable(out)
    make_report(estimator, X, y, title=title or f"Report: {model.name}").save(out)
    Reporter(quiet).hint(f"report on {pluralise(table.n_rows, 'row')} written to {out}")


def _compute_scores(
    estimator: Any, schema: Schema, y: np.ndarray, X: Any, weight: np.ndarray | None
) -> Scores:
    """Compute the scores of targets of one kind; rows whose label is None do not count."""
    known = np.array([label is not None for label in y]) if y.dtype == object else slice(None)
    y = np.array(y[known].tolist()) if y.dtype == object else y
    objective = estimator.model_.objective
    has_proba = hasattr(estimator, "predict_proba")
    return compute_scores_per_target(
        schema.task,
        schema.targets,
        y,
        estimator.predict(X)[known],
        probabilities=estimator.predict_proba(X)[known] if has_proba else None,
        classes=getattr(estimator, "classes_", None),
        levels=objective.quantile_levels,
        distribution=estimator.predict_dist(X) if objective.has_distribution else None,
        weight=None if weight is None else weight[known],
    )


def _describe_unknown_labels(estimator: Any, schema: Schema, y: np.ndarray) -> str:
    """Describe labels that the model was not trained with, or return an empty text."""
    if schema.task != "classification":
        return ""
    labels = [label for label in y.tolist() if label is not None]
    known = set(estimator.classes_.tolist())
    unknown = [label for label in labels if label not in known]
    if not unknown:
        return ""
    return (
        f"{len(unknown):,} of {len(labels):,} rows have labels that are not in the training data, "
        f"such as {unknown[0]!r}; their predictions count as wrong"
    )


def _compute_task_scores(
    estimator: Any, schema: Schema, table: Table, X: Any, weight: np.ndarray | None
) -> tuple[float, dict[str, Scores]]:
    """Compute the mean d2 over tasks, and the scores of each task with its d2 first."""
    Y = schema.read_targets(table)
    d2, scores = estimator.d2_scores(X, Y, weight), {}
    for name, own in schema.task_schemas.items():
        columns = [Y[column] for column in own.targets]
        is_vector = len(columns) == 1 and own.task != "multilabel"
        y = columns[0] if is_vector else np.column_stack(columns)
        total, targets = _compute_scores(estimator.task_estimator(name), own, y, X, weight)
        scores[name] = {"d2": d2[name]} | total, targets
    return float(np.nanmean(list(d2.values()))), scores
