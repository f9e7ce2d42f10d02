"""Presets: each trains on all kinds of targets and equals the method of its name."""

import inspect

import numpy as np
import pytest

from polyleaf import PolyleafClassifier, PolyleafRegressor
from polyleaf.settings import presets

PRESETS = [getattr(presets, name) for name in presets.__all__]
OF_CLASSES = [presets.gamble, presets.gd_mcboost, presets.samme]
# gbdt_sparse is for sparse targets: tests/training/test_sparse_targets.py.
OF_BOTH = [preset for preset in PRESETS if preset not in [*OF_CLASSES, presets.gbdt_sparse]]


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 5))
    Y = np.stack([X[:, 0] + X[:, 1] ** 2, np.sin(2 * X[:, 2]), X[:, 0] * X[:, 3]], axis=1)
    return X, Y


def make_parameters(preset, classifier):
    """Return the preset for an estimator, with 40 rounds."""
    takes = inspect.signature(preset).parameters
    parameters = {"classifier": classifier} if "classifier" in takes else {}
    parameters |= {"leaf_k": 2} if "leaf_k" in takes else {}
    return preset(**parameters) | {"n_estimators": 40}


@pytest.mark.parametrize("preset", OF_BOTH)
def test_presets_are_parameters_of_both_estimators(preset, data):
    X, Y = data
    regressor = PolyleafRegressor(**make_parameters(preset, False)).fit(X, Y)
    assert regressor.score(X, Y) > 0.6
    classifier = PolyleafClassifier(**make_parameters(preset, True)).fit(X, Y.argmax(1))
    assert classifier.score(X, Y.argmax(1)) > 0.8
    labels = PolyleafClassifier(**make_parameters(preset, True)).fit(X, (Y > 0).astype(int))
    assert labels.score(X, (Y > 0).astype(int)) > 0.6


@pytest.mark.parametrize("preset", OF_CLASSES)
def test_presets_of_multi_class_losses(preset, data):
    X, Y = data
    model = PolyleafClassifier(**make_parameters(preset, True)).fit(X, Y.argmax(1))
    assert model.score(X, Y.argmax(1)) > 0.8
    p = model.predict_proba(X)
    np.testing.assert_allclose(p.sum(1), 1)
    assert (p.argmax(1) == model.predict(X)).all()
    others = (PolyleafClassifier, Y > 0), (PolyleafRegressor, Y)
    for estimator, y in others:
        with pytest.raises(ValueError, match="objective='exponential"):
            estimator(**preset()).fit(X, y)


@pytest.mark.parametrize("preset", [presets.samme, presets.gd_mcboost])
@pytest.mark.parametrize("leaf_hessian", ["none", "shared"])
def test_scores_sum_to_zero_if_outputs_share_their_hessian(preset, leaf_hessian, data):
    X, Y = data
    parameters = preset() | {
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


@pytest.mark.parametrize("preset", PRESETS)
def test_each_call_makes_a_new_dict(preset):
    preset()["n_estimators"] = "spoiled"
    assert preset().get("n_estimators") != "spoiled"


def test_tfbt_has_the_parameters_of_its_paper():
    stated = {
        "learning_rate": 0.3,
        "max_depth": 4,
        "reg_lambda": 1.0,
        "softmax_hessian": "diagonal",
    }
    for preset, boosting_step, kind in (
        (presets.tfbt, "layer", "diagonal"),
        (presets.tfbt_full, "round", "full"),
    ):
        expected = stated | {"boosting_step": boosting_step, "hessian": kind, "leaf_hessian": kind}
        assert expected.items() <= preset().items()


@pytest.mark.parametrize("preset", PRESETS)
def test_docstrings_cite(preset):
    assert "arXiv" in preset.__doc__ or "20" in preset.__doc__


def test_trees_per_round(data):
    X, Y = data
    few = {"n_estimators": 5}
    assert PolyleafRegressor(**presets.gbdt_mo() | few).fit(X, Y).model_.n_trees == 5
    assert PolyleafRegressor(**presets.gbdt_so() | few).fit(X, Y).model_.n_trees == 15
    assert PolyleafRegressor(**presets.cgb() | few).fit(X, Y).model_.n_trees == 5


def test_one_tree_per_output_equals_a_model_per_output(data):
    X, Y = data
    parameters = presets.gbdt_so() | {"n_estimators": 10}
    together = PolyleafRegressor(**parameters).fit(X, Y).predict(X)
    apart = [PolyleafRegressor(**parameters).fit(X, y).predict(X) for y in Y.T]
    np.testing.assert_array_equal(together, np.stack(apart, axis=1))


def test_cgb_equals_gbdt_mo_for_squared_error(data):
    """A constant Hessian has no second step (paper, section 3.2)."""
    X, Y = data
    same = {key: value for key, value in presets.cgb().items() if "hessian" not in key}
    np.testing.assert_array_equal(
        PolyleafRegressor(**presets.cgb()).fit(X, Y).predict(X),
        PolyleafRegressor(**same).fit(X, Y).predict(X),
    )


def test_cgb_takes_the_newton_step_of_its_paper(data):
    """Eq. 13: the sum of residuals divided by the sum of p (1 - p), times Friedman's (K - 1) /
    K."""
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


def test_cgb_uses_the_softmax_hessian_of_its_paper():
    assert PolyleafClassifier(**presets.cgb()).softmax_hessian == "friedman"


@pytest.mark.parametrize("preset", PRESETS)
def test_presets_with_changed_parameters(preset):
    assert preset(n_estimators=25, subsample=0.5) == preset() | {
        "n_estimators": 25,
        "subsample": 0.5,
    }
    assert preset(learning_rate=0.7)["learning_rate"] == 0.7


def test_presets_equal_the_parameters_of_their_paper(data):
    X, Y = data
    few = {"n_estimators": 4}
    stated = {presets.cgb: "friedman", presets.tfbt: "diagonal", presets.tfbt_full: "diagonal"}
    for preset, hessian in stated.items():
        model = PolyleafClassifier(**preset(**few)).fit(X, Y.argmax(1))
        assert model.model_.objective.softmax_hessian == hessian
        numbers = PolyleafRegressor(**preset(**few)).fit(X, Y)
        without = {
            name: value for name, value in preset(**few).items() if name != "softmax_hessian"
        }
        np.testing.assert_array_equal(
            numbers.predict(X), PolyleafRegressor(**without).fit(X, Y).predict(X)
        )


@pytest.mark.parametrize("preset", [presets.samme, presets.gamble, presets.gd_mcboost])
def test_class_presets_raise_in_the_regressor_and_accept_two_classes(data, preset):
    X, Y = data
    with pytest.raises(ValueError, match="is for classes: use PolyleafClassifier"):
        PolyleafRegressor(**preset()).fit(X, Y)
    y = Y[:, 0] > np.median(Y[:, 0])
    model = PolyleafClassifier(**preset(n_estimators=20)).fit(X, y)
    assert model.score(X, y) > 0.8
    assert model.predict_proba(X).shape == (len(X), 2) and model.decision_function(X).shape == (
        len(X),
    )
