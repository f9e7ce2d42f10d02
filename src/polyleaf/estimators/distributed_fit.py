"""Distributed fit: what ranks find out together before a training, and the part of each rank."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from polyleaf.binned_data.dataset import Dataset
from polyleaf.callbacks import Callback
from polyleaf.estimators._fitting import (
    describe_model,
    has_initial_model,
    plan_candidates,
    read_initial_scores,
    shrinks_initial_scores,
    start_run,
    store_result,
)
from polyleaf.estimators.base import PolyleafEstimator
from polyleaf.metrics import Metric
from polyleaf.model import Model
from polyleaf.model.initial import InitialModel
from polyleaf.model.metadata import OUTPUT_GROUPS
from polyleaf.runtime.capabilities import check
from polyleaf.runtime.collective import SINGLE_PROCESS, Communicator
from polyleaf.runtime.context import Context
from polyleaf.runtime.row_data import ARGUMENTS, InitialScores, RowData
from polyleaf.runtime.types import DataLike
from polyleaf.training.auto_rounds import MAX_ROWS, plan_linear_model, plan_rounds
from polyleaf.training.boosting import compute_base_score
from polyleaf.training.continuation import find_checkpoint
from polyleaf.training.evaluation import EvalSet
from polyleaf.training.factory import bind_objective
from polyleaf.training.fit import as_callbacks, scale_base_score, shrink_initial_scores, train
from polyleaf.training.group_search import resolve_output_groups
from polyleaf.training.hold_out_search import find_n_estimators
from polyleaf.training.linear_models import LinearFit
from polyleaf.training.prepare import (
    free_codes,
    get_fold_maker,
    join_copies,
    make_hold_out_run,
    read_split_rules,
)
from polyleaf.training.sampling import GlobalRowIds
from polyleaf.training.training_run import TrainingData, TrainingRun
from polyleaf.user_data.read_target import get_given_names
from polyleaf.user_data.target import Target


class SharedFit(NamedTuple):
    """Part of a fit that depends on the targets and weights of all rows."""

    run: TrainingRun  # the training, without rows
    n_usable: int  # number of rows with positive weight
    # metric of the search for the number of rounds (`search_on_one_rank`), if there is one
    auto_rounds_metric: Metric | None = None
    # whether models of folds are trained after the fit (`calibrate_on_one_rank`)
    is_cross_fitted: bool = False
    # the initial model before held-out rows choose its factor, which may be 0
    initial: InitialModel | None = None
    linear_metric: Metric | None = None  # decides about the linear model, if rounds are fixed
    shrinks_scores: bool = False  # whether the scores of the initial model get a factor

    @property
    def searches(self) -> bool:
        """Whether one rank compares trainings on some of the rows before the training."""
        has_metric = self.auto_rounds_metric is not None or self.linear_metric is not None
        return has_metric or self.shrinks_scores or _finds_groups(self.run)

    def calibrates(self, estimator: PolyleafEstimator) -> bool:
        """Whether the trained model is calibrated, on all rows or on an evaluation set."""
        has_threshold = isinstance(vars(estimator).get("threshold"), str)
        return self.is_cross_fitted or (has_threshold and self.run.decay_rate is None)


class Shard(NamedTuple):
    """Targets of some rows."""

    target: Target  # offsets are subtracted if the loss depends on their difference only
    numbers: np.ndarray  # global indices of the rows with positive weight, counted among such rows

    def take(self, rows: np.ndarray) -> Shard:
        """Return the targets of some rows, in ascending order."""
        used = np.zeros(self.target.n_rows, bool)
        used[rows] = True
        return Shard(self.target.take(rows), self.numbers[used[self._usable()]])

    @staticmethod
    def joined(shards: Sequence[Shard]) -> Shard:
        """Concatenate shards."""
        parts = [shard.target.rows for shard in shards]
        rows = type(parts[0]).concatenate(parts)
        numbers = np.concatenate([shard.numbers for shard in shards])
        return Shard(replace(shards[0].target, rows=rows), numbers)

    def _usable(self) -> np.ndarray:
        return np.flatnonzero(_is_usable(self.target))


class RowBlocks(NamedTuple):
    """Which of the partitions of all rows a rank has."""

    sizes: Sequence[int]  # numbers of rows of all partitions
    numbers: Sequence[int]  # partitions of this rank, ascending; its rows are in their order
    names: Sequence[int] = ()  # numbers of all partitions in messages

    def number_rows(self, mask: np.ndarray, ranks: Communicator) -> tuple[NDArray[np.int64], int]:
        """Return the numbers of the rows in a mask among such rows of all ranks, and how many
        these are."""
        ends = np.cumsum([self.sizes[i] for i in self.numbers])
        counts = np.zeros(len(self.sizes), np.int64)
        parts = [np.count_nonzero(part) for part in np.split(mask, ends[:-1])]
        counts[list(self.numbers)] = parts
        ranks.allreduce_sum(counts)
        starts = np.cumsum(counts) - counts
        rows = [starts[i] + np.arange(counts[i]) for i in self.numbers]
        return np.concatenate(rows), int(counts.sum())


def read_shard(
    estimator: PolyleafEstimator,
    rows: RowData,
    init_model: object = None,
    callbacks: Sequence[Callback] = (),
    ranks: Communicator = SINGLE_PROCESS,
    blocks: RowBlocks | None = None,
) -> tuple[TrainingRun, Shard]:
    """Start the fit of a rank and encode the targets of its rows as one machine would.

    Parameters
    ----------
    rows : RowData
        Rows of this rank, as the user passed them.
    callbacks : sequence of Callback
        Callbacks of the fit, besides those of the estimator.
    ranks : Communicator
        Connection to the other ranks.
    blocks : RowBlocks, optional
        Where the rows are among those of all ranks; None: there are no others.

    Raises a ValueError if parameters are not available in distributed training, or do not match y.
    """
    check("dask", parameters=estimator)
    all_callbacks = [*as_callbacks(estimator.callbacks), *callbacks]
    if ranks.size > 1:
        has_file = bool(all_callbacks) and find_checkpoint(
            all_callbacks, estimator.n_estimators, init_model
        )
        _check_agreement(rows, bool(has_file), ranks)
    data = estimator._read_rows(TrainingData("training", None, rows), ranks)
    run = start_run(estimator, data, init_model, all_callbacks, ranks)
    check(
        "dask",
        parameters=estimator,
        model=run.init_model,
        objective=run.objective,
        metrics=run.metrics,
    )
    if not has_initial_model(estimator, run.init_model):  # one rank has its scores
        read_initial_scores(estimator, run)
    run.data = run.data._replace(rows=RowData())
    blocks = RowBlocks([run.target.n_rows], [0]) if blocks is None else blocks
    numbers, _ = blocks.number_rows(_is_usable(run.target), ranks)
    return run, Shard(run.target, numbers)


def _check_agreement(rows: RowData, has_checkpoint: bool, ranks: Communicator) -> None:
    """Raise a ValueError if ranks have other columns, or not all see the checkpoint."""
    columns = {
        ARGUMENTS[name]: (np.shape(values)[1:], get_given_names(values))
        for name, values in rows.to_dict().items()
    }
    facts = ranks.allgather_objects((columns, has_checkpoint))
    for name, (shape, names) in columns.items():
        if any(others[name] != (shape, names) for others, _ in facts):
            raise ValueError(f"{name} has other columns in some partitions than in others.")
    if len({has_file for _, has_file in facts}) > 1:
        raise ValueError(
            "Checkpoint(resume=True): not all workers see the file. Set directory to a folder that "
            "they share."
        )


def plan_shared_fit(
    estimator: PolyleafEstimator,
    run: TrainingRun,
    callbacks: Sequence[Callback],
    workers: Context,
    has_evaluation: bool = False,
) -> SharedFit:
    """Plan the fit of all ranks.

    Parameters
    ----------
    run : TrainingRun
        Result of `read_shard`; it keeps no rows.
    callbacks : sequence of Callback
        Callbacks of the fit, besides those of the estimator.
    workers : Context
        Threads of this rank, and the other ranks.
    has_evaluation : bool
        Whether there are evaluation sets.
    """
    ranks = workers.communicator
    is_cross_fitted = run.decay_rate is None and estimator._is_cross_fitted(
        run.objective, has_evaluation
    )
    n_rows = ranks.sum(run.target.n_rows)
    if n_rows > MAX_ROWS and (is_cross_fitted or _finds_groups(run)):
        check("many_dask_rows", parameters=estimator, objective=run.objective)
    of_ranks = run.replace(settings=replace(run.settings, workers=workers))
    score = _compute_base_score(of_ranks)
    if score is not None and run.base_score is None:
        run.base_score = score
        if any(other != score.tobytes() for other in ranks.allgather(score.tobytes())):
            raise ValueError(
                f"Objective {run.objective.name!r} computes the base score of the rows of one "
                "worker: sum over the ranks of the Context that its base_score receives, or pass "
                "base_score."
            )
    all_callbacks = [*as_callbacks(estimator.callbacks), *callbacks]
    metric = plan_rounds(estimator, run, all_callbacks, ranks)
    if metric is not None:
        plan_candidates(estimator, run)
    n_usable = ranks.sum(int(np.count_nonzero(_is_usable(run.target))))
    run.target = run.target.take(np.arange(0))
    return SharedFit(run, n_usable, metric, is_cross_fitted)


def _finds_groups(run: TrainingRun) -> bool:
    return run.init_model is None and isinstance(run.settings.boosting.output_groups, str)


def _get_group_trials(run: TrainingRun) -> dict[str, Any]:
    """Return what the model stores of a search for groups of outputs."""
    return {key: run.metadata[key] for key in (OUTPUT_GROUPS,) if key in run.metadata}


def search_on_one_rank(shared: SharedFit, run: TrainingRun) -> SharedFit:
    """Find the number of rounds, the groups of outputs, and what the initial model is used for.

    `shared`: a plan that `searches`. `run`: result of `gather_run`, which gets the scores that its
    rows start from.
    """
    if shared.shrinks_scores:
        shrink_initial_scores(run)
    if shared.auto_rounds_metric is not None:
        find_n_estimators(run, shared.auto_rounds_metric)
    elif shared.linear_metric is not None:
        find_n_estimators(run, shared.linear_metric, is_fixed=True)
    if isinstance(run.settings.boosting.output_groups, str):
        resolve_output_groups(run)
    boosting = run.settings.boosting
    settings = shared.run.settings.replace_n_estimators(boosting.n_estimators)
    settings = replace(
        settings, boosting=replace(settings.boosting, output_groups=boosting.output_groups)
    )
    planned = shared.run.replace(
        settings=settings,
        metadata=_get_group_trials(run),
        members=run.members,
        candidates=(),
        initial=run.initial,
    )
    if shared.initial is not None:
        planned.base_score = _compute_base_score(run)
    return shared._replace(run=planned)


def calibrate_on_one_rank(estimator: PolyleafEstimator, run: TrainingRun) -> Model:
    """Calibrate quantiles and choose the threshold as the fit of one machine does.

    `run`: result of `gather_run`, of any rows if the fit `calibrates` on an evaluation set, with
    the result of the training: a model, its learning rates and evaluation sets, and `data` with the
    rows as the user passed them.
    """
    fitted = copy.copy(estimator)
    store_result(fitted, run.model, run.target.encoding, {}, {})
    fitted._after_training(run)
    return fitted.model_


def gather_run(
    estimator: PolyleafEstimator,
    shared: SharedFit,
    shard: Shard,
    dataset: Dataset,
    binned: Dataset,
    n_threads: int,
    X: DataLike | None = None,
) -> TrainingRun:
    """Return the training of all rows on one rank, which has all bins.

    `shard`: all rows, in their order. `dataset`: the same rows, binned. `binned`: without columns
    that are derived from y. `n_threads`: number of threads of this rank. `X`: the features before
    a projection, if models of folds learn it again.
    """
    rules = read_split_rules(estimator, RowData(), shard.target.n_rows)
    target = shard.target.replace_rows(time=rules.time)
    rules = join_copies(rules, binned.hash_rows, target)
    run = shared.run.replace(
        target=target,
        rules=rules,
        settings=replace(shared.run.settings, workers=Context(n_threads)),
        base_score=scale_base_score(estimator.base_score, target.encoding, shared.run.objective),
    )
    run.dataset, run.make_hold_out_run = dataset, partial(make_hold_out_run, binned)
    if shared.is_cross_fitted:
        run.make_fold_data = get_fold_maker(estimator, X, binned, run)
    describe_model(estimator, run)
    return run


# --- initial models ---


class InitialFit(NamedTuple):
    """An initial model, and what the rows that it was fitted to start from."""

    model: InitialModel  # before held-out rows choose its factor
    linear: LinearFit | None  # the model, if hold-out fits decide about it
    linear_metric: Metric | None  # see SharedFit
    shrinks_scores: bool
    initial_scores: InitialScores  # scores of the rows by this model
    starts_trees: bool  # whether trees start from these scores before hold-out fits
    base_score: np.ndarray | None

    def add_to_plan(self, shared: SharedFit) -> SharedFit:
        """Return the plan of a fit with the initial model."""
        has_offset = self.initial_scores.offset is not None
        run = shared.run.replace(base_score=self.base_score, has_offset=has_offset)
        run.initial = self.model if self.linear is None else None
        return shared._replace(
            run=run,
            initial=self.model,
            linear_metric=self.linear_metric,
            shrinks_scores=self.shrinks_scores,
        )


def fit_initial_model(
    estimator: PolyleafEstimator,
    X: DataLike,
    rows: RowData,
    init_model: object,
    callbacks: Sequence[Callback],
    n_threads: int,
) -> InitialFit:
    """Fit the initial model on one rank as the fit of one machine does.

    `X`, `rows`: all rows, as the user passed them. `init_model`, `callbacks`: as for `read_shard`.
    """
    estimator = copy.copy(estimator)
    estimator.n_jobs = n_threads
    all_callbacks = [*as_callbacks(estimator.callbacks), *callbacks]
    run = start_run(estimator, TrainingData("training", X, rows), init_model, all_callbacks)
    read_initial_scores(estimator, run)
    metric = None
    if run.linear is not None and plan_rounds(estimator, run, all_callbacks) is None:
        metric = plan_linear_model(estimator, run)
    model = run.initial if run.linear is None else run.linear.model
    assert model is not None and run.initial_scores is not None
    return InitialFit(
        model,
        run.linear,
        metric,
        shrinks_initial_scores(run),
        run.initial_scores,
        run.linear is None and model.starts_trees,
        _compute_base_score(run),
    )


def fit_rank(
    estimator: PolyleafEstimator,
    shared: SharedFit,
    shard: Shard,
    dataset: Dataset,
    workers: Context,
    *,
    eval_sets: Sequence[EvalSet] = (),
    callbacks: Iterable[Callback] = (),
    resume_from: Model | None = None,
) -> TrainingRun:
    """Train on one rank. All ranks get the same model, and rank 0 the metrics of evaluation sets.

    Parameters
    ----------
    estimator : PolyleafEstimator
        Estimator with the parameters, which does not change.
    shard : Shard
        Rows of this rank.
    dataset : Dataset
        The same rows, with the bins of all rows.
    workers : Context
        Threads of this rank, and the other ranks.
    eval_sets : sequence of EvalSet
        Evaluation sets on rank 0; none on other ranks.
    callbacks : list, optional
        Callbacks of this rank, besides those of the estimator, which run on rank 0.
    resume_from : Model, optional
        Model of an interrupted attempt, whose rounds are not trained again.
    """
    bin_counts = dataset.count_bins()
    workers.communicator.allreduce_sum(bin_counts)
    run = shared.run.replace(
        settings=replace(shared.run.settings, workers=workers),
        target=shard.target,
        dataset=dataset,
        bin_counts=bin_counts,
        eval_sets=eval_sets,
        row_ids=GlobalRowIds(shard.numbers, shared.n_usable, workers.communicator),
    )
    # Trees that were not grown here are added by codes; otherwise training reads its bins only.
    run.frees_codes = run.init_model is None and resume_from is None
    del dataset
    free_codes(run)
    groups = _get_group_trials(run)
    describe_model(estimator, run)
    run.metadata = run.metadata | groups
    train(estimator, run, callbacks, resume_from)
    return run


def _compute_base_score(run: TrainingRun) -> np.ndarray | None:
    """Return the base score of a training with the rows of all ranks."""
    if run.base_score is not None or not _needs_base_score(run):
        return run.base_score
    return compute_base_score(bind_objective(run.objective, run.rows, run.settings), run.settings)


def _needs_base_score(run: TrainingRun) -> bool:
    return run.init_model is None or run.decay_rate is not None or run.is_new_output is not None


def _is_usable(target: Target) -> np.ndarray:
    weight = target.weight
    if weight is None:
        return np.ones(target.n_rows, bool)
    return np.asarray(weight > 0 if weight.ndim == 1 else (weight > 0).any(axis=1))
