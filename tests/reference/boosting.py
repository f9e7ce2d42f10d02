"""Boosting loops with four losses, one tree or one layer per step."""

import numpy as np

from polyleaf.settings.parameters import DEFAULTS
from reference.leaf_fitting import fit_newton_leaves
from reference.quantised_gradients import F32, quantise
from reference.tree import leaf_of_row
from reference.tree_growth import grow


def squared_error(y, score):
    """Return gradient (n, K) and Hessian of (score - y)^2 / 2, which is constant: None."""
    return score - y, None


def logistic(y, score):
    """Return gradient and Hessian (n, K) of the log loss of indicators y (n, K)."""
    p = 1 / (1 + np.exp(-score))
    return p - y, p * (1 - p)


def softmax(y, score):
    """Return gradient and Hessian (n, K) of the cross-entropy of shares y (n, K), such as one-hot.

    The factor K / (K - 1) is from C-GB, eq. 13.
    """
    p = np.exp(score - score.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    return p - y, p * (1 - p) * (y.shape[1] / (y.shape[1] - 1))


def poisson(y, score):
    """Return gradient and symmetric Hessian (n, K) of the Poisson loss of counts y (n, K)."""
    mean = np.exp(score)
    return mean - y, (mean + y) / 2


def balance_totals(y, score, weight=None):
    """Return the constants (K,) that make predictions e^score (n, K) add up to targets y."""
    weight = np.ones_like(y) if weight is None else np.broadcast_to(weight, y.shape)
    return np.log((weight * y).sum(axis=0) / (weight * np.exp(score)).sum(axis=0))


def fit_tree(codes, n_bins, is_categorical, g, h, kind, config, learning_rate):
    """Fit one tree: structure from `kind` channels, leaf values from all of g and h.

    See C-GB, Algorithm 1. Return the tree, the leaf id of each row, and the leaf values float32
    (n_leaves, K).
    """
    tree = grow(codes, n_bins, is_categorical, quantise(g, h, kind), config)
    leaves = leaf_of_row(tree, codes)
    penalties = config.reg_lambda, config.reg_alpha, config.max_delta_step
    return tree, leaves, fit_newton_leaves(g, h, leaves, tree.n_leaves, *penalties, learning_rate)


def fit_tree_by_layers(
    codes, n_bins, is_categorical, derivatives, raw, kind, config, learning_rate
):
    """Fit one tree, each layer of which is a boosting step (TFBT, section V).

    `derivatives(raw)` returns g and h at raw scores float32 (n, K). The children of a layer take a
    step computed from the derivatives of their split, added to the steps of their ancestors. Then
    the derivatives are renewed and the children are searched for splits. The root takes a step only
    if it cannot be split.

    Return the tree, the leaf id of each row, and the leaf values float32 (n_leaves, K): the sums of
    steps.
    """
    penalties = config.reg_lambda, config.reg_alpha, config.max_delta_step, learning_rate
    block = {"block_size": config.block_size}
    g, h = derivatives(raw)
    given = {}  # rows of a node -> sum of the steps on its path

    def renew(nodes):
        nonlocal g, h
        leaves = [i for i, node in enumerate(nodes) if not node.children]
        leaf_of = np.empty(len(raw), np.int64)
        for leaf, i in enumerate(leaves):
            leaf_of[nodes[i].positions] = leaf
        steps = fit_newton_leaves(g, h, leaf_of, len(leaves), *penalties, **block)
        parent = {child: node for node in nodes for child in node.children}
        for leaf, i in enumerate(leaves):
            rows = nodes[i].positions.tobytes()
            if rows not in given:
                given[rows] = given[parent[i].positions.tobytes()] + steps[leaf]
        now = raw + np.array([given[nodes[i].positions.tobytes()] for i in leaves])[leaf_of]
        g, h = derivatives(now)
        return quantise(g, h, kind)

    given[np.arange(len(raw)).tobytes()] = np.zeros(raw.shape[1], F32)
    tree = grow(codes, n_bins, is_categorical, quantise(g, h, kind), config, renew=renew)
    leaf_of = leaf_of_row(tree, codes)
    if len(given) == 1:
        return tree, leaf_of, fit_newton_leaves(g, h, leaf_of, 1, *penalties, **block)
    values = [given[np.flatnonzero(leaf_of == leaf).tobytes()] for leaf in range(tree.n_leaves)]
    return tree, leaf_of, np.array(values)


def boost(
    data,
    y,
    derivatives,
    kind,
    config,
    n_rounds,
    learning_rate=DEFAULTS["learning_rate"],
    base=0.0,
    offset=None,
    fit_tree=fit_tree,
    groups=None,
    balance=None,
):
    """Train, and return scores float64 (n_rounds + 1, n, K) before and after each round, and trees.

    `data` is (codes, n_bins, is_categorical). `kind` "unit" is C-GB, "diagonal" is GBDT-MO. Rows
    start from `offset` (n, K). The loss receives the sum of offset and leaves rounded to float32;
    scores hold it in float64. A round grows a tree for each of `groups`, lists of outputs, from
    their columns of the derivatives and for them only; None: one tree for all outputs. If the
    groups have every output n times, n rounds take turns. `balance(y, score)` returns constants
    (K,) that each tree adds to its leaves, given scores that contain it; None: 0.
    """
    groups = [list(range(y.shape[1]))] if groups is None else groups
    turns, first = [], 0
    for i in range(len(groups)):
        if sum(map(len, groups[first : i + 1])) == y.shape[1]:
            turns.append(groups[first : i + 1])
            first = i + 1
    offset = np.zeros(y.shape) if offset is None else offset
    raw, scores, trees = np.zeros(y.shape, F32), [base + offset], []
    for t in range(n_rounds):
        g, h = derivatives(y, (raw + offset.astype(F32)).astype(np.float64) + base)
        g, h = g.astype(F32), None if h is None else h.astype(F32)
        for group in turns[t % len(turns)]:
            own = np.ascontiguousarray(g[:, group])
            own_h = None if h is None else np.ascontiguousarray(h[:, group])
            tree, leaves, values = fit_tree(*data, own, own_h, kind, config, learning_rate)
            if balance is not None:
                now = (raw + offset.astype(F32)).astype(np.float64) + base
                now[:, group] += values[leaves]
                values = values + balance(y, now)[group].astype(F32)
            raw[:, group] += values[leaves]
            trees.append(tree)
        scores.append(raw.astype(np.float64) + base + offset)
    return np.array(scores), trees
