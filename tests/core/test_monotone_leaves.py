"""Monotone leaves: the order of leaves and the nearest values equal their definitions."""

import numpy as np
import pytest
import reference
from hypothesis import given, settings
from hypothesis import strategies as st
from reference.monotone_leaves import isotonic, leaf_order
from sklearn.isotonic import IsotonicRegression
from support.problems import as_reference_tree
from support.trees import random_codes, tree_arrays

from polyleaf import _core


def problem(seed, n_leaves=6, n_outputs=2, categorical=0.3, n_features=3):
    """Return a random tree, values and Hessians of its leaves, and directions of features."""
    rng = np.random.default_rng(seed)
    arrays = tree_arrays(rng, n_features, n_outputs, n_leaves, categorical=categorical)
    # All splits on a feature are numeric, or none is.
    is_categorical = rng.random(n_features) < categorical
    numeric = (arrays["feature"] >= 0) & ~is_categorical[arrays["feature"]]
    sets = (arrays["feature"] >= 0) & is_categorical[arrays["feature"]]
    arrays["threshold"] = np.where(numeric, rng.integers(0, 8, len(numeric)), -1).astype(np.int32)
    arrays["category_set"] = np.where(sets, np.cumsum(sets) - 1, -1).astype(np.int32)
    arrays["categories"] = rng.integers(0, 2**8, (int(sets.sum()), 4)).astype(np.uint64)
    tree = _core.Tree.from_arrays(**arrays)
    directions = rng.integers(-1, 2, (n_features, n_outputs)).astype(np.int8)
    directions[is_categorical] = 0
    values = rng.normal(size=(n_leaves, n_outputs)).astype(np.float32)
    return tree, np.full(n_features, 8, np.uint16), directions, values


def constrain(
    tree, n_bins, directions, values, h=None, leaf_of_row=None, reg_lambda=1.0, n_threads=1
):
    leaf_of_row = np.arange(tree.n_leaves, dtype=np.int32) if leaf_of_row is None else leaf_of_row
    weights = (
        _core.sum_leaf_hessians(h, leaf_of_row, tree.n_leaves, None, None, n_threads) + reg_lambda
    )
    return _core.enforce_monotone_constraints(values, directions, n_bins, tree, weights, n_threads)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1), n_leaves=st.integers(1, 7), columns=st.sampled_from([0, 1, 2])
)
def test_values_are_the_nearest_monotone_ones(seed, n_leaves, columns):
    tree, n_bins, directions, values = problem(seed, n_leaves)
    rng = np.random.default_rng(seed)
    h = None if columns == 0 else rng.uniform(0.1, 3, (n_leaves, columns)).astype(np.float32)
    found = constrain(tree, n_bins, directions, values, h, n_threads=2)
    reference_tree = as_reference_tree(tree)
    ids = reference_tree.leaf[reference_tree.leaf >= 0]  # the reference orders leaves by node
    for k in range(values.shape[1]):
        order = leaf_order(reference_tree, n_bins, directions[:, k])
        weights = 1.0 + (
            np.ones(n_leaves) if h is None else h[:, min(k, columns - 1)].astype(np.float64)
        )
        expected = isotonic(values[ids, k].astype(np.float64), weights[ids], order)
        np.testing.assert_allclose(found[ids, k], expected, rtol=0, atol=1e-6)
        a, b = np.nonzero(order)
        assert np.all(found[ids[a], k] <= found[ids[b], k])


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_monotone_values_are_unchanged(seed):
    tree, n_bins, directions, values = problem(seed, n_leaves=40)
    once = constrain(tree, n_bins, directions, values)
    np.testing.assert_array_equal(constrain(tree, n_bins, directions, once), once)
    free = np.zeros_like(directions)
    np.testing.assert_array_equal(constrain(tree, n_bins, free, values), values)


@pytest.mark.parametrize("n_leaves", [2, 31, 250])
def test_one_feature_equals_isotonic_regression_of_scikit_learn(n_leaves):
    """All pairs of leaves are ordered; the order of neighbours implies the others."""
    rng = np.random.default_rng(n_leaves)
    arrays = tree_arrays(rng, 1, 2, n_leaves, chain=True)  # always split the right child
    inner = arrays["feature"] >= 0
    arrays["threshold"] = np.where(inner, np.cumsum(inner) - 1, -1).astype(np.int32)
    tree, leaves = _core.Tree.from_arrays(**arrays), arrays["leaf"][~inner]
    values = (rng.normal(size=(n_leaves, 2)) + np.linspace(0, 3, n_leaves)[:, None]).astype(
        np.float32
    )
    h = rng.uniform(0.1, 3, (n_leaves, 2)).astype(np.float32)
    found = constrain(
        tree, np.array([n_leaves], np.uint16), np.array([[1, -1]], np.int8), values, h
    )
    for k, rises in enumerate((True, False)):
        y, weights = values[leaves, k].astype(np.float64), 1.0 + h[leaves, k].astype(np.float64)
        place = np.arange(n_leaves)
        expected = IsotonicRegression(increasing=rises).fit(place, y, weights).predict(place)
        np.testing.assert_allclose(found[leaves, k], expected, rtol=0, atol=1e-6)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_predictions_are_monotone(seed):
    tree, n_bins, directions, values = problem(seed, n_leaves=60, n_features=4)
    found, rng = constrain(tree, n_bins, directions, values), np.random.default_rng(seed)
    codes = np.where(
        random_codes(rng, 4, 300) % 5 == 0, reference.MISSING, rng.integers(0, 8, (4, 300))
    )
    reference_tree = as_reference_tree(tree)
    for k in range(values.shape[1]):
        moved = np.clip(codes + rng.integers(0, 4, codes.shape) * directions[:, [k]], 0, 7)
        moved = np.where(codes == reference.MISSING, codes, moved)
        low, high = (
            reference.leaf_of_row(reference_tree, c.astype(np.uint8)) for c in (codes, moved)
        )
        assert np.all(found[low, k] <= found[high, k])


def test_leaves_of_zero_weight_count_equally():
    tree, n_bins, directions, values = problem(3, n_leaves=5, categorical=0.0)
    h = np.zeros((5, 1), np.float32)
    ones = constrain(tree, n_bins, directions, values, None, reg_lambda=0.0)
    np.testing.assert_array_equal(
        constrain(tree, n_bins, directions, values, h, reg_lambda=0.0), ones
    )


@pytest.mark.parametrize(
    "what, sentence", [("values", "one row per leaf"), ("directions", "per feature")]
)
def test_inconsistent_arrays_raise(what, sentence):
    tree, n_bins, directions, values = problem(0)
    wrong = {"values": values, "directions": directions} | {what: np.zeros((9, 2), np.int8)}
    with pytest.raises(ValueError, match=sentence):
        constrain(tree, n_bins, wrong["directions"], wrong["values"].astype(np.float32))
