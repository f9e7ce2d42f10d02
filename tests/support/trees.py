"""Random trees, and a simple tree walk that predictions are compared with."""

import numpy as np
import reference

from polyleaf import _core

MISSING = 255


def tree_arrays(rng, n_features, n_outputs, n_leaves, *, categorical=0.0, chain=False):
    """Return arrays of a random tree, with leaf ids in random order."""
    feature, left, right = [-1], [-1], [-1]
    leaves = [0]
    while len(leaves) < n_leaves:
        node = leaves.pop(-1 if chain else rng.integers(len(leaves)))
        feature[node] = int(rng.integers(n_features))
        left[node], right[node] = len(feature), len(feature) + 1
        leaves += [left[node], right[node]]
        feature += [-1, -1]
        left += [-1, -1]
        right += [-1, -1]
    feature = np.array(feature, np.int32)
    n, inner = len(feature), feature >= 0
    is_set = inner & (rng.random(n) < categorical)
    n_sets = int(is_set.sum())
    leaf = np.full(n, -1, np.int32)
    leaf[~inner] = rng.permutation(n_leaves)
    category_set = np.full(n, -1, np.int32)
    category_set[is_set] = rng.permutation(n_sets)
    words = rng.integers(0, 2**63, (n_sets, 4), dtype=np.int64).astype(np.uint64)
    return {
        "feature": feature,
        "threshold": np.where(inner & ~is_set, rng.integers(0, 255, n), -1).astype(np.int32),
        "missing_left": inner & (rng.random(n) < 0.5),
        "left": np.array(left, np.int32),
        "right": np.array(right, np.int32),
        "leaf": leaf,
        "category_set": category_set,
        "categories": words * np.uint64(2) + np.uint64(1),
        "gain": np.where(inner, rng.random(n), 0.0),
        "count": rng.integers(1, 1000, n),
        "cover": rng.random(n),
        "output_gain": (rng.random((n, n_outputs)) * inner[:, None]).astype(np.float32),
    }


def random_leaves(rng, kind, n_leaves, n_outputs, n_features):
    """Draw random leaves of one kind, as arguments of `Forest.append`."""
    if kind == "dense":
        return rng.normal(size=(n_leaves, n_outputs)).astype(np.float32)
    # Most leaves have a few entries, some have none.
    limit = n_outputs if kind == "sparse" else n_features
    picked = [np.sort(rng.permutation(limit)[: rng.integers(0, 6)]) for _ in range(n_leaves)]
    indptr = np.cumsum([0, *map(len, picked)], dtype=np.int64)
    entries = np.concatenate(picked).astype(np.int32)
    if kind == "sparse":
        return _core.TopkLeaves(
            indptr, entries, rng.normal(size=len(entries)).astype(np.float32), n_outputs
        )

    def vectors(n, scale=1.0):
        return (scale * rng.normal(size=(n, n_outputs))).astype(np.float32)

    intercept, reach = vectors(n_leaves), np.abs(vectors(n_leaves, 3.0))
    free = rng.random(intercept.shape) < 0.3
    return _core.LinearLeaves(
        indptr,
        entries,
        vectors(len(entries)),
        rng.normal(size=len(entries)).astype(np.float32),
        intercept,
        np.where(free, -np.inf, intercept - reach).astype(np.float32),
        np.where(free, np.inf, intercept + reach).astype(np.float32),
    )


def random_forest(rng, n_features, n_outputs, sizes, *, scalar=0.0, kinds=("dense",), **options):
    """Draw a forest; return it and its parts (tree, leaves, outputs).

    A share `scalar` of trees lists its outputs: one, or a few.
    """
    forest, parts = _core.Forest(n_outputs), []
    for n_leaves in sizes:
        tree = _core.Tree.from_arrays(
            **tree_arrays(rng, n_features, n_outputs, n_leaves, **options)
        )
        kind = str(rng.choice(kinds))
        outputs, width = None, n_outputs
        if kind != "sparse" and rng.random() < scalar:
            width = 1 if rng.random() < 0.5 else int(rng.integers(1, n_outputs + 1))
            outputs = np.sort(rng.choice(n_outputs, width, replace=False)).astype(np.int32)
        leaves = random_leaves(rng, kind, n_leaves, width, n_features)
        forest.append(tree, leaves, outputs)
        parts.append((tree, leaves, outputs))
    return forest, parts


def boosted_forest(rng, n_outputs, n_trees, decay, n_leaves=5, n_features=4):
    """Draw a forest whose later trees have smaller leaf values, as boosting has."""
    forest, parts = _core.Forest(n_outputs), []
    for t in range(n_trees):
        tree = _core.Tree.from_arrays(**tree_arrays(rng, n_features, n_outputs, n_leaves))
        values = (rng.normal(size=(n_leaves, n_outputs)) * decay**t).astype(np.float32)
        forest.append(tree, values)
        parts.append((tree, values, None))
    return forest, parts


def sparse_forest(rng, n_outputs, n_trees, n_leaves, n_entries):
    """Draw sparse trees whose leaves hold n_entries outputs each."""
    forest = _core.Forest(n_outputs)
    indptr = np.arange(n_leaves + 1, dtype=np.int64) * n_entries
    for _ in range(n_trees):
        picked = [np.sort(rng.choice(n_outputs, n_entries, replace=False)) for _ in range(n_leaves)]
        values = rng.normal(size=n_leaves * n_entries).astype(np.float32)
        leaves = _core.TopkLeaves(
            indptr, np.concatenate(picked).astype(np.int32), values, n_outputs
        )
        forest.append(_core.Tree.from_arrays(**tree_arrays(rng, 5, 1, n_leaves)), leaves)
    return forest


def random_features(rng, n_features, n_rows, missing=0.1):
    """Draw raw features, float32 (n_features, n_rows)."""
    x = rng.normal(size=(n_features, n_rows)).astype(np.float32)
    x[rng.random(x.shape) < missing] = np.nan
    return x


def random_codes(rng, n_features, n_rows):
    codes = rng.integers(0, 256, (n_features, n_rows)).astype(np.uint8)
    codes[rng.random(codes.shape) < 0.1] = MISSING
    return codes


def find_leaf(tree, row):
    """Return the leaf id of one row of codes."""
    node = 0
    while tree.feature[node] >= 0:
        code = int(row[tree.feature[node]])
        if code == MISSING:
            goes_left = bool(tree.missing_left[node])
        elif tree.category_set[node] >= 0:
            words = tree.categories[tree.category_set[node]]
            goes_left = bool(int(words[code // 64]) >> (code % 64) & 1)
        else:
            goes_left = code <= tree.threshold[node]
        node = (tree.left if goes_left else tree.right)[node]
    return int(tree.leaf[node])


def leaves_at(parts, codes):
    """Return the leaf of each row and tree: int32 (n_rows, n_trees)."""
    leaves = [[find_leaf(tree, row) for tree, _, _ in parts] for row in codes.T]
    return np.array(leaves, np.int32).reshape(codes.shape[1], len(parts))


def raw_scores_at(parts, leaves, n_outputs, features=None):
    """Return raw scores, added tree by tree: float32 (n_rows, n_outputs)."""
    raw = np.zeros((len(leaves), n_outputs), np.float32)
    for t, (_, values, outputs) in enumerate(parts):
        columns = slice(None) if outputs is None else outputs
        raw[:, columns] += reference.leaf_values(values, leaves[:, t], features)
    return raw
