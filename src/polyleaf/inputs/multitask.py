"""Several targets of unlike kind -> one matrix: each encoded as it would be alone.

Owns: which columns of Y are a task's, what is not known of a row, and where a task's columns are in the
matrix. Must not know objectives, nor how a single target is encoded (`targets`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import numpy as np
import scipy.sparse

from polyleaf.inputs.frames import check_in_memory
from polyleaf.inputs.objects import get_missing_mask
from polyleaf.inputs.targets import Target, TargetEncoding, to_numpy

__all__ = [
    "TaskKey",
    "TaskColumns",
    "TaskEncodings",
    "TaskTarget",
    "encode_labelled_rows",
    "has_class_ids",
    "stack_task_targets",
    "get_task_name",
    "decode_target_encoding",
    "get_task_weight",
    "name_outputs",
]

TaskKey: TypeAlias = Hashable | tuple[Hashable, ...]
"""A column of Y, or several columns that are learned together."""


def get_task_name(key: TaskKey) -> str:
    """What a task is called."""
    return "+".join(map(str, key)) if isinstance(key, tuple) else str(key)


@dataclass(frozen=True)
class TaskColumns:
    """Y as the user gave it, a data frame or a dict: columns by name.

    Attributes
    ----------
    columns : mapping, or data frame
    name : str
        What messages call it.
    """

    columns: Any
    name: str = "Y"

    def __post_init__(self) -> None:
        check_in_memory(self.columns, self.name)
        if self.columns is None:
            raise ValueError(
                f"{self.name} is None: tasks are learned from a data frame, or a dict of arrays."
            )
        if self.names is None:
            raise ValueError(
                f"{self.name} is {type(self.columns).__name__} without names of columns: give a data frame, "
                "or a dict of arrays by the names of tasks."
            )

    @property
    def names(self) -> list[Any] | None:
        """Names of its columns, where they have any."""
        if isinstance(self.columns, Mapping):
            return list(self.columns)
        found = getattr(self.columns, "column_names", getattr(self.columns, "columns", None))
        return None if found is None else list(found)

    def select(self, key: TaskKey) -> Any:
        """The target of one task: a column, or for a tuple of names a matrix.

        Raises
        ------
        ValueError
            Where it does not exist.
        """
        names = self.names or []
        for part in key if isinstance(key, tuple) and key not in names else [key]:
            if part not in names:
                known = ", ".join(map(repr, names[:10])) + (", ..." if len(names) > 10 else "")
                raise ValueError(f"{self.name} has no column {part!r}; it has {known}.")
        if not isinstance(key, tuple) or key in names:
            return self.columns[key]
        if isinstance(self.columns, Mapping):
            return np.column_stack(
                [np.asarray(to_numpy(self.columns[part], self.name)) for part in key]
            )
        is_arrow = hasattr(self.columns, "column_names")
        return self.columns.select(list(key)) if is_arrow else self.columns[list(key)]


def get_task_weight(sample_weight: Any, key: TaskKey) -> Any:
    """The weights of one task: those of the rows, or its own of a dict or data frame, or none."""
    if isinstance(sample_weight, Mapping):
        return sample_weight.get(key)
    if getattr(sample_weight, "ndim", 1) == 2 and hasattr(sample_weight, "columns"):
        return sample_weight[key] if key in list(sample_weight.columns) else None
    return sample_weight


def name_outputs(target: Target, key: TaskKey) -> Target:
    """The target of several columns under the names that its key has."""
    if not isinstance(key, tuple) or target.encoding.n_outputs != len(key):
        return target
    return replace(target, encoding=replace(target.encoding, output_names=tuple(map(str, key))))


Missing = Literal["error", "ignore"]


def encode_labelled_rows(
    encode: Callable[[Any, Any], Target],
    y: Any,
    sample_weight: Any,
    missing: Missing,
    name: str = "y",
) -> Target:
    """Encode labels of which some rows have none: these get class 0 with weight 0.

    Parameters
    ----------
    encode : callable
        `encode(y, sample_weight)`, of rows that have a label.
    y : array-like of shape (n_rows,)
    sample_weight : array-like of shape (n_rows,), number or None
    missing : {"error", "ignore"}
    name : str
        What messages call y.
    """
    labels = np.asarray(to_numpy(y, name))
    known = np.ones(len(labels), bool) if missing == "error" else ~get_missing_mask(labels)
    if known.all():
        return encode(y, sample_weight)
    if not known.any():
        raise ValueError(
            f"{name} has no label in any row, so nothing can be learned for it: leave it out."
        )
    weight = (
        None if sample_weight is None else np.broadcast_to(np.asarray(sample_weight), known.shape)
    )
    found = encode(_plain_labels(labels[known]), None if weight is None else weight[known])
    values = np.zeros((len(known), *found.values.shape[1:]), found.values.dtype)
    values[known] = found.values
    counts = np.zeros(len(known), np.float32)
    counts[known] = 1.0 if found.weight is None else found.weight
    return replace(found, values=values, weight=counts)


def _plain_labels(labels: np.ndarray) -> np.ndarray:
    """Whole numbers that were made fractions for want of a missing whole number, as such again."""
    if labels.dtype.kind == "f" and (labels == np.round(labels)).all():
        return labels.astype(np.int64)
    return labels


@dataclass(frozen=True)
class TaskEncodings(TargetEncoding):
    """How several targets were encoded: what `TargetEncoding` is for one.

    Attributes
    ----------
    keys : tuple of TaskKey
        Which columns of Y each task is.
    encodings : tuple of TargetEncoding
    """

    kind: Literal["tasks"] = "tasks"  # type: ignore[assignment]
    n_outputs: int = 0
    one_dimensional: bool = False
    keys: tuple[TaskKey, ...] = ()
    encodings: tuple[TargetEncoding, ...] = ()

    @property
    def names(self) -> list[str]:
        """Names of the tasks."""
        return [get_task_name(key) for key in self.keys]

    @property
    def widths(self) -> list[int]:
        """Columns of each task in the matrix."""
        return [columns_of(encoding) for encoding in self.encodings]

    def encode(
        self, y: Any, sample_weight: Any = None, *, name: str = "Y", normalized: bool = True
    ) -> TaskTarget:
        columns = TaskColumns(y, name)
        found = []
        for key, encoding in zip(self.keys, self.encodings, strict=True):
            called = f"{get_task_name(key)!r} of {name}"

            def encode(
                of: Any, weight: Any, encoding: TargetEncoding = encoding, called: str = called
            ) -> Target:
                return encoding.encode(of, weight, name=called, normalized=normalized)

            data = columns.select(key), get_task_weight(sample_weight, key)
            has_labels = encoding.kind in ("binary", "multiclass")
            found.append(
                encode_labelled_rows(encode, *data, self.missing, called)
                if has_labels
                else encode(*data)
            )
        return stack_task_targets(self.keys, found, self.missing)

    def check_names(self, y: Any, sample_weight: Any, name: str) -> None:
        """Columns are looked up by name: nothing can be in another order."""

    def to_dict(self) -> dict[str, Any]:
        keys = [list(key) if isinstance(key, tuple) else key for key in self.keys]
        plain = (str, int)
        if not all(
            isinstance(part, plain)
            for key in keys
            for part in (key if isinstance(key, list) else [key])
        ):
            raise ValueError(
                "Names of tasks are written to model files where they are text or whole numbers."
            )
        return {
            "kind": self.kind,
            "one_dimensional": False,
            "missing": self.missing,
            "keys": keys,
            "tasks": [encoding.to_dict() for encoding in self.encodings],
        }


@dataclass(frozen=True)
class TaskTarget(Target):
    """Several encoded targets side by side.

    Attributes
    ----------
    values : ndarray of shape (n_rows, columns), float64
        Numbers, labels 0 or 1, numbers of classes. Missing values are 0.
    weight : ndarray of float32 or None
        `(n_rows,)` or `(n_rows, columns)`; zero where a value is missing.
    encoding : TaskEncodings
    """

    encoding: TaskEncodings

    def split_tasks(self) -> list[Target]:
        """The targets of the tasks, as they were encoded."""
        found, first = [], 0
        for encoding, width in zip(self.encoding.encodings, self.encoding.widths, strict=True):
            own = slice(first, first + width)
            values: np.ndarray = self.values[:, own]
            if has_class_ids(encoding):
                values = values[:, 0].astype(np.int32)
            weight = (
                self.weight if self.weight is None or self.weight.ndim == 1 else self.weight[:, own]
            )
            found.append(Target(values, weight, encoding))
            first += width
        return found

    def to_target_scale(self) -> np.ndarray:
        return np.column_stack([target.to_target_scale() for target in self.split_tasks()])

    def get_row_classes(self) -> np.ndarray | None:
        each = self.split_tasks()
        return each[0].get_row_classes() if len(each) == 1 else None

    def to_indicators(self) -> np.ndarray:
        """Outputs and labels, classes as indicators; of several tasks numbers over their deviation."""
        each = self.split_tasks()
        found = [_dense(target.to_indicators()) for target in each]
        if len(each) > 1:
            found = [
                columns / np.maximum(columns.std(axis=0), np.finfo(np.float32).tiny)
                if target.encoding.kind == "regression"
                else columns
                for target, columns in zip(each, found, strict=True)
            ]
        return np.hstack(found)

    def get_indicator_weights(self) -> np.ndarray | None:
        if self.weight is None or self.weight.ndim == 1:
            return self.weight
        return np.hstack([_as_wide(target) for target in self.split_tasks()])

    def get_indicator_names(self) -> list[str]:
        found = []
        for name, target in zip(self.encoding.names, self.split_tasks(), strict=True):
            parts = target.get_indicator_names()
            of_one = target.encoding.kind != "multiclass" and target.encoding.n_outputs == 1
            found += [name] if of_one else [f"{name} {part}" for part in parts]
        return found


def has_class_ids(encoding: TargetEncoding) -> bool:
    """Whether its values are numbers of classes, in one column."""
    return encoding.kind == "multiclass" and not encoding.one_vs_rest


def columns_of(encoding: TargetEncoding) -> int:
    """Columns of its values."""
    return 1 if has_class_ids(encoding) else encoding.n_outputs


def stack_task_targets(
    keys: Sequence[TaskKey], targets: Sequence[Target], missing: Missing
) -> TaskTarget:
    """Encoded targets side by side.

    Raises
    ------
    ValueError
        Where they have different numbers of rows.
    """
    names, n_rows = [get_task_name(key) for key in keys], targets[0].n_rows
    for name, target in zip(names, targets, strict=True):
        if target.n_rows != n_rows:
            raise ValueError(
                f"Task {names[0]!r} has {n_rows} rows, but task {name!r} has {target.n_rows}."
            )
    each = tuple(target.encoding for target in targets)
    offset, scale = _units(each)
    encoding = TaskEncodings(
        n_outputs=sum(map(columns_of, each)),
        output_names=None,
        offset=offset,
        scale=scale,
        missing=missing,
        keys=tuple(keys),
        encodings=each,
    )
    values = np.hstack([target.values.reshape(n_rows, -1).astype(np.float64) for target in targets])
    return TaskTarget(values, _weights(targets), encoding)


def _units(each: Sequence[TargetEncoding]) -> tuple[np.ndarray, np.ndarray] | tuple[None, None]:
    """Offset and scale of all columns, where some task has them."""
    if all(encoding.scale is None for encoding in each):
        return None, None
    offsets, scales = [], []
    for encoding in each:
        width = columns_of(encoding)
        offsets.append(np.zeros(width) if encoding.offset is None else encoding.offset)
        scales.append(np.ones(width) if encoding.scale is None else encoding.scale)
    return np.concatenate(offsets), np.concatenate(scales)


def _weights(targets: Sequence[Target]) -> np.ndarray | None:
    weights = [target.weight for target in targets]
    first = weights[0]
    if len(targets) == 1 or all(weight is None for weight in weights):
        return first
    if first is not None and first.ndim == 1:
        if all(weight is not None and np.array_equal(weight, first) for weight in weights):
            return first
    return np.hstack([_as_columns(target) for target in targets])


def _as_columns(target: Target) -> np.ndarray:
    """The weights of each of its columns, (n_rows, columns)."""
    shape = target.n_rows, columns_of(target.encoding)
    if target.weight is None:
        return np.ones(shape, np.float32)
    return np.broadcast_to(target.weight.reshape(len(target.weight), -1), shape)


def _as_wide(target: Target) -> np.ndarray:
    """The weights of each column of its indicators."""
    weights = _as_columns(target)
    return np.broadcast_to(
        weights, (target.n_rows, max(weights.shape[1], target.encoding.n_outputs))
    )


def _dense(values: Any) -> np.ndarray:
    return values.toarray() if scipy.sparse.issparse(values) else np.asarray(values)


def decode_target_encoding(fields: Mapping[str, Any], n_scores: int) -> TargetEncoding:
    """How the target of a model was encoded, or several, from its metadata of any origin.

    Raises
    ------
    ValueError
        Where these do not say so.
    """
    if fields.get("kind") != "tasks":
        return TargetEncoding.from_dict(fields, n_scores)
    keys: Any = fields.get("keys")
    tasks: Any = fields.get("tasks")
    missing: Any = fields.get("missing")
    lists = isinstance(keys, list) and isinstance(tasks, list) and len(keys) == len(tasks) > 0
    if (
        not lists
        or missing not in ("error", "ignore")
        or not all(isinstance(t, Mapping) for t in tasks)
    ):
        raise ValueError("The model does not say how its tasks were encoded.")
    found = tuple(tuple(key) if isinstance(key, list) else key for key in keys)
    for key in found:
        parts = key if isinstance(key, tuple) else (key,)
        if not parts or not all(
            isinstance(part, str | int) and not isinstance(part, bool) for part in parts
        ):
            raise ValueError("The model names a task by what is neither text nor a whole number.")
    each = tuple(TargetEncoding.from_dict(task, n_scores) for task in tasks)
    offset, scale = _units(each)
    return TaskEncodings(
        n_outputs=sum(map(columns_of, each)),
        offset=offset,
        scale=scale,
        missing=missing,
        keys=found,
        encodings=each,
    )
