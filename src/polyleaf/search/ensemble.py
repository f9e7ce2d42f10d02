"""Greedy ensemble selection: candidates to blend and their weights, by raw scores on held-out rows.

R. Caruana, A. Niculescu-Mizil, G. Crew, A. Ksikes, "Ensemble selection from libraries of models",
ICML 2004. Unlike there, raw scores are averaged, so that a blend is one forest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from polyleaf.metrics import Metric
from polyleaf.search.cv_splits import Fold
from polyleaf.search.trials import Candidate

if TYPE_CHECKING:
    from polyleaf.estimators.base import PolyleafEstimator

MAX_STEPS = 25  # additions, with repetition
POOL_SIZE = 3  # candidates to choose from, for each member allowed


class Member(NamedTuple):
    """A candidate and its weight."""

    candidate: Candidate
    weight: float


def select_members(
    candidates: Sequence[Candidate],
    folds: Sequence[Fold],
    train: Callable[[Candidate, Fold], PolyleafEstimator],
    metric: Metric,
    max_members: int,
    is_spent: Callable[[], bool],
) -> tuple[list[Member], float]:
    """Return the members of the blend, and its mean loss over the folds.

    `candidates`: best first. Candidates with fewer folds than the first are left out. `train`:
    `train(candidate, fold)`: the fitted estimator, where it was not kept. `is_spent`: whether time
    is over: the best blend so far is returned.
    """
    pool = [c for c in candidates if c.n_folds == candidates[0].n_folds]
    pool = pool[: POOL_SIZE * max_members]
    fitted = [
        [kept or train(c, fold) for kept, fold in zip(c.fitted, folds, strict=False)] for c in pool
    ]
    raw_scores = [
        [
            _predict_raw(estimator, fold, min(c.rounds, len(curve)))
            for estimator, fold, curve in zip(each, folds, c.curves, strict=False)
        ]
        for c, each in zip(pool, fitted, strict=True)
    ]
    losses = [
        _make_loss(estimator, fold, metric)
        for estimator, fold in zip(fitted[0], folds, strict=False)
    ]
    weights, loss = compute_weights(raw_scores, losses, max_members, is_spent)
    members = [Member(c, float(w)) for c, w in zip(pool, weights, strict=True) if w > 0]
    return sorted(members, key=lambda member: -member.weight), loss


def compute_weights(
    raw_scores: Sequence[Sequence[np.ndarray]],
    losses: Sequence[Callable[[np.ndarray], float]],
    max_members: int,
    is_spent: Callable[[], bool],
) -> tuple[np.ndarray, float]:
    """Return weights of the candidates, and the loss of the blend.

    Each step adds the candidate, with repetition, that lowers the loss of the mean most; the best
    mean of all steps is returned.

    `raw_scores`: for each candidate and fold: raw scores of the held-out rows. The first candidate
    is the start. `losses`: for each fold: the loss of raw scores. `max_members`: maximum number of
    candidates with a weight. `is_spent`: whether to stop.
    """

    def mean_loss(scores: Sequence[np.ndarray]) -> float:
        return float(np.mean([loss(raw) for loss, raw in zip(losses, scores, strict=True)]))

    counts = np.zeros(len(raw_scores), np.int64)
    counts[0] = 1
    total = list(raw_scores[0])
    best_counts, lowest = counts.copy(), mean_loss(total)
    for n in range(2, MAX_STEPS + 1):
        is_full = np.count_nonzero(counts) >= max_members
        choices = np.flatnonzero(counts) if is_full else np.arange(len(raw_scores))
        if is_spent() or len(raw_scores) == 1:
            break
        losses_with = [
            mean_loss([(t + r) / n for t, r in zip(total, raw_scores[c], strict=True)])
            for c in choices.tolist()
        ]
        added = int(choices[np.argmin(losses_with)])
        total = [t + r for t, r in zip(total, raw_scores[added], strict=True)]
        counts[added] += 1
        if min(losses_with) < lowest:
            best_counts, lowest = counts.copy(), min(losses_with)
    return best_counts / best_counts.sum(), lowest


def _predict_raw(estimator: PolyleafEstimator, fold: Fold, rounds: int) -> np.ndarray:
    """Return raw scores of the held-out rows, offsets included."""
    return estimator._raw(
        fold.valid.X, (0, min(rounds, estimator.model_.n_rounds)), fold.valid.rows.offset
    )


def _make_loss(
    estimator: PolyleafEstimator, fold: Fold, metric: Metric
) -> Callable[[np.ndarray], float]:
    """Return the function that computes the loss of raw scores on a fold, as in its trials."""
    training, held = (
        estimator._encoding.encode(part.rows, normalized=False) for part in (fold.train, fold.valid)
    )
    bound = metric.bind(held.rows, training.rows, estimator.model_.n_outputs)
    transform = estimator.model_.objective.transform

    def loss(raw: np.ndarray) -> float:
        scores = raw if metric.prediction_type == "raw" else transform(raw)
        return metric.to_loss(bound(scores))

    return loss
