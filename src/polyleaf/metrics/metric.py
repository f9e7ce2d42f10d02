"""Metrics by name: the class, the registry, and the metrics that go with an objective.

Every metric is a function of ``(rows, prediction)``. The rows are a `RowData`: their target is
float ``(n, K)`` or class ids ``(n,)``, their weight None, ``(n,)`` or ``(n, K)``. The prediction
``(n, K)`` is of the metric's ``prediction_type``. What depends on the rows alone is computed once,
by ``bind``. A missing target has weight 0 and is ignored. Averages over several outputs are over
all rows and outputs together, by weight; aRMSE, R2 and ranking metrics, which are not means over
rows, are averaged over the outputs for which they exist.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from polyleaf.metrics import _classification as classification
from polyleaf.metrics import _regression as regression
from polyleaf.metrics._classification import confusion_score
from polyleaf.metrics._multitask import D2, MeanD2, TaskMetric
from polyleaf.metrics._regression import (
    DISTRIBUTION_SCORES,
    DistributionScore,
    PercentageError,
    PinballLoss,
    PinballLossAtLevel,
    RelativeError,
    TweedieDeviance,
    as_matrices,
    as_matrix,
)
from polyleaf.metrics._sklearn import SCORER_ALIASES, CallableMetric, is_scorer
from polyleaf.metrics.queries import KINDS as QUERY_METRICS
from polyleaf.metrics.queries import QueryMetric, parse_query_metric
from polyleaf.metrics.ranking import parse_ranking_metric
from polyleaf.objectives import Objective, distribution_names
from polyleaf.runtime.checks import require_choice
from polyleaf.runtime.row_data import RowData, protect

if TYPE_CHECKING:
    from polyleaf.objectives.multitask import Task, TaskSlice

EvalsLog: TypeAlias = dict[str, dict[str, list[float]]]
"""Values of each round by data set and metric: {data: {metric: [value, ...]}}."""
OutputsLog: TypeAlias = dict[str, dict[str, list[np.ndarray]]]
"""`EvalsLog` with an array `(n_outputs,)` for each round."""

Array = np.ndarray
PredictionType = Literal["raw", "prediction", "proba"]


@dataclass(frozen=True)
class Metric:
    """A metric and its properties. Call it like its function.

    Attributes
    ----------
    name : str
    function : callable
        ``(rows, prediction) -> float``; NaN where it does not exist. Or an object whose method
        ``bind(rows, training, n_outputs)`` returns a function of the prediction alone.
    greater_is_better : bool
        For a function that returns it with its value, see `prefers_greater`.
    prediction_type : {"raw", "prediction", "proba"}
        What `prediction` must be: raw scores, or the result of ``Objective.transform``, which must
        be probabilities for "proba".
    per_output_defined : bool
        Whether the metric exists for a single output, so that `per_output` works.
    is_scale_dependent : bool
        Whether it is an error in the unit of y, so that the target on the largest scale dominates;
        `relative_<name>` is the metric in which none does.
    shares_function : callable or None
        Function in place of `function` for targets that are shares of the classes. None: the
        largest share is the class.
    has_classes : bool
        Whether targets are classes, so that a matrix is shares of them.
    """

    name: str
    function: Any
    greater_is_better: bool = False
    prediction_type: PredictionType = "prediction"
    per_output_defined: bool = True
    is_scale_dependent: bool = False
    shares_function: Any = None
    has_classes: bool = False

    def bind(
        self, rows: RowData, training: RowData | None = None, n_outputs: int | None = None
    ) -> BoundMetric:
        """Bind the metric to the rows that it evaluates.

        Parameters
        ----------
        rows : RowData
        training : RowData, optional
            The training rows, from which propensity-scored metrics take label frequencies.
        n_outputs : int, optional
            The number K of outputs, for class ids.

        Returns
        -------
        BoundMetric
        """
        function, rows = self.function, rows.protect()
        if self.has_classes and np.ndim(rows.target) == 2:
            if self.shares_function is None:
                rows = rows.replace(target=rows.target.argmax(axis=1))
            else:
                function = self.shares_function
        bind = getattr(function, "bind", None)
        if bind is None:
            return BoundMetric(self, rows, partial(function, rows))
        return BoundMetric(self, rows, bind(rows, training, n_outputs))

    def __call__(self, rows: RowData, prediction: Array) -> float:
        return self.bind(rows)(prediction)

    @property
    def prefers_greater(self) -> bool:
        """Whether greater is better, also if a user's function tells so when it is called."""
        return getattr(self.function, "greater_is_better", self.greater_is_better)

    def to_loss(self, value: float) -> float:
        """Return `value` as a loss, of which lower is better; NaN becomes infinite."""
        if math.isnan(value):
            return math.inf
        return -value if self.prefers_greater else value

    def from_loss(self, loss: float) -> float:
        """Return the metric of a `loss` that `to_loss` made."""
        return -loss if self.prefers_greater else loss

    def per_output(self, rows: RowData, prediction: Array) -> NDArray[np.float64] | None:
        """Return the metric of each output of `rows` and `prediction` (n, K); see
        `BoundMetric.per_output`."""
        return self.bind(rows).per_output(prediction)


@dataclass(frozen=True, eq=False)
class BoundMetric:
    """A metric bound to the rows that it evaluates. Call it with their predictions.

    Attributes
    ----------
    metric : Metric
    rows : RowData
    function : callable
        ``prediction -> float``
    """

    metric: Metric
    rows: RowData
    function: Callable[[Array], float]

    def __call__(self, prediction: Array) -> float:
        return float(self.function(protect(prediction)))

    def value_and_per_output(self, prediction: Array) -> tuple[float, NDArray[np.float64] | None]:
        """Return the metric and `per_output`, computed together where the function supports it.

        Parameters
        ----------
        prediction : ndarray of shape (n, K)
            Of the metric's `prediction_type`.

        Returns
        -------
        value : float
        per_output : ndarray of shape (K,), float64, or None
        """
        compute = self._get_joint_function()
        if compute is not None:
            return compute(protect(prediction))
        return self(prediction), self.per_output(prediction)

    def _get_joint_function(self) -> Callable[[Array], Any] | None:
        """Return the function that computes the metric and `per_output` together, if there is
        one."""
        compute = getattr(self.function, "value_and_per_output", None)
        if compute is not None:
            return compute
        compute = getattr(self.metric.function, "value_and_per_output", None)
        return None if compute is None else partial(compute, self.rows)

    def per_output(self, prediction: Array) -> NDArray[np.float64] | None:
        """Return the metric of each output.

        Parameters
        ----------
        prediction : ndarray of shape (n, K)
            Of the metric's `prediction_type`.

        Returns
        -------
        ndarray of shape (K,), float64, or None
            None if it is not defined for a single output.
        """
        metric = self.metric
        compute = self._get_joint_function()
        if compute is not None:
            return compute(protect(prediction))[1]
        if metric.has_classes or not metric.per_output_defined:
            return None
        y = self.rows.target
        if np.ndim(y) == 1 and as_matrix(prediction).shape[1] > 1:
            return None
        y, prediction = as_matrices(y, prediction)
        rows = self.rows.replace(target=y)
        columns = [metric.bind(rows.column(k)).function for k in range(y.shape[1])]
        return np.array([function(protect(prediction[:, k])) for k, function in enumerate(columns)])


# --- the registry ---


def _joint(
    name: str,
    function: object,
    *,
    greater_is_better: bool = False,
    prediction_type: PredictionType = "raw",
    takes_shares: bool = False,
) -> Metric:
    """Make a metric that is not defined for a single output."""
    return Metric(
        name,
        function,
        greater_is_better,
        prediction_type,
        per_output_defined=False,
        shares_function=function if takes_shares else None,
    )


_CONFUSION_SCORES: list[tuple[str, Callable[..., float]]] = [
    ("balanced_accuracy", classification.balanced_accuracy),
    ("mcc", classification.matthews_correlation),
    ("kappa", partial(classification.cohen_kappa, power=0)),
    ("linear_kappa", partial(classification.cohen_kappa, power=1)),
    ("quadratic_kappa", partial(classification.cohen_kappa, power=2)),
]

_METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric("rmse", regression.rmse, is_scale_dependent=True),
        Metric("armse", regression.armse),
        Metric("mse", regression.mse),
        Metric("mae", regression.mae, is_scale_dependent=True),
        Metric("mape", PercentageError()),
        Metric("rmsle", regression.rmsle),
        Metric("r2", regression.r2, greater_is_better=True),
        Metric("quantile", PinballLoss(), is_scale_dependent=True),
        Metric("poisson_deviance", TweedieDeviance(1.0)),
        Metric("gamma_deviance", TweedieDeviance(2.0)),
        Metric("tweedie_deviance", TweedieDeviance()),
        Metric("logloss", classification.logloss, prediction_type="raw"),
        _joint("mlogloss", classification.mlogloss, takes_shares=True),
        _joint("kl_divergence", classification.kl_divergence, takes_shares=True),
        Metric("error", classification.error, prediction_type="raw"),
        _joint("merror", classification.error),
        Metric("hamming_loss", classification.error, prediction_type="raw"),
        _joint("subset_accuracy", classification.subset_accuracy, greater_is_better=True),
        *(
            Metric(name, function, greater_is_better=True, prediction_type="raw")
            for name, function in (
                ("accuracy", classification.accuracy),
                ("f1_micro", classification.f1_micro),
                ("f1_macro", classification.f1_macro),
                *((name, partial(confusion_score, score)) for name, score in _CONFUSION_SCORES),
            )
        ),
        Metric(
            "brier",
            classification.brier,
            prediction_type="proba",
            shares_function=classification.brier_of_shares,
        ),
        Metric("auc", classification.auc, greater_is_better=True, prediction_type="proba"),
        Metric(
            "average_precision",
            classification.average_precision,
            greater_is_better=True,
            prediction_type="proba",
        ),
    )
}

# Metrics that take their parameters from the objective.
_PARAMETRISED: dict[str, Callable[..., object]] = {
    "quantile": PinballLoss,
    "tweedie_deviance": TweedieDeviance,
    "mape": PercentageError,
}

# Names in XGBoost, LightGBM and scikit-learn.
METRIC_ALIASES: dict[str, str] = {
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
    "kullback_leibler_divergence": "kl_divergence",
    "kld": "kl_divergence",
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
    **SCORER_ALIASES,
}

_PINBALL = re.compile(r"(?:pinball|quantile)@(0?\.[0-9]+)")
_RELATIVE = "relative_"

# Metrics in place of those that are not means of errors of rows, which D2 compares.
_D2_METRICS = {"rmse": "mse", "nll": "crps"}


def metric_names() -> list[str]:
    """Return the canonical names of the built-in metrics.

    There are also p@k, ndcg@k, psp@k and psndcg@k, relative_<name> of scale-dependent metrics, and
    nll and crps of predicted distributions.
    """
    return list(_METRICS)


def get_metric(
    metric: str | Callable[..., object] | Metric, objective: Objective | None = None
) -> Metric:
    """Return a metric by name, or a callable as a metric.

    Parameters
    ----------
    metric : str, callable, QueryMetric or Metric
        A canonical name (`metric_names`), a name of XGBoost, LightGBM or a scorer of scikit-learn;
        "p@1", "ndcg@5", "psp@3", "psndcg@3" (any k; see :mod:`polyleaf.metrics.ranking`);
        "pinball@0.9" (any level); "nll" and "crps" of objectives that predict distributions; "d2";
        "loss", which the objective minimises; or a function of ``(y_true, y_pred)`` or ``(y_true,
        y_pred, sample_weight)`` that returns a number (smaller is better, unless it is a score of
        scikit-learn) or ``(name, value, greater_is_better)``. The function receives predictions
        (probabilities if the objective has them; decisions if it is a metric of scikit-learn that
        compares these) as ``(n,)`` for one output, else ``(n, K)``, and is logged under its own
        name. A ranking objective takes "loss", functions, and the metrics of queries "ndcg", "map",
        "mrr", "err" and "precision", with or without "@k"; a `QueryMetric` has more options.
    objective : Objective, optional
        Provides quantile levels, the Tweedie power, and gains to metrics with parameters.

    Raises
    ------
    ValueError
        If the name is unknown.
    """
    if isinstance(metric, Metric):
        return metric
    if isinstance(metric, QueryMetric):
        return _query_metric(metric)
    if callable(metric):
        return _from_callable(metric)
    if not isinstance(metric, str):
        raise ValueError(f"A metric must be a name or a callable; got {type(metric).__name__}.")
    if objective is not None and "relevance" in objective.target_kinds:
        return _get_ranking_metric(metric, objective)
    name = METRIC_ALIASES.get(metric.lower(), metric.lower())
    if name in ("log_loss", "logloss"):
        is_multiclass = objective is not None and objective.target_kinds == ("classes",)
        name = "mlogloss" if is_multiclass else "logloss"
    by_name = _METRICS.get(name) or _get_composed_metric(name, objective)
    if by_name is None:
        close = difflib.get_close_matches(name, [*_METRICS, *METRIC_ALIASES], n=1)
        raise ValueError(
            f"Unknown metric {metric!r}.{f' Did you mean {close[0]!r}?' if close else ''} Valid "
            f"names are {', '.join([*_METRICS, *_relative_names(), *DISTRIBUTION_SCORES])}, loss, "
            "d2, pinball@level, p@k, ndcg@k, psp@k and psndcg@k for any k; or pass a callable."
        )
    if objective is not None and objective.default_metric == name and name in _PARAMETRISED:
        return replace(by_name, function=_PARAMETRISED[name](**objective.metric_parameters()))
    return by_name


def _get_ranking_metric(name: str, objective: Objective) -> Metric:
    """Return a metric of queries, or the loss; scores have no unit that others could compare."""
    of_queries = parse_query_metric(name.lower(), **objective.metric_parameters())
    if of_queries is not None:
        return _query_metric(of_queries)
    if name.lower() == "loss":
        return _joint("loss", _ObjectiveLoss(objective))
    kind = difflib.get_close_matches(name.lower().partition("@")[0], QUERY_METRICS, n=1)
    raise ValueError(
        f"Unknown metric {name!r} of a ranking.{f' Did you mean {kind[0]!r}?' if kind else ''} "
        f"Valid names are {', '.join(QUERY_METRICS)}, with or without @k, k at least 1, and loss; "
        "or pass a callable."
    )


def _query_metric(function: QueryMetric) -> Metric:
    return Metric(function.name, function, greater_is_better=True, prediction_type="raw")


def _get_composed_metric(name: str, objective: Objective | None) -> Metric | None:
    """Return a metric that is made of its name or of the objective; None if there is none."""
    if "@" in name:
        level = _PINBALL.fullmatch(name)
        if level is not None:
            levels = () if objective is None else objective.quantile_levels
            pinball = PinballLossAtLevel(float(level[1]), levels)
            return _joint(name, pinball, prediction_type="prediction")
        ranking = parse_ranking_metric(name)
        return None if ranking is None else _joint(*ranking, greater_is_better=True)
    if name in DISTRIBUTION_SCORES:
        return _distribution_metric(name, objective)
    if name.startswith(_RELATIVE):
        return _relative_metric(get_metric(name.removeprefix(_RELATIVE), objective))
    if objective is None or name not in ("d2", "loss"):
        return None
    if name == "d2":
        return _d2_metric(objective)
    return _joint(name, _ObjectiveLoss(objective), takes_shares=True)


def _distribution_metric(name: str, objective: Objective | None) -> Metric:
    if objective is None or not objective.has_distribution:
        raise ValueError(
            f"Metric {name!r} requires an objective that predicts distributions: "
            f"{', '.join(distribution_names())}."
        )
    score = DistributionScore(objective, name)
    return Metric(name, score, prediction_type="raw", is_scale_dependent=name == "crps")


def _relative_metric(metric: Metric) -> Metric:
    if not metric.is_scale_dependent:
        raise ValueError(
            f"{metric.name!r} has no relative form, as it does not depend on the scale of y; "
            f"use one of {', '.join(_relative_names())}."
        )
    return _joint(_RELATIVE + metric.name, RelativeError(metric), prediction_type="prediction")


def _relative_names() -> list[str]:
    return [_RELATIVE + name for name, metric in _METRICS.items() if metric.is_scale_dependent]


def _from_callable(function: Callable[..., object]) -> Metric:
    if is_scorer(function):
        raise TypeError(
            "eval_metric is a scorer of scikit-learn, which takes an estimator: pass its metric "
            "function instead, such as sklearn.metrics.f1_score (options with functools.partial)."
        )
    called = CallableMetric(function)
    return _joint(
        called.name,
        called,
        greater_is_better=called.greater_is_better,
        prediction_type="raw" if called.takes_decisions else "prediction",
    )


@dataclass(frozen=True)
class _ObjectiveLoss:
    """The loss of an objective, of raw scores in the unit of y."""

    objective: Objective

    def bind(
        self, rows: RowData, training: RowData | None, n_outputs: int | None
    ) -> Callable[[Array], float]:
        """Return the loss as a function of the raw scores of these rows."""
        bound = self.objective.bind(rows)

        def loss(raw: Array) -> float:
            base = raw.mean(axis=0)  # so that the rest fits in float32
            bound.set_base_score(base)
            value = bound.loss((raw - base).astype(np.float32))
            if np.isnan(value):
                raise ValueError(
                    f"The loss of objective {self.objective.name!r} is NaN, or unknown because its "
                    "function returns only derivatives: choose another eval_metric."
                )
            return value

        return loss


# --- the metrics of an objective ---


def get_metrics(metrics: Any, objective: Objective) -> list[Metric]:
    """Return several metrics; see `get_metric`.

    Parameters
    ----------
    metrics : str, callable, Metric, sequence of these, mapping or None
        None: the default of the objective. For several tasks, a mapping from task names to metrics.
    objective : Objective

    Returns
    -------
    list of Metric

    Raises
    ------
    ValueError
        If a metric is unknown, does not suit the objective, or has the name of another.
    """
    if metrics is None:
        return [default_metric(objective)]
    if isinstance(metrics, Mapping):
        chosen = _get_task_metrics(metrics, objective)
    else:
        if isinstance(metrics, (str, Metric)) or callable(metrics):
            metrics = [metrics]
        chosen = [_check_task_given(get_metric(metric, objective), objective) for metric in metrics]
    names = [metric.name for metric in chosen]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"eval_metric contains {name!r} more than once.")
    return chosen


def default_metric(objective: Objective) -> Metric:
    """Return the metric that goes with `objective`: its `default_metric`, with its parameters."""
    return get_metric(objective.default_metric, objective)


def default_metrics(objective: Objective, kind: str, n_targets: int) -> list[Metric]:
    """Return the metrics of an `objective` that are logged if `eval_metric` is not set.

    For several targets, a scale-dependent error is followed by its relative form, and for several
    tasks the metrics of each by the mean D2: early stopping uses the last metric. `kind` and
    `n_targets` are as in `Objective.get_default_metric`.
    """
    if objective.tasks:
        task_metrics = [
            _task_metric(metric, place)
            for place in objective.tasks
            for metric in default_metrics(
                place.task.objective, _target_kind(place.task), max(place.task.n_columns, 1)
            )
        ]
        return task_metrics if len(objective.tasks) == 1 else [*task_metrics, _d2_metric(objective)]
    metric = get_metric(objective.get_default_metric(kind, n_targets), objective)
    if metric.is_scale_dependent and n_targets > 1:
        return [metric, _relative_metric(metric)]
    return [metric]


def _target_kind(task: Task) -> str:
    label_kind = "binary" if task.n_columns == 1 else "multilabel"
    return {"values": "regression", "labels": label_kind}.get(task.target_kind, "multiclass")


def _task_metric(metric: Metric, place: TaskSlice) -> Metric:
    """Return the metric of one of several tasks as a metric of all of them."""
    return _joint(
        f"{place.task.name}: {metric.name}",
        TaskMetric(place, metric),
        greater_is_better=metric.greater_is_better,
        prediction_type=metric.prediction_type,
    )


def _get_task_metrics(metrics: Mapping[object, object], objective: Objective) -> list[Metric]:
    """Return the metrics of a mapping from task names, in its order."""
    places = {place.task.name: place for place in objective.tasks}
    if not places:
        raise ValueError(
            "eval_metric may be a dict for several tasks only: pass a metric or a list."
        )
    task_metrics = []
    for name, chosen in metrics.items():
        require_choice(name, places, "A task of eval_metric")
        task_metrics += [
            _task_metric(metric, places[name])
            for metric in get_metrics(chosen, places[name].task.objective)
        ]
    return task_metrics


def _check_task_given(metric: Metric, objective: Objective) -> Metric:
    """Raise ValueError for a metric that must name one of several tasks."""
    if objective.tasks and metric.name not in ("d2", "loss"):
        first = objective.tasks[0].task.name
        raise ValueError(
            f"eval_metric={metric.name!r} must name its task: pass a dict, such as "
            f"{{{first!r}: {metric.name!r}}}, or 'd2' for all tasks together."
        )
    return metric


def _d2_metric(objective: Objective) -> Metric:
    """Return the D2 of an objective; for several tasks their mean."""
    if objective.tasks:
        each = [TaskMetric(place, _d2_metric(place.task.objective)) for place in objective.tasks]
        return _joint("d2", MeanD2(tuple(each)), greater_is_better=True)
    metric = default_metric(objective)
    metric = get_metric(_D2_METRICS.get(metric.name, metric.name), objective)
    return _joint("d2", D2(objective, metric), greater_is_better=True, takes_shares=True)
