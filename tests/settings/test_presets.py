"""Recipes: every one trains every task, and is the method it is named after."""

import inspect

import numpy as np
import pytest

from polyleaf import PolyleafClassifier, PolyleafRegressor
from polyleaf.settings import presets

PRESETS = [getattr(presets, name) for name in presets.__all__]
OF_CLASSES = [presets.gamble, presets.gd_mcboost, presets.samme]
# gbdt_sparse is for sparse targets: tests/training/test_sparse_targets.py.
OF_BOTH = [recipe for recipe in PRESETS if recipe not in [*OF_CLASSES, presets.gbdt_sparse]]


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 5))
    Y = np.stack([X[:, 0] + X[:, 1] ** 2, np.sin(2 * X[:, 2]), X[:, 0] * X[:, 3]], axis=1)
    return X, Y


def parameters_of(recipe, classifier):
    """The recipe for that estimator, 40 rounds."""
    takes = inspect.signature(recipe).parameters
    parameters = {"classifier": classifier} if "classifier" in takes else {}
    parameters |= {"leaf_k": 2} if "leaf_k" in takes else {}
    return recipe(**parameters) | {"n_estimators": 40}


@pytest.mark.parametrize("recipe", OF_BOTH)
def test_recipes_are_parameters_of_both_estimators(recipe, data):
    X, Y = data
    regressor = PolyleafRegressor(**parameters_of(recipe, False)).fit(X, Y)
    assert regressor.score(X, Y) > 0.6
    classifier = PolyleafClassifier(**parameters_of(recipe, True)).fit(X, Y.argmax(1))
    assert classifier.score(X, Y.argmax(1)) > 0.8
    labels = PolyleafClassifier(**parameters_of(recipe, True)).fit(X, (Y > 0).astype(int))
    assert labels.score(X, (Y > 0).astype(int)) > 0.6


@pytest.mark.parametrize("recipe", OF_CLASSES)
def test_recipes_of_multi_class_losses(recipe, data):
    X, Y = data
    model = PolyleafClassifier(**parameters_of(recipe, True)).fit(X, Y.argmax(1))
    assert model.score(X, Y.argmax(1)) > 0.8
    p = model.predict_proba(X)
    np.testing.assert_allclose(p.sum(1), 1)
    assert (p.argmax(1) == model.predict(X)).all()
    others = (PolyleafClassifier, Y > 0), (PolyleafRegressor, Y)
    for estimator, y in others:
        with pytest.raises(ValueError, match="objective='exponential"):
            estimator(**recipe()).fit(X, y)


@pytest.mark.parametrize("recipe", [presets.samme, presets.gd_mcboost])
@pytest.mark.parametrize("leaf_hessian", ["none", "shared"])
def test_scores_sum_to_zero_by_themselves_where_outputs_share_their_curvature(
    recipe, leaf_hessian, data
):
    X, Y = data
    parameters = recipe() | {
        "n_estimators": 10,
        "leaf_hessian": leaf_hessian,
        "learning_rate": 0.05,
    }
    model = PolyleafClassifier(**parameters).fit(X, Y.argmax(1))
    for t in range(10):
        values = model.model_.forest.values(t)
        assert np.abs(values.sum(1)).max() <= 1e-6 * np.abs(values).max()
    scores = model.decision_function(X)
    assert np.abs(scores.sum(1)).max() <= 1e-5 * np.abs(scores).max()


@pytest.mark.parametrize("recipe", PRESETS)
def test_each_call_makes_a_new_dict(recipe):
    recipe()["n_estimators"] = "spoiled"
    assert recipe().get("n_estimators") != "spoiled"


def test_tfbt_is_the_setting_of_its_paper():
    stated = {
        "learning_rate": 0.3,
        "max_depth": 4,
        "reg_lambda": 1.0,
        "softmax_hessian": "diagonal",
    }
    for recipe, boosting_step, kind in (
        (presets.tfbt, "layer", "diagonal"),
        (presets.tfbt_full, "round", "full"),
    ):
        expected = stated | {"boosting_step": boosting_step, "hessian": kind, "leaf_hessian": kind}
        assert expected.items() <= recipe().items()


@pytest.mark.parametrize("recipe", PRESETS)
def test_docstrings_cite(recipe):
    assert "arXiv" in recipe.__doc__ or "20" in recipe.__doc__


def test_trees_per_round(data):
    X, Y = data
    few = {"n_estimators": 5}
    assert PolyleafRegressor(**presets.gbdt_mo() | few).fit(X, Y).model_.n_trees == 5
    assert PolyleafRegressor(**presets.gbdt_so() | few).fit(X, Y).model_.n_trees == 15
    assert PolyleafRegressor(**presets.cgb() | few).fit(X, Y).model_.n_trees == 5


def test_one_tree_per_output_is_a_model_per_output(data):
    X, Y = data
    parameters = presets.gbdt_so() | {"n_estimators": 10}
    together = PolyleafRegressor(**parameters).fit(X, Y).predict(X)
    apart = [PolyleafRegressor(**parameters).fit(X, y).predict(X) for y in Y.T]
    np.testing.assert_array_equal(together, np.stack(apart, axis=1))


def test_cgb_is_gbdt_mo_for_squared_error(data):
    """Constant curvature: there is no second step to take (paper, section 3.2)."""
    X, Y = data
    same = {key: value for key, value in presets.cgb().items() if "hessian" not in key}
    np.testing.assert_array_equal(
        PolyleafRegressor(**presets.cgb()).fit(X, Y).predict(X),
        PolyleafRegressor(**same).fit(X, Y).predict(X),
    )


def test_cgb_takes_the_newton_step_of_its_paper(data):
    """Eq. 13: the sum of the residuals over the sum of p (1 - p), times Friedman's (K - 1) / K."""
    X, Y = data
    y = Y.argmax(1)
    parameters = {**presets.cgb(), "n_estimators": 1, "learning_rate": 1.0, "base_score": 0.0}
    model = PolyleafClassifier(**parameters).fit(X, y)
    leaf = model.apply(X)[:, 0]
    step = model.decision_function(X)
    for j in np.unique(leaf):
        rows = leaf == j
        residual = np.eye(3)[y[rows]] - 1 / 3
        expected = (2 / 3) * residual.sum(0) / (rows.sum() * (1 / 3) * (2 / 3))
        np.testing.assert_allclose(
            step[rows], np.broadcast_to(expected, (rows.sum(), 3)), rtol=1e-5, atol=1e-6
        )


def test_cgb_names_the_softmax_curvature_of_its_paper():
    assert PolyleafClassifier(**presets.cgb()).softmax_hessian == "friedman"


@pytest.mark.parametrize("recipe", PRESETS)
def test_recipes_take_changes(recipe):
    assert recipe(n_estimators=25, subsample=0.5) == recipe() | {
        "n_estimators": 25,
        "subsample": 0.5,
    }
    assert recipe(learning_rate=0.7)["learning_rate"] == 0.7


def test_one_call_is_the_method_of_its_paper_for_both_estimators(data):
    X, Y = data
    few = {"n_estimators": 4}
    stated = {presets.cgb: "friedman", presets.tfbt: "diagonal", presets.tfbt_full: "diagonal"}
    for recipe, curvature in stated.items():
        model = PolyleafClassifier(**recipe(**few)).fit(X, Y.argmax(1))
        assert model.model_.objective.softmax_hessian == curvature
        numbers = PolyleafRegressor(**recipe(**few)).fit(X, Y)
        without = {
            name: value for name, value in recipe(**few).items() if name != "softmax_hessian"
        }
        np.testing.assert_array_equal(
            numbers.predict(X), PolyleafRegressor(**without).fit(X, Y).predict(X)
        )


@pytest.mark.parametrize("recipe", [presets.samme, presets.gamble, presets.gd_mcboost])
def test_recipes_of_classes_are_refused_by_the_regressor_and_take_two_classes(data, recipe):
    X, Y = data
    with pytest.raises(ValueError, match="is for classes: use PolyleafClassifier"):
        PolyleafRegressor(**recipe()).fit(X, Y)
    y = Y[:, 0] > np.median(Y[:, 0])
    model = PolyleafClassifier(**recipe(n_estimators=20)).fit(X, y)
    assert model.score(X, y) > 0.8
    assert model.predict_proba(X).shape == (len(X), 2) and model.decision_function(X).shape == (
        len(X),
    )
