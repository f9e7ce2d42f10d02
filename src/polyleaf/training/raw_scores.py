"""The state of a training on dense targets: raw scores of all outputs, and the derivatives there.

Owns: raw scores, of rows trained on and of rows watched, and when derivatives are stale. Must not know: how
trees are grown or leaves fitted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import polyleaf._core as _core
from polyleaf.data.dataset import Dataset
from polyleaf.metrics import Metric
from polyleaf.model import Model
from polyleaf.model.leaf_kinds import Leaves
from polyleaf.objectives.base import BoundObjective
from polyleaf.runtime.context import Context
from polyleaf.training.derivatives import Derivatives
from polyleaf.training.evaluation import EvalSet
from polyleaf.training.tree_builder import Grown

__all__ = ["DenseScores", "DenseState"]


class DenseScores:
    """Sums of leaf values of some rows.

    Attributes
    ----------
    raw : ndarray of shape (n_rows, K), float32
        Without the base score.
    by_output : bool
        Whether one output's metric is another than that of all.
    """

    def __init__(self, raw: np.ndarray, workers: Context) -> None:
        self.raw, self.by_output, self._workers = raw, raw.shape[1] > 1, workers

    def copy(self) -> DenseScores:
        """Scores that can be added to without changing these."""
        return DenseScores(self.raw.copy(), self._workers)

    def add_trees(
        self, forest: _core.Forest, first: int, codes: np.ndarray, features: np.ndarray | None
    ) -> None:
        """Add trees `first`, `first + 1`, ... of rows with these codes; features where leaves read them."""
        forest.predict(codes, self.raw, first, len(forest), self._workers, features)

    def measured(self, e: EvalSet, model: Model) -> Iterator[tuple[Metric, tuple[Any, ...]]]:
        """Every metric of an evaluation set, with what it is to be called on."""
        scores = model.to_target_scale(self.raw)
        if e.offset is not None:
            scores += e.offset
        needed = any(metric.prediction_type != "raw" for metric in e.metrics)
        predictions = model.objective.transform(scores) if needed else scores
        for metric in e.metrics:
            yield (
                metric,
                (e.target, scores if metric.prediction_type == "raw" else predictions, e.weight),
            )


class DenseState:
    """Raw scores and derivatives of all rows and outputs.

    Attributes
    ----------
    problem : BoundObjective
    derivatives : Derivatives
        At the raw scores of the last `renew`.
    """

    def __init__(
        self,
        problem: BoundObjective,
        derivatives: Derivatives,
        dataset: Dataset,
        model: Model,
        workers: Context,
        offset: np.ndarray | None = None,
        new: Callable[..., np.ndarray] = np.zeros,
    ) -> None:
        self.problem, self.derivatives, self._new = problem, derivatives, new
        self._offset = None if offset is None else offset.astype(np.float32)
        self._dataset, self._features, self._workers = dataset, dataset.features, workers
        scores = DenseScores(new((problem.n_rows, problem.n_outputs), np.float32), workers)
        if model.n_trees > 0:
            features = dataset.raw_features() if model.has_linear_leaves else None
            scores.add_trees(model.forest, 0, dataset.codes, features)
        self._raw = scores.raw
        self._is_stale = True  # the raw scores have changed since the derivatives were computed
        self._marked: np.ndarray | None = None

    def new_scores(self, n_rows: int) -> DenseScores:
        """Scores of other rows, without any tree."""
        return DenseScores(np.zeros((n_rows, self.problem.n_outputs), np.float32), self._workers)

    @property
    def raw(self) -> np.ndarray:
        """Sums of leaf values (n_rows, K), float32: what prediction adds up, bit for bit."""
        return self._raw

    def renew(self) -> None:
        """Compute derivatives at the raw scores."""
        if self._is_stale:
            self.derivatives.renew(self.scores())
        self._is_stale = False

    def scores(self) -> np.ndarray:
        """What the objective sees: raw scores, on top of those that rows start from."""
        return self.raw if self._offset is None else self.raw + self._offset

    def gradients_of_rows(self) -> np.ndarray:
        """By what rows are sampled: (n_rows, K)."""
        return self.derivatives.in_unit(-1)

    def cancel(self, output: int) -> bool:
        """Whether one step for all rows would gain next to nothing."""
        return self.derivatives.cancel(output)

    def add(self, grown: Grown, leaves: Leaves, output: int) -> None:
        """Add a tree to the raw scores."""
        if grown.is_added:
            return
        n_threads, features = self._workers, self._features
        _core.add_leaf_values(self.raw, grown.leaf_of_row, leaves, output, n_threads, features)
        self._is_stale = True

    def add_last(self, forest: _core.Forest) -> None:
        """Add the last tree of a forest, which was grown before, to the raw scores."""
        last = len(forest) - 1
        DenseScores(self.raw, self._workers).add_trees(
            forest, last, self._dataset.codes, self._features
        )
        self._is_stale = True

    def mark(self) -> None:
        """Remember the raw scores."""
        self._marked = (
            self._new(self.raw.shape, np.float32) if self._marked is None else self._marked
        )
        np.copyto(self._marked, self.raw)

    def rewind(self) -> None:
        """Go back to the raw scores of the last `mark`."""
        assert self._marked is not None
        np.copyto(self.raw, self._marked)
        self._is_stale = True
