"""The log-normal distribution. Owns its formulas; must not know what it is the distribution of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr

from polyleaf.distributions.base import Distribution, Floats
from polyleaf.distributions.normal import Normal

__all__ = ["LogNormal"]


@dataclass(frozen=True, eq=False)
class LogNormal(Distribution):
    """Distributions of values whose logarithms are normal.

    Parameters
    ----------
    log_loc, log_scale : ndarray of shape (n_rows,) or (n_rows, n_targets)
        Mean and standard deviation of the logarithm.
    """

    log_loc: Floats
    log_scale: Floats

    def mean(self) -> Floats:
        with np.errstate(over="ignore"):
            return np.exp(self.log_loc + 0.5 * self.log_scale**2)

    def std(self) -> Floats:
        with np.errstate(over="ignore"):
            return self.mean() * np.sqrt(np.expm1(self.log_scale**2))

    def logpdf(self, y: ArrayLike) -> Floats:
        log_y = _log(y)
        possible = np.isfinite(log_y)
        with np.errstate(invalid="ignore"):
            density = self._of_logarithm.logpdf(log_y) - log_y
        return np.where(possible | np.isnan(log_y), density, -np.inf)

    def cdf(self, y: ArrayLike) -> Floats:
        return self._of_logarithm.cdf(_log(y))

    def sf(self, y: ArrayLike) -> Floats:
        return self._of_logarithm.sf(_log(y))

    def ppf(self, q: ArrayLike) -> Floats:
        with np.errstate(over="ignore"):
            return np.exp(self._of_logarithm.ppf(q))

    def isf(self, q: ArrayLike) -> Floats:
        with np.errstate(over="ignore"):
            return np.exp(self._of_logarithm.isf(q))

    def crps(self, y: ArrayLike) -> Floats:
        """Baran and Lerch, Quarterly Journal of the Royal Meteorological Society 141, 2015."""
        y = np.asarray(y, np.float64)
        z = (_log(y) - self.log_loc) / self.log_scale
        # ndtr(a) + ndtr(b) - 1, without the loss of digits where both are next to 1.
        both = ndtr(z - self.log_scale) - ndtr(-self.log_scale / np.sqrt(2.0))
        return y * (2.0 * ndtr(z) - 1.0) - 2.0 * self.mean() * both

    def rvs(self, size: int | tuple[int, ...] = (), random_state: Any = None) -> NDArray[Any]:
        with np.errstate(over="ignore"):
            return np.exp(self._of_logarithm.rvs(size, random_state))

    @property
    def _of_logarithm(self) -> Normal:
        return Normal(self.log_loc, self.log_scale)


def _log(y: ArrayLike) -> Floats:
    """Logarithms, -inf of what is not above 0."""
    y = np.asarray(y, np.float64)
    with np.errstate(divide="ignore"):
        return np.log(np.where(y < 0, 0.0, y))
