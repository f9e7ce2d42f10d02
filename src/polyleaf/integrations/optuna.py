"""Optuna: parameters suggested by a trial, and a callback that prunes it."""

from __future__ import annotations

from typing import Any

from polyleaf.callbacks import Callback, EvalsLog
from polyleaf.search.space import suggest as suggest_params

__all__ = ["PruningCallback", "suggest_params"]


class PruningCallback(Callback):
    """Reports a metric to a trial after each round, and stops training if the trial is pruned.

    Parameters
    ----------
    trial : optuna.Trial
        A trial of a study with the direction of the metric.
    metric : str, optional
        One of `eval_metric`. Default: the last, which early stopping uses.
    data : str, optional
        Name of an evaluation set. Default: the last.

    Raises
    ------
    optuna.TrialPruned
        Raised in `fit` if the study's pruner decides so; `Study.optimize` handles it.
    ValueError
        If there is no such evaluation set or metric.
    """

    def __init__(self, trial: Any, metric: str | None = None, data: str | None = None) -> None:
        self._trial, self._metric, self._data = trial, metric, data

    def after_iteration(self, model: Any, epoch: int, evals_log: EvalsLog) -> bool:
        if not evals_log:
            raise ValueError(
                "PruningCallback requires evaluation data: pass eval_set=[(X, y)] to fit."
            )
        data = self._data or list(evals_log)[-1]
        if data not in evals_log:
            raise ValueError(f"data={data!r} must be one of {', '.join(evals_log)}.")
        metric = self._metric or list(evals_log[data])[-1]
        if metric not in evals_log[data]:
            raise ValueError(f"metric={metric!r} must be one of {', '.join(evals_log[data])}.")
        value = evals_log[data][metric][-1]
        self._trial.report(value, step=epoch)
        if self._trial.should_prune():
            import optuna

            raise optuna.TrialPruned(
                f"Pruned after round {epoch + 1}: {metric} of {data} was {value:.6g}."
            )
        return False
