"""Blends: one model with the weighted mean of the raw scores of several models."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import make_classification, make_regression

from polyleaf import Dataset, Model, PolyleafClassifier, PolyleafRegressor
from polyleaf.search.ensemble import average_models

X, Y = make_regression(200, 6, n_targets=3, noise=3.0, random_state=0)
DATA = Dataset(X, keep_features=True)
KINDS = (
    {},
    {"multi_strategy": "one_output_per_tree"},
    {"leaf": "linear"},
    {"leaf": "sparse", "leaf_k": 2},
    {"normalize_targets": True},
)


def train_model(parameters, rounds):
    return PolyleafRegressor(n_estimators=rounds, n_jobs=1, **parameters).fit(DATA, Y).model_


@pytest.mark.parametrize("parameters", KINDS)
def test_blend_has_the_weighted_mean_of_raw_scores(parameters):
    unit = {k: v for k, v in parameters.items() if k == "normalize_targets"}
    models, weights = [train_model(unit, 7), train_model(parameters, 5)], [0.25, 0.75]
    blend = average_models(models, weights, {"why": "a test"})
    expected = 0.25 * models[0].predict_raw(X) + 0.75 * models[1].predict_raw(X)
    # Leaf values are rounded to float32 once more.
    np.testing.assert_allclose(
        blend.predict_raw(X), expected, rtol=1e-5, atol=1e-5 * np.abs(Y).max()
    )
    assert blend.n_rounds == 12 and blend.metadata == {"why": "a test"}
    assert blend.n_trees == models[0].n_trees + models[1].n_trees
    again = Model.from_bytes(blend.to_bytes())
    np.testing.assert_array_equal(again.predict_raw(X), blend.predict_raw(X))


@pytest.mark.parametrize("parameters", KINDS[:-1])
@pytest.mark.parametrize("first", [True, False])
def test_target_scales_are_converted_to_the_first(parameters, first):
    own = {"normalize_targets": first}
    models = [train_model(own, 7), train_model(parameters | {"normalize_targets": not first}, 5)]
    blend = average_models(models, [0.25, 0.75], {})
    assert (blend.target_scale is not None) == first
    expected = 0.25 * models[0].predict_raw(X) + 0.75 * models[1].predict_raw(X)
    np.testing.assert_allclose(
        blend.predict_raw(X), expected, rtol=1e-5, atol=1e-5 * np.abs(Y).max()
    )


def test_power_of_two_scales_are_exact():
    model = train_model({}, 4)
    blend = average_models([model, model], [0.5, 0.5], {})
    first = blend.predict_raw(X, 0, 4) - blend.base_score
    np.testing.assert_allclose(2 * first, model.predict_raw(X) - model.base_score, rtol=1e-12)


def test_quantile_shifts_are_averaged():
    parameters = {
        "objective": "quantile",
        "quantile_alpha": [0.1, 0.9],
        "n_jobs": 1,
        "n_estimators": 6,
    }
    models = [
        PolyleafRegressor(**parameters, max_leaves=n).fit(DATA, Y[:, 0]).model_ for n in (4, 16)
    ]
    blend = average_models(models, [0.5, 0.5], {})
    expected = (models[0].predict_raw(X) + models[1].predict_raw(X)) / 2
    np.testing.assert_allclose(blend.predict_raw(X), expected, rtol=1e-5, atol=1e-3)


def test_models_with_different_frames_raise():
    X_c, y = make_classification(100, 6, random_state=0)
    of_classes = PolyleafClassifier(n_estimators=3, n_jobs=1).fit(X_c, y).model_
    other_bins = PolyleafRegressor(n_estimators=3, n_jobs=1).fit(X[:90], Y[:90]).model_
    for other in (of_classes, other_bins):
        with pytest.raises(ValueError, match="models"):
            average_models([train_model({}, 3), other], [0.5, 0.5], {})
