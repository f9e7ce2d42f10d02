"""Several losses in one model: tasks side by side, each with columns of the target and scores of its own.

Owns where a task's columns and scores are, and the unit in which gains of unlike losses add up. Must not know
any particular loss.

Gains are divided by the dispersion of a task, the mean of g^2 / h over its rows and scores: what a likelihood
of that loss is scaled by (Wedderburn, "Quasi-likelihood functions, generalized linear models, and the
Gauss-Newton method", Biometrika 61, 1974). For squared error it is the variance of the residuals, as if each
task were a normal distribution whose deviation is found anew in every round (Kendall, Gal and Cipolla,
"Multi-task learning using uncertainty to weigh losses", CVPR 2018, with nothing to learn). And by the number
of its scores: so what chance alone would gain by a split is the same for every task. Only splits are judged
in this unit; leaf values are those of each task alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

import polyleaf._core as _core
from polyleaf.objectives.base import Array, BoundObjective, FloatArray, Objective, as_weight
from polyleaf.objectives.columns import assign_columns, copy_columns
from polyleaf.objectives.packed_symmetric import packed_lower, packed_size
from polyleaf.runtime.context import Context

__all__ = ["TaskSlice", "Task", "MultiTask"]

Learns = Literal["values", "labels", "classes"]


@dataclass(frozen=True)
class Task:
    """One of several things that a model learns.

    Attributes
    ----------
    name : str
    objective : Objective
    learns : {"values", "labels", "classes"}
        Which of its objective's `target_kinds`; "classes" are numbers in one column.
    n_columns, n_scores : int
        Columns of the target, and raw scores, that are its own.
    weight : float
        What its gains count, beside those of the others.
    """

    name: str
    objective: Objective
    learns: Learns
    n_columns: int
    n_scores: int
    weight: float = 1.0

    @property
    def n_predictions(self) -> int:
        """Columns of what its link makes of its scores."""
        return self.n_columns if self.objective.has_distribution else self.n_scores

    def select_target(self, values: Array) -> Array:
        """Its columns (n, n_columns) as its objective takes them."""
        if self.learns == "classes":
            return values[:, 0].astype(np.int32)
        return np.ascontiguousarray(values, np.float32 if self.learns == "labels" else values.dtype)

    def to_dict(self) -> dict[str, Any]:
        """As JSON values."""
        return {**vars(self), "objective": self.objective.to_dict()}


class TaskSlice(NamedTuple):
    """A task, and where its columns of the target, its raw scores and its predictions are."""

    task: Task
    columns: slice
    scores: slice
    predictions: slice

    def weight_of(self, weight: Array | None) -> Array | None:
        """Its part of weights (n,) or (n, columns)."""
        return weight if weight is None or weight.ndim == 1 else weight[:, self.columns]


@dataclass(frozen=True)
class MultiTask(Objective):
    """Several tasks side by side. What it learns from is float64 (n, columns); numbers of classes are such,
    too.

    Parameters
    ----------
    parts : sequence of Task
    """

    name: ClassVar[str] = "tasks"
    default_metric: ClassVar[str] = "d2"
    is_row_separable: ClassVar[bool] = False

    parts: tuple[Task, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "parts", tuple(self.parts))
        _check(self.parts)

    @cached_property
    def tasks(self) -> tuple[TaskSlice, ...]:  # type: ignore[override]
        ends = np.cumsum(
            [[p.n_columns, p.n_scores, p.n_predictions] for p in self.parts], axis=0
        ).tolist()
        begins = [[0, 0, 0], *ends]
        return tuple(
            TaskSlice(part, *map(slice, begin, end))
            for part, begin, end in zip(self.parts, begins, ends, strict=False)
        )

    def _all(self, trait: str) -> bool:
        return all(getattr(part.objective, trait) for part in self.parts)

    def _any(self, trait: str) -> bool:
        return any(getattr(part.objective, trait) for part in self.parts)

    @property
    def separable(self) -> bool:  # type: ignore[override]
        return self._all("separable")

    @property
    def full_hessian(self) -> bool:  # type: ignore[override]
        return self._all("full_hessian")

    @property
    def is_translation_invariant(self) -> bool:  # type: ignore[override]
        """Offsets are taken off the target of one such task; of several they are added to scores."""
        return len(self.parts) == 1 and self._all("is_translation_invariant")

    @property
    def updates_leaves(self) -> bool:  # type: ignore[override]
        return self._any("updates_leaves")

    @property
    def updates_leaves_distributed(self) -> bool:  # type: ignore[override]
        return all(
            p.objective.updates_leaves_distributed for p in self.parts if p.objective.updates_leaves
        )

    @property
    def link(self) -> None:
        """Each task has its own: what leaves this package are raw scores."""

    @property
    def has_constant_hessian(self) -> bool:
        return self._all("has_constant_hessian")

    def n_scores(self, n_targets: int) -> int:
        return sum(part.n_scores for part in self.parts)

    def outputs_per_target(self) -> int:
        return self.parts[0].objective.outputs_per_target() if len(self.parts) == 1 else 1

    def score_columns(self, n_scores: int) -> NDArray[np.intp]:
        return np.concatenate(
            [
                np.zeros(part.n_scores, np.intp) + place.columns.start
                if part.learns == "classes"
                else part.objective.score_columns(part.n_scores) + place.columns.start
                for place in self.tasks
                for part in [place.task]
            ]
        )

    def score_quantile_levels(self, n_scores: int) -> NDArray[np.float64]:
        return np.concatenate(
            [part.objective.score_quantile_levels(part.n_scores) for part in self.parts]
        )

    def bind(self, target: Array, weight: Array | None) -> BoundMultiTask:
        problems = []
        for place in self.tasks:
            own = place.task.select_target(np.asarray(target)[:, place.columns])
            try:
                problems.append(place.task.objective.bind(own, place.weight_of(weight)))
            except ValueError as error:
                raise ValueError(f"Task {place.task.name!r}: {error}") from None
        return BoundMultiTask(self, problems, weight)

    def transform(self, scores: FloatArray) -> FloatArray:
        return np.hstack(
            [place.task.objective.transform(scores[:, place.scores]) for place in self.tasks]
        )

    def score_scaling(self, scale: FloatArray, offset: FloatArray) -> tuple[FloatArray, FloatArray]:
        found: list[tuple[FloatArray, FloatArray]] = []
        for place in self.tasks:
            if place.task.learns == "values":
                own = place.columns
                found.append(place.task.objective.score_scaling(scale[own], offset[own]))
            else:
                found.append((np.ones(place.task.n_scores), np.zeros(place.task.n_scores)))
        return np.concatenate([scale for scale, _ in found]), np.concatenate(
            [offset for _, offset in found]
        )

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.name, "parts": [part.to_dict() for part in self.parts]}


class BoundMultiTask(BoundObjective):
    """`MultiTask` bound to data: a problem for each."""

    objective: MultiTask

    def __init__(
        self, objective: MultiTask, problems: Sequence[BoundObjective], weight: Array | None
    ) -> None:
        n_rows = problems[0].n_rows
        super().__init__(objective, n_rows, sum(p.n_outputs for p in problems), weight)
        self._problems = list(problems)
        self._row_weight = as_weight(
            weight, n_rows, sum(part.n_columns for part in objective.parts)
        )

    @property
    def _placed(self) -> list[tuple[TaskSlice, BoundObjective]]:
        return list(zip(self.objective.tasks, self._problems, strict=True))

    def base_score(self, n_threads: int = 1) -> NDArray[np.float64]:
        return np.concatenate([problem.base_score(n_threads) for problem in self._problems])

    def set_base_score(self, base: Array) -> None:
        super().set_base_score(base)
        for place, problem in self._placed:
            problem.set_base_score(self.base[place.scores])

    @property
    def updated_outputs(self) -> NDArray[np.bool_]:
        return np.concatenate([problem.updated_outputs for problem in self._problems])

    @property
    def zero_hessian_mask(self) -> NDArray[np.bool_]:
        return np.concatenate([problem.zero_hessian_mask for problem in self._problems])

    def hessian_shape(self) -> tuple[int, int] | None:
        if len(self._problems) == 1:
            return self._problems[0].hessian_shape()
        constant = all(problem.hessian_shape() is None for problem in self._problems)
        return None if constant else (self.n_rows, self.n_outputs)

    def derivatives(self, raw: Array, g: Array, h: Array | None, n_threads: int = 1) -> None:
        if len(self._problems) == 1:
            return self._problems[0].derivatives(raw, g, h, n_threads)
        for place, problem in self._placed:
            own = copy_columns(raw, place.scores)
            shape, own_g = problem.hessian_shape(), np.empty_like(own)
            own_h = None if shape is None else np.empty(shape, np.float32)
            problem.derivatives(own, own_g, own_h, n_threads)
            assign_columns(g, place.scores, own_g)
            if h is not None:
                assign_columns(
                    h, place.scores, np.broadcast_to(1.0 if own_h is None else own_h, own.shape)
                )

    def full_hessian(self, raw: Array, g: Array, h: Array, n_threads: int = 1) -> None:
        if len(self._problems) == 1:
            return self._problems[0].full_hessian(raw, g, h, n_threads)
        h[...] = 0.0
        for place, problem in self._placed:
            own, k = copy_columns(raw, place.scores), problem.n_outputs
            own_g, own_h = np.empty_like(own), np.empty((self.n_rows, packed_size(k)), np.float32)
            problem.full_hessian(own, own_g, own_h, n_threads)
            i, j = (place.scores.start + index for index in packed_lower(k))
            g[:, place.scores], h[:, i * (i + 1) // 2 + j] = own_g, own_h

    def gain_scale(
        self, g: Array, h: Array | None, n_threads: int = 1
    ) -> NDArray[np.float64] | None:
        if len(self._problems) == 1:
            return None
        # The weight is in g and in h: what is wanted is weight times g^2 / h of a row without it.
        each = g if self._over_root is None else g * self._over_root
        squares = _core.column_energy(each, n_threads)
        bends = None if h is None else _core.column_energy(np.sqrt(h), n_threads)
        unit = np.empty(self.n_outputs)
        for place, _ in self._placed:
            of_task, n_scores = math.fsum(squares[place.scores]), place.task.n_scores
            bend = n_scores * self.n_rows if bends is None else math.fsum(bends[place.scores])
            # A ratio of means, which no row of small curvature upsets; 1 where nothing is left to learn.
            dispersion = of_task / bend if of_task > 0 and bend > 0 else 1.0
            unit[place.scores] = math.sqrt(place.task.weight / (dispersion * n_scores))
        return unit

    @cached_property
    def _over_root(self) -> NDArray[np.float32] | None:
        """1 / the root of the weights of scores, (n, 1) or (n, K), 0 for weights of 0; None: all 1."""
        weight = self._row_weight
        if weight is None:
            return None
        if weight.shape[1] > 1:
            weight = weight[:, self.objective.score_columns(self.n_outputs)]
        roots = np.sqrt(weight)
        return np.divide(1.0, roots, out=np.zeros_like(roots), where=roots > 0)

    def loss(self, raw: Array, n_threads: int = 1) -> float:
        losses = [
            problem.loss(copy_columns(raw, place.scores), n_threads)
            for place, problem in self._placed
        ]
        return float(sum(losses))

    def update_leaves(
        self,
        raw: Array,
        leaf_of_row: Array,
        n_leaves: int,
        rows: Array | None = None,
        n_threads: int | Context = 1,
    ) -> NDArray[np.float32]:
        values = np.zeros((n_leaves, self.n_outputs), np.float32)
        for place, problem in self._placed:
            if problem.objective.updates_leaves:
                own = copy_columns(raw, place.scores)
                values[:, place.scores] = problem.update_leaves(
                    own, leaf_of_row, n_leaves, rows, n_threads
                )
        return values


def multitask_from_dict(values: Mapping[str, Any], objective_of: Any) -> MultiTask:
    """The inverse of `MultiTask.to_dict`; `objective_of` makes an objective of what is stored of it."""
    stored = values.get("parts")
    if set(values) != {"name", "parts"} or not isinstance(stored, list | tuple):
        raise ValueError("Stored tasks are a list of parts.")
    parts = []
    for part in stored:
        if not isinstance(part, Mapping) or set(part) != set(Task.__dataclass_fields__):
            raise ValueError(f"A stored task has {', '.join(Task.__dataclass_fields__)}.")
        parts.append(Task(**{**part, "objective": objective_of(part["objective"])}))
    return MultiTask(tuple(parts))


def _check(parts: tuple[Task, ...]) -> None:
    names = [part.name for part in parts]
    if (
        not parts
        or not all(isinstance(name, str) for name in names)
        or len(set(names)) < len(names)
    ):
        raise ValueError(f"MultiTask are one or more, with different names; got {names}.")
    for part in parts:
        numbers = part.n_columns, part.n_scores
        if not all(type(n) is int and n > 0 for n in numbers):
            raise ValueError(
                f"Task {part.name!r} has numbers of columns and scores; got {numbers}."
            )
        if part.objective.tasks or part.learns not in part.objective.target_kinds:
            raise ValueError(
                f"Task {part.name!r} cannot learn {part.learns!r} with this objective."
            )
        of = part.n_scores if part.learns == "classes" else part.n_columns
        if part.objective.n_scores(of) != part.n_scores or (
            part.learns == "classes" and part.n_columns > 1
        ):
            raise ValueError(
                f"Task {part.name!r} has another number of scores than its objective gives."
            )
        is_number = isinstance(part.weight, int | float) and not isinstance(part.weight, bool)
        if not (is_number and np.isfinite(part.weight) and part.weight > 0):
            raise ValueError(
                f"The weight of task {part.name!r} must be above 0 and finite, got {part.weight!r}."
            )
