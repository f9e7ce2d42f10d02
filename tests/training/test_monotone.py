"""monotone_constraints: accepted forms, and models that satisfy them."""

import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polyleaf import PolyleafClassifier, PolyleafRegressor, load_model

RNG = np.random.default_rng(0)
F, K = 5, 3
SAME = np.repeat([[1], [-1], [0], [1], [0]], K, axis=1)
OWN = np.array([[1, -1, 0], [0, 1, 1], [0, 0, 0], [-1, 1, 0], [0, 0, -1]])


def make_data(n=400, missing=0.1):
    """Return features and non-monotone targets, so that constraints have an effect."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(n, F)).astype(np.float32)
    a, b, _, d, e = X.T
    Y = np.column_stack([np.sin(3 * a) - b, a * d, np.cos(2 * b) + e])
    X[rng.random((n, F)) < missing] = np.nan
    return X, (Y + 0.3 * rng.normal(size=Y.shape)).astype(np.float32)


X, Y = make_data()
LABELS = (Y > np.median(Y, axis=0)).astype(int)


def count_violations(model, directions, n_pairs=2000, seed=0, moved=2):
    """Count random pairs of rows that violate the constraints; the second row is increased in
    constrained features."""
    rng, n_bad = np.random.default_rng(seed), 0
    for k in range(directions.shape[1]):
        rows = X[rng.integers(len(X), size=n_pairs)]
        is_moved = rng.random((n_pairs, F)) < moved / F
        step = np.where(is_moved, np.abs(rng.normal(size=(n_pairs, F))), 0)
        above = (rows + step * directions[:, k]).astype(np.float32)
        above, below = (model.predict_raw(x).reshape(n_pairs, -1)[:, k] for x in (above, rows))
        n_bad += int(np.sum(above < below))
    return n_bad


BY_LAYER = {"boosting_step": "layer", "grow_policy": "depthwise", "max_depth": 4}
MORE = [
    {},
    {"max_leaves": 4},
    {"multi_strategy": "one_output_per_tree"},
    {"multi_strategy": "one_output_per_tree", "boosting_step": "tree"},
    BY_LAYER,
    BY_LAYER | {"pruning": "post"},
    {"pruning": "post"},
    {"subsample": 0.5},
    {"sampling_method": "goss"},
    {"reg_alpha": 0.3, "max_delta_step": 0.5},
    {"reg_lambda": 0.0, "colsample_bynode": 1.0},
    {"hessian": "none"},
    {"max_bins": 8},
]


@pytest.mark.parametrize("directions", [SAME, OWN], ids=["same", "own"])
@pytest.mark.parametrize("more", MORE, ids=str)
def test_constraints_are_satisfied(more, directions):
    free = PolyleafRegressor(n_estimators=20, **more).fit(X, Y)
    model = PolyleafRegressor(n_estimators=20, monotone_constraints=directions, **more).fit(X, Y)
    assert count_violations(free, directions) > 100
    assert count_violations(model, directions) == 0


@pytest.mark.parametrize("more", [{}, BY_LAYER], ids=str)
@pytest.mark.parametrize("objective", ["absolute_error", "huber", "poisson", "gamma", "tweedie"])
def test_constraints_with_regression_objectives(objective, more):
    model = PolyleafRegressor(objective, n_estimators=20, monotone_constraints=OWN, **more)
    assert count_violations(model.fit(X, np.exp(Y)), OWN) == 0


@pytest.mark.parametrize("objective", ["logistic", "squared_hinge"])
def test_constraints_with_label_objectives(objective):
    model = PolyleafClassifier(objective, n_estimators=20, monotone_constraints=OWN)
    assert count_violations(model.fit(X, LABELS), OWN) == 0


def test_scores_of_classes_satisfy_constraints_but_probabilities_may_not():
    model = PolyleafClassifier(n_estimators=20, monotone_constraints=OWN)
    with pytest.warns(UserWarning, match="Probabilities may violate"):
        model.fit(X, Y.argmax(axis=1))
    assert count_violations(model, OWN) == 0


@pytest.mark.parametrize("columns", [1, 2])
def test_constraints_with_quantiles(columns):
    frame = pd.DataFrame(Y[:, :columns], columns=["x", "y"][:columns])
    given = {0: 1, 1: {1: -1}} if columns == 2 else {0: 1}
    quantiles = {"objective": "quantile", "quantile_alpha": [0.1, 0.5, 0.9]}
    model = PolyleafRegressor(n_estimators=20, monotone_constraints=given, **quantiles)
    model.fit(X, frame)
    directions = np.zeros((F, columns), int)
    directions[0], directions[1, 1:] = 1, -1
    assert count_violations(model, np.repeat(directions, 3, axis=1)) == 0
    if columns == 2:
        named = model.set_params(monotone_constraints={0: 1, 1: {"y": -1}}).fit(X, frame)
        assert count_violations(named, np.repeat(directions, 3, axis=1)) == 0


def test_missing_values_are_unconstrained():
    """Missing values may have any prediction, and do not affect the order of others."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(600, 1))
    y = np.where(rng.random(600) < 0.3, -9.0, np.tanh(x[:, 0]))
    x[y == -9] = np.nan
    model = PolyleafRegressor(n_estimators=60, monotone_constraints=[1]).fit(x, y)
    assert np.abs(model.predict(x) - y).max() < 0.5
    line = model.predict(np.linspace(-4, 4, 200)[:, None])
    assert np.all(np.diff(line) >= 0)
    assert model.predict([[np.nan]])[0] < -8.5


def test_init_model_that_violates_constraints_warns():
    free = PolyleafRegressor(n_estimators=5, warm_start=True).fit(X, Y)
    with pytest.warns(UserWarning, match="violate monotone_constraints"):
        PolyleafRegressor(n_estimators=2, monotone_constraints=OWN).fit(X, Y, init_model=free)
    model = PolyleafRegressor(n_estimators=5, monotone_constraints=OWN).fit(X, Y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        further = PolyleafRegressor(n_estimators=5, monotone_constraints=OWN)
        further.fit(X, Y, init_model=model)
    assert count_violations(further, OWN) == 0
    whole = PolyleafRegressor(n_estimators=10, monotone_constraints=OWN).fit(X, Y)
    np.testing.assert_array_equal(further.predict_raw(X), whole.predict_raw(X))


@pytest.mark.parametrize("leaf_dtype", ["float32", "float16", "int8"])
def test_constraints_are_saved(leaf_dtype, tmp_path):
    model = PolyleafRegressor(n_estimators=20, monotone_constraints=OWN).fit(X, Y)
    model.save_model(tmp_path / "m", leaf_dtype=leaf_dtype)
    read = load_model(tmp_path / "m")
    assert count_violations(read, OWN) == 0
    given = read.get_params()["monotone_constraints"]
    np.testing.assert_array_equal(given, OWN)


def test_parameters_of_a_file_train_the_same_model(tmp_path):
    given = {"n_estimators": 3, "random_state": 0, "monotone_constraints": {"0": 1, "1": {"2": -1}}}
    model = PolyleafRegressor(**given).fit(X, Y)
    model.save_model(tmp_path / "m")
    again = load_model(tmp_path / "m").fit(X, Y)
    np.testing.assert_array_equal(again.predict_raw(X), model.predict_raw(X))


def build_model(seed):
    """Return a model of random targets and settings, and its constraints (F, K)."""
    rng = np.random.default_rng(seed)
    directions = rng.integers(-1, 2, (F, K))
    more = MORE[rng.integers(len(MORE))] | {"learning_rate": float(rng.choice([0.1, 1.0]))}
    given = {"monotone_constraints": directions, "random_state": int(rng.integers(99))}
    given["n_estimators"] = 10
    objectives = ["squared_error", "absolute_error", "huber"]
    objectives += ["poisson", "gamma", "tweedie", "logistic"]
    objective = objectives[rng.integers(len(objectives))]
    if objective == "logistic":
        return PolyleafClassifier(**given | more).fit(X, LABELS), directions
    target = Y if objective in objectives[:3] else np.exp(Y)
    return PolyleafRegressor(objective=objective, **given | more).fit(X, target), directions


@settings(max_examples=8, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**32 - 1))
def test_constraints_on_random_trees(seed):
    model, directions = build_model(seed)
    assert count_violations(model, directions, n_pairs=1000, seed=seed) == 0


@pytest.mark.full
@pytest.mark.parametrize("seed", range(60))
def test_constraints_on_a_million_pairs(seed):
    model, directions = build_model(seed)
    assert count_violations(model, directions, n_pairs=340_000, seed=seed) == 0


def test_equivalent_forms():
    frame = pd.DataFrame(X, columns=list("abcde"))
    targets = pd.DataFrame(Y, columns=["x", "y", "z"])
    by_place = PolyleafRegressor(n_estimators=3, monotone_constraints=OWN).fit(frame, targets)
    by_name = {"a": {"x": 1, "y": -1}, 1: {"y": 1, 2: 1}, "d": {"x": -1, 1: 1}, "e": {"z": -1}}
    named = PolyleafRegressor(n_estimators=3, monotone_constraints=by_name).fit(frame, targets)
    np.testing.assert_array_equal(by_place.predict_raw(frame), named.predict_raw(frame))
    for same in ([1, -1, 0, 1, 0], {"a": 1, "b": -1, 3: 1}):
        model = PolyleafRegressor(n_estimators=3, monotone_constraints=same).fit(frame, targets)
        expected = PolyleafRegressor(n_estimators=3, monotone_constraints=SAME).fit(frame, targets)
        np.testing.assert_array_equal(model.predict_raw(frame), expected.predict_raw(frame))


def test_zero_constraints_have_no_effect():
    free = PolyleafRegressor(n_estimators=5).fit(X, Y).predict(X)
    for nothing in ([0] * F, {}, {2: 0}):
        model = PolyleafRegressor(n_estimators=5, monotone_constraints=nothing).fit(X, Y)
        np.testing.assert_array_equal(model.predict(X), free)


@pytest.mark.parametrize(
    "constraints, error, sentence",
    [
        ([1, 0], ValueError, "monotone_constraints"),
        ([1, 0, 2, 0, 0], ValueError, "monotone_constraints"),
        ([1, 0, 0.5, 0, 0], ValueError, "monotone_constraints"),
        ([1, 0, np.nan, 0, 0], ValueError, "one of them is nan"),
        ({0: "up"}, ValueError, "feature 0 is 'up'"),
        ({0: True}, ValueError, "feature 0 is True"),
        ({"a": 1}, ValueError, "X has no names"),
        ({9: 1}, ValueError, "names feature 9"),
        ({0: {5: 1}}, ValueError, "names output 5"),
        ({0: {"x": 1}}, ValueError, "outputs have no names"),
        ({0: {1.5: 1}}, TypeError, "outputs by text or whole number"),
        (["up"] * F, TypeError, "monotone_constraints"),
    ],
    ids=str,
)
@pytest.mark.filterwarnings("error")
def test_invalid_constraints_raise(constraints, error, sentence):
    with pytest.raises(error, match=sentence):
        PolyleafRegressor(n_estimators=1, monotone_constraints=constraints).fit(X, Y)


def test_categorical_features_raise():
    frame = pd.DataFrame(X, columns=list("abcde")).assign(
        c=pd.Categorical(RNG.choice(list("xyz"), len(X)))
    )
    PolyleafRegressor(n_estimators=2, monotone_constraints={"a": 1}).fit(frame, Y)
    with pytest.raises(ValueError, match="'c', which is categorical"):
        PolyleafRegressor(n_estimators=2, monotone_constraints={"c": 1}).fit(frame, Y)
