"""Steps of `fit` between the parameters of an estimator and the boosting loop."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from polyleaf.callbacks import Callback, EarlyStopping, EvaluationMonitor, ProgressBar
from polyleaf.metrics.metric import EvalsLog
from polyleaf.model import Model
from polyleaf.model.metadata import HAS_OFFSETS
from polyleaf.objectives import Objective, objective_class, objective_names
from polyleaf.objectives.registry import ObjectiveSpec
from polyleaf.runtime.types import DataLike
from polyleaf.runtime.user_warnings import suppress_warnings
from polyleaf.settings.parameters import SharedParameters
from polyleaf.training.auto_rounds import iter_hold_outs
from polyleaf.training.boosting import boost, refit
from polyleaf.training.group_search import resolve_output_groups
from polyleaf.training.training_run import TrainingRun, get_default_metric
from polyleaf.training.widening import fit_new_outputs
from polyleaf.user_data.offsets import check_all_or_none
from polyleaf.user_data.target import TargetEncoding
from polyleaf.user_data.validation import describe_signature_mismatch

# Factors of the scores of `init` that are tried, and the boosting rounds and their rate.
INIT_FACTORS, INIT_ROUNDS, INIT_RATE = (1.0, 0.5, 0.25), 25, 0.4
MIN_INIT_ROWS = 1_000  # with fewer, held-out losses are too noisy


def shrink_initial_scores(run: TrainingRun) -> None:
    """Multiply the scores of `init` by the best of `INIT_FACTORS`.

    Trees cannot remove the noise of an initial model that is less accurate than they are, and learn
    what is left out. Short trainings on some of the rows are compared on the others.

    `run`: with a new initial model and `make_hold_out_run`.
    """
    assert run.initial is not None and run.initial_scores is not None
    assert run.make_hold_out_run is not None
    metric = get_default_metric(run)
    rows, held = next(iter_hold_outs(run, 1))
    hold_out = run.make_hold_out_run(run, rows, held, metric)
    n_rounds = min(INIT_ROUNDS, run.settings.boosting.n_estimators)
    boosting = replace(run.settings.boosting, learning_rate=INIT_RATE, n_estimators=n_rounds)
    settings = replace(run.settings, boosting=boosting)
    best, lowest = 1.0, np.inf
    for factor in INIT_FACTORS:
        target = hold_out.target.replace_rows(offset=run.initial_scores.take(rows).scale(factor))
        evaluated = hold_out.eval_sets[0]
        evaluated = replace(
            evaluated,
            rows=evaluated.rows.replace(offset=run.initial_scores.take(held).scale(factor)),
        )
        scaled = hold_out.replace(settings=settings, target=target, eval_sets=[evaluated])
        with suppress_warnings():
            boost(scaled)
        if scaled.was_interrupted:
            raise KeyboardInterrupt
        ((values,),) = (metrics.values() for metrics in scaled.evals_log.values())
        loss = min(map(metric.to_loss, values))
        if not loss < lowest:
            break
        best, lowest = factor, loss
    run.initial = run.initial.scale(best)
    offset = run.initial_scores.scale(best)  # y does not contain it
    run.target = run.target.replace_rows(offset=offset)
    run.scale_eval_scores(best)


# --- before features are read -------------------------------------------------------------------


def complete_objective(
    p: SharedParameters, spec: ObjectiveSpec, n_outputs: int | None, **resolved: object
) -> Objective:
    """Make the objective with the parameters that the estimator has for it.

    `n_outputs`: number of classes or labels. `**resolved`: values that replace parameters of the
    estimator.
    """
    parameters: dict[str, object] = {}
    if spec.instance is None:
        names = spec.cls.parameters
        values = ((name, resolved.get(name, getattr(p, name, None))) for name in names)
        parameters = {name: value for name, value in values if value is not None}
    first_order = p.hessian == p.leaf_hessian == "none"
    return spec.make(**parameters).bind_outputs(n_outputs, first_order)


def check_scaling(encoding: TargetEncoding, objective: Objective) -> None:
    """Raise if targets are standardised and the objective does not allow that."""
    if encoding.scale is not None and not objective.is_translation_invariant:
        allowed = [
            name for name in objective_names() if objective_class(name).is_translation_invariant
        ]
        raise ValueError(
            f"normalize_targets=True is not available for objective {objective.name!r}: it is for "
            f"{', '.join(allowed)}."
        )


def has_quantiles(objective: Objective) -> bool:
    """Whether some scores are quantiles other than medians, which calibration shifts."""
    return any(level != 0.5 for level in objective.quantile_levels)


def get_score_scale(
    encoding: TargetEncoding, objective: Objective
) -> tuple[np.ndarray, np.ndarray] | tuple[None, None]:
    """Return scale and offset of each raw score if targets are scaled for training."""
    if encoding.scale is None or encoding.offset is None:
        return None, None
    return objective.score_scaling(encoding.scale, encoding.offset)


def scale_base_score(
    base_score: DataLike | None, encoding: TargetEncoding, objective: Objective
) -> np.ndarray | None:
    """Return `base_score` on the scale of the raw scores in training, float64 (n_scores,)."""
    if base_score is None:
        return None
    n_scores = objective.n_scores(encoding.n_outputs)
    try:
        score = np.asarray(base_score, np.float64).reshape(-1)
    except (TypeError, ValueError):
        score = np.empty(0)
    if score.size not in (1, n_scores) or not np.all(np.isfinite(score)):
        raise ValueError(
            f"base_score must be a finite number or {n_scores} of them, got {base_score}."
        )
    score = np.resize(score, n_scores)
    scale, offset = get_score_scale(encoding, objective)
    return score if offset is None or scale is None else (score - offset) / scale


def read_offsets(run: TrainingRun, make_reader: Callable[[], Any]) -> None:
    """Read the offsets of training and evaluation data: all of them have offsets, or none.

    `make_reader`: returns an OffsetReader.
    """
    data, init_model = [run.data, *run.eval_data], run.init_model
    is_continued = init_model is not None and bool(init_model.metadata.get(HAS_OFFSETS))
    has_offset = [d.rows.offset is not None for d in data]
    check_all_or_none([d.name for d in data], has_offset, is_continued)
    run.has_offset = run.data.rows.offset is not None
    if not run.has_offset:
        return
    reader = make_reader()
    offsets = [reader.read(run.data.rows.offset, run.target.n_rows)]
    offsets += [reader.read(d.rows.offset, name=f"offset of {d.name!r}") for d in run.eval_data]
    run.data, *run.eval_data = (
        d.replace_rows(offset=offset) for d, offset in zip(data, offsets, strict=True)
    )


def check_metric_is_known(objective: Objective, eval_metric: object, use: str) -> None:
    """Raise if held-out rows are to be compared by the loss of a custom objective.

    `use`: what compares them.
    """
    if eval_metric is None and not objective.has_default_metric:
        raise ValueError(
            f"{use} needs eval_metric with a custom objective, whose loss is not known: pass a "
            'function of y and the scores, or "loss" for a loss that is written with JAX.'
        )


# --- training -----------------------------------------------------------------------------------


def train(
    params: SharedParameters,
    run: TrainingRun,
    callbacks: Iterable[Callback] = (),
    resume_from: Model | None = None,
) -> None:
    """Run the boosting loop with all callbacks, and fill in the result of the run.

    `callbacks`: callbacks of this fit. `resume_from`: as in `boost`.
    """
    if isinstance(run.settings.boosting.output_groups, str):
        resolve_output_groups(run)
    if run.decay_rate is not None:
        refit(run)
        return
    if run.is_new_output is not None:
        fit_new_outputs(run)
    all_callbacks = list(callbacks)
    if run.settings.workers.communicator.rank == 0:  # the estimator's own run on rank 0 only
        all_callbacks = _make_callbacks(params, run, all_callbacks)
    try:
        boost(run, all_callbacks, resume_from)
    finally:
        for callback in all_callbacks:
            if isinstance(callback, ProgressBar):
                callback.close()


def _make_callbacks(params: SharedParameters, run: TrainingRun, callbacks: list[Any]) -> list[Any]:
    """Return the callbacks of the estimator, those of the fit, early stopping and progress."""
    all_callbacks = as_callbacks(params.callbacks) + callbacks
    metrics = run.metrics if run.eval_sets else []
    if params.early_stopping_rounds is not None:
        all_callbacks.append(EarlyStopping(params.early_stopping_rounds))
    for callback in all_callbacks:
        if isinstance(callback, EarlyStopping):
            if callback.metric_name is None:
                check_metric_is_known(run.objective, params.eval_metric, "Early stopping")
            callback.set_metrics(metrics)
    n_rounds = run.settings.boosting.n_estimators
    if params.verbose is None:
        if hasattr(sys, "ps1") or sys.flags.interactive:
            all_callbacks.append(ProgressBar(n_rounds, delay=2.0))
    elif params.verbose == 1:
        all_callbacks.append(ProgressBar(n_rounds, force=True))
    elif params.verbose > 1:
        all_callbacks.append(EvaluationMonitor(int(params.verbose)))
    return all_callbacks


# --- callbacks ---------------------------------------------------------------------------------


class _FunctionCallback(Callback):
    """A function `f(model, epoch, evals_log) -> bool or None` that is called after each round."""

    def __init__(self, function: Callable[[object, int, EvalsLog], object]):
        self.function = function

    def after_iteration(self, model: Model, epoch: int, evals_log: EvalsLog) -> bool:
        return bool(self.function(model, epoch, evals_log))


_HOOKS = ("before_training", "after_training", "before_iteration", "after_iteration")


def as_callbacks(callbacks: object) -> list[Any]:
    """Return a list of objects with the four hooks.

    Raises a TypeError for other objects. `callbacks`: an object with the four hooks (a
    :class:`Callback`, or XGBoost's own), or a function `f(model, epoch, evals_log)` that is called
    after each round.
    """
    if callbacks is None:
        return []
    if callable(callbacks) or _has_hooks(callbacks):
        callbacks = [callbacks]
    if not isinstance(callbacks, Iterable):
        raise TypeError(
            f"callbacks must be a list of callbacks or functions, got {type(callbacks).__name__}."
        )
    return [_as_callback(callback) for callback in callbacks]


def _as_callback(callback: object) -> object:
    if isinstance(callback, type):
        name = callback.__name__
        raise TypeError(f"callbacks needs an instance, got the class {name}: write {name}(...).")
    if _has_hooks(callback):
        _check_xgboost_callback(callback)
        return callback
    if callable(callback):
        _check_callback(callback)
        return _FunctionCallback(callback)
    raise TypeError(
        f"A callback is a polyleaf.callbacks.Callback or a function (model, epoch, evals_log), "
        f"got {type(callback).__name__}."
    )


# Callbacks of XGBoost that use its Booster, and what takes their place.
_XGBOOST_CALLBACKS = {
    "EarlyStopping": "early_stopping_rounds=, or polyleaf.callbacks.EarlyStopping",
    "LearningRateScheduler": "polyleaf.callbacks.LearningRateScheduler",
    "TrainingCheckPoint": "polyleaf.callbacks.Checkpoint",
}


def _check_xgboost_callback(callback: object) -> None:
    for cls in type(callback).__mro__:
        if cls.__module__.startswith("xgboost.") and cls.__name__ in _XGBOOST_CALLBACKS:
            raise TypeError(
                f"XGBoost's {cls.__name__} works on its Booster only: use "
                f"{_XGBOOST_CALLBACKS[cls.__name__]}."
            )


def _check_callback(function: Callable[..., object]) -> None:
    """Raise a TypeError for functions with other arguments, such as LightGBM's callbacks."""
    why = describe_signature_mismatch(function, 3)
    if why:
        raise TypeError(
            "A callback is called after each round with three arguments, (model, epoch, "
            f"evals_log), and ends the training by returning True; {why}."
        )


def _has_hooks(callback: object) -> bool:
    return not isinstance(callback, type) and all(
        callable(getattr(callback, hook, None)) for hook in _HOOKS
    )
