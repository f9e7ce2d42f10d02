"""Several tasks on the command line: which columns each is, and which loss.

Owns the meaning of `--task NAME=LOSS` and of one task of a model of several. Must not know other options, nor
how tasks are learned.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from polyleaf.cli.parameters import PARAMETERS
from polyleaf.files.io import ReadError
from polyleaf.files.schema import Schema, infer_task, select_columns
from polyleaf.files.table import Table
from polyleaf.metrics._multitask import TASKS
from polyleaf.objectives import auto_objective_name, get_objective, objective_class

__all__ = ["TaskSpec", "check_single_task", "parse_tasks", "describe_tasks", "get_single_kind"]


@dataclass(frozen=True)
class TaskSpec:
    """A task that is to be learned.

    Attributes
    ----------
    kind : {"regression", "classification", "multilabel"}
    columns : tuple of str
    objective : str or Objective
    is_guessed : bool
    """

    kind: str
    columns: tuple[str, ...]
    objective: Any
    is_guessed: bool

    @property
    def key(self) -> Any:
        """What the estimator calls it."""
        return self.columns if len(self.columns) > 1 else self.columns[0]


def get_single_kind(given: Sequence[str], target: str | None) -> str | None:
    """The kind of all targets, where `--task` says that; None where it names tasks, or is not given."""
    if len(given) == 1 and given[0] in TASKS:
        return given[0]
    if given and target is not None:
        raise ReadError(
            f"--task {given[0]} names what is learned itself: leave --target out. Beside it --task is one of "
            f"{', '.join(TASKS)}."
        )
    return None


def parse_tasks(
    header: Table, given: Sequence[str], known: Callable[[Sequence[str]], Table]
) -> list[TaskSpec]:
    """What `--task NAME=LOSS`, `NAME=LOSS:VALUE` and `NAME` ask for.

    Parameters
    ----------
    header : Table
        With the names of all columns.
    given : sequence of str
    known : callable
        A table with the rows of some columns.

    Raises
    ------
    ReadError
        Where there is no such column or loss.
    """
    found = []
    for text in given:
        name, equals, loss = (text, "", "") if text in header.names else text.rpartition("=")
        if not equals:
            name, loss = text, ""
        columns = select_columns(header, name, f"--task {text}")
        if not columns or (equals and not loss.strip()):
            raise ReadError(
                f"--task takes NAME or NAME=LOSS, such as price=squared_error, not {text!r}."
            )
        table = known(columns)
        objective = _objective(loss.strip(), f"--task {text}") if loss else None
        kind = _kind(table, columns, objective)
        chosen = _usual(table, columns[0], kind) if objective is None else objective
        found.append(TaskSpec(kind, columns, chosen, objective is None))
    return found


def _objective(loss: str, option: str) -> Any:
    """A name, or an objective with its parameter: `quantile:0.1,0.9`."""
    name, colon, value = loss.partition(":")
    try:
        cls = objective_class(name)
    except ValueError:
        cls = None
    if cls is None or not colon:
        return _known(loss, option)  # whole, as XGBoost's names have colons
    parameter = next(iter(cls.parameters), None)
    if parameter is None:
        raise ReadError(f"{option}: objective {name!r} has no parameter to be given after a colon.")
    return get_objective(name, **{parameter: _value(parameter, value, option)})


def _known(loss: str, option: str) -> str:
    try:
        objective_class(loss)
    except ValueError as error:
        raise ReadError(f"{option}: {error}") from None
    return loss


def _value(parameter: str, text: str, option: str) -> Any:
    try:
        return PARAMETERS[parameter].read(f"[{text}]" if "," in text else text)
    except ValueError as error:
        raise ReadError(f"{option}: {error}") from None


def _kind(table: Table, columns: tuple[str, ...], objective: Any) -> str:
    """What the columns are, as far as the loss leaves that open."""
    kinds = (
        ("values", "labels", "classes")
        if objective is None
        else objective_class(objective).target_kinds
    )
    if set(kinds) == {"values"}:
        return "regression"
    if "values" not in kinds:
        return "classification" if len(columns) == 1 else "multilabel"
    return infer_task(table, columns)


def _usual(table: Table, column: str, kind: str) -> str:
    """The loss that goes with a kind of target."""
    if kind == "regression":
        return "squared_error"
    if kind == "multilabel":
        return auto_objective_name("multilabel", sparse=False)
    values = table.column(column)
    few = len(np.unique(values[~np.isnan(values)])) <= 2
    return auto_objective_name("binary" if few else "multiclass", sparse=False)


def describe_tasks(wanted: Sequence[TaskSpec]) -> str:
    """What is learned, in words."""
    named = [f"{'+'.join(task.columns)} ({_words(task)})" for task in wanted]
    return f"{len(wanted)} task{'s' if len(wanted) > 1 else ''}: {', '.join(named)}"


def _words(task: TaskSpec) -> str:
    name = task.objective if isinstance(task.objective, str) else task.objective.name
    return f"{name}, guessed" if task.is_guessed else name


def check_single_task(schema: Schema, path: Any, what: str) -> None:
    """Say of a command for targets of one kind how it is had for a task."""
    if schema.parts:
        name = next(iter(schema.each))
        raise ReadError(
            f"{what} is of targets of one kind, and {path} has tasks ({', '.join(schema.each)}): "
            f"polyleaf extract {path} --task {name} --out FILE makes a model of one of them."
        )
