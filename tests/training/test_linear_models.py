"""`init="linear"` and `init="auto"`: the linear model that trees start from, or are averaged
with."""

from __future__ import annotations

import shutil
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from sklearn.linear_model import LogisticRegression, Ridge

from polyleaf import PolyleafClassifier, PolyleafRegressor, PolyleafRegressorCV
from polyleaf.binned_data.random_rows import SplitRules
from polyleaf.callbacks import EvaluationMonitor
from polyleaf.export import to_c, to_numeric_matrix, to_onnx
from polyleaf.export.c_header import _run_program
from polyleaf.objectives.registry import resolve_objective
from polyleaf.runtime.row_data import RowData
from polyleaf.training import auto_rounds
from polyleaf.training.linear_models import LinearFit
from polyleaf.user_data.features import read_features
from polyleaf.user_data.target import encode_regression

QUICK = {"n_jobs": 1, "random_state": 0, "quality": "fast"}
OPTIONS = ("linear", "auto")


def make_values(n: int = 500, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """A linear function of six features, and waves of three of them."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 6))
    Y = X @ np.random.default_rng(1).normal(size=(6, 3)) + np.sin(3 * X[:, :3])
    return X, Y + 0.3 * rng.normal(size=(n, 3))


def fit_linear(X: object, Y: np.ndarray, time: object = None, **rows) -> LinearFit:
    target = encode_regression(RowData(Y, **rows), missing="ignore")
    objective = resolve_objective("squared_error").make()
    return LinearFit.fit(read_features(X), target, objective, SplitRules(time=time), 0)


def solve_ridge(X: np.ndarray, Y: np.ndarray, penalty: float, weight: np.ndarray) -> np.ndarray:
    return Ridge(penalty).fit(X, Y, weight).coef_.T


def find_penalty(X: np.ndarray, y: np.ndarray, coef: np.ndarray, weight: np.ndarray) -> float:
    """Return the penalty of the normal equations that coefficients of centred features solve."""
    Z = X - np.average(X, axis=0, weights=weight)
    residual = weight * (y - np.average(y, weights=weight) - Z @ coef)
    return float((Z.T @ residual) @ coef / (coef @ coef))


def test_scores_are_of_ridge_regressions_without_the_block() -> None:
    X, Y = make_values()
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    fit, weight = fit_linear(X, Y), np.ones(len(X))
    slopes = fit.model.coef * X.std(axis=0)[:, None]
    penalty = find_penalty(Z, Y[:, 0], slopes[:, 0], weight)
    assert np.allclose(slopes, solve_ridge(Z, Y, penalty, weight))
    assert np.allclose(fit.model.scores(X).mean(axis=0), 0.0, atol=1e-9)
    for rows, held in SplitRules().iter_cross_fits(len(X), 10, 0, None):
        expected = Z[held] @ solve_ridge(Z[rows], Y[rows], penalty, weight[rows])
        assert np.allclose(fit.scores[held], expected)


def test_missing_targets_and_weights_are_those_of_each_output() -> None:
    X, Y = make_values()
    rng = np.random.default_rng(2)
    weight = rng.integers(1, 4, Y.shape).astype(np.float32)
    Y[rng.random(Y.shape) < 0.4] = np.nan
    Y[-40:, 2] = np.nan
    fit = fit_linear(X, Y, weight=weight)
    used = ~np.isnan(Y).all(axis=1)
    mean, scale = X[used].mean(axis=0), X[used].std(axis=0)
    Z = (X - mean) / scale
    for k in range(3):
        known = ~np.isnan(Y[:, k])
        slopes = fit.model.coef[:, k] * scale
        y, w = Y[known, k], weight[known, k]
        penalty = find_penalty(Z[known], y, slopes, w)
        assert np.allclose(slopes, solve_ridge(Z[known], y, penalty, w), rtol=1e-6)


def test_blocks_are_consecutive_in_time() -> None:
    X, Y = make_values()
    fit = fit_linear(X, Y, np.arange(len(X)))
    changed = Y.copy()
    changed[:25] += 0.5  # the first of twenty blocks
    other = fit_linear(X, changed, np.arange(len(X)))
    assert np.allclose(fit.scores[:25], other.scores[:25], atol=1e-6)
    assert not np.allclose(fit.scores[25:], other.scores[25:], atol=1e-3)


def test_held_out_rows_are_scored_by_the_rows_before() -> None:
    X, Y = make_values()
    rows, held = np.arange(400), np.arange(400, 500)
    scores = fit_linear(X, Y, np.arange(500)).score_hold_out(rows, held)
    alone = fit_linear(X[rows], Y[rows], rows)
    assert np.array_equal(scores[held], alone.model.scores(X[held]))
    assert np.array_equal(scores[rows], alone.scores)
    random = fit_linear(X, Y)
    assert np.array_equal(random.score_hold_out(rows, held), random.scores)


@pytest.mark.parametrize("kind", ["linear", "waves", "steps"])
def test_auto_is_not_worse_than_trees_or_the_linear_model(kind: str) -> None:
    rng = np.random.default_rng(3)
    X = rng.normal(size=(1500, 6))
    Y = X @ rng.normal(size=(6, 2))
    if kind == "waves":
        Y += np.sin(3 * X[:, :2])
    elif kind == "steps":
        Y = 3 * np.sign(X[:, :2] * X[:, 2:4])
    Y += rng.normal(0, 0.3, Y.shape)
    train, test = slice(1000), slice(1000, None)
    error = {}
    for init in (None, "auto"):
        model = PolyleafRegressor(init=init, **QUICK).fit(X[train], Y[train])
        error[init] = np.mean((model.predict(X[test]) - Y[test]) ** 2)
    line = Ridge().fit(X[train], Y[train])
    error["line"] = np.mean((line.predict(X[test]) - Y[test]) ** 2)
    assert error["auto"] <= 1.02 * min(error[None], error["line"])
    if kind == "waves":
        assert error["auto"] < 0.8 * min(error[None], error["line"])


def test_a_linear_function_needs_no_trees() -> None:
    rng = np.random.default_rng(4)
    X = rng.normal(size=(800, 5))
    Y = X @ rng.normal(size=(5, 2)) + rng.normal(size=(800, 2))
    model = PolyleafRegressor(init="auto", **QUICK).fit(X, Y)
    assert model.model_.n_rounds == 0 and len(model.model_.trees) == 0
    assert np.allclose(model.predict(X), Ridge(1.0).fit(X, Y).predict(X), atol=0.05)
    loaded = PolyleafRegressor.load_model(model.save_model())
    assert np.array_equal(loaded.predict(X), model.predict(X))
    assert not model.feature_importances_.any()
    values = model.shap_values(X[:5])
    base = model.predict(X[:5]) - values.sum(axis=1)
    assert np.allclose(base, base[0])
    further = PolyleafRegressor(init="auto", n_estimators=3, **QUICK).fit(X, Y, init_model=model)
    assert further.model_.n_rounds == 3


def test_without_use_of_the_linear_model_auto_is_the_fit_without_init() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1000, 6))
    Y = 2 * np.abs(X[:, :2]) + rng.normal(0, 0.3, (1000, 2))
    models = [PolyleafRegressor(init=init, **QUICK).fit(X, Y) for init in (None, "auto")]
    assert models[1].model_.initial is None
    raw = models[0].predict_raw(X)
    assert np.array_equal(models[1].predict_raw(X), raw)
    assert np.array_equal(models[1].refit(X, Y).predict_raw(X), raw)
    further = PolyleafRegressor(init="auto", n_estimators=2, **QUICK)
    assert further.fit(X, Y, init_model=models[1]).model_.initial is None


def test_the_mean_of_trees_and_a_linear_model_is_one_model(monkeypatch) -> None:
    X, Y = make_values()

    def choose_mean(candidates: Any, *args: object) -> tuple[Any, float]:
        ((trial, member),) = candidates
        choice = auto_rounds._Choice((replace(member, weight=0.5),), 0.5)
        return choice, float(trial.is_started)

    monkeypatch.setattr(auto_rounds, "_choose_weights", choose_mean)
    settings = {"init": "auto", "validation_order": "time", **QUICK}
    model = PolyleafRegressor(**settings).fit(X, Y, eval_set=[(X[:300], Y[:300])])
    initial = model.model_.initial
    assert not initial.starts_trees and initial.factor == 0.5
    plain = PolyleafRegressor(validation_order="time", **QUICK)
    plain.set_params(n_estimators=model.model_.n_rounds).fit(X, Y)
    (member,) = model.model_.metadata["members"]
    assert member["weight"] == 0.5
    trees = plain.predict_raw(X) - plain.model_.base_score
    expected = model.model_.base_score + 0.5 * trees + initial.scores(X)
    assert np.allclose(model.predict_raw(X), expected, rtol=1e-5, atol=1e-5)
    (metrics,) = model.evals_result_.values()
    error = np.sqrt(np.mean((model.predict(X[:300]) - Y[:300]) ** 2, axis=0))
    assert np.allclose(metrics["rmse"][-1], np.sqrt(np.mean(error**2)), rtol=1e-5)
    loaded = PolyleafRegressor.load_model(model.save_model())
    assert np.array_equal(loaded.predict(X), model.predict(X))
    # Trees go on, and leaves are fitted again, without the scores of the linear model.
    further = PolyleafRegressor(**settings | {"n_estimators": 5}).fit(X, Y, init_model=model)
    assert further.model_.n_rounds == model.model_.n_rounds + 5
    before = model.predict(X)
    assert np.allclose(model.refit(X, Y, decay_rate=0.0).predict(X), before, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("init", OPTIONS)
def test_callbacks_and_evaluation_sets_change_nothing(init: str) -> None:
    X, Y = make_values()
    model = PolyleafRegressor(init=init, **QUICK).fit(X, Y)
    watched = PolyleafRegressor(init=init, callbacks=[EvaluationMonitor(1000)], **QUICK)
    watched.fit(X, Y, eval_set=[(X[:50], Y[:50])])
    assert np.array_equal(model.predict_raw(X), watched.predict_raw(X))


@pytest.mark.parametrize("classes", [False, True])
def test_continued_trainings_and_refits_start_from_the_same_scores(classes: bool) -> None:
    X, Y = make_values()
    cls, y = (PolyleafClassifier, Y.argmax(axis=1)) if classes else (PolyleafRegressor, Y)
    whole = cls(init="linear", n_estimators=6, **QUICK).fit(X, y)
    half = cls(init="linear", n_estimators=3, **QUICK).fit(X, y)
    again = cls(init="linear", n_estimators=3, **QUICK).fit(X, y, init_model=half)
    raw = whole.predict_raw(X)
    assert np.array_equal(again.predict_raw(X), raw)
    assert np.array_equal(whole.refit(X, y).predict_raw(X), raw)


@pytest.mark.parametrize("init", OPTIONS)
def test_kinds_of_targets(init: str) -> None:
    X, Y = make_values(200)
    positive = np.exp(0.3 * Y)
    shares = np.exp(Y) / np.exp(Y).sum(axis=1, keepdims=True)
    labels = (Y > 0).astype(float)
    labels[::3, 1] = np.nan
    ignore = {"missing_targets": "ignore"}
    levels = {"objective": "quantile", "quantile_alpha": [0.2, 0.5], "calibrate_quantiles": False}
    for cls, y, parameters in (
        (PolyleafRegressor, Y[:, 0], {}),
        (PolyleafRegressor, 100 * Y + 7, {"normalize_targets": True}),
        (PolyleafRegressor, Y, levels),
        (PolyleafRegressor, Y, {"objective": "normal"}),
        (PolyleafRegressor, positive, {"objective": "gamma"}),
        (PolyleafRegressor, positive, {"objective": "lognormal"}),
        (PolyleafRegressor, positive.round(), {"objective": "negative_binomial"}),
        (PolyleafRegressor, positive.round(), {"objective": "poisson"}),
        (PolyleafRegressor, positive.round(), {"objective": "tweedie"}),
        (PolyleafClassifier, Y[:, 0] > 0, {}),
        (PolyleafClassifier, Y.argmax(axis=1), {}),
        (PolyleafClassifier, Y.argmax(axis=1), {"objective": "logistic"}),
        (PolyleafClassifier, labels, ignore),
        (PolyleafClassifier, shares, {}),
    ):
        model = cls(init=init, n_estimators=10, **parameters, **QUICK).fit(X, y)
        assert init == "auto" or model.model_.initial is not None
        loaded = cls.load_model(model.save_model())
        assert np.array_equal(loaded.predict_raw(X), model.predict_raw(X)), parameters


def test_the_linear_model_reads_features_before_a_projection() -> None:
    X, Y = make_values()
    settings = {"projection": "pca", "projection_dim": 3, "n_estimators": 20, **QUICK}
    model = PolyleafRegressor(init="linear", **settings).fit(X, Y)
    assert model.model_.initial.n_features == 6
    assert model.score(X, Y) > PolyleafRegressor(**settings).fit(X, Y).score(X, Y) + 0.1


def test_scores_of_classes_are_of_logistic_regressions() -> None:
    X, Y = make_values()
    y = Y.argmax(axis=1)
    model = PolyleafClassifier(init="linear", n_estimators=1, **QUICK).fit(X, y)
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    expected = LogisticRegression(max_iter=300).fit(Z, y).coef_.T / X.std(axis=0)[:, None]
    assert np.allclose(model.model_.initial.coef, expected)


def test_frames_with_categories_and_missing_values() -> None:
    X, Y = make_values()
    X[::5, 0] = np.nan
    frame = pd.DataFrame(X, columns=list("abcdef"))
    frame["city"] = pd.Categorical(np.random.default_rng(7).choice(["x", "y"], len(X)))
    model = PolyleafRegressor(init="linear", **QUICK).fit(frame, Y)
    assert not model.model_.initial.coef[6].any()
    numbers = PolyleafRegressor(init="linear", **QUICK).fit(X, Y)
    assert np.allclose(model.model_.initial.coef[:6], numbers.model_.initial.coef)
    assert model.score(frame, Y) > 0.9
    values = model.shap_values(frame[:5])
    base = model.predict(frame[:5]) - values.sum(axis=1)
    assert np.allclose(base, base[0], atol=1e-5)


@pytest.mark.parametrize("missing", [False, True])
def test_exports_add_the_linear_model(missing: bool, tmp_path) -> None:
    X, Y = make_values()
    X = X.astype(np.float32)
    if missing:
        X[::4, 1] = np.nan
    for init in ("linear", Ridge()):
        if missing and init != "linear":
            continue
        model = PolyleafRegressor(init=init, n_estimators=5, **QUICK).fit(X, Y)
        raw, matrix = model.predict_raw(X), to_numeric_matrix(model, X)
        if shutil.which("cc") is not None:
            to_c(model, tmp_path / "model.h")
            text = (tmp_path / "model.h").read_text()
            scores = _run_program(text, "model", matrix)
            assert scores is not None and np.array_equal(scores.reshape(raw.shape), raw)
        onnxruntime = pytest.importorskip("onnxruntime")
        content = to_onnx(model).SerializeToString()
        session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
        assert np.allclose(session.run(["scores"], {"X": matrix})[0], raw, atol=1e-5)


@pytest.mark.parametrize("init", OPTIONS)
@pytest.mark.parametrize("ensemble", [None, 2])
def test_candidates_of_a_search_start_from_the_linear_model(init, ensemble) -> None:
    X, Y = make_values()
    train, test = slice(350), slice(350, None)
    settings = {"n_candidates": 2, "n_estimators": 20, "ensemble": ensemble, "n_jobs": 1}
    scores = {}
    for value in (None, init):
        search = PolyleafRegressorCV(init=value, random_state=0, **settings)
        search.fit(X[train], Y[train])
        scores[value] = search.score(X[test], Y[test])
    assert scores[init] > scores[None] + 0.05
    assert search.best_params_["init"] == "linear" and search.model_.initial is not None
    loaded = PolyleafRegressor.load_model(search.save_model())
    assert np.array_equal(loaded.predict(X), search.predict(X))
    if ensemble is None:
        plain = PolyleafRegressor(**search.best_params_, n_jobs=1).fit(X[train], Y[train])
        assert np.array_equal(plain.predict_raw(X), search.predict_raw(X))
        raw = search.predict_raw(X)
        assert np.array_equal(search.refit(X[train], Y[train]).predict_raw(X), raw)


def test_invalid_uses_raise() -> None:
    X, Y = make_values(100)
    search = PolyleafRegressorCV(init="linear", n_candidates=1, n_estimators=2)
    with pytest.raises(ValueError, match=r"supports init=.* for dense X and y"):
        search.fit(scipy.sparse.csr_matrix(X), Y)
    missing = Y.copy()
    missing[0, 0] = np.nan
    with pytest.raises(ValueError, match=r'cannot be fitted to missing targets: use init="linear"'):
        PolyleafRegressor(init=Ridge(), missing_targets="ignore", **QUICK).fit(X, missing)
    with pytest.raises(ValueError, match="init has no linear model for objective"):
        PolyleafRegressor(init="linear", objective="logistic", **QUICK).fit(X, Y > 0)


def test_features_that_are_too_large_for_a_variance_have_no_slope() -> None:
    X, Y = make_values(60)
    X[:, 2] *= 1e200
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = PolyleafRegressor(n_estimators=3, init="linear", **QUICK).fit(X, Y)
        assert np.isfinite(model.predict(X)).all()
    np.testing.assert_array_equal(model.model_.initial.coef[2], 0)
