"""`score` with unknown targets and weights of outputs, alone and through scikit-learn."""

import numpy as np
import pytest
import sklearn
from sklearn.metrics import accuracy_score, d2_pinball_score, r2_score
from sklearn.model_selection import GridSearchCV, cross_val_score, cross_validate

from polyleaf import PolyleafClassifier, PolyleafRegressor
from polyleaf.metrics.estimator_scores import known_subset_accuracy, mean_d2_pinball, mean_r2

RNG = np.random.default_rng(0)
X = RNG.standard_normal((90, 3))
Y = np.stack([X[:, 0] + X[:, 1] ** 2, np.sign(X[:, 2]) + X[:, 0]], axis=1)
UNKNOWN = np.where(RNG.random(Y.shape) < 0.2, np.nan, Y)
LABELS = (Y > 0.5).astype(float)
W = RNG.integers(1, 5, Y.shape).astype(float)
SMALL = {"n_estimators": 4, "n_jobs": 1}


def regressor(**changes):
    return PolyleafRegressor(**SMALL | {"missing_targets": "ignore"} | changes)


def test_unknown_targets_do_not_count():
    model = regressor().fit(X, UNKNOWN)
    known = ~np.isnan(UNKNOWN)
    by_output = [r2_score(Y[k, j], model.predict(X)[k, j]) for j, k in enumerate(known.T)]
    assert model.score(X, UNKNOWN) == pytest.approx(np.mean(by_output), abs=1e-12)
    assert model.score(X, Y) == r2_score(Y, model.predict(X))
    with pytest.raises(ValueError, match=r"contains NaN.*missing_targets"):
        PolyleafRegressor(**SMALL).fit(X, Y).score(X, UNKNOWN)


def test_weights_of_single_outputs_count():
    model = regressor().fit(X, Y, sample_weight=W)
    repeated = [
        r2_score(
            np.repeat(Y[:, j], W[:, j].astype(int)),
            np.repeat(model.predict(X)[:, j], W[:, j].astype(int)),
        )
        for j in range(2)
    ]
    assert model.score(X, Y, sample_weight=W) == pytest.approx(np.mean(repeated), abs=1e-12)
    flat = model.score(X, Y, sample_weight=W[:, 0])
    assert flat == pytest.approx(r2_score(Y, model.predict(X), sample_weight=W[:, 0]), abs=1e-12)


def test_quantiles_with_unknown_targets():
    levels = [0.25, 0.75]
    model = regressor(objective="quantile", quantile_alpha=levels).fit(X, UNKNOWN)
    by_both = [
        d2_pinball_score(Y[k, j], model.predict(X)[k, 2 * j + i], alpha=level)
        for i, level in enumerate(levels)
        for j, k in enumerate((~np.isnan(UNKNOWN)).T)
    ]
    assert model.score(X, UNKNOWN) == pytest.approx(np.mean(by_both), abs=1e-12)
    assert mean_d2_pinball(Y, np.repeat(Y, 2, axis=1), levels, W) == 1.0


def test_labels_that_are_not_known_do_not_count():
    unknown = np.where(np.isnan(UNKNOWN), np.nan, LABELS)
    model = PolyleafClassifier(**SMALL, missing_targets="ignore").fit(X, unknown)
    predicted = model.predict(X)
    assert model.score(X, LABELS) == accuracy_score(LABELS, predicted)
    filled = np.where(np.isnan(unknown), predicted, unknown)
    rows = ~np.isnan(unknown).all(axis=1)
    assert model.score(X, unknown) == pytest.approx(accuracy_score(filled[rows], predicted[rows]))
    w = W[:, 0]
    assert model.score(X, LABELS, w) == pytest.approx(
        accuracy_score(LABELS, predicted, sample_weight=w)
    )
    assert 0 < model.score(X, unknown, sample_weight=W) < 1


def test_a_row_weighs_what_its_known_labels_do_on_average():
    y, predicted = np.array([[1, 1], [0, 1], [0, 0]]), np.array([[1, 0], [0, 1], [1, 0]])
    assert (
        known_subset_accuracy(y, predicted, np.array([[3.0, 0.0], [1.0, 3.0], [5.0, 0.0]])) == 0.5
    )
    assert np.isnan(known_subset_accuracy(y, predicted, np.zeros((3, 2))))


def test_outputs_that_are_hardly_known_do_not_count():
    weight = np.ones(Y.shape)
    weight[1:, 1] = 0
    assert mean_r2(Y, Y + np.array([0.0, 9.0]), weight) == 1.0
    assert np.isnan(mean_r2(Y, Y, np.zeros(Y.shape)))


def test_cross_validation_and_grid_search_work_with_unknown_targets():
    scores = cross_val_score(regressor(), X, UNKNOWN, cv=3, error_score="raise")
    assert np.isfinite(scores).all()
    search = GridSearchCV(regressor(), {"n_estimators": [1, 6]}, cv=3, error_score="raise").fit(
        X, UNKNOWN
    )
    assert search.best_params_ == {"n_estimators": 6}


def test_routed_weights_of_outputs_reach_fit_and_score():
    with sklearn.config_context(enable_metadata_routing=True):
        model = (
            regressor().set_fit_request(sample_weight=True).set_score_request(sample_weight=True)
        )
        routed = cross_validate(
            model,
            X,
            UNKNOWN,
            cv=3,
            params={"sample_weight": W},
            error_score="raise",
            return_estimator=True,
        )
    test = np.arange(30)
    expected = routed["estimator"][0].score(X[test], UNKNOWN[test], W[test])
    assert routed["test_score"][0] == expected


def test_targets_of_other_rows_or_columns_are_refused():
    import pandas as pd

    frame = pd.DataFrame(Y, columns=["a", "b"])
    model = regressor().fit(X, frame)
    with pytest.raises(ValueError, match=r"another order"):
        model.score(X, frame[["b", "a"]])
    with pytest.raises(ValueError, match=r"X has 90 rows, y has 80"):
        model.score(X, Y[:80])
