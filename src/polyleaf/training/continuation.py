"""Continued training and refits: what a new training takes over from a trained model."""

from __future__ import annotations

from typing import NamedTuple

import polyleaf._core as _core
from polyleaf.model import Model
from polyleaf.model.leaf_kinds import Leaves
from polyleaf.model.metadata import PARAMETERS, clear_calibrations
from polyleaf.training.training_run import TrainingRun

# Parameters that may differ between the parts of one training.
_RUN_PARAMETERS = {"n_estimators", "warm_start", "n_jobs", "verbose", "on_interrupt"}


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
    assert run.init_model is not None
    parameters = [m.get(PARAMETERS) for m in (run.init_model.metadata, run.metadata)]
    first, second = (
        {name: value for name, value in p.items() if name not in _RUN_PARAMETERS}
        if isinstance(p, dict)
        else None
        for p in parameters
    )
    return first == second


def count_last_stumps(model: Model, n_rounds: int) -> int:
    """Return how many of the last rounds, of `n_rounds`, have trees of one leaf only."""
    first = model.n_rounds - n_rounds
    split = [
        round
        for t, round in enumerate(model.round_of_tree.tolist())
        if round >= first and model.forest.tree(t).n_leaves > 1
    ]
    return model.n_rounds - 1 - max([first - 1, -1, *split])
