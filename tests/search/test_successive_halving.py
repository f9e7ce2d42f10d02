"""Successive halving with given losses of trials."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from polyleaf.metrics import get_metric
from polyleaf.search import successive_halving as halving
from polyleaf.search.cv_splits import Fold, Folds
from polyleaf.search.resume_log import ResumeLog
from polyleaf.search.successive_halving import (
    JOBS_AHEAD,
    Budget,
    FinalFitTimeout,
    SuccessiveHalving,
    TrialStopper,
    run_parallel,
    stopping_round,
)
from polyleaf.search.trials import rank_candidates


class CountingBudget(Budget):
    """A budget that is spent at the nth check."""

    def __init__(self, n_checks):
        super().__init__(None)
        self.n_checks = n_checks

    def is_spent(self):
        self.n_checks -= 1
        return self.n_checks < 0


def run_stopper(values, metric="rmse", patience=10**6, leader=np.inf, budget=None):
    stopper = TrialStopper(get_metric(metric), patience, leader, budget or Budget(None))
    for i in range(len(values)):
        if stopper.after_iteration(None, i, {"validation": {metric: values[: i + 1]}}):
            break
    return stopper


def make_search(losses, n_folds=3, budget=None, most=None):
    """Return a search where candidate {"is": i} has the loss `losses[i]` on all folds, and its
    trials."""
    log = []

    def train(parameters, fold, leader, budget):
        log.append((parameters["is"], fold.growth))
        if losses[parameters["is"]] is None:
            raise ValueError("cannot fit")
        return run_stopper([9.0, losses[parameters["is"]]])

    folds = Folds(n_folds, lambda j: Fold(None, None, float(j)))
    return SuccessiveHalving(
        train, folds, budget or Budget(None), most, ResumeLog(None, {}), 1, lambda line: None
    ), log


def test_better_half_continues_after_each_fold():
    search, log = make_search([4.0, 1.0, 3.0, 2.0])
    search.run([{"is": i} for i in range(4)], "portfolio")
    assert [i for i, fold in log if fold == 0] == [0, 1, 2, 3]
    # The defaults are kept, since all others are compared with them.
    assert [i for i, fold in log if fold == 1] == [0, 1, 3]
    assert [i for i, fold in log if fold == 2] == [0, 1]
    assert [c.number for c in search.ranking()] == [1, 0, 3, 2]
    search.run([{"is": 0}, {"is": 2}], "variation")
    assert [i for i, fold in log[9:] if fold == 2] == [2]


def make_resampled_search(losses, n_members=1):
    """Return a search with six folds in two repeats: candidate i has the loss `losses[i][fold]`."""
    log = []

    def train(parameters, fold, leader, budget):
        log.append((parameters["is"], int(fold.growth)))
        if losses[parameters["is"]][int(fold.growth)] is None:
            raise ValueError("cannot fit")
        return run_stopper([9.0, losses[parameters["is"]][int(fold.growth)]])

    folds = Folds(6, lambda j: Fold(None, None, float(j)), 3)
    search = SuccessiveHalving(
        train, folds, Budget(None), None, ResumeLog(None, {}), n_members, lambda line: None
    )
    search._iterations = [[0, 1, 2]]
    search.run([{"is": i} for i in range(len(losses))], "portfolio")
    return search, log


LUCKY, STEADY = [4.0, 1.0, 4.0, 6.0, 6.0, 6.0], [3.0, 4.0, 3.0, 3.0, 4.0, 3.0]
WORSE, DEFAULT = [8.0, 8.5, 8.0] * 2, [5.0, 6.0, 5.0] * 2


def test_leaders_are_revalidated_on_resampled_folds():
    # Two of nine candidates and the defaults are revalidated; losers and duplicates are not.
    search, log = make_resampled_search([DEFAULT, LUCKY, STEADY, LUCKY, *[WORSE] * 5])
    assert rank_candidates(search.candidates)[0].number == 1
    search.revalidate_leaders()
    assert [i for i, fold in log if fold == 5] == [0, 1, 2]
    best = search.ranking()[0]
    assert best.number == 2 and best.loss == pytest.approx(np.mean(STEADY)) and best.n_folds == 6


def test_leaders_are_compared_on_common_folds():
    search, _ = make_resampled_search([DEFAULT, [*LUCKY[:5], None], STEADY, *[WORSE] * 6])
    search.revalidate_leaders()
    assert search.candidates[1].error and [c.n_folds for c in search.candidates[:3]] == [6, 5, 6]
    assert [c.number for c in search.ranking()[:2]] == [2, 0]
    search, log = make_resampled_search([DEFAULT, LUCKY, STEADY, *[WORSE] * 6])
    search._budget = CountingBudget(4)  # during the second resampled fold
    search.revalidate_leaders()
    assert log[-4:] == [(0, 3), (1, 3), (2, 3), (0, 4)]
    assert [c.n_folds for c in search.candidates[:3]] == [4, 4, 4]


def test_blends_and_single_candidates_are_not_revalidated():
    for search, log in (
        make_resampled_search([DEFAULT, STEADY], n_members=5),
        make_resampled_search([DEFAULT, WORSE]),
        make_resampled_search([DEFAULT]),
    ):
        search.revalidate_leaders()
        assert all(fold < 3 for _, fold in log)


def test_failed_candidates_are_skipped_except_for_the_defaults():
    search, _ = make_search([2.0, None])
    search.run([{"is": 0}, {"is": 1}], "portfolio")
    assert search.candidates[1].error == "cannot fit" and len(search.ranking()) == 1
    search, _ = make_search([None])
    with pytest.raises(ValueError, match="cannot fit"):
        search.run([{"is": 0}], "portfolio")


def test_number_of_candidates_is_bounded():
    search, log = make_search([5.0, 4.0, 3.0, 2.0, 1.0], n_folds=1, most=4)
    search.run([{"is": 0}, {"is": 1}], "portfolio")
    search.mutate(
        lambda best, generation: iter([{"is": 1}, {"is": 2}, {"is": 2}, {"is": 3}, {"is": 4}])
    )
    assert [i for i, _ in log] == [0, 1, 2, 3]
    assert [c.origin for c in search.candidates] == ["portfolio"] * 2 + ["variation"] * 2


def test_search_ends_without_new_candidates():
    search, log = make_search([2.0], n_folds=1)
    search.run([{"is": 0}], "portfolio")
    search.mutate(lambda best, generation: iter(candidate.parameters for candidate in best))
    assert len(log) == 1


def test_timed_out_trial_counts_only_if_there_is_no_other():
    budget = CountingBudget(3)
    first = run_stopper([5.0, 4.0, 3.0, 2.0, 1.0], budget=budget)
    assert first.timed_out and first.curve == [5.0, 4.0, 3.0, 2.0]
    curves = iter([[5.0, 4.0], [1.0, 1.0]])
    folds = Folds(1, lambda i: Fold(None, None))
    search = SuccessiveHalving(
        lambda *_: run_stopper(next(curves), budget=CountingBudget(0)),
        folds,
        Budget(None),
        None,
        ResumeLog(None, {}),
        1,
        lambda line: None,
    )
    search.run([{}, {"max_leaves": 8}], "portfolio")
    assert [c.curves for c in search.candidates] == [[[5.0]]]


def test_patience_stops_a_trial():
    assert len(run_stopper([3.0, 2.0, 2.5, 2.0, 1.0], patience=2).curve) == 4


def test_loss_is_the_negative_of_a_metric_to_maximise():
    assert run_stopper([0.1, 0.5], metric="r2").curve == [-0.1, -0.5]


def test_nan_is_never_an_improvement():
    assert len(run_stopper([np.nan] * 9, patience=3).curve) == 3


def test_hopeless_trials_are_stopped_at_a_doubling():
    # After 16 rounds 9.85, with a gain of 0.08 in the last 8; after 32 rounds 9.69 and 0.16.
    slow = [10.0 - 0.01 * i for i in range(100)]
    assert len(run_stopper(slow, patience=16, leader=9.52).curve) == 16
    assert len(run_stopper(slow, patience=16, leader=9.54).curve) == 100
    # Flat from round 32: no gain at round 64.
    assert len(run_stopper(slow[:32] + [9.68, 9.67] * 40, patience=32, leader=9.5).curve) == 64


@pytest.mark.parametrize("seed", range(20))
def test_parallel_trials_are_cut_where_sequential_ones_stop(seed):
    rng = np.random.default_rng(seed)
    values = (10 - np.cumsum(rng.random(100) * 0.02) + 0.01 * rng.standard_normal(100)).tolist()
    patience, late, leader = int(rng.integers(1, 20)), 9.9, float(rng.uniform(9, 9.9))
    # A trial parallel to the leader does not know its loss yet, and runs longer.
    sequential = run_stopper(values, patience=patience, leader=leader).curve
    parallel = run_stopper(values, patience=patience, leader=late).curve
    n = stopping_round(parallel, patience, leader)
    assert sequential == (parallel if n is None else parallel[:n])


class Clock:
    """A clock that tests set."""

    def __init__(self, monkeypatch):
        self.now = 100.0
        monkeypatch.setattr(halving.time, "perf_counter", lambda: self.now)


def test_first_trial_leaves_time_for_the_final_fit(monkeypatch):
    clock = Clock(monkeypatch)
    budget = Budget(10.0)
    clock.now += 1.0
    budget.reserve_elapsed(
        1.5
    )  # the final fit takes 1.8 times the trial, with the margin: 9 / 2.8 seconds remain
    clock.now += 3.2
    assert not budget.is_spent()
    clock.now += 0.02
    assert budget.is_spent() and not budget.is_over()
    budget.reserve(2.0)
    assert not budget.is_spent()
    clock.now = 110.0 - 2.6  # another 2 % of the limit is reserved
    assert budget.is_spent()


def test_final_fit_ends_at_the_time_limit(monkeypatch):
    clock = Clock(monkeypatch)
    timeout = FinalFitTimeout(Budget(10.0))
    assert not timeout.after_iteration(None, 0, {})
    clock.now += 10.0
    assert timeout.after_iteration(None, 1, {}) and timeout.timed_out and timeout.rounds == 2


def test_late_final_fit_has_its_reserved_time(monkeypatch):
    clock = Clock(monkeypatch)
    budget = Budget(10.0)
    budget.reserve(0.5)  # 0.6 with the margin, and 0.2 of overhead
    clock.now += 9.9
    timeout = FinalFitTimeout(budget)
    clock.now += 0.7  # the limit has passed
    assert not timeout.after_iteration(None, 0, {})
    clock.now += 0.11
    assert timeout.after_iteration(None, 1, {}) and timeout.timed_out


def test_clock_is_not_read_without_a_time_limit(monkeypatch):
    budget = Budget(None)
    monkeypatch.setattr(halving.time, "perf_counter", lambda: pytest.fail("the clock was read"))
    budget.reserve(1.0)
    assert not budget.is_spent() and not budget.is_over()
    assert not FinalFitTimeout(budget).after_iteration(None, 0, {})


# --- run_parallel --------------------------------------------------------------------------------


def test_one_job_at_a_time_runs_in_the_calling_thread():
    ran = []
    found = run_parallel(
        (lambda i=i: ran.append(i) or threading.current_thread() for i in range(3)), 1, None
    )
    assert ran == [] and next(found) is threading.main_thread() and ran == [0]
    assert list(found) == [threading.main_thread()] * 2


def test_results_of_parallel_jobs_are_in_order():
    gate = threading.Event()

    def first():
        assert gate.wait(20)  # the second job opens it: both run at once
        return 0

    jobs = [first, lambda: gate.set() or 1, *(lambda i=i: i for i in range(2, 9))]
    assert list(run_parallel(jobs, 2, lambda: None)) == list(range(9))


def test_jobs_are_read_a_few_ahead():
    read = []
    found = run_parallel((read.append(i) or (lambda i=i: i) for i in range(50)), 3, lambda: None)
    next(found)
    assert len(read) == JOBS_AHEAD * 3
    found.close()
    assert len(read) == JOBS_AHEAD * 3


@pytest.mark.parametrize("closed", [False, True])
def test_remaining_jobs_are_cancelled(closed):
    cancelled, started = threading.Event(), threading.Event()

    def runs_long():
        started.set()
        assert cancelled.wait(20)

    def fails():
        assert started.wait(20)
        raise MemoryError("no room")

    found = run_parallel([lambda: 7, fails, runs_long], 2, cancelled.set)
    assert next(found) == 7
    if closed:
        assert started.wait(20)
        found.close()
    else:
        with pytest.raises(MemoryError, match="no room"):
            next(found)
    assert cancelled.is_set()


@pytest.mark.parametrize("n_available", [0, 1, 2])
def test_jobs_run_on_as_many_threads_as_the_system_starts(n_available, monkeypatch):
    start, alive = threading.Thread.start, []

    def start_some(self):
        if len(alive) >= n_available:
            raise RuntimeError("can't start new thread")
        alive.append(self)
        start(self)

    def join(self, timeout=None):
        alive.remove(self)

    monkeypatch.setattr(threading.Thread, "start", start_some)
    monkeypatch.setattr(threading.Thread, "join", join)
    jobs = [lambda i=i: (i, threading.current_thread().name) for i in range(9)]
    found = list(run_parallel(jobs, 4, lambda: None))
    assert [i for i, _ in found] == list(range(9))
    names = {name for _, name in found}
    assert len(names) <= max(1, n_available)
    assert all("polyleaf-search" in name for name in names) == (n_available == 2)
