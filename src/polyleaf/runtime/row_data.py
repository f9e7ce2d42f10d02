"""`RowData`: all that belongs to rows besides their features."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
import scipy.sparse
from sklearn.utils import _safe_indexing

if TYPE_CHECKING:
    from polyleaf.runtime.types import DataLike

ARGUMENTS = {
    "target": "y",
    "weight": "sample_weight",
    "offset": "offset",
    "groups": "groups",
    "time": "time",
    "query": "qid",
    "positions": "positions",
}
"""Arguments of `fit` by the attributes of `RowData` that hold them."""


@dataclass(frozen=True, eq=False)
class RowData:
    """Targets, weights, offsets, groups, times, queries and positions of rows.

    Objectives and metrics receive it. It is made where the data of a user is read, and carried as
    one object from there on.

    Attributes
    ----------
    target : ndarray of shape (n_rows, n_columns), class ids (n_rows,), or csr_matrix
        A missing target is 0 and has weight 0.
    weight : ndarray of shape (n_rows,) or (n_rows, n_columns), or None
        None: all 1.
    offset : ndarray of shape (n_rows, n_scores), or csr_matrix for sparse targets, or None
        Initial raw scores.
    groups : ndarray of shape (n_rows,), or None
        Groups that splits keep together.
    time : ndarray of shape (n_rows,), or None
        Splits train on earlier rows than they evaluate on.
    query : ndarray of shape (n_rows,), int64, or None
        Number of the query of each row, in any order: a ranking orders rows of the same number.
    positions : ndarray of shape (n_rows,), int64, or None
        Position at which each row was shown when it was clicked, or not.
    """

    target: Any = None
    weight: Any = None
    offset: Any = None
    groups: np.ndarray | None = None
    time: np.ndarray | None = None
    query: np.ndarray | None = None
    positions: np.ndarray | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the attributes that are not None, by name."""
        values = ((f.name, getattr(self, f.name)) for f in fields(RowData))
        return {name: value for name, value in values if value is not None}

    def add_offset(self, scores: object) -> Any:
        """Return raw `scores` (n_rows, n_scores) with the offset of the rows."""
        return scores if self.offset is None else scores + self.offset

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return int(self.target.shape[0])

    def replace(self, **values: Any) -> Self:
        """Return a copy with other `values` of attributes."""
        return replace(self, **values)

    def take(self, rows: np.ndarray) -> Self:
        """Return some `rows`, given by indices or a mask."""
        return replace(
            self, **{f.name: select_rows(getattr(self, f.name), rows) for f in fields(RowData)}
        )

    def keep_weights(self, rows: np.ndarray) -> Self:
        """Return all rows; only `rows`, given by indices or a mask, keep their weight."""
        weight = np.zeros(self.n_rows if self.weight is None else self.weight.shape, np.float32)
        weight[rows] = 1.0 if self.weight is None else self.weight[rows]
        return self.replace(weight=weight)

    def protect(self) -> Self:
        """Return the same rows in arrays that cannot be written to, for functions of users."""
        return self.replace(**{name: protect(values) for name, values in self.to_dict().items()})

    @classmethod
    def concatenate(cls, parts: Sequence[RowData]) -> RowData:
        """Return the rows of all `parts`, which are encoded alike."""
        columns = ([getattr(part, f.name) for part in parts] for f in fields(RowData))
        return cls(*map(_concatenate, columns))

    def _get_column_weights(self) -> np.ndarray:
        """Return the weight of each column of the target, (n_rows, n_columns), float32."""
        shape = self.n_rows, 1 if self.target.ndim == 1 else self.target.shape[1]
        if self.weight is None:
            return np.ones(shape, np.float32)
        return np.broadcast_to(self.weight.reshape(self.n_rows, -1), shape)

    def column(self, k: int) -> Self:
        """Return column `k` of the target, (n_rows,), with its weights."""
        weight = self.weight
        if weight is not None and weight.ndim == 2:
            weight = weight[:, min(k, weight.shape[1] - 1)]
        return replace(self, target=self.target[:, k], weight=weight)


class InitialScores(NamedTuple):
    """Scores of rows by an initial model, and the offset of the user that they are added to."""

    scores: Any
    offset: np.ndarray | None

    def take(self, rows: np.ndarray | slice) -> InitialScores:
        """Return some rows."""
        return InitialScores(*(select_rows(values, rows) for values in self))

    def scale(self, factor: float) -> Any:
        """Return the scores times a factor plus the offset, or None if there is neither."""
        if not factor:
            return self.offset
        scores = factor * self.scores
        return scores if self.offset is None else self.offset + scores


_SHARED = ("offset", "groups", "time", "query")


class TaskRows(RowData):
    """The rows of several tasks, each with targets and weights of its own.

    `tasks`: targets and weights of each task. `offset`, `groups`, `time`, `query`: see `RowData`;
    the tasks share them. `target` (n_rows, n_columns): columns of all tasks side by side, joined
    where they are read. `weight` (n_rows,): weights of these columns.
    """

    tasks: tuple[RowData, ...]

    def __init__(
        self,
        tasks: Sequence[RowData],
        offset: DataLike | None = None,
        groups: np.ndarray | None = None,
        time: np.ndarray | None = None,
        query: np.ndarray | None = None,
    ) -> None:
        values = zip(_SHARED, (offset, groups, time, query), strict=True)
        for name, value in (("tasks", tuple(tasks)), *values):
            object.__setattr__(self, name, value)

    @cached_property
    def target(self) -> np.ndarray:
        return np.hstack([t.target.reshape(t.n_rows, -1).astype(np.float64) for t in self.tasks])

    @cached_property
    def weight(self) -> np.ndarray | None:
        first, *others = [task.weight for task in self.tasks]
        if first is None or first.ndim == 1:
            if all(other is first or np.array_equal(other, first) for other in others):
                return first
        return np.hstack([task._get_column_weights() for task in self.tasks])

    @property
    def n_rows(self) -> int:
        return self.tasks[0].n_rows

    def replace(self, **values: object) -> TaskRows:
        current = {name: getattr(self, name) for name in ("tasks", *_SHARED)}
        return TaskRows(**(current | values))

    def take(self, rows: np.ndarray) -> TaskRows:
        return TaskRows(
            [task.take(rows) for task in self.tasks],
            *(select_rows(getattr(self, name), rows) for name in _SHARED),
        )

    def keep_weights(self, rows: np.ndarray) -> TaskRows:
        return self.replace(tasks=tuple(task.keep_weights(rows) for task in self.tasks))

    def protect(self) -> TaskRows:
        return self.replace(tasks=tuple(task.protect() for task in self.tasks))

    @classmethod
    def concatenate(cls, parts: Sequence[Any]) -> TaskRows:
        tasks = zip(*(part.tasks for part in parts), strict=True)
        shared = ([getattr(p, name) for p in parts] for name in _SHARED)
        return TaskRows([RowData.concatenate(task) for task in tasks], *map(_concatenate, shared))


def protect(values: Any) -> Any:
    """Return a view of an array that cannot be written to; other values are returned unchanged."""
    if isinstance(values, np.ndarray):
        values = values.view()
        values.flags.writeable = False
    return values


def _concatenate(parts: Sequence[Any]) -> Any:
    if parts[0] is None:
        return None
    if hasattr(parts[0], "tocsr"):
        return scipy.sparse.vstack(parts, format="csr")
    return np.concatenate(parts)


def select_rows(values: object, rows: np.ndarray | slice) -> Any:
    """Return some rows of an array, a data frame or a sparse matrix, or of each in a dict.

    None and numbers, which are the same for all rows, are returned unchanged.
    """
    if isinstance(values, np.ndarray) and values.ndim > 0:
        return values[rows]
    if isinstance(values, Mapping):
        return {name: select_rows(part, rows) for name, part in values.items()}
    if not hasattr(values, "__len__"):
        return values
    if hasattr(values, "get_indexer"):  # an index of pandas, of which some take no arrays of rows
        values = np.asarray(values)
    return _safe_indexing(values.tocsr() if hasattr(values, "tocsr") else values, rows)
