"""The negative binomial distribution. Owns its formulas; must not know what it is the distribution of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betainc, betaln, hyp2f1, ive, xlogy
from scipy.stats import nbinom

from polyleaf.distributions.base import Distribution, Floats

__all__ = ["NegativeBinomial"]

_LEAST_ALPHA = 1e-4


@dataclass(frozen=True, eq=False)
class NegativeBinomial(Distribution):
    """Negative binomial distributions: counts that vary more than Poisson's.

    Parameters
    ----------
    mu : ndarray of shape (n_rows,) or (n_rows, n_targets)
        Means.
    alpha : ndarray of that shape
        The variance is mu + alpha mu^2: 0 would be Poisson's.
    """

    is_discrete: ClassVar[bool] = True

    mu: Floats
    alpha: Floats

    def mean(self) -> Floats:
        return self.mu.copy()

    def std(self) -> Floats:
        return np.sqrt(self.mu + self.alpha * self.mu**2)

    def logpdf(self, y: ArrayLike) -> Floats:
        y = np.asarray(y, np.float64)
        possible = (y >= 0) & (y == np.floor(y))
        at = np.where(possible, y, 0.0)
        r, x = self._r, self.alpha * self.mu
        # ln of (r + y - 1 over y), and y ln(x / (1 + x)) - r ln(1 + x)
        ways = -betaln(r, at + 1.0) - np.log(r + at)
        found = ways + xlogy(at, x / (1.0 + x)) - r * np.log1p(x)
        return np.where(possible, found, np.where(np.isnan(y), np.nan, -np.inf))

    def cdf(self, y: ArrayLike) -> Floats:
        y = np.floor(np.asarray(y, np.float64))
        found = betainc(self._r, np.maximum(y, 0.0) + 1.0, 1.0 / (1.0 + self.alpha * self.mu))
        return np.where(y < 0, 0.0, found)

    def sf(self, y: ArrayLike) -> Floats:
        y, x = np.floor(np.asarray(y, np.float64)), self.alpha * self.mu
        found = betainc(np.maximum(y, 0.0) + 1.0, self._r, x / (1.0 + x))
        return np.where(y < 0, 1.0, found)

    def ppf(self, q: ArrayLike) -> Floats:
        return np.maximum(
            nbinom.ppf(q, self._r, 1.0 / (1.0 + self.alpha * self.mu)), 0.0
        )  # not SciPy's -1

    def isf(self, q: ArrayLike) -> Floats:
        return np.maximum(nbinom.isf(q, self._r, 1.0 / (1.0 + self.alpha * self.mu)), 0.0)

    def crps(self, y: ArrayLike) -> Floats:
        """Wei and Held, "Calibration tests for count data", TEST 23, 2014, in the form of Jordan, Krüger and
        Lerch, Journal of Statistical Software 90, 2019."""
        y, x = np.asarray(y, np.float64), self.alpha * self.mu
        below = betainc(self._r + 1.0, np.maximum(np.floor(y), 1.0), 1.0 / (1.0 + x))
        below = np.where(y < 1, 0.0, below)
        return (
            y * (2.0 * self.cdf(y) - 1.0) - self.mu * (2.0 * below - 1.0) - self._half_difference()
        )

    def _half_difference(self) -> Floats:
        """Half of the mean difference of two values. Up to alpha = 1e-4, where the hypergeometric function
        has no digits, that of a Poisson distribution of the same variance: right to 1e-5."""
        x = self.alpha * self.mu
        variance, z = self.mu * (1.0 + x), 4.0 * x * (1.0 + x)
        r = 1.0 / np.maximum(self.alpha, _LEAST_ALPHA)
        factor = hyp2f1(0.5, 1.0 - r, 2.0, z / (1.0 + z)) / np.sqrt(1.0 + z)
        of_poisson = ive(0, 2.0 * variance) + ive(1, 2.0 * variance)
        return variance * np.where(self.alpha < _LEAST_ALPHA, of_poisson, factor)

    def rvs(self, size: int | tuple[int, ...] = (), random_state: Any = None) -> NDArray[Any]:
        random = np.random.default_rng(random_state)
        return random.poisson(random.gamma(self._r, self.alpha * self.mu, self._size(size)))

    @property
    def _r(self) -> Floats:
        return 1.0 / self.alpha
