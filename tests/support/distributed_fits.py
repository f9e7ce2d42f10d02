"""Distributed fits with threads as ranks."""

import copy

import numpy as np

from polyleaf import Dataset, PolyleafMultiTask, RowData
from polyleaf.estimators._fitting import store_result
from polyleaf.estimators.distributed_fit import (
    RowBlocks,
    Shard,
    calibrate_on_one_rank,
    fit_rank,
    gather_run,
    plan_shared_fit,
    read_shard,
    search_on_one_rank,
)
from polyleaf.runtime.collective import (
    RecordingCommunicator,
    ReplayingCommunicator,
    ThreadCommunicator,
)
from polyleaf.runtime.context import Context
from polyleaf.training.evaluation import EvalSet
from polyleaf.training.training_run import TrainingData
from polyleaf.user_data.features import read_features
from polyleaf.user_data.target import encode_evaluation_target


def cuts(n_rows, size, seed):
    """Return the rows of each rank, ascending, with random cuts; with many ranks some have none."""
    rank = np.random.default_rng(seed).integers(0, size, n_rows)
    if size >= 3:
        rank[rank == 1] = 2
    return [np.flatnonzero(rank == r) for r in range(size)]


def plan_on_threads(estimator, row_data, init_model, size, seed, has_evaluation=False):
    """Return the plan of ranks with some rows each, and the shard of all rows.

    Each rank has several partitions, which do not follow each other, and encodes them one by one.
    """
    y = row_data.target
    n_rows = y.shape[0] if hasattr(y, "shape") else len(y)
    size = 1 if isinstance(estimator, PolyleafMultiTask) else min(size, n_rows)
    rng = np.random.default_rng(seed)
    n_partitions = min(3 * size, n_rows)
    ends = np.sort(rng.choice(np.arange(1, n_rows), n_partitions - 1, replace=False))
    partitions = np.split(np.arange(n_rows), ends)
    sizes = [len(rows) for rows in partitions]
    owned = [np.flatnonzero(np.arange(n_partitions) % size == r).tolist() for r in range(size)]

    def plan(communicator):
        mine = owned[communicator.rank]
        rows = row_data.take(np.concatenate([partitions[i] for i in mine]))
        recorder = RecordingCommunicator(communicator)
        run, _ = read_shard(estimator, rows, init_model, (), recorder, RowBlocks(sizes, mine))
        workers = Context(1, communicator)
        return plan_shared_fit(estimator, run, (), workers, has_evaluation), recorder.results

    if size == 1:
        run, shard = read_shard(estimator, row_data, init_model)
        return plan_shared_fit(estimator, run, (), Context(1), has_evaluation), shard
    shared, results = ThreadCommunicator.run(size, plan, timeout=120)[0]
    shards = []
    for i, rows in enumerate(partitions):
        ranks, blocks = ReplayingCommunicator(results), RowBlocks(sizes, [i])
        shards.append(read_shard(estimator, row_data.take(rows), init_model, (), ranks, blocks)[1])
    return shared, Shard.joined(shards)


def fit_on_threads(
    estimator,
    X,
    y,
    size,
    sample_weight=None,
    eval_set=None,
    seed=0,
    rows=None,
    resume_from=None,
    wrap=None,
    offset=None,
    init_model=None,
    qid=None,
    positions=None,
):
    """Return the fitted estimators of all ranks; the rows of a query, if any, are on one rank."""
    row_data = RowData(y, sample_weight, offset, query=qid, positions=positions)
    shared, shard = plan_on_threads(estimator, row_data, init_model, size, seed, bool(eval_set))
    start, target = shared.run.init_model, shard.target
    mapper = None if start is None else start.mapper
    dataset = X
    if not isinstance(X, Dataset):
        table = read_features(X, reference=mapper)
        dataset = Dataset(
            table,
            sample_weight=target.weight,
            max_bins=estimator.max_bins,
            reference=mapper,
            keep_features=shared.run.reads_features,
            n_jobs=1,
        )
    if qid is not None:
        query = target.rows.query
        rank = np.random.default_rng(seed).integers(0, size, query.max() + 1)[query]
        rows = [np.flatnonzero(rank == r) for r in range(size)]
    if shared.auto_rounds_metric is None and shared.searches:
        whole = gather_run(estimator, shared, shard, dataset, dataset, 1)
        shared = search_on_one_rank(shared, whole)
    rows = cuts(dataset.n_rows, size, seed) if rows is None else rows
    sets = []
    for name, (X_val, y_val, *start) in (eval_set or {}).items():
        is_sparse = shared.run.settings.has_sparse_targets
        found = encode_evaluation_target(
            RowData(y_val), name=name, like=target.encoding, is_sparse=is_sparse
        )
        table = read_features(X_val, reference=dataset.mapper)
        codes = dataset.mapper.transform(table, 1)
        features = dataset.mapper.get_raw_values(table) if shared.run.reads_features else None
        reader = estimator._offset_reader(target.encoding, shared.run.objective)
        offsets = reader.read(*start) if start else None
        metrics = shared.run.metrics
        evaluated = found.rows.replace(offset=offsets)
        sets.append(EvalSet(name, codes, evaluated, metrics, features))

    def work(communicator):
        communicator = communicator if wrap is None else wrap(communicator)
        mine = rows[communicator.rank]
        watched = sets if communicator.rank == 0 else []
        data = shard.take(mine), dataset.rows(mine)
        workers = Context(1, communicator)
        run = fit_rank(
            estimator, shared, *data, workers, eval_sets=watched, resume_from=resume_from
        )
        if shared.calibrates(estimator):
            whole = gather_run(estimator, shared, shard, dataset, dataset, 1).replace(
                model=run.model,
                learning_rates=run.learning_rates,
                eval_sets=run.eval_sets,
                data=TrainingData("training", None, row_data),
            )
            run.model = calibrate_on_one_rank(estimator, whole)
        fitted = copy.copy(estimator)
        store_result(fitted, run.model, run.target.encoding, run.evals_log, run.outputs_log)
        return fitted

    return ThreadCommunicator.run(size, work, timeout=120)
