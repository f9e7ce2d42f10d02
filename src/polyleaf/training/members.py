"""Members: models that are trained side by side, and whose weighted mean is the model.

A member has leaves, growth and sampling of its own, and raw scores of its own, which its trees are
fitted to. Weights are powers of two, so that the leaf values of the model times 1 / weight are the
leaf values of the member, bit for bit: training can go on from the model.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np

import polyleaf._core as _core
from polyleaf.model import Model
from polyleaf.model.leaf_kinds import Leaves, scale_leaves
from polyleaf.model.metadata import MEMBERS
from polyleaf.settings.train_config import TrainConfig

Changes = dict[str, Any]
"""Values that replace the defaults of parameters, by name."""


@dataclasses.dataclass(frozen=True)
class Member:
    """One member of a model.

    Attributes
    ----------
    settings : TrainConfig
        Its leaves, growth and sampling; the rest of the settings is that of the training.
    changes : dict
        Parameters by which the settings differ from the parameters of the estimator.
    weight : float
        Power of two; the weights of all members sum to 1.
    n_rounds : int
        Rounds of the training that the member has trees in, the first ones.
    """

    settings: TrainConfig
    changes: Changes = dataclasses.field(default_factory=dict)
    weight: float = 1.0
    n_rounds: int = 0

    def apply(self, settings: TrainConfig) -> TrainConfig:
        """Return the settings of a training with the leaves, growth and sampling of the member."""
        mine = self.settings
        return dataclasses.replace(
            settings, leaf=mine.leaf, growth=mine.growth, sampling=mine.sampling
        )

    def describe(self) -> dict[str, object]:
        """Return what a model's metadata tell about the member."""
        return {"weight": self.weight, "n_estimators": self.n_rounds, **self.changes}


def read_changes(description: Mapping[str, Any]) -> Changes:
    """Return the changed parameters of a member that `Member.describe` has described."""
    fixed = "weight", "n_estimators"
    return {name: value for name, value in description.items() if name not in fixed}


def select_active(n_rounds: Sequence[int], round: int) -> list[int]:
    """Return the members that have trees in a round, given the rounds of each member.

    After the last round of the longest member, training was continued with all of them.
    """
    is_continued = round >= max(n_rounds)
    return [i for i, n in enumerate(n_rounds) if is_continued or round < n]


def get_member_trees(model: Model, round: int) -> dict[int, list[int]]:
    """Return the numbers of the trees of a round, by member, in the order of the trees."""
    n_rounds = [member["n_estimators"] for member in model.metadata.get(MEMBERS, ())] or [0]
    active = select_active(n_rounds, round)
    # All members have trees of the same outputs.
    trees = np.split(np.arange(*model.find_trees(round, round + 1)), len(active))
    return {member: numbers.tolist() for member, numbers in zip(active, trees, strict=True)}


def make_member_forest(model: Model, member: int, weight: float) -> _core.Forest:
    """Return the trees of one member, whose leaf values are not multiplied by its weight."""
    if weight == 1:
        return model.forest
    forest = _core.Forest(model.n_outputs)
    for round in range(model.n_rounds):
        for t in get_member_trees(model, round).get(member, ()):
            leaves = scale_leaves(cast(Leaves, model.forest.values(t)), 1 / weight)
            forest.append(model.forest.tree(t), leaves, model.forest.outputs(t))
    return forest
