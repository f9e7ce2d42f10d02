"""The estimators: shapes, labels, evaluation data, early stopping, continued training, files."""

import importlib
import pickle
import subprocess
import sys

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse as sp
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.exceptions import NotFittedError
from sklearn.metrics import log_loss, mean_poisson_deviance, mean_squared_error
from sklearn.model_selection import GridSearchCV, cross_val_predict, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import get_tags
from support.public_names import EXTRA, MODULES

from polyleaf import Dataset, PolyleafClassifier, PolyleafMultiTask, PolyleafRegressor, load_model
from polyleaf.callbacks import EarlyStopping, LearningRateScheduler, ProgressBar
from polyleaf.objectives import Quantile, StudentTLikelihood

SMALL = dict(n_estimators=15, min_child_samples=5, random_state=0)


@pytest.fixture(scope="module")
def X():
    X = np.random.default_rng(0).standard_normal((300, 4))
    X[::17, 2] = np.nan
    return X


@pytest.fixture(scope="module")
def Y(X):
    Z = np.nan_to_num(X)
    noise = 0.1 * np.random.default_rng(1).standard_normal((300, 3))
    return np.stack([Z[:, 0] * Z[:, 1], np.sin(3 * Z[:, 2]), np.abs(Z[:, 3])], axis=1) + noise


def regressor(**changes):
    return PolyleafRegressor(**{**SMALL, **changes})


def classifier(**changes):
    return PolyleafClassifier(**{**SMALL, **changes})


# --- shapes and labels ----------------------------------------------------------------------------


def test_1d_target_gives_1d_predictions(X, Y):
    model = regressor().fit(X, Y[:, 0])
    assert model.predict(X).shape == (300,) and model.predict(X).dtype == np.float64
    assert model.n_outputs_ == 1 and model.n_features_in_ == 4 and model.n_iter_ == 15
    assert model.score(X, Y[:, 0]) > 0.5


def test_2d_target_gives_2d_predictions(X, Y):
    model = regressor().fit(X, Y)
    assert model.predict(X).shape == (300, 3) and model.n_outputs_ == 3
    assert model.predict(X[:1]).shape == (1, 3)


def test_small_differences_of_large_targets_are_learned(X, Y):
    offset = 1e9
    near, far = regressor().fit(X, Y), regressor().fit(X, Y + offset)
    np.testing.assert_allclose(far.predict(X) - offset, near.predict(X), atol=1e-5)


@pytest.mark.parametrize("labels", [["no", "yes"], [False, True], [-1, 1], [2.0, 5.0]])
def test_binary(X, Y, labels):
    y = np.asarray(labels)[(Y[:, 0] > 0).astype(int)]
    model = classifier().fit(X, y)
    assert model.classes_.tolist() == labels
    probabilities = model.predict_proba(X)
    assert probabilities.shape == (300, 2)
    np.testing.assert_allclose(probabilities.sum(1), 1)
    assert model.decision_function(X).shape == (300,)
    np.testing.assert_array_equal(model.predict(X), model.classes_[probabilities.argmax(1)])
    assert model.predict(X).dtype == y.dtype
    assert model.score(X, y) > 0.9


@pytest.mark.parametrize("objective", ["auto", "softmax", "logistic", "squared_hinge"])
def test_multiclass(X, Y, objective):
    y = np.array(["a", "b", "c"])[Y.argmax(1)]
    model = classifier(objective=objective).fit(X, y)
    assert model.decision_function(X).shape == (300, 3)
    expected = model.classes_[model.decision_function(X).argmax(1)]
    np.testing.assert_array_equal(model.predict(X), expected)
    assert model.score(X, y) > 0.9
    if objective != "squared_hinge":
        probabilities = model.predict_proba(X)
        assert probabilities.shape == (300, 3)
        np.testing.assert_allclose(probabilities.sum(1), 1)


@pytest.mark.parametrize(
    "make", [np.asarray, sp.csr_matrix, lambda y: pd.DataFrame(y, columns=list("abc"))]
)
def test_multilabel(X, Y, make):
    y = (Y > 0).astype(int)
    model = classifier().fit(X, make(y))
    for method in (model.predict, model.predict_proba, model.decision_function):
        assert method(X).shape == (300, 3)
    np.testing.assert_array_equal(model.predict(X), model.predict_proba(X) > 0.5)
    assert model.score(X, y) > 0.7
    assert model.n_outputs_ == 3


def test_estimator_tags():
    for estimator in (PolyleafRegressor(), PolyleafClassifier()):
        tags = get_tags(estimator)
        assert tags.input_tags.allow_nan and tags.input_tags.sparse and tags.input_tags.categorical
    assert is_regressor(PolyleafRegressor()) and is_classifier(PolyleafClassifier())
    assert get_tags(PolyleafRegressor()).target_tags.multi_output
    assert get_tags(PolyleafClassifier()).classifier_tags.multi_label


# --- objectives and targets -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "objective",
    "squared_error absolute_error mape quantile expectile huber log_cosh poisson gamma tweedie "
    "logistic".split(),
)
@pytest.mark.parametrize("strategy", ["multi_output_tree", "one_output_per_tree"])
def test_regression_objectives(X, Y, objective, strategy):
    positive = np.exp(np.clip(Y, -2, 2)) / np.exp(2.1)
    model = regressor(objective=objective, multi_strategy=strategy, n_estimators=40)
    assert model.fit(X, positive).score(X, positive) > 0.4


def test_several_quantiles(X, Y):
    levels = [0.1, 0.5, 0.9]
    parameters = {"objective": "quantile", "quantile_alpha": levels, "n_estimators": 60}
    one = regressor(**parameters).fit(X, Y[:, 0])
    predicted = one.predict(X)
    assert predicted.shape == (300, 3)
    assert np.all(np.diff(predicted, axis=1) >= 0)
    as_trained = regressor(**parameters, calibrate_quantiles=False).fit(X, Y[:, 0])
    np.testing.assert_allclose((Y[:, :1] <= as_trained.predict(X)).mean(0), levels, atol=0.08)
    assert 0.2 < one.score(X, Y[:, 0]) < 1
    two = regressor(**parameters).fit(X, Y[:, :2])
    assert two.predict(X).shape == (300, 6)
    assert 0.2 < two.score(X, Y[:, :2]) < 1
    single = regressor(objective="quantile", quantile_alpha=[0.5]).fit(X, Y[:, 0])
    assert single.predict(X).shape == (300,)


def test_parameters_are_passed_to_the_objective(X, Y):
    assert regressor(objective="huber", huber_delta=0.3).fit(X, Y).model_.objective.delta == 0.3
    tweedie = regressor(objective="tweedie", tweedie_variance_power=1.2).fit(X, np.abs(Y))
    assert tweedie.model_.objective.variance_power == 1.2
    heavy = regressor(objective="student_t", student_t_df=3).fit(X, Y)
    assert heavy.model_.objective.df == 3.0 and heavy.predict_dist(X).df == 3.0
    as_object = regressor(objective=StudentTLikelihood(df=3)).fit(X, Y)
    np.testing.assert_array_equal(heavy.predict_raw(X), as_object.predict_raw(X))
    with pytest.raises(ValueError, match=r"student_t_df.*range \(1\.0, 1000000\.0\)"):
        regressor(objective="student_t", student_t_df=1.0).fit(X, Y)
    softmax = classifier(softmax_hessian="residual").fit(X, Y.argmax(1))
    assert softmax.model_.objective.softmax_hessian == "residual"
    low, high = (
        classifier(scale_pos_weight=w).fit(X, Y[:, 0] > 0).predict_proba(X)[:, 1].mean()
        for w in (0.2, 5)
    )
    assert low < high
    assert classifier(scale_pos_weight=[1, 2, 3]).fit(X, (Y > 0).astype(int)).n_outputs_ == 3


def squared(y_true, y_pred):
    return y_pred - y_true, None


def cross_entropy(y_true, y_pred):
    p = np.exp(y_pred - y_pred.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    return p - np.eye(p.shape[1])[y_true], 1.5 * p * (1 - p)


def test_custom_objectives(X, Y):
    ours = regressor(base_score=0.0).fit(X, Y)
    theirs = regressor(objective=squared).fit(X, Y)
    np.testing.assert_allclose(theirs.predict(X), ours.predict(X), rtol=1e-5, atol=1e-6)
    y = Y.argmax(1)
    model = classifier(objective=cross_entropy).fit(X, y, eval_set=[(X, y)])
    assert model.score(X, y) > 0.9 and not hasattr(model, "predict_proba")
    assert list(model.evals_result_["validation_0"]) == ["merror"]


def test_missing_targets(X, Y):
    holes = Y.copy()
    holes[np.random.default_rng(2).random(Y.shape) < 0.3] = np.nan
    parameters = {"missing_targets": "ignore", "n_estimators": 60}
    model = regressor(**parameters).fit(X, holes, eval_set=[(X, holes)])
    assert model.score(X, Y) > 0.7
    there = ~np.isnan(holes)
    rmse = np.sqrt(np.mean((model.predict(X) - Y)[there] ** 2))
    assert model.evals_result_["validation_0"]["rmse"][-1] == pytest.approx(rmse, rel=1e-6)
    labels = np.where(np.isnan(holes), np.nan, holes > 0)
    assert classifier(**parameters).fit(X, labels).score(X, (Y > 0).astype(int)) > 0.6


def test_rows_without_targets_are_ignored(X, Y):
    y = np.vstack([Y, np.full((50, 3), np.nan)])
    more = np.vstack([X, X[:50] + 9])
    ours = regressor(missing_targets="ignore").fit(Dataset(more, reference=Dataset(X)), y)
    plain = regressor(missing_targets="ignore").fit(X, Y, sample_weight=np.ones((300, 3)))
    np.testing.assert_allclose(ours.predict(X), plain.predict(X), rtol=1e-6, atol=1e-7)


def test_normalize_targets_gives_outputs_equal_influence(X, Y):
    scales = np.array([1.0, 1e6, 1e-6])
    model = regressor(normalize_targets=True, n_estimators=60)
    model.fit(X, Y * scales, eval_set=[(X, Y * scales)])
    fits = 1 - ((model.predict(X) / scales - Y) ** 2).mean(0) / Y.var(0)
    assert np.all(fits > 0.7)
    rmse = np.sqrt(mean_squared_error(Y * scales, model.predict(X)))
    assert model.evals_result_["validation_0"]["rmse"][-1] == pytest.approx(rmse, rel=1e-6)
    plain = regressor(n_estimators=60).fit(X, Y * scales)
    assert 1 - ((plain.predict(X) / scales - Y) ** 2).mean(0)[0] / Y.var(0)[0] < fits[0]


def compute_r2_per_target(model, X, Y):
    return 1 - ((model.predict(X) - Y) ** 2).mean(0) / Y.var(0)


def make_two_targets(ratio, n=3000):
    """Return equally hard targets of different features; the first is `ratio` times as large."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, 10)).astype(np.float32)
    each = [np.sin(2 * a) + b * c + 0.5 * d**2 for a, b, c, d in (X.T[:4], X.T[5:9])]
    Y = np.column_stack(each) + 0.3 * rng.standard_normal((n, 2))
    return X, Y * [ratio, 1]


@pytest.mark.full
@pytest.mark.parametrize("ratio", [1, 10, 1e3, 1e6])
def test_targets_on_different_scales(ratio):
    """The default is as good as normalised targets at any ratio."""
    X, Y = make_two_targets(ratio)
    train, test = slice(1500), slice(1500, None)

    def r2(**what):
        model = PolyleafRegressor(quality="fast", **what).fit(X[train], Y[train])
        return compute_r2_per_target(model, X[test], Y[test])

    by_default, as_they_are, equal = r2(), r2(normalize_targets=False), r2(normalize_targets=True)
    assert np.all(by_default > equal - 0.01)
    assert by_default.mean() > max(as_they_are.mean(), equal.mean()) - 0.01
    assert ratio < 100 or as_they_are[1] < by_default[1] - 0.1


@pytest.mark.parametrize(
    "what",
    [
        {"objective": "absolute_error"},
        {"objective": "quantile"},
        {"objective": "huber"},
        {"objective": lambda y, score: (score - y, np.ones_like(y))},
        {"multi_strategy": "one_output_per_tree"},
        {"normalize_targets": False},
    ],
)
def test_targets_are_not_scaled_where_scale_has_no_effect(what):
    X, Y = make_two_targets(1e3)
    assert regressor(**what).fit(X, Y).model_.target_scale is None


def make_large_easy_and_small_hard_target(n=3000):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, 10)).astype(np.float32)
    easy = 1e6 * ((X[:, 0] > 0) + rng.standard_normal(n))
    hard = np.sin(2 * X[:, 1]) * X[:, 2] + X[:, 3] * X[:, 4] + 0.1 * rng.standard_normal(n)
    return X, pd.DataFrame({"easy": easy, "hard": hard})


def test_early_stopping_is_not_dominated_by_the_largest_target():
    X, Y = make_large_easy_and_small_hard_target()
    arguments = {"n_estimators": 400, "early_stopping_rounds": 20, "validation_fraction": 0.2}
    model = PolyleafRegressor(**arguments).fit(X[:1500], Y[:1500])
    by_rmse = PolyleafRegressor(eval_metric="rmse", **arguments).fit(X[:1500], Y[:1500])
    r2, led = (compute_r2_per_target(m, X[1500:], Y[1500:].to_numpy()) for m in (model, by_rmse))
    assert by_rmse.best_iteration_ < 50 < model.best_iteration_
    assert r2[1] > led[1] + 0.2
    assert list(model.evals_result_["validation"]) == ["rmse", "relative_rmse"]
    assert model.best_score_ == min(model.evals_result_["validation"]["relative_rmse"])


def test_printed_metrics_are_in_units_of_the_targets(capsys):
    X, Y = make_large_easy_and_small_hard_target(300)
    model = regressor(n_estimators=3, verbose=2).fit(X, Y, eval_set=[(X, Y)], eval_names=["all"])
    errors = np.sqrt(((model.predict(X) - Y.to_numpy()) ** 2).mean(0))
    last = capsys.readouterr().out.splitlines()[-1]
    assert f"all-rmse:{np.sqrt((errors**2).mean()):.5f}" in last
    assert f"(easy:{errors[0]:.5f}, hard:{errors[1]:.5f})\tall-relative_rmse:" in last


def test_defaults_for_counts_with_interactions():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((4000, 10)).astype(np.float32)
    rate = np.exp(0.5 + 1.2 * X[:, 0] * X[:, 1] + 0.6 * (X[:, 2] > 0) * X[:, 3])
    y = rng.poisson(rate.clip(0, 90))

    def deviance(**what):
        model = PolyleafRegressor(objective="poisson", **{"n_estimators": 300, **what})
        return mean_poisson_deviance(y[2000:], model.fit(X[:2000], y[:2000]).predict(X[2000:]))

    by_default = deviance()
    assert deviance(n_estimators=None) < 0.95 * by_default  # 72 rounds
    assert by_default < 0.85 * deviance(learning_rate=0.1, colsample_bynode=0.5)
    assert by_default < 0.95 * deviance(learning_rate=0.1)
    assert by_default < 0.95 * deviance(colsample_bynode=0.5)


def test_continued_training_keeps_the_target_scale(tmp_path):
    X, Y = make_two_targets(1e4)
    whole = regressor(n_estimators=30).fit(X, Y)
    first = regressor(n_estimators=20).fit(X, Y)
    first.save_model(tmp_path / "start.polyleaf")
    later = regressor(n_estimators=10).fit(X, Y, init_model=tmp_path / "start.polyleaf")
    assert whole.model_.target_scale is not None
    np.testing.assert_array_equal(later.predict(X), whole.predict(X))


def test_base_score(X, Y):
    assert regressor(base_score=3.0).fit(X, Y).model_.base_score.tolist() == [3.0] * 3
    model = regressor(base_score=[1, 2, 3], normalize_targets=True).fit(X, Y)
    # One round moves a tenth of the way to the mean of y; the penalty shortens the
    # step by a few per cent.
    expected = 0.9 * np.array([1, 2, 3]) + 0.1 * Y.mean(0)
    first = model.predict(X, iteration_range=(0, 1))
    np.testing.assert_allclose(first.mean(0), expected, atol=0.01)


def test_class_weight_changes_decisions(X, Y):
    y = (Y[:, 0] > 0.7).astype(int)
    plain = classifier().fit(X, y).predict(X).mean()
    assert plain < classifier(class_weight={1: 50}).fit(X, y).predict(X).mean()
    assert plain < classifier(class_weight="balanced").fit(X, y).predict_proba(X)[:, 1].mean()


# --- tables and names -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "make",
    [
        lambda X, names: pd.DataFrame(X, columns=list(names)),
        lambda X, names: pl.DataFrame(X, schema=list(names)),
        lambda X, names: pa.table({name: X[:, i] for i, name in enumerate(names)}),
    ],
)
def test_data_frames_equal_arrays(X, Y, make):
    model = regressor().fit(make(X, "abcd"), Y)
    assert model.feature_names_in_.tolist() == list("abcd")
    np.testing.assert_array_equal(model.predict(make(X, "abcd")), regressor().fit(X, Y).predict(X))
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(make(X, "abdc"))


def test_all_containers_give_the_same_model(X, Y):
    expected = regressor().fit(X, Y).predict(X)
    dense = np.nan_to_num(X)
    for same in (X.tolist(), np.asfortranarray(X), X.astype(np.float32)):
        model = regressor().fit(same, Y)
        np.testing.assert_array_equal(model.predict(X.astype(np.float32)), expected)
    sparse = regressor().fit(sp.csr_array(dense), Y).predict(sp.csc_matrix(dense))
    np.testing.assert_array_equal(sparse, regressor().fit(dense, Y).predict(dense))


def test_categorical_columns():
    rng = np.random.default_rng(0)
    names = np.array(["red", "green", "blue", "grey", "black", "white"])
    codes = rng.integers(0, 6, 400)
    y = np.array([3.0, -1, 3, -1, 3, -1])[codes] + 0.01 * rng.standard_normal(400)
    table = pd.DataFrame({"colour": pd.Categorical(names[codes]), "x": rng.standard_normal(400)})
    tree = {"n_estimators": 1, "learning_rate": 1.0, "max_leaves": 2, "reg_lambda": 0.0}
    tree["colsample_bynode"] = 1.0
    model = PolyleafRegressor(**tree).fit(table, y)
    assert model.score(table, y) > 0.99  # one categorical split suffices
    unseen = pd.DataFrame({"colour": pd.Categorical(["pink"]), "x": [0.0]})
    assert np.isfinite(model.predict(unseen)).all()
    numbers = np.c_[codes, table["x"]]
    by_position = PolyleafRegressor(**tree, categorical_features=[0]).fit(numbers, y)
    assert by_position.score(numbers, y) > 0.99


def test_dataset_is_binned_once(X, Y):
    data = Dataset(X, Y, max_bins=63)
    expected = regressor(max_bins=63).fit(X, Y)
    np.testing.assert_array_equal(regressor().fit(data).predict(X), expected.predict(X))
    np.testing.assert_array_equal(regressor().fit(data, Y).predict(data), expected.predict(X))
    held_out = Dataset(X[:50], Y[:50], reference=data)
    model = regressor().fit(data, eval_set=[held_out, (X[:50], Y[:50])])
    assert model.evals_result_["validation_0"] == model.evals_result_["validation_1"]
    named = Dataset(pd.DataFrame(X, columns=list("abcd")))
    assert regressor().fit(named, Y).feature_names_in_.tolist() == list("abcd")


# --- evaluation, early stopping, callbacks --------------------------------------------------------


def test_evaluation_results_equal_metrics_of_predictions(X, Y):
    y = Y.argmax(1)
    train, held = (X[:200], y[:200]), {"X_val": X[200:], "y_val": y[200:]}
    model = classifier().fit(*train, eval_set=[train], **held)
    assert list(model.evals_result_) == ["validation_0", "validation"]
    losses = [log_loss(y[200:], p) for p in model.staged_predict_proba(X[200:])]
    np.testing.assert_allclose(model.evals_result_["validation"]["mlogloss"], losses, rtol=1e-5)


def test_several_metrics_and_custom_functions(X, Y):
    def worst(y_true, y_pred):
        return float(np.abs(y_true - y_pred).max())

    model = regressor(eval_metric=["mae", worst]).fit(X, Y, eval_set=[(X, Y)], eval_names=["train"])
    assert list(model.evals_result_["train"]) == ["mae", "worst"]
    expected = np.abs(model.predict(X) - Y).max()
    assert model.evals_result_["train"]["worst"][-1] == pytest.approx(expected)


def test_evaluation_weights(X, Y):
    weight = np.arange(300.0)
    model = regressor().fit(X, Y, eval_set=[(X, Y), (X, Y)], eval_sample_weight=[None, weight])
    expected = np.sqrt(mean_squared_error(Y, model.predict(X), sample_weight=weight))
    assert model.evals_result_["validation_1"]["rmse"][-1] == pytest.approx(expected)
    assert model.evals_result_["validation_0"] != model.evals_result_["validation_1"]


def test_early_stopping(X, Y):
    rng = np.random.default_rng(0)
    noisy = Y[:, 0] + 3 * rng.standard_normal(300)
    model = regressor(n_estimators=500, early_stopping_rounds=5)
    model.fit(X[:200], noisy[:200], eval_set=[(X[200:], noisy[200:])])
    history = model.evals_result_["validation_0"]["rmse"]
    assert model.best_iteration_ == int(np.argmin(history)) and model.best_score_ == min(history)
    assert model.n_iter_ == len(history) == model.best_iteration_ + 6 < 500
    best = (0, model.best_iteration_ + 1)
    np.testing.assert_array_equal(model.predict(X), model.predict(X, iteration_range=best))
    assert not np.array_equal(model.predict(X), model.predict(X, iteration_range=(0, 0)))
    assert len(list(model.staged_predict(X))) == model.best_iteration_ + 1


def test_early_stopping_on_a_maximized_metric(X, Y):
    y = Y[:, 0] > 0
    model = classifier(n_estimators=100, early_stopping_rounds=3, eval_metric=["logloss", "auc"])
    model.fit(X[:200], y[:200], X_val=X[200:], y_val=y[200:])
    history = model.evals_result_["validation"]["auc"]
    assert model.best_score_ == max(history)

    def hits(y_true, y_pred):
        return "hits", float(((y_pred > 0.5) == y_true).mean()), True

    model.set_params(eval_metric=hits).fit(X[:200], y[:200], X_val=X[200:], y_val=y[200:])
    assert model.best_score_ == max(model.evals_result_["validation"]["hits"])


def test_validation_fraction(X, Y):
    model = classifier(n_estimators=200, early_stopping_rounds=5, validation_fraction=0.2)
    model.fit(pd.DataFrame(X), pd.Series(Y.argmax(1)))
    assert list(model.evals_result_) == ["validation"] and model.best_iteration_ is not None
    again = clone(model).fit(X, Y.argmax(1))
    assert again.evals_result_ == model.evals_result_
    table = sp.csr_array(np.nan_to_num(X))
    sparse = classifier(validation_fraction=0.5).fit(table, sp.csr_array(Y > 0))
    assert len(sparse.evals_result_["validation"]["logloss"]) == 15


@pytest.mark.parametrize("kind", ["object", "boolean", "bool[pyarrow]", "category"])
def test_score_encodes_labels_as_fit_does(X, Y, kind):
    for labels in (pd.Series((Y[:, 0] > 0).astype(int)), pd.Series(Y[:, 0] > 0)):
        model = classifier(n_estimators=4).fit(X, labels.to_numpy())
        score, labels = model.score(X, labels.to_numpy()), labels.astype(kind)
        assert 0.5 < score == model.score(X, labels) == clone(model).fit(X, labels).score(X, labels)
        assert np.isfinite(cross_val_score(model, X, labels)).all()


def test_sparse_pandas_columns_as_labels(X, Y):
    labels = sp.csr_matrix(Y > 0).astype(int)
    frame = pd.DataFrame.sparse.from_spmatrix(labels)
    for options in ({}, {"leaf": "sparse"}):
        model = classifier(n_estimators=3, **options)
        expected, found = (
            model.fit(np.nan_to_num(X), y).predict_raw(X[:9]) for y in (labels, frame)
        )
        np.testing.assert_array_equal(found, expected)
    assert model.score(X, frame) == model.score(X, labels.toarray())


def test_validation_fraction_with_other_evaluation_sets(X, Y):
    seen = []

    def watch(model, epoch, log):
        seen.append({name: len(metrics["rmse"]) for name, metrics in log.items()})

    model = regressor(n_estimators=4, early_stopping_rounds=4, validation_fraction=0.5)
    alone = clone(model).fit(X, Y).evals_result_["validation"]
    model.fit(X, Y, eval_set=[(X[:50], -Y[:50])], callbacks=[watch])
    assert list(model.evals_result_) == ["validation_0", "validation"]
    assert model.evals_result_["validation"] == alone
    assert model.best_score_ in alone["relative_rmse"]
    assert seen == [{"validation_0": n, "validation": n} for n in (1, 2, 3, 4)]
    with pytest.raises(ValueError, match="X_val and validation_fraction"):
        model.fit(X, Y, X_val=X[:50], y_val=Y[:50])
    with pytest.raises(ValueError, match=r"must be different.*'validation'"):
        model.fit(X, Y, eval_set=[(X[:50], Y[:50])], eval_names=["validation"])


def test_callbacks(X, Y):
    seen = []

    def watch(model, epoch, log):
        seen.append(model.learning_rate)
        return epoch == 3

    model = regressor(callbacks=[LearningRateScheduler([0.5, 0.1])]).fit(X, Y, callbacks=[watch])
    assert seen == [0.5, 0.1, 0.1, 0.1] and model.n_iter_ == 4
    model = regressor(n_estimators=100, callbacks=[EarlyStopping(2, save_best=True)])
    model.fit(X[:100], Y[:100], eval_set=[(X[100:], Y[100:])])
    assert model.n_iter_ == model.best_iteration_ + 1


def test_verbosity(X, Y, capsys):
    regressor().fit(X, Y, eval_set=[(X, Y)])
    assert capsys.readouterr() == ("", "")
    regressor(verbose=5).fit(X, Y, eval_set=[(X, Y)])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("\t")[0] for line in lines] == ["[0]", "[5]", "[10]", "[14]"]
    regressor(verbose=1).fit(X, Y, eval_set=[(X, Y)])
    assert "round 15/15" in capsys.readouterr().err


def test_training_error_closes_the_progress_bar(X, Y, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    bar = ProgressBar()

    def fail(model, epoch, log):
        assert bar._bar is not None
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        regressor().fit(X, Y, callbacks=[bar, fail])
    assert bar._bar is None


def interrupt(model, epoch, log):
    if epoch == 4:
        raise KeyboardInterrupt


def test_keyboard_interrupt_keeps_complete_rounds_and_is_raised(X, Y):
    model = regressor()
    with pytest.raises(KeyboardInterrupt, match="the 5 complete rounds are kept"):
        model.fit(X, Y, callbacks=[interrupt], eval_set=[(X, Y)])
    assert model.n_iter_ == len(model.evals_result_["validation_0"]["rmse"]) == 5
    expected = regressor(n_estimators=5).fit(X, Y)
    np.testing.assert_array_equal(model.predict(X), expected.predict(X))
    rest = regressor(n_estimators=10).fit(X, Y, init_model=model)
    np.testing.assert_array_equal(rest.predict(X), regressor().fit(X, Y).predict(X))


def test_keyboard_interrupt_ends_a_cross_validation(X, Y):
    folds = []

    class Interrupted(PolyleafRegressor):
        def fit(self, X, y):
            folds.append(len(X))
            return super().fit(X, y, callbacks=[interrupt])

    with pytest.raises(KeyboardInterrupt):
        cross_val_score(Interrupted(n_estimators=6), X, Y, cv=3)
    assert len(folds) == 1


# --- continued training ---------------------------------------------------------------------------


def test_continued_training_keeps_classes_and_target_scale(X, Y):
    y = np.array(list("xyz"))[Y.argmax(1)]
    first = classifier().fit(X, y)
    later = classifier().fit(X[:250], y[:250], init_model=first)
    assert later.classes_.tolist() == list("xyz") and later.n_iter_ == 30
    first = regressor(normalize_targets=True).fit(X, Y * 100)
    later = regressor(normalize_targets=True).fit(X, Y * 100, init_model=first)
    assert later.score(X, Y * 100) > first.score(X, Y * 100)


def test_continued_training_after_early_stopping_uses_all_rounds(X, Y):
    first = regressor(n_estimators=100, early_stopping_rounds=1)
    first.fit(X[:60], Y[:60], eval_set=[(X[60:], Y[60:])])
    later = regressor().fit(X, Y, init_model=first)
    assert later.best_iteration_ is None
    assert later.score(X, Y) > first.score(X, Y)
    every = (0, first.n_iter_ + 15)
    np.testing.assert_array_equal(later.predict(X), later.predict(X, iteration_range=every))


def test_warm_start_without_new_rounds(X, Y):
    model = regressor(warm_start=True).fit(X, Y)
    before = model.predict(X)
    np.testing.assert_array_equal(model.fit(X, Y).predict(X), before)
    with pytest.raises(ValueError, match="n_estimators=3 is less than the 15"):
        model.set_params(n_estimators=3).fit(X, Y)


# --- prediction -----------------------------------------------------------------------------------


def test_staged_predict(X, Y):
    model = regressor().fit(X, Y)
    stages = list(model.staged_predict(X))
    assert len(stages) == 15
    np.testing.assert_allclose(stages[-1], model.predict(X), rtol=1e-6)
    np.testing.assert_allclose(stages[4], model.predict(X, iteration_range=(0, 5)), rtol=1e-6)


def test_apply_and_importances(X, Y):
    model = regressor().fit(X, Y)
    assert model.apply(X).shape == (300, 15)
    assert model.apply(X, iteration_range=(0, 3)).shape == (300, 3)
    assert model.feature_importances_.shape == (4,)
    assert model.feature_importances_.sum() == pytest.approx(1)
    n_splits = sum(tree.n_leaves - 1 for tree in model.model_.trees)
    assert model.feature_importance("split").sum() == n_splits
    per_output = model.feature_importance(per_output=True)
    assert per_output.shape == (3, 4)
    np.testing.assert_array_equal(per_output.argmax(1) > 1, [False, True, True])


def test_random_state(X, Y):
    a, b, c = (
        regressor(subsample=0.5, random_state=seed).fit(X, Y).predict(X) for seed in (1, 1, 2)
    )
    assert np.array_equal(a, b) and not np.array_equal(a, c)
    generator = regressor(subsample=0.5, random_state=np.random.RandomState(0))
    assert not np.array_equal(generator.fit(X, Y).predict(X), generator.fit(X, Y).predict(X))


def test_unfitted_estimators_raise(X):
    for method in ("predict", "apply", "staged_predict", "save_model", "feature_importance"):
        with pytest.raises(NotFittedError):
            getattr(PolyleafRegressor(), method)(X)
    assert not hasattr(PolyleafRegressor(), "feature_importances_")


# --- scikit-learn ---------------------------------------------------------------------------------


def test_pipelines_searches_and_cross_validation(X, Y):
    X, y = np.nan_to_num(X), Y.argmax(1)
    pipeline = make_pipeline(StandardScaler(), classifier(n_estimators=5))
    assert cross_val_predict(pipeline, X, y, cv=3, method="predict_proba").shape == (300, 3)
    search = GridSearchCV(regressor(), {"max_leaves": [2, 15]}, cv=3, n_jobs=1).fit(X, Y)
    assert search.best_params_ == {"max_leaves": 15}
    assert cross_val_score(classifier(n_estimators=5), X, (Y > 0).astype(int), cv=3).min() > 0.2


def test_parameters_are_stored_unchanged():
    metric, alpha = ["mae"], [0.1, 0.9]
    model = PolyleafRegressor(eval_metric=metric, quantile_alpha=alpha)
    assert model.get_params()["eval_metric"] is metric and model.quantile_alpha is alpha
    assert clone(model).get_params()["quantile_alpha"] == alpha
    for estimator in (PolyleafRegressor, PolyleafClassifier):
        documented = set(estimator.__doc__.split("Attributes\n")[0].replace(",", "\n").split())
        assert set(estimator().get_params()) <= documented


@pytest.mark.parametrize("multi", [False, True])
def test_pickles_and_files(X, Y, tmp_path, multi):
    target = {False: Y[:, 0], True: Y}[multi]
    labels = {False: np.array(list("ab"))[(Y[:, 0] > 0) * 1], True: (Y > 0).astype(int)}[multi]
    frame = pd.DataFrame(X, columns=list("abcd"))
    models = [
        regressor(subsample=0.9, normalize_targets=True).fit(frame, target),
        classifier(early_stopping_rounds=2).fit(X, labels, eval_set=[(X, labels)]),
        classifier(objective="logistic").fit(X, Y.argmax(1)),
    ]
    for model in models:
        table = frame if hasattr(model, "feature_names_in_") else X
        path = tmp_path / "model.polyleaf"
        model.save_model(path)
        pickled = pickle.loads(pickle.dumps(model))
        for other in (pickled, load_model(path), type(model).load_model(str(path))):
            assert type(other) is type(model) and other.get_params() == model.get_params()
            np.testing.assert_array_equal(other.predict(table), model.predict(table))
            if hasattr(model, "predict_proba"):
                expected = model.predict_proba(table)
                np.testing.assert_array_equal(other.predict_proba(table), expected)
            assert {name for name in vars(model) if name[-1] == "_"} <= set(vars(other))
            assert (other.n_iter_, other.best_iteration_) == (model.n_iter_, model.best_iteration_)


def test_loading_another_kind_of_estimator_raises(X, Y, tmp_path):
    regressor().fit(X, Y).save_model(tmp_path / "model")
    message = r"not a PolyleafClassifier: read it with PolyleafRegressor\.load_model"
    with pytest.raises(ValueError, match=message):
        PolyleafClassifier.load_model(tmp_path / "model")


def test_custom_objectives_predict_from_files(X, Y, tmp_path):
    model = regressor(objective=squared).fit(X, Y)
    model.save_model(tmp_path / "model")
    np.testing.assert_array_equal(load_model(tmp_path / "model").predict(X), model.predict(X))


# --- the package ----------------------------------------------------------------------------------


PACKAGES = [f"polyleaf.{name}" for name in ("files", "integrations", "sketching")]


@pytest.mark.parametrize("module", [*MODULES, *PACKAGES])
def test_completion_offers_the_public_names_only(module):
    if module in EXTRA:
        pytest.importorskip(EXTRA[module], reason="an extra is not installed")
    values = importlib.import_module(module)
    assert sorted(dir(values)) == sorted(values.__all__)
    if module != "polyleaf.integrations":  # whose modules need extras
        assert all(getattr(values, name) is not None for name in values.__all__)


@pytest.mark.parametrize(
    ("before", "imported", "lazy"),
    [
        # Imports by scikit-learn itself do not count.
        (
            "sklearn.base, sklearn.model_selection",
            "PolyleafRegressor, Dataset, presets, callbacks",
            {"matplotlib", "pandas", "polars", "pyarrow", "rich"},
        ),
        (
            "numpy",
            "PolyleafClassifier, PolyleafRegressor",
            {"sklearn.metrics", "sklearn.model_selection"},
        ),
    ],
)
def test_optional_and_rarely_used_modules_are_imported_lazily(before, imported, lazy):
    program = f"import sys, {before}; before = set(sys.modules)\nfrom polyleaf import {imported}\n"
    command = [sys.executable, "-c", program + "print(*(set(sys.modules) - before))"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert lazy.isdisjoint(done.stdout.split())


def test_metrics_per_output():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 4))
    Y = np.stack([X[:, 0], 5 * X[:, 1]], axis=1)
    model = PolyleafRegressor(n_estimators=6).fit(X, Y, eval_set=[(X, Y)], eval_names=["seen"])
    each = model.evals_result_per_output_["seen"]["rmse"]
    assert each.shape == (6, 2)
    together = np.sqrt(np.square(each).mean(axis=1))
    np.testing.assert_allclose(together, model.evals_result_["seen"]["rmse"], rtol=1e-6)
    expected = np.sqrt(np.square(model.predict(X) - Y).mean(axis=0))
    np.testing.assert_allclose(each[-1], expected, rtol=1e-6)
    alone = PolyleafRegressor(n_estimators=2).fit(X, Y[:, 0], eval_set=[(X, Y[:, 0])])
    assert alone.evals_result_per_output_ == {"validation_0": {}}


# --- no rows --------------------------------------------------------------------------------------


@pytest.mark.parametrize("objective", ["squared_error", "quantile", "normal", "negative_binomial"])
@pytest.mark.parametrize("n_targets", [1, 2])
def test_zero_rows_give_empty_results(objective, n_targets):
    X = np.random.default_rng(0).standard_normal((80, 3))
    y = np.abs(np.round(3 * X[:, 0])) if n_targets == 1 else np.abs(np.round(3 * X[:, :2]))
    alpha = {"quantile_alpha": [0.2, 0.8]} if objective == "quantile" else {}
    model = PolyleafRegressor(objective=objective, n_estimators=3, **alpha)
    model.fit(X, y).calibrate(X, y)
    for method in ("predict", "predict_raw", "predict_interval", "apply", "shap_values"):
        empty, some = getattr(model, method)(X[:0]), getattr(model, method)(X[:2])
        assert empty.shape == (0, *some.shape[1:]) and empty.dtype == some.dtype
    assert model.predictor()(X[:0]).shape == model.predict(X[:0]).shape
    staged = list(model.staged_predict(X[:0]))
    assert len(staged) == 3 and staged[0].shape == model.predict(X[:0]).shape
    if model.model_.objective.has_distribution:
        law = model.predict_dist(X[:0])
        assert len(law) == 0 and law.interval().shape == (*law.shape, 2)


def test_zero_rows_give_empty_results_for_each_task():
    X = np.random.default_rng(0).standard_normal((80, 3))
    Y = {"levels": X[:, 0], "law": X[:, 1], "counts": np.round(X[:, 0] ** 2)}
    Y["sign"] = np.where(X[:, 2] > 0, "a", "b")
    losses = {"levels": Quantile([0.2, 0.8]), "law": "normal", "counts": "poisson"}
    model = PolyleafMultiTask(losses | {"sign": "logistic"}, n_estimators=3).fit(X, Y)
    nothing = X[:0]
    for found in (
        model.predict(nothing),
        model.predictor()(nothing),
        *model.staged_predict(nothing),
    ):
        shapes = {task: values.shape for task, values in found.items()}
        assert shapes == {"levels": (0, 2), "law": (0,), "sign": (0,), "counts": (0,)}
    assert model.predict_proba(nothing)["sign"].shape == (0, 2)
    assert len(model.predict_dist(nothing)["law"]) == 0
    table = model.set_output(predict="pandas").predict(X[:0])
    assert table.shape == (0, 5) and list(table) == list(model.predict(X[:1]))


def test_methods_that_need_rows_raise_for_zero_rows():
    X = np.random.default_rng(0).standard_normal((80, 3))
    model = PolyleafClassifier(n_estimators=3).fit(X, (X[:, :2] > 0).astype(int))
    assert model.predict(X[:0]).shape == model.predict_proba(X[:0]).shape == (0, 2)
    for y in (None, np.zeros((0, 2), int)):
        with pytest.raises(ValueError, match="choose_threshold needs"):
            model.choose_threshold(X[:0], y)
    with pytest.raises(ValueError, match="X must have at least one row"):
        model.feature_importance("shap", X=X[:0])


# --- other errors ---------------------------------------------------------------------------------


def test_unknown_importance_type_raises():
    X = np.random.default_rng(0).standard_normal((80, 3))
    message = "kind must be one of 'gain', 'split', 'cover', 'shap'; got 'count'"
    with pytest.raises(ValueError, match=message):
        PolyleafRegressor(n_estimators=2).fit(X, X[:, 0]).feature_importance("count")


@pytest.mark.parametrize("k", [1.5, None, "2"])
def test_k_of_topk_must_be_an_integer(k):
    X = np.random.default_rng(0).standard_normal((80, 3))
    model = PolyleafRegressor(n_estimators=2).fit(X, X)
    for predict in (model.predict_topk, model.model_.predict_topk):
        with pytest.raises(TypeError, match="k must be an integer"):
            predict(X, k=k)
    assert model.predict_topk(X, k=np.int64(2))[0].shape == (80, 2)


def test_predictor_rejects_sparse_rows():
    X = np.random.default_rng(0).standard_normal((80, 3))
    predictor = PolyleafRegressor(n_estimators=2).fit(X, X[:, 0]).predictor()
    with pytest.raises(TypeError, match=r"sparse matrix: pass rows.toarray"):
        predictor(sp.csr_matrix(X))


@pytest.mark.parametrize("objective", ["logistic", "softmax"])
def test_contributions_of_two_classes_add_up_to_raw_scores(objective):
    X = np.random.default_rng(0).standard_normal((80, 3))
    model = PolyleafClassifier(objective=objective, n_estimators=3).fit(X, X[:, 0] > 0)
    sums = model.shap_values(X).sum(axis=1) + model.shap_base_values()
    np.testing.assert_allclose(sums, model.predict_raw(X), rtol=0, atol=1e-5)
    scores = sums if objective == "logistic" else sums[:, 1] - sums[:, 0]
    np.testing.assert_allclose(scores, model.decision_function(X), rtol=0, atol=1e-5)


def test_categories_of_almost_equal_means_are_ordered_by_them():
    """Two means are equal as float32; the only split with large children separates them."""
    sizes = [5000, 5000, 100, 3000]
    X = np.repeat(np.arange(4), sizes)[:, None]
    y = np.repeat([1.0, 1.0, 1.5, -2.0], sizes)
    y[5000] += 1e-4
    parameters = {"n_estimators": 1, "max_depth": 1, "min_child_samples": 4500}
    parameters |= {"max_cat_to_onehot": 2, "cat_smooth": 20.0, "categorical_features": [0]}
    first, second = PolyleafRegressor(**parameters).fit(X, y).predict([[0], [1]])
    assert first < second
