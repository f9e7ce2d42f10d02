"""The NumPy twin of the core: the specification of docs/design.md section 4, slow and obvious.

Owns: the arithmetic of quantisation, scores, split search, growth order and leaf values, bit for bit, and a
small boosting loop on top. Must not know: the polyleaf package, threads, speed. The core equals it exactly;
where the two differ, design.md decides which of them is wrong.

Papers: GBDT-MO is Zhang and Jung, "GBDT-MO: Gradient Boosted Decision Trees for Multiple Outputs"; C-GB is
Emami and Martínez-Muñoz, "Condensed-Gradient Boosting".

Shapes: n rows, n_used in use, F features, K outputs, m curvature channels (0 unit, 1 shared, K diagonal),
C candidate splits. Sums of channels are int64 and exact; scores are float32: scalars are wrapped in `F32`.
"""

from dataclasses import dataclass, field

import numpy as np

F32 = np.float32
MISSING = 255
N_CODES = 256
N_LANES = 16
LARGEST_INTEGER = 32767  # of one quantised derivative: int16 without its lowest value
LARGEST_SUM = 2**31 - 1  # of channels over any set of rows: histograms are int32
SMALLEST_DERIVATIVE = F32(1e-28)  # a column whose largest magnitude is below counts as zero
GAIN_RESOLUTION = 2.0**-20  # relative; below it float32 cannot tell gain from rounding

# -------------------------------------------------------------------------------------- what is passed around


@dataclass(frozen=True)
class GrowConfig:
    """What bounds a tree; the fields of `_core.GrowConfig`. Real ones are float64, rounded where used."""

    max_leaves: int = 31  # at least 1
    max_depth: int = -1  # -1: unlimited
    level_wise: bool = False  # False: best-first (lossguide); True: by level (depthwise)
    reg_lambda: float = 1.0
    reg_alpha: float = 0.0
    min_split_gain: float = 0.0
    min_child_weight: float = 0.0
    min_child_samples: int = 1
    max_delta_step: float = 0.0  # 0: no limit
    max_cat_to_onehot: int = 4
    cat_smooth: float = 10.0
    colsample_bynode: float = 1.0
    seed: int = 0
    post_prune: bool = False  # split whatever the gain, and cut back at the end
    block_size: int = 0  # full curvature: outputs that a node solves for; 0: all
    leaf_k: int = 0  # outputs of a sparse leaf; 0, or as many as there are: all
    shared_support: bool = False  # sparse leaves: the two children of a node hold the same outputs


@dataclass(frozen=True)
class Channels:
    """Quantised derivatives of the rows in use, in the order of `rows`: physical value = integer * step."""

    kind: str  # "unit", "shared", "diagonal" or "full"
    gradients: np.ndarray  # int64 (n_used, K)
    curvatures: np.ndarray  # int64 (n_used, m)
    gradient_steps: np.ndarray  # float32 (K,)
    curvature_steps: np.ndarray  # float32 (m,)

    def dense(self):
        """int64 (n_used, K + m): gradient channels, then curvature channels."""
        return np.hstack([self.gradients, self.curvatures])


@dataclass(frozen=True)
class Sums:
    """Channels summed over a set of rows; the leading axis is the sets (codes of a feature, candidates)."""

    count: np.ndarray  # int64 (C,)
    gradients: np.ndarray  # int64 (C, K)
    curvatures: np.ndarray  # int64 (C, m)

    def parts(self):
        return self.count, self.gradients, self.curvatures

    def __sub__(self, other):
        return Sums(*(mine - its for mine, its in zip(self.parts(), other.parts(), strict=True)))


@dataclass(frozen=True)
class Split:
    """One way to cut a node in two: `goes_left[c]` says where a row of code c goes."""

    feature: int
    threshold: int  # last code that goes left; -1: categorical
    goes_left: np.ndarray  # bool (256,)
    gain: float  # float64, averaged over outputs
    output_gain: np.ndarray  # float32 (K,), parts of gain * K


@dataclass
class Tree:
    """Structure of one tree: the arrays of `_core.Tree`, one entry a node, children after their parent."""

    feature: np.ndarray  # int32, -1: leaf
    threshold: np.ndarray  # int32, last code that goes left; -1: categorical or leaf
    missing_left: np.ndarray  # bool, False for a leaf
    left: np.ndarray  # int32, -1: leaf
    right: np.ndarray  # int32, -1: leaf
    leaf: np.ndarray  # int32, leaf id; -1: inner
    category_set: np.ndarray  # int32, row of `categories`; -1: numeric or leaf
    categories: np.ndarray  # uint64 (n_sets, 4), bit c: code c goes left
    gain: np.ndarray  # float64, 0 for a leaf
    count: np.ndarray  # int64, rows in use
    cover: np.ndarray  # float64, summed curvature, mean over outputs
    output_gain: np.ndarray  # float32 (n_nodes, K), 0 for a leaf

    @property
    def n_nodes(self):
        return len(self.feature)

    @property
    def n_leaves(self):
        return int((self.leaf >= 0).sum())


@dataclass
class Node:
    """A node while its tree grows."""

    positions: np.ndarray  # of its rows among the rows in use
    depth: int
    cover: float  # by the derivatives it was made with
    split: Split | None = None  # the best admissible one; None: the node stays a leaf
    children: tuple[int, ...] = field(default=())


# --------------------------------------------------------------------------------------------------- channels


def quantise(g, h, kind, rows=None, multiplier=None):
    """Integers for float32 gradients `g` (n, K) and curvatures `h` (n, m) or None: a `Channels`.

    m is 1 (shared), K (diagonal) or K (K + 1) / 2 (full: the lower triangle, row after row).

    `rows` (n_used,) are the rows in use (None: all), `multiplier` float32 (n,) their sampling multipliers.
    The unit kind counts a row as 1 whatever its multiplier.
    """
    gradients, gradient_steps = quantise_columns(used(g, rows, multiplier))
    if kind == "unit":
        h = np.empty((len(g), 0), F32)
    curvatures, curvature_steps = quantise_columns(used(h, rows, multiplier))
    return Channels(kind, gradients, curvatures, gradient_steps, curvature_steps)


def used(values, rows, multiplier):
    """Float32 derivatives of the rows in use, times their multipliers."""
    values = np.asarray(values, F32)
    if multiplier is not None:
        values = values * np.asarray(multiplier, F32)[:, None]
    return values if rows is None else values[rows]


def quantise_columns(values):
    """int64 of the same shape as `values` (n_used, m), and float32 steps (m,)."""
    columns = [quantise_column(column) for column in values.T]
    integers = np.array([q for q, _ in columns], np.int64).reshape(values.shape[::-1]).T
    return integers, np.array([step for _, step in columns], F32)


def quantise_column(values):
    """One channel: the largest |value| becomes 32767, less where a sum over all rows could pass int32."""
    largest = np.max(np.abs(values))
    if largest < SMALLEST_DERIVATIVE:
        return np.zeros(len(values), np.int64), F32(0)
    inverse, step = F32(LARGEST_INTEGER) / largest, largest / F32(LARGEST_INTEGER)
    integers = np.rint(values * inverse).astype(np.int64)
    total, shift = int(np.abs(integers).sum()), 0
    while (total >> shift) + len(values) > LARGEST_SUM:
        shift += 1
    if shift > 0:
        inverse, step = inverse * F32(2.0**-shift), step * F32(2.0**shift)
        integers = np.rint(values * inverse).astype(np.int64)
    return integers, step


def histogram(codes, channels):
    """`Sums` of one feature's rows, one set for each of the 256 codes (GBDT-MO, Algorithm 1)."""
    sums = Sums(
        np.bincount(codes, minlength=N_CODES),
        np.zeros((N_CODES, channels.gradients.shape[1]), np.int64),
        np.zeros((N_CODES, channels.curvatures.shape[1]), np.int64),
    )
    np.add.at(sums.gradients, codes, channels.gradients)
    np.add.at(sums.curvatures, codes, channels.curvatures)
    return sums


def take(channels, positions):
    """The channels of some of the rows in use."""
    return Channels(
        channels.kind,
        channels.gradients[positions],
        channels.curvatures[positions],
        channels.gradient_steps,
        channels.curvature_steps,
    )


# ----------------------------------------------------------------------------------------------------- scores


def lane_sum(terms):
    """Sum of float32 `terms` (..., K) over outputs in 16 virtual lanes: the same bits at any vector width."""
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


def gradient_and_curvature(sums, channels):
    """Float32 G (C, K) and H: (C, 1) for unit (the count) and shared, else (C, m)."""
    G = sums.gradients.astype(F32) * channels.gradient_steps
    if channels.kind == "unit":
        return G, sums.count.astype(F32)[:, None]
    return G, sums.curvatures.astype(F32) * channels.curvature_steps


def packed_diagonal(n_outputs):
    """Where entries (i, i) lie in a packed lower triangle."""
    i = np.arange(n_outputs)
    return i * (i + 3) // 2


def diagonal_curvature(H, kind, n_outputs):
    """What each output, or all of them, has for itself: H without what is off the diagonal."""
    return H[..., packed_diagonal(n_outputs)] if kind == "full" else H


def mean_curvature(H):
    """Float32 (C,): H or its mean over outputs, what `min_child_weight` is compared with; also the cover.

    Of a full curvature: its diagonal's.
    """
    return H[:, 0] if H.shape[1] == 1 else lane_sum(H) / F32(H.shape[1])


def divide(numerator, denominator):
    """Float32 quotient, 0 where the denominator is 0: no curvature, no step (as for leaf values)."""
    zero = denominator == 0
    return np.where(zero, F32(0), numerator / np.where(zero, F32(1), denominator))


def is_regularised(config):
    """Whether the leaf problem has more than a ridge penalty, so that the gain needs the leaf value."""
    return config.reg_alpha > 0 or config.max_delta_step > 0


def regularised_terms(G, H, config):
    """Float32 (C, K): twice the loss that a thresholded, clipped leaf value removes; H includes lambda."""
    t = np.sign(G) * np.maximum(np.abs(G) - F32(config.reg_alpha), F32(0))
    w = divide(t, H)
    if config.max_delta_step > 0:
        w = np.clip(w, -F32(config.max_delta_step), F32(config.max_delta_step))
    return F32(2) * t * w - H * w * w


def leaf_terms(G, H, kind, config):
    """Float32 (C, K): minus twice the objective of one leaf, G^2 / (H + lambda) (GBDT-MO, eq. 7 and 15)."""
    H = H + F32(config.reg_lambda)
    if is_regularised(config):
        return regularised_terms(G, H, config)
    return divide(G * G, H) if kind == "diagonal" else (G * G) * divide(F32(1), H)


def split_terms(G_left, H_left, G_right, H_right, kind, config):
    """Float32 (C, K): what each output adds to a split's score sum (GBDT-MO, eq. 16 without the parent)."""
    if is_regularised(config) or kind != "diagonal":
        return leaf_terms(G_left, H_left, kind, config) + leaf_terms(G_right, H_right, kind, config)
    a, b = H_left + F32(config.reg_lambda), H_right + F32(config.reg_lambda)
    return divide((G_left * G_left) * b + (G_right * G_right) * a, a * b)


def keeps_few(config, n_outputs):
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


def sparse_candidates(left, right, pairs, config):
    """Float32 sums (C,) of candidates whose children keep k outputs (GBDT-MO, eq. 21 and 22).

    Terms (C, K) of both sides, and `pairs` of both at once. Each child keeps the k outputs of its own that
    gain most (Algorithm 3), or both keep those that gain most in the two together (Algorithm 4). Also returns
    a function that gives the terms (K,) of one candidate that are kept.
    """
    k = config.leaf_k
    if config.shared_support:
        return largest_sum(pairs, k), lambda c: kept_terms(pairs[c], k)
    return largest_sum(left, k) + largest_sum(
        right, k
    ), lambda c: kept_terms(left[c], k) + kept_terms(right[c], k)


LEAST_PIVOT = F32(
    2.0**-13
)  # relative to its diagonal entry; below, a direction counts as having no curvature


LEAST_LEAF_PIVOT = 2.0**-20  # the same for leaf values, in float64


def block_outputs(G, config):
    """Outputs that a node solves for, ascending: the `block_size` of largest |G| (K,), the first on ties.

    TFBT, section IV (as AOSO-LogitBoost: Sun, Reid and Zhou, 2012): the others stay as they are.
    """
    n_outputs = len(G)
    size = n_outputs if config.block_size <= 0 else min(config.block_size, n_outputs)
    return np.sort(np.argsort(-np.abs(G), kind="stable")[:size])


def full_sum(G, H, outputs, ridge, least_pivot=LEAST_PIVOT):
    """(C,): G' (H + ridge I)^-1 G over `outputs` (TFBT, eq. 7 without the half), by elimination.

    G (C, K), H (C, K (K + 1) / 2), in their dtype throughout. A pivot that has all but vanished stands for a
    direction without curvature (for softmax without ridge: all scores raised alike) and adds nothing.
    """
    A, y, diagonal = eliminated(G, H, outputs, ridge, least_pivot)
    total = np.zeros(len(G), G.dtype)
    for j in range(len(outputs)):
        total = total + (y[j] * y[j]) * inverse_pivot(A[j, j], diagonal[j], least_pivot)
    return total


def eliminated(G, H, outputs, ridge, least_pivot):
    """Elimination without exchanges: pivots on the diagonal of A, the right-hand side in y, diag(H)."""
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


def full_solution(G, H, outputs, ridge, least_pivot=LEAST_PIVOT):
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


# ------------------------------------------------------------------------------------------------- candidates


def numeric_candidates(counts, n_bins):
    """Bool (C, 256), which codes go left: by bin, missing right first, then left where the node has any."""
    below = np.tri(n_bins, N_CODES, dtype=bool)  # row b: codes <= b
    if counts[MISSING] == 0:
        return below
    candidates = np.repeat(below, 2, axis=0)
    candidates[1::2, MISSING] = True
    return candidates


def categorical_candidates(sums, channels, config):
    """Bool (C, 256), the codes that go left: each category alone if few, else prefixes of an order."""
    present = np.flatnonzero(sums.count)
    if len(present) <= config.max_cat_to_onehot:
        groups = [[code] for code in present]
    else:
        order = present[np.argsort(category_positions(sums, channels, config), kind="stable")]
        groups = [order[:size] for size in range(1, len(order))]
    candidates = np.zeros((len(groups), N_CODES), bool)
    for candidate, group in zip(candidates, groups, strict=True):
        candidate[group] = True
    return candidates


def category_positions(sums, channels, config):
    """Float64 (n_present,): where each category with rows lies on the line along which leaf values vary most.

    For one output that is the leaf value itself (Fisher's order, exact for squared error); for more, the
    first principal coordinate of the categories' leaf values weighted by count, by eight power iterations.
    """
    n = sums.count[sums.count > 0].astype(np.float64)
    d = category_deviations(sums, channels, config)
    if d.shape[1] == 1:
        return d[:, 0]
    u = d[np.argmax(n * ordered_sum((d * d).T))]
    for _ in range(8):
        weight = n * ordered_sum((d * u).T)
        longer = ordered_sum(weight[:, None] * d)
        largest = np.max(np.abs(longer))
        if largest == 0:
            break
        u = longer / largest
    return ordered_sum((d * u).T)


def category_deviations(sums, channels, config):
    """Float64 (n_present, K): smoothed G / H of each category, less the mean over rows."""
    present = sums.count > 0
    n = sums.count[present].astype(np.float64)
    G = sums.gradients[present] * channels.gradient_steps.astype(np.float64)
    H = n[:, None]
    if channels.kind != "unit":
        H = sums.curvatures[present] * channels.curvature_steps.astype(np.float64)
        H = diagonal_curvature(H, channels.kind, G.shape[1])
    H = H + config.cat_smooth
    r = np.where(H == 0, 0.0, G / np.where(H == 0, 1.0, H))
    return r - ordered_sum(n[:, None] * r) / ordered_sum(n)


def ordered_sum(terms):
    """Float64 sum over the first axis, one after the other (NumPy's own sum adds in pairs)."""
    return np.cumsum(terms, axis=0)[-1]


# ----------------------------------------------------------------------------------------------- split search


@dataclass(frozen=True)
class Candidate:
    """The best way to cut a node by some features, admissible or not."""

    sum: np.float32  # score sum of both children
    feature: int
    threshold: int  # last code that goes left; -1: categorical
    goes_left: np.ndarray  # bool (256,)
    terms: np.ndarray  # float32 (K,), parts of the sum


@np.errstate(over="ignore", invalid="ignore", divide="ignore")
def best_candidate(codes, n_bins, is_categorical, channels, config, features):
    """The `Candidate` of largest sum, the first feature on ties; None where children are always too small.

    `codes` (F, n_node) are the feature codes of the rows of `channels`, `features` those allowed, ascending.
    """
    best = None
    for f in features:
        sums = histogram(codes[f], channels)
        if is_categorical[f]:
            candidates = categorical_candidates(sums, channels, config)
        else:
            candidates = numeric_candidates(sums.count, int(n_bins[f]))
        scores, terms = score_candidates(sums, candidates, channels, config)
        if len(scores) == 0 or not scores.max() > (-np.inf if best is None else best.sum):
            continue
        c = int(scores.argmax())
        goes_left = with_default_direction(candidates[c], sums.count)
        threshold = -1 if is_categorical[f] else int(candidates[c, :MISSING].sum()) - 1
        best = Candidate(scores[c], int(f), threshold, goes_left, terms(c))
    return best


@np.errstate(over="ignore", invalid="ignore", divide="ignore")
def best_split(codes, n_bins, is_categorical, channels, config, features):
    """The best admissible `Split` of the rows of `channels`, or None (GBDT-MO, Algorithm 2)."""
    best = best_candidate(codes, n_bins, is_categorical, channels, config, features)
    if best is None:
        return None
    parent_sum, parent_terms = parent_score(channels, config)
    gain = 0.5 * (float(best.sum) - float(parent_sum)) / len(parent_terms)
    if not is_worthwhile(best.sum, parent_sum, gain, config):
        return None
    output_gain = F32(0.5) * (best.terms - parent_terms)
    return Split(best.feature, best.threshold, best.goes_left, gain, output_gain)


def parent_score(channels, config):
    """Float32 sum and terms (K,) of the node as one leaf."""
    G, H = gradient_and_curvature(total(channels), channels)
    if channels.kind == "full":
        outputs = block_outputs(G[0], config)
        ridge = F32(config.reg_lambda)
        return full_sum(G, H, outputs, ridge)[0], (G * full_solution(G, H, outputs, ridge))[0]
    terms = leaf_terms(G, H, channels.kind, config)
    if keeps_few(config, terms.shape[1]):
        return largest_sum(terms, config.leaf_k)[0], kept_terms(terms[0], config.leaf_k)
    return lane_sum(terms)[0], terms[0]


def total(channels):
    """`Sums` of one set: all rows."""
    return Sums(
        np.array([len(channels.gradients)]),
        channels.gradients.sum(axis=0, keepdims=True),
        channels.curvatures.sum(axis=0, keepdims=True),
    )


def score_candidates(sums, candidates, channels, config):
    """Float32 score sums (C,), -inf where a child is too small or the sum is NaN; and a function that gives
    the terms (K,) of one of them."""
    present = sums.count > 0
    left = Sums(*(candidates[:, present].astype(np.int64) @ part[present] for part in sums.parts()))
    right = total(channels) - left
    G_left, H_left = gradient_and_curvature(left, channels)
    G_right, H_right = gradient_and_curvature(right, channels)
    if channels.kind == "full":
        G_parent, _ = gradient_and_curvature(total(channels), channels)
        outputs, ridge = block_outputs(G_parent[0], config), F32(config.reg_lambda)
        scores = full_sum(G_left, H_left, outputs, ridge) + full_sum(G_right, H_right, outputs, ridge)

        def terms(c):
            sides = [(G_left[c : c + 1], H_left[c : c + 1]), (G_right[c : c + 1], H_right[c : c + 1])]
            one, other = (G * full_solution(G, H, outputs, ridge) for G, H in sides)
            return (one + other)[0]
    else:
        all_terms = split_terms(G_left, H_left, G_right, H_right, channels.kind, config)
        scores, terms = lane_sum(all_terms), all_terms.__getitem__
        if keeps_few(config, all_terms.shape[1]):
            sides = (
                leaf_terms(G, H, channels.kind, config) for G, H in ((G_left, H_left), (G_right, H_right))
            )
            finite = np.isfinite(scores)
            scores, terms = sparse_candidates(*sides, all_terms, config)
            scores = np.where(finite, scores, -F32(np.inf))
    own = [diagonal_curvature(H, channels.kind, G_left.shape[1]) for H in (H_left, H_right)]
    allowed = is_large_enough(left.count, own[0], config) & is_large_enough(right.count, own[1], config)
    return np.where(allowed & ~np.isnan(scores), scores, -F32(np.inf)), terms


def is_large_enough(count, H, config):
    """Bool (C,): whether each child has the rows and the curvature it needs."""
    return (count >= max(1, config.min_child_samples)) & (mean_curvature(H) >= F32(config.min_child_weight))


def is_worthwhile(best_sum, parent_sum, gain, config):
    """Whether the gain, averaged over outputs (GBDT-MO, appendix B), passes its threshold and is no noise."""
    difference = float(best_sum) - float(parent_sum)
    if config.post_prune:
        return np.isfinite(best_sum)
    return gain > config.min_split_gain and difference > GAIN_RESOLUTION * float(best_sum)


def with_default_direction(goes_left, counts):
    """The candidate, with missing sent to the larger child (left on a tie) when the node has none."""
    if counts[MISSING] == 0:
        n_left = counts[goes_left].sum()
        goes_left = goes_left.copy()
        goes_left[MISSING] = n_left >= counts.sum() - n_left
    return goes_left


def node_features(allowed, node, config):
    """Features `node` may use, ascending: ceil(colsample_bynode * m) of the m allowed, by smallest hash."""
    n_kept = int(np.ceil(config.colsample_bynode * len(allowed)))
    return sorted(sorted(allowed, key=lambda f: (feature_hash(config.seed, node, f), f))[:n_kept])


def feature_hash(seed, node, feature):
    """uint64: the finaliser of splitmix64 (Steele, Lea and Flood, 2014) on a mix of its arguments."""
    mask = 2**64 - 1
    z = (int(seed) + 0x9E3779B97F4A7C15 * (node + 1) + 0xD1B54A32D192ED03 * (int(feature) + 1)) & mask
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
    return z ^ (z >> 31)


# ----------------------------------------------------------------------------------------------------- growth


def next_batch(gains, n_leaves, config):
    """Which frontier nodes are split next, given gains by node id (GBDT-MO, section III-E, Algorithm 5)."""
    ranked = sorted(gains, key=lambda node: (-gains[node], node))
    room = config.max_leaves - n_leaves
    leaves_cannot_bind = config.max_depth >= 0 and config.max_leaves >= 2**config.max_depth
    if config.level_wise or leaves_cannot_bind:
        return sorted(ranked[:room])
    return ranked[: min(1, room)]


class ChannelSearch:
    """Best splits from channels that a row keeps in every node (the core's HistogramSearch)."""

    def __init__(self, data, channels, config):
        self.data, self.channels, self.config = data, channels, config
        self.n_outputs = len(channels.gradient_steps)

    def cover(self, positions, parent):
        """Summed curvature of rows that the split of node `parent` (None: the root) has put together."""
        return cover_of(take(self.channels, positions))

    def look(self, i, positions, may_use):
        """The best `Split` of node `i`, or None."""
        codes, n_bins, is_categorical = self.data
        of_node = take(self.channels, positions)
        return best_split(codes[:, positions], n_bins, is_categorical, of_node, self.config, may_use)

    def divide(self, i, split, children):
        """Node `i` was split; `children` are two pairs (id, positions), left first."""


def grow(codes, n_bins, is_categorical, channels, config, rows=None, features=None, renew=None):
    """Grow one `Tree` (GBDT-MO, Algorithm 5).

    `codes` uint8 (F, n), `channels` of the `rows` in use (None: all), or a search of another kind (a class
    like `ChannelSearch`, on its own codes), `features` bool (F,): allowed. `renew(nodes)` gives new channels
    after every batch of splits, before the new nodes are looked at (TFBT, section V).
    """
    codes = codes if rows is None else codes[:, rows]
    allowed = np.arange(len(codes)) if features is None else np.flatnonzero(features)
    data = codes, n_bins, is_categorical
    search = channels if hasattr(channels, "look") else ChannelSearch(data, channels, config)

    def make_node(positions, depth, parent):
        return Node(positions, depth, search.cover(positions, parent))

    def look_at(i):
        if nodes[i].depth != config.max_depth:
            nodes[i].split = search.look(i, nodes[i].positions, node_features(allowed, i, config))

    nodes, order = [make_node(np.arange(codes.shape[1]), 0, None)], []
    look_at(0)
    while True:
        gains = {i: v.split.gain for i, v in enumerate(nodes) if v.split is not None and not v.children}
        batch = next_batch(gains, len(order) + 1, config)
        if not batch:
            if config.post_prune:
                nodes, order = pruned(nodes, order, config)
            return to_tree(nodes, order, search.n_outputs)
        first = len(nodes)
        for i in batch:
            parent = nodes[i]
            goes_left = parent.split.goes_left[codes[parent.split.feature, parent.positions]]
            parent.children = (len(nodes), len(nodes) + 1)
            for side in (goes_left, ~goes_left):
                nodes.append(make_node(parent.positions[side], parent.depth + 1, i))
            search.divide(i, parent.split, [(c, nodes[c].positions) for c in parent.children])
            order.append(i)
        if renew is not None:
            search = ChannelSearch(data, renew(nodes), config)
        for i in range(first, len(nodes)):
            look_at(i)


def cover_of(channels):
    """Float64: summed curvature of all rows of `channels`, mean over outputs."""
    H = gradient_and_curvature(total(channels), channels)[1]
    return float(mean_curvature(diagonal_curvature(H, channels.kind, len(channels.gradient_steps)))[0])


def pruned(nodes, order, config):
    """The nodes that remain, and their order of splitting, where subtrees gain nothing (TFBT, eq. 8).

    A subtree is worth the gains of its splits, each less `min_split_gain`; it is cut where that is not above
    0. Nodes keep their order.
    """
    worth = [0.0] * len(nodes)
    for i in reversed(range(len(nodes))):
        if nodes[i].children:
            left, right = nodes[i].children
            worth[i] = (nodes[i].split.gain - config.min_split_gain) + (worth[left] + worth[right])
            if not worth[i] > 0:
                worth[i], nodes[i].children = 0.0, ()
    kept = [0]
    for i in kept:  # grows on the way
        kept.extend(nodes[i].children)
    kept.sort()
    number = {old: new for new, old in enumerate(kept)}
    for i in kept:
        nodes[i].children = tuple(number[c] for c in nodes[i].children)
    split = [number[i] for i in order if i in number and nodes[i].children]
    return [nodes[i] for i in kept], split


def to_tree(nodes, order, n_outputs):
    """The grown `nodes` as arrays; `order` lists the split nodes as they were split."""
    tree = empty_tree(len(nodes), n_outputs)
    for i, node in enumerate(nodes):
        tree.count[i] = len(node.positions)
        tree.cover[i] = node.cover
    sets = []
    for i in order:
        split = nodes[i].split
        tree.feature[i], tree.threshold[i] = split.feature, split.threshold
        tree.missing_left[i] = split.goes_left[MISSING]
        tree.left[i], tree.right[i] = nodes[i].children
        tree.gain[i], tree.output_gain[i] = split.gain, split.output_gain
        if split.threshold < 0:
            tree.category_set[i] = len(sets)
            sets.append(category_words(split.goes_left))
    tree.categories = np.array(sets, np.uint64).reshape(-1, 4)
    is_leaf = tree.feature < 0
    tree.leaf[is_leaf] = np.arange(is_leaf.sum())
    return tree


def empty_tree(n_nodes, n_outputs):
    """A `Tree` whose nodes are all unnumbered leaves."""
    none = np.full(n_nodes, -1, np.int32)
    return Tree(
        feature=none.copy(),
        threshold=none.copy(),
        missing_left=np.zeros(n_nodes, bool),
        left=none.copy(),
        right=none.copy(),
        leaf=none.copy(),
        category_set=none.copy(),
        categories=np.empty((0, 4), np.uint64),
        gain=np.zeros(n_nodes),
        count=np.zeros(n_nodes, np.int64),
        cover=np.zeros(n_nodes),
        output_gain=np.zeros((n_nodes, n_outputs), F32),
    )


def category_words(goes_left):
    """Four uint64, bit c: code c goes left. The bit of the missing code stays 0: `missing_left` tells."""
    words = [0, 0, 0, 0]
    for code in np.flatnonzero(goes_left[:MISSING]):
        words[code // 64] |= 1 << (int(code) % 64)
    return words


def leaf_of_row(tree, codes):
    """int32 (n,): the leaf id that each column of `codes` (F, n) reaches."""
    node = np.zeros(codes.shape[1], np.int64)
    for i in range(tree.n_nodes):  # children come after their parent
        if tree.feature[i] >= 0:
            here = np.flatnonzero(node == i)
            left = goes_left_table(tree, i)[codes[tree.feature[i], here]]
            node[here] = np.where(left, tree.left[i], tree.right[i])
    return tree.leaf[node]


def goes_left_table(tree, i):
    """Bool (256,): which codes go left at inner node `i`, read back from the arrays."""
    if tree.category_set[i] < 0:
        table = np.arange(N_CODES) <= tree.threshold[i]
    else:
        words = tree.categories[tree.category_set[i]]
        table = np.array([bool(int(words[c // 64]) >> (c % 64) & 1) for c in range(N_CODES)])
    table[MISSING] = tree.missing_left[i]
    return table


# ------------------------------------------------------------------------------------------------ leaf values


def leaf_sums(values, leaves, n_leaves):
    """Float64 (n_leaves, m): float32 `values` (n_used, m) summed by leaf in 30-bit fixed point: no order."""
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


def newton_leaves(
    g,
    h,
    leaf_of_row,
    n_leaves,
    reg_lambda=1.0,
    reg_alpha=0.0,
    max_delta_step=0.0,
    learning_rate=1.0,
    rows=None,
    multiplier=None,
    block_size=0,
):
    """Float32 (n_leaves, K): one Newton step a leaf and output (GBDT-MO, eq. 15; C-GB, eq. 13; TFBT, eq. 6).

    `g` float32 (n, K), `h` (n, 1), (n, K), (n, K (K + 1) / 2) or None: curvature 1, times the multiplier like
    any other. With the triangle a leaf solves for its `block_size` outputs of largest |G| (0: all).
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
            w[one] = -full_solution(G[one], H[one], outputs, reg_lambda, LEAST_LEAF_PIVOT)
        return (w * learning_rate).astype(F32)
    H = H + reg_lambda
    t = np.sign(G) * np.maximum(np.abs(G) - reg_alpha, 0.0)
    w = np.where(H == 0, 0.0, -t / np.where(H == 0, 1.0, H))
    if max_delta_step > 0:
        w = np.clip(w, -max_delta_step, max_delta_step)
    return (w * learning_rate).astype(F32)


def sparse_leaves(g, h, leaf_of_row, tree, config, learning_rate=1.0, rows=None, multiplier=None):
    """`SparseLeaves` with the `leaf_k` outputs whose Newton step removes most loss (GBDT-MO, eq. 19).

    `config.shared_support`: the two children of a node hold those that gain most in both together (Algorithm
    4). An output without gain is not held. Arguments as for `newton_leaves`, `h` not full; all in float64.
    """
    h = np.ones((len(g), 1), F32) if h is None else h
    leaves = leaf_of_row if rows is None else leaf_of_row[rows]
    G, H = (node_sums(tree, leaf_sums(used(x, rows, multiplier), leaves, tree.n_leaves)) for x in (g, h))
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
    return SparseLeaves(indptr, np.concatenate(outputs), np.concatenate(values), g.shape[1])


def node_sums(tree, leaves):
    """Float64 (n_nodes, m) of the sums (n_leaves, m) of leaves; multiples of one unit, so exact."""
    sums = np.zeros((tree.n_nodes, leaves.shape[1]))
    for i in reversed(range(tree.n_nodes)):
        inner = tree.leaf[i] < 0
        sums[i] = sums[tree.left[i]] + sums[tree.right[i]] if inner else leaves[tree.leaf[i]]
    return sums


def newton_steps(G, H, config):
    """Float64 (C, K): the step of each output, and by how much it lowers twice the loss (GBDT-MO, eq. 20)."""
    c = H + config.reg_lambda
    t = np.maximum(np.abs(G) - config.reg_alpha, 0.0)
    size = np.where(c > 0, t / np.where(c > 0, c, 1.0), 0.0)
    if config.max_delta_step > 0:
        size = np.minimum(size, config.max_delta_step)
    return np.where(G > 0, -size, size), (2.0 * t - c * size) * size


# ---------------------------------------------------------------------------------------------- leaf payloads


@dataclass(frozen=True)
class SparseLeaves:
    """Leaves that hold some outputs; leaf l has the entries `indptr[l] .. indptr[l + 1] - 1`."""

    indptr: np.ndarray  # int64 (n_leaves + 1,)
    outputs: np.ndarray  # int32 (n_entries,), ascending in each leaf
    values: np.ndarray  # float32 (n_entries,)
    n_outputs: int


@dataclass(frozen=True)
class LinearLeaves:
    """Leaves that are linear in a few raw features."""

    indptr: np.ndarray  # int64 (n_leaves + 1,)
    features: np.ndarray  # int32 (n_entries,), ascending in each leaf
    weights: np.ndarray  # float32 (n_entries, K)
    centre: np.ndarray  # float32 (n_entries,)
    intercept: np.ndarray  # float32 (n_leaves, K)
    lower: np.ndarray  # float32 (n_leaves, K), -inf: no bound
    upper: np.ndarray  # float32 (n_leaves, K), inf: no bound

    @property
    def n_outputs(self):
        return self.intercept.shape[1]


def payloads(leaves, leaf_of_row, features=None):
    """Float32 (n, K): what each row's leaf adds to its raw scores.

    `leaves` is a matrix (n_leaves, K), a `SparseLeaves` or a `LinearLeaves`, which reads `features`, float32
    (n_features, n), NaN where missing.
    """
    if isinstance(leaves, np.ndarray):
        return leaves[leaf_of_row]
    if hasattr(leaves, "outputs"):
        rows = [sparse_payload(leaves, leaf) for leaf in leaf_of_row]
    else:
        rows = [linear_payload(leaves, leaf, features[:, i]) for i, leaf in enumerate(leaf_of_row)]
    return np.array(rows, F32).reshape(len(leaf_of_row), leaves.n_outputs)


def sparse_payload(leaves, leaf):
    """Float32 (K,), 0 for the outputs that the leaf does not hold."""
    entries = slice(leaves.indptr[leaf], leaves.indptr[leaf + 1])
    payload = np.zeros(leaves.n_outputs, F32)
    payload[leaves.outputs[entries]] = leaves.values[entries]
    return payload


@np.errstate(over="ignore", invalid="ignore")
def linear_payload(leaves, leaf, x):
    """Float32 (K,): the leaf's linear function of one row x, held within its bounds (GBDT-PL, section 4)."""
    payload = leaves.intercept[leaf].copy()
    for e in range(leaves.indptr[leaf], leaves.indptr[leaf + 1]):
        value = x[leaves.features[e]]
        shift = F32(0) if np.isnan(value) else value - leaves.centre[e]
        payload += leaves.weights[e] * shift
    payload = np.where(np.isnan(payload), leaves.intercept[leaf], payload)  # inf - inf
    largest = np.finfo(F32).max
    return np.clip(np.clip(payload, leaves.lower[leaf], leaves.upper[leaf]), -largest, largest)


def holds(leaves, leaf_of_row, n_outputs, output=-1):
    """Bool (n, n_outputs): the outputs that each row's leaf has a say in."""
    held = np.zeros((len(leaf_of_row), n_outputs), bool)
    for i, leaf in enumerate(leaf_of_row):
        if hasattr(leaves, "outputs"):
            held[i, leaves.outputs[leaves.indptr[leaf] : leaves.indptr[leaf + 1]]] = True
        else:
            held[i, slice(None) if output < 0 else output] = True
    return held


def top_outputs(scores, takes_part, k):
    """The k outputs of each row with the highest scores, ties by number, and these scores.

    int32 and float64 (n, k); -1 and -inf where there are fewer. `scores` is float64 (n, K); only outputs with
    `takes_part` (n, K) are ranked.
    """
    outputs, best = np.full((len(scores), k), -1, np.int32), np.full((len(scores), k), -np.inf)
    for i, row in enumerate(scores):
        ranked = sorted(np.flatnonzero(takes_part[i]), key=lambda output: (-row[output], output))[:k]
        outputs[i, : len(ranked)], best[i, : len(ranked)] = ranked, row[ranked]
    return outputs, best


# --------------------------------------------------------------------------------------------------- sketches

ROWS_OF_ENERGY = 2048  # rows whose squares are summed before they join the total
ROWS_OF_PRODUCT, PARTS_OF_PRODUCT = 1024, 16  # least rows, and most parts, of a transposed product


def random_sign(seed, k, j):
    """+1 or -1 for output k and column j: one bit of a hash of (seed, k, j // 64)."""
    return F32(1 - 2 * (feature_hash(seed, k, j // 64) >> (j % 64) & 1))


def bucket_and_sign(seed, k, n_buckets):
    """Where count-sketch puts output k, and with which sign (Charikar, Chen and Farach-Colton, 2002)."""
    z = feature_hash(seed, k, 0)
    return (z >> 32) * n_buckets >> 32, F32(1 - 2 * (z & 1))


def project(values, matrix, scale):
    """Float32 (n, d): `values` (n, K) times `matrix` (K, d), terms in order of k from +0; times `scale`."""
    out = np.zeros((len(values), matrix.shape[1]), F32)
    for k in range(values.shape[1]):
        out = out + values[:, k : k + 1] * matrix[k]
    return out * F32(scale)


def signed_projection(values, d, seed, scale):
    """`project` on random signs (Achlioptas, 2003)."""
    signs = [[random_sign(seed, k, j) for j in range(d)] for k in range(values.shape[1])]
    return project(values, np.array(signs, F32), scale)


def count_sketch(values, d, seed, scale):
    """Float32 (n, d): every output is added to one bucket with a sign, in order of k; then times `scale`."""
    out = np.zeros((len(values), d), F32)
    for k in range(values.shape[1]):
        bucket, sign = bucket_and_sign(seed, k, d)
        out[:, bucket] = out[:, bucket] + values[:, k] * sign
    return out * F32(scale)


def column_energy(values):
    """Float64 (K,): sums of squares, row after row within blocks, block after block."""
    total = np.zeros(values.shape[1])
    for start in range(0, len(values), ROWS_OF_ENERGY):
        part = np.zeros(values.shape[1])
        for row in values[start : start + ROWS_OF_ENERGY].astype(np.float64):
            part = part + row * row
        total = total + part
    return total


def row_means(values):
    """Float32 (n, 1): mean over outputs in virtual lanes."""
    return (lane_sum(values) * F32(1.0 / values.shape[1]))[:, None]


def orthonormal(matrix):
    """Gram-Schmidt, twice, in float64; a column that depends on those before it becomes 0."""
    q = matrix.astype(np.float64).copy()
    for j in range(q.shape[1]):
        before = np.sqrt(ordered_dot(q[:, j], q[:, j]))
        for _ in range(2):
            for i in range(j):
                q[:, j] = q[:, j] - ordered_dot(q[:, i], q[:, j]) * q[:, i]
        after = np.sqrt(ordered_dot(q[:, j], q[:, j]))
        q[:, j] = q[:, j] * (1.0 / after) if after > 1e-6 * before else 0.0
    return q


def ordered_dot(a, b):
    """Float64 sum of products, one after the other."""
    total = np.float64(0)
    for x, y in zip(a, b, strict=True):
        total = total + x * y
    return total


def transposed_product(values, factors):
    """Float64 (K, d): values' times factors; float32 in order of row within parts, float64 over the parts."""
    n = len(values)
    size = max(ROWS_OF_PRODUCT, -(-n // PARTS_OF_PRODUCT))
    total = np.zeros((values.shape[1], factors.shape[1]))
    for start in range(0, n, size):
        part = np.zeros(total.shape, F32)
        for row, factor in zip(values[start : start + size], factors[start : start + size], strict=True):
            part = part + np.outer(row, factor)
        total = total + part
    return total


def subspace_projection(values, d, seed, n_iterations, scale):
    """`project` on a basis of the leading right singular vectors: subspace iteration (Halko et al., 2011)."""
    n_outputs = values.shape[1]
    signs = [[random_sign(seed, k, j) for j in range(d)] for k in range(n_outputs)]
    basis = orthonormal(np.array(signs, F32))
    for _ in range(n_iterations):
        factors = project(values, basis.astype(F32), 1)
        basis = orthonormal(transposed_product(values, factors))
    return project(values, basis.astype(F32), scale)


# --------------------------------------------------------------------------------------------------- boosting


def squared_error(y, score):
    """Gradient (n, K) and curvature of (score - y)^2 / 2: constant, so None."""
    return score - y, None


def logistic(y, score):
    """Gradient and curvature (n, K) of the log loss of indicators y (n, K)."""
    p = 1 / (1 + np.exp(-score))
    return p - y, p * (1 - p)


def softmax(y, score):
    """Gradient and curvature (n, K) of the cross-entropy of one-hot y; K / (K - 1) is from C-GB, eq. 13."""
    p = np.exp(score - score.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    return p - y, p * (1 - p) * (y.shape[1] / (y.shape[1] - 1))


def packed(H):
    """(n, K (K + 1) / 2): the lower triangles of `H` (n, K, K), row by row."""
    return H[:, *np.tril_indices(H.shape[1])]


def softmax_hessian(p):
    """Float32 diag(p) - p p', packed, of float32 probabilities (n, K), floored on the diagonal.

    1 - p is the sum of the probabilities before and of those after, each in order from its end.
    """
    before, after = np.zeros_like(p), np.zeros_like(p)
    before[:, 1:] = np.cumsum(p, axis=1)[:, :-1]
    after[:, :-1] = np.cumsum(p[:, ::-1], axis=1)[:, ::-1][:, 1:]
    H = -(p[:, :, None] * p[:, None, :])
    return with_diagonal(H, p * (before + after))


def exponential_hessian(e, label, n_classes):
    """Float32 e v v', packed, of the losses e (n,): v is 1 - 1/K for the class of a row, -1/K elsewhere."""
    other = F32(1) / F32(n_classes)
    own = F32(1) - other
    is_own = np.arange(n_classes) == label[:, None]
    pair = np.where(is_own[:, :, None] | is_own[:, None, :], -(own * other), other * other)
    diagonal = np.where(is_own, own * own, other * other)
    return with_diagonal(pair * e[:, None, None], diagonal * e[:, None])


def margin_hessian(e, total, label):
    """Float32, packed, of the factors e (n, K) of the other classes and their sums `total` (n,)."""
    rows, n_classes = np.arange(len(e)), e.shape[1]
    H = np.zeros((len(e), n_classes, n_classes), F32)
    H[rows, label] = H[rows, :, label] = F32(-0.25) * e
    diagonal = F32(0.25) * e
    diagonal[rows, label] = F32(0.25) * total
    return with_diagonal(H, diagonal)


def with_diagonal(H, diagonal):
    """`H` (n, K, K) with that diagonal (n, K), floored as curvatures are, packed."""
    i = np.arange(H.shape[1])
    H[:, i, i] = np.maximum(diagonal, F32(1e-16))
    return packed(H)


def fit_tree(codes, n_bins, is_categorical, g, h, kind, config, learning_rate):
    """One tree: structure from `kind` channels, leaf values from all of g and h (C-GB, Algorithm 1).

    Returns the tree, the leaf id of each row, and the leaf values float32 (n_leaves, K).
    """
    tree = grow(codes, n_bins, is_categorical, quantise(g, h, kind), config)
    leaves = leaf_of_row(tree, codes)
    penalties = config.reg_lambda, config.reg_alpha, config.max_delta_step
    return tree, leaves, newton_leaves(g, h, leaves, tree.n_leaves, *penalties, learning_rate)


def fit_tree_by_layers(codes, n_bins, is_categorical, derivatives, raw, kind, config, learning_rate):
    """One tree whose every layer is a step of boosting (TFBT, section V).

    `derivatives(raw)` gives g and h at raw scores float32 (n, K). The children that a layer makes take a step
    by the derivatives that their split was found with, and add it to what their ancestors gave; then
    derivatives are renewed and the children are looked at. The root takes no step, unless it cannot be split
    at all.

    Returns the tree, the leaf id of each row, and the leaf values float32 (n_leaves, K): the sums of steps.
    """
    penalties = config.reg_lambda, config.reg_alpha, config.max_delta_step, learning_rate
    block = {"block_size": config.block_size}
    g, h = derivatives(raw)
    given = {}  # rows of a node -> sum of the steps down to it

    def renew(nodes):
        nonlocal g, h
        leaves = [i for i, node in enumerate(nodes) if not node.children]
        leaf_of = np.empty(len(raw), np.int64)
        for leaf, i in enumerate(leaves):
            leaf_of[nodes[i].positions] = leaf
        steps = newton_leaves(g, h, leaf_of, len(leaves), *penalties, **block)
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
        return tree, leaf_of, newton_leaves(g, h, leaf_of, 1, *penalties, **block)
    values = [given[np.flatnonzero(leaf_of == leaf).tobytes()] for leaf in range(tree.n_leaves)]
    return tree, leaf_of, np.array(values)


def boost(data, y, derivatives, kind, config, n_rounds, learning_rate=0.1, base=0.0, fit_tree=fit_tree):
    """Train; returns scores float64 (n_rounds + 1, n, K), those before and after each round, and the trees.

    `data` is (codes, n_bins, is_categorical). `kind` "unit" makes it C-GB, "diagonal" GBDT-MO.
    """
    raw, scores, trees = np.zeros(y.shape, F32), [np.zeros(y.shape) + base], []
    for _ in range(n_rounds):
        g, h = derivatives(y, scores[-1])
        g, h = g.astype(F32), None if h is None else h.astype(F32)
        tree, leaves, values = fit_tree(*data, g, h, kind, config, learning_rate)
        raw = raw + values[leaves]
        scores.append(raw.astype(np.float64) + base)
        trees.append(tree)
    return np.array(scores), trees


# -------------------------------------------------------------------------------------------- sparse products

RUN_OF_PRODUCT = 256  # stored terms that are summed before they join the total


def csr_product(indptr, indices, data, matrix):
    """Float32 (n, d): CSR rows times `matrix` (m, d), in stored order, run after run."""
    out = np.zeros((len(indptr) - 1, matrix.shape[1]), F32)
    for i in range(len(out)):
        for start in range(indptr[i], indptr[i + 1], RUN_OF_PRODUCT):
            part = np.zeros(matrix.shape[1], F32)
            for at in range(start, min(start + RUN_OF_PRODUCT, indptr[i + 1])):
                part = part + data[at] * matrix[indices[at]]
            out[i] = out[i] + part
    return out
