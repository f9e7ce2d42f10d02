"""The C++ grower equals the NumPy reference exactly: channels, tree arrays and leaf values.

A missing or incomplete core is a failure here, not a skip. All comparisons are `==`.
"""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import reference
from hypothesis import given, settings
from hypothesis import strategies as st
from support.core_settings import grow_config
from support.monotone_problems import (
    INVALID_DIRECTIONS,
    MISSING_VALUES,
    add_directions,
    split_off_missing_values,
)
from support.pairwise import parametrize_pairs
from support.problems import (
    KINDS,
    MISSING_TIES,
    Core,
    HistogramGrower,
    Problem,
    Reference,
    as_reference_tree,
    assert_same_tree,
    core_bins,
    draw_factors,
    make_problem,
    rows_of_nodes,
    sample_rows,
)

OUTPUTS = [1, 2, 3, 5, 16, 17, 33, 70]
MIXED = {"n_bins": (9, 30, 5, 7), "categorical": [2]}
CATEGORIES = {"n_bins": (9, 30, 5, 7), "categorical": [2, 3]}
LARGE_BINS = {"n_bins": (200, 6, 30), "categorical": [2]}
LAYERS = {"max_depth": 4, "level_wise": True}


def assert_same_channels(p, n_threads=1, expected=None):
    for core, array in zip(
        Core.channels(p, n_threads), Reference.channels(expected or p), strict=True
    ):
        np.testing.assert_array_equal(core, array)


def assert_core_equals_reference(p, n_threads=1):
    """Compare channels, tree, leaf IDs and leaf values with the reference; return the tree."""
    assert_same_channels(p, n_threads)
    core, core_leaves = Core.grow(p, n_threads)
    expected, reference_leaves = Reference.grow(p)
    assert_same_tree(core, expected)
    np.testing.assert_array_equal(core_leaves, reference_leaves)
    core_values = Core.leaves(p, core_leaves, core.n_leaves, 0.3, n_threads)
    reference_values = Reference.leaves(p, reference_leaves, expected.n_leaves, 0.3)
    assert core_values.dtype == np.float32
    np.testing.assert_array_equal(core_values, reference_values)
    # The tree does not depend on the storage of features.
    sparsely, sparsely_leaves = Core.grow(p.store_sparse(), n_threads)
    assert_same_tree(sparsely, expected)
    np.testing.assert_array_equal(sparsely_leaves, reference_leaves)
    return expected


# --- channels ---


@pytest.mark.parametrize("n_outputs", OUTPUTS)
@pytest.mark.parametrize("kind", KINDS)
def test_channels(kind, n_outputs):
    p = make_problem(1, n=77, n_outputs=n_outputs, kind=kind)
    for problem in (p, sample_rows(p), sample_rows(p, multiplied=False)):
        core, expected = Core.channels(problem, n_threads=2), Reference.channels(problem)
        assert core[0].dtype == np.int32 and core[1].dtype == np.float32
        assert core[0].shape == (len(problem.rows_in_use), n_outputs + len(expected[2]))
        assert_same_channels(problem, n_threads=2)


@pytest.mark.parametrize("n_outputs", range(1, 9))
@pytest.mark.parametrize("kind", KINDS)
def test_values_of_rows_outside_the_sample_are_ignored(kind, n_outputs):
    """Vector loads read beyond a row; other rows must not change its channels."""
    p = sample_rows(make_problem(1, n=77, n_outputs=n_outputs, kind=kind))
    outside = np.setdiff1d(np.arange(77), p.rows)
    g, h = p.g.copy(), None if p.h is None else p.h.copy()
    for values in (g,) if h is None else (g, h):
        values[outside[::2]], values[outside[1::2]] = np.nan, np.inf
    wild = replace(p, g=g, h=h)
    assert_same_channels(wild, expected=p)
    assert_same_tree(Core.grow(wild)[0], Core.grow(p)[0])


@pytest.mark.parametrize("n_outputs", [1, 3])
@pytest.mark.parametrize("n_rows", [65_530, 70_000, 150_000])
def test_channels_are_scaled_down_when_sums_could_overflow(n_rows, n_outputs):
    """Equal rows push sum |q| past int32: the reference shifts by 0, 1 and 2 bits."""
    signs = np.where(np.arange(n_rows) % 3 == 0, -1, 1).astype(np.float32)
    g = np.ascontiguousarray(signs[:, None] * np.linspace(0.3, 1, n_outputs, dtype=np.float32))
    g[::7, -1] *= np.float32(0.77)
    codes = (np.arange(n_rows) % 5).astype(np.uint8)[None]
    p = Problem(codes, np.array([5], np.uint16), np.zeros(1, bool), g, np.abs(g), "diagonal")
    assert_same_channels(p, n_threads=2)
    assert_same_tree(Core.grow(p, n_threads=2)[0], Reference.grow(p)[0])


def test_quantisation_of_zeros_and_extremes():
    p = make_problem(2, n=50, n_outputs=4, kind="diagonal")
    g = p.g * np.array([0, 1e-36, 1e30, 1], np.float32)
    g[3, 2] = np.float32(3e38)
    assert_core_equals_reference(replace(p, g=g, h=p.h * np.array([1, 0, 1e-32, 1e30], np.float32)))


# --- trees ---


@pytest.mark.parametrize("n_outputs", OUTPUTS)
@pytest.mark.parametrize("kind", KINDS)
def test_trees_at_every_number_of_outputs(kind, n_outputs):
    p = make_problem(3, n=400, **CATEGORIES, n_outputs=n_outputs, kind=kind)
    assert assert_core_equals_reference(p).n_leaves > 5
    assert_core_equals_reference(sample_rows(p, multiplied=kind != "unit"), n_threads=2)


@pytest.mark.parametrize("n_outputs", [1, 2, 3, 5, 16, 17])
@pytest.mark.parametrize("block_size", [0, 1, 2, 3])
def test_trees_with_full_hessian(n_outputs, block_size):
    p = make_problem(3, n=300, **CATEGORIES, n_outputs=n_outputs, kind="full", min_child_weight=0.5)
    p = p.replace_config(block_size=block_size)
    assert assert_core_equals_reference(p).n_leaves > 5
    assert_core_equals_reference(sample_rows(p), n_threads=2)
    assert_core_equals_reference(p.replace_config(reg_lambda=0.0, max_depth=3, max_leaves=8))


@parametrize_pairs(kind=[*KINDS, "full"], level_wise=[False, True], min_split_gain=[0.0, 0.3])
def test_pruned_trees(kind, level_wise, min_split_gain):
    limits = {"max_depth": 6, "max_leaves": 40, "reg_lambda": 20.0, "level_wise": level_wise}
    p = make_problem(12, n=300, **CATEGORIES, n_outputs=3, kind=kind, **limits)
    p = p.replace_config(min_split_gain=min_split_gain)
    before, _ = Core.grow(p)
    p = p.replace_config(post_prune=True)
    full = assert_core_equals_reference(p)
    sample = assert_core_equals_reference(sample_rows(p), n_threads=2)
    for tree in (full, sample):
        inner = tree.feature >= 0
        worth = np.where(inner, tree.gain - min_split_gain, 0.0)
        for i in reversed(np.flatnonzero(inner)):
            worth[i] += worth[tree.left[i]] + worth[tree.right[i]]
        assert (worth[inner] > 0).all()
    assert (full.gain[full.feature >= 0] < min_split_gain).any() or full.n_leaves <= before.n_leaves


@parametrize_pairs(
    kind=[*KINDS, "full"],
    n_outputs=[1, 3, 17],
    options=[{}, {"colsample_bynode": 0.5}, {"max_leaves": 9}, {"post_prune": True}],
)
def test_layers_with_new_gradients(kind, n_outputs, options):
    """Each layer has its own derivatives, unrelated to those before."""
    size = {"n": 500, **MIXED, "n_outputs": n_outputs, "kind": kind}
    config = {**LAYERS, "max_leaves": 16, "min_split_gain": 0.05, **options}
    layers = [make_problem(20, **size, **config)]
    for draw in range(21, 25):
        other = make_problem(draw, **size)
        layers.append(replace(layers[0], g=other.g, h=other.h))
    for p in (layers, [sample_rows(layer) for layer in layers]):
        expected, reference_leaves = Reference.grow_by_layers(p)
        assert expected.n_leaves > 4
        for n_threads in (1, 2):
            core, core_leaves = Core.grow_by_layers(p, n_threads)
            assert_same_tree(core, expected)
            np.testing.assert_array_equal(core_leaves, reference_leaves)


def test_layers_with_different_rows():
    """Each layer has its own row sample: rows are grouped by the nodes that they reach."""
    p = make_problem(20, n=500, **MIXED, n_outputs=3, **LAYERS)
    everything = np.arange(500, dtype=np.uint32)
    samples = [everything[:100], everything[::2], None, everything]
    core, leaves = Core.grow_by_layers([replace(p, rows=rows) for rows in samples])
    again, other = Core.grow_by_layers([replace(p, rows=rows) for rows in samples], n_threads=3)
    assert_same_tree(core, again)
    np.testing.assert_array_equal(leaves, other)
    np.testing.assert_array_equal(leaves, reference.leaf_of_row(core, p.codes))
    depth = np.zeros(core.n_nodes, int)
    for i in np.flatnonzero(core.feature >= 0):
        depth[core.left[i]] = depth[core.right[i]] = depth[i] + 1
    nodes = rows_of_nodes(core, p.codes)
    # A node counts the rows of the layer that made it.
    of_layer = [everything if rows is None else rows for rows in [samples[0], *samples]]
    for i in range(core.n_nodes):
        assert core.count[i] == np.isin(nodes[i], of_layer[depth[i]]).sum()
    whole, whole_leaves = Core.grow(p)
    same, same_leaves = Core.grow_by_layers([p] * 4)
    assert_same_tree(same, whole)
    np.testing.assert_array_equal(same_leaves, whole_leaves)


@pytest.mark.parametrize(
    "n_outputs, kind", [(16, "unit"), (8, "diagonal"), (64, "unit"), (70, "unit")]
)
def test_bins_larger_than_a_packed_count(n_outputs, kind):
    """No lane is free for counts, and bins have hundreds of rows (packed_histogram.h)."""
    p = make_problem(27, n=3000, n_bins=(9, 3, 30, 2), n_outputs=n_outputs, kind=kind, max_leaves=8)
    assert max(np.bincount(codes).max() for codes in p.codes) > 4 * 255
    for problem in (p, sample_rows(p)):
        for n_threads in (1, 2):
            assert_core_equals_reference(problem, n_threads)


def test_counts_are_not_packed_with_many_lanes():
    """Also if the previous tree had few lanes."""
    few = make_problem(28, n=600, n_bins=(9, 3, 30, 2), n_outputs=16, max_leaves=8)
    many = replace(few, g=make_problem(28, n=600, n_outputs=80).g)
    grower = Core.grower(few)
    for p in (few, many, few):
        assert_same_tree(Core.grow(p, grower=grower)[0], Reference.grow(p)[0])


def test_layers_with_growing_gradients():
    """Channels of all layers fit in the same bits: those of the first layer are halved."""
    n = 3 * 32760
    codes = np.repeat(np.arange(3, dtype=np.uint8), n // 3)
    few = Problem(
        codes=codes[None],
        n_bins=np.array([3], np.uint16),
        is_categorical=np.zeros(1, bool),
        g=np.where(np.arange(n) % 2 == 0, 1, -1).astype(np.float32)[:, None]
        + np.float32(codes == 0)[:, None] / 64,
        h=None,
        kind="unit",
        config=reference.GrowConfig(max_depth=2, max_leaves=4, level_wise=True),
    )
    many = replace(few, g=np.where(codes == 1, 1, 1e-3).astype(np.float32)[:, None])
    largest = [abs(Reference.channels(p)[0][:, 0]).max() for p in (few, many)]
    assert largest[0] < largest[1] == 32767
    expected, _ = Reference.grow_by_layers([few, many, many])
    core, _ = Core.grow_by_layers([few, many, many])
    assert expected.n_leaves == 3
    assert_same_tree(core, expected)


@pytest.mark.parametrize("n_features", [1, 7, 8, 9, 17])
def test_trees_at_every_number_of_features(n_features):
    """Around the tile of eight features."""
    p = make_problem(4, n=200, n_bins=(6,) * n_features, n_outputs=2)
    assert_core_equals_reference(p, n_threads=2)
    mask = np.arange(n_features) % 3 == 0
    tree = assert_core_equals_reference(replace(p, features=mask))
    assert mask[tree.feature[tree.feature >= 0]].all()


@parametrize_pairs(
    n_rows=[2, 7, 8, 9, 16, 17, 33, 65, 100, 128, 129, 254, 255, 256, 257],
    kind=KINDS,
    n_outputs=[1, 2, 3, 7, 8],
)
def test_trees_at_every_number_of_rows(n_rows, kind, n_outputs):
    """Rows of small nodes are sorted, in runs of sixteen."""
    for missing in (0.0, 0.2):
        size = {"n": n_rows, "n_bins": (255, 5, 64, 3), "n_outputs": n_outputs, "missing": missing}
        limits = {"min_child_weight": n_rows % 2, "min_child_samples": 1 + n_rows % 3}
        assert_core_equals_reference(make_problem(n_rows, **size, kind=kind, **limits))


@parametrize_pairs(
    n_bins=[1, 2, 3, 16, 17, 64, 128, 254, 255], categorical=[(), (0, 1)], n_outputs=[1, 3]
)
def test_trees_at_every_number_of_bins(n_bins, categorical, n_outputs):
    bins = {"n_bins": (n_bins, n_bins), "categorical": categorical}
    p = make_problem(5, n=600, **bins, n_outputs=n_outputs, min_child_samples=5)
    uniform = np.random.default_rng(0).integers(0, n_bins, p.codes.shape)
    uniform = np.where(p.codes == reference.MISSING, p.codes, uniform)
    assert_core_equals_reference(p)
    assert_core_equals_reference(replace(p, codes=uniform.astype(np.uint8)))


@pytest.mark.parametrize("missing", [0.0, 0.5, 0.97, 1.0])
@pytest.mark.parametrize("kind", KINDS)
def test_missing_values(kind, missing):
    p = make_problem(6, n_bins=(9, 4, 6), categorical=[2], n_outputs=2, kind=kind, missing=missing)
    tree = assert_core_equals_reference(p)
    assert (tree.n_leaves == 1) == (missing == 1.0)


def test_ties_over_missing_values():
    for p, threshold, missing_left in MISSING_TIES:
        tree = assert_core_equals_reference(p)
        assert (tree.threshold[0], tree.missing_left[0]) == (threshold, missing_left)


@parametrize_pairs(
    n_outputs=[1, 2, 17], kind=KINDS, options=[{}, {"max_cat_to_onehot": 30}, {"cat_smooth": 0.5}]
)
def test_categories(kind, n_outputs, options):
    bins = {"n_bins": (25, 3, 90), "categorical": [0, 1, 2]}
    p = make_problem(7, n=500, **bins, n_outputs=n_outputs, kind=kind, **options)
    tree = assert_core_equals_reference(p)
    assert len(tree.categories) == tree.n_leaves - 1


@parametrize_pairs(
    n_outputs=[1, 2, 17],
    kind=KINDS,
    options=[{}, {"max_cat_to_onehot": 30}, {"reg_alpha": 0.5}, {"post_prune": True}],
)
def test_categorical_and_numeric_features(kind, n_outputs, options):
    """The gain correction applies to the comparison, not to the gain of the best split."""
    bins = {"n_bins": (25, 30, 90, 6), "categorical": [0, 2]}
    p = make_problem(17, n=500, **bins, n_outputs=n_outputs, kind=kind, **options)
    tree = assert_core_equals_reference(p)
    assert (tree.category_set[tree.feature >= 0] < 0).any()
    assert_core_equals_reference(sample_rows(p))


@pytest.mark.parametrize("n_outputs", [1, 2, 9])
def test_categories_of_equal_position_keep_the_order_of_codes(n_outputs):
    p = make_problem(3, n=390, n_bins=(39, 130), categorical=[0, 1], n_outputs=n_outputs)
    codes = np.stack([np.arange(390) % 39, np.arange(390) % 130]).astype(np.uint8)
    g = np.repeat(((codes[0] // 4) % 3 - 1)[:, None], n_outputs, axis=1)
    assert_core_equals_reference(replace(p, codes=codes, g=g.astype(np.float32)))


def test_informative_number_beats_noise_categories():
    """Without the correction the feature of 100 random categories would be split on first."""
    rng = np.random.default_rng(0)
    n = 1000
    codes = np.stack([rng.integers(0, 100, n), rng.integers(0, 20, n)]).astype(np.uint8)
    g = (rng.normal(size=n) - 0.02 * codes[1]).astype(np.float32)[:, None]
    sums = {}
    channels = reference.quantise(g, None, "unit")
    config = reference.GrowConfig()
    data = codes, np.array([100, 20]), np.array([True, False]), channels, config
    chance = reference.estimate_overfit(channels)
    for f in (0, 1):
        sums[f] = reference.best_candidate(*data, [f], chance)
    assert sums[0].sum > 1.5 * sums[1].sum and sums[0].penalised_sum < sums[1].penalised_sum
    assert reference.best_candidate(*data, [0, 1], chance).feature == 1


@parametrize_pairs(
    options=[{}, {"post_prune": True}, {"leaf_k": 1}, {"reg_alpha": 0.4}],
    n_outputs=[1, 3, 17],
    kind=[*KINDS, "full"],
)
def test_gain_factors(kind, n_outputs, options):
    if kind == "full" and (n_outputs == 17 or not options.keys() <= {"post_prune"}):
        options = {}
    n_outputs = min(n_outputs, 5) if kind == "full" else n_outputs
    bins = {"n_bins": (25, 30, 90, 6, 9), "categorical": [0]}
    p = make_problem(18, n=500, **bins, n_outputs=n_outputs, kind=kind, **options)
    tree = assert_core_equals_reference(p.replace_config(factors=draw_factors(p)))
    assert tree.n_leaves > 5
    assert not np.array_equal(tree.feature, Reference.grow(p)[0].feature)
    assert_core_equals_reference(sample_rows(p.replace_config(factors=draw_factors(p, 1))), 2)


def test_unit_factors_and_invalid_factors():
    p = make_problem(19, n=500, n_bins=(25, 30, 90, 6), categorical=[0], n_outputs=3, kind="unit")
    tree = assert_core_equals_reference(p.replace_config(factors=np.ones(4, np.float32)))
    np.testing.assert_array_equal(tree.feature, Reference.grow(p)[0].feature)
    with pytest.raises(ValueError, match="one number per feature"):
        Core.grow(p.replace_config(factors=np.ones(3, np.float32)))
    for wrong in (0.0, 1.5, np.nan):
        with pytest.raises(ValueError, match="in \\(0, 1]"):
            Core.grow(p.replace_config(factors=np.full(4, wrong, np.float32)))


@pytest.mark.parametrize("n_outputs", [1, 6])
@pytest.mark.parametrize("n_categories", [10, 80])
def test_categorical_gain_correction_equals_gain_of_noise(n_outputs, n_categories):
    """The mean gain exceeds that of a fixed cut; the formula is accurate to an eighth of it."""
    rng = np.random.default_rng(1)
    config, n, found = reference.GrowConfig(reg_lambda=0.0, min_child_samples=1), 4000, []
    for _ in range(60):
        codes = (np.arange(n) % n_categories).astype(np.uint8)[None]
        g = rng.normal(size=(n, n_outputs)).astype(np.float32)
        channels = reference.quantise(g, None, "unit")
        bins = np.array([n_categories]), [True]
        best = reference.best_candidate(codes, *bins, channels, config, [0])
        fixed_cut = float(np.sum(np.mean(g, axis=0) ** 2) * n) + n_outputs
        found.append(float(best.sum) - fixed_cut)
    expected = float(reference.estimate_overfit(channels).expected_gain(n_categories))
    assert abs(np.mean(found) - expected) < 0.2 * expected


REGULARISERS = [
    {"reg_lambda": 0.0},
    {"reg_lambda": 25.0},
    {"reg_alpha": 3.0},
    {"max_delta_step": 0.1},
    {"reg_alpha": 1.5, "max_delta_step": 0.2, "reg_lambda": 0.1},
    {"min_split_gain": 0.8},
    {"min_child_weight": 9.3},
    {"min_child_samples": 20},
    {"min_child_samples": 7, "min_child_weight": 5.1, "reg_alpha": 0.3},
]


@parametrize_pairs(config=REGULARISERS, kind=KINDS, n_outputs=[1, 5])
def test_regularisation(kind, n_outputs, config):
    p = make_problem(8, n=300, categorical=[3], n_outputs=n_outputs, kind=kind, **config)
    assert assert_core_equals_reference(p).n_leaves > 1


def test_zero_hessian():
    p = make_problem(8, n=100, n_outputs=3, kind="diagonal", reg_lambda=0.0)
    h = p.h.copy()
    h[p.codes[0] < 2] = 0
    h[:, 1] = 0
    assert_core_equals_reference(replace(p, h=h))
    assert_core_equals_reference(replace(p, h=h[:, :1].copy(), kind="shared"))
    assert_core_equals_reference(replace(p, h=np.zeros_like(h)))


SCHEDULES = [
    {"max_leaves": 1},
    {"max_leaves": 2},
    {"max_leaves": 7},
    {"max_leaves": 1000},
    {"max_leaves": 1000, "max_depth": 0},
    {"max_leaves": 8, "max_depth": 3},  # no limit on leaves is active
    {"max_leaves": 7, "max_depth": 3},
    {"max_leaves": 40, "max_depth": 40},
]


@pytest.mark.parametrize("level_wise", [False, True])
@pytest.mark.parametrize("config", SCHEDULES, ids=str)
def test_growth_policies_and_limits(config, level_wise):
    bins = {"n_bins": (20, 30, 40), "categorical": [2]}
    p = make_problem(9, n=250, **bins, n_outputs=2, level_wise=level_wise, **config)
    tree = assert_core_equals_reference(p, n_threads=2)
    depth = config.get("max_depth", 20)
    assert tree.n_leaves <= min(config["max_leaves"], 2**depth)


@pytest.mark.parametrize("fraction", [0.01, 0.3, 0.5, 0.999, 1.0])
@pytest.mark.parametrize("seed", [0, 12345, 2**63 + 11])
def test_column_sampling_per_node(fraction, seed):
    p = make_problem(10, n_bins=(8,) * 11, n_outputs=2, colsample_bynode=fraction, seed=seed)
    assert_core_equals_reference(p)
    assert_core_equals_reference(replace(p, features=np.arange(11) % 4 != 1))


GROUPS = np.array([[1, 1, 0, 0, 0], [0, 1, 1, 0, 0], [0, 0, 0, 1, 1]], bool)


@pytest.mark.parametrize("fraction", [0.5, 1.0])
@pytest.mark.parametrize(
    "groups, at_most", [(GROUPS, 0), (GROUPS, 1), (None, 1), (None, 2), (GROUPS[:1], 0)]
)
def test_interaction_constraints(groups, at_most, fraction):
    p = make_problem(21, n=500, n_bins=(8,) * 5, categorical=[2], n_outputs=2, max_leaves=20)
    p = p.replace_config(colsample_bynode=fraction)
    tree = assert_core_equals_reference(replace(p, groups=groups, at_most=at_most), n_threads=2)
    assert tree.n_leaves > 4
    for path in paths(tree):
        assert at_most == 0 or len(path) <= at_most
        assert groups is None or any(set(path) <= set(np.flatnonzero(group)) for group in groups)


def test_constraints_can_be_removed():
    p = make_problem(21, n=300, n_bins=(8,) * 5, max_leaves=10)
    grower, free = Core.grower(p), Reference.grow(p)[0]
    for constrained in (replace(p, at_most=1), add_directions(p)):
        assert not np.array_equal(Core.grow(constrained, grower=grower)[0].gain, free.gain)
        assert_same_tree(Core.grow(p, grower=grower)[0], free)


@parametrize_pairs(
    n_outputs=OUTPUTS, kind=KINDS, penalties=[{}, {"reg_alpha": 0.4, "max_delta_step": 0.3}]
)
def test_monotone_constraints(kind, n_outputs, penalties):
    """Children that would violate the constraint of an output share its best common value."""
    p = make_problem(22, n=400, **MIXED, n_outputs=n_outputs, kind=kind, **penalties)
    tree = assert_core_equals_reference(add_directions(p))
    assert tree.n_leaves > 5
    assert not np.array_equal(tree.gain, Reference.grow(p)[0].gain)
    assert_core_equals_reference(add_directions(sample_rows(p, multiplied=kind != "unit")), 2)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n_outputs", [1, 2, 17])
def test_values_below_a_tied_split_are_bounded(kind, n_outputs, monkeypatch):
    """A split that violates the constraint of the only output has no gain."""
    p = make_problem(27 + (n_outputs == 1), n=500, **MIXED, n_outputs=n_outputs, kind=kind)
    tree = assert_core_equals_reference(add_directions(p))
    monkeypatch.setattr(
        reference.output_bounds.OutputBounds, "child_bounds", lambda self, *_: (self, self)
    )
    unbounded = Reference.grow(add_directions(p))[0]
    assert unbounded.n_leaves > 5
    assert np.array_equal(tree.gain, unbounded.gain) == (n_outputs == 1)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n_outputs", [1, 3, 17])
def test_monotone_constraints_with_missing_values(kind, n_outputs):
    """A split of missing from present values is monotone: one side has no values."""
    p = make_problem(23, n=400, **MISSING_VALUES, n_outputs=n_outputs, kind=kind)
    tree = assert_core_equals_reference(split_off_missing_values(p))
    assert ((tree.feature == 1) & (tree.threshold == 29) & ~tree.missing_left)[0]


@pytest.mark.parametrize("n_outputs", [1, 3])
def test_monotone_constraints_of_layers(n_outputs):
    p = add_directions(make_problem(24, n=500, n_bins=(9, 30, 5), n_outputs=n_outputs, **LAYERS))
    gradients = [make_problem(draw, n=500, n_outputs=n_outputs).g for draw in range(25, 29)]
    layers = [p, *(replace(p, g=g) for g in gradients)]
    expected, reference_leaves = Reference.grow_by_layers(layers)
    assert expected.n_leaves > 4
    core, core_leaves = Core.grow_by_layers(layers, n_threads=2)
    assert_same_tree(core, expected)
    np.testing.assert_array_equal(core_leaves, reference_leaves)


def test_quantised_gradients_keep_nothing_of_more_outputs():
    from polyleaf import _core

    wide, p = (make_problem(0, n=300, n_bins=(8,) * 5, n_outputs=n) for n in (2, 1))
    reused = _core.QuantisedGradients()
    for q in (wide, p):
        reused.quantise(q.g, q.h, q.kind, None, None, 1)
    tree = Core.grower(p).grow(reused, grow_config(p.config))
    assert_same_tree(as_reference_tree(tree), Core.grow(p)[0])


@pytest.mark.parametrize(("directions", "more", "sentence"), INVALID_DIRECTIONS)
def test_invalid_monotone_constraints(directions, more, sentence):
    p = make_problem(1, n=50, n_outputs=2, **more)
    with pytest.raises(ValueError, match=sentence):
        Core.grow(replace(p, directions=directions))


def paths(tree):
    """Return the features on the path to each leaf."""
    above = {0: set()}
    for i in range(len(tree.feature)):
        if tree.left[i] < 0:
            yield above[i]
        else:
            above[tree.left[i]] = above[tree.right[i]] = above[i] | {int(tree.feature[i])}


def test_no_feature_allowed():
    p = replace(make_problem(10), features=np.zeros(4, bool))
    assert assert_core_equals_reference(p).n_leaves == 1


@pytest.mark.parametrize("n_threads", [1, 2, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_many_row_blocks(kind, n_threads):
    """There are more rows than in one block of work, so threads share them."""
    p = make_problem(11, n=9000, **LARGE_BINS, n_outputs=3, kind=kind, max_leaves=12)
    assert_core_equals_reference(p, n_threads)
    assert_core_equals_reference(sample_rows(p, multiplied=kind != "unit"), n_threads)


@pytest.mark.parametrize("n_outputs", [1, 2, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_many_rows_for_each_bin(kind, n_outputs):
    """Sums of few channels are packed, over all rows or a limited number at a time."""
    p = make_problem(19, n=20_000, n_bins=(255, 4, 3), n_outputs=n_outputs, kind=kind, max_leaves=6)
    assert_core_equals_reference(p, n_threads=2)


@pytest.mark.parametrize("kind", KINDS)
def test_deep_trees(kind):
    """Nodes have from many blocks of rows down to one row."""
    p = make_problem(17, n=2000, **LARGE_BINS, n_outputs=2, kind=kind, max_leaves=250)
    assert assert_core_equals_reference(p, n_threads=2).n_leaves == 250


@pytest.mark.parametrize("histogram_memory", [0, 100_000, 1_000_000])
@pytest.mark.parametrize("level_wise", [False, True])
def test_histogram_memory_does_not_change_trees(histogram_memory, level_wise):
    """Histograms are kept and subtracted, or built again: sums are exact in both cases."""
    bins = {"n_bins": (200, 6, 30) * 4, "categorical": [2]}
    p = make_problem(18, n=2000, **bins, n_outputs=3, max_leaves=60, level_wise=level_wise)
    tree, leaf_of_row = Core.grow(p, n_threads=2)
    bounded, bounded_leaf_of_row = Core.grow(p, n_threads=2, histogram_memory=histogram_memory)
    assert_same_tree(tree, bounded)
    np.testing.assert_array_equal(leaf_of_row, bounded_leaf_of_row)


@pytest.mark.parametrize("n_threads", [1, 2, 3])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_non_finite_gradient_raises(bad, n_threads):
    for n_outputs, row in product((1, 3), (0, 30_000, 59_999)):
        g = np.ones((60_000, n_outputs), np.float32)
        h = g.copy()
        g[row, -1] = bad
        for kind, first, second in (("unit", g, None), ("diagonal", g, h), ("diagonal", h, g)):
            p = Problem(np.empty((1, 0)), np.ones(1), np.zeros(1, bool), first, second, kind)
            with pytest.raises(ValueError, match="not finite"):
                Core.channels(p, n_threads)


def test_grower_can_be_reused():
    from polyleaf import _core

    p = make_problem(12, n_outputs=2)
    q = sample_rows(p, multiplied=False)
    grower = HistogramGrower(core_bins(p.codes, p.n_bins, p.is_categorical), 2)
    for problem in (p, q, p):
        channels = _core.QuantisedGradients(problem.g, None, "unit", problem.rows, None, 2)
        tree = grower.grow(channels, grow_config(), None)
        expected, leaves = Reference.grow(problem)
        np.testing.assert_array_equal(tree.feature, expected.feature)
        np.testing.assert_array_equal(tree.gain, expected.gain)
        np.testing.assert_array_equal(grower.leaf_of_row, leaves)


# --- leaf values ---


@parametrize_pairs(n_threads=[1, 3], n_outputs=[1, 3, 17], kind=KINDS)
def test_leaf_values(kind, n_outputs, n_threads):
    """Leaf values may use other derivatives than the tree; some leaves are empty."""
    for config in ({}, {"reg_lambda": 0.0}, {"reg_alpha": 2.0, "max_delta_step": 0.05}):
        p = make_problem(13, n=5000, n_outputs=n_outputs, kind=kind, **config)
        leaf_of_row = np.random.default_rng(0).integers(0, 9, 5000).astype(np.int32)
        for problem in (p, sample_rows(p), sample_rows(p, multiplied=False)):
            core = Core.leaves(problem, leaf_of_row, 10, 0.1, n_threads)
            np.testing.assert_array_equal(core, Reference.leaves(problem, leaf_of_row, 10, 0.1))
            assert not core[9].any()


@pytest.mark.parametrize("scale", [0.0, 1e-38, 1e-20, 1.0, 1e20, 1e35])
def test_leaf_values_at_every_scale(scale):
    p = make_problem(14, n=100, n_outputs=2, kind="diagonal", reg_lambda=0.0)
    leaf_of_row = np.arange(100, dtype=np.int32) % 4
    p = replace(p, g=p.g * np.float32(scale), h=p.h * np.float32(scale))
    core = Core.leaves(p, leaf_of_row, 4)
    assert np.isfinite(core).all()
    np.testing.assert_array_equal(core, Reference.leaves(p, leaf_of_row, 4))


# --- random problems ---


@st.composite
def problems(draw):
    """Return small random problems with many settings at once."""
    n_bins = tuple(draw(st.lists(st.sampled_from([1, 2, 3, 6, 20, 255]), min_size=1, max_size=10)))
    p = make_problem(
        draw(st.integers(0, 2**32)),
        n=draw(st.integers(1, 120)),
        n_bins=n_bins,
        categorical=draw(st.sets(st.integers(0, len(n_bins) - 1))),
        n_outputs=draw(st.sampled_from(OUTPUTS)),
        kind=draw(st.sampled_from(KINDS)),
        missing=draw(st.sampled_from([0.0, 0.1, 0.6])),
        max_leaves=draw(st.sampled_from([1, 4, 31, 200])),
        max_depth=draw(st.sampled_from([-1, -1, 1, 2, 5])),
        level_wise=draw(st.booleans()),
        reg_lambda=draw(st.sampled_from([0.0, 0.3, 1.0])),
        reg_alpha=draw(st.sampled_from([0.0, 0.0, 0.4])),
        min_split_gain=draw(st.sampled_from([0.0, 0.0, 0.05])),
        min_child_weight=draw(st.sampled_from([0.0, 0.0, 1.1])),
        min_child_samples=draw(st.sampled_from([0, 1, 4])),
        max_delta_step=draw(st.sampled_from([0.0, 0.0, 0.3])),
        max_cat_to_onehot=draw(st.sampled_from([0, 1, 4, 10])),
        cat_smooth=draw(st.sampled_from([0.0, 10.0])),
        colsample_bynode=draw(st.sampled_from([1.0, 0.4])),
        seed=draw(st.integers(0, 2**64 - 1)),
    )
    if draw(st.booleans()):  # few distinct derivatives: many ties
        p = replace(p, g=np.round(p.g).astype(np.float32))
    if draw(st.booleans()):
        p = sample_rows(
            p, fraction=draw(st.sampled_from([0.3, 0.8])), multiplied=draw(st.booleans())
        )
    if p.rows is not None and len(p.rows) == 0:
        p = replace(p, rows=np.zeros(1, np.uint32))
    if draw(st.booleans()):
        p = replace(p, features=np.random.default_rng(0).random(len(n_bins)) < 0.7)
    if draw(st.booleans()):
        p = add_directions(p, draw(st.integers(0, 99)))
    return p


@settings(max_examples=60, deadline=None, derandomize=True)
@given(problems(), st.sampled_from([1, 2, 3]))
def test_random_problems(p, n_threads):
    assert_core_equals_reference(p, n_threads)


@pytest.mark.full
@settings(max_examples=1500, deadline=None, derandomize=True)
@given(problems(), st.sampled_from([1, 2, 3]))
def test_many_random_problems(p, n_threads):
    assert_core_equals_reference(p, n_threads)


def test_one_grower_with_every_hessian_kind():
    """Memory layouts are replaced when the channels change, also at equal numbers of lanes."""
    problems = [
        make_problem(31, n=300, n_bins=(200, 9), n_outputs=k, kind=kind)
        for kind in KINDS
        for k in (9, 14)
    ]
    grower = Core.grower(problems[0], 2)
    for p in [*problems, *reversed(problems)]:
        p = replace(p, codes=problems[0].codes)
        assert_same_tree(Core.grow(p, 2, grower)[0], Reference.grow(p)[0])
