"""The normal distribution. Owns its formulas; must not know what it is the distribution of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr, ndtri

from polyleaf.distributions.base import Distribution, Floats

__all__ = ["Normal"]

_LOG_ROOT = 0.5 * np.log(2.0 * np.pi)


@dataclass(frozen=True, eq=False)
class Normal(Distribution):
    """Normal distributions.

    Parameters
    ----------
    loc, scale : ndarray of shape (n_rows,) or (n_rows, n_targets)
        Mean and standard deviation.
    """

    loc: Floats
    scale: Floats

    def mean(self) -> Floats:
        return self.loc.copy()

    def std(self) -> Floats:
        return self.scale.copy()

    def logpdf(self, y: ArrayLike) -> Floats:
        return -0.5 * self._z(y) ** 2 - np.log(self.scale) - _LOG_ROOT

    def cdf(self, y: ArrayLike) -> Floats:
        return ndtr(self._z(y))

    def sf(self, y: ArrayLike) -> Floats:
        return ndtr(-self._z(y))

    def ppf(self, q: ArrayLike) -> Floats:
        return self.loc + self.scale * ndtri(q)

    def isf(self, q: ArrayLike) -> Floats:
        return self.loc - self.scale * ndtri(q)

    def crps(self, y: ArrayLike) -> Floats:
        """Gneiting, Raftery, Westveld and Goldman, Monthly Weather Review 133, 2005, eq. 5."""
        z = self._z(y)
        density = np.exp(-0.5 * z**2 - _LOG_ROOT)
        return self.scale * (z * (2.0 * ndtr(z) - 1.0) + 2.0 * density - 1.0 / np.sqrt(np.pi))

    def rvs(self, size: int | tuple[int, ...] = (), random_state: Any = None) -> NDArray[Any]:
        return np.random.default_rng(random_state).normal(self.loc, self.scale, self._size(size))

    def _z(self, y: ArrayLike) -> Floats:
        return (np.asarray(y, np.float64) - self.loc) / self.scale
