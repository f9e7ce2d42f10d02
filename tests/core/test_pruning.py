"""Pruned trees (TFBT, section III) against pruning by hand, and their benefits."""

from dataclasses import fields

import numpy as np
import pytest
import reference
from hypothesis import given, settings
from hypothesis import strategies as st
from support.problems import KINDS, assert_same_tree, make_problem, sample_rows
from support.small_fits import CLASSES, LAYERS, X, Y, classifier, regressor

from polyleaf import PolyleafRegressor

NEVER_CUT = -1e30  # as min_split_gain: nothing is pruned


def prune_by_hand(tree, penalty):
    """Return the tree without subtrees whose gains are too small, by recursion from the root."""

    def worth(i):
        if tree.feature[i] < 0:
            return 0.0
        return max(0.0, tree.gain[i] - penalty + (worth(tree.left[i]) + worth(tree.right[i])))

    def nodes_below(i):
        if worth(i) == 0.0:
            return [i]
        return [i, *nodes_below(tree.left[i]), *nodes_below(tree.right[i])]

    kept = sorted(nodes_below(0))
    leaf = np.array([worth(i) == 0.0 for i in kept])
    number = {old: new for new, old in enumerate(kept)}

    def renumbered(old):
        return np.array(
            [-1 if cut else number[i] for cut, i in zip(leaf, old, strict=True)], np.int32
        )

    values = {f.name: getattr(tree, f.name)[kept] for f in fields(tree) if f.name != "categories"}
    for name, of_leaf in (("feature", -1), ("threshold", -1), ("missing_left", False), ("gain", 0)):
        values[name][leaf] = of_leaf
    values["output_gain"][leaf] = 0
    values["left"], values["right"] = renumbered(values["left"]), renumbered(values["right"])
    values["leaf"] = np.where(leaf, np.cumsum(leaf) - 1, -1).astype(np.int32)
    sets = np.where(leaf, -1, values["category_set"])
    order = np.unique(sets[sets >= 0])  # in the order of splitting, as before
    values["category_set"] = np.where(sets < 0, -1, np.searchsorted(order, sets)).astype(np.int32)
    return reference.Tree(**values, categories=tree.categories[order])


@settings(max_examples=40, deadline=None, derandomize=True)
@given(data=st.data())
def test_pruning_equals_pruning_by_hand(library, data):
    n_bins = tuple(data.draw(st.lists(st.sampled_from([2, 5, 30, 255]), min_size=1, max_size=6)))
    penalty = data.draw(st.sampled_from([0.0, 0.1, 0.5, 3.0]))
    p = make_problem(
        data.draw(st.integers(0, 10**6)),
        n=data.draw(st.integers(1, 120)),
        n_bins=n_bins,
        categorical=data.draw(st.sets(st.integers(0, len(n_bins) - 1))),
        n_outputs=data.draw(st.sampled_from([1, 3])),
        kind=data.draw(st.sampled_from([*KINDS, "full"])),
        max_leaves=data.draw(st.integers(1, 30)),
        level_wise=data.draw(st.booleans()),
        reg_lambda=data.draw(st.sampled_from([0.0, 1.0, 20.0])),
        post_prune=True,
    )
    if data.draw(st.booleans()):
        p = sample_rows(p)
    if p.rows is not None and len(p.rows) == 0:
        return
    whole, _ = library.grow(p.replace_config(min_split_gain=NEVER_CUT))
    assert_same_tree(prune_by_hand(whole, NEVER_CUT), whole)
    cut, leaf_of_row = library.grow(p.replace_config(min_split_gain=penalty))
    assert_same_tree(prune_by_hand(whole, penalty), cut)
    np.testing.assert_array_equal(leaf_of_row, reference.leaf_of_row(cut, p.codes))


def test_zero_gain_splits_allow_later_gains():
    """The first split of an XOR problem has no gain; a minimum gain during growth stops there."""
    corners = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    features = np.repeat(corners, 25, axis=0)
    y = np.logical_xor(*features.T).astype(float)
    parameters = {"n_estimators": 5, "learning_rate": 1.0, "max_depth": 2, "min_child_samples": 1}
    before = PolyleafRegressor(**parameters, pruning="pre").fit(features, y)
    after = PolyleafRegressor(**parameters, pruning="post").fit(features, y)
    assert before.score(features, y) == 0.0
    assert after.score(features, y) > 0.99


@pytest.mark.parametrize(
    "parameters", [{}, LAYERS, {"hessian": "full"}, {**LAYERS, "subsample": 0.7}]
)
@pytest.mark.parametrize("make, y", [(regressor, Y), (classifier, CLASSES)])
def test_pruned_trees_are_smaller_with_equal_gain_per_leaf(parameters, make, y):
    uncut = make(**parameters, pruning="post").fit(X, y)
    first = uncut.model_.forest.tree(0)
    penalty = float(np.median(first.gain[first.feature >= 0]))
    estimator = make(**parameters, pruning="post", min_split_gain=penalty).fit(X, y)
    assert estimator.model_.forest.tree(0).n_leaves < first.n_leaves
    for t in range(estimator.model_.n_trees):
        tree = estimator.model_.forest.tree(t)
        whole = reference.Tree(
            **{f.name: np.array(getattr(tree, f.name)) for f in fields(reference.Tree)}
        )
        assert_same_tree(prune_by_hand(whole, penalty), whole)  # nothing is left to prune
        assert tree.n_leaves == 1 or tree.gain.sum() > penalty * (tree.n_leaves - 1)


def test_high_threshold_leaves_the_root():
    for parameters in ({}, LAYERS):
        estimator = regressor(**parameters, pruning="post", min_split_gain=1e9).fit(X, Y)
        assert estimator.model_.n_trees == 1 and estimator.model_.forest.tree(0).n_leaves == 1
