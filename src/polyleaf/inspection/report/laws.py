"""How predicted distributions hold on rows: where the truth lies in them, how often intervals have it, how
wide these are.

Owns these numbers, of any family. Must not know HTML, pictures or models.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from polyleaf.distributions import Distribution

__all__ = ["COVERAGES", "Interval", "heights", "intervals"]

COVERAGES = (0.5, 0.8, 0.9, 0.95)


class Interval(NamedTuple):
    """Central intervals of one coverage: the share of truths inside, its standard error, the mean width."""

    coverage: float
    share: float
    error: float
    width: float


def intervals(
    y: np.ndarray, law: Distribution, coverages: Sequence[float] = COVERAGES
) -> list[Interval]:
    """Of one target, y and `law` of shape (n_rows,), one row or more, none of them NaN."""
    found = []
    for coverage in coverages:
        low, high = law.interval(coverage).T
        share = float(np.mean((low <= y) & (y <= high)))
        error = float(np.sqrt(share * (1.0 - share) / len(y)))
        found.append(Interval(coverage, share, error, float(np.mean(high - low))))
    return found


def heights(y: np.ndarray, law: Distribution, n_bins: int = 10) -> np.ndarray:
    """The histogram of the probability integral transform, (n_bins,), 1 throughout where laws are right.

    Of a count all that its probability covers is filled evenly (Czado, Gneiting and Held, "Predictive model
    assessment for count data", Biometrics 65, 2009): nothing is drawn at random.
    """
    last = law.cdf(y)
    first = law.cdf(y - 1.0) if law.is_discrete else last
    ends = np.linspace(0.0, 1.0, n_bins + 1)[:, None]
    spread = np.maximum(last - first, np.finfo(np.float64).tiny)
    below = np.where(last > first, np.clip((ends - first) / spread, 0.0, 1.0), ends >= last)
    below[0], below[-1] = 0.0, 1.0
    return np.diff(below.mean(axis=1)) * n_bins
