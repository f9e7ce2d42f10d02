"""The state of a training on sparse targets: raw scores, gradients and leaves hold few of very many outputs.

Owns what one round does then; the loop around it is `boosting`. Must not know how splits and leaves are
found.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

import polyleaf._core as _core

from .boosting import Draw, _Run
from .derivatives import cancel
from .leaves import newton_step
from .objectives.sparse import SparseProblem
from .sampling import sample_features, sample_rows
from .sketches import CountSketch

if TYPE_CHECKING:
    from .dataset import Dataset

__all__ = ["SparseRun"]

DEFAULT_SKETCH_DIM = 32
"""Columns of the count-sketch that proposes splits. Measured: docs/sparse-leaves.md."""


class SparseRun(_Run):
    """One training whose targets are a csr_matrix."""

    problem: SparseProblem

    def _prepare(self, target: Any, weight: np.ndarray | None) -> SparseProblem:
        return SparseProblem(self.objective, target, weight)

    def _score_first(self, dataset: Dataset) -> None:
        if self.config.split_search == "exact" and np.any(dataset.mapper.is_categorical_):
            raise ValueError(
                'split_search="exact" is for numeric features; use "sketch" where some are categorical.'
            )
        n_threads = self.config.n_threads
        self.search: _core.ExactSearch | _core.VerifiedSearch
        if self.config.split_search == "exact":
            self.search = _core.ExactSearch(dataset.bins, n_threads)
        else:
            self.search = _core.VerifiedSearch(self.histograms, n_threads)
        self.scores = self.problem.scores(n_threads)
        self._add_trees(self.scores, dataset.codes if len(self.model.forest) else None, 0)
        for e in self.eval_sets:
            e.raw = _core.SparseScores(e.codes.shape[1], self.problem.n_outputs)
            self._add_trees(e.raw, e.codes, 0)

    def step(self, round: int) -> bool:
        """One round: one tree. False when growth has come to an end."""
        c, n_threads = self.config, self.config.n_threads
        gradients = self.problem.gradients(self.scores, n_threads)
        draw = self._draw_rows(round, gradients)
        tree = self._grow_tree(draw, gradients)
        leaves = _core.sparse_leaves_of_sparse(
            gradients,
            self.weight,
            self.grower.leaf_of_row,
            tree.n_leaves,
            c.leaf_k,
            newton_step(c, self.model.learning_rate),
            draw.rows,
            draw.multiplier,
            n_threads,
        )
        goes_on = self._goes_on(tree.n_leaves > 1 or not self._cancel(gradients), draw)
        self.model.append(tree, leaves, round)
        del gradients  # as large as the scores, which are about to grow
        self.scores.add(self.grower.leaf_of_row, leaves, n_threads)
        return goes_on

    def evaluate(self) -> None:
        """Score every evaluation set with the trees it has not seen yet."""
        for e in self.eval_sets:
            self._add_trees(e.raw, e.codes, self.trees_scored)
            if not e.metrics:
                continue
            scores: Any = e.raw
            most = max(getattr(metric.function, "k") for metric in e.metrics)  # noqa: B009
            best = scores.topk(most, self.config.n_threads)
            for metric in e.metrics:
                self.log[e.name][metric.name].append(float(metric(e.target, best, e.weight)))
        self.trees_scored = len(self.model.forest)

    # ------------------------------------------------------------------------------------------ its parts

    def _cancel(self, gradients: _core.SparseGradients) -> bool:
        _, outputs, values = gradients.csr()
        return cancel(np.bincount(outputs, values), values, self.problem.n_rows)

    def _add_trees(self, scores: _core.SparseScores, codes: np.ndarray | None, first: int) -> None:
        """Add trees `first`, `first + 1`, ... to the scores of rows with these codes."""
        forest, n_threads = self.model.forest, self.config.n_threads
        for t in range(first, len(forest)):
            if forest.kind(t) != "sparse":
                raise ValueError(
                    "A model whose leaves hold all outputs cannot be continued on sparse targets."
                )
            leaf_of_row = forest.apply(codes, t, t + 1, n_threads).ravel()
            scores.add(leaf_of_row, forest.values(t), n_threads)

    def _draw_rows(self, round: int, gradients: _core.SparseGradients) -> Draw:
        rows, multiplier = sample_rows(
            self.config, gradients.norms(self.config.n_threads), round, self.usable
        )
        return Draw(round, rows, multiplier, sample_features(self.config, self.n_features, round))

    def _grow_tree(self, draw: Draw, gradients: _core.SparseGradients) -> _core.Tree:
        self._judge_by(gradients, draw)
        tree = self.grower.grow(self.search, self._grow_config(draw.round, -1), draw.features)
        self.search.release()  # gradients are as large as the scores, which are about to grow
        return tree

    def _judge_by(self, gradients: _core.SparseGradients, draw: Draw) -> None:
        """Tell the search what the next tree is judged by."""
        c, step = self.config, newton_step(self.config, self.model.learning_rate)
        if isinstance(self.search, _core.ExactSearch):
            sample = draw.rows, draw.multiplier
            self.search.use(gradients, self.weight, *sample, step, c.leaf_k, c.threshold_step)
            return
        sketch = CountSketch(c.sketch_dim or DEFAULT_SKETCH_DIM)
        g = sketch.sketch_sparse(gradients, draw.round, c.seed, c.n_threads)
        kind, h = self._structure_curvature(draw)
        self.channels.quantise(g, h, kind, draw.rows, draw.multiplier, c.n_threads)
        self.search.use(gradients, self.weight, self.channels, step, c.leaf_k)

    def _structure_curvature(self, draw: Draw) -> tuple[str, np.ndarray | None]:
        """Kind of channels and curvature (n, 1): the rows' weights, or 1 throughout."""
        if self.weight is None and draw.multiplier is None:
            return "unit", None
        weight = np.ones(self.problem.n_rows, np.float32) if self.weight is None else self.weight
        return "shared", weight.reshape(-1, 1)

    def _is_sketched(self) -> bool:
        return True
