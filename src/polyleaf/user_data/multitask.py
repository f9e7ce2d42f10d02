"""Targets of several tasks, encoded one by one."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
import scipy.sparse

from polyleaf.runtime.collective import SINGLE_PROCESS, Communicator
from polyleaf.runtime.row_data import RowData, TaskRows
from polyleaf.runtime.user_warnings import warn_user
from polyleaf.user_data.read_target import to_numpy
from polyleaf.user_data.target import Target, TargetEncoding, weigh_classes
from polyleaf.user_data.target_scaling import compute_mean_and_deviation
from polyleaf.user_data.validation import (
    abbreviate_names,
    check_in_memory,
    describe_type,
    get_missing_mask,
)

if TYPE_CHECKING:
    from polyleaf.runtime.types import JsonObject

TaskKey: TypeAlias = Hashable | tuple[Hashable, ...]
"""A column of Y, or several columns that form one target."""


def get_task_name(key: TaskKey) -> str:
    """Return the name of a task."""
    return "+".join(map(str, key)) if isinstance(key, tuple) else str(key)


@dataclass(frozen=True)
class TaskColumns:
    """The user's Y: columns by name."""

    columns: Any  # target columns
    name: str = "Y"  # name of Y in error messages

    def __post_init__(self) -> None:
        check_in_memory(self.columns, self.name)
        if self.names is None:
            kind = "None" if self.columns is None else describe_type(self.columns)
            raise ValueError(
                f"{self.name} is {kind} without column names: pass a data frame, or a dict from "
                "task names to arrays."
            )

    @property
    def names(self) -> list[TaskKey] | None:
        """Column names, or None."""
        if isinstance(self.columns, Mapping):
            return list(self.columns)
        columns = getattr(self.columns, "column_names", getattr(self.columns, "columns", None))
        return None if columns is None else list(columns)

    def select(self, key: TaskKey) -> Any:
        """Return the target of a task: a column, or a matrix for a tuple of names.

        Raises a ValueError if a column does not exist.
        """
        names = self.names or []
        for part in key if isinstance(key, tuple) and key not in names else [key]:
            if part not in names:
                raise ValueError(
                    f"{self.name} has no column {part!r}; its columns are "
                    f"{abbreviate_names(names)}."
                )
        if not isinstance(key, tuple) or key in names:
            return self.columns[key]
        if isinstance(self.columns, Mapping):
            return np.column_stack(
                [np.asarray(to_numpy(self.columns[part], self.name)) for part in key]
            )
        is_arrow = hasattr(self.columns, "column_names")
        return self.columns.select(list(key)) if is_arrow else self.columns[list(key)]


def get_task_weight(rows: RowData, key: TaskKey) -> Any:
    """Return the weights of a task: those of the rows, or its own in a dict or data frame."""
    sample_weight = rows.weight
    if isinstance(sample_weight, Mapping):
        return sample_weight.get(key)
    if getattr(sample_weight, "ndim", 1) == 2 and hasattr(sample_weight, "columns"):
        return sample_weight[key] if key in list(sample_weight.columns) else None
    return sample_weight


def check_task_names(names: Iterable[object], tasks: Iterable[object], argument: str) -> None:
    """Raise a ValueError for the first name that is no task."""
    tasks = list(tasks)
    for name in names:
        if name not in tasks:
            raise ValueError(
                f"{argument} names the task {name!r}; there are {abbreviate_names(tasks)}."
            )


def check_task_weights(rows: RowData, keys: Sequence[TaskKey], columns: TaskColumns) -> None:
    """Raise a ValueError for weights of what is no task; columns of no task may have some."""
    weight = rows.weight
    names = list(weight) if isinstance(weight, Mapping) else []
    if getattr(weight, "ndim", 1) == 2 and hasattr(weight, "columns"):
        names = list(weight.columns)
    parts = {part for key in keys for part in (key if isinstance(key, tuple) else [key])}
    ignored = set(columns.names or ()) - parts
    check_task_names([name for name in names if name not in ignored], keys, "sample_weight")


def name_outputs(target: Target, key: TaskKey) -> Target:
    """Name the outputs of a target of several columns by its key."""
    if not isinstance(key, tuple) or target.encoding.n_outputs != len(key):
        return target
    return replace(target, encoding=replace(target.encoding, output_names=tuple(map(str, key))))


def get_class_weight(class_weight: Any, name: str) -> object:
    """Return the class weights of one task; None: none."""
    if not isinstance(class_weight, Mapping):
        return class_weight
    return {get_task_name(key): weight for key, weight in class_weight.items()}.get(name)


def weigh_task_classes(target: TaskTarget, class_weight: Any) -> TaskTarget:
    """Multiply the weights of rows by those of their classes, in each task that has classes."""
    names, parts = target.encoding.names, target.split_tasks()
    if isinstance(class_weight, Mapping):
        check_task_names(map(get_task_name, class_weight), names, "class_weight")
    for i, name in enumerate(names):
        weight = get_class_weight(class_weight, name)
        if parts[i].encoding.kind != "regression" and weight is not None:
            parts[i] = weigh_classes(parts[i], weight)
        elif isinstance(class_weight, Mapping) and weight is not None:
            raise ValueError(f"class_weight has the task {name!r}, which learns numbers.")
    return target.replace_rows(tasks=tuple(part.rows for part in parts))


Missing = Literal["error", "ignore"]


def encode_labelled_rows(
    encode: Callable[[RowData], Target], rows: RowData, missing: Missing, name: str = "y"
) -> Target:
    """Encode labels; rows without a label get class 0 with weight 0.

    `encode`: `encode(rows)` for the rows with a label. `rows`: labels, and weights of rows or a
    number. `missing` {"error", "ignore"}: whether a missing label is an error. `name`: name of y in
    error messages.
    """
    labels, sample_weight = np.asarray(to_numpy(rows.target, name)), rows.weight
    known = np.ones(len(labels), bool) if missing == "error" else ~get_missing_mask(labels)
    if known.all():
        return encode(rows)
    if not known.any():
        raise ValueError(
            f"{name} has no label in any row, so nothing can be learned for it: remove it."
        )
    weight = (
        None if sample_weight is None else np.broadcast_to(np.asarray(sample_weight), known.shape)
    )
    used = RowData(_restore_integers(labels[known]), None if weight is None else weight[known])
    target = encode(used)
    values = np.zeros((len(known), *target.values.shape[1:]), target.values.dtype)
    values[known] = target.values
    all_weights = np.zeros(len(known), np.float32)
    all_weights[known] = 1.0 if target.weight is None else target.weight
    return target.replace_rows(target=values, weight=all_weights)


def _drop_new_labels(
    rows: RowData, encoding: TargetEncoding, missing: Missing, name: str
) -> tuple[RowData, Missing]:
    """Return rows without labels that training did not have: the other tasks of a row count."""
    labels = np.asarray(to_numpy(rows.target, name))
    if labels.ndim != 1 or encoding.classes is None:
        return rows, missing
    known = set(encoding.classes.tolist())
    is_new = np.array([label not in known for label in labels.tolist()], bool)
    is_new &= ~get_missing_mask(labels)
    if not is_new.any() or is_new.all():
        return rows, missing
    new = labels[is_new].tolist()[0]
    warn_user(
        f"{name} has labels that training did not have, such as {new!r}, in {is_new.sum()} rows: "
        "they count as missing."
    )
    labels = labels.astype(object)
    labels[is_new] = None
    return rows.replace(target=labels), "ignore"


def _restore_integers(labels: np.ndarray) -> np.ndarray:
    """Convert integers that are floats only because others were missing."""
    if labels.dtype.kind == "f" and (labels == np.round(labels)).all():
        return labels.astype(np.int64)
    return labels


@dataclass(frozen=True)
class TaskEncodings(TargetEncoding):
    """The encodings of several targets."""

    kind: Literal["tasks"] = "tasks"  # type: ignore[assignment]
    n_outputs: int = 0
    one_dimensional: bool = False
    keys: tuple[TaskKey, ...] = ()  # columns of Y of each task
    encodings: tuple[TargetEncoding, ...] = ()  # encoding of each task

    @property
    def names(self) -> list[str]:
        """Names of the tasks."""
        return [get_task_name(key) for key in self.keys]

    @property
    def widths(self) -> list[int]:
        """Number of columns of each task in the matrix."""
        return [_count_columns(encoding) for encoding in self.encodings]

    def encode(
        self,
        rows: RowData,
        *,
        name: str = "Y",
        normalized: bool = True,
        ranks: Communicator = SINGLE_PROCESS,
    ) -> TaskTarget:
        assert ranks.size == 1  # no Dask estimator has several tasks
        columns = TaskColumns(rows.target, name)
        check_task_weights(rows, self.keys, columns)
        targets = []
        for key, encoding in zip(self.keys, self.encodings, strict=True):
            task_name = f"{get_task_name(key)!r} of {name}"
            encode = partial(encoding.encode, name=task_name, normalized=normalized)
            task_rows = RowData(columns.select(key), get_task_weight(rows, key))
            if encoding.kind in ("binary", "multiclass"):
                task_rows, missing = _drop_new_labels(task_rows, encoding, self.missing, task_name)
                targets.append(encode_labelled_rows(encode, task_rows, missing, task_name))
            else:
                targets.append(encode(task_rows))
        return join_task_targets(self.keys, targets, self.missing)

    def replace_missing(self, missing: Literal["error", "ignore"]) -> TaskEncodings:
        encodings = tuple(encoding.replace_missing(missing) for encoding in self.encodings)
        return replace(self, missing=missing, encodings=encodings)

    def widen_tasks(
        self, rows: RowData, ranks: Communicator
    ) -> list[tuple[TargetEncoding, np.ndarray]]:
        """Return what `widen` returns for each task: classes may be new, but no columns."""
        columns, widened = TaskColumns(rows.target, "Y"), []
        for key, encoding in zip(self.keys, self.encodings, strict=True):
            name = f"{get_task_name(key)!r} of Y"
            part = encoding, np.arange(encoding.n_outputs)
            if encoding.kind in ("binary", "multiclass"):
                labels = np.asarray(to_numpy(columns.select(key), name))
                known = _restore_integers(labels[~get_missing_mask(labels)])
                part = encoding.widen(RowData(known), name, ranks)
            widened.append(part)
        return widened

    def check_names(self, rows: RowData, name: str) -> None:
        """Do nothing: columns are looked up by name."""

    def to_dict(self) -> JsonObject:
        for key in self.keys:
            parts = key if isinstance(key, tuple) else (key,)
            if not all(isinstance(part, (str, int)) for part in parts):
                raise ValueError(
                    f"The task name {key!r} cannot be written to a model file: use text or "
                    "integers."
                )
        return {
            "kind": self.kind,
            "one_dimensional": False,
            "missing": self.missing,
            "keys": [list(key) if isinstance(key, tuple) else key for key in self.keys],
            "tasks": [encoding.to_dict() for encoding in self.encodings],
        }


@dataclass(frozen=True)
class TaskTarget(Target):
    """The targets of several tasks."""

    rows: TaskRows  # targets and weights of each task
    encoding: TaskEncodings  # encodings of the tasks

    @property
    def is_sparse(self) -> bool:
        return False

    def split_tasks(self) -> list[Target]:
        """Return the target of each task."""
        parts = zip(self.rows.tasks, self.encoding.encodings, strict=True)
        return [Target(rows, encoding) for rows, encoding in parts]

    def subtract_offset(self, outputs_per_target: int) -> TaskTarget:
        (target,) = self.split_tasks()  # the offsets of several tasks are added to the scores
        shifted = target.replace_rows(offset=self.rows.offset).subtract_offset(outputs_per_target)
        return self.replace_rows(tasks=(shifted.rows.replace(offset=None),))

    def to_target_rows(self) -> TaskRows:
        return self.rows.replace(tasks=tuple(t.to_target_rows() for t in self.split_tasks()))

    def to_target_scale(self) -> np.ndarray:
        return np.column_stack([target.to_target_scale() for target in self.split_tasks()])

    def get_row_classes(self) -> np.ndarray | None:
        targets = self.split_tasks()
        return targets[0].get_row_classes() if len(targets) == 1 else None

    def to_indicators(self) -> np.ndarray:
        """Return outputs, labels and class indicators; several tasks are standardised."""
        targets = self.split_tasks()
        blocks = []
        for target in targets:
            block = target.to_indicators()
            block = block.toarray() if scipy.sparse.issparse(block) else np.asarray(block)
            if len(targets) > 1 and target.encoding.kind == "regression":
                deviation = compute_mean_and_deviation(RowData(block))[1]
                block = block / np.maximum(deviation, np.finfo(np.float32).tiny)
            blocks.append(block)
        return np.hstack(blocks)

    def get_indicator_weights(self) -> np.ndarray | None:
        if self.weight is None or self.weight.ndim == 1:
            return self.weight
        return np.hstack([_get_indicator_weights(target) for target in self.split_tasks()])

    def get_indicator_names(self) -> list[str]:
        names = []
        for name, target in zip(self.encoding.names, self.split_tasks(), strict=True):
            is_single = target.encoding.kind != "multiclass" and target.encoding.n_outputs == 1
            parts = target.get_indicator_names()
            names += [name] if is_single else [f"{name} {part}" for part in parts]
        return names


def _count_columns(encoding: TargetEncoding) -> int:
    """Return the number of columns of the values."""
    return 1 if encoding.has_class_ids else encoding.n_outputs


def join_task_targets(
    keys: Sequence[TaskKey], targets: Sequence[Target], missing: Missing
) -> TaskTarget:
    """Join encoded targets.

    Raises a ValueError if they have different numbers of rows.
    """
    names, n_rows = [get_task_name(key) for key in keys], targets[0].n_rows
    for name, target in zip(names, targets, strict=True):
        if target.n_rows != n_rows:
            raise ValueError(
                f"Task {names[0]!r} has {n_rows} rows, but task {name!r} has {target.n_rows}."
            )
        if target.encoding.has_class_ids and target.values.ndim == 2:
            raise ValueError(
                f"Task {name!r} has a matrix of shares of classes, but needs one class per row: "
                "shares are learned by PolyleafClassifier."
            )
    encodings = tuple(target.encoding for target in targets)
    offset, scale = _concatenate_scales(encodings)
    encoding = TaskEncodings(
        n_outputs=sum(map(_count_columns, encodings)),
        output_names=None,
        offset=offset,
        scale=scale,
        missing=missing,
        keys=tuple(keys),
        encodings=encodings,
    )
    return TaskTarget(TaskRows([target.rows for target in targets]), encoding)


def _concatenate_scales(
    encodings: Sequence[TargetEncoding],
) -> tuple[np.ndarray, np.ndarray] | tuple[None, None]:
    """Return offset and scale of all columns, if some task is scaled."""
    if all(encoding.scale is None for encoding in encodings):
        return None, None
    offsets, scales = [], []
    for encoding in encodings:
        width = _count_columns(encoding)
        offsets.append(np.zeros(width) if encoding.offset is None else encoding.offset)
        scales.append(np.ones(width) if encoding.scale is None else encoding.scale)
    return np.concatenate(offsets), np.concatenate(scales)


def _get_indicator_weights(target: Target) -> np.ndarray:
    """Return the weights of each column of the indicators."""
    weights = target.rows._get_column_weights()
    n_columns = max(weights.shape[1], target.encoding.n_outputs)
    return np.broadcast_to(weights, (target.n_rows, n_columns))


def _is_task_key(key: object) -> bool:
    """Whether a key is a name of a task in a file: text, an integer, or a list of these."""
    parts = key if isinstance(key, list) else [key]
    return len(parts) > 0 and all(
        isinstance(part, str | int) and not isinstance(part, bool) for part in parts
    )


def decode_target_encoding(fields: Mapping[str, object], n_scores: int) -> TargetEncoding:
    """Return the encoding of a model's target, or targets, from untrusted metadata.

    Raises a ValueError if the metadata describe none.
    """
    if fields.get("kind") != "tasks":
        return TargetEncoding.from_dict(fields, n_scores)
    keys: Any = fields.get("keys")
    tasks: Any = fields.get("tasks")
    missing: Any = fields.get("missing")
    is_valid = isinstance(keys, list) and isinstance(tasks, list) and len(keys) == len(tasks) > 0
    is_valid = (
        is_valid
        and missing in ("error", "ignore")
        and all(isinstance(task, Mapping) for task in tasks)
        and all(_is_task_key(key) for key in keys)
    )
    if not is_valid:
        raise ValueError("The model has no valid encoding of its tasks.")
    task_keys = tuple(tuple(key) if isinstance(key, list) else key for key in keys)
    encodings = tuple(TargetEncoding.from_dict(task, n_scores) for task in tasks)
    offset, scale = _concatenate_scales(encodings)
    return TaskEncodings(
        n_outputs=sum(map(_count_columns, encodings)),
        offset=offset,
        scale=scale,
        missing=missing,
        keys=task_keys,
        encodings=encodings,
    )
