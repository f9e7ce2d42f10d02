"""Metrics of issue 14, line 13: directions that are known, areas that cost little, agreement, levels."""

import functools
import warnings

import numpy as np
import pytest
import sklearn.metrics as sk

from polyleaf import PolyleafClassifier, PolyleafRegressor
from polyleaf.metrics import get_metric
from polyleaf.metrics.areas import average_precision_of, roc_auc_of
from polyleaf.metrics.of_sklearn import SCORERS
from polyleaf.objectives import get_objective

RNG = np.random.default_rng(0)
X = RNG.normal(size=(400, 5))
CLASSES = (X[:, 0] * 2 + RNG.normal(size=400)).round().clip(-1, 1).astype(int)
TWO = (X[:, 0] + RNG.normal(size=400) > 0).astype(int)


@pytest.mark.parametrize("share", [0.01, 0.2, 0.5, 0.9])
@pytest.mark.parametrize("decimals", [0, 1, 12])
@pytest.mark.parametrize("weighted", [False, True])
def test_line_13_areas_equal_scikit_learn(share, decimals, weighted):
    """With ties, few positives and many."""
    rng = np.random.default_rng(int(share * 100) + decimals)
    y = rng.random(500) < share
    y[:2] = [True, False]
    score = (rng.normal(size=500) + y).round(decimals)
    weight = rng.integers(1, 5, 500) / 2 if weighted else None
    assert roc_auc_of(y, score, weight) == pytest.approx(sk.roc_auc_score(y, score, sample_weight=weight))
    expected = sk.average_precision_score(y, score, sample_weight=weight)
    assert average_precision_of(y, score, weight) == pytest.approx(expected)
    for one_class in (np.zeros(5, bool), np.ones(5, bool)):
        assert np.isnan(roc_auc_of(one_class, score[:5])) and np.isnan(
            average_precision_of(one_class, score[:5])
        )


def test_line_13_agreement_of_labels_is_their_mean():
    Y, raw = RNG.random((200, 3)) < 0.3, RNG.normal(size=(200, 3))
    for name, theirs in (
        ("balanced_accuracy", sk.balanced_accuracy_score),
        ("mcc", sk.matthews_corrcoef),
        ("kappa", sk.cohen_kappa_score),
    ):
        each = [theirs(Y[:, k], raw[:, k] > 0) for k in range(3)]
        metric = get_metric(name)
        assert metric(Y.astype(np.float32), raw) == pytest.approx(np.mean(each))
        np.testing.assert_allclose(metric.per_output(Y.astype(np.float32), raw), each)
        assert metric.greater_is_better
    constant = np.ones((200, 1), np.float32)
    assert get_metric("mcc")(constant, constant) == 0.0


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
def test_line_13_the_direction_of_scikit_learns_functions_is_known(function, greater):
    assert get_metric(function).greater_is_better is greater


def my_score(y_true, y_pred):
    """Called like scikit-learn's, but nobody knows which way it points."""
    return float(np.mean(np.abs(y_true - y_pred)))


def test_line_13_a_users_score_is_still_an_error():
    assert not get_metric(my_score).greater_is_better


@pytest.mark.parametrize("metric", [sk.roc_auc_score, sk.accuracy_score, sk.balanced_accuracy_score])
def test_line_13_early_stopping_by_scikit_learns_functions(metric):
    settings = {
        "n_estimators": 200,
        "early_stopping_rounds": 15,
        "validation_fraction": 0.4,
        "random_state": 0,
    }
    fitted = PolyleafClassifier(eval_metric=metric, **settings).fit(X, TWO)
    values = fitted.evals_result_["validation"][metric.__name__]
    assert fitted.best_iteration_ == int(np.argmax(values)) and 0.5 < fitted.best_score_ <= 1


def test_line_13_decisions_of_classes_reach_scikit_learns_functions():
    macro = functools.partial(sk.f1_score, average="macro")
    fitted = PolyleafClassifier(n_estimators=3).fit(X, CLASSES, eval_set=[(X, CLASSES)])
    watched = PolyleafClassifier(n_estimators=3, eval_metric=[macro, sk.cohen_kappa_score])
    watched.fit(X, CLASSES, eval_set=[(X, CLASSES)])
    values = watched.evals_result_["validation_0"]
    assert values["f1_score"][-1] == pytest.approx(macro(CLASSES, fitted.predict(X)))
    assert values["cohen_kappa_score"][-1] == pytest.approx(sk.cohen_kappa_score(CLASSES, fitted.predict(X)))


@pytest.mark.parametrize(
    "name", [*SCORERS, "accuracy", "balanced_accuracy", "f1_macro", "r2", "average_precision"]
)
def test_line_13_names_of_scorers_are_known(name):
    assert name in sk.get_scorer_names() or name == "neg_brier_score"
    greater = not name.startswith("neg_")
    assert get_metric(name).greater_is_better is greater


def test_line_13_log_loss_is_that_of_the_objective():
    assert get_metric("neg_log_loss", get_objective("softmax")).name == "mlogloss"
    assert get_metric("log_loss", get_objective("logistic")).name == "logloss"


def test_line_13_pinball_by_level():
    levels = [0.1, 0.5, 0.9]
    objective = {"objective": "quantile", "quantile_alpha": levels, "calibrate_quantiles": False}
    names = ["pinball@0.1", "pinball@.9", "pinball@0.25"]
    y = X[:, :2] + RNG.normal(size=(400, 2))
    one = PolyleafRegressor(**objective, n_estimators=5, eval_metric=names[:2]).fit(X, y, eval_set=[(X, y)])
    found = one.evals_result_["validation_0"]
    predicted = one.predict(X)
    for name, level, column in ((names[0], 0.1, 0), (names[1], 0.9, 2)):
        expected = sk.mean_pinball_loss(y, predicted[:, column::3], alpha=level)
        assert found[name][-1] == pytest.approx(expected, rel=1e-5)
    assert get_metric(names[2])(y, y - 1) == pytest.approx(0.25)


def test_line_13_best_at_the_first_round_is_warned_of():
    def upside_down(y_true, y_pred):
        return -np.mean((y_true - y_pred) ** 2)

    settings = {"n_estimators": 50, "early_stopping_rounds": 4, "validation_fraction": 0.4, "random_state": 0}
    with pytest.warns(UserWarning, match=r"'upside_down' was best at round 0.*smaller is better.*maximize="):
        PolyleafRegressor(eval_metric=upside_down, **settings).fit(X, X[:, 0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        PolyleafRegressor(**settings).fit(X, X[:, 0])
