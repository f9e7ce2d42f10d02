"""Distributed fit: the part that needs the targets of all rows, and the part of each rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from polyleaf.binned_data.dataset import Dataset
from polyleaf.binned_data.random_rows import find_repeated_rows
from polyleaf.estimators._fitting import (
    make_plan,
    read_fit_offsets,
    search_n_estimators,
    train_estimator,
)
from polyleaf.estimators.base import PolyleafEstimator
from polyleaf.metrics import Metric
from polyleaf.model import Model
from polyleaf.runtime.capabilities import check
from polyleaf.runtime.context import Context
from polyleaf.runtime.row_data import RowData
from polyleaf.training.boosting import compute_base_score
from polyleaf.training.evaluation import EvalSet
from polyleaf.training.factory import bind_objective
from polyleaf.training.fit import (
    FitPlan,
    scale_base_score,
    select_auto_rounds_metric,
    set_offset,
    training_rows,
)
from polyleaf.training.prepare import PreparedData, TrainingData, make_trial, read_split_rules
from polyleaf.training.sampling import GlobalRowIds
from polyleaf.user_data.target import Target


class SharedFit(NamedTuple):
    """Part of a fit that depends on the targets and weights of all rows.

    Attributes
    ----------
    base_score : ndarray of shape (K,), float64, or None
        None: the base score of the model that training continues.
    n_usable : int
        Number of rows with positive weight.
    auto_rounds_metric : Metric or None
        Metric of the search for the number of rounds (`find_shared_n_estimators`), if there is one.
    """

    plan: FitPlan
    base_score: np.ndarray | None
    n_usable: int
    auto_rounds_metric: Metric | None = None

    @property
    def reads_features(self) -> bool:
        """Whether ranks need raw feature values besides bins, for linear leaves."""
        start = self.plan.start
        return self.plan.settings.leaf.kind.reads_features or (
            start is not None and start.has_linear_leaves
        )


class Shard(NamedTuple):
    """Targets of some rows.

    Attributes
    ----------
    target : Target
        Offsets are subtracted if the loss depends on their difference only.
    numbers : ndarray of int64
        Global indices of the rows with positive weight, counted among such rows.
    """

    target: Target
    numbers: np.ndarray

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


def plan_shared_fit(
    estimator: PolyleafEstimator,
    rows: RowData,
    init_model: object = None,
    *,
    is_watched: bool = False,
) -> tuple[SharedFit, Shard]:
    """Plan the fit and encode the target of all rows.

    `is_watched`: whether the fit has evaluation sets or callbacks.

    Raises
    ------
    ValueError
        If parameters are not available in distributed training, or do not match y.
    """
    check("dask", parameters=estimator)
    data = TrainingData("training", None, rows)
    plan, target = make_plan(estimator, data, init_model)
    check(
        "dask",
        parameters=estimator,
        model=plan.start,
        objective=plan.objective,
        metrics=plan.metrics,
    )
    (data,) = read_fit_offsets(estimator, [data], target, plan)
    target = set_offset(target, data.rows.offset, plan.objective)
    base_score = scale_base_score(estimator.base_score, target.encoding, plan.objective)
    if base_score is None and (plan.start is None or plan.decay_rate is not None):
        rows = training_rows(target, plan.objective)
        bound = bind_objective(plan.objective, rows, plan.settings)
        base_score = compute_base_score(bound, plan.settings)
    usable = _is_usable(target)
    metric = select_auto_rounds_metric(estimator, plan, target, is_watched)
    shared = SharedFit(plan, base_score, int(np.count_nonzero(usable)), metric)
    return shared, Shard(target, np.arange(shared.n_usable))


def find_shared_n_estimators(
    estimator: PolyleafEstimator, shared: SharedFit, shard: Shard, dataset: Dataset, n_threads: int
) -> SharedFit:
    """Find the number of rounds on held-out rows, on one rank, since there are few rows.

    Parameters
    ----------
    shared : SharedFit
        With an `auto_rounds_metric`.
    shard : Shard
        All rows, in their order.
    dataset : Dataset
        The same rows, binned.
    n_threads : int
        Number of threads of this rank.
    """
    assert shared.auto_rounds_metric is not None
    plan, target = shared.plan, shard.target
    local_plan = plan._replace(settings=replace(plan.settings, workers=Context(n_threads)))
    repeated = find_repeated_rows(dataset.hash_rows(), target.values, target.rows.offset)
    rules = read_split_rules(estimator, RowData(), target.n_rows).join(repeated)
    trial = make_trial(
        dataset, target, plan.objective, shared.auto_rounds_metric, plan.seeds.training, rules
    )
    data = PreparedData(dataset, target, [], None, trial)
    base_score = scale_base_score(estimator.base_score, target.encoding, plan.objective)
    found = search_n_estimators(estimator, local_plan, data, base_score)
    return shared._replace(
        plan=plan.replace_n_estimators(found.n_estimators), auto_rounds_metric=None
    )


def fit_rank(
    estimator: PolyleafEstimator,
    shared: SharedFit,
    shard: Shard,
    dataset: Dataset,
    workers: Context,
    *,
    eval_sets: Sequence[EvalSet] = (),
    callbacks: object = None,
    known: Model | None = None,
) -> None:
    """Train on one rank. All ranks get the same model, and rank 0 the metrics of evaluation sets.

    Parameters
    ----------
    estimator : PolyleafEstimator
        Estimator of this rank, which is fitted.
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
    known : Model, optional
        Model of an interrupted attempt, whose rounds are not trained again.
    """
    plan = shared.plan
    plan = plan._replace(settings=replace(plan.settings, workers=workers))
    ready = PreparedData(dataset, shard.target, list(eval_sets), None)
    row_ids = GlobalRowIds(shard.numbers, shared.n_usable, workers.communicator)
    train_estimator(estimator, plan, ready, shared.base_score, callbacks, row_ids, known)


def _is_usable(target: Target) -> np.ndarray:
    weight = target.weight
    if weight is None:
        return np.ones(target.n_rows, bool)
    return np.asarray(weight > 0 if weight.ndim == 1 else (weight > 0).any(axis=1))
