"""Models made of others: blends, slices and concatenations of rounds."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import make_classification, make_regression
from sklearn.exceptions import NotFittedError

from polyleaf import (
    Dataset,
    Model,
    PolyleafClassifier,
    PolyleafMultiTask,
    PolyleafRegressor,
    blend,
    concatenate,
    load_model,
)
from polyleaf.callbacks import LearningRateScheduler
from polyleaf.export import to_c
from polyleaf.model.metadata import get_learning_rates

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
    joined = blend(models, weights)
    expected = 0.25 * models[0].predict_raw(X) + 0.75 * models[1].predict_raw(X)
    # Leaf values are rounded to float32 once more.
    np.testing.assert_allclose(
        joined.predict_raw(X), expected, rtol=1e-5, atol=1e-5 * np.abs(Y).max()
    )
    assert (
        joined.n_rounds == 12 and [each["weight"] for each in joined.metadata["blend"]] == weights
    )
    assert joined.n_trees == models[0].n_trees + models[1].n_trees
    again = Model.from_bytes(joined.to_bytes())
    np.testing.assert_array_equal(again.predict_raw(X), joined.predict_raw(X))


@pytest.mark.parametrize("parameters", KINDS[:-1])
@pytest.mark.parametrize("first", [True, False])
def test_target_scales_are_converted_to_the_first(parameters, first):
    own = {"normalize_targets": first}
    models = [train_model(own, 7), train_model(parameters | {"normalize_targets": not first}, 5)]
    joined = blend(models, [0.25, 0.75])
    assert (joined.target_scale is not None) == first
    expected = 0.25 * models[0].predict_raw(X) + 0.75 * models[1].predict_raw(X)
    np.testing.assert_allclose(
        joined.predict_raw(X), expected, rtol=1e-5, atol=1e-5 * np.abs(Y).max()
    )


def test_power_of_two_scales_are_exact():
    model = train_model({}, 4)
    joined = blend([model, model], [0.5, 0.5])
    first = joined.predict_raw(X, 0, 4) - joined.base_score
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
    joined = blend(models, [0.5, 0.5])
    expected = (models[0].predict_raw(X) + models[1].predict_raw(X)) / 2
    np.testing.assert_allclose(joined.predict_raw(X), expected, rtol=1e-5, atol=1e-3)


def test_models_with_other_bins_or_objectives_raise():
    X_c, y = make_classification(100, 6, random_state=0)
    of_classes = PolyleafClassifier(n_estimators=3, n_jobs=1).fit(X_c, y).model_
    other_bins = PolyleafRegressor(n_estimators=3, n_jobs=1).fit(X[:90], Y[:90]).model_
    for other in (of_classes, other_bins):
        with pytest.raises(ValueError, match="models"):
            blend([train_model({}, 3), other], [0.5, 0.5])


# --- rounds ---


@pytest.mark.parametrize("parameters", KINDS)
def test_slices_have_the_raw_scores_of_their_rounds(parameters):
    model = train_model(parameters, 7)
    for first, last in ((0, 3), (2, 5), (4, 7), (3, 3)):
        part = model[first:last]
        np.testing.assert_array_equal(part.predict_raw(X), model.predict_raw(X, first, last))
        assert part.n_rounds == last - first
        again = Model.from_bytes(part.to_bytes())
        np.testing.assert_array_equal(again.predict_raw(X), part.predict_raw(X))
    assert model[-2:].equals(model[5:7]) and model[:].equals(model) and model[:9].equals(model)
    assert model[::2].n_rounds == 4
    truncated = model.copy()
    truncated.truncate(3)
    assert truncated.equals(model[:3])


@pytest.mark.parametrize("parameters", KINDS)
def test_slices_concatenate_to_the_model(parameters):
    model = train_model(parameters, 7)
    assert concatenate([model[:2], model[2:6], model[6:]]).equals(model)
    some = concatenate([model[:2], model[5:]])
    expected = model.predict_raw(X, 0, 2) + model.predict_raw(X, 5, 7) - model[:0].predict_raw(X)
    np.testing.assert_allclose(some.predict_raw(X), expected, rtol=1e-5, atol=1e-4)


def test_learning_rates_and_best_round_follow_the_rounds():
    rates = LearningRateScheduler(lambda round: 0.5 / (round + 1))
    estimator = PolyleafRegressor(n_estimators=6, callbacks=[rates], early_stopping_rounds=6)
    model = estimator.fit(DATA, Y, eval_set=[(X, Y)]).model_
    assert get_learning_rates(model[2:4]) == [0.5 / 3, 0.5 / 4]
    assert model.best_iteration == 5 and model[3:].best_iteration == 2
    assert model[:3].best_iteration is None
    joined = concatenate([model[4:], model[:2]])
    assert get_learning_rates(joined) == [0.5 / 5, 0.5 / 6, 0.5, 0.5 / 2]


def test_joined_models_are_explained_and_exported(tmp_path):
    models = [train_model({"leaf": "linear"}, 3), train_model({}, 4)]
    for model in (blend(models, [0.5, 2.0]), models[1][1:3], concatenate([models[1], models[1]])):
        estimator = load_model(model.to_bytes())
        total = estimator.shap_values(X[:20]).sum(axis=1) + estimator.shap_base_values()
        np.testing.assert_allclose(total, model.predict_raw(X[:20]), rtol=1e-4, atol=1e-3)
    whole, parts = tmp_path / "whole.h", tmp_path / "parts.h"
    to_c(models[1], whole)
    to_c(concatenate([models[1][:1], models[1][1:]]), parts)
    assert parts.read_text().replace("parts", "whole") == whole.read_text()


# --- estimators ---


def test_blends_of_estimators_are_estimators(tmp_path):
    y = np.where(Y[:, 0] > 0, "high", "low")
    fitted = [
        PolyleafClassifier(n_estimators=n, threshold=t, n_jobs=1).fit(DATA, y)
        for n, t in ((3, 0.25), (5, 0.75))
    ]
    joined = blend(fitted)
    assert isinstance(joined, PolyleafClassifier) and joined.n_iter_ == 8
    expected = np.mean([model.decision_function(X) for model in fitted], axis=0)
    np.testing.assert_allclose(joined.decision_function(X), expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(joined.predict(X), np.where(expected > 0, "low", "high"))
    joined.save_model(tmp_path / "blend.polyleaf")
    loaded = PolyleafClassifier.load_model(tmp_path / "blend.polyleaf")
    np.testing.assert_array_equal(loaded.predict_proba(X), joined.predict_proba(X))
    assert joined.shap_values(X[:5]).shape[:2] == (5, 6)


def test_estimators_take_part_with_their_best_rounds():
    noise = np.random.default_rng(0).normal(size=Y.shape) * 100
    model = PolyleafRegressor(n_estimators=60, early_stopping_rounds=5, learning_rate=0.5)
    model.fit(DATA, Y + noise, eval_set=[(X, Y)])
    assert model.best_iteration_ + 1 < model.n_iter_
    np.testing.assert_allclose(blend([model]).predict(X), model.predict(X), rtol=1e-12)
    np.testing.assert_array_equal(concatenate([model]).predict(X), model.predict(X))


# --- bad input ---


def test_rounds_are_given_as_slices():
    model = train_model({}, 3)
    for rounds in (1, "all", None, [0, 1]):
        with pytest.raises(TypeError, match=r"slices of rounds, such as model\[10:20\]"):
            model[rounds]
    with pytest.raises(ValueError, match="step of a slice of rounds must be positive"):
        model[::-1]
    with pytest.raises(TypeError, match="n_rounds must be an integer"):
        model.truncate(1.5)
    with pytest.raises(ValueError, match="out of range: the model has 3 rounds"):
        model.truncate(4)


@pytest.mark.parametrize("weights", [[1.0], [1.0, 0.0], [1.0, -1.0], [1.0, np.nan], "ab", 1.0])
def test_weights_are_positive_numbers(weights):
    models = [train_model({}, 2), train_model({}, 3)]
    with pytest.raises(ValueError, match="weights must be 2 positive numbers, one for each"):
        blend(models, weights)


def test_models_that_do_not_match_raise():
    model = train_model({}, 2)
    y = np.where(Y[:, 0] > 0, "high", "low")
    classes = [PolyleafClassifier(n_estimators=2).fit(DATA, labels) for labels in (y, y == "low")]
    with pytest.raises(ValueError, match="models is empty"):
        blend([])
    for alone in (model, PolyleafRegressor()):
        with pytest.raises(TypeError, match="models must be a list of models"):
            blend(alone)
    with pytest.raises(TypeError, match=r"models\[1\] is int"):
        blend([PolyleafRegressor(n_estimators=2).fit(X, Y), 3])
    with pytest.raises(NotFittedError):
        blend([PolyleafRegressor()])
    with pytest.raises(ValueError, match=r"models\[1\] has other outputs"):
        blend(classes)
    tasks = [
        PolyleafMultiTask({"a": "logistic"}, n_estimators=2).fit(DATA, {"a": labels})
        for labels in (y, np.where(Y[:, 0] > 0, "many", "few"))
    ]
    with pytest.raises(ValueError, match=r"models\[1\] has other outputs"):
        blend(tasks)
    assert isinstance(blend([tasks[0], tasks[0]]), PolyleafMultiTask)
    with pytest.raises(ValueError, match=r"models\[1\] is a PolyleafRegressor"):
        blend([classes[0], PolyleafRegressor(n_estimators=2).fit(DATA, Y[:, 0])])
    with pytest.raises(ValueError, match=r"models\[1\] has other objective parameters"):
        blend([model, train_model({"objective": "absolute_error"}, 2)])
    with pytest.raises(ValueError, match=r"models\[1\] has another base score"):
        concatenate([model, train_model({"base_score": 1.0}, 2)])


def test_models_with_offsets_have_weights_that_sum_to_one():
    offset = np.ones(len(X))
    models = [
        PolyleafRegressor(n_estimators=n, base_score=0.0).fit(DATA, Y, offset=offset)
        for n in (2, 3)
    ]
    expected = np.mean([model.predict(X, offset=offset) for model in models], axis=0)
    np.testing.assert_allclose(blend(models).predict(X, offset=offset), expected, rtol=1e-4)
    with pytest.raises(ValueError, match="weights must sum to 1"):
        blend(models, [1, 1])
