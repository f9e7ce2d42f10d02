"""`quality`: members that are chosen on held-out rows, and trained side by side."""

import copy

import numpy as np
import pytest
from tests.support.small_fits import bits

from polyleaf import Dataset, PolyleafClassifier, PolyleafRegressor, load_model
from polyleaf.inspection.report.sections import describe_members
from polyleaf.model.leaf_kinds import LEAF_KINDS, scale_leaves
from polyleaf.training.members import Member, get_member_trees, select_active
from polyleaf.training.quality import choose_weights

SETTINGS = {"colsample_bynode": 1.0, "random_state": 0, "n_jobs": 1}


def make_data(n=500, k=2, seed=0):
    """Return a target that is partly linear, and partly made of steps."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 4))
    Y = X[:, :k] + (X[:, [2]] > 0.3) * (X[:, [3]] < 0.5) + 0.3 * rng.standard_normal((n, k))
    return X, Y


@pytest.fixture(scope="module")
def fitted():
    X, Y = make_data()
    model = PolyleafRegressor(**SETTINGS).fit(X, Y)
    assert len(model.model_.metadata["members"]) > 1
    return model, X, Y


def get_members(model):
    return copy.deepcopy(model.model_.metadata["members"])


def describe_leaves(model, t, factor=1.0):
    """Return the arrays of the leaves of a tree."""
    forest = model.model_.forest
    leaves = scale_leaves(forest.values(t), factor)
    arrays = LEAF_KINDS[forest.kind(t)].to_arrays(leaves)
    return arrays or {"values": np.asarray(leaves)}


def assert_members_equal_models(model, fit):
    """Every member has the trees of a model with its parameters, times its weight."""
    trees_of_member = {}
    for round in range(model.model_.n_rounds):
        for number, trees in get_member_trees(model.model_, round).items():
            trees_of_member.setdefault(number, []).extend(trees)
    for number, described in enumerate(get_members(model)):
        weight = described.pop("weight")
        alone = fit(**described)
        trees = trees_of_member[number]
        assert len(trees) == alone.model_.n_trees
        for t, mine in zip(trees, range(len(trees)), strict=True):
            first, second = (m.model_.forest.tree(i) for m, i in ((model, t), (alone, mine)))
            for name in ("feature", "threshold", "left", "leaf", "count"):
                np.testing.assert_array_equal(getattr(first, name), getattr(second, name))
            a, b = describe_leaves(model, t), describe_leaves(alone, mine, weight)
            assert a.keys() == b.keys()
            for name in a:
                np.testing.assert_array_equal(a[name], b[name])


def test_model_is_the_weighted_mean_of_models_with_the_parameters_of_its_members(fitted):
    model, X, Y = fitted
    data = Dataset(X, Y, keep_features=True)
    members, shape = get_members(model), Y.shape

    def fit(**parameters):
        return PolyleafRegressor(**SETTINGS, **parameters).fit(data, Y)

    assert_members_equal_models(model, fit)
    mean = np.zeros(shape)
    for member in members:
        weight = member.pop("weight")
        mean += weight * fit(**member).predict(X)
    np.testing.assert_allclose(model.predict(X), mean, rtol=1e-5, atol=1e-5)
    assert sum(member["weight"] for member in get_members(model)) == 1
    assert model.n_iter_ == max(member["n_estimators"] for member in members)


def test_classes_have_members_too():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((400, 4))
    y = (X[:, 0] + X[:, 1] + 0.5 * rng.standard_normal(400) > 0).astype(int) + (X[:, 2] > 1)
    model = PolyleafClassifier(**SETTINGS).fit(X, y)

    def fit(**parameters):
        return PolyleafClassifier(**SETTINGS, **parameters).fit(X, y)

    assert_members_equal_models(model, fit)


def test_threads_do_not_change_the_members(fitted):
    model, X, Y = fitted
    other = PolyleafRegressor(**{**SETTINGS, "n_jobs": 2}).fit(X, Y)
    assert bits(other) == bits(model) and get_members(other) == get_members(model)


def test_training_goes_on_with_all_members(fitted):
    model, X, Y = fitted
    more = PolyleafRegressor(n_estimators=3, **SETTINGS).fit(X, Y, init_model=model)
    members = get_members(model)
    assert get_members(more) == members
    assert more.model_.n_trees == model.model_.n_trees + 3 * len(members)
    data = Dataset(X, Y, reference=model.model_.mapper, keep_features=True)
    mean = np.zeros(Y.shape)
    for member in members:
        weight = member.pop("weight")
        alone = PolyleafRegressor(**SETTINGS, **member).fit(data, Y)
        member["n_estimators"] = 3
        longer = PolyleafRegressor(**SETTINGS, **member)
        mean += weight * longer.fit(data, Y, init_model=alone).predict(X)
    np.testing.assert_allclose(more.predict(X), mean, rtol=1e-5, atol=1e-5)


def test_training_goes_on_from_any_round(fitted):
    """A model cut after a round, and trained for the rest, is the model."""
    model, X, Y = fitted
    n_rounds = min(member["n_estimators"] for member in get_members(model)) + 2
    start = copy.deepcopy(model)
    start.model_.truncate(n_rounds)
    rest = PolyleafRegressor(n_estimators=model.n_iter_ - n_rounds, **SETTINGS).fit(
        X, Y, init_model=start
    )
    assert bits(rest) == bits(model)


def test_refit_on_the_training_rows_gives_the_model(fitted, tmp_path):
    model, X, Y = fitted
    model.save_model(tmp_path / "model")
    for trained in (copy.deepcopy(model), load_model(tmp_path / "model")):
        assert bits(trained.refit(X, Y)) == bits(model)
        assert get_members(trained) == get_members(model)


def test_members_are_shown(fitted):
    model, _, _ = fitted
    members = get_members(model)
    assert f"rounds of {len(members)} members" in repr(model.model_)
    assert describe_members(model.model_)[0].startswith(f"weight={members[0]['weight']}, n_est")


def test_contributions_add_up(fitted):
    model, X, _ = fitted
    total = model.shap_values(X[:20]).sum(axis=1) + model.shap_base_values()
    np.testing.assert_allclose(total, model.predict_raw(X[:20]), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "parameters",
    [
        {"n_estimators": 20},
        {"quality": "fast"},
        {"boosting_step": "layer", "grow_policy": "depthwise"},
    ],
)
def test_fits_without_members(parameters):
    X, Y = make_data(200)
    model = PolyleafRegressor(**SETTINGS, **parameters).fit(X, Y)
    assert "members" not in model.model_.metadata


def test_explicit_parameters_do_not_change():
    X, Y = make_data(200)
    model = PolyleafRegressor(max_leaves=5, **SETTINGS).fit(X, Y)
    assert all(tree.n_leaves <= 5 for tree in map(model.model_.forest.tree, range(10)))
    assert not any("max_leaves" in member for member in model.model_.metadata.get("members", ()))


def test_counts_have_one_member():
    """The mean of scores with a log link would be too low in sum."""
    X, _ = make_data(300)
    y = np.random.default_rng(0).poisson(np.exp(X[:, 0]))
    model = PolyleafRegressor(objective="poisson", **SETTINGS).fit(X, y)
    assert len(model.model_.metadata.get("members", [0])) == 1


def test_members_of_a_round():
    assert select_active([4, 2, 3], 1) == [0, 1, 2]
    assert select_active([4, 2, 3], 2) == [0, 2]
    assert select_active([4, 2, 3], 3) == [0]
    assert select_active([4, 2, 3], 4) == [0, 1, 2]  # continued
    assert select_active([0], 7) == [0]


@pytest.mark.parametrize(
    ("losses", "max_rounds", "expected"),
    [
        ({(0,): 1.0, (1,): 2.0, (0, 1): 3.0}, 100, {0: 1.0}),
        ({(0,): 3.0, (1,): 2.0, (0, 1): 1.0}, 100, {0: 0.5, 1: 0.5}),
        ({(0,): 3.0, (1,): 2.0, (0, 1): 1.0}, 10, {1: 1.0}),  # no time for both
    ],
)
def test_lowest_loss_within_the_time(losses, max_rounds, expected):
    candidates = [Member(None, {"x": i}, n_rounds=10) for i in range(2)]
    weights, lowest = choose_weights(
        candidates, lambda mix: np.array([losses[tuple(sorted(mix))]]), max_rounds
    )
    assert weights == expected and lowest == losses[tuple(sorted(expected))]
