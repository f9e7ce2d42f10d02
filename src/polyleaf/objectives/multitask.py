"""Several losses in one model: each task has its own columns of the target and its own scores.

Gains are divided by the dispersion of a task, the mean of g^2 / h over its rows and scores, which
scales the likelihood of that loss (Wedderburn, "Quasi-likelihood functions, generalized linear
models, and the Gauss-Newton method", Biometrika 61, 1974). For squared error it is the variance of
the residuals, as if each task were a normal distribution whose deviation is estimated in every
round (Kendall, Gal and Cipolla, "Multi-task learning using uncertainty to weigh losses", CVPR
2018, with nothing to learn). Gains are also divided by the number of its scores, so that the gain
of a split by chance is the same for every task. Only the split search uses this scale; leaf values
depend on each task alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

import polyleaf._core as _core
from polyleaf.objectives._utils import (
    Floats,
    assign_columns,
    compute_derivatives,
    copy_columns,
    packed_lower,
    packed_size,
)
from polyleaf.objectives.base import Array, BoundObjective, FloatArray, Objective, as_weight
from polyleaf.runtime.context import Context
from polyleaf.runtime.row_data import RowData, TaskRows

TargetKind = Literal["values", "labels", "classes"]

# Keys of a task in model files, in the order of its fields.
_STORED_KEYS = ("name", "objective", "learns", "n_columns", "n_scores", "weight")


@dataclass(frozen=True)
class Task:
    """One task of a multi-task model."""

    name: str
    objective: Objective
    # {"values", "labels", "classes"}: one of its objective's `target_kinds`; "classes" are ids in
    # one column
    target_kind: TargetKind
    # n_columns, n_scores: number of its columns of the target, and of its raw scores
    n_columns: int
    n_scores: int
    weight: float = 1.0  # factor of its gains

    @property
    def n_predictions(self) -> int:
        """Number of columns that its link returns."""
        return self.n_columns if self.objective.has_distribution else self.n_scores

    def select_target(self, values: Array) -> Array:
        """Return its columns (n, n_columns) in the form that its objective takes."""
        if self.target_kind == "classes":
            return values[:, 0].astype(np.int32)
        dtype = np.float32 if self.target_kind == "labels" else values.dtype
        return np.ascontiguousarray(values, dtype)

    def to_dict(self) -> dict[str, object]:
        """Return the task as JSON values."""
        values = {**vars(self), "objective": self.objective.to_dict()}
        return dict(zip(_STORED_KEYS, values.values(), strict=True))


class TaskSlice(NamedTuple):
    """A task with its number, and the positions of its columns of the target, its raw scores and
    its predictions."""

    task: Task
    number: int
    columns: slice
    scores: slice
    predictions: slice

    def select_rows(self, rows: RowData) -> RowData:
        """Return the rows with its part of targets and weights."""
        if isinstance(rows, TaskRows):
            task_rows = rows.tasks[self.number]
            return task_rows.replace(groups=rows.groups, time=rows.time, query=rows.query)
        weight = rows.weight
        if weight is not None and weight.ndim == 2:
            weight = weight[:, self.columns]
        if weight is not None and weight.ndim == 2 and weight.shape[1] == 1:
            weight = weight[:, 0]
        target = self.task.select_target(np.asarray(rows.target)[:, self.columns])
        return rows.replace(target=target, weight=weight)


@dataclass(frozen=True)
class MultiTask(Objective):
    """Several tasks: `TaskRows`, or one float64 target (n, columns) with class ids as columns."""

    name: ClassVar[str] = "tasks"
    default_metric: ClassVar[str] = "d2"
    is_row_separable: ClassVar[bool] = False

    parts: tuple[Task, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "parts", tuple(self.parts))
        _check_tasks(self.parts)

    @cached_property
    def tasks(self) -> tuple[TaskSlice, ...]:
        ends = np.cumsum(
            [[p.n_columns, p.n_scores, p.n_predictions] for p in self.parts], axis=0
        ).tolist()
        begins = [[0, 0, 0], *ends]
        return tuple(
            TaskSlice(part, i, *map(slice, begin, end))
            for i, (part, begin, end) in enumerate(zip(self.parts, begins, ends, strict=False))
        )

    def _all(self, attribute: str) -> bool:
        return all(getattr(part.objective, attribute) for part in self.parts)

    @property
    def separable(self) -> bool:  # type: ignore[override]
        return self._all("separable")

    @property
    def has_default_metric(self) -> bool:  # type: ignore[override]
        return self._all("has_default_metric")

    @property
    def has_full_hessian(self) -> bool:  # type: ignore[override]
        return self._all("has_full_hessian")

    @property
    def is_translation_invariant(self) -> bool:  # type: ignore[override]
        """Offsets are subtracted from the target of a single such task; of several tasks they are
        added to the scores."""
        return len(self.parts) == 1 and self._all("is_translation_invariant")

    @property
    def updates_leaves(self) -> bool:  # type: ignore[override]
        return any(part.objective.updates_leaves for part in self.parts)

    @property
    def updates_leaves_distributed(self) -> bool:  # type: ignore[override]
        updating = [part.objective for part in self.parts if part.objective.updates_leaves]
        return all(objective.updates_leaves_distributed for objective in updating)

    @property
    def balances_totals(self) -> bool:  # type: ignore[override]
        return any(part.objective.balances_totals for part in self.parts)

    @property
    def link(self) -> None:
        """None: each task has its own link, and exported models return raw scores."""

    @property
    def has_constant_hessian(self) -> bool:
        return self._all("has_constant_hessian")

    def n_scores(self, n_targets: int) -> int:
        return sum(part.n_scores for part in self.parts)

    @property
    def offset_mask(self) -> tuple[bool, ...]:
        masks = ((part.objective.offset_mask, part.n_scores) for part in self.parts)
        return tuple(value for mask, n in masks for value in mask * (n // len(mask)))

    def outputs_per_target(self) -> int:
        return self.parts[0].objective.outputs_per_target() if len(self.parts) == 1 else 1

    def score_columns(self, n_scores: int) -> NDArray[np.intp]:
        columns = [
            np.zeros(part.n_scores, np.intp)
            if part.target_kind == "classes"
            else part.objective.score_columns(part.n_scores)
            for part in self.parts
        ]
        return np.concatenate(
            [place.columns.start + each for place, each in zip(self.tasks, columns, strict=True)]
        )

    def score_quantile_levels(self, n_scores: int) -> Floats:
        return np.concatenate(
            [part.objective.score_quantile_levels(part.n_scores) for part in self.parts]
        )

    def weigh_held_out(self, rows: RowData) -> RowData:
        if not isinstance(rows, TaskRows):
            return rows
        tasks = zip(self.parts, rows.tasks, strict=True)
        return rows.replace(
            tasks=tuple(part.objective.weigh_held_out(task) for part, task in tasks)
        )

    def bind(self, rows: RowData) -> BoundMultiTask:
        bound = []
        for place in self.tasks:
            try:
                bound.append(place.task.objective.bind(place.select_rows(rows)))
            except ValueError as error:
                raise ValueError(f"Task {place.task.name!r}: {error}") from None
        return BoundMultiTask(self, rows, bound)

    def transform(self, scores: FloatArray) -> FloatArray:
        return np.hstack(
            [place.task.objective.transform(scores[:, place.scores]) for place in self.tasks]
        )

    def score_scaling(self, scale: FloatArray, offset: FloatArray) -> tuple[FloatArray, FloatArray]:
        scalings: list[tuple[FloatArray, FloatArray]] = []
        for place in self.tasks:
            if place.task.target_kind == "values":
                k = place.columns
                scalings.append(place.task.objective.score_scaling(scale[k], offset[k]))
            else:
                scalings.append((np.ones(place.task.n_scores), np.zeros(place.task.n_scores)))
        factors, summands = zip(*scalings, strict=True)
        return np.concatenate(factors), np.concatenate(summands)

    def to_dict(self) -> dict[str, object]:
        return {"name": self.name, "parts": [part.to_dict() for part in self.parts]}


class BoundMultiTask(BoundObjective):
    """A `MultiTask` bound to data: a bound objective for each task."""

    objective: MultiTask

    def __init__(
        self, objective: MultiTask, rows: RowData, bound: Sequence[BoundObjective]
    ) -> None:
        super().__init__(objective, rows, sum(b.n_outputs for b in bound))
        weight = as_weight(rows, sum(part.n_columns for part in objective.parts))
        if weight is not None and weight.shape[1] > 1:
            columns = objective.score_columns(self.n_outputs)
            weight = np.take(weight, columns, axis=1)  # in C order, as the core takes it
        self.weight = weight
        self._bound = list(bound)

    @property
    def _slices(self) -> list[tuple[TaskSlice, BoundObjective]]:
        return list(zip(self.objective.tasks, self._bound, strict=True))

    def base_score(self, n_threads: int | Context = 1) -> Floats:
        return np.concatenate([bound.base_score(n_threads) for bound in self._bound])

    def set_base_score(self, base: Array) -> None:
        super().set_base_score(base)
        for place, bound in self._slices:
            bound.set_base_score(self.base[place.scores])

    @property
    def target_weight(self) -> NDArray[np.float32] | None:
        factors = [bound.target_weight for bound in self._bound]
        if all(factor is None for factor in factors):
            return None
        parts = []
        for factor, bound in zip(factors, self._bound, strict=True):
            values = np.ones((1, 1), np.float32) if factor is None else factor
            parts.append(np.broadcast_to(values, (self.n_rows, bound.n_outputs)))
        return np.hstack(parts)

    @property
    def updated_outputs(self) -> NDArray[np.bool_]:
        return np.concatenate([bound.updated_outputs for bound in self._bound])

    @property
    def zero_hessian_mask(self) -> NDArray[np.bool_]:
        return np.concatenate([bound.zero_hessian_mask for bound in self._bound])

    def hessian_shape(self) -> tuple[int, int] | None:
        if len(self._bound) == 1:
            return self._bound[0].hessian_shape()
        constant = all(bound.hessian_shape() is None for bound in self._bound)
        return None if constant else (self.n_rows, self.n_outputs)

    def derivatives(self, raw: Array, g: Array, h: Array | None, n_threads: int = 1) -> None:
        if len(self._bound) == 1:
            return self._bound[0].derivatives(raw, g, h, n_threads)
        for place, bound in self._slices:
            task_raw = copy_columns(raw, place.scores)
            task_g, task_h = compute_derivatives(bound, task_raw, n_threads)
            assign_columns(g, place.scores, task_g)
            if h is not None:
                hessian = np.float32(1.0) if task_h is None else task_h
                assign_columns(h, place.scores, np.broadcast_to(hessian, task_raw.shape))

    def expected_derivatives(self, raw: Array, n_threads: int = 1) -> tuple[FloatArray, FloatArray]:
        derivatives = [
            bound.expected_derivatives(copy_columns(raw, place.scores), n_threads)
            for place, bound in self._slices
        ]
        g, h = (np.hstack(parts) for parts in zip(*derivatives, strict=True))
        return g, h

    def full_hessian(self, raw: Array, g: Array, h: Array, n_threads: int = 1) -> None:
        if len(self._bound) == 1:
            return self._bound[0].full_hessian(raw, g, h, n_threads)
        h[...] = 0.0
        for place, bound in self._slices:
            task_raw, k = copy_columns(raw, place.scores), bound.n_outputs
            task_g = np.empty_like(task_raw)
            task_h = np.empty((self.n_rows, packed_size(k)), np.float32)
            bound.full_hessian(task_raw, task_g, task_h, n_threads)
            i, j = (place.scores.start + index for index in packed_lower(k))
            g[:, place.scores], h[:, i * (i + 1) // 2 + j] = task_g, task_h

    def gain_scale(self, g: Array, h: Array | None, n_threads: int = 1) -> Floats | None:
        if len(self._bound) == 1:
            return None
        # g and h contain the weight, but g^2 / h of a row times its weight is needed.
        unweighted = g if self._inverse_root is None else g * self._inverse_root
        squares = _core.column_energy(unweighted, n_threads)
        hessians = None if h is None else _core.column_energy(np.sqrt(h), n_threads)
        scale = np.empty(self.n_outputs)
        for place, _ in self._slices:
            square, n_scores = math.fsum(squares[place.scores]), place.task.n_scores
            hessian = (
                n_scores * self.n_rows if hessians is None else math.fsum(hessians[place.scores])
            )
            # A ratio of means, robust against rows of small Hessian; 1 if nothing is left to learn.
            dispersion = square / hessian if square > 0 and hessian > 0 else 1.0
            scale[place.scores] = math.sqrt(place.task.weight / (dispersion * n_scores))
        return scale

    @cached_property
    def _inverse_root(self) -> NDArray[np.float32] | None:
        """1 / sqrt(weight) of scores, (n, 1) or (n, K), 0 for weights of 0; None: all 1."""
        if self.weight is None:
            return None
        roots = np.sqrt(self.weight)
        return np.divide(1.0, roots, out=np.zeros_like(roots), where=roots > 0)

    def loss(self, raw: Array, n_threads: int = 1) -> float:
        losses = [
            bound.loss(copy_columns(raw, place.scores), n_threads) for place, bound in self._slices
        ]
        return float(sum(losses))

    def update_leaves(
        self,
        raw: Array,
        leaf_of_row: Array,
        n_leaves: int,
        rows: Array | None = None,
        multiplier: Array | None = None,
        n_threads: int | Context = 1,
        outputs: Array | None = None,
    ) -> NDArray[np.float32]:
        n_used = self.n_outputs if outputs is None else len(outputs)
        values = np.zeros((n_leaves, n_used), np.float32)
        for columns, bound, task_outputs in self._find_tasks(outputs):
            if bound.objective.updates_leaves:
                values[:, columns] = bound.update_leaves(
                    copy_columns(raw, columns),
                    leaf_of_row,
                    n_leaves,
                    rows,
                    multiplier,
                    n_threads,
                    task_outputs,
                )
        return values

    def _find_tasks(
        self, outputs: Array | None
    ) -> Iterator[tuple[slice, BoundObjective, NDArray[np.intp]]]:
        """Yield the tasks of some outputs, ascending: their columns among these outputs, and their
        outputs within the task."""
        used = np.arange(self.n_outputs) if outputs is None else outputs
        for place, bound in self._slices:
            begin, end = np.searchsorted(used, (place.scores.start, place.scores.stop)).tolist()
            if begin < end:
                yield slice(begin, end), bound, used[begin:end] - place.scores.start

    def find_unit_problem(self, max_steps: float, penalty: float, workers: Context) -> str | None:
        for place, bound in self._slices:
            problem = bound.find_unit_problem(max_steps, penalty, workers)
            if problem is not None:
                return f"Task {place.task.name!r}: {problem}"
        return None

    def find_balance(
        self,
        scores: Array,
        outputs: Array | None,
        workers: Context,
        leaf_of_row: Array,
        listing: NDArray[np.bool_] | None = None,
    ) -> NDArray[np.float64]:
        shift = np.zeros(scores.shape[1])
        for columns, bound, task_outputs in self._find_tasks(outputs):
            if bound.objective.balances_totals:
                shift[columns] = bound.find_balance(
                    copy_columns(scores, columns),
                    task_outputs,
                    workers,
                    leaf_of_row,
                    None if listing is None else listing[:, columns],
                )
        return shift


def multitask_from_dict(
    values: Mapping[str, object], make_objective: Callable[[Mapping[str, object]], Objective]
) -> MultiTask:
    """Return the objective of `MultiTask.to_dict`; `make_objective` reads the objective of a
    task."""
    stored = values.get("parts")
    if set(values) != {"name", "parts"} or not isinstance(stored, list | tuple):
        raise ValueError("Stored tasks are a list of parts.")
    parts = []
    for part in stored:
        if not isinstance(part, Mapping) or set(part) != set(_STORED_KEYS):
            raise ValueError(f"A stored task has {', '.join(_STORED_KEYS)}.")
        part = {**part, "objective": make_objective(part["objective"])}
        parts.append(Task(*(part[key] for key in _STORED_KEYS)))
    return MultiTask(tuple(parts))


def _check_tasks(parts: tuple[Task, ...]) -> None:
    names = [part.name for part in parts]
    if (
        not parts
        or not all(isinstance(name, str) for name in names)
        or len(set(names)) < len(names)
    ):
        raise ValueError(f"MultiTask must have different names, and be at least one; got {names}.")
    for part in parts:
        sizes = part.n_columns, part.n_scores
        if not all(type(n) is int and n > 0 for n in sizes):
            raise ValueError(
                f"Task {part.name!r} must have positive n_columns and n_scores; got {sizes}."
            )
        if part.objective.tasks or part.target_kind not in part.objective.target_kinds:
            raise ValueError(
                f"Task {part.name!r} cannot learn {part.target_kind!r} with this objective."
            )
        has_classes = part.target_kind == "classes"
        n_targets = part.n_scores if has_classes else part.n_columns
        if part.objective.n_scores(n_targets) != part.n_scores or (
            has_classes and part.n_columns > 1
        ):
            raise ValueError(
                f"Task {part.name!r} has a different number of scores than its objective."
            )
        is_number = isinstance(part.weight, int | float) and not isinstance(part.weight, bool)
        if not (is_number and np.isfinite(part.weight) and part.weight > 0):
            raise ValueError(
                f"The weight of task {part.name!r} must be finite and above 0; got {part.weight!r}."
            )
