"""Split gains and leaf objectives of summed gradients, in float32.

Terms of every kind of Hessian and leaf, their sum in virtual lanes, elimination, and the minimum
gain.
"""

import numpy as np

from reference.quantised_gradients import F32, MISSING, Sums, total

N_LANES = 16
GAIN_RESOLUTION = 2.0**-20  # relative; below it float32 cannot tell gain from rounding
# Relative to its diagonal entry; below, a direction counts as having no curvature.
MIN_PIVOT = F32(2.0**-13)
MIN_LEAF_PIVOT = 2.0**-20  # the same for leaf values, in float64


def lane_sum(terms):
    """Sum of float32 `terms` (..., K) over outputs in 16 virtual lanes: the same bits at any vector
    width.
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
    """Float32 G (C, K) and H: (C, 1) for unit (the count) and shared, else (C, m)."""
    G = sums.gradients.astype(F32) * channels.gradient_steps
    if channels.kind == "unit":
        return G, sums.count.astype(F32)[:, None]
    return G, sums.hessians.astype(F32) * channels.hessian_steps


def packed_diagonal(n_outputs):
    """Where entries (i, i) lie in a packed lower triangle."""
    i = np.arange(n_outputs)
    return i * (i + 3) // 2


def diagonal_hessian(H, kind, n_outputs):
    """What each output, or all of them, has for itself: H without what is off the diagonal."""
    return H[..., packed_diagonal(n_outputs)] if kind == "full" else H


def mean_hessian(H):
    """Float32 (C,): H or its mean over outputs, what `min_child_weight` is compared with; also the
    cover.

    Of a full curvature: its diagonal's.
    """
    return H[:, 0] if H.shape[1] == 1 else lane_sum(H) / F32(H.shape[1])


def safe_divide(numerator, denominator):
    """Return the float32 quotient, 0 where the denominator is 0: no Hessian, no step."""
    zero = denominator == 0
    return np.where(zero, F32(0), numerator / np.where(zero, F32(1), denominator))


def is_regularised(config):
    """Whether the leaf problem has more than a ridge penalty, so that the gain needs the leaf
    value.
    """
    return config.reg_alpha > 0 or config.max_delta_step > 0


def regularised_terms(G, H, config):
    """Float32 (C, K): twice the loss that a thresholded, clipped leaf value removes; H includes
    lambda.
    """
    t = np.sign(G) * np.maximum(np.abs(G) - F32(config.reg_alpha), F32(0))
    w = safe_divide(t, H)
    if config.max_delta_step > 0:
        w = np.clip(w, -F32(config.max_delta_step), F32(config.max_delta_step))
    return F32(2) * t * w - H * w * w


def leaf_terms(G, H, kind, config):
    """Float32 (C, K): minus twice the objective of one leaf, G^2 / (H + lambda) (GBDT-MO, eq. 7 and
    15).
    """
    H = H + F32(config.reg_lambda)
    if is_regularised(config):
        return regularised_terms(G, H, config)
    return safe_divide(G * G, H) if kind == "diagonal" else (G * G) * safe_divide(F32(1), H)


def split_terms(G_left, H_left, G_right, H_right, kind, config):
    """Float32 (C, K): what each output adds to a split's score sum (GBDT-MO, eq. 16 without the
    parent).
    """
    if is_regularised(config) or kind != "diagonal":
        return leaf_terms(G_left, H_left, kind, config) + leaf_terms(G_right, H_right, kind, config)
    a, b = H_left + F32(config.reg_lambda), H_right + F32(config.reg_lambda)
    return safe_divide((G_left * G_left) * b + (G_right * G_right) * a, a * b)


def free_value(G, H, alpha, config):
    """Float32 (C, K): the best step of one leaf; H includes lambda."""
    size = safe_divide(np.maximum(np.abs(G) - F32(alpha), F32(0)), H)
    if config.max_delta_step > 0:
        size = np.minimum(size, F32(config.max_delta_step))
    return np.where(G < 0, size, -size)


def constrained_values(left, right, config, rules, is_ordered):
    """The values (C, K) of both children, and which (C, K) are one for both; `left`, `right`: pairs
    G, H. `rules`: of the feature split on, 1 must not fall, -1 must not rise, 0 free.

    Of an output that would disobey, both take the one that is best for both: of both their rows,
    with both their penalties. `is_ordered` (C, 1): whether directions matter at all.
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
    """Float32 (C, K): twice the loss that values `w` remove; H without lambda."""
    H = H + F32(config.reg_lambda)
    return -((F32(2) * G) * w + (H * w) * w) - F32(2) * F32(config.reg_alpha) * np.abs(w)


def constrained_terms(left, right, config, rules, is_ordered):
    """Float32 (C, K): what each output adds to the score sum of a split that obeys."""
    w_left, w_right, _ = constrained_values(left, right, config, rules, is_ordered)
    return value_terms(*left, w_left, config) + value_terms(*right, w_right, config)


def is_sparse_leaf(config, n_outputs):
    """Whether leaves are sparse: as many outputs as there are is a dense leaf."""
    return 0 < config.leaf_k < n_outputs


def largest_sum(terms, k):
    """Float32 (C,): the k largest `terms` (C, K) of each row, added from the largest on."""
    descending = np.sort(terms, axis=1)[:, ::-1]
    total = descending[:, 0]
    for i in range(1, k):
        total = total + descending[:, i]
    return total


def kept_terms(terms, k):
    """`terms` (K,) without those that are not among the k largest, the first ones on ties."""
    kept = np.zeros_like(terms)
    largest = np.argsort(-terms, kind="stable")[:k]
    kept[largest] = terms[largest]
    return kept


def topk_candidates(left, right, pairs, config):
    """Float32 sums (C,) of candidates whose children keep k outputs (GBDT-MO, eq. 21 and 22).

    Terms (C, K) of both sides, and `pairs` of both at once. Each child keeps the k outputs of its
    own that gain most (Algorithm 3), or both keep those that gain most in the two together
    (Algorithm 4). Also returns a function that gives the terms (K,) of one candidate that are kept.
    """
    k = config.leaf_k
    if config.shared_support:
        return largest_sum(pairs, k), lambda c: kept_terms(pairs[c], k)
    scores = largest_sum(left, k) + largest_sum(right, k)
    return scores, lambda c: kept_terms(left[c], k) + kept_terms(right[c], k)


def block_outputs(G, config):
    """Outputs that a node solves for, ascending: the `block_size` of largest |G| (K,), the first on
    ties.

    TFBT, section IV (as AOSO-LogitBoost: Sun, Reid and Zhou, 2012): the others stay as they are.
    """
    n_outputs = len(G)
    size = n_outputs if config.block_size <= 0 else min(config.block_size, n_outputs)
    return np.sort(np.argsort(-np.abs(G), kind="stable")[:size])


def full_sum(G, H, outputs, ridge, least_pivot=MIN_PIVOT):
    """(C,): G' (H + ridge I)^-1 G over `outputs` (TFBT, eq. 7 without the half), by elimination.

    G (C, K), H (C, K (K + 1) / 2), in their dtype throughout. A pivot that has all but vanished
    stands for a direction without curvature (for softmax without ridge: all scores raised alike)
    and adds nothing.
    """
    A, y, diagonal = eliminated(G, H, outputs, ridge, least_pivot)
    total = np.zeros(len(G), G.dtype)
    for j in range(len(outputs)):
        total = total + (y[j] * y[j]) * inverse_pivot(A[j, j], diagonal[j], least_pivot)
    return total


def eliminated(G, H, outputs, ridge, least_pivot):
    """Elimination without exchanges: pivots on the diagonal of A, the right-hand side in y,
    diag(H).
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
    """(C, K): (H + ridge I)^-1 G over `outputs` (TFBT, eq. 6 without the sign), 0 elsewhere."""
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
    """Float32 sum and terms (K,) of the node as one leaf."""
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
    """Float32 score sums (C,), -inf where a child is too small or the sum is NaN; and a function
    that gives the terms (K,) of one of them. `rules`: those of the feature; None: values are free.
    Directions do not matter to what sets all values apart from missing ones, which move nowhere.
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
    """Bool (C,): whether each child has the rows and the curvature it needs."""
    return (count >= max(1, config.min_child_samples)) & (
        mean_hessian(H) >= F32(config.min_child_weight)
    )


def is_worthwhile(best_sum, parent_sum, gain, config):
    """Whether the gain, background_worth over outputs (GBDT-MO, appendix B), passes its threshold
    and is no noise.
    """
    difference = float(best_sum) - float(parent_sum)
    if config.post_prune:
        return np.isfinite(best_sum)
    return gain > config.min_split_gain and difference > GAIN_RESOLUTION * float(best_sum)
