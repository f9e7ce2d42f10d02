"""Leaf fitters: the values of a grown tree's leaves, from the derivatives of their rows.

The arithmetic is in cpp/leaves. All have the method `fit(grown, sample, outputs, rate)`:

grown : GrownTree
    The tree, and the leaf of every row.
sample : TreeSample
    The rows to fit on.
outputs : TreeOutputs
    The outputs that the tree is for.
rate : float
    Learning rate, the factor of the leaf values.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

import polyleaf._core as _core
from polyleaf.binned_data.dataset import Dataset, TrainingBins
from polyleaf.model.leaf_kinds import SPARSE, Leaves, TreeOutputs
from polyleaf.settings.train_config import LinearLeaf, RegularisationConfig, TopkLeaf, TrainConfig
from polyleaf.training.raw_scores import (
    DenseState,
    Derivatives,
    GrownTree,
    SparseState,
    extract_columns,
)
from polyleaf.training.sampling import TreeSample
from polyleaf.user_data.weights import average_weights


class LeafFitter(Protocol):
    """Fits leaf values."""

    def fit(
        self, grown: GrownTree, sample: TreeSample, outputs: TreeOutputs, rate: float
    ) -> Leaves:
        """Return the leaves of one tree."""
        ...


class DenseLeafFitter(LeafFitter, Protocol):
    """Fits leaves with a value for each output."""

    def sum_hessians(
        self, grown: GrownTree, sample: TreeSample, outputs: TreeOutputs
    ) -> np.ndarray:
        """Return the sum of Hessians of each leaf, float64 (n_leaves, 1), or per output (n_leaves,
        K)."""
        ...


class ConstantFitter:
    """A vector in each leaf: one Newton step."""

    def __init__(self, derivatives: Derivatives, settings: TrainConfig) -> None:
        self._derivatives, self._workers = derivatives, settings.workers
        self._regularisation = settings.regularisation
        self._block_size = settings.hessian.leaf_block_size

    def fit(
        self, grown: GrownTree, sample: TreeSample, outputs: TreeOutputs, rate: float
    ) -> Leaves:
        step = make_leaf_config(self._regularisation, rate, self._block_size)
        g, h = self._derivatives.select_for_leaves(outputs)
        return _core.fit_newton_leaves(
            g,
            h,
            grown.grower.leaf_of_row,
            grown.tree.n_leaves,
            step,
            sample.rows,
            sample.multiplier,
            self._workers,
        )

    def sum_hessians(
        self, grown: GrownTree, sample: TreeSample, outputs: TreeOutputs
    ) -> np.ndarray:
        _, h = self._derivatives.select_for_leaves(outputs)
        return _core.sum_leaf_hessians(
            h,
            grown.grower.leaf_of_row,
            grown.tree.n_leaves,
            sample.rows,
            sample.multiplier,
            self._workers,
        )


class QuantileFitter:
    """A vector in each leaf that minimises the loss, of outputs whose objective updates leaves.

    Other outputs get the values of another fitter.
    """

    def __init__(self, state: DenseState, others: DenseLeafFitter, settings: TrainConfig) -> None:
        self._state, self._others, self._workers = state, others, settings.workers
        self._updated_outputs = state.bound.updated_outputs

    def fit(
        self, grown: GrownTree, sample: TreeSample, outputs: TreeOutputs, rate: float
    ) -> Leaves:
        updated = self._updated_outputs if outputs is None else self._updated_outputs[outputs]
        if not updated.any():
            return self._others.fit(grown, sample, outputs, rate)
        values = self._state.bound.update_leaves(
            self._state.seen_scores(outputs),
            grown.grower.leaf_of_row,
            grown.tree.n_leaves,
            sample.rows,
            sample.multiplier,
            self._workers.n_threads_or_context,
            outputs,
        )
        with np.errstate(over="ignore"):
            values = values * np.float32(rate)
        if np.isinf(values).any():
            raise ValueError("A leaf value is not finite; check the targets and the learning rate.")
        if updated.all():
            return values
        others = self._others.fit(grown, sample, outputs, rate)
        assert isinstance(others, np.ndarray)
        return np.where(updated, values, others)

    def sum_hessians(
        self, grown: GrownTree, sample: TreeSample, outputs: TreeOutputs
    ) -> np.ndarray:
        return self._others.sum_hessians(grown, sample, outputs)


class MonotoneFitter:
    """Leaf values of another dense fitter, projected to monotone constraints.

    The projection is the closest one in squares weighted by the Hessian of each leaf: for Newton
    steps without L1 penalty and limit it minimises the loss subject to the constraints.

    `monotone` (n_columns, K), int8. `n_bins` (n_columns,), uint16.
    """

    def __init__(
        self,
        base_fitter: DenseLeafFitter,
        monotone: np.ndarray,
        n_bins: np.ndarray,
        settings: TrainConfig,
    ) -> None:
        self.base_fitter, self._settings = base_fitter, settings
        self._monotone, self._n_bins = monotone, n_bins

    def fit(
        self, grown: GrownTree, sample: TreeSample, outputs: TreeOutputs, rate: float
    ) -> Leaves:
        values = self.base_fitter.fit(grown, sample, outputs, rate)
        assert isinstance(values, np.ndarray)  # the settings allow no other leaves
        return self.project(values, grown, sample, outputs)

    def project(
        self, values: np.ndarray, grown: GrownTree, sample: TreeSample, outputs: TreeOutputs
    ) -> np.ndarray:
        """Return the closest values (n_leaves, K or 1) that satisfy the constraints."""
        monotone = extract_columns(self._monotone, outputs)
        reg_lambda = self._settings.regularisation.reg_lambda
        weights = self.base_fitter.sum_hessians(grown, sample, outputs) + reg_lambda
        return _core.enforce_monotone_constraints(
            values, monotone, self._n_bins, grown.tree, weights, self._settings.workers
        )


class TopkFitter:
    """Values of the `leaf_k` outputs of largest gain in each leaf (GBDT-MO, section III-B)."""

    def __init__(self, derivatives: Derivatives, leaf: TopkLeaf, settings: TrainConfig) -> None:
        self._derivatives, self._leaf = derivatives, leaf
        self._regularisation, self._workers = settings.regularisation, settings.workers

    def fit(
        self, grown: GrownTree, sample: TreeSample, outputs: TreeOutputs, rate: float
    ) -> Leaves:
        g, h = self._derivatives.select_for_leaves(outputs)
        shared = grown.tree if self._leaf.leaf_output_set == "shared" else None
        leaves = _core.fit_topk_leaves(
            g,
            h,
            grown.grower.leaf_of_row,
            grown.tree.n_leaves,
            self._leaf.leaf_k,
            shared,
            make_leaf_config(self._regularisation, rate),
            sample.rows,
            sample.multiplier,
            self._workers,
        )
        if outputs is None:
            return leaves
        assert isinstance(leaves, _core.TopkLeaves)
        return SPARSE.expand(leaves, outputs, self._derivatives.g.shape[1])


class SparseTargetFitter:
    """Values of the `leaf_k` outputs of largest gain in each leaf, from sparse gradients."""

    def __init__(self, state: SparseState, leaf: TopkLeaf, settings: TrainConfig) -> None:
        self._state, self._leaf = state, leaf
        self._regularisation, self._workers = settings.regularisation, settings.workers

    def fit(
        self, grown: GrownTree, sample: TreeSample, outputs: TreeOutputs, rate: float
    ) -> Leaves:
        return _core.fit_topk_leaves_sparse(
            self._state.gradients,
            self._state.weight,
            grown.grower.leaf_of_row,
            grown.tree.n_leaves,
            self._leaf.leaf_k,
            make_leaf_config(self._regularisation, rate),
            sample.rows,
            sample.multiplier,
            self._workers,
        )


class LinearFitter:
    """A linear function of a few features in each leaf (GBDT-PL).

    `table`: statistics of each feature as a regressor.
    """

    def __init__(
        self,
        derivatives: Derivatives,
        leaf: LinearLeaf,
        dataset: Dataset | TrainingBins,
        settings: TrainConfig,
    ) -> None:
        self._derivatives, self._leaf, self._features = derivatives, leaf, dataset.raw_features()
        self._regularisation, self._workers = settings.regularisation, settings.workers
        weight = derivatives.weight
        weight = None if weight is None else average_weights(weight).reshape(-1)
        self.table = _core.LinearTable(dataset.bins, self._features, weight, self._workers)

    def fit(
        self, grown: GrownTree, sample: TreeSample, outputs: TreeOutputs, rate: float
    ) -> Leaves:
        step = _core.LinearLeafConfig(
            reg_lambda=self._regularisation.reg_lambda,
            linear_lambda=self._leaf.slope_lambda,
            learning_rate=rate,
            max_regressors=self._leaf.linear_features,
            clip=self._leaf.linear_extrapolation == "clip",
        )
        g, h = self._derivatives.select_for_leaves(outputs)
        return _core.fit_linear_leaves(
            g,
            h,
            grown.grower.leaf_of_row,
            grown.tree,
            self._features,
            self.table,
            step,
            sample.rows,
            sample.multiplier,
            self._workers,
        )


def make_leaf_config(
    regularisation: RegularisationConfig, learning_rate: float = 1.0, block_size: int = 0
) -> _core.LeafConfig:
    """Return the core's configuration of the Newton step of leaves."""
    return _core.LeafConfig(
        reg_lambda=regularisation.reg_lambda,
        reg_alpha=regularisation.reg_alpha,
        max_delta_step=regularisation.max_delta_step,
        learning_rate=learning_rate,
        block_size=block_size,
    )


def make_linear_gradients(table: _core.LinearTable, leaf: LinearLeaf) -> _core.LinearGradients:
    """Return the core's gradients of splits whose gain is that of linear leaves (GBDT-PL)."""
    config = _core.LinearConfig(
        fit=leaf.linear_fit, max_regressors=leaf.linear_features, linear_lambda=leaf.slope_lambda
    )
    return _core.LinearGradients(table, config)
