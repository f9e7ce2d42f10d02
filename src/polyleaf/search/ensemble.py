"""Which candidates are blended, and with what weights: greedy, by scores on rows they were not trained on.

R. Caruana, A. Niculescu-Mizil, G. Crew, A. Ksikes, "Ensemble selection from libraries of models", ICML 2004;
but it is raw scores that are averaged here, so that a blend is one forest. Owns the selection. Must not know
how candidates are trained, or how forests are put together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from polyleaf.metrics import Metric
from polyleaf.search.cv_splits import Fold
from polyleaf.search.trials import Candidate

__all__ = ["POOL", "STEPS", "Member", "members_of", "weights_of"]

STEPS = 25  # candidates that are added, the same ones again among them
POOL = 3  # candidates to choose from for each member there may be


class Member(NamedTuple):
    """A candidate with its share."""

    candidate: Candidate
    weight: float


def members_of(
    candidates: Sequence[Candidate],
    folds: Sequence[Fold],
    train: Callable[[Candidate, Fold], Any],
    metric: Metric,
    most: int,
    is_spent: Callable[[], bool],
) -> tuple[list[Member], float]:
    """The members of the blend and its mean loss over the folds.

    Parameters
    ----------
    candidates : sequence of Candidate
        Best first. Those that were not tried on as many folds as the first are left out.
    folds : sequence of Fold
    train : callable
        `train(candidate, fold)`: the fitted estimator, where it was not kept.
    metric : Metric
    most : int
        Members.
    is_spent : callable
        Whether to make do with what was found.
    """
    whole = [c for c in candidates if c.n_folds == candidates[0].n_folds][: POOL * most]
    fitted = [
        [kept or train(c, fold) for kept, fold in zip(c.trained, folds, strict=False)]
        for c in whole
    ]
    raws = [
        [
            _raw(estimator, fold, min(c.rounds, len(curve)))
            for estimator, fold, curve in zip(each, folds, c.curves, strict=False)
        ]
        for c, each in zip(whole, fitted, strict=True)
    ]
    judges = [
        _judge(estimator, fold, metric) for estimator, fold in zip(fitted[0], folds, strict=False)
    ]
    weights, loss = weights_of(raws, judges, most, is_spent)
    chosen = [Member(c, float(w)) for c, w in zip(whole, weights, strict=True) if w > 0]
    return sorted(chosen, key=lambda member: -member.weight), loss


def weights_of(
    raws: Sequence[Sequence[np.ndarray]],
    judges: Sequence[Callable[[np.ndarray], float]],
    most: int,
    is_spent: Callable[[], bool],
) -> tuple[np.ndarray, float]:
    """Shares of the candidates, and the loss that the blend has.

    Again and again the candidate is added, as often as need be, that makes the mean best; what is taken in
    the end is the best mean on the way.

    Parameters
    ----------
    raws : sequence of sequence of array
        Of each candidate, for each fold: raw scores of the rows to validate. The first candidate begins.
    judges : sequence of callable
        For each fold: the loss of raw scores.
    most : int
        Candidates with a share.
    is_spent : callable
        Whether to stop.
    """

    def loss_of(scores: Sequence[np.ndarray]) -> float:
        return float(np.mean([judge(raw) for judge, raw in zip(judges, scores, strict=True)]))

    counts = np.zeros(len(raws), np.int64)
    counts[0] = 1
    total = list(raws[0])
    found, lowest = counts.copy(), loss_of(total)
    for n in range(2, STEPS + 1):
        open_to = (
            np.flatnonzero(counts) if np.count_nonzero(counts) >= most else np.arange(len(raws))
        )
        if is_spent() or len(raws) == 1:
            break
        losses = [
            loss_of([(t + r) / n for t, r in zip(total, raws[c], strict=True)])
            for c in open_to.tolist()
        ]
        added = int(open_to[np.argmin(losses)])
        total = [t + r for t, r in zip(total, raws[added], strict=True)]
        counts[added] += 1
        if min(losses) < lowest:
            found, lowest = counts.copy(), min(losses)
    return found / found.sum(), lowest


def _raw(estimator: Any, fold: Fold, rounds: int) -> np.ndarray:
    """Raw scores of the rows to validate, with what they start from."""
    return estimator._raw(
        fold.valid.X, (0, min(rounds, estimator.model_.n_rounds)), fold.valid.offset
    )


def _judge(estimator: Any, fold: Fold, metric: Metric) -> Callable[[np.ndarray], float]:
    """The loss of raw scores on a fold, as its trainings had it."""
    target = estimator._encoding.encode(fold.valid.y, fold.valid.weight, name="y", normalized=False)
    transform = estimator.model_.objective.transform
    sign = -1.0 if metric.greater_is_better else 1.0

    def judge(raw: np.ndarray) -> float:
        scores = raw if metric.prediction_type == "raw" else transform(raw)
        loss = sign * metric(target.values, scores, target.weight)
        return np.inf if np.isnan(loss) else loss

    return judge
