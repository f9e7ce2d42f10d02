"""Parts for Optuna studies: a search space, and a callback that prunes trials."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

from polyleaf.callbacks import Callback
from polyleaf.metrics.metric import EvalsLog
from polyleaf.runtime.types import Parameters

if TYPE_CHECKING:
    from optuna.trial import Trial

    from polyleaf.model import Model

__all__ = ["PruningCallback", "suggest_params"]

Task: TypeAlias = Literal["regression", "binary", "multiclass", "multilabel", "ranking"]

_FLOAT_RANGES: dict[str, tuple[float, float, bool]] = {  # low, high, log
    "learning_rate": (0.01, 0.3, True),
    "reg_lambda": (0.05, 20.0, True),
    "colsample_bynode": (0.1, 1.0, False),
    "subsample": (0.4, 1.0, False),
}
_INT_RANGES = {"max_leaves": (4, 256), "min_child_samples": (1, 50)}


def suggest_params(
    trial: Any, task: Task, n_outputs: int | None = None, linear: bool = True
) -> Parameters:
    """Suggest estimator parameters with an Optuna trial.

    `n_estimators` is not suggested: train with `early_stopping_rounds` and at most
    `60 / learning_rate` rounds.

    Parameters
    ----------
    trial : optuna.Trial
        Any object with `suggest_float`, `suggest_int` and `suggest_categorical`.
    task : {"regression", "binary", "multiclass", "multilabel", "ranking"}
        Of a ranking, the objective is suggested as well.
    n_outputs : int, optional
        Number of outputs. With one output `multi_strategy` is not suggested. None means several
        outputs, except for "binary".
    linear : bool
        Whether to suggest linear leaves. They need dense features, and an objective whose gradients
        are not just signs (unlike quantiles and absolute error).

    Returns
    -------
    dict
        Parameters for `PolyleafRegressor`, `PolyleafClassifier` or `PolyleafRanker`.

    Raises
    ------
    ValueError
        If `task` is unknown.
    """
    if task not in get_args(Task):
        raise ValueError(
            f"task must be one of {', '.join(map(repr, get_args(Task)))}, got {task!r}."
        )
    params: Parameters = {
        name: trial.suggest_float(name, low, high, log=log)
        for name, (low, high, log) in _FLOAT_RANGES.items()
    }
    for name, bounds in _INT_RANGES.items():
        params[name] = trial.suggest_int(name, *bounds, log=True)
    if linear:
        params["leaf"] = trial.suggest_categorical("leaf", ["constant", "linear"])
    if task != "binary" and n_outputs != 1:
        strategies = ["multi_output_tree", "one_output_per_tree"]
        params["multi_strategy"] = trial.suggest_categorical("multi_strategy", strategies)
    if task == "ranking":
        objectives = ["xendcg", "lambdarank", "yetirank"]
        params["objective"] = trial.suggest_categorical("objective", objectives)
    return params


def __dir__() -> list[str]:
    return __all__


class PruningCallback(Callback):
    """Reports a metric to an Optuna trial after each round, and stops if the trial is pruned.

    Parameters
    ----------
    trial : optuna.Trial
        Trial of a study that has the direction of the metric.
    metric : str, optional
        Name of a metric of `eval_metric`; by default the last, which early stopping monitors.
    data : str, optional
        Name of an evaluation set; by default the last.

    Raises
    ------
    optuna.TrialPruned
        From `fit`, if the study's pruner decides so; Optuna's `optimize` handles it.
    ValueError
        If the evaluation set or the metric does not exist.
    """

    def __init__(self, trial: Trial, metric: str | None = None, data: str | None = None) -> None:
        self._trial = trial
        self._metric, self._data = metric, data

    def after_iteration(self, model: Model, epoch: int, evals_log: EvalsLog) -> bool:
        if not evals_log:
            raise ValueError("PruningCallback needs an evaluation set: pass eval_set to fit.")
        data = self._data or list(evals_log)[-1]
        if data not in evals_log:
            raise ValueError(
                f"data={data!r} is not an evaluation set; there are {', '.join(evals_log)}."
            )
        metric = self._metric or list(evals_log[data])[-1]
        if metric not in evals_log[data]:
            raise ValueError(
                f"metric={metric!r} is not evaluated; there are {', '.join(evals_log[data])}."
            )
        value = evals_log[data][metric][-1]
        self._trial.report(value, step=epoch)
        if self._trial.should_prune():
            import optuna

            raise optuna.TrialPruned(
                f"Pruned after round {epoch + 1}: {metric} of {data} was {value:.6g}."
            )
        return False
