"""A fit that several ranks do together: what is found out where all targets are, and what each rank does.

Owns: which part of `fit` needs the targets and weights of all rows, and the parameters that are refused. Must
not know: how ranks reach one another, or where their rows come from.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from polyleaf.data.data_iter import concatenate_values
from polyleaf.data.dataset import Dataset
from polyleaf.estimators.base import FitPlan, PolyleafEstimator
from polyleaf.inputs.targets import Target
from polyleaf.metrics import Metric
from polyleaf.model import Model
from polyleaf.runtime.context import Context
from polyleaf.settings.train_config import LinearLeaf
from polyleaf.training.boosting import compute_base_score
from polyleaf.training.cross_fitting import TrainingRecord
from polyleaf.training.distributed import check_distributed
from polyleaf.training.evaluation import EvalSet
from polyleaf.training.factory import bind_objective
from polyleaf.training.prepare import PreparedData, TrainingData, make_trial
from polyleaf.training.sampling import GlobalRowIds

__all__ = ["Shard", "SharedFit", "fit_rank", "plan_shared_fit", "find_shared_n_estimators"]


class SharedFit(NamedTuple):
    """What depends on the targets and weights of all rows.

    Attributes
    ----------
    plan : FitPlan
    base_score : ndarray of shape (K,), float64, or None
        None: that of the model to go on from.
    n_usable : int
        Rows of positive weight.
    auto_rounds_metric : Metric or None
        What tells the number of rounds, where it is still to be found (`find_shared_n_estimators`).
    """

    plan: FitPlan
    base_score: np.ndarray | None
    n_usable: int
    auto_rounds_metric: Metric | None = None

    @property
    def reads_features(self) -> bool:
        """Whether ranks need the features themselves beside their bins: for linear leaves."""
        start = self.plan.start
        return isinstance(self.plan.settings.leaf, LinearLeaf) or (
            start is not None and start.has_linear_leaves
        )


class Shard(NamedTuple):
    """Target of some rows.

    Attributes
    ----------
    target : Target
        Less what rows start from, where the loss is of their difference.
    numbers : ndarray of int64
        Of the rows of positive weight: how many of all such rows come before each.
    offset : ndarray of shape (n_rows, K), float64, or None
        Scores that rows start from.
    """

    target: Target
    numbers: np.ndarray
    offset: np.ndarray | None = None

    def take(self, rows: np.ndarray) -> Shard:
        """That of some of the rows, ascending."""
        used = np.zeros(self.target.n_rows, bool)
        used[rows] = True
        offset = None if self.offset is None else self.offset[rows]
        return Shard(self.target.take(rows), self.numbers[used[self._usable()]], offset)

    @staticmethod
    def joined(shards: Sequence[Shard]) -> Shard:
        """That of the rows of all, shard after shard."""
        targets = [shard.target for shard in shards]
        values = concatenate_values([target.values for target in targets], "y")
        weight = None if targets[0].weight is None else np.concatenate([t.weight for t in targets])
        numbers = np.concatenate([shard.numbers for shard in shards])
        offsets = [shard.offset for shard in shards if shard.offset is not None]
        offset = np.concatenate(offsets) if offsets else None
        return Shard(Target(values, weight, targets[0].encoding), numbers, offset)

    def _usable(self) -> np.ndarray:
        return np.flatnonzero(_is_usable(self.target))


def plan_shared_fit(
    estimator: PolyleafEstimator,
    y: Any,
    sample_weight: Any = None,
    init_model: Any = None,
    offset: Any = None,
    *,
    is_watched: bool = False,
) -> tuple[SharedFit, Shard]:
    """The fit, and the target of all rows.

    `is_watched`: evaluation sets or callbacks go with it.

    Raises
    ------
    ValueError
        Where parameters ask for what ranks cannot do together, or do not go with y.
    """
    _refuse(estimator)
    given = TrainingData("training", None, y, sample_weight, offset)
    plan, target = estimator._make_plan(given, init_model)
    check_distributed(plan.settings, plan.objective)
    if estimator._is_calibrated(plan.objective):
        raise ValueError(
            "A fit on several workers: quantiles are calibrated by models of all rows but some, on one "
            "machine; set calibrate_quantiles=False, or take a distribution."
        )
    _check_metrics(plan)
    offset = estimator._read_offsets([given], target, plan.objective, plan.start)[0].offset
    target = estimator._subtract_offset(target, offset, plan.objective)
    base_score = estimator._scale_base_score(target.encoding, plan.objective)
    if base_score is None and plan.start is None:
        problem = bind_objective(plan.objective, target.values, target.weight, plan.settings)
        seen = None if plan.objective.is_translation_invariant else offset
        base_score = compute_base_score(problem, seen, plan.settings)
    usable = _is_usable(target)
    auto_rounds_metric = estimator._auto_rounds_metric(plan, target, is_watched)
    shared = SharedFit(plan, base_score, int(np.count_nonzero(usable)), auto_rounds_metric)
    return shared, Shard(target, np.arange(shared.n_usable), offset)


def find_shared_n_estimators(
    estimator: PolyleafEstimator, shared: SharedFit, shard: Shard, dataset: Dataset, n_threads: int
) -> SharedFit:
    """The fit with as many rounds as rows that are held out ask for.

    That is looked for where the rows are few, so one rank does it, as one machine does.

    Parameters
    ----------
    estimator : PolyleafEstimator
    shared : SharedFit
        Its `auto_rounds_metric` is not None.
    shard : Shard
        Of all rows, in their order.
    dataset : Dataset
        The same rows, in their bins.
    n_threads : int
        Of this rank.
    """
    assert shared.auto_rounds_metric is not None
    plan, target, offset = shared.plan, shard.target, shard.offset
    here = plan._replace(settings=replace(plan.settings, workers=Context(n_threads)))
    trial = make_trial(dataset, target, offset, shared.auto_rounds_metric, plan.seeds.training)
    found = estimator._find_n_estimators(
        here, PreparedData(dataset, target, [], None, offset, trial)
    )
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
    callbacks: Any = None,
    known: Model | None = None,
) -> TrainingRecord:
    """What one rank does; all have the same model in the end, and rank 0 what came of the evaluation sets.

    Parameters
    ----------
    estimator : PolyleafEstimator
        This rank's own. It is fitted.
    shared : SharedFit
    shard : Shard
        Of this rank's rows.
    dataset : Dataset
        The same rows, with the bins of all.
    workers : Context
        This rank's threads, and the others.
    eval_sets : sequence of EvalSet
        Rank 0's; others have none.
    callbacks : list, optional
        This rank's; on top of the estimator's, which are rank 0's.
    known : Model, optional
        What an attempt that was cut short has come to: its rounds are not trained again.
    """
    plan = shared.plan
    plan = plan._replace(settings=replace(plan.settings, workers=workers))
    ready = PreparedData(dataset, shard.target, list(eval_sets), None, shard.offset)
    numbered = GlobalRowIds(shard.numbers, shared.n_usable, workers.communicator)
    return estimator._train(plan, ready, shared.base_score, callbacks, numbered, known)


def _is_usable(target: Target) -> np.ndarray:
    weight = target.weight
    if weight is None:
        return np.ones(target.n_rows, bool)
    return np.asarray(weight > 0 if weight.ndim == 1 else (weight > 0).any(axis=1))


def _refuse(estimator: PolyleafEstimator) -> None:
    """Refuse parameters of what is done beside the training of trees."""
    for is_asked, sentence in (
        (estimator.device == "cuda", 'device="cuda" is of one machine; use device="cpu".'),
        (
            estimator.validation_fraction is not None,
            "validation_fraction is not drawn from rows that lie apart; pass an eval_set.",
        ),
        (
            estimator.projection is not None,
            "projection is learned from all rows in one place; project X before (polyleaf.sketching.projections).",
        ),
        (
            isinstance(getattr(estimator, "threshold", None), str),
            "threshold is chosen on rows in one place; set a number, and call choose_threshold on what "
            "to_local returns.",
        ),
    ):
        if is_asked:
            raise ValueError(f"A fit on several workers: {sentence}")


def _check_metrics(plan: FitPlan) -> None:
    for metric in plan.metrics:
        if hasattr(metric.function, "set_train_target"):
            raise ValueError(
                f"A fit on several workers: eval_metric={metric.name!r} asks how often each label occurs in "
                "all rows; measure it once the model is trained, or use another."
            )
