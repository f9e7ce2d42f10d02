"""What runs on workers: the pieces of a fit before it begins, and a rank of it.

Owns: the functions that the client submits. Must not know: where they run, what is done when one fails.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from distributed import get_worker, secede

from polyleaf.callbacks import Callback, EvalsLog, OutputsLog
from polyleaf.dask.communicator import DaskCommunicator
from polyleaf.data.binning import BinMapper, quantise_weights
from polyleaf.data.data_iter import concatenate_values
from polyleaf.data.dataset import Dataset
from polyleaf.data.partitions import PartitionSummary, summarise_partition
from polyleaf.estimators.base import PolyleafEstimator
from polyleaf.estimators.distributed_fit import (
    Shard,
    SharedFit,
    find_shared_n_estimators,
    fit_rank,
    plan_shared_fit,
)
from polyleaf.inputs.features import read_features
from polyleaf.inputs.targets import TargetEncoding, encode_evaluation_target
from polyleaf.model import Model
from polyleaf.runtime.collective import WorkerLostError
from polyleaf.runtime.context import Context
from polyleaf.training.evaluation import EvalSet

__all__ = [
    "SECONDS_BETWEEN_COPIES",
    "Binned",
    "Fitted",
    "Interrupted",
    "Piece",
    "codes_of",
    "eval_set_of",
    "find_rounds",
    "look_at",
    "plan",
    "run_rank",
    "take",
]

SECONDS_BETWEEN_COPIES = 5.0  # of the model, which survive the loss of all workers


class Piece(NamedTuple):
    """What is known of one partition once all targets have been seen.

    Attributes
    ----------
    shard : Shard
    weights : ndarray of int64, or None
        For bins: see `quantise_weights`.
    wanted : ndarray of int64, or None
        The rows that thresholds are chosen from; None: all.
    """

    shard: Shard
    weights: np.ndarray | None
    wanted: np.ndarray | None


class Binned(NamedTuple):
    """Rows as training reads them.

    Attributes
    ----------
    codes : ndarray of uint8, shape (n_columns, n_rows)
    features : ndarray of float32, shape (n_columns, n_rows), or None
        For linear leaves.
    """

    codes: np.ndarray
    features: np.ndarray | None

    @staticmethod
    def joined(parts: Sequence[Binned]) -> Binned:
        """Those of all parts, part after part."""
        features = [part.features for part in parts if part.features is not None]
        codes = np.concatenate([part.codes for part in parts], axis=1)
        return Binned(codes, np.concatenate(features, axis=1) if features else None)


class Planned(NamedTuple):
    """What all targets, weights and offsets say.

    Attributes
    ----------
    shared : SharedFit
    pieces : list of Piece
        Of the partitions.
    sample_weights : ndarray of int64, or None
        Of all rows that thresholds are chosen from.
    """

    shared: SharedFit
    pieces: list[Piece]
    sample_weights: np.ndarray | None


class Fitted(NamedTuple):
    """What rank 0 has when training has ended."""

    model: Model
    evals_log: EvalsLog
    outputs_log: OutputsLog


class Interrupted(NamedTuple):
    """What a rank has when another is lost: the rounds that were complete, None where there was none yet."""

    model: Model | None
    why: str


def plan(
    estimator: PolyleafEstimator,
    y: Sequence[Any],
    sample_weight: Sequence[Any] | None,
    offset: Sequence[Any] | None,
    init_model: Any,
    is_watched: bool,
    fresh: BinMapper,
    sizes: Sequence[int],
) -> Planned:
    """See all targets, weights and offsets at once."""
    weight = None if sample_weight is None else concatenate_values(sample_weight, "sample_weight")
    start = None if offset is None else concatenate_values(offset, "offset")
    values = concatenate_values(y, "y")
    shared, whole = plan_shared_fit(
        estimator, values, weight, init_model, start, is_watched=is_watched
    )
    weights = whole.target.weight
    weights = None if weights is None else quantise_weights(weights, whole.target.n_rows)
    chosen = fresh.sample_rows(whole.target.n_rows, weights)
    pieces, first = [], 0
    for size in sizes:
        rows = np.arange(first, first + size)
        wanted = (
            None if chosen is None else chosen[(chosen >= first) & (chosen < first + size)] - first
        )
        pieces.append(Piece(whole.take(rows), None if weights is None else weights[rows], wanted))
        first += size
    return Planned(
        shared, pieces, weights if weights is None or chosen is None else weights[chosen]
    )


def take(planned: Planned, i: int) -> Piece:
    """What is known of partition i."""
    return planned.pieces[i]


def look_at(
    X: Any, number: int, first: int, piece: Piece, categorical_features: Any
) -> PartitionSummary:
    """What bins depend on, in one partition."""
    return summarise_partition(X, number, first, piece.weights, piece.wanted, categorical_features)


def codes_of(X: Any, mapper: BinMapper, keep_features: bool) -> Binned:
    """One partition, binned."""
    table = read_features(X, reference=mapper)
    return Binned(
        mapper.transform(table, 1), mapper.get_raw_values(table) if keep_features else None
    )


def find_rounds(
    estimator: PolyleafEstimator,
    shared: SharedFit,
    mapper: BinMapper,
    parts: Sequence[Binned],
    pieces: Sequence[Piece],
) -> SharedFit:
    """The fit with the rounds that all partitions, which are small, ask for together."""
    n_threads = get_worker().state.nthreads
    dataset = Dataset.from_codes(mapper, *Binned.joined(parts), n_jobs=n_threads)
    shard = Shard.joined([piece.shard for piece in pieces])
    return find_shared_n_estimators(copy.copy(estimator), shared, shard, dataset, n_threads)


def eval_set_of(
    name: str,
    X: Sequence[Any],
    y: Sequence[Any],
    weight: Sequence[Any] | None,
    offset: Sequence[Any] | None,
    mapper: BinMapper,
    shared: SharedFit,
    encoding: TargetEncoding,
) -> EvalSet:
    """Evaluation data, whole, in the place that it is scored in."""
    rows = Binned.joined([codes_of(part, mapper, shared.reads_features) for part in X])
    weights = None if weight is None else concatenate_values(weight, "eval_sample_weight")
    is_sparse = shared.plan.settings.has_sparse_targets
    whole = concatenate_values(y, "y")
    target = encode_evaluation_target(
        whole, weights, name=f"y of {name!r}", like=encoding, is_sparse=is_sparse
    )
    start = None
    if offset is not None:
        reader = PolyleafEstimator._offset_reader(encoding, shared.plan.objective)
        start = reader.read(
            concatenate_values(offset, "offset"), target.n_rows, f"offset of {name!r}"
        )
    return EvalSet(
        name, rows.codes, target.values, target.weight, shared.plan.metrics, rows.features, start
    )


class _Keeper(Callback):
    """Knows the model, and how many of its rounds are complete; puts copies where the client finds them."""

    model: Model | None = None
    n_rounds = 0

    def __init__(self, put: Callable[[Model], None] | None) -> None:
        self._put, self._last = put, time.monotonic()

    def before_training(self, model: Model) -> None:
        self.model, self.n_rounds = model, model.n_rounds

    def after_iteration(self, model: Model, epoch: int, evals_log: EvalsLog) -> bool:
        self.n_rounds = epoch + 1
        if self._put is not None and time.monotonic() >= self._last + SECONDS_BETWEEN_COPIES:
            self._put(model.copy())
            self._last = time.monotonic()
        return False

    def complete(self) -> Model | None:
        """The model so far; None before the first round."""
        if self.model is None or self.n_rounds == 0:
            return None
        model = self.model.copy()
        model.truncate(self.n_rounds)
        return model


def run_rank(
    estimator: PolyleafEstimator,
    shared: SharedFit,
    mapper: BinMapper,
    parts: Sequence[Binned],
    pieces: Sequence[Piece],
    eval_sets: Sequence[EvalSet],
    callbacks: Sequence[Any],
    known: Model | None,
    fit: str,
    rank: int,
    addresses: Sequence[str],
) -> Fitted | Interrupted | None:
    """Train on some partitions, together with the other ranks."""
    secede()
    communicator = DaskCommunicator(fit, rank, addresses)
    keeper = _Keeper(communicator.put if rank == 0 else None)
    n_threads = get_worker().state.nthreads
    dataset = Dataset.from_codes(mapper, *Binned.joined(parts), n_jobs=n_threads)
    shard = Shard.joined([piece.shard for piece in pieces])
    own = copy.copy(estimator)
    try:
        fit_rank(
            own,
            shared,
            shard,
            dataset,
            Context(n_threads, communicator),
            eval_sets=eval_sets,
            callbacks=[*callbacks, keeper],
            known=known,
        )
        communicator.leave()
    except WorkerLostError as error:
        communicator.end(str(error))
        return Interrupted(keeper.complete(), str(error))
    except BaseException as error:
        communicator.end(f"Rank {rank} failed: {error}")
        raise
    if rank > 0:
        return None
    by_output = {
        name: {metric: list(values) for metric, values in metrics.items()}
        for name, metrics in own.evals_result_per_output_.items()
    }
    return Fitted(own.model_, own.evals_result_, by_output)
