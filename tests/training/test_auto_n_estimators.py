"""Automatic choice of n_estimators: when it applies, on which rows, and its result."""

import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse

from polyleaf import (
    Dataset,
    PolyleafClassifier,
    PolyleafMultiTask,
    PolyleafRegressor,
    RowData,
    memory_estimate,
)
from polyleaf.binned_data.random_rows import split_rows_stratified
from polyleaf.settings.parameters import DEFAULT_N_ESTIMATORS
from polyleaf.training import fit as fit_steps
from polyleaf.training import prepare
from polyleaf.user_data.target import encode_evaluation_target


def noise(n=400, k=2, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 5)).astype(np.float32)
    return X, X[:, :k] + 2 * rng.standard_normal((n, k)).astype(np.float32)


def fit_manually(X, Y, **parameters):
    """Return the number of rounds, found with two trainings through the public interface."""
    train, held = split_rows_stratified(len(X), prepare.TRIAL_FRACTION, 0, None)
    model = PolyleafRegressor(
        learning_rate=0.2, n_estimators=300, early_stopping_rounds=50, random_state=0, **parameters
    )
    all_bins = Dataset(X, Y)  # the bins of all rows
    data = all_bins.rows(train), all_bins.rows(held)
    model.fit(data[0], Y[train], X_val=data[1], y_val=Y[held])
    return 2 * (model.best_iteration_ + 1)


def test_rounds_are_twice_those_of_the_hold_out_with_doubled_learning_rate():
    X, Y = noise()
    model = PolyleafRegressor(random_state=0).fit(X, Y)
    assert model.n_iter_ == fit_manually(X, Y) < DEFAULT_N_ESTIMATORS / 2
    given = PolyleafRegressor(random_state=0, n_estimators=model.n_iter_).fit(X, Y)
    np.testing.assert_array_equal(model.predict(X), given.predict(X))
    assert model.evals_result_ == {} and model.best_iteration_ is None


def test_noise_free_targets_have_more_rounds():
    rng = np.random.default_rng(0)
    X = rng.random((1000, 3)).astype(np.float32)
    assert PolyleafRegressor().fit(X, np.sin(9 * X).sum(axis=1)).n_iter_ > DEFAULT_N_ESTIMATORS


@pytest.mark.parametrize("rate", [0.3, 0.8])
def test_high_learning_rate_is_not_doubled(rate, monkeypatch):
    seen = []
    boost = fit_steps.boost
    monkeypatch.setattr(
        fit_steps, "boost", lambda run, *a: seen.append(run.settings.boosting) or boost(run, *a)
    )
    PolyleafRegressor(learning_rate=rate).fit(*noise())
    run, _ = seen  # the hold-out training and the final training
    assert (run.learning_rate, run.n_estimators) == (rate, round(60 / rate))


@pytest.mark.parametrize(
    "what",
    [
        {"n_estimators": 7},
        {"validation_fraction": 0.2},
        {"warm_start": True},
        {"callbacks": [lambda model, epoch, log: False]},
        {"projection": "leml", "projection_dim": 2},
    ],
)
def test_no_search_if_rounds_are_given(what, monkeypatch):
    monkeypatch.setattr("polyleaf.estimators._fitting.find_n_estimators", None)
    model = PolyleafRegressor(max_depth=2, **what).fit(*noise())
    assert model.n_iter_ == what.get("n_estimators", DEFAULT_N_ESTIMATORS)


def test_no_search_with_evaluation_sets_callbacks_or_init_model(monkeypatch):
    X, Y = noise()
    first = PolyleafRegressor(n_estimators=2).fit(X, Y)
    monkeypatch.setattr("polyleaf.estimators._fitting.find_n_estimators", None)
    few = PolyleafRegressor(max_depth=2)
    assert few.fit(X, Y, eval_set=[(X, Y)]).n_iter_ == DEFAULT_N_ESTIMATORS
    assert few.fit(X, Y, callbacks=[lambda model, epoch, log: epoch == 3]).n_iter_ == 4
    assert few.fit(X, Y, init_model=first).n_iter_ == DEFAULT_N_ESTIMATORS + 2


@pytest.mark.parametrize(
    ("n", "is_done"), [(49, False), (50, True), (10_000, True), (10_001, False)]
)
def test_range_of_rows(n, is_done):
    assert fit_steps.has_few_rows(n) == is_done


def test_sparse_targets_use_the_default_rounds():
    X, Y = noise(60)
    model = PolyleafRegressor(leaf="sparse", leaf_k=1, max_depth=1).fit(
        X, scipy.sparse.csr_matrix(Y > 2) * 1.0
    )
    assert model.n_iter_ == DEFAULT_N_ESTIMATORS


def test_dataset_gives_the_same_model():
    X, Y = noise()
    plain = PolyleafRegressor(random_state=0).fit(X, Y)
    for data in (Dataset(X, Y), Dataset(X)):
        of_data = PolyleafRegressor(random_state=0).fit(data, *([] if data.y is not None else [Y]))
        assert of_data.save_model() == plain.save_model()


def test_sparse_features_and_threads_give_the_same_model():
    X, Y = noise()
    X[np.abs(X) < 0.7] = 0
    models = [
        PolyleafRegressor(random_state=0, n_jobs=n).fit(data, Y).predict(X)
        for data, n in ((X, 1), (X, 3), (scipy.sparse.csr_matrix(X), 2))
    ]
    np.testing.assert_array_equal(models[0], models[1])
    np.testing.assert_array_equal(models[0], models[2])


def test_target_encoding_uses_only_training_rows():
    """The target is noise, whose category means do not generalise; the hold-out must show this."""
    rng = np.random.default_rng(0)
    pandas = pytest.importorskip("pandas")
    X = pandas.DataFrame(
        {"id": [str(i) for i in rng.integers(0, 600, 1200)], "x": rng.random(1200)}
    )
    X["id"] = X["id"].astype("category")
    model = PolyleafRegressor(random_state=0).fit(X, X["x"] + rng.standard_normal(1200))
    assert model.n_iter_ < DEFAULT_N_ESTIMATORS / 2


def test_classes_with_one_row():
    X, _ = noise(100)
    y = np.array(["common"] * 60 + ["other"] * 39 + ["rare"])
    model = PolyleafClassifier().fit(X, y)
    assert model.n_iter_ > 0 and list(model.classes_) == ["common", "other", "rare"]


def test_tasks_target_scales_weights_and_offsets():
    X, Y = noise(600)
    task = PolyleafMultiTask({"a": "squared_error", "b": "softmax"}, random_state=0)
    names = np.array(["u", "v", "w"])[np.digitize(Y[:, 1], [-1, 1])]
    found = task.fit(X, {"a": 1e3 * Y[:, 0], "b": names})
    assert 0 < found.n_iter_ < DEFAULT_N_ESTIMATORS / 2
    plain = PolyleafRegressor(random_state=0).fit(X, Y)
    scaled = PolyleafRegressor(random_state=0, normalize_targets=True).fit(X, Y * [1, 2**10])
    assert 0 < scaled.n_iter_ < DEFAULT_N_ESTIMATORS / 2
    moved = PolyleafRegressor(random_state=0).fit(X, Y[:, 0] + 4 * X[:, 4], offset=4 * X[:, 4])
    assert moved.n_iter_ == PolyleafRegressor(random_state=0).fit(X, Y[:, 0]).n_iter_
    weighted = PolyleafRegressor(random_state=0).fit(X, Y, sample_weight=np.full(600, 3.0))
    assert abs(weighted.n_iter_ - plain.n_iter_) <= plain.n_iter_ / 2


def test_metrics_are_on_the_scale_of_y():
    _, Y = noise()
    regressor = PolyleafRegressor(normalize_targets=True)
    target = regressor._encode_target(RowData(Y * [1, 1000]), None, regressor._resolve_objective())
    read = encode_evaluation_target(
        RowData(Y * [1, 1000]), name="y", like=target.encoding, is_sparse=False
    )
    np.testing.assert_allclose(target.to_target_scale(), read.values, rtol=1e-6, atol=1e-4)
    tasks = PolyleafMultiTask({"a": "squared_error", "b": "softmax"})
    y = {"a": 1e3 * Y[:, 0] + 7, "b": np.digitize(Y[:, 1], [-1, 1])}
    target = tasks._encode_target(RowData(y), None, tasks._resolve_objective())
    read = encode_evaluation_target(RowData(y), name="y", like=target.encoding, is_sparse=False)
    np.testing.assert_allclose(target.to_target_scale(), read.values, rtol=1e-6, atol=1e-2)


def test_hold_out_without_weight_uses_the_default_rounds():
    X, Y = noise(60)
    weight = np.ones(60)
    weight[split_rows_stratified(60, prepare.TRIAL_FRACTION, 0, None)[1]] = 0
    assert (
        PolyleafRegressor(random_state=0, max_depth=1).fit(X, Y, weight).n_iter_
        == DEFAULT_N_ESTIMATORS
    )


@pytest.mark.parametrize("mode", ["keep", "raise"])
def test_interruption_keeps_trained_rounds(mode, monkeypatch):
    class Impatient(fit_steps._RoundStopper):
        def after_iteration(self, model, epoch, evals_log):
            if epoch == 4:
                raise KeyboardInterrupt
            return False

    monkeypatch.setattr(fit_steps, "_RoundStopper", Impatient)
    X, Y = noise()
    model = PolyleafRegressor(on_interrupt=mode)
    if mode == "keep":
        with pytest.warns(UserWarning, match="interrupted"):
            model.fit(X, Y)
    else:
        with pytest.raises(KeyboardInterrupt, match="kept by the estimator"):
            model.fit(X, Y)
    assert 4 <= model.n_iter_ <= 5 and np.isfinite(model.predict(X)).all()


def test_warnings_are_not_repeated():
    X, Y = noise()
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("default")  # once per line of code
        PolyleafClassifier(monotone_constraints=[1, 0, 0, 0, 0]).fit(
            X, np.digitize(Y[:, 0], [-1, 1])
        )
    texts = [str(w.message) for w in found]
    assert len(texts) == len(set(texts)) == 1


def test_memory_estimate_uses_the_largest_number_of_rounds():
    few = memory_estimate(10_000, 5, 3), memory_estimate(10_000, 5, 3, n_estimators=600)
    assert few[0] == few[1] > memory_estimate(10_000, 5, 3, n_estimators=300)
    many = memory_estimate(10_001, 5, 3), memory_estimate(10_001, 5, 3, n_estimators=300)
    assert many[0] == many[1]


@pytest.mark.parametrize("kind", ["values", "classes", "categories"])
def test_copied_rows_are_on_one_side(kind):
    """Check that copies of training rows are not in the hold-out."""
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((600, 5)), rng.standard_normal(600)
    if kind == "categories":
        X = pd.DataFrame(X, columns=[*"abcde"]).assign(
            c=pd.Categorical(rng.integers(0, 300, 600).astype(str))
        )
    classify = kind == "classes"
    estimator = PolyleafClassifier if classify else PolyleafRegressor
    y = np.where(y > 0, "a", "b") if classify else y
    rows = rng.permutation(np.repeat(np.arange(600), 2))
    part = X.iloc[rows].reset_index(drop=True) if hasattr(X, "iloc") else X[rows]
    assert estimator(random_state=0, n_jobs=1).fit(part, y[rows]).n_iter_ < 60
    stopped = estimator(
        random_state=0, n_jobs=1, validation_fraction=0.2, early_stopping_rounds=20, n_estimators=99
    )
    assert stopped.fit(part, y[rows]).best_iteration_ < 60


@pytest.mark.parametrize("name", ["groups", "time"])
def test_groups_and_time_reach_held_out_rows(name):
    """Check that noise of groups or days does not lead to more rounds."""
    rng = np.random.default_rng(0)
    group = np.repeat(np.arange(80), 10)
    X = np.column_stack([group + 0.5 * rng.random(800), rng.random((800, 2))])
    y = np.round(rng.standard_normal(80)[group] + 0.1 * rng.standard_normal(800), 3)
    rows = rng.permutation(800)
    X, y, given = X[rows], y[rows], {name: group[rows]}
    plain, known = (PolyleafRegressor(random_state=0).fit(X, y, **more) for more in ({}, given))
    assert known.n_iter_ < 40 < plain.n_iter_
    stopping = {"validation_fraction": 0.2, "early_stopping_rounds": 20, "n_estimators": 100}
    stopped = PolyleafRegressor(random_state=0, **stopping).fit(X, y, **given)
    assert stopped.best_iteration_ < 20
