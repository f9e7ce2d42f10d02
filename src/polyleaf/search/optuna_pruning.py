"""A callback that asks Optuna after every round whether a training is worth going on with."""

from __future__ import annotations

from typing import Any

from polyleaf.callbacks import Callback, EvalsLog

__all__ = ["PruningCallback"]


class PruningCallback(Callback):
    """Reports a metric to a trial of Optuna after each round, and ends the training where it is
    pruned.

    Parameters
    ----------
    trial : optuna.Trial
        Of a study whose direction is that of the metric.
    metric : str, optional
        One of `eval_metric`; by default the last, which is what early stopping watches.
    data : str, optional
        Name of an evaluation set; by default the last.

    Raises
    ------
    optuna.TrialPruned
        Out of `fit`, where the study's pruner says so; Optuna's `optimize` expects it.
    ValueError
        Where there is no such evaluation set or metric.
    """

    def __init__(self, trial: Any, metric: str | None = None, data: str | None = None) -> None:
        self._trial, self._metric, self._data = trial, metric, data

    def after_iteration(self, model: Any, epoch: int, evals_log: EvalsLog) -> bool:
        if not evals_log:
            raise ValueError(
                "PruningCallback needs data to evaluate on: pass eval_set=[(X, y)] to fit."
            )
        data = self._data or list(evals_log)[-1]
        if data not in evals_log:
            raise ValueError(
                f"There is no evaluation set {data!r}; there are {', '.join(evals_log)}."
            )
        metric = self._metric or list(evals_log[data])[-1]
        if metric not in evals_log[data]:
            raise ValueError(
                f"There is no metric {metric!r}; there are {', '.join(evals_log[data])}."
            )
        value = evals_log[data][metric][-1]
        self._trial.report(value, step=epoch)
        if self._trial.should_prune():
            import optuna

            raise optuna.TrialPruned(
                f"Pruned after round {epoch + 1}: {metric} of {data} was {value:.6g}."
            )
        return False
