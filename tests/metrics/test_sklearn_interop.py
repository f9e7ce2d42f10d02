"""scikit-learn's functions and names of scorers as metrics: which way they point, what they are handed."""

import functools
import warnings

import numpy as np
import pytest
import sklearn.metrics as sk

from polyleaf import PolyleafClassifier, PolyleafRegressor
from polyleaf.metrics import get_metric
from polyleaf.metrics.sklearn_interop import SCORERS
from polyleaf.objectives import get_objective

RNG = np.random.default_rng(0)
X = RNG.normal(size=(400, 5))
CLASSES = (X[:, 0] * 2 + RNG.normal(size=400)).round().clip(-1, 1).astype(int)
TWO = (X[:, 0] + RNG.normal(size=400) > 0).astype(int)


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
def test_the_direction_of_scikit_learns_functions_is_known(function, greater):
    assert get_metric(function).greater_is_better is greater


def my_score(y_true, y_pred):
    """Called like scikit-learn's, but nobody knows which way it points."""
    return float(np.mean(np.abs(y_true - y_pred)))


def test_a_users_score_is_still_an_error():
    assert not get_metric(my_score).greater_is_better


def test_best_at_the_first_round_is_warned_of():
    def upside_down(y_true, y_pred):
        return -np.mean((y_true - y_pred) ** 2)

    settings = {
        "n_estimators": 50,
        "early_stopping_rounds": 4,
        "validation_fraction": 0.4,
        "random_state": 0,
    }
    with pytest.warns(
        UserWarning, match=r"'upside_down' was best at round 0.*smaller is better.*maximize="
    ):
        PolyleafRegressor(eval_metric=upside_down, **settings).fit(X, X[:, 0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        PolyleafRegressor(**settings).fit(X, X[:, 0])


@pytest.mark.parametrize(
    "metric", [sk.roc_auc_score, sk.accuracy_score, sk.balanced_accuracy_score]
)
def test_early_stopping_by_scikit_learns_functions(metric):
    settings = {
        "n_estimators": 200,
        "early_stopping_rounds": 15,
        "validation_fraction": 0.4,
        "random_state": 0,
    }
    fitted = PolyleafClassifier(eval_metric=metric, **settings).fit(X, TWO)
    values = fitted.evals_result_["validation"][metric.__name__]
    assert fitted.best_iteration_ == int(np.argmax(values)) and 0.5 < fitted.best_score_ <= 1


def test_decisions_of_classes_reach_scikit_learns_functions():
    macro = functools.partial(sk.f1_score, average="macro")
    fitted = PolyleafClassifier(n_estimators=3).fit(X, CLASSES, eval_set=[(X, CLASSES)])
    watched = PolyleafClassifier(n_estimators=3, eval_metric=[macro, sk.cohen_kappa_score])
    watched.fit(X, CLASSES, eval_set=[(X, CLASSES)])
    values = watched.evals_result_["validation_0"]
    assert values["f1_score"][-1] == pytest.approx(macro(CLASSES, fitted.predict(X)))
    assert values["cohen_kappa_score"][-1] == pytest.approx(
        sk.cohen_kappa_score(CLASSES, fitted.predict(X))
    )


@pytest.mark.parametrize(
    "name", [*SCORERS, "accuracy", "balanced_accuracy", "f1_macro", "r2", "average_precision"]
)
def test_names_of_scorers_are_known(name):
    assert name in sk.get_scorer_names() or name == "neg_brier_score"
    greater = not name.startswith("neg_")
    assert get_metric(name).greater_is_better is greater


def test_log_loss_is_that_of_the_objective():
    assert get_metric("neg_log_loss", get_objective("softmax")).name == "mlogloss"
    assert get_metric("log_loss", get_objective("logistic")).name == "logloss"
