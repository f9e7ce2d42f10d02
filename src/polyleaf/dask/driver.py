"""Client side of a distributed fit: partitions of collections, ranks on workers, and retries."""

from __future__ import annotations

import contextlib
import copy
import itertools
import math
import os
import queue
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass
from functools import partial
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import dask.array as da
import numpy as np
from dask.base import is_dask_collection
from dask.delayed import Delayed
from dask.sizeof import sizeof
from distributed import Client, Future, Worker
from distributed.client import _wait
from scipy.sparse import issparse

from polyleaf.binned_data.binning import BinMapper
from polyleaf.binned_data.partitions import SPARSE_SHARE, find_rare_features, merge_summaries
from polyleaf.dask.communicator import CommunicatorPlugin
from polyleaf.dask.costs import (
    STORED_BYTES,
    FitCosts,
    TreeHistograms,
    WorkerCosts,
    predict_training_bytes,
)
from polyleaf.dask.worker import (
    COPY_SECONDS,
    FitResult,
    InterruptedFit,
    PlannedFit,
    bin_partition,
    calibrate,
    count_binned_rows,
    derive,
    encode_partition,
    fit_initial,
    fit_projection,
    gather_queries,
    get_initial_scores,
    list_destinations,
    make_eval_set,
    plan_on_rank,
    project,
    search,
    summarise,
    summarise_columns,
    train_on_rank,
    transform,
)
from polyleaf.estimators._fitting import has_initial_model
from polyleaf.estimators._persistence import set_input_names
from polyleaf.estimators.base import PolyleafEstimator
from polyleaf.estimators.distributed_fit import InitialFit, RowBlocks
from polyleaf.model import Model
from polyleaf.runtime.capabilities import refuse
from polyleaf.runtime.collective import WorkerLostError
from polyleaf.runtime.row_data import RowData
from polyleaf.runtime.types import DataLike
from polyleaf.runtime.user_warnings import warn_user
from polyleaf.sketching.projections import Projector
from polyleaf.training.auto_rounds import MAX_ROWS
from polyleaf.training.distributed import can_replay
from polyleaf.training.prepare import make_projector
from polyleaf.training.quality import drop_linear
from polyleaf.training.refit import KnownTrees
from polyleaf.user_data.read_target import count_columns

if TYPE_CHECKING:
    from polyleaf.callbacks import Callback
    from polyleaf.estimators.distributed_fit import SharedFit


def is_lazy(X: DataLike) -> bool:
    """Return whether data are a collection of partitions."""
    is_list = isinstance(X, list | tuple) and len(X) > 0 and isinstance(X[0], Delayed | Future)
    return is_dask_collection(X) or is_list


def align(values: Any, X: Any, name: str) -> Any:
    """Return the values with the partitions of X; both are lazy.

    Raises a ValueError if they are another kind of collection, or have other partitions.
    """
    kinds = [_describe_kind(each) for each in (X, values)]
    if kinds[0] != kinds[1]:
        raise ValueError(
            f"X is {kinds[0]}, but {name} is {kinds[1]}: pass the same kind of collection."
        )
    if isinstance(X, da.Array):
        values = _rechunk_rows(values, X.chunks[0])
    _check_same_partitions("X", _count_partitions(X), name, _count_partitions(values))
    return values


def _check_same_partitions(X_name: str, n_expected: int, name: str, n: int) -> None:
    if n != n_expected:
        raise ValueError(
            f"{X_name} has {n_expected} partitions, but {name} has {n}: repartition them alike."
        )


def _describe_kind(values: DataLike) -> str:
    if isinstance(values, da.Array):
        return "a dask Array"
    if is_dask_collection(values) and hasattr(values, "map_partitions"):
        return "a dask DataFrame or Series"
    return "a list of delayed values" if is_lazy(values) else "in memory"


def _count_partitions(values: Any) -> int:
    if isinstance(values, da.Array):
        return int(values.numblocks[0])
    return int(values.npartitions) if hasattr(values, "npartitions") else len(values)


def _rechunk_rows(values: da.Array, chunks: Sequence[int] | None) -> da.Array:
    """Return an array with these chunks of rows, if both are known to have equally many rows."""
    has_lengths = (
        chunks is not None and not np.isnan(chunks).any() and not np.isnan(values.shape[0])
    )
    if has_lengths and values.chunks[0] != chunks and sum(chunks or ()) == values.shape[0]:
        return values.rechunk({0: tuple(chunks or ())})
    return values


@dataclass
class LazyData:
    """X and what else belongs to rows, as passed by the user, and the name of X in messages."""

    X: Any
    rows: RowData
    name: str = "X"

    def submit(self, client: Client, wait_for_workers: float) -> DataFutures:
        """Compute the partitions on the cluster, and drop those without rows."""
        if isinstance(self.X, str | os.PathLike):
            raise ValueError(
                f"{self.name} is a path, {os.fspath(self.X)!r}: read it by "
                "dask.dataframe.read_parquet, and pass the frame of the features."
            )
        X = _split_partitions(self.X, None)
        chunks = self.X.chunks[0] if isinstance(self.X, da.Array) else None
        suffix = "" if self.name == "X" else f" of {self.name}"
        fields = self.rows.to_dict()
        named = [(self.name, X)]
        for attribute, values in fields.items():
            name = {"target": "y", "weight": "weights"}.get(attribute, attribute)
            named.append((f"{name}{suffix}", _split_partitions(values, chunks)))
        for (name, partitions), values in zip(named[1:], fields.values(), strict=True):
            if isinstance(values, str):
                raise ValueError(f"{name} is text, {values!r}: pass the column itself.")
            if len(partitions) != len(X) and is_lazy(values) != is_lazy(self.X):
                kinds = _describe_kind(self.X), _describe_kind(values)
                raise ValueError(
                    f"{self.name} is {kinds[0]}, but {name} is {kinds[1]}: pass collections, or "
                    "nothing but data in memory."
                )
            _check_same_partitions(self.name, len(X), name, len(partitions))
        futures = [_submit_partitions(client, partitions) for _, partitions in named]
        counted = [client.map(_count_rows, part, pure=False) for part in futures]
        _wait_for(client, [count for part in counted for count in part], wait_for_workers)
        lengths = [client.gather(part) for part in counted]
        for (name, _), counts in zip(named, lengths, strict=True):
            for i, (expected, n) in enumerate(zip(lengths[0], counts, strict=True)):
                if n != expected:
                    raise ValueError(
                        f"Partition {i}: {name} has {n} rows, but {self.name} has {expected}."
                    )
        kept = [i for i, n in enumerate(lengths[0]) if n > 0]
        if not kept:
            raise ValueError(f"{self.name} has no rows.")
        X_kept, *others = ([partitions[i] for i in kept] for partitions in futures)
        sizes = [lengths[0][i] for i in kept]
        return DataFutures(X_kept, dict(zip(fields, others, strict=True)), kept, sizes)


class DataFutures(NamedTuple):
    """Futures of the partitions that have rows."""

    X: list[Future]
    # the fields of a `RowData` that the user passed, partition by partition
    rows: dict[str, list[Future]]
    numbers: list[int]  # index of each partition among all partitions
    sizes: list[int]  # number of rows of each partition


def _split_partitions(values: Any, chunks: Sequence[int] | None) -> list[object]:
    """Return delayed partitions of rows; arrays are chunked like X."""
    if isinstance(values, da.Array):
        values = _rechunk_rows(values, chunks)
        if values.ndim > 1:
            values = values.rechunk({axis: -1 for axis in range(1, values.ndim)})
        return list(values.to_delayed().ravel())
    if is_dask_collection(values) and hasattr(values, "simplify"):
        # Only the columns needed are read. Full optimisation would also join files of which few
        # columns are read, so that X and y have different partitions.
        return list(values.simplify().to_delayed(optimize_graph=False))
    if is_dask_collection(values) and hasattr(values, "to_delayed"):
        return list(values.to_delayed())
    return list(values) if is_lazy(values) else [values]


def _submit_partitions(client: Client, partitions: list[object]) -> list[Future]:
    """Return futures of partitions.

    Data in memory are sent as the argument of a task, so that they can be sent again if lost.
    """
    futures = []
    for partition in partitions:
        if isinstance(partition, Future):
            futures.append(partition)
        elif isinstance(partition, Delayed):
            futures.append(client.compute(partition))
        else:
            futures.append(client.submit(_identity, partition, pure=False))
    return futures


def _identity(values: object) -> object:
    return values


def _count_rows(values: Any) -> int:
    shape = getattr(values, "shape", None)
    return int(shape[0]) if shape else len(values)


_POLL_SECONDS = 0.5
_END_SECONDS = 30.0  # for ranks to return what they have after an attempt was ended
# Rows of a rank relative to the mean, above which partitions are moved: all ranks wait for the
# largest in every round, but a partition is moved once.
_MAX_IMBALANCE = 1.05


class LazyEvalSet(NamedTuple):
    """An evaluation set as partitions."""

    name: str
    data: LazyData


class Restart(NamedTuple):
    """A restart after the loss of workers."""

    round: int  # round from which training continued
    lost: tuple[str, ...]  # addresses of the lost workers
    seconds: float  # time from the loss to the start of the next attempt


class WorkersLostError(RuntimeError):
    """Training failed: too many workers were lost, or data that cannot be computed again."""


def fit(
    client: Client,
    estimator: PolyleafEstimator,
    data: LazyData,
    max_restarts: int,
    wait_for_workers: float,
    *,
    eval_sets: Sequence[LazyEvalSet] = (),
    callbacks: Sequence[Callback] = (),
    init_model: object = None,
) -> tuple[FitResult, list[Restart], FitCosts]:
    """Train on the workers of a cluster."""
    # A cluster that scales up from nothing is waited for without limit.
    seconds = wait_for_workers if _list_running(client) else math.inf
    try:
        restarts = _register_plugin(client, max_restarts)
        retries = Retries(client, max_restarts, wait_for_workers, restarts)
        prepared = _prepare(retries, estimator, data, eval_sets, init_model, callbacks, seconds)
        result, costs = _train(retries, prepared, callbacks)
        return result, restarts, costs
    except CancelledError as error:
        if client.status != "running":
            raise
        raise WorkersLostError(
            "Data were lost with a worker and cannot be computed again, since they were put there "
            "with client.scatter. Pass data from files, or data in memory."
        ) from error


def plan_costs(
    client: Client, estimator: PolyleafEstimator, lazy_data: LazyData, wait_for_workers: float
) -> FitCosts:
    """Plan the costs of a fit, which is not trained."""
    retries = Retries(client, 0, wait_for_workers, _register_plugin(client, 0))
    data = lazy_data.submit(client, wait_for_workers)
    planned = _plan(retries, estimator, data, BinMapper(estimator.max_bins), None, (), False)
    return FitCosts(_plan_costs(client, data, planned, make_projector(estimator)), [])


def _register_plugin(client: Client, max_restarts: int) -> list[Restart]:
    """Register the plugin on all workers, again if one is lost meanwhile; return the losses."""
    restarts: list[Restart] = []
    while True:
        before, seen_at = client.nthreads(), time.monotonic()
        try:
            client.register_plugin(CommunicatorPlugin())
            return restarts
        except OSError as error:  # includes CommClosedError and timeouts
            if client.status != "running":
                raise
            after = client.nthreads()
            lost = tuple(address for address in before if address not in after)
            if len(restarts) >= max_restarts:
                raise WorkersLostError(_describe_losses(len(restarts) + 1, lost)) from error
            restarts.append(Restart(0, lost, time.monotonic() - seen_at))
            warn_user(f"Lost {', '.join(lost) or 'a worker'} before the first round.")


def _describe_losses(n: int, lost: Sequence[str]) -> str:
    return (
        f"Workers were lost {n} times, the last time {', '.join(lost) or 'an unknown one'}: more "
        f"often than max_restarts={n - 1} allows. If they ran out of memory, add workers."
    )


def _wait_on(client: Client, futures: Iterable[Future], return_when: str = "ALL_COMPLETED") -> None:
    """Wait for futures of this client, which `distributed.wait` does for the default client only.

    Raises a TimeoutError after `_POLL_SECONDS`.
    """
    client.sync(_wait, list(futures), timeout=_POLL_SECONDS, return_when=return_when)


def _wait_for(client: Client, futures: Sequence[Future], seconds: float) -> None:
    """Wait for futures; raise if there is no worker for some seconds."""
    deadline, is_ready = time.monotonic() + seconds, False
    while not is_ready:
        with contextlib.suppress(TimeoutError):
            _wait_on(client, futures)
            is_ready = True
        if _list_running(client):
            deadline = time.monotonic() + seconds
            continue
        is_ready = False
        if time.monotonic() > deadline:
            raise WorkersLostError(
                f"All workers are lost, and no worker has joined within {seconds} seconds."
            )
        time.sleep(_POLL_SECONDS / 5)


# --- preparation ---------------------------------------------------------------------------------


class PreparedPartitions(NamedTuple):
    """Futures on the workers: one of each kind for every partition that has rows."""

    estimator: PolyleafEstimator  # with the names of the columns of X, if they are projected
    shared: SharedFit
    mappers: list[Future]  # of the model, and of the bins without derived columns
    codes: list[Future]
    sizes: list[int]  # numbers of rows
    shards: list[Future]
    eval_sets: list[Future]
    row_data: dict[str, list[Future]]  # what the user passed, for a fit that is cross-fitted
    X: list[Future]  # the same of features that models of folds project anew
    costs: list[WorkerCosts]


def _prepare(
    retries: Retries,
    estimator: PolyleafEstimator,
    lazy_data: LazyData,
    eval_sets: Sequence[LazyEvalSet],
    init_model: object,
    callbacks: Sequence[Callback],
    wait_for_workers: float,
) -> PreparedPartitions:
    client = retries.client

    def submit(function: Callable[..., object], *arguments: object) -> Future:
        return client.submit(function, *arguments, pure=False)

    def fetch(future: Future) -> Any:
        _wait_for(client, [future], wait_for_workers)
        return future.result()

    projector = make_projector(estimator)
    data = lazy_data.submit(client, wait_for_workers)
    sizes, starts = data.sizes, list(itertools.accumulate(data.sizes, initial=0))[:-1]
    new_mapper = BinMapper(estimator.max_bins, random_state=0)
    fit = estimator, data, new_mapper
    planned_fit = _plan(retries, *fit, init_model, callbacks, bool(eval_sets))
    costs = _plan_costs(client, data, planned_fit, projector)
    shared, planned = planned_fit.shared, submit(_identity, planned_fit)
    initial, initial_scores = None, [None] * len(sizes)
    if has_initial_model(estimator, shared.run.init_model):
        if sum(sizes) > MAX_ROWS:
            refuse("init", "many_dask_rows")
        initial = submit(fit_initial, estimator, data.X, data.rows, init_model, callbacks)
        shared = fetch(submit(InitialFit.add_to_plan, initial, shared))
        initial_scores = [
            submit(get_initial_scores, initial, slice(start, start + n))
            for start, n in zip(starts, sizes, strict=True)
        ]
    model, decay_rate = shared.run.init_model, shared.run.decay_rate
    start = model if model is None or decay_rate is None else KnownTrees(model, decay_rate)
    started = submit(_identity, start)
    partitions = [
        submit(encode_partition, *_get_rows(*fit, [i]), started, planned, initial_scores[i])
        for i in range(len(sizes))
    ]
    X, names = data.X, None
    if projector is not None or (model is not None and model.projection is not None):
        estimator, shared, X = _project(submit, fetch, estimator, shared, data, partitions)
        assert shared.run.projection is not None
        names = shared.run.projection.feature_names
    rare = None  # trees of another model are added by dense codes
    if model is not None:
        mapper = submit(attrgetter("mapper"), model)
    else:
        categorical = estimator.categorical_features
        summaries = [
            submit(summarise, part, i, start, partition, categorical, names)
            for part, i, start, partition in zip(X, data.numbers, starts, partitions, strict=True)
        ]
        mapper = submit(merge_summaries, summaries, new_mapper)
        rare = submit(find_rare_features, summaries)
    fitted_mapper: BinMapper = fetch(mapper)
    n_cells = sum(sizes) * fitted_mapper.n_features_
    shared.run.candidates = drop_linear(shared.run.candidates, n_cells)
    reads_features = shared.run.reads_features
    codes = [submit(bin_partition, part, mapper, reads_features, names, rare) for part in X]
    binned_mapper = mapper
    if fitted_mapper.high_cardinality_features_:
        _check_high_cardinality(fitted_mapper, shared, sum(sizes))
        derived = submit(derive, shared, mapper, codes, partitions)
        mapper, parts = (submit(itemgetter(k), derived) for k in (0, 1))
        codes = [submit(itemgetter(i), parts) for i in range(len(sizes))]
    if "query" in data.rows:  # rows move to the partition where their query begins
        ends = [fetch(submit(list_destinations, partition)) for partition in partitions]
        begins = sorted(set(itertools.chain.from_iterable(ends)))
        sources = {i: [j for j, each in enumerate(ends) if i in each] for i in begins}
        gathered = [
            submit(gather_queries, i, [codes[j] for j in parts], [partitions[j] for j in parts])
            for i, parts in sources.items()
        ]
        codes, shards = ([submit(itemgetter(k), each) for each in gathered] for k in (0, 1))
        sizes = fetch(submit(list, [submit(count_binned_rows, each) for each in codes]))
    else:
        shards = [submit(attrgetter("shard"), partition) for partition in partitions]
    mappers = [mapper, binned_mapper]
    binned_sets = []
    for name, lazy_set in eval_sets:
        evaluated = lazy_set.submit(client, wait_for_workers)
        binned_sets.append(
            submit(make_eval_set, name, evaluated.X, evaluated.rows, mapper, estimator, shared)
        )
    unprojected = data.X if shared.is_cross_fitted and projector is not None else []
    if shared.searches:
        searched = submit(
            search, estimator, shared, mappers, codes, shards, binned_sets, initial, unprojected
        )
        shared = fetch(submit(itemgetter(0), searched))
        if initial is not None:
            shards, binned_sets = (
                [submit(_get_part, searched, k, i) for i in range(len(old))]
                for k, old in ((1, shards), (2, binned_sets))
            )
    prepared = (*codes, *shards, *binned_sets)
    _wait_for(client, prepared, wait_for_workers)
    for future in prepared:
        if future.status == "error":
            future.result()
    row_data = data.rows if shared.is_cross_fitted else {}
    return PreparedPartitions(
        estimator, shared, mappers, codes, sizes, shards, binned_sets, row_data, unprojected, costs
    )


def _project(
    submit: Callable[..., Future],
    fetch: Callable[[Future], Any],
    estimator: PolyleafEstimator,
    shared: SharedFit,
    data: DataFutures,
    partitions: Sequence[Future],
) -> tuple[PolyleafEstimator, SharedFit, list[Future]]:
    """Project the features by a new projection, or the one of the model to continue.

    Returns the estimator with the names of the columns, the plan with the projection, and the
    projected partitions.
    """
    model, projector = shared.run.init_model, make_projector(estimator)
    if model is not None and model.projection is not None:
        estimator, projection = copy.copy(estimator), model.projection
        set_input_names(estimator, model)
    elif projector is not None and projector.is_mergeable:
        parts = zip(data.X, data.numbers, partitions, strict=True)
        summaries = [submit(summarise_columns, estimator, projector, *part) for part in parts]
        seed = shared.run.seeds.projection
        fitted = submit(fit_projection, projector, seed, data.numbers, summaries)
        estimator, projection = fetch(fitted)
    else:
        if sum(data.sizes) > MAX_ROWS:
            refuse("projection", "many_dask_rows")
        projected = submit(project, estimator, shared, data.X, partitions)
        estimator, shared = fetch(submit(itemgetter(0), projected))
        X = [submit(_get_part, projected, 1, i) for i in range(len(data.sizes))]
        return estimator, shared, X
    known, reader = submit(_identity, projection), submit(_identity, estimator)
    shared = shared._replace(run=shared.run.replace(projection=projection))
    return estimator, shared, [submit(transform, X, known, reader) for X in data.X]


def _get_part(parts: Sequence[Sequence[object]], kind: int, i: int) -> object:
    return parts[kind][i]


def _check_high_cardinality(mapper: BinMapper, shared: SharedFit, n_rows: int) -> None:
    """Raise a ValueError if the columns of many categories are not supported."""
    feature, names = mapper.high_cardinality_features_[0], mapper.feature_names_
    column = str(names[feature] if names else feature)
    if n_rows > MAX_ROWS:
        refuse("high_cardinality", "many_dask_rows", column=column)
    if shared.is_cross_fitted and shared.run.init_model is not None:
        raise ValueError(
            f"Column {column} of X has more than 255 categories, whose encoding models of folds "
            "learn anew from raw rows: continue the training on one machine."
        )


def _get_rows(
    estimator: PolyleafEstimator, data: DataFutures, mapper: BinMapper, share: Sequence[int]
) -> tuple[PolyleafEstimator, dict[str, list[Future]], RowBlocks, BinMapper]:
    """Return the arguments of tasks that read the rows of some partitions."""
    rows = {name: [futures[i] for i in share] for name, futures in data.rows.items()}
    return estimator, rows, RowBlocks(data.sizes, share, data.numbers), mapper


def _plan(
    retries: Retries,
    estimator: PolyleafEstimator,
    data: DataFutures,
    mapper: BinMapper,
    init_model: object,
    callbacks: Sequence[Callback],
    has_evaluation: bool,
) -> PlannedFit:
    """Plan the fit on ranks, each of which reads what belongs to the rows of some partitions."""
    needed = [future for futures in data.rows.values() for future in futures]

    def make_rank(rank: int, share: Sequence[int], resume_from: Model | None) -> tuple[Any, ...]:
        rows = _get_rows(estimator, data, mapper, share)
        return (plan_on_rank, *rows, init_model, list(callbacks), has_evaluation)

    return RetryLoop(retries, make_rank, data.rows["target"], data.sizes, needed).run()


class _PartitionSize(NamedTuple):
    n_features: int
    n_dense: int  # features that are not sparse
    n_stored: int  # values of sparse features
    n_bytes: int


def _measure_partition(X: Any) -> _PartitionSize:
    """Return the size of a partition; Sparse columns of data frames count as dense."""
    n_features, n_bytes = count_columns(X), int(sizeof(X))
    if not issparse(X):
        return _PartitionSize(n_features, n_features, 0, n_bytes)
    stored = np.diff(X.tocsc().indptr)
    is_dense = stored > SPARSE_SHARE * X.shape[0]
    n_stored = int(stored[~is_dense].sum())
    return _PartitionSize(n_features, int(is_dense.sum()), n_stored, n_bytes)


def _plan_costs(
    client: Client, data: DataFutures, planned: PlannedFit, projector: Projector | None
) -> list[WorkerCosts]:
    """Return the costs of each worker that trains where X lies."""
    settings, columns = planned.shared.run.settings, planned.columns
    measured = client.gather(client.map(_measure_partition, data.X, pure=False))
    n_features, keeps_sparse = max(size.n_dense for size in measured), True
    if projector is not None or settings.leaf.kind.reads_features:
        n_features, keeps_sparse = measured[0].n_features, False
    if projector is not None:
        n_features = projector.count_features(n_features)
    workers = client.scheduler_info(n_workers=-1)["workers"]
    # A worker that has come since holds partitions, but is not among these.
    memory = {address: worker["metrics"]["memory"] for address, worker in workers.items()}
    shares, costs = _assign_partitions(client, data.X, data.sizes), []
    for address, share in shares.items():
        n_rows, sent_bytes, peak_bytes = sum(data.sizes[i] for i in share), None, None
        n_stored = sum(measured[i].n_stored for i in share) if keeps_sparse else 0
        if columns is not None:
            tree = TreeHistograms.from_settings(n_features, columns, settings)
            if n_stored == 0:
                sent_bytes = columns.trees_per_round * tree.count_sent_bytes(len(shares))
            peak_bytes = memory.get(address, 0) + STORED_BYTES * n_stored
            peak_bytes += predict_training_bytes(n_rows, n_features, columns, settings)
        data_bytes = sum(measured[i].n_bytes for i in share)
        costs.append(WorkerCosts(address, share, n_rows, data_bytes, sent_bytes, peak_bytes))
    return costs


def _train(
    retries: Retries, prepared: PreparedPartitions, callbacks: Sequence[Callback]
) -> tuple[FitResult, FitCosts]:
    estimator, shared, mappers, codes, sizes, shards, eval_sets, row_data, X, planned = prepared

    def make_rank(rank: int, share: Sequence[int], resume_from: Model | None) -> tuple[Any, ...]:
        return (
            train_on_rank,
            estimator,
            shared,
            mappers[0],
            [codes[i] for i in share],
            [shards[i] for i in share],
            eval_sets if rank == 0 else [],
            list(callbacks) if rank == 0 else [],
            resume_from,
            share,
        )

    needed = [*codes, *shards, *eval_sets, *mappers]
    replays = can_replay(shared.run.settings)
    loop = RetryLoop(retries, make_rank, codes, sizes, needed, replays)
    result: FitResult = loop.run()
    costs = FitCosts(planned, result.costs)
    if not shared.calibrates(estimator):
        return result, costs
    parts = (codes, shards) if shared.is_cross_fitted else (codes[:1], shards[:1])
    future = retries.client.submit(
        calibrate, estimator, shared, mappers, *parts, row_data, eval_sets, result, X, pure=False
    )
    _wait_for(retries.client, [future], retries.wait_for_workers)
    return result._replace(model=future.result()), costs


# --- attempts ------------------------------------------------------------------------------------


class Retries(NamedTuple):
    """Treatment of lost workers, and the restarts so far."""

    client: Client
    max_restarts: int
    wait_for_workers: float
    restarts: list[Restart]


@dataclass
class RetryLoop:
    """Attempts at the same work of ranks, until one of them completes."""

    retries: Retries
    # `make_rank(rank, share, resume_from)` returns the function that a rank runs and its arguments
    make_rank: Callable[[int, list[int], Model | None], tuple[Any, ...]]
    parts: list[Future]  # the partitions, which are shared between ranks
    sizes: list[int]  # their numbers of rows
    needed: list[Future]
    replays: bool = False  # whether rounds that are complete need not be trained again
    resume_from: Model | None = None

    @property
    def client(self) -> Client:
        return self.retries.client

    def run(self) -> Any:
        """Run attempts until one completes; return the result of rank 0."""
        _, max_restarts, wait_for_workers, restarts = self.retries
        while True:
            result, lost, seen_at = self._attempt()
            if result is not None:
                return result
            if len(restarts) >= max_restarts:
                raise WorkersLostError(_describe_losses(len(restarts) + 1, lost))
            _wait_for(self.client, self.needed, wait_for_workers)
            n_rounds = 0 if self.resume_from is None else self.resume_from.n_rounds
            restarts.append(Restart(n_rounds, tuple(lost), time.monotonic() - seen_at))
            warn_user(
                f"Lost {', '.join(lost) or 'a worker'}: training continues from round {n_rounds}."
            )

    def _attempt(self) -> tuple[Any, list[str], float]:
        """Run one attempt.

        Returns
        -------
        result : object
            None if workers were lost.
        lost : list of str
            The lost workers.
        seen_at : float
            When the loss was noticed.
        """
        shares = _assign_partitions(self.client, self.parts, self.sizes)
        addresses = list(shares)
        fit_id, seen_at = uuid.uuid4().hex, time.monotonic()
        ranks = {
            address: self.client.submit(
                *self.make_rank(rank, shares[address], self.resume_from),
                fit_id,
                rank,
                addresses,
                workers=[address],
                allow_other_workers=False,
                pure=False,
                retries=0,
                key=f"polyleaf-rank-{rank}-{fit_id}",
            )
            for rank, address in enumerate(addresses)
        }
        try:
            result, lost = self._wait_for_ranks(fit_id, ranks)
            seen_at = time.monotonic()
            if result is None:
                self._recover_rounds(ranks, self._end(fit_id, addresses))
            return result, lost, seen_at
        except BaseException:
            self._end(fit_id, addresses)
            raise
        finally:
            self.client.cancel(list(ranks.values()), force=True)

    def _wait_for_ranks(self, fit_id: str, ranks: dict[str, Future]) -> tuple[Any, list[str]]:
        """Wait for all ranks; return the result of rank 0, or None and the lost workers."""
        waiting, result, fetched_at = dict(ranks), None, time.monotonic()
        was_interrupted = False
        while waiting:
            if time.monotonic() > fetched_at + COPY_SECONDS:
                self._update_model(self._run_on(_fetch_copy, fit_id, [*ranks][:1]).values())
                fetched_at = time.monotonic()
            with contextlib.suppress(TimeoutError):
                _wait_on(self.client, waiting.values(), "FIRST_COMPLETED")
            lost = self._find_lost(ranks)
            if lost:
                return None, lost
            for address, rank in list(waiting.items()):
                if rank.status == "pending":
                    continue
                if rank.status == "error" and not isinstance(rank.exception(), WorkerLostError):
                    rank.result()
                returned = self._get_result(rank, address)
                if rank.status != "finished":
                    return None, self._find_lost(ranks)
                # The rank that has failed raises its error, even if others end before it.
                if isinstance(returned, InterruptedFit):
                    was_interrupted = True
                elif returned is not None:
                    result = returned
                del waiting[address]
        return None if was_interrupted else result, []

    def _find_lost(self, addresses: Iterable[str]) -> list[str]:
        """Return the addresses of workers that have gone."""
        alive = self.client.nthreads()
        return [address for address in addresses if address not in alive]

    def _get_result(self, rank: Future, address: str) -> object:
        """Return the result of a rank, or None if its worker is lost before it was fetched.

        The scheduler would compute it again on a worker that has gone, so `result()` might not
        return.
        """
        if rank.status != "finished":
            return None
        return self._wait_for_answer(_call_in_thread(rank.result), address)

    def _run_on(
        self, function: Callable[..., object], fit_id: str, addresses: Sequence[str]
    ) -> dict[str, object]:
        """Run a function on the event loops of workers; the result is None for lost ones.

        Connecting to a worker that has gone takes half a minute to fail.
        """
        run = partial(self.client.run, function, fit_id, on_error="ignore")
        lost = self._find_lost(addresses)
        answers = {
            a: _call_in_thread(partial(run, workers=[a])) for a in addresses if a not in lost
        }
        return {
            address: (self._wait_for_answer(answer, address) or {}).get(address)
            for address, answer in answers.items()
        }

    def _wait_for_answer(self, answer: queue.SimpleQueue[Any], address: str) -> Any:
        """Wait for the answer of a worker; None if it is lost."""
        while True:
            with contextlib.suppress(queue.Empty):
                return answer.get(timeout=_POLL_SECONDS)
            if self._find_lost([address]):
                return None

    def _end(self, fit_id: str, addresses: Sequence[str]) -> list[str]:
        """End the ranks that wait for others; return the addresses of those that had started."""
        started = self._run_on(_end_attempt, fit_id, addresses)
        return [address for address, has_started in started.items() if has_started]

    def _recover_rounds(self, ranks: dict[str, Future], started: Sequence[str]) -> None:
        """Take the complete rounds of the rank that has most of them."""
        deadline = time.monotonic() + _END_SECONDS
        for address in started:
            rank = ranks[address]
            while (
                rank.status == "pending"
                and not self._find_lost([address])
                and time.monotonic() < deadline
            ):
                time.sleep(0.02)
            returned = self._get_result(rank, address)
            if isinstance(returned, InterruptedFit):
                self._update_model([returned.model])

    def _update_model(self, models: Iterable[object]) -> None:
        """Resume from a model that has more rounds than the one so far."""
        for model in models:
            if not isinstance(model, Model) or not self.replays:
                continue
            if self.resume_from is None or model.n_rounds > self.resume_from.n_rounds:
                self.resume_from = model


def _assign_partitions(
    client: Client, parts: list[Future], sizes: Sequence[int]
) -> dict[str, list[int]]:
    """Assign partitions to ranks: to the workers that hold them, unless these have too many rows.

    `sizes`: numbers of rows.
    """
    holders = client.who_has(parts)
    shares: dict[str, list[int]] = {address: [] for address in _list_running(client)}
    if not shares:
        return {}
    rows = dict.fromkeys(shares, 0)
    limit = _MAX_IMBALANCE * sum(sizes) / len(shares)
    for i in sorted(range(len(parts)), key=lambda i: -sizes[i]):  # the largest first
        local = [a for a in holders[parts[i].key] if a in rows and rows[a] + sizes[i] <= limit]
        address = min(local or rows, key=lambda address: rows[address])
        shares[address].append(i)
        rows[address] += sizes[i]
    return {address: sorted(share) for address, share in shares.items() if share}


def _list_running(client: Client) -> list[str]:
    """Return the workers that start tasks, in order: not those that are paused or closing."""
    workers = client.scheduler_info(n_workers=-1)["workers"]
    return sorted(address for address, info in workers.items() if info["status"] == "running")


def _call_in_thread(function: Callable[[], object]) -> queue.SimpleQueue[object]:
    """Call a function in a thread; return the queue that receives its result, None on errors."""
    answer: queue.SimpleQueue[object] = queue.SimpleQueue()

    def call() -> None:
        try:
            answer.put(function())
        except BaseException:  # it was cancelled, or the client was closed
            answer.put(None)

    threading.Thread(target=call, daemon=True).start()
    return answer


def _fetch_copy(fit_id: str, dask_worker: Worker) -> object:
    """Return the latest copy of the model, if there is a newer one."""
    plugin = dask_worker.plugins.get(CommunicatorPlugin.name)
    return None if plugin is None else plugin.get(fit_id)


def _end_attempt(fit_id: str, dask_worker: Worker) -> bool:
    """End an attempt on a worker; return whether a rank had started there."""
    plugin = dask_worker.plugins.get(CommunicatorPlugin.name)  # None on a closing worker
    return plugin is not None and bool(plugin.end(fit_id, "The client has ended this attempt."))
