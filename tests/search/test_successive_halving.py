"""The race, with trainings that are told beforehand."""

from __future__ import annotations

import numpy as np
import pytest

from polyleaf.metrics import get_metric
from polyleaf.search import successive_halving as race_module
from polyleaf.search.cv_splits import Fold, Folds
from polyleaf.search.resume_log import TrainingLog
from polyleaf.search.successive_halving import Budget, Deadline, Race, Watch, hope_ends
from polyleaf.search.trials import better_first


class Spent(Budget):
    """A budget that is spent when it is asked the nth time."""

    def __init__(self, asked):
        super().__init__(None)
        self.left = asked

    def is_spent(self):
        self.left -= 1
        return self.left < 0


def watched(values, metric="rmse", patience=10**6, leader=np.inf, budget=None):
    watch = Watch(get_metric(metric), patience, leader, budget or Budget(None))
    for i in range(len(values)):
        if watch.after_iteration(None, i, {"validation": {metric: values[: i + 1]}}):
            break
    return watch


def a_race(losses, n_folds=3, budget=None, most=None):
    """Candidates {"is": i} have the loss `losses[i]` on every fold; the order of trainings."""
    log = []

    def train(parameters, fold, leader, budget):
        log.append((parameters["is"], fold.growth))
        if losses[parameters["is"]] is None:
            raise ValueError("it does not go")
        return watched([9.0, losses[parameters["is"]]])

    folds = Folds(n_folds, lambda j: Fold(None, None, float(j)))
    return Race(
        train, folds, budget or Budget(None), most, TrainingLog(None, {}), 1, lambda line: None
    ), log


def test_after_every_fold_the_better_half_goes_on():
    race, log = a_race([4.0, 1.0, 3.0, 2.0])
    race.run([{"is": i} for i in range(4)], "portfolio")
    assert [who for who, fold in log if fold == 0] == [0, 1, 2, 3]
    # The defaults, the first, stay: what others are compared with.
    assert [who for who, fold in log if fold == 1] == [0, 1, 3]
    assert [who for who, fold in log if fold == 2] == [0, 1]
    assert [c.number for c in race.best()] == [1, 0, 3, 2]
    race.run([{"is": 0}, {"is": 2}], "variation")
    assert [who for who, fold in log[9:] if fold == 2] == [2]


def drawn_race(losses, members=1):
    """Six folds, dealt three at a time: candidate i has the loss `losses[i][fold]`."""
    log = []

    def train(parameters, fold, leader, budget):
        log.append((parameters["is"], int(fold.growth)))
        if losses[parameters["is"]][int(fold.growth)] is None:
            raise ValueError("it does not go")
        return watched([9.0, losses[parameters["is"]][int(fold.growth)]])

    folds = Folds(6, lambda j: Fold(None, None, float(j)), 3)
    race = Race(train, folds, Budget(None), None, TrainingLog(None, {}), members, lambda line: None)
    race._steps = [[0, 1, 2]]
    race.run([{"is": i} for i in range(len(losses))], "portfolio")
    return race, log


LUCKY, STEADY = [4.0, 1.0, 4.0, 6.0, 6.0, 6.0], [3.0, 4.0, 3.0, 3.0, 4.0, 3.0]
WORSE, USUAL = [8.0, 8.5, 8.0] * 2, [5.0, 6.0, 5.0] * 2


def test_leaders_are_judged_again_on_folds_dealt_anew():
    # Of nine candidates two go on, and the defaults; who fell behind, or is the leader again, does not.
    race, log = drawn_race([USUAL, LUCKY, STEADY, LUCKY, *[WORSE] * 5])
    assert better_first(race.candidates)[0].number == 1
    race.judge_again()
    assert [who for who, fold in log if fold == 5] == [0, 1, 2]
    best = race.best()[0]
    assert best.number == 2 and best.loss == pytest.approx(np.mean(STEADY)) and best.n_folds == 6


def test_finalists_are_compared_on_the_folds_that_all_were_tried_on():
    race, _ = drawn_race([USUAL, [*LUCKY[:5], None], STEADY, *[WORSE] * 6])
    race.judge_again()
    assert race.candidates[1].refused and [c.n_folds for c in race.candidates[:3]] == [6, 5, 6]
    assert [c.number for c in race.best()[:2]] == [2, 0]
    race, log = drawn_race([USUAL, LUCKY, STEADY, *[WORSE] * 6])
    race._budget = Spent(4)  # in the second of the further folds
    race.judge_again()
    assert log[-4:] == [(0, 3), (1, 3), (2, 3), (0, 4)]
    assert [c.n_folds for c in race.candidates[:3]] == [4, 4, 4]


def test_members_of_a_blend_and_defaults_without_a_rival_are_not_judged_again():
    for race, log in (
        drawn_race([USUAL, STEADY], members=5),
        drawn_race([USUAL, WORSE]),
        drawn_race([USUAL]),
    ):
        race.judge_again()
        assert all(fold < 3 for _, fold in log)


def test_what_does_not_go_is_left_out_unless_it_is_the_first():
    race, _ = a_race([2.0, None])
    race.run([{"is": 0}, {"is": 1}], "portfolio")
    assert race.candidates[1].refused == "it does not go" and len(race.best()) == 1
    race, _ = a_race([None])
    with pytest.raises(ValueError, match="it does not go"):
        race.run([{"is": 0}], "portfolio")


def test_there_are_no_more_candidates_than_asked_for():
    race, log = a_race([5.0, 4.0, 3.0, 2.0, 1.0], n_folds=1, most=4)
    race.run([{"is": 0}, {"is": 1}], "portfolio")
    race.vary(
        lambda best, generation: iter([{"is": 1}, {"is": 2}, {"is": 2}, {"is": 3}, {"is": 4}])
    )
    assert [who for who, _ in log] == [0, 1, 2, 3]
    assert [c.origin for c in race.candidates] == ["portfolio"] * 2 + ["variation"] * 2


def test_the_search_ends_where_nothing_is_new():
    race, log = a_race([2.0], n_folds=1)
    race.run([{"is": 0}], "portfolio")
    race.vary(lambda best, generation: iter(candidate.parameters for candidate in best))
    assert len(log) == 1


def test_a_training_cut_by_time_counts_only_where_there_is_no_other():
    budget = Spent(3)
    first = watched([5.0, 4.0, 3.0, 2.0, 1.0], budget=budget)
    assert first.was_cut and first.curve == [5.0, 4.0, 3.0, 2.0]
    curves = iter([[5.0, 4.0], [1.0, 1.0]])
    folds = Folds(1, lambda i: Fold(None, None))
    race = Race(
        lambda *_: watched(next(curves), budget=Spent(0)),
        folds,
        Budget(None),
        None,
        TrainingLog(None, {}),
        1,
        lambda line: None,
    )
    race.run([{}, {"max_leaves": 8}], "portfolio")
    assert [c.curves for c in race.candidates] == [[[5.0]]]


def test_patience_ends_a_training():
    assert len(watched([3.0, 2.0, 2.5, 2.0, 1.0], patience=2).curve) == 4


def test_more_is_better_where_the_metric_says_so():
    assert watched([0.1, 0.5], metric="r2").curve == [-0.1, -0.5]


def test_nan_is_never_an_improvement():
    assert len(watched([np.nan] * 9, patience=3).curve) == 3


def test_the_hopeless_are_given_up_at_a_doubling():
    # After 16 rounds 9.85, of which the last 8 gained .08; after 32 9.69 and .16.
    slow = [10.0 - 0.01 * i for i in range(100)]
    assert len(watched(slow, patience=16, leader=9.52).curve) == 16
    assert len(watched(slow, patience=16, leader=9.54).curve) == 100
    # Flat from 32 on: at 64 nothing was gained.
    assert len(watched(slow[:32] + [9.68, 9.67] * 40, patience=32, leader=9.5).curve) == 64


@pytest.mark.parametrize("seed", range(20))
def test_hope_that_is_judged_afterwards_ends_at_the_same_round(seed):
    rng = np.random.default_rng(seed)
    values = (10 - np.cumsum(rng.random(100) * 0.02) + 0.01 * rng.standard_normal(100)).tolist()
    patience, late, leader = int(rng.integers(1, 20)), 9.9, float(rng.uniform(9, 9.9))
    # Who begins beside the leader knows less of it, and so goes on for longer.
    alone = watched(values, patience=patience, leader=leader).curve
    beside = watched(values, patience=patience, leader=late).curve
    n = hope_ends(beside, patience, leader)
    assert alone == (beside if n is None else beside[:n])


class Clock:
    """Time as a test has it."""

    def __init__(self, monkeypatch):
        self.now = 100.0
        monkeypatch.setattr(race_module.time, "perf_counter", lambda: self.now)


def test_the_first_training_leaves_time_for_the_last(monkeypatch):
    clock = Clock(monkeypatch)
    budget = Budget(10.0)
    clock.now += 1.0
    budget.reserve_as_long(
        1.5
    )  # with the margin 1.8 times what has passed: till 9 / 2.8 seconds from now
    clock.now += 3.2
    assert not budget.is_spent()
    clock.now += 0.02
    assert budget.is_spent() and not budget.is_over()
    budget.reserve(2.0)
    assert not budget.is_spent()
    clock.now = 110.0 - 2.6  # a fiftieth of the limit is kept besides
    assert budget.is_spent()


def test_the_last_training_ends_with_the_time(monkeypatch):
    clock = Clock(monkeypatch)
    deadline = Deadline(Budget(10.0))
    assert not deadline.after_iteration(None, 0, {})
    clock.now += 10.0
    assert deadline.after_iteration(None, 1, {}) and deadline.was_met and deadline.rounds == 2


def test_a_last_training_that_begins_late_has_what_was_kept_for_it(monkeypatch):
    clock = Clock(monkeypatch)
    budget = Budget(10.0)
    budget.reserve(0.5)  # with the margin .6, and .2 to spare
    clock.now += 9.9
    deadline = Deadline(budget)
    clock.now += 0.7  # the limit has passed
    assert not deadline.after_iteration(None, 0, {})
    clock.now += 0.11
    assert deadline.after_iteration(None, 1, {}) and deadline.was_met


def test_without_a_limit_no_clock_is_read(monkeypatch):
    budget = Budget(None)
    monkeypatch.setattr(race_module.time, "perf_counter", lambda: pytest.fail("the clock was read"))
    budget.reserve(1.0)
    assert not budget.is_spent() and not budget.is_over()
    assert not Deadline(budget).after_iteration(None, 0, {})
