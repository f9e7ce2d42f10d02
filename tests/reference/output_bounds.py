"""Bounds of node outputs below a split on a monotone feature."""

from dataclasses import dataclass

import numpy as np

F32 = np.float32


@dataclass(frozen=True)
class OutputBounds:
    """`low` and `high`, float32 (K,)."""

    low: np.ndarray
    high: np.ndarray

    @classmethod
    def none(cls, n_outputs):
        return cls(np.full(n_outputs, -np.inf, F32), np.full(n_outputs, np.inf, F32))

    def nearest(self, w):
        """The values nearest to `w` (C, K) that keep to them."""
        return np.minimum(np.maximum(w, self.low), self.high)

    def child_bounds(self, pooled, directions):
        """Those of the left and the right child.

        `pooled` (K,): the one value of both children, NaN where each has its own; `directions` (K,)
        of the feature split on. On the side where values are to be lower none may pass the pooled
        one upwards, on the other none downwards.
        """
        rises, falls = (~np.isnan(pooled) & (sign * directions > 0) for sign in (1, -1))
        lower, upper = np.where(rises, pooled, self.high), np.where(rises, pooled, self.low)
        left = OutputBounds(np.where(falls, pooled, self.low), lower)
        right = OutputBounds(upper, np.where(falls, pooled, self.high))
        return left, right


@dataclass(frozen=True)
class NodeConstraints:
    """What splits of a node must obey: `directions` of all features (F, K), or of one (K,), and
    bounds.
    """

    directions: np.ndarray
    bounds: OutputBounds

    def select(self, feature):
        return NodeConstraints(self.directions[feature], self.bounds)
