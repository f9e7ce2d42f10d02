"""A training that many ranks do together, each on its own rows: what they agree on, and what they cannot do.

Owns: whose word counts, how ranks notice that they differ, and the settings that are refused. Must not know:
how ranks reach one another (`communicator`), how a tree is grown.

Every rank runs the loop of `boosting` on its rows. What depends on all rows is asked of the communicator by
whoever needs it. Evaluation sets and callbacks are rank 0's alone.
"""

from __future__ import annotations

import struct
import zlib

from polyleaf.model import Model
from polyleaf.objectives import Objective
from polyleaf.runtime.collective import Communicator
from polyleaf.settings.train_config import TrainConfig
from polyleaf.sketching.sketches import (
    SKETCHES,
    CountSketch,
    RandomProjection,
    RandomSampling,
    TopOutputs,
)

__all__ = ["agree", "can_replay", "check_distributed"]

_WORD = struct.Struct(
    "<?dqQ"
)  # whether training ends, learning rate, trees so far, checksum of the newest

# Sketches whose columns of a row depend on that row, and on which outputs' gradients are largest, alone.
_WITH_RANKS = (RandomProjection, CountSketch, RandomSampling, TopOutputs)
_NAMED_WITH_RANKS = (
    None,
    "auto",
    *(name for name, kind in SKETCHES.items() if kind in _WITH_RANKS),
)


def agree(communicator: Communicator, model: Model, ends: bool) -> bool:
    """Whether training ends, as rank 0 says; its learning rate is taken over.

    Raises
    ------
    RuntimeError
        Where ranks have grown different trees.
    """
    if communicator.size == 1:
        return ends
    said = _WORD.pack(ends, model.learning_rate, model.n_trees, _checksum(model))
    words = [_WORD.unpack(word) for word in communicator.gather(said)]
    ends, model.learning_rate, *of_first = words[0]
    for rank, (_, _, *of_other) in enumerate(words):
        if of_other != of_first:
            raise RuntimeError(
                f"Rank {rank} has grown another tree than rank 0 in round {model.n_rounds - 1}: are all of "
                "the same version of Polyleaf?"
            )
    return bool(ends)


def can_replay(settings: TrainConfig) -> bool:
    """Whether rounds can be repeated from their trees: not where callbacks may have watched layers."""
    return settings.boosting.boosting_step != "layer"


def _checksum(model: Model) -> int:
    """Of the newest tree: where it splits."""
    if model.n_trees == 0:
        return 0
    tree = model.forest.tree(model.n_trees - 1)
    found = 0
    for array in (tree.feature, tree.threshold, tree.missing_left, tree.categories, tree.count):
        found = zlib.crc32(array.tobytes(), found)
    return found


def check_distributed(settings: TrainConfig, objective: Objective) -> None:
    """Refuse what ranks cannot do together.

    Raises
    ------
    ValueError
        It says what to do instead.
    """
    for is_asked, sentence in (
        (
            not (
                isinstance(settings.boosting.sketch, _WITH_RANKS)
                or settings.boosting.sketch in _NAMED_WITH_RANKS
            ),
            f"sketch={settings.boosting.sketch!r} makes its columns of all rows in one place; use "
            '"random_projection", "top_outputs", "random_sampling" or "count_sketch".',
        ),
        (
            objective.updates_leaves and not objective.updates_leaves_distributed,
            f"Objective {objective.name!r} fits its leaves itself, from rows that lie in one place; train on "
            "one machine, or say updates_leaves_distributed where it asks the other ranks (polyleaf.objectives.base).",
        ),
        (
            not objective.is_row_separable,
            f"Objective {objective.name!r} weighs losses by what they are on all rows; train on one machine, "
            "or a model for each.",
        ),
    ):
        if is_asked:
            raise ValueError(f"A fit on several workers: {sentence}")
