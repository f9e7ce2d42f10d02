"""Split gains and leaf objectives of summed gradients, in float32.

Covers the terms of every kind of Hessian and leaf, their sum in virtual lanes, elimination, and the
minimum gain.
"""

import numpy as np

from reference.quantised_gradients import F32, MISSING, Sums, total

N_LANES = 16
GAIN_RESOLUTION = 2.0**-20  # relative; below it float32 cannot distinguish gain from rounding
# Pivot relative to its diagonal entry; below, a direction has no curvature.
MIN_PIVOT = F32(2.0**-13)
MIN_LEAF_PIVOT = 2.0**-20  # the same for leaf values, in float64


def lane_sum(terms):
    """Sum float32 `terms` (..., K) over outputs in 16 virtual lanes.

    The bits do not depend on the vector width.
    """
    n_outputs = terms.shape[-1]
    padded = np.zeros((*terms.shape[:-1], -(-n_outputs // N_LANES) * N_LANES), F32)
    padded[..., :n_outputs] = terms
    lanes = padded[..., :N_LANES]
    for start in range(N_LANES, padded.shape[-1], N_LANES):
        lanes = lanes + padded[..., start : start + N_LANES]
    while lanes.shape[-1] > 1:
        half = lanes.shape[-1] // 2
        lanes = lanes[..., :half] + lanes[..., half:]
    return lanes[..., 0]


def gradient_and_hessian(sums, channels):
    """Return float32 G (C, K) and H: (C, 1) for unit (the count) and shared, else (C, m)."""
    G = sums.gradients.astype(F32) * channels.gradient_steps
    if channels.kind == "unit":
        return G, sums.count.astype(F32)[:, None]
    return G, sums.hessians.astype(F32) * channels.hessian_steps


def packed_diagonal(n_outputs):
    """Return the positions of entries (i, i) in a packed lower triangle."""
    i = np.arange(n_outputs)
    return i * (i + 3) // 2


def diagonal_hessian(H, kind, n_outputs):
    """Return H without off-diagonal entries: one value per output, or one for all."""
    return H[..., packed_diagonal(n_outputs)] if kind == "full" else H


def mean_hessian(H):
    """Return float32 (C,): H or its mean over outputs (of the diagonal, for a full Hessian).

    It is compared with `min_child_weight`, and is also the cover.
    """
    return H[:, 0] if H.shape[1] == 1 else lane_sum(H) / F32(H.shape[1])


def safe_divide(numerator, denominator):
    """Return the float32 quotient, 0 where the denominator is 0: no Hessian, no step."""
    zero = denominator == 0
    return np.where(zero, F32(0), numerator / np.where(zero, F32(1), denominator))


def is_regularised(config):
    """Return whether the leaf problem has more than a ridge penalty.

    Then the gain requires the leaf value.
    """
    return config.reg_alpha > 0 or config.max_delta_step > 0


def regularised_terms(G, H, config):
    """Return float32 (C, K): twice the loss decrease of a thresholded, clipped leaf value.

    H includes lambda.
    """
    t = np.sign(G) * np.maximum(np.abs(G) - F32(config.reg_alpha), F32(0))
    w = safe_divide(t, H)
    if config.max_delta_step > 0:
        w = np.clip(w, -F32(config.max_delta_step), F32(config.max_delta_step))
    return F32(2) * t * w - H * w * w


def leaf_terms(G, H, kind, config):
    """Return float32 (C, K): minus twice the objective of one leaf, G^2 / (H + lambda).

    See GBDT-MO, eq. 7 and 15.
    """
    H = H + F32(config.reg_lambda)
    if is_regularised(config):
        return regularised_terms(G, H, config)
    return safe_divide(G * G, H) if kind == "diagonal" else (G * G) * safe_divide(F32(1), H)


def split_terms(G_left, H_left, G_right, H_right, kind, config):
    """Return float32 (C, K): the contribution of each output to a split's score sum.

    See GBDT-MO, eq. 16, without the parent.
    """
    if is_regularised(config) or kind != "diagonal":
        return leaf_terms(G_left, H_left, kind, config) + leaf_terms(G_right, H_right, kind, config)
    a, b = H_left + F32(config.reg_lambda), H_right + F32(config.reg_lambda)
    return safe_divide((G_left * G_left) * b + (G_right * G_right) * a, a * b)


def free_value(G, H, alpha, config):
    """Return float32 (C, K): the best step of one leaf; H includes lambda."""
    size = safe_divide(np.maximum(np.abs(G) - F32(alpha), F32(0)), H)
    if config.max_delta_step > 0:
        size = np.minimum(size, F32(config.max_delta_step))
    return np.where(G < 0, size, -size)


def constrained_values(left, right, config, rules, is_ordered):
    """Return the values (C, K) of both children, and bool (C, K): whether they are pooled.

    `left` and `right` are pairs G, H. `rules` are those of the split feature: 1 must not decrease,
    -1 must not increase, 0 is free. Where an output would violate its direction, both children take
    the best common value of all their rows, with both penalties. `is_ordered` (C, 1) marks the
    candidates to which directions apply.
    """
    nearest = rules.bounds.nearest
    (G_left, H_left), (G_right, H_right) = [
        (G, H + F32(config.reg_lambda)) for G, H in (left, right)
    ]
    w_left = nearest(free_value(G_left, H_left, config.reg_alpha, config))
    w_right = nearest(free_value(G_right, H_right, config.reg_alpha, config))
    both_alpha = F32(2) * F32(config.reg_alpha)
    both = nearest(free_value(G_left + G_right, H_left + H_right, both_alpha, config))
    violates = is_ordered * rules.directions.astype(F32) * (w_right - w_left) < 0
    return np.where(violates, both, w_left), np.where(violates, both, w_right), violates


def value_terms(G, H, w, config):
    """Return float32 (C, K): twice the loss decrease of values `w`; H without lambda."""
    H = H + F32(config.reg_lambda)
    return -((F32(2) * G) * w + (H * w) * w) - F32(2) * F32(config.reg_alpha) * np.abs(w)


def constrained_terms(left, right, config, rules, is_ordered):
    """Return float32 (C, K): each output's contribution to the score sum of a constrained split."""
    w_left, w_right, _ = constrained_values(left, right, config, rules, is_ordered)
    return value_terms(*left, w_left, config) + value_terms(*right, w_right, config)


def is_sparse_leaf(config, n_outputs):
    """Return whether leaves are sparse: fewer outputs than there are."""
    return 0 < config.leaf_k < n_outputs


def largest_sum(terms, k):
    """Return float32 (C,): the sum of the k largest `terms` (C, K) of each row, in descending
    order.
    """
    descending = np.sort(terms, axis=1)[:, ::-1]
    total = descending[:, 0]
    for i in range(1, k):
        total = total + descending[:, i]
    return total


def kept_terms(terms, k):
    """Return `terms` (K,) with all but the k largest set to 0, the first ones kept on ties."""
    kept = np.zeros_like(terms)
    largest = np.argsort(-terms, kind="stable")[:k]
    kept[largest] = terms[largest]
    return kept


def topk_candidates(left, right, pairs, config):
    """Return float32 sums (C,) of candidates whose children keep k outputs (GBDT-MO, eq. 21 and
    22).

    The inputs are the terms (C, K) of both sides, and `pairs` of both together. Each child keeps
    the k outputs with its largest gains (Algorithm 3), or both keep those with the largest joint
    gain (Algorithm 4). Also return a function that gives the kept terms (K,) of one candidate.
    """
    k = config.leaf_k
    if config.shared_support:
        return largest_sum(pairs, k), lambda c: kept_terms(pairs[c], k)
    scores = largest_sum(left, k) + largest_sum(right, k)
    return scores, lambda c: kept_terms(left[c], k) + kept_terms(right[c], k)


def block_outputs(G, config):
    """Return the outputs that a node solves for, ascending.

    These are the `block_size` outputs of largest |G| (K,), the first on ties. TFBT, section IV (as
    AOSO-LogitBoost: Sun, Reid and Zhou, 2012): the others are unchanged.
    """
    n_outputs = len(G)
    size = n_outputs if config.block_size <= 0 else min(config.block_size, n_outputs)
    return np.sort(np.argsort(-np.abs(G), kind="stable")[:size])


def full_sum(G, H, outputs, ridge, least_pivot=MIN_PIVOT):
    """Return (C,): G' (H + ridge I)^-1 G over `outputs` (TFBT, eq. 7 without the half).

    Uses elimination on G (C, K) and H (C, K (K + 1) / 2), in their dtype throughout. A vanishing
    pivot means a direction without curvature (for softmax without ridge: all scores raised equally)
    and adds nothing.
    """
    A, y, diagonal = eliminated(G, H, outputs, ridge, least_pivot)
    total = np.zeros(len(G), G.dtype)
    for j in range(len(outputs)):
        total = total + (y[j] * y[j]) * inverse_pivot(A[j, j], diagonal[j], least_pivot)
    return total


def eliminated(G, H, outputs, ridge, least_pivot):
    """Eliminate without pivoting.

    Return the pivots on the diagonal of A, the right-hand side in y, and diag(H).
    """
    m, dtype = len(outputs), G.dtype
    A = np.empty((m, m, len(G)), dtype)
    for i, a in enumerate(outputs):
        for j, b in enumerate(outputs[: i + 1]):
            A[i, j] = H[:, a * (a + 1) // 2 + b]
        A[i, i] += dtype.type(ridge)
    y, diagonal = G[:, outputs].T.copy(), np.array([A[i, i] for i in range(m)])
    for j in range(m):
        inverse = inverse_pivot(A[j, j], diagonal[j], least_pivot)
        for i in range(j + 1, m):
            factor = A[i, j] * inverse
            y[i] -= factor * y[j]
            for p in range(j + 1, i + 1):
                A[i, p] -= factor * A[p, j]
    return A, y, diagonal


def inverse_pivot(pivot, diagonal, least_pivot):
    kept = pivot > least_pivot * diagonal
    return np.where(kept, pivot.dtype.type(1) / np.where(kept, pivot, 1), 0).astype(pivot.dtype)


def full_solution(G, H, outputs, ridge, least_pivot=MIN_PIVOT):
    """Return (C, K): (H + ridge I)^-1 G over `outputs` (TFBT, eq. 6 without the sign), else 0."""
    A, y, diagonal = eliminated(G, H, outputs, ridge, least_pivot)
    w = np.zeros_like(G)
    m = len(outputs)
    for j in reversed(range(m)):
        rest = y[j]
        for i in range(j + 1, m):
            rest = rest - A[i, j] * w[:, outputs[i]]
        w[:, outputs[j]] = rest * inverse_pivot(A[j, j], diagonal[j], least_pivot)
    return w


def parent_score(channels, config, rules=None):
    """Return the float32 sum and terms (K,) of the node as one leaf."""
    G, H = gradient_and_hessian(total(channels), channels)
    if rules is not None:
        w = rules.bounds.nearest(
            free_value(G, H + F32(config.reg_lambda), config.reg_alpha, config)
        )
        terms = value_terms(G, H, w, config)
        return lane_sum(terms)[0], terms[0]
    if channels.kind == "full":
        outputs = block_outputs(G[0], config)
        ridge = F32(config.reg_lambda)
        return full_sum(G, H, outputs, ridge)[0], (G * full_solution(G, H, outputs, ridge))[0]
    terms = leaf_terms(G, H, channels.kind, config)
    if is_sparse_leaf(config, terms.shape[1]):
        return largest_sum(terms, config.leaf_k)[0], kept_terms(terms[0], config.leaf_k)
    return lane_sum(terms)[0], terms[0]


def score_candidates(sums, candidates, channels, config, rules=None):
    """Return float32 score sums (C,), and a function that gives the terms (K,) of one candidate.

    The sum is -inf if a child is too small or the sum is NaN. `rules` are those of the feature;
    None: no constraints. Directions do not apply to a candidate that separates all values from
    missing ones.
    """
    present = sums.count > 0
    left = Sums(*(candidates[:, present].astype(np.int64) @ part[present] for part in sums.parts()))
    right = total(channels) - left
    G_left, H_left = gradient_and_hessian(left, channels)
    G_right, H_right = gradient_and_hessian(right, channels)
    if channels.kind == "full":
        G_parent, _ = gradient_and_hessian(total(channels), channels)
        outputs, ridge = block_outputs(G_parent[0], config), F32(config.reg_lambda)
        scores = full_sum(G_left, H_left, outputs, ridge) + full_sum(
            G_right, H_right, outputs, ridge
        )

        def terms(c):
            sides = [
                (G_left[c : c + 1], H_left[c : c + 1]),
                (G_right[c : c + 1], H_right[c : c + 1]),
            ]
            one, other = (G * full_solution(G, H, outputs, ridge) for G, H in sides)
            return (one + other)[0]
    else:
        if rules is None:
            all_terms = split_terms(G_left, H_left, G_right, H_right, channels.kind, config)
        else:
            is_ordered = np.any((~candidates & present)[:, :MISSING], axis=1, keepdims=True)
            sides = (G_left, H_left), (G_right, H_right)
            all_terms = constrained_terms(*sides, config, rules, is_ordered)
        scores, terms = lane_sum(all_terms), all_terms.__getitem__
        if is_sparse_leaf(config, all_terms.shape[1]):
            sides = (
                leaf_terms(G, H, channels.kind, config)
                for G, H in ((G_left, H_left), (G_right, H_right))
            )
            finite = np.isfinite(scores)
            scores, terms = topk_candidates(*sides, all_terms, config)
            scores = np.where(finite, scores, -F32(np.inf))
    own = [diagonal_hessian(H, channels.kind, G_left.shape[1]) for H in (H_left, H_right)]
    allowed = is_large_enough(left.count, own[0], config) & is_large_enough(
        right.count, own[1], config
    )
    return np.where(allowed & ~np.isnan(scores), scores, -F32(np.inf)), terms


def is_large_enough(count, H, config):
    """Return bool (C,): whether each child has enough rows and Hessian."""
    return (count >= max(1, config.min_child_samples)) & (
        mean_hessian(H) >= F32(config.min_child_weight)
    )


def is_worthwhile(best_sum, parent_sum, gain, config):
    """Return whether the mean gain over outputs passes its threshold and exceeds rounding noise.

    See GBDT-MO, appendix B.
    """
    difference = float(best_sum) - float(parent_sum)
    if config.post_prune:
        return np.isfinite(best_sum)
    return gain > config.min_split_gain and difference > GAIN_RESOLUTION * float(best_sum)
