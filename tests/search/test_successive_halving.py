"""Successive halving with given losses of trials."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import numpy as np
import pytest

from polyleaf.metrics import get_metric
from polyleaf.search import successive_halving as halving
from polyleaf.search.candidates import LearningRates
from polyleaf.search.cv_splits import Fold, Folds
from polyleaf.search.resume_log import ResumeLog
from polyleaf.search.successive_halving import (
    JOBS_AHEAD,
    Budget,
    FittedDefaults,
    SuccessiveHalving,
    TrialStopper,
    run_parallel,
    stopping_round,
)


def spent_after(n_checks):
    """Return a function that is true from its nth call."""
    answers = iter([False] * n_checks)
    return lambda: next(answers, True)


def run_stopper(values, metric="rmse", patience=10**6, leader=np.inf, is_spent=lambda: False):
    stopper = TrialStopper(get_metric(metric), patience, leader, is_spent)
    for i in range(len(values)):
        if stopper.after_iteration(None, i, {"validation": {metric: values[: i + 1]}}):
            break
    return stopper


def make_halving(train, n_folds=3, limit=None, most=None, **options):
    folds = Folds(n_folds, lambda j: Fold(None, None, 1.5 + j))
    about = Budget(limit), most, ResumeLog(None, {}), 1, lambda line: None, LearningRates(0.1)
    return SuccessiveHalving(train, folds, *about, **options)


def make_search(losses, n_folds=3, most=None):
    """Return a search where candidate {"is": i} has the loss `losses[i]` on all folds, and its
    trials."""
    log = []

    def train(parameters, fold, leader, is_spent):
        log.append((parameters["is"], fold.growth - 1.5))
        if losses[parameters["is"]] is None:
            raise ValueError("cannot fit")
        return run_stopper([9.0, losses[parameters["is"]]])

    return make_halving(train, n_folds, most=most), log


def make_proposer(*generations):
    """Return a function that proposes candidates {"is": i} of each generation."""
    return lambda ranked, n: iter(
        [{"is": i} for i in generations[n]] if n < len(generations) else []
    )


def test_better_half_continues_after_each_fold():
    search, log = make_search([4.0, 1.0, 3.0, 2.0, 3.5, 2.5])
    search.run(make_proposer(range(4), [0, 4, 5]))
    assert [i for i, fold in log[:9] if fold == 0] == [0, 1, 2, 3]
    # The defaults are kept, since all others are compared with them.
    assert [i for i, fold in log[:9] if fold == 1] == [0, 1, 3]
    assert [i for i, fold in log[:9] if fold == 2] == [0, 1]
    assert log[9:] == [(4, 0), (5, 0), (5, 1), (5, 2)]
    assert [c.number for c in search.ranking()] == [1, 0, 5, 3, 2, 4]


def test_failed_candidates_are_skipped_except_for_the_defaults():
    search, _ = make_search([2.0, None])
    search.run(make_proposer([0, 1]))
    assert search.candidates[1].error == "cannot fit" and len(search.ranking()) == 1
    search, _ = make_search([None])
    with pytest.raises(ValueError, match="cannot fit"):
        search.run(make_proposer([0]))


def test_number_of_candidates_is_bounded():
    search, log = make_search([5.0, 4.0, 3.0, 2.0, 1.0], n_folds=1, most=4)
    search.run(make_proposer([0, 1], [1, 2, 2, 3, 4]))
    assert [i for i, _ in log] == [0, 1, 2, 3]
    assert [c.origin for c in search.candidates] == ["portfolio"] * 2 + ["variation"] * 2


def test_timed_out_trial_counts_only_if_there_is_no_other():
    first = run_stopper([5.0, 4.0, 3.0, 2.0, 1.0], is_spent=spent_after(3))
    assert first.timed_out and first.curve == [5.0, 4.0, 3.0, 2.0]
    curves = iter([[5.0, 4.0], [1.0, 1.0]])
    search = make_halving(lambda *_: run_stopper(next(curves), is_spent=spent_after(0)), 1)
    search.run(make_proposer([0, 1]))
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


def test_time_for_the_final_fit_is_reserved(monkeypatch):
    clock = Clock(monkeypatch)
    budget = Budget(10.0)
    clock.now += 3.2  # the first trial gets a third
    assert not budget.is_spent()
    clock.now += 0.2
    assert budget.is_spent() and not budget.is_over()
    budget.reserve(2.0)
    assert not budget.is_spent()
    clock.now = 110.0 - 2.6  # another 2 % of the limit is reserved
    assert budget.is_spent()


def test_final_fit_ends_at_the_time_limit(monkeypatch):
    clock = Clock(monkeypatch)
    limit = Budget(10.0).limit_final_fit()
    assert not limit.is_over() and not limit.was_reached
    clock.now += 10.0
    assert limit.is_over() and limit.was_reached


def test_late_final_fit_has_its_reserved_time(monkeypatch):
    clock = Clock(monkeypatch)
    budget = Budget(10.0)
    budget.reserve(0.5)  # 0.6 with the margin, and 0.2 of overhead
    clock.now += 9.9
    limit = budget.limit_final_fit()
    clock.now += 0.7  # the limit has passed
    assert not limit.is_over()
    clock.now += 0.11
    assert limit.is_over()


def test_clock_is_not_read_without_a_time_limit(monkeypatch):
    budget = Budget(None)
    monkeypatch.setattr(halving.time, "perf_counter", lambda: pytest.fail("the clock was read"))
    budget.reserve(1.0)
    assert not budget.is_spent() and not budget.is_over()
    assert not budget.limit_final_fit().is_over()


# --- learning rates under a time limit -----------------------------------------------------------

LEARNED = 6.0  # rounds times learning rate at the lowest loss
GOOD, BAD = {"learning_rate": 0.05, "max_leaves": 8}, {"learning_rate": 0.05, "max_leaves": 63}


class Simulation:
    """A search whose trials take `round_seconds` per round; `final_seconds` is that of the fit."""

    def __init__(self, monkeypatch, round_seconds, limit, **options):
        self.clock, self.round_seconds = Clock(monkeypatch), round_seconds
        self.search = make_halving(self.train, limit=limit, **options)
        self.search.run(lambda ranked, generation: self.propose(generation))

    def propose(self, generation):
        if generation == 0:
            return iter([{}, BAD, GOOD])
        return ({"max_leaves": 63, "reg_lambda": generation * 100 + i} for i in range(100))

    def train(self, parameters, fold, leader, is_spent):
        rate = parameters.get("learning_rate", 0.1)
        lowest = {8: 1.0, 63: 3.0}.get(parameters.get("max_leaves"), 2.0)
        stopper = SimpleNamespace(curve=[], timed_out=False, fitted=None, n_rounds=10**6)
        while len(stopper.curve) < round((LEARNED + 4) / rate) and not stopper.timed_out:
            self.clock.now += self.round_seconds
            learned = rate * (len(stopper.curve) + 1)
            stopper.curve.append(lowest + abs(LEARNED - learned) / LEARNED)
            stopper.timed_out = is_spent()
        return stopper


@pytest.mark.parametrize(("limit", "trial_rate"), [(30.0, 0.05), (2.5, 0.1)])
def test_short_time_limits_raise_the_rates_of_trials(limit, trial_rate, monkeypatch):
    simulation = Simulation(monkeypatch, 0.004, limit)  # the defaults take 0.4 s
    search = simulation.search
    best = search.ranking()[0]
    assert best.proposed == GOOD
    assert best.parameters == (GOOD if trial_rate == 0.05 else {"max_leaves": 8})
    parameters, rounds = search.final_fit(best)
    assert parameters == GOOD and rounds == pytest.approx(LEARNED / 0.05, rel=0.02)
    assert simulation.clock.now + rounds * 0.004 * 1.5 <= 100 + limit
    tried = [c.parameters for c in search.candidates]
    assert all(tried.count(parameters) == 1 for parameters in tried)


def test_defaults_alone_are_trained_if_a_trial_takes_too_long(monkeypatch):
    search = Simulation(monkeypatch, 0.1, 10.0, finds_rounds=True).search
    (defaults,) = search.candidates
    assert defaults.proposed == {} and defaults.timed_out
    assert search.final_fit(defaults) == ({}, None)


def fitted(candidate_seconds):
    return FittedDefaults(None, {}, candidate_seconds)


def test_best_candidate_is_fitted_only_if_time_allows(monkeypatch):
    simulation = Simulation(
        monkeypatch, 0.004, 30.0, finds_rounds=True, fitted_defaults=fitted(0.2)
    )
    search = simulation.search
    best = search.ranking()[0]
    assert best.proposed == GOOD and search.choose_best() is best
    seconds = search.round_seconds(best) * best.rounds
    assert seconds <= 130.0 - simulation.clock.now  # reserved, though the defaults are fitted
    simulation.clock.now = 130.0 - 0.9 * seconds
    assert search.choose_best().number == 0


def test_time_for_candidates_is_left_if_the_defaults_are_fitted(monkeypatch):
    search = Simulation(
        monkeypatch, 0.03, 10.0, finds_rounds=True, fitted_defaults=fitted(1.5)
    ).search
    assert not search.candidates[0].timed_out and len(search.ranking()) > 1


# --- run_parallel --------------------------------------------------------------------------------


def test_one_job_at_a_time_runs_in_the_calling_thread():
    ran = []
    jobs = (lambda i=i: ran.append(i) or threading.current_thread() for i in range(3))
    found = run_parallel(jobs, 1, None)
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
