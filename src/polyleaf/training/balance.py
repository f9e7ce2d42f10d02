"""Balance: each tree of some losses ends with a constant for all rows, so that predictions add up
to the targets.

A step of a leaf that is shorter upwards than downwards, a penalty, or a sample of the rows would
otherwise leave the sum of the predictions too low or too high until all leaves have converged.
Sparse leaves add the constant of an output where they have a value for it.
"""

from __future__ import annotations

import numpy as np

import polyleaf._core as _core
from polyleaf.model.leaf_kinds import DENSE, LINEAR, SPARSE, Leaves, TreeOutputs
from polyleaf.runtime.context import Context
from polyleaf.training.leaf_fitters import LeafFitter
from polyleaf.training.raw_scores import DenseState, GrownTree
from polyleaf.training.sampling import TreeSample


class Balance:
    """Adds constants to the leaves of trees, which the objective finds for all training rows."""

    def __init__(self, state: DenseState, workers: Context) -> None:
        self._state, self._workers = state, workers

    def apply(self, grown: GrownTree, leaves: Leaves, outputs: TreeOutputs) -> Leaves:
        """Return the leaves with a constant for each output of the tree."""
        scores = self._state.scores_with_tree(grown, leaves, outputs)
        shift = self._state.bound.find_balance(
            scores, outputs, self._workers, grown.grower.leaf_of_row, _find_listing(leaves)
        )
        return _shift_leaves(leaves, shift.astype(np.float32))


def _find_listing(leaves: Leaves) -> np.ndarray | None:
    """Return a mask (n_leaves, K) of the outputs that leaves have values for; None: all."""
    if not isinstance(leaves, _core.TopkLeaves):
        return None
    listing = np.zeros((len(leaves.indptr) - 1, leaves.n_outputs), bool)
    listing[np.repeat(np.arange(len(listing)), np.diff(leaves.indptr)), leaves.outputs] = True
    return listing


def _shift_leaves(leaves: Leaves, shift: np.ndarray) -> Leaves:
    if isinstance(leaves, np.ndarray):
        return DENSE.shift(leaves, shift)
    if isinstance(leaves, _core.TopkLeaves):
        return SPARSE.shift(leaves, shift)
    assert isinstance(leaves, _core.LinearLeaves)
    return LINEAR.shift(leaves, shift)


class BalancedFitter:
    """Leaf values of another fitter, with the constants of a `Balance`."""

    def __init__(self, fitter: LeafFitter, balance: Balance) -> None:
        self._fitter, self._balance = fitter, balance

    def fit(
        self, grown: GrownTree, sample: TreeSample, outputs: TreeOutputs, rate: float
    ) -> Leaves:
        """Return the leaves of one tree, see `LeafFitter`."""
        leaves = self._fitter.fit(grown, sample, outputs, rate)
        return self._balance.apply(grown, leaves, outputs)
