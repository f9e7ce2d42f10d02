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
from polyleaf.binned_data.random_rows import SplitRules, split_rows_stratified
from polyleaf.callbacks import Checkpoint, EarlyStopping, TimeLimit
from polyleaf.settings.parameters import DEFAULT_N_ESTIMATORS
from polyleaf.training import auto_rounds, hold_out_search
from polyleaf.user_data.target import encode_evaluation_target


def noise(n=400, k=2, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 5)).astype(np.float32)
    return X, X[:, :k] + 2 * rng.standard_normal((n, k)).astype(np.float32)


def find_manually(X, Y, n_hold_outs):
    """Return the number of rounds, found with trainings through the public interface."""
    if n_hold_outs == 1:
        splits = [split_rows_stratified(len(X), auto_rounds.HELD_OUT, 0, None)]
    else:
        splits = list(SplitRules().iter_cross_fits(len(X), 5, 0, None))[:n_hold_outs]
    all_bins = Dataset(X, Y)  # the bins of all rows
    numbers = []
    for train, held in splits:
        model = PolyleafRegressor(
            learning_rate=0.2, n_estimators=1500, early_stopping_rounds=50, random_state=0
        )
        model.fit(all_bins.rows(train), Y[train], X_val=all_bins.rows(held), y_val=Y[held])
        numbers.append(2 * (model.best_iteration_ + 1) * len(X) / len(train))
    return round(float(np.median(numbers)))


@pytest.mark.parametrize(("n_rows", "n_hold_outs"), [(400, 5), (4_000, 3), (12_000, 1)])
def test_rounds_are_the_median_of_hold_outs_with_doubled_learning_rate(n_rows, n_hold_outs):
    X, Y = noise(n_rows)
    model = PolyleafRegressor(quality="fast", random_state=0).fit(X, Y)
    assert model.n_iter_ == find_manually(X, Y, n_hold_outs) < DEFAULT_N_ESTIMATORS / 2
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
    boost = hold_out_search.boost
    monkeypatch.setattr(
        hold_out_search,
        "boost",
        lambda run, *args: seen.append(run.settings.boosting) or boost(run, *args),
    )
    PolyleafRegressor(learning_rate=rate).fit(*noise())
    assert {(run.learning_rate, run.n_estimators) for run in seen} == {
        (rate, max(300, round(300 / rate)))
    }


@pytest.mark.parametrize(
    "what", [{"n_estimators": 7}, {"warm_start": True}, {"projection": "leml", "projection_dim": 2}]
)
def test_no_search_if_rounds_are_given(what, monkeypatch):
    monkeypatch.setattr("polyleaf.estimators._fitting.find_n_estimators", None)
    model = PolyleafRegressor(max_depth=2, **what).fit(*noise())
    assert model.n_iter_ == what.get("n_estimators", DEFAULT_N_ESTIMATORS)


def test_no_search_with_init_model(monkeypatch):
    X, Y = noise()
    first = PolyleafRegressor(n_estimators=2).fit(X, Y)
    monkeypatch.setattr("polyleaf.estimators._fitting.find_n_estimators", None)
    few = PolyleafRegressor(max_depth=2)
    assert few.fit(X, Y, init_model=first).n_iter_ == DEFAULT_N_ESTIMATORS + 2


def test_watching_a_training_does_not_change_it(tmp_path):
    X, Y = noise()
    plain = PolyleafRegressor(random_state=0).fit(X, Y)
    for watched in (
        {"callbacks": [lambda model, epoch, log: False]},
        {"callbacks": [Checkpoint(tmp_path, interval=10)]},
        {"callbacks": [TimeLimit(1e6)]},
        {"eval_set": [(X[:50], Y[:50])]},
    ):
        other = PolyleafRegressor(random_state=0).fit(X, Y, **watched)
        assert other.n_iter_ == plain.n_iter_
        np.testing.assert_array_equal(other.predict(X), plain.predict(X))
    stopped = PolyleafRegressor(random_state=0).fit(
        X, Y, callbacks=[lambda model, epoch, log: epoch == 3]
    )
    assert stopped.n_iter_ == 4


def test_early_stopping_by_the_user_may_use_as_many_rounds_as_the_search():
    rng = np.random.default_rng(0)
    X = rng.random((1000, 3))
    y = np.sin(9 * X).sum(axis=1)
    options = {"random_state": 0, "max_leaves": 4}
    by_parameter = PolyleafRegressor(early_stopping_rounds=20, **options)
    by_parameter.fit(X[:800], y[:800], X_val=X[800:], y_val=y[800:])
    by_callback = PolyleafRegressor(**options).fit(
        X[:800], y[:800], X_val=X[800:], y_val=y[800:], callbacks=[EarlyStopping(20)]
    )
    assert by_parameter.n_iter_ == by_callback.n_iter_ > DEFAULT_N_ESTIMATORS


def test_time_limit_includes_the_search():
    """A clock that advances by a second at each look ends the first hold-out fit."""
    seconds = iter(range(1000))
    X, Y = noise()
    limit = TimeLimit(20, clock=lambda: float(next(seconds)))
    model = PolyleafRegressor(random_state=0).fit(X, Y, callbacks=[limit])
    assert limit.was_reached and 0 < model.n_iter_ <= 20
    assert PolyleafRegressor(n_estimators=3).fit(X, Y, callbacks=[TimeLimit(1e6)]).n_iter_ == 3


def test_time_limit_leaves_out_what_leaves_no_time_for_all_rows(monkeypatch):
    def train(*arguments):
        nonlocal now
        now += 10.0
        return _train(*arguments)

    def fit(seconds):
        limit = TimeLimit(seconds, clock=lambda: now)
        fitted = PolyleafRegressor(**options).fit(X, y, callbacks=[limit])
        assert not limit.was_reached
        return fitted.model_

    now, _train = 0.0, hold_out_search._train
    monkeypatch.setattr(hold_out_search, "_train", train)
    rng = np.random.default_rng(0)
    X = rng.random((4000, 3))
    y = np.sin(9 * X).sum(axis=1)
    options = {"random_state": 0, "learning_rate": 0.3}
    unlimited = PolyleafRegressor(**options).fit(X, y).model_
    n_hold_outs = now / 10.0
    assert unlimited.metadata["members"] and n_hold_outs > 3
    assert fit(1e6).equals(unlimited)
    now = 0.0
    model = fit(15.0)  # a hold-out fit more would end after 20 s
    assert "members" not in model.metadata and now == 10.0 and model.n_rounds > 100


@pytest.mark.parametrize("n_estimators", [None, 50])
def test_time_limit_may_end_the_choice_of_an_initial_model(n_estimators):
    X, Y = noise()
    limit = TimeLimit(1e-9)
    model = PolyleafRegressor(init="auto", n_estimators=n_estimators)
    model.fit(X, Y, callbacks=[limit])
    assert limit.was_reached and 0 < model.n_iter_ < 50
    assert np.isfinite(model.predict(X)).all()


def test_interrupt_between_rounds_keeps_the_first_hold_out_fit(monkeypatch):
    def interrupt(*arguments):
        raise KeyboardInterrupt

    X, Y = noise()
    monkeypatch.setattr(hold_out_search._Search, "_choose", interrupt)
    with pytest.raises(KeyboardInterrupt, match="Training was interrupted"):
        PolyleafRegressor().fit(X, Y)
    model = PolyleafRegressor(on_interrupt="keep")
    with pytest.warns(UserWarning, match="Training was interrupted; the .* complete rounds"):
        model.fit(X, Y)
    assert 0 < model.n_iter_ < 30 and np.isfinite(model.predict(X)).all()


def test_slow_hold_out_fits_leave_time_for_all_rows(monkeypatch):
    """Rounds of the second candidate take a thousand times as long as rounds of the first one."""

    def after_iteration(stopper, *arguments):
        nonlocal now
        if stopper.n_trained == 0:
            hold_outs.append(stopper)
        now += 0.001 if len(hold_outs) == 1 else 1.0
        return _after_iteration(stopper, *arguments)

    _after_iteration = hold_out_search._HoldOutStopper.after_iteration
    monkeypatch.setattr(hold_out_search._HoldOutStopper, "after_iteration", after_iteration)
    rng = np.random.default_rng(0)
    X = rng.random((4000, 3))
    y = np.sin(9 * X).sum(axis=1)
    now, hold_outs, options = 0.0, [], {"random_state": 0, "learning_rate": 0.3}
    fast = PolyleafRegressor(quality="fast", **options).fit(X, y)
    now = 0.0
    hold_outs.clear()
    limit = TimeLimit(20.0, clock=lambda: now)
    limited = PolyleafRegressor(**options).fit(X, y, callbacks=[limit])
    assert len(hold_outs) == 2 and hold_outs[1].lacks_time and not limit.was_reached
    assert limited.n_iter_ == fast.n_iter_ and limited.score(X, y) == fast.score(X, y)


@pytest.mark.parametrize("ends_at", [2, 60])
def test_interrupted_training_keeps_the_better_model(ends_at):
    """A training on all rows that has hardly begun has a higher loss than a hold-out fit."""

    def interrupt(model, epoch, log):
        if epoch == ends_at:
            raise KeyboardInterrupt

    rng = np.random.default_rng(0)
    X = rng.random((4000, 3))
    y = np.sin(9 * X).sum(axis=1)
    options = {"random_state": 0, "on_interrupt": "keep", "max_leaves": 4}
    with pytest.warns(UserWarning, match="interrupted"):
        model = PolyleafRegressor(**options).fit(X[:3000], y[:3000], callbacks=[interrupt])
    assert model.score(X[3000:], y[3000:]) > 0.99
    assert model.n_iter_ > 100
    short = PolyleafRegressor(n_estimators=3, **options).fit(X[:3000], y[:3000])
    assert short.score(X[3000:], y[3000:]) < 0.5


@pytest.mark.parametrize(
    ("n", "is_done"), [(9, False), (10, True), (10_001, True), (10**6, True), (10**6 + 1, False)]
)
def test_range_of_rows(n, is_done):
    assert auto_rounds.finds_rounds(n) == is_done


def test_maximum_of_rounds_falls_with_rate_and_cells():
    assert auto_rounds.max_rounds(0.1, 8_000_000) == auto_rounds.max_rounds(0.1) == 3_000
    assert auto_rounds.max_rounds(0.05) == 6_000
    assert auto_rounds.max_rounds(0.1, 25_000_000) == 1_000
    assert auto_rounds.max_rounds(0.1, 10**9) == DEFAULT_N_ESTIMATORS


def test_hold_outs_are_repeated_where_few_rows_carry_the_loss(monkeypatch):
    """Check that the number of rounds of heavy-tailed targets depends less on the seed."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((800, 4))
    y = np.exp(1.5 * X[:, 0] + X[:, 1] * (X[:, 2] > 0) + 0.3 * rng.standard_normal(800))
    spread = {}
    for n_hold_outs in (5, 1):
        monkeypatch.setattr(auto_rounds, "N_HOLD_OUTS", n_hold_outs)
        models = [PolyleafRegressor(random_state=seed).fit(X, y) for seed in range(6)]
        spread[n_hold_outs] = np.std(np.log([model.n_iter_ for model in models]))
    assert spread[5] < 0.8 * spread[1]


def test_custom_objective_needs_a_metric():
    X, Y = noise()
    y = np.exp(Y[:, 0] / 4)

    def poisson(y_true, raw):
        return np.exp(raw) - y_true, np.exp(raw)

    def deviance(y_true, raw):
        return float(np.mean(np.exp(raw) - y_true * raw))

    with pytest.warns(UserWarning, match="eval_metric"):
        plain = PolyleafRegressor(objective=poisson, max_leaves=4).fit(X, y)
    assert plain.n_iter_ == DEFAULT_N_ESTIMATORS
    found = PolyleafRegressor(objective=poisson, eval_metric=deviance, max_leaves=4).fit(X, y)
    assert found.n_iter_ < DEFAULT_N_ESTIMATORS


@pytest.mark.parametrize("n_labels", [1, 2])
@pytest.mark.parametrize("kind", ["class_weight", "scale_pos_weight", "sample_weight"])
def test_held_out_rows_weigh_as_training_rows(kind, n_labels, monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((400, 6))
    y = (X[:, :n_labels] + rng.standard_normal((400, n_labels)) > 1).astype(int)
    weight = np.where(y == 1, 8.0, 1.0)
    if n_labels == 1:
        y, weight = y[:, 0], weight[:, 0]
    per_class = {0: 1, 1: 8}
    parameters, fit = {
        "class_weight": (
            {"class_weight": per_class if n_labels == 1 else [per_class] * n_labels},
            {},
        ),
        "scale_pos_weight": ({"scale_pos_weight": 8.0}, {}),
        "sample_weight": ({}, {"sample_weight": weight}),
    }[kind]
    weights = []
    boost = hold_out_search.boost
    monkeypatch.setattr(
        hold_out_search,
        "boost",
        lambda run, *a: weights.append(run.eval_sets[0].rows.weight) or boost(run, *a),
    )
    PolyleafClassifier(quality="fast", random_state=0, **parameters).fit(X, y, **fit)
    classes = y if n_labels == 1 else None
    held = [rows for _, rows in SplitRules().iter_cross_fits(400, 5, 0, classes)]
    for found, rows in zip(weights, held, strict=True):
        np.testing.assert_array_equal(found.reshape(weight[rows].shape), weight[rows])


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


def test_hold_out_without_weight_uses_the_default_rounds(monkeypatch):
    X, Y = noise(60)
    weight = np.ones(60)
    weight[split_rows_stratified(60, auto_rounds.HELD_OUT, 0, None)[1]] = 0
    monkeypatch.setattr(auto_rounds, "N_HOLD_OUTS", 1)
    assert (
        PolyleafRegressor(random_state=0, max_depth=1).fit(X, Y, weight).n_iter_
        == DEFAULT_N_ESTIMATORS
    )


@pytest.mark.parametrize("mode", ["keep", "raise"])
def test_interruption_keeps_trained_rounds(mode, monkeypatch):
    class Impatient(hold_out_search._HoldOutStopper):
        def after_iteration(self, model, epoch, evals_log):
            if epoch == 4:
                raise KeyboardInterrupt
            return False

    monkeypatch.setattr(hold_out_search, "_HoldOutStopper", Impatient)
    X, Y = noise()
    model = PolyleafRegressor(on_interrupt=mode)
    if mode == "keep":
        with pytest.warns(UserWarning, match="interrupted"):
            model.fit(X, Y)
    else:
        with pytest.raises(KeyboardInterrupt, match="complete rounds are kept"):
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
    few = memory_estimate(10_000, 5, 3), memory_estimate(10_000, 5, 3, n_estimators=3000)
    assert few[0] == few[1] > memory_estimate(10_000, 5, 3, n_estimators=300)
    many = memory_estimate(10**6, 50, 3), memory_estimate(10**6, 50, 3, n_estimators=300)
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


def test_more_rows_do_not_make_the_model_worse():
    """Check the rows around the former limit of the search, where a tenth of the rows is noise."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((24_000, 4)).astype(np.float32)
    signal = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2]
    y = signal + 3 * rng.standard_normal(24_000)
    errors = []
    for n in (2_500, 9_999, 10_001, 20_000):
        model = PolyleafRegressor(random_state=0, max_leaves=15).fit(X[:n], y[:n])
        errors.append(np.mean((model.predict(X[20_000:]) - signal[20_000:]) ** 2))
    assert errors[1] < errors[0] and errors[3] < errors[1]
    assert abs(errors[2] / errors[1] - 1) < 0.2
