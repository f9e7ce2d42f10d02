"""Expected gain of the best ordering of many categories that carry no information."""

from dataclasses import dataclass

import numpy as np

from reference.quantised_gradients import F32, total
from reference.split_gain import diagonal_hessian

BEST_CUT = (
    0.6366197723675814  # 2 / pi: of the squares of many normal numbers, what one cut explains
)


@dataclass(frozen=True)
class CategoricalOverfit:
    """Gradients as numbers drawn by chance: their variance for each unit of curvature, and how many
    outputs vary (one that varies little counts for little).
    """

    variance: float
    width: float

    def expected_gain(self, n_categories):
        """Float32: by how much the best cut of so many categories, in the order of their gradients,
        raises the score sum above that of one cut without a choice.

        Means of n categories of K outputs vary most along a direction that was found for them: by
        (sqrt(n - 1) + sqrt(K - 1))^2 variances (Marchenko and Pastur, 1967) where a given one has K
        - 1.
        """
        rest, others = float(n_categories - 1), max(self.width - 1.0, 0.0)
        return F32(BEST_CUT * (rest + 2.0 * np.sqrt(rest * others)) * self.variance)


def estimate_overfit(channels):
    """`CategoricalOverfit` of all rows of `channels`, or None where no gradient differs from 0."""
    sums = total(channels)
    squares = np.sum(channels.gradients * channels.gradients, axis=0).astype(np.float64)
    steps = channels.gradient_steps.astype(np.float64)
    H = np.full(len(steps), float(sums.count[0]))
    if channels.kind != "unit":
        own = sums.hessians[0] * channels.hessian_steps.astype(np.float64)
        H = np.broadcast_to(diagonal_hessian(own, channels.kind, len(steps)), len(steps))
    of_outputs = zip(squares, steps, H, strict=True)
    variances = [s * (step * step) / h if h > 0 else 0.0 for s, step, h in of_outputs]
    all_of_them, squared = 0.0, 0.0
    for v in variances:
        all_of_them, squared = all_of_them + v, squared + v * v
    if not (all_of_them > 0 and squared > 0):
        return None
    return CategoricalOverfit(squared / all_of_them, all_of_them * all_of_them / squared)
