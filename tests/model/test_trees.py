"""Read access to the trees of a model."""

import numpy as np
import pytest
import reference
from support.models import example_table, random_model

ALL_KINDS = ("sparse", "linear", "dense")


def test_trees_are_a_sequence():
    model = random_model(n_rounds=5, kinds=ALL_KINDS)
    trees = model.trees
    assert len(trees) == 5 and [tree.number for tree in trees] == [0, 1, 2, 3, 4]
    assert trees[-1].number == 4 and [tree.number for tree in trees[1:4:2]] == [1, 3]
    assert [tree.kind for tree in trees] == ["sparse", "linear", "dense", "sparse", "linear"]
    assert [tree.round for tree in trees] == [0, 1, 2, 3, 4] and trees[0].outputs is None
    assert random_model(scalar=True).trees[4].outputs == [1]
    assert (trees[0].n_nodes, trees[0].n_leaves) == (15, 8)
    with pytest.raises(IndexError):
        trees[5]
    assert "8 linear leaves, round 1" in repr(trees[1]) and "5" in repr(trees)
    model.truncate(2)
    assert len(trees) == 2 and len(list(trees)) == 2


@pytest.mark.parametrize("scalar", [False, True])
def test_leaf_values_add_up_to_predictions(scalar):
    model = random_model(kinds=("linear", "dense") if scalar else ALL_KINDS, scalar=scalar)
    table = example_table(model)
    x, raw = table.get_raw_values(), np.zeros((table.n_rows, 3), np.float32)
    for tree in model.trees:
        leaves = tree.apply(table, n_threads=2)
        columns = slice(None) if tree.outputs is None else tree.outputs
        raw[:, columns] += reference.leaf_values(tree.leaves, leaves, x)
    np.testing.assert_array_equal(model.to_target_scale(raw), model.predict_raw(table))


def test_single_leaves():
    model = random_model(kinds=ALL_KINDS)
    sparse, linear, dense = model.trees[:3]
    for leaf in range(8):
        np.testing.assert_array_equal(dense.leaf_values(leaf), dense.leaves[leaf])
        outputs, values = sparse.leaf_sparse(leaf)
        expected = np.zeros(3, np.float32)
        expected[outputs] = values
        np.testing.assert_array_equal(sparse.leaf_values(leaf), expected)
        function = linear.leaf_linear(leaf)
        np.testing.assert_array_equal(linear.leaf_values(leaf), function.intercept)
        x = np.random.default_rng(leaf).normal(size=4).astype(np.float32)
        value = function.intercept + function.coefficients.T @ (
            x[function.features] - function.centre
        )
        expected = reference.linear_leaf_value(linear.leaves, leaf, x)
        np.testing.assert_allclose(
            np.clip(value, function.lower, function.upper), expected, rtol=1e-5
        )


def test_invalid_calls_raise():
    sparse, linear, dense = random_model(kinds=ALL_KINDS).trees[:3]
    for call, message in [
        (lambda: dense.leaf_linear(0), "Tree 2 has dense"),
        (lambda: sparse.leaf_linear(0), "Tree"),
        (lambda: linear.leaf_sparse(0), "Tree 1 has linear"),
    ]:
        with pytest.raises(ValueError, match=message):
            call()
    for call in (
        lambda: linear.leaf_linear(8),
        lambda: sparse.leaf_sparse(-1),
        lambda: dense.leaf_values(8),
    ):
        with pytest.raises(IndexError, match="leaf="):
            call()
    with pytest.raises(ValueError, match="read-only"):
        dense.leaves[0, 0] = 1
    with pytest.raises(ValueError, match="read-only"):
        linear.structure.feature[0] = 1
