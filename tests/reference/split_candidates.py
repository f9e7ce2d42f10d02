"""Split candidates of a node, and the choice of the best.

Covers allowed features, thresholds, orders of categories, missing values and ties.
"""

from dataclasses import dataclass

import numpy as np

from reference.quantised_gradients import F32, MISSING, N_CODES, histogram
from reference.split_gain import diagonal_hessian, is_worthwhile, parent_score, score_candidates


@dataclass(frozen=True)
class Split:
    """Split of a node; `goes_left[c]` is the side of rows with code c."""

    feature: int
    threshold: int  # last code that goes left; -1: categorical
    goes_left: np.ndarray  # bool (256,)
    gain: float  # float64, mean over outputs
    output_gain: np.ndarray  # float32 (K,), parts of gain * K


@dataclass(frozen=True)
class Candidate:
    """Best cut of a node by some features, admissible or not."""

    sum: np.float32  # score sum of both children
    penalised_sum: np.float32  # compared between candidates of all features
    feature: int
    threshold: int  # last code that goes left; -1: categorical
    goes_left: np.ndarray  # bool (256,)
    terms: np.ndarray  # float32 (K,), parts of the sum


def filter_interactions(allowed, path, groups, at_most):
    """Return the features of `allowed` that may follow those on `path`.

    They must share one of `groups` with the path (bool (G, F); None: no restriction). Once the path
    has `at_most` features (0: any number), only features on the path are allowed.
    """
    if at_most and len(path) >= at_most:
        allowed = [f for f in allowed if f in path]
    if groups is None:
        return list(allowed)
    return [f for f in allowed if any(group[f] and all(group[g] for g in path) for group in groups)]


def node_features(allowed, node, config):
    """Return ceil(colsample_bynode * m) of the m features by smallest hash, ascending."""
    n_kept = int(np.ceil(config.colsample_bynode * len(allowed)))
    return sorted(sorted(allowed, key=lambda f: (feature_hash(config.seed, node, f), f))[:n_kept])


def feature_hash(seed, node, feature):
    """Hash to uint64 with the finaliser of splitmix64 (Steele, Lea and Flood, 2014)."""
    mask = 2**64 - 1
    z = (
        int(seed) + 0x9E3779B97F4A7C15 * (node + 1) + 0xD1B54A32D192ED03 * (int(feature) + 1)
    ) & mask
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
    return z ^ (z >> 31)


def numeric_candidates(counts, n_bins):
    """Return bool (C, 256), the codes that go left.

    Candidates are ordered by bin, missing right first, then left if the node has missing values.
    """
    below = np.tri(n_bins, N_CODES, dtype=bool)  # row b: codes <= b
    if counts[MISSING] == 0:
        return below
    candidates = np.repeat(below, 2, axis=0)
    candidates[1::2, MISSING] = True
    return candidates


def categorical_candidates(sums, channels, config):
    """Return bool (C, 256), codes that go left: single categories if few, else sorted prefixes."""
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
    """Return float64 (n_present,): coordinates of the categories along the direction of largest
    variance.

    For one output that is the leaf value itself (Fisher's order, exact for squared error). For more
    it is the first principal coordinate of the categories' leaf values weighted by count, by eight
    power iterations.
    """
    n = sums.count[sums.count > 0].astype(np.float64)
    if channels.gradient_steps.size == 1:
        return category_means(sums, channels, config)[:, 0]
    d = category_deviations(sums, channels, config)
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
    """Return float64 (n_present, K): means of the categories, minus the mean over rows."""
    n = sums.count[sums.count > 0].astype(np.float64)
    r = category_means(sums, channels, config)
    return r - ordered_sum(n[:, None] * r) / ordered_sum(n)


def category_means(sums, channels, config):
    """Return float64 (n_present, K): smoothed G / H of each category."""
    present = sums.count > 0
    n = sums.count[present].astype(np.float64)
    G = sums.gradients[present] * channels.gradient_steps.astype(np.float64)
    H = n[:, None]
    if channels.kind != "unit":
        H = sums.hessians[present] * channels.hessian_steps.astype(np.float64)
        H = diagonal_hessian(H, channels.kind, G.shape[1])
    H = H + config.cat_smooth
    return np.where(H == 0, 0.0, G / np.where(H == 0, 1.0, H))


def ordered_sum(terms):
    """Return the float64 sum over the first axis, in order (NumPy's own sum adds in pairs)."""
    return np.cumsum(terms, axis=0)[-1]


def set_default_direction(goes_left, counts):
    """Send missing values to the larger child (left on a tie) if the node has none."""
    if counts[MISSING] == 0:
        n_left = counts[goes_left].sum()
        goes_left = goes_left.copy()
        goes_left[MISSING] = n_left >= counts.sum() - n_left
    return goes_left


def separates_missing(goes_left, counts):
    """Return whether the right side has missing values only."""
    return not np.any(counts[:MISSING][~goes_left[:MISSING]]) and not goes_left[MISSING]


@np.errstate(over="ignore", invalid="ignore", divide="ignore")
def best_candidate(
    codes,
    n_bins,
    is_categorical,
    channels,
    config,
    features,
    chance=None,
    rules=None,
    node_sum=None,
):
    """Return the best `Candidate`, the first feature on ties; None if children are always too
    small.

    `codes` (F, n_node) are the feature codes of the rows of `channels`, `features` the allowed
    ones, ascending. `chance` is that of the rows of the tree; None: all gradients are 0. `rules`
    are the directions of the features and the bounds of values; None: no constraints. `node_sum` is
    the score of the unsplit node, which is needed if features have factors.
    """
    best = None
    for f in features:
        sums = histogram(codes[f], channels)
        if is_categorical[f]:
            candidates = categorical_candidates(sums, channels, config)
        else:
            candidates = numeric_candidates(sums.count, int(n_bins[f]))
        own = None if rules is None else rules.select(f)
        scores, terms = score_candidates(sums, candidates, channels, config, own)
        correction = gain_correction(sums.count, is_categorical[f], chance, config)
        if len(scores) == 0:
            continue
        c = int(scores.argmax())
        penalised_sum = penalise_gain(scores[c], correction, node_sum, config, f)
        if not penalised_sum > (-np.inf if best is None else best.penalised_sum):
            continue
        goes_left = set_default_direction(candidates[c], sums.count)
        threshold = -1 if is_categorical[f] else int(candidates[c, :MISSING].sum()) - 1
        if own is not None and threshold >= 0 and separates_missing(goes_left, sums.count):
            threshold = int(n_bins[f]) - 1  # no value goes right
            goes_left = np.arange(N_CODES) <= threshold
        best = Candidate(scores[c], penalised_sum, int(f), threshold, goes_left, terms(c))
    return best


def penalise_gain(sum, correction, node_sum, config, feature):
    """Return the score by which the best candidates of features are compared.

    It is the candidate's sum minus the correction for chance. If features have factors, a positive
    excess over the score of the unsplit node is multiplied by the feature's factor.
    """
    if config.factors is None:
        return sum - correction
    rise = sum - correction - node_sum
    return rise * config.factors[feature] if rise > 0 else rise


def gain_correction(counts, is_categorical, chance, config):
    """Return float32: the correction of a feature's candidates when features are compared."""
    n_present = np.count_nonzero(counts)
    if not is_categorical or chance is None or n_present <= config.max_cat_to_onehot:
        return F32(0)
    return chance.expected_gain(n_present)


@np.errstate(over="ignore", invalid="ignore", divide="ignore")
def best_split(codes, n_bins, is_categorical, channels, config, features, chance=None, rules=None):
    """Return the best admissible `Split` of `channels`, or None (GBDT-MO, Algorithm 2)."""
    parent_sum, parent_terms = parent_score(channels, config, rules)
    data = codes, n_bins, is_categorical
    best = best_candidate(*data, channels, config, features, chance, rules, parent_sum)
    if best is None:
        return None
    gain = 0.5 * (float(best.sum) - float(parent_sum)) / len(parent_terms)
    if not is_worthwhile(best.sum, parent_sum, gain, config):
        return None
    output_gain = F32(0.5) * (best.terms - parent_terms)
    return Split(best.feature, best.threshold, best.goes_left, gain, output_gain)
