"""Parts for Optuna studies: a search space, and a callback that prunes trials."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polyleaf.callbacks import Callback
from polyleaf.metrics.metric import EvalsLog
from polyleaf.search.optuna_search import suggest_params

if TYPE_CHECKING:
    from optuna.trial import Trial

    from polyleaf.model import Model

__all__ = ["PruningCallback", "suggest_params"]


def __dir__() -> list[str]:
    return __all__


class PruningCallback(Callback):
    """Reports a metric to an Optuna trial after each round, and stops if the trial is pruned.

    Parameters
    ----------
    trial : optuna.Trial
        Trial of a study whose direction is that of the metric.
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
        self._trial, self._metric, self._data = trial, metric, data

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
