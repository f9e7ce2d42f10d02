"""Automatic choice of n_estimators by early stopping on a hold-out.

Some rows are trained on at twice the learning rate, so with half of the rounds; the round of the
lowest loss of the other rows decides how many rounds all rows are then trained for.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from polyleaf.callbacks import Callback, EvalsLog
from polyleaf.objectives import Objective
from polyleaf.settings.train_config import TrainConfig
from polyleaf.training.boosting import BoostResult, boost
from polyleaf.training.prepare import PreparedData

__all__ = ["MAX_ROWS", "RoundSearchResult", "find_n_estimators", "has_few_rows", "max_rounds"]

# Fewer rows give too noisy an estimate; more rarely overfit in the default number of rounds.
MIN_ROWS, MAX_ROWS = 50, 10_000
MAX_ROUNDS, PATIENCE = 60.0, 10.0  # at a learning rate of 1; divided by the rate
SPEEDUP, MAX_RATE = 2, 0.5  # factor of the learning rate, unless the result exceeds MAX_RATE


class RoundSearchResult(NamedTuple):
    """Result of the search for n_estimators.

    Attributes
    ----------
    n_estimators : int
    result : BoostResult
        The training on some of the rows; Ctrl-C may have ended it.
    """

    n_estimators: int
    result: BoostResult


def has_few_rows(n_rows: int) -> bool:
    """Return whether n_estimators is searched for data with this number of rows."""
    return MIN_ROWS <= n_rows <= MAX_ROWS


def max_rounds(learning_rate: float) -> int:
    """Return the largest number of rounds at this learning rate."""
    return max(10, round(MAX_ROUNDS / learning_rate))


def find_n_estimators(
    trial: PreparedData,
    settings: TrainConfig,
    objective: Objective,
    base_score: np.ndarray | None,
    **model_fields: Any,
) -> RoundSearchResult:
    """Return the number of rounds to train all rows for.

    Parameters
    ----------
    trial : PreparedData
        Rows to train on, and one evaluation set with one metric.
    settings : TrainConfig
        Settings of the training on all rows; its n_estimators is returned if no round can be
        measured.
    objective : Objective
    base_score : ndarray of shape (K,), float64, or None
    **model_fields
        Attributes of the model, for `boost`.
    """
    if objective.is_translation_invariant:  # offsets are subtracted from the target
        trial = trial._replace(offset=None, eval_sets=[replace(trial.eval_sets[0], offset=None)])
    rate = settings.boosting.learning_rate
    speedup = SPEEDUP if SPEEDUP * rate <= MAX_RATE else 1
    boosting = replace(
        settings.boosting, learning_rate=speedup * rate, n_estimators=max_rounds(speedup * rate)
    )
    best_round = _BestRound(
        trial.eval_sets[0].metrics[0].greater_is_better,
        max(10, round(PATIENCE / boosting.learning_rate)),
    )
    result = boost(
        trial.dataset,
        trial.target.values,
        trial.target.weight,
        objective,
        replace(settings, boosting=boosting),
        eval_sets=trial.eval_sets,
        callbacks=[best_round],
        base_score=base_score,
        offset=trial.offset,
        **model_fields,
    )
    n_estimators = speedup * best_round.n_rounds or settings.boosting.n_estimators
    return RoundSearchResult(n_estimators, result)


class _BestRound(Callback):
    """Stops a training some rounds after its best metric value."""

    def __init__(self, greater_is_better: bool, patience: int) -> None:
        self._sign, self._patience = -1.0 if greater_is_better else 1.0, patience
        self._lowest, self.n_rounds = np.inf, 0

    def after_iteration(self, model: Any, epoch: int, evals_log: EvalsLog) -> bool:
        ((values,),) = (metrics.values() for metrics in evals_log.values())
        if self._sign * values[-1] < self._lowest:  # never for NaN
            self._lowest, self.n_rounds = self._sign * values[-1], epoch + 1
        return epoch + 1 - self.n_rounds >= self._patience
