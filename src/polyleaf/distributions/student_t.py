"""Student's t distribution. Owns its formulas; must not know what it is the distribution of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import beta, betaln, stdtr, stdtrit

from polyleaf.distributions.base import Distribution, Floats

__all__ = ["StudentT"]


@dataclass(frozen=True, eq=False)
class StudentT(Distribution):
    """Student's t distributions, moved and scaled.

    Parameters
    ----------
    loc, scale : ndarray of shape (n_rows,) or (n_rows, n_targets)
        Where they lie, and how far they spread: the standard deviation is larger by the root of df / (df -
        2), and infinite up to df = 2.
    df : float
        Degrees of freedom, above 1: few have heavy tails.
    """

    loc: Floats
    scale: Floats
    df: float

    def mean(self) -> Floats:
        return self.loc.copy()

    def std(self) -> Floats:
        return self.scale * (np.sqrt(self.df / (self.df - 2.0)) if self.df > 2.0 else np.inf)

    def logpdf(self, y: ArrayLike) -> Floats:
        kernel = -0.5 * (self.df + 1.0) * np.log1p(self._z(y) ** 2 / self.df)
        return kernel - betaln(0.5, 0.5 * self.df) - 0.5 * np.log(self.df) - np.log(self.scale)

    def cdf(self, y: ArrayLike) -> Floats:
        return stdtr(self.df, self._z(y))

    def sf(self, y: ArrayLike) -> Floats:
        return stdtr(self.df, -self._z(y))

    def ppf(self, q: ArrayLike) -> Floats:
        return self._at(_quantile(np.asarray(q, np.float64), self.df))

    def isf(self, q: ArrayLike) -> Floats:
        return self._at(-_quantile(np.asarray(q, np.float64), self.df))

    def crps(self, y: ArrayLike) -> Floats:
        """Jordan, Krüger and Lerch, "Evaluating probabilistic forecasts with scoringRules", Journal of
        Statistical Software 90, 2019, appendix A."""
        z, df = self._z(y), self.df
        density = np.exp(-0.5 * (df + 1.0) * np.log1p(z**2 / df)) / (
            beta(0.5, 0.5 * df) * np.sqrt(df)
        )
        spread = 2.0 * np.sqrt(df) / (df - 1.0) * beta(0.5, df - 0.5) / beta(0.5, 0.5 * df) ** 2
        moved = z * (2.0 * stdtr(df, z) - 1.0) + 2.0 * density * (df + z**2) / (df - 1.0)
        return self.scale * (moved - spread)

    def rvs(self, size: int | tuple[int, ...] = (), random_state: Any = None) -> NDArray[Any]:
        drawn = np.random.default_rng(random_state).standard_t(self.df, self._size(size))
        return self.loc + self.scale * drawn

    def _z(self, y: ArrayLike) -> Floats:
        return (np.asarray(y, np.float64) - self.loc) / self.scale

    def _at(self, z: Floats) -> Floats:
        with np.errstate(over="ignore"):
            return self.loc + self.scale * z


def _quantile(q: Floats, df: float) -> Floats:
    """Quantiles of the standard distribution, NaN outside of [0, 1].

    Far out the density is all but a power, and so is what lies beyond: the quantile is taken from its first
    two terms, of relative error below 1e-16. SciPy's has the wrong sign there, or ends early.
    """
    tail = np.where((q >= 0) & (q <= 1), np.minimum(q, 1.0 - q), np.nan)
    with np.errstate(divide="ignore", over="ignore"):
        root = np.sqrt(df) * np.exp(-(np.log(tail) + betaln(0.5, 0.5 * df) + np.log(df)) / df)
        bend = df / root**2
    far = bend < 1e-8
    beyond = root * (1.0 - bend * (df + 1.0) / (2.0 * (df + 2.0)))
    z = np.where(
        far, -beyond, stdtrit(df, np.where(far, 0.25, np.maximum(tail, np.finfo(np.float64).tiny)))
    )
    return np.where(q > 0.5, -z, z)
