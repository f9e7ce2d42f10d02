"""scikit-learn's functions and scorer names as metrics, and `score` with missing targets."""

import functools
import warnings

import numpy as np
import pytest
import sklearn
import sklearn.metrics as sk
from sklearn.metrics import accuracy_score, d2_pinball_score, r2_score
from sklearn.model_selection import GridSearchCV, cross_val_score, cross_validate

from polyleaf import PolyleafClassifier, PolyleafRegressor, RowData
from polyleaf.metrics import get_metric
from polyleaf.metrics._sklearn import (
    SCORER_ALIASES,
    known_subset_accuracy,
    mean_d2_pinball,
    mean_r2,
)
from polyleaf.objectives import get_objective

RNG = np.random.default_rng(0)
X = RNG.standard_normal((90, 3))
Y = np.stack([X[:, 0] + X[:, 1] ** 2, np.sign(X[:, 2]) + X[:, 0]], axis=1)
MISSING = np.where(RNG.random(Y.shape) < 0.2, np.nan, Y)
LABELS = (Y > 0.5).astype(float)
W = RNG.integers(1, 5, Y.shape).astype(float)
SMALL = {"n_estimators": 4, "n_jobs": 1}


def regressor(**changes):
    return PolyleafRegressor(**SMALL | {"missing_targets": "ignore"} | changes)


def test_missing_targets_are_ignored():
    model = regressor().fit(X, MISSING)
    known = ~np.isnan(MISSING)
    by_output = [r2_score(Y[k, j], model.predict(X)[k, j]) for j, k in enumerate(known.T)]
    assert model.score(X, MISSING) == pytest.approx(np.mean(by_output), abs=1e-12)
    assert model.score(X, Y) == r2_score(Y, model.predict(X))
    with pytest.raises(ValueError, match=r"contains NaN.*missing_targets"):
        PolyleafRegressor(**SMALL).fit(X, Y).score(X, MISSING)


def test_per_output_weights():
    model = regressor().fit(X, Y, sample_weight=W)
    rows = [np.repeat(np.arange(len(X)), w.astype(int)) for w in W.T]
    repeated = [r2_score(Y[rows[j], j], model.predict(X)[rows[j], j]) for j in range(2)]
    assert model.score(X, Y, sample_weight=W) == pytest.approx(np.mean(repeated), abs=1e-12)
    flat = model.score(X, Y, sample_weight=W[:, 0])
    assert flat == pytest.approx(r2_score(Y, model.predict(X), sample_weight=W[:, 0]), abs=1e-12)


@pytest.mark.skipif(
    sklearn.__version__ < "1.7", reason="scikit-learn 1.6 interpolates the quantile of the baseline"
)
def test_quantiles_with_missing_targets():
    levels = [0.25, 0.75]
    model = regressor(objective="quantile", quantile_alpha=levels).fit(X, MISSING)
    by_both = [
        d2_pinball_score(Y[k, j], model.predict(X)[k, 2 * j + i], alpha=level)
        for i, level in enumerate(levels)
        for j, k in enumerate((~np.isnan(MISSING)).T)
    ]
    assert model.score(X, MISSING) == pytest.approx(np.mean(by_both), abs=1e-12)
    assert mean_d2_pinball(RowData(Y, W), np.repeat(Y, 2, axis=1), levels) == 1.0


def test_missing_labels_are_ignored():
    unknown = np.where(np.isnan(MISSING), np.nan, LABELS)
    model = PolyleafClassifier(**SMALL, missing_targets="ignore").fit(X, unknown)
    predicted = model.predict(X)
    assert model.score(X, LABELS) == accuracy_score(LABELS, predicted)
    filled = np.where(np.isnan(unknown), predicted, unknown)
    rows = ~np.isnan(unknown).all(axis=1)
    assert model.score(X, unknown) == pytest.approx(accuracy_score(filled[rows], predicted[rows]))
    w = W[:, 0]
    weighted = accuracy_score(LABELS, predicted, sample_weight=w)
    assert model.score(X, LABELS, w) == pytest.approx(weighted)
    assert 0 < model.score(X, unknown, sample_weight=W) < 1


def test_row_weight_is_the_mean_of_its_known_labels():
    y, predicted = np.array([[1, 1], [0, 1], [0, 0]]), np.array([[1, 0], [0, 1], [1, 0]])
    weight = np.array([[3.0, 0.0], [1.0, 3.0], [5.0, 0.0]])
    assert known_subset_accuracy(RowData(y, weight), predicted) == 0.5
    assert np.isnan(known_subset_accuracy(RowData(y, np.zeros((3, 2))), predicted))


def test_outputs_with_fewer_than_two_values_are_ignored():
    weight = np.ones(Y.shape)
    weight[1:, 1] = 0
    assert mean_r2(RowData(Y, weight), Y + np.array([0.0, 9.0])) == 1.0
    assert np.isnan(mean_r2(RowData(Y, np.zeros(Y.shape)), Y))


def test_cross_validation_and_grid_search_with_missing_targets():
    scores = cross_val_score(regressor(), X, MISSING, cv=3, error_score="raise")
    assert np.isfinite(scores).all()
    search = GridSearchCV(regressor(), {"n_estimators": [1, 6]}, cv=3, error_score="raise")
    assert search.fit(X, MISSING).best_params_ == {"n_estimators": 6}


def test_per_output_weights_are_routed_to_fit_and_score():
    with sklearn.config_context(enable_metadata_routing=True):
        model = regressor().set_fit_request(sample_weight=True)
        model.set_score_request(sample_weight=True)
        options = {"params": {"sample_weight": W}, "error_score": "raise"}
        routed = cross_validate(model, X, MISSING, cv=3, return_estimator=True, **options)
    test = np.arange(30)
    expected = routed["estimator"][0].score(X[test], MISSING[test], W[test])
    assert routed["test_score"][0] == expected


def test_targets_of_wrong_shape_raise():
    import pandas as pd

    frame = pd.DataFrame(Y, columns=["a", "b"])
    model = regressor().fit(X, frame)
    with pytest.raises(ValueError, match=r"another order"):
        model.score(X, frame[["b", "a"]])
    with pytest.raises(ValueError, match=r"y has 80 rows, but X has 90"):
        model.score(X, Y[:80])


RNG2 = np.random.default_rng(0)
X2 = RNG2.normal(size=(400, 5))
CLASSES = (X2[:, 0] * 2 + RNG2.normal(size=400)).round().clip(-1, 1).astype(int)
TWO = (X2[:, 0] + RNG2.normal(size=400) > 0).astype(int)
STOPPING = {"n_estimators": 200, "early_stopping_rounds": 15, "validation_fraction": 0.4}
STOPPING["random_state"] = 0


@pytest.mark.parametrize(
    ("function", "greater"),
    [
        (sk.roc_auc_score, True),
        (sk.accuracy_score, True),
        (functools.partial(sk.f1_score, average="macro"), True),
        (sk.matthews_corrcoef, True),
        (sk.r2_score, True),
        (sk.average_precision_score, True),
        (sk.log_loss, False),
        (sk.brier_score_loss, False),
        (sk.zero_one_loss, False),
        (sk.mean_absolute_error, False),
        (sk.max_error, False),
        (lambda y, p: 0.0, False),
    ],
)
def test_direction_of_scikit_learn_functions(function, greater):
    assert get_metric(function).greater_is_better is greater


def my_score(y_true, y_pred):
    """A user's function of this name; its direction is unknown."""
    return float(np.mean(np.abs(y_true - y_pred)))


def test_user_function_named_score_raises():
    assert not get_metric(my_score).greater_is_better


def test_best_first_round_warns():
    def upside_down(y_true, y_pred):
        return -np.mean((y_true - y_pred) ** 2)

    settings = STOPPING | {"n_estimators": 50, "early_stopping_rounds": 4}
    message = r"'upside_down' was best at round 0.*smaller is better.*maximize="
    with pytest.warns(UserWarning, match=message):
        PolyleafRegressor(eval_metric=upside_down, **settings).fit(X2, X2[:, 0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        PolyleafRegressor(**settings).fit(X2, X2[:, 0])


@pytest.mark.parametrize(
    "metric", [sk.roc_auc_score, sk.accuracy_score, sk.balanced_accuracy_score]
)
def test_early_stopping_with_scikit_learn_functions(metric):
    fitted = PolyleafClassifier(eval_metric=metric, **STOPPING).fit(X2, TWO)
    values = fitted.evals_result_["validation"][metric.__name__]
    assert fitted.best_iteration_ == int(np.argmax(values)) and 0.5 < fitted.best_score_ <= 1


def test_scikit_learn_functions_receive_decisions():
    macro = functools.partial(sk.f1_score, average="macro")
    fitted = PolyleafClassifier(n_estimators=3).fit(X2, CLASSES, eval_set=[(X2, CLASSES)])
    watched = PolyleafClassifier(n_estimators=3, eval_metric=[macro, sk.cohen_kappa_score])
    watched.fit(X2, CLASSES, eval_set=[(X2, CLASSES)])
    values = watched.evals_result_["validation_0"]
    assert values["f1_score"][-1] == pytest.approx(macro(CLASSES, fitted.predict(X2)))
    kappa = sk.cohen_kappa_score(CLASSES, fitted.predict(X2))
    assert values["cohen_kappa_score"][-1] == pytest.approx(kappa)


@pytest.mark.parametrize(
    "name",
    [*SCORER_ALIASES, "accuracy", "balanced_accuracy", "f1_macro", "r2", "average_precision"],
)
def test_scorer_names(name):
    assert name in sk.get_scorer_names() or name == "neg_brier_score"
    greater = not name.startswith("neg_")
    assert get_metric(name).greater_is_better is greater


def test_log_loss_depends_on_the_objective():
    assert get_metric("neg_log_loss", get_objective("softmax")).name == "mlogloss"
    assert get_metric("log_loss", get_objective("logistic")).name == "logloss"
