"""Leaf fitters: what the leaves of a grown tree hold, from the derivatives of their rows.

Owns which fitter serves which kind of leaf. Must not know how trees are grown; the arithmetic is in
cpp/leaves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

import polyleaf._core as _core

from .derivatives import column

if TYPE_CHECKING:
    from .boosting import Draw
    from .config import BoostConfig
    from .dataset import Dataset
    from .derivatives import Derivatives
    from .forest import Leaves
    from .objectives.base import Problem

__all__ = ["ConstantLeaves", "LinearLeaves", "SparseLeaves", "newton_step"]


class ConstantLeaves:
    """A vector in each leaf: one Newton step, or what minimises the loss where the objective knows it."""

    features: np.ndarray | None = None
    """Raw features (n_features, n_rows), float32, where leaves read them."""

    def __init__(self, problem: Problem, derivatives: Derivatives, config: BoostConfig) -> None:
        self.problem, self.derivatives, self.config = problem, derivatives, config

    def fit(
        self,
        tree: _core.Tree,
        leaf_of_row: np.ndarray,
        raw: np.ndarray,
        draw: Draw,
        output: int,
        learning_rate: float,
    ) -> Leaves:
        """The leaves of one tree, with the learning rate in them.

        Parameters
        ----------
        tree : _core.Tree
        leaf_of_row : ndarray of shape (n_rows,), int32
        raw : ndarray of shape (n_rows, K), float32
            Raw scores before this tree.
        draw : Draw
            The rows to fit on.
        output : int
            The one output that the tree is for; -1: all.
        learning_rate : float
        """
        c = self.config
        renewed = self.problem.renew_leaves(raw, leaf_of_row, tree.n_leaves, draw.rows, c.n_threads)
        if renewed is not None:
            renewed = renewed if output < 0 else column(renewed, output)
            return renewed * np.float32(learning_rate)
        g, h = self.derivatives.for_leaves(output)
        return _core.newton_leaves(
            g,
            h,
            leaf_of_row,
            tree.n_leaves,
            reg_lambda=c.reg_lambda,
            reg_alpha=c.reg_alpha,
            max_delta_step=c.max_delta_step,
            learning_rate=learning_rate,
            rows=draw.rows,
            multiplier=draw.multiplier,
            n_threads=c.n_threads,
            block_size=c.block_size if c.wanted_leaf_curvature == "block" else 0,
        )


class SparseLeaves(ConstantLeaves):
    """A value for each of the `leaf_k` outputs that gain most (GBDT-MO, section III-B); docs/leaves.md."""

    def __init__(self, problem: Problem, derivatives: Derivatives, config: BoostConfig) -> None:
        super().__init__(problem, derivatives, config)
        _refuse_renewal(problem, "sparse")
        if config.leaf_k > problem.n_outputs:
            raise ValueError(
                f"leaf_k={config.leaf_k} is more than the {problem.n_outputs} outputs that there are; set "
                'it to fewer, or leaf="constant" for all of them.'
            )

    def fit(
        self,
        tree: _core.Tree,
        leaf_of_row: np.ndarray,
        raw: np.ndarray,
        draw: Draw,
        output: int,
        learning_rate: float,
    ) -> Leaves:
        c = self.config
        g, h = self.derivatives.for_leaves(output)
        step = newton_step(c, learning_rate)
        shared = tree if c.leaf_support == "shared" else None
        sample = {"rows": draw.rows, "multiplier": draw.multiplier}
        return _core.sparse_leaves(
            g, h, leaf_of_row, tree.n_leaves, c.leaf_k, shared, step, **sample, n_threads=c.n_threads
        )


class LinearLeaves(ConstantLeaves):
    """A linear function of a few features in each leaf (GBDT-PL); see docs/linear-leaves.md.

    Attributes
    ----------
    features : ndarray of shape (n_features, n_rows), float32
    table : _core.LinearTable
        What each feature is worth as a regressor.
    """

    def __init__(
        self,
        problem: Problem,
        derivatives: Derivatives,
        config: BoostConfig,
        dataset: Dataset,
        weight: np.ndarray | None,
    ) -> None:
        super().__init__(problem, derivatives, config)
        _refuse_renewal(problem, "linear")
        self.features = dataset.raw_features()
        of_rows = weight if weight is not None and weight.ndim == 1 else None
        self.table = _core.LinearTable(dataset.bins, self.features, of_rows, config.n_threads)

    def fit(
        self,
        tree: _core.Tree,
        leaf_of_row: np.ndarray,
        raw: np.ndarray,
        draw: Draw,
        output: int,
        learning_rate: float,
    ) -> Leaves:
        c = self.config
        g, h = self.derivatives.for_leaves(output)
        return _core.linear_leaves(
            tree,
            g,
            h,
            leaf_of_row,
            self.features,
            self.table,
            reg_lambda=c.reg_lambda,
            linear_lambda=c.slope_lambda,
            max_regressors=c.linear_features,
            clip=c.linear_extrapolation == "clip",
            learning_rate=learning_rate,
            rows=draw.rows,
            multiplier=draw.multiplier,
            n_threads=c.n_threads,
        )

    def renew(self, channels: _core.LinearChannels, kind: str, g: Any, h: Any, draw: Draw) -> None:
        """Hand over what the splits of the next tree are judged by."""
        c = self.config
        channels.renew(
            g,
            h,
            kind,
            fit=c.linear_fit,
            max_regressors=c.linear_features,
            linear_lambda=c.slope_lambda,
            rows=draw.rows,
            multiplier=draw.multiplier,
            n_threads=c.n_threads,
        )


def newton_step(config: BoostConfig, learning_rate: float) -> _core.LeafConfig:
    """The Newton step of sparse leaves, whether targets are dense or sparse."""
    return _core.LeafConfig(
        reg_lambda=config.reg_lambda,
        reg_alpha=config.reg_alpha,
        max_delta_step=config.max_delta_step,
        learning_rate=learning_rate,
    )


def _refuse_renewal(problem: Problem, kind: str) -> None:
    """Refuse objectives whose leaves are no Newton steps."""
    if problem.objective.renews_leaves:
        raise ValueError(
            f"Objective {problem.objective.name!r} fits its leaves by quantiles of their residuals, for "
            f'which {kind} leaves have no step; use leaf="constant", or objective="huber".'
        )
