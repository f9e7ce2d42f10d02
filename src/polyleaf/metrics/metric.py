"""Metrics: how good predictions are. Owns their names, functions and directions; must not know models or
boosting.

Every metric is a function of ``(y, prediction, weight)``: y float ``(n, K)`` or class ids ``(n,)``;
prediction ``(n, K)``, of the kind the metric ``needs``; weight None, ``(n,)`` or ``(n, K)``. A missing target
is a weight of 0 and counts nowhere. Means over several outputs are over all rows and outputs together, by
weight; aRMSE, R2 and rank metrics, which are not means over rows, are averaged over the outputs for which
they exist.
"""

from __future__ import annotations

import difflib
import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

import polyleaf._core as _core
from polyleaf.distributions import Distribution
from polyleaf.metrics.agreement import (
    balanced_accuracy,
    cohen_kappa,
    confusion_matrix,
    matthews_correlation,
)
from polyleaf.metrics.areas import binary_average_precision, binary_roc_auc
from polyleaf.metrics.d2 import D2, INSTEAD, MeanD2, TaskMetric
from polyleaf.metrics.normalized import PREFIX, RelativeError
from polyleaf.metrics.ranking import parse_ranking_metric
from polyleaf.metrics.sklearn_interop import SCORERS, is_greater_better, is_scorer, takes_decisions
from polyleaf.objectives import Objective, Problem, distribution_names

__all__ = [
    "Metric",
    "default_metric",
    "default_metrics",
    "get_metric",
    "get_metrics",
    "metric_names",
]

Array = NDArray[Any]
PredictionType = Literal["raw", "prediction", "proba"]


@dataclass
class Metric:
    """A metric with what training must know about it. Call it like its function.

    Attributes
    ----------
    name : str
    function : callable
        ``(y, prediction, weight) -> float``; NaN where it does not exist.
    greater_is_better : bool
    needs : {"raw", "prediction", "proba"}
        What `prediction` must be: scores before the link (raw plus base), or what ``Objective.transform``
        makes of them, which "proba" wants to be probabilities.
    per_output_defined : bool
        The metric means something for one output alone; `per_output` works.
    is_scale_dependent : bool
        It is an error in the unit of y, so that of several targets the one on the largest scale decides:
        `relative_<name>` is the metric in which none does.
    """

    name: str
    function: Callable[[Array, Array, Array | None], float]
    greater_is_better: bool = False
    prediction_type: PredictionType = "prediction"
    per_output_defined: bool = True
    is_scale_dependent: bool = False

    def __call__(self, y: Array, prediction: Array, weight: Array | None = None) -> float:
        value = float(self.function(y, prediction, weight))
        # A user's function that returns (name, value, greater_is_better) says so only once it was called.
        self.greater_is_better = getattr(self.function, "greater_is_better", self.greater_is_better)
        return value

    def set_train_target(self, y: Array, n_outputs: int) -> None:
        """Show the metric the target trained on; propensity-scored ones take label frequencies from it.

        Parameters
        ----------
        y : ndarray or sparse matrix of shape (n, K), or class ids (n,)
        n_outputs : int
            K.
        """
        learn = getattr(self.function, "set_train_target", None)
        if learn is not None:
            learn(y, n_outputs)

    def value_and_per_output(
        self, y: Array, prediction: Array, weight: Array | None = None
    ) -> tuple[float, NDArray[np.float64] | None]:
        """The metric, and `per_output`: at once, where the function knows how.

        Parameters
        ----------
        y : ndarray of shape (n, K), or class ids (n,)
        prediction : ndarray of shape (n, K)
            Of the kind that the metric `needs`.
        weight : ndarray of shape (n,) or (n, K), or None
            A target of weight 0 counts nowhere.

        Returns
        -------
        value : float
        each : ndarray of shape (K,), float64, or None
        """
        own = getattr(self.function, "value_and_per_output", None)
        if own is not None:
            return own(y, prediction, weight)
        return self(y, prediction, weight), self.per_output(y, prediction, weight)

    def per_output(
        self, y: Array, prediction: Array, weight: Array | None = None
    ) -> NDArray[np.float64] | None:
        """The metric of each output alone.

        Parameters
        ----------
        y : ndarray of shape (n, K), or class ids (n,)
        prediction : ndarray of shape (n, K)
            Of the kind that the metric `needs`.
        weight : ndarray of shape (n,) or (n, K), or None
            A target of weight 0 counts nowhere.

        Returns
        -------
        ndarray of shape (K,), float64, or None
            None where that means nothing.
        """
        own = getattr(self.function, "per_output", None)
        if own is not None:
            return own(y, prediction, weight)
        if not self.per_output_defined or (np.ndim(y) == 1 and _matrix(prediction).shape[1] > 1):
            return None
        y, prediction = _pairs(y, prediction)
        weight = None if weight is None else np.broadcast_to(_matrix(weight), y.shape)
        return np.array(
            [
                self.function(y[:, k], prediction[:, k], None if weight is None else weight[:, k])
                for k in range(y.shape[1])
            ]
        )


# --- weighted means ---


def _matrix(values: Array) -> Array:
    values = np.asarray(values)
    return values[:, None] if values.ndim == 1 else values


def _ratio(total: Any, weight: Any) -> NDArray[np.float64]:
    return np.divide(
        total, weight, out=np.full(np.shape(total), np.nan), where=np.asarray(weight) > 0
    )


def _means(values: Array, weight: Array | None) -> tuple[float, NDArray[np.float64]]:
    """Weighted mean of all of `values` ``(n, K)``, and of each column ``(K,)``."""
    if weight is None:
        means = values.mean(axis=0, dtype=np.float64)
        return float(means.mean()), means
    weight = _matrix(weight).astype(np.float64, copy=False)
    if weight.shape[1] == 1:
        totals, weights = weight[:, 0] @ values, np.full(values.shape[1], weight.sum())
    else:
        # Where the weight is 0 the value may be infinite (a deviance of a target that is not there).
        totals = np.where(weight > 0, values * weight, 0.0).sum(axis=0)
        weights = weight.sum(axis=0)
    return float(_ratio(totals.sum(), weights.sum())), _ratio(totals, weights)


def _pairs(y: Array, prediction: Array) -> tuple[Array, Array]:
    """Both as ``(n, K)`` matrices."""
    y, prediction = _matrix(y), _matrix(prediction)
    if y.shape != prediction.shape:
        of_classes = y.shape[1] == 1 < prediction.shape[1]
        hint = " One of many classes is measured by 'mlogloss', 'merror' or 'accuracy', say."
        raise ValueError(
            f"y has shape {y.shape} but the predictions have {prediction.shape}.{hint if of_classes else ''}"
        )
    return y, prediction


def _of_labels(y: Array, least: float = -1.0) -> Array:
    """y, where it holds labels: 0 (or `least`), 1, or shares between them (NaN: none)."""
    strange = np.flatnonzero(((y < 0) & (y != least)) | (y > 1))
    if len(strange):
        raise ValueError(
            f"A metric of labels needs y of 0 and 1, but it holds {np.ravel(y)[strange[0]]:.6g}: take one of "
            "numbers ('rmse', 'mae' or 'r2', say)."
        )
    return y


def _mean_over_outputs(
    function: Callable[[Array, Array, Array | None], float],
    y: Array,
    prediction: Array,
    weight: Array | None,
) -> float:
    """Mean of `function` over the outputs where it is a number, each on the rows that have weight."""
    y, prediction = _pairs(y, prediction)
    weight = None if weight is None else np.broadcast_to(_matrix(weight), y.shape)
    values = []
    for k in range(y.shape[1]):
        rows = slice(None) if weight is None else weight[:, k] > 0
        values.append(
            function(y[rows, k], prediction[rows, k], None if weight is None else weight[rows, k])
        )
    numbers = [value for value in values if not np.isnan(value)]
    return float(np.mean(numbers)) if numbers else float("nan")


# --- regression ---


def mse(y: Array, prediction: Array, weight: Array | None = None) -> float:
    """Mean squared error."""
    y, prediction = _pairs(y, prediction)
    return _means(np.square(prediction - y), weight)[0]


def rmse(y: Array, prediction: Array, weight: Array | None = None) -> float:
    """Root of the mean squared error over all rows and outputs, as XGBoost has it for several targets."""
    return float(np.sqrt(mse(y, prediction, weight)))


def armse(y: Array, prediction: Array, weight: Array | None = None) -> float:
    """Mean over outputs of each one's root mean squared error.

    That is scikit-learn's ``root_mean_squared_error``, and the aRMSE of the literature on several targets
    (Borchani et al., "A survey on multi-output regression", 2015). For one output it is `rmse`.
    """
    y, prediction = _pairs(y, prediction)
    each = np.sqrt(_means(np.square(prediction - y), weight)[1])
    if weight is not None:
        each = each[(np.broadcast_to(_matrix(weight), y.shape) > 0).any(axis=0)]
    return float(each.mean()) if each.size else float("nan")


def mae(y: Array, prediction: Array, weight: Array | None = None) -> float:
    """Mean absolute error."""
    y, prediction = _pairs(y, prediction)
    return _means(np.abs(prediction - y), weight)[0]


def mape(y: Array, prediction: Array, weight: Array | None = None) -> float:
    """Mean of ``|prediction - y| / |y|`` (|y| at least 2.2e-16, as in scikit-learn). 1 is 100 %."""
    y, prediction = _pairs(y, prediction)
    least = np.finfo(np.float64).eps
    return _means(np.abs(prediction - y) / np.maximum(np.abs(y).astype(np.float64), least), weight)[
        0
    ]


def r2(y: Array, prediction: Array, weight: Array | None = None) -> float:
    """Share of the variance explained, averaged over outputs; outputs that do not vary are left out."""
    return _mean_over_outputs(_r2_of_column, y, prediction, weight)


def _r2_of_column(y: Array, prediction: Array, weight: Array | None) -> float:
    y = y.astype(np.float64)
    if y.size == 0:
        return float("nan")
    weight = np.ones(y.size) if weight is None else weight.astype(np.float64)
    total = weight @ np.square(y - np.average(y, weights=weight))
    return float(1.0 - (weight @ np.square(y - prediction)) / total) if total > 0 else float("nan")


@dataclass(frozen=True)
class Pinball:
    """Mean pinball loss. T targets and A levels `alpha` go with ``T * A`` predictions, levels of a target
    together."""

    alpha: float | tuple[float, ...] = 0.5

    def __call__(self, y: Array, prediction: Array, weight: Array | None = None) -> float:
        return self.value_and_per_output(y, prediction, weight)[0]

    def per_output(
        self, y: Array, prediction: Array, weight: Array | None = None
    ) -> NDArray[np.float64]:
        """The loss of each prediction, ``(T * A,)``."""
        return self.value_and_per_output(y, prediction, weight)[1]

    def value_and_per_output(
        self, y: Array, prediction: Array, weight: Array | None = None
    ) -> tuple[float, NDArray[np.float64]]:
        """Both."""
        levels = np.atleast_1d(np.asarray(self.alpha, dtype=np.float64))
        y, prediction = _matrix(y), _matrix(prediction)
        n_outputs = y.shape[1] * levels.size
        if n_outputs != prediction.shape[1]:
            raise ValueError(
                f"{y.shape[1]} target(s) and {levels.size} level(s) need {n_outputs} predictions a row; got "
                f"{prediction.shape[1]}."
            )
        if weight is not None and _matrix(weight).shape[1] > 1:
            weight = np.repeat(weight, levels.size, axis=1)
        residual = np.repeat(y, levels.size, axis=1) - prediction
        level = np.tile(levels, y.shape[1])
        return _means(np.maximum(level * residual, (level - 1.0) * residual), weight)


def _counted(y: Array, weight: Array | None) -> Array:
    """y, with 1 in place of targets of weight 0, whose deviance may not exist."""
    return y if weight is None else np.where(_matrix(weight) > 0, y, 1.0)


@dataclass(frozen=True)
class TweedieDeviance:
    """Mean Tweedie deviance of positive predictions, variance ``mean^power``: 1 is Poisson's, 2 is
    Gamma's."""

    power: float = 1.5

    def __call__(self, y: Array, prediction: Array, weight: Array | None = None) -> float:
        y, prediction = _pairs(y, prediction)
        y, mean = _counted(y, weight).astype(np.float64), prediction.astype(np.float64)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            return _means(2.0 * self._half_deviance(y, mean), weight)[0]

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


# --- classification ---


def logloss(y: Array, raw: Array, weight: Array | None = None) -> float:
    """Mean binary cross-entropy of scores before the sigmoid, over rows and labels. No probability is
    clipped."""
    y, raw = _pairs(_of_labels(y, 0.0), raw)
    n_outputs = raw.shape[1]
    zeros, ones = np.zeros(n_outputs, np.float32), np.ones(n_outputs, np.float32)
    loss = _core.Loss("logistic", {})
    return _core.loss_mean(loss, _float32(raw), _float32(y), _float32(weight), zeros, ones, 1)


def mlogloss(y: Array, raw: Array, weight: Array | None = None) -> float:
    """Mean cross-entropy of scores before softmax ``(n, K)`` against class ids ``(n,)``."""
    label = _class_ids(y, "mlogloss")
    zeros = np.zeros(raw.shape[1], np.float32)
    loss = _core.ClassLoss("softmax", {"factor": 1.0})
    return _core.class_mean(loss, _float32(raw), label, _float32(weight), zeros, 1)


def _float32(values: Array | None) -> Any:
    return None if values is None else np.ascontiguousarray(_matrix(values), dtype=np.float32)


def _class_ids(y: Array, name: str) -> NDArray[np.int32]:
    y = np.asarray(y)
    if y.ndim != 1:
        raise ValueError(
            f"Metric {name!r} needs class ids of shape (n,); y has shape {y.shape}. Two classes, and labels, "
            "are measured by 'logloss' and 'error'."
        )
    return np.ascontiguousarray(y, dtype=np.int32)


def _decisions(y: Array, raw: Array) -> tuple[Array, Array]:
    """Truth and decision: class ids ``(n,)`` where y is such, else booleans ``(n, K)`` (a score above 0 says
    yes)."""
    raw = _matrix(raw)
    if np.ndim(y) == 1 and raw.shape[1] > 1:
        return np.asarray(y), raw.argmax(axis=1)
    y, raw = _pairs(y, raw)
    return _of_labels(y) > 0.5, raw > 0


def error(y: Array, raw: Array, weight: Array | None = None) -> float:
    """Share of wrong decisions: of rows for class ids, of rows and labels otherwise (the Hamming loss)."""
    truth, decision = _decisions(y, raw)
    return _means(_matrix(truth != decision), weight)[0]


def accuracy(y: Array, raw: Array, weight: Array | None = None) -> float:
    """Share of right decisions: 1 - `error`."""
    return 1.0 - error(y, raw, weight)


def subset_accuracy(y: Array, raw: Array, weight: Array | None = None) -> float:
    """Share of rows whose labels are all right. A missing label (weight 0) is not looked at."""
    truth, decision = (_matrix(values) for values in _decisions(y, raw))
    wrong = truth != decision
    if weight is None:
        return float(1.0 - wrong.any(axis=1).mean())
    weight = _matrix(weight)
    of_row = weight.mean(axis=1)
    return float(_ratio(((~(wrong & (weight > 0)).any(axis=1)) * of_row).sum(), of_row.sum()))


def _f1_counts(y: Array, raw: Array, weight: Array | None) -> tuple[Array, Array]:
    """Twice the true positives, and positives plus predicted positives, of each label or class."""
    truth, decision = _decisions(y, raw)
    if truth.ndim == 1:
        classes = np.arange(raw.shape[1])
        truth, decision = truth[:, None] == classes, decision[:, None] == classes
    weight = np.ones((len(truth), 1)) if weight is None else _matrix(weight).astype(np.float64)
    return 2.0 * (weight * (truth & decision)).sum(axis=0), (
        weight * truth + weight * decision
    ).sum(axis=0)


def f1_micro(y: Array, raw: Array, weight: Array | None = None) -> float:
    """F1 of all labels or classes counted together."""
    hits, counts = _f1_counts(y, raw, weight)
    total = float(counts.sum())
    return float(hits.sum()) / total if total > 0 else 0.0


def f1_macro(y: Array, raw: Array, weight: Array | None = None) -> float:
    """Mean of the F1 of labels or classes; 0 for one that neither occurs nor is predicted (as in
    scikit-learn)."""
    hits, counts = _f1_counts(y, raw, weight)
    return float(np.divide(hits, counts, out=np.zeros_like(hits), where=counts > 0).mean())


def brier(y: Array, proba: Array, weight: Array | None = None) -> float:
    """Mean squared error of probabilities; for class ids summed over the classes."""
    proba = _matrix(proba)
    if np.ndim(y) == 1 and proba.shape[1] > 1:
        truth = np.asarray(y)[:, None] == np.arange(proba.shape[1])
        return _means(np.square(proba - truth).sum(axis=1, keepdims=True), weight)[0]
    return mse(_of_labels(y, 0.0), proba, weight)


def auc(y: Array, proba: Array, weight: Array | None = None) -> float:
    """Area under the ROC curve, averaged over labels (classes: each against the rest); NaN where there is one
    class."""
    return _mean_over_outputs(binary_roc_auc, *_one_against_rest(y, proba), weight)


def average_precision(y: Array, proba: Array, weight: Array | None = None) -> float:
    """Average precision, averaged over labels (classes: each against the rest); NaN where there is one
    class."""
    return _mean_over_outputs(binary_average_precision, *_one_against_rest(y, proba), weight)


def _one_against_rest(y: Array, proba: Array) -> tuple[Array, Array]:
    """Both (n, K), columns in one piece, as they are read one after the other."""
    proba = np.asfortranarray(_matrix(proba))
    if np.ndim(y) == 1 and proba.shape[1] > 1:
        return (np.arange(proba.shape[1])[:, None] == np.asarray(y)).T, proba
    return np.asfortranarray(_matrix(_of_labels(y))) > 0.5, proba


def _agreement(
    of_table: Callable[[NDArray[np.float64]], float],
    y: Array,
    raw: Array,
    weight: Array | None = None,
) -> float:
    """A number of the table of truth and decision: of classes, or the mean over labels."""
    truth, decision = _decisions(y, raw)
    if truth.ndim == 1:
        rows = None if weight is None else _matrix(weight)[:, 0]
        return of_table(confusion_matrix(truth, decision, _matrix(raw).shape[1], rows))
    return _mean_over_outputs(
        lambda t, d, w: of_table(confusion_matrix(t, d, 2, w)), truth, decision, weight
    )


def rmsle(y: Array, prediction: Array, weight: Array | None = None) -> float:
    """Root mean squared difference of log(1 + y); predictions below 0 count as 0, targets are not below."""
    y, prediction = _pairs(y, prediction)
    with np.errstate(invalid="ignore", divide="ignore"):
        difference = np.log1p(np.maximum(prediction, 0.0)) - np.log1p(_counted(y, weight))
    return float(np.sqrt(_means(np.square(difference), weight)[0]))


@dataclass(frozen=True)
class _PinballOfLevel:
    """Mean pinball loss of one level: of its predictions where the objective has several, else of all."""

    level: float
    levels: tuple[float, ...] = ()

    def __call__(self, y: Array, prediction: Array, weight: Array | None = None) -> float:
        prediction = _matrix(prediction)
        if self.level in self.levels:
            prediction = prediction[:, self.levels.index(self.level) :: len(self.levels)]
        return Pinball(self.level)(y, prediction, weight)


@dataclass(frozen=True)
class _MeanOfDistributions:
    """Mean of a score of predicted distributions, from raw scores ``(n, K)`` and y ``(n, T)``."""

    objective: Objective
    score: str

    def __call__(self, y: Array, raw: Array, weight: Array | None = None) -> float:
        return self.value_and_per_output(y, raw, weight)[0]

    def per_output(self, y: Array, raw: Array, weight: Array | None = None) -> NDArray[np.float64]:
        """The mean of each target, ``(T,)``."""
        return self.value_and_per_output(y, raw, weight)[1]

    def value_and_per_output(
        self, y: Array, raw: Array, weight: Array | None = None
    ) -> tuple[float, NDArray[np.float64]]:
        """Both."""
        of_each, _ = _OF_DISTRIBUTIONS[self.score]
        return _means(of_each(self.objective.distribution(raw), _matrix(y)), weight)


# --- names ---

# Scores of predicted distributions, each with whether it has the unit of y.
_OF_DISTRIBUTIONS: dict[str, tuple[Callable[[Distribution, Array], Array], bool]] = {
    "nll": (lambda distribution, y: -distribution.logpdf(y), False),
    "crps": (lambda distribution, y: distribution.crps(y), True),
}

_METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric("rmse", rmse, is_scale_dependent=True),
        Metric("armse", armse),
        Metric("mse", mse),
        Metric("mae", mae, is_scale_dependent=True),
        Metric("mape", mape),
        Metric("rmsle", rmsle),
        Metric("r2", r2, greater_is_better=True),
        Metric("quantile", Pinball(), is_scale_dependent=True),
        Metric("poisson_deviance", TweedieDeviance(1.0)),
        Metric("gamma_deviance", TweedieDeviance(2.0)),
        Metric("tweedie_deviance", TweedieDeviance()),
        Metric("logloss", logloss, prediction_type="raw"),
        Metric("mlogloss", mlogloss, prediction_type="raw", per_output_defined=False),
        Metric("error", error, prediction_type="raw"),
        Metric("merror", error, prediction_type="raw", per_output_defined=False),
        Metric("hamming_loss", error, prediction_type="raw"),
        Metric("accuracy", accuracy, greater_is_better=True, prediction_type="raw"),
        Metric(
            "subset_accuracy",
            subset_accuracy,
            greater_is_better=True,
            prediction_type="raw",
            per_output_defined=False,
        ),
        Metric("f1_micro", f1_micro, greater_is_better=True, prediction_type="raw"),
        Metric("f1_macro", f1_macro, greater_is_better=True, prediction_type="raw"),
        *(
            Metric(
                name, partial(_agreement, of_table), greater_is_better=True, prediction_type="raw"
            )
            for name, of_table in (
                ("balanced_accuracy", balanced_accuracy),
                ("mcc", matthews_correlation),
                ("kappa", partial(cohen_kappa, power=0)),
                ("linear_kappa", partial(cohen_kappa, power=1)),
                ("quadratic_kappa", partial(cohen_kappa, power=2)),
            )
        ),
        Metric("brier", brier, prediction_type="proba"),
        Metric("auc", auc, greater_is_better=True, prediction_type="proba"),
        Metric(
            "average_precision", average_precision, greater_is_better=True, prediction_type="proba"
        ),
    )
}

# Metrics that take their parameters from the objective.
_WITH_PARAMETERS: dict[str, Callable[..., Any]] = {
    "quantile": Pinball,
    "tweedie_deviance": TweedieDeviance,
}

RENAMED_METRICS = {"skill": "d2"}
"""Names in model files of earlier versions, and what these metrics are called now."""

# Names that users of XGBoost, LightGBM and scikit-learn know.
_ALIASES: dict[str, str] = {
    "l2": "mse",
    "l2_root": "rmse",
    "l1": "mae",
    "mean_squared_error": "mse",
    "root_mean_squared_error": "rmse",
    "mean_absolute_error": "mae",
    "mean_absolute_percentage_error": "mape",
    "pinball": "quantile",
    "binary_logloss": "logloss",
    "multi_logloss": "mlogloss",
    "binary_error": "error",
    "multi_error": "merror",
    "gamma-deviance": "gamma_deviance",
    "aucpr": "average_precision",
    "hamming": "hamming_loss",
    "f1": "f1_macro",
    "root_mean_squared_log_error": "rmsle",
    "cohen_kappa": "kappa",
    "matthews": "mcc",
    "roc_auc_score": "auc",
    "negative_log_likelihood": "nll",
    "normal-nll": "nll",
    **SCORERS,
    **RENAMED_METRICS,
}

_PINBALL = re.compile(r"(?:pinball|quantile)@(0?\.[0-9]+)")


def metric_names() -> list[str]:
    """Canonical names of the built-in metrics; besides there are p@k, ndcg@k, psp@k and psndcg@k,
    relative_<name> of those that have the unit of y, and nll and crps of predicted distributions."""
    return list(_METRICS)


def get_metric(
    metric: str | Callable[..., Any] | Metric, objective: Objective | None = None
) -> Metric:
    """The metric of that name, or the callable as a metric.

    Parameters
    ----------
    metric : str, callable or Metric
        A canonical name (`metric_names`), one that XGBoost and LightGBM use or that of a scorer of
        scikit-learn, or "p@1", "ndcg@5", "psp@3", "psndcg@3" (any k; see :mod:`polyleaf.metrics.ranking`),
        "pinball@0.9" (any level); "nll" and "crps" of objectives that predict distributions; "loss", what the
        objective minimises; or a function of ``(y_true, y_pred)``
        or ``(y_true, y_pred, sample_weight)`` that returns a number (smaller is better, unless it is a score
        of scikit-learn's) or ``(name, value, greater_is_better)``. It gets predictions (probabilities, where
        the objective has them; decisions, where scikit-learn's function compares such) as ``(n,)`` for one
        output, else ``(n, K)``. The metric is listed under the function's own name.
    objective : Objective, optional
        Gives quantile levels and Tweedie power to metrics that have them.

    Raises
    ------
    ValueError
        For an unknown name.
    """
    if isinstance(metric, Metric):
        return metric
    if callable(metric):
        return _from_callable(metric)
    if not isinstance(metric, str):
        raise ValueError(f"A metric must be a name or a callable; got {type(metric).__name__}.")
    name = _ALIASES.get(metric.lower(), metric.lower())
    if name in ("log_loss", "logloss"):
        name = (
            "mlogloss"
            if objective is not None and objective.target_kinds == ("classes",)
            else "logloss"
        )
    level = _PINBALL.fullmatch(name)
    if level is not None:
        levels = () if objective is None else objective.levels
        return Metric(name, _PinballOfLevel(float(level[1]), levels), per_output_defined=False)
    if name == "d2" and objective is not None:
        return _skill(objective)
    if name == "loss" and objective is not None:
        return Metric(
            "loss", _ObjectiveLoss(objective), prediction_type="raw", per_output_defined=False
        )
    if name in _OF_DISTRIBUTIONS:
        return _of_distributions(name, objective)
    ranked = parse_ranking_metric(name)
    if ranked is not None:
        return Metric(
            *ranked, greater_is_better=True, prediction_type="raw", per_output_defined=False
        )
    if name.startswith(PREFIX):
        return _relative(get_metric(name.removeprefix(PREFIX), objective))
    if name not in _METRICS:
        close = difflib.get_close_matches(name, [*_METRICS, *_ALIASES], n=1)
        raise ValueError(
            f"Unknown metric {metric!r}.{f' Did you mean {close[0]!r}?' if close else ''} Known are "
            f"{', '.join([*_METRICS, *_relative_names(), *_OF_DISTRIBUTIONS])}, loss, d2, "
            "pinball@level, p@k, ndcg@k, psp@k and psndcg@k for any k, and any callable."
        )
    found = _METRICS[name]
    if objective is not None and objective.default_metric == name and name in _WITH_PARAMETERS:
        return replace(found, function=_WITH_PARAMETERS[name](**objective.metric_parameters()))
    return found


def _of_distributions(name: str, objective: Objective | None) -> Metric:
    if objective is None or not objective.has_distribution:
        raise ValueError(
            f"Metric {name!r} is of predicted distributions, which these objectives give: "
            f"{', '.join(distribution_names())}."
        )
    is_scale_dependent = _OF_DISTRIBUTIONS[name][1]
    return Metric(
        name,
        _MeanOfDistributions(objective, name),
        prediction_type="raw",
        is_scale_dependent=is_scale_dependent,
    )


def get_metrics(metrics: Any, objective: Objective) -> list[Metric]:
    """`get_metric` for several.

    Parameters
    ----------
    metrics : str, callable, Metric, sequence of these, mapping or None
        None: the default of the objective. For tasks a mapping from their names to such.
    objective : Objective

    Returns
    -------
    list of Metric

    Raises
    ------
    ValueError
        Where there is no such metric, it is not for this objective, or two share a name.
    """
    if metrics is None:
        return [default_metric(objective)]
    if isinstance(metrics, Mapping):
        found = _of_tasks(metrics, objective)
    else:
        if isinstance(metrics, (str, Metric)) or callable(metrics):
            metrics = [metrics]
        found = [_check_for_all(get_metric(metric, objective), objective) for metric in metrics]
    names = [metric.name for metric in found]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"Two metrics are called {name!r}; name each one once.")
    return found


def default_metric(objective: Objective) -> Metric:
    """The metric that goes with `objective`: its `default_metric`, with its parameters."""
    return get_metric(objective.default_metric, objective)


def default_metrics(objective: Objective, kind: str, n_targets: int) -> list[Metric]:
    """What is measured where the user names nothing.

    Of several targets an error in their unit is followed by the same in units of each one's spread: early
    stopping watches the last. Of several tasks the metrics of each are followed by the mean of their skill.

    Parameters
    ----------
    objective : Objective
    kind : {"regression", "binary", "multiclass", "multilabel"}
        Of the target.
    n_targets : int
        Its columns, or classes.

    Returns
    -------
    list of Metric
    """
    if objective.tasks:
        found = [
            _of_task(metric, place)
            for place in objective.tasks
            for metric in default_metrics(
                place.task.objective, _kind_of(place.task), max(place.task.n_columns, 1)
            )
        ]
        return found if len(objective.tasks) == 1 else [*found, _skill(objective)]
    metric = get_metric(objective.metric_for(kind, n_targets), objective)
    return [metric, _relative(metric)] if metric.is_scale_dependent and n_targets > 1 else [metric]


def _relative(metric: Metric) -> Metric:
    if not metric.is_scale_dependent:
        raise ValueError(
            f"{metric.name!r} has no unit to be relative to; {', '.join(_relative_names())} do."
        )
    return Metric(PREFIX + metric.name, RelativeError(metric.per_output), per_output_defined=False)


def _kind_of(task: Any) -> str:
    of_labels = "binary" if task.n_columns == 1 else "multilabel"
    return {"values": "regression", "labels": of_labels}.get(task.learns, "multiclass")


def _of_task(metric: Metric, place: Any) -> Metric:
    """The metric of one of several tasks, as one of all of them."""
    name, better = f"{place.task.name}: {metric.name}", metric.greater_is_better
    return Metric(
        name, TaskMetric(place, metric), better, metric.prediction_type, per_output_defined=False
    )


def _of_tasks(metrics: Mapping[Any, Any], objective: Objective) -> list[Metric]:
    """The metrics that users name for each of several tasks, in their order."""
    places = {place.task.name: place for place in objective.tasks}
    if not places:
        raise ValueError(
            "eval_metric is a dict where there are several tasks: name one metric, or a list."
        )
    found = []
    for name, chosen in metrics.items():
        if name not in places:
            raise ValueError(
                f"eval_metric names the task {name!r}; there are {', '.join(map(repr, places))}."
            )
        found += [
            _of_task(metric, places[name])
            for metric in get_metrics(chosen, places[name].task.objective)
        ]
    return found


def _check_for_all(metric: Metric, objective: Objective) -> Metric:
    """Refuse a metric that does not know which of several tasks it is of."""
    if objective.tasks and metric.name not in ("d2", "loss"):
        first = objective.tasks[0].task.name
        raise ValueError(
            f"eval_metric={metric.name!r} does not say which task it is of: give a dict, such as "
            f"{{{first!r}: {metric.name!r}}}. For all tasks together there is 'd2'."
        )
    return metric


def _skill(objective: Objective) -> Metric:
    """The share of the best constant's error that predictions are without; of tasks the mean."""
    if objective.tasks:
        of_tasks = [TaskMetric(place, _skill(place.task.objective)) for place in objective.tasks]
        return Metric("d2", MeanD2(of_tasks), True, prediction_type="raw", per_output_defined=False)
    metric = default_metric(objective)
    metric = get_metric(INSTEAD.get(metric.name, metric.name), objective)

    def errors(y: Array, raw: Array, weight: Array | None) -> NDArray[np.float64]:
        prediction = raw if metric.prediction_type == "raw" else objective.transform(raw)
        each = (
            metric.per_output(y, prediction, weight)
            if "labels" not in objective.target_kinds
            else None
        )
        return np.array([metric(y, prediction, weight)]) if each is None else each

    return Metric(
        "d2", D2(objective, errors), True, prediction_type="raw", per_output_defined=False
    )


def _relative_names() -> list[str]:
    return [PREFIX + name for name, metric in _METRICS.items() if metric.is_scale_dependent]


class _ObjectiveLoss:
    """What an objective minimises, of scores in the unit of y."""

    def __init__(self, objective: Objective) -> None:
        self.objective = objective
        self._prepared: list[tuple[Array, Array | None, Problem]] = []

    def __call__(self, y: Array, raw: Array, weight: Array | None) -> float:
        problem = self._problem(y, weight)
        base = raw.mean(axis=0)  # float32 holds the rest
        problem.set_base(base)
        loss = problem.loss((raw - base).astype(np.float32))
        if np.isnan(loss):
            raise ValueError(
                f"The loss of objective {self.objective.name!r} is NaN, or not known because the function "
                "returns derivatives only: choose another eval_metric."
            )
        return loss

    def _problem(self, y: Array, weight: Array | None) -> Problem:
        """Prepared once for each data set: a loss in JAX is compiled then."""
        for known_y, known_weight, problem in self._prepared:
            if known_y is y and known_weight is weight:
                return problem
        self._prepared.append((y, weight, self.objective.prepare(y, weight)))
        return self._prepared[-1][2]


def _from_callable(function: Callable[..., Any]) -> Metric:
    inner = function.func if isinstance(function, partial) else function
    name = getattr(inner, "__name__", type(function).__name__)
    if is_scorer(function):
        raise TypeError(
            "eval_metric is a scorer of scikit-learn, which is called with an estimator: pass the function "
            "that it is made of, such as sklearn.metrics.f1_score (functools.partial sets its arguments)."
        )
    greater, decides = is_greater_better(function), takes_decisions(function)
    called = _CallableMetric(function, name, greater, decides)
    return Metric(
        name,
        called,
        greater,
        prediction_type="raw" if decides else "prediction",
        per_output_defined=False,
    )


class _CallableMetric:
    """A user's function behind the common signature."""

    def __init__(
        self,
        function: Callable[..., Any],
        name: str,
        greater_is_better: bool = False,
        decides: bool = False,
    ) -> None:
        self.user_function = function
        self.name = name
        self.greater_is_better = greater_is_better
        self._decides = decides
        try:
            self._takes_weight = "sample_weight" in inspect.signature(function).parameters
        except ValueError:
            self._takes_weight = False

    def __call__(self, y: Array, prediction: Array, weight: Array | None) -> float:
        keywords = {"sample_weight": weight} if self._takes_weight else {}
        if self._decides:
            y, prediction = (values.astype(np.int64) for values in _decisions(y, prediction))
        value = self.user_function(_squeeze(y), _squeeze(prediction), **keywords)
        if isinstance(value, tuple):
            if len(value) != 3:
                raise ValueError(
                    f"Metric {self.name!r} returned {len(value)} things; it must return a number or "
                    "(name, value, greater_is_better)."
                )
            value, self.greater_is_better = value[1], bool(value[2])
        try:
            return float(value)
        except TypeError:
            shape = np.shape(value)
            found = f"values of shape {shape}" if shape else repr(value)
            raise TypeError(
                f"Metric {self.name!r} returned {found}; it must return a number, for all rows together, or "
                "(name, value, greater_is_better)."
            ) from None


def _squeeze(values: Array) -> Array:
    return values[:, 0] if values.ndim == 2 and values.shape[1] == 1 else values
