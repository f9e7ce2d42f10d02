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


@dataclass(frozen=True)
class Channels:
    """Quantised derivatives of the rows in use, in the order of `rows`: physical value = integer * step."""

    kind: str  # "unit", "shared" or "diagonal"
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
    split: Split | None = None  # the best admissible one; None: the node stays a leaf
    children: tuple[int, ...] = field(default=())


# --------------------------------------------------------------------------------------------------- channels


def quantise(g, h, kind, rows=None, multiplier=None):
    """Integers for float32 gradients `g` (n, K) and curvatures `h` (n, 1), (n, K) or None: a `Channels`.

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
    """Float32 G (C, K) and H: (C, 1) for unit (the count) and shared, (C, K) for diagonal."""
    G = sums.gradients.astype(F32) * channels.gradient_steps
    if channels.kind == "unit":
        return G, sums.count.astype(F32)[:, None]
    return G, sums.curvatures.astype(F32) * channels.curvature_steps


def mean_curvature(H):
    """Float32 (C,): H or its mean over outputs, what `min_child_weight` is compared with; also the cover."""
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
    H = H + config.cat_smooth
    r = np.where(H == 0, 0.0, G / np.where(H == 0, 1.0, H))
    return r - ordered_sum(n[:, None] * r) / ordered_sum(n)


def ordered_sum(terms):
    """Float64 sum over the first axis, one after the other (NumPy's own sum adds in pairs)."""
    return np.cumsum(terms, axis=0)[-1]


# ----------------------------------------------------------------------------------------------- split search


@np.errstate(over="ignore", invalid="ignore", divide="ignore")
def best_split(codes, n_bins, is_categorical, channels, config, features):
    """The best admissible `Split` of the rows of `channels`, or None (GBDT-MO, Algorithm 2).

    `codes` (F, n_node) are the feature codes of those rows, `features` the features allowed, ascending.
    """
    parent_sum, parent_terms = parent_score(channels, config)
    best, best_sum = None, -np.inf
    for f in features:
        sums = histogram(codes[f], channels)
        if is_categorical[f]:
            candidates = categorical_candidates(sums, channels, config)
        else:
            candidates = numeric_candidates(sums.count, int(n_bins[f]))
        scores, terms = score_candidates(sums, candidates, channels, config)
        if len(scores) == 0 or not scores.max() > best_sum:
            continue
        best_sum, c = scores.max(), int(scores.argmax())
        gain = 0.5 * (float(best_sum) - float(parent_sum)) / len(parent_terms)
        output_gain = F32(0.5) * (terms[c] - parent_terms)
        goes_left = with_default_direction(candidates[c], sums.count)
        threshold = -1 if is_categorical[f] else int(candidates[c, :MISSING].sum()) - 1
        best = Split(int(f), threshold, goes_left, gain, output_gain)
    return best if best is not None and is_worthwhile(best_sum, parent_sum, best.gain, config) else None


def parent_score(channels, config):
    """Float32 sum and terms (K,) of the node as one leaf."""
    G, H = gradient_and_curvature(total(channels), channels)
    terms = leaf_terms(G, H, channels.kind, config)
    return lane_sum(terms)[0], terms[0]


def total(channels):
    """`Sums` of one set: all rows."""
    return Sums(
        np.array([len(channels.gradients)]),
        channels.gradients.sum(axis=0, keepdims=True),
        channels.curvatures.sum(axis=0, keepdims=True),
    )


def score_candidates(sums, candidates, channels, config):
    """Float32 score sums (C,), -inf where a child is too small or the sum is NaN; and their terms (C, K)."""
    present = sums.count > 0
    left = Sums(*(candidates[:, present].astype(np.int64) @ part[present] for part in sums.parts()))
    right = total(channels) - left
    G_left, H_left = gradient_and_curvature(left, channels)
    G_right, H_right = gradient_and_curvature(right, channels)
    terms = split_terms(G_left, H_left, G_right, H_right, channels.kind, config)
    scores = lane_sum(terms)
    allowed = is_large_enough(left.count, H_left, config) & is_large_enough(right.count, H_right, config)
    return np.where(allowed & ~np.isnan(scores), scores, -F32(np.inf)), terms


def is_large_enough(count, H, config):
    """Bool (C,): whether each child has the rows and the curvature it needs."""
    return (count >= max(1, config.min_child_samples)) & (mean_curvature(H) >= F32(config.min_child_weight))


def is_worthwhile(best_sum, parent_sum, gain, config):
    """Whether the gain, averaged over outputs (GBDT-MO, appendix B), passes its threshold and is no noise."""
    difference = float(best_sum) - float(parent_sum)
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


def grow(codes, n_bins, is_categorical, channels, config, rows=None, features=None):
    """Grow one `Tree` (GBDT-MO, Algorithm 5).

    `codes` uint8 (F, n), `channels` of the `rows` in use (None: all), `features` bool (F,): allowed.
    """
    codes = codes if rows is None else codes[:, rows]
    allowed = np.arange(len(codes)) if features is None else np.flatnonzero(features)

    def make_node(node, positions, depth):
        if depth == config.max_depth:
            return Node(positions, depth)
        of_node = take(channels, positions)
        may_use = node_features(allowed, node, config)
        split = best_split(codes[:, positions], n_bins, is_categorical, of_node, config, may_use)
        return Node(positions, depth, split)

    nodes, order = [make_node(0, np.arange(codes.shape[1]), 0)], []
    while True:
        gains = {i: v.split.gain for i, v in enumerate(nodes) if v.split is not None and not v.children}
        batch = next_batch(gains, len(order) + 1, config)
        if not batch:
            return to_tree(nodes, order, channels)
        for i in batch:
            parent = nodes[i]
            goes_left = parent.split.goes_left[codes[parent.split.feature, parent.positions]]
            parent.children = (len(nodes), len(nodes) + 1)
            for side in (goes_left, ~goes_left):
                nodes.append(make_node(len(nodes), parent.positions[side], parent.depth + 1))
            order.append(i)


def to_tree(nodes, order, channels):
    """The grown `nodes` as arrays; `order` lists the split nodes as they were split."""
    n_nodes, n_outputs = len(nodes), len(channels.gradient_steps)
    tree = empty_tree(n_nodes, n_outputs)
    for i, node in enumerate(nodes):
        sums = total(take(channels, node.positions))
        tree.count[i] = sums.count[0]
        tree.cover[i] = mean_curvature(gradient_and_curvature(sums, channels)[1])[0]
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
):
    """Float32 (n_leaves, K): one Newton step a leaf and output (GBDT-MO, eq. 15; C-GB, eq. 13).

    `g` float32 (n, K), `h` (n, 1), (n, K) or None: curvature 1, times the multiplier like any other.
    """
    h = np.ones((len(g), 1), F32) if h is None else h
    leaves = leaf_of_row if rows is None else leaf_of_row[rows]
    G = leaf_sums(used(g, rows, multiplier), leaves, n_leaves)
    H = leaf_sums(used(h, rows, multiplier), leaves, n_leaves) + reg_lambda
    t = np.sign(G) * np.maximum(np.abs(G) - reg_alpha, 0.0)
    w = np.where(H == 0, 0.0, -t / np.where(H == 0, 1.0, H))
    if max_delta_step > 0:
        w = np.clip(w, -max_delta_step, max_delta_step)
    return (w * learning_rate).astype(F32)


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


def fit_tree(codes, n_bins, is_categorical, g, h, kind, config, learning_rate):
    """One tree: structure from `kind` channels, leaf values from all of g and h (C-GB, Algorithm 1).

    Returns the tree, the leaf id of each row, and the leaf values float32 (n_leaves, K).
    """
    tree = grow(codes, n_bins, is_categorical, quantise(g, h, kind), config)
    leaves = leaf_of_row(tree, codes)
    penalties = config.reg_lambda, config.reg_alpha, config.max_delta_step
    return tree, leaves, newton_leaves(g, h, leaves, tree.n_leaves, *penalties, learning_rate)


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
