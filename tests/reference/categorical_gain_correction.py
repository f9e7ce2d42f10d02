"""Expected gain of the best ordering of many uninformative categories."""

from dataclasses import dataclass

import numpy as np

from reference.quantised_gradients import F32, total
from reference.split_gain import diagonal_hessian

BEST_CUT = (
    0.6366197723675814  # 2 / pi: share of the squares of many normal numbers that one cut explains
)


@dataclass(frozen=True)
class CategoricalOverfit:
    """Model of gradients as random numbers.

    Holds their variance per unit of Hessian, and the effective number of varying outputs (one that
    varies little counts for little).
    """

    variance: float
    width: float

    def expected_gain(self, n_categories):
        """Return float32: the expected excess of the best cut over one fixed cut.

        Categories are ordered by their gradients, and the excess is that of the score sum.

        Means of n categories of K outputs vary most along a direction that was chosen for them: by
        (sqrt(n - 1) + sqrt(K - 1))^2 variances (Marchenko and Pastur, 1967), compared with K - 1
        for a given one.
        """
        rest, others = float(n_categories - 1), max(self.width - 1.0, 0.0)
        return F32(BEST_CUT * (rest + 2.0 * np.sqrt(rest * others)) * self.variance)


def estimate_overfit(channels):
    """Return `CategoricalOverfit` of all rows of `channels`, or None if all gradients are 0."""
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
