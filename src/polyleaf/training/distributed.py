"""Distributed training: how ranks stay in sync.

Every rank runs the loop of boosting.py on its own rows. Computations over all rows use the
communicator. Only rank 0 has evaluation sets and callbacks.
"""

from __future__ import annotations

import struct
import zlib

from polyleaf.model import Model
from polyleaf.runtime.collective import Communicator
from polyleaf.settings.train_config import TrainConfig

# Whether training ends, learning rate, number of trees, checksum of the newest tree.
_MESSAGE = struct.Struct("<?dqQ")


def sync_ranks(communicator: Communicator, model: Model, ends: bool) -> bool:
    """Return whether training ends on rank 0, and take over its learning rate.

    Raises a RuntimeError if ranks have grown different trees.
    """
    if communicator.size == 1:
        return ends
    message = _MESSAGE.pack(ends, model.learning_rate, model.n_trees, _checksum_last_tree(model))
    messages = [_MESSAGE.unpack(received) for received in communicator.allgather(message)]
    ends, model.learning_rate, *first_tree = messages[0]
    for rank, (_, _, *tree) in enumerate(messages):
        if tree != first_tree:
            raise RuntimeError(
                f"Rank {rank} has grown another tree than rank 0 in round {model.n_rounds - 1}. "
                "Check that all workers have the same version of Polyleaf."
            )
    return bool(ends)


def can_replay(settings: TrainConfig) -> bool:
    """Return whether rounds can be replayed from their trees: not if callbacks may receive
    layers."""
    return settings.boosting.boosting_step != "layer"


def _checksum_last_tree(model: Model) -> int:
    """Return a checksum of the splits of the newest tree."""
    if model.n_trees == 0:
        return 0
    tree = model.forest.tree(model.n_trees - 1)
    checksum = 0
    for array in (tree.feature, tree.threshold, tree.missing_left, tree.categories, tree.count):
        checksum = zlib.crc32(array.tobytes(), checksum)
    return checksum
