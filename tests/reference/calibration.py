"""Calibration of quantiles and intervals by definition, in exact fractions."""

from fractions import Fraction

import numpy as np


def residual_quantile(residuals, level, weight=None):
    """Return a conformal quantile of residuals.

    For levels above one half this is the smallest residual such that the residuals up to it have
    `level` of the total weight plus one row of mean weight, or the largest residual. Levels below
    use the same rule with signs reversed.
    """
    weight = np.ones(len(residuals)) if weight is None else weight
    if level < 0.5:
        return -residual_quantile(-np.asarray(residuals), 1 - level, weight)
    rows = sorted(
        (float(r), Fraction(float(w))) for r, w in zip(residuals, weight, strict=True) if w > 0
    )
    if level == 0.5 or not rows:
        return 0.0
    total = sum(w for _, w in rows)
    required = Fraction(level).limit_denominator(10**6) * (total + total / len(rows))
    reached = Fraction(0)
    for residual, w in rows:
        reached += w
        if reached >= required:
            return residual
    return rows[-1][0]


def quantile_shifts(y, levels, weight, fold, n_used, predict_without):
    """Return one shift for each target and level.

    y (n, T), weight None or (n, T), fold (n,). `predict_without(rows)` returns (n, T * A) of a
    model that was not trained on these rows.
    """
    truth = np.repeat(y, len(levels), axis=1)
    weight = np.ones(y.shape) if weight is None else weight
    rows = np.flatnonzero(fold < n_used)
    predicted = np.empty(truth.shape)
    for j in range(n_used):
        out = np.flatnonzero(fold == j)
        predicted[out] = predict_without(out)[out]
    return [
        residual_quantile(
            truth[rows, k] - predicted[rows, k],
            levels[k % len(levels)],
            weight[rows, k // len(levels)],
        )
        for k in range(truth.shape[1])
    ]


def interval_widths(scores, coverage, joint=False):
    """Return the width of each target, or None: the score of rank ceil(coverage (n + 1)).

    With `joint`, every target has a unit: the magnitude of that rank among the scores of n + 1
    rows. Since n of these are known, the unit lies between two known values, `low` and `high`. The
    score of a row is its largest score over targets in these units, at its upper limit. A width is
    the score of that rank times the upper limit of the unit.
    """
    n, n_targets = scores.shape
    rank = -int(-Fraction(coverage).limit_denominator(10**6) * (n + 1) // 1)
    if rank > n:
        return None
    if not joint or n_targets == 1:
        return np.sort(scores, axis=0)[rank - 1]
    units = []
    for k in range(n_targets):
        known = sorted(abs(scores[:, k]))
        low, high = known[max(rank - 1, 1) - 1], known[rank - 1]
        mean = sum(known) / n or 1.0
        units.append((low, high) if low > 0 else (mean, mean))
    rows = sorted(
        max(s / low if s >= 0 else s / high for s, (low, high) in zip(row, units, strict=True))
        for row in scores
    )
    number = rows[rank - 1]
    return np.array([number * (high if number >= 0 else low) for low, high in units])
