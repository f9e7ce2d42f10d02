"""Bounds of the final scores of rows that have not passed all trees."""

import numpy as np


def count_trees_to_decide(vectors, leaves, base):
    """Return after how many trees the best output of each row cannot change, int (n_rows,).

    `vectors`: the leaf values of each tree, float32 (n_leaves, K); `leaves`: int (n_rows, T).
    Without rounding: an output's final score lies between its score plus the least and plus the
    greatest leaf values of the remaining trees.
    """
    n_rows, n_trees = leaves.shape
    least = np.cumsum([v.min(axis=0) for v in vectors][::-1], axis=0, dtype=np.float64)[::-1]
    most = np.cumsum([v.max(axis=0) for v in vectors][::-1], axis=0, dtype=np.float64)[::-1]
    scores, needed = np.tile(np.asarray(base, np.float64), (n_rows, 1)), np.full(n_rows, n_trees)
    for t in range(n_trees):
        lowest, highest = scores + least[t], scores + most[t]
        is_open = needed == n_trees
        n_possible = (highest >= lowest.max(axis=1, keepdims=True)).sum(axis=1)
        needed[is_open & (n_possible == 1)] = t
        scores += vectors[t][leaves[:, t]]
    return needed
