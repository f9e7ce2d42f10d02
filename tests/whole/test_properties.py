"""Properties of all trees on any data, for the core and the reference implementation."""

from dataclasses import fields, replace

import numpy as np
import pytest
import reference
from hypothesis import given, settings
from hypothesis import strategies as st
from support.problems import KINDS, make_problem, rows_of_nodes, sample_rows

SETTINGS = settings(max_examples=40, deadline=None, derandomize=True)


def check_shape(tree, p):
    """Check the arrays of a binary tree.

    Every node except the root has one preceding parent, and leaves are in order.
    """
    inner = np.flatnonzero(tree.feature >= 0)
    is_leaf = tree.feature < 0
    children = np.concatenate([tree.left[inner], tree.right[inner]])
    assert sorted(children) == list(range(1, tree.n_nodes))
    assert np.all(tree.left[inner] > inner) and np.all(tree.right[inner] == tree.left[inner] + 1)
    assert np.array_equal(tree.leaf[is_leaf], np.arange(tree.n_leaves)) and np.all(
        tree.leaf[inner] == -1
    )
    assert tree.n_nodes == 2 * tree.n_leaves - 1 <= 2 * p.config.max_leaves - 1
    for name in ("left", "right", "threshold", "category_set"):
        assert np.all(getattr(tree, name)[is_leaf] == -1), name
    for name in ("gain", "output_gain", "missing_left"):
        assert not getattr(tree, name)[is_leaf].any(), name
    depth = np.zeros(tree.n_nodes, int)
    for i in inner:
        depth[[tree.left[i], tree.right[i]]] = depth[i] + 1
    assert p.config.max_depth < 0 or depth.max() <= p.config.max_depth


def check_splits(tree, p):
    """Check that splits refer to existing features, bins and categories.

    Categorical splits occur on categorical features only.
    """
    inner = np.flatnonzero(tree.feature >= 0)
    feature, is_set = tree.feature[inner], tree.category_set[inner] >= 0
    assert p.features is None or p.features[feature].all()
    assert np.array_equal(p.is_categorical[feature], is_set)
    assert np.array_equal(tree.threshold[inner] == -1, is_set)
    assert np.all(tree.threshold[inner] < p.n_bins[feature])
    assert sorted(tree.category_set[inner[is_set]]) == list(range(len(tree.categories)))
    for i in inner[is_set]:
        in_set = np.flatnonzero(reference.goes_left_table(tree, i)[: reference.MISSING])
        assert np.all(in_set < p.n_bins[tree.feature[i]])


def check_sums(tree, p):
    """Check that counts and covers add up, limits hold, and nothing is NaN."""
    inner = np.flatnonzero(tree.feature >= 0)
    left, right = tree.left[inner], tree.right[inner]
    assert tree.count[0] == len(p.rows_in_use)
    assert np.array_equal(tree.count[inner], tree.count[left] + tree.count[right])
    np.testing.assert_allclose(tree.cover[inner], tree.cover[left] + tree.cover[right], rtol=1e-5)
    if tree.n_leaves > 1:
        assert tree.count.min() >= max(1, p.config.min_child_samples)
        assert tree.cover.min() >= np.float32(p.config.min_child_weight)
    assert np.all(tree.gain[inner] > p.config.min_split_gain)
    scale = tree.gain[inner] + np.abs(tree.output_gain[inner]).mean(axis=1)
    assert np.all(np.abs(tree.output_gain[inner].mean(axis=1) - tree.gain[inner]) <= 1e-3 * scale)
    for f in fields(tree):
        assert not np.isnan(getattr(tree, f.name)).any(), f.name


def check_rows(tree, leaf_of_row, p):
    """Check that children partition their parent, and that leaf ids match the tree arrays."""
    assert leaf_of_row.dtype == np.int32
    assert np.array_equal(leaf_of_row, reference.leaf_of_row(tree, p.codes))
    rows = rows_of_nodes(tree, p.codes[:, p.rows_in_use])
    assert [len(r) for r in rows] == tree.count.tolist()
    for i in np.flatnonzero(tree.feature >= 0):
        together = np.concatenate([rows[tree.left[i]], rows[tree.right[i]]])
        assert np.array_equal(np.sort(together), rows[i])


def check(library, p):
    tree, leaf_of_row = library.grow(p, n_threads=2)
    check_shape(tree, p)
    check_splits(tree, p)
    check_sums(tree, p)
    check_rows(tree, leaf_of_row, p)
    values = library.leaves(p, leaf_of_row, tree.n_leaves)
    assert values.shape == (tree.n_leaves, p.g.shape[1]) and not np.isnan(values).any()
    return tree, values


@SETTINGS
@given(data=st.data())
def test_random_trees(library, data):
    n_bins = tuple(data.draw(st.lists(st.sampled_from([1, 2, 5, 30, 255]), min_size=1, max_size=9)))
    p = make_problem(
        data.draw(st.integers(0, 10**6)),
        n=data.draw(st.integers(1, 150)),
        n_bins=n_bins,
        categorical=data.draw(st.sets(st.integers(0, len(n_bins) - 1))),
        n_outputs=data.draw(st.sampled_from([1, 2, 7, 18])),
        kind=data.draw(st.sampled_from(KINDS)),
        missing=data.draw(st.sampled_from([0.0, 0.2, 0.9])),
        max_leaves=data.draw(st.integers(1, 40)),
        max_depth=data.draw(st.integers(-1, 6)),
        level_wise=data.draw(st.booleans()),
        min_split_gain=data.draw(st.sampled_from([-1.0, 0.0, 0.3])),
        min_child_samples=data.draw(st.integers(0, 12)),
        min_child_weight=data.draw(st.sampled_from([0.0, 2.5])),
        reg_alpha=data.draw(st.sampled_from([0.0, 0.5])),
        colsample_bynode=data.draw(st.sampled_from([0.3, 1.0])),
    )
    if data.draw(st.booleans()):
        p = sample_rows(replace(p, features=np.arange(len(n_bins)) % 2 == 0))
        p = replace(p, rows=p.rows if len(p.rows) else np.zeros(1, np.uint32))
    check(library, p)


@SETTINGS
@given(
    kind=st.sampled_from(KINDS),
    n_outputs=st.sampled_from([1, 3, 17]),
    scale=st.sampled_from([0.0, 1e-38, 1e-31, 1e-20, 1e12, 1e19, 1e30]),
    hessian_scale=st.sampled_from([0.0, 1e-31, 1.0, 1e30]),
    reg_lambda=st.sampled_from([0.0, 1.0]),
    reg_alpha=st.sampled_from([0.0, 1.0]),
)
def test_huge_and_tiny_derivatives(
    library, kind, n_outputs, scale, hessian_scale, reg_lambda, reg_alpha
):
    p = make_problem(1, n=100, categorical=[2], n_outputs=n_outputs, kind=kind, reg_alpha=reg_alpha)
    p = p.replace_config(reg_lambda=reg_lambda)
    h = None if p.h is None else p.h * np.float32(hessian_scale)
    check(library, replace(p, g=p.g * np.float32(scale), h=h))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n_outputs", [1, 3])
def test_nothing_to_split(library, kind, n_outputs):
    """Check that the result is a single leaf with the correct value.

    Cases: one row, constant features, all values missing, equal gradients.
    """
    p = make_problem(2, n=50, n_outputs=n_outputs, kind=kind)
    one_row = make_problem(2, n=1, n_outputs=n_outputs, kind=kind)
    constant = replace(p, codes=np.zeros_like(p.codes))
    missing = replace(p, codes=np.full_like(p.codes, reference.MISSING))
    flat = replace(p, g=np.zeros_like(p.g))
    for q in (one_row, constant, missing, flat):
        tree, values = check(library, q)
        assert tree.n_nodes == 1
        H = len(q.g) if q.h is None else q.h.sum(axis=0, dtype=np.float64)
        expected = -q.g.sum(axis=0, dtype=np.float64) / (H + 1)
        np.testing.assert_allclose(values[0], expected, rtol=1e-4, atol=1e-7)


def test_constant_gradient_gives_no_split(library):
    """Check that gains from rounding are not accepted.

    Without lambda the children have the parent's value, so that any gain is rounding.
    """
    p = make_problem(3, n=300, n_outputs=3, reg_lambda=0.0, min_split_gain=0.0)
    tree, _ = check(library, replace(p, g=np.full_like(p.g, 0.7)))
    assert tree.n_nodes == 1
