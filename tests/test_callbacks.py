"""Callbacks without training: the tests call each hook as the boosting loop does."""

import math
import sys
from pathlib import Path

import pytest

from polyleaf.callbacks import (
    Callback,
    Checkpoint,
    EarlyStopping,
    EvaluationMonitor,
    LearningRateScheduler,
    ProgressBar,
    TimeLimit,
)
from polyleaf.training.fit import as_callbacks


class FakeModel:
    """The part of a model that callbacks use."""

    learning_rate = 0.1
    best_iteration = None
    best_score = None
    rounds = None

    def truncate(self, n_rounds):
        self.rounds = n_rounds

    def save(self, path):
        Path(path).write_text("model")


def drive(callbacks, values, first=0, data="valid", metric="loss"):
    """Call the hooks for each metric value; return (model, number of rounds done)."""
    model, log = FakeModel(), {data: {metric: []}}
    callbacks = as_callbacks(callbacks)
    for callback in callbacks:
        callback.before_training(model)
    done = 0
    for epoch, value in enumerate(values, start=first):
        if any([callback.before_iteration(model, epoch, log) for callback in callbacks]):
            break
        log[data][metric].append(value)
        done += 1
        if any([callback.after_iteration(model, epoch, log) for callback in callbacks]):
            break
    for callback in callbacks:
        callback.after_training(model)
    return model, done


@pytest.mark.parametrize(
    ("options", "values", "first", "best", "done"),
    [
        ({"rounds": 3}, [5, 4, 3, 3, 3.5, 3.2, 1], 0, (2, 3.0, None), 6),
        ({"rounds": 2, "maximize": True}, [0.5, 0.7, 0.6, 0.65, 0.9], 0, (1, 0.7, None), 4),
        ({"rounds": 2, "min_delta": 0.5}, [3, 2.8, 2.6, 2.4], 0, (0, 3.0, None), 3),
        ({"rounds": 2}, [3, 2, 2, 2, 2], 40, (41, 2.0, None), 4),  # continued training
        ({"rounds": 2, "save_best": True}, [3, 2, 2, 2], 0, (1, 2.0, 2), 4),
    ],
    ids=str,
)
def test_early_stopping_ends_after_rounds_without_improvement(options, values, first, best, done):
    model, n_done = drive(EarlyStopping(**{"maximize": False} | options), values, first)
    assert (model.best_iteration, model.best_score, model.rounds) == best
    assert n_done == done


def test_early_stopping_on_nan_warns_and_does_not_stop():
    with pytest.warns(UserWarning, match="'loss' was NaN or infinite in every round"):
        model, done = drive(EarlyStopping(3, maximize=False), [math.nan] * 10)
    assert (model.best_iteration, done) == (None, 10)


def test_nan_is_no_improvement_for_early_stopping():
    values = [math.nan] * 5 + [2.0, math.nan, 1.0] + [math.nan] * 9
    model, done = drive(EarlyStopping(3, maximize=False), values)
    assert (model.best_iteration, done) == (7, 11)


def test_early_stopping_callback_can_be_reused():
    stopper = EarlyStopping(2, maximize=False)
    assert drive(stopper, [1, 2, 3])[1] == 3
    assert drive(stopper, [9, 8, 7, 6])[1] == 4


def test_early_stopping_on_a_named_metric_and_set():
    stopper = EarlyStopping(1, metric_name="a", data_name="train", maximize=False)
    stopper.before_training(FakeModel())
    log = {"train": {"a": [1.0, 2.0], "b": [2.0, 1.0]}, "valid": {"a": [2.0, 1.0]}}
    stopper.after_iteration(FakeModel(), 0, {"train": {"a": [1.0]}, "valid": {"a": [2.0]}})
    assert stopper.after_iteration(FakeModel(), 1, log)


@pytest.mark.parametrize(
    ("stopper", "log", "match"),
    [
        (EarlyStopping(1), {}, "eval_set"),
        (EarlyStopping(1, data_name="x"), {"valid": {"rmse": [1.0]}}, "'valid'; got 'x'"),
        (EarlyStopping(1, metric_name="x"), {"valid": {"rmse": [1.0]}}, "'rmse'; got 'x'"),
        (EarlyStopping(1), {"valid": {"mine": [1.0]}}, "maximize=True"),
    ],
)
def test_early_stopping_without_its_metric_raises(stopper, log, match):
    stopper.before_training(FakeModel())
    with pytest.raises(ValueError, match=match):
        stopper.after_iteration(FakeModel(), 0, log)


@pytest.mark.parametrize(("metric", "sign"), [("rmse", -1), ("accuracy", 1)])
def test_early_stopping_uses_the_direction_of_metrics(metric, sign):
    values = [sign * value for value in (1.0, 2.0, 3.0)]
    assert drive(EarlyStopping(1), values, metric=metric)[0].best_iteration == 2


def test_monitor_prints_each_period_and_the_last_round():
    lines = []
    drive(EvaluationMonitor(period=2, logger=lines.append), [3.0, 2.0, 1.0, 0.5])
    shown = {0: "3.00000", 2: "1.00000", 3: "0.50000"}
    assert lines == [f"[{epoch}]\tvalid-loss:{value}" for epoch, value in shown.items()]


def test_learning_rate_schedules():
    seen = []

    class Watch(Callback):
        def after_iteration(self, model, epoch, evals_log):
            seen.append(model.learning_rate)

    drive([LearningRateScheduler(lambda epoch: 1 / (epoch + 1)), Watch()], [0] * 3)
    drive([LearningRateScheduler([0.3, 0.2]), Watch()], [0] * 3)
    assert seen == [1, 1 / 2, 1 / 3, 0.3, 0.2, 0.2]


@pytest.mark.parametrize("rate", [0.0, -1.0, math.nan, math.inf])
def test_invalid_learning_rates_raise(rate):
    with pytest.raises(ValueError, match="round 0"):
        drive(LearningRateScheduler([rate]), [0])


def test_number_of_checkpoints_is_limited(tmp_path):
    folder = tmp_path / "new" / "folder"
    drive(Checkpoint(folder, interval=4, keep=2), [0] * 11)
    names = sorted(path.name for path in folder.iterdir())
    assert names == ["checkpoint_11.polyleaf", "checkpoint_8.polyleaf"]
    assert Checkpoint.latest(folder).name == "checkpoint_11.polyleaf"
    drive(Checkpoint(folder, interval=100, keep=None), [0] * 90, first=11)
    assert Checkpoint.latest(folder).name == "checkpoint_101.polyleaf"
    assert len(list(folder.iterdir())) == 4


def test_latest_checkpoint_of_an_empty_folder(tmp_path):
    assert Checkpoint.latest(tmp_path) is None
    (tmp_path / "other_3.polyleaf").touch()
    assert Checkpoint.latest(tmp_path) is None


def test_training_without_rounds_saves_no_checkpoint(tmp_path):
    drive(Checkpoint(tmp_path), [])
    assert list(tmp_path.iterdir()) == []


def test_progress_bar_without_terminal_prints_nothing(capsys):
    drive(ProgressBar(total=3), [1.0, 2.0, 3.0])
    out, err = capsys.readouterr()
    assert out == err == ""


def test_forced_progress_bar_writes_lines(capsys):
    drive(ProgressBar(total=20, force=True), [1.0] * 20)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 10
    assert lines[-1] == "round 20/20  valid-loss:1.00000"


@pytest.mark.parametrize(("options", "is_shown"), [({}, True), ({"delay": 3600}, False)])
def test_progress_bar_of_long_training_on_a_terminal(options, is_shown, monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    bar = ProgressBar(total=3, **options)
    drive(bar, [1.0, 2.0, 3.0])
    assert (bar._task is not None) == is_shown and bar._bar is None


def test_functions_are_callbacks():
    seen = []
    _, done = drive(lambda model, epoch, log: seen.append(epoch) or epoch == 2, [0] * 9)
    assert seen == [0, 1, 2] and done == 3


@pytest.mark.parametrize(
    "function", [lambda env: None, lambda: True, lambda model, epoch, log, more: True]
)
def test_functions_of_other_signatures_raise(function):
    with pytest.raises(TypeError, match=r"\(model, epoch, evals_log\), and ends .* <lambda>"):
        as_callbacks([function])
    functions = [lambda *arguments: None, lambda model, epoch, log, more=1: None, print]
    assert len(as_callbacks(functions)) == 3


def test_objects_with_the_four_hooks_are_callbacks():
    """Callbacks of XGBoost need not inherit from ours."""

    class Foreign:
        def before_training(self, model):
            return model

        after_training = before_training

        def before_iteration(self, model, epoch, evals_log):
            return epoch == 1

        def after_iteration(self, model, epoch, evals_log):
            return False

    assert drive([Foreign()], [0] * 5)[1] == 1


@pytest.mark.parametrize(
    ("callbacks", "match"),
    [(3, "list of callbacks"), ([3], "got int"), ([EarlyStopping], r"write EarlyStopping\(")],
)
def test_invalid_callbacks_raise(callbacks, match):
    with pytest.raises(TypeError, match=match):
        as_callbacks(callbacks)


@pytest.mark.parametrize(
    "make",
    [
        lambda: EarlyStopping(0),
        lambda: EarlyStopping(1, min_delta=-1),
        lambda: EvaluationMonitor(0),
        lambda: LearningRateScheduler([]),
        lambda: Checkpoint("x", interval=0),
        lambda: Checkpoint("x", keep=0),
    ],
)
def test_invalid_arguments_raise(make):
    with pytest.raises(ValueError, match="needs"):
        make()


def test_temporary_files_of_a_killed_training_are_removed(tmp_path):
    stale = [".checkpoint_100.polyleaf.0123456789ab.tmp", ".checkpoint_7.polyleaf.ffffffffffff.tmp"]
    others = [
        ".mine_100.polyleaf.0123456789ab.tmp",
        ".checkpoint_100.polyleaf.0123456789AB.tmp",
        ".checkpoint_best.polyleaf.0123456789ab.tmp",
        "checkpoint_3.polyleaf",
        ".checkpoint_100.polyleaf.tmp",
    ]
    for name in stale + others:
        (tmp_path / name).write_text("half a model")
    drive(Checkpoint(tmp_path), [])
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(others)


class Clock:
    """A clock that advances by the given seconds in each round."""

    def __init__(self, *rounds):
        self.now, self.rounds = 100.0, list(rounds)

    def __call__(self):
        return self.now

    def after_iteration(self, model, epoch, evals_log):
        self.now += self.rounds[epoch % len(self.rounds)]


class Passing(Callback):
    """Advance the clock by a round before the time limit is checked."""

    def __init__(self, clock):
        self.after_iteration = clock.after_iteration


@pytest.mark.parametrize(
    ("seconds", "rounds", "done"),
    [
        (10, [1], 10),
        (9.5, [1], 9),
        (0.1, [1], 1),  # one round is always trained
        (10, [1, 5, 1, 1], 2),  # at 6 s, another round of 5 s would end at 11 s
        (100, [1], 20),
        (11, [4, 1, 1, 1], 5),  # at 11 s; the last round took 4 s
    ],
)
def test_time_limit_ends_before_the_round_that_would_exceed_it(seconds, rounds, done):
    clock = Clock(*rounds)
    limit = TimeLimit(seconds, clock)
    assert drive([Passing(clock), limit], [1.0] * 20)[1] == done
    assert limit.was_reached == (done < 20)


def test_time_limit_callback_can_be_reused():
    clock = Clock(1)
    limit = TimeLimit(5, clock)
    assert [drive([Passing(clock), limit], [1.0] * 20, first)[1] for first in (0, 40)] == [5, 5]


def test_invalid_time_limit_raises():
    for seconds in (0, -1, math.nan):
        with pytest.raises(ValueError, match="TimeLimit needs seconds > 0"):
            TimeLimit(seconds)


@pytest.mark.parametrize(
    "name, arguments, words",
    [
        ("EarlyStopping", {"rounds": 2}, "early_stopping_rounds"),
        ("LearningRateScheduler", {"learning_rates": [0.1]}, "callbacks.LearningRateScheduler"),
        ("TrainingCheckPoint", {"directory": "."}, "callbacks.Checkpoint"),
    ],
)
def test_callbacks_of_xgboost_that_need_its_booster_name_ours(name, arguments, words):
    xgboost = pytest.importorskip("xgboost")
    callback = getattr(xgboost.callback, name)(**arguments)
    with pytest.raises(TypeError, match=words):
        as_callbacks([callback])
