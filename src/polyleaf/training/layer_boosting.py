"""Trees whose every layer is a step of boosting (TFBT, section V).

Owns: what nodes add up to, and the order of steps within a tree. Must not know: how splits are found, or a
step is fitted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import polyleaf._core as _core
from polyleaf.model import Model
from polyleaf.model.leaf_kinds import Leaves
from polyleaf.training.leaf_fitters import Fitter, MonotoneFitter
from polyleaf.training.raw_scores import DenseState
from polyleaf.training.sampling import Draw, Sampler
from polyleaf.training.tree_builder import Grown, Structure

__all__ = ["Layers"]


class Layers:
    """Structure and fitter in one: both go layer by layer.

    A node adds its own step to what its ancestors gave; the leaves of the finished tree hold the sums.

    Parameters
    ----------
    state, structure, fitter, sampler, model
        What a layer is made with.
    watch : callable
        `watch(round, tree, leaves)` is told of every layer but the last of a tree of all outputs.
    """

    def __init__(
        self,
        state: DenseState,
        structure: Structure,
        fitter: Fitter,
        sampler: Sampler,
        model: Model,
        watch: Callable[[int, _core.Tree, Leaves], Any],
    ) -> None:
        self._state, self._structure = state, structure
        # Sums of steps are to obey directions, not the steps, which only new nodes take.
        self._monotone = fitter if isinstance(fitter, MonotoneFitter) else None
        self._fitter = fitter.plain if isinstance(fitter, MonotoneFitter) else fitter
        self._sampler, self._model, self._watch = sampler, model, watch
        self._sums = np.zeros(
            (1, 1), np.float32
        )  # what each node of the tree adds, ancestors included

    def grow(self, draw: Draw, output: int) -> Grown:
        """One tree."""
        state, structure, layer, leaves = self._state, self._structure, 0, np.empty(0, np.float32)
        self._sums = np.zeros((1, 1 if output >= 0 else self._model.n_outputs), np.float32)
        state.mark()
        structure.begin(draw, output)
        while structure.split():
            layer += 1
            grown = structure.so_far()
            steps = self._fitter.fit(grown, draw, output, self._model.learning_rate)
            self._sums = _summed_steps(self._sums, grown.tree, steps)
            leaves = self._obeying_sums(grown, draw, output)
            state.rewind()
            state.add(grown, leaves, output)
            if not structure.can_split_further:
                break
            if output < 0:
                self._watch(draw.round, grown.tree, leaves)
            state.renew()
            draw = self._sampler.draw(state.gradients_of_rows, draw.round, layer)
            structure.evaluate(draw, output)
        grown = structure.finish()
        if grown.tree.n_leaves == len(leaves):
            return grown._replace(is_added=True)
        state.rewind()  # nothing was split, or the tree was cut back
        return grown

    def fit(self, grown: Grown, draw: Draw, output: int, learning_rate: float) -> Leaves:
        """The leaves of the tree just grown."""
        if (
            len(self._sums) == 1
        ):  # nothing to split: one step for all rows, as a whole tree of one leaf takes
            return self._fitter.fit(grown, draw, output, learning_rate)
        return self._obeying_sums(grown, draw, output)

    def _obeying_sums(self, grown: Grown, draw: Draw, output: int) -> np.ndarray:
        """The sums of the leaves of the tree as it is, which from here on are what obeys directions."""
        nodes = self._structure.node_of_leaf
        if self._monotone is not None:
            self._sums[nodes] = self._monotone.obeying(self._sums[nodes], grown, draw, output)
        return self._sums[nodes]


def _summed_steps(sums: np.ndarray, tree: _core.Tree, steps: Any) -> np.ndarray:
    """What each node of a tree adds, ancestors included: (n_nodes, K or 1), float32.

    `sums` is that of the nodes that were there before; `steps` are those of the leaves, of which the new ones
    count.
    """
    inner = np.flatnonzero(tree.left >= 0)
    parent = np.zeros(tree.n_nodes, np.intp)
    parent[tree.left[inner]] = parent[tree.right[inner]] = inner
    new = np.arange(len(sums), tree.n_nodes)
    return np.concatenate([sums, sums[parent[new]] + steps[tree.leaf[new]]])
