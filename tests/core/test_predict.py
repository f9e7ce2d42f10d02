"""Predictions equal the node-by-node traversal of tests/support/trees.py, bit for bit."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.isa import run_on_each_isa
from support.trees import leaves_at, random_codes, random_forest, raw_scores_at, tree_arrays

from polyleaf import _core

# Row counts around sizes at which prediction changes its code path: 64 and 256.
ROW_COUNTS = [0, 1, 5, 12, 13, 63, 64, 65, 100, 256, 300, 577]


def assert_predictions_equal_traversal(forest, parts, codes, n_threads=1):
    leaves = leaves_at(parts, codes)
    raw = np.zeros((codes.shape[1], forest.n_outputs), np.float32)
    forest.predict(codes, raw, n_threads=n_threads)
    np.testing.assert_array_equal(forest.apply(codes, n_threads=n_threads), leaves)
    np.testing.assert_array_equal(raw, raw_scores_at(parts, leaves, forest.n_outputs))


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    n_features=st.integers(1, 12),
    n_outputs=st.sampled_from([1, 2, 3, 5, 8, 9, 16, 17, 40, 70]),
    sizes=st.lists(st.sampled_from([1, 2, 3, 7, 30, 64, 300]), max_size=6),
    n_rows=st.sampled_from([0, 1, 2, 12, 13, 40, 64, 90]),
    categorical=st.sampled_from([0.0, 0.4, 1.0]),
    scalar=st.sampled_from([0.0, 0.5, 1.0]),
    n_threads=st.integers(1, 3),
)
def test_predictions_equal_traversal(
    seed, n_features, n_outputs, sizes, n_rows, categorical, scalar, n_threads
):
    rng = np.random.default_rng(seed)
    kinds = {"categorical": categorical, "scalar": scalar}
    forest, parts = random_forest(rng, n_features, n_outputs, sizes, **kinds)
    codes = random_codes(rng, n_features, n_rows)
    assert_predictions_equal_traversal(forest, parts, codes, n_threads)


@pytest.mark.parametrize("n_rows", ROW_COUNTS)
@pytest.mark.parametrize(
    ("n_features", "n_outputs", "sizes"), [(6, 20, [3, 64, 256, 257, 40]), (400, 3, [20, 30])]
)
def test_row_counts(n_features, n_outputs, sizes, n_rows):
    rng = np.random.default_rng(n_rows)
    forest, parts = random_forest(rng, n_features, n_outputs, sizes, categorical=0.3)
    assert_predictions_equal_traversal(forest, parts, random_codes(rng, n_features, n_rows), 2)


def predict_range(forest, codes, coded, n_threads=1, first=0, last=None):
    base, rows = np.zeros(forest.n_outputs), np.ascontiguousarray(codes[coded])
    trees = {"first": first, "last": last}
    return forest.scores(rows, base, coded_features=coded, n_threads=n_threads, **trees)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    n_features=st.sampled_from([1, 5, 40, 300]),
    n_outputs=st.sampled_from([1, 3, 17]),
    sizes=st.lists(st.sampled_from([1, 2, 7, 64, 300]), max_size=6),
    n_rows=st.sampled_from([0, 1, 12, 13, 64, 90, 300]),
    categorical=st.sampled_from([0.0, 0.5]),
    n_threads=st.integers(1, 3),
    data=st.data(),
)
def test_codes_of_used_features_suffice(
    seed, n_features, n_outputs, sizes, n_rows, categorical, n_threads, data
):
    """Only codes of features that the trees use are needed, also for a range of trees."""
    rng = np.random.default_rng(seed)
    forest, _ = random_forest(rng, n_features, n_outputs, sizes, categorical=categorical)
    first = data.draw(st.integers(0, len(forest)))
    last = data.draw(st.integers(first, len(forest)))
    codes = random_codes(rng, n_features, n_rows)
    all_of_them = forest.scores(codes, np.zeros(n_outputs), first=first, last=last)
    needed = forest.split_features(first, last)
    for more in ([], range(n_features), rng.integers(0, n_features, 3)):
        coded = np.union1d(needed, np.array(more, np.int32)).astype(np.int32)
        found = predict_range(forest, codes, coded, n_threads, first, last)
        np.testing.assert_array_equal(found, all_of_them)


def test_missing_codes_of_a_used_feature_raise():
    rng = np.random.default_rng(3)
    forest, _ = random_forest(rng, 6, 2, [40, 40])
    codes = random_codes(rng, 6, 20)
    every = np.arange(6, dtype=np.int32)
    assert list(forest.split_features(0, 2)) == list(every)
    with pytest.raises(ValueError, match="split on feature 4, but there are no codes of it"):
        predict_range(forest, codes, np.delete(every, 4))
    with pytest.raises(ValueError, match="one row for each of the features"):
        forest.scores(codes, np.zeros(2), coded_features=every[:5])
    for wrong in (every[::-1].copy(), np.repeat(every[:3], 2), every - 1):
        with pytest.raises(ValueError, match="must ascend"):
            forest.scores(codes, np.zeros(2), coded_features=wrong)


@pytest.mark.parametrize("n_leaves", [256, 257, 900])
def test_deep_chains(n_leaves):
    rng = np.random.default_rng(n_leaves)
    forest, parts = random_forest(rng, 3, 2, [n_leaves, n_leaves], chain=True, categorical=0.2)
    tree = parts[0][0]
    # Each split sends only a few codes to its leaf, so most rows reach deep nodes.
    arrays = {name: np.array(getattr(tree, name)) for name in tree_arrays(rng, 1, 1, 1)}
    threshold = arrays["threshold"]
    arrays["threshold"] = np.where(threshold >= 0, threshold % 4, -1).astype(np.int32)
    deep = _core.Tree.from_arrays(**arrays)
    values = rng.normal(size=(n_leaves, 2)).astype(np.float32)
    forest.append(deep, values)
    parts.append((deep, values, None))
    assert_predictions_equal_traversal(forest, parts, random_codes(rng, 3, 90))


PRINT_DIGEST = """
import hashlib, numpy as np
from support.trees import random_codes, random_features, random_forest
digest = hashlib.sha256()
for kinds in (("dense",), ("sparse", "linear")):
    for n_outputs in (1, 4, 8, 16, 75):
        rng = np.random.default_rng(n_outputs)
        kind = {"categorical": 0.3, "scalar": 0.2, "kinds": kinds}
        forest, _ = random_forest(rng, 9, n_outputs, [64, 5, 300, 256], **kind)
        codes, x = random_codes(rng, 9, 700), random_features(rng, 9, 700)
        for n_threads in (1, 4):
            raw = np.zeros((700, n_outputs), np.float32)
            forest.predict(codes, raw, features=x, n_threads=n_threads)
            digest.update(raw.tobytes() + forest.apply(codes).tobytes())
print(digest.hexdigest())
"""


def test_instruction_sets_give_the_same_bits():
    assert len(set(run_on_each_isa(PRINT_DIGEST))) == 1


def test_tree_ranges_are_additive():
    rng = np.random.default_rng(3)
    forest, _ = random_forest(rng, 5, 4, [20] * 40, scalar=0.3)
    codes = random_codes(rng, 5, 130)
    whole, parts = np.zeros((2, 130, 4), np.float32)
    forest.predict(codes, whole)
    for first, last in [(0, 1), (1, 1), (1, 17), (17, 40)]:
        forest.predict(codes, parts, first=first, last=last)
    assert whole.tobytes() == parts.tobytes()
    leaves = forest.apply(codes)
    np.testing.assert_array_equal(forest.apply(codes, first=7, last=30), leaves[:, 7:30])


def test_scores_are_base_score_plus_scaled_sums():
    rng = np.random.default_rng(4)
    forest, _ = random_forest(rng, 5, 3, [20] * 10)
    codes = random_codes(rng, 5, 300)
    raw = np.zeros((300, 3), np.float32)
    forest.predict(codes, raw)
    base, scale, offset = np.array([1e9, 0.5, -3]), np.array([2.0, 1, 3]), np.array([0.0, 7, -1])
    np.testing.assert_array_equal(forest.scores(codes, base), base + raw)
    scaled = forest.scores(codes, base, scale, offset, n_threads=2)
    np.testing.assert_array_equal(scaled, (base + raw) * scale + offset)
    none = forest.scores(codes, base, first=2, last=2)
    np.testing.assert_array_equal(none, np.tile(base, (300, 1)))


def test_no_trees():
    forest = _core.Forest(2)
    raw = np.ones((3, 2), np.float32)
    forest.predict(np.zeros((0, 3), np.uint8), raw)
    assert (raw == 1).all() and len(forest) == 0
    assert forest.apply(np.zeros((4, 3), np.uint8)).shape == (3, 0)
    assert forest.scores(np.zeros((4, 0), np.uint8), np.zeros(2)).shape == (0, 2)


def test_single_node_tree_needs_no_features():
    tree = _core.Tree.from_arrays(**tree_arrays(np.random.default_rng(0), 1, 2, 1))
    forest = _core.Forest(2)
    forest.append(tree, np.array([[1, 2]], np.float32))
    raw = np.zeros((3, 2), np.float32)
    forest.predict(np.zeros((0, 3), np.uint8), raw)
    np.testing.assert_array_equal(raw, [[1, 2]] * 3)


def test_truncate_and_append():
    rng = np.random.default_rng(5)
    forest, parts = random_forest(rng, 4, 3, [30, 300, 5, 300, 64], categorical=0.3)
    codes = random_codes(rng, 4, 100)
    forest.truncate(2)
    assert_predictions_equal_traversal(forest, parts[:2], codes)
    forest.append(*parts[4])
    assert_predictions_equal_traversal(forest, [*parts[:2], parts[4]], codes)
    forest.truncate(0)
    assert_predictions_equal_traversal(forest, [], codes)
    with pytest.raises(ValueError, match="Cannot keep 4 trees"):
        forest.truncate(4)


def test_views_are_read_only_and_keep_the_forest_alive():
    rng = np.random.default_rng(6)
    forest, parts = random_forest(rng, 4, 3, [6, 9])
    values, feature = forest.values(1), forest.tree(1).feature
    for view in (values, feature, forest.tree(0).output_gain, forest.tree(0).missing_left):
        with pytest.raises(ValueError, match="read-only"):
            view[0] = 0
    forest.truncate(0)
    del forest
    np.testing.assert_array_equal(values, parts[1][1])
    np.testing.assert_array_equal(feature, parts[1][0].feature)


def test_arrays_round_trip():
    arrays = tree_arrays(np.random.default_rng(7), 5, 3, 12, categorical=0.5)
    tree = _core.Tree.from_arrays(**arrays)
    for name, array in arrays.items():
        np.testing.assert_array_equal(getattr(tree, name), array)
        assert getattr(tree, name).dtype == array.dtype
    assert (tree.n_nodes, tree.n_leaves, tree.n_outputs) == (23, 12, 3)


@pytest.mark.parametrize(
    ("name", "node", "value", "message"),
    [
        ("feature", 0, 5, "feature 5 of 5"),
        ("feature", 0, -2, "feature -2"),
        ("feature", 0, -1, "are not a binary tree"),
        ("threshold", 0, 255, "threshold code 255"),
        ("threshold", 0, -1, "threshold code -1"),
        ("left", 0, 0, "which is not after it"),
        ("left", 0, -1, "which is not after it"),
        ("right", 0, 99, "which is not after it"),
        ("right", 0, 1, "two parents"),
        ("leaf", 0, 0, "is a split but has a leaf id"),
        ("leaf", -1, 99, "out of range"),
        ("leaf", -1, -1, "out of range"),
        ("category_set", 0, 0, "category set 0, out of range"),
        ("category_set", 0, -7, "category set -7, out of range"),
        ("category_set", -1, 0, "is a leaf but has a split"),
        ("left", -1, 3, "is a leaf but has children"),
        ("count", 2, -1, "negative count"),
    ],
)
def test_invalid_nodes_raise(name, node, value, message):
    arrays = tree_arrays(np.random.default_rng(8), 5, 2, 8)
    arrays[name] = arrays[name].copy()
    arrays[name][node] = value
    with pytest.raises(ValueError, match=message):
        _core.Tree.from_arrays(**arrays, n_features=5)


def test_invalid_leaf_ids_and_lengths_raise():
    arrays = tree_arrays(np.random.default_rng(9), 5, 2, 8)
    leaf = arrays["leaf"]
    twice = np.where(leaf == 3, 4, leaf).astype(np.int32)
    with pytest.raises(ValueError, match="of another leaf"):
        _core.Tree.from_arrays(**arrays | {"leaf": twice})
    with pytest.raises(ValueError, match="differ in length"):
        _core.Tree.from_arrays(**arrays | {"leaf": leaf[:-1]})
    with pytest.raises(ValueError, match="one row for each of the 15 nodes"):
        _core.Tree.from_arrays(**arrays | {"output_gain": arrays["output_gain"][:-1]})
    with pytest.raises(ValueError, match="has 3 columns"):
        _core.Tree.from_arrays(**arrays | {"categories": np.zeros((0, 3), np.uint64)})
    with pytest.raises(ValueError, match="no node"):
        _core.Tree.from_arrays(**{name: array[:0] for name, array in arrays.items()})
    with pytest.raises(ValueError, match="missing_left"):
        _core.Tree.from_arrays(**arrays | {"missing_left": np.full(15, 7, np.uint8).view(bool)})


@settings(max_examples=300, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), data=st.data())
def test_random_arrays_raise_or_predict(seed, data):
    """Trees that pass the checks can be traversed safely."""
    rng = np.random.default_rng(seed)
    arrays = tree_arrays(rng, 3, 2, data.draw(st.integers(1, 6)), categorical=0.3)
    for _ in range(data.draw(st.integers(1, 3))):
        name = data.draw(st.sampled_from("feature threshold left right leaf category_set".split()))
        arrays[name] = arrays[name].copy()
        arrays[name][rng.integers(len(arrays[name]))] = rng.integers(-3, 14)
    try:
        tree = _core.Tree.from_arrays(**arrays, n_features=3)
    except ValueError as error:
        assert str(error).endswith(".")
        return
    forest, values = _core.Forest(2), rng.normal(size=(tree.n_leaves, 2)).astype(np.float32)
    forest.append(tree, values)
    assert_predictions_equal_traversal(forest, [(tree, values, None)], random_codes(rng, 3, 70))


def test_invalid_calls_raise():
    rng = np.random.default_rng(10)
    forest, [(tree, values, _)] = random_forest(rng, 4, 3, [6])
    codes, raw = np.zeros((4, 5), np.uint8), np.zeros((5, 3), np.float32)
    needed = int(tree.feature.max()) + 1
    for call, message in [
        (lambda: forest.append(tree, values, 3), "output 3, but there are 3"),
        (lambda: forest.append(tree, values, 0), "for 3 outputs where 1"),
        (lambda: forest.append(tree, values[:, :2].copy()), "for 2 outputs where 3"),
        (lambda: forest.append(tree, values[:5]), "6 leaves, but there are 5"),
        (lambda: forest.predict(codes[: needed - 1], raw), f"the trees read {needed}"),
        (lambda: forest.predict(codes, raw[:4]), r"\(5, 3\), but has shape \(4, 3\)"),
        (lambda: forest.predict(codes, raw, first=0, last=2), "the forest has 1 trees"),
        (lambda: forest.predict(codes, raw, first=-1), "the forest has 1 trees"),
        (lambda: forest.apply(codes, first=2), "the forest has 1 trees"),
        (lambda: forest.scores(codes, np.zeros(2)), "`base` must have one value for each of the 3"),
        (lambda: forest.scores(codes, np.zeros(3), scale=np.ones(3)), "give both or neither"),
        (lambda: _core.Forest(0), "at least one output"),
    ]:
        with pytest.raises(ValueError, match=message):
            call()
    with pytest.raises(IndexError):
        forest.tree(1)
    with pytest.raises(TypeError):  # not converted silently: the result would be lost
        forest.predict(codes, raw.astype(np.float64))
