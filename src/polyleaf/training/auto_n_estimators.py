"""How many rounds to train where nobody says: as many as rows that are held out ask for.

Owns where that is looked for, how fast and how long, and what is taken from it. Must not know estimators, or
what the rows hold. Some rows are learned from at twice the rate, so with half of the rounds; when the others'
loss was least tells for how many rounds all rows are then trained on. What that is worth: docs/choosing.md.
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

__all__ = ["MAX_ROWS", "RoundSearchResult", "has_few_rows", "max_rounds", "find_n_estimators"]

# Fewer rows tell too little; more hardly overfit in the usual number of rounds, and take longer.
MIN_ROWS, MAX_ROWS = 50, 10_000
MOST_ROUNDS, PATIENCE = 60.0, 10.0  # at a rate of 1; of another, over the rate
HASTE, FASTEST = 2, 0.5  # how many times the rate, unless that is more than this


class RoundSearchResult(NamedTuple):
    """What came of looking.

    Attributes
    ----------
    n : int
    boosted : BoostResult
        The training that was looked at; Ctrl-C may have ended it.
    """

    n: int
    boosted: BoostResult


def has_few_rows(n_rows: int) -> bool:
    """Whether of so many rows some are held out to find the number of rounds."""
    return MIN_ROWS <= n_rows <= MAX_ROWS


def max_rounds(learning_rate: float) -> int:
    """So many rounds at most are trained at this rate."""
    return max(10, round(MOST_ROUNDS / learning_rate))


def find_n_estimators(
    trial: PreparedData,
    settings: TrainConfig,
    objective: Objective,
    base_score: np.ndarray | None,
    **about: Any,
) -> RoundSearchResult:
    """The rounds to train on all rows.

    Parameters
    ----------
    trial : PreparedData
        Rows to learn from, and one evaluation set, with one metric.
    settings : TrainConfig
        Of the training on all rows; its rounds are taken where no round can be measured.
    objective : Objective
    base_score : ndarray of shape (K,), float64, or None
    **about
        As `boost` takes it.
    """
    if objective.is_translation_invariant:  # what rows start from is taken off their targets
        trial = trial._replace(offset=None, eval_sets=[replace(trial.eval_sets[0], offset=None)])
    rate = settings.boosting.learning_rate
    haste = HASTE if HASTE * rate <= FASTEST else 1
    run = replace(
        settings.boosting, learning_rate=haste * rate, n_estimators=max_rounds(haste * rate)
    )
    lowest = _Lowest(
        trial.eval_sets[0].metrics[0].greater_is_better,
        max(10, round(PATIENCE / run.learning_rate)),
    )
    boosted = boost(
        trial.dataset,
        trial.target.values,
        trial.target.weight,
        objective,
        replace(settings, boosting=run),
        eval_sets=trial.eval_sets,
        callbacks=[lowest],
        base_score=base_score,
        offset=trial.offset,
        **about,
    )
    return RoundSearchResult(haste * lowest.rounds or settings.boosting.n_estimators, boosted)


class _Lowest(Callback):
    """Ends a training some rounds after its loss was least."""

    def __init__(self, is_maximized: bool, patience: int) -> None:
        self._sign, self._patience = -1.0 if is_maximized else 1.0, patience
        self._least, self.rounds = np.inf, 0

    def after_iteration(self, model: Any, epoch: int, evals_log: EvalsLog) -> bool:
        ((values,),) = (metrics.values() for metrics in evals_log.values())
        if self._sign * values[-1] < self._least:  # never where it is NaN
            self._least, self.rounds = self._sign * values[-1], epoch + 1
        return epoch + 1 - self.rounds >= self._patience
