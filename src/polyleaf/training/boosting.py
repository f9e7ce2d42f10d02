"""The boosting loop: derivatives -> tree -> leaf values -> raw scores -> callbacks.

Owns the order in which the parts are called. Must not know how any of them works, or which there are: they
are chosen in `parts`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, cast

import numpy as np

from polyleaf.callbacks import Callback, EvalsLog, OutputsLog
from polyleaf.data.dataset import Dataset
from polyleaf.model import Model
from polyleaf.model.leaf_kinds import Leaves
from polyleaf.objectives import Objective
from polyleaf.objectives.constants import best_constant
from polyleaf.settings.train_config import TrainConfig
from polyleaf.training.distributed import agree, can_replay, check_distributed
from polyleaf.training.evaluation import EvalSet
from polyleaf.training.factory import Parts, bind_objective, parts_of
from polyleaf.training.sampling import GlobalRowIds

__all__ = ["BoostResult", "Run", "compute_base_score", "boost"]

# Rounds in a row without growth after which training ends, where rows or features are drawn.
UNLUCKY_ROUNDS = 10


class BoostResult(NamedTuple):
    """What came of a training.

    Attributes
    ----------
    model : Model
    evals_log : dict
        `{data name: {metric name: [value of each round]}}`.
    outputs_log : dict
        The same for each output, arrays (K,), of the metrics for which that means something; empty for a
        single output.
    was_interrupted : bool
        Ctrl-C ended the training: the model has the rounds that were complete.
    """

    model: Model
    evals_log: EvalsLog
    outputs_log: OutputsLog
    was_interrupted: bool


def boost(
    dataset: Dataset,
    target: Any,
    weight: np.ndarray | None,
    objective: Objective,
    settings: TrainConfig,
    *,
    eval_sets: Sequence[EvalSet] = (),
    callbacks: Iterable[Callback] = (),
    init_model: Model | None = None,
    base_score: np.ndarray | None = None,
    offset: np.ndarray | None = None,
    numbered: GlobalRowIds | None = None,
    known: Model | None = None,
    **about: Any,
) -> BoostResult:
    """Boost trees on one data set.

    Parameters
    ----------
    dataset : Dataset
        Binned features.
    target : ndarray of shape (n_rows, K) float32, or (n_rows,) int32 class ids, or csr_matrix
        A csr_matrix where `settings.has_sparse_targets`.
    weight : ndarray of shape (n_rows,) or (n_rows, K), float32, or None
    objective : Objective
    settings : TrainConfig
    eval_sets : sequence of EvalSet
    callbacks : iterable of Callback
        Called in order; every one is called in every round.
    init_model : Model, optional
        Training goes on from its trees (they are copied, not changed). Its mapper must be the data set's.
    base_score : ndarray of shape (K,), float64, optional
        Instead of the objective's own.
    offset : ndarray of shape (n_rows, K), optional
        Scores that rows start from, where these could not be taken off the target.
    numbered : GlobalRowIds, optional
        Where other ranks have further rows (`settings.workers`): which these are. Then `base_score` is that
        of all rows, or that of `init_model`, and evaluation sets and callbacks are rank 0's alone.
    known : Model, optional
        What the same training has come to before it was cut short: its rounds are repeated, callbacks and
        evaluations included, with the trees that it has. (Where layers are boosted they are trained again:
        callbacks may have seen them, and a tree does not tell what they were.)
    **about
        Kept in the model, see `Model`: `target_scale` and `target_offset` where the target is
        `(y - offset) / scale`, `output_names`, `projection`, `metadata`.

    Returns
    -------
    BoostResult
        Also after Ctrl-C.
    """
    callbacks = list(callbacks)
    if numbered is not None:
        check_distributed(settings, objective)
    problem = bind_objective(objective, target, weight, settings)
    if init_model is not None:
        model = init_model.copy()
        model.best_iteration = model.best_score = None  # of the run before
        model.learning_rate = settings.boosting.learning_rate
    else:
        base_score = (
            compute_base_score(problem, offset, settings) if base_score is None else base_score
        )
        model = Model(
            mapper=dataset.mapper,
            objective=objective,
            base_score=base_score,
            learning_rate=settings.boosting.learning_rate,
            feature_names=dataset.mapper.column_names_,
            **about,
        )
    problem.set_base_score(model.base_score)
    for metric in (metric for e in eval_sets for metric in e.metrics):
        metric.set_train_target(target, problem.n_outputs)
    watchers = [c.after_layer for c in callbacks if getattr(c, "watches_layers", False)]
    parts = parts_of(
        settings, problem, dataset, weight, model, eval_sets, watchers, offset, numbered
    )
    run = Run(settings, parts)
    run.go(callbacks, known)
    return BoostResult(model, run.evaluation.log, run.evaluation.log_by_output, run.was_interrupted)


def compute_base_score(
    problem: Any, offset: np.ndarray | None, settings: TrainConfig
) -> np.ndarray:
    """What training starts from in all rows."""
    if offset is None:
        return problem.base_score(settings.workers)
    return best_constant(problem, offset.astype(np.float32), settings.workers.n_threads)


class Run:
    """One training: its parts, and the order in which they are called."""

    def __init__(self, settings: TrainConfig, parts: Parts) -> None:
        self.state, self.structure, self.fitter, self.model, self.sampler, self.evaluation = parts
        one_tree = (
            settings.boosting.multi_strategy == "multi_output_tree" or self.model.n_outputs == 1
        )
        self.outputs = (
            [-1] if one_tree else list(range(self.model.n_outputs))
        )  # of the trees of a round
        self.n_rounds, self.renews_for_trees = (
            settings.boosting.n_estimators,
            settings.boosting.boosting_step != "round",
        )
        self.can_replay = can_replay(settings)
        self.communicator = settings.workers.communicator
        self.barren = 0  # rounds in a row without growth
        self.was_interrupted = False

    def go(self, callbacks: Sequence[Callback], known: Model | None = None) -> None:
        """All rounds, unless a callback, Ctrl-C or the end of growth comes before."""
        n_known = known.n_rounds if known is not None and self.can_replay else 0
        model, log = self.model, self.evaluation.log
        for callback in callbacks:
            if getattr(callback, "watches_outputs", False):
                callback.set_per_output_log(self.evaluation.log_by_output)
            callback.before_training(model)
        round = first = model.n_rounds
        try:
            for round in range(first, first + self.n_rounds):
                stops = [callback.before_iteration(model, round, log) for callback in callbacks]
                if agree(self.communicator, model, any(stops)):
                    break
                may_grow = (
                    self.repeat(known, round) if known and round < n_known else self.step(round)
                )
                self.evaluation.update()
                stops = [callback.after_iteration(model, round, log) for callback in callbacks]
                if agree(self.communicator, model, any(stops) or not may_grow):
                    break
        except KeyboardInterrupt:
            self.forget_incomplete(round)
            self.was_interrupted = True
        for callback in callbacks:
            callback.after_training(model)

    def step(self, round: int) -> bool:
        """One round: a tree for all outputs, or one for each. False when growth has come to an end."""
        state, grew = self.state, False
        state.renew()
        draw = self.sampler.draw(state.gradients_of_rows, round)
        for output in self.outputs:
            if self.renews_for_trees:
                state.renew()
            grown = self.structure.grow(draw, output)
            leaves = self.fitter.fit(grown, draw, output, self.model.learning_rate)
            # A single leaf moves all rows: once they are where they belong, there may be something to split.
            grew |= grown.tree.n_leaves > 1 or not state.cancel(output)
            state.add(grown, leaves, output)
            self.model.append(grown.tree, leaves, round, output)
        return self._may_grow(grew)

    def repeat(self, known: Model, round: int) -> bool:
        """One round as it was when it was trained, with its trees; returns what `step` does."""
        grew = False
        for i in np.flatnonzero(known.round_of_tree == round).tolist():
            tree, output = known.forest.tree(i), known.forest.output(i)
            if tree.n_leaves == 1:
                self.state.renew()
            grew |= tree.n_leaves > 1 or not self.state.cancel(output)
            self.model.append(tree, cast(Leaves, known.forest.values(i)), round, output)
            self.state.add_last(self.model.forest)
        return self._may_grow(grew)

    def _may_grow(self, grew: bool) -> bool:
        """Whether there may be something to grow: the next draw of rows or features may be luckier."""
        self.barren = 0 if grew else self.barren + 1
        return self.barren < (UNLUCKY_ROUNDS if self.sampler.is_chance else 1)

    def forget_incomplete(self, round: int) -> None:
        """After Ctrl-C: forget trees and scores of a round that was not finished."""
        if np.count_nonzero(self.model.round_of_tree == round) < len(self.outputs):
            self.model.truncate(round)
        self.evaluation.forget_incomplete()
