"""What a run is made of: the one place where parts are chosen.

Owns: which state, structure and fitter go with which settings. Must not know: in which order they are called
(`boosting`), or how any of them works.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

import polyleaf._core as _core
from polyleaf.data.dataset import Dataset
from polyleaf.model import Model
from polyleaf.model.leaf_kinds import Leaves
from polyleaf.objectives import Objective
from polyleaf.objectives.base import BoundObjective
from polyleaf.objectives.sparse_multilabel import BoundSparseObjective
from polyleaf.settings.train_config import LinearLeaf, TopkLeaf, TrainConfig
from polyleaf.sketching.sketches import get_sketch
from polyleaf.training import gpu, leaf_fitters, split_finder
from polyleaf.training.derivatives import Derivatives
from polyleaf.training.evaluation import EvalSet, Evaluation
from polyleaf.training.interactions import Interactions, encode_interaction_constraints
from polyleaf.training.layer_boosting import Layers
from polyleaf.training.memory_usage import row_state
from polyleaf.training.monotone import (
    encode_monotone_constraints,
    satisfies_constraints,
    tie_output_constraints,
)
from polyleaf.training.penalties import encode_feature_penalties
from polyleaf.training.raw_scores import DenseState
from polyleaf.training.sampling import Draw, GlobalRowIds, Sampler, global_row_ids
from polyleaf.training.sparse_raw_scores import LabelState
from polyleaf.training.tree_builder import Grown, Limits, Structure

__all__ = ["Parts", "parts_of", "bind_objective"]


class State(Protocol):
    """Raw scores of the rows trained on, and what the objective says there."""

    def renew(self) -> None:
        """Compute derivatives at the raw scores, unless they are there."""

    def gradients_of_rows(self) -> np.ndarray:
        """By what rows are sampled."""

    def cancel(self, output: int) -> bool:
        """Whether one step for all rows would gain next to nothing; `output` -1: in all outputs."""

    def add(self, grown: Grown, leaves: Leaves, output: int) -> None:
        """Add a tree to the raw scores."""

    def add_last(self, forest: _core.Forest) -> None:
        """Add the last tree of a forest, which was grown before, to the raw scores."""


class Grows(Protocol):
    """The structure of trees, with what splits are judged by."""

    def grow(self, draw: Draw, output: int) -> Grown:
        """One tree, for one output or for all (-1)."""


class Parts(NamedTuple):
    """The parts of a run, and what goes along: draws, and data that are watched."""

    state: State
    structure: Grows
    fitter: leaf_fitters.Fitter
    model: Model
    sampler: Sampler
    evaluation: Evaluation


def bind_objective(
    objective: Objective, target: Any, weight: np.ndarray | None, settings: TrainConfig
) -> Any:
    """The objective, bound to the data as the state will hold it."""
    if settings.has_sparse_targets:
        return BoundSparseObjective(objective, target, weight)
    return objective.bind(target, weight)


def parts_of(
    settings: TrainConfig,
    problem: Any,
    dataset: Dataset,
    weight: np.ndarray | None,
    model: Model,
    eval_sets: Sequence[EvalSet],
    watchers: Sequence[Callable[..., Any]],
    offset: np.ndarray | None = None,
    numbered: GlobalRowIds | None = None,
) -> Parts:
    """Choose the parts of a run.

    Parameters
    ----------
    settings : TrainConfig
    problem
        As `bind_objective` gives it.
    dataset : Dataset
    weight : ndarray of shape (n_rows,) or (n_rows, K), float32, or None
    model : Model
        Trees that it has are in the raw scores.
    eval_sets : sequence of EvalSet
    watchers : sequence of callable
        The hooks `after_layer` of callbacks that have one.
    offset : ndarray of shape (n_rows, K), optional
        Scores that rows start from; of dense targets.
    numbered : GlobalRowIds, optional
        Where other ranks have further rows: which these are.
    """
    if settings.has_sparse_targets:
        state, structure, fitter = _label_parts(settings, problem, dataset, weight, model, numbered)
    elif settings.workers.device is not None:
        state, structure, fitter = _device_parts(settings, problem, dataset, weight, model, offset)
    else:
        state, structure, fitter = _dense_parts(settings, problem, dataset, weight, model, offset)
    nodes_draw = settings.growth.colsample_bynode < 1
    about = dataset.mapper.informative_columns_, dataset.n_rows, weight
    sampler = Sampler(settings.sampling, *about, nodes_draw, numbered)
    evaluation = Evaluation(eval_sets, model, state.new_scores, watchers)
    if settings.boosting.boosting_step != "layer":
        return Parts(state, structure, fitter, model, sampler, evaluation)
    assert isinstance(state, DenseState)
    layers = Layers(state, structure, fitter, sampler, model, evaluation.show_layer)
    return Parts(state, layers, layers, model, sampler, evaluation)


def _label_parts(
    settings: TrainConfig,
    problem: BoundSparseObjective,
    dataset: Dataset,
    weight: np.ndarray | None,
    model: Model,
    numbered: GlobalRowIds | None,
) -> tuple[DenseState | LabelState, Structure, leaf_fitters.Fitter]:
    """Few of very many labels: leaves that hold few outputs, and splits that are judged by exact sums."""
    leaf, bins = settings.leaf, dataset.bins
    assert isinstance(leaf, TopkLeaf)
    is_exact = leaf.split_search == "exact"
    if is_exact and np.any(dataset.mapper.is_categorical_):
        raise ValueError(
            'split_search="exact" is for numeric features; use "sketch" where some are categorical.'
        )
    state = LabelState(problem, dataset, model, settings.workers)
    judge: split_finder.ExactSplits | split_finder.VerifiedSplits
    if is_exact:
        judge = split_finder.ExactSplits(bins, state, leaf, settings)
    else:
        judge = split_finder.VerifiedSplits(
            bins, state, leaf, global_row_ids(weight, numbered), settings
        )
    grower = _core.Grower(bins, settings.workers)
    structure = Structure(grower, judge, Limits(), *_of_features(settings, dataset), settings)
    return state, structure, leaf_fitters.LabelFitter(state, leaf, settings)


def _dense_parts(
    settings: TrainConfig,
    problem: BoundObjective,
    dataset: Dataset,
    weight: np.ndarray | None,
    model: Model,
    offset: np.ndarray | None,
) -> tuple[DenseState | LabelState, Structure, leaf_fitters.Fitter]:
    """All outputs of all rows: splits by histograms, and a fitter for each kind of leaf."""
    new = row_state(problem, settings, dataset)
    leaf, step, run, bins = settings.leaf, settings.regularisation, settings.boosting, dataset.bins
    memory, workers = settings.growth.histogram_memory_bytes, settings.workers
    derivatives = Derivatives(problem, settings.hessian, weight, memory, workers, new)
    state = DenseState(problem, derivatives, dataset, model, workers, offset, new)
    sketch = get_sketch(run.sketch, run.sketch_dim, problem.n_outputs)
    channels: split_finder.PlainChannels | split_finder.LookaheadChannels = (
        split_finder.PlainChannels(workers)
    )
    limits = Limits(step.reg_alpha, step.max_delta_step)
    directions = _directions(settings, problem, model)
    fitter: leaf_fitters.Fitter
    match leaf:
        case TopkLeaf():
            _check_sparse(problem, leaf)
            fitter = leaf_fitters.TopkFitter(derivatives, leaf, settings)
            limits = Limits(*limits[:2], leaf.leaf_k, leaf.leaf_output_set == "shared")
        case LinearLeaf():
            _refuse_renewal(problem, "linear")
            fitter = leaf_fitters.LinearFitter(derivatives, leaf, dataset, settings)
            if leaf.scores_linear_leaves:
                channels = split_finder.LookaheadChannels(fitter.table, leaf, workers)
        case _:
            constant = leaf_fitters.ConstantFitter(derivatives, settings)
            fitter = _of_constants(constant, state, directions, dataset, settings)
    judge = split_finder.HistogramSplits(bins, derivatives, sketch, channels, directions, settings)
    limits = limits if sketch is None else Limits()
    grower = _core.Grower(bins, workers)
    return (
        state,
        Structure(grower, judge, limits, *_of_features(settings, dataset), settings),
        fitter,
    )


def _device_parts(
    settings: TrainConfig,
    problem: BoundObjective,
    dataset: Dataset,
    weight: np.ndarray | None,
    model: Model,
    offset: np.ndarray | None,
) -> tuple[DenseState | LabelState, Structure, leaf_fitters.Fitter]:
    """All outputs of all rows, on a device: splits by histograms, and leaves of constants."""
    workers, run, device = settings.workers, settings.boosting, settings.workers.device
    assert device is not None
    bins = dataset.get_device_bins(device)
    grower = _core.Grower(bins, workers)
    derivatives = gpu.DeviceDerivatives(device, problem, weight, settings)
    state = gpu.DeviceState(problem, derivatives, dataset, model, grower, settings, offset)
    sketch = get_sketch(run.sketch, run.sketch_dim, problem.n_outputs)
    directions = _directions(settings, problem, model)
    judge = gpu.DeviceSplits(bins, derivatives, sketch, directions, settings)
    leaf, limits = (
        settings.leaf,
        Limits(settings.regularisation.reg_alpha, settings.regularisation.max_delta_step),
    )
    fitter: leaf_fitters.Fitter
    if isinstance(leaf, TopkLeaf):
        _check_sparse(problem, leaf)
        fitter = gpu.DeviceTopkFitter(derivatives, grower, leaf, settings)
        limits = Limits(*limits[:2], leaf.leaf_k, leaf.leaf_output_set == "shared")
    else:
        constant = gpu.DeviceFitter(derivatives, grower, settings)
        fitter = _of_constants(constant, state, directions, dataset, settings)
    limits = limits if sketch is None else Limits()
    return (
        state,
        Structure(grower, judge, limits, *_of_features(settings, dataset), settings),
        fitter,
    )


def _of_constants(
    newton: leaf_fitters.DenseFitter,
    state: DenseState,
    directions: np.ndarray | None,
    dataset: Dataset,
    settings: TrainConfig,
) -> leaf_fitters.Fitter:
    """A value an output, from Newton steps: quantiles where those are known to be best, made to obey."""
    fitter = newton
    if state.problem.objective.updates_leaves:
        fitter = leaf_fitters.QuantileFitter(state, newton, settings)
    if directions is None:
        return fitter
    return leaf_fitters.MonotoneFitter(fitter, directions, dataset.mapper.n_bins_, settings)


def _directions(settings: TrainConfig, problem: BoundObjective, model: Model) -> np.ndarray | None:
    """What `monotone_constraints` asks for; a warning where predictions may disobey all the same."""
    objective, asked = problem.objective, settings.growth.monotone_constraints
    tied = tie_output_constraints(objective, problem.n_outputs)
    directions = encode_monotone_constraints(asked, model.mapper, tied, model.output_names)
    if directions is None:
        return None
    classes = [p.scores for p in objective.tasks if p.task.objective.link == "softmax"]
    if objective.link == "softmax" or any(directions[:, scores].any() for scores in classes):
        warnings.warn(
            "monotone_constraints orders the scores of classes. Their probabilities need not obey, since "
            "that of a class falls where the score of another rises more. For probabilities that do, give y "
            "as one column of 0 and 1 for each class: labels are learned apart.",
            stacklevel=2,
        )
    if not satisfies_constraints(model, directions):
        warnings.warn(
            "Trees of the model that training goes on from do not obey monotone_constraints, so predictions "
            "may not; new trees do.",
            stacklevel=2,
        )
    return directions


def _of_features(settings: TrainConfig, dataset: Dataset) -> tuple[Interactions, np.ndarray | None]:
    """Which features may meet, and by what shares of their gains they compete."""
    growth, mapper = settings.growth, dataset.mapper
    return encode_interaction_constraints(
        growth.interaction_constraints, mapper
    ), encode_feature_penalties(growth.feature_penalties, mapper)


def _check_sparse(problem: BoundObjective, leaf: TopkLeaf) -> None:
    _refuse_renewal(problem, "sparse")
    if leaf.leaf_k > problem.n_outputs:
        raise ValueError(
            f"leaf_k={leaf.leaf_k} is more than the {problem.n_outputs} outputs that there are; set it to "
            'fewer, or leaf="constant" for all of them.'
        )


def _refuse_renewal(problem: BoundObjective, kind: str) -> None:
    """Refuse objectives whose leaves are no Newton steps."""
    objective = problem.objective
    if objective.updates_leaves:
        each = [place.task for place in objective.tasks if place.task.objective.updates_leaves]
        of_task = f" of task {each[0].name!r}" if each else ""
        name = each[0].objective.name if each else objective.name
        raise ValueError(
            f"Objective {name!r}{of_task} fits its leaves by quantiles of their residuals, for "
            f'which {kind} leaves have no step; use leaf="constant", or objective="huber".'
        )
