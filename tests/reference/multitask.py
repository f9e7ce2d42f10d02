"""Multi-task trees: gains on a common scale, leaf values of each task on its own scale."""

import math
from fractions import Fraction

import numpy as np

from reference.leaf_fitting import fit_newton_leaves
from reference.quantised_gradients import F32, quantise
from reference.tree import leaf_of_row
from reference.tree_growth import grow


def dispersion(g, h, weight=None):
    """Return the mean of g^2 / h as a ratio of means.

    g and h are float32 (n, k), already multiplied by the weights (n, k). h None means 1.
    """
    w = np.ones(g.shape, F32) if weight is None else np.broadcast_to(weight, g.shape)
    h = np.ones(g.shape, F32) if h is None else h
    each = np.divide(g, w, out=np.zeros_like(g), where=w > 0)
    squares = sum(
        Fraction(float(a)) * Fraction(float(b)) for a, b in zip(g.flat, each.flat, strict=True)
    )
    bend = math.fsum(h.astype(np.float64).flat)
    return float(squares) / bend if squares > 0 and bend > 0 else 1.0


def units(blocks, g, h, weight=None):
    """Return the factors (K,) of gradients (n, K).

    `blocks` are (scores, weight of the task); `weight` is (n, K).
    """
    unit = np.empty(g.shape[1])
    for scores, counts in blocks:
        own = None if weight is None else weight[:, scores]
        phi = dispersion(g[:, scores], None if h is None else h[:, scores], own)
        unit[scores] = math.sqrt(counts / (phi * (scores.stop - scores.start)))
    return unit


def lower_quantile(values, level):
    """Return the smallest value such that at least a share `level` of the values does not exceed
    it.
    """
    ordered = np.sort(values)
    share = np.arange(1, len(ordered) + 1) / len(ordered)
    return ordered[np.argmax(share >= level)]


def fit_tree(data, g, h, unit, config, learning_rate, levels=(), residual=None):
    """Fit one tree of tasks without weights.

    `levels` (K,) are quantile levels of scores whose leaves are quantiles of `residual` (n, K); NaN
    for the others, whose leaves are Newton steps. Return the tree, the leaf id of each row, and the
    leaf values float32 (n_leaves, K).
    """
    of_splits = g * unit.astype(F32)
    tree = grow(*data, quantise(of_splits, h, "unit" if h is None else "diagonal"), config)
    leaves = leaf_of_row(tree, data[0])
    values = fit_newton_leaves(
        g, h, leaves, tree.n_leaves, config.reg_lambda, learning_rate=learning_rate
    )
    for k, level in enumerate(levels):
        if not np.isnan(level):
            for leaf in range(tree.n_leaves):
                values[leaf, k] = F32(lower_quantile(residual[leaves == leaf, k], level)) * F32(
                    learning_rate
                )
    return tree, leaves, values
