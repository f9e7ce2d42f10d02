"""Quantiles moved to where rows that were not trained on have their levels.

Owns: folds, and what residuals of the models trained without each say. Must not know: how a model is trained,
what moves it, or where a level lies among residuals.
"""

from __future__ import annotations

import math

import numpy as np

from polyleaf.training.conformal import level_of_residuals
from polyleaf.training.cross_fitting import TrainingRecord, cross_fit_scores

__all__ = ["quantile_shifts"]

# Measured: docs/intervals.md. Models of fewer rows differ more from that of all.
FOLDS, FOLDS_OF_FEW, FEW = 10, 20, 2_000
# Residuals are enough from here on: the other folds are not trained.
ENOUGH = 2_000


def quantile_shifts(training: TrainingRecord) -> np.ndarray:
    """What to add to each quantile, so that rows not trained on are below it as often as its level says.

    Rows are dealt into folds; a model is trained without each fold, and the shift of a quantile is where its
    level lies among the residuals of the folds (`level_of_residuals`).

    Returns
    -------
    ndarray of shape (n_outputs,), float64
        In the unit of the target as it was trained on; 0 for medians, and for what is no quantile.
    """
    target, weight, objective = training.target, training.weight, training.objective
    values = target.reshape(len(target), -1)
    n_scores = objective.n_scores(values.shape[1])
    columns, levels = objective.score_columns(n_scores), objective.score_quantile_levels(n_scores)
    truth = values[:, columns]
    fold, n_used = folds(len(truth), training.settings.sampling.seed)
    residuals = np.full(truth.shape, np.nan)
    for j in range(n_used):
        out = fold == j
        scores = cross_fit_scores(training, out)
        if scores is not None:
            residuals[out] = truth[out] - scores[out]
    counts = _of_scores(weight, truth.shape, columns)
    return np.array(
        [_shift(residuals[:, k], level, counts[:, k]) for k, level in enumerate(levels)]
    )


def folds(n_rows: int, seed: int) -> tuple[np.ndarray, int]:
    """The fold of each row, and how many folds, from the first, are enough."""
    n_folds = min(FOLDS_OF_FEW if n_rows < FEW else FOLDS, n_rows)
    fold = np.random.default_rng(seed).permutation(n_rows) % n_folds
    return fold, min(n_folds, math.ceil(ENOUGH * n_folds / n_rows))


def _shift(residuals: np.ndarray, level: float, weight: np.ndarray) -> float:
    known = ~np.isnan(residuals)
    return 0.0 if np.isnan(level) else level_of_residuals(residuals[known], level, weight[known])


def _of_scores(
    weight: np.ndarray | None, shape: tuple[int, ...], columns: np.ndarray
) -> np.ndarray:
    """Weights of each row and score."""
    if weight is None:
        return np.ones(shape)
    given = weight.reshape(len(weight), -1)
    return np.broadcast_to(given[:, columns] if given.shape[1] > 1 else given, shape)
