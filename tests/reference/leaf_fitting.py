"""Leaf values: Newton steps of unquantised derivatives, for dense and sparse leaves.

Rows are summed by leaf in fixed point, and the step of a leaf is computed in float64.
"""

import numpy as np

from reference.leaf_arrays import TopkLeaves
from reference.quantised_gradients import F32, SMALLEST_DERIVATIVE, used
from reference.split_gain import MIN_LEAF_PIVOT, block_outputs, full_solution
from reference.tree_growth import GrowConfig


def leaf_sums(values, leaves, n_leaves):
    """Float64 (n_leaves, m): float32 `values` (n_used, m) summed by leaf in 30-bit fixed point: no
    order.
    """
    sums = np.zeros((n_leaves, values.shape[1]))
    for k, column in enumerate(values.T):
        largest = float(np.max(np.abs(column)))
        if largest < SMALLEST_DERIVATIVE:
            continue
        unit = np.ldexp(1.0, int(np.frexp(largest)[1]) - 30)  # 2^30 of them exceed `largest`
        integers = np.zeros(n_leaves, np.int64)
        np.add.at(integers, leaves, np.trunc(column.astype(np.float64) / unit).astype(np.int64))
        sums[:, k] = integers.astype(np.float64) * unit
    return sums


def fit_newton_leaves(
    g,
    h,
    leaf_of_row,
    n_leaves,
    reg_lambda=GrowConfig.reg_lambda,
    reg_alpha=GrowConfig.reg_alpha,
    max_delta_step=GrowConfig.max_delta_step,
    learning_rate=1.0,
    rows=None,
    multiplier=None,
    block_size=0,
):
    """Float32 (n_leaves, K): one Newton step a leaf and output (GBDT-MO, eq. 15; C-GB, eq. 13;
    TFBT, eq. 6).

    `g` float32 (n, K), `h` (n, 1), (n, K), (n, K (K + 1) / 2) or None: curvature 1, times the
    multiplier like any other. With the triangle a leaf solves for its `block_size` outputs of
    largest |G| (0: all).
    """
    h = np.ones((len(g), 1), F32) if h is None else h
    leaves = leaf_of_row if rows is None else leaf_of_row[rows]
    G = leaf_sums(used(g, rows, multiplier), leaves, n_leaves)
    H = leaf_sums(used(h, rows, multiplier), leaves, n_leaves)
    if h.shape[1] > max(1, g.shape[1]):
        w = np.zeros_like(G)
        for leaf in range(n_leaves):
            outputs = block_outputs(G[leaf], GrowConfig(block_size=block_size))
            one = slice(leaf, leaf + 1)
            w[one] = -full_solution(G[one], H[one], outputs, reg_lambda, MIN_LEAF_PIVOT)
        return (w * learning_rate).astype(F32)
    H = H + reg_lambda
    t = np.sign(G) * np.maximum(np.abs(G) - reg_alpha, 0.0)
    w = np.where(H == 0, 0.0, -t / np.where(H == 0, 1.0, H))
    if max_delta_step > 0:
        w = np.clip(w, -max_delta_step, max_delta_step)
    return (w * learning_rate).astype(F32)


def fit_topk_leaves(g, h, leaf_of_row, tree, config, learning_rate=1.0, rows=None, multiplier=None):
    """`TopkLeaves` with the `leaf_k` outputs whose Newton step removes most loss (GBDT-MO, eq. 19).

    `config.shared_support`: the two children of a node hold those that gain most in both together
    (Algorithm 4). An output without gain is not held. Arguments as for `fit_newton_leaves`, `h` not
    full; all in float64.
    """
    h = np.ones((len(g), 1), F32) if h is None else h
    leaves = leaf_of_row if rows is None else leaf_of_row[rows]
    G, H = (
        node_sums(tree, leaf_sums(used(x, rows, multiplier), leaves, tree.n_leaves)) for x in (g, h)
    )
    w, worth = newton_steps(G, H, config)
    gains = worth.copy()
    if config.shared_support:
        for left, right in zip(tree.left, tree.right, strict=True):
            if left >= 0:
                gains[left] = gains[right] = worth[left] + worth[right]
    outputs, values = [], []
    for node in np.flatnonzero(tree.leaf >= 0):
        best = np.argsort(-gains[node], kind="stable")[: config.leaf_k]
        held = np.sort(best[gains[node, best] > 0]).astype(np.int32)
        outputs.append(held)
        values.append((w[node, held] * learning_rate).astype(F32))
    indptr = np.cumsum([0, *map(len, outputs)])
    return TopkLeaves(indptr, np.concatenate(outputs), np.concatenate(values), g.shape[1])


def node_sums(tree, leaves):
    """Float64 (n_nodes, m) of the sums (n_leaves, m) of leaves; multiples of one unit, so exact."""
    sums = np.zeros((tree.n_nodes, leaves.shape[1]))
    for i in reversed(range(tree.n_nodes)):
        inner = tree.leaf[i] < 0
        sums[i] = sums[tree.left[i]] + sums[tree.right[i]] if inner else leaves[tree.leaf[i]]
    return sums


def newton_steps(G, H, config):
    """Float64 (C, K): the step of each output, and by how much it lowers twice the loss (GBDT-MO,
    eq. 20).
    """
    c = H + config.reg_lambda
    t = np.maximum(np.abs(G) - config.reg_alpha, 0.0)
    size = np.where(c > 0, t / np.where(c > 0, c, 1.0), 0.0)
    if config.max_delta_step > 0:
        size = np.minimum(size, config.max_delta_step)
    return np.where(G > 0, -size, size), (2.0 * t - c * size) * size
