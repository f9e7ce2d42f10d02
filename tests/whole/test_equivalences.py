"""Equalities that follow from the algorithms, for the core and the reference implementation.

If two runs add in a different order, structure is compared exactly and numbers to float32
precision.
"""

from dataclasses import replace

import numpy as np
import pytest
import reference
import scipy.sparse as sp
from support.configurations import N_ROWS, UPDATED, draw_configuration
from support.isa import run_on_each_isa
from support.problems import (
    KINDS,
    Core,
    Reference,
    all_numeric_splits,
    assert_same_structure,
    assert_same_tree,
    exact_gain,
    large_problems,
    make_problem,
    rows_of_nodes,
    run_boosting,
)


def draw_on_grid(draw, n, shape, largest, low):
    """Draw integers as float32 with magnitude up to 32767: quantised exactly with step 1."""
    values = np.random.default_rng(draw).integers(low, largest + 1, (n, *shape)).astype(np.float32)
    values[0] = 32767
    return values


# --- one output, many outputs ---


@pytest.mark.parametrize("kind", ["unit", "shared"])
@pytest.mark.parametrize("n_outputs", [1, 3])
def test_each_split_is_the_best_of_all(library, kind, n_outputs):
    """Compare with an exhaustive search in exact arithmetic.

    With one output it is the scalar tree (GBDT-MO, eq. 7).
    """
    p = make_problem(0, n=80, n_bins=(6, 9, 4), n_outputs=n_outputs, kind=kind, max_leaves=8)
    channels = reference.quantise(p.g, p.h, p.kind)
    tree, _ = library.grow(p)
    rows = rows_of_nodes(tree, p.codes)
    assert tree.n_leaves == 8
    for i in np.flatnonzero(tree.feature >= 0):
        gains = [
            float(exact_gain(p, channels, s[3], rows[i])) for s in all_numeric_splits(p, rows[i])
        ]
        assert tree.gain[i] == pytest.approx(max(gains), rel=1e-4)


def test_shared_and_diagonal_hessian_are_equal_for_one_output(library):
    """Check that diagonal and shared Hessians are identical for one output."""
    p = make_problem(1, n=400, kind="shared", categorical=[2], min_child_samples=5)
    assert_same_structure(library.grow(p)[0], library.grow(replace(p, kind="diagonal"))[0])


def test_constant_hessian_equals_unit_hessian(library):
    """Check that C-GB equals the vector leaf of GBDT-MO for squared error.

    C-GB splits by the error of the residuals (eq. 10).
    """
    p = make_problem(2, n=400, n_outputs=4, categorical=[2], min_child_samples=5)
    condensed, _ = library.grow(p)
    for kind, width in (("shared", 1), ("diagonal", 4)):
        vector, _ = library.grow(replace(p, kind=kind, h=np.ones((400, width), np.float32)))
        assert_same_structure(condensed, vector)


def test_condensed_boosting_equals_vector_boosting_for_squared_error(library):
    p = make_problem(3, n=300, n_outputs=3)
    data = p.codes, p.n_bins, p.is_categorical
    config = replace(p.config, max_leaves=8, min_child_samples=5)

    def squared_error_derivatives(y, score):
        return score - y, np.ones(y.shape)

    data = library, data, p.g.astype(np.float64)
    condensed, _ = run_boosting(*data, reference.squared_error, "unit", config, n_rounds=6)
    vector, _ = run_boosting(*data, squared_error_derivatives, "diagonal", config, n_rounds=6)
    np.testing.assert_allclose(condensed, vector, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("copies", [2, 4, 16, 32])
def test_duplicated_outputs_do_not_change_the_tree(library, kind, copies):
    """Check that duplicates have no effect.

    The gain is averaged over outputs, and sums of a power of two of equal terms are exact.
    """
    p = make_problem(4, n=300, kind=kind, min_split_gain=0.3)
    many = replace(p, g=np.repeat(p.g, copies, axis=1))
    if kind == "diagonal":
        many = replace(many, h=np.repeat(p.h, copies, axis=1))
    one, one_leaves = library.grow(p)
    tree, leaves = library.grow(many)
    assert_same_tree(one, tree, ignore=["output_gain"])
    np.testing.assert_array_equal(np.repeat(one.output_gain, copies, axis=1), tree.output_gain)
    values = library.leaves(many, leaves, tree.n_leaves)
    one_value = library.leaves(p, one_leaves, one.n_leaves)
    np.testing.assert_array_equal(values, np.repeat(one_value, copies, axis=1))


@pytest.mark.parametrize("kind", KINDS)
def test_order_of_outputs_permutes_leaf_values(library, kind):
    p = make_problem(5, n=400, n_outputs=19, kind=kind, min_child_samples=5)
    order = np.random.default_rng(0).permutation(19)
    h = p.h[:, order].copy() if kind == "diagonal" else p.h
    q = replace(p, g=p.g[:, order].copy(), h=h)
    (a, a_leaves), (b, b_leaves) = library.grow(p), library.grow(q)
    assert_same_structure(a, b)
    np.testing.assert_array_equal(a.output_gain[:, order], b.output_gain)
    a_values = library.leaves(p, a_leaves, a.n_leaves)
    b_values = library.leaves(q, b_leaves, b.n_leaves)
    np.testing.assert_array_equal(a_values[:, order], b_values)


# --- rows, features, weights ---


@pytest.mark.parametrize("kind", KINDS)
def test_order_of_rows_does_not_change_the_tree(library, kind):
    p = make_problem(6, n=400, categorical=[3], n_outputs=2, kind=kind)
    order = np.random.default_rng(0).permutation(400)
    h = None if p.h is None else p.h[order].copy()
    q = replace(p, codes=np.ascontiguousarray(p.codes[:, order]), g=p.g[order].copy(), h=h)
    (a, a_leaves), (b, b_leaves) = library.grow(p), library.grow(q)
    assert_same_tree(a, b)
    np.testing.assert_array_equal(a_leaves[order], b_leaves)
    a_values = library.leaves(p, a_leaves, a.n_leaves)
    np.testing.assert_array_equal(a_values, library.leaves(q, b_leaves, b.n_leaves))


def test_permuted_features_are_relabelled(library):
    """Leaves are large, so that no two features split a node identically, which would be a tie."""
    n_bins = (5, 8, 12, 3, 9, 30, 7, 4, 6, 11)
    p = make_problem(7, n=600, n_bins=n_bins, categorical=[2, 5], n_outputs=2, min_child_samples=25)
    order = np.random.default_rng(0).permutation(10)
    bins = {"n_bins": p.n_bins[order], "is_categorical": p.is_categorical[order]}
    q = replace(p, codes=np.ascontiguousarray(p.codes[order]), **bins)
    (a, a_leaves), (b, b_leaves) = library.grow(p), library.grow(q)
    assert a.n_leaves > 8
    assert_same_tree(a, b, ignore=["feature"])
    inner = a.feature >= 0
    np.testing.assert_array_equal(a.feature[inner], order[b.feature[inner]])
    np.testing.assert_array_equal(a_leaves, b_leaves)


def test_sampled_rows_equal_a_table_of_these_rows(library):
    p = make_problem(8, n=300, categorical=[1], n_outputs=2, kind="diagonal")
    rows = np.flatnonzero(np.random.default_rng(0).random(300) < 0.5).astype(np.uint32)
    alone = replace(p, codes=np.ascontiguousarray(p.codes[:, rows]), g=p.g[rows], h=p.h[rows])
    (a, a_leaves), (b, b_leaves) = library.grow(replace(p, rows=rows)), library.grow(alone)
    assert_same_tree(a, b)
    np.testing.assert_array_equal(a_leaves[rows], b_leaves)


def test_integer_weights_equal_repeated_rows(library):
    """Use derivatives on a grid, so that quantisation is exact.

    Only counts, and the limits that depend on them, may differ.
    """
    n = 200
    p = make_problem(9, n=n, n_bins=(5, 8, 12, 3), categorical=[3], max_leaves=12)
    weight = np.random.default_rng(0).integers(1, 4, n).astype(np.float32)
    weight[0] = 1
    g, h = draw_on_grid(1, n, (2,), 10_000, -10_000), draw_on_grid(2, n, (1,), 10_000, 1)
    repeated = np.repeat(np.arange(n), weight.astype(int))
    weighted = replace(p, kind="shared", g=g * weight[:, None], h=h * weight[:, None])
    codes = p.codes[:, repeated].copy()
    longer = replace(p, kind="shared", codes=codes, g=g[repeated], h=h[repeated])
    (a, a_leaves), (b, b_leaves) = library.grow(weighted), library.grow(longer)
    assert_same_tree(a, b, ignore=["count", "missing_left"])
    np.testing.assert_array_equal(a_leaves[repeated], b_leaves)
    a_values = library.leaves(weighted, a_leaves, 12)
    np.testing.assert_array_equal(a_values, library.leaves(longer, b_leaves, 12))


def test_multipliers_equal_weights(library):
    p = make_problem(10, n=300, n_outputs=2, kind="diagonal")
    multiplier = np.random.default_rng(0).choice([1, 2.5], 300).astype(np.float32)
    weighted = replace(p, g=p.g * multiplier[:, None], h=p.h * multiplier[:, None])
    sample = replace(p, multiplier=multiplier)
    (a, leaves), (b, _) = library.grow(weighted), library.grow(sample)
    assert_same_tree(a, b)
    a_values = library.leaves(weighted, leaves, a.n_leaves)
    np.testing.assert_array_equal(a_values, library.leaves(sample, leaves, a.n_leaves))


# --- loss, schedule ---


@pytest.mark.parametrize("grid", [True, False])
def test_gain_equals_the_decrease_of_the_loss(library, grid):
    """Check gain * K = loss of a node as one leaf - loss of its children as leaves.

    The loss is squared error, and lambda is 0. Quantisation moves a gradient by at most step / 2,
    so a sum over m rows by m * step / 2 and the loss G^2 / 2m of a leaf by |G| step / 2 + m step^2
    / 8; on a grid it moves nothing. Float32 adds a few units in the last place of the terms.
    """
    n, n_outputs = 400, 3
    bins = {"n_bins": (20, 30, 6), "categorical": [2]}
    p = make_problem(11, n=n, **bins, n_outputs=n_outputs, reg_lambda=0.0)
    if grid:
        p = replace(p, g=draw_on_grid(3, n, (n_outputs,), 20_000, -20_000))
    step = 0 if grid else np.abs(p.g).max(axis=0) / 32767
    tree, _ = library.grow(p)
    assert tree.n_leaves == 31
    rows = rows_of_nodes(tree, p.codes)
    G = np.array([p.g[r].sum(axis=0, dtype=np.float64) for r in rows])
    m = tree.count[:, None]
    fall = (G**2 / (2 * m)).sum(axis=1)
    slack = (np.abs(G) * step / 2 + m * step**2 / 8).sum(axis=1) + 1e-6 * fall
    for i in np.flatnonzero(tree.feature >= 0):
        children = [tree.left[i], tree.right[i]]
        expected = fall[children].sum() - fall[i]
        assert abs(tree.gain[i] * n_outputs - expected) <= slack[[i, *children]].sum()


def test_newton_leaves_minimize_squared_error(library):
    """Check that a tree lowers the loss by its gains and the root's own decrease.

    With rate 1 and lambda 0 no step is left.
    """
    p = make_problem(12, n=300, n_outputs=2, reg_lambda=0.0)
    tree, leaves = library.grow(p)
    g = p.g.astype(np.float64)
    after = g + library.leaves(p, leaves, tree.n_leaves)[leaves]
    root = (g.sum(axis=0) ** 2).sum() / (2 * len(g))
    fall = ((g**2).sum() - (after**2).sum()) / 2
    assert fall == pytest.approx(root + 2 * tree.gain.sum(), rel=1e-3)
    sums = np.array([after[leaves == leaf].sum(axis=0) for leaf in range(tree.n_leaves)])
    np.testing.assert_allclose(sums, 0, atol=1e-4)


def same_partition(a, b):
    return len(np.unique(a)) == len(np.unique(b)) == len(np.unique(np.stack([a, b]), axis=1).T)


def test_best_first_growth_with_enough_leaves_equals_depthwise(library):
    p = make_problem(13, n=300, n_bins=(20, 30, 6), categorical=[2], n_outputs=2, max_leaves=300)
    (a, a_leaves), (b, b_leaves) = library.grow(p), library.grow(p.replace_config(level_wise=True))
    assert a.n_leaves == b.n_leaves > 100
    assert same_partition(a_leaves, b_leaves)
    full = p.replace_config(max_leaves=16, max_depth=4)
    assert_same_tree(library.grow(full)[0], library.grow(full.replace_config(level_wise=True))[0])


def test_best_first_trees_with_fewer_leaves_are_subtrees(library):
    """Check that a small tree is an intermediate state of a large one.

    Best-first growth always takes the best split of the frontier.
    """
    p = make_problem(14, n=300, n_outputs=2)
    small, large = (library.grow(p.replace_config(max_leaves=m))[0] for m in (6, 20))
    inner = np.flatnonzero(small.feature >= 0)
    for name in ("feature", "threshold", "left", "right", "gain"):
        np.testing.assert_array_equal(getattr(small, name)[inner], getattr(large, name)[inner])
    np.testing.assert_array_equal(small.count, large.count[: small.n_nodes])


# --- the core ---


@pytest.mark.parametrize(
    "name, kind", [("squared_error", "unit"), ("logistic", "diagonal"), ("softmax", "unit")]
)
def test_boosting_in_the_core_equals_the_reference(name, kind):
    p = make_problem(15, n=250, categorical=[1], n_outputs=3)
    y = {"squared_error": p.g, "logistic": p.g > 0, "softmax": np.eye(3)[p.g.argmax(axis=1)]}[name]
    data, config = (p.codes, p.n_bins, p.is_categorical), replace(p.config, max_leaves=8)
    training = data, y.astype(float), getattr(reference, name), kind, config
    runs = [run_boosting(library, *training, n_rounds=5) for library in (Reference, Core)]
    np.testing.assert_array_equal(runs[0][0], runs[1][0])
    for a, b in zip(runs[0][1], runs[1][1], strict=True):
        assert_same_tree(a, b)


def test_threads_give_the_same_bits():
    for p in large_problems():
        (tree, leaves), *others = [Core.grow(p, n_threads) for n_threads in (1, 2, 3)]
        values = Core.leaves(p, leaves, tree.n_leaves)
        for n_threads, (other, other_leaves) in zip((2, 3), others, strict=True):
            assert_same_tree(tree, other)
            np.testing.assert_array_equal(leaves, other_leaves)
            other_values = Core.leaves(p, leaves, tree.n_leaves, n_threads=n_threads)
            np.testing.assert_array_equal(values, other_values)


PRINT_DIGEST = """
import hashlib, numpy as np
from support.problems import Core, large_problems
digest = hashlib.sha256()
for p in large_problems():
    tree, leaves = Core.grow(p, n_threads=2)
    for array in [*vars(tree).values(), leaves, Core.leaves(p, leaves, tree.n_leaves)]:
        digest.update(np.ascontiguousarray(array).tobytes())
print(digest.hexdigest())
"""


def test_instruction_sets_give_the_same_bits():
    assert len(set(run_on_each_isa(PRINT_DIGEST))) == 1


# --- estimators, over random configurations ---

# Blocks of seeds: the first in the fast tier, the others in the slow one.
SEEDS = [
    range(40),
    *(pytest.param(range(i, i + 196), marks=pytest.mark.full) for i in range(40, 2000, 196)),
]


def compare(first, second):
    """Return the largest difference of raw scores, in units of their largest deviation."""
    deviation = np.abs(first - first.mean(axis=0)).max() + 1e-12
    return float(np.abs(first - second).max() / deviation)


def differences(pair, seeds):
    """Return the difference of each configuration for which `pair` returns two arrays of scores."""
    found = {}
    for seed in seeds:
        scores = pair(draw_configuration(seed))
        if scores is not None:
            found[seed] = compare(*scores)
    assert len(found) >= len(seeds) / 8
    return found


def assert_all_below(limit, found):
    assert {seed: value for seed, value in found.items() if not value <= limit} == {}


def assert_few_above(limits, found):
    """Check that at most a share of the configurations differ by more than a limit.

    Quantised gradients are rounded differently, so the order of candidates with almost equal gains,
    and therefore trees, may differ.
    """
    for limit, share in limits.items():
        above = {seed: value for seed, value in found.items() if not value <= limit}
        assert len(above) <= max(1, share * len(found)), (limit, above)


@pytest.mark.parametrize("seeds", SEEDS)
def test_equal_weights_per_output_equal_row_weights(seeds):
    def pair(c):
        if c.kind == "classes" or c.n_targets < 2:
            return None
        weight = c.row_weight if c.row_weight.ndim == 1 else c.row_weight[:, 0]
        matrix = np.repeat(weight[:, None], c.n_targets, axis=1)
        return replace(c, weight=weight).raw_scores(), replace(c, weight=matrix).raw_scores()

    assert_few_above({1e-3: 0.02}, differences(pair, seeds))


@pytest.mark.parametrize("seeds", SEEDS)
def test_rows_of_weight_zero_are_ignored(seeds):
    def pair(c):
        rng = np.random.default_rng(c.seed)
        kept = np.sort(rng.choice(N_ROWS, N_ROWS - 30, replace=False))
        dropped = np.setdiff1d(np.arange(N_ROWS), kept)
        weight, X, y = c.row_weight.copy(), c.X.copy(), c.y.copy()
        weight[dropped] = 0
        X[dropped] = rng.choice([1e6, -999.0, np.nan], X[dropped].shape)
        if c.is_translation_invariant:
            y[dropped] = rng.choice([-1e6, 1e6], y[dropped].shape)
        with_zeros = replace(c, weight=weight, X=X, y=y)
        without = with_zeros.take(kept)
        if c.kind != "values" and len(np.unique(without.y)) < len(np.unique(c.y)):
            return None
        if c.weight is None:
            without = replace(without, weight=None)
        return without.raw_scores(), with_zeros.raw_scores(X=without.X)

    assert_all_below(1e-6, differences(pair, seeds))


@pytest.mark.parametrize("seeds", SEEDS)
def test_weight_two_equals_a_repeated_row(seeds):
    """Rows count by their weight, except in the correction of categorical gains."""

    def pair(c):
        if c.is_sampled or c.sorts_categories or c.has_ties:
            return None
        factor = np.random.default_rng(c.seed).integers(1, 3, N_ROWS)
        least = float(3 * c.row_weight.mean())
        c = c.update_parameters(min_child_samples=1, min_child_weight=least)
        twice = replace(c, weight=c.row_weight).take(np.repeat(np.arange(N_ROWS), factor))
        weighted = replace(c, weight=(c.row_weight.T * factor).T)
        return weighted.raw_scores(), twice.raw_scores(X=c.X)

    assert_few_above({1e-3: 0.2, 0.3: 0.06}, differences(pair, seeds))


@pytest.mark.parametrize("seeds", SEEDS)
def test_order_of_rows_has_no_effect(seeds):
    def pair(c):
        order = np.random.default_rng(c.seed).permutation(N_ROWS)
        return None if c.is_sampled else (c.raw_scores()[order], c.take(order).raw_scores())

    assert_all_below(1e-6, differences(pair, seeds))


@pytest.mark.parametrize("seeds", SEEDS)
def test_order_of_columns_has_no_effect(seeds):
    def pair(c):
        if c.has_ties or "colsample_bytree" in c.parameters:
            return None
        order = np.random.default_rng(c.seed).permutation(c.X.shape[1])
        permuted = replace(c, X=c.X[:, order])
        if c.parameters["categorical_features"]:
            place = int(np.flatnonzero(order == 4)[0])
            permuted = permuted.update_parameters(categorical_features=[place])
        return c.raw_scores(), permuted.raw_scores()

    assert_few_above({1e-6: 0.05}, differences(pair, seeds))


@pytest.mark.parametrize("seeds", SEEDS)
def test_order_of_outputs_permutes_scores(seeds):
    def pair(c):
        if c.has_ties or c.n_targets < 2 or c.is_order_dependent:
            return None
        order = np.random.default_rng(c.seed).permutation(c.n_targets)
        scores = c.raw_scores()
        per_target = scores.shape[1] // c.n_targets
        columns = (order[:, None] * per_target + np.arange(per_target)).ravel()
        return scores[:, columns], c.permute_outputs(order).raw_scores()

    assert_few_above({1e-4: 0.05}, differences(pair, seeds))


@pytest.mark.parametrize("seeds", SEEDS)
def test_scaled_targets_scale_predictions(seeds):
    def pair(c):
        if not c.is_translation_invariant:
            return None
        unit = 8.0
        scaled = replace(c, y=c.y * unit, offset=None if c.offset is None else c.offset * unit)
        if c.objective == "huber":
            scaled = scaled.update_parameters(huber_delta=unit)
        if c.objective not in UPDATED:  # whose gradients have no unit
            penalties = {"reg_alpha", "max_delta_step"} & c.parameters.keys()
            scaled = scaled.update_parameters(**{p: c.parameters[p] * unit for p in penalties})
        return c.raw_scores() * unit, scaled.raw_scores()

    assert_all_below(0, differences(pair, seeds))


def draw_mostly_zero_columns(c):
    """Return four times the rows, with columns of mostly zeros and a category of 40 or 320."""
    rng = np.random.default_rng(c.seed)
    c = c.take(np.tile(np.arange(N_ROWS), 4))
    stored = rng.random(c.X.shape) < rng.choice([0.01, 0.04, 0.2, 0.9], c.X.shape[1])
    first = c.y.reshape(len(c.y), -1)[:, 0]
    rank = np.argsort(np.argsort(first + rng.standard_normal(len(first))))
    category = rng.permutation(320)[rank // 2] % int(rng.choice([40, 320]))
    X = np.column_stack([np.where(stored, c.X, 0.0), category])
    categorical = [*(c.parameters["categorical_features"] or []), X.shape[1] - 1]
    return replace(c, X=X).update_parameters(categorical_features=categorical)


@pytest.mark.parametrize("seeds", SEEDS)
def test_sparse_and_dense_features_give_the_same_bytes(seeds):
    for seed in seeds:
        c = draw_mostly_zero_columns(draw_configuration(seed))
        negative = np.where(c.X == 0, -c.X, c.X)
        dense = c.fit().model_.to_bytes()
        for X in (sp.csr_matrix(c.X), sp.csc_matrix(negative)):
            assert replace(c, X=X).fit().model_.to_bytes() == dense, seed


@pytest.mark.parametrize("seeds", SEEDS)
def test_zero_offsets_give_the_same_derived_columns(seeds):
    n_compared = 0
    for seed in seeds:
        c = replace(draw_mostly_zero_columns(draw_configuration(seed)), offset=None)
        derived = c.fit().model_.mapper.derived_columns_
        if derived is None or c.objective == "exponential":  # its Hessians depend on the class
            continue
        zeros = np.zeros((len(c.X), c.n_targets))
        with_zeros = replace(c, offset=zeros).fit().model_.mapper.derived_columns_
        (first,), (second,) = derived.features, with_zeros.features
        assert first.labels == second.labels, seed
        np.testing.assert_allclose(first.values, second.values, atol=1e-5, err_msg=str(seed))
        n_compared += 1
    assert n_compared > len(seeds) / 4
