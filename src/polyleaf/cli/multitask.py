"""The tasks of a multi-task model, from the options `--task NAME` and `--task NAME=LOSS`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from polyleaf.cli.messages import pluralise
from polyleaf.cli.options import PARAMETERS
from polyleaf.files.io import ReadError
from polyleaf.files.schema import infer_task, select_columns
from polyleaf.files.table import Table
from polyleaf.metrics._multitask import TASKS
from polyleaf.objectives import auto_objective_name, get_objective, objective_class


@dataclass(frozen=True)
class TaskSpec:
    """A task of a multi-task model.

    Attributes
    ----------
    kind : {"regression", "classification", "multilabel"}
    columns : tuple of str
        Its targets.
    objective : str or Objective
    is_inferred : bool
        Whether the loss was inferred from the targets.
    """

    kind: str
    columns: tuple[str, ...]
    objective: Any
    is_inferred: bool

    @property
    def key(self) -> Any:
        """Return the name by which the estimator knows the task."""
        return self.columns if len(self.columns) > 1 else self.columns[0]


def get_single_kind(options: Sequence[str], target: str | None) -> str | None:
    """Return the kind of task if `--task` gives one; None if it lists tasks or is not given."""
    if len(options) == 1 and options[0] in TASKS:
        return options[0]
    if options and target is not None:
        raise ReadError(
            f"--task {options[0]} cannot be combined with --target. With --target, --task is one "
            f"of {', '.join(TASKS)}; for a multi-task model, leave --target out."
        )
    return None


def parse_tasks(
    header: Table, options: Sequence[str], read: Callable[[Sequence[str]], Table]
) -> list[TaskSpec]:
    """Parse `--task NAME`, `NAME=LOSS` and `NAME=LOSS:VALUE`.

    Parameters
    ----------
    header : Table
        Table with the names of all columns.
    options : sequence of str
    read : callable
        Function that returns a table with the rows of some columns.

    Raises
    ------
    ReadError
        If there is no such column or loss.
    """
    tasks = []
    for text in options:
        name, equals, loss = (text, "", "") if text in header.names else text.rpartition("=")
        if not equals:
            name, loss = text, ""
        columns = select_columns(header, name, f"--task {text}")
        if not columns or (equals and not loss.strip()):
            raise ReadError(
                f"--task takes NAME or NAME=LOSS, such as price=squared_error, not {text!r}."
            )
        table = read(columns)
        objective = _parse_objective(loss.strip(), f"--task {text}") if loss else None
        kind = _infer_kind(table, columns, objective)
        chosen = _get_default_loss(table, columns[0], kind) if objective is None else objective
        tasks.append(TaskSpec(kind, columns, chosen, objective is None))
    return tasks


def _parse_objective(loss: str, option: str) -> Any:
    """Return a name, or an objective with its parameter: `quantile:0.1,0.9`."""
    name, colon, value = loss.partition(":")
    try:
        cls = objective_class(name)
    except ValueError:
        cls = None
    if cls is None or not colon:
        return _check_loss(loss, option)  # the whole text: XGBoost's names contain colons
    parameter = next(iter(cls.parameters), None)
    if parameter is None:
        raise ReadError(f"{option}: objective {name!r} takes no value after a colon.")
    return get_objective(name, **{parameter: _parse_value(parameter, value, option)})


def _check_loss(loss: str, option: str) -> str:
    try:
        objective_class(loss)
    except ValueError as error:
        raise ReadError(f"{option}: {error}") from None
    return loss


def _parse_value(parameter: str, text: str, option: str) -> Any:
    try:
        return PARAMETERS[parameter].read(f"[{text}]" if "," in text else text)
    except ValueError as error:
        raise ReadError(f"{option}: {error}") from None


def _infer_kind(table: Table, columns: tuple[str, ...], objective: Any) -> str:
    """Infer the kind of task from the loss, or from the targets where the loss allows several."""
    kinds: Sequence[str] = ("values", "labels", "classes")
    if objective is not None:
        kinds = objective_class(objective).target_kinds
    if set(kinds) == {"values"}:
        return "regression"
    if "values" not in kinds:
        return "classification" if len(columns) == 1 else "multilabel"
    return infer_task(table, columns)


def _get_default_loss(table: Table, column: str, kind: str) -> str:
    if kind == "regression":
        return "squared_error"
    if kind == "multilabel":
        return auto_objective_name("multilabel", sparse=False)
    values = table.column(column)
    is_binary = len(np.unique(values[~np.isnan(values)])) <= 2
    return auto_objective_name("binary" if is_binary else "multiclass", sparse=False)


def describe_tasks(tasks: Sequence[TaskSpec]) -> str:
    """Return the number of tasks, their targets and their losses as text."""
    texts = [f"{'+'.join(task.columns)} ({_describe_loss(task)})" for task in tasks]
    return f"{pluralise(len(tasks), 'task')}: {', '.join(texts)}"


def _describe_loss(task: TaskSpec) -> str:
    name = task.objective if isinstance(task.objective, str) else task.objective.name
    return f"{name}, inferred" if task.is_inferred else name
