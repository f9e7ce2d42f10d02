"""One set of parameters, and what became of it on the folds that it was tried on.

Owns: the score of a candidate, and the rounds that it is reached with. Must not know how it is trained.
Scores are losses here: of metrics of which more is better, the negative.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from polyleaf.search.portfolio import Parameters
from polyleaf.search.screening import Look

__all__ = ["Candidate", "better_first", "is_near", "winner_first"]

# Of what the defaults have learned on the one fold that there is: less does not tell two candidates apart.
NOISE = 0.01


@dataclass
class Candidate:
    """A candidate.

    Attributes
    ----------
    number : int
        From 0, in the order in which candidates were tried.
    parameters : dict
        What differs from the estimator that searches.
    origin : {"portfolio", "variation", "tpe"}
    proposed : dict
        The same as they were proposed, before there was haste.
    curves : list of list of float
        Of each fold tried, in order: the loss after each round.
    seconds : float
        Of all its trainings.
    refused : str
        Why these parameters do not go with the data or one another; empty where they do.
    trained : list
        Of each fold tried: the fitted estimator while it is kept, or None.
    look : Look or None
        What a first look at it has found.
    haste : float
        How many times faster it learns on the folds than it was made to.
    """

    number: int
    parameters: Parameters
    origin: str
    curves: list[list[float]] = field(default_factory=list)
    seconds: float = 0.0
    refused: str = ""
    trained: list[Any] = field(default_factory=list)
    look: Look | None = None
    haste: float = 1.0
    proposed: Parameters = field(init=False)
    _of_folds: int = field(default=0, init=False, repr=False)
    _summary: tuple[int, list[float], float] = field(
        default=(0, [], np.inf), init=False, repr=False
    )

    def __post_init__(self) -> None:
        self.proposed = self.parameters

    @property
    def n_folds(self) -> int:
        """Folds that it was tried on."""
        return len(self.curves)

    @property
    def rounds(self) -> int:
        """Rounds of the best mean over the folds, or of a first look; 0 where it was not tried."""
        if not self.curves:
            return 0 if self.look is None else self.look.rounds
        return self._found()[0]

    @property
    def losses(self) -> list[float]:
        """Of each fold tried, with these rounds: all folds with as many."""
        return list(self._found()[1]) if self.curves else []

    @property
    def loss(self) -> float:
        """Their mean, or that of a first look; infinite where it was not tried."""
        if not self.curves:
            return np.inf if self.look is None else self.look.loss
        return self._found()[2]

    def _found(self) -> tuple[int, list[float], float]:
        """Rounds, losses and their mean; found once for as many folds, since all candidates are compared
        after every training."""
        if self._of_folds != self.n_folds:
            last = int(np.argmin(self._mean()))
            losses = [curve[min(last, len(curve) - 1)] for curve in self.curves]
            self._of_folds, self._summary = self.n_folds, (1 + last, losses, float(np.mean(losses)))
        return self._summary

    def _mean(self) -> np.ndarray:
        """Mean loss after each round. A curve that ended before the others stays where it ended: by then it
        had not improved for long."""
        longest = max(map(len, self.curves))
        padded = [curve + curve[-1:] * (longest - len(curve)) for curve in self.curves]
        return np.mean(padded, axis=0)


def better_first(candidates: list[Candidate]) -> list[Candidate]:
    """Those that were tried on more folds first, those that were only looked at last; of as many the lower
    loss, then the one that came earlier."""
    tried = [c for c in candidates if c.curves or (c.look is not None and not c.refused)]
    return sorted(tried, key=lambda c: (-c.n_folds, c.loss, c.number))


def winner_first(candidates: list[Candidate]) -> list[Candidate]:
    """As `better_first`, but the defaults, the first that was tried, are before all others unless the best of
    these is better on the folds that both were tried on, and by more than noise."""
    ordered = better_first(candidates)
    first = next((c for c in ordered if c.number == 0 and c.curves), None)
    others = [c for c in ordered if c is not first]
    if first is None or not others or not others[0].curves:
        return ordered
    return [others[0], first, *others[1:]] if _beats(others[0], first) else [first, *others]


def is_near(one: Candidate, leader: Candidate, errors: float) -> bool:
    """Whether it is not worse on the folds that both were tried on by more than so many standard errors of
    the mean difference. On one fold alone nothing is known of that."""
    n = min(one.n_folds, leader.n_folds)
    if np.isinf(one.losses[:n]).any():
        return False
    behind = np.subtract(one.losses[:n], leader.losses[:n])
    return n < 2 or float(behind.mean()) <= errors * float(behind.std(ddof=1)) / np.sqrt(n)


def _beats(one: Candidate, first: Candidate) -> bool:
    """Whether the mean difference is more than its standard error over the folds."""
    n = min(one.n_folds, first.n_folds)
    if np.isinf(one.losses[:n]).any():  # what was NaN, as of a training that diverged
        return False
    gains = np.subtract(first.losses[:n], one.losses[:n])
    if n == 1:
        curve = first.curves[0]
        return float(gains[0]) > NOISE * (curve[0] - min(curve))
    return float(gains.mean()) > float(gains.std(ddof=1)) / np.sqrt(n)
