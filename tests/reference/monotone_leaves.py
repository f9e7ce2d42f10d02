"""Monotone constraints between leaves: order of leaves, and isotonic regression by definition."""

import numpy as np

from reference.quantised_gradients import MISSING, N_CODES
from reference.tree import goes_left_table


def codes_of_leaves(tree, n_bins):
    """Return bool (n_leaves, F, 256): the codes of each feature that can reach a leaf."""
    there = np.zeros((tree.n_nodes, len(n_bins), N_CODES), bool)
    there[0] = np.arange(N_CODES) < np.asarray(n_bins)[:, None]
    there[0, :, MISSING] = True
    for i in range(tree.n_nodes):  # children come after their parent
        if tree.left[i] < 0:
            continue
        left, f = goes_left_table(tree, i), tree.feature[i]
        there[tree.left[i]] = there[tree.right[i]] = there[i]
        there[tree.left[i], f] &= left
        there[tree.right[i], f] &= ~left
    return there[np.flatnonzero(tree.leaf >= 0)]


def leaf_order(tree, n_bins, directions):
    """Return bool (n_leaves, n_leaves): whether the value of leaf a must not exceed that of leaf b.

    `directions` (F,) are those of one output. The order applies if some row of a becomes a row of b
    by only raising features of direction 1 and lowering those of -1. A missing value can be neither
    raised nor lowered.
    """
    codes = codes_of_leaves(tree, n_bins)
    order = np.zeros((len(codes), len(codes)), bool)
    for a, codes_a in enumerate(codes):
        for b, codes_b in enumerate(codes):
            order[a, b] = a != b and all(map(_can_become, codes_a, codes_b, directions))
    return order


def _can_become(codes_a, codes_b, direction):
    """Return whether some code of a is one of b, or becomes one by a move in this direction."""
    if np.any(codes_a & codes_b):
        return True
    a, b = np.flatnonzero(codes_a[:MISSING]), np.flatnonzero(codes_b[:MISSING])
    if direction == 0 or len(a) == 0 or len(b) == 0:
        return False
    return bool(a[0] < b[-1]) if direction > 0 else bool(a[-1] > b[0])


def isotonic(values, weights, order):
    """Return float64 (n,): the weighted least-squares fit to `values` that satisfies `order`.

    Uses the minimax formula (Robertson, Wright and Dykstra, 1988, theorem 1.4.4): the maximum over
    upper sets U that contain a leaf, of the minimum over lower sets L that do, of the mean over the
    leaves in both U and L. It enumerates all subsets, so it is only for few leaves.
    """
    n = len(values)
    sets = [np.array([s >> i & 1 for i in range(n)], bool) for s in range(1, 2**n)]
    upper = [s for s in sets if not np.any(order[s] & ~s)]
    lower = [s for s in sets if not np.any(order[:, s] & ~s[:, None])]
    best = np.full(n, -np.inf)
    for u in upper:
        least = np.full(n, np.inf)
        for s in lower:
            both = u & s
            if both.any():
                least[both] = np.minimum(
                    least[both], np.average(values[both], weights=weights[both])
                )
        best[u] = np.maximum(best[u], least[u])
    return best
