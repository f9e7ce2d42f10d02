"""Balance: trees of some losses end with a constant for all rows, so that predictions add up to the
targets.

A step of a leaf that is shorter upwards than downwards, a penalty, or a sample of the rows would
otherwise leave the sum of the predictions too low or too high until all leaves have converged.

- With a log link the constant is exact, and every tree has one.
- Probabilities have one only where their sum is off by more than `TOLERANCE`. It follows from the
  sums of the gradients, which are the probabilities less the targets: of the gradients that the
  tree was grown on, so that a round corrects what the round before has left. Where a single tree
  moves the sum more than that, they are computed with the tree: with samples, penalties, layers and
  sparse leaves, and in the first rounds of a loss that couples outputs. The next tree needs these
  derivatives anyway, unless the constant changes them.

Sparse leaves add the constant of an output where they have a value for it.
"""

from __future__ import annotations

import numpy as np

import polyleaf._core as _core
from polyleaf.model.leaf_kinds import DENSE, LINEAR, SPARSE, Leaves, TreeOutputs
from polyleaf.settings.train_config import TopkLeaf, TrainConfig
from polyleaf.training.leaf_fitters import LeafFitter
from polyleaf.training.raw_scores import DenseState, GrownTree, extract_columns
from polyleaf.training.sampling import TreeSample

TOLERANCE = 2.0**-7
# Of losses that couple outputs: many small classes are never within the tolerance.
N_FIRST_ROUNDS = 32
MAX_OUTPUTS, MAX_TREES = 32, 8
_MAX_SHIFT = 1.0  # of the log-odds of a probability, at a time


class Balance:
    """Adds constants to the leaves of trees, which the objective finds for all training rows."""

    def __init__(self, state: DenseState, settings: TrainConfig) -> None:
        self._state, self._workers = state, settings.workers
        self._is_exact = state.bound.objective.balances_totals
        self._totals: np.ndarray | None = None
        penalties = settings.regularisation
        # The gradients of heavy rows are not the gradients of the loss, and a limit of leaf values
        # holds for their sum with the constant.
        if not state.derivatives.limits_rows and penalties.max_delta_step == 0:
            self._totals = state.bound.sum_probabilities(settings.workers)
        self._is_rough = (
            isinstance(settings.leaf, TopkLeaf)
            or settings.boosting.boosting_step == "layer"
            or penalties.reg_alpha > 0
        )

    def apply(
        self, grown: GrownTree, leaves: Leaves, outputs: TreeOutputs, sample: TreeSample
    ) -> Leaves:
        """Return the leaves with a constant for each output of the tree."""
        shift, listing = None, _find_listing(leaves)
        if self._is_exact:
            scores = self._state.scores_with_tree(grown, leaves, outputs)
            shift = self._state.bound.find_balance(
                scores, outputs, self._workers, grown.grower.leaf_of_row, listing
            )
        if self._totals is not None and grown.tree.n_leaves > 1:
            found = self._find_shift(self._totals, grown, leaves, outputs, sample, listing)
            shift = found if shift is None else shift + found
        if shift is None or not shift.any():
            return leaves
        return _shift_leaves(leaves, shift.astype(np.float32))

    def _find_shift(
        self,
        totals: np.ndarray,
        grown: GrownTree,
        leaves: Leaves,
        outputs: TreeOutputs,
        sample: TreeSample,
        listing: np.ndarray | None,
    ) -> np.ndarray:
        """Return what the scores of probabilities lack, 0 within the tolerance."""
        state = self._state
        if self._counts_tree(outputs, sample):
            excess = state.sum_gradients_with_tree(grown, leaves, outputs)
        else:
            excess = state.sum_gradients(grown, outputs)
        target, rest = extract_columns(totals, outputs)
        shift = np.zeros(len(excess))
        smaller = np.minimum(target, rest)
        off = (smaller > 0) & (np.abs(excess) > TOLERANCE * smaller)
        if not off.any():
            return shift
        excess, target, rest = excess[off], target[off], rest[off]
        with np.errstate(divide="ignore", invalid="ignore"):
            odds = np.nan_to_num(_core.log1p(-excess / rest) - _core.log1p(excess / target))
        if listing is not None:
            hessians, listing = state.sum_hessians(grown, outputs)[:, off], listing[:, off]
            listed = np.cumsum(np.where(listing, hessians, 0.0), axis=0)[-1]
            total = np.cumsum(hessians, axis=0)[-1]
            odds *= np.divide(total, listed, out=np.zeros(len(odds)), where=listed > 0)
        shift[off] = np.clip(odds, -_MAX_SHIFT, _MAX_SHIFT)
        if outputs is None:
            state.show(None)  # the derivatives with the tree lack the constant
        return shift

    def _counts_tree(self, outputs: TreeOutputs, sample: TreeSample) -> bool:
        """Return whether gradients are to be computed with the tree."""
        bound, is_rough = self._state.bound, self._is_rough or sample.rows is not None
        if bound.objective.separable:
            return is_rough
        is_few = bound.n_outputs <= (MAX_OUTPUTS if outputs is None else MAX_TREES)
        return is_few and (is_rough or sample.round < N_FIRST_ROUNDS)


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
        return self._balance.apply(grown, leaves, outputs, sample)
