"""A training that is interrupted at any round and continued equals the whole training, byte for
byte."""

import json

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from sklearn.base import clone
from support.configurations import draw_configuration
from support.distributed_fits import fit_on_threads

from polyleaf import (
    PolyleafClassifier,
    PolyleafMultiTask,
    PolyleafRanker,
    PolyleafRegressor,
    load_model,
)
from polyleaf.callbacks import Checkpoint, EarlyStopping, LearningRateScheduler
from polyleaf.model import Model

RNG = np.random.default_rng(3)
X, X_VALID = RNG.standard_normal((2, 300, 4))
Y, Y_VALID = (x[:, 0] + 0.3 * RNG.standard_normal(300) for x in (X, X_VALID))
# Blocks of seeds: the first in the fast tier, the others in the full one.
SEEDS = [
    range(12),
    *(pytest.param(range(i, i + 200), marks=pytest.mark.full) for i in range(12, 812, 200)),
]
VALID = {"eval_set": [(X_VALID, Y_VALID)]}


def regressor(n_estimators=100, **parameters):
    options = {"learning_rate": 0.2, "max_leaves": 6, "random_state": 0, "n_jobs": 1}
    return PolyleafRegressor(n_estimators=n_estimators, **options | parameters)


def remove_parameters(model):
    """Return the bytes of a model without version and parameters, which differ in rounds."""
    data = model.to_bytes()
    size = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(json.loads(data[8:size])["__metadata__"]["polyleaf-model"])
    del header["polyleaf_version"], header["checksum"], header["model"]["metadata"]["parameters"]
    return json.dumps(header, sort_keys=True), data[size:]


def assert_same(first, second):
    assert first.n_iter_ == second.n_iter_
    assert remove_parameters(first.model_) == remove_parameters(second.model_)


@pytest.mark.parametrize("sampling", [{}, {"colsample_bynode": 1.0}])
def test_rounds_without_a_split_are_counted(sampling):
    """Check the end of growth: after one round, or after ten if rows are sampled."""
    parameters = {"min_split_gain": 0.01, "learning_rate": 0.1} | sampling
    whole = regressor(300, **parameters).fit(X, Y)
    n = whole.n_iter_
    assert 10 < n < 300
    for cut in (n - 11, n - 8, n - 1, n, 300):
        part = regressor(cut, **parameters).fit(X, Y)
        for _ in range(2):
            part = regressor(max(1, 300 - cut), **parameters).fit(X, Y, init_model=part)
            assert_same(part, whole)


@pytest.mark.parametrize("layers", [{}, {"boosting_step": "layer", "grow_policy": "depthwise"}])
def test_early_stopping_continues(layers, tmp_path):
    parameters = {"early_stopping_rounds": 7, "max_depth": 3} | layers
    saved = Checkpoint(tmp_path, interval=1, keep=None)
    whole = regressor(**parameters).fit(X, Y, **VALID, callbacks=[saved])
    best, n = whole.best_iteration_, len(list(tmp_path.iterdir()))
    assert 5 < best and n == best + 8
    for cut in (1, best, best + 1, best + 2, n):
        path = tmp_path / f"checkpoint_{cut}.polyleaf"
        rest = regressor(**parameters).fit(X, Y, **VALID, init_model=path)
        assert_same(rest, whole)
        warm = regressor(cut, warm_start=True, **parameters).fit(X, Y, **VALID)
        assert_same(warm.set_params(n_estimators=100).fit(X, Y, **VALID), whole)


class Crash(Exception):
    pass


def crash(model, epoch, evals_log):
    if epoch == 17:
        raise Crash


@pytest.mark.parametrize("stopping", [{}, {"early_stopping_rounds": 7}])
def test_the_same_call_resumes_a_training_that_crashed(stopping, tmp_path):
    parameters = {"n_estimators": 60, "subsample": 0.7} | stopping
    saved = Checkpoint(tmp_path, interval=5, resume=True)
    with pytest.raises(Crash):
        regressor(**parameters).fit(X, Y, **VALID, callbacks=[saved, crash])
    assert Checkpoint.latest(tmp_path).name == "checkpoint_15.polyleaf"
    whole = regressor(**parameters).fit(X, Y, **VALID)
    resumed = regressor(**parameters).fit(X, Y, **VALID, callbacks=[saved])
    assert resumed.model_.to_bytes() == whole.model_.to_bytes()
    n = resumed.n_iter_
    again = regressor(**parameters).fit(X, Y, **VALID, callbacks=[saved])
    assert again.n_iter_ == n and again.model_.to_bytes() == whole.model_.to_bytes()


def test_what_a_checkpoint_cannot_resume_is_refused(tmp_path):
    saved = Checkpoint(tmp_path, resume=True)
    regressor(20).fit(X, Y, callbacks=[saved])
    for other, message in (
        ({"learning_rate": 0.3, "max_leaves": 9}, "another learning_rate, max_leaves.*delete it"),
        ({"n_estimators": 10}, "n_estimators=10 is less than the 20 rounds"),
        ({"n_estimators": None}, "needs n_estimators"),
    ):
        with pytest.raises(ValueError, match=message):
            regressor(**other).fit(X, Y, callbacks=[saved])
    with pytest.raises(ValueError, match="leave init_model out"):
        regressor().fit(X, Y, callbacks=[saved], init_model=regressor(3).fit(X, Y))


def test_best_layer_is_found_again(tmp_path):
    """Check a training whose best metric is inside a tree, which its model does not store."""
    saved = Checkpoint(tmp_path, interval=1, keep=None)
    parameters = {"boosting_step": "layer", "grow_policy": "depthwise", "max_depth": 3}
    parameters |= {"early_stopping_rounds": 3, "learning_rate": 0.9}
    whole = regressor(**parameters).fit(X, Y, **VALID, callbacks=[saved])
    best, last = whole.best_iteration_, Checkpoint.latest(tmp_path)
    full = Model.load(tmp_path / f"checkpoint_{best + 1}.polyleaf").forest.tree(best)
    assert whole.model_.forest.tree(best).n_leaves < full.n_leaves
    for start in (whole, tmp_path / f"checkpoint_{best + 1}.polyleaf", last):
        assert_same(regressor(**parameters).fit(X, Y, **VALID, init_model=start), whole)


def test_early_stopping_restarts_with_other_sets_or_parameters():
    start = regressor(early_stopping_rounds=3).fit(X, Y, **VALID)
    same = regressor(early_stopping_rounds=3).fit(X, Y, **VALID, init_model=start)
    assert same.n_iter_ == start.n_iter_ < 100
    other = {"eval_set": [(X_VALID, Y_VALID + 1.0)]}
    later = regressor(early_stopping_rounds=3).fit(X, Y + 1.0, **other, init_model=start)
    assert later.n_iter_ > start.n_iter_ and later.best_iteration_ >= start.n_iter_
    slower = regressor(early_stopping_rounds=3, learning_rate=0.01)
    assert slower.fit(X, Y, **VALID, init_model=start).n_iter_ > start.n_iter_
    ended = regressor(min_split_gain=1000.0).fit(X, Y)
    assert ended.n_iter_ == 10
    assert regressor(5, min_split_gain=0.0).fit(X, Y, init_model=ended).n_iter_ == 15
    shifted = regressor(5, min_split_gain=1000.0).fit(X, Y + 1, init_model=ended)
    assert shifted.n_iter_ == 15


def test_checkpoints_store_their_best_round(tmp_path):
    saved = Checkpoint(tmp_path, interval=1, keep=None)
    model = regressor(6, early_stopping_rounds=3).fit(X, Y, **VALID, callbacks=[saved])
    assert model.best_iteration_ == 5
    for n in range(1, 7):
        assert Model.load(tmp_path / f"checkpoint_{n}.polyleaf").best_iteration == n - 1


def test_a_constant_learning_rate_follows_others():
    changing = regressor(2).fit(X, Y, callbacks=[LearningRateScheduler([0.3, 0.1])])
    rest = regressor(2, learning_rate=0.1).fit(X, Y, init_model=changing)
    assert rest.model_.metadata["learning_rates"] == [0.3, 0.1, 0.1, 0.1]
    # Rates of rounds that were removed do not come back.
    changing.model_.truncate(1)
    changing.model_.learning_rate = 0.3
    rest = regressor(2, learning_rate=0.3).fit(X, Y, init_model=changing)
    assert "learning_rates" not in rest.model_.metadata


@pytest.mark.parametrize(
    ("cls", "arguments"),
    [
        (PolyleafRegressor, {}),
        (PolyleafClassifier, {}),
        (PolyleafRanker, {"qid": np.arange(120) // 8}),
        (PolyleafMultiTask, {}),
    ],
)
def test_training_that_goes_on_follows_its_rule_for_missing_targets(cls, arguments):
    X = np.random.default_rng(3).normal(size=(120, 4))
    y = X[:, :2].round(1) if cls is PolyleafRegressor else (X[:, :2] > 0).astype(float)
    missing = y.copy()
    missing[::3, 0] = np.nan
    if cls is PolyleafMultiTask:
        y, missing = ({"a": X[:, 2], "b": Y[:, 0], "c": X[:, 0] > 0} for Y in (y, missing))
        missing["a"] = np.where(X[:, 1] > 0, X[:, 2], np.nan)
    strict, ignoring = (cls(n_estimators=3, missing_targets=m) for m in ("error", "ignore"))
    raw = []
    for first in (strict, ignoring):
        old = clone(first).fit(X, y, **arguments)
        model = clone(ignoring).fit(X, missing, init_model=old, **arguments)
        raw.append(model.model_.predict_raw(X))
    np.testing.assert_array_equal(*raw)
    for first in (strict, ignoring):
        old = clone(first).fit(X, y, **arguments)
        with pytest.raises(ValueError, match="NaN"):
            clone(strict).fit(X, missing, init_model=old, **arguments)


def test_calibration_repeats_the_learning_rate_of_each_round(tmp_path):
    parameters = {"objective": "quantile", "quantile_alpha": [0.1, 0.9]}
    schedule = LearningRateScheduler(lambda epoch: 0.5 / (1 + epoch))
    saved = Checkpoint(tmp_path, interval=5, keep=None)
    whole = regressor(9, **parameters).fit(X, Y, callbacks=[saved, schedule])
    start = tmp_path / "checkpoint_5.polyleaf"
    rest = regressor(4, **parameters).fit(X, Y, callbacks=[schedule], init_model=start)
    assert_same(rest, whole)
    np.testing.assert_array_equal(rest.predict(X), whole.predict(X))
    rates = whole.model_.metadata["learning_rates"]
    np.testing.assert_allclose(rates, 0.5 / np.arange(1, 10))
    for wrong in ("x", [0.1], ["a"] * 9, {"a": 1}):
        whole.model_.metadata["learning_rates"] = wrong
        regressor(1, **parameters).fit(X, Y, init_model=load_model(whole.save_model()))


def test_files_have_the_parameters_of_the_last_fit():
    model = regressor(3, warm_start=True).fit(X, Y)
    model.set_params(n_estimators=5).fit(X, Y)
    assert load_model(model.save_model()).set_params(n_estimators=6).fit(X, Y).n_iter_ == 6
    assert load_model(model.save_model()).n_estimators == 5


def test_full_disk_does_not_end_the_training(tmp_path, monkeypatch):
    def fail(*given, **more):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Model, "save", fail)
    with pytest.warns(UserWarning, match=r"checkpoint_4.polyleaf.*No space left.*Training goes on"):
        model = regressor(6).fit(X, Y, callbacks=[Checkpoint(tmp_path, interval=2)])
    assert model.n_iter_ == 6


def test_thresholds_are_chosen_as_in_the_whole_training():
    y = (Y > 0.7).astype(int)
    parameters = {"threshold": "f1", "n_jobs": 1, "subsample": 0.5}
    whole = PolyleafClassifier(n_estimators=8, **parameters).fit(X, y)
    part = PolyleafClassifier(n_estimators=3, **parameters).fit(X, y)
    rest = PolyleafClassifier(n_estimators=5, **parameters).fit(X, y, init_model=part)
    assert_same(rest, whole)
    assert whole.thresholds_[0] != 0.5


def test_early_stopping_callback_continues():
    def fit(n, **given):
        stopper = EarlyStopping(5, save_best=True, min_delta=0.001)
        return regressor(n).fit(X, Y, **VALID, callbacks=[stopper], **given)

    whole = fit(100)
    assert whole.n_iter_ == whole.best_iteration_ + 1 < 95
    assert_same(fit(100, init_model=fit(whole.n_iter_ - 3)), whole)
    assert_same(fit(100, init_model=whole), whole)


# --- random configurations ---


def make_fit(seed):
    """Return a function that fits a random configuration, and the rounds of the whole training."""
    c, rng = draw_configuration(seed), np.random.default_rng(seed)
    n_rounds = int(rng.integers(4, 20))
    parameters = c.parameters | {"n_estimators": n_rounds}
    if rng.random() < 0.5:  # rounds without a split
        parameters |= {"min_split_gain": float(rng.choice([0.03, 0.3, 3.0, 100.0]))}
    if c.kind == "values" and c.objective == "quantile":
        parameters["calibrate_quantiles"] = bool(rng.random() < 0.3)
    if c.kind != "values" and c.n_targets == 1 and c.objective == "logistic":
        parameters["threshold"] = str(rng.choice(["f1", "f1_macro"]))
    stops, callbacks = rng.random() < 0.5, []
    if c.kind == "classes" and len(np.unique(c.y[:-50])) < len(np.unique(c.y)):
        stops = False
    n = len(c.X) - 50 * stops
    train, valid = c.take(np.arange(n)), c.take(np.arange(len(c.X) - 50, len(c.X)))
    if c.kind != "values":
        known = np.isin(valid.y.reshape(50, -1), np.unique(train.y)).all(axis=1)
        valid = valid.take(np.flatnonzero(known))
    given = {"offset": train.offset, "sample_weight": train.weight}
    if stops:
        callbacks.append(EarlyStopping(int(rng.integers(1, 6)), save_best=bool(rng.random() < 0.3)))
        given |= {
            "eval_set": [(valid.X, valid.y)],
            "eval_sample_weight": [valid.weight],
            "eval_offset": None if valid.offset is None else [valid.offset],
        }
    if rng.random() < 0.2:
        callbacks.append(LearningRateScheduler(lambda epoch: 0.4 / (1 + epoch)))
    estimator = PolyleafRegressor if c.kind == "values" else PolyleafClassifier

    def fit(n_estimators=n_rounds, model=None, more=(), init_model=None, **changed):
        model = estimator(**parameters | changed) if model is None else model
        model.set_params(n_estimators=n_estimators)
        return model.fit(
            train.X, train.y, callbacks=[*more, *callbacks], init_model=init_model, **given
        )

    return fit, n_rounds, rng


def continue_fit(seed, directory):
    """Return the whole training and a continued one."""
    fit, n_rounds, rng = make_fit(seed)
    how = rng.choice(["checkpoint", "warm start", "init_model"])
    saved = [Checkpoint(directory, interval=1, keep=None)] if how == "checkpoint" else []
    whole = fit(more=saved)
    n_trained = len(list(directory.glob("*.polyleaf"))) if saved else whole.n_iter_
    cut = int(rng.integers(1, max(2, min(n_trained, n_rounds - 1) + 1)))
    if how == "warm start":
        part = fit(cut, warm_start=True)
        return whole, fit(n_rounds, part)
    start = directory / f"checkpoint_{cut}.polyleaf" if saved else fit(cut).model_
    n_done = cut if saved else start.n_rounds
    return whole, fit(n_rounds - n_done, init_model=start)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seeds", SEEDS)
def test_continued_training_equals_uninterrupted_training(seeds, tmp_path):
    different = {}
    for seed in seeds:
        directory = tmp_path / str(seed)
        directory.mkdir()
        whole, continued = continue_fit(seed, directory)
        if remove_parameters(whole.model_) != remove_parameters(continued.model_):
            different[seed] = whole.n_iter_, continued.n_iter_
    assert different == {}


# --- other estimators and targets ---

FRAME = pd.DataFrame(X, columns=[*"abcd"]).assign(
    c=pd.Categorical([f"k{i}" for i in np.random.default_rng(1).integers(0, 280, 300)])
)
COUNTS = np.random.default_rng(2).poisson(np.exp(0.5 * X[:, 0])).astype(float)
LABELS = scipy.sparse.csr_matrix((np.random.default_rng(3).random((300, 40)) < 0.08).astype(float))
SKETCH = {"sketch": "random_projection", "sketch_dim": 2}
INTERVAL = {"objective": "quantile", "quantile_alpha": [0.1, 0.9]}
LEML = {"projection": "leml", "projection_dim": 3}
HELD_OUT = {"validation_fraction": 0.3, "early_stopping_rounds": 4}
LAYERS = {"boosting_step": "layer", "grow_policy": "depthwise", "max_depth": 3}
SPARSE = {"leaf": "sparse", "leaf_k": 3, "sampling_method": "goss"}


def tasks(**parameters):
    return PolyleafMultiTask({"a": "quantile", "b": "softmax"}, **parameters)


@pytest.mark.parametrize(
    ("estimator", "X", "y", "parameters", "given"),
    [
        (tasks, X, {"a": Y, "b": np.digitize(X[:, 1], [-0.5, 0.5])}, {}, {}),
        (PolyleafRegressor, FRAME, Y, INTERVAL, {}),
        (PolyleafRegressor, FRAME, Y, HELD_OUT, {}),
        (PolyleafRegressor, X, Y, INTERVAL | LEML, {}),
        (PolyleafRegressor, X, np.stack([Y] * 3, axis=1), {"objective": "normal"}, {}),
        (PolyleafRegressor, X, np.stack([Y] * 3, axis=1), SKETCH, {"offset": X[:, :3]}),
        (PolyleafClassifier, X, (Y > 0).astype(int), LEML | {"threshold": "f1"}, {}),
        (PolyleafRegressor, X, Y, INTERVAL | HELD_OUT | LAYERS, {"time": np.arange(300)}),
        (PolyleafRegressor, X, COUNTS, {"objective": "poisson"}, {"offset": 0.3 * X[:, 2]}),
        (PolyleafClassifier, X, LABELS, SPARSE | {"split_search": "exact"}, {}),
    ],
)
def test_continued_training_of_other_estimators_and_targets(
    estimator, X, y, parameters, given, tmp_path
):
    parameters = parameters | {"learning_rate": 0.3, "min_split_gain": 0.05, "n_jobs": 1}
    saved = Checkpoint(tmp_path, interval=1, keep=None)
    whole = estimator(n_estimators=9, **parameters).fit(X, y, callbacks=[saved], **given)
    cut = max(1, len(list(tmp_path.iterdir())) - 3)
    start = tmp_path / f"checkpoint_{cut}.polyleaf"
    rest = estimator(n_estimators=9 - cut, **parameters).fit(X, y, init_model=start, **given)
    assert_same(rest, whole)
    warm = estimator(n_estimators=cut, warm_start=True, **parameters).fit(X, y, **given)
    assert_same(warm.set_params(n_estimators=9).fit(X, y, **given), whole)


def test_continued_distributed_training():
    parameters = {"min_split_gain": 0.01, "learning_rate": 0.1}
    whole = regressor(300, **parameters).fit(X, Y)
    n = whole.n_iter_
    for cut in (n - 3, n):
        part = regressor(cut, **parameters).fit(X, Y)
        for fitted in fit_on_threads(regressor(300, **parameters), X, Y, 2, init_model=part):
            assert_same(fitted, whole)


@pytest.mark.parametrize(
    ("objectives", "counts"),
    [
        (("squared_error", "absolute_error"), False),
        (("huber", "squared_error"), False),
        (("poisson", "tweedie"), True),
    ],
)
def test_objectives_with_the_same_link_continue(objectives, counts):
    y = np.abs(np.round(Y)) if counts else Y
    start = regressor(5, objective=objectives[0]).fit(X, y)
    model = regressor(4, objective=objectives[1], learning_rate=0.3).fit(X, y, init_model=start)
    assert model.n_iter_ == 9 and model.model_.objective.name == objectives[1]
    assert model.model_[:5].trees[4].leaves.tobytes() == start.model_.trees[4].leaves.tobytes()
    first = model.model_.predict_raw(X, 0, 5)
    np.testing.assert_array_equal(first, start.model_.predict_raw(X))
    again = PolyleafRegressor.load_model(model.save_model())
    np.testing.assert_array_equal(again.predict(X), model.predict(X))


def test_objectives_with_another_link_do_not_continue():
    start = regressor(2, objective="poisson").fit(X, np.abs(Y))
    with pytest.raises(ValueError, match="its raw scores mean something else to SquaredError"):
        regressor(2).fit(X, np.abs(Y), init_model=start)
    levels = {"objective": "quantile", "quantile_alpha": [0.1, 0.9]}
    start = regressor(2, **levels).fit(X, Y)
    levels["quantile_alpha"] = [0.1, 0.5, 0.9]
    with pytest.raises(ValueError, match="mean something else"):
        regressor(2, **levels).fit(X, Y, init_model=start)
