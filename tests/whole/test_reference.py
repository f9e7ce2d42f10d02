"""Comparison of the reference implementation with brute force.

Uses loops, fractions, float64, and every subset of categories.
"""

from itertools import combinations, product

import numpy as np
import pytest
import reference
from reference import F32, GrowConfig
from support.problems import KINDS, Reference, all_numeric_splits, exact_gain, make_problem

# --- channels ---


def test_quantise_is_within_half_a_step_and_reaches_the_largest_integer():
    p = make_problem(0, n=500, n_outputs=3, kind="diagonal")
    channels = reference.quantise(p.g, p.h, p.kind)
    back = channels.gradients * channels.gradient_steps.astype(np.float64)
    assert np.all(np.abs(back - p.g) <= 0.5001 * channels.gradient_steps)
    assert np.abs(channels.gradients).max(axis=0).tolist() == [32767] * 3
    assert channels.hessians.shape == (500, 3)
    assert channels.hessians.min() >= 0


def test_quantise_rounds_half_to_even():
    integers, step = reference.quantise_column(np.array([32767, 0.5, 1.5, 2.5, -0.5, -1.5], F32))
    assert integers.tolist() == [32767, 0, 2, 2, 0, -2]
    assert step == 1


@pytest.mark.parametrize("n_rows", [65_530, 70_000, 200_000])
def test_all_sums_of_channels_fit_int32(n_rows):
    integers, step = reference.quantise_column(np.full(n_rows, 3.25, F32))
    assert np.abs(integers).sum() <= 2**31 - 1
    assert integers[0] * step == pytest.approx(3.25, rel=1e-4)
    shifts = {65_530: 0, 70_000: 1, 200_000: 2}
    assert integers[0] == round(32767 / 2 ** shifts[n_rows])


def test_column_of_zeros_has_no_step():
    integers, step = reference.quantise_column(np.array([0, 1e-29, -1e-35], F32))
    assert integers.tolist() == [0, 0, 0]
    assert step == 0


def test_multiplier_and_row_sample_are_applied_before_scaling():
    g = np.array([[1.0], [2.0], [100.0]], F32)
    channels = reference.quantise(g, None, "unit", np.array([0, 1]), np.array([4, 1, 1], F32))
    assert channels.gradients.ravel().tolist() == [32767, 16384]  # 4 and 2
    assert channels.hessians.shape == (2, 0)


# --- scores ---


@pytest.mark.parametrize("n_outputs", [1, 2, 15, 16, 17, 33, 100])
def test_lane_sum_adds_in_the_documented_order(n_outputs):
    terms = np.random.default_rng(n_outputs).normal(size=n_outputs).astype(F32)
    lanes = [F32(0)] * 16
    for k, term in enumerate(terms):
        lanes[k % 16] = term if k < 16 else lanes[k % 16] + term
    for half in (8, 4, 2, 1):
        lanes = [lanes[i] + lanes[i + half] for i in range(half)]
    assert reference.lane_sum(terms) == lanes[0]
    assert reference.lane_sum(terms).dtype == F32


def leaf_objective(G, H, config):
    """Minimise 2 (G w + alpha |w|) + (H + lambda) w^2 with |w| <= max_delta_step on a fine grid."""
    limit = config.max_delta_step if config.max_delta_step > 0 else 10
    w = np.linspace(-limit, limit, 200_001)
    return np.min(2 * (G * w + config.reg_alpha * np.abs(w)) + (H + config.reg_lambda) * w * w)


@pytest.mark.parametrize("alpha, max_delta_step", [(0, 0), (0.7, 0), (0, 0.3), (0.7, 0.3)])
@pytest.mark.parametrize("kind", KINDS)
def test_leaf_terms_equal_minus_the_optimum_of_the_leaf_problem(kind, alpha, max_delta_step):
    config = GrowConfig(reg_lambda=0.5, reg_alpha=alpha, max_delta_step=max_delta_step)
    for G, H in product([-3.0, -0.5, 0.0, 2.0], [0.0, 0.4, 5.0]):
        term = reference.leaf_terms(np.array([[G]], F32), np.array([[H]], F32), kind, config)
        assert term[0, 0] == pytest.approx(-leaf_objective(G, H, config), abs=1e-5)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "config", [GrowConfig(), GrowConfig(reg_alpha=0.2), GrowConfig(max_delta_step=0.1)]
)
def test_split_score_is_the_sum_of_its_leaves(kind, config):
    rng = np.random.default_rng(0)
    G = rng.normal(size=(2, 5, 4)).astype(F32)
    H = rng.random((2, 5, 4 if kind == "diagonal" else 1)).astype(F32)
    together = reference.split_terms(G[0], H[0], G[1], H[1], kind, config)
    apart = sum(reference.leaf_terms(G[i], H[i], kind, config) for i in (0, 1))
    np.testing.assert_allclose(together, apart, rtol=1e-5)
    assert together.dtype == F32


def test_zero_hessian_and_zero_lambda_give_no_step():
    zero, one = np.zeros((1, 2), F32), np.ones((1, 2), F32)
    config = GrowConfig(reg_lambda=0)
    assert reference.split_terms(one, zero, one, one, "diagonal", config).tolist() == [[0, 0]]
    assert reference.leaf_terms(one, zero, "diagonal", config).tolist() == [[0, 0]]
    assert reference.leaf_terms(one, zero[:, :1], "shared", config).tolist() == [[0, 0]]


# --- split search ---


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", ["unit", "shared"])
@pytest.mark.parametrize("n_outputs", [1, 3])
def test_root_split_is_the_best_of_all_splits(seed, kind, n_outputs):
    p = make_problem(seed, n=60, n_bins=(5, 8, 3), n_outputs=n_outputs, kind=kind, max_leaves=2)
    channels = reference.quantise(p.g, p.h, p.kind)
    splits = all_numeric_splits(p, np.arange(60))
    gains = {(f, t, m): exact_gain(p, channels, left) for f, t, m, left in splits}
    tree, _ = Reference.grow(p)
    found = gains[tree.feature[0], tree.threshold[0], tree.missing_left[0]]
    assert float(found) == pytest.approx(float(max(gains.values())), rel=1e-5)
    assert tree.gain[0] == pytest.approx(float(found), rel=1e-4)
    assert tree.output_gain[0].sum() / n_outputs == pytest.approx(tree.gain[0], rel=1e-4)


def test_first_candidate_wins_a_tie():
    codes = np.array(
        [[0, 0, 3, 3], [3, 3, 0, 0]], np.uint8
    )  # thresholds 0, 1, 2 of both give the same split
    g = np.array([[-1], [-1], [1], [1]], F32)
    data = codes, np.array([4, 4]), np.zeros(2, bool)
    tree = reference.grow(*data, reference.quantise(g, None, "unit"), GrowConfig(max_leaves=2))
    assert (tree.feature[0], tree.threshold[0]) == (0, 0)


def test_default_direction_is_the_better_or_the_larger_child():
    codes = np.array([[0, 0, 1, 1, 1, 255]], np.uint8)
    g = np.array([-1, -1, 1, 1, 1, -1], F32)[:, None]
    data = codes, np.array([2]), np.zeros(1, bool)
    tree = reference.grow(*data, reference.quantise(g, None, "unit"), GrowConfig(max_leaves=2))
    assert tree.missing_left[0] and tree.count.tolist() == [6, 3, 3]
    data = codes[:, :5], *data[1:]
    tree = reference.grow(*data, reference.quantise(g[:5], None, "unit"), GrowConfig(max_leaves=2))
    assert not tree.missing_left[0] and tree.count.tolist() == [5, 2, 3]


def test_split_of_missing_values_from_all_others():
    codes = np.array([[0, 1, 0, 255, 255]], np.uint8)
    g = np.array([1, 1, 1, -1, -1], F32)[:, None]
    tree = reference.grow(
        codes, np.array([2]), np.zeros(1, bool), reference.quantise(g, None, "unit"), GrowConfig()
    )
    assert (tree.threshold[0], tree.missing_left[0], tree.n_leaves) == (1, False, 2)


# --- categories ---


def category_problem(seed, n_categories, n_outputs, **config):
    return make_problem(
        seed,
        n=80,
        n_bins=(n_categories,),
        categorical=[0],
        n_outputs=n_outputs,
        max_leaves=2,
        **config,
    )


def best_subset_gain(p, sizes):
    """Return the largest exact gain over category sets of these sizes, missing included."""
    channels = reference.quantise(p.g, p.h, p.kind)
    present = np.unique(p.codes[0])
    sets = [s for size in sizes(len(present)) for s in combinations(present, size)]
    return float(max(exact_gain(p, channels, np.isin(p.codes[0], s)) for s in sets))


@pytest.mark.parametrize("seed", range(5))
def test_one_output_finds_the_best_category_subset(seed):
    """Check Fisher's theorem.

    Without smoothing and ridge, the best set is a prefix of the sorted categories.
    """
    p = category_problem(seed, 7, 1, cat_smooth=0.0, reg_lambda=0.0)
    assert len(np.unique(p.codes[0])) > 4
    tree, _ = Reference.grow(p)
    assert tree.threshold[0] == -1
    assert tree.gain[0] == pytest.approx(best_subset_gain(p, lambda m: range(1, m)), rel=1e-5)


@pytest.mark.parametrize("n_outputs", [1, 3])
def test_few_categories_are_split_one_vs_rest(n_outputs):
    p = category_problem(1, 7, n_outputs, max_cat_to_onehot=8)
    tree, _ = Reference.grow(p)
    assert tree.gain[0] == pytest.approx(best_subset_gain(p, lambda m: [1]), rel=1e-5)


def test_categories_are_ordered_along_the_first_principal_direction():
    p = category_problem(2, 9, 4, missing=0.0)
    channels = reference.quantise(p.g, p.h, p.kind)
    sums = reference.histogram(p.codes[0], channels)
    d = reference.category_deviations(sums, channels, p.config)
    n = sums.count[sums.count > 0]
    direction = np.linalg.svd(np.sqrt(n)[:, None] * d)[2][0]
    positions = reference.category_positions(sums, channels, p.config)
    assert abs(np.corrcoef(positions, d @ direction)[0, 1]) > 0.999


def test_category_set_is_what_goes_left():
    p = make_problem(3, n=300, n_bins=(200,), categorical=[0], missing=0.2, max_leaves=6)
    tree, leaves = Reference.grow(p)
    assert tree.categories.shape == (tree.n_leaves - 1, 4)
    words = tree.categories[tree.category_set[0]]
    in_set = [bool(int(words[c // 64]) >> (c % 64) & 1) for c in p.codes[0].tolist()]
    left = np.where(p.codes[0] == 255, tree.missing_left[0], in_set)
    assert left.sum() == tree.count[tree.left[0]]
    assert np.array_equal(np.bincount(leaves), tree.count[tree.leaf >= 0])


# --- growth, leaves ---


def test_hash_is_the_finaliser_of_splitmix64():
    second = 0xD1B54A32D192ED03
    assert (
        reference.feature_hash(2**64 - second, 0, 0) == 0xE220A8397B1DCDAF
    )  # its first output for seed 0


def test_colsample_bynode_draws_features_by_node():
    config = GrowConfig(colsample_bynode=0.5)
    picks = [reference.node_features([1, 2, 4, 7, 9], node, config) for node in range(20)]
    assert all(len(pick) == 3 and pick == sorted(pick) for pick in picks)
    assert len({tuple(pick) for pick in picks}) > 3
    assert reference.node_features([1, 2, 4], 0, GrowConfig()) == [1, 2, 4]


def test_next_batch():
    gains = {1: 2.0, 4: 5.0, 5: 2.0, 6: 3.0}
    assert reference.next_batch(gains, 4, GrowConfig(max_leaves=9)) == [4]
    assert reference.next_batch(gains, 4, GrowConfig(max_leaves=4)) == []
    assert reference.next_batch(gains, 4, GrowConfig(max_leaves=8, max_depth=3)) == [1, 4, 5, 6]
    assert reference.next_batch(gains, 4, GrowConfig(max_leaves=7, max_depth=3)) == [4]
    assert reference.next_batch(gains, 4, GrowConfig(max_leaves=7, level_wise=True)) == [1, 4, 6]
    assert reference.next_batch({}, 1, GrowConfig()) == []


@pytest.mark.parametrize("alpha, max_delta_step", [(0, 0), (2.5, 0), (0, 0.3)])
@pytest.mark.parametrize("kind", KINDS)
def test_leaf_values_solve_the_leaf_problem(kind, alpha, max_delta_step):
    p = make_problem(
        5, n=100, n_outputs=2, kind=kind, reg_alpha=alpha, max_delta_step=max_delta_step
    )
    leaf_of_row = np.arange(100, dtype=np.int32) % 3
    values = Reference.leaves(p, leaf_of_row, 4, learning_rate=0.5)
    h = np.ones((100, 1)) if p.h is None else p.h.astype(np.float64)
    for leaf in range(3):
        G = p.g[leaf_of_row == leaf].sum(axis=0, dtype=np.float64)
        H = h[leaf_of_row == leaf].sum(axis=0) + p.config.reg_lambda
        w = -np.sign(G) * np.maximum(np.abs(G) - alpha, 0) / H
        w = np.clip(w, -max_delta_step, max_delta_step) if max_delta_step else w
        np.testing.assert_allclose(values[leaf], 0.5 * w, rtol=1e-5, atol=1e-7)
    assert values.dtype == F32 and not values[3].any()  # an empty leaf has value 0


def test_leaf_sums_are_exact_on_a_grid_and_finite_for_extremes():
    values = np.array([[1.0, 3e38, 2e-28, 1e-29], [0.25, 3e38, 0, 1e-29], [-0.5, -3e38, 0, 0]], F32)
    sums = reference.leaf_sums(values, np.array([0, 0, 1]), 2)
    assert sums[:, 0].tolist() == [1.25, -0.5]
    np.testing.assert_allclose(sums[:, 1:], [[6e38, 2e-28, 0], [-3e38, 0, 0]], rtol=1e-5)


# --- boosting ---


def losses(name, y, scores):
    if name == "squared_error":
        return ((scores - y) ** 2).sum(axis=(1, 2)) / 2
    if name == "logistic":
        return (np.logaddexp(0, scores) - y * scores).sum(axis=(1, 2))
    return (np.log(np.exp(scores).sum(axis=2)) - (y * scores).sum(axis=2)).sum(axis=1)


@pytest.mark.parametrize("kind", ["unit", "diagonal"])
@pytest.mark.parametrize("name", ["squared_error", "logistic", "softmax"])
def test_boosting_lowers_the_loss_in_each_round(name, kind):
    if name == "squared_error" and kind == "diagonal":
        kind = "unit"  # its Hessian is constant, so there is no diagonal
    p = make_problem(6, n=300, n_outputs=3)
    y = {"squared_error": p.g, "logistic": p.g > 0, "softmax": np.eye(3)[p.g.argmax(axis=1)]}[name]
    data = p.codes, p.n_bins, p.is_categorical
    config = GrowConfig(max_leaves=8, min_child_samples=5)
    derivatives = getattr(reference, name)
    scores, trees = reference.boost(
        data, y.astype(float), derivatives, kind, config, 8, learning_rate=0.3
    )
    loss = losses(name, y.astype(float), scores)
    assert np.all(np.diff(loss) < 0)
    assert loss[-1] < 0.95 * loss[0]
    assert all(tree.n_leaves == 8 for tree in trees)


@pytest.mark.parametrize("name", ["squared_error", "logistic", "softmax"])
def test_derivatives_equal_those_of_the_loss(name):
    rng = np.random.default_rng(0)
    y, score, step = np.eye(3)[rng.integers(0, 3, 5)], rng.normal(size=(5, 3)), 1e-4
    g, h = getattr(reference, name)(y, score)
    scale = 3 / 2 if name == "softmax" else 1  # C-GB, eq. 13: K / (K - 1)
    for i, k in product(range(5), range(3)):
        nudge = np.zeros((5, 3))
        nudge[i, k] = step
        low, mid, high = losses(name, y, np.stack([score - nudge, score, score + nudge]))
        assert g[i, k] == pytest.approx((high - low) / (2 * step), abs=1e-6)
        second = scale * (high - 2 * mid + low) / step**2
        assert (1 if h is None else h[i, k]) == pytest.approx(second, abs=1e-5)
