"""Tasks that run on workers: preparation of partitions, and the ranks of a fit."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from distributed import get_worker, secede

from polyleaf.binned_data.binning import BinMapper
from polyleaf.binned_data.data_iter import concatenate_rows
from polyleaf.binned_data.dataset import Dataset
from polyleaf.binned_data.partitions import PartitionSummary, summarise_partition
from polyleaf.callbacks import Callback
from polyleaf.dask.communicator import DaskCommunicator
from polyleaf.estimators.base import PolyleafEstimator
from polyleaf.estimators.distributed_fit import (
    Shard,
    SharedFit,
    find_shared_n_estimators,
    fit_rank,
    plan_shared_fit,
)
from polyleaf.metrics.metric import EvalsLog, OutputsLog
from polyleaf.model import Model
from polyleaf.runtime.collective import WorkerLostError
from polyleaf.runtime.context import Context
from polyleaf.runtime.types import DataLike
from polyleaf.training.evaluation import EvalSet, name_eval_set
from polyleaf.user_data.features import read_features
from polyleaf.user_data.queries import read_queries
from polyleaf.user_data.target import TargetEncoding, encode_evaluation_target
from polyleaf.user_data.weights import quantise_weights

COPY_SECONDS = 5.0  # between copies of the model, which survive the loss of all workers


class Partition(NamedTuple):
    """Targets and weights of a partition, after those of all rows have been read."""

    shard: Shard  # targets of the rows that it has in training
    weights: np.ndarray | None  # weights for binning, as `quantise_weights` returns them
    sampled: np.ndarray | None  # rows that thresholds are chosen from; None means all


class RowSources(NamedTuple):
    """The rows that a partition has in training: in a ranking, of the queries that begin in it."""

    rows: np.ndarray  # indices among all rows, ascending
    parts: dict[int, np.ndarray]  # partitions that they come from, and their indices there


class BinnedRows(NamedTuple):
    """Rows as training reads them."""

    codes: np.ndarray  # (n_columns, n_rows)
    features: np.ndarray | None  # (n_columns, n_rows), raw features, for linear leaves

    def take(self, rows: np.ndarray) -> BinnedRows:
        """Return some rows."""
        features = None if self.features is None else self.features.take(rows, axis=1)
        return BinnedRows(self.codes.take(rows, axis=1), features)

    @staticmethod
    def concatenate(parts: Sequence[BinnedRows]) -> BinnedRows:
        """Concatenate the rows of partitions."""
        features = [part.features for part in parts if part.features is not None]
        codes = np.concatenate([part.codes for part in parts], axis=1)
        return BinnedRows(codes, np.concatenate(features, axis=1) if features else None)


class PlannedFit(NamedTuple):
    """State of a fit that depends on all targets, weights and offsets."""

    shared: SharedFit
    partitions: list[Partition]
    row_sources: list[RowSources] | None  # rows of each partition in a ranking
    sample_weights: np.ndarray | None  # weights of all rows that thresholds are chosen from


class FitResult(NamedTuple):
    """Result of rank 0."""

    model: Model
    evals_log: EvalsLog
    outputs_log: OutputsLog


class InterruptedFit(NamedTuple):
    """Result of a rank when another was lost: the complete rounds, or None before the first."""

    model: Model | None
    reason: str


def plan_fit(
    estimator: PolyleafEstimator,
    rows: Mapping[str, Sequence[object]],
    init_model: object,
    callbacks: Sequence[Callback],
    mapper: BinMapper,
    sizes: Sequence[int],
) -> PlannedFit:
    """Read what belongs to all rows at once."""
    shared, shard = plan_shared_fit(estimator, concatenate_rows(rows), init_model, callbacks)
    weights = shard.target.weight
    weights = None if weights is None else quantise_weights(weights, shard.target.n_rows)
    chosen = mapper.sample_rows(shard.target.n_rows, weights)
    row_sources = _gather_queries(shard.target.rows.query, sizes)
    partitions, first = [], 0
    for number, size in enumerate(sizes):
        indices = np.arange(first, first + size)
        rows_here = indices if row_sources is None else row_sources[number].rows
        sampled = (
            None if chosen is None else chosen[(chosen >= first) & (chosen < first + size)] - first
        )
        partition_weights = None if weights is None else weights[indices]
        partitions.append(Partition(shard.take(rows_here), partition_weights, sampled))
        first += size
    sample_weights = weights if weights is None or chosen is None else weights[chosen]
    return PlannedFit(shared, partitions, row_sources, sample_weights)


def _gather_queries(query: np.ndarray | None, sizes: Sequence[int]) -> list[RowSources] | None:
    """Return the rows of each partition such that no query is in two: each is where it begins."""
    if query is None:
        return None
    partition_of_row = np.repeat(np.arange(len(sizes)), sizes)
    starts = np.cumsum([0, *sizes])
    first = np.full(int(query.max()) + 1, len(sizes))
    np.minimum.at(first, query, partition_of_row)
    row_sources = []
    for number in range(len(sizes)):
        rows = np.flatnonzero(first[query] == number)
        of_rows = partition_of_row[rows]
        parts = {int(j): rows[of_rows == j] - starts[j] for j in np.unique(of_rows)}
        row_sources.append(RowSources(rows, parts))
    return row_sources


def list_sources(planned: PlannedFit) -> list[list[int]]:
    """Return the partitions that the rows of each partition come from, in a ranking."""
    assert planned.row_sources is not None
    return [list(sources.parts) for sources in planned.row_sources]


def gather_rows(planned: PlannedFit, i: int, parts: Sequence[BinnedRows]) -> BinnedRows:
    """Return the rows of partition i, from the partitions that `list_sources` names."""
    assert planned.row_sources is not None
    chosen = zip(parts, planned.row_sources[i].parts.values(), strict=True)
    return BinnedRows.concatenate([part.take(rows) for part, rows in chosen])


def get_partition(planned: PlannedFit, i: int) -> Partition:
    """Return partition i."""
    return planned.partitions[i]


def summarise(
    X: DataLike, number: int, first: int, partition: Partition, categorical_features: DataLike
) -> PartitionSummary:
    """Summarise the features of a partition for binning."""
    return summarise_partition(
        X, number, first, partition.weights, partition.sampled, categorical_features
    )


def bin_partition(X: DataLike, mapper: BinMapper, keep_features: bool) -> BinnedRows:
    """Bin the rows of a partition."""
    table = read_features(X, reference=mapper)
    features = mapper.get_raw_values(table) if keep_features else None
    return BinnedRows(mapper.transform(table, 1), features)


def find_n_estimators(
    estimator: PolyleafEstimator,
    shared: SharedFit,
    mapper: BinMapper,
    rows: Sequence[BinnedRows],
    partitions: Sequence[Partition],
) -> SharedFit:
    """Choose n_estimators automatically, on the rows of all partitions."""
    n_threads = get_worker().state.nthreads
    dataset = Dataset.from_codes(mapper, *BinnedRows.concatenate(rows), n_jobs=n_threads)
    shard = Shard.joined([partition.shard for partition in partitions])
    return find_shared_n_estimators(estimator, shared, shard, dataset, n_threads)


def make_eval_set(
    name: str,
    X: Sequence[Any],
    rows: Mapping[str, Sequence[object]],
    mapper: BinMapper,
    shared: SharedFit,
    encoding: TargetEncoding,
) -> EvalSet:
    """Make an evaluation set of all its partitions, on the worker that evaluates it."""
    with name_eval_set(name):
        codes, features = BinnedRows.concatenate(
            [bin_partition(part, mapper, shared.run.reads_features) for part in X]
        )
        row_data, is_sparse = concatenate_rows(rows), shared.run.settings.has_sparse_targets
        if row_data.query is not None:
            row_data = read_queries(row_data, codes.shape[1])
        target = encode_evaluation_target(
            row_data, name=f"y of {name!r}", like=encoding, is_sparse=is_sparse
        )
        offset = row_data.offset
        if offset is not None:
            reader = PolyleafEstimator._offset_reader(encoding, shared.run.objective)
            offset = reader.read(offset, target.n_rows, f"offset of {name!r}")
        evaluated = target.rows.replace(offset=offset)
        return EvalSet(name, codes, evaluated, shared.run.metrics, features)


class ProgressCallback(Callback):
    """Counts complete rounds, and regularly stores copies of the model for the client."""

    model: Model | None = None
    n_rounds = 0

    def __init__(self, put: Callable[[Model], None] | None) -> None:
        self._put, self._stored_at = put, time.monotonic()

    def before_training(self, model: Model) -> None:
        self.model, self.n_rounds = model, model.n_rounds

    def after_iteration(self, model: Model, epoch: int, evals_log: EvalsLog) -> bool:
        self.n_rounds = epoch + 1
        if self._put is not None and time.monotonic() >= self._stored_at + COPY_SECONDS:
            self._put(model.copy())
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
    estimator: PolyleafEstimator,
    shared: SharedFit,
    mapper: BinMapper,
    rows: Sequence[BinnedRows],
    partitions: Sequence[Partition],
    eval_sets: Sequence[EvalSet],
    callbacks: Sequence[Callback],
    resume_from: Model | None,
    fit_id: str,
    rank: int,
    addresses: Sequence[str],
) -> FitResult | InterruptedFit | None:
    """Train on some partitions, together with the other ranks."""
    secede()
    communicator = DaskCommunicator(fit_id, rank, addresses)
    progress = ProgressCallback(communicator.put if rank == 0 else None)
    n_threads = get_worker().state.nthreads
    dataset = Dataset.from_codes(mapper, *BinnedRows.concatenate(rows), n_jobs=n_threads)
    shard = Shard.joined([partition.shard for partition in partitions])
    try:
        run = fit_rank(
            estimator,
            shared,
            shard,
            dataset,
            Context(n_threads, communicator),
            eval_sets=eval_sets,
            callbacks=[*callbacks, progress],
            resume_from=resume_from,
        )
        communicator.leave()
    except WorkerLostError as error:
        communicator.end(str(error))
        return InterruptedFit(progress.copy_complete_rounds(), str(error))
    except BaseException as error:
        communicator.end(f"Rank {rank} failed: {error}")
        raise
    return FitResult(run.model, run.evals_log, run.outputs_log) if rank == 0 else None
