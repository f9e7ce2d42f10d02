"""Contributions equal their definition over all subsets, are additive and reproducible."""

import json
from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import Tree
from reference import shap as reference
from support.isa import run_on_each_isa
from support.trees import random_codes, random_features, random_forest, random_leaves, tree_arrays

from polyleaf import _core

N_FEATURES, N_OUTPUTS = 5, 3
OUTPUTS = np.arange(N_OUTPUTS, dtype=np.int32)
KINDS = [("dense",), ("sparse",), ("linear",), ("dense", "sparse", "linear")]
CLOSE = 2.0**-20  # of the sum of magnitudes


def contributions(explainer, codes, outputs=OUTPUTS, interactions=False, **options):
    """Return the contributions that the core adds to zeros."""
    features = (codes.shape[0],) * (2 if interactions else 1)
    out = np.zeros((codes.shape[1], *features, len(outputs)), np.float32)
    outputs = np.asarray(outputs, np.int32)
    explainer.explain(codes, out, outputs, interactions=interactions, **options)
    return out


def problem(seed, kinds=("dense",), sizes=(1, 2, 6, 9, 12), n_rows=8, n_background=None, **options):
    """Return a random forest, rows, and a background or None."""
    rng = np.random.default_rng(seed)
    options = {"scalar": 0.3, "categorical": 0.3} | options
    forest, parts = random_forest(rng, N_FEATURES, N_OUTPUTS, sizes, kinds=kinds, **options)
    rows, background = (
        None
        if n is None
        else (random_codes(rng, N_FEATURES, n), random_features(rng, N_FEATURES, n))
        for n in (n_rows, n_background)
    )
    return forest, parts, rows, background


def make_explainer(forest, background=None, **options):
    if background is None:
        return _core.Explainer(forest, **options)
    return _core.Explainer(forest, background=background[0], features=background[1], **options)


def magnitude(leaves):
    """Return the largest absolute leaf value."""
    numbers = getattr(leaves, "values", getattr(leaves, "intercept", leaves))
    return float(np.abs(numbers).max(initial=1.0))


def assert_close(found, expected, parts):
    """Compare within float32 rounding relative to the leaf values, which may exceed the result."""
    scale = sum(magnitude(leaves) for _, leaves, _ in parts)
    np.testing.assert_allclose(found, expected, rtol=CLOSE, atol=4 * CLOSE * scale)


# --- the definition ---


@pytest.mark.parametrize("n_background", [None, 7])
@pytest.mark.parametrize("kinds", KINDS, ids="+".join)
def test_contributions_equal_the_definition(kinds, n_background):
    forest, parts, (codes, x), background = problem(1, kinds, n_background=n_background)
    values, interactions, base = reference.explain_rows(parts, N_OUTPUTS, codes, x, background)
    explainer = make_explainer(forest, background)
    np.testing.assert_allclose(explainer.expected_values(OUTPUTS), base, atol=1e-13)
    assert_close(contributions(explainer, codes, features=x), values, parts)
    found = contributions(explainer, codes, features=x, interactions=True)
    assert_close(found, interactions, parts)


def long_tree(rng, n_splits, n_features):
    """Return a tree whose deepest leaves follow splits on all features, in random order."""
    arrays = tree_arrays(rng, n_features, 1, n_splits + 1, chain=True)
    inner = np.flatnonzero(arrays["feature"] >= 0)
    arrays["feature"][inner] = rng.permutation(n_features)[np.arange(n_splits) % n_features]
    return _core.Tree.from_arrays(**arrays)


def long_forest(seed, n_features):
    rng = np.random.default_rng(seed)
    tree = long_tree(rng, n_features, n_features)
    leaves = random_leaves(rng, "dense", n_features + 1, 1, n_features)
    forest = _core.Forest(1)
    forest.append(tree, leaves)
    return forest, [(tree, leaves, None)], rng


@pytest.mark.parametrize("n_features, n_background", [(9, None), (11, None), (9, 5), (13, 3)])
def test_long_paths_equal_the_definition(n_features, n_background):
    forest, parts, rng = long_forest(n_features, n_features)
    codes = random_codes(rng, n_features, 2)
    background = n_background and (random_codes(rng, n_features, n_background), None)
    values, interactions, _ = reference.explain_rows(parts, 1, codes, None, background)
    explainer = make_explainer(forest, background)
    np.testing.assert_allclose(contributions(explainer, codes, [0]), values, atol=CLOSE)
    found = contributions(explainer, codes, [0], interactions=True)
    np.testing.assert_allclose(found, interactions, atol=CLOSE)


def test_very_long_paths():
    """A row that meets n equally likely conditions has equal contributions of all."""
    n = 150
    arrays = tree_arrays(np.random.default_rng(0), n, 1, n + 1, chain=True)
    inner = np.flatnonzero(arrays["feature"] >= 0)
    arrays["feature"][inner] = np.arange(n)
    deepest = arrays["leaf"][[arrays["left"][inner[-1]], arrays["right"][inner[-1]]]]
    on_path = {int(inner[i + 1]) for i in range(n - 1)}
    goes_left = [int(arrays["left"][node]) in on_path or node == inner[-1] for node in inner]
    arrays["threshold"][inner] = 100
    arrays["count"][:] = 1
    forest = _core.Forest(1)
    values = np.zeros((n + 1, 1), np.float32)
    values[deepest[0]] = 1.0
    forest.append(_core.Tree.from_arrays(**arrays), values)
    codes = np.where(goes_left, 0, 200).astype(np.uint8)[:, None]
    found = contributions(make_explainer(forest), codes, [0])
    np.testing.assert_allclose(found, np.full((1, n, 1), 1 / n), rtol=1e-6)


def test_nodes_with_zero_cover_split_rows_in_half():
    forest, parts, (codes, x), _ = problem(2)
    bare, bare_parts = _core.Forest(N_OUTPUTS), []
    for tree, leaves, output in parts:
        arrays = {each.name: getattr(tree, each.name) for each in fields(Tree)}
        arrays["count"] = np.zeros(tree.n_nodes, np.int64)
        bare_parts.append((_core.Tree.from_arrays(**arrays), leaves, output))
        bare.append(*bare_parts[-1])
    values, _, base = reference.explain_rows(bare_parts, N_OUTPUTS, codes, x)
    np.testing.assert_allclose(make_explainer(bare).expected_values(OUTPUTS), base, atol=1e-13)
    assert_close(contributions(make_explainer(bare), codes), values, parts)
    assert (contributions(make_explainer(forest), codes) != values).any()


def test_cover_of_children_counts_in_layer_wise_trees():
    """The cover of a node may come from another sample than that of its children."""
    _, parts, _, _ = problem(3)
    tree = max((tree for tree, _, _ in parts), key=lambda tree: tree.n_nodes)
    inner = np.flatnonzero(tree.left >= 0)
    both = tree.count[tree.left[inner]] + tree.count[tree.right[inner]]
    assert (both != tree.count[inner]).all()


# --- properties ---


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    kinds=st.sampled_from(KINDS),
    sizes=st.lists(st.integers(1, 90), min_size=1, max_size=6),
    n_rows=st.integers(1, 150),
    n_background=st.sampled_from([None, None, 1, 9]),
)
def test_contributions_are_additive(seed, kinds, sizes, n_rows, n_background):
    if "linear" in kinds and n_background is not None:
        n_rows, sizes = min(n_rows, 5), [min(size, 9) for size in sizes]
    forest, parts, (codes, x), background = problem(seed, kinds, sizes, n_rows, n_background)
    explainer = make_explainer(forest, background)
    raw = forest.scores(codes, np.zeros(N_OUTPUTS), features=x)
    values = contributions(explainer, codes, features=x).astype(np.float64)
    expected = explainer.expected_values(OUTPUTS)
    assert_close(values.sum(axis=1) + expected, raw, parts)
    first, last = (
        contributions(make_explainer(forest, background, **part), codes, features=x)
        for part in ({"last": 1}, {"first": 1})
    )
    assert_close(first + last, values, parts)
    if n_rows * sum(sizes) < 4000:
        interactions = contributions(explainer, codes, features=x, interactions=True)
        interactions = interactions.astype(np.float64)
        assert (interactions == interactions.transpose(0, 2, 1, 3)).all()
        assert_close(interactions.sum(axis=2), values, parts)


def test_large_constant_in_all_leaves_keeps_precision():
    rng = np.random.default_rng(6)
    tree = _core.Tree.from_arrays(**tree_arrays(rng, N_FEATURES, 1, 20))
    leaves = random_leaves(rng, "dense", 20, 1, N_FEATURES)
    codes = random_codes(rng, N_FEATURES, 50)
    moved, expected = _core.Forest(1), _core.Forest(1)
    shifted = (leaves + np.float32(2.0**20)).astype(np.float32)
    moved.append(tree, shifted)
    expected.append(tree, (shifted - np.float32(2.0**20)).astype(np.float32))
    a, b = (contributions(make_explainer(forest), codes, [0]) for forest in (moved, expected))
    np.testing.assert_allclose(a, b, atol=1e-6)
    assert np.abs(a).max() > 0.1


def test_unused_features_contribute_zero():
    forest, _, (codes, x), _ = problem(7, ("dense", "linear"))
    wide = np.vstack([codes, codes[:2]]), np.vstack([x, x[:2]])
    explainer = make_explainer(forest)
    found = contributions(explainer, wide[0], features=wide[1])
    assert (found[:, N_FEATURES:] == 0).all()
    assert (found[:, :N_FEATURES] == contributions(explainer, codes, features=x)).all()
    background = random_codes(np.random.default_rng(0), N_FEATURES, 4)
    forest, _, (codes, _), _ = problem(8)
    same = np.repeat(codes[:, :1], 4, axis=1)
    assert (contributions(make_explainer(forest, (same, None)), codes[:, :1]) == 0).all()
    assert (contributions(make_explainer(forest, (background, None)), codes[:, :1]) != 0).any()


def test_symmetric_features_contribute_equally():
    """The two trees differ by an exchange of two features."""
    rng = np.random.default_rng(9)
    arrays = tree_arrays(rng, 2, N_OUTPUTS, 12)
    leaves = random_leaves(rng, "dense", 12, N_OUTPUTS, 2)
    feature = np.where(arrays["feature"] >= 0, 1 - arrays["feature"], -1).astype(np.int32)
    forest = _core.Forest(N_OUTPUTS)
    for tree in (arrays, {**arrays, "feature": feature}):
        forest.append(_core.Tree.from_arrays(**tree), leaves)
    codes = np.repeat(random_codes(rng, 1, 20), 2, axis=0)
    for background in (None, (np.repeat(random_codes(rng, 1, 6), 2, axis=0), None)):
        found = contributions(make_explainer(forest, background), codes)
        np.testing.assert_allclose(found[:, 0], found[:, 1], atol=4 * CLOSE)


# --- reproducibility ---


@pytest.mark.parametrize("n_background", [None, 9])
@pytest.mark.parametrize("interactions", [False, True])
def test_contributions_are_independent_of_other_rows(interactions, n_background):
    forest, _, (codes, _), background = problem(
        11, ("dense", "sparse"), (9, 40, 130), n_rows=12, n_background=n_background
    )
    explainer = make_explainer(forest, background)
    few = contributions(explainer, codes, interactions=interactions)
    repeated = np.ascontiguousarray(np.repeat(codes, 150, axis=1))
    for n_threads in (1, 2, 8):
        many = contributions(explainer, repeated, interactions=interactions, n_threads=n_threads)
        assert (many.reshape(12, 150, *few.shape[1:]) == few[:, None]).all()
    for chosen in ([2], [2, 0], [1]):
        assert (contributions(explainer, codes, chosen, interactions) == few[..., chosen]).all()


def test_linear_leaves_are_independent_of_the_number_of_rows():
    forest, _, (codes, x), _ = problem(12, ("linear",), (9, 30))
    few = contributions(make_explainer(forest), codes, features=x)
    tables = (np.ascontiguousarray(np.repeat(table, 100, axis=1)) for table in (codes, x))
    many = contributions(make_explainer(forest), next(tables), features=next(tables), n_threads=3)
    assert (many.reshape(8, 100, *few.shape[1:]) == few[:, None]).all()


def test_outputs_are_independent():
    rng = np.random.default_rng(13)
    forest, _ = random_forest(rng, 4, 700, (20, 30), kinds=("dense", "sparse"), scalar=0.3)
    codes = random_codes(rng, 4, 70)
    explainer = make_explainer(forest)
    whole = contributions(explainer, codes, np.arange(700))
    for chosen in (np.arange(0, 700, 9), [699], np.arange(500, 520)):
        assert (contributions(explainer, codes, chosen) == whole[..., chosen]).all()


EVERY_PROGRAM = """
import hashlib, json, sys
import numpy as np
from polyleaf import _core
from support.trees import random_codes, random_features, random_forest

rng = np.random.default_rng(14)
kinds = ("dense", "sparse", "linear")
forest, _ = random_forest(rng, 5, 3, (2, 12, 60), kinds=kinds, scalar=0.3, categorical=0.3)
tables = [(random_codes(rng, 5, n), random_features(rng, 5, n)) for n in (70, 6)]
codes, x = tables[0]
hashes = []
for background in ({}, {"background": tables[1][0], "features": tables[1][1]}):
    explainer = _core.Explainer(forest, **background)
    for n_features in (1, 2):
        for n_threads in (1, 3):
            out = np.zeros((70, *(5,) * n_features, 3), np.float32)
            chosen = np.arange(3, dtype=np.int32)
            pairs = {"interactions": n_features == 2}
            explainer.explain(codes, out, chosen, features=x, n_threads=n_threads, **pairs)
            hashes.append(hashlib.md5(out.tobytes()).hexdigest())
print(json.dumps(hashes))
"""


@pytest.mark.full
def test_instruction_sets_and_threads_give_the_same_bits():
    printed = [json.loads(text) for text in run_on_each_isa(EVERY_PROGRAM)]
    assert all(found == printed[0] for found in printed)
    assert len(set(printed[0])) == 4  # all options but the number of threads


# --- linear leaves ---


def linear_stump(weights, lower, upper, n_regressors=2):
    """Make two linear leaves, split on feature 0 at code 100, with one function of all features."""
    arrays = tree_arrays(np.random.default_rng(0), 1, 1, 2)
    arrays["threshold"][0] = 100
    arrays["count"][1:] = 50
    leaves = _core.LinearLeaves(
        np.array([0, n_regressors, 2 * n_regressors]),
        np.tile(np.arange(n_regressors, dtype=np.int32), 2),
        np.tile(np.array(weights, np.float32), 2)[:, None],
        np.zeros(2 * n_regressors, np.float32),
        np.zeros((2, 1), np.float32),
        np.full((2, 1), lower, np.float32),
        np.full((2, 1), upper, np.float32),
    )
    tree = _core.Tree.from_arrays(**arrays)
    forest = _core.Forest(1)
    forest.append(tree, leaves)
    return forest, [(tree, leaves, None)]


def test_contributions_of_linear_leaves():
    forest, _ = linear_stump([2.0, -3.0], -np.inf, np.inf)
    x = np.array([[1.0, np.nan, 4.0], [5.0, 1.0, 0.0]], np.float32)
    codes = np.array([[0, 200, 255], [0, 0, 0]], np.uint8)
    found = contributions(make_explainer(forest), codes, [0], features=x)[..., 0]
    # Both leaves are equal, so the split contributes nothing; a missing value is the centre.
    np.testing.assert_allclose(found, [[2.0, -15.0], [0.0, -3.0], [8.0, 0.0]], atol=1e-6)


def test_clipping_is_attributed_to_regressors_beyond_the_bound():
    forest, parts = linear_stump([1.0, 1.0, -1.0], -2.0, 3.0, 3)
    x = np.array(
        [[10.0, 1.0, 1e30, 3.4e38], [1.0, 1.0, 0.0, 3.4e38], [0.0, 9.0, 0.0, 3.4e38]], np.float32
    )
    codes = np.zeros((3, 4), np.uint8)
    found = contributions(make_explainer(forest), codes, [0], features=x)
    values, _, base = reference.explain_rows(parts, 1, codes, x)
    np.testing.assert_allclose(found, values, atol=1e-6)
    raw = forest.scores(codes, np.zeros(1), features=x)
    np.testing.assert_allclose(found.sum(axis=1) + base, raw, atol=1e-6)
    # Row 2: one value alone reaches the bound. Row 0: 10 and 1 against a bound of 3.
    np.testing.assert_allclose(found[2, :, 0], [3.0, 0.0, 0.0], atol=1e-6)
    np.testing.assert_allclose(found[0, :, 0], [2.5, 0.5, 0.0], atol=1e-6)


def test_too_many_clipped_regressors_raise():
    n = 18
    forest, _ = linear_stump(np.ones(n), -1.0, 1.0, n)
    codes, x = np.zeros((n, 1), np.uint8), np.ones((n, 1), np.float32)
    with pytest.raises(ValueError, match="18 regressors and values that reach its bounds"):
        contributions(make_explainer(forest), codes, [0], features=x)
    with pytest.raises(ValueError, match="18 regressors that differ"):
        contributions(make_explainer(forest, (codes, 2 * x)), codes, [0], features=x)
    free, _ = linear_stump(np.ones(n), -np.inf, np.inf, n)
    assert (contributions(make_explainer(free), codes, [0], features=x) == 1).all()


# --- bad input ---


def test_invalid_arguments_raise():
    forest, _, (codes, x), _ = problem(15, ("dense", "linear"))
    explainer = make_explainer(forest)
    with pytest.raises(ValueError, match="no output 3 among the 3"):
        explainer.expected_values(np.array([3], np.int32))
    with pytest.raises(ValueError, match="Output 1 is asked for twice"):
        explainer.expected_values(np.array([1, 1], np.int32))
    out = np.zeros((8, N_FEATURES, N_OUTPUTS), np.float32)
    with pytest.raises(ValueError, match="pass them as `features`"):
        explainer.explain(codes, out, OUTPUTS)
    with pytest.raises(ValueError, match=r"\(n_rows, n_features, n_features, outputs\)"):
        explainer.explain(codes, out, OUTPUTS, features=x, interactions=True)
    with pytest.raises(ValueError, match="`scale`"):
        explainer.explain(codes, out, OUTPUTS, features=x, scale=np.ones(2))
    with pytest.raises(ValueError, match="but the trees read 5"):
        explainer.explain(codes[:2], out[:, :2].copy(), OUTPUTS, features=x)
    with pytest.raises(ValueError, match="background has no rows"):
        make_explainer(forest, (codes[:, :0].copy(), x[:, :0].copy()))
    with pytest.raises(ValueError, match="Trees 0 to 9"):
        make_explainer(forest, last=9)
    forest, _, rng = long_forest(0, 70)
    with pytest.raises(ValueError, match="splits on 70 features"):
        make_explainer(forest, (random_codes(rng, 70, 3), None))
    assert (out == 0).all()


def test_no_trees_and_no_rows():
    empty = _core.Explainer(_core.Forest(3))
    assert (contributions(empty, np.zeros((4, 3), np.uint8)) == 0).all()
    assert (empty.expected_values(OUTPUTS) == 0).all()
    forest, _, (codes, _), _ = problem(16)
    nothing = contributions(make_explainer(forest), codes[:, :0].copy())
    assert nothing.shape == (0, N_FEATURES, N_OUTPUTS)


def test_explainer_keeps_its_forest_alive():
    forest, _, (codes, _), _ = problem(17)
    explainer = make_explainer(forest)
    before = contributions(explainer, codes)
    forest.truncate(0)
    del forest
    assert (contributions(explainer, codes) == before).all()


def test_scale_multiplies():
    forest, _, (codes, x), _ = problem(18, ("dense", "sparse", "linear"))
    explainer = make_explainer(forest)
    plain = contributions(explainer, codes, features=x)
    scaled = contributions(explainer, codes, features=x, scale=np.array([2.0, -0.5, 1.0]))
    np.testing.assert_allclose(scaled, plain * [2.0, -0.5, 1.0], atol=1e-6)
