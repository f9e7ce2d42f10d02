"""The race against the clock: first looks before the folds, and a last training as slow as there is time for.

Owns what is done where a time limit is short beside one training: which candidates are looked at first, in
what haste they go on, and what is left for the end. Must not know how data are made ready.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from typing import Any

from polyleaf.search.cv_splits import Fold
from polyleaf.search.parallel import in_order
from polyleaf.search.screening import COST, Look, Looks, Pace
from polyleaf.search.successive_halving import MARGIN, Budget, LastTraining, Race, Share, Trained
from polyleaf.search.trials import Candidate

__all__ = ["TimedRace"]

# Trainings of the defaults on a fold that there is time for. With more nothing needs to be looked at first;
# with many more, folds that were drawn again are taken in.
PLENTY, MANY = 150.0, 450.0
PILOT, LOOKING = (
    0.06,
    0.35,
)  # of the time that is left: for the look at the first, and at a generation
LONGEST = 2.0  # times as long as the first look others may take
PROMISING = 1 / 3  # of all that were looked at
LAST = (
    1 / 3
)  # of all seconds are kept for a last training that is slower than those of the folds, at most
FINALS = 0.2  # of all seconds, at most, for judging the leaders again
PROBE = 0.02  # of the time: for rounds that are timed, on few rows and on a fold
SAVING = 0.6  # a round on few rows must not take more of one on a fold
_LOOK = -1


class TimedRace(Race):
    """A race that looks at candidates first where seconds are few.

    Parameters
    ----------
    *args
        As for `Race`. Folds beyond those that were dealt first are for where there is much time.
    small : Fold
        Few of the rows of the first fold, which looks are taken at.
    pace : Pace
    """

    def __init__(self, *args: Any, small: Fold, pace: Pace) -> None:
        super().__init__(*args)
        self._small, self._all = small, self._budget.left()
        self._looks = Looks(
            pace, small.growth**COST, small.growth, self.folds[0].growth, self._at_once
        )
        self._looked_on = _LOOK  # where a training log has the number of a fold
        self._is_short, self._first_look = True, 0.0
        n_folds = self.folds.dealt
        self._again = [list(range(i, i + n_folds)) for i in range(0, len(self.folds), n_folds)]
        self._is_at_end, self._is_final = False, False

    def is_over(self) -> bool:
        return self._is_at_end or super().is_over()

    def at_last(self, candidate: Candidate) -> LastTraining:
        """As slow as it was made to learn, or as there is time for."""
        pace, left = self._looks.pace, self._budget.left()
        if candidate.curves:
            if candidate.haste == 1.0 or self._members > 1:
                return super().at_last(candidate)
            slower = min(
                candidate.haste, max(1.0, left / MARGIN / self._seconds_at_last(candidate))
            )
            rounds = round(candidate.rounds * slower)
            return LastTraining(pace.hurried(candidate.parameters, 1 / slower), rounds, rounds)
        assert candidate.look is not None  # there is nothing else of it
        needed = self._looks.last(candidate.look, pace.rate(candidate.parameters))
        haste = min(pace.most(candidate.parameters), max(1.0, needed / max(left, 1e-9)))
        hurried = pace.hurried(candidate.parameters, haste)
        entry = candidate.look, pace.rate(hurried)
        # What is left where rounds are faster than was thought is for more of them.
        return LastTraining(
            hurried, self._looks.most_rounds(*entry), self._looks.last_rounds(*entry)
        )

    def best(self) -> list[Candidate]:
        """As `Race` has it; where nothing could be tried on a fold, the first: looks in haste at few rows are
        not enough to leave the defaults."""
        return super().best() or (self.candidates[:1] if self._is_at_end else [])

    def _looked(self) -> list[Candidate]:
        """All that were looked at, best first."""
        found = [(c.look.loss, c.number, c) for c in self.candidates if c.look is not None]
        return [candidate for *_, candidate in sorted(found, key=lambda entry: entry[:2])]

    def _ranking(self) -> list[Candidate]:
        tried = super().best()
        return tried + [c for c in self._looked() if not c.curves]

    def _entering(self, candidates: list[Candidate]) -> list[Candidate]:
        if not self._is_short:
            return candidates
        begins = not self.candidates
        if begins and not self._plan(candidates.pop(0)):
            return self.candidates + candidates
        if self._is_at_end:
            return []
        share = Share(self._budget, LOOKING * self._budget.left())
        self._look_beside(candidates, share)
        seen = self._looked()
        if begins:  # what everybody has is what others have to beat
            first = self.candidates[0]
            entering = [
                first,
                *(c for c in seen[: max(2, math.ceil(len(seen) / 2))] if c is not first),
            ]
        else:
            fresh = {candidate.number for candidate in candidates}
            entering = [c for c in seen[: math.ceil(PROMISING * len(seen))] if c.number in fresh]
        return self._hurried(entering)

    def _plan(self, first: Candidate) -> bool:
        """Look at the first; whether seconds are few beside its training, so that looks save any."""
        self._choose_rows(first)
        self._look_at(first, PILOT * self._budget.left())
        assert first.look is not None  # it is never refused
        own = self._looks.pace.rate(first.parameters)
        n_trainings = self._at_once * self._budget.left() / self._looks.on_fold(first.look, own)
        self._is_short, self._first_look = n_trainings < PLENTY, first.look.seconds
        # Without time for another one on the fold all is needed for the training on all rows.
        two, left = [(first.parameters, first.look)] * 2, (1 - LOOKING) * self._budget.left()
        self._is_at_end = self._is_short and self._looks.haste_of_all(two, left, least=2)[1] == 0
        if n_trainings >= MANY:
            self._steps = self._again
        return self._is_short

    def _choose_rows(self, first: Candidate) -> None:
        """Looks at few rows must be cheaper than trainings on the fold: measured, since small nodes and many
        outputs cost the same whatever the rows."""
        of_few, of_fold = self._seconds_of_round(first, _LOOK), self._seconds_of_round(first, 0)
        growth, of_rows = self.folds[0].growth, self._small.growth
        if of_few > SAVING * of_fold:
            self._small, self._looked_on, of_few, of_rows = self.folds[0], 0, of_fold, 1.0
        self._looks = Looks(self._looks.pace, of_fold / of_few, of_rows, growth, self._at_once)

    def _seconds_of_round(self, candidate: Candidate, fold: int) -> float:
        before = self._budget.left()
        parameters = self._looks.hurried(candidate.parameters)
        watch = self._train(
            parameters, self._data(fold), math.inf, Share(self._budget, PROBE * self._all)
        )
        return max(1e-9, before - self._budget.left()) / len(watch.curve)

    def _look_beside(self, candidates: list[Candidate], share: Share) -> None:
        """At as many of them as there is time for, several at a time."""

        def looks() -> Iterator[Callable[[], Trained]]:
            for candidate in candidates:
                if share.is_spent():
                    return
                yield partial(self._look, candidate, share, LONGEST * self._first_look)

        with closing(in_order(looks(), self._at_once, share.end)) as found:
            for candidate, trained in zip(candidates, found, strict=False):
                self._take_look(candidate, trained)

    def _look_at(self, candidate: Candidate, seconds: float) -> None:
        self._take_look(candidate, self._look(candidate, self._budget, seconds))

    def _look(self, candidate: Candidate, whole: Budget, seconds: float) -> Trained:
        parameters = self._looks.hurried(candidate.parameters)
        ended = self._log.find(parameters, self._looked_on)
        if ended is not None:
            return Trained(ended)
        leader = min((c.look.loss for c in self.candidates if c.look is not None), default=math.inf)
        data = self._data(self._looked_on)
        return self._measured(candidate, parameters, data, leader, Share(whole, seconds))

    def _take_look(self, candidate: Candidate, trained: Trained) -> None:
        parameters = self._looks.hurried(candidate.parameters)
        self.candidates.append(candidate)
        ended = self._kept(parameters, self._looked_on, trained, math.inf)
        candidate.refused = ended.refused
        if candidate.refused:
            self._say(f"{candidate.number:4d}  left out: {candidate.refused}")
            return
        loss, n = min(ended.curve), len(ended.curve)
        rounds = 1 + ended.curve.index(loss)
        rate = self._looks.pace.rate(parameters)
        candidate.look = Look(loss, rounds, n, max(ended.seconds, 1e-9), rate, trained.was_cut)
        self._say(
            f"{candidate.number:4d}  first look: loss {loss:.6g}, {rounds} rounds  {parameters}"
        )

    def _hurried(self, entering: list[Candidate]) -> list[Candidate]:
        """Those of them, in order, that there is time for, as fast as they must be."""
        found = [(c.parameters, c.look) for c in entering if c.look is not None]
        if not found:
            return []
        # The first of a search, what everybody has, has nothing to win against alone.
        begins = not super().best()
        least = min(2, len(found)) if begins else 1
        haste, n = self._looks.haste_of_all(found, self._budget.left(), least)
        self._is_at_end = n == 0
        if n < len(found) and begins:
            self._steps = self._steps[:1]  # one fold must do
        pace, entering = self._looks.pace, entering[:n]
        hastes = pace.hastes([c.proposed for c in entering], haste)
        for candidate, own in zip(entering, hastes, strict=True):
            candidate.parameters, candidate.haste = pace.hurried(candidate.proposed, own), own
        return entering

    def _data(self, fold: int) -> Fold:
        return self._small if fold == _LOOK else super()._data(fold)

    def _keep_time(self, candidate: Candidate, fold: int) -> None:
        if candidate.look is None:
            super()._keep_time(candidate, fold)
        else:
            rate = self._looks.pace.rate(candidate.parameters)
            self._budget.reserve(self._looks.last(candidate.look, rate))

    def _take(self, candidate: Candidate, fold: int, trained: Trained | None) -> bool:
        if trained is not None and candidate.look is not None and trained.ended.curve:
            self._looks.learn(candidate.look, len(trained.ended.curve), trained.ended.seconds)
        return super()._take(candidate, fold, trained)

    def _reserve(self) -> None:
        if self._members > 1:
            super()._reserve()
            return
        best = self.best()[0]
        seconds = self._seconds_at_last(best)
        last = min(seconds * best.haste, max(seconds, LAST * self._all))
        self._budget.reserve(last + self._seconds_of_finals() / MARGIN)

    def judge_again(self) -> None:
        self._is_final = True
        if self.best() and self.best()[0].curves:
            self._reserve()
        super().judge_again()

    def _finalists(self) -> list[Candidate]:
        """As many as there is time to judge on all folds of one deal."""
        found, most = super()._finalists(), FINALS * self._all
        while found and self.folds.dealt * _seconds_of_fold(found) > most:
            found.pop()
        return found if len(found) > 1 else []

    def _seconds_of_finals(self) -> float:
        """To be kept for judging the leaders again."""
        if self._is_final:
            return 0.0
        further = len(self.folds) - self.folds.dealt
        return min(FINALS * self._all, further * _seconds_of_fold(self._finalists()))


def _seconds_of_fold(candidates: list[Candidate]) -> float:
    """Of all their trainings on one."""
    return sum(c.seconds / c.n_folds for c in candidates)
