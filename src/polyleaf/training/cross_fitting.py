"""Scores of rows by models that were not trained on them.

Owns: the training that is done again without some of its rows. Must not know: which rows, or what the scores
are for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from polyleaf.callbacks import Callback
from polyleaf.data.dataset import Dataset
from polyleaf.model import Model
from polyleaf.objectives import Objective
from polyleaf.settings.train_config import TrainConfig
from polyleaf.training.boosting import Run, compute_base_score
from polyleaf.training.factory import bind_objective, parts_of
from polyleaf.training.raw_scores import DenseState

__all__ = ["LearningRateLog", "TrainingRecord", "cross_fit_scores"]


class LearningRateLog(Callback):
    """The learning rate of each round of a training, so that another can do the same."""

    def __init__(self) -> None:
        self._of_round: dict[int, float] = {}

    def before_iteration(self, model: Model, epoch: int, evals_log: object) -> bool:
        self._of_round[epoch] = model.learning_rate
        return False

    def of(self, round: int, otherwise: float) -> float:
        """That of a round, or `otherwise` where the round was another training's."""
        return self._of_round.get(round, otherwise)


class TrainingRecord(NamedTuple):
    """A training, as it can be done again.

    Attributes
    ----------
    dataset, target, weight, objective, settings, base_score, offset, output_names
        As `boost` took them.
    rates : LearningRateLog
        Of that training.
    n_rounds : int
        That its model predicts with.
    """

    dataset: Dataset
    target: np.ndarray
    weight: np.ndarray | None
    objective: Objective
    settings: TrainConfig
    rates: LearningRateLog
    n_rounds: int
    base_score: np.ndarray | None = None
    offset: np.ndarray | None = None
    output_names: Sequence[str] | None = None


def cross_fit_scores(training: TrainingRecord, left_out: np.ndarray) -> np.ndarray | None:
    """Scores of all rows, offsets included, by a model that some rows had no part in: float64 (n_rows, K).

    Parameters
    ----------
    training : TrainingRecord
    left_out : ndarray of shape (n_rows,), bool

    Returns
    -------
    ndarray, or None
        None where no row of weight is left for some output.
    """
    t, weight = training, training.weight
    known = 1.0 if weight is None else weight
    out = left_out if weight is None or weight.ndim == 1 else left_out[:, None]
    kept = np.where(out, 0.0, known).astype(np.float32)
    if not (kept.reshape(len(kept), -1) > 0).any(axis=0).all():
        return None
    problem = bind_objective(t.objective, t.target, kept, t.settings)
    base = (
        compute_base_score(problem, t.offset, t.settings) if t.base_score is None else t.base_score
    )
    rate = t.settings.boosting.learning_rate
    model = Model(
        mapper=t.dataset.mapper,
        objective=t.objective,
        base_score=base,
        learning_rate=rate,
        output_names=t.output_names,
    )
    problem.set_base_score(base)
    run = Run(t.settings, parts_of(t.settings, problem, t.dataset, kept, model, (), (), t.offset))
    for round in range(t.n_rounds):
        model.learning_rate = t.rates.of(round, otherwise=rate)
        if not run.step(round):
            break
    assert isinstance(run.state, DenseState)
    scores = base + run.state.raw
    return scores if t.offset is None else scores + t.offset
