"""The commands `predict` and `explain`: columns as CSV, Parquet or JSON lines."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from polyleaf.cli import xmc
from polyleaf.cli.messages import pluralise, print_hint
from polyleaf.cli.model_file import (
    check_writable,
    load_table_model,
    load_xmc_model,
    name_ranking_scores,
    open_rows,
)
from polyleaf.cli.parameters import check_options
from polyleaf.estimators.base import PolyleafEstimator
from polyleaf.files.cells import drop_missing_text
from polyleaf.files.io import ReadError, open_writer, require, write_columns
from polyleaf.files.schema import RANKING, Schema, select_columns
from polyleaf.runtime.types import DataLike

Columns = dict[str, Any]


def predict(options: Namespace) -> None:
    """Predict every row of a data file."""
    check_writable(options.out)
    if xmc.is_xmc(options.file, options.format):
        estimator, rows = load_xmc_model(options)
        xmc.write_topk(estimator, rows.X, options.top, options.out)
        return
    estimator, schema = load_table_model(options)
    table, X, offset = open_rows(options, options.file, schema, estimator)
    kept = {name: table.column(name) for name in select_columns(table, options.keep, "--keep")}
    for name in table.written.intersection(kept):
        kept[name] = drop_missing_text(kept[name], [""])
    columns = _predict_columns(options, estimator, schema, X, offset)
    clashes = [name for name in kept if name in columns]
    if clashes:
        raise ReadError(f"--keep {clashes[0]}: the predictions have a column of this name too.")
    write_columns(kept | columns, options.out, options.json)
    if options.out is not None:
        print_hint(
            f"{pluralise(table.n_rows, 'prediction')} written to {options.out}", options.quiet
        )


def _predict_columns(
    options: Namespace,
    estimator: PolyleafEstimator,
    schema: Schema,
    X: DataLike,
    offset: np.ndarray | None,
) -> Columns:
    """Return predictions and the requested additions as named columns."""
    tasks = list(_iter_tasks(estimator, schema))
    levels = [] if options.levels is None else _parse_levels(options.levels)
    require(
        not levels or any(single.model_.objective.has_distribution for _, single, _ in tasks),
        "--levels needs a model that predicts distributions; train one with --objective normal.",
    )
    has_proba = any(hasattr(single, "predict_proba") for _, single, _ in tasks)
    require(not options.proba or has_proba, "--proba: this model predicts no probabilities.")
    has_intervals = schema.task != RANKING
    require(
        not options.intervals or has_intervals,
        "--intervals: the scores of a ranking have no intervals.",
    )
    if schema.task_columns:
        check_options(options, "tasks")
    columns: Columns = {}
    for _, task_estimator, task_schema in tasks:
        suffixes = [
            f"_q{level:g}" for level in task_estimator.model_.objective.quantile_levels
        ] or [""]
        names = [f"{target}{suffix}" for target in task_schema.targets for suffix in suffixes]
        predicted = task_estimator.predict(X, offset=offset)
        if task_schema.task == RANKING:
            names = name_ranking_scores(task_estimator, task_schema, predicted)
        columns |= _name_columns(names, predicted)
    for prefix, task_estimator, task_schema in tasks:
        is_multilabel = task_schema.task == "multilabel"
        if levels and task_estimator.model_.objective.has_distribution:
            distribution = task_estimator.predict_dist(X, offset=offset)
            quantiles = [distribution.ppf(level).reshape(len(predicted), -1) for level in levels]
            names = [f"{t}_q{level:g}" for t in task_schema.targets for level in levels]
            columns |= _name_columns(names, np.stack(quantiles, axis=2))
        if options.proba and hasattr(task_estimator, "predict_proba"):
            classes = [f"{prefix}{label}" for label in getattr(task_estimator, "classes_", [])]
            names = [f"proba_{n}" for n in (task_schema.targets if is_multilabel else classes)]
            probabilities = task_estimator.predict_proba(X, offset=offset)
            columns |= _name_columns(names, probabilities)
        if options.intervals and task_schema.task == "regression":
            names = [f"{target}_{end}" for target in task_schema.targets for end in ("low", "high")]
            columns |= _name_columns(names, task_estimator.predict_interval(X, offset=offset))
        elif options.intervals:
            labels = task_schema.targets if is_multilabel else task_estimator.classes_
            members = task_estimator.predict_set(X, offset=offset).astype(np.int64)
            columns |= _name_columns([f"set_{label}" for label in labels], members)
    return columns


def _parse_levels(text: str) -> list[float]:
    try:
        levels = [float(level) for level in text.split(",")]
    except ValueError:
        levels = []
    require(
        levels and all(0 < level < 1 for level in levels),
        f"--levels must be numbers between 0 and 1 separated by commas, not {text!r}.",
    )
    return levels


def _iter_tasks(
    estimator: PolyleafEstimator, schema: Schema
) -> Iterator[tuple[str, PolyleafEstimator, Schema]]:
    """Yield the prefix of class names, the estimator and the schema of each task."""
    if not schema.task_columns:
        yield "", estimator, schema
    for name, task_schema in schema.task_schemas.items():
        yield f"{name}_", estimator.task_estimator(name), task_schema


def _name_columns(names: Sequence[str], values: np.ndarray) -> Columns:
    return dict(zip(names, values.reshape(len(values), -1).T, strict=True))


# ---- explain ---------------------------------------------------------------------------------


def explain(options: Namespace) -> None:
    """Write SHAP values of each row, or feature importances.

    SHAP values say what each feature adds to the raw score of a row.
    """
    from polyleaf.estimators._prediction import iter_shap_values, mean_abs_shap
    from polyleaf.model.shap import resolve_outputs

    check_writable(options.out)
    is_xmc = xmc.is_xmc(options.file, options.format)
    require(
        not is_xmc, f"explain does not support --format {xmc.FORMAT}; use shap_values in Python."
    )
    estimator, schema = load_table_model(options)
    schema = replace(schema, offset=())  # SHAP values are of features
    table, rows, _ = open_rows(options, options.file, schema, estimator)
    reference = None
    if options.background is not None:
        reference = open_rows(options, options.background, schema, estimator)[1]
    model = estimator.model_
    chosen: list[int] | list[str] = list(range(model.n_outputs))
    if options.outputs is not None:
        chosen = [part.strip() for part in options.outputs.split(",")]
    indices = resolve_outputs(chosen, model.n_outputs, model.output_names).indices.tolist()
    outputs = [model.output_name(k) for k in indices]
    batches = iter_shap_values(estimator, rows, reference, chosen)
    with open_writer(options.out) as write:
        if options.importance:
            write(_make_importances(model.input_names, outputs, mean_abs_shap(batches)))
            return
        base = np.atleast_1d(estimator.shap_base_values(reference, chosen))
        for columns in _iter_shap_columns(model.input_names, outputs, base, batches):
            write(columns)
    if options.out is not None:
        print_hint(
            f"SHAP values of {pluralise(table.n_rows, 'row')} written to {options.out}",
            options.quiet,
        )


def _make_importances(
    features: Sequence[str], outputs: Sequence[str], importance: np.ndarray
) -> Columns:
    """Return mean |SHAP| (n_outputs, n_features), a row per feature, the largest mean first."""
    order = np.argsort(-importance.mean(axis=0), kind="stable")
    names = [f"mean_shap_{output}" if len(outputs) > 1 else "mean_shap" for output in outputs]
    values = {name: values[order] for name, values in zip(names, importance, strict=True)}
    return {"feature": np.array(features, object)[order], **values}


def _iter_shap_columns(
    features: Sequence[str],
    outputs: Sequence[str],
    base: np.ndarray,
    batches: Iterable[tuple[slice, np.ndarray]],
) -> Iterator[Columns]:
    """Yield a row for each row of the data and output, all outputs of a row in succession.

    The columns are `row` (from 0), `output` (its name, if there are several), `base_value`,
    `shap_<feature>` for each feature, and their sum with the base value, `raw_score`.
    """
    for rows, values in batches:
        lines = values.transpose(0, 2, 1).reshape(-1, len(features))
        columns: Columns = {"row": np.repeat(np.arange(rows.start, rows.stop), len(outputs))}
        if len(outputs) > 1:
            columns["output"] = np.tile(np.array(outputs, object), len(values))
        columns["base_value"] = np.tile(base, len(values))
        columns |= {f"shap_{name}": lines[:, f] for f, name in enumerate(features)}
        columns["raw_score"] = columns["base_value"] + lines.sum(axis=1, dtype=np.float64)
        yield columns
