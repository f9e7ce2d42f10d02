"""`polyleaf.cv` against plain fits on the folds."""

import numpy as np
import pandas as pd
import pytest
from sklearn.model_selection import GroupKFold, KFold

import polyleaf
from polyleaf import PolyleafClassifier, PolyleafMultiTask, PolyleafRanker, PolyleafRegressor

RNG = np.random.default_rng(0)
X = RNG.standard_normal((240, 4))
Y = np.column_stack([X[:, 0] + 0.5 * RNG.standard_normal(240), X[:, 1] ** 2])
WEIGHT = RNG.random(240).astype(np.float32)
OPTIONS = {"max_leaves": 6, "learning_rate": 0.3}


@pytest.mark.parametrize("weight", [None, WEIGHT])
def test_curves_are_those_of_fits_on_the_folds(weight):
    folds = list(KFold(3, shuffle=True, random_state=1).split(X))
    model = PolyleafRegressor(n_estimators=12, eval_metric=["mae", "rmse"], **OPTIONS)
    result = polyleaf.cv(model, X, Y, weight, cv=folds)
    curves = {"mae": [], "rmse": []}
    for train, held in folds:
        parts = [None if weight is None else weight[rows] for rows in (train, held)]
        fitted = polyleaf.PolyleafRegressor(**model.get_params()).fit(
            X[train], Y[train], parts[0], X_val=X[held], y_val=Y[held], sample_weight_val=parts[1]
        )
        for name, values in fitted.evals_result_["validation"].items():
            curves[name].append(values)
    for name, values in curves.items():
        np.testing.assert_array_equal(result.curves[name], values)
        np.testing.assert_allclose(result.mean[name], np.mean(values, axis=0))
        np.testing.assert_allclose(result.std[name], np.std(values, axis=0))
    assert result.metric == "rmse" and not hasattr(model, "model_")
    assert result.best_iteration == np.argmin(result.mean["rmse"])
    assert result.best_score == result.mean["rmse"].min()
    table = result.to_pandas()
    assert list(table) == ["mae_mean", "mae_std", "rmse_mean", "rmse_std"] and len(table) == 12
    assert f"{result.n_estimators} rounds, 3 folds" in repr(result)


def test_early_stopping_is_by_the_mean_over_folds():
    model = PolyleafRegressor(n_estimators=400, early_stopping_rounds=6, **OPTIONS)
    result = polyleaf.cv(model, X, Y[:, 0])
    n_rounds = result.curves["rmse"].shape[1]
    assert n_rounds == result.best_iteration + 7 < 400
    whole = polyleaf.cv(
        model.set_params(n_estimators=n_rounds, early_stopping_rounds=None), X, Y[:, 0]
    )
    np.testing.assert_array_equal(whole.curves["rmse"], result.curves["rmse"])
    # The folds alone would have stopped elsewhere.
    assert {np.argmin(curve) for curve in result.curves["rmse"]} != {result.best_iteration}
    assert {e.best_iteration_ for e in whole.estimators} == {None}
    assert {e.model_.best_iteration for e in result.estimators} == {result.best_iteration}


def test_rounds_are_found_without_a_number_of_rounds():
    result = polyleaf.cv(PolyleafRegressor(max_leaves=6, learning_rate=0.5), X, Y[:, 0], cv=3)
    assert result.curves["rmse"].shape[1] == result.best_iteration + 21


def test_patience_has_the_default_learning_rate_of_the_objective():
    counts = np.random.default_rng(1).poisson(np.exp(0.5 * X[:, 0]))
    result = polyleaf.cv(PolyleafRegressor("poisson", max_leaves=4), X, counts, cv=3)
    assert result.curves["poisson_deviance"].shape[1] == result.best_iteration + 1 + 10 / 0.05


def test_a_fold_that_ends_first_keeps_its_last_value():
    folds = [(np.arange(100, 240), np.arange(100)), (np.arange(20), np.arange(20, 40))]
    y = np.where(np.arange(240) < 20, 0.0, Y[:, 0])  # constant in the second fold
    result = polyleaf.cv(PolyleafRegressor(n_estimators=30, **OPTIONS), X, y, cv=folds)
    assert result.estimators[1].n_iter_ < 30 == result.estimators[0].n_iter_
    assert len(set(result.curves["rmse"][1])) == 1


def test_groups_times_and_queries_are_kept():
    groups = np.arange(240) // 12
    model = PolyleafRegressor(n_estimators=3)
    for options in ({"groups": groups}, {"groups": groups, "cv": GroupKFold(4)}):
        result = polyleaf.cv(model, X, Y, **options)
        for held in result.validation_rows:
            rest = np.setdiff1d(np.arange(240), held)
            assert not set(groups[held]) & set(groups[rest])
    result = polyleaf.cv(model, X, Y, time=np.arange(240), cv=3)
    assert [held.min() > 100 for held in result.validation_rows] == [True] * 3
    ranker = PolyleafRanker(n_estimators=3)
    result = polyleaf.cv(ranker, X, (Y[:, 0] > 0).astype(int), qid=groups, cv=4)
    assert all(len(held) % 12 == 0 for held in result.validation_rows)


def test_classes_labels_and_tasks():
    classes = np.digitize(Y[:, 0], [-0.5, 0.5])
    result = polyleaf.cv(PolyleafClassifier(n_estimators=4), pd.DataFrame(X), classes, cv=4)
    assert result.metric == "mlogloss" and len(result.estimators) == 4
    for held in result.validation_rows:
        counts = np.bincount(classes[held]) / len(held)
        np.testing.assert_allclose(counts, np.bincount(classes) / 240, atol=0.03)
    labels = (Y > 0.3).astype(int)
    assert polyleaf.cv(PolyleafClassifier(n_estimators=4), X, labels).metric == "logloss"
    tasks = pd.DataFrame({"number": Y[:, 0], "class": np.where(classes > 1, "a", "b")})
    assert polyleaf.cv(PolyleafMultiTask(n_estimators=4), X, tasks).metric == "d2"


def test_an_error_in_a_fold_is_raised():
    def fail(y, prediction):
        raise RuntimeError("no metric")

    with pytest.raises(RuntimeError, match="no metric"):
        polyleaf.cv(PolyleafRegressor(n_estimators=5, eval_metric=fail), X, Y)
    with pytest.raises(ValueError, match="cv must be a number of folds"):
        polyleaf.cv(PolyleafRegressor(), X, Y, cv="five")
