"""Budgeted halving with simulated trials and a simulated clock."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest

from polyleaf.search import successive_halving as halving
from polyleaf.search.budgeted_halving import BudgetedHalving
from polyleaf.search.candidates import LearningRateScale
from polyleaf.search.cv_splits import Fold, Folds
from polyleaf.search.resume_log import ResumeLog
from polyleaf.search.successive_halving import Budget

GOOD, BAD = {"learning_rate": 0.05, "max_leaves": 8}, {"learning_rate": 0.05, "max_leaves": 63}
CANDIDATES = [{}, BAD, GOOD]
LEARNED = 6.0  # rounds times learning rate at the lowest loss


class Simulation:
    """Trials of `round_seconds` per round and thousand rows; `done` lists rate, rows and rounds."""

    def __init__(self, monkeypatch, round_seconds, limit, rows=10_000, n_folds=3):
        self.now, self.round_seconds, self.done = 0.0, round_seconds, []
        monkeypatch.setattr(halving, "time", SimpleNamespace(perf_counter=lambda: self.now))
        n_small = min(rows, 2_000)
        folds = [Fold(None, None, 1.5) for _ in range(n_folds)]
        small = Fold(None, None, rows / n_small)
        self.rows = {id(fold): rows for fold in folds} | {id(small): n_small}
        self.budget = Budget(limit)
        rate_scale = LearningRateScale(
            lambda parameters: parameters.get("learning_rate", 0.1), is_free=True, n_rows=rows
        )
        self.made: list[int] = []

        def make(i):
            self.made.append(i)
            return folds[i]

        self.folds = Folds(n_folds, make, 3)
        arguments = (
            self.train,
            self.folds,
            self.budget,
            None,
            ResumeLog(None, {}),
            1,
            lambda line: None,
        )
        self.search = BudgetedHalving(*arguments, small=small, rate_scale=rate_scale)

    def train(self, parameters, fold, leader, budget):
        rate, rows = parameters.get("learning_rate", 0.1), self.rows[id(fold)]
        lowest = {8: 1.0, 63: 3.0}.get(parameters.get("max_leaves"), 2.0)
        stopper = SimpleNamespace(curve=[], timed_out=False, fitted=None, patience=10**6)
        while len(stopper.curve) < round((LEARNED + 4) / rate) and not stopper.timed_out:
            self.now += self.round_seconds * rows / 1_000
            learned = rate * (len(stopper.curve) + 1)
            stopper.curve.append(lowest + abs(LEARNED - learned) / LEARNED)
            stopper.timed_out = budget.is_spent()
        self.done.append((rate, rows, len(stopper.curve)))
        return stopper


def test_screening_is_sped_up_and_the_final_fit_is_not(monkeypatch):
    simulation = Simulation(monkeypatch, 0.0005, 20.0)  # the defaults take 0.5 s on a fold
    simulation.search.run(list(CANDIDATES), "portfolio")
    rates = [candidate.screening.rate for candidate in simulation.search.candidates]
    assert rates == [0.3, 0.2, 0.2]
    best = simulation.search.ranking()[0]
    assert best.proposed == GOOD and best.n_folds == 3
    parameters, rounds, min_rounds = simulation.search.final_fit(best)
    assert rounds == min_rounds
    assert parameters == GOOD and rounds == pytest.approx(LEARNED / 0.05, rel=0.05)
    # The defaults were evaluated too, the candidate that screening rejected was not.
    assert simulation.search.candidates[0].n_folds > 0 == simulation.search.candidates[1].n_folds
    assert simulation.now < 20.0


def test_trials_are_sped_up_with_less_time_and_the_final_fit_is_not(monkeypatch):
    simulation = Simulation(monkeypatch, 0.0005, 4.0)
    simulation.search.run(list(CANDIDATES), "portfolio")
    best = simulation.search.ranking()[0]
    assert best.speedup > 1 and best.parameters["learning_rate"] > 0.05
    parameters, rounds, min_rounds = simulation.search.final_fit(best)
    assert rounds == min_rounds and parameters == best.proposed
    assert parameters["learning_rate"] * rounds == pytest.approx(LEARNED, rel=0.05)
    assert simulation.now + rounds * 0.0005 * 15 <= 4.0


def test_final_fit_of_the_defaults_is_not_sped_up_if_time_allows(monkeypatch):
    simulation = Simulation(monkeypatch, 0.0005, 2.5)
    simulation.search.run(list(CANDIDATES), "portfolio")
    (best,) = simulation.search.ranking()
    assert simulation.search.final_fit(best) == ({}, None, 0)  # as without a search
    assert simulation.now + 1.6 * LEARNED / 0.1 * 0.0005 * 15 <= 2.5


def test_defaults_are_chosen_if_only_their_final_fit_is_in_time(monkeypatch):
    simulation = Simulation(monkeypatch, 0.0005, 4.0)
    search = simulation.search
    search.run(list(CANDIDATES), "portfolio")
    defaults, best = search.candidates[0], search.ranking()[0]
    assert best is not defaults and search.final_candidate() is best and search._is_tight
    best.seconds *= 100
    assert search.final_candidate() is defaults
    simulation.now = 3.9
    assert search.final_candidate() is best


def test_duplicates_after_speedup_are_not_tried(monkeypatch):
    simulation = Simulation(monkeypatch, 0.0005, 4.0)
    slower = {**CANDIDATES[-1], "learning_rate": 0.04}
    simulation.search.run([*CANDIDATES, slower], "portfolio")
    tried = [c.parameters for c in simulation.search.candidates if c.curves]
    assert all(tried.count(parameters) == 1 for parameters in tried)


def test_defaults_are_trained_if_there_is_time_for_one_fit(monkeypatch):
    simulation = Simulation(monkeypatch, 0.0005, 0.4)
    simulation.search.run(list(CANDIDATES), "portfolio")
    assert simulation.search.is_over() and [c.proposed for c in simulation.search.ranking()] == [{}]
    parameters, rounds, min_rounds = simulation.search.final_fit(simulation.search.ranking()[0])
    assert 0.1 <= parameters["learning_rate"] <= 0.3
    assert simulation.now + min_rounds * 0.0005 * 10 <= 0.4 and rounds == min_rounds
    assert simulation.now < 0.2


@pytest.mark.parametrize("limit", [0.4, 0.6, 0.8, 1.0, 1.5, 2.5, 5.0, 20.0])
def test_winner_was_compared_with_the_defaults_on_a_fold(monkeypatch, limit):
    simulation = Simulation(monkeypatch, 0.0005, limit)
    simulation.search.run(list(CANDIDATES), "portfolio")
    simulation.search.mutate(lambda best, generation: iter([{"max_leaves": 8}]))
    first = simulation.search.candidates[0]
    best = simulation.search.ranking()[0]
    assert best is first or (
        best.proposed["max_leaves"] == 8 and min(best.n_folds, first.n_folds) > 0
    )
    assert limit < 5.0 or best is not first
    rounds = simulation.search.final_fit(best).rounds
    assert not best.curves or simulation.now + rounds * simulation.round_seconds * 15 <= limit
    # Only folds in use are made; the time limit may have passed on the last one.
    reached = max(c.n_folds for c in simulation.search.candidates) or 1
    assert sorted(simulation.made) in (list(range(reached)), list(range(reached + 1)))


@pytest.mark.parametrize("limit", [5.0, 20.0])
def test_slow_proposals_leave_time_for_the_final_fit(monkeypatch, limit):
    simulation, drawn = Simulation(monkeypatch, 0.0005, limit), []

    def slow(best, generation):
        for i in range(10_000):
            simulation.now += 0.02
            drawn.append(generation)
            yield {"max_leaves": 8, "reg_lambda": generation * 1e6 + i}

    simulation.search.run(list(CANDIDATES), "portfolio")
    simulation.search.mutate(slow)
    assert max(map(drawn.count, drawn)) == halving.GENERATION_SIZE
    rounds = simulation.search.final_fit(simulation.search.ranking()[0]).rounds
    assert simulation.now + rounds * simulation.round_seconds * 15 <= limit


def test_no_screening_with_ample_time(monkeypatch):
    simulation = Simulation(monkeypatch, 1e-5, 100.0, n_folds=9)
    simulation.search.run(list(CANDIDATES), "portfolio")
    assert [c.screening is None for c in simulation.search.candidates] == [False, True, True]
    assert [c.n_folds for c in simulation.search.candidates] == [
        9,
        3,
        9,
    ]  # three folds at a time; the defaults run on all
    assert all(c.speedup == 1.0 for c in simulation.search.candidates)


def test_screening_on_few_rows_is_used_only_if_faster(monkeypatch):
    simulation = Simulation(monkeypatch, 0.0005, 20.0)
    simulation.rows = dict.fromkeys(simulation.rows, 10_000)  # a round on few rows takes as long
    simulation.search.run(list(CANDIDATES), "portfolio")
    good = simulation.search.candidates[2]
    assert good.curves and math.isclose(good.screening.loss, min(good.curves[0]), rel_tol=0.1)
    # Trials of screening on the same fold are not repeated.
    sped_up = [
        done for done in simulation.done if done[0] == 0.2 and done[2] == round((LEARNED + 4) / 0.2)
    ]
    assert len(sped_up) == 2 + 2 * (good.speedup == 4.0)


def test_later_generations_must_be_among_the_best_third(monkeypatch):
    simulation = Simulation(monkeypatch, 0.0005, 20.0)
    simulation.search.run(list(CANDIDATES), "portfolio")
    tried = len(simulation.search.candidates)
    simulation.search.run([{"max_leaves": 63, "learning_rate": 0.1}], "variation")
    assert (
        simulation.search.candidates[tried].screening is not None
        and not simulation.search.candidates[tried].curves
    )


@pytest.mark.parametrize("limit", [10.0, 30.0, 60.0])
def test_leaders_are_revalidated_in_reserved_time(monkeypatch, limit):
    simulation = Simulation(monkeypatch, 0.0005, limit, n_folds=9)

    def children(best, generation):
        return ({"max_leaves": 8, "reg_lambda": generation * 100 + i} for i in range(100))

    simulation.search.run(list(CANDIDATES), "portfolio")
    simulation.search.mutate(children)
    started = simulation.now
    simulation.search.revalidate_leaders()
    assert simulation.now - started <= 0.3 * limit
    best = simulation.search.ranking()[0]
    assert (best.n_folds > 3) == (limit > 10.0)  # 10 s are too short for three more folds
    rounds = simulation.search.final_fit(best).rounds
    assert simulation.now + rounds * simulation.round_seconds * 15 <= limit


def test_no_revalidation_without_time(monkeypatch):
    simulation = Simulation(monkeypatch, 0.0005, -1.0)
    simulation.search.run(list(CANDIDATES), "portfolio")
    simulation.search.revalidate_leaders()
    assert len(simulation.search.ranking()) == 1
