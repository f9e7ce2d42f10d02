"""Trees of which every layer is a step of boosting (TFBT, section V)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import polyleaf._core as _core
from polyleaf.model import Model
from polyleaf.model.leaf_kinds import Leaves
from polyleaf.training.leaf_fitters import LeafFitter, MonotoneFitter
from polyleaf.training.raw_scores import DenseState, GrownTree
from polyleaf.training.sampling import Sampler, TreeSample
from polyleaf.training.tree_builder import TreeBuilder

__all__ = ["LayerBooster"]


class LayerBooster:
    """Builds trees layer by layer.

    A node adds its own step to those of its ancestors; the leaves of the finished tree hold the
    sums.

    Parameters
    ----------
    state, builder, fitter, sampler, model
        Components of the training.
    report_layer : callable
        `report_layer(round, tree, leaves)` is called after every layer but the last of a tree of
        all outputs.
    """

    def __init__(
        self,
        state: DenseState,
        builder: TreeBuilder,
        fitter: LeafFitter,
        sampler: Sampler,
        model: Model,
        report_layer: Callable[[int, _core.Tree, Leaves], Any],
    ) -> None:
        self._state, self._builder = state, builder
        # Monotone constraints apply to sums of steps, not to the steps of new nodes.
        self._monotone = fitter if isinstance(fitter, MonotoneFitter) else None
        self._fitter = fitter.base_fitter if isinstance(fitter, MonotoneFitter) else fitter
        self._sampler, self._model, self._report_layer = sampler, model, report_layer

    def build_tree(self, sample: TreeSample, output: int) -> tuple[GrownTree, Leaves]:
        """Return one tree and its leaves; unless it was pruned, the raw scores contain it
        already."""
        state, builder, layer, leaves = self._state, self._builder, 0, np.empty(0, np.float32)
        # Sums of steps of each node of the tree, ancestors included.
        sums = np.zeros((1, 1 if output >= 0 else self._model.n_outputs), np.float32)
        layer_sample = sample
        state.save_scores()
        builder.begin(sample, output)
        while builder.split():
            layer += 1
            grown = builder.get_tree()
            steps = self._fitter.fit(grown, layer_sample, output, self._model.learning_rate)
            sums = _add_steps(sums, grown.tree, steps)
            leaves = self._project_to_constraints(sums, grown, layer_sample, output)
            state.restore_scores()
            state.add_tree(grown, leaves, output)
            if not builder.can_split_further:
                break
            if output < 0:
                self._report_layer(sample.round, grown.tree, leaves)
            state.update_derivatives()
            layer_sample = self._sampler.draw(state.sampling_gradients, sample.round, layer)
            builder.evaluate(layer_sample, output)
        grown = builder.finish()
        if grown.tree.n_leaves == len(leaves):
            grown = grown._replace(is_added=True)
        else:
            state.restore_scores()  # no split was found, or the tree was pruned
        if len(sums) == 1:  # no split was found: one step for all rows, as for a tree of one leaf
            return grown, self._fitter.fit(grown, sample, output, self._model.learning_rate)
        return grown, self._project_to_constraints(sums, grown, sample, output)

    def _project_to_constraints(
        self, sums: np.ndarray, grown: GrownTree, sample: TreeSample, output: int
    ) -> np.ndarray:
        """Project the sums of the current leaves to monotone constraints, in place, and return
        them."""
        nodes = self._builder.node_of_leaf
        if self._monotone is not None:
            sums[nodes] = self._monotone.project(sums[nodes], grown, sample, output)
        return sums[nodes]


def _add_steps(sums: np.ndarray, tree: _core.Tree, steps: Any) -> np.ndarray:
    """Return the sums of steps of all nodes of a tree, (n_nodes, K or 1), float32.

    `sums` are those of the older nodes; `steps` are those of the leaves, of which the new ones
    count.
    """
    inner = np.flatnonzero(tree.left >= 0)
    parent = np.zeros(tree.n_nodes, np.intp)
    parent[tree.left[inner]] = parent[tree.right[inner]] = inner
    new = np.arange(len(sums), tree.n_nodes)
    return np.concatenate([sums, sums[parent[new]] + steps[tree.leaf[new]]])
