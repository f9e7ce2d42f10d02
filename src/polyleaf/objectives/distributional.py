"""Distributions whose spread is learned beside their mean: normal, log-normal, Student's t, gamma, negative
binomial. Owns these likelihoods' scores and best constants; the derivatives are in
cpp/losses/kernels/likelihood_kernels.cpp, what a distribution answers in `polyleaf.distributions`.

"normal" and "student_t" are learned in a unit in which each target has mean 0 and deviation 1, whatever its
own: penalties on leaf values mean the same then for all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.optimize import brentq
from scipy.special import digamma

from polyleaf import distributions
from polyleaf.objectives.base import Array, FloatArray, check_domain
from polyleaf.objectives.likelihood import Floats, LikelihoodObjective
from polyleaf.objectives.registry import register

__all__ = [
    "GammaLikelihood",
    "LogNormalLikelihood",
    "NegativeBinomialLikelihood",
    "NormalLikelihood",
    "StudentTLikelihood",
]

# Of a target that does not vary: the least logarithm of a spread that a constant is given.
_LEAST_LOG = -10.0


@dataclass(frozen=True)
class _LocationScale(LikelihoodObjective):
    """A density of (y - location) / scale."""

    is_translation_invariant: ClassVar[bool] = True
    moves: ClassVar[bool] = True
    requires_standardised_target: ClassVar[bool] = True

    def check_target(self, target: FloatArray, weight: Array | None) -> None:
        check_domain(np.isfinite(target), target, weight, self.name, "finite targets")

    def score_scaling(self, scale: FloatArray, offset: FloatArray) -> tuple[FloatArray, FloatArray]:
        ones = np.ones_like(scale)
        return np.stack([scale, ones], 1).reshape(-1), np.stack([offset, np.log(scale)], 1).reshape(
            -1
        )


@register
@dataclass(frozen=True)
class NormalLikelihood(_LocationScale):
    """NormalLikelihood: scores are the mean and ln of the deviation s. ``ln s + ((y - mean) / s)^2 / 2``."""

    name: ClassVar[str] = "normal"
    core_name: ClassVar[str] = "normal"
    aliases: ClassVar[tuple[str, ...]] = ("reg:normal", "gaussian", "rmsewithuncertainty")
    parameter_names: ClassVar[tuple[str, str]] = ("mean", "log_std")

    def make_distribution(self, first: Floats, second: Floats) -> distributions.Distribution:
        return distributions.Normal(first, np.exp(second))

    def best_scores(self, y: Floats, weight: Floats) -> tuple[float, float]:
        return _normal_scores(y, weight)


@register
@dataclass(frozen=True)
class LogNormalLikelihood(LikelihoodObjective):
    """Log-normal, for positive amounts: "normal" of the logarithm of the target. Predicts the mean, ``e^(mean
    of the logarithm + variance / 2)``."""

    name: ClassVar[str] = "lognormal"
    core_name: ClassVar[str] = "normal"
    parameter_names: ClassVar[tuple[str, str]] = ("log_mean", "log_log_std")
    moves: ClassVar[bool] = True

    def check_target(self, target: FloatArray, weight: Array | None) -> None:
        _check_positive(self.name, target, weight)

    def learned(self, target: FloatArray) -> FloatArray:
        return np.log(target.astype(np.float64))

    def make_distribution(self, first: Floats, second: Floats) -> distributions.Distribution:
        return distributions.LogNormal(first, np.exp(second))

    def best_scores(self, y: Floats, weight: Floats) -> tuple[float, float]:
        return _normal_scores(np.log(y), weight)


@register
@dataclass(frozen=True)
class StudentTLikelihood(_LocationScale):
    """Student's t, for targets with outliers: scores are the location and ln of the scale s. With z = (y -
    location) / s it is ``ln s + (df + 1) / 2 ln(1 + z^2 / df)``.

    Parameters
    ----------
    df : float > 1, default 5.0
        Degrees of freedom: few have heavy tails.
    """

    name: ClassVar[str] = "student_t"
    core_name: ClassVar[str] = "student_t"
    aliases: ClassVar[tuple[str, ...]] = ("t",)
    parameter_names: ClassVar[tuple[str, str]] = ("location", "log_scale")
    parameters: ClassVar[Mapping[str, str]] = {"student_t_df": "df"}

    df: float = 5.0

    def __post_init__(self) -> None:
        if not (isinstance(self.df, (int, float)) and 1 < self.df < 1e6):
            raise ValueError(
                f"Objective 'student_t': df must lie between 1 and 1e6; got {self.df!r}."
            )
        object.__setattr__(self, "df", float(self.df))

    def make_distribution(self, first: Floats, second: Floats) -> distributions.Distribution:
        return distributions.StudentT(first, np.exp(second), self.df)

    def best_scores(self, y: Floats, weight: Floats) -> tuple[float, float]:
        """By the EM algorithm of Lange, Little and Taylor (1989), which never lowers the likelihood."""
        location, log_scale = _normal_scores(y, weight)
        variance = np.exp(2.0 * log_scale)
        for _ in range(500):
            share = weight * (self.df + 1.0) / (self.df + (y - location) ** 2 / variance)
            before = location, variance
            location = float(np.average(y, weights=share))
            variance = max(
                float((share * (y - location) ** 2).sum() / weight.sum()), np.exp(2 * _LEAST_LOG)
            )
            close = abs(location - before[0]) <= 1e-9 * np.sqrt(variance)
            if close and abs(variance / before[1] - 1.0) <= 1e-9:
                break
        return location, float(0.5 * np.log(variance))


@register
@dataclass(frozen=True)
class GammaLikelihood(LikelihoodObjective):
    """Gamma, for positive amounts: scores are ln of the mean and ln of the coefficient of variation,
    deviation / mean. With "gamma" only the mean is learned."""

    name: ClassVar[str] = "gamma_distribution"
    core_name: ClassVar[str] = "gamma_distribution"
    parameter_names: ClassVar[tuple[str, str]] = ("log_mean", "log_variation")
    cuts: ClassVar[tuple[float, float]] = (-7.0, 7.0)

    def check_target(self, target: FloatArray, weight: Array | None) -> None:
        _check_positive(self.name, target, weight)

    def make_distribution(self, first: Floats, second: Floats) -> distributions.Distribution:
        k = np.exp(-2.0 * second)
        with np.errstate(over="ignore"):
            return distributions.Gamma(k, np.exp(first) / k)

    def best_scores(self, y: Floats, weight: Floats) -> tuple[float, float]:
        """The shape solves ln k - digamma(k) = ln of the mean - mean of the logarithms (Thom, 1958)."""
        log_mean = float(np.log(np.average(y, weights=weight)))
        excess = log_mean - float(np.average(np.log(y), weights=weight))
        return log_mean, _root(lambda s: _log_less_digamma(np.exp(-2.0 * s)) - excess, *self.cuts)


@register
@dataclass(frozen=True)
class NegativeBinomialLikelihood(LikelihoodObjective):
    """Negative binomial, for counts that vary more than Poisson's: scores are ln of the mean m and half of ln
    of alpha, where the variance is ``m + alpha m^2``."""

    name: ClassVar[str] = "negative_binomial"
    core_name: ClassVar[str] = "negative_binomial"
    aliases: ClassVar[tuple[str, ...]] = ("nbinom",)
    parameter_names: ClassVar[tuple[str, str]] = ("log_mean", "half_log_alpha")
    is_count: ClassVar[bool] = True
    cuts: ClassVar[tuple[float, float]] = (-7.0, 7.0)

    def check_target(self, target: FloatArray, weight: Array | None) -> None:
        with np.errstate(invalid="ignore"):
            valid = np.isfinite(target) & (target >= 0) & (target == np.floor(target))
        check_domain(valid, target, weight, self.name, "counts: whole numbers >= 0")

    def make_distribution(self, first: Floats, second: Floats) -> distributions.Distribution:
        with np.errstate(over="ignore"):
            return distributions.NegativeBinomial(np.exp(first), np.exp(2.0 * second))

    def best_scores(self, y: Floats, weight: Floats) -> tuple[float, float]:
        mean = float(np.average(y, weights=weight))
        if mean == 0:
            raise ValueError(
                f"Objective {self.name!r} needs a count above 0 somewhere: an output of y is 0 in every row, "
                "so the logarithm of its mean does not exist. Leave that output out."
            )

        def slope(s: float) -> float:
            r = np.exp(-2.0 * s)
            of_rows = digamma(y + r) - digamma(r)
            return float(np.average(of_rows, weights=weight) - np.log1p(mean / r))

        return float(np.log(mean)), _root(slope, *self.cuts)


def _normal_scores(y: Floats, weight: Floats) -> tuple[float, float]:
    mean = float(np.average(y, weights=weight))
    variance = float(np.average((y - mean) ** 2, weights=weight))
    return mean, float(0.5 * np.log(max(variance, np.exp(2.0 * _LEAST_LOG))))


def _log_less_digamma(k: float) -> float:
    """ln k - digamma(k), by its series where both are large."""
    if k < 1e4:
        return float(np.log(k) - digamma(k))
    return float((0.5 + 1.0 / (12.0 * k)) / k)


def _root(function: Callable[[float], float], lowest: float, highest: float) -> float:
    """Where a function passes 0; where it does not, the end at which it is nearer to it."""
    at_lowest, at_highest = function(lowest), function(highest)
    if at_lowest * at_highest < 0:
        return float(brentq(function, lowest, highest, xtol=1e-12))
    return lowest if abs(at_lowest) <= abs(at_highest) else highest


def _check_positive(name: str, target: FloatArray, weight: Array | None) -> None:
    check_domain(np.isfinite(target) & (target > 0), target, weight, name, "targets > 0")
