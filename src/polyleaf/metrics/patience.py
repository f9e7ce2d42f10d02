"""When a training stops because a loss no longer falls."""

from __future__ import annotations

import math


class Patience:
    """The round of the lowest loss, and whether too many rounds have passed since.

    `rounds`: rounds without an improvement after which a training stops. `min_delta`: a loss
    improves if it falls by more than this. `lowest`: the lowest loss; infinite before the first
    finite one. `best_round`: the round of the lowest loss.
    """

    def __init__(self, rounds: int, min_delta: float = 0.0) -> None:
        self._rounds = rounds
        self._min_delta = min_delta
        self.lowest = math.inf
        self.best_round: int | None = None

    def update(self, loss: float, round: int) -> bool:
        """Note the loss after a round, and return whether it improves. NaN and infinity do not."""
        improves = self.lowest - loss > self._min_delta
        if improves:
            self.lowest = loss
            self.best_round = round
        return improves

    def is_over(self, round: int) -> bool:
        """Return whether a training stops after this round, counted from 0."""
        last_improvement = -1 if self.best_round is None else self.best_round
        return round - last_improvement >= self._rounds
