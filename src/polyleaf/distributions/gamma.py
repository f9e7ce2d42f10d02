"""The gamma distribution. Owns its formulas; must not know what it is the distribution of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import beta, gammainc, gammaincc, gammainccinv, gammaincinv, gammaln, xlogy

from polyleaf.distributions.base import Distribution, Floats

__all__ = ["Gamma"]


@dataclass(frozen=True, eq=False)
class Gamma(Distribution):
    """Gamma distributions, of positive values whose deviation is a share of the mean.

    Parameters
    ----------
    k : ndarray of shape (n_rows,) or (n_rows, n_targets)
        The shape: 1 / (deviation / mean)^2.
    scale : ndarray of that shape
        Mean / shape.
    """

    k: Floats
    scale: Floats

    def mean(self) -> Floats:
        return self.k * self.scale

    def std(self) -> Floats:
        return np.sqrt(self.k) * self.scale

    def logpdf(self, y: ArrayLike) -> Floats:
        y = np.asarray(y, np.float64)
        u = np.where(y < 0, np.nan, y) / self.scale
        with np.errstate(divide="ignore"):
            density = xlogy(self.k - 1.0, u) - u - gammaln(self.k) - np.log(self.scale)
        return np.where(y < 0, -np.inf, density)

    def cdf(self, y: ArrayLike) -> Floats:
        return gammainc(self.k, self._above_zero(y))

    def sf(self, y: ArrayLike) -> Floats:
        return gammaincc(self.k, self._above_zero(y))

    def ppf(self, q: ArrayLike) -> Floats:
        return self.scale * gammaincinv(self.k, q)

    def isf(self, q: ArrayLike) -> Floats:
        return self.scale * gammainccinv(self.k, q)

    def crps(self, y: ArrayLike) -> Floats:
        """Möller and Scheuerer, Quarterly Journal of the Royal Meteorological Society 141, 2015."""
        y, k = np.asarray(y, np.float64), self.k
        u = self._above_zero(y)
        outside = y * (2.0 * gammainc(k, u) - 1.0) - self.mean() * (
            2.0 * gammainc(k + 1.0, u) - 1.0
        )
        return outside - self.scale / beta(0.5, k)

    def rvs(self, size: int | tuple[int, ...] = (), random_state: Any = None) -> NDArray[Any]:
        return np.random.default_rng(random_state).gamma(self.k, self.scale, self._size(size))

    def _above_zero(self, y: ArrayLike) -> Floats:
        return np.maximum(np.asarray(y, np.float64), 0.0) / self.scale
