"""Bounds of node outputs below a split on a monotone feature."""

from dataclasses import dataclass

import numpy as np

F32 = np.float32


@dataclass(frozen=True)
class OutputBounds:
    """Bounds of outputs: `low` and `high`, float32 (K,)."""

    low: np.ndarray
    high: np.ndarray

    @classmethod
    def none(cls, n_outputs):
        return cls(np.full(n_outputs, -np.inf, F32), np.full(n_outputs, np.inf, F32))

    def nearest(self, w):
        """Clip `w` (C, K) to the bounds."""
        return np.minimum(np.maximum(w, self.low), self.high)

    def child_bounds(self, pooled, directions):
        """Return the bounds of the left and the right child.

        `pooled` (K,) is the common value of both children, NaN where each has its own. `directions`
        (K,) are those of the split feature. The pooled value is an upper bound on the side with
        lower values, and a lower bound on the other.
        """
        rises, falls = (~np.isnan(pooled) & (sign * directions > 0) for sign in (1, -1))
        lower, upper = np.where(rises, pooled, self.high), np.where(rises, pooled, self.low)
        left = OutputBounds(np.where(falls, pooled, self.low), lower)
        right = OutputBounds(upper, np.where(falls, pooled, self.high))
        return left, right


@dataclass(frozen=True)
class NodeConstraints:
    """Constraints of a node: `directions` of all features (F, K) or of one (K,), and bounds."""

    directions: np.ndarray
    bounds: OutputBounds

    def select(self, feature):
        return NodeConstraints(self.directions[feature], self.bounds)
