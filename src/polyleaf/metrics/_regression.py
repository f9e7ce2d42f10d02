"""Regression metrics, and the weighted averages that all metrics share.

Metrics are functions of ``(rows, prediction)``, which are described in
:mod:`polyleaf.metrics.metric`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polyleaf.distributions import Distribution
from polyleaf.objectives import Objective
from polyleaf.runtime.row_data import RowData

Array = np.ndarray
Floats = NDArray[np.float64]


# --- shapes and averages ---


def as_matrix(values: Array) -> Array:
    """Return values as a matrix, a vector as one column."""
    values = np.asarray(values)
    return values[:, None] if values.ndim == 1 else values


def as_matrices(y: Array, prediction: Array) -> tuple[Array, Array]:
    """Return y and the predictions as matrices of one shape ``(n, K)``."""
    y, prediction = as_matrix(y), as_matrix(prediction)
    if y.shape != prediction.shape:
        is_multiclass = y.shape[1] == 1 < prediction.shape[1]
        hint = " For multiclass targets use 'mlogloss', 'merror' or 'accuracy'."
        raise ValueError(
            f"y has shape {y.shape}, but the predictions have shape {prediction.shape}."
            f"{hint if is_multiclass else ''}"
        )
    return y, prediction


def safe_divide(total: ArrayLike, weight: ArrayLike) -> Floats:
    """Divide, with NaN where the weight is 0."""
    return np.divide(
        total, weight, out=np.full(np.shape(total), np.nan), where=np.asarray(weight) > 0
    )


def weighted_means(values: Array, weight: Array | None) -> tuple[float, Floats]:
    """Return the weighted mean of all `values` ``(n, K)`` and of each column ``(K,)``."""
    if weight is None:
        means = values.mean(axis=0, dtype=np.float64)
        return float(means.mean()), means
    weight = as_matrix(weight).astype(np.float64, copy=False)
    if not weight.all():
        # The value may be infinite where the weight is 0 (the deviance of a missing target).
        values = np.where(weight > 0, values, 0.0)
    if weight.shape[1] == 1:
        totals, weights = weight[:, 0] @ values, np.full(values.shape[1], weight.sum())
    else:
        totals, weights = (values * weight).sum(axis=0), weight.sum(axis=0)
    return float(safe_divide(totals.sum(), weights.sum())), safe_divide(totals, weights)


def mean_over_outputs(
    function: Callable[[RowData, Array], float], rows: RowData, prediction: Array
) -> float:
    """Average `function` over the outputs where it is not NaN, each on its rows with weight."""
    y, prediction = as_matrices(rows.target, prediction)
    rows = rows.replace(target=y)
    values = []
    for k in range(y.shape[1]):
        column, used = rows.column(k), slice(None)
        if column.weight is not None:
            used = column.weight > 0
            column = RowData(column.target[used], column.weight[used])
        values.append(function(column, prediction[used, k]))
    defined = [value for value in values if not np.isnan(value)]
    return float(np.mean(defined)) if defined else float("nan")


# --- errors of predicted numbers ---


@dataclass(frozen=True)
class MeanError:
    """Mean error over all rows and outputs, and over the rows of each output.

    `compute_errors`: errors of cells, given differences. `has_root`: the square root of the mean is
    taken.
    """

    compute_errors: Callable[[Array], Array]
    has_root: bool = False

    def __call__(self, rows: RowData, prediction: Array) -> float:
        return self.value_and_per_output(rows, prediction)[0]

    def value_and_per_output(self, rows: RowData, prediction: Array) -> tuple[float, Floats]:
        """Return the mean error and the mean error of each output."""
        y, prediction = as_matrices(rows.target, prediction)
        mean, means = weighted_means(self.compute_errors(prediction - y), rows.weight)
        return (float(np.sqrt(mean)), np.sqrt(means)) if self.has_root else (mean, means)


mse = MeanError(np.square)
# over all rows and outputs, as XGBoost defines it
rmse = MeanError(np.square, has_root=True)
mae = MeanError(np.abs)


def armse(rows: RowData, prediction: Array) -> float:
    """Return the mean over outputs of their root mean squared errors.

    This is scikit-learn's ``root_mean_squared_error`` and the aRMSE of the multi-target literature
    (Borchani et al., "A survey on multi-output regression", 2015). For one output it is `rmse`.
    """
    errors = rmse.value_and_per_output(rows, prediction)[1]
    if rows.weight is not None:
        shape = as_matrix(rows.target).shape
        errors = errors[(np.broadcast_to(as_matrix(rows.weight), shape) > 0).any(axis=0)]
    return float(errors.mean()) if errors.size else float("nan")


def rmsle(rows: RowData, prediction: Array) -> float:
    """Return the root mean squared difference of log(1 + y), negative predictions clipped to 0."""
    y, prediction = as_matrices(_mask_missing(rows), prediction)
    with np.errstate(invalid="ignore", divide="ignore"):
        difference = np.log1p(np.maximum(prediction, 0.0)) - np.log1p(y)
    return float(np.sqrt(weighted_means(np.square(difference), rows.weight)[0]))


def r2(rows: RowData, prediction: Array) -> float:
    """Return the coefficient of determination, averaged over the outputs that vary."""
    return mean_over_outputs(_single_output_r2, rows, prediction)


def _single_output_r2(rows: RowData, prediction: Array) -> float:
    y = rows.target.astype(np.float64)
    if y.size == 0:
        return float("nan")
    weight = np.ones(y.size) if rows.weight is None else rows.weight.astype(np.float64)
    total = weight @ np.square(y - np.average(y, weights=weight))
    return float(1.0 - (weight @ np.square(y - prediction)) / total) if total > 0 else float("nan")


def _mask_missing(rows: RowData) -> Array:
    """Return y with 1 for targets of weight 0, as their deviance may not exist."""
    y = as_matrix(rows.target)
    return y if rows.weight is None else np.where(as_matrix(rows.weight) > 0, y, 1.0)


@dataclass(frozen=True)
class PercentageError:
    """Mean of ``|prediction - y| / max(|y|, floor)``; the default floor is scikit-learn's."""

    floor: float = float(np.finfo(np.float64).eps)

    def __call__(self, rows: RowData, prediction: Array) -> float:
        y, prediction = as_matrices(rows.target, prediction)
        scale = np.maximum(np.abs(y).astype(np.float64), self.floor)
        return weighted_means(np.abs(prediction - y) / scale, rows.weight)[0]


@dataclass(frozen=True)
class TweedieDeviance:
    """Mean Tweedie deviance of positive predictions.

    The variance is ``mean^power``: power 1 is Poisson, 2 is gamma.
    """

    power: float = 1.5

    def __call__(self, rows: RowData, prediction: Array) -> float:
        y, prediction = as_matrices(_mask_missing(rows), prediction)
        y, mean = y.astype(np.float64), prediction.astype(np.float64)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            return weighted_means(2.0 * self._half_deviance(y, mean), rows.weight)[0]

    def _half_deviance(self, y: Array, mean: Array) -> Array:
        if self.power == 1:
            return np.where(y > 0, y * np.log(y / mean), 0.0) - y + mean
        if self.power == 2:
            return np.log(mean / y) + y / mean - 1.0
        one, two = 1.0 - self.power, 2.0 - self.power
        return (
            np.power(y, two) / (one * two)
            - y * np.power(mean, one) / one
            + np.power(mean, two) / two
        )


# --- quantiles and distributions ---


class PerOutputMean:
    """A metric that is a mean over rows, so that its outputs come with it."""

    def __call__(self, rows: RowData, prediction: Array) -> float:
        return self.value_and_per_output(rows, prediction)[0]

    def value_and_per_output(self, rows: RowData, prediction: Array) -> tuple[float, Floats]:
        """Return the mean of all outputs, and of each."""
        raise NotImplementedError


@dataclass(frozen=True)
class PinballLoss(PerOutputMean):
    """Mean pinball loss.

    T targets and A levels `alpha` require ``T * A`` predictions, the levels of a target adjacent.
    """

    alpha: float | tuple[float, ...] = 0.5

    def value_and_per_output(self, rows: RowData, prediction: Array) -> tuple[float, Floats]:
        levels = np.atleast_1d(np.asarray(self.alpha, dtype=np.float64))
        y, prediction, weight = as_matrix(rows.target), as_matrix(prediction), rows.weight
        n_outputs = y.shape[1] * levels.size
        if n_outputs != prediction.shape[1]:
            raise ValueError(
                f"{y.shape[1]} target(s) with {levels.size} level(s) require {n_outputs} "
                f"predictions per row; got {prediction.shape[1]}."
            )
        if weight is not None and as_matrix(weight).shape[1] > 1:
            weight = np.repeat(weight, levels.size, axis=1)
        residual = np.repeat(y, levels.size, axis=1) - prediction
        level = np.tile(levels, y.shape[1])
        return weighted_means(np.maximum(level * residual, (level - 1.0) * residual), weight)


@dataclass(frozen=True)
class PinballLossAtLevel:
    """Mean pinball loss of one level.

    If the objective predicts several levels, only the predictions of this level are used.
    """

    level: float
    levels: tuple[float, ...] = ()

    def __call__(self, rows: RowData, prediction: Array) -> float:
        prediction = as_matrix(prediction)
        if self.level in self.levels:
            prediction = prediction[:, self.levels.index(self.level) :: len(self.levels)]
        return PinballLoss(self.level)(rows, prediction)


DISTRIBUTION_SCORES: dict[str, Callable[[Distribution, Array], Array]] = {
    "nll": lambda distribution, y: -distribution.logpdf(y),
    "crps": lambda distribution, y: distribution.crps(y),
}


@dataclass(frozen=True)
class DistributionScore(PerOutputMean):
    """Mean score of predicted distributions, from raw scores ``(n, K)`` and y ``(n, T)``."""

    objective: Objective
    score: str

    def value_and_per_output(self, rows: RowData, prediction: Array) -> tuple[float, Floats]:
        score, y = DISTRIBUTION_SCORES[self.score], as_matrix(rows.target)
        return weighted_means(score(self.objective.distribution(prediction), y), rows.weight)


# --- errors on several scales ---


@dataclass(frozen=True)
class RelativeError:
    """Mean over targets of an error divided by the target's standard deviation on the same data.

    For root mean squared errors this is the average relative RMSE of the multi-target literature
    (Spyromitros-Xioufis et al., "Multi-target regression via input space expansion", Machine
    Learning 104, 2016), except that the mean is the mean of the evaluated data. Targets that do not
    vary there are left out; if none varies, the errors themselves are averaged.

    `metric`: the error of each output, in the unit of its target. Several outputs of one target are
    adjacent.
    """

    metric: Any

    def bind(
        self, rows: RowData, training: RowData | None, n_outputs: int | None
    ) -> Callable[[Array], float]:
        """Return the error as a function of the predictions of these rows."""
        compute_errors = self.metric.bind(rows, training, n_outputs).per_output
        deviations = _standard_deviations(rows)

        def relative_error(prediction: Array) -> float:
            errors = compute_errors(prediction)
            scale = np.repeat(deviations, len(errors) // len(deviations))
            varies = scale > 0
            if varies.any():
                errors = errors[varies] / scale[varies]
            known = errors[~np.isnan(errors)]
            return float(known.mean()) if known.size else float("nan")

        return relative_error


def _standard_deviations(rows: RowData) -> Floats:
    """Return the weighted standard deviation of each column; 0 if its weights are all 0."""
    n = len(rows.target)
    y = np.asarray(rows.target, np.float64).reshape(n, -1)
    w = np.ones((n, 1)) if rows.weight is None else np.asarray(rows.weight, np.float64)
    w = w.reshape(n, -1)
    total = np.maximum(w.sum(axis=0), np.finfo(np.float64).tiny)
    mean = (w * y).sum(axis=0) / total
    return np.sqrt((w * np.square(y - mean)).sum(axis=0) / total)
