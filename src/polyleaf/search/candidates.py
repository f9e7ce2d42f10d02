"""One set of parameters, and what became of it on the folds that it was tried on.

Owns: the score of a candidate, and the rounds that it is reached with. Must not know how it is trained.
Scores are losses here: of metrics of which more is better, the negative.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from polyleaf.search.portfolio import Parameters

__all__ = ["Candidate", "better_first"]


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
    curves : list of list of float
        Of each fold tried, in order: the loss after each round.
    seconds : float
        Of all its trainings.
    refused : str
        Why these parameters do not go with the data or one another; empty where they do.
    trained : list
        Of each fold tried: the fitted estimator while it is kept, or None.
    """

    number: int
    parameters: Parameters
    origin: str
    curves: list[list[float]] = field(default_factory=list)
    seconds: float = 0.0
    refused: str = ""
    trained: list[Any] = field(default_factory=list)

    @property
    def n_folds(self) -> int:
        """Folds that it was tried on."""
        return len(self.curves)

    @property
    def rounds(self) -> int:
        """Rounds of the best mean over the folds; 0 where it was not tried."""
        return 1 + int(np.argmin(self._mean())) if self.curves else 0

    @property
    def losses(self) -> list[float]:
        """Of each fold tried, with these rounds: all folds with as many."""
        last = self.rounds - 1
        return [curve[min(last, len(curve) - 1)] for curve in self.curves]

    @property
    def loss(self) -> float:
        """Their mean; infinite where it was not tried."""
        return float(np.mean(self.losses)) if self.curves else np.inf

    def _mean(self) -> np.ndarray:
        """Mean loss after each round. A curve that ended before the others stays where it ended: by then it
        had not improved for long."""
        longest = max(map(len, self.curves))
        padded = [curve + curve[-1:] * (longest - len(curve)) for curve in self.curves]
        return np.mean(padded, axis=0)


def better_first(candidates: list[Candidate]) -> list[Candidate]:
    """Those that were tried on more folds first; of these the lower loss, then the one that came earlier."""
    tried = [candidate for candidate in candidates if candidate.curves]
    return sorted(tried, key=lambda c: (-c.n_folds, c.loss, c.number))
