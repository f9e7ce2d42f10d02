"""Tasks that run on workers: preparation of partitions, and the ranks of a fit."""

from __future__ import annotations

import copy
import itertools
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from distributed import get_worker, secede

from polyleaf.binned_data.binned import Codes
from polyleaf.binned_data.binning import BinMapper
from polyleaf.binned_data.data_iter import (
    concatenate_categories,
    concatenate_rows,
    concatenate_values,
)
from polyleaf.binned_data.dataset import Dataset
from polyleaf.binned_data.partitions import PartitionSummary, summarise_partition
from polyleaf.binned_data.random_rows import draw_ids
from polyleaf.callbacks import Callback
from polyleaf.dask.communicator import DaskCommunicator
from polyleaf.dask.costs import WorkerCosts, measure_peak_bytes
from polyleaf.estimators.base import PolyleafEstimator
from polyleaf.estimators.distributed_fit import (
    InitialFit,
    RowBlocks,
    Shard,
    SharedFit,
    calibrate_on_one_rank,
    fit_initial_model,
    fit_rank,
    gather_run,
    plan_shared_fit,
    read_shard,
    search_on_one_rank,
)
from polyleaf.metrics.metric import EvalsLog, OutputsLog
from polyleaf.model import Model
from polyleaf.runtime.collective import (
    Communicator,
    RecordingCommunicator,
    ReplayingCommunicator,
    WorkerLostError,
)
from polyleaf.runtime.context import Context
from polyleaf.runtime.queries import count_queries
from polyleaf.runtime.row_data import InitialScores
from polyleaf.runtime.types import DataLike
from polyleaf.sketching.projections import ColumnSummary, Projection, Projector, read_numbers
from polyleaf.training.derived_columns import derive_columns
from polyleaf.training.evaluation import EvalSet, name_eval_set
from polyleaf.training.initial_scores import compute_scores
from polyleaf.training.memory_usage import ColumnCounts, count_columns
from polyleaf.training.prepare import get_row_weights, project_features
from polyleaf.training.training_run import TrainingData, TrainingRun
from polyleaf.user_data.feature_table import CategoryColumn
from polyleaf.user_data.features import read_features
from polyleaf.user_data.queries import read_queries
from polyleaf.user_data.target import encode_evaluation_target
from polyleaf.user_data.weights import quantise_weights

COPY_SECONDS = 5.0  # between copies of the model, which survive the loss of all workers


class Partition(NamedTuple):
    """Targets and weights of a partition."""

    shard: Shard  # targets of its rows
    weights: np.ndarray | None  # weights for binning, as `quantise_weights` returns them
    sampled: np.ndarray | None  # rows that thresholds are chosen from; None means all
    # In a ranking, the partitions where the queries of its rows begin, and these rows; None: stay.
    destinations: dict[int, np.ndarray] | None


class BinnedRows(NamedTuple):
    """Rows as training reads them."""

    codes: Codes
    features: np.ndarray | None  # (n_columns, n_rows), raw features, for linear leaves
    categories: Sequence[CategoryColumn] = ()  # features of more than 255 categories
    binned: BinnedRows | None = None  # the rows before columns were derived from these features

    def take(self, rows: np.ndarray) -> BinnedRows:
        """Return some rows."""
        features = None if self.features is None else self.features.take(rows, axis=1)
        columns = [replace(column, index=column.index[rows]) for column in self.categories]
        binned = None if self.binned is None else self.binned.take(rows)
        return BinnedRows(self.codes.rows(rows), features, columns, binned)

    @staticmethod
    def concatenate(parts: Sequence[BinnedRows]) -> BinnedRows:
        """Concatenate the rows of partitions."""
        features = [part.features for part in parts if part.features is not None]
        binned = [part.binned for part in parts if part.binned is not None]
        sizes = [part.codes.n_rows for part in parts]
        return BinnedRows(
            Codes.concatenate([part.codes for part in parts]),
            np.concatenate(features, axis=1) if features else None,
            concatenate_categories([part.categories for part in parts], sizes),
            BinnedRows.concatenate(binned) if binned else None,
        )

    def to_dataset(self, mapper: BinMapper, n_threads: int) -> Dataset:
        """Return the rows as a data set."""
        return Dataset.from_codes(mapper, self.codes, self.features, n_threads, self.categories)


class PlannedFit(NamedTuple):
    """Results of the preparation that the ranks share, before a training."""

    shared: SharedFit
    results: list[Any]  # of a `RecordingCommunicator`, with which partitions are encoded
    columns: ColumnCounts | None  # numbers per row in training; None for sparse targets


class FitResult(NamedTuple):
    """Result of rank 0."""

    model: Model
    evals_log: EvalsLog
    outputs_log: OutputsLog
    learning_rates: dict[int, float]
    costs: list[WorkerCosts]  # of each rank, as measured


class InterruptedFit(NamedTuple):
    """Result of a rank when another was lost: the complete rounds, or None before the first."""

    model: Model | None
    reason: str


def plan_fit(
    estimator: PolyleafEstimator,
    rows: Mapping[str, Sequence[object]],
    blocks: RowBlocks,
    mapper: BinMapper,
    init_model: object,
    callbacks: Sequence[Callback],
    has_evaluation: bool,
    communicator: Communicator,
) -> PlannedFit:
    """Plan the fit of all ranks, of which this one has some partitions."""
    recorder = RecordingCommunicator(communicator)
    try:
        run, _ = _read_partition(estimator, rows, blocks, mapper, init_model, callbacks, recorder)
    except ValueError as error:
        if _ROW_PLACE.search(str(error)):
            _name_partition(error, estimator, rows, blocks, init_model)
        raise
    workers = Context(get_worker().state.nthreads, communicator)
    columns = None
    if not run.settings.has_sparse_targets:
        n_targets, bound = run.target.values[0].size, run.objective.bind(run.rows)
        columns = count_columns(bound, run.settings, n_targets)
    shared = plan_shared_fit(estimator, run, callbacks, workers, has_evaluation)
    return PlannedFit(shared, recorder.results, columns)


_ROW_PLACE = re.compile(r"\b[Rr]ow \d|\[\d")


def _name_partition(
    error: ValueError,
    estimator: PolyleafEstimator,
    rows: Mapping[str, Sequence[object]],
    blocks: RowBlocks,
    init_model: object,
) -> None:
    """Raise an error about a row for the partition that has it."""
    for position, i in enumerate(blocks.numbers):
        part = concatenate_rows(
            {name: parts[position : position + 1] for name, parts in rows.items()}
        )
        try:
            read_shard(estimator, part, init_model)
        except ValueError as same:
            if re.sub(r"\d", "", str(same)) == re.sub(r"\d", "", str(error)):
                raise ValueError(f"Partition {blocks.names[i]}: {same}") from None


def encode_partition(
    estimator: PolyleafEstimator,
    rows: Mapping[str, Sequence[object]],
    blocks: RowBlocks,
    mapper: BinMapper,
    init_model: object,
    planned: PlannedFit,
    initial_scores: tuple[InitialScores, bool] | None,
) -> Partition:
    """Encode a partition as the ranks have done that planned the fit.

    `initial_scores`: scores of an initial model, and whether trees start from them.
    """
    ranks = ReplayingCommunicator(planned.results)
    run, partition = _read_partition(estimator, rows, blocks, mapper, init_model, (), ranks)
    if initial_scores is None:
        return partition
    (scores, offset), starts_trees = initial_scores
    if offset is not None:
        run.set_offset(offset)
    if starts_trees:
        run.add_offset(scores)
    return partition._replace(shard=partition.shard._replace(target=run.target))


def fit_initial(
    estimator: PolyleafEstimator,
    X: Sequence[Any],
    rows: Mapping[str, Sequence[object]],
    init_model: object,
    callbacks: Sequence[Callback],
) -> InitialFit:
    """Fit the initial model to the rows of all partitions."""
    return fit_initial_model(
        estimator,
        concatenate_values(X, "X"),
        concatenate_rows(rows),
        init_model,
        callbacks,
        get_worker().state.nthreads,
    )


def get_initial_scores(initial: InitialFit, rows: slice) -> tuple[InitialScores, bool]:
    """Return the scores of the rows of a partition, and whether trees start from them."""
    return initial.initial_scores.take(rows), initial.starts_trees


def _read_partition(
    estimator: PolyleafEstimator,
    rows: Mapping[str, Sequence[object]],
    blocks: RowBlocks,
    mapper: BinMapper,
    init_model: object,
    callbacks: Sequence[Callback],
    ranks: Communicator,
) -> tuple[TrainingRun, Partition]:
    """Read the rows of one or several partitions: start a fit of them and the others."""
    run, shard = read_shard(estimator, concatenate_rows(rows), init_model, callbacks, ranks, blocks)
    n_rows, weights = shard.target.n_rows, shard.target.weight
    weights = None if weights is None else quantise_weights(weights, n_rows, ranks)
    present = np.ones(n_rows, bool) if weights is None else weights > 0
    numbers, n_present = blocks.number_rows(present, ranks)
    if mapper.subsample is not None and n_present > mapper.subsample:
        drawn = draw_ids(numbers, mapper.subsample, *mapper.draw_seed(), ranks)
        sampled: np.ndarray | None = np.flatnonzero(present)[drawn]
    else:
        sampled = None if present.all() else np.flatnonzero(present)
    destinations = _find_destinations(shard.target.rows.query, blocks, ranks)
    return run, Partition(shard, weights, sampled, destinations)


def _find_destinations(
    query: np.ndarray | None, blocks: RowBlocks, ranks: Communicator
) -> dict[int, np.ndarray] | None:
    """Return the rows by the partition where their query begins, so that no query is in two."""
    if query is None:
        return None
    partition_of_row = np.repeat(blocks.numbers, [blocks.sizes[i] for i in blocks.numbers])
    # The largest negative number is that of the first partition.
    first = np.full(count_queries(query, ranks), -len(blocks.sizes))
    np.maximum.at(first, query, -partition_of_row)
    ranks.allreduce_max(first)
    destination = -first[query]
    return {int(i): np.flatnonzero(destination == i) for i in np.unique(destination)}


def list_destinations(partition: Partition) -> list[int]:
    """Return the partitions where queries of a partition begin."""
    assert partition.destinations is not None
    return list(partition.destinations)


def gather_queries(
    i: int, rows: Sequence[BinnedRows], partitions: Sequence[Partition]
) -> tuple[BinnedRows, Shard]:
    """Return the rows of the queries that begin in partition i, from partitions in order."""
    taken = [partition.destinations[i] for partition in partitions if partition.destinations]
    binned = [part.take(chosen) for part, chosen in zip(rows, taken, strict=True)]
    shards = [part.shard.take(chosen) for part, chosen in zip(partitions, taken, strict=True)]
    return BinnedRows.concatenate(binned), Shard.joined(shards)


def summarise_columns(
    estimator: PolyleafEstimator, projector: Projector, X: Any, number: int, partition: Partition
) -> tuple[PolyleafEstimator, ColumnSummary]:
    """Return the estimator with the names of the columns, and their summary in a partition."""
    estimator = copy.copy(estimator)
    try:
        numbers = read_numbers(X, projector.kind, estimator, reset=True)
        weight = get_row_weights(partition.shard.target)
        return estimator, projector.summarise(numbers, weight)
    except (ValueError, TypeError) as error:
        raise type(error)(f"Partition {number}: {error}") from error


def fit_projection(
    projector: Projector,
    seed: int,
    numbers: Sequence[int],
    summaries: Sequence[tuple[PolyleafEstimator, ColumnSummary]],
) -> tuple[PolyleafEstimator, Projection]:
    """Fit a projection to the summaries of all partitions."""
    estimator, _ = summaries[0]
    columns = [
        (each.n_features_in_, list(getattr(each, "feature_names_in_", ()))) for each, _ in summaries
    ]
    for number, names in zip(numbers, columns, strict=True):
        if names != columns[0]:
            raise ValueError(
                f"Partition {number}: X has other columns than in partition {numbers[0]}."
            )
    merged = ColumnSummary.merge([summary for _, summary in summaries])
    return estimator, projector.fit_summary(merged, seed)


def transform(X: Any, projection: Projection, estimator: PolyleafEstimator) -> Any:
    """Project the rows of a partition; the `estimator` has the names of the columns."""
    return projection.transform(read_numbers(X, projection.kind, estimator))


def project(
    estimator: PolyleafEstimator,
    shared: SharedFit,
    X: Sequence[Any],
    partitions: Sequence[Partition],
) -> tuple[tuple[PolyleafEstimator, SharedFit], list[Any]]:
    """Learn a projection from the rows of all partitions, and project them.

    Returns the estimator with the names of the columns, the plan with the projection, and the rows
    of each partition.
    """
    estimator, workers = copy.copy(estimator), Context(get_worker().state.nthreads)
    shards = [partition.shard for partition in partitions]
    run = shared.run.replace(
        target=Shard.joined(shards).target, settings=replace(shared.run.settings, workers=workers)
    )
    projected = project_features(estimator, run, concatenate_values(X, "X"))
    ends = itertools.accumulate(shard.target.n_rows for shard in shards)
    rows = [
        projected[end - shard.target.n_rows : end] for end, shard in zip(ends, shards, strict=True)
    ]
    planned = shared.run.replace(projection=run.projection)
    return (estimator, shared._replace(run=planned)), rows


def summarise(
    X: DataLike,
    number: int,
    first: int,
    partition: Partition,
    categorical_features: DataLike,
    feature_names: Sequence[str] | None,
) -> PartitionSummary:
    """Summarise the features of a partition for binning."""
    return summarise_partition(
        X, number, first, partition.weights, partition.sampled, categorical_features, feature_names
    )


def bin_partition(
    X: DataLike,
    mapper: BinMapper,
    keep_features: bool,
    feature_names: Sequence[str] | None,
    rare: np.ndarray | None = None,
) -> BinnedRows:
    """Bin the rows of a partition.

    `feature_names`: names of columns of an array. `rare`: features that stay sparse.
    """
    table = read_features(X, feature_names=feature_names, reference=mapper)
    features = mapper.get_raw_values(table) if keep_features else None
    indices = mapper.high_cardinality_features_
    columns = [column for column in table.categories if column.feature in indices]
    is_sparse = rare is not None and not keep_features  # linear leaves read the codes of every row
    codes = mapper.encode(table, 1, sparse=is_sparse, rare=rare)
    assert isinstance(codes, Codes)
    return BinnedRows(codes, features, columns)


def count_binned_rows(rows: BinnedRows) -> int:
    """Return the number of rows of a partition."""
    return rows.codes.n_rows


def derive(
    shared: SharedFit,
    mapper: BinMapper,
    rows: Sequence[BinnedRows],
    partitions: Sequence[Partition],
) -> tuple[BinMapper, list[BinnedRows]]:
    """Derive columns from features of more than 255 categories, on the rows of all partitions.

    Returns the mapper of the model, and the rows of each partition.
    """
    n_threads, run = get_worker().state.nthreads, shared.run
    target = Shard.joined([partition.shard for partition in partitions]).target
    binned = BinnedRows.concatenate(rows).to_dataset(mapper, n_threads)
    is_first = run.init_model is None
    derived = derive_columns(binned, target, run.objective, n_threads, is_first=is_first)
    ends = np.cumsum([part.codes.n_rows for part in rows])[:-1]
    codes = [
        Codes(part.shape[1], len(part), part) for part in np.split(derived.codes, ends, axis=1)
    ]
    features: list[Any] = [None] * len(rows)
    if derived.features is not None:
        features = np.split(derived.features, ends, axis=1)
    parts = zip(codes, features, rows, strict=True)
    return derived.mapper, [BinnedRows(part, raw, (), before) for part, raw, before in parts]


def search(
    estimator: PolyleafEstimator,
    shared: SharedFit,
    mappers: Sequence[BinMapper],
    rows: Sequence[BinnedRows],
    shards: Sequence[Shard],
    eval_sets: Sequence[EvalSet],
    initial: InitialFit | None,
    X: Sequence[Any],
) -> tuple[SharedFit, Sequence[Shard], Sequence[EvalSet]]:
    """Find the number of rounds, the groups of outputs and the use of an initial model, on the rows
    of all partitions.

    Returns the plan with the results, and the shards and evaluation sets with the scores that they
    start from.
    """
    run = _gather_run(estimator, shared, mappers, rows, shards, X)
    run.eval_sets = eval_sets
    if initial is None:
        return search_on_one_rank(shared, run), shards, eval_sets
    run.linear, run.initial_scores = initial.linear, initial.initial_scores
    shared = search_on_one_rank(shared, run)
    ends = np.cumsum([shard.target.n_rows for shard in shards])[:-1]
    parts = np.split(np.arange(run.target.n_rows), ends)
    started = [
        shard._replace(target=run.target.take(part))
        for shard, part in zip(shards, parts, strict=True)
    ]
    return shared, started, run.eval_sets


def calibrate(
    estimator: PolyleafEstimator,
    shared: SharedFit,
    mappers: Sequence[BinMapper],
    rows: Sequence[BinnedRows],
    shards: Sequence[Shard],
    row_data: Mapping[str, Sequence[object]],
    eval_sets: Sequence[EvalSet],
    result: FitResult,
    X: Sequence[Any],
) -> Model:
    """Return a calibrated model, on the rows of some partitions, or on evaluation sets."""
    run = _gather_run(estimator, shared, mappers, rows, shards, X).replace(
        model=result.model,
        learning_rates=result.learning_rates,
        eval_sets=eval_sets,
        data=TrainingData("training", None, concatenate_rows(row_data)),
    )
    return calibrate_on_one_rank(estimator, run)


def _gather_run(
    estimator: PolyleafEstimator,
    shared: SharedFit,
    mappers: Sequence[BinMapper],
    rows: Sequence[BinnedRows],
    shards: Sequence[Shard],
    X: Sequence[Any],
) -> TrainingRun:
    """Return the training of the rows of partitions on this worker.

    `mappers`: of the model, and of the bins without derived columns. `X`: as for `gather_run`.
    """
    n_threads, joined = get_worker().state.nthreads, BinnedRows.concatenate(rows)
    dataset = joined.to_dataset(mappers[0], n_threads)
    binned = dataset if joined.binned is None else joined.binned.to_dataset(mappers[1], n_threads)
    raw = concatenate_values(X, "X")
    return gather_run(estimator, shared, Shard.joined(shards), dataset, binned, n_threads, raw)


def make_eval_set(
    name: str,
    X: Sequence[Any],
    rows: Mapping[str, Sequence[object]],
    mapper: BinMapper,
    estimator: PolyleafEstimator,
    shared: SharedFit,
) -> EvalSet:
    """Make an evaluation set of all its partitions, on the worker that evaluates it."""
    encoding = shared.run.target.encoding
    with name_eval_set(name):
        projection, names, read = shared.run.projection, None, X
        if projection is not None:
            names = projection.feature_names
            read = [transform(part, projection, estimator) for part in X]
        parts = [bin_partition(part, mapper, shared.run.reads_features, names) for part in read]
        codes, features, *_ = BinnedRows.concatenate(parts)
        row_data, is_sparse = concatenate_rows(rows), shared.run.settings.has_sparse_targets
        if row_data.query is not None:
            row_data = read_queries(row_data, codes.n_rows)
        target = encode_evaluation_target(
            row_data, name=f"y of {name!r}", like=encoding, is_sparse=is_sparse
        )
        offset = row_data.offset
        if offset is not None:
            reader = PolyleafEstimator._offset_reader(encoding, shared.run.objective)
            offset = reader.read(offset, target.n_rows, f"offset of {name!r}")
        initial_scores = None
        if shared.initial is not None:
            scores = compute_scores(estimator, shared.initial, concatenate_values(X, "X"))
            initial_scores = InitialScores(scores, offset)
            offset = initial_scores.scale(1.0)
        evaluated = target.rows.replace(offset=offset)
        return EvalSet(
            name,
            codes.array(),
            evaluated,
            shared.run.metrics,
            features,
            initial_scores=initial_scores,
        )


class ProgressCallback(Callback):
    """Counts complete rounds, and regularly stores copies of the model for the client."""

    model: Model | None = None
    n_rounds = 0
    put: Callable[[Model], None] | None = None  # where copies go, on rank 0

    def __init__(self) -> None:
        self._stored_at = time.monotonic()

    def before_training(self, model: Model) -> None:
        self.model, self.n_rounds = model, model.n_rounds

    def after_iteration(self, model: Model, epoch: int, evals_log: EvalsLog) -> bool:
        self.n_rounds = epoch + 1
        if self.put is not None and time.monotonic() >= self._stored_at + COPY_SECONDS:
            self.put(model.copy())
            self._stored_at = time.monotonic()
        return False

    def copy_complete_rounds(self) -> Model | None:
        """Return a copy of the model with its complete rounds; None before the first."""
        if self.model is None or self.n_rounds == 0:
            return None
        model = self.model.copy()
        model.truncate(self.n_rounds)
        return model


def run_rank(
    work: Callable[[DaskCommunicator], object],
    progress: ProgressCallback | None,
    fit_id: str,
    rank: int,
    addresses: Sequence[str],
) -> object:
    """Return what `work(communicator)` returns on rank 0; None on the others.

    `progress`: callback of a training; what is complete is returned if another rank is lost.
    """
    secede()
    communicator = DaskCommunicator(fit_id, rank, addresses)
    try:
        result = work(communicator)
        communicator.leave()
    except WorkerLostError as error:
        communicator.end(str(error))
        model = None if progress is None else progress.copy_complete_rounds()
        return InterruptedFit(model, str(error))
    except BaseException as error:
        communicator.end(f"Rank {rank} failed: {error}")
        raise
    return result if rank == 0 else None


def plan_on_rank(
    estimator: PolyleafEstimator,
    rows: Mapping[str, Sequence[object]],
    blocks: RowBlocks,
    mapper: BinMapper,
    init_model: object,
    callbacks: Sequence[Callback],
    has_evaluation: bool,
    *rank: Any,
) -> object:
    """Plan a fit together with the other ranks; `rank`: further arguments of `run_rank`."""
    plan = partial(plan_fit, estimator, rows, blocks, mapper, init_model, callbacks)
    return run_rank(partial(plan, has_evaluation), None, *rank)


def train_on_rank(
    estimator: PolyleafEstimator,
    shared: SharedFit,
    mapper: BinMapper,
    rows: Sequence[BinnedRows],
    shards: Sequence[Shard],
    eval_sets: Sequence[EvalSet],
    callbacks: Sequence[Callback],
    resume_from: Model | None,
    share: Sequence[int],
    *rank: Any,
) -> object:
    """Train on some partitions, together with the other ranks.

    `share`: numbers of these partitions. `rank`: as for `plan_on_rank`.
    """
    progress = ProgressCallback()

    def work(communicator: DaskCommunicator) -> FitResult:
        if communicator.rank == 0:
            progress.put = communicator.put
        n_threads = get_worker().state.nthreads
        parts = [part._replace(binned=None) for part in rows]
        run = fit_rank(
            estimator,
            shared,
            Shard.joined(shards),
            BinnedRows.concatenate(parts).to_dataset(mapper, n_threads),
            Context(n_threads, communicator),
            eval_sets=eval_sets,
            callbacks=[*callbacks, progress],
            resume_from=resume_from,
        )
        sent_bytes = communicator.sent_bytes / max(1, run.model.n_rounds)
        cost = WorkerCosts(
            get_worker().address, share, run.target.n_rows, None, sent_bytes, measure_peak_bytes()
        )
        costs = communicator.allgather_objects(cost)
        return FitResult(run.model, run.evals_log, run.outputs_log, run.learning_rates, costs)

    return run_rank(work, progress, *rank)
