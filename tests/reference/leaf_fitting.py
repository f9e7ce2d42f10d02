"""Leaf values: Newton steps of unquantised derivatives, for dense and sparse leaves.

Rows are summed by leaf in fixed point, and the step of a leaf is computed in float64.
"""

import numpy as np

from reference.leaf_arrays import TopkLeaves
from reference.quantised_gradients import F32, SMALLEST_DERIVATIVE, select_rows
from reference.split_gain import MIN_LEAF_PIVOT, block_outputs, full_solution
from reference.tree_growth import GrowConfig


def leaf_sums(values, leaves, n_leaves):
    """Sum float32 `values` (n_used, m) by leaf: float64 (n_leaves, m).

    The sums use 30-bit fixed point, so they do not depend on the order of rows.
    """
    sums = np.zeros((n_leaves, values.shape[1]))
    for k, column in enumerate(values.T):
        largest = float(np.max(np.abs(column)))
        if largest < SMALLEST_DERIVATIVE:
            continue
        unit = np.ldexp(1.0, int(np.frexp(largest)[1]) - 30)  # 2^30 units exceed `largest`
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
    """Return float32 (n_leaves, K): one Newton step per leaf and output.

    See GBDT-MO, eq. 15; C-GB, eq. 13; TFBT, eq. 6. `g` is float32 (n, K). `h` is (n, 1), (n, K),
    (n, K (K + 1) / 2) or None, which means a Hessian of 1, multiplied by the multiplier. With the
    triangle a leaf solves for its `block_size` outputs of largest |G| (0: all).
    """
    h = np.ones((len(g), 1), F32) if h is None else h
    leaves = leaf_of_row if rows is None else leaf_of_row[rows]
    G = leaf_sums(select_rows(g, rows, multiplier), leaves, n_leaves)
    H = leaf_sums(select_rows(h, rows, multiplier), leaves, n_leaves)
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
    """Return `TopkLeaves` with the `leaf_k` outputs of largest loss decrease (GBDT-MO, eq. 19).

    With `config.shared_support`, the two children of a node hold the outputs with the largest joint
    decrease (Algorithm 4). Outputs without a decrease are left out. The arguments are those of
    `fit_newton_leaves`, except that `h` must not be full; all computations are in float64.
    """
    h = np.ones((len(g), 1), F32) if h is None else h
    leaves = leaf_of_row if rows is None else leaf_of_row[rows]
    G, H = (
        node_sums(tree, leaf_sums(select_rows(x, rows, multiplier), leaves, tree.n_leaves))
        for x in (g, h)
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
    """Return float64 (n_nodes, m) from the leaf sums (n_leaves, m), exact multiples of one unit."""
    sums = np.zeros((tree.n_nodes, leaves.shape[1]))
    for i in reversed(range(tree.n_nodes)):
        inner = tree.leaf[i] < 0
        sums[i] = sums[tree.left[i]] + sums[tree.right[i]] if inner else leaves[tree.leaf[i]]
    return sums


def newton_steps(G, H, config):
    """Return float64 (C, K): the step of each output, and its decrease of twice the loss.

    See GBDT-MO, eq. 20.
    """
    c = H + config.reg_lambda
    t = np.maximum(np.abs(G) - config.reg_alpha, 0.0)
    size = np.where(c > 0, t / np.where(c > 0, c, 1.0), 0.0)
    if config.max_delta_step > 0:
        size = np.minimum(size, config.max_delta_step)
    return np.where(G > 0, -size, size), (2.0 * t - c * size) * size
