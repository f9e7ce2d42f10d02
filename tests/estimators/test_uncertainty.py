"""Uncertainty of virtual ensembles: the models of the first rounds."""

import numpy as np
import pandas as pd
import pytest
from reference.virtual_ensemble import class_uncertainty, ensemble_rounds, regression_uncertainty
from sklearn.datasets import load_iris, make_regression
from sklearn.exceptions import NotFittedError
from sklearn.metrics import roc_auc_score

from polyleaf import PolyleafClassifier, PolyleafRegressor
from polyleaf.estimators.uncertainty import choose_rounds

X, Y = make_regression(300, 6, n_targets=2, noise=5.0, random_state=0)
FLOWERS, KINDS = load_iris(return_X_y=True)


def predict_each(model, X, method="predict", n_models=10):
    """Return predictions of each model of the ensemble."""
    rounds = ensemble_rounds(model.n_iter_, n_models)
    return [getattr(model, method)(X, iteration_range=(0, last)) for last in rounds]


@pytest.mark.parametrize(("n_rounds", "n_models"), [(100, 10), (99, 10), (5, 10), (2, 2), (7, 3)])
def test_models_have_at_least_half_of_the_rounds(n_rounds, n_models):
    rounds = choose_rounds(0, n_rounds, n_models)
    assert rounds == ensemble_rounds(n_rounds, n_models)
    assert rounds[-1] == n_rounds and len(rounds) == min(n_models, n_rounds)
    assert rounds[0] > n_rounds / 2 or n_rounds < 2 * n_models
    assert choose_rounds(3, 3 + n_rounds, n_models) == [3 + last for last in rounds]


@pytest.mark.parametrize("objective", ["normal", "lognormal", "student_t", "gamma_distribution"])
def test_regression_equals_the_reference(objective):
    y = np.exp(Y / 100) if objective in ("lognormal", "gamma_distribution") else Y
    model = PolyleafRegressor(n_estimators=30, objective=objective).fit(X, y)
    predicted = predict_each(model, X, "predict_dist", 6)
    means = np.array([distribution.mean() for distribution in predicted])
    variances = np.array([distribution.std() ** 2 for distribution in predicted])
    knowledge, data = regression_uncertainty(means, variances)
    uncertainty = model.predict_uncertainty(X, n_models=6)
    np.testing.assert_allclose(uncertainty.knowledge, knowledge, rtol=1e-9)
    np.testing.assert_allclose(uncertainty.data, data, rtol=1e-12)
    np.testing.assert_array_equal(uncertainty.total, uncertainty.knowledge + uncertainty.data)


@pytest.mark.parametrize(
    "parameters", [{}, {"objective": "quantile", "quantile_alpha": [0.1, 0.9]}]
)
def test_without_a_distribution_there_is_no_data_uncertainty(parameters):
    model = PolyleafRegressor(n_estimators=20, **parameters).fit(X, Y)
    uncertainty = model.predict_uncertainty(X)
    knowledge, _ = regression_uncertainty(np.array(predict_each(model, X)))
    np.testing.assert_allclose(uncertainty.knowledge, knowledge.reshape(len(X), -1), rtol=1e-9)
    assert uncertainty.data is None
    np.testing.assert_array_equal(uncertainty.total, uncertainty.knowledge)


def test_one_target_has_one_dimension():
    for objective in ("squared_error", "normal"):
        model = PolyleafRegressor(n_estimators=10, objective=objective).fit(X, Y[:, 0])
        assert model.predict_uncertainty(X).knowledge.shape == (300,)


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("objective", ["auto", "softmax"])
def test_classes_equal_the_reference(n_classes, objective):
    used = n_classes > KINDS
    model = PolyleafClassifier(n_estimators=25, objective=objective).fit(FLOWERS[used], KINDS[used])
    uncertainty = model.predict_uncertainty(FLOWERS)
    knowledge, data = class_uncertainty(np.array(predict_each(model, FLOWERS, "predict_proba")))
    np.testing.assert_allclose(uncertainty.knowledge, knowledge, atol=1e-14)
    np.testing.assert_allclose(uncertainty.data, data, rtol=1e-12)
    assert (uncertainty.knowledge >= 0).all()


def test_labels_have_one_uncertainty_each():
    model = PolyleafClassifier(n_estimators=20).fit(X, (Y > 0).astype(int))
    uncertainty = model.predict_uncertainty(X, n_models=4)
    p = np.array(predict_each(model, X, "predict_proba", 4))
    for label in range(2):
        both = np.stack([p[..., label], 1 - p[..., label]], axis=-1)
        knowledge, data = class_uncertainty(both)
        np.testing.assert_allclose(uncertainty.knowledge[:, label], knowledge, atol=1e-14)
        np.testing.assert_allclose(uncertainty.data[:, label], data, rtol=1e-12)


def test_rounds_and_offsets_are_those_of_predict():
    offset = np.linspace(-50, 50, 300)[:, None] * [1.0, 2.0]
    model = PolyleafRegressor(n_estimators=30, objective="normal").fit(X, Y, offset=offset)
    part = model.predict_uncertainty(X, n_models=3, iteration_range=(0, 12), offset=offset)
    means = [
        model.predict(X, iteration_range=(0, last), offset=offset)
        for last in ensemble_rounds(12, 3)
    ]
    np.testing.assert_allclose(part.knowledge, np.var(means, axis=0), rtol=1e-7)


def test_rows_unlike_the_training_rows_are_uncertain():
    """Rows like the training rows, and rows of independent features of twice the scale."""
    others = np.random.default_rng(0).permuted(X[150:], axis=0) * 2
    model = PolyleafRegressor(n_estimators=300, objective="normal", subsample=0.5, random_state=0)
    fitted = model.fit(X[:150], Y[:150]).predict_uncertainty(np.vstack([X[150:], others]))
    for uncertainty in (fitted.knowledge, fitted.data):
        assert roc_auc_score(np.repeat([0, 1], 150), uncertainty.mean(axis=1)) > 0.65


def test_tables_and_files_keep_the_uncertainty(tmp_path):
    table = pd.DataFrame(X, columns=list("abcdef"))
    model = PolyleafRegressor(n_estimators=10, objective="normal").fit(table, Y)
    model.save_model(tmp_path / "model")
    loaded = PolyleafRegressor.load_model(tmp_path / "model")
    for a, b in zip(
        model.predict_uncertainty(table), loaded.predict_uncertainty(table), strict=True
    ):
        np.testing.assert_array_equal(a, b)


def test_invalid_arguments_raise():
    model = PolyleafRegressor(n_estimators=10)
    with pytest.raises(NotFittedError):
        model.predict_uncertainty(X)
    model.fit(X, Y)
    for n_models in (1, 2.5, None):
        with pytest.raises(ValueError, match="n_models must be an integer of at least 2"):
            model.predict_uncertainty(X, n_models=n_models)
    with pytest.raises(ValueError, match="at least 2 rounds, but there are 1"):
        model.predict_uncertainty(X, iteration_range=(0, 1))
    hinge = PolyleafClassifier(objective="squared_hinge", n_estimators=5).fit(FLOWERS, KINDS > 0)
    with pytest.raises(AttributeError, match=r"squared_hinge.*has no probabilities"):
        hinge.predict_uncertainty(FLOWERS)
