"""Quantiles moved to their levels, by definition: the specification of docs/intervals.md.

Owns: where a level lies among residuals, in exact fractions, and the shifts that models trained without each
fold ask for. Must not know: how models are trained.
"""

from fractions import Fraction

import numpy as np


def level_of_residuals(residuals, level, weight=None):
    """For levels above one half the smallest residual such that those up to it weigh `level` of all of them
    and one of mean weight more, or the largest of all; for levels below, the same with signs turned round."""
    weight = np.ones(len(residuals)) if weight is None else weight
    if level < 0.5:
        return -level_of_residuals(-np.asarray(residuals), 1 - level, weight)
    rows = sorted((float(r), Fraction(float(w))) for r, w in zip(residuals, weight, strict=True) if w > 0)
    if level == 0.5 or not rows:
        return 0.0
    total = sum(w for _, w in rows)
    wanted = Fraction(level).limit_denominator(10**6) * (total + total / len(rows))
    reached = Fraction(0)
    for residual, w in rows:
        reached += w
        if reached >= wanted:
            return residual
    return rows[-1][0]


def level_shifts(y, levels, weight, fold, n_used, predict_without):
    """One shift for each target and level. y (n, T), weight None or (n, T), fold (n,);
    `predict_without(rows)`: (n, T * A) of a model that has not seen these rows."""
    truth = np.repeat(y, len(levels), axis=1)
    weight = np.ones(y.shape) if weight is None else weight
    rows = np.flatnonzero(fold < n_used)
    predicted = np.empty(truth.shape)
    for j in range(n_used):
        out = np.flatnonzero(fold == j)
        predicted[out] = predict_without(out)[out]
    return [
        level_of_residuals(
            truth[rows, k] - predicted[rows, k], levels[k % len(levels)], weight[rows, k // len(levels)]
        )
        for k in range(truth.shape[1])
    ]


def widths(scores, coverage, joint=False):
    """The width of each target, or None: the score of rank ceil(coverage (n + 1)). `joint`: the scores of the
    least rank such that so many rows have no larger one."""
    n, n_targets = scores.shape
    rank = -int(-Fraction(coverage).limit_denominator(10**6) * (n + 1) // 1)
    if rank > n:
        return None
    ordered = np.sort(scores, axis=0)
    if not joint:
        return ordered[rank - 1]
    for least in range(n):
        if sum(all(scores[i, k] <= ordered[least, k] for k in range(n_targets)) for i in range(n)) >= rank:
            return ordered[least]
    raise AssertionError("the last rank holds all rows")
