"""Fitting an estimator: from data and parameters to the fitted attributes."""

from __future__ import annotations

import copy
import functools
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from numbers import Integral
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, cast

import numpy as np
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from threadpoolctl import threadpool_limits

from polyleaf.estimators._persistence import make_metadata
from polyleaf.estimators._prediction import PredictionMixin
from polyleaf.metrics.metric import EvalsLog, OutputsLog
from polyleaf.model import Model
from polyleaf.model.metadata import CALIBRATIONS, ESTIMATOR, HAS_OFFSETS, MEMBERS
from polyleaf.objectives import Objective
from polyleaf.objectives.registry import ResolvedObjective
from polyleaf.runtime.capabilities import Use, check, find_refusal
from polyleaf.runtime.collective import SINGLE_PROCESS, Communicator
from polyleaf.runtime.context import effective_threads
from polyleaf.runtime.cuda import get_device
from polyleaf.runtime.row_data import RowData
from polyleaf.runtime.timing import measure_phase, record_times
from polyleaf.runtime.user_warnings import warn_user
from polyleaf.settings.parameters import DEFAULT_N_ESTIMATORS
from polyleaf.settings.train_config import TrainConfig, make_train_config
from polyleaf.training.auto_rounds import plan_linear_model, plan_rounds
from polyleaf.training.continuation import check_resumed_parameters, find_checkpoint
from polyleaf.training.evaluation import make_metrics
from polyleaf.training.fit import (
    MIN_INIT_ROWS,
    as_callbacks,
    check_metric_is_known,
    get_score_scale,
    read_offsets,
    scale_base_score,
    shrink_initial_scores,
    train,
)
from polyleaf.training.hold_out_search import find_n_estimators, has_ended_too_early
from polyleaf.training.initial_scores import start_from_initial_model
from polyleaf.training.members import Changes, Member, read_changes
from polyleaf.training.prepare import free_codes, prepare
from polyleaf.training.quality import RUNGS, apply_changes, drop_linear, has_defaults
from polyleaf.training.refit import KnownTrees
from polyleaf.training.training_run import Seeds, TrainingData, TrainingRun
from polyleaf.training.widening import check_new_outputs, widen_outputs
from polyleaf.user_data.read_target import count_columns, is_sparse
from polyleaf.user_data.target import Target, TargetEncoding
from polyleaf.user_data.target_scaling import warn_small_weights

if TYPE_CHECKING:
    from polyleaf.estimators.base import PolyleafEstimator
    from polyleaf.runtime.types import DataLike

_Estimator = TypeVar("_Estimator", bound="PolyleafEstimator")  # a PolyleafEstimator
_Function = TypeVar("_Function", bound=Callable[..., object])


def restore_if_fit_fails(fit: _Function) -> _Function:
    """Decorate a function that fits its first argument, which stays as it was if that fails.

    An interrupted fit that has stored a model keeps it.
    """

    @functools.wraps(fit)
    def fit_or_restore(estimator: object, *args: object, **kwargs: object) -> object:
        before = dict(vars(estimator))
        try:
            return fit(estimator, *args, **kwargs)
        except BaseException as error:
            has_new_model = getattr(estimator, "model_", None) is not before.get("model_")
            if not (isinstance(error, KeyboardInterrupt) and has_new_model):
                vars(estimator).clear()
                vars(estimator).update(before)
            raise

    return cast(_Function, fit_or_restore)


@restore_if_fit_fails
def fit_estimator(
    estimator: _Estimator,
    data: TrainingData,
    eval_data: list[TrainingData],
    callbacks: object,
    init_model: object,
    init_scores: DataLike | None = None,
) -> _Estimator:
    """Fit an estimator whose parameters are valid one by one, and record the times of phases.

    Its optional steps run only if a parameter or argument asks for them.
    """
    with record_times() as times:
        if times is not None:
            estimator.fit_times_ = times
        # Parameters and y come first: most mistakes are found before X is read, which may be
        # large.
        callbacks = as_callbacks(callbacks)
        all_callbacks = as_callbacks(estimator.callbacks) + callbacks
        with measure_phase("reading"):
            run = start_run(estimator, data, init_model, all_callbacks)
        run.eval_data = eval_data
        # Offsets come next: columns derived from y are learned from what is left of y.
        read_initial_scores(estimator, run, init_scores)
        # X is read once, so it has to be known which trainings on some of the rows will follow.
        hold_out_metric, finds_rounds = None, False
        if estimator.n_estimators is None:
            hold_out_metric = plan_rounds(estimator, run, all_callbacks)
        if hold_out_metric is not None:
            finds_rounds = True
            plan_candidates(estimator, run)
            n_cells = run.target.n_rows * count_columns(data.X)
            run.candidates = drop_linear(run.candidates, n_cells)
        elif run.linear is not None:
            hold_out_metric = plan_linear_model(estimator, run)
        shrinks_scores = shrinks_initial_scores(run)
        has_evaluation = bool(eval_data) or estimator.validation_fraction is not None
        prepare(
            estimator,
            run,
            has_hold_outs=shrinks_scores or hold_out_metric is not None,
            is_cross_fitted=estimator._is_cross_fitted(run.objective, has_evaluation),
        )
        describe_model(estimator, run)
        # The trees of all other trainings start from the scores of `init`.
        if shrinks_scores:
            with measure_phase("initial model"):
                shrink_initial_scores(run)
        hold_out, has_time = None, True
        if hold_out_metric is not None:
            hold_out, has_time = find_n_estimators(
                run, hold_out_metric, all_callbacks, is_fixed=not finds_rounds
            )
            if has_time and not finds_rounds:  # a training of fewer rounds is what was asked for
                hold_out = None
        # The training on all rows is the last to read the data, and the largest.
        free_codes(run)
        if has_time:
            train(estimator, run, callbacks)
        # Without the time to train on all rows, the model of the search is the better one.
        if hold_out is not None:
            if not has_time:
                run = hold_out
            elif has_ended_too_early(run, hold_out, all_callbacks):
                run = run.take_result(hold_out)
        # Calibration reads the fitted attributes.
        store_result(estimator, run.model, run.target.encoding, run.evals_log, run.outputs_log)
        with measure_phase("calibration"):
            estimator._after_training(run)
        if run.was_interrupted:
            n = run.model.n_rounds
            message = f"Training was interrupted; the {n} complete rounds are kept"
            report_interrupt(estimator, message)
        return estimator


def refit_estimator(
    estimator: _Estimator, data: TrainingData, decay_rate: float, recalibrate: bool
) -> _Estimator:
    """Refit the leaves of a fitted estimator; it does not change if that fails."""
    trained = estimator._get_trained_estimator()
    copied = copy.copy(trained).set_params(validation_fraction=None, device="cpu")
    run = start_run(copied, data, KnownTrees(estimator.model_, decay_rate))
    read_initial_scores(copied, run)
    is_cross_fitted = recalibrate and copied._is_cross_fitted(run.objective, False)
    prepare(copied, run, is_cross_fitted=is_cross_fitted)
    describe_model(trained, run)
    train(copied, run)
    copied._set_model(run.model, run.target.encoding)
    if recalibrate:
        copied._after_training(run)
    replace_refitted_model(estimator, copied.model_, run.target.encoding, recalibrate)
    return estimator


def replace_refitted_model(
    estimator: PolyleafEstimator, model: Model, encoding: TargetEncoding, recalibrate: bool = False
) -> None:
    """Set the model of an estimator after a refit, and warn about calibrations that it has lost."""
    old_model = estimator.model_
    dropped = sorted((old_model.metadata.keys() & CALIBRATIONS) - model.metadata.keys())
    if estimator._is_calibrated(model.objective) and not recalibrate:
        dropped.append("shifts of quantiles")
    estimator._set_model(model, encoding)
    if dropped:
        remedy = "Call"
        if not recalibrate:
            remedy = "Pass recalibrate=True to compute anew what fit computes, and call"
        warn_user(
            f"refit has dropped the {', '.join(dropped)} of the old rows. {remedy} calibrate, "
            "choose_threshold or choose_goal_weights for the rest."
        )


def start_run(
    estimator: PolyleafEstimator,
    data: TrainingData,
    init_model: object,
    callbacks: Sequence[object] = (),
    ranks: Communicator = SINGLE_PROCESS,
) -> TrainingRun:
    """Return the run of a fit with what parameters and y determine.

    `init_model`: as in `fit`; a KnownTrees for a refit. `callbacks`: callbacks of the estimator and
    of the fit, of which a Checkpoint may resume a training. `ranks`: connection to the other rows.
    """
    checkpoint = None
    decay_rate: float | np.ndarray | None = None
    if isinstance(init_model, KnownTrees):
        init_model, decay_rate = init_model
        check("refit", model=init_model)
    elif callbacks:
        checkpoint = find_checkpoint(callbacks, estimator.n_estimators, init_model)
    old_model = None
    if checkpoint is not None or init_model is not None or estimator.warm_start:
        old_model = _get_init_model(estimator, checkpoint or init_model)
    n_rounds = DEFAULT_N_ESTIMATORS if estimator.n_estimators is None else estimator.n_estimators
    if old_model is not None and init_model is None:
        n_rounds = _count_further_rounds(n_rounds, old_model)
    seeds = _draw_seeds(estimator, old_model)
    resolved = estimator._resolve_objective()
    rows, is_new = data.rows, None
    if old_model is not None:
        old_model, is_new = widen_outputs(old_model, rows, ranks)
        if is_new is not None and decay_rate is not None:
            decay_rate = np.where(is_new, 0.0, decay_rate)
    settings = _make_settings(estimator, n_rounds, rows, resolved, seeds)
    if settings.has_sparse_targets:
        target = estimator._encode_sparse_target(rows, old_model, ranks)
    else:
        target = estimator._encode_target(rows, old_model, resolved, ranks)
    if is_new is not None:
        check_new_outputs(target, is_new, ranks)
    if target.weight is not None and not ranks.any((target.weight > 0).any()):
        raise ValueError("y has no value of positive weight to learn from.")
    objective = make_objective(estimator, target, resolved, old_model, ranks)
    if rows.weight is not None and target.weight is not None:
        penalty = max(estimator.reg_lambda, estimator.min_child_weight)
        warn_small_weights(target.weight, 2 * penalty, ranks)
    if isinstance(estimator.output_groups, str):
        check_metric_is_known(objective, estimator.eval_metric, 'output_groups="auto"')
    check(
        parameters=estimator,
        model=old_model,
        objective=objective,
        X=data.X,
        weight=rows.weight,
        offset=rows.offset,
        # A model that goes on has its biases.
        has_positions=None if old_model is not None else rows.positions is not None,
        has_sparse_y=is_sparse(rows.target),
    )
    run = TrainingRun(settings, objective, target, seeds)
    run.data = data
    run.init_model, run.resumed_file = old_model, checkpoint
    # A model that goes on, or is refitted, keeps its members.
    if old_model is not None:
        run.members = [
            replace(
                _make_member(estimator, run, read_changes(described), resolved),
                weight=described["weight"],
                n_rounds=described["n_estimators"],
            )
            for described in old_model.metadata.get(MEMBERS, ())
        ]
    run.decay_rate, run.is_new_output = decay_rate, is_new
    if estimator.eval_metric is not None:
        run.metrics = make_metrics(estimator.eval_metric, objective, target)
    if estimator.base_score is not None:
        run.base_score = scale_base_score(estimator.base_score, target.encoding, objective)
    return run


def _make_settings(
    estimator: PolyleafEstimator,
    n_rounds: int,
    rows: RowData,
    resolved: ResolvedObjective,
    seeds: Seeds,
) -> TrainConfig:
    """Return the settings of a run with the parameters of an estimator."""
    return make_train_config(
        estimator,
        n_rounds,
        is_sparse(rows.target),
        seeds.training,
        effective_threads(estimator.n_jobs),
        get_single_class(resolved),
        get_device(estimator.device),
    )


def plan_candidates(estimator: PolyleafEstimator, run: TrainingRun) -> None:
    """Set what `quality` stands for: the candidates that hold-out fits compare."""
    rung, data = RUNGS[estimator.quality], run.data
    if len(rung.candidates) == 1 or isinstance(estimator.output_groups, str):
        return
    rows = data.rows
    facts = {"objective": run.objective, "X": data.X, "weight": rows.weight, "offset": rows.offset}
    resolved = estimator._resolve_objective()
    members = [
        _make_member(estimator, run, changes, resolved)
        for changes in rung.candidates
        if has_defaults(estimator, changes)
        and find_refusal(None, Use(parameters=apply_changes(estimator, changes), **facts)) is None
    ]
    members = [member for member in members if member.settings.hessian == run.settings.hessian]
    if find_refusal(None, Use(parameters=estimator, members=members)) is None:
        run.candidates, run.rung = members, rung


def _make_member(
    estimator: PolyleafEstimator, run: TrainingRun, changes: Changes, resolved: ResolvedObjective
) -> Member:
    changed, n_rounds = apply_changes(estimator, changes), run.settings.boosting.n_estimators
    return Member(_make_settings(changed, n_rounds, run.data.rows, resolved, run.seeds), changes)


def get_single_class(resolved: ResolvedObjective) -> type[Objective] | None:
    """Return the class of the only objective; None for several, or if it depends on the target."""
    if isinstance(resolved, Mapping):
        (resolved,) = resolved.values() if len(resolved) == 1 else (None,)
    return None if resolved is None else resolved.cls


def refuse_objective(cls: type[Objective]) -> NoReturn:
    """Raise a ValueError for an objective of another estimator."""
    kind, estimator = "classes", "PolyleafClassifier"
    if "values" in cls.target_kinds:
        kind, estimator = "numbers", "PolyleafRegressor"
    elif "relevance" in cls.target_kinds:
        kind, estimator = "the order of rows", "PolyleafRanker"
    raise ValueError(f"objective={cls.name!r} is for {kind}: use {estimator}.")


def make_objective(
    estimator: PolyleafEstimator,
    target: Target,
    resolved: ResolvedObjective,
    old_model: Model | None = None,
    ranks: Communicator = SINGLE_PROCESS,
) -> Objective:
    """Make the objective for a target and check it against the model to continue."""
    objective = estimator._make_objective(target, old_model, resolved, ranks)
    if target.encoding.scale is not None:
        estimator._check_scaling(target.encoding, objective)
    if old_model is not None and old_model.objective.to_dict() != objective.to_dict():
        _check_same_scores(old_model, objective, target.encoding.n_outputs)
    return objective


def _check_same_scores(old_model: Model, objective: Objective, n_outputs: int) -> None:
    """Raise unless the raw scores of a model mean the same to another objective."""
    old_objective = old_model.objective
    has_same_link = old_objective.link is not None and old_objective.link == objective.link
    if not has_same_link or objective.n_scores(n_outputs) != old_model.n_outputs:
        raise ValueError(
            f"The model was trained with objective {old_objective}, and its raw scores mean "
            f"something else to {objective}: pass an objective with the same link, "
            "or train a new model."
        )


def _get_init_model(estimator: PolyleafEstimator, init_model: Any) -> Model | None:
    """Return the model that training continues."""
    if init_model is None:
        return getattr(estimator, "model_", None)
    if isinstance(init_model, PredictionMixin):
        check_is_fitted(init_model)
        init_model = init_model.model_
    elif isinstance(init_model, str | os.PathLike | bytes) or hasattr(init_model, "read"):
        init_model = Model.load(init_model)
    if not isinstance(init_model, Model):
        raise TypeError(
            "init_model must be a polyleaf.Model, a fitted estimator or the path of a model file, "
            f"got {type(init_model).__name__}."
        )
    trained_by, name = init_model.metadata.get(ESTIMATOR), type(estimator).__name__
    if trained_by != name:
        raise ValueError(
            f"init_model was trained by {trained_by} and cannot be continued by {name}."
        )
    return init_model


def _count_further_rounds(n: int, old_model: Model) -> int:
    """Return the rounds that a warm start trains of n."""
    if n < old_model.n_rounds:
        raise ValueError(
            f"n_estimators={n} is less than the {old_model.n_rounds} rounds of the model: with "
            "warm_start, or a Checkpoint that resumes, it is the total number of rounds."
        )
    return n - old_model.n_rounds


def _draw_seeds(estimator: PolyleafEstimator, old_model: Model | None) -> Seeds:
    """Draw seeds in a fixed order, only for what is random, to advance generators no further."""
    learns_projection = estimator.projection is not None and (
        old_model is None or old_model.projection is None
    )
    held_out = draw_seed(estimator) if estimator.validation_fraction is not None else 0
    projection = draw_seed(estimator) if learns_projection else 0
    return Seeds(held_out, projection, draw_seed(estimator))


def draw_seed(estimator: PolyleafEstimator) -> int:
    """Draw a seed. An int is its own seed, so that a continued training is the same."""
    if isinstance(estimator.random_state, Integral):
        return int(estimator.random_state)
    return int(check_random_state(estimator.random_state).randint(2**31 - 1))


def has_initial_model(estimator: PolyleafEstimator, old_model: Model | None) -> bool:
    """Return whether a fit has an initial model, its own or the one of the model to continue."""
    has_own = getattr(estimator, "init", None) is not None
    return has_own or (old_model is not None and old_model.initial is not None)


def read_initial_scores(
    estimator: PolyleafEstimator, run: TrainingRun, init_scores: DataLike | None = None
) -> None:
    """Read the scores that rows start from, if there are any: offsets, or the scores of `init`."""
    init_model = run.init_model
    encoding, objective = run.target.encoding, run.objective
    make_reader = functools.partial(estimator._offset_reader, encoding, objective)
    has_offsets = init_model is not None and init_model.metadata.get(HAS_OFFSETS)
    if has_offsets or any(d.rows.offset is not None for d in (run.data, *run.eval_data)):
        read_offsets(run, make_reader)
    if init_scores is not None or has_initial_model(estimator, init_model):
        # Sums must not depend on threads.
        with measure_phase("initial model"), threadpool_limits(1, user_api="blas"):
            start_from_initial_model(
                estimator, run, init_scores, lambda *values: make_reader().read(*values)
            )
    elif run.data.rows.offset is not None:
        run.set_offset(run.data.rows.offset)


def shrinks_initial_scores(run: TrainingRun) -> bool:
    """Return whether the scores of `init` are multiplied by a factor that held-out rows choose."""
    return (
        run.initial is not None
        and run.init_model is None
        and run.target.encoding.kind not in ("regression", "tasks")
        and run.objective.has_default_metric
        and not run.target.is_sparse
        and run.settings.workers.device is None
        and run.target.n_rows >= MIN_INIT_ROWS
    )


def describe_model(estimator: PolyleafEstimator, run: TrainingRun) -> None:
    """Set the attributes of the new model besides its trees."""
    encoding = run.target.encoding
    metadata = make_metadata(estimator, encoding, run.has_offset, run.projection is not None)
    metadata |= estimator._calibration_metadata(encoding)
    if encoding.scale is not None:
        run.target_scale, run.target_offset = get_score_scale(encoding, run.objective)
    run.output_names = estimator._score_names(encoding, run.objective)
    run.metadata = metadata
    if run.resumed_file is not None:
        check_resumed_parameters(run)


def store_result(
    estimator: PolyleafEstimator,
    model: Model,
    encoding: TargetEncoding,
    evals_log: EvalsLog,
    outputs_log: OutputsLog,
) -> None:
    """Set the fitted attributes of an estimator, before calibrations."""
    estimator._set_model(model, encoding)
    estimator.evals_result_ = evals_log
    estimator.evals_result_per_output_ = {
        name: {metric: np.array(rows) for metric, rows in metrics.items()}
        for name, metrics in outputs_log.items()
    }


def report_interrupt(estimator: PolyleafEstimator, message: str) -> None:
    """Raise KeyboardInterrupt, or warn, for a fitted estimator whose training Ctrl-C ended."""
    if estimator.on_interrupt == "raise":
        raise KeyboardInterrupt(f'{message} (on_interrupt="keep" returns the estimator).')
    warn_user(f"{message}.")
