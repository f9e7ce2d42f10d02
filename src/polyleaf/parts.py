"""What a run is made of: the one place where parts are chosen.

Owns: which state, structure and fitter go with which settings. Must not know: in which order they are called
(`boosting`), or how any of them works.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from .dataset import Dataset
from .derivatives import Derivatives
from .eval_sets import EvalSet, Evaluation, Scores
from .fitters import (
    ConstantFitter,
    Fitter,
    LabelFitter,
    LinearFitter,
    QuantileFitter,
    SparseFitter,
)
from .label_state import LabelState
from .layers import Layers
from .leaf_kinds import Leaves
from .model import Model
from .objectives import Objective
from .objectives.base import Problem
from .objectives.sparse import SparseProblem
from .sampling import Draw, Sampler
from .settings import LinearLeaf, Settings, SparseLeaf
from .sketches import get_sketch
from .splits import ExactSplits, HistogramSplits, LookaheadSplits, VerifiedSplits
from .state import DenseState
from .structure import Grown, Limits, Structure

__all__ = ["Parts", "parts_of", "problem_of"]


class State(Protocol):
    """Raw scores of the rows trained on, and what the objective says there."""

    def renew(self) -> None:
        """Compute derivatives at the raw scores, unless they are there."""

    def gradients_of_rows(self) -> np.ndarray:
        """By what rows are sampled."""

    def cancel(self, output: int) -> bool:
        """Whether one step for all rows would gain next to nothing; `output` -1: in all outputs."""

    def add(self, leaf_of_row: np.ndarray, leaves: Leaves, output: int) -> None:
        """Add a tree to the raw scores."""

    def new_scores(self, n_rows: int) -> Scores:
        """Scores of other rows, without any tree."""


class Grows(Protocol):
    """The structure of trees, with what splits are judged by."""

    @property
    def draws_features(self) -> bool:
        """Whether nodes see features by chance."""

    def grow(self, draw: Draw, output: int) -> Grown:
        """One tree, for one output or for all (-1)."""


class Parts(NamedTuple):
    """The parts of a run, and what goes along: draws, and data that are watched."""

    state: State
    structure: Grows
    fitter: Fitter
    model: Model
    sampler: Sampler
    evaluation: Evaluation


def problem_of(objective: Objective, target: Any, weight: np.ndarray | None, settings: Settings) -> Any:
    """The objective, bound to the data as the state will hold it."""
    if settings.keeps_labels_sparse:
        return SparseProblem(objective, target, weight)
    return objective.prepare(target, weight)


def parts_of(
    settings: Settings,
    problem: Any,
    dataset: Dataset,
    weight: np.ndarray | None,
    model: Model,
    eval_sets: Sequence[EvalSet],
    watchers: Sequence[Callable[..., Any]],
) -> Parts:
    """Choose the parts of a run.

    Parameters
    ----------
    settings : Settings
    problem
        As `problem_of` gives it.
    dataset : Dataset
    weight : ndarray of shape (n_rows,) or (n_rows, K), float32, or None
    model : Model
        Trees that it has are in the raw scores.
    eval_sets : sequence of EvalSet
    watchers : sequence of callable
        The hooks `after_layer` of callbacks that have one.
    """
    choose = _label_parts if settings.keeps_labels_sparse else _dense_parts
    state, structure, fitter = choose(settings, problem, dataset, weight, model)
    sampler = Sampler(settings.sampling, dataset.n_features, weight)
    evaluation = Evaluation(eval_sets, model, state.new_scores, watchers)
    if settings.run.refresh != "layer":
        return Parts(state, structure, fitter, model, sampler, evaluation)
    assert isinstance(state, DenseState)
    layers = Layers(state, structure, fitter, sampler, model, evaluation.show_layer)
    return Parts(state, layers, layers, model, sampler, evaluation)


def _label_parts(
    settings: Settings, problem: SparseProblem, dataset: Dataset, weight: np.ndarray | None, model: Model
) -> tuple[DenseState | LabelState, Structure, Fitter]:
    """Few of very many labels: leaves that hold few outputs, and splits that are judged by exact sums."""
    leaf, bins = settings.leaf, dataset.bins
    assert isinstance(leaf, SparseLeaf)
    is_exact = leaf.split_search == "exact"
    if is_exact and np.any(dataset.mapper.is_categorical_):
        raise ValueError(
            'split_search="exact" is for numeric features; use "sketch" where some are categorical.'
        )
    state = LabelState(problem, dataset, model, settings.workers)
    splits = (ExactSplits if is_exact else VerifiedSplits)(bins, state, leaf, settings)
    fitter = LabelFitter(state, settings.step, leaf, settings.workers)
    return state, Structure(bins, splits, Limits(), settings), fitter


def _dense_parts(
    settings: Settings, problem: Problem, dataset: Dataset, weight: np.ndarray | None, model: Model
) -> tuple[DenseState | LabelState, Structure, Fitter]:
    """All outputs of all rows: splits by histograms, and a fitter for each kind of leaf."""
    leaf, step, workers, run = settings.leaf, settings.step, settings.workers, settings.run
    memory = settings.growth.histogram_memory_bytes
    derivatives = Derivatives(problem, settings.curvature, weight, memory, workers)
    state = DenseState(problem, derivatives, dataset, model, workers)
    sketch = get_sketch(run.sketch, run.sketch_dim, problem.n_outputs)
    columns = dataset.bins, derivatives, sketch, settings
    splits = HistogramSplits(*columns)
    limits = Limits(step.reg_alpha, step.max_delta_step)
    fitter: Fitter
    match leaf:
        case SparseLeaf():
            _check_sparse(problem, leaf)
            fitter = SparseFitter(derivatives, step, leaf, workers)
            limits = Limits(*limits[:2], leaf.leaf_k, leaf.leaf_support == "shared")
        case LinearLeaf():
            _refuse_renewal(problem, "linear")
            fitter = LinearFitter(derivatives, step, leaf, dataset, workers)
            if leaf.looks_ahead:
                splits = LookaheadSplits(fitter.table, leaf, *columns)
        case _ if problem.renews_leaves:
            fitter = QuantileFitter(state, workers)
        case _:
            fitter = ConstantFitter(derivatives, step, settings.curvature, workers)
    return state, Structure(dataset.bins, splits, limits if sketch is None else Limits(), settings), fitter


def _check_sparse(problem: Problem, leaf: SparseLeaf) -> None:
    _refuse_renewal(problem, "sparse")
    if leaf.leaf_k > problem.n_outputs:
        raise ValueError(
            f"leaf_k={leaf.leaf_k} is more than the {problem.n_outputs} outputs that there are; set it to "
            'fewer, or leaf="constant" for all of them.'
        )


def _refuse_renewal(problem: Problem, kind: str) -> None:
    """Refuse objectives whose leaves are no Newton steps."""
    if problem.renews_leaves:
        raise ValueError(
            f"Objective {problem.objective.name!r} fits its leaves by quantiles of their residuals, for "
            f'which {kind} leaves have no step; use leaf="constant", or objective="huber".'
        )
