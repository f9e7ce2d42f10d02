"""The structure of trees: how they grow, at one go or layer by layer.

Owns: the core's grower and what it is told. Must not know: what splits are judged by, how leaf values are
fitted, or what becomes of a tree.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np

import polyleaf._core as _core
from polyleaf.settings.train_config import TrainConfig
from polyleaf.training.interactions import Interactions
from polyleaf.training.sampling import Draw

__all__ = ["Grown", "Limits", "Splits", "Structure"]


class Grown(NamedTuple):
    """What growth leaves behind, all that leaf values may depend on besides derivatives.

    Attributes
    ----------
    tree : _core.Tree
    grower : _core.Grower
        Which knows the rows of its last tree.
    is_added : bool
        Whether the raw scores have the tree already, which went there layer by layer.
    """

    tree: _core.Tree
    grower: _core.Grower
    is_added: bool = False

    @property
    def leaf_of_row(self) -> np.ndarray:
        """(n_rows,), int32: a view that the next tree overwrites; of rows on a device, a copy."""
        return self.grower.leaf_of_row


class Splits(Protocol):
    """What the splits of a tree are judged by."""

    def use(self, draw: Draw, output: int) -> _core.Search:
        """The core's search, told what the next tree or layer is judged by; `output` -1: all outputs."""
        ...


class Limits(NamedTuple):
    """What bounds one output's value in a leaf, and how many a leaf holds; columns of a sketch have none."""

    reg_alpha: float = 0.0
    max_delta_step: float = 0.0
    leaf_k: int = 0
    shared_support: bool = False


class Structure:
    """Grows trees, at one go or layer by layer.

    Parameters
    ----------
    grower : _core.Grower
    splits : Splits
    limits : Limits
    interactions : Interactions
    factors : ndarray of shape (n_columns,), float32, or None
        What gains are multiplied by where features compete.
    settings : TrainConfig
    """

    def __init__(
        self,
        grower: _core.Grower,
        splits: Splits,
        limits: Limits,
        interactions: Interactions,
        factors: np.ndarray | None,
        settings: TrainConfig,
    ) -> None:
        self._splits, self._limits, self._step = splits, limits._asdict(), settings.regularisation
        self._growth, self._block_size = settings.growth, settings.hessian.split_block_size
        self._grower, self._factors = grower, factors
        self._grower.set_interaction_constraints(*interactions)

    def grow(self, draw: Draw, output: int) -> Grown:
        """One tree, for one output or for all (-1)."""
        search = self._splits.use(draw, output)
        tree = self._grower.grow(search, self._config(draw.round, output), draw.features)
        search.reset()  # what it uses may be as large as the scores, which are about to grow
        return Grown(tree, self._grower)

    # --- layer by layer: begin, then split, so_far, evaluate in turn, finish ---

    def begin(self, draw: Draw, output: int) -> None:
        """Find the best split of the root of a tree."""
        search = self._splits.use(draw, output)
        self._grower.begin(search, self._config(draw.round, output), draw.features)

    def split(self) -> bool:
        """Split the nodes whose turn it is; False where growth has ended."""
        return self._grower.split()

    def so_far(self) -> Grown:
        """The tree as it is."""
        return Grown(self._grower.assign_leaf_ids(), self._grower)

    @property
    def can_split_further(self) -> bool:
        """Whether the nodes that the last `split` made may have children."""
        return self._grower.can_split_further

    def evaluate(self, draw: Draw, output: int) -> None:
        """Find the best splits of these nodes."""
        self._splits.use(draw, output)
        self._grower.evaluate()

    def finish(self) -> Grown:
        """The tree, cut back where that is wanted."""
        return Grown(self._grower.finish(), self._grower)

    @property
    def node_of_leaf(self) -> np.ndarray:
        """The node of each leaf of the tree, by the numbers that nodes had before any were cut."""
        return self._grower.node_of_leaf

    def _seed(self, round: int, output: int) -> int:
        """What features of nodes are drawn by; made only where they are, since that takes a while."""
        if self._growth.colsample_bynode >= 1:
            return 0
        sequence = np.random.SeedSequence([self._growth.seed, round, output + 1])
        return int(sequence.generate_state(1, np.uint64)[0])

    def _config(self, round: int, output: int) -> _core.GrowConfig:
        g = self._growth
        return _core.GrowConfig(
            max_leaves=g.max_leaves if g.max_leaves is not None else 2**31 - 1,
            max_depth=g.max_depth if g.max_depth is not None else -1,
            level_wise=g.grow_policy == "depthwise",
            reg_lambda=self._step.reg_lambda,
            min_split_gain=g.min_split_gain,
            min_child_weight=g.min_child_weight,
            min_child_samples=g.min_child_samples,
            max_cat_to_onehot=g.max_cat_to_onehot,
            cat_smooth=g.cat_smooth,
            colsample_bynode=g.colsample_bynode,
            seed=self._seed(round, output),
            histogram_memory=g.histogram_memory_bytes,
            post_prune=g.pruning == "post",
            block_size=self._block_size,
            factors=self._factors,
            **self._limits,
        )
