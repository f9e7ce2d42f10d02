"""The commands `evaluate` and `report`, which read rows with known targets."""

from __future__ import annotations

import json
import math
from argparse import Namespace
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from polyleaf.cli import xmc
from polyleaf.cli.messages import pluralise, print_error, print_hint
from polyleaf.cli.model_file import (
    check_writable,
    load_table_model,
    load_xmc_model,
    name_ranking_scores,
    open_rows,
    read_weight_column,
)
from polyleaf.files.io import require
from polyleaf.files.schema import RANKING, Schema
from polyleaf.metrics._multitask import compute_scores_per_target
from polyleaf.runtime.row_data import RowData
from polyleaf.runtime.types import DataLike

if TYPE_CHECKING:
    from polyleaf.estimators.base import PolyleafEstimator

Scores = dict[str, float]
"""Name of a metric -> value."""


def evaluate(options: Namespace) -> None:
    """Print scores of a model on data with known targets."""
    if xmc.is_xmc(options.file, options.format):
        scores: Scores = xmc.evaluate_labels(*load_xmc_model(options))
        _print(options, scores, {})
        return
    estimator, schema = load_table_model(options)
    table, X, offset = open_rows(options, options.file, schema, estimator)
    weights, y = read_weight_column(options, table)[1], schema.read_targets(table)
    if schema.task == RANKING:
        rows = RowData(y, weights, offset, query=schema.read_query(table))
        _print(options, *_compute_ranking_scores(estimator, schema, rows, X))
        return
    if not schema.task_columns:
        _warn_of_unknown_labels(estimator, schema, y)
        _print(options, *_compute_scores(estimator, schema, RowData(y, weights, offset), X))
        return
    d2, tasks = estimator.d2_scores(X, y, weights), {}
    for name, task_schema in schema.task_schemas.items():
        columns = [y[column] for column in task_schema.targets]
        values = columns[0] if task_schema.is_vector else np.column_stack(columns)
        scores, targets = _compute_scores(
            estimator.task_estimator(name), task_schema, RowData(values, weights), X
        )
        tasks[name] = {"d2": d2[name]} | scores, targets
    total = {"d2": float(np.nanmean(list(d2.values())))}
    if options.json:
        nested = {name: _nest(*task_scores) for name, task_scores in tasks.items()}
        print(json.dumps(_nest(total, {}) | {"tasks": nested}))
        return
    _print(options, total, {})
    for name, task_scores in tasks.items():
        print(f"\n{name}")
        _print(options, *task_scores, indent="  ")


def report(options: Namespace) -> None:
    """Write an HTML report of a model on data with known targets."""
    from polyleaf.inspection import make_report  # matplotlib is optional

    is_xmc = xmc.is_xmc(options.file, options.format)
    require(not is_xmc, f"report does not support --format {xmc.FORMAT}.")
    estimator, schema = load_table_model(options)
    table, X, offset = open_rows(options, options.file, schema, estimator)
    y = schema.read_targets(table)
    check_writable(options.out)
    query = schema.read_query(table)
    queries = {} if query is None else {"qid": query}
    title = options.title or f"Report: {options.model.name}"
    make_report(estimator, X, y, offset=offset, title=title, **queries).save(options.out)
    print_hint(
        f"report on {pluralise(table.n_rows, 'row')} written to {options.out}", options.quiet
    )


def _compute_scores(
    estimator: PolyleafEstimator, schema: Schema, rows: RowData, X: DataLike
) -> tuple[Scores, Mapping[str, Scores]]:
    """Compute the scores of targets of one kind; rows whose label is None do not count."""
    has_label: np.ndarray | slice = slice(None)
    offset, rows = rows.offset, rows.replace(offset=None)
    if rows.target.dtype == object:
        has_label = np.array([label is not None for label in rows.target])
        rows = rows.take(has_label)
        rows = rows.replace(target=np.array(rows.target.tolist()))
    objective = estimator.model_.objective
    has_proba = hasattr(estimator, "predict_proba")
    return compute_scores_per_target(
        schema.task,
        schema.targets,
        rows,
        estimator.predict(X, offset=offset)[has_label],
        probabilities=estimator.predict_proba(X, offset=offset)[has_label] if has_proba else None,
        classes=getattr(estimator, "classes_", None),
        levels=objective.quantile_levels,
        distribution=estimator.predict_dist(X, offset=offset)
        if objective.has_distribution
        else None,
    )


def _compute_ranking_scores(
    estimator: PolyleafEstimator, schema: Schema, rows: RowData, X: DataLike
) -> tuple[Scores, Mapping[str, Scores]]:
    """Compute metrics of queries, and those of each score if there are several."""
    metrics = estimator._evaluate(X, rows)
    scores = {name: value for name, (value, _) in metrics.items()}
    names = name_ranking_scores(estimator, schema, estimator.predict(X, offset=rows.offset))
    if len(names) == 1:
        return scores, {}
    return scores, {
        output: {name: float(values[j]) for name, (_, values) in metrics.items()}
        for j, output in enumerate(names)
    }


def _warn_of_unknown_labels(estimator: PolyleafEstimator, schema: Schema, y: np.ndarray) -> None:
    if schema.task != "classification":
        return
    labels = set(estimator.classes_.tolist())
    unknown = [label for label in y.tolist() if label not in labels]
    if unknown:
        print_error(
            f"{len(unknown):,} of {len(y):,} rows have labels that are not in the training data, "
            f"such as {unknown[0]!r}; their predictions count as wrong."
        )


def _print(
    options: Namespace, scores: Scores, targets: Mapping[str, Scores], indent: str = ""
) -> None:
    """Print the scores of each target if there are several, and those over all targets."""
    if options.json:
        print(json.dumps(_nest(scores, targets)))
        return
    if targets:
        _print_table(targets, indent)
        print(f"\n{indent}all targets")
    width = max(map(len, scores))
    for name, value in scores.items():
        note = f"  ({_NOTES[name]})" if name in _NOTES else ""
        print(f"{indent}{name:{width}}  {value:.6g}{note}")


_NOTES = {"aRMSE": "the mean RMSE of the targets"}


def _print_table(targets: Mapping[str, Scores], indent: str) -> None:
    names = list(next(iter(targets.values())))
    lines = [
        [target, *(f"{target_scores[n]:.6g}" for n in names)]
        for target, target_scores in targets.items()
    ]
    lines = [["target", *names], *lines]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        cells = (f"{cell:{width}}" for cell, width in zip(line, widths, strict=True))
        print(f"{indent}{'  '.join(cells)}".rstrip())


def _nest(scores: Scores, targets: Mapping[str, Scores]) -> dict[str, object]:
    """Return scores for JSON, which has None instead of NaN."""
    values = {name: None if math.isnan(value) else value for name, value in scores.items()}
    nested = {target: _nest(target_scores, {}) for target, target_scores in (targets or {}).items()}
    return values | ({"targets": nested} if nested else {})
