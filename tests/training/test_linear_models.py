"""`init="linear"` and `init="auto"`: the linear model that trees start from, or are averaged
with."""

from __future__ import annotations

import pickle
import shutil
import warnings
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import scipy.special
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression, Ridge

from polyleaf import PolyleafClassifier, PolyleafMultiTask, PolyleafRegressor, PolyleafRegressorCV
from polyleaf.binned_data.random_rows import SplitRules
from polyleaf.callbacks import EvaluationMonitor
from polyleaf.export import to_c, to_numeric_matrix, to_onnx
from polyleaf.export.c_header import _run_program
from polyleaf.objectives.registry import resolve_objective
from polyleaf.runtime.row_data import RowData
from polyleaf.training import auto_rounds, hold_out_search
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


def test_hold_outs_in_the_order_of_time_are_one_after_another() -> None:
    X, Y = make_values()
    seen: list[tuple[int, int, int]] = []

    def note(run: Any, n: int) -> Any:
        for rows, held in auto_rounds._iter_last_rows(run, n):
            seen.append((len(rows), held.min(), held.max()))
            yield rows, held

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hold_out_search, "iter_hold_outs", note)
        PolyleafRegressor(init="auto", validation_order="time", **QUICK).fit(X, Y)
    assert seen == [(400, 400, 499), (300, 300, 399), (200, 200, 299)]


def test_hold_outs_and_their_blocks_have_weights() -> None:
    """Rows of weight 0 change nothing: 300 early ones, and 50 between the others, of two series
    that stand one below the other."""
    X, Y = make_values()
    time = 300 + np.arange(500) % 250
    extra = np.random.default_rng(0).permutation(np.append(np.arange(300), np.arange(500, 550)))
    seen = []

    def note(split: Any, n_blocks: int) -> Any:
        rows = split.run.eval_sets[0].rows
        blocks = [rows.time[part] for part in iter_blocks(split, n_blocks)]
        seen.append([np.unique(block).tolist() for block in blocks])
        return iter_blocks(split, n_blocks)

    def fit(*rows: np.ndarray, time: np.ndarray, **options: Any) -> PolyleafRegressor:
        model = PolyleafRegressor(init="auto", random_state=0, n_jobs=1)
        return model.fit(*rows, time=time, **options)

    iter_blocks = hold_out_search._Split.iter_blocks
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hold_out_search._Split, "iter_blocks", note)
        plain = fit(X, Y, time=time)
    assert seen and all(
        block[-1] <= later[0] for blocks in seen for block, later in pairwise(blocks)
    )
    longer = np.vstack([X, X[:350]]), np.vstack([Y, 9 - Y[:350]])
    weight = np.append(np.ones(500), np.zeros(350))
    model = fit(*longer, time=np.append(time, extra), sample_weight=weight)
    assert model.n_iter_ == plain.n_iter_


def test_noise_chooses_no_trees_in_the_order_of_time() -> None:
    """Levels of the test leave the range of the training rows."""
    rng = np.random.default_rng(0)
    series = np.cumsum(rng.normal(0.1, 1.0, 400))
    X = np.lib.stride_tricks.sliding_window_view(series[:-1], 6)
    model = PolyleafRegressor(init="auto", validation_order="time", **QUICK)
    model.fit(X[:250], series[6:256])
    assert model.n_iter_ == 0 and model.model_.initial is not None


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

    def choose_mean(
        search: Any, candidates: Any, *_: object, **__: object
    ) -> tuple[Any, np.ndarray]:
        ((candidate, member),) = candidates
        choice = hold_out_search._Choice((replace(member, weight=0.5),), 0.5)
        return choice, np.array([float(candidate.starts_from_linear) - 1.0])

    monkeypatch.setattr(hold_out_search._Search, "_choose_weights", choose_mean)
    monkeypatch.setattr(hold_out_search._Search, "_compute_losses", lambda *args: np.zeros(1))
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
    Z, scale = (X - X.mean(axis=0)) / X.std(axis=0), X.std(axis=0)[:, None]
    exact = LogisticRegression(solver="newton-cholesky", tol=1e-10)
    for y in (Y.argmax(axis=1), (Y[:, 0] > 0).astype(int)):
        model = PolyleafClassifier(init="linear", n_estimators=1, **QUICK).fit(X, y)
        initial = model.model_.initial
        expected = exact.fit(Z, y).coef_.T / scale
        assert np.allclose(initial.coef, initial.factor * expected, atol=1e-5)


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


# --- offsets and several tasks ---


def make_kind(kind: str) -> tuple[Any, np.ndarray, Any, np.ndarray]:
    """Return an estimator, X, y and an offset."""
    X, Y = make_values()
    rng = np.random.default_rng(3)
    offset = 0.5 * rng.normal(size=len(X))
    if kind == "numbers":
        return PolyleafRegressor(), X, Y, np.outer(offset, [1.0, 0.0, -2.0])
    if kind == "counts":
        return PolyleafRegressor("poisson"), X, rng.poisson(np.exp(0.3 * Y[:, 0] + offset)), offset
    if kind == "two classes":
        return PolyleafClassifier(), X, (Y[:, 0] + offset > 0).astype(int), offset
    offsets = 0.5 * rng.normal(size=Y.shape)
    if kind == "labels":
        return PolyleafClassifier(), X, (Y + offsets > 0).astype(int), offsets
    return PolyleafClassifier(), X, (Y + offsets).argmax(axis=1), offsets


KINDS = ("numbers", "counts", "two classes", "labels", "classes")


@pytest.mark.parametrize("objective", ["squared_error", "quantile"])
@pytest.mark.parametrize("init", OPTIONS)
def test_an_offset_of_numbers_is_a_difference_of_y(init: str, objective: str) -> None:
    _, X, Y, offset = make_kind("numbers")
    model = PolyleafRegressor(objective, init=init, **QUICK).fit(X, Y, offset=offset)
    other = PolyleafRegressor(objective, init=init, **QUICK).fit(X, Y - offset)
    assert np.array_equal(model.predict(X, offset=offset), other.predict(X) + offset)
    assert np.array_equal(model.model_.initial.coef, other.model_.initial.coef)


@pytest.mark.parametrize("kind", KINDS[1:])
def test_linear_models_with_an_offset_have_the_least_penalised_loss(kind: str) -> None:
    estimator, X, y, offset = make_kind(kind)
    estimator.set_params(init="linear", n_estimators=1, **QUICK)
    initial = estimator.fit(X, y, offset=offset).model_.initial
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    slopes = initial.coef * X.std(axis=0)[:, None] / initial.factor
    scores = offset.reshape(len(X), -1) + Z @ slopes
    target = y.reshape(len(X), -1)
    for _ in range(50):  # the constant that fits best
        if kind == "counts":
            mean = np.exp(scores)
        elif kind == "classes":
            mean = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
            target = np.eye(3)[y]
        else:
            mean = 1 / (1 + np.exp(-scores))
        hessian = mean if kind == "counts" else mean * (1 - mean)
        scores = scores + (target - mean).sum(axis=0) / hessian.sum(axis=0)
    penalty = 1e-3 * np.exp(offset).sum() if kind == "counts" else 1.0
    assert np.allclose(Z.T @ (target - mean), penalty * slopes, atol=0.05)
    assert np.abs(slopes).max() > 0.3


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("init", OPTIONS)
def test_evaluation_sets_keep_their_offsets(kind: str, init: str) -> None:
    estimator, X, y, offset = make_kind(kind)
    estimator.set_params(init=init, **QUICK)
    rows = {"offset": offset[:400], "eval_set": [(X[400:], y[400:])], "eval_offset": [offset[400:]]}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        estimator.fit(X[:400], y[:400], **rows)
        raw = estimator.predict_raw(X[400:], offset=offset[400:])
    with pytest.warns(UserWarning, match="was trained with an offset"):
        rest = estimator.predict_raw(X[400:])
    assert np.allclose(raw - rest, offset[400:])
    ((_, values), *_) = estimator.evals_result_["validation_0"].items()
    predicted, y = np.float64(raw), y[400:]
    if kind == "numbers":
        assert np.isclose(values[-1], np.sqrt(np.mean((y - predicted) ** 2)))
    elif kind == "classes":
        log_p = scipy.special.log_softmax(predicted, axis=1)
        assert np.isclose(values[-1], -log_p[np.arange(len(y)), y].mean())
    elif kind != "counts":
        signed = (2 * y - 1) * predicted.reshape(y.shape)
        assert np.isclose(values[-1], np.logaddexp(0, -signed).mean())
    copied = pickle.loads(pickle.dumps(estimator))
    assert np.array_equal(copied.predict(X, offset=offset), estimator.predict(X, offset=offset))


@pytest.mark.parametrize("kind", KINDS)
def test_refits_with_an_offset_give_the_same_file(kind: str) -> None:
    estimator, X, y, offset = make_kind(kind)
    estimator.set_params(init="linear", n_estimators=5, **QUICK)
    before = estimator.fit(X, y, offset=offset).save_model()
    assert estimator.refit(X, y, offset=offset).save_model() == before
    longer = clone(estimator).set_params(n_estimators=8).fit(X, y, offset=offset)
    more = clone(estimator).set_params(n_estimators=3)
    more.fit(X, y, offset=offset, init_model=estimator)
    assert np.array_equal(more.predict(X, offset=offset), longer.predict(X, offset=offset))


def test_the_offset_of_a_distribution_is_of_its_location() -> None:
    _, X, Y, offset = make_kind("numbers")
    model = PolyleafRegressor("normal", init="linear", **QUICK).fit(X, Y, offset=offset)
    other = PolyleafRegressor("normal", init="linear", **QUICK).fit(X, Y - offset)
    assert np.allclose(model.model_.initial.coef, other.model_.initial.coef, rtol=1e-6)


@pytest.mark.parametrize("objective", ["squared_error", "quantile"])
def test_a_search_starts_from_the_linear_model_and_the_offset(objective: str) -> None:
    _, X, Y, offset = make_kind("numbers")
    search = PolyleafRegressorCV(
        objective, init="linear", n_candidates=2, n_estimators=10, n_jobs=1, random_state=0
    ).fit(X, Y, offset=offset)
    plain = PolyleafRegressor(**search.best_params_, n_jobs=1).fit(X, Y, offset=offset)
    expected = plain.predict(X, offset=offset)
    assert np.allclose(search.predict(X, offset=offset), expected, rtol=1e-5, atol=1e-5)
    with pytest.warns(UserWarning, match="was trained with an offset"):
        search.predict(X)


def test_held_out_rows_keep_their_offsets() -> None:
    _, X, Y, offset = make_kind("numbers")
    model = PolyleafRegressor(init="auto", validation_fraction=0.3, **QUICK)
    curves = model.fit(X, Y, offset=offset).evals_result_["validation"]
    others = clone(model).fit(X, Y - offset).evals_result_["validation"]
    assert np.allclose(curves["rmse"], others["rmse"])


def make_tasks() -> tuple[np.ndarray, dict[str, np.ndarray], dict[str, np.ndarray]]:
    X, Y = make_values()
    offsets = np.random.default_rng(3).normal(size=(len(X), 2))
    tasks = {"number": Y[:, 0], "class": Y.argmax(axis=1), "count": np.exp(Y[:, 1] // 1)}
    return X, tasks, {"number": offsets[:, 0], "count": 0.2 * offsets[:, 1]}


OBJECTIVES = {"number": "squared_error", "class": "softmax", "count": "poisson"}


@pytest.mark.parametrize("has_offset", [False, True])
def test_each_task_has_the_linear_model_of_its_own_estimator(has_offset: bool) -> None:
    X, Y, offset = make_tasks()
    offset = offset if has_offset else None
    model = PolyleafMultiTask(OBJECTIVES, init="linear", n_estimators=3, **QUICK)
    model.fit(X, Y, offset=offset)
    parts = []
    for name, objective in OBJECTIVES.items():
        cls = PolyleafClassifier if name == "class" else PolyleafRegressor
        rows = {"offset": offset[name]} if offset and name in offset else {}
        single = cls(objective, init="linear", n_estimators=1, **QUICK).fit(X, Y[name], **rows)
        initial = single.model_.initial
        parts.append(initial.scale(1 / initial.factor).coef)
    assert np.array_equal(model.model_.initial.coef, np.hstack(parts))
    loaded = PolyleafMultiTask.load_model(model.save_model())
    raw = model.predict_raw(X, offset=offset)
    assert np.array_equal(loaded.predict_raw(X, offset=offset), raw)
    assert model.refit(X, Y, offset=offset).save_model() == loaded.save_model()


def test_several_tasks_choose_how_they_start() -> None:
    X, Y, _ = make_tasks()
    train, test = ({name: y[part] for name, y in Y.items()} for part in (np.s_[:400], np.s_[400:]))
    model = PolyleafMultiTask(OBJECTIVES, init="auto", **QUICK).fit(X[:400], train)
    trees = clone(model).set_params(init=None).fit(X[:400], train)
    errors = [np.mean((m.predict(X[400:])["number"] - test["number"]) ** 2) for m in (model, trees)]
    assert errors[0] < 0.7 * errors[1]
    number = model.task_estimator("number")
    assert np.allclose(number.predict(X), model.predict(X)["number"])
    values, expected = model.shap_values(X[:20]), model.predict_raw(X[:20])
    assert np.allclose(values.sum(axis=1) + model.shap_base_values(), expected, atol=1e-4)


def test_tasks_and_links_refuse_other_initial_models() -> None:
    X, Y, _ = make_tasks()
    with pytest.raises(ValueError, match="Several tasks start from linear models"):
        PolyleafMultiTask(OBJECTIVES, init=Ridge()).fit(X, Y)
    with pytest.raises(ValueError, match="Several tasks start from linear models"):
        PolyleafMultiTask(OBJECTIVES, init="auto").fit(scipy.sparse.csr_matrix(X), Y)
    with pytest.raises(ValueError, match="y minus the offset"):
        PolyleafClassifier(init=LogisticRegression()).fit(X, Y["class"] > 1, offset=X[:, 0])


def test_estimators_are_fitted_to_y_minus_the_offset() -> None:
    _, X, Y, offset = make_kind("numbers")
    model = PolyleafRegressor(init=Ridge(), **QUICK).fit(X, Y, offset=offset)
    other = PolyleafRegressor(init=Ridge(), **QUICK).fit(X, Y - offset)
    assert np.array_equal(model.predict(X, offset=offset), other.predict(X) + offset)
