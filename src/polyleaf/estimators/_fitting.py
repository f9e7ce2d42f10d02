"""Fitting an estimator: from data and parameters to the fitted attributes."""

from __future__ import annotations

import copy
import functools
import os
from collections.abc import Callable, Mapping
from numbers import Integral
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from polyleaf.estimators._persistence import make_metadata
from polyleaf.estimators._prediction import PredictionMixin
from polyleaf.metrics import default_metrics
from polyleaf.model import Model
from polyleaf.model.metadata import CALIBRATIONS, ESTIMATOR
from polyleaf.objectives import Objective
from polyleaf.objectives.registry import ResolvedObjective
from polyleaf.runtime.capabilities import check
from polyleaf.runtime.context import effective_threads
from polyleaf.runtime.cuda import get_device
from polyleaf.runtime.timing import measure_phase, record_times
from polyleaf.runtime.user_warnings import warn_user
from polyleaf.settings.parameters import DEFAULT_N_ESTIMATORS
from polyleaf.settings.train_config import make_train_config
from polyleaf.training.boosting import BoostResult
from polyleaf.training.cross_fitting import TrainingRecord
from polyleaf.training.fit import (
    MIN_INIT_ROWS,
    FitPlan,
    ModelInfo,
    RoundSearchResult,
    as_callbacks,
    find_n_estimators,
    get_score_scale,
    make_metrics,
    read_offsets,
    scale_base_score,
    select_auto_rounds_metric,
    set_offset,
    shrink_initial_scores,
    train,
)
from polyleaf.training.initial_scores import compute_initial_scores
from polyleaf.training.prepare import PreparedData, Seeds, TrainingData, prepare
from polyleaf.training.refit import KnownTrees
from polyleaf.training.sampling import GlobalRowIds
from polyleaf.user_data.read_target import is_sparse
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
    """Fit an estimator whose parameters are valid one by one, and record the times of phases."""
    with record_times() as times:
        if times is not None:
            estimator.fit_times_ = times
        return _fit_estimator(estimator, data, eval_data, callbacks, init_model, init_scores)


def _fit_estimator(
    estimator: _Estimator,
    data: TrainingData,
    eval_data: list[TrainingData],
    callbacks: object,
    init_model: object,
    init_scores: DataLike | None,
) -> _Estimator:
    with measure_phase("reading"):
        plan, target = make_plan(estimator, data, init_model)
    (data, *eval_data), plan = _read_starts(
        estimator, [data, *eval_data], target, plan, init_scores
    )
    target = set_offset(target, data.rows.offset, plan.objective)
    callbacks = as_callbacks(callbacks)
    metric = select_auto_rounds_metric(estimator, plan, target, bool(eval_data or callbacks))
    has_evaluation = bool(eval_data) or estimator.validation_fraction is not None
    trial_metric = metric
    shrinks_scores = _shrinks_initial_scores(plan, target)
    if shrinks_scores:
        own = plan.objective, target.encoding.kind, target.encoding.n_outputs
        trial_metric = default_metrics(*own)[-1]
    ready = prepare(
        estimator,
        data,
        target,
        plan.objective,
        eval_data,
        plan.metrics,
        plan.start,
        plan.seeds,
        plan.settings.workers.n_threads,
        trial_metric,
        estimator._is_cross_fitted(plan.objective, has_evaluation),
    )
    base_score = scale_base_score(estimator.base_score, target.encoding, plan.objective)
    if shrinks_scores:
        with measure_phase("initial model"):
            info = _make_model_info(estimator, plan, ready)
            plan, ready = shrink_initial_scores(plan, ready, base_score, **info._asdict())
    if metric is not None:
        found = search_n_estimators(estimator, plan, ready, base_score)
        if found.result.was_interrupted:
            store_result(estimator, found.result, target.encoding)
            assert ready.trial is not None
            estimator._after_training(found.record, ready.trial, data)
            report_interrupt(estimator)
            return estimator
        plan = plan.replace_n_estimators(found.n_estimators)
        if isinstance(plan.settings.boosting.output_groups, str):
            groups = found.result.model.output_groups
            plan = plan._replace(settings=plan.settings.replace_output_groups(groups))
    result, record = train_estimator(estimator, plan, ready, base_score, callbacks)
    with measure_phase("calibration"):
        estimator._after_training(record, ready, data)
    if result.was_interrupted:
        report_interrupt(estimator)
    return estimator


def refit_estimator(
    estimator: _Estimator, data: TrainingData, decay_rate: float, recalibrate: bool
) -> _Estimator:
    """Refit the leaves of a fitted estimator; it does not change if that fails."""
    trained = estimator._get_trained_estimator()
    own = copy.copy(trained).set_params(validation_fraction=None, device="cpu")
    plan, target = make_plan(own, data, KnownTrees(estimator.model_, decay_rate))
    (data,), plan = _read_starts(own, [data], target, plan)
    target = set_offset(target, data.rows.offset, plan.objective)
    is_cross_fitted = recalibrate and own._is_cross_fitted(plan.objective, False)
    ready = prepare(
        own,
        data,
        target,
        plan.objective,
        [],
        [],
        plan.start,
        plan.seeds,
        plan.settings.workers.n_threads,
        None,
        is_cross_fitted,
    )
    base_score = scale_base_score(own.base_score, target.encoding, plan.objective)
    info = _make_model_info(trained, plan, ready)
    result, record = train(own, plan, ready, info, base_score, None)
    own._set_model(result.model, target.encoding)
    if recalibrate:
        own._after_training(record, ready, data)
    replace_refitted_model(estimator, own.model_, target.encoding, recalibrate)
    return estimator


def replace_refitted_model(
    estimator: PolyleafEstimator, model: Model, encoding: TargetEncoding, recalibrate: bool = False
) -> None:
    """Set the model of an estimator after a refit, and warn about calibrations that it has lost."""
    old = estimator.model_
    dropped = sorted((old.metadata.keys() & CALIBRATIONS) - model.metadata.keys())
    if estimator._is_calibrated(model.objective) and not recalibrate:
        dropped.append("shifts of quantiles")
    estimator._set_model(model, encoding)
    if dropped:
        remedy = (
            "Call"
            if recalibrate
            else ("Pass recalibrate=True to compute anew what fit computes, and call")
        )
        warn_user(
            f"refit has dropped the {', '.join(dropped)} of the old rows. {remedy} calibrate or "
            "choose_threshold for the rest."
        )


def make_plan(
    estimator: PolyleafEstimator, data: TrainingData, init_model: object
) -> tuple[FitPlan, Target]:
    """Resolve parameters and encode the target; `init_model` is a KnownTrees for a refit."""
    decay_rate = None
    if isinstance(init_model, KnownTrees):
        init_model, decay_rate = init_model
        check("refit", model=init_model)
    start, n_threads = _get_start(estimator, init_model), effective_threads(estimator.n_jobs)
    n_rounds, seeds = _get_n_rounds(estimator, start, init_model), _draw_seeds(estimator, start)
    resolved, device = estimator._resolve_objective(), get_device(estimator.device)
    cls, rows = get_single_class(resolved), data.rows
    settings = make_train_config(
        estimator, n_rounds, is_sparse(rows.target), seeds.training, n_threads, cls, device
    )
    if settings.has_sparse_targets:
        target = estimator._encode_sparse_target(rows, start)
    else:
        target = estimator._encode_target(rows, start, resolved)
    objective = make_objective(estimator, target, resolved, start)
    if rows.weight is not None and target.weight is not None:
        warn_small_weights(target.weight, 2 * max(estimator.reg_lambda, estimator.min_child_weight))
    metrics = make_metrics(estimator.eval_metric, objective, target)
    check(
        parameters=estimator,
        model=start,
        objective=objective,
        X=data.X,
        rows=rows,
        has_sparse_y=is_sparse(rows.target),
    )
    return FitPlan(settings, start, objective, metrics, seeds, decay_rate), target


def get_single_class(resolved: ResolvedObjective) -> type[Objective] | None:
    """Return the class of the only objective; None for several, or if it depends on the target."""
    if isinstance(resolved, Mapping):
        (resolved,) = resolved.values() if len(resolved) == 1 else (None,)
    return None if resolved is None else resolved.cls


def make_objective(
    estimator: PolyleafEstimator,
    target: Target,
    resolved: ResolvedObjective,
    start: Model | None = None,
) -> Objective:
    """Make the objective for a target and check it against the model to continue."""
    objective = estimator._make_objective(target, start, resolved)
    estimator._check_scaling(target.encoding, objective)
    if start is not None and start.objective.to_dict() != objective.to_dict():
        _check_same_scores(start, objective, target.encoding.n_outputs)
    return objective


def _check_same_scores(start: Model, objective: Objective, n_outputs: int) -> None:
    """Raise unless the raw scores of a model mean the same to another objective."""
    old = start.objective
    has_same_link = old.link is not None and old.link == objective.link
    if not has_same_link or objective.n_scores(n_outputs) != start.n_outputs:
        raise ValueError(
            f"The model was trained with objective {old}, and its raw scores mean something else "
            f"to {objective}: pass an objective with the same link, or train a new model."
        )


def _get_start(estimator: PolyleafEstimator, init_model: Any) -> Model | None:
    """Return the model that training continues."""
    if init_model is None:
        return estimator.model_ if estimator.warm_start and hasattr(estimator, "model_") else None
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


def _get_n_rounds(estimator: PolyleafEstimator, start: Model | None, init_model: object) -> int:
    """Return the number of rounds of this run."""
    n = DEFAULT_N_ESTIMATORS if estimator.n_estimators is None else estimator.n_estimators
    if start is None or init_model is not None:
        return n
    if n < start.n_rounds:
        raise ValueError(
            f"warm_start: n_estimators={n} is less than the {start.n_rounds} rounds of the model."
        )
    return n - start.n_rounds


def _draw_seeds(estimator: PolyleafEstimator, start: Model | None) -> Seeds:
    """Draw seeds in a fixed order, only for what is random, to advance generators no further."""
    learns_projection = estimator.projection is not None and (
        start is None or start.projection is None
    )
    held_out = draw_seed(estimator) if estimator.validation_fraction is not None else 0
    projection = draw_seed(estimator) if learns_projection else 0
    return Seeds(held_out, projection, draw_seed(estimator))


def draw_seed(estimator: PolyleafEstimator) -> int:
    """Draw a seed. An int is its own seed, so that a continued training is the same."""
    if isinstance(estimator.random_state, Integral):
        return int(estimator.random_state)
    return int(check_random_state(estimator.random_state).randint(2**31 - 1))


def read_fit_offsets(
    estimator: PolyleafEstimator, data: list[TrainingData], target: Target, plan: FitPlan
) -> list[TrainingData]:
    """Read the offsets of training and evaluation data."""
    make_reader = functools.partial(estimator._offset_reader, target.encoding, plan.objective)
    return read_offsets(data, target, plan.start, make_reader)


def _shrinks_initial_scores(plan: FitPlan, target: Target) -> bool:
    """Return whether the scores of `init` are multiplied by a factor that held-out rows choose."""
    return (
        plan.initial is not None
        and plan.start is None
        and target.encoding.kind != "regression"
        and not target.is_sparse
        and plan.settings.workers.device is None
        and target.n_rows >= MIN_INIT_ROWS
    )


def _read_starts(
    estimator: PolyleafEstimator,
    data: list[TrainingData],
    target: Target,
    plan: FitPlan,
    init_scores: DataLike | None = None,
) -> tuple[list[TrainingData], FitPlan]:
    """Return the data with the scores that rows start from: offsets, or those of `init`."""
    with measure_phase("initial model"):
        found = compute_initial_scores(
            estimator,
            data,
            target,
            plan.objective,
            plan.start,
            init_scores,
            lambda *given: estimator._offset_reader(target.encoding, plan.objective).read(*given),
            plan.seeds.training,
        )
    if found is None:
        return read_fit_offsets(estimator, data, target, plan), plan
    return found.data, plan._replace(initial=found.model)


def search_n_estimators(
    estimator: PolyleafEstimator, plan: FitPlan, data: PreparedData, base_score: np.ndarray | None
) -> RoundSearchResult:
    """Find the number of rounds on held-out rows."""
    assert data.trial is not None
    info = _make_model_info(estimator, plan, data)
    return find_n_estimators(
        data.trial, plan.settings, plan.objective, base_score, **info._asdict()
    )


def train_estimator(
    estimator: PolyleafEstimator,
    plan: FitPlan,
    data: PreparedData,
    base_score: np.ndarray | None,
    callbacks: object,
    row_ids: GlobalRowIds | None = None,
    resume_from: Model | None = None,
) -> tuple[BoostResult, TrainingRecord]:
    """Train on prepared data and set the fitted attributes, before calibrations."""
    info = _make_model_info(estimator, plan, data)
    result, record = train(estimator, plan, data, info, base_score, callbacks, row_ids, resume_from)
    store_result(estimator, result, data.target.encoding)
    return result, record


def _make_model_info(estimator: PolyleafEstimator, plan: FitPlan, data: PreparedData) -> ModelInfo:
    encoding = data.target.encoding
    scale, offset = get_score_scale(encoding, plan.objective)
    names = estimator._score_names(encoding, plan.objective)
    has_offsets = data.target.rows.offset is not None and plan.initial is None
    is_projected = data.projection is not None
    metadata = make_metadata(estimator, encoding, has_offsets, is_projected)
    metadata |= estimator._calibration_metadata(encoding)
    return ModelInfo(scale, offset, names, data.projection, metadata, plan.initial)


def store_result(
    estimator: PolyleafEstimator, result: BoostResult, encoding: TargetEncoding
) -> None:
    """Set the fitted attributes of an estimator."""
    estimator._set_model(result.model, encoding)
    estimator.evals_result_ = result.evals_log
    estimator.evals_result_per_output_ = {
        name: {metric: np.array(rows) for metric, rows in metrics.items()}
        for name, metrics in result.outputs_log.items()
    }


def report_interrupt(estimator: PolyleafEstimator) -> None:
    """Raise KeyboardInterrupt, or warn, for a fitted estimator whose training Ctrl-C ended."""
    n = estimator.model_.n_rounds
    message = f"Training was interrupted; the {n} complete rounds are kept"
    if estimator.on_interrupt == "raise":
        raise KeyboardInterrupt(f'{message} by the estimator (on_interrupt="keep" returns them).')
    warn_user(f"{message}.")
