"""Offsets of several tasks, by their names: scores that rows start from.

Owns where a task's offset goes. Must not know how one is read (`inputs.offsets`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from polyleaf.inputs.multitask import TaskEncodings
from polyleaf.inputs.offsets import OffsetReader
from polyleaf.objectives.multitask import TaskSlice

__all__ = ["TaskOffsetReader"]


class TaskOffsetReader:
    """How the offsets of one model of tasks are read.

    Parameters
    ----------
    encoding : TaskEncodings
    places : sequence of TaskSlice
    """

    def __init__(self, encoding: TaskEncodings, places: tuple[TaskSlice, ...]) -> None:
        self._readers = {
            place.task.name: (
                place,
                OffsetReader(own, place.task.n_scores, place.task.objective.offset_mask),
            )
            for place, own in zip(places, encoding.encodings, strict=True)
        }
        self._n_scores = places[-1].scores.stop

    def read(self, offset: Any, n_rows: int | None = None, name: str = "offset") -> np.ndarray:
        """Offsets in the unit of raw scores, float64 (n_rows, n_scores): 0 for tasks that have none.

        Raises
        ------
        ValueError
            For what is no dict of tasks, and as `OffsetReader.read`.
        """
        if not isinstance(offset, Mapping) or not offset:
            raise ValueError(
                f"{name} is a dict from tasks to what their scores start from, such as "
                f"{{{next(iter(self._readers))!r}: array}}; got {type(offset).__name__}."
            )
        unknown = [task for task in offset if task not in self._readers]
        if unknown:
            known = ", ".join(map(repr, self._readers))
            raise ValueError(f"{name} names the task {unknown[0]!r}; there are {known}.")
        found: np.ndarray | None = None
        for task, given in offset.items():
            place, reader = self._readers[task]
            own = reader.read(given, n_rows, f"{name} of task {task!r}")
            if found is None:
                found = np.zeros((len(own), self._n_scores))
            if len(own) != len(found):
                raise ValueError(
                    f"{name} of task {task!r} has {len(own)} rows, others have {len(found)}."
                )
            found[:, place.scores] = own
        assert found is not None
        return found
