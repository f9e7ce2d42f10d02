"""Quantiles moved to where rows that were not trained on have their levels.

Owns: folds, the models trained without each, and what their residuals say. Must not know: how a model is
trained, what moves it, or where a level lies among residuals.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from polyleaf.callbacks import Callback
from polyleaf.inputs.dataset import Dataset
from polyleaf.intervals import level_of_residuals
from polyleaf.model import Model
from polyleaf.objectives import Objective
from polyleaf.settings.settings import Settings
from polyleaf.training.boosting import Run
from polyleaf.training.parts import parts_of, problem_of
from polyleaf.training.state import DenseState

__all__ = ["Rates", "level_shifts"]

# Measured: docs/intervals.md. Models of fewer rows differ more from that of all.
FOLDS, FOLDS_OF_FEW, FEW = 10, 20, 2_000
# Residuals are enough from here on: the other folds are not trained.
ENOUGH = 2_000


class Rates(Callback):
    """The learning rate of each round of a training, so that another can do the same."""

    def __init__(self) -> None:
        self._of_round: dict[int, float] = {}

    def before_iteration(self, model: Model, epoch: int, evals_log: object) -> bool:
        self._of_round[epoch] = model.learning_rate
        return False

    def of(self, round: int, otherwise: float) -> float:
        """That of a round, or `otherwise` where the round was another training's."""
        return self._of_round.get(round, otherwise)


def level_shifts(
    dataset: Dataset,
    target: np.ndarray,
    weight: np.ndarray | None,
    objective: Objective,
    settings: Settings,
    rates: Rates,
    n_rounds: int,
    base_score: np.ndarray | None = None,
    score_names: Sequence[str] | None = None,
) -> np.ndarray:
    """What to add to each quantile, so that rows not trained on are below it as often as its level says.

    Rows are dealt into folds; a model is trained without each fold, and the shift of a quantile is where its
    level lies among the residuals of the folds (`level_of_residuals`).

    Parameters
    ----------
    dataset, target, weight, objective, settings, base_score
        As `boost` took them.
    rates : Rates
        Of that training.
    n_rounds : int
        That the model predicts with.
    score_names : sequence of str, optional
        Where settings name outputs.

    Returns
    -------
    ndarray of shape (n_outputs,), float64
        In the unit of the target as it was trained on; 0 for medians.
    """
    n_levels = objective.outputs_per_target()
    truth = np.repeat(target.reshape(len(target), -1), n_levels, axis=1)
    levels = np.tile(objective.levels, truth.shape[1] // n_levels)
    fold, n_used = folds(len(truth), settings.sampling.seed)
    residuals = np.full(truth.shape, np.nan)
    for j in range(n_used):
        out = fold == j
        kept = np.where(out if weight is None or weight.ndim == 1 else out[:, None], 0.0, _ones(weight))
        if (kept.reshape(len(kept), -1) > 0).any(axis=0).all():  # some row teaches each target
            data = dataset, target, kept.astype(np.float32), objective, settings
            scores = _scores_without(*data, rates, n_rounds, base_score, score_names)
            residuals[out] = truth[out] - scores[out]
    counts = _of_levels(weight, truth.shape, n_levels)
    return np.array([_shift(residuals[:, k], level, counts[:, k]) for k, level in enumerate(levels)])


def folds(n_rows: int, seed: int) -> tuple[np.ndarray, int]:
    """The fold of each row, and how many folds, from the first, are enough."""
    n_folds = min(FOLDS_OF_FEW if n_rows < FEW else FOLDS, n_rows)
    fold = np.random.default_rng(seed).permutation(n_rows) % n_folds
    return fold, min(n_folds, math.ceil(ENOUGH * n_folds / n_rows))


def _scores_without(
    dataset: Dataset,
    target: np.ndarray,
    weight: np.ndarray,
    objective: Objective,
    settings: Settings,
    rates: Rates,
    n_rounds: int,
    base_score: np.ndarray | None,
    score_names: Sequence[str] | None,
) -> np.ndarray:
    """Scores of all rows by a model of those that have weight, float64."""
    problem = problem_of(objective, target, weight, settings)
    base = problem.base_score(settings.workers) if base_score is None else base_score
    rate = settings.run.learning_rate
    model = Model(
        mapper=dataset.mapper,
        objective=objective,
        base_score=base,
        learning_rate=rate,
        output_names=score_names,
    )
    problem.set_base(base)
    run = Run(settings, parts_of(settings, problem, dataset, weight, model, (), ()))
    for round in range(n_rounds):
        model.learning_rate = rates.of(round, otherwise=rate)
        if not run.step(round):
            break
    assert isinstance(run.state, DenseState)
    return base + run.state.raw


def _shift(residuals: np.ndarray, level: float, weight: np.ndarray) -> float:
    known = ~np.isnan(residuals)
    return level_of_residuals(residuals[known], level, weight[known])


def _ones(weight: np.ndarray | None) -> np.ndarray | float:
    return 1.0 if weight is None else weight


def _of_levels(weight: np.ndarray | None, shape: tuple[int, ...], n_levels: int) -> np.ndarray:
    """Weights of each row and quantile."""
    if weight is None:
        return np.ones(shape)
    columns = weight.reshape(len(weight), -1)
    return np.broadcast_to(np.repeat(columns, n_levels, axis=1) if columns.shape[1] > 1 else columns, shape)
