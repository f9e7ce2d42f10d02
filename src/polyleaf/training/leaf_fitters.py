"""Leaf fitters: what the leaves of a grown tree hold, from the derivatives of their rows.

Owns which derivatives and settings the core's leaf fitting is given, for each kind of leaf. Must not know how
trees are grown or what becomes of the leaves; the arithmetic is in cpp/leaves.

All have one method, `fit(grown, draw, output, learning_rate)`:

grown : Grown
    The tree, and the leaf of every row.
draw : Draw
    The rows to fit on.
output : int
    The one output that the tree is for; -1: all.
learning_rate : float
    It is in the leaves.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

import polyleaf._core as _core
from polyleaf.data.dataset import Dataset
from polyleaf.model.leaf_kinds import Leaves
from polyleaf.settings.train_config import LinearLeaf, RegularisationConfig, TopkLeaf, TrainConfig
from polyleaf.training.derivatives import Derivatives, column
from polyleaf.training.raw_scores import DenseState
from polyleaf.training.sampling import Draw
from polyleaf.training.sparse_raw_scores import LabelState
from polyleaf.training.tree_builder import Grown


class Fitter(Protocol):
    """What fits leaves."""

    def fit(self, grown: Grown, draw: Draw, output: int, learning_rate: float) -> Leaves:
        """The leaves of one tree."""
        ...


class DenseFitter(Fitter, Protocol):
    """What fits leaves of a value an output."""

    def curvature(self, grown: Grown, draw: Draw, output: int) -> np.ndarray:
        """What rows sum to in each leaf, float64 (n_leaves, 1), or of each output, (n_leaves, K)."""
        ...


class ConstantFitter:
    """A vector in each leaf: one Newton step."""

    def __init__(self, derivatives: Derivatives, settings: TrainConfig) -> None:
        self._derivatives, self._step, self._workers = (
            derivatives,
            settings.regularisation,
            settings.workers,
        )
        self._block_size = settings.hessian.leaf_block_size

    def fit(self, grown: Grown, draw: Draw, output: int, learning_rate: float) -> Leaves:
        data = *self._derivatives.for_leaves(output), grown.leaf_of_row, grown.tree.n_leaves
        step = leaf_config(self._step, learning_rate, self._block_size)
        return _core.fit_newton_leaves(*data, step, *draw.sample, self._workers)

    def curvature(self, grown: Grown, draw: Draw, output: int) -> np.ndarray:
        _, h = self._derivatives.for_leaves(output)
        leaves = grown.leaf_of_row, grown.tree.n_leaves
        return _core.sum_leaf_hessians(h, *leaves, *draw.sample, self._workers)


class QuantileFitter:
    """A vector in each leaf that minimises the loss, where the objective knows it: quantiles of residuals.

    Outputs whose objective does not know it get what another fitter says.

    Parameters
    ----------
    state : DenseState
    others : DenseFitter
    settings : TrainConfig
    """

    def __init__(self, state: DenseState, others: DenseFitter, settings: TrainConfig) -> None:
        self._state, self._others, self._workers = state, others, settings.workers
        self._is_known = state.problem.updated_outputs

    def fit(self, grown: Grown, draw: Draw, output: int, learning_rate: float) -> Leaves:
        known = self._is_known if output < 0 else self._is_known[[output]]
        if not known.any():
            return self._others.fit(grown, draw, output, learning_rate)
        sizes = grown.tree.n_leaves, draw.rows, self._workers.n_threads_or_context
        values = self._state.problem.update_leaves(self._state.scores(), grown.leaf_of_row, *sizes)
        values = (values if output < 0 else column(values, output)) * np.float32(learning_rate)
        if known.all():
            return values
        others = self._others.fit(grown, draw, output, learning_rate)
        assert isinstance(others, np.ndarray)
        return np.where(known, values, others)

    def curvature(self, grown: Grown, draw: Draw, output: int) -> np.ndarray:
        return self._others.curvature(grown, draw, output)


class MonotoneFitter:
    """What another fitter of dense leaves says, made to obey directions.

    Of the values that do, those nearest to it, in squares weighted by each leaf's curvature: for Newton steps
    without L1 and limit the loss at its least among all that obey.

    Parameters
    ----------
    fitter : DenseFitter
    directions : ndarray of shape (n_columns, K), int8
    n_bins : ndarray of shape (n_columns,), uint16
    settings : TrainConfig

    Attributes
    ----------
    plain : DenseFitter
        The other.
    """

    def __init__(
        self, fitter: DenseFitter, directions: np.ndarray, n_bins: np.ndarray, settings: TrainConfig
    ) -> None:
        self.plain, self._directions, self._n_bins = fitter, directions, n_bins
        self._reg_lambda, self._workers = settings.regularisation.reg_lambda, settings.workers

    def fit(self, grown: Grown, draw: Draw, output: int, learning_rate: float) -> Leaves:
        values = self.plain.fit(grown, draw, output, learning_rate)
        assert isinstance(values, np.ndarray)  # other leaves are refused, see `settings`
        return self.obeying(values, grown, draw, output)

    def obeying(self, values: np.ndarray, grown: Grown, draw: Draw, output: int) -> np.ndarray:
        """The values (n_leaves, K or 1) that obey and are nearest to these."""
        directions = self._directions if output < 0 else column(self._directions, output)
        weights = self.plain.curvature(grown, draw, output) + self._reg_lambda
        return _core.enforce_monotone_constraints(
            values, directions, self._n_bins, grown.tree, weights, self._workers
        )


class TopkFitter:
    """A value for each of the `leaf_k` outputs that gain most (GBDT-MO, section III-B); docs/leaves.md."""

    def __init__(self, derivatives: Derivatives, leaf: TopkLeaf, settings: TrainConfig) -> None:
        self._derivatives, self._leaf = derivatives, leaf
        self._step, self._workers = settings.regularisation, settings.workers

    def fit(self, grown: Grown, draw: Draw, output: int, learning_rate: float) -> Leaves:
        data = *self._derivatives.for_leaves(output), grown.leaf_of_row, grown.tree.n_leaves
        shared = grown.tree if self._leaf.leaf_output_set == "shared" else None
        kept = self._leaf.leaf_k, shared, leaf_config(self._step, learning_rate)
        return _core.fit_topk_leaves(*data, *kept, *draw.sample, self._workers)


class LabelFitter:
    """The same from gradients that hold few labels of very many."""

    def __init__(self, state: LabelState, leaf: TopkLeaf, settings: TrainConfig) -> None:
        self._state, self._leaf = state, leaf
        self._step, self._workers = settings.regularisation, settings.workers

    def fit(self, grown: Grown, draw: Draw, output: int, learning_rate: float) -> Leaves:
        data = self._state.gradients, self._state.weight, grown.leaf_of_row, grown.tree.n_leaves
        kept = self._leaf.leaf_k, leaf_config(self._step, learning_rate)
        return _core.fit_topk_leaves_sparse(*data, *kept, *draw.sample, self._workers)


class LinearFitter:
    """A linear function of a few features in each leaf (GBDT-PL); see docs/linear-leaves.md.

    Attributes
    ----------
    table : _core.LinearTable
        What each feature is worth as a regressor.
    """

    def __init__(
        self, derivatives: Derivatives, leaf: LinearLeaf, dataset: Dataset, settings: TrainConfig
    ) -> None:
        self._derivatives, self._leaf, self._features = derivatives, leaf, dataset.raw_features()
        self._step, self._workers = settings.regularisation, settings.workers
        weight, n_threads = derivatives.row_weight, self._workers
        self.table = _core.LinearTable(dataset.bins, self._features, weight, n_threads)

    def fit(self, grown: Grown, draw: Draw, output: int, learning_rate: float) -> Leaves:
        step = _core.LinearLeafConfig(
            reg_lambda=self._step.reg_lambda,
            linear_lambda=self._leaf.slope_lambda,
            learning_rate=learning_rate,
            max_regressors=self._leaf.linear_features,
            clip=self._leaf.linear_extrapolation == "clip",
        )
        g, h = self._derivatives.for_leaves(output)
        data = g, h, grown.leaf_of_row, grown.tree, self._features, self.table
        return _core.fit_linear_leaves(*data, step, *draw.sample, self._workers)


def leaf_config(
    step: RegularisationConfig, learning_rate: float = 1.0, block_size: int = 0
) -> _core.LeafConfig:
    """The Newton step of leaves, which splits of labels are judged by, whatever the learning rate."""
    return _core.LeafConfig(
        reg_lambda=step.reg_lambda,
        reg_alpha=step.reg_alpha,
        max_delta_step=step.max_delta_step,
        learning_rate=learning_rate,
        block_size=block_size,
    )
