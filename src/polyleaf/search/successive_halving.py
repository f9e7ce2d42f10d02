"""The race: which candidates are trained, on which folds, and when one is given up.

Owns the order of trainings and the rules by which candidates fall behind. Must not know how data are made
ready, or what a candidate's parameters mean. Without a time limit nothing here reads a clock.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from itertools import islice
from typing import Any, NamedTuple

from polyleaf.callbacks import Callback, EvalsLog
from polyleaf.metrics import Metric
from polyleaf.search.cv_splits import Fold, Folds
from polyleaf.search.ensemble import POOL
from polyleaf.search.parallel import in_order
from polyleaf.search.portfolio import Parameters
from polyleaf.search.resume_log import Ended, TrainingLog
from polyleaf.search.trials import Candidate, better_first, is_near, winner_first

__all__ = [
    "MARGIN",
    "Budget",
    "Deadline",
    "LastTraining",
    "Race",
    "Share",
    "Trained",
    "Watch",
    "hope_ends",
]

REACH = 4.0  # times what the last doubling gained: farther ahead, the leader is out of reach
MARGIN = 1.2  # the last training may take longer than those of the folds have
# Of the limit, and at most so many seconds: for what comes between trainings, and before the first round of
# the last one. Rounds are a small part of short trainings.
SPARE, MOST_SPARE = 0.02, 0.5
GENERATION = 8  # candidates that race each other, after the portfolio
# That are judged again on folds dealt anew, beside the defaults: one for so many tried, and so many at most.
TRIED_FOR_EACH, FINALISTS = 8, 4
NEAR = 2.0  # standard errors of the mean difference from the leader


class Budget:
    """The seconds there are, less what the last training will take. Without a limit there is no clock.

    Parameters
    ----------
    seconds : float or None
    """

    def __init__(self, seconds: float | None) -> None:
        self._end = math.inf if seconds is None else time.perf_counter() + seconds
        self._spare = 0.0 if seconds is None else min(SPARE * seconds, MOST_SPARE)
        self._reserved = 0.0
        self._since: tuple[float, float] | None = None

    def left(self) -> float:
        """Seconds for everything, the last training too."""
        return math.inf if self._end == math.inf else self._end - time.perf_counter()

    def reserve(self, seconds: float) -> None:
        """Keep so many for the last training."""
        self._reserved, self._since = seconds * MARGIN + self._spare, None

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

    def last_end(self) -> float:
        """When a last training that begins now must end: with the time; where the search has taken longer
        than it may, when it has had what was kept for it, or it would be a stump."""
        return (
            math.inf
            if self._end == math.inf
            else max(self._end, time.perf_counter() + self._reserved)
        )


class Share(Budget):
    """Part of the seconds of another, from now on, or until it is ended."""

    def __init__(self, whole: Budget, seconds: float | None = None) -> None:
        super().__init__(seconds)
        self._whole = whole

    def is_spent(self) -> bool:
        return super().is_spent() or self._whole.is_spent()

    def end(self) -> None:
        """Nothing is left of it."""
        self._end = -math.inf


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
        self._end = budget.last_end()
        self.rounds = 0
        self.was_met = False

    def after_iteration(self, model: Any, epoch: int, evals_log: EvalsLog) -> bool:
        self.rounds += 1
        self.was_met = self._end < math.inf and time.perf_counter() >= self._end
        return self.was_met


class Watch(Callback):
    """Ends one training of a candidate: when it stopped improving, has no hope, or time is spent.

    Parameters
    ----------
    metric : Metric
    patience : int
        Rounds without an improvement, and what `hope_ends` judges by.
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
        self._metric, self.patience, self._leader, self._budget = metric, patience, leader, budget
        self._lowest, self._since = math.inf, 0
        self.curve: list[float] = []
        self.was_cut = False
        self.fitted: Any = None

    def after_iteration(self, model: Any, epoch: int, evals_log: EvalsLog) -> bool:
        value = list(evals_log.values())[-1][self._metric.name][-1]
        loss = (
            math.inf if math.isnan(value) else -value if self._metric.greater_is_better else value
        )
        self._since = 0 if loss < self._lowest else self._since + 1
        self._lowest = min(loss, self._lowest)
        self.curve.append(loss)
        if self._since >= self.patience or self._is_hopeless():
            return True
        self.was_cut = self._budget.is_spent()
        return self.was_cut

    def _is_hopeless(self) -> bool:
        return hope_ends(self.curve, self.patience, self._leader, len(self.curve)) is not None


def hope_ends(curve: Sequence[float], patience: int, leader: float, first: int = 1) -> int | None:
    """The round, not before `first`, after which a training has no hope; None where it has.

    Judged after `patience` rounds and at every doubling of them: whether the leader is farther than a few
    such doublings would reach.

    Parameters
    ----------
    curve : sequence of float
        Loss after each round.
    patience : int
    leader : float
        The lowest loss that anybody had.
    first : int
    """
    n = patience
    while n <= len(curve):
        if n >= max(2, first):
            best, before = min(curve[:n]), min(curve[: n // 2])
            if best - leader > REACH * (before - best):
                return n
        n *= 2
    return None


class Trained(NamedTuple):
    """What came of one training, before it is known who else has ended.

    Attributes
    ----------
    ended : Ended
    was_cut : bool
        Time was spent before its end.
    fitted : estimator or None
        What came of it, where it is to be kept.
    patience : int
        Of its watch; 0 where it was not watched.
    """

    ended: Ended
    was_cut: bool = False
    fitted: Any = None
    patience: int = 0


class LastTraining(NamedTuple):
    """A training on all rows.

    Attributes
    ----------
    parameters : dict
    rounds : int
        At most: the time may be over before.
    enough : int
        With fewer of them it has ended too early.
    """

    parameters: Parameters
    rounds: int
    enough: int


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
    at_once : int
        Trainings on folds that run beside one another. What is found does not depend on it, but for a time
        limit.

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
        at_once: int = 1,
    ) -> None:
        self._at_once = at_once
        self._train, self.folds, self._budget, self._say = train, folds, budget, say
        self._most, self._log, self._members = math.inf if most is None else most, log, members
        self.candidates: list[Candidate] = []
        # Folds that candidates are tried on before the better half of them goes on.
        self._steps = [[fold] for fold in range(folds.dealt)]

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
            if not self._try(running, step):
                return
            others = better_first([c for c in running if c.number > 0])
            running = [c for c in running if c.number == 0] + others[: math.ceil(len(others) / 2)]
        # Fitted estimators are needed of those only that may be blended.
        for candidate in self.best()[POOL * self._members :]:
            candidate.trained = [None] * candidate.n_folds

    def judge_again(self) -> None:
        """Try the leaders on the folds that were dealt anew: among many candidates the best on the same few
        folds is the luckiest, too. They are compared on the folds that all of them were tried on."""
        finalists = self._finalists()
        try:
            for fold in range(self.folds.dealt, len(self.folds) if finalists else 0):
                if not self._try(finalists, [fold]):
                    break
        finally:  # Ctrl-C, too
            common = min((c.n_folds for c in finalists if not c.refused), default=0)
            for candidate in finalists:
                candidate.curves, candidate.trained = (
                    candidate.curves[:common],
                    candidate.trained[:common],
                )

    def _finalists(self) -> list[Candidate]:
        """The leaders after the first folds, as far as noise does not tell them apart, and the defaults; none
        where there is nobody to compare. Members of a blend are many as they are."""
        dealt = self.folds.dealt
        best = [c for c in self.best() if not c.refused]
        if self._members > 1 or not best or best[0].n_folds != dealt:
            return []
        leaders: list[Candidate] = []
        for candidate in better_first([c for c in best if c.n_folds == dealt]):
            is_same = any(candidate.losses == other.losses for other in leaders)
            if not is_same and (not leaders or is_near(candidate, leaders[0], NEAR)):
                leaders.append(candidate)
        most = min(FINALISTS, math.ceil(len(self.candidates) / TRIED_FOR_EACH))
        first = [c for c in best if c.number == 0 and c.n_folds == dealt]
        found = first + [c for c in leaders if c.number > 0][:most]
        return found if len(found) > 1 else []

    def at_last(self, candidate: Candidate) -> LastTraining:
        """Its training on all rows."""
        return LastTraining(candidate.parameters, candidate.rounds, candidate.rounds)

    def _entering(self, candidates: list[Candidate]) -> list[Candidate]:
        """Those of a generation that are tried on the folds, in order."""
        return candidates

    def vary(
        self,
        children: Callable[[list[Candidate], int], Iterator[Parameters]],
        origin: str = "variation",
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
                if child not in tried and child not in fresh:
                    fresh.append(child)
                if len(fresh) == GENERATION or self._budget.is_spent():  # each may take its time
                    break
            if not fresh:
                return
            self.run(fresh, origin)
            generation += 1

    def _ranking(self) -> list[Candidate]:
        """What variations learn from, best first."""
        return better_first(self.best())

    def _try(self, running: list[Candidate], step: list[int]) -> bool:
        """All of them on the folds of a step, the first of all alone. False when time is spent."""
        pairs = [(candidate, fold) for candidate in running for fold in step]
        alone = 0 if self._has_begun() else 1
        return self._beside(pairs[:alone], 1) and self._beside(pairs[alone:], self._at_once)

    def _has_begun(self) -> bool:
        return any(candidate.curves for candidate in self.candidates)

    def _beside(self, pairs: list[tuple[Candidate, int]], at_once: int) -> bool:
        """Trainings, so many at a time; what comes of them is taken in order. False when time is spent."""
        until = Share(self._budget)
        jobs = (self._training(candidate, fold, until) for candidate, fold in pairs)
        with closing(in_order(jobs, at_once, until.end)) as found:
            for (candidate, fold), trained in zip(pairs, found, strict=True):
                if candidate.number >= len(self.candidates):
                    self.candidates.append(candidate)
                if not self._take(candidate, fold, trained):
                    return False
        return True

    def _training(
        self, candidate: Candidate, fold: int, until: Budget
    ) -> Callable[[], Trained | None]:
        """A training, to be run beside others: it changes nothing that they read. None: time was spent."""
        data = self._data(fold)

        def run() -> Trained | None:
            if candidate.refused or (self._has_begun() and until.is_spent()):
                return None
            ended = self._log.find(candidate.parameters, fold)
            if ended is not None:
                return Trained(ended)
            if not self._has_begun():
                self._keep_time(candidate, fold)
            return self._measured(candidate, candidate.parameters, data, self._leader(fold), until)

        return run

    def _take(self, candidate: Candidate, fold: int, trained: Trained | None) -> bool:
        """What came of a training, now that all before it are known. False when time is spent."""
        if candidate.refused:
            return True
        if trained is None:
            return False
        ended = self._kept(candidate.parameters, fold, trained, self._leader(fold))
        candidate.seconds += ended.seconds
        if ended.refused:
            candidate.refused = ended.refused
            self._say(f"{candidate.number:4d}  left out: {ended.refused}")
            return True
        if candidate.number == 0 and ended.curve and min(ended.curve) == math.inf:
            raise ValueError(
                f"The metric is no number after any round of the defaults on fold {fold + 1} of "
                f"{self.folds.dealt}: its rows to validate may be too few, or of one class only. Deal other "
                "folds (cv), or take another metric."
            )
        # Of each its own best round, never that at which time was spent; unless there is nothing else.
        if ended.curve and (not trained.was_cut or not self.best()):
            candidate.curves.append(ended.curve)
            candidate.trained.append(trained.fitted)
            self._reserve()
            self._tell(candidate, fold)
        return not trained.was_cut

    def _leader(self, fold: int) -> float:
        """The lowest loss that any candidate had on a fold."""
        before = [c.curves[fold] for c in self.candidates if c.n_folds > fold]
        return min((min(curve) for curve in before), default=math.inf)

    def _keep_time(self, candidate: Candidate, fold: int) -> None:
        """The first training may be all that there is time for."""
        self._budget.reserve_as_long(self.folds[fold].growth)

    def _measured(
        self,
        candidate: Candidate,
        parameters: Parameters,
        data: Fold,
        leader: float,
        budget: Budget,
    ) -> Trained:
        """The training itself."""
        started = time.perf_counter()
        try:
            watch = self._train(parameters, data, leader, budget)
        except ValueError as refusal:
            if candidate.number == 0:
                raise
            return Trained(Ended([], 0.0, str(refusal)))
        ended = Ended(watch.curve, time.perf_counter() - started)
        return Trained(ended, watch.was_cut, watch.fitted, watch.patience)

    def _kept(self, parameters: Parameters, fold: int, trained: Trained, leader: float) -> Ended:
        """The training as it would have ended had it begun when all before it had, and it is logged so."""
        ended, n = trained.ended, None
        if trained.patience:
            n = hope_ends(ended.curve, trained.patience, leader)
        if n is not None:
            ended = ended._replace(curve=ended.curve[:n])
        if (n is not None or not trained.was_cut) and self._log.find(parameters, fold) is None:
            self._log.add(parameters, fold, ended)
        return ended

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
