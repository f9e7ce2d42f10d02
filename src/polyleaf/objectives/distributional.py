"""Objectives that learn a distribution: normal, log-normal, Student's t, gamma, negative binomial.

Each column of the target has two scores: one for the location, and the logarithm of the spread.
The loss is the negative log-likelihood, the Hessian Fisher's information: diagonal, because the
two parameters of each family are chosen so. A leaf's step is then the natural gradient of its rows
(Amari, 1998; Duan et al., "NGBoost: natural gradient boosting for probabilistic prediction", ICML
2020), without a matrix for each row. Derivatives are in cpp/losses/kernels/likelihood_kernels.cpp,
the distributions in `polyleaf.distributions`.

"normal" and "student_t" are learned on standardised targets, so that penalties on leaf values mean
the same for every target.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

import polyleaf._core as _core
from polyleaf import distributions
from polyleaf.distributions import Distribution
from polyleaf.objectives._utils import Floats, packed_diagonal
from polyleaf.objectives.base import (
    Array,
    BoundObjective,
    FloatArray,
    Objective,
    as_matrices,
    check_domain,
)
from polyleaf.objectives.registry import register
from polyleaf.runtime.context import Context, get_communicator
from polyleaf.runtime.row_data import RowData
from polyleaf.user_data.target_scaling import sum_columns

# Smallest variance of a constant, for a target that does not vary.
_MIN_VARIANCE: float = _core.exp(-20.0)
_ROOT_TOLERANCE = 1e-13


@dataclass(frozen=True)
class LikelihoodObjective(Objective):
    """A negative log-likelihood of a target and its two scores.

    Attributes
    ----------
    core_name : str
        Name of the core's likelihood.
    parameter_names : (str, str)
        Names of the two scores of one target.
    subtracts_base_score : bool
        The likelihood depends on the target and the first score only through their difference.
    spread_limits : (float, float)
        Bounds of the second score: wider spreads are meaningless, and their squares would overflow.
    """

    separable: ClassVar[bool] = False
    has_distribution: ClassVar[bool] = True
    default_metric: ClassVar[str] = "nll"
    core_name: ClassVar[str]
    parameter_names: ClassVar[tuple[str, str]]
    subtracts_base_score: ClassVar[bool] = False
    spread_limits: ClassVar[tuple[float, float]] = (-30.0, 30.0)

    @property
    def score_names(self) -> tuple[str, ...]:
        return self.parameter_names

    def outputs_per_target(self) -> int:
        return 2

    @property
    def offset_mask(self) -> tuple[bool, ...]:
        return (True, False)

    def core_likelihood(self) -> _core.Likelihood:
        """Return the core's likelihood `core_name` with this objective's parameters."""
        numbers = {field.name: float(getattr(self, field.name)) for field in fields(self)}
        lowest, highest = self.spread_limits
        return _core.Likelihood(self.core_name, {"lowest": lowest, "highest": highest, **numbers})

    @abstractmethod
    def check_target(self, rows: RowData) -> None:
        """Raise ValueError if a target is outside the domain of the loss.

        Parameters
        ----------
        rows : RowData
            Targets (n, n_targets), weights (n, 1) or (n, n_targets), or None. Targets of weight 0
            do not count.
        """

    @abstractmethod
    def make_distribution(self, first: Floats, second: Floats) -> Distribution:
        """Return the distributions with these scores.

        Parameters
        ----------
        first, second : float64, of one shape
            Scores of each distribution; the second ones are within `spread_limits`.
        """

    @abstractmethod
    def best_scores(self, rows: RowData, n_threads: int | Context = 1) -> tuple[float, float]:
        """Return the two scores that maximise the likelihood of one column of the target.

        Parameters
        ----------
        rows : RowData
            Targets with weights above 0, both float64 (m,).
        n_threads : int or Context
            A `Context` in distributed training: the likelihood is that of the rows of all ranks.

        Notes
        -----
        The result has the same bits everywhere: sums are exact, and the core has the functions.
        """

    def transform_target(self, target: FloatArray) -> FloatArray:
        """Return `target` (n, n_targets) as the core takes it."""
        return target

    def distribution(self, scores: FloatArray) -> Distribution:
        both = np.asarray(scores, np.float64)
        return self.make_distribution(both[:, ::2], np.clip(both[:, 1::2], *self.spread_limits))

    def transform(self, scores: FloatArray) -> FloatArray:
        return np.minimum(self.distribution(scores).mean(), np.finfo(np.float64).max)

    def bind(self, rows: RowData) -> BoundLikelihoodObjective:
        rows = as_matrices(rows)
        self.check_target(rows)
        return BoundLikelihoodObjective(self, rows)


class BoundLikelihoodObjective(BoundObjective):
    """A `LikelihoodObjective` bound to data: ``target`` is float32 or float64 ``(n, T)``, weights
    are ``(n, 1)`` or ``(n, T)``."""

    objective: LikelihoodObjective

    def __init__(self, objective: LikelihoodObjective, rows: RowData) -> None:
        super().__init__(objective, rows, 2 * rows.target.shape[1])
        self._likelihood = objective.core_likelihood()
        target = rows.target
        if rows.weight is not None:  # missing targets need not be in the domain
            target = np.where(rows.weight > 0, target, 1.0)
        self._learned_target = objective.transform_target(target)
        self.set_base_score(self.base)

    @property
    def _subtracts_base(self) -> bool:
        return self.objective.subtracts_base_score and bool(self.base.any())

    @property
    def kernel_base_score(self) -> NDArray[np.float32]:
        base = super().kernel_base_score
        if self._subtracts_base:
            base[::2] = 0.0
        return base

    def set_base_score(self, base: Array) -> None:
        super().set_base_score(base)
        # Losses of a difference subtract the base score from the target, in float64.
        target: Array = self._learned_target
        if self._subtracts_base:
            target = target - self.base[::2]
        self._kernel_target = np.ascontiguousarray(target, dtype=np.float32)

    def base_score(self, n_threads: int | Context = 1) -> Floats:
        base = np.zeros((self.n_outputs // 2, 2))
        for k, y in enumerate(self.target.T.astype(np.float64)):
            weight = np.ones(self.n_rows)
            if self.weight is not None:
                column = k if self.weight.shape[1] > 1 else 0
                weight = self.weight[:, column].astype(np.float64)
            if get_communicator(n_threads).any(weight.any()):
                rows = RowData(y[weight > 0], weight[weight > 0])
                base[k] = self.objective.best_scores(rows, n_threads)
        return base.reshape(-1)

    @property
    def output_weight(self) -> NDArray[np.float32] | None:
        if self.weight is None or self.weight.shape[1] == 1:
            return self.weight
        return np.repeat(self.weight, 2, axis=1)

    def hessian_shape(self) -> tuple[int, int]:
        return (self.n_rows, self.n_outputs)

    def derivatives(self, raw: Array, g: Array, h: Array | None, n_threads: int = 1) -> None:
        assert h is not None  # the Hessian is never constant
        base, target = self.kernel_base_score, self._kernel_target
        _core.likelihood_derivatives(
            self._likelihood, raw, target, self.weight, base, g, h, n_threads
        )

    def full_hessian(self, raw: Array, g: Array, h: Array, n_threads: int = 1) -> None:
        diagonal = np.empty(self.hessian_shape(), np.float32)
        self.derivatives(raw, g, diagonal, n_threads)
        h[...] = 0.0
        h[:, packed_diagonal(self.n_outputs)] = diagonal

    def loss(self, raw: Array, n_threads: int = 1) -> float:
        losses = -self.objective.distribution(raw + self.base).logpdf(self.target)
        if self.weight is None:
            return float(losses.mean())
        weight = np.broadcast_to(self.weight, losses.shape).astype(np.float64)
        total = weight.sum()
        losses = np.where(weight > 0, losses, 0.0)  # losses of missing targets may be infinite
        return float((losses * weight).sum() / total) if total > 0 else 0.0


@dataclass(frozen=True)
class _LocationScale(LikelihoodObjective):
    """A density of (y - location) / scale."""

    is_translation_invariant: ClassVar[bool] = True
    subtracts_base_score: ClassVar[bool] = True
    requires_standardised_target: ClassVar[bool] = True

    def check_target(self, rows: RowData) -> None:
        check_domain(np.isfinite(rows.target), rows, self.name, "finite targets")

    def score_scaling(self, scale: FloatArray, offset: FloatArray) -> tuple[FloatArray, FloatArray]:
        factors = np.stack([scale, np.ones_like(scale)], 1).reshape(-1)
        return factors, np.stack([offset, _core.log(scale.astype(np.float64))], 1).reshape(-1)


@register
@dataclass(frozen=True)
class NormalLikelihood(_LocationScale):
    """Normal distribution: scores are the mean and ln of the deviation s.
    ``ln s + ((y - mean) / s)^2 / 2``."""

    name: ClassVar[str] = "normal"
    core_name: ClassVar[str] = "normal"
    aliases: ClassVar[tuple[str, ...]] = ("reg:normal", "gaussian", "rmsewithuncertainty")
    parameter_names: ClassVar[tuple[str, str]] = ("mean", "log_std")

    def make_distribution(self, first: Floats, second: Floats) -> Distribution:
        return distributions.Normal(first, np.exp(second))

    def best_scores(self, rows: RowData, n_threads: int | Context = 1) -> tuple[float, float]:
        return _log_spread(*_measure_moments(rows, n_threads))


@register
@dataclass(frozen=True)
class LogNormalLikelihood(LikelihoodObjective):
    """Log-normal, for positive amounts: "normal" of the logarithm of the target. Predicts the mean,
    ``e^(mean of the logarithm + variance / 2)``."""

    name: ClassVar[str] = "lognormal"
    core_name: ClassVar[str] = "normal"
    parameter_names: ClassVar[tuple[str, str]] = ("log_mean", "log_log_std")
    subtracts_base_score: ClassVar[bool] = True

    def check_target(self, rows: RowData) -> None:
        _check_positive_target(self.name, rows)

    def transform_target(self, target: FloatArray) -> FloatArray:
        return _core.log(target.astype(np.float64))

    def make_distribution(self, first: Floats, second: Floats) -> Distribution:
        return distributions.LogNormal(first, np.exp(second))

    def best_scores(self, rows: RowData, n_threads: int | Context = 1) -> tuple[float, float]:
        logs = rows.replace(target=_core.log(rows.target))
        return _log_spread(*_measure_moments(logs, n_threads))


@register
@dataclass(frozen=True)
class StudentTLikelihood(_LocationScale):
    """Student's t, for targets with outliers: scores are the location and ln of the scale s. With
    z = (y - location) / s it is ``ln s + (df + 1) / 2 ln(1 + z^2 / df)``.

    Parameters
    ----------
    df : float > 1, default 5.0
        Degrees of freedom: fewer have heavier tails.
    """

    name: ClassVar[str] = "student_t"
    core_name: ClassVar[str] = "student_t"
    aliases: ClassVar[tuple[str, ...]] = ("t",)
    parameter_names: ClassVar[tuple[str, str]] = ("location", "log_scale")
    parameters: ClassVar[Mapping[str, str]] = {"student_t_df": "df"}

    _ranges: ClassVar[Mapping[str, tuple[float, float]]] = {"df": (1, 1e6)}

    df: float = 5.0

    def make_distribution(self, first: Floats, second: Floats) -> Distribution:
        return distributions.StudentT(first, np.exp(second), self.df)

    def best_scores(self, rows: RowData, n_threads: int | Context = 1) -> tuple[float, float]:
        """Fit by the EM algorithm of Lange, Little and Taylor (1989), which never lowers the
        likelihood."""
        y, weight = rows.target, rows.weight
        location, variance = _measure_moments(rows, n_threads)
        (total,) = _exact_sums(n_threads, weight)
        for _ in range(500):
            share = weight * (self.df + 1.0) / (self.df + (y - location) ** 2 / variance)
            before = location, variance
            location = _compute_mean(y, share, n_threads)
            (squares,) = _exact_sums(n_threads, share * (y - location) ** 2)
            variance = max(squares / total, _MIN_VARIANCE)
            close = abs(location - before[0]) <= 1e-9 * math.sqrt(variance)
            if close and abs(variance / before[1] - 1.0) <= 1e-9:
                break
        return _log_spread(location, variance)


@register
@dataclass(frozen=True)
class GammaLikelihood(LikelihoodObjective):
    """Gamma, for positive amounts: scores are ln of the mean and ln of the coefficient of
    variation, deviation / mean. The objective "gamma" learns the mean only."""

    name: ClassVar[str] = "gamma_distribution"
    core_name: ClassVar[str] = "gamma_distribution"
    parameter_names: ClassVar[tuple[str, str]] = ("log_mean", "log_variation")
    spread_limits: ClassVar[tuple[float, float]] = (-7.0, 7.0)

    def check_target(self, rows: RowData) -> None:
        _check_positive_target(self.name, rows)

    def make_distribution(self, first: Floats, second: Floats) -> Distribution:
        k = np.exp(-2.0 * second)
        with np.errstate(over="ignore"):
            return distributions.Gamma(k, np.exp(first) / k)

    def best_scores(self, rows: RowData, n_threads: int | Context = 1) -> tuple[float, float]:
        """Solve ln k - digamma(k) = ln of the mean - mean of the logarithms for the shape k (Thom,
        1958)."""
        y, weight = rows.target, rows.weight
        log_mean = _core.log(_compute_mean(y, weight, n_threads))
        excess = log_mean - _compute_mean(_core.log(y), weight, n_threads)
        return log_mean, _find_root(
            lambda s: -_core.digamma_excess(_core.exp(-2.0 * s)) - excess, *self.spread_limits
        )


@register
@dataclass(frozen=True)
class NegativeBinomialLikelihood(LikelihoodObjective):
    """Negative binomial, for counts that vary more than Poisson's: scores are ln of the mean m and
    half of ln of alpha, for a variance of ``m + alpha m^2``."""

    name: ClassVar[str] = "negative_binomial"
    core_name: ClassVar[str] = "negative_binomial"
    aliases: ClassVar[tuple[str, ...]] = ("nbinom",)
    parameter_names: ClassVar[tuple[str, str]] = ("log_mean", "half_log_alpha")
    is_count: ClassVar[bool] = True
    spread_limits: ClassVar[tuple[float, float]] = (-7.0, 7.0)

    def check_target(self, rows: RowData) -> None:
        target = rows.target
        with np.errstate(invalid="ignore"):
            valid = np.isfinite(target) & (target >= 0) & (target == np.floor(target))
        check_domain(valid, rows, self.name, "counts: whole numbers >= 0")

    def make_distribution(self, first: Floats, second: Floats) -> Distribution:
        with np.errstate(over="ignore"):
            return distributions.NegativeBinomial(np.exp(first), np.exp(2.0 * second))

    def best_scores(self, rows: RowData, n_threads: int | Context = 1) -> tuple[float, float]:
        mean = _compute_mean(rows.target, rows.weight, n_threads)
        if mean == 0:
            raise ValueError(
                f"Objective {self.name!r} needs a count above 0 somewhere: an output of y is 0 in "
                "every row, so the logarithm of its mean does not exist. Leave that output out."
            )

        present = get_communicator(n_threads).allgather_objects(np.unique(rows.target))
        counts, column = np.unique(np.concatenate(present)), rows.weight[:, None]
        number = np.searchsorted(counts, rows.target).astype(np.int32)
        weight = _core.exact_totals(column, None, number, len(counts), n_threads)[0, :, 0]

        def slope(s: float) -> float:
            """Mean of digamma(y + r) - digamma(r), less ln of 1 + mean / r."""
            r = _core.exp(-2.0 * s)
            terms = (
                _core.digamma_excess(counts + r) - _core.digamma_excess(r) + _core.log1p(counts / r)
            )
            return _compute_mean(terms, weight, 1) - _core.log1p(mean / r)

        return _core.log(mean), _find_root(slope, *self.spread_limits)


def _exact_sums(n_threads: int | Context, *terms: Floats) -> list[float]:
    """Return the sums of columns, which do not depend on the order of the rows."""
    ranks = get_communicator(n_threads)
    return [float(total) for total in sum_columns(np.stack(terms, axis=1), ranks)]


def _compute_mean(values: Floats, weight: Floats, n_threads: int | Context) -> float:
    total, n = _exact_sums(n_threads, weight * values, weight)
    return total / n


def _measure_moments(rows: RowData, n_threads: int | Context) -> tuple[float, float]:
    """Return the mean, and the variance with a lower bound."""
    mean = _compute_mean(rows.target, rows.weight, n_threads)
    variance = _compute_mean((rows.target - mean) ** 2, rows.weight, n_threads)
    return mean, max(variance, _MIN_VARIANCE)


def _log_spread(location: float, variance: float) -> tuple[float, float]:
    return location, 0.5 * _core.log(variance)


def _find_root(function: Callable[[float], float], lowest: float, highest: float) -> float:
    """Return the root of a function, or without a sign change the end where it is closer to 0."""
    at_lowest, at_highest = function(lowest), function(highest)
    if at_lowest * at_highest >= 0:
        return lowest if abs(at_lowest) <= abs(at_highest) else highest
    while highest - lowest > _ROOT_TOLERANCE:
        middle = 0.5 * (lowest + highest)
        if function(middle) * at_lowest > 0:
            lowest = middle
        else:
            highest = middle
    return 0.5 * (lowest + highest)


def _check_positive_target(name: str, rows: RowData) -> None:
    check_domain(np.isfinite(rows.target) & (rows.target > 0), rows, name, "targets > 0")
