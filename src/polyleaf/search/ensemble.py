"""Greedy ensemble selection: candidates to blend and their weights, by raw scores on held-out rows.

R. Caruana, A. Niculescu-Mizil, G. Crew, A. Ksikes, "Ensemble selection from libraries of models",
ICML 2004. Unlike there, raw scores are averaged, so that a blend is one forest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from polyleaf.metrics import Metric
from polyleaf.model import serialize, storage
from polyleaf.model.leaf_kinds import LEAF_KINDS
from polyleaf.model.model import Model
from polyleaf.search.cv_splits import Fold
from polyleaf.search.trials import Candidate

__all__ = [
    "MAX_STEPS",
    "POOL_SIZE",
    "Member",
    "average_models",
    "compute_weights",
    "select_members",
]


def average_models(
    models: Sequence[Model], weights: Sequence[float], metadata: dict[str, object]
) -> Model:
    """Concatenate the trees of models, with leaf values multiplied by the models' weights.

    Raw scores are the weighted mean of the models' up to rounding, as leaf values are float32. The
    rounds of a model follow those of the previous one.

    Parameters
    ----------
    models : sequence of Model
        Models with the same bins, objective and outputs. The result has the target scale of the
        first.
    weights : sequence of float
        The positive weight of each; they sum to 1.
    metadata : dict
        The metadata of the result.

    Raises
    ------
    ValueError
        If bins, objectives or outputs differ.
    """
    first = models[0]
    for model in models[1:]:
        if _get_frame(model) != _get_frame(first):
            raise ValueError("models must have the same bins, objective and outputs.")
    scales, offsets = zip(*map(_get_scale_and_offset, models), strict=True)
    ratios = [scale / scales[0] for scale in scales]
    base = [model.base_score * ratio for model, ratio in zip(models, ratios, strict=True)]
    offset = _average(offsets, weights)
    average = Model(
        mapper=first.mapper,
        objective=first.objective,
        base_score=_average(base, weights) + (offset if first.target_scale is None else 0.0),
        learning_rate=first.learning_rate,
        feature_names=first.feature_names,
        output_names=first.output_names,
        target_scale=first.target_scale,
        target_offset=None if first.target_scale is None else offset,
        projection=first.projection,
        metadata=metadata,
    )
    n_rounds = 0
    for model, ratio, weight in zip(models, ratios, weights, strict=True):
        factor = (weight * ratio).astype(np.float32)
        trees = zip(model.round_of_tree.tolist(), storage.iter_trees(model.forest), strict=True)
        for t, (round, (tree, leaves, output)) in enumerate(trees):
            kind = LEAF_KINDS[model.forest.kind(t)]
            scaled = kind.scale(leaves, factor if output < 0 else factor[output : output + 1])
            average.append(tree, scaled, n_rounds + round, output)
        n_rounds += model.n_rounds
    average.has_statistics = all(model.has_statistics for model in models)
    return average


def _average(vectors: Sequence[np.ndarray], weights: Sequence[float]) -> np.ndarray:
    return np.sum(
        [weight * vector for weight, vector in zip(weights, vectors, strict=True)], axis=0
    )


def _get_scale_and_offset(model: Model) -> tuple[np.ndarray, np.ndarray]:
    """Return what converts a model's scores to the unit of y: float64 (n_outputs,) each."""
    if model.target_scale is None or model.target_offset is None:
        return np.ones(model.n_outputs), np.zeros(model.n_outputs)
    return model.target_scale, model.target_offset


def _get_frame(model: Model) -> tuple[bytes, object]:
    """Return what averaged models must have in common."""
    mapper, arrays = model.mapper.to_state()
    header = {"mapper": mapper, "objective": model.objective.to_dict(), "outputs": model.n_outputs}
    return serialize.to_bytes(header, arrays, 1), type(model.projection)


MAX_STEPS = 25  # additions, with repetition
POOL_SIZE = 3  # candidates to choose from, for each member allowed


class Member(NamedTuple):
    """A candidate and its weight."""

    candidate: Candidate
    weight: float


def select_members(
    candidates: Sequence[Candidate],
    folds: Sequence[Fold],
    train: Callable[[Candidate, Fold], object],
    metric: Metric,
    max_members: int,
    is_spent: Callable[[], bool],
) -> tuple[list[Member], float]:
    """Return the members of the blend, and its mean loss over the folds.

    Parameters
    ----------
    candidates : sequence of Candidate
        Best first. Candidates with fewer folds than the first are left out.
    folds : sequence of Fold
    train : callable
        `train(candidate, fold)`: the fitted estimator, where it was not kept.
    metric : Metric
    max_members : int
    is_spent : callable
        Whether time is over: the best blend so far is returned.
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

    Parameters
    ----------
    raw_scores : sequence of sequence of array
        For each candidate and fold: raw scores of the held-out rows. The first candidate is the
        start.
    losses : sequence of callable
        For each fold: the loss of raw scores.
    max_members : int
        Maximum number of candidates with a weight.
    is_spent : callable
        Whether to stop.
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
        found = [
            mean_loss([(t + r) / n for t, r in zip(total, raw_scores[c], strict=True)])
            for c in choices.tolist()
        ]
        added = int(choices[np.argmin(found)])
        total = [t + r for t, r in zip(total, raw_scores[added], strict=True)]
        counts[added] += 1
        if min(found) < lowest:
            best_counts, lowest = counts.copy(), min(found)
    return best_counts / best_counts.sum(), lowest


def _predict_raw(estimator: Any, fold: Fold, rounds: int) -> np.ndarray:
    """Return raw scores of the held-out rows, offsets included."""
    return estimator._raw(
        fold.valid.X, (0, min(rounds, estimator.model_.n_rounds)), fold.valid.offset
    )


def _make_loss(estimator: Any, fold: Fold, metric: Metric) -> Callable[[np.ndarray], float]:
    """Return the function that computes the loss of raw scores on a fold, as in its trials."""
    training, held = (
        estimator._encoding.encode(part.y, part.weight, normalized=False)
        for part in (fold.train, fold.valid)
    )
    bound = metric.bind(held.rows, training.rows, estimator.model_.n_outputs)
    transform = estimator.model_.objective.transform
    sign = -1.0 if metric.greater_is_better else 1.0

    def loss(raw: np.ndarray) -> float:
        scores = raw if metric.prediction_type == "raw" else transform(raw)
        value = sign * bound(scores)
        return np.inf if np.isnan(value) else value

    return loss
