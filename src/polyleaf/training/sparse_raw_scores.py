"""The state of a training on sparse targets: scores and gradients hold few of very many labels.

Owns: raw scores, of rows trained on and of rows watched, and when gradients exist. Must not know: how trees
are grown or leaves fitted.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

import polyleaf._core as _core
from polyleaf.data.dataset import Dataset
from polyleaf.metrics import Metric
from polyleaf.model import Model
from polyleaf.model.leaf_kinds import SPARSE, Leaves
from polyleaf.objectives.sparse_multilabel import BoundSparseObjective
from polyleaf.runtime.context import Context
from polyleaf.training.derivatives import cancel
from polyleaf.training.evaluation import EvalSet
from polyleaf.training.tree_builder import Grown

__all__ = ["SparseRawScores", "LabelState"]


class SparseRawScores:
    """Sums of leaf values of some rows."""

    by_output = False

    def __init__(self, scores: _core.SparseRawScores, workers: Context) -> None:
        self.scores, self._workers = scores, workers

    def add(self, leaf_of_row: np.ndarray, leaves: Any) -> None:
        """Add a tree."""
        self.scores.add(leaf_of_row, leaves, self._workers)

    def add_trees(
        self, forest: _core.Forest, first: int, codes: np.ndarray, features: np.ndarray | None
    ) -> None:
        """Add trees `first`, `first + 1`, ... of rows with these codes."""
        for t in range(first, len(forest)):
            if forest.kind(t) != SPARSE.name:
                raise ValueError(
                    "A model whose leaves hold all outputs cannot be continued on sparse targets."
                )
            leaf_of_row = forest.apply(codes, t, t + 1, self._workers).ravel()
            self.add(leaf_of_row, forest.values(t))

    def measured(self, e: EvalSet, model: Model) -> Iterator[tuple[Metric, tuple[Any, ...]]]:
        """Every metric of an evaluation set, with what it is to be called on: the best labels of each row."""
        if not e.metrics:
            return
        most = max(getattr(metric.function, "k") for metric in e.metrics)  # noqa: B009
        best = self.scores.topk(most, self._workers)
        for metric in e.metrics:
            yield metric, (e.target, best, e.weight)


class LabelState:
    """Raw scores and gradients of all rows, for the labels that a row has or was given.

    Attributes
    ----------
    weight : ndarray of shape (n_rows,), float32, or None
        Also the curvature of a row.
    gradients : _core.SparseGradients or None
        At the raw scores of the last `renew`; None once these have changed, because both are large.
    """

    def __init__(
        self, problem: BoundSparseObjective, dataset: Dataset, model: Model, workers: Context
    ) -> None:
        self._problem, self._dataset, self._workers, self.weight = (
            problem,
            dataset,
            workers,
            problem.weight,
        )
        self._scores = SparseRawScores(problem.scores(workers.n_threads), workers)
        if model.n_trees > 0:
            self._scores.add_trees(model.forest, 0, dataset.codes, None)
        self.gradients: Any = None

    def new_scores(self, n_rows: int) -> SparseRawScores:
        """Scores of other rows, without any tree."""
        return SparseRawScores(
            _core.SparseRawScores(n_rows, self._problem.n_outputs), self._workers
        )

    def renew(self) -> None:
        """Compute gradients at the raw scores."""
        if self.gradients is None:
            self.gradients = self._problem.gradients(self._scores.scores, self._workers.n_threads)

    def gradients_of_rows(self) -> np.ndarray:
        """By what rows are sampled: norms, (n_rows,)."""
        return self.gradients.norms(self._workers)

    def cancel(self, output: int) -> bool:
        """Whether one step for all rows would gain next to nothing."""
        _, _, values = self.gradients.csr()
        squares = _core.exact_totals(values[:, None], values[:, None], None, 1, self._workers)[0, 0]
        n_rows = self._workers.sum_over_ranks(self._problem.n_rows)
        return cancel(self.gradients.totals(self._workers), squares, n_rows)

    def add(self, grown: Grown, leaves: Leaves, output: int) -> None:
        """Add a tree to the raw scores."""
        self.gradients = None
        self._scores.add(grown.leaf_of_row, leaves)

    def add_last(self, forest: _core.Forest) -> None:
        """Add the last tree of a forest, which was grown before, to the raw scores."""
        self.gradients = None
        self._scores.add_trees(forest, len(forest) - 1, self._dataset.codes, None)
