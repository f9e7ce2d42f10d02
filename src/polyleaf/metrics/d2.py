"""Skill: the share of the error of the best constant that predictions are without, of losses of any kind.

Owns what the error of an objective is, and skill of one task and the mean of several. Must not know how names
become metrics.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyleaf.objectives import Objective
from polyleaf.objectives.columns import taken_columns

__all__ = ["MeanD2", "TaskMetric", "D2"]

Array = NDArray[Any]
Error = Callable[[Array, Array, Array | None], NDArray[np.float64]]

# In place of metrics that are not the mean of errors of rows, which are 0 at best.
INSTEAD = {"rmse": "mse", "nll": "crps"}


class D2:
    """1 - error / error of the best constant on the same data, the mean over outputs with an error.

    For squared error it is R2, in general what scikit-learn calls D2 (Hastie, Tibshirani and Wainwright,
    "Statistical Learning with Sparsity", 2015, section 3.8).

    Parameters
    ----------
    objective : Objective
        Has the constant.
    errors : callable
        ``(y, raw, weight) -> float64 (m,)``: errors that are 0 at best, of raw scores ``(n, K)``.
    """

    def __init__(self, objective: Objective, errors: Error) -> None:
        self._objective, self._errors = objective, errors
        self._seen: list[tuple[Array, Array | None, NDArray[np.float64]]] = []

    def __call__(self, y: Array, raw: Array, weight: Array | None = None) -> float:
        errors, of_constant = self._errors(y, raw, weight), self._of_constant(y, weight, len(raw))
        exists = of_constant > 0
        return (
            float(np.mean(1.0 - errors[exists] / of_constant[exists]))
            if exists.any()
            else float("nan")
        )

    def _of_constant(self, y: Array, weight: Array | None, n_rows: int) -> NDArray[np.float64]:
        """Found once for each data set: y does not change from round to round."""
        for known_y, known_weight, errors in self._seen:
            if known_y is y and known_weight is weight:
                return errors
        base = self._objective.prepare(y, weight).base_score()
        self._seen.append((y, weight, self._errors(y, np.tile(base, (n_rows, 1)), weight)))
        return self._seen[-1][2]


class MeanD2:
    """The mean of the skill of tasks, of those for which it exists.

    Parameters
    ----------
    of_tasks : sequence of TaskMetric
        Each of a `D2`.
    """

    def __init__(self, of_tasks: Sequence[TaskMetric]) -> None:
        self._of_tasks = of_tasks

    def __call__(self, y: Array, raw: Array, weight: Array | None = None) -> float:
        skills = np.array([of_task(y, raw, weight) for of_task in self._of_tasks])
        return float(np.nanmean(skills)) if not np.isnan(skills).all() else float("nan")


class TaskMetric:
    """The metric of one task, as a function of the targets and scores of all.

    Parameters
    ----------
    place : Place
        Of the task.
    metric : Metric
    """

    def __init__(self, place: Any, metric: Any) -> None:
        self._place, self._metric = place, metric
        self._own = place.scores if metric.prediction_type == "raw" else place.predictions
        self._seen: list[tuple[Array, Array | None, Array, Array | None]] = []

    def set_train_target(self, y: Array, n_outputs: int) -> None:
        self._metric.set_train_target(self._target(y, None)[0], self._place.task.n_scores)

    @property
    def greater_is_better(self) -> bool:
        return bool(self._metric.greater_is_better)

    def __call__(self, y: Array, prediction: Array, weight: Array | None = None) -> float:
        own_y, own_weight = self._target(y, weight)
        return float(self._metric(own_y, taken_columns(prediction, self._own), own_weight))

    def _target(self, y: Array, weight: Array | None) -> tuple[Array, Array | None]:
        """Its part of a data set, the same arrays every time: functions remember by them."""
        for known_y, known_weight, own_y, own_weight in self._seen:
            if known_y is y and known_weight is weight:
                return own_y, own_weight
        own = self._place.task.target_of(y[:, self._place.columns])
        of_rows = self._place.weight_of(weight)
        if of_rows is not None and of_rows.ndim == 2 and of_rows.shape[1] == 1:
            of_rows = of_rows[:, 0]
        self._seen.append((y, weight, own, of_rows))
        return own, of_rows
