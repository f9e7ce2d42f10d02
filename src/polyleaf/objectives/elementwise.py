"""Losses of one score and one target at a time: regression, counts and labels; the core computes
them.

Formulas are in cpp/losses/kernels/elementwise_kernels.h. Base scores of regression losses are
subtracted from the target once, in float64, so a target of 1e9 ± 1 given as float64 loses nothing.
Quantiles, in base scores and in leaves alike, are the lower ones: the smallest value v such that
rows with value <= v hold at least the level's share of the weight. So the median of an even number
of rows is the lower of the two in the middle, integer weights equal repeated rows, and every
quantile is a value that occurs.

Poisson, Gamma and Tweedie are deviances of variance ``mean^p`` (p = 1, 2, in between; Jørgensen,
1987) with a log link. With the model's part ``b = e^((2-p) z)`` and the data's part ``s = y
e^((1-p) z)`` of a score z the gradient is ``b - s``. Their Hessian ``"symmetric"`` (the default)
is ``(b + s) / 2``. For a leaf whose rows share one score, the exact step is ``ln(S / B)`` (sums of
s and b) and Newton's with this Hessian is ``2 (S - B) / (S + B)``: the first Padé approximant of
that logarithm, never longer than it and never longer than 2. The second derivative ``(2-p) b +
(p-1) s`` (``"exact"``) has the step ``S / B - 1`` for Poisson, which overshoots without bound if a
leaf is far above its score; other libraries bound it with ``max_delta_step``. For Tweedie with p =
1.5 the two are the same.

Held-out Poisson deviance on hourly bike rentals (UCI; one split; XGBoost's trees of depth 6):

    trees                     10     30    100    300
    rate 0.1, symmetric     39.7   10.8   5.66   5.18
    rate 0.1, exact         44.2   13.3   6.08   5.37
    rate 0.3, symmetric     10.8   6.43   5.84   5.99
    rate 0.3, exact         12.3   6.71   5.72   5.83

So it is faster early and at a small rate, and slightly behind late at a large one; the default
rests on the bound, not on these figures. Gamma was not measured.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

import polyleaf._core as _core
from polyleaf.objectives._utils import Floats
from polyleaf.objectives.base import (
    Array,
    BoundObjective,
    FloatArray,
    Objective,
    as_matrices,
    check_domain,
    find_core_name,
)
from polyleaf.objectives.registry import register
from polyleaf.runtime.checks import require_choice
from polyleaf.runtime.context import Context
from polyleaf.runtime.row_data import RowData
from polyleaf.user_data.weights import multiply_weights


@dataclass(frozen=True)
class ElementwiseObjective(Objective):
    """A sum over rows and outputs of a function of (score, target, parameter of the output)."""

    def core_loss(self) -> _core.Loss:
        """Return the core's loss of this name, with its parameters."""
        available = _core.Loss.available()
        name = find_core_name(type(self), available)
        return _core.Loss(name, {field: getattr(self, field) for field in available[name]})

    @property
    def has_constant_hessian(self) -> bool:
        return self.core_loss().unit_hessian

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
    def best_constant(self, bound: BoundElementwiseObjective, n_threads: int | Context) -> Floats:
        """Return the constant scores ``(K,)``, float64, that minimise the loss of `bound`.

        `n_threads` does not change the result.
        """

    def output_parameter(self, n_outputs: int) -> Floats:
        """Return the loss's parameter of each of `n_outputs` outputs (quantile level, weight of
        positives)."""
        return np.ones(n_outputs)

    def leaf_quantile_level(self, n_outputs: int) -> Floats:
        """Return the quantile level ``(n_outputs,)`` of updated leaf values."""
        return np.full(n_outputs, 0.5)

    def bind(self, rows: RowData) -> BoundElementwiseObjective:
        rows = as_matrices(rows)
        self.check_target(rows)
        repeats = self.outputs_per_target()
        if repeats > 1:
            target, weight = rows.target, rows.weight
            if weight is not None and weight.shape[1] == target.shape[1] > 1:
                weight = np.repeat(weight, repeats, axis=1)
            rows = rows.replace(target=np.repeat(target, repeats, axis=1), weight=weight)
        return BoundElementwiseObjective(self, rows)

    def weigh_held_out(self, rows: RowData) -> RowData:
        factor = None if scipy.sparse.issparse(rows.target) else self.target_weight(rows.target)
        if factor is None:
            return rows
        factor = factor[:, 0] if factor.shape[1] == 1 else factor
        return rows.replace(weight=multiply_weights(rows.weight, factor))

    def target_weight(self, target: FloatArray) -> NDArray[np.float32] | None:
        """Return the factor ``(n, K)`` of the weight of each of the `target`, or None: all 1."""
        return None


class BoundElementwiseObjective(BoundObjective):
    """An `ElementwiseObjective` bound to data: ``target`` is float32 or float64 ``(n, K)``."""

    objective: ElementwiseObjective

    @property
    def _is_relative_to_base(self) -> bool:
        """Whether the base score is subtracted from the target, in float64."""
        return self.objective.is_translation_invariant

    def __init__(self, objective: ElementwiseObjective, rows: RowData) -> None:
        super().__init__(objective, rows, rows.target.shape[1])
        self._loss = objective.core_loss()
        self._parameter = objective.output_parameter(self.n_outputs).astype(np.float32)
        self._set_kernel_data()

    @property
    def target_weight(self) -> NDArray[np.float32] | None:
        return self.objective.target_weight(self.target)

    @property
    def kernel_base_score(self) -> NDArray[np.float32]:
        if self._is_relative_to_base:
            return np.zeros(self.n_outputs, np.float32)
        return super().kernel_base_score

    def base_score(self, n_threads: int | Context = 1) -> Floats:
        return self.objective.best_constant(self, n_threads)

    def set_base_score(self, base: Array) -> None:
        super().set_base_score(base)
        self._set_kernel_data()

    def _set_kernel_data(self) -> None:
        target: Array = self.target
        if self._is_relative_to_base and self.base.any():
            target = target.astype(np.float64) - self.base
        self._kernel_target = np.ascontiguousarray(target, dtype=np.float32)
        self._kernel_data = (
            self._kernel_target,
            self.weight,
            self.kernel_base_score,
            self._parameter,
        )

    def _select_kernel_data(
        self, outputs: Array | None
    ) -> tuple[Array, Array | None, Array, Array]:
        """Return target, weight, base score and parameter of some outputs."""
        target, weight, base, parameter = self._kernel_data
        if outputs is None:
            return target, weight, base, parameter
        if weight is not None and weight.shape[1] > 1:
            weight = np.take(weight, outputs, axis=1)
        return np.take(target, outputs, axis=1), weight, base[outputs], parameter[outputs]

    def derivatives(self, raw: Array, g: Array, h: Array | None, n_threads: int = 1) -> None:
        _core.loss_derivatives(self._loss, raw, *self._kernel_data, g, h, n_threads)

    def make_device_loss(self, device: _core.Device) -> _core.DeviceLoss | None:
        if type(self).derivatives is not BoundElementwiseObjective.derivatives:
            return None
        return _core.DeviceLoss(device, self._loss, *self._kernel_data)

    def loss(self, raw: Array, n_threads: int = 1) -> float:
        return _core.loss_mean(self._loss, raw, *self._kernel_data, n_threads)

    def update_leaves(
        self,
        raw: Array,
        leaf_of_row: Array,
        n_leaves: int,
        rows: Array | None = None,
        multiplier: Array | None = None,
        n_threads: int | Context = 1,
        outputs: Array | None = None,
    ) -> NDArray[np.float32]:
        used = np.arange(self.n_outputs) if outputs is None else outputs
        level = self.objective.leaf_quantile_level(self.n_outputs)[used]
        residual, weight = np.take(self._kernel_target, used, axis=1) - raw, self.weight
        if weight is not None and weight.shape[1] > 1:
            weight = np.take(weight, used, axis=1)
        if multiplier is not None:
            factor = multiplier[:, None]
            weight = factor if weight is None else weight * factor
        return _core.fit_quantile_leaves(
            residual, weight, leaf_of_row, n_leaves, rows, level, n_threads
        )

    def mean_target(self, n_threads: int | Context) -> Floats:
        """Return the weighted mean of each output ``(K,)``; NaN for outputs without weight."""
        total, weight = _core.exact_totals(self.target, self.weight, None, 1, n_threads)[:, 0]
        return np.divide(total, weight, out=np.full(self.n_outputs, np.nan), where=weight > 0)

    def target_quantile(self, level: Floats, n_threads: int | Context) -> Floats:
        """Return the lower weighted quantile of each output at `level` ``(K,)``; 0 without
        weight."""
        quantiles = _core.fit_quantile_leaves(
            self.target, self.weight, None, 1, None, level, n_threads
        )
        return quantiles[0].astype(np.float64)


# --- regression on the scale of the target ---


@dataclass(frozen=True)
class LocationObjective(ElementwiseObjective):
    """A function of score - target with a Hessian of 1: exact (squared error), an upper bound
    (Huber), or only a scale for the split search (absolute error, quantile)."""

    is_translation_invariant: ClassVar[bool] = True

    def check_target(self, rows: RowData) -> None:
        check_domain(np.isfinite(rows.target), rows, self.name, "finite targets")

    def best_constant(self, bound: BoundElementwiseObjective, n_threads: int | Context) -> Floats:
        return bound.target_quantile(np.full(bound.n_outputs, 0.5), n_threads)


@register
@dataclass(frozen=True)
class SquaredError(LocationObjective):
    """Squared error ``(score - y)^2 / 2``; predicts the mean."""

    name: ClassVar[str] = "squared_error"
    aliases: ClassVar[tuple[str, ...]] = (
        "reg:squarederror",
        "regression",
        "regression_l2",
        "l2",
        "mse",
        "rmse",
        "mean_squared_error",
        "multirmse",
    )
    is_scale_dependent: ClassVar[bool] = True
    sparse_base_score: ClassVar[float | None] = 0.0
    default_metric: ClassVar[str] = "rmse"

    def best_constant(self, bound: BoundElementwiseObjective, n_threads: int | Context) -> Floats:
        return np.nan_to_num(bound.mean_target(n_threads))


@register
@dataclass(frozen=True)
class AbsoluteError(LocationObjective):
    """Absolute error ``|score - y|``; predicts the median. Leaf values are medians of residuals."""

    name: ClassVar[str] = "absolute_error"
    aliases: ClassVar[tuple[str, ...]] = (
        "reg:absoluteerror",
        "regression_l1",
        "l1",
        "mae",
        "mean_absolute_error",
    )
    updates_leaves: ClassVar[bool] = True
    updates_leaves_distributed: ClassVar[bool] = True
    default_metric: ClassVar[str] = "mae"


@register
@dataclass(frozen=True)
class AbsolutePercentageError(AbsoluteError):
    """Absolute error relative to the target, ``|score - y| / max(|y|, floor)``.

    Leaf values are medians of residuals, in which rows have these weights.

    Parameters
    ----------
    floor : float, default 1.0
        Targets nearer to 0 than this count as this far away, as in LightGBM and CatBoost.
    """

    name: ClassVar[str] = "absolute_percentage_error"
    aliases: ClassVar[tuple[str, ...]] = ("mape", "mean_absolute_percentage_error")
    is_translation_invariant: ClassVar[bool] = False
    default_metric: ClassVar[str] = "mape"

    _ranges: ClassVar[Mapping[str, tuple[float, float]]] = {"floor": (0, np.inf)}

    floor: float = 1.0

    def bind(self, rows: RowData) -> BoundElementwiseObjective:
        rows = as_matrices(rows)
        self.check_target(rows)
        factor = (1.0 / np.maximum(np.abs(rows.target), self.floor)).astype(np.float32)
        return BoundAbsolutePercentageError(
            self, rows.replace(weight=multiply_weights(rows.weight, factor))
        )

    def deviation(self, prediction: FloatArray) -> FloatArray:
        return np.maximum(np.abs(prediction), self.floor)

    def metric_parameters(self) -> dict[str, Any]:
        return {"floor": self.floor}


class BoundAbsolutePercentageError(BoundElementwiseObjective):
    """An `AbsolutePercentageError` bound to data; with its weights it is an absolute error."""

    @property
    def _is_relative_to_base(self) -> bool:
        return True


@register
@dataclass(frozen=True)
class Huber(LocationObjective):
    """Huber loss: ``r^2 / 2`` for residuals up to `delta`, ``delta * (|r| - delta / 2)`` beyond.

    Parameters
    ----------
    delta : float, default 1.0
        In units of the target. The base score is the median, which is robust against outliers.
    """

    name: ClassVar[str] = "huber"
    parameters: ClassVar[Mapping[str, str]] = {"huber_delta": "delta", "huber_slope": "delta"}
    default_metric: ClassVar[str] = "mae"

    _ranges: ClassVar[Mapping[str, tuple[float, float]]] = {"delta": (0, np.inf)}

    delta: float = 1.0

    def bind(self, rows: RowData) -> BoundElementwiseObjective:
        return BoundHuber(self, super().bind(rows).rows)


class BoundHuber(BoundElementwiseObjective):
    """A `Huber` loss bound to data."""

    objective: Huber

    def find_unit_problem(self, max_steps: float, penalty: float, workers: Context) -> str | None:
        # A gradient is at most delta, so no score moves further than this.
        reach = max_steps * self.objective.delta
        low, high = (
            self.target_quantile(np.full(self.n_outputs, level), workers) for level in (0.1, 0.9)
        )
        half = float(np.max(high - low)) / 2
        if half <= reach:
            return None
        name = next(iter(self.objective.parameters), "delta")
        return (
            f"{name}={self.objective.delta:g} is small for a y that spreads over "
            f"{2 * half:.2g}: predictions move by at most {reach:.2g} from the median. Set "
            f"{name} to about the size of the usual errors of y, or normalize_targets=True."
        )


@register
@dataclass(frozen=True)
class LogCosh(Huber):
    """Logarithm of the hyperbolic cosine ``delta^2 ln cosh(r / delta)`` of a residual r.

    A smooth `Huber`: like ``r^2 / 2`` for small residuals and like ``delta |r|`` for large ones.

    Parameters
    ----------
    delta : float, default 1.0
        In units of the target. The base score is the median.
    """

    name: ClassVar[str] = "log_cosh"
    aliases: ClassVar[tuple[str, ...]] = ("logcosh",)
    parameters: ClassVar[Mapping[str, str]] = {}


@register
@dataclass(frozen=True)
class Expectile(LocationObjective):
    """Asymmetric squared error (Newey and Powell, 1987): ``alpha (y - score)^2`` if y is above the
    score, ``(1 - alpha) (y - score)^2`` if it is below; ``alpha=0.5`` is the squared error.

    Parameters
    ----------
    alpha : float in (0, 1), default 0.5
        Level of the expectile: the share of the absolute residuals that lies above it.
    """

    name: ClassVar[str] = "expectile"
    aliases: ClassVar[tuple[str, ...]] = ("reg:expectileerror",)
    is_scale_dependent: ClassVar[bool] = True

    _ranges: ClassVar[Mapping[str, tuple[float, float]]] = {"alpha": (0, 1)}

    alpha: float = 0.5

    def output_parameter(self, n_outputs: int) -> Floats:
        return np.full(n_outputs, self.alpha)

    def best_constant(self, bound: BoundElementwiseObjective, n_threads: int | Context) -> Floats:
        # Means of the targets above and below the last mean: Newton's method on parabolas.
        base = np.nan_to_num(bound.mean_target(n_threads))
        weight = np.ones((1, 1), np.float32) if bound.weight is None else bound.weight
        for _ in range(_MAX_EXPECTILE_STEPS):
            sums, weights = np.zeros((2, bound.n_outputs))
            above = bound.target > base
            for level, rows in ((self.alpha, above), (1.0 - self.alpha, ~above)):
                totals = _core.exact_totals(bound.target, weight * rows, None, 1, n_threads)[:, 0]
                sums, weights = sums + level * totals[0], weights + level * totals[1]
            last, base = base, np.divide(sums, weights, out=base.copy(), where=weights > 0)
            if (base == last).all():
                break
        return base


_MAX_EXPECTILE_STEPS = 50


@register
@dataclass(frozen=True)
class Quantile(LocationObjective):
    """Pinball loss (Koenker and Bassett, 1978): ``alpha (y - score)`` if y is above the score,
    ``(1 - alpha) (score - y)`` if it is below. Leaf values are quantiles of residuals.

    Parameters
    ----------
    alpha : float or sequence of float in (0, 1), default 0.5
        Several levels are learned at once: T targets and A levels are ``T * A`` outputs, the
        levels of the first target first.
    non_crossing : bool, optional
        Sort the predicted quantiles of each row and target, so that a higher level never predicts
        less (Chernozhukov, Fernández-Val and Galichon, 2010). Default: True for several levels.
    """

    name: ClassVar[str] = "quantile"
    aliases: ClassVar[tuple[str, ...]] = ("reg:quantileerror", "pinball", "multiquantile")
    parameters: ClassVar[Mapping[str, str]] = {"quantile_alpha": "alpha"}
    updates_leaves: ClassVar[bool] = True
    updates_leaves_distributed: ClassVar[bool] = True
    default_metric: ClassVar[str] = "quantile"

    alpha: float | tuple[float, ...] = 0.5
    non_crossing: bool | None = None

    def __post_init__(self) -> None:
        levels = np.asarray(self.alpha, dtype=np.float64)
        is_valid = levels.ndim <= 1 and levels.size > 0 and ((levels > 0) & (levels < 1)).all()
        if not is_valid or np.unique(levels).size != levels.size:
            raise ValueError(
                "Objective 'quantile': alpha must be one or more different numbers between 0 and "
                f"1; got {self.alpha!r}."
            )
        # A float or a tuple is hashable, and the same after a round trip through JSON.
        object.__setattr__(
            self, "alpha", levels.item() if levels.ndim == 0 else tuple(levels.tolist())
        )

    @property
    def quantile_levels(self) -> tuple[float, ...]:
        return self.alpha if isinstance(self.alpha, tuple) else (self.alpha,)

    def output_parameter(self, n_outputs: int) -> Floats:
        return np.tile(self.quantile_levels, n_outputs // len(self.quantile_levels))

    def leaf_quantile_level(self, n_outputs: int) -> Floats:
        return self.output_parameter(n_outputs)

    def best_constant(self, bound: BoundElementwiseObjective, n_threads: int | Context) -> Floats:
        return bound.target_quantile(self.output_parameter(bound.n_outputs), n_threads)

    @property
    def link(self) -> str:
        sorts = len(self.quantile_levels) > 1 and self.non_crossing is not False
        return "sorted_levels" if sorts else "identity"

    def transform(self, scores: FloatArray) -> FloatArray:
        if self.link == "identity":
            return scores
        groups = scores.reshape(-1, len(self.quantile_levels))
        sorted_groups = np.empty_like(groups)
        sorted_groups[:, np.argsort(self.quantile_levels)] = np.sort(groups, axis=1)
        return sorted_groups.reshape(scores.shape)

    def metric_parameters(self) -> dict[str, Any]:
        return {"alpha": self.alpha}


# --- nonnegative targets with a log link ---


@dataclass(frozen=True)
class LogLinkObjective(ElementwiseObjective):
    """Deviance of variance ``mean^power`` with a log link; predictions are ``e^score``.

    Each tree adds a constant to all rows, with which the weighted sum of the predictions is the
    weighted sum of the targets.

    Parameters
    ----------
    hessian : {"symmetric", "exact"}, default "symmetric"
        "exact" is the second derivative; "symmetric" bounds the step of a leaf.
    """

    balances_totals: ClassVar[bool] = True

    hessian: str = "symmetric"

    def __post_init__(self) -> None:
        super().__post_init__()
        require_choice(self.hessian, ("symmetric", "exact"), f"Objective {self.name!r}: hessian")

    @property
    @abstractmethod
    def power(self) -> float:
        """Power of the mean in the variance."""

    def core_loss(self) -> _core.Loss:
        is_exact = self.hessian == "exact"
        numbers = {
            "variance_power": self.power,
            "model_hessian": 2.0 - self.power if is_exact else 0.5,
            "data_hessian": self.power - 1.0 if is_exact else 0.5,
        }
        return _core.Loss("log_link", numbers)

    def bind(self, rows: RowData) -> BoundElementwiseObjective:
        return BoundLogLinkObjective(self, super().bind(rows).rows)

    def check_target(self, rows: RowData) -> None:
        target = rows.target
        valid = np.isfinite(target) & (target > 0 if self.power == 2 else target >= 0)
        domain = f"targets {'> 0' if self.power == 2 else '>= 0'}"
        check_domain(valid, rows, self.name, domain)

    def best_constant(self, bound: BoundElementwiseObjective, n_threads: int | Context) -> Floats:
        mean = bound.mean_target(n_threads)
        if (mean == 0).any():
            raise ValueError(
                f"Objective {self.name!r} needs a target above 0 somewhere: output "
                f"{int(np.argmax(mean == 0))} of y is 0 in every row, so the logarithm of its mean "
                "does not exist. Leave that output out."
            )
        return _core.log(np.where(np.isnan(mean), 1.0, mean))

    @property
    def link(self) -> str:
        return "exponential"

    def transform(self, scores: FloatArray) -> FloatArray:
        with np.errstate(over="ignore"):
            return np.minimum(np.exp(scores), np.finfo(np.float64).max)

    def deviation(self, prediction: FloatArray) -> FloatArray:
        return np.maximum(prediction, np.finfo(np.float64).tiny) ** (self.power / 2)


# Poisson loss, whose Hessian is the weight times the mean.
_WEIGHTED_MEAN = _core.Loss(
    "log_link", {"variance_power": 1.0, "model_hessian": 1.0, "data_hessian": 0.0}
)
_MIN_PENALTIES = 8.0  # sum of the Hessians, in penalties, from which trees learn
_MAX_SHIFT = 50.0  # of scores, of which float32 has exponentials


class BoundLogLinkObjective(BoundElementwiseObjective):
    """A `LogLinkObjective` bound to data."""

    objective: LogLinkObjective
    _target_sums: NDArray[np.float64] | None = None  # of each output, times weights

    def find_unit_problem(self, max_steps: float, penalty: float, workers: Context) -> str | None:
        target = self._kernel_target
        sums, weight = _core.exact_totals(target, self.weight, None, 1, workers)[:, 0]
        mean = np.divide(sums, weight, out=np.ones_like(sums), where=weight > 0)
        hessians = weight * mean ** (2 - self.objective.power)
        is_small = (hessians < _MIN_PENALTIES * penalty) & (weight >= len(target) / 2)
        # Few counts are no matter of units.
        is_count = (target == np.rint(target)).all(axis=0)
        if not (is_small & ~is_count).any():
            return None
        return (
            f"y is so small that the Hessians of {self.objective.name!r} sum to "
            f"{hessians.min():.2g}, few times the penalties that leaves compare them with "
            "(reg_lambda, min_child_weight), so that predictions are nearly constant. Multiply y "
            "by a constant, or lower both."
        )

    def expected_derivatives(self, raw: Array, n_threads: int = 1) -> tuple[FloatArray, FloatArray]:
        g, _ = super().expected_derivatives(raw, n_threads)
        # The model's part of the gradient, mean^(2 - power), is the gradient for targets of 0.
        rows = self.rows.replace(target=np.zeros_like(self.target))
        without_data = BoundElementwiseObjective(self.objective, rows)
        without_data.set_base_score(self.base)
        return g, without_data.expected_derivatives(raw, n_threads)[0]

    def find_balance(
        self,
        scores: Array,
        outputs: Array | None,
        workers: Context,
        leaf_of_row: Array,
        listing: NDArray[np.bool_] | None = None,
    ) -> NDArray[np.float64]:
        if self._target_sums is None:
            totals = _core.exact_totals(self._kernel_target, self.weight, None, 1, workers)
            self._target_sums = totals[0, 0]
        sums = self._target_sums if outputs is None else self._target_sums[outputs]
        gradient, prediction = np.empty_like(scores), np.empty_like(scores)
        data = self._select_kernel_data(outputs)
        _core.loss_derivatives(
            _WEIGHTED_MEAN, scores, *data, gradient, prediction, workers.n_threads
        )
        if listing is None:
            all_rows = np.zeros(len(scores), np.int32)
            predicted = _core.sum_leaf_hessians(prediction, all_rows, 1, None, None, workers)[0]
        else:
            n_leaves = len(listing)
            by_leaf = _core.sum_leaf_hessians(
                prediction, leaf_of_row, n_leaves, None, None, workers
            )
            predicted = np.cumsum(np.where(listing, by_leaf, 0.0), axis=0)[-1]
            sums = sums - np.cumsum(np.where(listing, 0.0, by_leaf), axis=0)[-1]
        usable = (sums > 0) & (predicted > 0) & np.isfinite(sums) & np.isfinite(predicted)
        ratio = np.divide(sums, predicted, out=np.ones(len(sums)), where=usable)
        return np.clip(_core.log(ratio), -_MAX_SHIFT, _MAX_SHIFT)


@register
@dataclass(frozen=True)
class Poisson(LogLinkObjective):
    """Poisson loss ``e^z - y z``, for counts."""

    name: ClassVar[str] = "poisson"
    aliases: ClassVar[tuple[str, ...]] = ("count:poisson",)
    is_count: ClassVar[bool] = True
    default_metric: ClassVar[str] = "poisson_deviance"

    @property
    def power(self) -> float:
        return 1.0


@register
@dataclass(frozen=True)
class Gamma(LogLinkObjective):
    """Gamma loss ``y e^-z + z``, for positive amounts."""

    name: ClassVar[str] = "gamma"
    aliases: ClassVar[tuple[str, ...]] = ("reg:gamma",)
    default_metric: ClassVar[str] = "gamma_deviance"

    @property
    def power(self) -> float:
        return 2.0


@register
@dataclass(frozen=True)
class Tweedie(LogLinkObjective):
    """Tweedie loss ``e^((2-p) z) / (2-p) - y e^((1-p) z) / (1-p)``, for amounts that are often
    zero.

    Parameters
    ----------
    variance_power : float in (1, 2), default 1.5
    """

    name: ClassVar[str] = "tweedie"
    aliases: ClassVar[tuple[str, ...]] = ("reg:tweedie",)
    parameters: ClassVar[Mapping[str, str]] = {"tweedie_variance_power": "variance_power"}
    default_metric: ClassVar[str] = "tweedie_deviance"

    _ranges: ClassVar[Mapping[str, tuple[float, float]]] = {"variance_power": (1, 2)}

    variance_power: float = 1.5

    @property
    def power(self) -> float:
        return self.variance_power

    def metric_parameters(self) -> dict[str, Any]:
        return {"power": self.variance_power}


# --- labels: targets are 0 or 1 ---


def _limit_shares(bound: BoundElementwiseObjective, n_threads: int | Context) -> Floats:
    """Return the share of positives of each label, which is neither 0 nor 1."""
    mean = bound.mean_target(n_threads)
    # A label that no row or every row has gets the share of half a row more.
    lowest = 0.5 / (bound.count_rows(n_threads) + 1.0)
    mean = np.where(mean <= 0, lowest, np.where(mean >= 1, 1 - lowest, mean))
    return np.where(np.isnan(mean), 0.5, mean)


@register
@dataclass(frozen=True)
class Logistic(ElementwiseObjective):
    """Cross-entropy ``-s y ln p - (1 - y) ln(1 - p)`` of each label, with ``p = 1 / (1 +
    e^-score)``.

    Parameters
    ----------
    scale_pos_weight : float or sequence of float, default 1.0
        The weight ``s`` of positives, one for all labels or one for each.

    Notes
    -----
    Targets may be probabilities in [0, 1]. The Hessian ``p (1 - p)`` is at least 1e-16,
    since it underflows for scores beyond ±87.
    """

    name: ClassVar[str] = "logistic"
    aliases: ClassVar[tuple[str, ...]] = (
        "binary:logistic",
        "reg:logistic",
        "binary",
        "binary_crossentropy",
        "cross_entropy",
        "xentropy",
        "log_loss",
        "logloss",
        "multilogloss",
        "multilabel",
    )
    target_kinds: ClassVar[tuple[str, ...]] = ("values", "labels")
    parameters: ClassVar[Mapping[str, str]] = {"scale_pos_weight": "scale_pos_weight"}
    default_metric: ClassVar[str] = "logloss"
    probabilities: ClassVar[bool] = True

    scale_pos_weight: float | tuple[float, ...] = 1.0

    def __post_init__(self) -> None:
        values = np.asarray(self.scale_pos_weight, dtype=np.float64)
        if values.ndim > 1 or values.size == 0 or not (np.isfinite(values) & (values > 0)).all():
            raise ValueError(
                f"Objective {self.name!r}: scale_pos_weight must be a finite number > 0, or one "
                f"for each label; got {self.scale_pos_weight!r}."
            )
        object.__setattr__(
            self, "scale_pos_weight", values.item() if values.ndim == 0 else tuple(values.tolist())
        )

    def output_parameter(self, n_outputs: int) -> Floats:
        values = np.asarray(self.scale_pos_weight, dtype=np.float64)
        if values.ndim == 1 and values.size != n_outputs:
            raise ValueError(
                f"scale_pos_weight has {values.size} numbers, but y has {n_outputs} label(s)."
            )
        return np.array(np.broadcast_to(values, (n_outputs,)))

    def target_weight(self, target: FloatArray) -> NDArray[np.float32] | None:
        positive = self.output_parameter(target.shape[1])
        if (positive == 1).all():
            return None
        return ((1.0 - target) + positive * target).astype(np.float32)

    def check_target(self, rows: RowData) -> None:
        valid = (rows.target >= 0) & (rows.target <= 1)
        check_domain(valid, rows, self.name, "targets in [0, 1]")

    def best_constant(self, bound: BoundElementwiseObjective, n_threads: int | Context) -> Floats:
        mean = _limit_shares(bound, n_threads)
        return _core.log(self.output_parameter(bound.n_outputs) * mean) - _core.log1p(-mean)

    @property
    def link(self) -> str:
        return "logistic"

    def transform(self, scores: FloatArray) -> FloatArray:
        small = np.exp(-np.abs(scores))
        return np.where(scores >= 0, 1.0, small) / (1.0 + small)


@register
@dataclass(frozen=True)
class Focal(Logistic):
    """Focal loss ``-s (1 - p)^gamma ln p`` of a positive and ``-p^gamma ln(1 - p)`` of a negative
    label (Lin, Goyal, Girshick, He and Dollár, 2017): rows that are right already count less.

    Parameters
    ----------
    scale_pos_weight : float or sequence of float, default 1.0
        The weight ``s`` of positives, as for `Logistic`.
    gamma : float, default 2.0
        The larger, the less such rows count; 0 is the cross-entropy.

    Notes
    -----
    Probabilities are ``p = 1 / (1 + e^-score)``, which the loss pulls towards 1/2: rank by them,
    or calibrate them, before they are read as frequencies. The Hessian takes the factor of the
    cross-entropy's gradient for a constant, since the second derivative may be negative.
    """

    name: ClassVar[str] = "focal"
    aliases: ClassVar[tuple[str, ...]] = ("focal_loss",)
    target_kinds: ClassVar[tuple[str, ...]] = ("labels",)
    default_metric: ClassVar[str] = "loss"

    gamma: float = 2.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (isinstance(self.gamma, int | float) and 0 <= self.gamma < np.inf):
            raise ValueError(
                f"Objective 'focal': gamma must be a finite number >= 0; got {self.gamma!r}."
            )
        object.__setattr__(self, "gamma", float(self.gamma))

    def check_target(self, rows: RowData) -> None:
        valid = (rows.target == 0) | (rows.target == 1)
        check_domain(valid, rows, self.name, "targets 0 or 1")

    def best_constant(self, bound: BoundElementwiseObjective, n_threads: int | Context) -> Floats:
        # The sum of the gradients of a negative and a positive, weighted by their shares, rises.
        share = _limit_shares(bound, n_threads)
        target = np.repeat(np.array([[0.0], [1.0]], np.float32), bound.n_outputs, axis=1)
        pair = BoundElementwiseObjective(self, RowData(target))
        low, high = np.full(bound.n_outputs, -30.0), np.full(bound.n_outputs, 30.0)
        gradient, hessian = np.empty((2, *target.shape), np.float32)
        for _ in range(_N_BISECTIONS):
            middle = (low + high) / 2
            raw = np.repeat(middle[None].astype(np.float32), 2, axis=0)
            pair.derivatives(raw, gradient, hessian)
            negative, positive = gradient.astype(np.float64)
            rises = (1.0 - share) * negative + share * positive > 0
            low, high = np.where(rises, low, middle), np.where(rises, middle, high)
        return (low + high) / 2


_N_BISECTIONS = 40


@register
@dataclass(frozen=True)
class SquaredHinge(ElementwiseObjective):
    """Squared hinge ``max(0, 1 - t score)^2 / 2`` with ``t = 2 y - 1``; no probabilities.

    A score above 0 predicts the label. The Hessian is taken as 1: exact inside the margin, and an
    upper bound of 0 outside, so that no step overshoots.
    """

    name: ClassVar[str] = "squared_hinge"
    target_kinds: ClassVar[tuple[str, ...]] = ("labels",)
    default_metric: ClassVar[str] = "error"
    # The margin of absent labels (GBDT-SPARSE, eq. 9, shifted and doubled).
    sparse_base_score: ClassVar[float | None] = -1.0

    def check_target(self, rows: RowData) -> None:
        valid = (rows.target == 0) | (rows.target == 1)
        check_domain(valid, rows, self.name, "targets 0 or 1")

    def best_constant(self, bound: BoundElementwiseObjective, n_threads: int | Context) -> Floats:
        return np.nan_to_num(2.0 * bound.mean_target(n_threads) - 1.0)
