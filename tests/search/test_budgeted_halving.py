"""The race against the clock, with trainings that are told beforehand and a clock of their own."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest

from polyleaf.search import successive_halving as race_module
from polyleaf.search.budgeted_halving import TimedRace
from polyleaf.search.cv_splits import Fold, Folds
from polyleaf.search.resume_log import TrainingLog
from polyleaf.search.screening import Pace
from polyleaf.search.successive_halving import Budget

GOOD, BAD = {"learning_rate": 0.05, "max_leaves": 8}, {"learning_rate": 0.05, "max_leaves": 63}
CANDIDATES = [{}, BAD, GOOD]
LEARNED = 6.0  # rounds times rate of the best round


class Track:
    """Trainings with `seconds_of_round` for each thousand rows; of those done rate, rows and rounds."""

    def __init__(self, monkeypatch, seconds_of_round, limit, rows=10_000, n_folds=3):
        self.now, self.seconds_of_round, self.done = 0.0, seconds_of_round, []
        monkeypatch.setattr(race_module, "time", SimpleNamespace(perf_counter=lambda: self.now))
        few = min(rows, 2_000)
        folds = [Fold(None, None, 1.5) for _ in range(n_folds)]
        small = Fold(None, None, rows / few)
        self.rows = {id(fold): rows for fold in folds} | {id(small): few}
        self.budget = Budget(limit)
        pace = Pace(
            lambda parameters: parameters.get("learning_rate", 0.1), is_free=True, n_rows=rows
        )
        self.made: list[int] = []

        def make(i):
            self.made.append(i)
            return folds[i]

        self.folds = Folds(n_folds, make, 3)
        entry = (
            self.train,
            self.folds,
            self.budget,
            None,
            TrainingLog(None, {}),
            1,
            lambda line: None,
        )
        self.race = TimedRace(*entry, small=small, pace=pace)

    def train(self, parameters, fold, leader, budget):
        rate, rows = parameters.get("learning_rate", 0.1), self.rows[id(fold)]
        lowest = {8: 1.0, 63: 3.0}.get(parameters.get("max_leaves"), 2.0)
        watch = SimpleNamespace(curve=[], was_cut=False, fitted=None, patience=10**6)
        while len(watch.curve) < round((LEARNED + 4) / rate) and not watch.was_cut:
            self.now += self.seconds_of_round * rows / 1_000
            learned = rate * (len(watch.curve) + 1)
            watch.curve.append(lowest + abs(LEARNED - learned) / LEARNED)
            watch.was_cut = budget.is_spent()
        self.done.append((rate, rows, len(watch.curve)))
        return watch


def test_candidates_are_looked_at_in_haste_and_trained_as_slowly_as_they_were_made(monkeypatch):
    track = Track(monkeypatch, 0.0005, 20.0)  # half a second for the defaults on a fold
    track.race.run(list(CANDIDATES), "portfolio")
    looked = [candidate.look.rate for candidate in track.race.candidates]
    assert looked == [0.3, 0.2, 0.2]
    best = track.race.best()[0]
    assert best.proposed == GOOD and best.n_folds == 3
    parameters, rounds, enough = track.race.at_last(best)
    assert rounds == enough
    assert parameters == GOOD and rounds == pytest.approx(LEARNED / 0.05, rel=0.05)
    # What everybody has was trained beside it, and what fell behind at first sight was not.
    assert track.race.candidates[0].n_folds > 0 == track.race.candidates[1].n_folds
    assert track.now < 20.0


def test_in_less_time_the_folds_are_in_haste_and_the_last_training_is_not(monkeypatch):
    track = Track(monkeypatch, 0.0005, 2.5)
    track.race.run(list(CANDIDATES), "portfolio")
    best = track.race.best()[0]
    assert best.haste > 1 and best.parameters["learning_rate"] > 0.05
    parameters, rounds, enough = track.race.at_last(best)
    assert rounds == enough
    assert parameters["learning_rate"] < best.parameters["learning_rate"]
    assert parameters["learning_rate"] * rounds == pytest.approx(LEARNED, rel=0.05)
    assert track.now + rounds * 0.0005 * 15 <= 2.5


def test_where_one_training_takes_all_the_time_the_defaults_are_trained(monkeypatch):
    track = Track(monkeypatch, 0.0005, 0.4)
    track.race.run(list(CANDIDATES), "portfolio")
    assert track.race.is_over() and [c.proposed for c in track.race.best()] == [{}]
    parameters, rounds, enough = track.race.at_last(track.race.best()[0])
    assert 0.1 <= parameters["learning_rate"] <= 0.3
    # There is time for those that are enough, and what they leave of it is for as many again.
    assert track.now + enough * 0.0005 * 10 <= 0.4 and rounds == 2 * enough
    assert track.now < 0.2


@pytest.mark.parametrize("limit", [0.4, 0.6, 0.8, 1.0, 1.5, 2.5, 5.0, 20.0])
def test_nothing_wins_without_having_met_the_defaults_on_a_fold(monkeypatch, limit):
    track = Track(monkeypatch, 0.0005, limit)
    track.race.run(list(CANDIDATES), "portfolio")
    track.race.vary(lambda best, generation: iter([{"max_leaves": 8}]))
    first = track.race.candidates[0]
    best = track.race.best()[0]
    assert best is first or (
        best.proposed["max_leaves"] == 8 and min(best.n_folds, first.n_folds) > 0
    )
    assert limit < 5.0 or best is not first
    rounds = track.race.at_last(best).rounds
    assert not best.curves or track.now + rounds * track.seconds_of_round * 15 <= limit
    # Only folds that somebody came to were made; on the last of them time may have been over.
    reached = max(c.n_folds for c in track.race.candidates) or 1
    assert sorted(track.made) in (list(range(reached)), list(range(reached + 1)))


@pytest.mark.parametrize("limit", [5.0, 20.0])
def test_proposals_take_their_time_from_the_search_not_from_the_last_training(monkeypatch, limit):
    track, drawn = Track(monkeypatch, 0.0005, limit), []

    def slow(best, generation):
        for i in range(10_000):
            track.now += 0.02
            drawn.append(generation)
            yield {"max_leaves": 8, "reg_lambda": generation * 1e6 + i}

    track.race.run(list(CANDIDATES), "portfolio")
    track.race.vary(slow)
    assert max(map(drawn.count, drawn)) == race_module.GENERATION
    rounds = track.race.at_last(track.race.best()[0]).rounds
    assert track.now + rounds * track.seconds_of_round * 15 <= limit


def test_where_there_is_time_for_all_nothing_is_looked_at(monkeypatch):
    track = Track(monkeypatch, 1e-5, 100.0, n_folds=9)
    track.race.run(list(CANDIDATES), "portfolio")
    assert [c.look is None for c in track.race.candidates] == [False, True, True]
    assert [c.n_folds for c in track.race.candidates] == [
        9,
        3,
        9,
    ]  # three folds at a time; the first has all
    assert all(c.haste == 1.0 for c in track.race.candidates)


def test_few_rows_are_taken_only_where_that_saves_time(monkeypatch):
    track = Track(monkeypatch, 0.0005, 20.0)
    track.rows = dict.fromkeys(track.rows, 10_000)  # a round takes as long on few
    track.race.run(list(CANDIDATES), "portfolio")
    good = track.race.candidates[2]
    assert good.curves and math.isclose(good.look.loss, min(good.curves[0]), rel_tol=0.1)
    # Those that a look has trained on the fold already are not trained there in as much haste again.
    in_haste = [
        done for done in track.done if done[0] == 0.2 and done[2] == round((LEARNED + 4) / 0.2)
    ]
    assert len(in_haste) == 2 + 2 * (good.haste == 4.0)


def test_later_generations_must_promise_as_much_as_the_best_third(monkeypatch):
    track = Track(monkeypatch, 0.0005, 20.0)
    track.race.run(list(CANDIDATES), "portfolio")
    tried = len(track.race.candidates)
    track.race.run([{"max_leaves": 63, "learning_rate": 0.1}], "variation")
    assert track.race.candidates[tried].look is not None and not track.race.candidates[tried].curves


@pytest.mark.parametrize("limit", [10.0, 30.0, 60.0])
def test_leaders_are_judged_again_in_time_that_is_kept_for_it(monkeypatch, limit):
    track = Track(monkeypatch, 0.0005, limit, n_folds=9)

    def children(best, generation):
        return ({"max_leaves": 8, "reg_lambda": generation * 100 + i} for i in range(100))

    track.race.run(list(CANDIDATES), "portfolio")
    track.race.vary(children)
    begun = track.now
    track.race.judge_again()
    assert track.now - begun <= 0.3 * limit
    best = track.race.best()[0]
    assert (best.n_folds > 3) == (limit > 10.0)  # there is no time for three further folds
    rounds = track.race.at_last(best).rounds
    assert track.now + rounds * track.seconds_of_round * 15 <= limit


def test_where_time_was_over_before_it_began_nobody_is_judged_again(monkeypatch):
    track = Track(monkeypatch, 0.0005, -1.0)
    track.race.run(list(CANDIDATES), "portfolio")
    track.race.judge_again()
    assert len(track.race.best()) == 1
