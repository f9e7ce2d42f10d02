"""The race: which candidates are trained, on which folds, and when one is given up.

Owns the order of trainings and the rules by which candidates fall behind. Must not know how data are made
ready, or what a candidate's parameters mean. Without a time limit nothing here reads a clock.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from polyleaf.callbacks import Callback, EvalsLog
from polyleaf.metrics import Metric
from polyleaf.search.candidates import Candidate, better_first, winner_first
from polyleaf.search.ensemble import POOL
from polyleaf.search.folds import Fold, Folds
from polyleaf.search.log import Ended, TrainingLog
from polyleaf.search.portfolio import Parameters

__all__ = ["MARGIN", "Budget", "Deadline", "Race", "Share", "Watch"]

REACH = 4.0  # times what the last doubling gained: farther ahead, the leader is out of reach
MARGIN = 1.2  # the last training may take longer than those of the folds have
GENERATION = 8  # candidates that race each other, after the portfolio


class Budget:
    """The seconds there are, less what the last training will take. Without a limit there is no clock.

    Parameters
    ----------
    seconds : float or None
    """

    def __init__(self, seconds: float | None) -> None:
        self._end = math.inf if seconds is None else time.perf_counter() + seconds
        self._reserved = 0.0
        self._since: tuple[float, float] | None = None

    def left(self) -> float:
        """Seconds for everything, the last training too."""
        return math.inf if self._end == math.inf else self._end - time.perf_counter()

    def reserve(self, seconds: float) -> None:
        """Keep so many for the last training."""
        self._reserved, self._since = seconds * MARGIN, None

    def reserve_as_long(self, growth: float) -> None:
        """Keep `growth` times what passes from now on: the first training may be all there is time for."""
        self._since = time.perf_counter(), growth * MARGIN

    def is_spent(self) -> bool:
        """Whether it is time for the last training."""
        if self._end == math.inf:
            return False
        now = time.perf_counter()
        began, growth = self._since or (now, 0.0)
        return now + max(self._reserved, growth * (now - began)) >= self._end

    def is_over(self) -> bool:
        """Whether there is no second left, not even for the last training."""
        return self._end < math.inf and time.perf_counter() >= self._end


class Share(Budget):
    """Part of the seconds of another, from now on."""

    def __init__(self, whole: Budget, seconds: float) -> None:
        super().__init__(seconds)
        self._whole = whole

    def is_spent(self) -> bool:
        return super().is_spent() or self._whole.is_spent()


class Deadline(Callback):
    """Ends the last training where it takes longer than was thought: a limit is a limit.

    Parameters
    ----------
    budget : Budget

    Attributes
    ----------
    rounds : int
        Trained so far.
    was_met : bool
        The training was ended.
    """

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self.rounds = 0
        self.was_met = False

    def after_iteration(self, model: Any, epoch: int, evals_log: EvalsLog) -> bool:
        self.rounds += 1
        self.was_met = self._budget.is_over()
        return self.was_met


class Watch(Callback):
    """Ends one training of a candidate: when it stopped improving, has no hope, or time is spent.

    Parameters
    ----------
    metric : Metric
    patience : int
        Rounds without an improvement; after as many, and at every doubling of them, its hope is judged.
    leader : float
        The lowest loss that any candidate had on this fold.
    budget : Budget

    Attributes
    ----------
    curve : list of float
        Loss after each round.
    was_cut : bool
        Time was spent before the training had come to its end.
    fitted : estimator or None
        What came of it, where it is to be kept.
    """

    def __init__(self, metric: Metric, patience: int, leader: float, budget: Budget) -> None:
        self._metric, self._patience, self._leader, self._budget = metric, patience, leader, budget
        self._best: list[float] = []  # lowest loss up to each round
        self._since = 0
        self.curve: list[float] = []
        self.was_cut = False
        self.fitted: Any = None

    def after_iteration(self, model: Any, epoch: int, evals_log: EvalsLog) -> bool:
        value = list(evals_log.values())[-1][self._metric.name][-1]
        loss = math.inf if math.isnan(value) else -value if self._metric.greater_is_better else value
        before = self._best[-1] if self._best else math.inf
        self._since = 0 if loss < before else self._since + 1
        self.curve.append(loss)
        self._best.append(min(loss, before))
        if self._since >= self._patience or self._is_hopeless():
            return True
        self.was_cut = self._budget.is_spent()
        return self.was_cut

    def _is_hopeless(self) -> bool:
        """At doublings of the rounds: whether the leader is farther than a few such doublings would reach."""
        n = len(self._best)
        times, rest = divmod(n, self._patience)
        if n < 2 or rest or times & (times - 1):
            return False
        return self._best[-1] - self._leader > REACH * (self._best[n // 2 - 1] - self._best[-1])


class Race:
    """All candidates of one search.

    Parameters
    ----------
    train : callable
        `train(parameters, fold, leader, budget)`: the `Watch` of a training that has ended. ValueError where
        the parameters do not go with the data.
    folds : Folds
        Asked for those only that a candidate comes to.
    budget : Budget
    most : int or None
        Candidates.
    log : TrainingLog
        Trainings that need not be repeated, and where those that end are kept.
    members : int
        Candidates that may be trained on all rows in the end.
    say : callable
        Takes a line of text.

    Attributes
    ----------
    candidates : list of Candidate
        As they were tried.
    folds : Folds
    """

    def __init__(
        self,
        train: Callable[[Parameters, Fold, float, Budget], Watch],
        folds: Folds,
        budget: Budget,
        most: int | None,
        log: TrainingLog,
        members: int,
        say: Callable[[str], Any],
    ) -> None:
        self._train, self.folds, self._budget, self._say = train, folds, budget, say
        self._most, self._log, self._members = math.inf if most is None else most, log, members
        self.candidates: list[Candidate] = []
        # Folds that candidates are tried on before the better half of them goes on.
        self._steps = [[fold] for fold in range(len(folds))]

    def best(self) -> list[Candidate]:
        """Those that have a score, best first; the defaults before what is not better by more than noise."""
        return winner_first([candidate for candidate in self.candidates if candidate.curves])

    def is_over(self) -> bool:
        """Whether there is neither time nor number left for another candidate."""
        return len(self.candidates) >= self._most or (bool(self.best()) and self._budget.is_spent())

    def run(self, generation: list[Parameters], origin: str) -> None:
        """Let a generation race: after every fold the better half goes on to the next, and with it the
        defaults, which all are compared with in the end."""
        room = self._most - len(self.candidates)
        entered = generation if room > len(generation) else generation[: int(room)]
        running = self._entering(
            [Candidate(len(self.candidates) + i, p, origin) for i, p in enumerate(entered)]
        )
        for step in self._steps:
            for candidate in running:
                if candidate.number >= len(self.candidates):
                    self.candidates.append(candidate)
                if not all(self._try(candidate, fold) for fold in step):
                    return
            others = better_first([c for c in running if c.number > 0])
            running = [c for c in running if c.number == 0] + others[: math.ceil(len(others) / 2)]
        # Fitted estimators are needed of those only that may be blended.
        for candidate in self.best()[POOL * self._members :]:
            candidate.trained = [None] * candidate.n_folds

    def at_last(self, candidate: Candidate) -> tuple[Parameters, int]:
        """Parameters and rounds of its training on all rows."""
        return candidate.parameters, candidate.rounds

    def _entering(self, candidates: list[Candidate]) -> list[Candidate]:
        """Those of a generation that are tried on the folds, in order."""
        return candidates

    def vary(
        self, children: Callable[[list[Candidate], int], Iterator[Parameters]], origin: str = "variation"
    ) -> None:
        """Generation after generation made from the best, until the race is over.

        `children(candidates, number of the generation)` gives them endlessly, or none.
        """
        generation = 0
        while not self.is_over():
            tried = [candidate.proposed for candidate in self.candidates]
            fresh: list[Parameters] = []
            # Of ladders that are climbed to their ends there may be nothing new.
            for child in islice(children(self._ranking(), generation), 50 * GENERATION):
                if child not in tried and child not in fresh and len(fresh) < GENERATION:
                    fresh.append(child)
            if not fresh:
                return
            self.run(fresh, origin)
            generation += 1

    def _ranking(self) -> list[Candidate]:
        """What variations learn from, best first."""
        return better_first(self.best())

    def _try(self, candidate: Candidate, fold: int) -> bool:
        """One training. False when time is spent."""
        if candidate.refused:
            return True
        if self.best() and self._budget.is_spent():
            return False
        ended = self._log.find(candidate.parameters, fold)
        if ended is None:
            ended, was_cut, fitted = self._train_now(candidate, fold)
        else:
            was_cut, fitted = False, None
        candidate.seconds += ended.seconds
        if ended.refused:
            candidate.refused = ended.refused
            self._say(f"{candidate.number:4d}  left out: {ended.refused}")
            return True
        # Of each its own best round, never that at which time was spent; unless there is nothing else.
        if ended.curve and (not was_cut or not self.best()):
            candidate.curves.append(ended.curve)
            candidate.trained.append(fitted)
            self._reserve()
            self._tell(candidate, fold)
        return not was_cut

    def _train_now(self, candidate: Candidate, fold: int) -> tuple[Ended, bool, Any]:
        """What came of one training, whether time was spent before its end, and the estimator if kept."""
        before = [c.curves[fold] for c in self.candidates if c.n_folds > fold]
        leader = min((min(curve) for curve in before), default=math.inf)
        if not self.best():
            self._keep_time(candidate, fold)
        return self._measured(candidate, candidate.parameters, fold, leader, self._budget)

    def _keep_time(self, candidate: Candidate, fold: int) -> None:
        """The first training may be all that there is time for."""
        self._budget.reserve_as_long(self.folds[fold].growth)

    def _measured(
        self, candidate: Candidate, parameters: Parameters, fold: int, leader: float, budget: Budget
    ) -> tuple[Ended, bool, Any]:
        """The training itself, as `_train_now` has it."""
        started = time.perf_counter()
        try:
            watch = self._train(parameters, self._data(fold), leader, budget)
        except ValueError as refusal:
            if candidate.number == 0:
                raise
            ended, was_cut, fitted = Ended([], 0.0, str(refusal)), False, None
        else:
            ended = Ended(watch.curve, time.perf_counter() - started)
            was_cut, fitted = watch.was_cut, watch.fitted
        if not was_cut:
            self._log.add(parameters, fold, ended)
        return ended, was_cut, fitted

    def _data(self, fold: int) -> Fold:
        return self.folds[fold]

    def _reserve(self) -> None:
        """Keep time for the last trainings: the best candidates' rounds, on all rows."""
        self._budget.reserve(sum(map(self._seconds_at_last, self.best()[: self._members])))

    def _seconds_at_last(self, candidate: Candidate) -> float:
        """Of a training on all rows."""
        share = candidate.rounds / sum(map(len, candidate.curves))
        return share * self.folds[0].growth * candidate.seconds

    def _tell(self, candidate: Candidate, fold: int) -> None:
        best, n_folds = self.best()[0], sum(map(len, self._steps))
        self._say(
            f"{candidate.number:4d}  fold {fold + 1} of {n_folds}: loss {candidate.loss:.6g}, "
            f"{candidate.rounds} rounds; best {best.loss:.6g} ({best.number})  {candidate.parameters}"
        )
