"""Groups of outputs share trees: a round grows a tree for each group."""

import numpy as np
import pandas as pd
import pytest
import reference
from support.models import random_model
from support.problems import run_boosting
from support.small_fits import (
    CLASSES,
    LABELS,
    LAYERS,
    X,
    Y,
    bits,
    classifier,
    coupled_derivatives,
    get_binned_data,
    regressor,
    runs,
)

from polyleaf import PolyleafMultiTask, PolyleafRegressor
from polyleaf.model import Model
from polyleaf.model.storage import from_arrays, to_arrays
from polyleaf.training.group_search import (
    MAX_COST,
    compare_groups,
    join_outputs,
    measure_candidate_gains,
    propose_groups,
)

GROUPS = [[0, 2], [1]]
TURNS = [[0, 1, 2], [0], [1, 2]]  # rounds alternate


@pytest.mark.parametrize("groups", [GROUPS, [[0], [1, 2]], [[0], [1], [2]], TURNS], ids=str)
def test_training_equals_the_reference(groups, library):
    parameters = {"hessian": "diagonal", "leaf_hessian": "diagonal", "learning_rate": 0.5}
    parameters |= {"max_depth": None, "max_leaves": 8, "output_groups": groups}
    model = regressor(objective=coupled_derivatives, **parameters).fit(X, Y)
    config = reference.GrowConfig(max_leaves=8, min_child_samples=4, min_child_weight=1e-3)
    training = get_binned_data(model), Y, coupled_derivatives, "diagonal", config
    options = {"n_rounds": 3, "learning_rate": 0.5, "groups": groups}
    scores, trees = run_boosting(library, *training, base=model.model_.base_score, **options)
    np.testing.assert_array_equal(list(model.staged_predict(X)), scores[1:])
    assert [tree.n_leaves for tree in model.model_.trees] == [tree.n_leaves for tree in trees]


PLAIN = {"normalize_targets": False}
GAPS = np.where(np.arange(len(Y))[:, None] % 7 == np.arange(3), np.nan, Y)


@pytest.mark.parametrize(
    ("y", "options"),
    [
        (Y, {}),
        (Y, LAYERS),
        (Y, {"leaf": "linear"}),
        (Y, {"leaf": "sparse", "leaf_k": 1}),
        (Y, {"objective": "absolute_error"}),
        (Y, {"objective": "huber", "subsample": 0.5}),
        (Y, {"monotone_constraints": [1, 0, 0, 0, -1]}),
        (np.exp(Y / 4), {"objective": "poisson", "hessian": "diagonal"}),
    ],
    ids=str,
)
def test_groups_are_models_of_their_own(y, options):
    """With a separable loss, the columns of each group equal those of a model of the group."""
    options = PLAIN | options
    with runs() as begun:
        model = regressor(output_groups=GROUPS, **options).fit(X, y)
    found = model.predict_raw(X)
    for group in GROUPS:
        alone = regressor(**options).fit(X, y[:, group] if len(group) > 1 else y[:, group[0]])
        np.testing.assert_array_equal(found[:, group], alone.predict_raw(X).reshape(len(X), -1))
    raw = begun[0].members[0].state.raw.astype(np.float64) + model.model_.base_score
    np.testing.assert_array_equal(raw, found)
    again = Model.from_bytes(model.model_.to_bytes())
    assert again.equals(model.model_)
    assert [tree.outputs.tolist() for tree in again.trees[:2]] == GROUPS
    importance = model.feature_importance(per_output=True)
    np.testing.assert_allclose(model.feature_importance(), importance.mean(axis=0), rtol=1e-5)


@pytest.mark.parametrize(
    "options",
    [
        {"missing_targets": "ignore"},
        {"missing_targets": "ignore", "leaf": "linear"},
        {"sampling_method": "goss"},
    ],
    ids=str,
)
def test_group_of_one_is_a_tree_per_output(options):
    """Where rows or bins depend on all outputs, a group of one still has the tree of its own."""
    y = GAPS if "missing_targets" in options else Y
    found = regressor(output_groups=GROUPS, n_estimators=1, **PLAIN | options).fit(X, y)
    one_each = regressor(multi_strategy="one_output_per_tree", n_estimators=1, **PLAIN | options)
    expected = one_each.fit(X, y).predict_raw(X)[:, 1]
    np.testing.assert_array_equal(found.predict_raw(X)[:, 1], expected)


def test_quantiles_and_tasks_in_groups():
    alpha = {"objective": "quantile", "quantile_alpha": [0.2, 0.8], **PLAIN}
    by_target = regressor(output_groups=[["0"], ["1", "2"]], **alpha).fit(X, Y)
    assert [tree.outputs.tolist() for tree in by_target.model_.trees[:2]] == [[0, 1], [2, 3, 4, 5]]
    alone = regressor(**alpha).fit(X, Y[:, 0])
    np.testing.assert_array_equal(by_target.predict(X)[:, 0], alone.predict(X)[:, 0])
    tasks = {"a": "squared_error", "b": "absolute_error", "c": "softmax"}
    targets = {"a": Y[:, 0], "b": Y[:, 1], "c": CLASSES}
    options = {"n_estimators": 3, "output_groups": [["a", "b"], ["c"]]}
    found = PolyleafMultiTask(tasks, **options).fit(X, targets)
    assert [tree.outputs.tolist() for tree in found.model_.trees[:2]] == [[0, 1], [2, 3, 4]]
    assert set(found.predict(X)) == {"a", "b", "c"}
    np.testing.assert_array_equal(found.task_estimator("b").predict(X), found.predict(X)["b"])


@pytest.mark.parametrize(
    ("groups", "same"),
    [
        ([[2], [0], [1]], {"multi_strategy": "one_output_per_tree"}),
        (np.array([[2], [0], [1]]), {"multi_strategy": "one_output_per_tree"}),
        (3, {"multi_strategy": "one_output_per_tree"}),
        ([[2, 0, 1]], {}),
        (1, {}),
        (2, {"output_groups": [[0, 1], [2]]}),
    ],
    ids=str,
)
def test_forms_of_the_same_groups(groups, same):
    assert bits(regressor(output_groups=groups).fit(X, Y)) == bits(regressor(**same).fit(X, Y))


def test_labels_and_classes_in_groups():
    labels = classifier(output_groups=GROUPS).fit(X, LABELS)
    alone = classifier().fit(X, LABELS[:, [0, 2]])
    np.testing.assert_array_equal(labels.predict_raw(X)[:, [0, 2]], alone.predict_raw(X))
    options = {"boosting_step": "tree", "n_estimators": 20}
    classes = classifier(output_groups=GROUPS, **options).fit(X, CLASSES)
    assert classes.score(X, CLASSES) > 0.7
    np.testing.assert_allclose(classes.predict_proba(X).sum(axis=1), 1.0)


@pytest.mark.parametrize("groups", [GROUPS, TURNS], ids=str)
@pytest.mark.parametrize(
    "options",
    [{}, LAYERS, {"leaf": "linear"}, {"leaf": "sparse", "leaf_k": 1}, {"subsample": 0.5}],
    ids=str,
)
def test_continued_and_repeated_training(options, groups):
    """Training that goes on equals one training; a refit on the same rows gives the same leaves."""
    whole = regressor(output_groups=groups, **options).fit(X, Y)
    begun = regressor(output_groups=groups, **options | {"n_estimators": 2}).fit(X, Y)
    more = regressor(output_groups=groups, **options | {"n_estimators": 1})
    assert whole.output_groups_ == begun.output_groups_ == groups
    assert bits(more.fit(X, Y, init_model=begun)) == bits(whole)
    expected = whole.predict_raw(X)
    again = whole.refit(X, Y, decay_rate=0.0)
    np.testing.assert_array_equal(again.predict_raw(X), expected)
    assert again.output_groups_ == groups


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ([[0, 1]], "output 2 is in no group"),
        ([[0, 1], [1, 2]], "output 1 is there 2 times"),
        ([[0, 1, 2], [0], [1]], "output 2 is in no group"),
        ([[0, 1], [2], [2], [1, 0]], "same groups twice"),
        ([[0, 1], [3]], "numbered from 0 to 2"),
        ([[0, 1], ["c"]], "outputs have no names"),
        ([0, 1, 2], "list of lists"),
        ([[0, 1, 2], []], "empty group"),
        (4, "more groups than there are outputs"),
    ],
    ids=str,
)
def test_invalid_groups_raise(groups, message):
    with pytest.raises(ValueError, match=message):
        regressor(output_groups=groups).fit(X, Y)


# --- output_groups="auto" ---


def two_kinds(n=900, noise=0.5, seed=0):
    """Draw features and four targets: the first and third share features, and so do the others."""
    rng = np.random.default_rng(seed)
    Z = rng.normal(size=(n, 8)).astype(np.float32)
    first, second = np.sin(2 * Z[:, 0]) + Z[:, 1], Z[:, 4] * np.sign(Z[:, 5]) + np.abs(Z[:, 6])
    signal = np.stack([first, second, first, -second], axis=1)
    return Z, signal + noise * rng.normal(size=signal.shape)


def test_candidate_gains_equal_the_definition():
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 4, (3, 90)).astype(np.uint8)
    g, h = rng.normal(size=(90, 2)).astype(np.float32), np.full((90, 2), 0.5, np.float32)
    found = measure_candidate_gains(codes, g, h, 1.0, 5)
    expected = [np.zeros(2)]
    for column in codes:
        for threshold in range(3):
            left = column <= threshold
            parts = [left, ~left, np.ones(90, bool)]
            gl, gr, both = (g[p].sum(axis=0) ** 2 / (h[p].sum(axis=0) + 1.0) for p in parts)
            if min(left.sum(), (~left).sum()) >= 5:
                expected.append(np.maximum(gl + gr - both, 0.0))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    assert len(found) == 10


def test_outputs_that_gain_by_the_same_splits_are_joined_first():
    gains = np.array([[9.0, 8.0, 0.0, 1.0], [0.0, 1.0, 7.0, 6.0]])
    levels = join_outputs(gains)
    assert levels[2] == [[0, 1], [2, 3]] and levels[1] == [[0, 1, 2, 3]]
    assert levels[4] == [[0], [1], [2], [3]]
    kept = {n: sum(gains[:, g].sum(axis=1).max() for g in groups) for n, groups in levels.items()}
    assert kept[4] == 9 + 8 + 7 + 6 and kept[2] == 9 + 8 + 7 + 6 and kept[1] == 18


def test_candidates_cost_at_most_three_times_one_group():
    for n in (2, 3, 6, 24):
        levels = join_outputs(np.eye(n))
        found = propose_groups(levels)
        assert found[0] == levels[1]
        each = levels[1] + levels[n], levels[n]
        costs = [1 + (n - 1) / (1 + 0.1 * n) * share for share in (0.5, 1.0)]
        assert [g in found for g in each] == [cost <= MAX_COST for cost in costs]


def test_clearly_worse_groups_are_left_out_after_a_fold():
    candidates = [[[0, 1]], [[0, 1], [0], [1]], [[0], [1]]]
    losses = [[1.0, 2.0, 1.0], [0.99, 1.97, 0.98], [1.03, 0.0, 0.0]]
    begun = [0, 0, 0]

    def measure(groups):
        c = candidates.index(groups)
        begun[c] += 1
        return losses[c][begun[c] - 1]

    ratios, chosen = compare_groups(candidates, iter([measure] * 3))
    assert begun == [3, 3, 1] and chosen == 1
    assert [len(r) for r in ratios] == [3, 3, 1]
    np.testing.assert_allclose(ratios[1], [0.99, 0.985, 0.98])


def test_auto_finds_outputs_of_common_features():
    Z, target = two_kinds()
    auto = PolyleafRegressor(n_estimators=40, output_groups="auto", random_state=0, n_jobs=1)
    auto.fit(Z, target)
    assert auto.output_groups_ == [[0, 2], [1, 3]]
    listed = PolyleafRegressor(n_estimators=40, output_groups=[[0, 2], [1, 3]], random_state=0)
    np.testing.assert_array_equal(auto.predict(Z), listed.fit(Z, target).predict(Z))
    again = PolyleafRegressor(n_estimators=40, output_groups="auto", random_state=0, n_jobs=2)
    assert bits(again.fit(Z, target)) == bits(auto)
    more = again.set_params(n_estimators=3).fit(Z, target, init_model=auto)
    assert more.output_groups_ == auto.output_groups_
    searched = PolyleafRegressor(output_groups="auto", random_state=0, n_estimators=None)
    assert [0, 2] in searched.fit(Z, target).output_groups_


def test_auto_shares_trees_where_they_help():
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(400, 5)).astype(np.float32)
    target = (Z[:, [0]] + np.sin(Z[:, [1]])) + 2.0 * rng.normal(size=(400, 6))
    model = PolyleafRegressor(n_estimators=30, output_groups="auto", random_state=0)
    assert model.fit(Z, target).output_groups_ == [list(range(6))]
    assert model.set_params(n_estimators=3).fit(Z, target[:, 0]).output_groups_ == [[0]]
    classes = classifier(output_groups="auto").fit(X, CLASSES)
    assert classes.output_groups_ == [[0, 1, 2]]


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("output", [-4, -3], "unknown group"),
        ("group_sizes", [3, -1], "does not fit"),
        ("group_outputs", [0, 2], "does not fit"),
        ("group_outputs", [2, 0, 1, 2], "must ascend"),
        ("group_outputs", [0, 3, 1, 2], "output 3, but there are 3"),
    ],
)
def test_damaged_groups_of_a_file_raise(name, values, message):
    model = random_model(n_rounds=1, groups=[[0, 2], [1, 2]])
    arrays = to_arrays(model.forest)
    assert arrays["output"].tolist() == [-2, -3]
    damaged = arrays | {name: np.array(values, np.int32)}
    with pytest.raises(ValueError, match=message):
        from_arrays(damaged, 3, model.n_features)


def test_a_name_that_begins_another_name_is_its_own_target():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3))
    frame = pd.DataFrame({"c": X[:, 0], "c_d": X[:, 1]})
    model = PolyleafRegressor(objective="quantile", quantile_alpha=[0.1, 0.9], n_estimators=2)
    for groups in ([["c"], ["c_d"]], [["c_d"], ["c"]]):
        assert model.set_params(output_groups=groups).fit(X, frame).output_groups_ == [
            [0, 1],
            [2, 3],
        ]
    tasks = PolyleafMultiTask(
        {"c": "squared_error", "c_d": "squared_error"},
        n_estimators=2,
        output_groups=[["c"], ["c_d"]],
    )
    assert tasks.fit(X, {"c": X[:, :2], "c_d": X[:, 2]}).output_groups_ == [[0, 1], [2]]
