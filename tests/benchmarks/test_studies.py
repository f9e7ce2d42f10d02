"""The studies of scales, intervals, decisions, distributions, tasks, directions and files: what
runs give, on small data, without other libraries.
"""

import json
import signal
from pathlib import Path

import numpy as np
import pytest
from benchmarks import (
    cluster,
    conformal,
    deciding,
    defaults,
    disk,
    distributions,
    faults,
    intervals,
    limits,
    monotone,
    multitask,
    scales,
)
from benchmarks.harness.context import Context

from polyleaf import Dataset, PolyleafRegressor
from polyleaf.distributions import Normal
from polyleaf.estimators.distributed_fit import fit_rank, plan_shared_fit
from polyleaf.runtime.context import Context as TrainContext


@pytest.fixture
def context(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 4)).astype(np.float32)
    y = (X[:, :2] + 0.1 * rng.standard_normal((200, 2))).astype(np.float32)
    for name in ("enb", "rf1"):
        np.savez(tmp_path / f"{name}.npz", X=X, y=y)
    return Context(tmp_path, quick=True)


def test_pairs_of_problems_differ_in_scale_only():
    X, small = scales.pair("shared", 1.0, seed=1, n=50)
    same, large = scales.pair("shared", 1e3, seed=1, n=50)
    np.testing.assert_array_equal(X, same)
    np.testing.assert_allclose(large / [1e3, 1], small, rtol=1e-12)


@pytest.mark.parametrize("method", [defaults.AT_ROUNDS, *defaults.EARLY])
def test_ending_early_is_measured_on_all_rows(context, method):
    figures = defaults.on_all_rows(context, method, "rf1")
    assert len(figures["loss"]) == 2 and max(figures["loss"]) < 1


@pytest.mark.parametrize("problem", ["rf1", "apart 1e3 : 1"])
def test_r2_of_each_target_is_reported(context, problem):
    figures = scales.r2_of_targets(context, "Polyleaf", problem)
    assert set(figures) == {"mean", "least", "0", "1"}
    each = np.array([figures["0"], figures["1"]])
    np.testing.assert_allclose(figures["mean"], each.mean(axis=0))
    np.testing.assert_allclose(figures["least"], each.min(axis=0))
    assert each.shape == (2, 2) and each.mean() > 0.3


def test_coverage_is_that_of_the_outer_levels(context, monkeypatch):
    def knows_all_but_the_lowest(job):
        return lambda X: np.stack([X[:, :2] + bound for bound in (0.0, 0.0, 9.0)], axis=2)

    monkeypatch.setitem(intervals.METHODS, "Polyleaf", knows_all_but_the_lowest)
    figures = intervals.intervals(context, "Polyleaf", "enb 80")
    assert all(30 < coverage < 70 for coverage in figures["coverage"])
    assert len(figures["loss"]) == 2 and min(figures["loss"]) > 0


def test_all_quantile_configurations_run(context):
    for method in ("Polyleaf", "not calibrated"):
        figures = intervals.intervals(context, method, "enb 95")
        assert all(0 <= coverage <= 100 for coverage in figures["coverage"])


@pytest.mark.parametrize("method", conformal.MODELS)
def test_intervals_after_calibration(context, method):
    figures = conformal.conformal(context, method, "enb")
    assert all(len(values) == 2 for values in figures.values())
    for each, worst, all_targets in zip(
        figures["each"], figures["worst"], figures["all"], strict=True
    ):
        assert 0 <= all_targets <= worst <= each <= 100
    if "joint" in method:
        assert min(figures["all"]) > 70
    n_held, n_test = 35, 60  # of 200 rows
    assert figures["error"][0] == pytest.approx(100 * np.sqrt(0.09 * (1 / n_held + 1 / n_test)))


def test_single_target_is_measured_like_several(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 4)).astype(np.float32)
    np.savez(tmp_path / "casp.npz", X=X, y=X[:, 0] + 0.1 * rng.standard_normal(200))
    figures = conformal.conformal(Context(tmp_path, quick=True), "means, each", "casp")
    assert figures["each"] == figures["all"] == figures["worst"] and min(figures["each"]) > 70


def test_the_threshold_is_chosen_on_rows_held_out(context, monkeypatch):
    """A library whose probabilities are a third of what they should be: one half finds nothing."""
    rng = np.random.default_rng(0)
    X = rng.random((400, 3))
    Y = (X > 0.6).astype(int)
    monkeypatch.setattr(defaults, "parts", lambda *_: iter([(X[:200], Y[:200], X[200:], Y[200:])]))
    monkeypatch.setattr(Context, "load", lambda *_: None)
    monkeypatch.setitem(defaults.LIBRARIES, "Polyleaf", lambda job: lambda X: X / 3)
    figures = deciding.deciding(context, "Polyleaf", "emotions")
    assert figures["micro"] == figures["macro"] == [0.0]
    assert figures["chosen_micro"][0] > 0.97 and 0.18 < figures["threshold"][0] < 0.22


def test_labels_are_scored_at_a_chosen_threshold_and_at_one_half(tmp_path, monkeypatch):
    """By a library that says less than it should."""
    rng = np.random.default_rng(0)
    X = rng.random((400, 3)).astype(np.float32)
    np.savez(tmp_path / "emotions.npz", X=X, y=(X > 0.6).astype(np.int8), task="multilabel")
    trained = []

    def third(job):
        trained.append(len(job.X))
        return lambda X: X / 3

    monkeypatch.setitem(defaults.METHODS, "Polyleaf", third)
    monkeypatch.setattr(defaults, "_check_recipe", lambda *_: None)
    figures = defaults.out_of_the_box(Context(tmp_path, quick=True), "Polyleaf", "emotions")
    assert figures["score"] == [0.0, 0.0] and min(figures["chosen"]) > 0.95
    assert all(0.18 < threshold < 0.22 for threshold in figures["threshold"])
    assert trained[1] == trained[0] - round(0.25 * trained[0])
    shown = {
        s.figure
        for table in defaults.PAPER.tables
        for s in table.subjects
        if table.name.startswith("Test score,")
    }
    assert shown == {"score", "chosen"}


def test_background_fit_can_be_interrupted():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # as such a shell does
    try:
        with defaults.Deadline(600.0).interrupting():
            assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_f1_of_labels():
    truth, predicted = np.array([[1, 0, 0], [1, 1, 0]]), np.array([[1, 1, 1], [0, 1, 0]], bool)
    assert defaults.f1(truth, predicted) == (2 * 2 / (3 + 4), pytest.approx((2 / 3 + 2 / 3) / 2))


@pytest.mark.parametrize("method", distributions.OF_ROUNDS)
def test_rounds_of_distributions_are_reported(context, method):
    figures = distributions.rounds(context, method, "enb")
    assert (
        figures["rounds"] == [distributions.QUICK_ROUNDS] * 2 and np.isfinite(figures["nll"]).all()
    )


def test_errors_with_and_without_constraints_are_reported(context):
    figures = monotone.obedience(context, "Polyleaf", "few rows, one")
    ratios = np.divide(figures["error"], figures["free"])
    np.testing.assert_allclose(figures["ratio"], ratios)


@pytest.mark.parametrize("method", ["Polyleaf", "XGBoost's curvature"])
def test_all_distribution_configurations_run(context, method):
    figures = distributions.distributions(context, method, "enb")
    assert set(figures) == {"nll", "crps", "seconds"} and all(len(v) == 2 for v in figures.values())
    for split, (job, _, y) in enumerate(distributions._parts(context, "enb")):
        same = y, np.full(len(y), job.y.mean()), np.full(len(y), job.y.std())  # for all rows
        assert figures["nll"][split] < distributions.nll(*same)
        assert figures["crps"][split] < distributions.crps(*same)


def test_scores_of_distributions_are_those_of_the_package():
    rng = np.random.default_rng(0)
    y, mean, deviation = rng.standard_normal((3, 50)) + np.array([[0], [0], [5]])
    law = Normal(mean, deviation)
    assert distributions.nll(y, mean, deviation) == pytest.approx(-law.logpdf(y).mean())
    assert distributions.crps(y, mean, deviation) == pytest.approx(law.crps(y).mean())


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="reads /proc")
@pytest.mark.parametrize("problem", disk.OUTPUTS)
def test_trees_are_grown_from_a_file(context, monkeypatch, problem):
    monkeypatch.setattr(disk, "BATCH_ROWS", 300)
    trained = []

    def watched(job):
        train = disk.polyleaf(job)
        assert job.folder in Path("/proc/self/maps").read_text()
        return lambda rounds: trained.append(train(rounds))

    monkeypatch.setitem(disk.METHODS, "Polyleaf", watched)
    figures = disk.out_of_core(context, "Polyleaf", problem)
    assert set(figures) == {"tree", "wall", "fetched", "anonymous"} and figures["anonymous"] > 10
    assert [model.model_.n_trees for model in trained] == [1, 1, 1 + disk.TREES]
    assert trained[0].model_.n_outputs == disk.OUTPUTS[problem]


@pytest.mark.parametrize("method", multitask.METHODS)
def test_tasks_are_learned_together_and_apart(context, method):
    figures = multitask.multitask(context, method, "enb")
    assert all(len(figures[name]) == 2 for name in ("skill", "least", "seconds"))
    assert list(figures["tasks"]) == ["heating", "cooling third", "warm"]
    assert np.mean(figures["skill"]) == pytest.approx(np.mean(list(figures["tasks"].values())))
    assert min(figures["least"]) > 0.05 and np.all(np.array(figures["least"]) <= figures["skill"])


def test_joint_and_separate_task_models_alternate(context, monkeypatch):
    calls = []
    for name, method in multitask.METHODS.items():

        def watched(*given, name=name, method=method):
            calls.append(name)
            return method(*given)

        monkeypatch.setitem(multitask.METHODS, name, watched)
    monkeypatch.setattr(multitask, "apart", multitask.METHODS["a model each"])
    figures = multitask.turns(context, "one model", "enb")
    assert len(figures["ratio"]) == 2 and min(figures["ratio"]) > 0
    assert calls == ["one model", "a model each"] * 2


def test_tasks_are_made_of_targets():
    y = np.arange(12.0).reshape(6, 2)
    made = multitask.SETS["enb"].columns(y)
    np.testing.assert_array_equal(made["heating"], y[:, 0])
    np.testing.assert_array_equal(made["cooling third"], [0, 0, 1, 1, 2, 2])
    np.testing.assert_array_equal(made["warm"], [0, 0, 0, 1, 1, 1])


@pytest.mark.parametrize("method", ["Polyleaf", "a tree per output", "free"])
def test_constraint_violations_are_measured(context, method):
    figures = monotone.monotone(context, method, "additive, own")
    assert len(figures["error"]) == 2 and max(figures["error"]) < 1.2
    assert (max(figures["disobeyed"]) == 0) == (method != "free")


def test_generated_functions_are_monotone(context):
    for kind in monotone.MADE:
        job, X, _ = monotone.made(kind, 0, False, context)
        rng = np.random.default_rng([0, *kind.encode()])
        directions = monotone.get_directions(rng, False)
        np.testing.assert_array_equal(directions, job.directions)
        for f, k in np.argwhere(directions):
            moved = X.copy()
            moved[:, f] += directions[f, k]
            low, high = (
                monotone.truth(kind, rows, directions, np.random.default_rng(1))
                for rows in (X, moved)
            )
            assert np.all(high[:, k] >= low[:, k] - 1e-6)


def test_fault_moment_occurs_once_and_blocks_if_required(tmp_path):
    moment = faults.Moment(str(tmp_path), round=3, waits=True)
    callback = faults.FaultMessages(moment)
    callback.after_iteration(None, 2, None)
    assert not moment.has_come()
    moment.has_struck()  # so nobody waits
    callback.after_iteration(None, 3, None)
    assert moment.has_come()
    (tmp_path / "struck").unlink()
    callback.after_iteration(None, 3, None)  # of a round that is repeated: it has come before


def test_trials_are_summed_up(context, monkeypatch):
    trials = iter(
        [
            {"struck": True, "other": 0, "hung": 0, "lost": [0.5, 1.5], "fit": 3.0},
            {"struck": False, "other": 1, "hung": 1, "lost": [], "fit": 5.0},
        ]
    )
    monkeypatch.setattr(faults, "_trial", lambda kind, expected, seed: next(trials))
    found = faults.faults(context, "all killed", "3 workers")
    assert {name: found[name] for name in faults._FIGURES} == {
        "trials": 2,
        "struck": 1,
        "other": 1,
        "hung": 1,
        "restarts": 2,
        "lost": 1.0,
        "most": 1.5,
        "fit": 4.0,
    }


@pytest.mark.slow
@pytest.mark.parametrize("method", ["one killed between rounds", "the client killed"])
def test_a_trial_finds_the_model_of_one_machine(context, method):
    found = faults.faults(context, method, "3 workers")
    assert found["struck"] == found["trials"] == 2 and found["other"] == found["hung"] == 0
    assert found["restarts"] >= 2


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="reads /proc")
def test_limits_are_measured(context):
    figures = limits.training(context, "Polyleaf", "16 targets")
    assert set(figures) == {"seconds", "memory"} and figures["seconds"] > 0
    assert limits.predicting(context, "Polyleaf", "one output")["ms"] > 0
    assert limits.kinds(context, "Polyleaf", "linear leaves, one output")["ratio"] > 0
    assert set(limits.loading(context, "Polyleaf", "10,000 trees")) == {"load", "first"}
    X = np.random.default_rng(0).random((60, 4), np.float32)
    np.savez(
        context.data / "delicious.npz", X=X, y=(X[:, :3] > 0.6).astype(np.int8), task="multilabel"
    )
    assert limits.labels(context, "Polyleaf, top outputs", "delicious")["five"] > 0
    curve = limits.rows(context, "Polyleaf", "50 features, 4 outputs")["curves"]["tree"]
    assert [n for n, _ in curve] == [400]


def test_partitions_are_reproducible_on_any_worker():
    X, Y = cluster.part(3, 20, 9, 2)
    again = cluster.part(3, 20, 9, 1)
    assert (
        X.shape == (20, 9)
        and Y.shape == (20, 2)
        and not np.array_equal(X, cluster.part(4, 20, 9, 1)[0])
    )
    np.testing.assert_array_equal(X, again[0])
    np.testing.assert_array_equal(Y[:, 0], again[1])


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads /proc")
def test_round_time_excludes_the_first_round(tmp_path, monkeypatch):
    seconds = iter([1.0, 5.0, 9.0])
    monkeypatch.setattr(cluster, "processor_seconds", lambda pid: next(seconds))
    clock = cluster.Clock([1], str(tmp_path / "clock"))
    for epoch in range(3):
        clock.after_iteration(None, epoch, None)
    assert json.loads((tmp_path / "clock").read_text())["tree"] == 4.0


def test_rank_without_peers_grows_the_trees_of_its_rows():
    """Eight features are one tile, the rank's own: so the trees are those of one machine."""
    X, y = cluster.part(0, 400, 8, 2)
    estimator = PolyleafRegressor(n_estimators=2, **cluster.SHAPE)
    shared, shard = plan_shared_fit(estimator, y)
    mirror = cluster.Mirror(2, 8)
    fit_rank(estimator, shared, shard, Dataset(X), TrainContext(1, mirror))
    alone = PolyleafRegressor(n_estimators=2, **cluster.SHAPE).fit(X, y)
    assert estimator.save_model() == alone.save_model()
    assert len(mirror.steps) == 2 * (9 + 2 * cluster.MAX_DEPTH)
    assert all(out == 0 or out == into for out, into in mirror.steps)  # nothing of its tile is sent
