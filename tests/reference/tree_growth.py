"""Tree growth: the choice and order of splits, and the stopping rule (GBDT-MO, Algorithm 5)."""

from dataclasses import dataclass, field

import numpy as np

from polyleaf.settings.parameters import RegularisationParameters, TreeParameters
from reference.categorical_gain_correction import estimate_overfit
from reference.output_bounds import NodeConstraints, OutputBounds
from reference.quantised_gradients import MISSING, take, total
from reference.split_candidates import Split, best_split, filter_interactions, node_features
from reference.split_gain import (
    constrained_values,
    diagonal_hessian,
    gradient_and_hessian,
    mean_hessian,
)
from reference.tree import to_tree


@dataclass(frozen=True)
class GrowConfig:
    """Limits of a tree; the fields of `_core.GrowConfig`.

    Real fields are float64 and rounded where used. The defaults are those of the estimators, or
    such that all features are used and no other limit applies.
    """

    max_leaves: int = TreeParameters.max_leaves  # at least 1
    max_depth: int = -1  # -1: unlimited
    level_wise: bool = False  # False: best-first (lossguide); True: by level (depthwise)
    reg_lambda: float = RegularisationParameters.reg_lambda
    reg_alpha: float = RegularisationParameters.reg_alpha
    min_split_gain: float = TreeParameters.min_split_gain
    min_child_weight: float = 0.0
    min_child_samples: int = TreeParameters.min_child_samples
    max_delta_step: float = RegularisationParameters.max_delta_step  # 0: no limit
    max_cat_to_onehot: int = TreeParameters.max_cat_to_onehot
    cat_smooth: float = TreeParameters.cat_smooth
    colsample_bynode: float = 1.0
    seed: int = 0
    post_prune: bool = False  # split for any gain, and prune at the end
    block_size: int = 0  # full Hessian: outputs that a node solves for; 0: all
    leaf_k: int = 0  # outputs of a sparse leaf; 0 or the number of outputs: all
    shared_support: bool = False  # sparse leaves: both children of a node hold the same outputs
    factors: np.ndarray | None = None  # float32 (F,), factors of the features' gains; None: all 1


@dataclass
class Node:
    """Node of a growing tree."""

    positions: np.ndarray  # positions of its rows among the rows in use
    depth: int
    path: frozenset  # features split on above it
    cover: float  # from the derivatives that it was made with
    split: Split | None = None  # the best admissible one; None: the node stays a leaf
    children: tuple[int, ...] = field(default=())


def next_batch(gains, n_leaves, config):
    """Return the frontier nodes that are split next, given gains by node id.

    See GBDT-MO, section III-E, Algorithm 5.
    """
    ranked = sorted(gains, key=lambda node: (-gains[node], node))
    room = config.max_leaves - n_leaves
    leaves_cannot_bind = config.max_depth >= 0 and config.max_leaves >= 2**config.max_depth
    if config.level_wise or leaves_cannot_bind:
        return sorted(ranked[:room])
    return ranked[: min(1, room)]


class ChannelSearch:
    """Best splits from channels that are constant in all nodes (the core's HistogramSearch).

    `directions` (F, K) are the monotone constraints of outputs by feature; None: no constraints.
    """

    def __init__(self, data, channels, config, directions=None):
        self.data, self.channels, self.config, self.directions = data, channels, config, directions
        self.n_outputs = len(channels.gradient_steps)
        self.chance = estimate_overfit(channels)
        self.bounds = {}  # of nodes below a split with a pooled output

    def cover(self, positions, parent):
        """Return the summed Hessian of the rows of a child of node `parent` (None: of the root)."""
        return compute_cover(take(self.channels, positions))

    def find_split(self, i, positions, allowed):
        """Return the best `Split` of node `i`, or None."""
        codes, n_bins, is_categorical = self.data
        node_sum = take(self.channels, positions)
        node = codes[:, positions], n_bins, is_categorical, node_sum
        return best_split(*node, self.config, allowed, self.chance, self.node_constraints(i))

    def node_constraints(self, i):
        """Return the constraints of the splits of node `i`, or None."""
        if self.directions is None:
            return None
        return NodeConstraints(
            self.directions, self.bounds.get(i, OutputBounds.none(self.n_outputs))
        )

    def record_split(self, i, split, children):
        """Record the split of node `i`; `children`: two pairs (id, positions), left first."""
        if self.directions is None:
            return
        rules = self.node_constraints(i).select(split.feature)
        apart = split.threshold == self.data[1][split.feature] - 1 and not split.goes_left[MISSING]
        sums = [total(take(self.channels, positions)) for _, positions in children]
        sides = [gradient_and_hessian(of_side, self.channels) for of_side in sums]
        w, _, is_pooled = constrained_values(*sides, self.config, rules, not apart)
        pooled = np.where(is_pooled, w, np.nan)[0]
        child_bounds = rules.bounds.child_bounds(pooled, rules.directions)
        self.bounds.update(zip([child for child, _ in children], child_bounds, strict=True))


def grow(
    codes,
    n_bins,
    is_categorical,
    channels,
    config,
    rows=None,
    features=None,
    renew=None,
    groups=None,
    at_most=0,
    directions=None,
):
    """Grow one `Tree` (GBDT-MO, Algorithm 5).

    `codes` is uint8 (F, n). `channels` are those of the `rows` in use (None: all), or a search with
    the interface of `ChannelSearch`, on its own codes. `features` bool (F,) are allowed.
    `renew(nodes)` returns new channels after every batch of splits, before the new nodes are
    searched (TFBT, section V). `groups` and `at_most` restrict the features of a path
    (`filter_interactions`). `directions` are monotone constraints.
    """
    codes = codes if rows is None else codes[:, rows]
    allowed = np.arange(len(codes)) if features is None else np.flatnonzero(features)
    data = codes, n_bins, is_categorical
    search = (
        channels
        if hasattr(channels, "find_split")
        else ChannelSearch(data, channels, config, directions)
    )

    def make_node(positions, depth, parent, path):
        return Node(positions, depth, path, search.cover(positions, parent))

    def evaluate(i):
        if nodes[i].depth != config.max_depth:
            on_path = filter_interactions(allowed, nodes[i].path, groups, at_most)
            usable = node_features(on_path, i, config)
            nodes[i].split = search.find_split(i, nodes[i].positions, usable)

    nodes, order = [make_node(np.arange(codes.shape[1]), 0, None, frozenset())], []
    evaluate(0)
    while True:
        gains = {
            i: v.split.gain for i, v in enumerate(nodes) if v.split is not None and not v.children
        }
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
            path = parent.path | {parent.split.feature}
            for side in (goes_left, ~goes_left):
                nodes.append(make_node(parent.positions[side], parent.depth + 1, i, path))
            search.record_split(i, parent.split, [(c, nodes[c].positions) for c in parent.children])
            order.append(i)
        if renew is not None:
            search = ChannelSearch(data, renew(nodes), config, directions)
        for i in range(first, len(nodes)):
            evaluate(i)


def compute_cover(channels):
    """Return float64: the summed Hessian of all rows of `channels`, mean over outputs."""
    H = gradient_and_hessian(total(channels), channels)[1]
    return float(mean_hessian(diagonal_hessian(H, channels.kind, len(channels.gradient_steps)))[0])


def pruned(nodes, order, config):
    """Return the nodes that remain, and their order of splitting, after pruning (TFBT, eq. 8).

    The gain of a subtree is the sum of its splits' gains, each minus `min_split_gain`; it is pruned
    if that is not positive. Nodes keep their order.
    """
    worth = [0.0] * len(nodes)
    for i in reversed(range(len(nodes))):
        if nodes[i].children:
            left, right = nodes[i].children
            worth[i] = (nodes[i].split.gain - config.min_split_gain) + (worth[left] + worth[right])
            if not worth[i] > 0:
                worth[i], nodes[i].children = 0.0, ()
    kept = [0]
    for i in kept:  # the list grows during the loop
        kept.extend(nodes[i].children)
    kept.sort()
    number = {old: new for new, old in enumerate(kept)}
    for i in kept:
        nodes[i].children = tuple(number[c] for c in nodes[i].children)
    split = [number[i] for i in order if i in number and nodes[i].children]
    return [nodes[i] for i in kept], split
