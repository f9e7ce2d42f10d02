"""Arrays of sparse and linear leaves, their values, and the best outputs of a row."""

from dataclasses import dataclass

import numpy as np

from reference.quantised_gradients import F32


@dataclass(frozen=True)
class TopkLeaves:
    """Leaves with some outputs; leaf l has the entries `indptr[l] .. indptr[l + 1] - 1`."""

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


def leaf_values(leaves, leaf_of_row, features=None):
    """Return float32 (n, K): the value that each row's leaf adds to its raw scores.

    `leaves` is a matrix (n_leaves, K), a `TopkLeaves` or a `LinearLeaves`, which needs `features`,
    float32 (n_features, n), NaN where missing.
    """
    if isinstance(leaves, np.ndarray):
        return leaves[leaf_of_row]
    if hasattr(leaves, "outputs"):
        rows = [sparse_leaf_value(leaves, leaf) for leaf in leaf_of_row]
    else:
        rows = [
            linear_leaf_value(leaves, leaf, features[:, i]) for i, leaf in enumerate(leaf_of_row)
        ]
    return np.array(rows, F32).reshape(len(leaf_of_row), leaves.n_outputs)


def sparse_leaf_value(leaves, leaf):
    """Return float32 (K,), 0 for the outputs that are not in the leaf."""
    entries = slice(leaves.indptr[leaf], leaves.indptr[leaf + 1])
    leaf_value = np.zeros(leaves.n_outputs, F32)
    leaf_value[leaves.outputs[entries]] = leaves.values[entries]
    return leaf_value


@np.errstate(over="ignore", invalid="ignore")
def linear_leaf_value(leaves, leaf, x):
    """Return float32 (K,): the leaf's linear function of one row x, clipped to its bounds.

    See GBDT-PL, section 4.
    """
    leaf_value = leaves.intercept[leaf].copy()
    for e in range(leaves.indptr[leaf], leaves.indptr[leaf + 1]):
        value = x[leaves.features[e]]
        shift = F32(0) if np.isnan(value) else value - leaves.centre[e]
        leaf_value += leaves.weights[e] * shift
    leaf_value = np.where(np.isnan(leaf_value), leaves.intercept[leaf], leaf_value)  # inf - inf
    largest = np.finfo(F32).max
    return np.clip(np.clip(leaf_value, leaves.lower[leaf], leaves.upper[leaf]), -largest, largest)


def holds(leaves, leaf_of_row, n_outputs, own=None):
    """Return bool (n, n_outputs): the outputs to which each row's leaf contributes."""
    held = np.zeros((len(leaf_of_row), n_outputs), bool)
    for i, leaf in enumerate(leaf_of_row):
        if hasattr(leaves, "outputs"):
            held[i, leaves.outputs[leaves.indptr[leaf] : leaves.indptr[leaf + 1]]] = True
        else:
            held[i, slice(None) if own is None else own] = True
    return held


def top_outputs(scores, takes_part, k):
    """Return the k outputs of each row with the highest scores, ties by number, and these scores.

    The results are int32 and float64 (n, k), padded with -1 and -inf. `scores` is float64 (n, K);
    only outputs with `takes_part` (n, K) are ranked.
    """
    outputs, best = np.full((len(scores), k), -1, np.int32), np.full((len(scores), k), -np.inf)
    for i, row in enumerate(scores):
        ranked = sorted(np.flatnonzero(takes_part[i]), key=lambda output: (-row[output], output))[
            :k
        ]
        outputs[i, : len(ranked)], best[i, : len(ranked)] = ranked, row[ranked]
    return outputs, best
