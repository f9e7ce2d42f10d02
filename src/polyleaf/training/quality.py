"""What `quality` chooses besides the number of rounds: the members of a model.

Candidates differ by a few parameters. The hold-out fits that find the number of rounds are made
with each of them, and the weighted mean of up to three candidates that has the lowest loss on the
held-out rows becomes the model (ensemble selection: Caruana, Niculescu-Mizil, Crew & Ksikes, ICML
2004, with weights that are powers of two).
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TypeVar

import numpy as np

from polyleaf.settings.parameters import SharedParameters
from polyleaf.training.members import Changes, Member

_Parameters = TypeVar("_Parameters", bound=SharedParameters)


@dataclass(frozen=True)
class Budget:
    """Limit of the time of some trainings, in rounds so that no clock decides.

    `n_rounds`: rounds with default parameters. `n_cell_rounds`: the same times cells (rows *
    columns * outputs).
    """

    n_rounds: float
    n_cell_rounds: float

    def limit_rounds(self, n_cells: int) -> float:
        """Return how many rounds with default parameters there may be for so many cells."""
        return min(self.n_rounds, self.n_cell_rounds / n_cells)


@dataclass(frozen=True)
class Rung:
    """What a value of `quality` stands for.

    `candidates`: changes of parameters; the first is none. `hold_outs`: a candidate has no hold-out
    fit if the hold-out fits before have taken as much. `final`: limit for the training on all rows,
    if there is more than one member.
    """

    candidates: tuple[Changes, ...]
    hold_outs: Budget
    final: Budget


_SMALL: Changes = {"max_leaves": 8}
_LINEAR: Changes = {"leaf": "linear", "max_leaves": 8}
_SAMPLED: Changes = {"colsample_bytree": 0.5}
_SAMPLED_LINEAR: Changes = {**_LINEAR, **_SAMPLED}

RUNGS = {
    "fast": Rung(({},), Budget(0, 0), Budget(0, 0)),
    "standard": Rung(({}, _SMALL, _LINEAR), Budget(3_000, 1e10), Budget(8_000, 2.5e10)),
    "high": Rung(
        ({}, _SMALL, _LINEAR, _SAMPLED, _SAMPLED_LINEAR), Budget(8_000, 3e10), Budget(12_000, 4e10)
    ),
}

# Linear leaves keep the features of the training rows as float32; with more, there are none.
MAX_FEATURE_CELLS = 2**22

# Time of a round beside that with default parameters.
_SMALL_COST, _LINEAR_COST = 0.5, 3.0

# Weights of the members of a model.
_MIXES = ((1.0,), (0.5, 0.5), (0.5, 0.25, 0.25), (0.25, 0.25, 0.25, 0.25))


def apply_changes(params: _Parameters, changes: Changes) -> _Parameters:
    """Return parameters with other values in place of defaults; explicit values stay."""
    changed = copy.copy(params)
    for name, value in changes.items():
        if has_defaults(params, [name]):
            setattr(changed, name, value)
    return changed


def has_defaults(params: SharedParameters, names: Iterable[str]) -> bool:
    """Return whether parameters are at their defaults."""
    return all(getattr(params, name) == getattr(type(params), name) for name in names)


def drop_linear(candidates: Sequence[Member], n_cells: int) -> list[Member]:
    """Return candidates without linear leaves, unless features have few cells (rows * columns)."""
    has_few = n_cells <= MAX_FEATURE_CELLS
    return [member for member in candidates if has_few or "leaf" not in member.changes]


def get_cost(member: Member) -> float:
    """Return the time of a round of a member, in rounds with default parameters."""
    cost = _SMALL_COST if "max_leaves" in member.changes else 1.0
    return cost * (_LINEAR_COST if "leaf" in member.changes else 1.0)


def choose_weights(
    candidates: Sequence[Member],
    compute_losses: Callable[[dict[int, float]], np.ndarray],
    max_rounds: float,
) -> tuple[dict[int, float], np.ndarray]:
    """Return the weights of the candidates, by their numbers, in the mean with the lowest loss, and
    the losses of this mean.

    `candidates`: with their numbers of rounds. `compute_losses`: returns the losses of the weighted
    mean of some candidates, `{number: weight}`, on parts of the held-out rows. `max_rounds`: limit
    for the rounds of several members, in rounds with default parameters; below 0 nothing is
    averaged.
    """
    costs = [get_cost(member) * member.n_rounds for member in candidates]
    mixes = [
        mix
        for mix in _iter_mixes(len(candidates))
        if len(mix) == 1 or _sum_costs([costs[i] for i in mix]) <= max_rounds
    ]
    losses = [compute_losses(mix) for mix in mixes]
    means = [math.fsum(each) / len(each) for each in losses]
    best = means.index(min(means))
    return mixes[best], losses[best]


def _sum_costs(costs: Sequence[float]) -> float:
    """Return what several members cost more than one, which has no limit: 0 if the others have no
    trees."""
    return sum(costs) if sum(cost > 0 for cost in costs) > 1 else 0.0


def _iter_mixes(n_candidates: int) -> Iterator[dict[int, float]]:
    """Yield the weights of all mixes, each once."""
    for weights in _MIXES:
        for chosen in combinations(range(n_candidates), len(weights)):
            # Any of them may have the largest weight.
            n_orders = len(chosen) if len(set(weights)) > 1 else 1
            for first in range(n_orders):
                yield dict(zip((*chosen[first:], *chosen[:first]), weights, strict=True))
