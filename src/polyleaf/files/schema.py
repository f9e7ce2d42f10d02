"""`Schema`: the columns that a model reads and their kinds, saved with the model.

A model that was trained from a file reads other files by the names and kinds of their columns.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from polyleaf.files.cells import (
    BOOLEAN,
    INTEGER,
    KINDS,
    NUMBER,
    TEXT,
    CellFormat,
    describe_remedy,
    find_kept_values,
)
from polyleaf.files.io import ReadError, require
from polyleaf.files.table import Table, abbreviate
from polyleaf.metrics._multitask import TASKS
from polyleaf.runtime.types import ArrowColumn
from polyleaf.user_data.multitask import get_task_name
from polyleaf.user_data.numeric_text import find_text_problem

MAX_INFERRED_CLASSES = 20
"""A target of at most this many distinct integers is inferred to be classification."""

RANKING = "ranking"
SINGLE_TASKS = (*TASKS, RANKING)
"""`Schema.task` of a model of a single task."""
_NUMERIC_TASKS = ("regression", RANKING)

_COLUMN_FIELDS = ("features", "targets", "categorical", "offset")
_MULTITASK = "tasks"
"""`Schema.task` of a multi-task model."""

_TASKS_KEY = "parts"
"""Key of `Schema.task_columns` in model files."""

_WORDS = {"0": 0, "false": 0, "no": 0, "n": 0, "f": 0, "1": 1, "true": 1, "yes": 1, "y": 1, "t": 1}


@dataclass(frozen=True)
class Schema:
    """Columns that a model reads from a table."""

    # one of `SINGLE_TASKS`, or "tasks", which stands for a multi-task model
    task: str
    # features, targets: column names, in the order of the columns of `X` and `y`
    features: tuple[str, ...]
    targets: tuple[str, ...]
    # features that the model must treat as categories, beside those of kind "text"
    categorical: tuple[str, ...] = ()
    offset: tuple[str, ...] = ()  # columns of offsets (base margins), if there are any
    # kind of each feature and target: see `polyleaf.files.cells`
    kinds: Mapping[str, str] = field(default_factory=dict)
    # per column of text the spellings of missing values, such as "NA", that are values there
    kept_values: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    # how the training file writes numbers and missing values
    format: CellFormat = field(default_factory=CellFormat)
    # (str, tuple of str), kind and targets of each task of a multi-task model
    task_columns: tuple[tuple[str, tuple[str, ...]], ...] = ()
    query: str | None = None  # column of the query of each row, for a ranking

    @property
    def task_schemas(self) -> dict[str, Schema]:
        """The schema of each task of a multi-task model, by its name."""
        return {
            get_task_name(columns if len(columns) > 1 else columns[0]): replace(
                self, task=task, targets=columns, task_columns=()
            )
            for task, columns in self.task_columns
        }

    @classmethod
    def from_table(
        cls,
        table: Table,
        targets: Sequence[str],
        task: str | None = None,
        drop: Sequence[str] = (),
        offset: Sequence[str] = (),
        categorical: Sequence[str] = (),
        task_columns: Sequence[tuple[str, tuple[str, ...]]] = (),
        query: str | None = None,
    ) -> Schema:
        """Make the schema of a model from its training data.

        Every column that is not a target, an offset, the query or dropped is a feature. Raises a
        ReadError if no column is left, a column cannot be read, or the targets do not fit the task.
        """
        is_known = task is None or task in SINGLE_TASKS
        require(is_known, f"Unknown task {task!r}; choose one of {', '.join(SINGLE_TASKS)}.")
        if len(set(targets)) < len(targets):
            repeated = next(name for name in targets if list(targets).count(name) > 1)
            raise ReadError(f"Column {repeated!r} is the target of two tasks; remove one of them.")
        excluded = {*targets, *drop, *offset, query}
        features = tuple(name for name in table.names if name not in excluded)
        require(features, "No feature is left: every column is a target, an offset or dropped.")
        declared = table.category_columns.union(categorical)
        categorical = tuple(name for name in features if name in declared)
        require(
            not categorical or not table.is_sparse,
            "Numeric columns of a sparse file cannot be categorical; convert the file to CSV.",
        )
        kinds = {name: table.infer_kind(name, name in categorical) for name in features}
        if task_columns:
            task = _MULTITASK
            tasks = {name: kind for kind, columns in task_columns for name in columns}
        else:
            task = task or infer_task(table, targets)
            require(
                task != "classification" or len(targets) < 2,
                f"Classification takes one target, not {len(targets)}; for several 0/1 columns "
                "use multilabel.",
            )
            tasks = dict.fromkeys(targets, task)
        kinds |= {name: _infer_target_kind(table, name, kind) for name, kind in tasks.items()}
        texts = [name for name, kind in kinds.items() if kind == TEXT and name not in table.written]
        kept = {name: find_kept_values(table.column(name), table.format) for name in texts}
        return cls(
            task,
            features,
            tuple(targets),
            categorical,
            tuple(offset),
            kinds,
            {name: values for name, values in kept.items() if values},
            table.format,
            tuple(task_columns),
            query,
        )

    @property
    def text_features(self) -> list[str]:
        """Features of text that were not declared as categories."""
        texts = (name for name in self.features if self.kinds[name] == TEXT)
        return [name for name in texts if name not in self.categorical]

    def read_targets(self, table: Table) -> Any:
        """Return `y`.

        Raises a ReadError if a target is absent, or does not fit the task.

        Returns
        -------
        ndarray or dict of str to ndarray
            Regression and ranking: float64 (n,) or (n, K). Classification: labels (n,).
            Multi-label: int64 indicators (n, K). Multi-task: the columns by name, where labels may
            be None (missing).
        """
        table.check_columns(self.targets)
        if self.task == _MULTITASK:
            return {
                name: task_schema._read_target(table, name, allow_missing=True)
                for task_schema in self.task_schemas.values()
                for name in task_schema.targets
            }
        columns = [self._read_target(table, name) for name in self.targets]
        return columns[0] if self.is_vector else np.column_stack(columns)

    @property
    def is_vector(self) -> bool:
        """Whether `y` has one dimension."""
        return len(self.targets) == 1 and self.task != "multilabel"

    def _read_target(self, table: Table, name: str, allow_missing: bool = False) -> np.ndarray:
        column = table.read(name, self.kinds[name], self.kept_values.get(name, ()))
        if self.task in _NUMERIC_TASKS:
            return column.to_numpy()
        if self.task == "multilabel":
            return _to_indicators(column, name)
        labels = np.array(column.to_pylist(), dtype=object)
        missing = np.flatnonzero(labels == None)  # noqa: E711
        if not missing.size:
            return np.array(labels.tolist())
        if not allow_missing:
            raise ReadError(
                f"Column {name!r} has no label in {_describe_rows(missing)}; drop such rows or "
                "fill in their labels."
            )
        return labels

    def read_offset(self, table: Table) -> np.ndarray | None:
        """Return the offsets, float64 (n,) or (n, m); None if the model has none."""
        if not self.offset:
            return None
        columns = [read_finite(table, name, "offset", "no offset") for name in self.offset]
        return columns[0] if len(columns) == 1 else np.column_stack(columns)

    def read_query(self, table: Table) -> np.ndarray | None:
        """Return the id of the query of each row, numbers or text; None without queries."""
        if self.query is None:
            return None
        table.check_columns([self.query])
        kind = table.infer_kind(self.query, as_category=True)
        ids = table.read(self.query, kind)
        missing = np.flatnonzero(ids.is_null().to_numpy())
        if missing.size:
            raise ReadError(f"Column {self.query!r} has no query in {_describe_rows(missing)}.")
        return np.array(ids.to_pylist())

    def to_dict(self) -> dict[str, Any]:
        """Return the schema in JSON types; `from_dict` is the inverse."""
        fields: dict[str, object] = {name: list(getattr(self, name)) for name in _COLUMN_FIELDS}
        return fields | {
            "task": self.task,
            "query": self.query,
            "kinds": dict(self.kinds),
            "kept_values": {name: list(values) for name, values in self.kept_values.items()},
            "format": [self.format.decimal, self.format.thousands, list(self.format.na_values)],
            _TASKS_KEY: [[task, list(columns)] for task, columns in self.task_columns],
        }

    @classmethod
    def from_dict(cls, fields: Any) -> Schema:
        """Return the schema of a dict of any origin; ValueError if it is not one of `to_dict`."""
        try:
            decimal, thousands, na_values = fields["format"]
            kept = {name: _to_names(values) for name, values in fields["kept_values"].items()}
            schema = cls(
                task=fields["task"],
                **{name: _to_names(fields[name]) for name in _COLUMN_FIELDS},
                kinds=dict(fields["kinds"]),
                kept_values=kept,
                format=CellFormat(decimal, thousands, _to_names(na_values)),
                task_columns=tuple((task, _to_names(c)) for task, c in fields[_TASKS_KEY]),
                query=fields.get("query"),
            )
            tasks = [task for task, columns in schema.task_columns if columns]
            targets = tuple(name for _, columns in schema.task_columns for name in columns)
            is_valid = (
                schema.task in (*SINGLE_TASKS, _MULTITASK)
                and isinstance(schema.query, str) == (schema.task == RANKING)
                and targets == (schema.targets if schema.task == _MULTITASK else ())
                and set(tasks) <= set(TASKS)
                and len(tasks) == len(schema.task_columns)
                and set(schema.kinds) == {*schema.features, *schema.targets}
                and set(schema.kinds.values()) <= set(KINDS)
                and set(schema.categorical) <= set(schema.features)
                and len(schema.targets) > 0
            )
        except (TypeError, KeyError, ValueError, AttributeError):
            is_valid = False
        if not is_valid:
            raise ValueError("The model file does not describe its training columns; train anew.")
        return schema


def _to_names(names: object) -> tuple[str, ...]:
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise TypeError("not a list of names")
    return tuple(names)


# ---- targets and weights ---------------------------------------------------------------------


def infer_task(table: Table, targets: Sequence[str]) -> str:
    """Infer the task from the targets.

    One column of text or booleans, or of few distinct integers: classification. Several columns of
    0 and 1, or of yes and no: multilabel. Other numbers: regression. Raises a ReadError if there
    are several columns of text, or text that looks like numbers.
    """
    kinds = {name: table.infer_kind(name) for name in targets}
    for name, kind in kinds.items():
        if kind == TEXT and not _is_indicator(table, name):
            _check_text_target(table, name)
    if len(targets) == 1:
        is_class = kinds[targets[0]] != NUMBER or _has_few_integers(table, targets[0])
        return "classification" if is_class else "regression"
    if all(_is_indicator(table, name) for name in targets):
        return "multilabel"
    texts = [name for name in targets if kinds[name] == TEXT]
    if texts:
        raise ReadError(
            "Several targets must all be numbers, or all be 0/1 labels, but "
            f"{abbreviate([repr(name) for name in texts])} holds text. For a multi-task model, "
            "name each target with --task."
        )
    return "regression"


def _check_text_target(table: Table, name: str) -> None:
    """Raise for a target of text that looks like numbers."""
    cells = table.read(name, TEXT).drop_null()
    counts = cells.value_counts()
    categories = counts.field("values").to_pylist()
    problem = find_text_problem(categories, counts.field("counts").to_numpy())
    if problem is None:
        return
    bad = {category for category, is_bad in zip(categories, problem.is_cell, strict=True) if is_bad}
    row, cell = next((i, c) for i, c in enumerate(table.column(name).to_pylist()) if c in bad)
    raise ReadError(
        f"Column {name!r} holds {cell!r} in row {row}, which is text but looks like numbers"
        f"{describe_remedy(cell)} If these are class labels, give --task classification."
    )


def _has_few_integers(table: Table, name: str) -> bool:
    numbers = table.read(name, NUMBER).drop_null().to_numpy()
    distinct = np.unique(numbers[~np.isnan(numbers)])
    return len(distinct) <= MAX_INFERRED_CLASSES and bool(np.all(distinct == np.round(distinct)))


def _infer_target_kind(table: Table, name: str, task: str) -> str:
    """Return the kind in which a target is read for a task."""
    kind = table.infer_kind(name, as_category=task == "classification")
    if task == "multilabel" and not _is_indicator(table, name):
        raise ReadError(
            f"Column {name!r} is a multi-label target, so every row must hold 0 or 1 there."
        )
    if task in _NUMERIC_TASKS and kind == TEXT:
        table.read(name, NUMBER)  # raises if a cell is not a number
    if task in _NUMERIC_TASKS:
        return NUMBER
    is_fraction = kind == NUMBER or (kind == TEXT and table.infer_kind(name) == NUMBER)
    if task == "classification" and is_fraction:
        try:
            table.read(name, INTEGER)
        except ReadError:
            raise ReadError(
                f"Column {name!r} holds fractional numbers, which cannot be class labels; use "
                "regression."
            ) from None
        return INTEGER
    return kind


def _is_indicator(table: Table, name: str) -> bool:
    """Whether all cells of a target are 0 and 1, or words for no and yes."""
    kind = table.infer_kind(name)
    if kind == BOOLEAN:
        return True
    known = table.read(name, kind).drop_null().unique().to_pylist()
    if kind == TEXT:
        return len(known) > 0 and all(cell.lower() in _WORDS for cell in known)
    return table.column(name).null_count == 0 and all(number in (0, 1) for number in known)


def _to_indicators(column: ArrowColumn, name: str) -> np.ndarray:
    values = [_WORDS.get(c.lower()) if isinstance(c, str) else c for c in column.to_pylist()]
    bad = np.flatnonzero([value not in (0, 1) for value in values])
    if bad.size:
        raise ReadError(
            f"Column {name!r} is a multi-label target, so every row must hold 0 or 1 there, unlike "
            f"{_describe_rows(bad)}."
        )
    return np.array(values, dtype=np.int64)


def read_weights(table: Table, name: str) -> np.ndarray:
    """Return sample weights, float64 (n,); `ReadError` if one is missing, text or negative."""
    weights = read_finite(table, name, "weight", "a row to ignore")
    negative = np.flatnonzero(weights < 0)
    if negative.size:
        raise ReadError(
            f"Column {name!r} has negative weights in {_describe_rows(negative)}; weights must be "
            "0 or above."
        )
    return weights


def read_positions(table: Table, name: str) -> np.ndarray:
    """Return positions of rows, int64 (n,); `ReadError` if one is missing or no integer."""
    values = table.read(name, NUMBER).to_numpy()
    wrong = np.flatnonzero(~(np.isfinite(values) & (values == np.floor(values))))
    if wrong.size:
        raise ReadError(
            f"Column {name!r} has no position in {_describe_rows(wrong)}: each must be a whole "
            "number, such as 1 for the first."
        )
    return values.astype(np.int64)


def read_finite(table: Table, name: str, noun: str, zero_meaning: str) -> np.ndarray:
    """Return a column of finite numbers; the noun says what they are, for messages."""
    values = table.read(name, NUMBER).to_numpy()
    missing = np.flatnonzero(~np.isfinite(values))
    if missing.size:
        raise ReadError(
            f"Column {name!r} has no {noun} in {_describe_rows(missing)}: each must be a finite "
            f"number; use 0 for {zero_meaning}."
        )
    return values


def _describe_rows(rows: np.ndarray) -> str:
    """Return "row 7", or "row 7 and 2 more rows"; rows count from 0."""
    more = f" and {rows.size - 1} more row{'s' if rows.size > 2 else ''}"
    return f"row {rows[0]}{more if rows.size > 1 else ''}"


def select_columns(table: Table, given: Sequence[str] | str | None, option: str) -> tuple[str, ...]:
    """Return the columns that the values of an option select.

    Each value is the name of a column, or a list separated by commas. Each part of a list is a
    name, a pattern (``label_*``), ``first:N`` or ``last:N``.

    Raises a ReadError if a part selects no column; the message begins with `option`.
    """
    chosen: dict[str, None] = {}
    values = [given] if isinstance(given, str) else given or ()
    parts = (p for v in values for p in ([v] if v in table.names else map(str.strip, v.split(","))))
    for part in filter(None, parts):
        side, _, count = part.partition(":")
        if part in table.names:
            names: tuple[str, ...] = (part,)
        elif side in ("first", "last") and count.isdigit() and int(count) > 0:
            names = table.names[: int(count)] if side == "first" else table.names[-int(count) :]
        else:
            names = tuple(fnmatch.filter(table.names, part))
        if not names:
            have = f"the columns are {abbreviate(table.names)}."
            if len(table.names) == 1:
                have = f"the only column is {table.names[0]!r}. CSV: --sep sets the separator."
            raise ReadError(f"{option}: there is no column {part!r}; {have}")
        chosen.update(dict.fromkeys(names))
    return tuple(chosen)
