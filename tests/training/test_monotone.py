"""monotone_constraints: what users say, and that no model disobeys."""

import numpy as np
import pandas as pd
import pytest

from polyleaf import PolyleafClassifier, PolyleafRegressor

RNG = np.random.default_rng(0)
F, K = 5, 3
SAME = np.repeat([[1], [-1], [0], [1], [0]], K, axis=1)
OWN = np.array([[1, -1, 0], [0, 1, 1], [0, 0, 0], [-1, 1, 0], [0, 0, -1]])


def made(n=400, missing=0.1):
    """Features, and targets that directions do not hold for, so that constraints have something to do."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(n, F)).astype(np.float32)
    Y = np.column_stack([np.sin(3 * X[:, 0]) - X[:, 1], X[:, 0] * X[:, 3], np.cos(2 * X[:, 1]) + X[:, 4]])
    X[rng.random((n, F)) < missing] = np.nan
    return X, (Y + 0.3 * rng.normal(size=Y.shape)).astype(np.float32)


X, Y = made()
LABELS = (Y > np.median(Y, axis=0)).astype(int)


def violations(model, directions, n_pairs=2000, seed=0, moved=2):
    """How many of random pairs of rows, the second raised as directions say, have raw scores out of order."""
    rng, n_bad = np.random.default_rng(seed), 0
    for k in range(directions.shape[1]):
        rows = X[rng.integers(len(X), size=n_pairs)]
        step = np.where(rng.random((n_pairs, F)) < moved / F, np.abs(rng.normal(size=(n_pairs, F))), 0)
        above = (rows + step * directions[:, k]).astype(np.float32)
        n_bad += int(
            np.sum(
                model.predict_raw(above).reshape(n_pairs, -1)[:, k]
                < model.predict_raw(rows).reshape(n_pairs, -1)[:, k]
            )
        )
    return n_bad


MORE = [
    {},
    {"max_leaves": 4},
    {"multi_strategy": "one_output_per_tree"},
    {"multi_strategy": "one_output_per_tree", "refresh": "tree"},
    {"refresh": "layer", "grow_policy": "depthwise", "max_depth": 4},
    {"refresh": "layer", "grow_policy": "depthwise", "max_depth": 4, "pruning": "post"},
    {"pruning": "post"},
    {"subsample": 0.5},
    {"sampling_method": "goss"},
    {"reg_alpha": 0.3, "max_delta_step": 0.5},
    {"reg_lambda": 0.0, "colsample_bynode": 1.0},
    {"curvature": "none"},
    {"max_bins": 8},
]


@pytest.mark.parametrize("directions", [SAME, OWN], ids=["same", "own"])
@pytest.mark.parametrize("more", MORE, ids=str)
def test_nothing_disobeys(more, directions):
    free = PolyleafRegressor(n_estimators=20, **more).fit(X, Y)
    model = PolyleafRegressor(n_estimators=20, monotone_constraints=directions, **more).fit(X, Y)
    assert violations(free, directions) > 100
    assert violations(model, directions) == 0


@pytest.mark.parametrize(
    "more", [{}, {"refresh": "layer", "grow_policy": "depthwise", "max_depth": 4}], ids=str
)
@pytest.mark.parametrize("objective", ["absolute_error", "huber", "poisson", "gamma", "quantile"])
def test_no_objective_of_targets_disobeys(objective, more):
    directions = SAME[:, :1] if objective == "quantile" else OWN
    given = {"quantile_alpha": [0.5]} if objective == "quantile" else {}
    target = np.exp(Y[:, 0] if objective == "quantile" else Y)
    model = PolyleafRegressor(
        n_estimators=20, objective=objective, monotone_constraints=directions, **given, **more
    ).fit(X, target)
    assert violations(model, directions) == 0


@pytest.mark.parametrize("objective", ["logistic", "squared_hinge"])
def test_no_objective_of_labels_disobeys(objective):
    model = PolyleafClassifier(n_estimators=20, objective=objective, monotone_constraints=OWN).fit(X, LABELS)
    assert violations(model, OWN) == 0


def test_no_scores_of_classes_disobey():
    model = PolyleafClassifier(n_estimators=20, monotone_constraints=OWN).fit(X, Y.argmax(axis=1))
    assert violations(model, OWN) == 0


def test_forms_mean_the_same():
    frame = pd.DataFrame(X, columns=list("abcde"))
    targets = pd.DataFrame(Y, columns=["x", "y", "z"])
    by_place = PolyleafRegressor(n_estimators=3, monotone_constraints=OWN).fit(frame, targets)
    by_name = {"a": {"x": 1, "y": -1}, 1: {"y": 1, 2: 1}, "d": {"x": -1, 1: 1}, "e": {"z": -1}}
    named = PolyleafRegressor(n_estimators=3, monotone_constraints=by_name).fit(frame, targets)
    np.testing.assert_array_equal(by_place.predict_raw(frame), named.predict_raw(frame))
    for same in ([1, -1, 0, 1, 0], {"a": 1, "b": -1, 3: 1}):
        model = PolyleafRegressor(n_estimators=3, monotone_constraints=same).fit(frame, targets)
        twin = PolyleafRegressor(n_estimators=3, monotone_constraints=SAME).fit(frame, targets)
        np.testing.assert_array_equal(model.predict_raw(frame), twin.predict_raw(frame))


def test_directions_that_are_all_free_change_nothing():
    free = PolyleafRegressor(n_estimators=5).fit(X, Y).predict(X)
    for nothing in ([0] * F, {}, {2: 0}):
        model = PolyleafRegressor(n_estimators=5, monotone_constraints=nothing).fit(X, Y)
        np.testing.assert_array_equal(model.predict(X), free)


@pytest.mark.parametrize(
    "constraints, error, sentence",
    [
        ([1, 0], ValueError, "X has 5 features and there are 3 outputs"),
        ([1, 0, 2, 0, 0], ValueError, "are 1, -1 or 0"),
        ([1, 0, 0.5, 0, 0], ValueError, "are 1, -1 or 0"),
        ({0: "up"}, ValueError, "feature 0 is 'up'"),
        ({0: True}, ValueError, "feature 0 is True"),
        ({"a": 1}, ValueError, "X has no names"),
        ({9: 1}, ValueError, "names feature 9"),
        ({0: {5: 1}}, ValueError, "names output 5"),
        ({0: {"x": 1}}, ValueError, "outputs have no names"),
        ({0: {1.5: 1}}, TypeError, "outputs by text or whole number"),
        (["up"] * F, TypeError, "one direction a feature"),
    ],
    ids=str,
)
def test_what_cannot_be_meant_is_refused(constraints, error, sentence):
    with pytest.raises(error, match=sentence):
        PolyleafRegressor(n_estimators=1, monotone_constraints=constraints).fit(X, Y)


@pytest.mark.parametrize(
    "more, sentence",
    [
        ({"leaf": "linear"}, "within a linear leaf"),
        ({"leaf": "sparse", "leaf_k": 1}, "a sparse leaf does not hold"),
        ({"curvature": "full"}, "moves the outputs of a leaf together"),
        ({"leaf_curvature": "block"}, "moves the outputs of a leaf together"),
        ({"sketch": "random_projection", "sketch_dim": 1}, "mixtures of them"),
        ({"projection": "pca"}, "which trees do not see"),
    ],
    ids=str,
)
def test_what_would_not_obey_is_refused(more, sentence):
    with pytest.raises(ValueError, match=sentence):
        PolyleafRegressor(n_estimators=1, monotone_constraints=[1, 0, 0, 0, 0], **more).fit(X, Y)


def test_categories_have_no_directions():
    frame = pd.DataFrame(X, columns=list("abcde")).assign(c=pd.Categorical(RNG.choice(list("xyz"), len(X))))
    PolyleafRegressor(n_estimators=2, monotone_constraints={"a": 1}).fit(frame, Y)
    with pytest.raises(ValueError, match="'c', whose values are categories"):
        PolyleafRegressor(n_estimators=2, monotone_constraints={"c": 1}).fit(frame, Y)
