"""Costs of the exchanges of a fit on Dask: measured here, and predicted for other clusters.

`python scripts/exchange_costs.py` measures exchanges between workers of this machine, compares the
trees that two and four workers grow with the prediction, and prints what a large fit costs. A
number is the number of rows. `--processor-time` measures the time of processors, without waiting,
for a machine that other programs use. The formulas are explained in docs/development/scaling.md.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import dask
import numpy as np
from distributed import Client, LocalCluster, secede

import polyleaf._core as _core
from polyleaf import Dataset, PolyleafRegressor, RowData
from polyleaf.callbacks import Callback
from polyleaf.dask import DaskPolyleafRegressor
from polyleaf.dask.communicator import CommunicatorPlugin, DaskCommunicator
from polyleaf.dask.costs import TreeHistograms
from polyleaf.estimators.distributed_fit import RowBlocks, fit_rank, plan_shared_fit, read_shard
from polyleaf.runtime.collective import Buffer, Communicator
from polyleaf.runtime.context import Context

_WAITING = 0.002  # seconds of an exchange, about as on a busy machine
read_clock = time.thread_time if "--processor-time" in sys.argv else time.perf_counter


class Shape(NamedTuple):
    """A fit by level: rows, features, outputs, and levels of a tree."""

    n_rows: int
    n_features: int
    n_outputs: int
    depth: int = 6

    @property
    def n_exchanges(self) -> int:
        """Number of exchanges of a tree."""
        return 9 + 2 * self.depth

    @property
    def histograms(self) -> TreeHistograms:
        """Histograms of a full tree."""
        lanes = _core.channel_lanes(self.n_outputs, "unit", -1)
        bin_numbers = lanes + (lanes == self.n_outputs)
        n_histograms = 2 ** (self.depth - 1)
        return TreeHistograms(self.n_features, bin_numbers, self.n_outputs + 1, n_histograms)


def predict_exchange_seconds(
    shape: Shape, n_workers: int, seconds_of_a_message: float, bytes_per_second: float
) -> tuple[float, float]:
    """Return the seconds of a tree for messages, one to each other worker, and for their bytes."""
    messages = shape.n_exchanges * (n_workers - 1) * seconds_of_a_message
    return messages, shape.histograms.count_sent_bytes(n_workers) / bytes_per_second


def exchange(fit_id: str, rank: int, addresses: list[str], n_bytes: int, n: int) -> float:
    """Exchange blocks between ranks; return the seconds of one exchange."""
    secede()
    communicator = DaskCommunicator(fit_id, rank, addresses)
    blocks = [bytes(n_bytes)] * len(addresses)
    communicator.alltoall(blocks)
    start = read_clock()
    for _ in range(n):
        communicator.alltoall(blocks)
    seconds = (read_clock() - start) / n
    communicator.leave()
    return seconds


def measure_exchange(client: Client, n_bytes: int, n: int) -> float:
    """Return the seconds of one exchange between all workers, the best of five measurements."""
    addresses = sorted(client.scheduler_info()["workers"])
    best = np.inf
    for repeat in range(5):
        ranks = [
            client.submit(
                exchange, f"{n_bytes}-{repeat}", r, addresses, n_bytes, n, workers=[a], pure=False
            )
            for r, a in enumerate(addresses)
        ]
        best = min(best, max(client.gather(ranks)))
    return best


class Times(Callback):
    """Notes in the model when rounds have ended: the callback itself stays on a worker."""

    def after_iteration(self, model: Any, epoch: int, evals_log: object) -> bool:
        model.metadata.setdefault("ends", []).append(read_clock())
        return False


def get_best_seconds(model: Any) -> float:
    """Return the seconds of the quickest round."""
    return float(np.min(np.diff(model.metadata["ends"])))


class Mirror(Communicator):
    """One of some ranks that all have the same rows: it computes, and sends nothing.

    Where waiting does not count, it waits, so that other programs use the caches meanwhile.
    """

    rank = 0

    def __init__(self, size: int) -> None:
        self.size = size

    def alltoall(self, blocks: Sequence[Buffer]) -> list[Buffer]:
        if read_clock is time.thread_time:
            time.sleep(_WAITING)
        return [blocks[0]] * self.size


def measure_computing(estimator: Any, X: np.ndarray, Y: np.ndarray, n_ranks: int) -> float:
    """Return the seconds that one of some ranks, each with these rows, computes for a tree."""
    ranks, blocks = Mirror(n_ranks), RowBlocks([len(X)] * n_ranks, [0])
    run, shard = read_shard(estimator, RowData(Y), None, (), ranks, blocks)
    workers = Context(1, ranks)
    shared = plan_shared_fit(estimator, run, (), workers)
    dataset = Dataset(X, n_jobs=1)
    return get_best_seconds(
        fit_rank(estimator, shared, shard, dataset, workers, callbacks=[Times()]).model
    )


def make_part(i: int, n_rows: int, shape: Shape) -> tuple[np.ndarray, np.ndarray]:
    """Make some rows: all parts have the same linear targets."""
    rng = np.random.default_rng(i)
    X = rng.standard_normal((n_rows, shape.n_features), np.float32)
    W = np.random.default_rng(99).standard_normal((shape.n_features, shape.n_outputs))
    return X, X @ W.astype(np.float32)


def main() -> None:
    sizes = [int(argument) for argument in sys.argv if argument.isdigit()]
    shape = Shape(sizes[0] if sizes else 1_600_000, 48, 8)
    parameters = {
        "n_estimators": 12,
        "max_depth": shape.depth,
        "max_leaves": None,
        "n_jobs": 1,
        "random_state": 0,
    }
    rows = make_part(0, shape.n_rows // 2, shape)
    half = PolyleafRegressor(**parameters).fit(*rows, callbacks=[Times()])
    alone = get_best_seconds(half.model_)
    whole = PolyleafRegressor(**parameters | {"n_jobs": 2})
    whole.fit(*make_part(0, shape.n_rows, shape), callbacks=[Times()])
    print(
        f"a tree: half of the rows, one thread {1e3 * alone:.0f} ms; all rows, two threads "
        f"{1e3 * get_best_seconds(whole.model_):.0f} ms"
    )
    for n_workers in (2, 4):
        with (
            LocalCluster(
                n_workers=n_workers, threads_per_worker=1, dashboard_address=None
            ) as cluster,
            Client(cluster) as client,
        ):
            client.register_plugin(CommunicatorPlugin())
            message = measure_exchange(client, 320, 200) / (n_workers - 1)
            n_bytes = int(shape.histograms.count_sent_bytes(2)) // shape.histograms.n_histograms
            seconds = measure_exchange(client, n_bytes, 20) / (n_workers - 1)
            speed = n_bytes / (seconds - message)
            print(f"{n_workers} workers: {1e3 * message:.2f} ms a message, {speed / 1e9:.2f} GB/s")
            rows = make_part(0, shape.n_rows // n_workers, shape)
            computing = measure_computing(PolyleafRegressor(**parameters), *rows, n_workers)
            parts = [dask.delayed(make_part)(i, shape.n_rows // 4, shape) for i in range(4)]
            X, Y = [part[0] for part in parts], [part[1] for part in parts]
            model = DaskPolyleafRegressor(client=client, **parameters)
            model.fit(X, Y, callbacks=[Times()])
            print(model.costs_)
            exchanging = predict_exchange_seconds(shape, n_workers, message, speed)
            seconds = [computing, *exchanging]
            seconds += [computing + sum(exchanging), get_best_seconds(model.model_)]
            print(
                f"a tree of {n_workers} workers: "
                "{:.0f} ms of computing, {:.0f} ms for messages, {:.0f} ms for bytes: "
                "predicted {:.0f} ms, measured {:.0f} ms".format(*(1e3 * s for s in seconds))
            )
    large = Shape(1_000_000_000, 100, 16)
    # Histograms of a cell take time in proportion to the numbers of a bin.
    ratio = large.histograms.bin_numbers / shape.histograms.bin_numbers
    cell = alone / (shape.n_rows / 2 * shape.n_features) * ratio
    for n_workers in (1, 4, 16, 64, 256):
        messages, transfer = predict_exchange_seconds(large, n_workers, 0.4e-3, 1.25e9)
        threads = 16 * n_workers
        computed = cell * large.n_rows * large.n_features / threads
        print(
            f"{n_workers} machines: {computed:.2f} s of computing, {messages:.2f} s for messages, "
            f"{transfer:.2f} s for {large.histograms.count_sent_bytes(n_workers) / 1e6:.0f} MB"
        )


if __name__ == "__main__":
    main()
