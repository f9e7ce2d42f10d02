"""Losses of rankings, for cpp/losses/query_losses.cpp: the derivatives of one query.

Documents of equal score and gain form a group; groups of equal score form a run, whose documents
have no order.
"""

from itertools import pairwise

import numpy as np

from polyleaf import _core
from reference.leaf_fitting import fit_newton_leaves

F32 = np.float32
LANES = 16
SCORE_MARGIN = F32(0.01)
LEAST_HESSIAN = F32(1e-16)


def exp(x):
    """Return e^x in float32 as the kernels compute it."""
    return _core._exp(np.asarray(x, F32).reshape(-1)).reshape(np.shape(x))


def log1p(x):
    """Return ln(1 + x) of a float32 x >= 0 as the kernels compute it."""
    total = F32(1) + x
    return _core._log(np.array([total]))[0] + (x - (total - F32(1))) / total


def derivatives(raw, query, target, weight, scale, goal_weights, compute):
    """Return g and h, float32 (n, m), of all queries.

    `compute(score, target, weight, scale)` returns those of the rated documents of one query;
    `weight` is (n, K), `scale` (n_queries, K), `goal_weights` (m, K).
    """
    g, h = np.zeros(raw.shape, F32), np.zeros(raw.shape, F32)
    for number, q in enumerate(np.unique(query)):
        rows = np.flatnonzero(query == q)
        for output in range(raw.shape[1]):
            for goal, factor in enumerate(np.asarray(goal_weights, F32)[output]):
                rated = rows[weight[rows, goal] > 0]
                if factor == 0 or scale[number, goal] == 0:
                    continue
                own_g, own_h = compute(
                    raw[rated, output],
                    target[rated, goal].astype(F32),
                    weight[rated, goal].astype(F32),
                    scale[number, goal],
                )
                g[rated, output] += factor * own_g
                h[rated, output] += factor * own_h
    return g, h


def listwise(score, target, weight, scale):
    """Cross entropy of the target, which has the weights, and the softmax of the scores."""
    e = exp(score - score.max())
    total = np.sum(np.rint(e.astype(np.float64) * 2.0**32)) / 2.0**32  # exact
    share = e * F32(1.0 / total)
    g = F32(scale) * share - target
    return g, np.maximum(F32(scale) * (share * (F32(1) - share)), LEAST_HESSIAN)


def discounts(n):
    """Return 1 / log2(rank + 1) of n ranks."""
    return _core.log(2.0) / _core.log(np.arange(1.0, n + 1.0) + 1.0)


def ndcg_terms(begin, end, truncation, discount):
    """Return what an exchange changes for the run at ranks `begin` to `end`, from 0.

    above_better, above_worse, share, below: the change for a document of the run and one of a run
    below is above - share * below of the other run, with `above_better` if the upper document has
    the greater gain; and the mean change within the run.
    """
    n, inside = end - begin, min(end, max(begin, truncation))
    sums = np.concatenate([[0.0], np.cumsum(discount)])
    above = (sums[inside] - sums[begin]) / n
    within = 0.0
    for rank in range(begin, min(inside, end - 1)):
        within += discount[rank] * (end - 1 - rank) - (sums[end] - sums[rank + 1])
    within = within / (0.5 * n * (n - 1.0)) if n > 1 else within
    return above, above, (inside - begin) / n, (sums[end] - sums[begin]) / n, within


def map_terms(begin, end, truncation, n_relevant, above):
    """As `ndcg_terms`; `above`: relevant documents above the run, and the sum of 1 / rank."""
    n, inside, density = end - begin, min(end, max(begin, truncation)), n_relevant / (end - begin)
    relevant, divided = above
    better = worse = below = upper = lower = 0.0
    for rank in range(begin, end):
        number = rank + 1.0
        term = (relevant + density) / number - divided
        below += term
        lower += term * (min(rank, inside) - begin)
        relevant += density
        divided += density / number
        if rank < inside:
            if_better = relevant / number - divided
            if_worse = (relevant + 1.0) / number - divided
            better += if_better
            worse += if_worse
            upper += 0.5 * (if_better + if_worse) * (end - 1 - rank)
    within = (upper - lower) / (0.5 * n * (n - 1.0)) if n > 1 else 0.0
    terms = better / n, worse / n, (inside - begin) / n, below / n, within
    return terms, (relevant, divided)


def pairs(score, target, weight, scale, measure, truncation, largest_difference, normalise):
    """Sum of w_ij ln(1 + e^(s_j - s_i)) over pairs, i with the greater gain."""
    order = np.lexsort((-weight, -target, -score))
    score, target, weight = score[order] + F32(0), target[order], weight[order]
    n = len(order)
    is_new_run = np.concatenate([[True], score[1:] != score[:-1]])
    is_new_group = is_new_run | np.concatenate(
        [[True], (target[1:] != target[:-1]) | (weight[1:] != weight[:-1])]
    )
    group = np.cumsum(is_new_group) - 1
    first = np.flatnonzero(is_new_group)
    n_groups = len(first)
    s, gain, weight = score[first], target[first], weight[first]
    count = np.bincount(group).astype(F32)
    power = exp(s - s[0])

    run_begin = [*np.flatnonzero(is_new_run), n]
    run_of_group = (np.cumsum(is_new_run) - 1)[first]
    terms, above = [], (0.0, 0.0)
    for begin, end in pairwise(run_begin):
        if measure == "ndcg":
            terms.append(ndcg_terms(begin, end, truncation, discounts(n)))
        elif measure == "map":
            n_relevant = np.count_nonzero(target[begin:end] > 0)
            run_terms, above = map_terms(begin, end, truncation, n_relevant, above)
            terms.append(run_terms)
        else:
            terms.append((1.0, 1.0, 0.0, 0.0, 1.0))
    terms = np.array(terms).astype(F32)
    below = terms[run_of_group, 3]

    divides = normalise and len(terms) > 1
    margin, slope = (SCORE_MARGIN, F32(1)) if divides else (F32(1), F32(0))
    gradient, hessian = np.zeros(n_groups, F32), np.zeros(n_groups, F32)
    magnitudes = np.zeros(LANES, F32)

    def add(i, lower, above_better, above_worse, share):
        """Return the lanes of sums for group i of its pairs with the groups `lower`."""
        is_better = gain[i] > gain[lower]
        change = np.where(is_better, above_better, above_worse) - share * below[lower]
        inverse = F32(1) / (power[i] + power[lower])
        own, other = power[i] * inverse, power[lower] * inverse
        wrong = np.where(is_better, other, own)
        gained = np.minimum(np.abs(gain[i] - gain[lower]), F32(largest_difference))
        size = gained * (change * F32(scale)) / (margin + slope * (s[i] - s[lower]))
        add_lanes(magnitudes, (size * wrong) * (count[i] * count[lower]))
        size = size * np.where(is_better, weight[i], weight[lower])
        h = size * (own * other)
        g = np.where(is_better, -(size * wrong), size * wrong)
        add_lanes(sums[0], g * count[lower])
        add_lanes(sums[1], h * count[lower])
        gradient[lower] -= g * count[i]
        hessian[lower] += h * count[i]

    for i in range(n_groups):
        r = run_of_group[i]
        if run_begin[r] >= truncation:
            break
        in_run, others = np.flatnonzero(run_of_group == r), np.flatnonzero(run_of_group > r)
        sums = np.zeros((2, LANES), F32)
        add(i, in_run[in_run > i], terms[r, 4], terms[r, 4], F32(0))
        add(i, others, *terms[r, :3])
        gradient[i] += fold(sums[0])
        hessian[i] += fold(sums[1])

    total = F32(2) * fold(magnitudes)
    if normalise and total > 0:
        factor = log1p(total) / (F32(np.log(2)) * total)
        gradient, hessian = gradient * factor, hessian * factor
    g, h = np.zeros(n, F32), np.zeros(n, F32)
    g[order], h[order] = gradient[group], hessian[group]
    return g, np.maximum(h, LEAST_HESSIAN)


def neighbours(score, target, weight, scale, n_orders, discount, noise):
    """Sum of w_ij ln(1 + e^(s_j - s_i)) over neighbours in random orders, i with the larger y.

    `noise`: 2^12 values, of which a hash of the scores and targets chooses.
    """
    order = np.lexsort((-weight, -target, -score))
    score, target, weight = score[order] + F32(0), target[order], weight[order]
    n, mask = len(order), 2**64 - 1
    state = n
    for s, t in zip(order_bits(score), order_bits(target), strict=True):
        state = mix(state ^ (s << 32 | t))
    g, h = np.zeros(n), np.zeros(n)
    for _ in range(n_orders):
        drawn = np.zeros(n, F32)
        for i in range(n):
            state = (state + 0x9E3779B97F4A7C15) & mask
            drawn[i] = noise[mix(state) >> 52]
        shown = np.argsort(-(score + drawn), kind="stable")
        for rank, (i, j) in enumerate(pairwise(shown[: len(discount) + 1])):
            i, j = (j, i) if target[i] < target[j] else (i, j)
            size = discount[rank] * (float(target[i]) - float(target[j]))
            if size == 0:
                continue
            e = float(exp(-abs(score[i] - score[j])))
            inverse = 1.0 / (1.0 + e)
            w = scale * size * float(weight[i])
            pair_g = w * (e * inverse if score[i] > score[j] else inverse)
            pair_h = w * (e * inverse * inverse)
            g[i] -= pair_g
            g[j] += pair_g
            h[i] += pair_h
            h[j] += pair_h
    same = np.cumsum(np.any(np.diff([score, target, weight], prepend=-1.0) != 0, axis=0))
    result = np.zeros((2, n), F32)
    for number in np.unique(same):
        rows = order[same == number]
        for values, part in zip((g, h), result, strict=True):
            part[rows] = sum(values[same == number].tolist()) / len(rows)
    return result[0], np.maximum(result[1], LEAST_HESSIAN)


def mix(x):
    """Return the finaliser of SplitMix64."""
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) % 2**64
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) % 2**64
    return x ^ (x >> 31)


def order_bits(values):
    """Return integers whose order is that of the float32 values."""
    bits = (values + F32(0)).view(np.uint32)
    return [int(b) for b in np.where(bits >> 31, ~bits, bits | np.uint32(1 << 31))]


def add_lanes(lanes, values):
    """Add values, float32, to the lanes one after the other."""
    for i, value in enumerate(values):
        lanes[i % LANES] += value


def fold(lanes):
    """Sum the lanes by halves."""
    while len(lanes) > 1:
        half = len(lanes) // 2
        lanes = lanes[:half] + lanes[half:]
    return lanes[0]


def position_step(g, h, position, rate, reg_lambda, bias, position_lambda):
    """Return what a tree changes the bias of each position by, float32 (n_positions, m).

    The positions are the leaves of a Newton step of the loss with a penalty of `position_lambda`
    b^2 / 2 for each row; the first has no bias. `position` (n,): numbers; `bias` (n_positions, m).
    """
    if position_lambda > 0:
        g, h = g + F32(position_lambda) * bias[position], h + F32(position_lambda)
    step = fit_newton_leaves(
        g, h, position, position.max() + 1, reg_lambda=reg_lambda, learning_rate=rate
    )
    return step - step[0]
