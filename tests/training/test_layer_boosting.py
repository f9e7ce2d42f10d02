"""Layer-by-layer boosting, and steps per tree (TFBT, sections V and VII)."""

from dataclasses import replace

import numpy as np
import pytest
import reference
from hypothesis import given, settings
from hypothesis import strategies as st
from support.pairwise import parametrize_pairs
from support.small_fits import (
    CLASSES,
    LABELS,
    LAYERS,
    LAYERS_CONFIG,
    N,
    X,
    Y,
    bits,
    classifier,
    coupled_derivatives,
    get_binned_data,
    loss,
    regressor,
    runs,
)

from polyleaf import PolyleafClassifier, PolyleafRegressor
from polyleaf.datasets import load

WEIGHT = np.random.default_rng(3).uniform(0.2, 3, N)

# (estimator, target, parameters) of layer-wise trainings.
PARTS = {
    "squared error": (regressor, Y, {}),
    "softmax": (classifier, CLASSES, {}),
    "labels": (classifier, LABELS, {}),
    "poisson": (regressor, np.exp(Y / 4), {"objective": "poisson"}),
    "huber": (regressor, Y, {"objective": "huber"}),
    "medians": (regressor, Y, {"objective": "absolute_error"}),
    "quantiles": (regressor, Y[:, 0], {"objective": "quantile", "quantile_alpha": [0.1, 0.5, 0.9]}),
    "one output": (regressor, Y[:, 0], {}),
    "first order": (classifier, CLASSES, {"hessian": "none", "leaf_hessian": "none"}),
    "shared curvature": (classifier, CLASSES, {"hessian": "shared"}),
    "full curvature": (classifier, CLASSES, {"hessian": "full"}),
    "blocks": (classifier, CLASSES, {"hessian": "block"}),
    "a tree per class": (classifier, CLASSES, {"multi_strategy": "one_output_per_tree"}),
    "few leaves": (classifier, CLASSES, {"max_leaves": 5}),
    "no limit on depth": (classifier, CLASSES, {"max_leaves": 12, "max_depth": None}),
    "sampled rows": (classifier, CLASSES, {"subsample": 0.5}),
    "goss": (classifier, CLASSES, {"sampling_method": "goss"}),
    "rows per layer": (classifier, CLASSES, {"rows_per_layer": [0.25, 0.5, 1.0]}),
    "fewer rows per layer": (classifier, CLASSES, {"rows_per_layer": [1.0, 150, 80]}),
    "sampled features": (classifier, CLASSES, {"colsample_bynode": 0.5, "colsample_bytree": 0.7}),
    "cut back": (classifier, CLASSES, {"pruning": "post", "min_split_gain": 0.4}),
    "a sketch": (regressor, np.tile(Y, 8), {"sketch": "random_projection", "sketch_dim": 4}),
    "penalties": (regressor, Y, {"reg_alpha": 1.0, "max_delta_step": 0.5}),
    "normalised targets": (regressor, 1e3 + 10 * Y, {"normalize_targets": True}),
}


@pytest.fixture(params=PARTS, ids=str)
def make_part(request):
    return PARTS[request.param]


# --- exact results ---


def test_predictions_on_training_rows_equal_raw_scores_of_training(make_part):
    """Leaf values are the sums of steps along the path, in the order of training."""
    make, y, parameters = make_part
    with runs() as begun:
        estimator = make(**LAYERS | parameters).fit(X, y)
    model, run = estimator.model_, begun[0]
    codes = model.mapper.transform(estimator._features(X), 1)
    raw = np.zeros_like(run.members[0].state.raw)
    model.forest.predict(codes, raw, 0, len(model.forest), 1)
    assert raw.any()
    np.testing.assert_array_equal(raw, run.members[0].state.raw)


# --- the loop of the reference ---


@parametrize_pairs(
    kind=["unit", "shared", "diagonal"],
    options=[
        {},
        {"reg_lambda": 30.0, "min_split_gain": 0.05},
        {"min_split_gain": 1e9},
        {"max_leaves": 6},
    ],
    post_prune=[False, True],
)
def test_training_equals_the_reference(kind, options, post_prune):
    hessian = {"unit": "none"}.get(kind, kind)
    parameters = {**LAYERS, "objective": coupled_derivatives, "learning_rate": 0.5, **options}
    parameters |= {"hessian": hessian, "leaf_hessian": hessian}
    with runs() as begun:
        estimator = regressor(**parameters, pruning="post" if post_prune else "pre").fit(X, Y)
    data, raw = get_binned_data(estimator), np.zeros(Y.shape, np.float32)

    def derivatives(raw):
        g, h = coupled_derivatives(Y, raw.astype(np.float64))
        g, h = g.astype(np.float32), h.astype(np.float32)
        return g, {"unit": None, "shared": reference.row_means(h), "diagonal": h}[kind]

    limits = {"min_child_weight": 1e-3, "post_prune": post_prune, **options}
    growth = kind, replace(LAYERS_CONFIG, **limits), 0.5
    for tree in estimator.model_.trees:
        grown, leaves, values = reference.fit_tree_by_layers(*data, derivatives, raw, *growth)
        np.testing.assert_array_equal(tree.structure.feature, grown.feature)
        np.testing.assert_array_equal(tree.structure.gain, grown.gain)
        np.testing.assert_array_equal(tree.leaves, values)
        raw = raw + values[leaves]
    np.testing.assert_array_equal(begun[0].members[0].state.raw, raw)
    # The base score is not optimal: trees of one leaf change scores, too.
    assert estimator.model_.n_trees == 3


@pytest.mark.parametrize("boosting_step", ["round", "tree"])
def test_one_tree_per_output_with_and_without_updated_derivatives(boosting_step):
    """Compare TFBT's tree per class with a loop: the second tree uses updated derivatives."""
    parameters = {"multi_strategy": "one_output_per_tree", "boosting_step": boosting_step}
    parameters |= {"grow_policy": "depthwise", "learning_rate": 0.5}
    estimator = regressor(objective=coupled_derivatives, **parameters).fit(X, Y)
    data, raw = get_binned_data(estimator), np.zeros(Y.shape, np.float32)
    growth = "shared", replace(LAYERS_CONFIG, min_child_weight=1e-3), 0.5
    for t, tree in enumerate(estimator.model_.trees):
        k = t % 3
        if k == 0 or boosting_step == "tree":
            derivatives = coupled_derivatives(Y, raw.astype(np.float64))
        column = (each[:, k : k + 1].astype(np.float32) for each in derivatives)
        _, leaves, values = reference.fit_tree(*data, *column, *growth)
        np.testing.assert_array_equal(tree.leaves, values)
        raw[:, k] += values[leaves, 0]
    assert estimator.model_.n_trees == 9
    np.testing.assert_array_equal(estimator.predict(X), raw.astype(np.float64))


# --- equalities ---


@pytest.mark.parametrize("seed", range(4))
def test_layers_equal_the_whole_tree_for_squared_error(seed):
    """With squared error, no penalty and learning rate 1, a step subtracts the mean residual of a
    node, which changes neither gains nor leaf values except for rounding."""
    rng = np.random.default_rng(seed)
    features = rng.standard_normal((800, 4))
    a, b, c, _ = features.T
    y = np.stack([np.sin(2 * a) + b, c * b], axis=1) + 0.1 * rng.standard_normal((800, 2))
    parameters = {"n_estimators": 1, "learning_rate": 1.0, "reg_lambda": 0.0, "max_depth": 3}
    parameters |= {"grow_policy": "depthwise", "min_child_samples": 30, "n_jobs": 1}
    whole = PolyleafRegressor(**parameters).fit(features, y)
    layers = PolyleafRegressor(**parameters, boosting_step="layer").fit(features, y)
    one, other = whole.model_.forest.tree(0), layers.model_.forest.tree(0)
    assert one.n_leaves == 8
    for name in ("feature", "threshold", "left", "right", "count"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    np.testing.assert_allclose(one.gain, other.gain, rtol=2e-3)
    np.testing.assert_allclose(whole.predict(features), layers.predict(features), atol=1e-5)


@pytest.mark.parametrize(
    ("make", "y", "parameters"),
    [
        (regressor, Y[:, 0], {}),
        (regressor, Y[:, 0], {"objective": "absolute_error"}),
        (classifier, LABELS[:, 0], {}),
        (classifier, CLASSES, {}),  # one tree for all classes
        (regressor, Y, {"multi_strategy": "one_output_per_tree"}),
        (classifier, LABELS, {"multi_strategy": "one_output_per_tree"}),
    ],
)
def test_steps_per_tree_equal_steps_per_round_for_separable_losses(make, y, parameters):
    tree, by_round = (make(**parameters, boosting_step=s).fit(X, y) for s in ("tree", "round"))
    assert bits(tree) == bits(by_round)


def test_steps_per_tree_differ_for_coupled_losses():
    """With learning rate 1, simultaneous steps (Jacobi) overshoot; sequential steps do not."""
    per_class = {"multi_strategy": "one_output_per_tree", "learning_rate": 1.0}
    per_class |= {"softmax_hessian": "diagonal"}
    per_class |= {"categorical_features": None, "n_estimators": 1, "reg_lambda": 0.0}
    # A binary feature decides between two classes, 3 : 1 and 1 : 3; a third class is rare.
    switch = np.repeat([0.0, 1.0], 200)[:, None]
    y = np.concatenate([np.repeat([0, 1, 2], [149, 50, 1]), np.repeat([0, 1, 2], [50, 149, 1])])
    together = classifier(**per_class).fit(switch, y)
    in_turn = classifier(**per_class, boosting_step="tree").fit(switch, y)
    ours, theirs = in_turn.model_.forest, together.model_.forest
    np.testing.assert_array_equal(ours.values(0), theirs.values(0))
    assert not np.array_equal(ours.values(1), theirs.values(1))
    shares = np.array([149, 50, 1]) / 200
    least = -np.sum(shares * np.log(shares))
    assert loss(in_turn, switch, y) - least < 0.2 * (loss(together, switch, y) - least)


@pytest.mark.parametrize(
    "parameters", [{"rows_per_layer": [1.0]}, {"rows_per_layer": [N]}, {"subsample": 1.0}]
)
def test_rows_per_layer_of_all_rows_has_no_effect(parameters):
    expected = classifier(**LAYERS).fit(X, CLASSES)
    assert bits(classifier(**LAYERS, **parameters).fit(X, CLASSES)) == bits(expected)


def test_rows_of_weight_zero_have_no_effect():
    weight = (np.random.default_rng(5).random(N) < 0.8).astype(float)
    kept = weight > 0
    for parameters in ({}, {"rows_per_layer": [0.5, 1.0]}, {"pruning": "post"}):
        weighted = classifier(**LAYERS, **parameters).fit(X, CLASSES, weight)
        fewer = classifier(**LAYERS, **parameters).fit(X[kept], CLASSES[kept], weight[kept])
        np.testing.assert_array_equal(weighted.decision_function(X), fewer.decision_function(X))


@pytest.mark.parametrize("make, y", [(regressor, Y), (classifier, CLASSES), (regressor, Y[:, 0])])
def test_weights_are_used_in_each_layer(make, y):
    """Weights and penalties scaled by a power of two give the same trees; other weights do not."""
    parameters = {**LAYERS, "reg_lambda": 1.0, "min_child_weight": 0.5}
    once = make(**parameters).fit(X, y, WEIGHT)
    scaled = make(**{**parameters, "reg_lambda": 4.0, "min_child_weight": 2.0})
    np.testing.assert_array_equal(once.predict(X), scaled.fit(X, y, 4 * WEIGHT).predict(X))
    assert bits(once) != bits(make(**parameters).fit(X, y))


# --- effects ---


def test_layers_reach_a_lower_loss_with_the_same_number_of_trees():
    """Check the claim of TFBT's section V on real data. Training is deterministic."""
    features, _, y, _ = load("letter").split()
    parameters = {"n_estimators": 6, "max_depth": 4, "max_leaves": None, "grow_policy": "depthwise"}
    parameters |= {"learning_rate": 0.3, "softmax_hessian": "diagonal", "n_jobs": 1}
    features, losses = features[:3000], []
    for boosting_step in ("round", "layer"):
        estimator = PolyleafClassifier(**parameters, boosting_step=boosting_step)
        estimator.fit(features, y[:3000])
        ids = np.searchsorted(estimator.classes_, y[:3000]).astype(np.int32)
        losses.append(loss(estimator, features, ids))
    assert losses[1] < 0.9 * losses[0]


@pytest.mark.parametrize("level", [0.5, 0.2])
def test_leaves_are_updated_in_each_layer(level):
    """With learning rate 1, the quantile of residuals is 0 in each leaf after the last layer."""
    parameters = {**LAYERS, "learning_rate": 1.0, "objective": "quantile", "quantile_alpha": level}
    estimator, y = regressor(**parameters, calibrate_quantiles=False).fit(X, Y[:, 0]), Y[:, 0]
    residual = y - estimator.predict(X)
    leaf = estimator.apply(X)[:, -1]
    assert len(np.unique(leaf)) > 4
    for j in np.unique(leaf):
        lower = np.sort(residual[leaf == j])[int(np.ceil(level * (leaf == j).sum() - 1e-9)) - 1]
        assert abs(lower) < 1e-5


def test_counts_of_a_layer_are_rows_of_its_sample():
    """A node counts the rows in the sample of its layer; deeper layers have more (section V)."""
    estimator = classifier(**LAYERS, rows_per_layer=[0.25, 0.5, 1.0]).fit(X, CLASSES)
    for tree in (each.structure for each in estimator.model_.trees):
        level, counts = np.array([0]), []
        while len(level):
            counts.append(int(tree.count[level].sum()))
            inner = level[tree.left[level] >= 0]
            level = np.concatenate([tree.left[inner], tree.right[inner]])
        assert counts[:2] == [90, 90] and counts[2] in range(150, 181) and counts[3] <= N
    whole = classifier(**LAYERS, rows_per_layer=[90, 180]).fit(X, CLASSES)
    assert bits(whole) != bits(estimator)


@pytest.mark.parametrize("threshold", [0.02, 0.1])
def test_gains_of_all_layers_exceed_min_split_gain(threshold):
    estimator = classifier(**LAYERS, min_split_gain=threshold).fit(X, CLASSES)
    trees = [estimator.model_.forest.tree(t) for t in range(estimator.model_.n_trees)]
    gains = np.concatenate([tree.gain[tree.feature >= 0] for tree in trees])
    assert len(gains) and gains.min() > threshold


def test_goss_uses_the_gradients_of_each_layer():
    """The rows of largest gradient change after the step of the first layer, so counts differ."""
    estimator = regressor(**LAYERS, sampling_method="goss", learning_rate=1.0).fit(X, Y)
    tree = estimator.model_.forest.tree(0)
    assert tree.count[0] == 108 + 1 or tree.count[0] == 108
    grandchildren = [tree.left[i] for i in (1, 2) if tree.left[i] >= 0]
    assert grandchildren and tree.n_leaves > 4


def test_training_ends_if_no_tree_can_be_grown():
    for parameters in ({}, {"pruning": "post"}):
        estimator = regressor(**LAYERS, min_split_gain=1e9, **parameters).fit(X, Y)
        assert estimator.model_.n_trees == 1 and estimator.model_.forest.tree(0).n_leaves == 1
        np.testing.assert_allclose(
            estimator.predict(X), np.broadcast_to(Y.mean(0), Y.shape), atol=1e-6
        )


@pytest.mark.parametrize("boosting_step", ["round", "layer"])
def test_single_leaves_that_change_scores_do_not_end_training(boosting_step):
    """From a base score of 0 the first split has no gain: the penalty applies to both leaves."""
    parameters = {"base_score": 0.0, "learning_rate": 0.5, "reg_lambda": 50.0}
    parameters |= {"boosting_step": boosting_step, "grow_policy": "depthwise"}
    far = 100 * Y.std(axis=0) + Y
    estimator = regressor(n_estimators=40, **parameters).fit(X, far)
    sizes = [estimator.model_.forest.tree(t).n_leaves for t in range(estimator.model_.n_trees)]
    assert sizes[0] == 1 and max(sizes) > 1

    without_splits = regressor(n_estimators=100, min_split_gain=1e9, **parameters).fit(X, far)
    assert 5 < without_splits.model_.n_trees < 40
    error = np.abs(without_splits.predict(X) - far.mean(axis=0)) / Y.std(axis=0)
    assert error.max() < 2**-8


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.data())
def test_random_layer_wise_trainings_predict_their_raw_scores(data):
    n, n_outputs = data.draw(st.integers(2, 120)), data.draw(st.sampled_from([1, 2, 5, 17]))
    rng = np.random.default_rng(data.draw(st.integers(0, 10**6)))
    features = rng.standard_normal((n, data.draw(st.integers(1, 9))))
    features = np.round(features, data.draw(st.integers(0, 3)))
    features[rng.random(features.shape) < data.draw(st.sampled_from([0.0, 0.3]))] = np.nan
    parameters = {
        "n_estimators": 2,
        "boosting_step": "layer",
        "grow_policy": "depthwise",
        "max_depth": data.draw(st.sampled_from([1, 2, 4, None])),
        "max_leaves": data.draw(st.sampled_from([2, 3, 9, 31])),
        "min_child_samples": data.draw(st.sampled_from([1, 5])),
        "pruning": data.draw(st.sampled_from(["pre", "post"])),
        "min_split_gain": data.draw(st.sampled_from([0.0, 0.1])),
        "rows_per_layer": data.draw(
            st.sampled_from([None, [0.3, 1.0], [1.0, 0.3], [1], [0.5, 3, 0.9]])
        ),
        "learning_rate": data.draw(st.sampled_from([0.1, 1.0])),
        "n_jobs": data.draw(st.sampled_from([1, 2])),
    }
    with runs() as begun:
        y = rng.standard_normal((n, n_outputs))
        estimator = PolyleafRegressor(**parameters).fit(features, y if n_outputs > 1 else y[:, 0])
    assert np.isfinite(begun[0].members[0].state.raw).all()
    np.testing.assert_array_equal(
        estimator.predict(features).reshape(n, -1),
        begun[0].model.to_target_scale(begun[0].members[0].state.raw),
    )
