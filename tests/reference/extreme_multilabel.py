"""Extreme multi-label training on dense arrays.

Implements sums of sparse gradients, both split searches, sparse Newton leaves and a boosting loop.
An output that is not a label of a row has gradient 0, and zeros change no sum, maximum or choice.

Si et al., "Gradient Boosted Decision Trees for High Dimensional Sparse Output" (GBDT-SPARSE).
"""

from dataclasses import dataclass

import numpy as np

import reference
from reference import (
    F32,
    GAIN_RESOLUTION,
    MISSING,
    N_CODES,
    SMALLEST_DERIVATIVE,
    Split,
    newton_steps,
)
from reference.split_candidates import penalise_gain

N_PROPOSALS = 6  # splits of a node that are scored by exact sums
SAMPLED_ROWS = 4096  # approximate sample size for scoring a large node
TILE_FEATURES = 8


@dataclass(frozen=True)
class Step:
    """Limits of a leaf's step; the fields of `_core.LeafConfig`."""

    reg_lambda: float = reference.GrowConfig.reg_lambda
    reg_alpha: float = reference.GrowConfig.reg_alpha
    max_delta_step: float = reference.GrowConfig.max_delta_step  # 0: no limit
    learning_rate: float = 1.0


@dataclass(frozen=True)
class Gradients:
    """Gradients, weights and rows that one tree is fitted to."""

    g: np.ndarray  # float32 (n, K)
    weight: np.ndarray | None = None  # float32 (n,), Hessian of the rows; None: 1
    rows: np.ndarray | None = None  # in use, ascending; None: all
    multiplier: np.ndarray | None = None  # float32 (n,), of the sample; None: 1


def fixed_point(values):
    """Return int64 integers for float32 `values`, and the value of one unit.

    2^30 units are the smallest power of two above the largest magnitude: one scale for all outputs.
    """
    largest = float(np.max(np.abs(values)))
    if largest < SMALLEST_DERIVATIVE:
        return np.zeros(values.shape, np.int64), 0.0
    unit = np.ldexp(1.0, int(np.frexp(largest)[1]) - 30)
    return np.trunc(values.astype(np.float64) / unit).astype(np.int64), unit


def row_hessians(gradients):
    """Return int64 (n_used,): the Hessian of the rows in use, and its unit.

    Without weights these are counts.
    """
    n, weight = len(gradients.g), gradients.weight
    if weight is None and gradients.multiplier is None:
        return np.ones(n if gradients.rows is None else len(gradients.rows), np.int64), 1.0
    weight = np.ones(n, F32) if weight is None else weight
    return fixed_point(
        reference.select_rows(weight[:, None], gradients.rows, gradients.multiplier)[:, 0]
    )


def worth(sums, unit, H, leaf_k, step):
    """Return float64: the gain of a leaf with the `leaf_k` largest sums by magnitude (eq. 20).

    `sums` are integers (K,); the terms are added in descending order.
    """
    total = 0.0
    for magnitude in np.sort(np.abs(sums))[::-1][:leaf_k]:
        total += newton_steps(float(magnitude) * unit, H, step)[1]
    return total


class LabelSearch:
    """Base class of both searches; `reference.grow` accepts them in place of channels."""

    n_outputs = 0  # gains are not recorded by output

    def __init__(self, data, gradients, step, leaf_k, config):
        self.data, self.config, self.step, self.leaf_k = data, config, step, leaf_k
        self.integers, self.unit = fixed_point(
            reference.select_rows(gradients.g, gradients.rows, gradients.multiplier)
        )
        self.hessian, self.hessian_unit = row_hessians(gradients)

    def cover(self, positions, parent):
        return float(self.hessian[positions].sum()) * self.hessian_unit

    def worth(self, positions):
        """Return the gain of these rows as one leaf."""
        sums = self.integers[positions].sum(axis=0)
        return worth(sums, self.unit, self.cover(positions, None), self.leaf_k, self.step)

    def split_worth(self, positions, left):
        return self.worth(positions[left]) + self.worth(positions[~left])

    def is_large_enough(self, positions):
        least = self.config.min_child_weight
        count = len(positions)
        return (
            count >= max(1, self.config.min_child_samples) and self.cover(positions, None) >= least
        )

    def validate_gain(self, best_sum, parent_sum):
        """Return the gain of a split, or None if it is not admissible."""
        difference = best_sum - parent_sum
        gain = 0.5 * difference / self.integers.shape[1]
        if not np.isfinite(best_sum):
            return None
        enough = gain > self.config.min_split_gain and difference > GAIN_RESOLUTION * best_sum
        return gain if self.config.post_prune or enough else None

    def record_split(self, i, split, children):
        """Do nothing: no data of a node are kept."""


class ExactSearch(LabelSearch):
    """Algorithm 1: every feature by exact sums, thresholds at equal numbers of rows.

    `threshold_step` is the share of a node's rows; where a bin's last row passes a multiple of it,
    the bin's upper end is a threshold (so the last bin's always is). 0: every bin with rows.
    """

    def __init__(self, data, gradients, step, leaf_k, config, threshold_step):
        super().__init__(data, gradients, step, leaf_k, config)
        self.threshold_step = threshold_step

    def find_split(self, i, positions, allowed):
        if len(positions) < 2 * max(1, self.config.min_child_samples):
            return None
        best_sum, best_gain, best, node_sum = -np.inf, -np.inf, None, self.worth(positions)
        for f in allowed:  # ties: the first feature
            total, threshold, goes_left = self.best_threshold(f, positions)
            penalised = penalise_gain(total, 0.0, node_sum, self.config, f)
            if penalised > best_gain:
                best_sum, best_gain, best = total, penalised, (int(f), threshold, goes_left)
        gain = None if best is None else self.validate_gain(best_sum, node_sum)
        return None if gain is None else Split(*best, gain, np.zeros(0, F32))

    def best_threshold(self, f, positions):
        """Return the gain of a feature's best threshold (-inf: none), it, and the codes that go
        left.
        """
        best = -np.inf, None, None
        for threshold, goes_left in self.thresholds(f, positions):
            left = goes_left[self.data[0][f, positions]]
            if not (
                self.is_large_enough(positions[left]) and self.is_large_enough(positions[~left])
            ):
                continue
            total = self.split_worth(positions, left)
            if total > best[0]:
                best = total, threshold, goes_left
        return best

    def thresholds(self, f, positions):
        """Yield thresholds in order, each with missing right and then, if any are missing, left."""
        codes, n_bins, _ = self.data
        counts = np.bincount(codes[f, positions], minlength=N_CODES)
        n_present = len(positions) - counts[MISSING]
        stride = max(1, int(self.threshold_step * len(positions)))
        after = 0
        for b in range(n_bins[f]):
            before, after = after, after + counts[b]
            if after == before or (after // stride == before // stride and after != n_present):
                continue
            goes_left = np.arange(N_CODES) <= b
            goes_left[MISSING] = False
            yield b, reference.set_default_direction(goes_left, counts)
            if counts[MISSING] > 0:
                goes_left = goes_left.copy()
                goes_left[MISSING] = True
                yield b, goes_left


class VerifiedSearch(LabelSearch):
    """Splits proposed by `channels` of a sketch of the gradients, and scored by exact sums.

    Every group of features proposes its best split, whatever its gain by the sketch. The most
    promising ones are scored, in large nodes on a sample of the rows, which `seed` draws by their
    `numbers` (of the rows in use, among all rows of all ranks). A group is a tile of the dense
    matrix, independent of the storage of its features.
    """

    def __init__(self, data, gradients, step, leaf_k, config, channels, numbers, seed):
        super().__init__(data, gradients, step, leaf_k, config)
        self.channels, self.chance = channels, reference.estimate_overfit(channels)
        self.tiles = tiles(data[1])
        self.numbers, self.seed = numbers, seed

    def find_split(self, i, positions, allowed):
        if len(positions) < 2 * max(1, self.config.min_child_samples):
            return None
        sampled = self.sample_rows(positions)
        scale = len(positions) / max(1, len(sampled))
        parent_sum = self.worth(sampled) * scale
        best_gain, best, gain = 0.0, None, None
        for p in self.proposals(positions, allowed):
            left = p.goes_left[self.data[0][p.feature, sampled]]
            total = self.split_worth(sampled, left) * scale
            its_gain = self.validate_gain(total, parent_sum)
            by = penalise_gain(total, 0.0, parent_sum, self.config, p.feature)
            if its_gain is None or (
                best is not None and (by, -p.feature) < (best_gain, -best.feature)
            ):
                continue
            best_gain, best, gain = by, p, its_gain
        if best is None:
            return None
        return Split(best.feature, best.threshold, best.goes_left, gain, np.zeros(0, F32))

    def sample_rows(self, positions):
        """Return the rows that splits are scored on: all, or about SAMPLED_ROWS by hash."""
        if len(positions) <= SAMPLED_ROWS:
            return positions
        limit = SAMPLED_ROWS << 32
        keys = [
            reference.feature_hash(self.seed, int(self.numbers[at]), 0) >> 32 for at in positions
        ]
        return positions[[key * len(positions) < limit for key in keys]]

    def proposals(self, positions, allowed):
        codes, n_bins, is_categorical = self.data
        channels = reference.take(self.channels, positions)
        node_sum = reference.parent_score(channels, self.config, None)[0]
        found = []
        for tile in self.tiles:
            features = [f for f in tile if f in allowed]
            data = codes[:, positions], n_bins, is_categorical, channels
            best = reference.best_candidate(
                *data, self.config, features, self.chance, None, node_sum
            )
            if best is not None and np.isfinite(best.sum):
                found.append(best)
        return sorted(found, key=lambda p: (-p.penalised_sum, p.feature))[:N_PROPOSALS]


def tiles(n_bins):
    """Return groups of features that are searched together.

    Features of similar cardinality are spread evenly over as few tiles as fit.
    """
    found = []
    for fewest, most in ((0, 3), (4, 15), (16, 63), (64, 255)):
        members = [f for f, n in enumerate(n_bins) if fewest <= n <= most]
        n_tiles = -(-len(members) // TILE_FEATURES)
        for t in range(n_tiles, 0, -1):
            size = -(-len(members) // t)
            found.append(members[:size])
            members = members[size:]
    return found


def fit_topk_leaves(gradients, leaf_of_row, n_leaves, leaf_k, step):
    """Return `reference.TopkLeaves` with the `leaf_k` outputs of largest sum by magnitude.

    Ties are resolved by number.

    The values are Newton steps (eq. 19); outputs without gain are left out.
    """
    integers, unit = fixed_point(
        reference.select_rows(gradients.g, gradients.rows, gradients.multiplier)
    )
    H, H_unit = row_hessians(gradients)
    leaves = leaf_of_row if gradients.rows is None else leaf_of_row[gradients.rows]
    indptr, outputs, values = [0], [], []
    for leaf in range(n_leaves):
        sums = integers[leaves == leaf].sum(axis=0)
        H_leaf = float(H[leaves == leaf].sum()) * H_unit
        steps = {k: newton_steps(float(sums[k]) * unit, H_leaf, step) for k in np.flatnonzero(sums)}
        worthy = [k for k, (_, its_worth) in steps.items() if its_worth > 0]
        kept = sorted(sorted(worthy, key=lambda k: (-abs(sums[k]), k))[:leaf_k])
        outputs += kept
        values += [F32(steps[k][0] * step.learning_rate) for k in kept]
        indptr.append(len(outputs))
    return reference.TopkLeaves(
        np.array(indptr, np.int64),
        np.array(outputs, np.int32),
        np.array(values, F32),
        gradients.g.shape[1],
    )


def squared_error(y, score):
    """Return the float32 derivative of (score - y)^2 / 2."""
    return score - y


def squared_hinge(y, score):
    """Return the float32 derivative of max(0, 1 - (2y - 1) score)^2 / 2.

    This is eq. 9, with its margins moved to -1 and 1.
    """
    sign = np.where(y > 0, F32(1), F32(-1))
    return -sign * np.maximum(F32(0), F32(1) - sign * score)


def boost(data, Y, derivative, base, make_search, config, leaf_k, step, n_rounds, weight=None):
    """Train on dense `Y` float32 (n, K).

    Return raw scores float32 (n, K) and the (tree, leaves) of each round. `make_search(round,
    gradients)` returns the search of a round. The raw score of an output that is not a label of a
    row, and that no leaf has held for it, stays 0, and so does its gradient.
    """
    raw, rounds = np.zeros(Y.shape, F32), []
    for round in range(n_rounds):
        g = derivative(Y, raw + F32(base))
        gradients = Gradients(g if weight is None else g * weight[:, None], weight)
        tree = reference.grow(*data, make_search(round, gradients), config)
        leaf_of_row = reference.leaf_of_row(tree, data[0])
        leaves = fit_topk_leaves(gradients, leaf_of_row, tree.n_leaves, leaf_k, step)
        raw = raw + reference.leaf_values(leaves, leaf_of_row)
        rounds.append((tree, leaves))
    return raw, rounds
