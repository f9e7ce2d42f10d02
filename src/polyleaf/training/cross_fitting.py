"""Cross-fitting: models of folds, their out-of-fold predictions and what is calibrated on them.

Conformal prediction: the last of n + 1 exchangeable residuals is at most the one of rank k with
probability k / (n + 1) (Papadopoulos et al., "Inductive confidence machines for regression", 2002;
Lei et al., "Distribution-free predictive inference for regression", JASA 113, 2018).
"""

from __future__ import annotations

import math
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from polyleaf.binned_data.dataset import Dataset, TrainingBins
from polyleaf.runtime.row_data import RowData
from polyleaf.training.boosting import BoostingLoop, make_model
from polyleaf.training.factory import bind_objective, make_components
from polyleaf.training.training_run import TrainingRun
from polyleaf.user_data.target_scaling import sum_columns

# Largest rounding error of a level times the total weight, relative to that weight.
_ROUNDING = 1e-9


def conformal_quantile(
    residuals: np.ndarray, level: float, weight: np.ndarray | None = None
) -> float:
    """Return the residual of rank ``level * (n + 1)``, rounded away from the median.

    Returns the outermost residual if there is none of that rank; 0 if no residual has
    weight, and for the level 0.5, since medians are not shifted.

    Parameters
    ----------
    residuals : ndarray of shape (n,)
        Target minus prediction.
    level : float in (0, 1)
    weight : ndarray of shape (n,), optional
        Nonnegative weights. Ranks are then sums of weights, and the new row has the mean weight.
    """
    used = np.ones(len(residuals), bool) if weight is None else np.asarray(weight) > 0
    if level == 0.5 or not used.any():
        return 0.0
    oriented = _orient(residuals, level)
    ordered = np.sort(oriented[used])
    rank = min(_find_rank(oriented, max(level, 1 - level), weight), len(ordered) - 1)
    return float(np.sign(level - 0.5) * ordered[rank])


def interval_widths(
    scores: np.ndarray, coverage: float, weight: np.ndarray | None = None, joint: bool = False
) -> NDArray[np.float64]:
    """Return how far the interval of each target is extended beyond its bounds.

    Raises a ValueError if there are too few rows for the coverage. Returns shape (T,).

    Parameters
    ----------
    scores : ndarray of shape (n, T)
        Distance of each target beyond its bounds; negative inside.
    coverage : float in (0, 1)
    weight : ndarray of shape (n,) or (n, T), optional
    joint : bool
        Cover all targets of a row at once, with widths in proportion to each target's scale. Uses
        the rows whose targets all have weight.
    """
    weights = (
        np.ones(scores.shape) if weight is None else np.broadcast_to(weight.T, scores.shape[::-1]).T
    )
    if not joint or scores.shape[1] == 1:
        return np.array(
            [_compute_width(s, coverage, w) for s, w in zip(scores.T, weights.T, strict=True)]
        )
    used = (weights > 0).all(axis=1)
    return _compute_joint_widths(
        np.asarray(scores[used], np.float64), coverage, weights[used].min(axis=1)
    )


def _compute_joint_widths(
    scores: np.ndarray, coverage: float, weight: np.ndarray
) -> NDArray[np.float64]:
    """Return widths that cover all targets of a row at once.

    The score of a row is the largest of its targets' scores, each divided by the scale of the
    target: the magnitude of the rank of the coverage, so that targets with long tails do not widen
    the others' intervals. Scores would be exchangeable if scales were computed from these rows and
    the new one. Such a scale lies between two adjacent known magnitudes, so scores and widths are
    computed with the scale that makes them largest: the new row is covered with at least the given
    probability.
    """
    low, high = _bound_scales(np.abs(scores), coverage)
    largest = np.where(scores >= 0, scores / low, scores / high).max(axis=1, initial=-np.inf)
    factor = _compute_width(largest, coverage, weight)
    return factor * (high if factor >= 0 else low)


def _bound_scales(
    magnitudes: NDArray[np.float64], coverage: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return bounds of the scale of each column with one more row; the mean if most magnitudes are
    0."""
    n = len(magnitudes)
    if n == 0:
        return np.ones(magnitudes.shape[1]), np.ones(magnitudes.shape[1])
    ordered = np.sort(magnitudes, axis=0)
    rank = min(int(np.ceil(coverage * (n + 1) - _ROUNDING * n)), n)  # from 1
    low, high = ordered[max(rank - 2, 0)], ordered[rank - 1]
    mean = sum_columns(magnitudes) / n
    mean = np.where(mean > 0, mean, 1.0)
    return np.where(low > 0, low, mean), np.where(low > 0, high, mean)


def _compute_width(scores: np.ndarray, coverage: float, weight: np.ndarray) -> float:
    ordered = np.sort(scores[weight > 0])
    rank = _find_rank(scores, coverage, weight) if len(ordered) else 0
    if rank >= len(ordered):
        raise ValueError(
            f"{len(ordered)} rows are too few for coverage={coverage:g}, which needs at least "
            f"{int(np.ceil(coverage / (1 - coverage) - _ROUNDING))}, and more if weights differ."
        )
    return float(ordered[rank])


def _orient(residuals: np.ndarray, level: float) -> NDArray[np.float64]:
    """Negate residuals for levels below 0.5, so that rounding outwards is rounding up."""
    residuals = np.asarray(residuals, np.float64)
    return residuals if level > 0.5 else -residuals


def _find_rank(values: np.ndarray, level: float, weight: np.ndarray | None) -> int:
    """Return the rank, from 0, of a level among sorted values; their number if there is none."""
    weights = np.ones(len(values)) if weight is None else np.asarray(weight, np.float64)
    used = weights > 0
    order = np.argsort(np.asarray(values)[used], kind="stable")
    cumulative = np.cumsum(weights[used][order])
    total = cumulative[-1]
    sought = level * (total + total / len(cumulative))
    return int(np.searchsorted(cumulative, sought - _ROUNDING * total, side="left"))


# --- nonconformity scores of prediction sets ---


def class_nonconformity(probability: np.ndarray) -> NDArray[np.float64]:
    """Return the total probability of all classes that are more probable than each, (n_rows,
    n_classes).

    Ties are ordered by class, and the likeliest class has 0. The classes up to a threshold are the
    adaptive prediction sets of Romano, Sesia and Candès, "Classification with valid and adaptive
    coverage", NeurIPS 2020, without their randomisation: a set is never empty, and the same each
    time.
    """
    probability = np.asarray(probability, np.float64)
    order = np.argsort(-probability, axis=1, kind="stable")
    descending = np.take_along_axis(probability, order, axis=1)
    before = np.cumsum(descending, axis=1) - descending
    before[:, 0] = 0.0
    scores = np.empty_like(before)
    np.put_along_axis(scores, order, before, axis=1)
    return scores


def label_nonconformity(probability: np.ndarray) -> NDArray[np.float64]:
    """Return the probability that each label is absent, (n_rows, n_labels)."""
    return 1.0 - np.asarray(probability, np.float64)


def truth_nonconformity(scores: np.ndarray, truth: np.ndarray) -> NDArray[np.float64]:
    """Return the threshold at which a set contains all true classes or labels of a row, (n_rows,).

    `scores`, `truth` (n_rows, n): nonconformity of each class or label, and whether it is true.
    Rows without true labels get -1.
    """
    return np.where(truth > 0, scores, -1.0).max(axis=1)


# Chosen by measurement: models of fewer rows differ more from the model of all rows.
FOLDS, FOLDS_FOR_FEW_ROWS, FEW_ROWS = 10, 20, 2_000
# Number of residuals that is enough: further folds are not trained.
MAX_RESIDUALS = 2_000


def cross_fit_scores(run: TrainingRun, rows: np.ndarray, held: np.ndarray) -> np.ndarray | None:
    """Return scores of some rows, with offsets, by a model trained on others.

    Everything that is learned from targets is learned from the targets of `rows`.

    `run`: a training that has ended. `rows`, `held`: rows to train on, and to score. Returns shape
    (n_held, K), float64, or None if no row with positive weight is left for some output.
    """
    offset = run.rows.offset
    if run.make_fold_data is None:  # the other rows get weight 0, which keeps the bins
        loop = _repeat_training(run, run.dataset, run.rows.keep_weights(rows))
        if loop is None:
            return None
        scores = loop.model.base_score + loop.compute_raw_scores()[held]
    else:
        dataset, others = run.make_fold_data(rows, held)
        loop = _repeat_training(run, dataset, run.rows.take(rows))
        if loop is None:
            return None
        n_threads = run.settings.workers.n_threads
        scores = loop.model.predict_raw_binned(
            others.codes, n_threads=n_threads, features=others.features
        )
    return scores if offset is None else scores + offset[held]


def _repeat_training(
    run: TrainingRun, dataset: Dataset | TrainingBins, rows: RowData
) -> BoostingLoop | None:
    """Return the training on other rows, finished; None if some output has no rows of positive
    weight."""
    weight, settings = rows.weight, run.settings
    if weight is not None and not (weight.reshape(len(weight), -1) > 0).any(axis=0).all():
        return None
    repeated = run.copy_for_rows(dataset, rows)
    bound = bind_objective(run.objective, repeated.rows, settings)
    model = make_model(repeated, bound)
    loop = BoostingLoop(settings, make_components(repeated, bound, model))
    for round in range(run.n_used_rounds):
        model.learning_rate = run.learning_rates.get(round, settings.boosting.learning_rate)
        if not loop.step(round):
            break
    return loop


def quantile_shifts(run: TrainingRun) -> np.ndarray:
    """Return what to add to each quantile, so that it covers its level of rows not trained on.

    Rows are assigned to folds; a model is trained without each fold, and the shift of a quantile
    is the `conformal_quantile` of the residuals of the folds.

    Returns shape (n_outputs,), float64: on the scale of the target in training; 0 for medians, and
    for scores that are no quantiles.
    """
    rows, objective = run.rows, run.objective
    values = rows.target.reshape(rows.n_rows, -1)
    n_scores = objective.n_scores(values.shape[1])
    columns = objective.score_columns(n_scores)
    levels = objective.score_quantile_levels(n_scores)
    truth = values[:, columns]
    residuals, (n_folds, n_used) = np.full(truth.shape, np.nan), count_folds(len(truth))
    folds = run.rules.iter_folds(len(truth), n_folds, run.settings.sampling.seed)
    for used, held in islice(folds, n_used):
        scores = cross_fit_scores(run, used, held)
        if scores is not None:
            residuals[held] = truth[held] - scores
    weights = _expand_weight(rows.weight, truth.shape, columns)
    return np.array(
        [_compute_shift(residuals[:, k], level, weights[:, k]) for k, level in enumerate(levels)]
    )


def count_folds(n_rows: int) -> tuple[int, int]:
    """Return the number of folds, and how many of them to use."""
    n_folds = min(FOLDS_FOR_FEW_ROWS if n_rows < FEW_ROWS else FOLDS, n_rows)
    return n_folds, min(n_folds, math.ceil(MAX_RESIDUALS * n_folds / n_rows))


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
