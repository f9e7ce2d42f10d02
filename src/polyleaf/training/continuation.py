"""Continued training and refits: what a new training takes over from a trained model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import polyleaf._core as _core
from polyleaf.callbacks import Checkpoint
from polyleaf.model import Model
from polyleaf.model.leaf_kinds import Leaves
from polyleaf.model.metadata import PARAMETERS, clear_calibrations
from polyleaf.training.training_run import TrainingRun

# Parameters that may differ between the parts of one training.
_RUN_PARAMETERS = {"callbacks", "n_estimators", "n_jobs", "on_interrupt", "verbose", "warm_start"}


class BestRound(NamedTuple):
    """The best round of a training that goes on."""

    model: Model  # model to continue
    round: int
    score: float
    forest: _core.Forest  # trees up to this round
    # (tree, leaves), the tree of this round after each layer but the last, if layers are boosted
    layers: list[tuple[dict[str, dict[str, float]], tuple[_core.Tree, Leaves]]]


def copy_init_model(run: TrainingRun) -> Model:
    """Copy the model that training continues, with the objective and the metadata of this run."""
    assert run.init_model is not None
    model = run.init_model.copy()
    model.objective = run.objective
    model.target_scale, model.target_offset = run.target_scale, run.target_offset  # unshifted
    model.metadata = renew_metadata(run)
    model.bin_counts = run.bin_counts
    return model


def renew_metadata(run: TrainingRun) -> dict[str, object]:
    """Return the metadata of the old model with that of this run, and without calibrations."""
    assert run.init_model is not None
    return clear_calibrations(run.init_model.metadata) | run.metadata


def is_same_training(run: TrainingRun) -> bool:
    """Return whether the model to continue was trained with the parameters of this run.

    Rounds without a split, and the best round if the evaluation sets are the same, then count as if
    the training had not been cut.
    """
    return not _find_changed_parameters(run)


def _find_changed_parameters(run: TrainingRun) -> list[str]:
    """Return the names of the parameters that differ from those of the model to continue."""
    assert run.init_model is not None
    first, second = (
        p if isinstance(p := m.get(PARAMETERS), dict) else {}
        for m in (run.init_model.metadata, run.metadata)
    )
    names = sorted((first.keys() | second.keys()) - _RUN_PARAMETERS)
    return [n for n in names if (n in first, first.get(n)) != (n in second, second.get(n))]


def find_checkpoint(
    callbacks: Sequence[object], n_estimators: int | None, init_model: object
) -> Path | None:
    """Return the file that a `Checkpoint` with `resume=True` continues from; None without a file.

    Raises a ValueError if other arguments of the fit do not say how many rounds remain.
    """
    resuming = [c for c in callbacks if isinstance(c, Checkpoint) and c.resume]
    if not resuming:
        return None
    if init_model is not None:
        raise ValueError(
            "Checkpoint(resume=True) continues from its own file: leave init_model out."
        )
    if n_estimators is None:
        raise ValueError(
            "Checkpoint(resume=True) needs n_estimators, the number of rounds of the whole model."
        )
    return Checkpoint.latest(resuming[-1].directory, resuming[-1].name)


def check_resumed_parameters(run: TrainingRun) -> None:
    """Raise a ValueError if a checkpoint is that of a training with other parameters."""
    changed = _find_changed_parameters(run)
    if changed:
        raise ValueError(
            f"The checkpoint {str(run.resumed_file)!r} is from a training with another "
            f"{', '.join(changed)}, which resume=True cannot continue: delete it, or give the "
            "Checkpoint another directory or name."
        )


def count_last_stumps(model: Model, n_rounds: int) -> int:
    """Return how many of the last rounds, of `n_rounds`, have trees of one leaf only."""
    first = model.n_rounds - n_rounds
    split = [
        round
        for t, round in enumerate(model.round_of_tree.tolist())
        if round >= first and model.forest.tree(t).n_leaves > 1
    ]
    return model.n_rounds - 1 - max([first - 1, -1, *split])
