"""Position bias: rows that were shown at the top are clicked more, whatever their relevance is.

The objective sees the score of a row plus a constant of its position, which predictions leave out:
``s_i + b[position_i]``, an additive model of relevance and examination (Zhao et al., "Recommending
what video to watch next", RecSys 2019). b is 0 for the first position. With each tree it takes a
Newton step, as if the positions were the leaves of one more tree; the loss then has a penalty of
``position_lambda b^2 / 2`` for each row.
"""

from __future__ import annotations

import numpy as np

import polyleaf._core as _core
from polyleaf.model import Model
from polyleaf.model.leaf_kinds import TreeOutputs
from polyleaf.model.metadata import get_position_bias
from polyleaf.runtime.row_data import RowData
from polyleaf.settings.train_config import TrainConfig
from polyleaf.training.leaf_fitters import make_leaf_config
from polyleaf.training.raw_scores import DenseState


class PositionBias:
    """The bias of each position, learned beside the trees of one member.

    Attributes
    ----------
    positions : ndarray of shape (n_positions,), int64
    values : ndarray of shape (n_positions, K), float32
    """

    def __init__(self, state: DenseState, rows: RowData, settings: TrainConfig) -> None:
        self._state, self._settings, self._offset = state, settings, rows.offset
        assert rows.positions is not None
        parts = settings.workers.communicator.allgather_objects(np.unique(rows.positions))
        self.positions = np.unique(np.concatenate(parts))
        self._number = np.searchsorted(self.positions, rows.positions).astype(np.int32)
        self.values = np.zeros((len(self.positions), state.bound.n_outputs), np.float32)

    def start_from(self, model: Model, member: int) -> None:
        """Start from the values of a model that is continued; new positions have 0."""
        stored = get_position_bias(model, model.n_rounds)
        if stored is not None:
            values = dict(zip(stored[0], stored[1][member], strict=True))
            for i, position in enumerate(self.positions.tolist()):
                self.values[i] = values.get(position, 0.0)
            self._show()

    def update(self, outputs: TreeOutputs, rate: float) -> None:
        """Take a step at the derivatives that a tree of these outputs was fitted to."""
        g, h = self._state.derivatives.select(outputs)
        columns = slice(None) if outputs is None else outputs
        penalty = np.float32(self._settings.position_lambda)
        if penalty > 0:
            g = g + penalty * self.values[self._number][:, columns]
            h = (np.ones((len(g), 1), np.float32) if h is None else h) + penalty
        step = make_leaf_config(self._settings.regularisation, rate)
        workers, n = self._settings.workers, len(self.values)
        values = _core.fit_newton_leaves(g, h, self._number, n, step, None, None, workers)
        self.values[:, columns] += values - values[0]
        self._show()

    def _show(self) -> None:
        offset = self.values[self._number]
        if self._offset is not None:
            offset += self._offset
        self._state.set_offset(offset)
