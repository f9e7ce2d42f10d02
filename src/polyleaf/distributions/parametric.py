"""Predicted distributions of the parametric families: one for each row, or for each row and target.

A family is a frozen dataclass whose fields are arrays of one shape, (n_rows,) or (n_rows,
n_targets), its parameters. All functions broadcast values against parameters as NumPy does, and
follow the names of SciPy.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import (
    beta,
    betainc,
    betaln,
    gammainc,
    gammaincc,
    gammainccinv,
    gammaincinv,
    gammaln,
    hyp2f1,
    ive,
    ndtr,
    ndtri,
    stdtr,
    xlogy,
)
from scipy.stats import nbinom

from polyleaf.runtime.types import RandomState

Floats = NDArray[np.float64]
Size: TypeAlias = int | tuple[int, ...]

_TINY = np.finfo(np.float64).tiny
_MAX_NEWTON_STEPS = 50
_HALF_LOG_TWO_PI = 0.5 * np.log(2.0 * np.pi)
_MIN_ALPHA = 1e-4  # below it the negative binomial's CRPS is computed as a Poisson's


def check_coverage(coverage: float) -> None:
    """Raise ValueError unless `coverage` is a number between 0 and 1."""
    try:
        is_valid = bool(0 < coverage < 1)
    except (TypeError, ValueError):  # not one number
        is_valid = False
    if not is_valid:
        raise ValueError(f"coverage must lie between 0 and 1, got {coverage!r}.")


@dataclass(frozen=True, eq=False)
class Distribution(ABC):
    """Distributions of one family, one for each row or for each row and target.

    Indexing (`distribution[rows]`) selects some of them; `len` is the number of rows. The arguments
    `y` (values on the scale of the target) and `q` (probabilities) of methods are array-like of
    shape (n_rows,) or (n_rows, n_targets), or numbers, and are broadcast against the distributions,
    as NumPy does; results are float64 of the broadcast shape.

    Attributes
    ----------
    is_discrete : bool
        Whether values are whole numbers; `logpdf` is then the logarithm of their probabilities.
    """

    is_discrete: ClassVar[bool] = False

    # --- defined by each family ---

    @abstractmethod
    def mean(self) -> Floats:
        """Return the means."""

    @abstractmethod
    def std(self) -> Floats:
        """Return the standard deviations."""

    @abstractmethod
    def logpdf(self, y: ArrayLike) -> Floats:
        """Return the natural logarithm of the density at `y`, for counts of the probability; -inf
        outside of the support."""

    @abstractmethod
    def cdf(self, y: ArrayLike) -> Floats:
        """Return the probability of values up to `y`."""

    @abstractmethod
    def sf(self, y: ArrayLike) -> Floats:
        """Return the probability of values above `y`: 1 - cdf, accurate also close to 0."""

    @abstractmethod
    def ppf(self, q: ArrayLike) -> Floats:
        """Return the quantiles of probability `q`, from 0 to 1."""

    @abstractmethod
    def isf(self, q: ArrayLike) -> Floats:
        """Return the values that are exceeded with probability `q`, from 0 to 1."""

    @abstractmethod
    def crps(self, y: ArrayLike) -> Floats:
        """Return the continuous ranked probability score of outcomes y.

        Smaller means indicate better forecasts (Gneiting and Raftery, "Strictly proper
        scoring rules, prediction, and estimation", JASA 102, 2007).

        Parameters
        ----------
        y : array-like of shape (n_rows,) or (n_rows, n_targets), or a number
            On the scale of the target. Broadcast against the distributions, as NumPy does.

        Returns
        -------
        ndarray of the broadcast shape, float64
            On the scale of the target; 0 if all the probability is at y.
        """

    @abstractmethod
    def rvs(self, size: Size = (), random_state: RandomState | None = None) -> np.ndarray:
        """Draw random values.

        Parameters
        ----------
        size : int or tuple of int
            Number of values for each distribution.
        random_state : int, numpy.random.Generator or None

        Returns
        -------
        ndarray of the shape ``size`` followed by the shape of the distributions
        """

    # --- derived ---

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of every parameter."""
        return np.shape(next(iter(self._arrays().values())))

    def median(self) -> Floats:
        """Return the medians."""
        return self.ppf(0.5)

    def interval(self, coverage: float = 0.9) -> Floats:
        """Return the bounds of the central intervals of this probability.

        Parameters
        ----------
        coverage : float in (0, 1)

        Returns
        -------
        ndarray of the shape of the distributions followed by 2
            Lower and upper bounds.
        """
        check_coverage(coverage)
        tail = (1.0 - coverage) / 2.0
        return np.stack([self.ppf(tail), self.isf(tail)], axis=-1)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, key: object) -> Self:
        return replace(self, **{name: values[key] for name, values in self._arrays().items()})

    def _arrays(self) -> dict[str, Any]:
        """Return the parameters that are arrays, not one number for all distributions."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: v for name, v in values.items() if isinstance(v, np.ndarray)}

    def _size(self, size: Size) -> tuple[int, ...]:
        return ((size,) if isinstance(size, int) else tuple(size)) + self.shape


@dataclass(frozen=True, eq=False)
class Normal(Distribution):
    """Normal distribution.

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
        return -0.5 * self._z(y) ** 2 - np.log(self.scale) - _HALF_LOG_TWO_PI

    def cdf(self, y: ArrayLike) -> Floats:
        return ndtr(self._z(y))

    def sf(self, y: ArrayLike) -> Floats:
        return ndtr(-self._z(y))

    def ppf(self, q: ArrayLike) -> Floats:
        return self.loc + self.scale * ndtri(q)

    def isf(self, q: ArrayLike) -> Floats:
        return self.loc - self.scale * ndtri(q)

    def crps(self, y: ArrayLike) -> Floats:
        """Return the score of Gneiting, Raftery, Westveld and Goldman, Monthly Weather Review 133,
        2005, eq. 5."""
        z = self._z(y)
        density = np.exp(-0.5 * z**2 - _HALF_LOG_TWO_PI)
        return self.scale * (z * (2.0 * ndtr(z) - 1.0) + 2.0 * density - 1.0 / np.sqrt(np.pi))

    def rvs(self, size: Size = (), random_state: RandomState | None = None) -> np.ndarray:
        return np.random.default_rng(random_state).normal(self.loc, self.scale, self._size(size))

    def _z(self, y: ArrayLike) -> Floats:
        return (np.asarray(y, np.float64) - self.loc) / self.scale


@dataclass(frozen=True, eq=False)
class LogNormal(Distribution):
    """Log-normal distribution: the logarithm of the values is normal.

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
        is_possible = np.isfinite(log_y)
        with np.errstate(invalid="ignore"):
            density = self._log_distribution.logpdf(log_y) - log_y
        return np.where(is_possible | np.isnan(log_y), density, -np.inf)

    def cdf(self, y: ArrayLike) -> Floats:
        return self._log_distribution.cdf(_log(y))

    def sf(self, y: ArrayLike) -> Floats:
        return self._log_distribution.sf(_log(y))

    def ppf(self, q: ArrayLike) -> Floats:
        with np.errstate(over="ignore"):
            return np.exp(self._log_distribution.ppf(q))

    def isf(self, q: ArrayLike) -> Floats:
        with np.errstate(over="ignore"):
            return np.exp(self._log_distribution.isf(q))

    def crps(self, y: ArrayLike) -> Floats:
        """Return the score of Baran and Lerch, Quarterly Journal of the Royal Meteorological
        Society 141, 2015."""
        y = np.asarray(y, np.float64)
        z = (_log(y) - self.log_loc) / self.log_scale
        # ndtr(a) + ndtr(b) - 1, without cancellation if both are close to 1.
        both = ndtr(z - self.log_scale) - ndtr(-self.log_scale / np.sqrt(2.0))
        return y * (2.0 * ndtr(z) - 1.0) - 2.0 * self.mean() * both

    def rvs(self, size: Size = (), random_state: RandomState | None = None) -> np.ndarray:
        with np.errstate(over="ignore"):
            return np.exp(self._log_distribution.rvs(size, random_state))

    @property
    def _log_distribution(self) -> Normal:
        return Normal(self.log_loc, self.log_scale)


def _log(y: ArrayLike) -> Floats:
    """Return logarithms, -inf for values that are not above 0."""
    y = np.asarray(y, np.float64)
    with np.errstate(divide="ignore"):
        return np.log(np.where(y < 0, 0.0, y))


@dataclass(frozen=True, eq=False)
class StudentT(Distribution):
    """Student's t distribution, shifted and scaled.

    Parameters
    ----------
    loc, scale : ndarray of shape (n_rows,) or (n_rows, n_targets)
        Location and scale. The standard deviation is the scale times sqrt(df / (df - 2)), and
        infinite up to df = 2.
    df : float
        Degrees of freedom, above 1: fewer have heavier tails.
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
        return self._scale(_student_t_quantile(np.asarray(q, np.float64), self.df))

    def isf(self, q: ArrayLike) -> Floats:
        return self._scale(-_student_t_quantile(np.asarray(q, np.float64), self.df))

    def crps(self, y: ArrayLike) -> Floats:
        """Return the score of Jordan, Krüger and Lerch, "Evaluating probabilistic forecasts with
        scoringRules", Journal of Statistical Software 90, 2019, appendix A."""
        z, df = self._z(y), self.df
        density = np.exp(-0.5 * (df + 1.0) * np.log1p(z**2 / df)) / (
            beta(0.5, 0.5 * df) * np.sqrt(df)
        )
        expected_distance = (
            2.0 * np.sqrt(df) / (df - 1.0) * beta(0.5, df - 0.5) / beta(0.5, 0.5 * df) ** 2
        )
        distance = z * (2.0 * stdtr(df, z) - 1.0) + 2.0 * density * (df + z**2) / (df - 1.0)
        return self.scale * (distance - expected_distance)

    def rvs(self, size: Size = (), random_state: RandomState | None = None) -> np.ndarray:
        drawn = np.random.default_rng(random_state).standard_t(self.df, self._size(size))
        return self.loc + self.scale * drawn

    def _z(self, y: ArrayLike) -> Floats:
        return (np.asarray(y, np.float64) - self.loc) / self.scale

    def _scale(self, z: Floats) -> Floats:
        with np.errstate(over="ignore"):
            return self.loc + self.scale * z


def _student_t_quantile(q: Floats, df: float) -> Floats:
    """Return quantiles of the standard t distribution, NaN outside of [0, 1].

    In the far tail the density is almost a power, and so is the tail probability: the quantile is
    computed from the first two terms, with a relative error below 1e-16.
    """
    tail = np.where((q >= 0) & (q <= 1), np.minimum(q, 1.0 - q), np.nan)
    with np.errstate(divide="ignore", over="ignore"):
        root = np.sqrt(df) * np.exp(-(np.log(tail) + betaln(0.5, 0.5 * df) + np.log(df)) / df)
        correction = df / root**2
    is_far = correction < 1e-8
    tail_quantile = root * (1.0 - correction * (df + 1.0) / (2.0 * (df + 2.0)))
    near = _solve_student_t(np.where(is_far, 0.25, np.maximum(tail, _TINY)), df)
    z = np.where(is_far, tail_quantile, near)
    return np.where(q > 0.5, z, -z)


def _solve_student_t(tail: Floats, df: float) -> Floats:
    """Return the z >= 0 of tail probabilities up to 1/2, by Newton's method.

    It starts from the approximation of Wallace, "Bounds on normal approximations to Student's and
    the chi-square distributions", Annals of Mathematical Statistics 30, 1959, and converges: large
    tail probabilities are convex in z, and the logarithms of small ones concave in ln z. SciPy's
    `stdtrit` has 8 digits in its older versions, and wrong signs in far tails.
    """
    normal = ndtri(tail) * (8.0 * df + 3.0) / (8.0 * df + 1.0)
    z = np.sqrt(df * np.expm1(normal**2 / df))
    log_factor = betaln(0.5, 0.5 * df) + 0.5 * np.log(df)
    for _ in range(_MAX_NEWTON_STEPS):
        tail_of_z = stdtr(df, -z)
        density = np.exp(-0.5 * (df + 1.0) * np.log1p(z**2 / df) - log_factor)
        with np.errstate(all="ignore"):  # of the step that is not used
            small = z * np.exp(np.log(tail_of_z / tail) * tail_of_z / (z * density))
            better = np.where(tail > 0.1, z + (tail_of_z - tail) / density, small)
        change, z = np.abs(better - z), better
        if not (change > 1e-8 * z).any():  # the next step would change 1e-16
            break
    return z


@dataclass(frozen=True, eq=False)
class Gamma(Distribution):
    """Gamma distribution: positive values with a constant coefficient of variation.

    Parameters
    ----------
    k : ndarray of shape (n_rows,) or (n_rows, n_targets)
        Shape parameter, (mean / standard deviation)^2.
    scale : ndarray of the same shape
        Mean / shape parameter.
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
        return gammainc(self.k, self._standardise(y))

    def sf(self, y: ArrayLike) -> Floats:
        return gammaincc(self.k, self._standardise(y))

    def ppf(self, q: ArrayLike) -> Floats:
        return self.scale * gammaincinv(self.k, q)

    def isf(self, q: ArrayLike) -> Floats:
        return self.scale * gammainccinv(self.k, q)

    def crps(self, y: ArrayLike) -> Floats:
        """Return the score of Möller and Scheuerer, Quarterly Journal of the Royal Meteorological
        Society 141, 2015."""
        y, k = np.asarray(y, np.float64), self.k
        u = self._standardise(y)
        first = y * (2.0 * gammainc(k, u) - 1.0) - self.mean() * (2.0 * gammainc(k + 1.0, u) - 1.0)
        return first - self.scale / beta(0.5, k)

    def rvs(self, size: Size = (), random_state: RandomState | None = None) -> np.ndarray:
        return np.random.default_rng(random_state).gamma(self.k, self.scale, self._size(size))

    def _standardise(self, y: ArrayLike) -> Floats:
        return np.maximum(np.asarray(y, np.float64), 0.0) / self.scale


@dataclass(frozen=True, eq=False)
class NegativeBinomial(Distribution):
    """Negative binomial distribution: counts that vary more than Poisson's.

    Parameters
    ----------
    mu : ndarray of shape (n_rows,) or (n_rows, n_targets)
        Means.
    alpha : ndarray of the same shape
        Dispersion: the variance is mu + alpha mu^2, and 0 would be Poisson's.
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
        is_possible = (y >= 0) & (y == np.floor(y))
        count = np.where(is_possible, y, 0.0)
        r, x = self._r, self.alpha * self.mu
        # ln of (r + y - 1 over y), and y ln(x / (1 + x)) - r ln(1 + x)
        log_coefficient = -betaln(r, count + 1.0) - np.log(r + count)
        density = log_coefficient + xlogy(count, x / (1.0 + x)) - r * np.log1p(x)
        return np.where(is_possible, density, np.where(np.isnan(y), np.nan, -np.inf))

    def cdf(self, y: ArrayLike) -> Floats:
        y = np.floor(np.asarray(y, np.float64))
        below = betainc(self._r, np.maximum(y, 0.0) + 1.0, 1.0 / (1.0 + self.alpha * self.mu))
        return np.where(y < 0, 0.0, below)

    def sf(self, y: ArrayLike) -> Floats:
        y, x = np.floor(np.asarray(y, np.float64)), self.alpha * self.mu
        above = betainc(np.maximum(y, 0.0) + 1.0, self._r, x / (1.0 + x))
        return np.where(y < 0, 1.0, above)

    def ppf(self, q: ArrayLike) -> Floats:
        # SciPy returns -1 for q = 0.
        return np.maximum(nbinom.ppf(q, self._r, 1.0 / (1.0 + self.alpha * self.mu)), 0.0)

    def isf(self, q: ArrayLike) -> Floats:
        return np.maximum(nbinom.isf(q, self._r, 1.0 / (1.0 + self.alpha * self.mu)), 0.0)

    def crps(self, y: ArrayLike) -> Floats:
        """Return the score of Wei and Held, "Calibration tests for count data", TEST 23, 2014, in
        the form of Jordan, Krüger and Lerch, Journal of Statistical Software 90, 2019."""
        y, x = np.asarray(y, np.float64), self.alpha * self.mu
        below = betainc(self._r + 1.0, np.maximum(np.floor(y), 1.0), 1.0 / (1.0 + x))
        below = np.where(y < 1, 0.0, below)
        return (
            y * (2.0 * self.cdf(y) - 1.0)
            - self.mu * (2.0 * below - 1.0)
            - self._half_mean_difference()
        )

    def _half_mean_difference(self) -> Floats:
        """Return half of the mean absolute difference of two values.

        Up to alpha = 1e-4 the hypergeometric function is inaccurate, and a Poisson distribution of
        the same variance is used, with an error of 1e-5.
        """
        x = self.alpha * self.mu
        variance, z = self.mu * (1.0 + x), 4.0 * x * (1.0 + x)
        r = 1.0 / np.maximum(self.alpha, _MIN_ALPHA)
        factor = hyp2f1(0.5, 1.0 - r, 2.0, z / (1.0 + z)) / np.sqrt(1.0 + z)
        poisson = ive(0, 2.0 * variance) + ive(1, 2.0 * variance)
        return variance * np.where(self.alpha < _MIN_ALPHA, poisson, factor)

    def rvs(self, size: Size = (), random_state: RandomState | None = None) -> np.ndarray:
        random = np.random.default_rng(random_state)
        return random.poisson(random.gamma(self._r, self.alpha * self.mu, self._size(size)))

    @property
    def _r(self) -> Floats:
        return 1.0 / self.alpha
