"""Raw scores and gradients of sparse targets: each row stores few of very many labels."""

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
from polyleaf.training.evaluation import EvalSet
from polyleaf.training.raw_scores import GrownTree, gradients_cancel_out

__all__ = ["SparseScores", "SparseState"]


class SparseScores:
    """Sums of sparse leaf values of some rows."""

    has_outputs = False

    def __init__(self, scores: _core.SparseRawScores, workers: Context) -> None:
        self.scores, self._workers = scores, workers

    def add_tree(self, leaf_of_row: np.ndarray, leaves: Any) -> None:
        """Add a tree."""
        self.scores.add(leaf_of_row, leaves, self._workers)

    def add_trees(
        self, forest: _core.Forest, first: int, codes: np.ndarray, features: np.ndarray | None
    ) -> None:
        """Add the trees from `first` on, for rows with these bin codes."""
        for t in range(first, len(forest)):
            if forest.kind(t) != SPARSE.name:
                raise ValueError(
                    "init_model has leaves that hold all outputs, which cannot be continued on "
                    "sparse targets."
                )
            leaf_of_row = forest.apply(codes, t, t + 1, self._workers).ravel()
            self.add_tree(leaf_of_row, forest.values(t))

    def iter_metrics(self, e: EvalSet, model: Model) -> Iterator[tuple[Metric, tuple[Any, ...]]]:
        """Yield each metric of an evaluation set with its arguments, the best labels of each
        row."""
        if not e.metrics:
            return
        k = max(getattr(metric.function, "k") for metric in e.metrics)  # noqa: B009
        best = self.scores.topk(k, self._workers)
        for metric in e.metrics:
            yield metric, (e.target, best, e.weight)


class SparseState:
    """Raw scores and gradients of all training rows, for the labels that a row has or was
    predicted.

    Attributes
    ----------
    weight : ndarray of shape (n_rows,), float32, or None
        Weight, and Hessian, of each row.
    gradients : _core.SparseGradients or None
        Gradients at the raw scores of the last `update_derivatives`; None once the scores have
        changed, because both are large.
    """

    def __init__(
        self, bound: BoundSparseObjective, dataset: Dataset, model: Model, workers: Context
    ) -> None:
        self._bound, self._dataset, self._workers = bound, dataset, workers
        self.weight = bound.weight
        self._scores = SparseScores(bound.make_raw_scores(workers.n_threads), workers)
        if model.n_trees > 0:
            self._scores.add_trees(model.forest, 0, dataset.codes, None)
        self.gradients: Any = None

    def new_scores(self, n_rows: int) -> SparseScores:
        """Return scores of 0 of other rows."""
        scores = _core.SparseRawScores(n_rows, self._bound.n_outputs)
        return SparseScores(scores, self._workers)

    def update_derivatives(self) -> None:
        """Compute gradients at the raw scores, unless they are up to date."""
        if self.gradients is None:
            self.gradients = self._bound.gradients(self._scores.scores, self._workers.n_threads)

    def sampling_gradients(self) -> np.ndarray:
        """Return the gradient norms (n_rows,) that GOSS samples by."""
        return self.gradients.norms(self._workers)

    def gradients_cancel_out(self, output: int) -> bool:
        """Return whether one step for all rows would gain almost nothing."""
        _, _, values = self.gradients.csr()
        squares = _core.exact_totals(values[:, None], values[:, None], None, 1, self._workers)[0, 0]
        n_rows = self._workers.sum_over_ranks(self._bound.n_rows)
        return gradients_cancel_out(self.gradients.totals(self._workers), squares, n_rows)

    def add_tree(self, grown: GrownTree, leaves: Leaves, output: int) -> None:
        """Add a tree to the raw scores."""
        self.gradients = None
        self._scores.add_tree(grown.grower.leaf_of_row, leaves)

    def add_last_tree(self, forest: _core.Forest) -> None:
        """Add the last tree of a forest, which was not grown here, to the raw scores."""
        self.gradients = None
        self._scores.add_trees(forest, len(forest) - 1, self._dataset.codes, None)
