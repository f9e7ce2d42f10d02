"""Linear leaves: bin means of regressors, and the linear leaf problem (GBDT-PL, section 4).

Shi, Li and Li, "Gradient Boosting With Piece-Wise Linear Regression Trees", IJCAI 2019. p is the
number of regressors, d the maximum per leaf.
"""

from dataclasses import dataclass

import numpy as np

from reference import (
    F32,
    MISSING,
    GrowConfig,
    LinearLeaves,
    leaf_sums,
    linear_leaf_value,
    select_rows,
)
from reference.exact_totals import exact_totals, exponent_above, term_bits

MIN_PIVOT = 2.0**-20  # pivots of a leaf's Gram matrix, relative to its diagonal entry


def rounded_sum(terms):
    """Sum float64 terms over the last axis, each rounded to an integer, ties to even."""
    return np.rint(terms).astype(np.int64).sum(axis=-1)


@dataclass(frozen=True)
class LinearTable:
    """Features as regressors: centred on the mean, in units of the standard deviation."""

    centre: np.ndarray  # float64 (F,)
    scale: np.ndarray  # float64 (F,), 0: no regressor
    means: np.ndarray  # float64 (F, 256), mean of a bin, centred and scaled; 0 where it has no rows


def linear_table(codes, features, is_categorical, weight=None):
    """Compute bin means of raw `features`, float32 (F, n), NaN where missing (GBDT-PL, section
    4.1).
    """
    n_features, n = codes.shape
    w = np.ones(n) if weight is None else np.asarray(weight, np.float64)
    centre, scale, means = np.zeros(n_features), np.zeros(n_features), np.zeros((n_features, 256))
    for f in range(n_features):
        here = np.flatnonzero(~np.isnan(features[f]) & (codes[f] != MISSING) & (w > 0))
        if is_categorical[f] or len(here) == 0:
            continue
        x = features[f, here].astype(np.float64)
        of_bins = exact_totals(x[:, None], w[here, None], codes[f, here], 256)
        sums, weights = of_bins[:, :, 0]
        total = np.cumsum(weights)[-1]
        centre[f] = np.cumsum(sums)[-1] / total
        d = x - centre[f]
        scale[f] = np.sqrt(exact_totals((d * d)[:, None], w[here, None])[0, 0, 0] / total)
        if not 2.0**-100 <= scale[f] <= 2.0**100:
            scale[f] = 0.0
            continue
        filled = weights > 0
        means[f, filled] = (sums[filled] / weights[filled] - centre[f]) * (1 / scale[f])
    return LinearTable(centre, scale, means)


def path_regressors(tree, scale, d):
    """Return for each leaf the first d possible regressors on its path from the root.

    GBDT-PL, section 4.2: a leaf that has d regressors gets no more.
    """
    node_sum = {0: []}
    for i in range(tree.n_nodes):
        if tree.left[i] < 0:
            continue
        mine, f = node_sum[i], int(tree.feature[i])
        if tree.category_set[i] < 0 and scale[f] > 0 and f not in mine and len(mine) < d:
            mine = [*mine, f]
        node_sum[int(tree.left[i])] = node_sum[int(tree.right[i])] = mine
    leaves = np.flatnonzero(tree.left < 0)
    return [node_sum[int(i)] for i in leaves[np.argsort(tree.leaf[leaves])]]


def solve_gram(A, c, least_pivot=MIN_PIVOT):
    """Solve A^-1 c by elimination in order; nearly dependent regressors get 0.

    A (p, p) has the penalty on its diagonal; c is (p, K).
    """
    p = len(A)
    A, y, diagonal = A.copy(), c.copy(), np.diag(A).copy()
    inverse = np.zeros(p)
    for j in range(p):
        if A[j, j] > least_pivot * diagonal[j]:
            inverse[j] = 1.0 / A[j, j]
        for i in range(j + 1, p):
            factor = A[i, j] * inverse[j]
            y[i] = y[i] - factor * y[j]
            for q in range(j + 1, i + 1):
                A[i, q] = A[i, q] - factor * A[q, j]
    w = np.zeros_like(c)
    for j in reversed(range(p)):
        rest = y[j]
        for i in range(j + 1, p):
            rest = rest - A[i, j] * w[i]
        w[j] = rest * inverse[j]
    return w


def linear_leaves(
    g,
    h,
    leaf_of_row,
    n_leaves,
    regressors,
    features,
    scale,
    reg_lambda=GrowConfig.reg_lambda,
    linear_lambda=GrowConfig.reg_lambda,
    learning_rate=1.0,
    clip=True,
    rows=None,
    multiplier=None,
):
    """Return a `LinearLeaves`: one Newton step per leaf, linear in its regressors (GBDT-PL, eq. 6).

    `g` is float32 (n, K), `h` is (n, 1), (n, K) or None. `regressors` has a list of features per
    leaf. `features` is float32 (F, n). The intercept applies at the centre of the leaf: without
    slopes it is the value of a constant leaf.
    """
    hm = select_rows(np.ones((len(g), 1), F32) if h is None else h, rows, multiplier)
    gm = select_rows(g, rows, multiplier)
    ids = np.arange(len(g)) if rows is None else np.asarray(rows)
    leaves = np.asarray(leaf_of_row)[ids]
    G, H = leaf_sums(gm, leaves, n_leaves), leaf_sums(hm, leaves, n_leaves) + reg_lambda
    tops = [[exponent_above(np.abs(column).max()) for column in values.T] for values in (gm, hm)]
    fits = []
    for leaf in range(n_leaves):
        here = np.flatnonzero(leaves == leaf)
        found = [f for f in regressors[leaf] if np.isfinite(linear_lambda)]
        x = features[found][:, ids[here]]
        data = gm[here], hm[here], x, scale[found], G[leaf], H[leaf]
        fits.append(fit_leaf(*data, tops, linear_lambda, learning_rate, found))
    return joined(fits, features, ids, leaves, clip)


@dataclass
class Moments:
    """Sums over a leaf's rows, from integers.

    Holds the lower triangles of Gram matrices (m, p, p), sums of regressors (m, p) and products
    with gradients (p, K).
    """

    gram: np.ndarray
    sums: np.ndarray
    products: np.ndarray


def mean_weights(h, tops):
    """Return the mean Hessian of each row, times a power of two, and the power above the largest.

    The columns are added in order.
    """
    shift = int(np.ceil(np.log2(h.shape[1])))
    return np.cumsum(h, axis=1)[:, -1] * 2.0**-shift, max(tops)


def centres(x, w, w_top, bits):
    """Return float32 (p,): weighted means of regressors x (p, n), without missing values."""
    centre = np.zeros(len(x), F32)
    for j in range(len(x)):
        present = ~np.isnan(x[j])
        here = x[j, present].astype(np.float64)
        top = exponent_above(np.abs(here).max(initial=0.0))
        weight = w[present] * 2.0 ** (bits - w_top)
        total = rounded_sum(weight)
        if total > 0:
            mean = np.float64(rounded_sum(weight * (here * 2.0**-top))) / np.float64(total)
            centre[j] = F32(np.ldexp(mean, top))
    return centre


def standardised(x, centre, scale):
    """Return float64 z (p, n), less than 1, and powers of two (p,) to multiply them by."""
    z, tops = np.zeros(x.shape), []
    for j in range(len(x)):
        present = ~np.isnan(x[j])
        here = (x[j, present].astype(np.float64) - np.float64(centre[j])) * (1 / scale[j])
        tops.append(exponent_above(np.abs(here).max(initial=0.0)))
        z[j, present] = here * 2.0 ** -tops[j]
    return z, tops


def moments(g, h, z, z_tops, tops, bits):
    """Compute the `Moments` of a leaf.

    g (n, K) and h (n, m) are float64, and z (p, n) comes from `standardised`.
    """
    p, m, n_outputs = len(z), h.shape[1], g.shape[1]
    g_tops, h_tops = tops
    found = Moments(np.zeros((m, p, p)), np.zeros((m, p)), np.zeros((p, n_outputs)))
    for i in range(p):
        for k in range(n_outputs):
            total = rounded_sum(z[i] * (g[:, k] * 2.0 ** (bits - g_tops[k])))
            found.products[i, k] = np.ldexp(np.float64(total), z_tops[i] + g_tops[k] - bits)
        for c in range(m):
            w = h[:, c] * 2.0 ** (bits - h_tops[c])
            found.sums[c, i] = np.ldexp(
                np.float64(rounded_sum(z[i] * w)), z_tops[i] + h_tops[c] - bits
            )
            for j in range(i + 1):
                total = rounded_sum((w * z[i]) * z[j] if m == 1 else (z[i] * z[j]) * w)
                power = z_tops[i] + z_tops[j] + h_tops[c] - bits
                found.gram[c, i, j] = np.ldexp(np.float64(total), power)
    return found


@np.errstate(over="ignore", invalid="ignore", divide="ignore")
def fit_leaf(g, h, x, scale, G, H, tops, linear_lambda, learning_rate, found):
    """Fit one leaf.

    Return features ascending, weights float32 (p, K), centre float32 (p,) and intercept float32
    (K,). `tops` are powers of two above the columns of g and h, over all leaves.
    """
    n_outputs, p = g.shape[1], len(found)
    g, h, bits = g.astype(np.float64), h.astype(np.float64), term_bits(len(g))
    one = h.shape[1] == 1
    centre = centres(x, *mean_weights(h, tops[1]), bits)
    z, z_tops = standardised(x, centre, scale)
    of = moments(g, h, z, z_tops, tops, bits)
    slopes, shift = np.zeros((p, n_outputs)), np.zeros(n_outputs)
    for m in range(h.shape[1]):  # one Gram matrix for all outputs, or one per output
        columns = slice(None) if one else slice(m, m + 1)
        A, v = of.gram[m], of.sums[m]
        inverse = 1.0 / H[m] if H[m] > 0 else 0.0
        for i in range(p):
            for j in range(i + 1):
                A[i, j] = A[i, j] - (v[i] * v[j]) * inverse
            A[i, i] = A[i, i] + linear_lambda
        t = of.products[:, columns].copy()
        for i in range(p):
            t[i] = t[i] - v[i] * (G[columns] * inverse)
        alpha = -solve_gram(A, t)
        for j in range(p):
            shift[columns] = shift[columns] + v[j] * alpha[j]
        shift[columns] = -(shift[columns] * inverse)
        slopes[:, columns] = alpha
    constant = np.where(H > 0, -G / np.where(H > 0, H, 1.0), 0.0)
    weights = ((slopes * learning_rate) * (1 / scale)[:, None]).astype(F32)
    intercept = ((constant + shift) * learning_rate).astype(F32)
    if not (np.isfinite(weights).all() and np.isfinite(intercept).all()):
        weights[:] = 0
        intercept = (constant * learning_rate).astype(F32)
    order = [j for j in np.argsort(found, kind="stable") if (weights[j] != 0).any()]
    return np.array(found, np.int32)[order], weights[order], centre[order], intercept


def joined(fits, features, ids, leaves, clip):
    """Combine the leaves, bounded by the minimum and maximum leaf_value over their rows in use."""
    n_leaves, n_outputs = len(fits), len(fits[0][3])
    free = LinearLeaves(
        np.cumsum([0, *(len(f[0]) for f in fits)]).astype(np.int64),
        np.concatenate([f[0] for f in fits]).astype(np.int32),
        np.concatenate([f[1] for f in fits]).reshape(-1, n_outputs),
        np.concatenate([f[2] for f in fits]),
        np.array([f[3] for f in fits], F32),
        np.full((n_leaves, n_outputs), -np.inf, F32),
        np.full((n_leaves, n_outputs), np.inf, F32),
    )
    if not clip:
        return free
    lower, upper = free.upper.copy(), free.lower.copy()
    for i, leaf in zip(ids, leaves, strict=True):
        leaf_value = linear_leaf_value(free, leaf, features[:, i])
        lower[leaf], upper[leaf] = (
            np.minimum(lower[leaf], leaf_value),
            np.maximum(upper[leaf], leaf_value),
        )
    empty = lower > upper
    lower[empty], upper[empty] = -np.inf, np.inf
    return LinearLeaves(
        free.indptr, free.features, free.weights, free.centre, free.intercept, lower, upper
    )
