"""`Schema`: which columns of a table a model reads, which it predicts, and what their categories mean.

Owns the way from a `Table` to features and `y`; it travels with a model that was trained from a file, so that
another file is read the same way whatever the order of its columns. Knows no estimator.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from polyleaf.files.io import ReadError
from polyleaf.files.table import Table, abbreviate
from polyleaf.inputs.features import CategoryColumn, DenseBlock, FeatureTable, SparseBlock
from polyleaf.inputs.multitask import get_task_name
from polyleaf.inputs.targets import FEW_CLASSES
from polyleaf.inputs.text import find_stray_text, has_decimal_commas
from polyleaf.metrics._multitask import TASKS

__all__ = ["Schema", "select_columns", "infer_task", "decimal_comma_hint", "read_weights"]

MAX_INFERRED_CLASSES = 20
"""A single column of whole numbers with at most this many different ones is taken for class labels."""

_COLUMNS = ("features", "targets", "categorical")
_OF_EACH = "tasks"
"""What `Schema.task` is where there are several, which `Schema.parts` has."""

_YES_NO = ({"0", "1"}, {"false", "true"}, {"no", "yes"}, {"n", "y"}, {"f", "t"})


@dataclass(frozen=True)
class Schema:
    """What a model expects of a table.

    Attributes
    ----------
    task : {"regression", "classification", "multilabel", "tasks"}
        The last: several of the others side by side.
    features, targets : tuple of str
        Column names, in the order of the columns of `X` and `y`.
    categorical : tuple of str
        Those features that are categories without order; the model knows them by name.
    offset : tuple of str
        Columns of raw scores that rows start from, if there are such.
    parts : tuple of (str, tuple of str)
        Of several tasks what each is, and its columns among the targets.
    """

    task: str
    features: tuple[str, ...]
    targets: tuple[str, ...]
    categorical: tuple[str, ...]
    offset: tuple[str, ...] = ()
    parts: tuple[tuple[str, tuple[str, ...]], ...] = ()

    @classmethod
    def from_tasks(
        cls, table: Table, parts: Sequence[tuple[str, tuple[str, ...]]], drop: Sequence[str] = ()
    ) -> Schema:
        """The schema of training data with several tasks: what each is, and its columns.

        Raises
        ------
        ReadError
            As `of`, and where two tasks share a column.
        """
        targets = [name for _, columns in parts for name in columns]
        twice = [name for name in targets if targets.count(name) > 1]
        if twice:
            raise ReadError(f"Column {twice[0]!r} is the target of two tasks; give it one of them.")
        whole = cls.from_table(table, targets, "regression", drop)
        return replace(whole, task=_OF_EACH, parts=tuple(parts))

    @property
    def each(self) -> dict[str, Schema]:
        """The schema of each of several tasks, by its name."""
        return {
            get_task_name(columns if len(columns) > 1 else columns[0]): replace(
                self, task=task, targets=columns, parts=()
            )
            for task, columns in self.parts
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
        """The schema of training data: every column that is neither target, offset nor dropped is a feature.

        Raises
        ------
        ReadError
            When no column is left, or the targets do not suit the task or any task.
        """
        if task is not None and task not in TASKS:
            raise ReadError(f"Task {task!r} is not known; there are {', '.join(TASKS)}.")
        taken = {*targets, *drop, *offset}
        features = tuple(name for name in table.names if name not in taken)
        if not features:
            raise ReadError("No column is left to learn from.")
        table.check_readable((*targets, *features, *offset))
        categorical = tuple(name for name in features if name in table.categories)
        task = task or infer_task(table, targets)
        return cls(task, features, tuple(targets), categorical, tuple(offset))

    def check_stray_text(self, table: Table, meant: Sequence[str] = ()) -> None:
        """Refuse columns of numbers that a stray cell has made text; `meant` are meant to be categories.

        Raises
        ------
        ReadError
            It names the column, the row and the cell.
        """
        for name in (*self.features, *self.targets):
            categories = table.categories.get(name, ())
            # Few labels may be numbers but for one.
            is_label = name in self.targets and len(categories) <= FEW_CLASSES
            if not categories or name in meant or is_label:
                continue
            codes = np.nan_to_num(table.column(name), nan=-1).astype(np.int64)
            stray = find_stray_text(codes, categories)
            if stray is not None:
                row, cell = stray
                raise ReadError(
                    f"The column {name!r} holds numbers, but row {row + 1} of the data holds the text "
                    f"{cell!r}, which would make categories of all of them: correct or empty the cell. "
                    "Features that are meant to be categories are named by --categorical."
                )

    def read_features(self, table: Table) -> FeatureTable:
        """The features as estimators and `Dataset` read them, with names and categories.

        Raises
        ------
        ReadError
            When a feature is missing in a dense table, is text where numbers were learned from, or is
            infinite.
        """
        chosen = table.select(self.features)
        unexpected = [name for name in chosen.categories if name not in self.categorical]
        if unexpected:
            raise ReadError(
                f"Column {abbreviate([repr(name) for name in unexpected])} holds text, "
                f"but the model learned from numbers there.{decimal_comma_hint(chosen, unexpected)}"
            )
        chosen = chosen.convert_to_categorical(self.categorical)
        features = FeatureTable(chosen.n_rows, len(self.features), self.features)
        positions = np.arange(len(self.features), dtype=np.int64)
        is_categorical = np.isin(self.features, self.categorical)
        _add_numbers(features, chosen, positions[~is_categorical])
        for i in positions[is_categorical]:
            name = self.features[i]
            codes = chosen.column(name)
            index = np.where(np.isnan(codes), -1, codes).astype(np.int32)
            features.categories.append(CategoryColumn(index, chosen.categories[name], int(i)))
        return features

    def read_targets(self, table: Table) -> Any:
        """`y`: float64 (n,) or (n, K) numbers, labels (n,), or int64 (n, K) indicators, by the task; of
        several tasks a dict of columns, in which labels may be missing (None).

        Raises
        ------
        ReadError
            When a target column is absent, or holds something else than the task asks for.
        """
        chosen = table.select(self.targets)
        if self.task == _OF_EACH:
            read_each = {
                "classification": _some_labels,
                "multilabel": _indicator,
                "regression": _numbers,
            }
            return {
                name: read_each[task](chosen, name)
                for task, columns in self.parts
                for name in columns
            }
        if self.task == "classification":
            return _labels(chosen, self.targets)
        read = _indicator if self.task == "multilabel" else _numbers
        columns = [read(chosen, name) for name in self.targets]
        return (
            columns[0]
            if len(columns) == 1 and self.task == "regression"
            else np.column_stack(columns)
        )

    def read_offset(self, table: Table) -> np.ndarray | None:
        """The scores that rows start from, (n,) or (n, m), float64; None where the model has none.

        Raises
        ------
        ReadError
            When a column of them is absent, or holds text or nothing somewhere.
        """
        if not self.offset:
            return None
        chosen = table.select(self.offset)
        columns = [
            _known_numbers(chosen, name, "an offset", ", 0 for none") for name in self.offset
        ]
        return columns[0] if len(columns) == 1 else np.column_stack(columns)

    def to_dict(self) -> dict[str, Any]:
        """The schema in JSON types; `from_dict` is the inverse. Without offsets, or parts, it says nothing of
        them."""
        fields = {n: v for n, v in asdict(self).items() if v or n not in ("offset", "parts")}
        found = {name: value if name == "task" else list(value) for name, value in fields.items()}
        return found | (
            {"parts": [[task, list(of)] for task, of in self.parts]} if self.parts else {}
        )

    @classmethod
    def from_dict(cls, fields: Any) -> Schema:
        """The inverse of `to_dict`, for fields of any origin; ValueError where they are no schema's."""
        of_offset = [fields.get("offset", [])] if isinstance(fields, Mapping) else []
        names: list[Any] = (
            [*(fields.get(name) for name in _COLUMNS), *of_offset] if of_offset else []
        )
        texts = all(
            isinstance(of, list) and all(isinstance(name, str) for name in of) for of in names
        )
        if not names or not texts or fields.get("task") not in (*TASKS, _OF_EACH):
            raise ValueError("The model does not say which columns it was trained from.")
        features, targets, categorical, offset = map(tuple, names)
        parts = _parts(fields.get("parts", []))
        schema = cls(fields["task"], features, targets, categorical, offset, parts)
        of_parts = [name for _, columns in schema.parts for name in columns]
        agree = of_parts == (list(schema.targets) if schema.task == _OF_EACH else [])
        if not set(schema.categorical) <= set(schema.features) or not schema.targets or not agree:
            raise ValueError("The model names columns that do not agree with each other.")
        return schema


def _parts(stored: Any) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """The parts of a file, checked."""
    found = []
    for part in stored if isinstance(stored, list) else [None]:
        task, columns = part if isinstance(part, list) and len(part) == 2 else (None, [])
        texts = (
            isinstance(columns, list) and columns and all(isinstance(name, str) for name in columns)
        )
        if task not in TASKS or not texts or (task == "classification" and len(columns) > 1):
            raise ValueError("The model does not say which columns its tasks were trained from.")
        found.append((task, tuple(columns)))
    return tuple(found)


def decimal_comma_hint(table: Table, names: Sequence[str]) -> str:
    """A sentence, after a space, about columns whose text is numbers with decimal commas; or nothing."""
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
        f" The text of {abbreviate([repr(name) for name in found])} is numbers with decimal commas: of a CSV "
        "file --decimal , reads them, where no other text is among them."
    )


def read_weights(table: Table, name: str) -> np.ndarray:
    """What each row counts for, float64 (n,).

    Raises
    ------
    ReadError
        When the column is absent, or holds text, nothing or a negative number somewhere.
    """
    weights = _known_numbers(
        table.select([name]), name, "a weight", ", 0 for a row that does not count"
    )
    negative = np.flatnonzero(weights < 0)
    if negative.size:
        raise ReadError(
            f"Column {name!r} has a negative weight in row {negative[0] + 1} (of {negative.size})."
        )
    return weights


def select_columns(table: Table, wanted: str, option: str) -> tuple[str, ...]:
    """The columns that a comma-separated list stands for.

    Each part is a column name, a pattern (``label_*``), ``first:N`` or ``last:N``. A part that is the exact
    name of a column always means that column.

    Raises
    ------
    ReadError
        When a part stands for no column; `option` is named in the message.
    """
    chosen: dict[str, None] = {}
    for part in (part.strip() for part in wanted.split(",") if part.strip()):
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
    """What kind of targets these are.

    One text column, or one column of few different whole numbers: classification. Several columns of
    nothing but 0 and 1 (or yes and no): multilabel. Numbers: regression.

    Raises
    ------
    ReadError
        For several columns of text.
    """
    if len(targets) == 1:
        is_class = targets[0] in table.categories or _is_few_whole_numbers(table.column(targets[0]))
        return "classification" if is_class else "regression"
    if all(_is_indicator(table, name) for name in targets):
        return "multilabel"
    texts = [name for name in targets if name in table.categories]
    if texts:
        raise ReadError(
            f"Several targets are learned together when all are numbers, or all are 0/1 labels; "
            f"{abbreviate([repr(name) for name in texts])} holds text. Targets of unlike kind are named one "
            "by one, by --task NAME for each."
        )
    return "regression"


def _is_few_whole_numbers(numbers: np.ndarray) -> bool:
    distinct = np.unique(numbers[~np.isnan(numbers)])
    return len(distinct) <= MAX_INFERRED_CLASSES and bool(np.all(distinct == np.round(distinct)))


def _is_indicator(table: Table, name: str) -> bool:
    if name in table.categories:
        return _yes_no(table.categories[name]) is not None
    return bool(np.isin(table.column(name), (0, 1)).all())


def _yes_no(categories: tuple[str, ...]) -> list[str] | None:
    """No and yes in the spelling of the column, or None when its categories mean something else."""
    for pair in _YES_NO:
        if {category.lower() for category in categories} <= pair and categories:
            return sorted(pair)
    return None


def _indicator(table: Table, name: str) -> np.ndarray:
    codes = table.column(name)
    if not _is_indicator(table, name) or np.isnan(codes).any():
        raise ReadError(
            f"Column {name!r} is a label of a multi-label task: every row needs 0 or 1 there."
        )
    if name not in table.categories:
        return codes.astype(np.int64)
    no_yes = _yes_no(table.categories[name]) or []
    meaning = np.array([no_yes.index(category.lower()) for category in table.categories[name]])
    return meaning[codes.astype(np.int64)]


def _numbers(table: Table, name: str) -> np.ndarray:
    if name not in table.categories:
        return table.column(name)
    try:
        values = np.array(table.categories[name], dtype=np.float64)
    except ValueError:
        hint = decimal_comma_hint(table, [name])
        raise ReadError(
            f"Column {name!r} holds text, but regression needs numbers there.{hint}"
        ) from None
    codes = table.column(name)
    known = ~np.isnan(codes)
    numbers = np.full(len(codes), np.nan)
    numbers[known] = values[codes[known].astype(np.int64)]
    return numbers


def _known_numbers(table: Table, name: str, what: str, none: str) -> np.ndarray:
    """A column of finite numbers; `what` they are, with its article, and which number stands for nothing."""
    if name in table.categories:
        hint = decimal_comma_hint(table, [name])
        raise ReadError(f"Column {name!r} holds text, but {what} is a number.{hint}")
    values = table.column(name)
    missing = np.flatnonzero(~np.isfinite(values))
    if missing.size:
        raise ReadError(
            f"Column {name!r} has no {what.split()[-1]} in row {missing[0] + 1} (of {missing.size}): it must "
            f"be a finite number{none}."
        )
    return values


def _some_labels(table: Table, name: str) -> np.ndarray:
    """Class labels, or None where they are missing."""
    known = ~np.isnan(table.column(name))
    if known.all():
        return _labels(table, (name,))
    found = np.full(len(known), None, dtype=object)
    found[known] = _labels(table.rows(np.flatnonzero(known)), (name,)).tolist()
    return found


def _labels(table: Table, targets: tuple[str, ...]) -> np.ndarray:
    """Class labels: str, or int64 when the column holds whole numbers."""
    if len(targets) != 1:
        raise ReadError(
            f"Classification has one target column, not {len(targets)}; several 0/1 ones are multilabel."
        )
    name = targets[0]
    values = table.column(name)
    missing = np.flatnonzero(np.isnan(values))
    if missing.size:
        raise ReadError(
            f"Column {name!r} has no label in row {missing[0] + 1} (of {missing.size} such rows)."
        )
    if name in table.categories:
        return np.array(table.categories[name])[values.astype(np.int64)]
    if not np.all(values == np.round(values)):
        raise ReadError(
            f"Column {name!r} holds numbers with fractions, which are no class labels; try regression."
        )
    return values.astype(np.int64)


def _add_numbers(features: FeatureTable, table: Table, positions: np.ndarray) -> None:
    """Move the numeric columns at `positions` over, dense or sparse as they are."""
    if not len(positions):
        return
    values = table.values[:, positions]
    if isinstance(values, np.ndarray):
        infinite = np.isinf(values)
        if infinite.any():
            row, column = np.argwhere(infinite)[0]
            name = table.names[positions[column]]
            raise ReadError(f"Column {name!r} holds an infinite number in row {row + 1}.")
        features.dense.append(DenseBlock(values, positions))
        return
    columns = sp.csc_matrix(values)
    if np.isinf(columns.data).any():
        raise ReadError("The file holds an infinite number.")
    columns.sort_indices()
    indices, indptr = columns.indices.astype(np.int32), columns.indptr.astype(np.int64)
    features.sparse.append(SparseBlock(columns.data, indices, indptr, positions))
