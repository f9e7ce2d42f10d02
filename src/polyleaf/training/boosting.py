"""The boosting loop: derivatives -> tree -> leaf values -> raw scores -> callbacks.

The loop does not depend on which components it calls; factory.py chooses them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np

import polyleaf._core as _core
from polyleaf.callbacks import Callback
from polyleaf.metrics.metric import EvalsLog, OutputsLog
from polyleaf.model import Model
from polyleaf.model.leaf_kinds import Leaves, TreeOutputs, scale_leaves
from polyleaf.model.metadata import (
    LEARNING_RATES,
    MEMBERS,
    POSITION_BIAS,
    get_learning_rates,
    set_learning_rates,
    set_position_bias,
)
from polyleaf.objectives._utils import minimise_base_score
from polyleaf.runtime.timing import TREES, measure_phase
from polyleaf.runtime.user_warnings import warn_user
from polyleaf.settings.train_config import TrainConfig
from polyleaf.training.continuation import (
    BestRound,
    copy_init_model,
    count_last_stumps,
    is_same_training,
    renew_metadata,
)
from polyleaf.training.distributed import can_replay, sync_ranks
from polyleaf.training.factory import Components, bind_objective, make_components
from polyleaf.training.members import get_member_trees, select_active
from polyleaf.training.output_groups import make_output_groups
from polyleaf.training.training_run import TrainingRun

# Rounds in a row without a split after which training ends, if rows or features are sampled.
MAX_FAILED_ROUNDS = 10


def boost(
    run: TrainingRun, callbacks: Sequence[Callback] = (), resume_from: Model | None = None
) -> None:
    """Train a new model, or more rounds of `run.init_model`, and fill in the result of the run.

    There is a result after Ctrl-C, too.

    Parameters
    ----------
    run : TrainingRun
        Targets and offsets are csr_matrix if `settings.has_sparse_targets`.
    callbacks : sequence of Callback
        Called in order in every round.
    resume_from : Model, optional
        Model of the same training before it was interrupted: its rounds are replayed with its
        trees, callbacks and evaluations included. With layers that are boosted the trees are
        trained again, since callbacks may have received the layers, which a tree does not store.
    """
    bound = bind_objective(run.objective, run.rows, run.settings)
    _warn_of_units(run, bound)
    hooks = [c.after_layer for c in callbacks if getattr(c, "watches_layers", False)]
    if run.init_model is None:
        components = make_components(run, bound, make_model(run, bound), hooks)
        loop, best_round = BoostingLoop(run.settings, components), None
    else:
        loop, best_round = _continue_training(run, bound, hooks)
    loop.run(callbacks, resume_from, best_round)
    run.model = loop.model
    run.evals_log = loop.log
    run.outputs_log = loop.log_by_output
    run.learning_rates = loop.learning_rates
    run.was_interrupted = loop.was_interrupted


def _warn_of_units(run: TrainingRun, bound: Any) -> None:
    """Warn if the unit of the targets does not suit parameters of a fixed unit."""
    settings = run.settings
    if settings.has_sparse_targets or run.rows.offset is not None:
        return
    boosting, penalties = settings.boosting, settings.regularisation
    problem = bound.find_unit_problem(
        boosting.n_estimators * boosting.learning_rate,
        max(penalties.reg_lambda, settings.growth.min_child_weight),
        settings.workers,
    )
    if problem is not None:
        warn_user(problem)


def refit(run: TrainingRun) -> None:
    """Fit the leaf values of `run.init_model` anew, and fill in the result of the run.

    There are as many rounds as the model has, with the learning rates and outputs of its trees.
    """
    old = run.init_model
    assert old is not None
    run.metadata = renew_metadata(run)
    run.metadata.pop(POSITION_BIAS, None)  # the bias of the old rows
    bound = bind_objective(run.objective, run.rows, run.settings)
    model = make_model(run, bound)
    settings = run.settings.replace_output_groups(None)  # those of the trees are followed
    loop = BoostingLoop(settings, make_components(run, bound, model))
    # All members have trees of the same outputs in a round.
    groups_of_round = {
        round: [old.forest.outputs(t) for t in next(iter(get_member_trees(old, round).values()))]
        for round in range(old.n_rounds)
    }
    rates = get_learning_rates(old)
    run.learning_rates = {}
    model.best_iteration, model.best_score = old.best_iteration, old.best_score
    for round, groups in groups_of_round.items():
        model.learning_rate = run.learning_rates[round] = rates[round]
        loop.step(round, groups)
        loop.store_position_bias()
        sync_ranks(run.settings.workers.communicator, model, ends=False)
    set_learning_rates(model, run.learning_rates)
    model.evals_log, model.has_statistics = old.evals_log, old.has_statistics
    run.model = model


def make_model(run: TrainingRun, bound: Any) -> Model:
    """Return a new model without trees.

    `bound`: result of `bind_objective`.
    """
    base_score = run.base_score
    if base_score is None:
        base_score = compute_base_score(bound, run.settings)
    if run.init_model is not None and run.decay_rate is not None:  # a refit
        old, share = run.init_model.base_score, _share_old_scores(run)
        mixed = share * old + (1.0 - share) * base_score
        base_score = np.where(share == 0, base_score, np.where(share == 1, old, mixed))
    metadata = run.metadata
    if run.members:
        metadata = metadata | {MEMBERS: [member.describe() for member in run.members]}
    return Model(
        mapper=run.dataset.mapper,
        objective=run.objective,
        base_score=base_score,
        learning_rate=run.settings.boosting.learning_rate,
        feature_names=run.dataset.mapper.column_names_,
        target_scale=run.target_scale,
        target_offset=run.target_offset,
        output_names=run.output_names,
        projection=run.projection,
        metadata=metadata,
        initial=run.initial,
        bin_counts=run.bin_counts,
    )


def _share_old_scores(run: TrainingRun) -> np.ndarray:
    """Return the share of each old base score in a refit: all of it if no row has the target."""
    share, weight = np.asarray(run.decay_rate), run.target.weight
    if weight is None or weight.ndim == 1 or run.target.is_sparse:
        return share
    is_trained = run.settings.workers.communicator.any((weight > 0).any(axis=0))
    assert run.init_model is not None
    columns = run.objective.score_columns(run.init_model.n_outputs)
    return np.where(is_trained[columns], share, 1.0)


def compute_base_score(bound: Any, settings: TrainConfig) -> np.ndarray:
    """Return the constant score (K,) that training starts from."""
    offset = bound.rows.offset
    if offset is None or settings.has_sparse_targets:
        return bound.base_score(settings.workers.n_threads_or_context)
    threads = settings.workers.n_threads_or_context
    return minimise_base_score(bound, offset.astype(np.float32), threads)


def _continue_training(
    run: TrainingRun, bound: Any, hooks: Sequence[Callable[..., object]]
) -> tuple[BoostingLoop, BestRound | None]:
    """Return the loop of a training that goes on, and its best round so far if it is the same
    training."""
    complete = copy_init_model(run)
    rates = get_learning_rates(complete)
    is_same, best_round = is_same_training(run), None
    if is_same and complete.best_iteration is not None:
        best_round = _restore_best_round(run, bound, complete, rates)
        complete = best_round.model
    model = complete.copy()
    if is_same:  # rounds without a split are replayed, which counts them
        model.truncate(model.n_rounds - count_last_stumps(model, MAX_FAILED_ROUNDS))
    model.best_iteration = model.best_score = None
    model.learning_rate = run.settings.boosting.learning_rate
    loop = BoostingLoop(run.settings, make_components(run, bound, model, hooks), rates)
    for round in range(model.n_rounds, complete.n_rounds):
        loop.replay_round(complete, round)
    for number, components in enumerate(loop.members):
        if components.positions is not None:  # the replayed rounds are part of it already
            components.positions.start_from(complete, number)
    return loop, best_round


def _restore_best_round(
    run: TrainingRun, bound: Any, init_model: Model, rates: Sequence[float]
) -> BestRound:
    """Return the best round of the model to continue.

    With layers that are boosted the round is trained once more: its best layer is not stored, and
    if early stopping has cut the last tree back to that layer, training goes on from the whole
    tree.
    """
    round, score = init_model.best_iteration, init_model.best_score
    layers: list[Any] = []
    assert round is not None and score is not None
    best = init_model.copy()
    best.truncate(round + 1)
    result = BestRound(init_model, round, score, best.forest, layers)
    if run.settings.boosting.boosting_step != "layer":
        return result
    again = init_model.copy()
    again.truncate(round)
    again.learning_rate = rates[round]

    def after_layer(model: Model, epoch: int, values: Any, *tree_and_leaves: Any) -> None:
        layers.append((values, tree_and_leaves))

    components = make_components(run, bound, again, [after_layer])
    loop = BoostingLoop(run.settings, components)
    assert loop.evaluation is not None
    loop.evaluation.start()
    loop.step(round)
    last = cast(np.ndarray, init_model.forest.values(len(init_model.forest) - 1))
    is_cut = init_model.n_rounds == round + 1 and any(
        np.array_equal(leaves, last) for _, (_, leaves) in layers
    )
    return result._replace(model=again, forest=again.forest) if is_cut else result


class BoostingLoop:
    """One training: its components, and the order in which they are called.

    `learning_rates`: learning rates of the rounds that the model has already.

    `turns`: outputs of the trees of a round; rounds take turns.
    """

    def __init__(
        self, settings: TrainConfig, components: Components, learning_rates: Sequence[float] = ()
    ) -> None:
        self.settings = settings
        self.members = components.members
        self.model = components.model
        self.evaluation = components.evaluation
        self.log: EvalsLog = {}
        self.log_by_output: OutputsLog = {}
        if self.evaluation is not None:
            self.log = self.evaluation.log
            self.log_by_output = self.evaluation.log_by_output
        boosting, n_outputs = settings.boosting, self.model.n_outputs
        self.turns: list[list[TreeOutputs]] = [[None]]
        if boosting.output_groups is not None or boosting.multi_strategy != "multi_output_tree":
            names, objective = self.model.output_names, self.model.objective
            self.turns = make_output_groups(boosting, n_outputs, names, objective)
        # The trees of other outputs do not change the derivatives of a separable loss.
        is_separable = boosting.boosting_step == "tree" and self.model.objective.separable
        self.updates_per_tree = boosting.boosting_step != "round" and not is_separable
        self.communicator = settings.workers.communicator
        self.rounds_without_split = 0  # in a row
        is_random = any(m.sampler.is_random for m in self.members)
        self.max_failed_rounds = MAX_FAILED_ROUNDS if is_random else 1
        self.was_interrupted = False
        self.learning_rates: dict[int, float] = dict(enumerate(learning_rates))

    def run(
        self,
        callbacks: Sequence[Callback],
        resume_from: Model | None = None,
        best_round: BestRound | None = None,
    ) -> None:
        """Train all rounds, unless a callback, Ctrl-C or the end of growth stops earlier."""
        n_replayed = 0
        if resume_from is not None and can_replay(self.settings):
            n_replayed = resume_from.n_rounds
        model, log = self.model, self.log
        for callback in callbacks:
            if getattr(callback, "watches_outputs", False):
                callback.set_per_output_log(self.log_by_output)
            callback.before_training(model)
        if self.evaluation is not None:
            self.evaluation.start()
        if best_round is not None:
            self._restore_callbacks(callbacks, best_round)
        # Callbacks that save the model do so after the others have noted the best round, and before
        # they cut the model at the end.
        # Early stopping sees a round before anything may be interrupted that users have written.
        watchers = [c for c in callbacks if hasattr(c, "restore_best")]
        others = [c for c in callbacks if not hasattr(c, "restore_best")]
        others.sort(key=lambda c: getattr(c, "saves_model", False))
        savers_first = sorted(callbacks, key=lambda c: not getattr(c, "saves_model", False))
        n_complete = first = model.n_rounds
        can_split = self.rounds_without_split < self.max_failed_rounds
        n_rounds = self.settings.boosting.n_estimators if can_split else 0
        rates_vary = LEARNING_RATES in model.metadata  # of the model to continue
        try:
            for round in range(first, first + n_rounds):
                stops = [callback.before_iteration(model, round, log) for callback in callbacks]
                if self._should_stop(any(stops)):
                    break
                self.learning_rates[round] = rate = model.learning_rate
                if resume_from is not None and round < n_replayed:
                    goes_on = self.replay_round(resume_from, round)
                else:
                    goes_on = self.step(round)
                if self.evaluation is not None:
                    with measure_phase("evaluation"):
                        self.evaluation.update()
                rates_vary |= rate != self.learning_rates.get(round - 1, rate)
                if rates_vary:
                    set_learning_rates(model, self.learning_rates)
                stops = [callback.after_iteration(model, round, log) for callback in watchers]
                self.store_position_bias()
                n_complete = round + 1
                stops += [callback.after_iteration(model, round, log) for callback in others]
                if self._should_stop(any(stops) or not goes_on):
                    break
        except KeyboardInterrupt:
            self.discard_incomplete_round(n_complete)
            self.was_interrupted = True
        if model.n_rounds > 0:  # callbacks may have set that of a round that was not trained
            model.learning_rate = self.learning_rates[model.n_rounds - 1]
        for callback in savers_first:
            callback.after_training(model)

    def _restore_callbacks(self, callbacks: Sequence[Callback], best: BestRound) -> None:
        """Tell callbacks the best round, and the metrics of its layers and of its tree."""
        restore = [c.restore_best for c in callbacks if hasattr(c, "restore_best")]
        if restore and self.evaluation is not None and self.evaluation.sets:
            metrics = [*best.layers, (self.evaluation.compute_metrics(best.forest), None)]
            for function in restore:
                function(self.model, best.round, best.score, metrics)

    def _should_stop(self, stops: bool) -> bool:
        if self.communicator.size == 1:
            return stops
        return sync_ranks(self.communicator, self.model, stops)

    def step(self, round: int, groups: Sequence[TreeOutputs] | None = None) -> bool:
        """Train one round: a tree of each member for each group of outputs. Return whether to
        continue.

        `groups`: outputs of the trees of a member; default: those whose turn it is.
        """
        if groups is None:
            groups = self.turns[round % len(self.turns)]
        active = [0]
        if len(self.members) > 1:
            active = select_active([m.member.n_rounds for m in self.members], round)
        has_split = [self._train_member(i, round, groups) for i in active]
        return self._should_continue(any(has_split))

    def store_position_bias(self) -> None:
        """Store the biases of positions after this round, whose metrics callbacks have seen."""
        biases = [m.positions for m in self.members if m.positions is not None]
        if biases:
            members = [bias.values.tolist() for bias in biases]
            set_position_bias(self.model, biases[0].positions.tolist(), members)

    def _train_member(self, number: int, round: int, groups: Sequence[TreeOutputs]) -> bool:
        """Train the trees of one member in a round; return whether its scores have changed."""
        member, state, builder, fitter, sampler, layers, positions = self.members[number]
        has_split = False
        with measure_phase("derivatives"):
            state.update_derivatives()
        sample = sampler.draw(state.sampling_gradients, round)
        for outputs in groups:
            if self.updates_per_tree:
                with measure_phase("derivatives"):
                    state.update_derivatives()
            if layers is None:
                with measure_phase(TREES):
                    grown = builder.grow(sample, outputs)
                with measure_phase("leaf values"):
                    leaves = fitter.fit(grown, sample, outputs, self.model.learning_rate)
            else:
                with measure_phase(TREES):
                    grown, leaves = layers.build_tree(sample, outputs)
                if grown.tree.n_leaves == 1:
                    with measure_phase("derivatives"):
                        state.update_derivatives()  # layers have changed them
            # A single leaf may move all rows, after which there may be splits.
            has_split |= grown.tree.n_leaves > 1 or state.moves_all_rows(leaves, outputs)
            with measure_phase("score updates"):
                if positions is not None:
                    positions.update(outputs, self.model.learning_rate)
                state.add_tree(grown, leaves, outputs)
                weighted = leaves if member.weight == 1 else scale_leaves(leaves, member.weight)
                self.model.append(grown.tree, weighted, round, outputs)
        return has_split

    def replay_round(self, trained: Model, round: int) -> bool:
        """Repeat one round with the trees of a model; return what `step` returned."""
        has_split = False
        for number, trees in get_member_trees(trained, round).items():
            has_split |= self._replay_member(number, trained, round, trees)
        return self._should_continue(has_split)

    def _replay_member(self, number: int, trained: Model, round: int, trees: Sequence[int]) -> bool:
        components, has_split = self.members[number], False
        member, state, positions = components.member, components.state, components.positions
        # Trees without a split, and the steps of positions, depend on the derivatives.
        uses_derivatives = [
            positions is not None or trained.forest.tree(i).n_leaves == 1 for i in trees
        ]
        if any(uses_derivatives):
            state.update_derivatives()
        for i, is_used in zip(trees, uses_derivatives, strict=True):
            tree, outputs = trained.forest.tree(i), trained.forest.outputs(i)
            if is_used and self.updates_per_tree:
                state.update_derivatives()
            weighted = cast(Leaves, trained.forest.values(i))
            leaves = scale_leaves(weighted, 1 / member.weight)
            has_split |= tree.n_leaves > 1 or state.moves_all_rows(leaves, outputs)
            if positions is not None:
                positions.update(outputs, self.model.learning_rate)
            self.model.append(tree, weighted, round, outputs)
            added = _core.Forest(self.model.n_outputs)
            added.append(tree, leaves, outputs)
            state.add_last_tree(added)
        return has_split

    def compute_raw_scores(self) -> np.ndarray:
        """Return the raw scores of all training rows, without the base score."""
        terms = [np.float32(m.member.weight) * cast(Any, m.state).raw for m in self.members]
        return np.sum(terms, axis=0)

    def _should_continue(self, has_split: bool) -> bool:
        """Return whether the next round may find splits, with another sample if sampling is
        random."""
        self.rounds_without_split = 0 if has_split else self.rounds_without_split + 1
        return self.rounds_without_split < self.max_failed_rounds

    def discard_incomplete_round(self, n_complete: int) -> None:
        """Remove the trees and metric values of a round that Ctrl-C interrupted."""
        if self.model.n_rounds > n_complete:
            self.model.truncate(n_complete)
        if self.evaluation is not None:
            self.evaluation.discard_incomplete_round()
