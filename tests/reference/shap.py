"""SHAP values by definition: a cooperative game over all subsets of the features.

Specification of `_core.Explainer`. A forest is a list of (tree, leaves, outputs); a row is its
codes and, for linear leaves, its raw features. Everything is float64, with 2^F evaluations per row.

The worth of a set S of known features is the expected sum of leaf values:

- by counts (`expected`): splits on known features are followed; at others both sides are weighted
  by the training rows of the children, by their cover if they have none (models of other
  libraries), or by a half each. In a linear leaf an unknown regressor is missing, so it counts as
  the centre of the leaf.
- by a background (`background_worth`): the mean leaf value of the rows that take the features in S
  from the row, and the other features from a row of the background.
"""

from __future__ import annotations

from math import comb

import numpy as np
from support.trees import MISSING


def goes_left(tree, node, code):
    code = int(code)
    if code == MISSING:
        return bool(tree.missing_left[node])
    if tree.category_set[node] >= 0:
        words = tree.categories[tree.category_set[node]]
        return bool(int(words[code // 64]) >> (code % 64) & 1)
    return bool(code <= tree.threshold[node])


def share_of_left(tree, node):
    for weight in (tree.count, tree.cover):
        left, right = (float(weight[child[node]]) for child in (tree.left, tree.right))
        if min(left, right) >= 0 and 0 < left + right < np.inf:
            return left / (left + right)
    return 0.5


def leaf_value(leaves, leaf, x, known):
    """Return the leaf value (K or 1,) for raw features x, where unknown features are missing."""
    if isinstance(leaves, np.ndarray):
        return leaves[leaf].astype(np.float64)
    entries = slice(leaves.indptr[leaf], leaves.indptr[leaf + 1])
    if hasattr(leaves, "outputs"):
        dense = np.zeros(leaves.n_outputs)
        dense[leaves.outputs[entries]] = leaves.values[entries]
        return dense
    value = leaves.intercept[leaf].astype(np.float64)
    for feature, weights, centre in zip(
        leaves.features[entries], leaves.weights[entries], leaves.centre[entries], strict=True
    ):
        if feature in known and not np.isnan(x[feature]):
            value = value + weights.astype(np.float64) * (float(x[feature]) - float(centre))
    return np.clip(value, leaves.lower[leaf], leaves.upper[leaf])


def expected(tree, leaves, codes, x, known, node=0):
    """Return the worth of the known features, by the counts of one tree."""
    if tree.feature[node] < 0:
        return leaf_value(leaves, tree.leaf[node], x, known)

    def child_worth(child):
        return expected(tree, leaves, codes, x, known, child)

    if tree.feature[node] in known:
        return child_worth(
            (tree.left if goes_left(tree, node, codes[tree.feature[node]]) else tree.right)[node]
        )
    share = share_of_left(tree, node)
    return share * child_worth(tree.left[node]) + (1.0 - share) * child_worth(tree.right[node])


def background_worth(tree, leaves, codes, x, known, background):
    """Return the worth of known features: the mean over the rows of a background."""
    mask = np.isin(np.arange(len(codes)), list(known))
    everything = set(range(len(codes)))
    rows = []
    for other_codes, other_x in zip(background[0].T, background[1].T, strict=True):
        hybrid = np.where(mask, codes, other_codes), np.where(mask, x, other_x)
        rows.append(expected(tree, leaves, *hybrid, everything))
    return np.mean(rows, axis=0)


def coalition_worths(parts, n_outputs, codes, x, background=None):
    """Return the worth of every set of features, bit f of its number being feature f: (2^F, K)."""
    F = len(codes)
    found = np.zeros((2**F, n_outputs))
    for number in range(2**F):
        known = {f for f in range(F) if number >> f & 1}
        for tree, leaves, outputs in parts:
            if background is None:
                worth = expected(tree, leaves, codes, x, known)
            else:
                worth = background_worth(tree, leaves, codes, x, known, background)
            found[number, slice(None) if outputs is None else outputs] += worth
    return found


def shapley_values(worth):
    """Return Shapley values (F, K): mean contribution of a feature over all orders of features."""
    F = len(worth).bit_length() - 1
    numbers = np.arange(len(worth))
    size = [number.bit_count() for number in range(len(worth))]
    values = np.zeros((F, worth.shape[1]))
    for f in range(F):
        without = numbers[numbers >> f & 1 == 0]
        weight = np.array([1.0 / (F * comb(F - 1, size[s])) for s in without])
        values[f] = weight @ (worth[without | 1 << f] - worth[without])
    return values


def interaction_values(worth):
    """Return Shapley interactions (F, F, K), halved between both sides of the diagonal.

    With the diagonal, rows sum to the Shapley values.
    """
    F = len(worth).bit_length() - 1
    numbers = np.arange(len(worth))
    size = [number.bit_count() for number in range(len(worth))]
    values = np.zeros((F, F, worth.shape[1]))
    for i in range(F):
        for j in range(i):
            both = 1 << i | 1 << j
            without = numbers[numbers & both == 0]
            weight = np.array([1.0 / (2 * (F - 1) * comb(F - 2, size[s])) for s in without])
            difference = (
                worth[without | both]
                - worth[without | 1 << i]
                - worth[without | 1 << j]
                + worth[without]
            )
            values[i, j] = values[j, i] = weight @ difference
    values[np.arange(F), np.arange(F)] = shapley_values(worth) - values.sum(axis=1)
    return values


def explain_rows(parts, n_outputs, codes, features=None, background=None):
    """Return contributions (n, F, K), interactions (n, F, F, K) and the worth of the empty set
    (K,).

    codes, features and both parts of the background are (F, n).
    """
    if features is None:
        features = np.full(codes.shape, np.nan)
    if background is not None and background[1] is None:
        background = background[0], np.full(background[0].shape, np.nan)
    of_rows = [
        coalition_worths(parts, n_outputs, *row, background)
        for row in zip(codes.T, features.T, strict=True)
    ]
    values = np.array([shapley_values(worth) for worth in of_rows])
    return values, np.array([interaction_values(worth) for worth in of_rows]), of_rows[0][0]
