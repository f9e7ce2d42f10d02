"""Steps of `fit` between the parameters of an estimator and the boosting loop.

The automatic number of rounds trains on some rows at twice the learning rate, so with half of the
rounds. The round of the lowest loss on the other rows decides how many rounds all rows get.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from polyleaf.binned_data.dataset import Dataset
from polyleaf.callbacks import Callback, EarlyStopping, EvaluationMonitor, ProgressBar
from polyleaf.metrics import Metric, default_metrics, get_metrics
from polyleaf.metrics.metric import EvalsLog
from polyleaf.metrics.patience import Patience
from polyleaf.model import Model
from polyleaf.model.initial import InitialModel
from polyleaf.model.metadata import HAS_OFFSETS, OUTPUT_GROUPS, PARAMETERS, clear_calibrations
from polyleaf.objectives import Objective, objective_class, objective_names
from polyleaf.objectives.registry import ObjectiveSpec
from polyleaf.runtime.capabilities import refuse
from polyleaf.runtime.row_data import RowData
from polyleaf.runtime.timing import measure_phase
from polyleaf.runtime.types import DataLike
from polyleaf.settings.parameters import SharedParameters
from polyleaf.settings.train_config import TrainConfig
from polyleaf.training.boosting import BoostResult, boost
from polyleaf.training.cross_fitting import TrainingRecord
from polyleaf.training.evaluation import EvalSet
from polyleaf.training.group_search import find_output_groups
from polyleaf.training.initial_scores import scale_offsets
from polyleaf.training.prepare import PreparedData, Seeds, TrainingData
from polyleaf.training.refit import KnownTrees
from polyleaf.training.sampling import GlobalRowIds
from polyleaf.user_data.offsets import check_all_or_none
from polyleaf.user_data.target import Target, TargetEncoding
from polyleaf.user_data.validation import describe_signature_mismatch

# Fewer rows give too noisy an estimate; more rarely overfit in the default number of rounds.
MIN_ROWS, MAX_ROWS = 50, 10_000
MAX_ROUNDS, ROUNDS_PATIENCE = 60.0, 10.0  # at a learning rate of 1; divided by the rate
SPEEDUP, MAX_RATE = 2, 0.5  # factor of the learning rate, unless the result exceeds MAX_RATE


class RoundSearchResult(NamedTuple):
    """Result of the search for n_estimators.

    Attributes
    ----------
    result : BoostResult
        The training on some of the rows; Ctrl-C may have ended it.
    record : TrainingRecord
        The same training, for calibrations of an interrupted fit.
    """

    n_estimators: int
    result: BoostResult
    record: TrainingRecord


def has_few_rows(n_rows: int) -> bool:
    """Return whether n_estimators is searched for data with this number of rows."""
    return MIN_ROWS <= n_rows <= MAX_ROWS


def max_rounds(learning_rate: float) -> int:
    """Return the largest number of rounds at this learning rate."""
    return max(10, round(MAX_ROUNDS / learning_rate))


def find_n_estimators(
    trial: PreparedData,
    settings: TrainConfig,
    objective: Objective,
    base_score: np.ndarray | None,
    **model_fields: Any,
) -> RoundSearchResult:
    """Return the number of rounds to train all rows for.

    Parameters
    ----------
    trial : PreparedData
        Rows to train on, and one evaluation set with one metric.
    settings : TrainConfig
        Settings of the training on all rows; its n_estimators is returned if no round can be
        measured.
    base_score : ndarray of shape (K,), float64, or None
    **model_fields
        Attributes of the model, for `boost`.
    """
    if objective.is_translation_invariant:  # offsets are subtracted from the target
        rows = trial.eval_sets[0].rows.replace(offset=None)
        trial = trial._replace(eval_sets=[replace(trial.eval_sets[0], rows=rows)])
    settings, trials = resolve_output_groups(trial, settings, objective, base_score)
    if "metadata" in model_fields:
        model_fields["metadata"] |= trials
    rate = settings.boosting.learning_rate
    speedup = SPEEDUP if SPEEDUP * rate <= MAX_RATE else 1
    boosting = replace(
        settings.boosting, learning_rate=speedup * rate, n_estimators=max_rounds(speedup * rate)
    )
    stopper = _RoundStopper(
        trial.eval_sets[0].metrics[0], max(10, round(ROUNDS_PATIENCE / boosting.learning_rate))
    )
    trial_settings = replace(settings, boosting=boosting)
    result = boost(
        trial.dataset,
        training_rows(trial.target, objective),
        objective,
        trial_settings,
        eval_sets=trial.eval_sets,
        callbacks=[stopper],
        base_score=base_score,
        **model_fields,
    )
    best_round = stopper.patience.best_round
    n_estimators = (
        settings.boosting.n_estimators if best_round is None else speedup * (best_round + 1)
    )
    record = _make_record(trial, objective, trial_settings, result, base_score)
    return RoundSearchResult(n_estimators, result, record)


# Factors of the scores of `init` that are tried, and the boosting rounds and their rate.
INIT_FACTORS, INIT_ROUNDS, INIT_RATE = (1.0, 0.5, 0.25), 25, 0.4
MIN_INIT_ROWS = 1_000  # with fewer, held-out losses are too noisy


def shrink_initial_scores(
    plan: FitPlan, data: PreparedData, base_score: np.ndarray | None, **model_fields: Any
) -> tuple[FitPlan, PreparedData]:
    """Return the plan and the data with the scores of `init` times the best of `INIT_FACTORS`.

    Trees cannot remove the noise of an initial model that is less accurate than they are, and learn
    what is left out. Short trainings on some of the rows are compared on the others.

    Parameters
    ----------
    plan : FitPlan
        With a new initial model.
    data : PreparedData
        With a trial.
    base_score : ndarray of shape (K,), float64, or None
    **model_fields
        Attributes of the model, for `boost`.
    """
    assert plan.initial is not None
    trial, objective, settings = data.trial, plan.objective, plan.settings
    assert trial is not None
    metric = trial.eval_sets[0].metrics[0]
    n_rounds = min(INIT_ROUNDS, settings.boosting.n_estimators)
    boosting = replace(settings.boosting, learning_rate=INIT_RATE, n_estimators=n_rounds)
    best, lowest = 1.0, np.inf
    for factor in INIT_FACTORS:
        scaled = scale_offsets(trial, factor)
        result = boost(
            scaled.dataset,
            training_rows(scaled.target, objective),
            objective,
            replace(settings, boosting=boosting),
            eval_sets=scaled.eval_sets,
            base_score=base_score,
            **model_fields,
        )
        if result.was_interrupted:
            raise KeyboardInterrupt
        ((values,),) = (metrics.values() for metrics in result.evals_log.values())
        loss = min(map(metric.to_loss, values))
        if not loss < lowest:
            break
        best, lowest = factor, loss
    return plan._replace(initial=plan.initial.scale(best)), scale_offsets(data, best)


class _RoundStopper(Callback):
    """Stops a training some rounds after its best metric value."""

    def __init__(self, metric: Metric, rounds: int) -> None:
        self._metric = metric
        self.patience = Patience(rounds)

    def after_iteration(self, model: Model, epoch: int, evals_log: EvalsLog) -> bool:
        ((values,),) = (metrics.values() for metrics in evals_log.values())
        self.patience.update(self._metric.to_loss(values[-1]), epoch)
        return self.patience.is_over(epoch)


SPARSE_METRICS = ("p@1", "p@3", "p@5")


class FitPlan(NamedTuple):
    """Everything about a training that is known before features are read.

    Attributes
    ----------
    start : Model or None
        Model that training continues.
    metrics : list of Metric
        Metrics of evaluation sets.
    decay_rate : float or None
        Share of the old values if the leaves of `start` are refitted; None: training goes on.
    initial : InitialModel or None
        Model whose raw scores the trees are added to.
    """

    settings: TrainConfig
    start: Model | None
    objective: Objective
    metrics: list[Metric]
    seeds: Seeds
    decay_rate: float | None = None
    initial: InitialModel | None = None

    def replace_n_estimators(self, n: int) -> FitPlan:
        """Return the same plan with another number of rounds."""
        return self._replace(settings=self.settings.replace_n_estimators(n))


class ModelInfo(NamedTuple):
    """Attributes of a new model besides its trees; see :class:`polyleaf.Model`."""

    target_scale: np.ndarray | None
    target_offset: np.ndarray | None
    output_names: Sequence[str] | None
    projection: object
    metadata: dict[str, object]
    initial: InitialModel | None = None


# --- before features are read -------------------------------------------------------------------


def complete_objective(
    p: SharedParameters, spec: ObjectiveSpec, n_outputs: int | None, **resolved: object
) -> Objective:
    """Make the objective with the parameters that the estimator has for it.

    Parameters
    ----------
    n_outputs : int or None
        Number of classes or labels.
    **resolved
        Values that replace parameters of the estimator.
    """
    parameters: dict[str, object] = {}
    if spec.instance is None:
        names = spec.cls.parameters
        values = ((name, resolved.get(name, getattr(p, name, None))) for name in names)
        parameters = {name: value for name, value in values if value is not None}
    first_order = p.hessian == p.leaf_hessian == "none"
    return spec.make(**parameters).bind_outputs(n_outputs, first_order)


def make_metrics(eval_metric: object, objective: Objective, target: Target) -> list[Metric]:
    """Make the metrics of evaluation sets; None stands for those of the objective."""
    if not target.is_sparse:
        found = (
            default_metrics(objective, target.encoding.kind, target.encoding.n_outputs)
            if eval_metric is None
            else get_metrics(eval_metric, objective)
        )
        has_classes = target.encoding.has_class_ids
        return [replace(m, has_classes=True) for m in found] if has_classes else found
    metrics = get_metrics(SPARSE_METRICS if eval_metric is None else eval_metric, objective)
    for metric in metrics:
        if not hasattr(metric.function, "k"):
            refuse("sparse_targets", "metrics_of_outputs", metric=metric.name)
    return metrics


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
    levels = objective.score_quantile_levels(objective.n_scores(1))
    return bool((np.abs(levels - 0.5) > 0).any())


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


def read_offsets(
    data: list[TrainingData], target: Target, start: Model | None, make_reader: Callable[[], Any]
) -> list[TrainingData]:
    """Read the offsets of training and evaluation data: all of them have offsets, or none.

    Parameters
    ----------
    data : list of TrainingData
        Training data first.
    target : Target
        Target of the training data.
    start : Model or None
        Model that training continues.
    make_reader : callable
        Returns an OffsetReader.
    """
    is_continued = start is not None and bool(start.metadata.get(HAS_OFFSETS))
    has_offset = [d.rows.offset is not None for d in data]
    check_all_or_none([d.name for d in data], has_offset, is_continued)
    if data[0].rows.offset is None:
        return data
    reader = make_reader()
    offsets = [reader.read(data[0].rows.offset, target.n_rows)]
    offsets += [reader.read(d.rows.offset, name=f"offset of {d.name!r}") for d in data[1:]]
    return [d.replace_rows(offset=offset) for d, offset in zip(data, offsets, strict=True)]


def set_offset(target: Target, offset: np.ndarray | None, objective: Objective) -> Target:
    """Set the offset of rows, and subtract it from y if the loss depends on the difference only."""
    if offset is None:
        return target
    target = target.replace_rows(offset=offset)
    if not objective.is_translation_invariant:
        return target
    return target.subtract_offset(objective.outputs_per_target())


def training_rows(target: Target, objective: Objective) -> RowData:
    """Return the rows as the boosting loop reads them: without offsets that were subtracted."""
    return target.rows.replace(offset=None) if objective.is_translation_invariant else target.rows


def select_auto_rounds_metric(
    p: SharedParameters, plan: FitPlan, target: Target, is_watched: bool
) -> Metric | None:
    """Return the metric that `n_estimators=None` is chosen by, or None if no search is done.

    Parameters
    ----------
    is_watched : bool
        Whether this fit has evaluation sets or callbacks.
    """
    if (
        p.n_estimators is not None
        or p.warm_start
        or plan.start is not None
        or is_watched
        or p.validation_fraction is not None
        or p.early_stopping_rounds is not None
        or (p.callbacks is not None and bool(as_callbacks(p.callbacks)))
        or p.projection is not None
        or plan.settings.workers.device is not None
        or target.is_sparse
        or not has_few_rows(target.n_rows)
    ):
        return None
    return default_metrics(plan.objective, target.encoding.kind, target.encoding.n_outputs)[-1]


# --- training -----------------------------------------------------------------------------------


def resolve_output_groups(
    data: PreparedData,
    settings: TrainConfig,
    objective: Objective,
    base_score: np.ndarray | None,
    start: Model | None = None,
) -> tuple[TrainConfig, dict[str, Any]]:
    """Replace `output_groups="auto"` by the groups of the model to continue, or by a search.

    Returns
    -------
    settings : TrainConfig
    metadata : dict
        The trials of the search, for the metadata of the model.
    """
    if not isinstance(settings.boosting.output_groups, str):
        return settings, {}
    if start is not None:
        trials = {name: start.metadata[name] for name in (OUTPUT_GROUPS,) if name in start.metadata}
        return settings.replace_output_groups(start.output_groups), trials

    def train_part(
        dataset: Dataset, rows: RowData, settings: TrainConfig, held_out: EvalSet, stop: Callback
    ) -> None:
        boost(
            dataset,
            rows,
            objective,
            settings,
            eval_sets=[held_out],
            callbacks=[stop],
            base_score=base_score,
        )

    with measure_phase("output groups"):
        rows, encoding = training_rows(data.target, objective), data.target.encoding
        metric = default_metrics(objective, encoding.kind, encoding.n_outputs)[0]
        how = data.rules, objective, settings, metric
        found = find_output_groups(data.dataset, rows, *how, train_part)
    return settings.replace_output_groups(found.groups), {OUTPUT_GROUPS: found.trials}


def train(
    p: SharedParameters,
    plan: FitPlan,
    data: PreparedData,
    info: ModelInfo,
    base_score: np.ndarray | None,
    callbacks: object,
    row_ids: GlobalRowIds | None = None,
    resume_from: Model | None = None,
) -> tuple[BoostResult, TrainingRecord]:
    """Run the boosting loop with all callbacks.

    Parameters
    ----------
    p : SharedParameters
        Parameters of the estimator.
    base_score : ndarray of shape (n_scores,), float64, or None
    callbacks : list, optional
        Callbacks of this fit.
    row_ids, resume_from : optional
        As in `boost`.
    """
    objective, rows = plan.objective, training_rows(data.target, plan.objective)
    settings, trials = resolve_output_groups(data, plan.settings, objective, base_score, plan.start)
    info = info._replace(metadata=info.metadata | trials)
    if plan.start is not None and plan.decay_rate is not None:
        fields = info._asdict() | {"metadata": _renew_metadata(plan.start, info)}
        known = KnownTrees(plan.start, plan.decay_rate)
        result = boost(
            data.dataset,
            rows,
            objective,
            settings,
            base_score=base_score,
            row_ids=row_ids,
            known=known,
            **fields,
        )
        return result, _make_record(data, objective, settings, result, base_score)
    start = None if plan.start is None else _copy_to_continue(plan.start, objective, info)
    all_callbacks = as_callbacks(callbacks)
    if settings.workers.communicator.rank == 0:  # the estimator's own run on rank 0 only
        all_callbacks = _make_callbacks(
            p, all_callbacks, settings.boosting.n_estimators, plan.metrics if data.eval_sets else []
        )
    try:
        result = boost(
            data.dataset,
            rows,
            objective,
            settings,
            eval_sets=data.eval_sets,
            callbacks=all_callbacks,
            init_model=start,
            base_score=base_score,
            row_ids=row_ids,
            resume_from=resume_from,
            is_same_training=plan.start is not None and _is_same_training(plan.start, info),
            **info._asdict(),
        )
    finally:
        for callback in all_callbacks:
            if isinstance(callback, ProgressBar):
                callback.close()
    return result, _make_record(data, objective, settings, result, base_score)


def _make_record(
    data: PreparedData,
    objective: Objective,
    settings: TrainConfig,
    result: BoostResult,
    base_score: np.ndarray | None,
) -> TrainingRecord:
    best = result.model.best_iteration
    return TrainingRecord(
        data.dataset,
        training_rows(data.target, objective),
        objective,
        settings,
        result.learning_rates,
        result.model.n_rounds if best is None else best + 1,
        base_score,
        result.model.output_names,
        data.rules,
        data.refit,
    )


# Parameters that may differ between the parts of one training.
_RUN_PARAMETERS = {"n_estimators", "warm_start", "n_jobs", "verbose", "on_interrupt"}


def _is_same_training(start: Model, info: ModelInfo) -> bool:
    """Return whether the model was trained with the parameters of this fit."""
    parameters = [m.get(PARAMETERS) for m in (start.metadata, info.metadata)]
    first, second = (
        {name: value for name, value in p.items() if name not in _RUN_PARAMETERS}
        if isinstance(p, dict)
        else None
        for p in parameters
    )
    return first == second


def _copy_to_continue(start: Model, objective: Objective, info: ModelInfo) -> Model:
    """Copy the model that training continues, with the metadata of this fit."""
    model = start.copy()
    model.objective = objective
    model.set_target_scale(info.target_scale, info.target_offset)  # undoes shifts of quantiles
    model.metadata = _renew_metadata(start, info)
    return model


def _renew_metadata(start: Model, info: ModelInfo) -> dict[str, object]:
    """Return the metadata of a model with that of this fit, and without calibrations."""
    return clear_calibrations(start.metadata) | info.metadata


def _make_callbacks(
    p: SharedParameters, callbacks: list[object], n_rounds: int, metrics: list[Metric]
) -> list[object]:
    """Return the callbacks of the estimator, those of the fit, early stopping and progress."""
    found = as_callbacks(p.callbacks) + callbacks
    if p.early_stopping_rounds is not None:
        if not metrics:
            raise ValueError(
                "early_stopping_rounds needs data to evaluate on: pass eval_set=[(X, y)] or X_val "
                "and y_val to fit, or set validation_fraction."
            )
        found.append(EarlyStopping(p.early_stopping_rounds))
    for callback in found:
        if isinstance(callback, EarlyStopping):
            callback.set_metrics(metrics)
    if p.verbose is None:
        if hasattr(sys, "ps1") or sys.flags.interactive:
            found.append(ProgressBar(n_rounds, delay=2.0))
    elif p.verbose == 1:
        found.append(ProgressBar(n_rounds, force=True))
    elif p.verbose > 1:
        found.append(EvaluationMonitor(int(p.verbose)))
    return found


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

    Parameters
    ----------
    callbacks : callback, function, iterable of these, or None
        An object with the four hooks (a :class:`Callback`, or XGBoost's own), or a function
        `f(model, epoch, evals_log)` that is called after each round.

    Raises
    ------
    TypeError
        For other objects.
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
        return callback
    if callable(callback):
        _check_callback(callback)
        return _FunctionCallback(callback)
    raise TypeError(
        f"A callback is a polyleaf.callbacks.Callback or a function (model, epoch, evals_log), "
        f"got {type(callback).__name__}."
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
