"""Tree structure as arrays, without leaf values."""

from dataclasses import dataclass

import numpy as np

from reference.quantised_gradients import F32, MISSING, N_CODES


@dataclass
class Tree:
    """Arrays of `_core.Tree`, one entry per node; children follow their parent."""

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


def to_tree(nodes, order, n_outputs):
    """Convert the grown `nodes` to arrays; `order` lists the nodes in the order of splitting."""
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
    """Return a `Tree` whose nodes are all unnumbered leaves."""
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
    """Return four uint64, bit c: code c goes left.

    The bit of the missing code stays 0, because `missing_left` stores it.
    """
    words = [0, 0, 0, 0]
    for code in np.flatnonzero(goes_left[:MISSING]):
        words[code // 64] |= 1 << (int(code) % 64)
    return words


def leaf_of_row(tree, codes):
    """Return int32 (n,): the leaf id that each column of `codes` (F, n) reaches."""
    node = np.zeros(codes.shape[1], np.int64)
    for i in range(tree.n_nodes):  # children follow their parent
        if tree.feature[i] >= 0:
            here = np.flatnonzero(node == i)
            left = goes_left_table(tree, i)[codes[tree.feature[i], here]]
            node[here] = np.where(left, tree.left[i], tree.right[i])
    return tree.leaf[node]


def goes_left_table(tree, i):
    """Return bool (256,): the codes that go left at inner node `i`, decoded from the arrays."""
    if tree.category_set[i] < 0:
        table = np.arange(N_CODES) <= tree.threshold[i]
    else:
        words = tree.categories[tree.category_set[i]]
        table = np.array([bool(int(words[c // 64]) >> (c % 64) & 1) for c in range(N_CODES)])
    table[MISSING] = tree.missing_left[i]
    return table
