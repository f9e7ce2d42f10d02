"""The boosting loop: derivatives -> tree -> leaf values -> raw scores -> callbacks.

The loop does not depend on which components it calls; factory.py chooses them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, cast

import numpy as np

import polyleaf._core as _core
from polyleaf.binned_data.dataset import Dataset
from polyleaf.callbacks import Callback
from polyleaf.metrics.metric import EvalsLog, OutputsLog
from polyleaf.model import Model
from polyleaf.model.initial import InitialModel
from polyleaf.model.leaf_kinds import Leaves, TreeOutputs
from polyleaf.model.metadata import get_learning_rates, set_learning_rates
from polyleaf.objectives import Objective
from polyleaf.objectives._utils import minimise_base_score
from polyleaf.runtime.row_data import RowData
from polyleaf.runtime.timing import TREES, measure_phase
from polyleaf.settings.train_config import TrainConfig
from polyleaf.sketching.projections import Projection
from polyleaf.training.distributed import can_replay, sync_ranks
from polyleaf.training.evaluation import EvalSet
from polyleaf.training.factory import Components, bind_objective, make_components
from polyleaf.training.output_groups import make_output_groups
from polyleaf.training.refit import KnownTrees
from polyleaf.training.sampling import GlobalRowIds

# Rounds in a row without a split after which training ends, if rows or features are sampled.
MAX_FAILED_ROUNDS = 10


class BoostResult(NamedTuple):
    """Result of a training.

    Attributes
    ----------
    evals_log : dict
        `{data name: {metric name: [value of each round]}}`.
    outputs_log : dict
        The same per output, arrays (K,), for metrics that are defined per output; empty for one
        output.
    was_interrupted : bool
        Whether Ctrl-C ended the training; the model then has the complete rounds.
    learning_rates : dict
        Learning rate of each round of the model, by its number.
    """

    model: Model
    evals_log: EvalsLog
    outputs_log: OutputsLog
    was_interrupted: bool
    learning_rates: dict[int, float]


def boost(
    dataset: Dataset,
    rows: RowData,
    objective: Objective,
    settings: TrainConfig,
    *,
    eval_sets: Sequence[EvalSet] = (),
    callbacks: Iterable[Callback] = (),
    init_model: Model | None = None,
    base_score: np.ndarray | None = None,
    row_ids: GlobalRowIds | None = None,
    resume_from: Model | None = None,
    is_same_training: bool = False,
    known: KnownTrees | None = None,
    target_scale: np.ndarray | None = None,
    target_offset: np.ndarray | None = None,
    output_names: Sequence[str] | None = None,
    projection: Projection | None = None,
    metadata: dict[str, Any] | None = None,
    initial: InitialModel | None = None,
) -> BoostResult:
    """Boost trees on one data set.

    Parameters
    ----------
    dataset : Dataset
        Binned features.
    rows : RowData
        Target and offset are csr_matrix if `settings.has_sparse_targets`. The offset is that which
        could not be subtracted from the target.
    eval_sets : sequence of EvalSet
    callbacks : iterable of Callback
        Called in order in every round.
    init_model : Model, optional
        Model to continue from; its trees are copied. Its mapper must be the data set's.
    base_score : ndarray of shape (K,), float64, optional
        Replaces the objective's own.
    row_ids : GlobalRowIds, optional
        Ids of the rows in distributed training (`settings.workers`). `base_score` is then that of
        all rows, or that of `init_model`, and only rank 0 has evaluation sets and callbacks.
    resume_from : Model, optional
        Model of the same training before it was interrupted: its rounds are replayed with its
        trees, callbacks and evaluations included. With layers that are boosted the trees are
        trained again, since callbacks may have received the layers, which a tree does not store.
    is_same_training : bool
        Whether `init_model` was trained with the same parameters. Rounds without a split, and the
        best round if the evaluation sets are the same, then count as if it had not been cut.
    known : KnownTrees, optional
        Trees whose leaves are refitted in place of a training.
    target_scale, target_offset, output_names, projection, metadata, initial
        Attributes of the model. The target is `(y - target_offset) / target_scale`.

    Returns
    -------
    BoostResult
        Also after Ctrl-C.
    """
    callbacks = list(callbacks)
    bound = bind_objective(objective, rows, settings)
    if init_model is not None:
        model = init_model.copy()
    else:
        if base_score is None:
            base_score = compute_base_score(bound, settings)
        if known is not None and known.decay_rate > 0:
            old, share = known.model.base_score, known.decay_rate
            base_score = old if share == 1 else share * old + (1.0 - share) * base_score
        model = Model(
            mapper=dataset.mapper,
            objective=objective,
            base_score=base_score,
            learning_rate=settings.boosting.learning_rate,
            feature_names=dataset.mapper.column_names_,
            target_scale=target_scale,
            target_offset=target_offset,
            output_names=output_names,
            projection=projection,
            metadata=metadata,
            initial=initial,
        )
    bound.set_base_score(model.base_score)

    def make_loop(model: Model, hooks: Sequence[Callable[..., object]]) -> BoostingLoop:
        components = make_components(
            settings, bound, dataset, rows, model, eval_sets, hooks, row_ids, known
        )
        return BoostingLoop(settings, components)

    if known is not None:
        loop = make_loop(model, [])
        loop.refit(known.model)
        return BoostResult(model, {}, {}, False, loop.learning_rates)
    rates = get_learning_rates(model)
    previous, complete = None, model
    if init_model is not None:
        if is_same_training and model.best_iteration is not None:
            loops = make_loop if settings.boosting.boosting_step == "layer" else None
            previous = _restore_best_round(model, rates, loops)
            complete = previous.model
        model = complete.copy()
        if is_same_training:  # rounds without a split are replayed, which counts them
            model.truncate(model.n_rounds - _count_last_stumps(model))
        model.best_iteration = model.best_score = None
        model.learning_rate = settings.boosting.learning_rate
    hooks = [c.after_layer for c in callbacks if getattr(c, "watches_layers", False)]
    loop = make_loop(model, hooks)
    loop.learning_rates = dict(enumerate(rates))
    for round in range(model.n_rounds, complete.n_rounds):
        loop.replay_round(complete, round)
    loop.run(callbacks, resume_from, previous)
    evaluation = loop.evaluation
    return BoostResult(
        model, evaluation.log, evaluation.log_by_output, loop.was_interrupted, loop.learning_rates
    )


class _BestRound(NamedTuple):
    """The best round of a training that goes on.

    Attributes
    ----------
    model : Model
        Model to continue.
    score : float
    forest : _core.Forest
        Trees up to this round.
    layers : list of (metrics, (tree, leaves))
        The tree of this round after each layer but the last, if layers are boosted.
    """

    model: Model
    round: int
    score: float
    forest: _core.Forest
    layers: list[tuple[dict[str, dict[str, float]], tuple[_core.Tree, Leaves]]]


def _restore_best_round(
    init_model: Model, rates: Sequence[float], make_loop: Callable[..., BoostingLoop] | None
) -> _BestRound:
    """Return the best round of `init_model`.

    With layers that are boosted (`make_loop`) the round is trained once more: its best layer is not
    stored, and if early stopping has cut the last tree back to that layer, training goes on from
    the whole tree.
    """
    round, score = init_model.best_iteration, init_model.best_score
    layers: list[Any] = []
    assert round is not None and score is not None
    best = init_model.copy()
    best.truncate(round + 1)
    result = _BestRound(init_model, round, score, best.forest, layers)
    if make_loop is None:
        return result
    again = init_model.copy()
    again.truncate(round)
    again.learning_rate = rates[round]
    loop = make_loop(again, [lambda *given: layers.append((given[2], given[3:]))])
    loop.evaluation.start()
    loop.step(round)
    last = cast(np.ndarray, init_model.forest.values(len(init_model.forest) - 1))
    is_cut = init_model.n_rounds == round + 1 and any(
        np.array_equal(leaves, last) for _, (_, leaves) in layers
    )
    return result._replace(model=again, forest=again.forest) if is_cut else result


def _count_last_stumps(model: Model) -> int:
    """Return how many of the last rounds, of `MAX_FAILED_ROUNDS`, have trees of one leaf only."""
    rounds, first = model.round_of_tree, model.n_rounds - MAX_FAILED_ROUNDS
    split = [
        round
        for t, round in enumerate(rounds.tolist())
        if round >= first and model.forest.tree(t).n_leaves > 1
    ]
    return model.n_rounds - 1 - max([first - 1, -1, *split])


def compute_base_score(bound: Any, settings: TrainConfig) -> np.ndarray:
    """Return the constant score (K,) that training starts from."""
    offset = bound.rows.offset
    if offset is None or settings.has_sparse_targets:
        return bound.base_score(settings.workers)
    return minimise_base_score(bound, offset.astype(np.float32), settings.workers.n_threads)


class BoostingLoop:
    """One training: its components, and the order in which they are called."""

    def __init__(self, settings: TrainConfig, components: Components) -> None:
        self.state, self.builder, self.fitter, self.model = components[:4]
        self.sampler, self.evaluation = components.sampler, components.evaluation
        self.layers = components.layers
        boosting, n_outputs = settings.boosting, self.model.n_outputs
        # Outputs of the trees of a round; rounds take turns.
        self.turns = make_output_groups(boosting, n_outputs, self.model.output_names)
        self.n_rounds = boosting.n_estimators
        # The trees of other outputs do not change the derivatives of a separable loss.
        is_separable = boosting.boosting_step == "tree" and self.model.objective.separable
        self.updates_per_tree = boosting.boosting_step != "round" and not is_separable
        self.settings = settings
        self.communicator = settings.workers.communicator
        self.rounds_without_split = 0  # in a row
        self.max_failed_rounds = MAX_FAILED_ROUNDS if self.sampler.is_random else 1
        self.was_interrupted = False
        self.learning_rates: dict[int, float] = {}

    def run(
        self,
        callbacks: Sequence[Callback],
        resume_from: Model | None = None,
        previous: _BestRound | None = None,
    ) -> None:
        """Train all rounds, unless a callback, Ctrl-C or the end of growth stops earlier."""
        known = resume_from
        if known is not None and not can_replay(self.settings):
            known = None
        n_known = 0 if known is None else known.n_rounds
        model, log = self.model, self.evaluation.log
        for callback in callbacks:
            if getattr(callback, "watches_outputs", False):
                callback.set_per_output_log(self.evaluation.log_by_output)
            callback.before_training(model)
        self.evaluation.start()
        if previous is not None:
            self._restore_callbacks(callbacks, previous)
        # Callbacks that save the model do so after the others have noted the best round, and before
        # they cut the model at the end.
        savers_last = sorted(callbacks, key=lambda c: getattr(c, "saves_model", False))
        savers_first = sorted(callbacks, key=lambda c: not getattr(c, "saves_model", False))
        round = first = model.n_rounds
        can_split = self.rounds_without_split < self.max_failed_rounds
        try:
            for round in range(first, first + self.n_rounds * can_split):
                stops = [callback.before_iteration(model, round, log) for callback in callbacks]
                if self._should_stop(any(stops)):
                    break
                self.learning_rates[round] = model.learning_rate
                if known is not None and round < n_known:
                    goes_on = self.replay_round(known, round)
                else:
                    goes_on = self.step(round)
                if self.evaluation.sets:
                    with measure_phase("evaluation"):
                        self.evaluation.update()
                set_learning_rates(model, self.learning_rates)
                stops = [callback.after_iteration(model, round, log) for callback in savers_last]
                if self._should_stop(any(stops) or not goes_on):
                    break
        except KeyboardInterrupt:
            self.discard_incomplete_round(round)
            self.was_interrupted = True
        if model.n_rounds > 0:  # callbacks may have set that of a round that was not trained
            model.learning_rate = self.learning_rates[model.n_rounds - 1]
        for callback in savers_first:
            callback.after_training(model)

    def refit(self, known: Model) -> None:
        """Train as many rounds as a model has, with the learning rates and outputs of its trees."""
        rates, model = get_learning_rates(known), self.model
        outputs: dict[int, list[TreeOutputs]] = {}
        for t, round in enumerate(known.round_of_tree.tolist()):
            outputs.setdefault(round, []).append(known.forest.outputs(t))
        for round, groups in outputs.items():
            self.turns = [groups]
            self.learning_rates[round] = model.learning_rate = rates[round]
            self.step(round)
            self._should_stop(False)
        set_learning_rates(model, self.learning_rates)
        model.best_iteration, model.best_score = known.best_iteration, known.best_score
        model.evals_log, model.has_statistics = known.evals_log, known.has_statistics

    def _restore_callbacks(self, callbacks: Sequence[Callback], best: _BestRound) -> None:
        """Tell callbacks the best round, and the metrics of its layers and of its tree."""
        restore = [c.restore_best for c in callbacks if hasattr(c, "restore_best")]
        if restore and self.evaluation.sets:
            found = [*best.layers, (self.evaluation.compute_metrics(best.forest), None)]
            for function in restore:
                function(self.model, best.round, best.score, found)

    def _should_stop(self, stops: bool) -> bool:
        if self.communicator.size == 1:
            return stops
        return sync_ranks(self.communicator, self.model, stops)

    def step(self, round: int) -> bool:
        """Train one round: a tree for each group of outputs. Return whether to continue."""
        state, has_split = self.state, False
        with measure_phase("derivatives"):
            state.update_derivatives()
        sample = self.sampler.draw(state.sampling_gradients, round)
        for outputs in self.turns[round % len(self.turns)]:
            if self.updates_per_tree:
                with measure_phase("derivatives"):
                    state.update_derivatives()
            if self.layers is None:
                with measure_phase(TREES):
                    grown = self.builder.grow(sample, outputs)
                with measure_phase("leaf values"):
                    leaves = self.fitter.fit(grown, sample, outputs, self.model.learning_rate)
            else:
                with measure_phase(TREES):
                    grown, leaves = self.layers.build_tree(sample, outputs)
                if grown.tree.n_leaves == 1:
                    with measure_phase("derivatives"):
                        state.update_derivatives()  # layers have changed them
            # A single leaf shifts all rows, after which there may be splits.
            has_split |= grown.tree.n_leaves > 1 or not state.gradients_cancel_out(outputs)
            with measure_phase("score updates"):
                state.add_tree(grown, leaves, outputs)
                self.model.append(grown.tree, leaves, round, outputs)
        return self._should_continue(has_split)

    def replay_round(self, known: Model, round: int) -> bool:
        """Repeat one round with the trees of a model; return what `step` returned."""
        has_split, trees = False, np.flatnonzero(known.round_of_tree == round).tolist()
        if any(known.forest.tree(i).n_leaves == 1 for i in trees):
            self.state.update_derivatives()
        for i in trees:
            tree, outputs = known.forest.tree(i), known.forest.outputs(i)
            if tree.n_leaves == 1 and self.updates_per_tree:
                self.state.update_derivatives()
            has_split |= tree.n_leaves > 1 or not self.state.gradients_cancel_out(outputs)
            self.model.append(tree, cast(Leaves, known.forest.values(i)), round, outputs)
            self.state.add_last_tree(self.model.forest)
        return self._should_continue(has_split)

    def _should_continue(self, has_split: bool) -> bool:
        """Return whether the next round may find splits, with another sample if sampling is
        random."""
        self.rounds_without_split = 0 if has_split else self.rounds_without_split + 1
        return self.rounds_without_split < self.max_failed_rounds

    def discard_incomplete_round(self, round: int) -> None:
        """Remove the trees and metric values of a round that Ctrl-C interrupted."""
        n_trees = len(self.turns[round % len(self.turns)])
        if np.count_nonzero(self.model.round_of_tree == round) < n_trees:
            self.model.truncate(round)
        self.evaluation.discard_incomplete_round()
