"""Cross-fitting: scores of rows by models that were not trained on them, and quantile calibration
by them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from polyleaf.data.dataset import Dataset
from polyleaf.model import Model
from polyleaf.objectives import Objective
from polyleaf.settings.train_config import TrainConfig
from polyleaf.training.boosting import BoostingLoop, compute_base_score
from polyleaf.training.conformal import conformal_quantile
from polyleaf.training.factory import bind_objective, make_components
from polyleaf.training.raw_scores import DenseState

__all__ = ["TrainingRecord", "cross_fit_scores", "quantile_shifts"]

# Chosen by measurement: models of fewer rows differ more from the model of all rows.
FOLDS, FOLDS_FOR_FEW_ROWS, FEW_ROWS = 10, 20, 2_000
# Number of residuals that is enough: further folds are not trained.
MAX_RESIDUALS = 2_000


class TrainingRecord(NamedTuple):
    """A training that can be repeated.

    Attributes
    ----------
    dataset, target, weight, objective, settings, base_score, offset, output_names
        Arguments of `boost`.
    learning_rates : mapping
        Learning rate of each round of the training.
    n_rounds : int
        Number of rounds that its model predicts with.
    """

    dataset: Dataset
    target: np.ndarray
    weight: np.ndarray | None
    objective: Objective
    settings: TrainConfig
    learning_rates: Mapping[int, float]
    n_rounds: int
    base_score: np.ndarray | None = None
    offset: np.ndarray | None = None
    output_names: Sequence[str] | None = None


def cross_fit_scores(record: TrainingRecord, left_out: np.ndarray) -> np.ndarray | None:
    """Return scores of all rows, with offsets, by a model trained without some of them: float64
    (n_rows, K).

    Parameters
    ----------
    record : TrainingRecord
    left_out : ndarray of shape (n_rows,), bool
        Mask of the rows to leave out.

    Returns
    -------
    ndarray, or None
        None if no row with positive weight is left for some output.
    """
    weight, settings, offset = record.weight, record.settings, record.offset
    mask = left_out if weight is None or weight.ndim == 1 else left_out[:, None]
    kept = np.where(mask, 0.0, 1.0 if weight is None else weight).astype(np.float32)
    if not (kept.reshape(len(kept), -1) > 0).any(axis=0).all():
        return None
    bound = bind_objective(record.objective, record.target, kept, settings)
    base = record.base_score
    if base is None:
        base = compute_base_score(bound, offset, settings)
    rate = settings.boosting.learning_rate
    model = Model(
        mapper=record.dataset.mapper,
        objective=record.objective,
        base_score=base,
        learning_rate=rate,
        output_names=record.output_names,
    )
    bound.set_base_score(base)
    components = make_components(settings, bound, record.dataset, kept, model, (), (), offset)
    loop = BoostingLoop(settings, components)
    for round in range(record.n_rounds):
        model.learning_rate = record.learning_rates.get(round, rate)
        if not loop.step(round):
            break
    assert isinstance(loop.state, DenseState)
    scores = base + loop.state.raw
    return scores if offset is None else scores + offset


def quantile_shifts(record: TrainingRecord) -> np.ndarray:
    """Return what to add to each quantile, so that it covers its level of rows not trained on.

    Rows are assigned to folds; a model is trained without each fold, and the shift of a quantile
    is the `conformal_quantile` of the residuals of the folds.

    Returns
    -------
    ndarray of shape (n_outputs,), float64
        On the scale of the target in training; 0 for medians, and for scores that are no quantiles.
    """
    target, weight, objective = record.target, record.weight, record.objective
    values = target.reshape(len(target), -1)
    n_scores = objective.n_scores(values.shape[1])
    columns = objective.score_columns(n_scores)
    levels = objective.score_quantile_levels(n_scores)
    truth = values[:, columns]
    fold, n_used = assign_folds(len(truth), record.settings.sampling.seed)
    residuals = np.full(truth.shape, np.nan)
    for j in range(n_used):
        left_out = fold == j
        scores = cross_fit_scores(record, left_out)
        if scores is not None:
            residuals[left_out] = truth[left_out] - scores[left_out]
    weights = _expand_weight(weight, truth.shape, columns)
    return np.array(
        [_compute_shift(residuals[:, k], level, weights[:, k]) for k, level in enumerate(levels)]
    )


def assign_folds(n_rows: int, seed: int) -> tuple[np.ndarray, int]:
    """Return the fold of each row, and how many folds to use, from the first."""
    n_folds = min(FOLDS_FOR_FEW_ROWS if n_rows < FEW_ROWS else FOLDS, n_rows)
    fold = np.random.default_rng(seed).permutation(n_rows) % n_folds
    return fold, min(n_folds, math.ceil(MAX_RESIDUALS * n_folds / n_rows))


def _compute_shift(residuals: np.ndarray, level: float, weight: np.ndarray) -> float:
    known = ~np.isnan(residuals)
    return 0.0 if np.isnan(level) else conformal_quantile(residuals[known], level, weight[known])


def _expand_weight(
    weight: np.ndarray | None, shape: tuple[int, ...], columns: np.ndarray
) -> np.ndarray:
    """Return weights of each row and score."""
    if weight is None:
        return np.ones(shape)
    weight = weight.reshape(len(weight), -1)
    return np.broadcast_to(weight[:, columns] if weight.shape[1] > 1 else weight, shape)
