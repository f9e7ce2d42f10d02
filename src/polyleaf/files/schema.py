"""`Schema`: the features, targets and categories of a table, saved with the model.

A model that was trained from a file reads other files by the names of their columns.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from polyleaf.files.io import ReadError
from polyleaf.files.table import Table, abbreviate
from polyleaf.inputs.feature_table import CategoryColumn, DenseBlock, FeatureTable, SparseBlock
from polyleaf.inputs.multitask import get_task_name
from polyleaf.inputs.target import SMALL_N_CLASSES
from polyleaf.inputs.validation import find_stray_text, has_decimal_commas
from polyleaf.metrics._multitask import TASKS

__all__ = ["Schema", "decimal_comma_hint", "infer_task", "read_weights", "select_columns"]

MAX_INFERRED_CLASSES = 20
"""A target of at most this many distinct integers is inferred to be classification."""

_COLUMN_FIELDS = ("features", "targets", "categorical")
_MULTITASK = "tasks"
"""`Schema.task` of a multi-task model."""

_TASKS_KEY = "parts"
"""Key of `Schema.task_columns` in model files."""

_BOOLEAN_PAIRS = ({"0", "1"}, {"false", "true"}, {"no", "yes"}, {"n", "y"}, {"f", "t"})


@dataclass(frozen=True)
class Schema:
    """Columns that a model reads from a table.

    Attributes
    ----------
    task : {"regression", "classification", "multilabel", "tasks"}
        "tasks" stands for a multi-task model.
    features, targets : tuple of str
        Column names, in the order of the columns of `X` and `y`.
    categorical : tuple of str
        Categorical features, whose categories the model stores.
    offset : tuple of str
        Columns of offsets (base margins), if there are any.
    task_columns : tuple of (str, tuple of str)
        Kind and targets of each task of a multi-task model.
    """

    task: str
    features: tuple[str, ...]
    targets: tuple[str, ...]
    categorical: tuple[str, ...]
    offset: tuple[str, ...] = ()
    task_columns: tuple[tuple[str, tuple[str, ...]], ...] = ()

    @classmethod
    def from_tasks(
        cls,
        table: Table,
        task_columns: Sequence[tuple[str, tuple[str, ...]]],
        drop: Sequence[str] = (),
    ) -> Schema:
        """Make the schema of a multi-task model from its training data.

        Raises
        ------
        ReadError
            If no column is left, or two tasks have a target in common.
        """
        targets = [name for _, columns in task_columns for name in columns]
        shared = [name for name in targets if targets.count(name) > 1]
        if shared:
            raise ReadError(f"Column {shared[0]!r} is the target of two tasks; remove one of them.")
        schema = cls.from_table(table, targets, "regression", drop)
        return replace(schema, task=_MULTITASK, task_columns=tuple(task_columns))

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
    ) -> Schema:
        """Make the schema of a model from its training data.

        Every column that is not a target, an offset or dropped is a feature.

        Raises
        ------
        ReadError
            If no column is left, or the targets do not fit the task.
        """
        if task is not None and task not in TASKS:
            raise ReadError(f"Unknown task {task!r}; choose one of {', '.join(TASKS)}.")
        excluded = {*targets, *drop, *offset}
        features = tuple(name for name in table.names if name not in excluded)
        if not features:
            raise ReadError("No feature is left: every column is a target, an offset or dropped.")
        table.check_readable((*targets, *features, *offset))
        categorical = tuple(name for name in features if name in table.categories)
        task = task or infer_task(table, targets)
        return cls(task, features, tuple(targets), categorical, tuple(offset))

    def check_stray_text(self, table: Table, categorical: Sequence[str] = ()) -> None:
        """Reject numeric columns that a stray text cell made categorical.

        Parameters
        ----------
        table : Table
        categorical : sequence of str
            Columns that are declared categorical; they are not checked.

        Raises
        ------
        ReadError
            It names the column, the row and the cell.
        """
        for name in (*self.features, *self.targets):
            categories = table.categories.get(name, ())
            # A few class labels may well be numbers except for one.
            is_label = name in self.targets and len(categories) <= SMALL_N_CLASSES
            if not categories or name in categorical or is_label:
                continue
            codes = np.nan_to_num(table.column(name), nan=-1).astype(np.int64)
            stray = find_stray_text(codes, categories)
            if stray is not None:
                row, cell = stray
                raise ReadError(
                    f"Column {name!r} holds numbers, but row {row + 1} holds the text {cell!r}: "
                    "correct or empty this cell. If the column is a categorical feature, name it "
                    "with --categorical."
                )

    def read_features(self, table: Table) -> FeatureTable:
        """Return the features as estimators and `Dataset` take them, with names and categories.

        Raises
        ------
        ReadError
            If a dense table lacks a feature, or a numeric feature is text or infinite.
        """
        chosen = table.select(self.features)
        unexpected = [name for name in chosen.categories if name not in self.categorical]
        if unexpected:
            raise ReadError(
                f"Column {abbreviate([repr(name) for name in unexpected])} holds text, but it was "
                f"numeric in the training data.{decimal_comma_hint(chosen, unexpected)}"
            )
        chosen = chosen.convert_to_categorical(self.categorical)
        features = FeatureTable(chosen.n_rows, len(self.features), self.features)
        positions = np.arange(len(self.features), dtype=np.int64)
        is_categorical = np.isin(self.features, self.categorical)
        _add_numeric_columns(features, chosen, positions[~is_categorical])
        for i in positions[is_categorical]:
            name = self.features[i]
            codes = chosen.column(name)
            index = np.where(np.isnan(codes), -1, codes).astype(np.int32)
            features.categories.append(CategoryColumn(index, chosen.categories[name], int(i)))
        return features

    def read_targets(self, table: Table) -> Any:
        """Return `y`.

        Returns
        -------
        ndarray or dict of str to ndarray
            Regression: float64 (n,) or (n, K). Classification: labels (n,). Multi-label: int64
            indicators (n, K). Multi-task: the columns by name, where labels may be None (missing).

        Raises
        ------
        ReadError
            If a target is absent, or does not fit the task.
        """
        chosen = table.select(self.targets)
        if self.task == _MULTITASK:
            readers = {
                "classification": _read_labels_or_none,
                "multilabel": _read_indicator,
                "regression": _read_numbers,
            }
            return {
                name: readers[task](chosen, name)
                for task, columns in self.task_columns
                for name in columns
            }
        if self.task == "classification":
            return _read_labels(chosen, self.targets)
        read = _read_indicator if self.task == "multilabel" else _read_numbers
        columns = [read(chosen, name) for name in self.targets]
        is_vector = len(columns) == 1 and self.task == "regression"
        return columns[0] if is_vector else np.column_stack(columns)

    def read_offset(self, table: Table) -> np.ndarray | None:
        """Return the offsets, float64 (n,) or (n, m); None if the model has none.

        Raises
        ------
        ReadError
            If a column is absent, or has a cell that is missing or text.
        """
        if not self.offset:
            return None
        chosen = table.select(self.offset)
        columns = [_read_finite(chosen, name, "offset", "no offset") for name in self.offset]
        return columns[0] if len(columns) == 1 else np.column_stack(columns)

    def to_dict(self) -> dict[str, Any]:
        """Return the schema in JSON types; `from_dict` is the inverse."""
        fields = {"task": self.task, **{name: list(getattr(self, name)) for name in _COLUMN_FIELDS}}
        if self.offset:
            fields["offset"] = list(self.offset)
        if self.task_columns:
            fields[_TASKS_KEY] = [[task, list(columns)] for task, columns in self.task_columns]
        return fields

    @classmethod
    def from_dict(cls, fields: Any) -> Schema:
        """Return the schema of a dict of any origin; ValueError if it is not one of `to_dict`."""
        lists: list[Any] = [None]
        if isinstance(fields, Mapping):
            lists = [*(fields.get(name) for name in _COLUMN_FIELDS), fields.get("offset", [])]
        if not all(map(_is_list_of_str, lists)) or fields.get("task") not in (*TASKS, _MULTITASK):
            raise ValueError("The model file has no valid names of its training columns.")
        features, targets, categorical, offset = map(tuple, lists)
        task_columns = _parse_task_columns(fields.get(_TASKS_KEY, []))
        schema = cls(fields["task"], features, targets, categorical, offset, task_columns)
        task_targets = [name for _, columns in task_columns for name in columns]
        has_tasks = task_targets == (list(targets) if schema.task == _MULTITASK else [])
        if not set(categorical) <= set(features) or not targets or not has_tasks:
            raise ValueError("The names of training columns in the model file are inconsistent.")
        return schema


def _is_list_of_str(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


def _parse_task_columns(stored: Any) -> tuple[tuple[str, tuple[str, ...]], ...]:
    parsed = []
    for entry in stored if isinstance(stored, list) else [None]:
        task, columns = entry if isinstance(entry, list) and len(entry) == 2 else (None, [])
        is_valid = task in TASKS and _is_list_of_str(columns) and columns
        if not is_valid or (task == "classification" and len(columns) > 1):
            raise ValueError("The model file has no valid names of the columns of its tasks.")
        parsed.append((task, tuple(columns)))
    return tuple(parsed)


def decimal_comma_hint(table: Table, names: Sequence[str]) -> str:
    """Describe columns whose text is numbers with decimal commas, after a space; or return ""."""
    found = []
    for name in names:
        categories = table.categories.get(name, ())
        codes = table.column(name) if categories else np.empty(0)
        counts = np.bincount(codes[~np.isnan(codes)].astype(np.int64), minlength=len(categories))
        if has_decimal_commas(categories, counts):
            found.append(name)
    if not found:
        return ""
    return (
        f" The text in {abbreviate([repr(name) for name in found])} looks like numbers with "
        "decimal commas; use --decimal , to read them from a CSV file."
    )


def read_weights(table: Table, name: str) -> np.ndarray:
    """Return sample weights, float64 (n,).

    Raises
    ------
    ReadError
        If the column is absent, or has a cell that is missing, text or negative.
    """
    weights = _read_finite(table.select([name]), name, "weight", "a row to ignore")
    negative = np.flatnonzero(weights < 0)
    if negative.size:
        raise ReadError(
            f"Column {name!r} has negative weights in {_describe_rows(negative)}; weights must be "
            "0 or above."
        )
    return weights


def select_columns(table: Table, text: str, option: str) -> tuple[str, ...]:
    """Return the columns that a comma-separated list selects.

    Each part is a column name, a pattern (``label_*``), ``first:N`` or ``last:N``. A part that is
    the exact name of a column always selects that column.

    Raises
    ------
    ReadError
        If a part selects no column; the message begins with `option`.
    """
    chosen: dict[str, None] = {}
    for part in (part.strip() for part in text.split(",") if part.strip()):
        side, _, count = part.partition(":")
        if part in table.names:
            found: tuple[str, ...] = (part,)
        elif side in ("first", "last") and count.isdigit() and int(count) > 0:
            found = table.names[: int(count)] if side == "first" else table.names[-int(count) :]
        else:
            found = tuple(fnmatch.filter(table.names, part))
        if not found:
            raise ReadError(
                f"{option}: there is no column {part!r}; the columns are {abbreviate(table.names)}."
            )
        chosen.update(dict.fromkeys(found))
    return tuple(chosen)


def infer_task(table: Table, targets: Sequence[str]) -> str:
    """Infer the task from the targets.

    One text column, or one column of few distinct integers: classification. Several columns of 0
    and 1, or of yes and no: multilabel. Other numbers: regression.

    Raises
    ------
    ReadError
        If there are several text columns.
    """
    if len(targets) == 1:
        is_class = targets[0] in table.categories or _has_few_integers(table.column(targets[0]))
        return "classification" if is_class else "regression"
    if all(_is_indicator(table, name) for name in targets):
        return "multilabel"
    texts = [name for name in targets if name in table.categories]
    if texts:
        raise ReadError(
            "Several targets must all be numbers, or all be 0/1 labels, but "
            f"{abbreviate([repr(name) for name in texts])} holds text. For a multi-task model, "
            "name each target with --task."
        )
    return "regression"


def _has_few_integers(numbers: np.ndarray) -> bool:
    distinct = np.unique(numbers[~np.isnan(numbers)])
    return len(distinct) <= MAX_INFERRED_CLASSES and bool(np.all(distinct == np.round(distinct)))


def _is_indicator(table: Table, name: str) -> bool:
    if name in table.categories:
        return _find_boolean_pair(table.categories[name]) is not None
    return bool(np.isin(table.column(name), (0, 1)).all())


def _find_boolean_pair(categories: tuple[str, ...]) -> list[str] | None:
    """Return the words for no and yes in lower case, or None if the categories are others."""
    for pair in _BOOLEAN_PAIRS:
        if {category.lower() for category in categories} <= pair and categories:
            return sorted(pair)
    return None


def _read_indicator(table: Table, name: str) -> np.ndarray:
    codes = table.column(name)
    if not _is_indicator(table, name) or np.isnan(codes).any():
        raise ReadError(
            f"Column {name!r} is a multi-label target, so every row must hold 0 or 1 there."
        )
    if name not in table.categories:
        return codes.astype(np.int64)
    pair = _find_boolean_pair(table.categories[name]) or []
    values = np.array([pair.index(category.lower()) for category in table.categories[name]])
    return values[codes.astype(np.int64)]


def _read_numbers(table: Table, name: str) -> np.ndarray:
    if name not in table.categories:
        return table.column(name)
    try:
        values = np.array(table.categories[name], dtype=np.float64)
    except ValueError:
        hint = decimal_comma_hint(table, [name])
        raise ReadError(
            f"Column {name!r} holds text, but regression needs numbers.{hint}"
        ) from None
    codes = table.column(name)
    known = ~np.isnan(codes)
    numbers = np.full(len(codes), np.nan)
    numbers[known] = values[codes[known].astype(np.int64)]
    return numbers


def _read_finite(table: Table, name: str, noun: str, zero_meaning: str) -> np.ndarray:
    """Return a column of finite numbers; the noun says what they are, for messages."""
    if name in table.categories:
        hint = decimal_comma_hint(table, [name])
        raise ReadError(f"Column {name!r} holds text, but every {noun} must be a number.{hint}")
    values = table.column(name)
    missing = np.flatnonzero(~np.isfinite(values))
    if missing.size:
        raise ReadError(
            f"Column {name!r} has no {noun} in {_describe_rows(missing)}: each must be a finite "
            f"number; use 0 for {zero_meaning}."
        )
    return values


def _describe_rows(index: np.ndarray) -> str:
    """Return "row 7", or "row 7 and 2 more rows"."""
    more = f" and {index.size - 1} more row{'s' if index.size > 2 else ''}"
    return f"row {index[0] + 1}{more if index.size > 1 else ''}"


def _read_labels_or_none(table: Table, name: str) -> np.ndarray:
    """Return class labels, None where they are missing."""
    known = ~np.isnan(table.column(name))
    if known.all():
        return _read_labels(table, (name,))
    found = np.full(len(known), None, dtype=object)
    found[known] = _read_labels(table.take_rows(np.flatnonzero(known)), (name,)).tolist()
    return found


def _read_labels(table: Table, targets: tuple[str, ...]) -> np.ndarray:
    """Return class labels: str, or int64 if the column holds integers."""
    if len(targets) != 1:
        raise ReadError(
            f"Classification takes one target, not {len(targets)}; for several 0/1 columns use "
            "multilabel."
        )
    name = targets[0]
    values = table.column(name)
    missing = np.flatnonzero(np.isnan(values))
    if missing.size:
        raise ReadError(
            f"Column {name!r} has no label in {_describe_rows(missing)}; drop such rows or fill in "
            "their labels."
        )
    if name in table.categories:
        return np.array(table.categories[name])[values.astype(np.int64)]
    if not np.all(values == np.round(values)):
        raise ReadError(
            f"Column {name!r} holds fractional numbers, which cannot be class labels; use "
            "regression."
        )
    return values.astype(np.int64)


def _add_numeric_columns(features: FeatureTable, table: Table, positions: np.ndarray) -> None:
    """Add the numeric columns at `positions`, dense or sparse as they are."""
    if not len(positions):
        return
    values = table.values[:, positions]
    if isinstance(values, np.ndarray):
        infinite = np.isinf(values)
        if infinite.any():
            row, column = np.argwhere(infinite)[0]
            name = table.names[positions[column]]
            raise ReadError(
                f"Column {name!r} holds an infinite number in row {row + 1}; replace it by a "
                "finite one."
            )
        features.dense.append(DenseBlock(values, positions))
        return
    columns = sp.csc_matrix(values)
    if np.isinf(columns.data).any():
        raise ReadError("The file holds an infinite number; replace it by a finite one.")
    columns.sort_indices()
    indices, indptr = columns.indices.astype(np.int32), columns.indptr.astype(np.int64)
    features.sparse.append(SparseBlock(columns.data, indices, indptr, positions))
