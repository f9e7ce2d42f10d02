"""What predictions are as columns, and how good they are: of one kind of target, and of each of tasks.

Owns which columns and figures there are. Must not know options, nor how they are written (`answers`, `tell`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from polyleaf.cli.output import Columns, name_columns, quantile_columns
from polyleaf.files.io import ReadError
from polyleaf.files.schema import Schema
from polyleaf.files.table import Table
from polyleaf.metrics._multitask import compute_scores_per_target

__all__ = ["describe_unknown_labels", "prediction_columns", "compute_scores", "compute_task_scores"]

Scores = tuple[dict[str, float], dict[str, dict[str, float]]]
"""Of all targets, and of each of several."""


def prediction_columns(
    estimator: Any, schema: Schema, X: Any, proba: bool, levels: Sequence[float], intervals: bool
) -> Columns:
    """Predictions, and what is asked for beside them, by the names of columns."""
    columns: Columns = {}
    of_each = list(_of_each(estimator, schema))
    if levels and not any(own.model_.objective.has_distribution for _, own, _ in of_each):
        raise ReadError(
            "--levels: this model predicts numbers, and no distributions; train one with --objective normal."
        )
    if proba and not any(hasattr(own, "predict_proba") for _, own, _ in of_each):
        raise ReadError("--proba: this model gives no probabilities.")
    for _, own, of_own in of_each:
        columns |= name_columns(_names(own, of_own), own.predict(X))
    for name, own, of_own in of_each:
        if levels and own.model_.objective.has_distribution:
            columns |= quantile_columns(of_own.targets, own.predict_dist(X), levels)
        if proba and hasattr(own, "predict_proba"):
            of_classes = [f"{name}{label}" for label in getattr(own, "classes_", [])]
            named = of_own.targets if of_own.task == "multilabel" else of_classes
            columns |= name_columns([f"proba_{label}" for label in named], own.predict_proba(X))
        if intervals:
            columns |= _inside(own, of_own, X)
    return columns


def _of_each(estimator: Any, schema: Schema) -> Iterator[tuple[str, Any, Schema]]:
    """What goes before the names of classes, the estimator and how it reads a table: of each task."""
    if not schema.parts:
        yield "", estimator, schema
    for name, of_own in schema.each.items():
        yield f"{name}_", estimator.task_estimator(name), of_own


def _names(estimator: Any, schema: Schema) -> list[str]:
    ends = [f"_q{level:g}" for level in estimator.model_.objective.quantile_levels]
    return [f"{target}{end}" for target in schema.targets for end in ends or [""]]


def _inside(estimator: Any, schema: Schema, X: Any) -> Columns:
    """The bounds of each target, or which classes or labels are in the set, as columns."""
    if schema.task == "regression":
        names = [f"{target}_{end}" for target in schema.targets for end in ("low", "high")]
        return name_columns(names, estimator.predict_interval(X))
    inside = schema.targets if schema.task == "multilabel" else estimator.classes_
    return name_columns(
        [f"set_{name}" for name in inside], estimator.predict_set(X).astype(np.int64)
    )


def compute_scores(
    estimator: Any, schema: Schema, y: np.ndarray, X: Any, weight: np.ndarray | None
) -> Scores:
    """The scores of targets of one kind; rows without a label, of which y has None, do not count."""
    known = np.array([label is not None for label in y]) if y.dtype == object else slice(None)
    y = np.array(y[known].tolist()) if y.dtype == object else y
    law = estimator.predict_dist(X) if estimator.model_.objective.has_distribution else None
    return compute_scores_per_target(
        schema.task,
        schema.targets,
        y,
        estimator.predict(X)[known],
        probabilities=estimator.predict_proba(X)[known]
        if hasattr(estimator, "predict_proba")
        else None,
        classes=getattr(estimator, "classes_", None),
        levels=estimator.model_.objective.quantile_levels,
        distribution=law,
        weight=None if weight is None else weight[known],
    )


def describe_unknown_labels(estimator: Any, schema: Schema, y: np.ndarray) -> str:
    """A sentence about rows whose class the model cannot predict, which count as wrong; or nothing."""
    if schema.task != "classification":
        return ""
    labels = [label for label in y.tolist() if label is not None]
    learned = set(estimator.classes_.tolist())
    strange = [label for label in labels if label not in learned]
    if not strange:
        return ""
    some = f"{strange[0]!r} in {len(strange):,} of {len(labels):,} rows"
    return f"labels that the model has not learned, {some}, count as wrong"


def compute_task_scores(
    estimator: Any, schema: Schema, table: Table, X: Any, weight: np.ndarray | None
) -> tuple[float, dict[str, Scores]]:
    """The mean skill of all tasks, and the scores of each, its skill first."""
    Y = schema.read_targets(table)
    skills, found = estimator.skills(X, Y, weight), {}
    for name, of_own in schema.each.items():
        columns = [Y[column] for column in of_own.targets]
        y = (
            columns[0]
            if len(columns) == 1 and of_own.task != "multilabel"
            else np.column_stack(columns)
        )
        scores, of_columns = compute_scores(estimator.task_estimator(name), of_own, y, X, weight)
        found[name] = {"d2": skills[name]} | scores, of_columns
    return float(np.nanmean(list(skills.values()))), found
