"""The record of one training: what its steps know, from the parameters to the trained model."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

import polyleaf._core as _core
from polyleaf.binned_data.dataset import Dataset, TrainingBins
from polyleaf.binned_data.random_rows import SplitRules
from polyleaf.metrics import Metric, default_metrics
from polyleaf.metrics.metric import EvalsLog, OutputsLog
from polyleaf.model import Model
from polyleaf.model.initial import InitialModel
from polyleaf.objectives import Objective
from polyleaf.runtime.cuda import as_device_array, is_device_array
from polyleaf.runtime.row_data import ARGUMENTS, InitialScores, RowData, select_rows
from polyleaf.settings.train_config import TrainConfig
from polyleaf.sketching.projections import Projection
from polyleaf.training.evaluation import EvalSet, make_metrics
from polyleaf.training.linear_models import LinearFit
from polyleaf.training.members import Member
from polyleaf.training.quality import RUNGS, Rung
from polyleaf.training.sampling import GlobalRowIds
from polyleaf.user_data.target import Target

MakeHoldOutRun: TypeAlias = Callable[["TrainingRun", np.ndarray, np.ndarray, Metric], "TrainingRun"]
MakeFoldData: TypeAlias = Callable[[np.ndarray, np.ndarray], tuple[Dataset, Dataset]]


class Seeds(NamedTuple):
    """Seeds of the random steps of a fit."""

    hold_out: int
    projection: int
    training: int


class TrainingData(NamedTuple):
    """Data as the user passed it, to train or evaluate on."""

    name: str
    X: Any
    rows: RowData  # arrays or tables as the user passed them; `read_offsets` replaces the offset
    initial_scores: InitialScores | None = None  # of evaluation data: terms of its offset

    def replace_rows(self, **values: object) -> TrainingData:
        """Return a copy with other values in `rows`."""
        return self._replace(rows=self.rows.replace(**values))

    def take(self, rows: np.ndarray) -> TrainingData:
        """Return some rows."""
        X = self.X.rows(rows) if isinstance(self.X, Dataset) else select_rows(self.X, rows)
        scores = None if self.initial_scores is None else self.initial_scores.take(rows)
        return self._replace(X=X, rows=self.rows.take(rows), initial_scores=scores)

    def to_arguments(self) -> dict[str, Any]:
        """Return the arguments of `fit`, by name; those that only rankers take if they are set."""
        rows = {argument: getattr(self.rows, name) for name, argument in ARGUMENTS.items()}
        for argument in ("qid", "positions"):
            if rows[argument] is None:
                del rows[argument]
        return {"X": self.X, **rows}

    def fill_from_dataset(self) -> TrainingData:
        """Return the data with what was not passed taken from X, if it is a Dataset."""
        if not isinstance(self.X, Dataset):
            return self
        return self._replace(rows=RowData(**(self.X.row_data.to_dict() | self.rows.to_dict())))

    def copy_to_host(self, device: _core.Device) -> TrainingData:
        """Return the data with copies in host memory of arrays on a device, except for X."""
        return self.replace_rows(
            **{
                name: as_device_array(device, values, ARGUMENTS[name]).read()
                for name, values in self.rows.to_dict().items()
                if is_device_array(values)
            }
        )


@dataclass
class TrainingRun:
    """One training, which the steps of `fit` fill in.

    Trainings on some of the rows, which choose something for the training on all, are runs of their
    own, which `make_hold_out_run` and `copy_for_rows` return.
    """

    settings: TrainConfig
    objective: Objective
    # encoded y of the rows of `dataset`, without the offset if the loss depends on the difference
    # only
    target: Target
    seeds: Seeds
    # data, eval_data: data as the user passed them
    data: TrainingData = field(init=False)
    eval_data: list[TrainingData] = field(default_factory=list)
    init_model: Model | None = None  # model that training continues, or whose leaves are refitted
    resumed_file: Path | None = None  # file of `init_model`, if it is a checkpoint of this training
    # share of the old values if the leaves of `init_model` are refitted; None: training goes on
    # (n_scores,) where outputs differ
    decay_rate: float | np.ndarray | None = None
    is_new_output: np.ndarray | None = None  # (n_scores,), outputs that the old model did not have
    base_score: np.ndarray | None = None  # (n_scores,), replaces the objective's own
    initial: InitialModel | None = None  # model whose raw scores the trees are added to
    has_offset: bool = False  # whether the rows have offsets of the user
    initial_scores: InitialScores | None = None  # scores of the training rows by this model
    linear: LinearFit | None = None  # linear model that hold-out fits decide about
    projection: Projection | None = None  # projection of the features
    dataset: Dataset | TrainingBins = field(init=False)
    bin_counts: np.ndarray | None = None  # of the data set, as `Model.bin_counts`
    eval_sets: Sequence[EvalSet] = ()
    # what folds of the rows of the data set respect
    rules: SplitRules = field(default_factory=SplitRules)
    # `make_fold_data(rows, held)` learns the features of some rows anew, if they are derived from
    # y: returns these rows and others as data sets
    make_fold_data: MakeFoldData | None = None
    # `make_hold_out_run(run, rows, held, metric)` returns a training on some of the rows of a run,
    # evaluated on others, to choose something for the training on all rows
    make_hold_out_run: MakeHoldOutRun | None = None
    members: Sequence[Member] = ()  # if there are several, or `quality` has changed parameters
    candidates: Sequence[Member] = ()  # compared by hold-out fits, which choose the members
    rung: Rung = RUNGS["fast"]  # how long the choice and the training may take
    frees_codes: bool = False  # whether the codes of `dataset` are not read in training
    # Ids of the rows in distributed training (`settings.workers`). `base_score` is then that of all
    # rows, or that of `init_model`, and only rank 0 has evaluation sets and callbacks.
    row_ids: GlobalRowIds | None = None
    # target_scale, target_offset, output_names, metadata: Attributes of a new model. The target is
    # `(y - target_offset) / target_scale`.
    target_scale: np.ndarray | None = None
    target_offset: np.ndarray | None = None
    output_names: Sequence[str] | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    model: Model = field(init=False)  # result of the training
    # `{data name: {metric name: [value of each round]}}`
    evals_log: EvalsLog = field(default_factory=dict)
    # the same per output, arrays (K,), for metrics that are defined per output; empty for one
    # output
    outputs_log: OutputsLog = field(default_factory=dict)
    # learning rate of each round of the model, by its number
    learning_rates: dict[int, float] = field(default_factory=dict)
    # whether Ctrl-C ended the training; the model then has the complete rounds
    was_interrupted: bool = False

    def replace(self, **values: object) -> TrainingRun:
        """Return a copy with other values of some attributes."""
        other = copy.copy(self)
        vars(other).update(values)
        return other

    def take_result(self, other: TrainingRun) -> TrainingRun:
        """Return a copy with the settings and the result of another training."""
        return self.replace(
            settings=other.settings,
            model=other.model,
            evals_log=other.evals_log,
            outputs_log=other.outputs_log,
            learning_rates=other.learning_rates,
        )

    def set_offset(self, offset: np.ndarray | None) -> None:
        """Set the offset of the rows, and subtract it from y if the loss depends on the difference
        only."""
        self.target = self.target.replace_rows(offset=offset)
        if offset is not None and self.objective.is_translation_invariant:
            self.target = self.target.subtract_offset(self.objective.outputs_per_target())

    def add_offset(self, scores: np.ndarray | None) -> None:
        """Add scores to the offset of the rows, and subtract them from y as `set_offset` does."""
        before = self.target.rows
        self.set_offset(scores)
        self.target = self.target.replace_rows(offset=before.add_offset(scores))

    def use_linear_model(self) -> None:
        """Let trees start from the linear model: its scores are added to the offset of the data."""
        assert self.linear is not None
        self.initial = self.linear.model
        self.initial_scores = InitialScores(
            self.initial.factor * self.linear.scores, self.data.rows.offset
        )
        self.add_offset(self.initial_scores.scores)
        self.eval_data = [
            each.replace_rows(offset=each.initial_scores.scale(1.0))
            if each.initial_scores
            else each
            for each in self.eval_data
        ]
        self.linear = None

    def scale_eval_scores(self, factor: float) -> None:
        """Multiply the initial scores of evaluation sets by a factor; their offsets stay."""
        self.eval_sets = [
            replace(e, rows=e.rows.replace(offset=e.initial_scores.scale(factor)))
            if e.initial_scores
            else e
            for e in self.eval_sets
        ]

    def copy_for_rows(self, dataset: Dataset | TrainingBins, rows: RowData) -> TrainingRun:
        """Return the same training on other rows, for a model that is not kept: its scores stay on
        the scale of training, and it has no metadata."""
        other = TrainingRun(
            self.settings,
            self.objective,
            replace(self.target, rows=rows),
            self.seeds,
            base_score=self.base_score,
            output_names=self.output_names,
        )
        other.dataset, other.members = dataset, self.members
        return other

    @cached_property
    def metrics(self) -> list[Metric]:
        """Metrics of evaluation sets, by default those of the objective."""
        return make_metrics(None, self.objective, self.target)

    @property
    def coded_dataset(self) -> Dataset:
        """The data set of a training that reads its codes."""
        assert isinstance(self.dataset, Dataset)
        return self.dataset

    @property
    def rows(self) -> RowData:
        """Rows as the boosting loop reads them: without offsets that were subtracted from y."""
        rows = self.target.rows
        if rows.offset is None or not self.objective.is_translation_invariant:
            return rows
        return rows.replace(offset=None)

    @property
    def reads_features(self) -> bool:
        """Whether raw feature values are needed besides bins, for linear leaves."""
        init_model = self.init_model
        members = *self.members, *self.candidates
        return (
            any(member.settings.leaf.kind.reads_features for member in members)
            or self.settings.leaf.kind.reads_features
            or (init_model is not None and init_model.has_linear_leaves)
        )

    @property
    def n_used_rounds(self) -> int:
        """Number of rounds that the trained model predicts with."""
        best = self.model.best_iteration
        return self.model.n_rounds if best is None else best + 1


def get_default_metric(run: TrainingRun) -> Metric:
    """Return the metric that held-out rows are compared by; the user's for custom objectives."""
    if not run.objective.has_default_metric:
        return run.metrics[-1]
    encoding = run.target.encoding
    return default_metrics(run.objective, encoding.kind, encoding.n_outputs)[-1]
