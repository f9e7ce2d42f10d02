"""Benchmark of distributed training.

Measures the processor time of ranks compared with one process, projects the time on many machines,
and compares with other libraries on the same cluster.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from polyleaf import Dataset, PolyleafRegressor
from polyleaf.callbacks import Callback
from polyleaf.runtime.collective import Communicator

from . import memory
from .harness.context import Context, Unavailable, require_module
from .harness.paper import Figures, Paper, Subject, Table

ROUNDS, MAX_DEPTH, PARTS = 6, 6, 8
IDLE_SECONDS = 4.0  # observation time of idle workers
SHAPE = {
    "max_depth": MAX_DEPTH,
    "max_leaves": None,
    "grow_policy": "depthwise",
    "random_state": 0,
    "n_jobs": 1,
}
Shape = tuple[int, int, int]  # rows, features, outputs


def part(
    number: int, n_rows: int, n_features: int, n_outputs: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows of a part, identical for the same number in every process."""
    rng = np.random.default_rng(number)
    X = rng.random((n_rows, n_features), np.float32)
    Y = [np.sin(6 * X[:, k % 8]) * X[:, (k + 3) % 8] + 0.1 * X[:, -1] for k in range(n_outputs)]
    return X, Y[0] if n_outputs == 1 else np.stack(Y, axis=1)


# --- clocks ---


def processor_seconds(pid: int) -> float:
    """Return the processor seconds of a process over all threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def peak_mb(pid: int) -> float:
    """Return the peak memory of a process in MB."""
    return memory.peak(pid) / 2**20


class Clock(Callback):
    """Callback that writes the mean time per round to a file, without the first round."""

    def __init__(self, pids: Sequence[int], path: str):
        self.pids, self.path = list(pids), path

    def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        now = [time.monotonic(), *map(processor_seconds, self.pids)]
        if epoch == 0:
            self.first = now
        spent = [(b - a) / max(1, epoch) for a, b in zip(self.first, now, strict=True)]
        Path(self.path).write_text(json.dumps({"wall": spent[0], "tree": sum(spent[1:])}))
        return False


@contextmanager
def _cluster(n_workers: int) -> Iterator[tuple[Any, list[int]]]:
    """Start a client of `n_workers` single-threaded processes, and return their process ids."""
    from distributed import Client, LocalCluster

    about: dict[str, Any] = {"threads_per_worker": 1, "dashboard_address": None, "memory_limit": 0}
    with LocalCluster(n_workers=n_workers, **about) as cluster, Client(cluster) as client:
        client.wait_for_workers(n_workers, timeout=120)
        yield client, list(client.run(os.getpid).values())


# --- two ranks compared with one process ---

SIZES: dict[str, Shape] = {
    "2,000,000 x 100, 16 outputs": (2_000_000, 100, 16),
    "4,000,000 x 28, 1 output": (4_000_000, 28, 1),
}


def ranks(context: Context, method: str, problem: str) -> Figures:
    """Measure the processor seconds of a tree on one process and on two ranks.

    Figures: `alone` for one process, `apart` for two processes with half the rows each, `two` for
    two ranks, `idle` for two idle workers in the same time, `ratio` without the idle time,
    `peak_alone` and `peak_rank` in MB, and `same`, whether the model files are equal.
    """
    require_module("distributed")
    n, n_features, n_outputs = SIZES[method]
    shape = context.rows(n // PARTS), n_features, n_outputs
    alone, expected = _alone(shape)
    with ProcessPoolExecutor(2, get_context("spawn")) as processes:
        apart = [half for half, _ in processes.map(_alone, 2 * [(shape[0] // 2, *shape[1:])])]
    two, found = _fit_ranks(shape, 2)
    return {
        "alone": alone["tree"],
        "apart": sum(half["tree"] for half in apart),
        "two": two["tree"],
        "idle": two["idle"],
        "ratio": (two["tree"] - two["idle"]) / max(alone["tree"], 1e-3),
        "peak_alone": alone["peak"],
        "peak_rank": two["peak"],
        "same": int(found == expected),
    }


def _alone(shape: Shape) -> tuple[dict[str, float], bytes]:
    parts = [part(number, *shape) for number in range(PARTS)]
    Y = np.concatenate([y for _, y in parts])
    data = Dataset.from_batches([X for X, _ in parts], n_jobs=1)
    del parts
    with tempfile.TemporaryDirectory() as folder:
        clock = Clock([os.getpid()], f"{folder}/clock")
        model = PolyleafRegressor(n_estimators=ROUNDS, **SHAPE).fit(data, Y, callbacks=[clock])
        return json.loads(Path(clock.path).read_text()) | {
            "peak": peak_mb(os.getpid())
        }, model.save_model()


def _fit_ranks(shape: Shape, n_ranks: int) -> tuple[dict[str, float], bytes]:
    from dask import delayed

    from polyleaf.dask import DaskPolyleafRegressor

    with tempfile.TemporaryDirectory() as folder, _cluster(n_ranks) as (client, pids):
        parts = [delayed(part, nout=2, pure=True)(number, *shape) for number in range(PARTS)]
        time.sleep(IDLE_SECONDS)  # they may still be importing
        before = sum(map(processor_seconds, pids))
        time.sleep(IDLE_SECONDS)
        idle = (sum(map(processor_seconds, pids)) - before) / IDLE_SECONDS
        clock = Clock(pids, f"{folder}/clock")
        model = DaskPolyleafRegressor(client=client, n_estimators=ROUNDS, **SHAPE)
        model.fit([X for X, _ in parts], [y for _, y in parts], callbacks=[clock])
        spent = json.loads(Path(clock.path).read_text())
        spent["idle"] = idle * spent["wall"]
        return spent | {"peak": max(map(peak_mb, pids))}, model.to_local().save_model()


# --- many machines ---

MACHINES = (8, 64)
NETWORKS = {"10 Gbit/s": 1.25e9, "25 Gbit/s": 3.125e9}  # bytes per second
LATENCY, CORES, ROWS_EACH, N_FEATURES, N_OUTPUTS = 0.2e-3, 8, 1_250_000, 100, 16


class Mirror(Communicator):
    """Communicator of one rank among many, where the other ranks hold no rows.

    Its computation and messages are those of one of `size` machines with equal numbers of rows. The
    rank has its own tiles of features.
    """

    def __init__(self, size: int, n_features: int):
        n_tiles = -(-n_features // 8)  # of eight features each
        self.size, self.rank = size, size // (2 * n_tiles)
        self.steps: list[tuple[int, int]] = []  # bytes sent, bytes received

    def exchange(self, blocks: Sequence[Any]) -> list[Any]:
        sizes = [len(memoryview(block).cast("B")) for block in blocks]
        out = sum(sizes) - sizes[self.rank]
        self.steps.append((out, (self.size - 1) * sizes[self.rank]))
        return [blocks[self.rank]] * self.size

    def sum(self, numbers: np.ndarray) -> None:
        self.exchange([numbers.tobytes()] * self.size)

    def largest(self, numbers: np.ndarray) -> None:
        self.sum(numbers)

    def sum_shares(self, shares: Sequence[np.ndarray]) -> np.ndarray:
        self.exchange([share.tobytes() for share in shares])
        return shares[self.rank]


def projected(context: Context, method: str, problem: str) -> Figures:
    """Project the training of a tree on many machines.

    Figures: `compute` (processor seconds of one machine), `asked` (number of exchanges), `mb` (sent
    or received by the busiest machine), `seconds` with CORES cores per machine, `one` (one machine
    with all rows) and `times` (the speedup).
    """
    require_module("distributed")
    from polyleaf.estimators.distributed_fit import fit_rank, plan_shared_fit
    from polyleaf.runtime.context import Context

    size = int(method.split()[0])
    X, Y = part(0, context.rows(ROWS_EACH), N_FEATURES, N_OUTPUTS)
    data = Dataset(X, n_jobs=1)
    del X
    spent, asked = {}, []
    for n_machines in (1, size):
        mirror = Mirror(n_machines, N_FEATURES)
        estimator = PolyleafRegressor(n_estimators=ROUNDS, **SHAPE)
        shared, shard = plan_shared_fit(estimator, Y)
        with tempfile.TemporaryDirectory() as folder:
            clock = Clock([os.getpid()], f"{folder}/clock")
            workers = Context(1, mirror) if n_machines > 1 else Context(1)
            fit_rank(estimator, shared, shard, data, workers, callbacks=[clock])
            spent[n_machines] = json.loads(Path(clock.path).read_text())["tree"]
        asked = mirror.steps
    fetch, megabyte = _cost_of_messages()
    busiest, n_asked = sum(max(step) for step in asked) / ROUNDS, len(asked) / ROUNDS
    on_wire = n_asked * LATENCY + busiest / NETWORKS[problem]
    of_loop = n_asked * (size - 1) * fetch + busiest / 1e6 * megabyte
    seconds = spent[size] / CORES + on_wire + of_loop
    one = spent[1] * size / CORES
    return {
        "compute": spent[size],
        "asked": n_asked,
        "mb": busiest / 1e6,
        "fetch_ms": 1e3 * fetch,
        "mb_ms": 1e3 * megabyte,
        "seconds": seconds,
        "one": one,
        "times": one / seconds,
    }


def _ask_often(rank: int, addresses: list[str], fit: str, n: int, n_bytes: int) -> float:
    """Return this worker's processor seconds for one exchange."""
    from distributed import secede

    from polyleaf.dask.communicator import DaskCommunicator

    secede()
    communicator = DaskCommunicator(fit, rank, addresses)
    communicator.gather(b"")
    began = time.process_time()
    for _ in range(n):
        communicator.gather(bytes(n_bytes))
    return (time.process_time() - began) / n


def _cost_of_messages() -> tuple[float, float]:
    """Measure processor seconds of a message and its answer, and of a megabyte, per rank."""
    from polyleaf.dask.communicator import CommunicatorPlugin

    found = {}
    with _cluster(2) as (client, _):
        client.register_plugin(CommunicatorPlugin())
        addresses = sorted(client.nthreads())
        for n, n_bytes in ((400, 320), (40, 8_000_000)):
            asked = [
                client.submit(
                    _ask_often,
                    rank,
                    addresses,
                    f"{n_bytes}",
                    n,
                    n_bytes,
                    workers=[address],
                    pure=False,
                )
                for rank, address in enumerate(addresses)
            ]
            found[n_bytes] = float(np.mean(client.gather(asked)))
    small, large = found.values()
    return small, (large - small) / 8


# --- other libraries ---

PEERS = {"1 output": (200_000, 50, 1), "16 outputs": (200_000, 50, 16)}
PEER_ROUNDS = 20


def polyleaf(client: Any, X: Any, y: Any, n_outputs: int) -> bytes:
    from polyleaf.dask import DaskPolyleafRegressor

    model = DaskPolyleafRegressor(client=client, n_estimators=PEER_ROUNDS, **SHAPE).fit(X, y)
    return model.to_local().save_model()


def xgboost(client: Any, X: Any, y: Any, n_outputs: int) -> bytes:
    from xgboost import dask as dxgb

    several = {"multi_strategy": "multi_output_tree"} if n_outputs > 1 else {}
    how = {"tree_method": "hist", "max_depth": MAX_DEPTH, "eta": 0.1, "nthread": 1, **several}
    data = dxgb.DaskQuantileDMatrix(client, X, y)
    return bytes(
        dxgb.train(client, how, data, num_boost_round=PEER_ROUNDS)["booster"].save_raw("ubj")
    )


def lightgbm(client: Any, X: Any, y: Any, n_outputs: int) -> bytes:
    from lightgbm import DaskLGBMRegressor

    if n_outputs > 1:
        raise Unavailable("LightGBM has one output")
    how = {
        "max_depth": MAX_DEPTH,
        "num_leaves": 2**MAX_DEPTH,
        "n_jobs": 1,
        "verbose": -1,
        "random_state": 0,
    }
    model = DaskLGBMRegressor(
        client=client, n_estimators=PEER_ROUNDS, tree_learner="data", **how
    ).fit(X, y)
    return model.booster_.model_to_string().split("\nparameters:")[0].encode()


METHODS: dict[str, Callable[..., bytes]] = {
    "Polyleaf": polyleaf,
    "XGBoost": xgboost,
    "LightGBM": lightgbm,
}


def peers(context: Context, method: str, problem: str) -> Figures:
    """Measure training with two workers.

    Figures: `seconds`, `cpu` of both workers, `peak` in MB of one worker, `runs` (different models
    in two runs) and `workers` (different models with 1, 2 and 4 workers).
    """
    require_module("distributed")
    require_module(method.lower())
    n, n_features, n_outputs = PEERS[problem]
    shape = context.rows(n // PARTS), n_features, n_outputs
    models, figures = {}, {}
    for n_workers, run in ((1, 0), (2, 0), (2, 1), (4, 0)):
        with _cluster(n_workers) as (client, pids):
            X, y = _arrays(client, shape)
            before, began = sum(map(processor_seconds, pids)), time.monotonic()
            models[n_workers, run] = METHODS[method](client, X, y, n_outputs)
            if (n_workers, run) == (2, 0):
                cpu = sum(map(processor_seconds, pids)) - before
                peak = max(map(peak_mb, pids))
                figures = {"seconds": time.monotonic() - began, "cpu": cpu, "peak": peak}
    return figures | {
        "runs": len({models[2, run] for run in (0, 1)}),
        "workers": len({models[n, 0] for n in (1, 2, 4)}),
    }


def _arrays(client: Any, shape: Shape) -> tuple[Any, Any]:
    """Return Dask arrays whose chunks are already on the workers."""
    import dask.array as da
    from dask import delayed
    from distributed import wait

    n, n_features, n_outputs = shape
    parts = [delayed(part, nout=2, pure=True)(number, *shape) for number in range(PARTS)]
    of_y = (n,) if n_outputs == 1 else (n, n_outputs)
    X = da.concatenate([da.from_delayed(x, (n, n_features), np.float32) for x, _ in parts])
    y = da.concatenate([da.from_delayed(y, of_y, np.float64) for _, y in parts])
    X, y = client.persist([X, y])
    wait([X, y])
    return X, y


def _subjects(problem: str, figures: dict[str, tuple[str, str, Any, int]]) -> tuple[Subject, ...]:
    return tuple(
        Subject(title, unit, better, digits, problem, figure)
        for figure, (title, unit, better, digits) in figures.items()
    )


PAPER = Paper(
    __name__,
    "Distributed training",
    "What a fit on several workers costs, and what it would take on many machines.",
    (
        Table(
            "ranks",
            "two ranks beside one process",
            _subjects(
                "2 ranks",
                {
                    "alone": ("one process", "s of processor time a tree", "lower", 2),
                    "apart": ("two processes apart", "s", "lower", 2),
                    "two": ("two ranks", "s", "lower", 2),
                    "idle": ("of that, what idle workers take", "s", None, 3),
                    "ratio": ("ratio without that", "", "lower", 3),
                    "peak_alone": ("one process, at its peak", "MB", "lower", 0),
                    "peak_rank": ("a rank, at its peak", "MB", "lower", 0),
                    "same": ("same bytes (1: yes)", "", "higher", 0),
                },
            ),
            ranks,
            f"Depth {MAX_DEPTH} by level, one thread in each process, {PARTS} partitions that "
            "workers make; "
            f"the mean of {ROUNDS - 1} trees after the first, processor time of whole processes, "
            "so with "
            "what they send one another. Apart: half the rows each, at the same time, without a "
            "word: with "
            "what two cores take from one another. A Dask worker takes processor time for each "
            "second that "
            "it lives, whatever it does (it looks at itself a hundred times a second): that is "
            "told apart, "
            "as it grows with the time that a busy machine makes a tree wait. The peaks include "
            "the table "
            "that the one process bins, and the partitions that workers bin.",
            also=tuple(SIZES),
        ),
        *(
            Table(
                f"projected, {network}",
                f"what many machines would take: {network}",
                _subjects(
                    network,
                    {
                        "compute": ("computing, one core", "s a tree", "lower", 2),
                        "asked": ("asks", "a tree", "lower", 0),
                        "mb": ("bytes, the busiest", "MB a tree", "lower", 0),
                        "fetch_ms": ("a fetch", "ms of processor time", "lower", 2),
                        "mb_ms": ("a megabyte", "ms of processor time", "lower", 2),
                        "seconds": (f"a tree, {CORES} cores each", "s", "lower", 2),
                        "one": (f"one machine of {CORES} cores, all rows", "s", "lower", 2),
                        "times": ("times as fast", "", "higher", 1),
                    },
                ),
                projected,
                f"NOT measured on machines: {ROWS_EACH:,} rows on each, {N_FEATURES} features, "
                f"{N_OUTPUTS} "
                f"outputs, depth {MAX_DEPTH} by level. One rank is run with its rows, others "
                "having none: "
                "what it computes, how often it asks, and what it sends and is sent, are those of "
                "a machine "
                "among so many. A step then takes the latency (.2 ms), its bytes at the network's "
                "speed and, "
                "on one core that waits meanwhile, the processor time of its fetches and bytes as "
                "measured "
                f"between two workers here. {CORES} cores are taken to compute {CORES} times as "
                "fast as one, "
                "on one machine as on many.",
                also=tuple(f"{n} machines" for n in MACHINES),
            )
            for network in NETWORKS
        ),
        *(
            Table(
                f"peers, {problem}",
                f"other libraries on the same cluster: {problem}",
                _subjects(
                    problem,
                    {
                        "seconds": ("two workers", "s", None, 1),
                        "cpu": ("of both", "s of processor time", None, 1),
                        "peak": ("a worker, at its peak", "MB", None, 0),
                        "runs": ("different models of two runs", "", None, 0),
                        "workers": ("different models of 1, 2, 4 workers", "", None, 0),
                    },
                ),
                peers,
                f"{n:,} rows of {f} features, {PEER_ROUNDS} trees of depth {MAX_DEPTH}, workers "
                "of one "
                f"thread, {PARTS} partitions that lie on them already. A fit, binning included, "
                "by each "
                "library's own estimator for Dask; XGBoost's 16 outputs by `multi_output_tree`; "
                "LightGBM has "
                "no trees of several outputs. Models are compared as bytes (LightGBM's without "
                "parameters).",
                also=tuple(METHODS) if problem == "1 output" else ("Polyleaf", "XGBoost"),
            )
            for problem, (n, f, _) in PEERS.items()
        ),
    ),
    golden=("defaults", "defaults, one output"),
)
