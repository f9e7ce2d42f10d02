"""Element-wise losses bound to sparse targets: rows over very many outputs, of which few are
nonzero.

The loss and its derivative must vanish at a target of 0 and the base score (GBDT-SPARSE, eq. 7 and
8): then an output that is no label of a row, and that no tree has predicted for it, needs no
entry. Squared error has this at base 0, squared hinge at base -1. The logistic loss does not: the
derivative of an absent label is its probability, which is small, but its sum over all outputs and
rows of a leaf is not.

The Hessian is 1 for every output, exactly (squared error) or as an upper bound (squared hinge), so
first and second order are the same.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

import polyleaf._core as _core
from polyleaf.objectives._utils import Floats
from polyleaf.objectives.base import Array, Objective, check_domain
from polyleaf.objectives.elementwise import ElementwiseObjective
from polyleaf.runtime.context import Context
from polyleaf.runtime.row_data import RowData


class BoundSparseObjective:
    """An `ElementwiseObjective` bound to sparse targets.

    Raises a ValueError for objectives whose derivative at a target of 0 is not 0, and targets
    outside the domain of the loss. `rows`: the target is a csr_matrix (n, K), float32, canonical:
    columns ascend, no duplicates. Weights are float32 (n,), or None.
    """

    def __init__(self, objective: Objective, rows: RowData) -> None:
        if objective.sparse_base_score is None or not isinstance(objective, ElementwiseObjective):
            raise ValueError(
                f"Objective {objective.name!r} has derivatives for outputs that are 0, which "
                'sparse targets do not store: use "squared_hinge" or "squared_error", or '
                'split_search="histogram" with a dense y.'
            )
        target: sp.csr_matrix = rows.target
        values = target.data[:, None]
        is_valid = np.ones(values.shape, bool) if objective.sparse_base_score == 0 else values == 1
        check_domain(is_valid, RowData(values), objective.name, "targets 0 or 1")
        self.objective, self.rows = objective, rows
        self.target, self.weight = target, rows.weight
        self.n_rows, self.n_outputs = target.shape
        self._base: float = objective.sparse_base_score

    def base_score(self, n_threads: int | Context = 1) -> Floats:
        """Return the score (K,) at which the derivative of a target of 0 vanishes, for every
        output."""
        return np.full(self.n_outputs, self._base)

    def set_base_score(self, base: Array) -> None:
        """Check that raw scores are relative to that score."""
        if not np.all(np.asarray(base) == self._base):
            raise ValueError(
                f"With sparse targets the base_score of objective {self.objective.name!r} is "
                f"{self._base:g} for every output: leave base_score=None."
            )

    def make_raw_scores(self, n_threads: int = 1) -> _core.SparseRawScores:
        """Return raw scores of 0 for the rows of the target."""
        t = self.target
        values = None if np.all(t.data == 1) else t.data
        indptr, indices = t.indptr.astype(np.int64), t.indices.astype(np.int32, copy=False)
        return _core.SparseRawScores(indptr, indices, values, self.n_outputs, n_threads)

    def gradients(self, scores: _core.SparseRawScores, n_threads: int = 1) -> _core.SparseGradients:
        """Return the gradients at the raw scores, times the weights; absent entries are 0."""
        return scores.gradients(self.objective.core_loss(), self._base, self.weight, n_threads)
