"""First looks: what a candidate promises, found in haste on few rows, and how long its trainings will be.

Owns the pace of candidates where seconds are few: how much faster they learn than they will in the end, and
what seconds they will need. Must not know the data, or by which rules candidates race.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from polyleaf.search.portfolio import Parameters
from polyleaf.settings.parameters import DEFAULT_N_ESTIMATORS, DEFAULTS
from polyleaf.training.auto_n_estimators import MAX_ROWS

__all__ = ["COST", "Look", "Looks", "Pace"]

HASTE = 4.0  # times its own rate a candidate learns at, when it is looked at
MOST_RATE = 0.3  # whatever the haste
ROOT = 0.5  # n times the rows want about n ** ROOT times the rounds,
COST = 0.85  # and each of them takes n ** COST times as long, where nothing was measured
# Rounds times rate of the defaults: more is not taken for granted.
USUAL_LEARNING = DEFAULT_N_ESTIMATORS * DEFAULTS["learning_rate"]


@dataclass(frozen=True)
class Pace:
    """Rates of candidates, and for how many rows.

    Parameters
    ----------
    rate : callable
        `rate(parameters)`: the learning rate that a candidate has.
    is_free : bool
        Whether they may be changed: not where the user has set one, or the most rounds.
    n_rows : int
        Of all data.
    """

    rate: Callable[[Parameters], float]
    is_free: bool
    n_rows: int

    def most(self, parameters: Parameters) -> float:
        """How many times faster a candidate may learn."""
        return max(1.0, MOST_RATE / self.rate(parameters)) if self.is_free else 1.0

    def hastes(self, candidates: Sequence[Parameters], haste: float) -> list[float]:
        """Of each, where the slowest learns so many times faster: the others catch up only as far as it is
        faster than they are, since whoever learns faster than another has the worse loss for that alone."""
        if not self.is_free:
            return [1.0] * len(candidates)
        rates = [self.rate(parameters) for parameters in candidates]
        rate = haste * min(rates, default=0.0)
        return [
            min(max(1.0, rate / own), self.most(p))
            for own, p in zip(rates, candidates, strict=True)
        ]

    def hurried(self, parameters: Parameters, haste: float) -> Parameters:
        """The same, so many times faster."""
        if haste == 1.0:
            return parameters
        hurried = {**parameters, "learning_rate": round(self.rate(parameters) * haste, 6)}
        if "n_estimators" in parameters:
            hurried["n_estimators"] = round(parameters["n_estimators"] / haste)
        return hurried


class Look(NamedTuple):
    """What came of a first look."""

    loss: float
    rounds: int  # to that loss
    n_trained: int
    seconds: float
    rate: float  # that it learned at
    was_cut: bool  # time for it was over before it had come to its end


class Looks:
    """What looks say of trainings on more rows.

    Parameters
    ----------
    pace : Pace
    cost : float
        Seconds of a round on a fold for each second of one of a look.
    of_fold, growth : float
        Rows of a fold for each row of a look, and of the last training for each of a fold. With 1.0 looks are
        trainings on the fold.
    at_once : int
        Trainings that run beside one another, but for the last.
    """

    def __init__(
        self, pace: Pace, cost: float, of_fold: float, growth: float, at_once: int = 1
    ) -> None:
        self._at_once = at_once
        self.pace, self._is_on_fold = pace, of_fold == 1.0
        self._rows, self._growth = of_fold * growth, growth**COST
        self._cost = cost

    def hurried(self, parameters: Parameters, haste: float = HASTE) -> Parameters:
        """The same in haste, that of looks, or as near as may be."""
        return self.pace.hurried(parameters, min(haste, self.pace.most(parameters)))

    def on_fold(self, look: Look, rate: float) -> float:
        """Seconds of a training on a fold."""
        return self._cost * look.seconds * look.rate / rate

    def left_on_fold(self, look: Look, rate: float) -> float:
        """The same; none where the look was just that."""
        was_that = self._is_on_fold and look.rate == rate and not look.was_cut
        return 0.0 if was_that else self.on_fold(look, rate)

    def last(self, look: Look, rate: float) -> float:
        """Seconds of the last training."""
        return (
            self._cost * self._growth * look.seconds / look.n_trained * self.last_rounds(look, rate)
        )

    def last_rounds(self, look: Look, rate: float) -> int:
        """Rounds on all rows, as far as a look can tell how many are enough."""
        learned = look.rounds * look.rate
        # Where it is not known, what probabilities do not suffer from yet.
        more = (
            USUAL_LEARNING / 2 if look.was_cut else min(learned * self._rows**ROOT, USUAL_LEARNING)
        )
        return max(1, round(max(learned, more) / rate))

    def most_rounds(self, look: Look, rate: float) -> int:
        """Rounds on all rows that are not too many yet, where there is time for more than are enough."""
        harmless = USUAL_LEARNING * min(1.0, self.pace.n_rows / MAX_ROWS) ** ROOT
        return max(round(harmless / rate) if look.was_cut else 0, self.last_rounds(look, rate))

    def learn(self, look: Look, n_trained: int, seconds: float) -> None:
        """A training on a fold has taken so many seconds for its rounds."""
        self._cost = seconds / n_trained / (look.seconds / look.n_trained)

    def haste_of_all(
        self, found: Sequence[tuple[Parameters, Look]], left: float, least: int = 1
    ) -> tuple[float, int]:
        """The least haste with which trainings on a fold, in order, and the last one fit into `left` seconds,
        and how many do: all, else the first two, else the first; none where these are fewer than `least`."""
        for n, share in ((len(found), 0.6), (2, 0.8), (1, 0.9)):
            for haste in (1.0, 2.0, HASTE):
                if least <= n <= len(found) and self._needed(found[:n], haste) <= share * left:
                    return haste, n
        return HASTE, 0

    def _needed(self, found: Sequence[tuple[Parameters, Look]], haste: float) -> float:
        """Seconds of all trainings on a fold, several at a time, and of the longest last one."""
        hastes = self.pace.hastes([parameters for parameters, _ in found], haste)
        at = [
            (look, self.pace.rate(self.pace.hurried(parameters, own)))
            for (parameters, look), own in zip(found, hastes, strict=True)
        ]
        needed = [self.left_on_fold(*each) for each in at]
        on_folds = max(sum(needed) / min(self._at_once, len(needed)), max(needed))
        return on_folds + max(self.last(*each) for each in at)
