"""Costs of the exchanges of a fit on Dask: measured here, and predicted for other clusters.

`python scripts/exchange_costs.py` measures exchanges between workers of this machine, compares the
trees that two workers grow with the prediction, and prints what a large fit costs. The formulas are
explained in docs/development/scaling.md.
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import dask
import numpy as np
from distributed import Client, LocalCluster, secede

from polyleaf import PolyleafRegressor
from polyleaf.callbacks import Callback
from polyleaf.dask import DaskPolyleafRegressor
from polyleaf.dask.communicator import CommunicatorPlugin, DaskCommunicator

TILE_FEATURES, COUNT_BYTES = 8, 4


class Shape(NamedTuple):
    """A fit by level: rows, features, outputs, bins of a feature, and levels of a tree."""

    n_rows: int
    n_features: int
    n_outputs: int
    n_bins: int = 256
    depth: int = 6

    @property
    def n_exchanges(self) -> int:
        """Number of exchanges of a tree."""
        return 9 + 2 * self.depth

    @property
    def n_histograms(self) -> int:
        """Number of histograms of a full tree: of the root, and of one of two siblings."""
        return 2 ** (self.depth - 1)

    @property
    def histogram_bytes(self) -> int:
        """Bytes of the sums and counts of a node."""
        n_features = -(-self.n_features // TILE_FEATURES) * TILE_FEATURES
        return n_features * self.n_bins * COUNT_BYTES * (self.n_outputs + 1)

    def count_sent_bytes(self, n_workers: int) -> float:
        """Return the bytes that each worker sends, and receives, for a tree."""
        return self.n_histograms * self.histogram_bytes * (n_workers - 1) / n_workers


def predict_exchange_seconds(
    shape: Shape, n_workers: int, seconds_of_a_message: float, bytes_per_second: float
) -> tuple[float, float]:
    """Return the seconds of a tree for messages, one to each other worker, and for their bytes."""
    messages = shape.n_exchanges * (n_workers - 1) * seconds_of_a_message
    return messages, shape.count_sent_bytes(n_workers) / bytes_per_second


def exchange(fit_id: str, rank: int, addresses: list[str], n_bytes: int, n: int) -> float:
    """Exchange blocks between ranks; return the seconds of one exchange."""
    secede()
    communicator = DaskCommunicator(fit_id, rank, addresses)
    blocks = [bytes(n_bytes)] * len(addresses)
    communicator.alltoall(blocks)
    start = time.perf_counter()
    for _ in range(n):
        communicator.alltoall(blocks)
    seconds = (time.perf_counter() - start) / n
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
        model.metadata.setdefault("ends", []).append(time.perf_counter())
        return False


def get_best_seconds(estimator: Any) -> float:
    """Return the seconds of the quickest round."""
    return float(np.min(np.diff(estimator.model_.metadata["ends"])))


def make_part(i: int, n_rows: int, shape: Shape) -> tuple[np.ndarray, np.ndarray]:
    """Make some rows: all parts have the same linear targets."""
    rng = np.random.default_rng(i)
    X = rng.standard_normal((n_rows, shape.n_features), np.float32)
    W = np.random.default_rng(99).standard_normal((shape.n_features, shape.n_outputs))
    return X, X @ W.astype(np.float32)


def main() -> None:
    shape = Shape(1_600_000, 48, 8)
    parameters = {
        "n_estimators": 12,
        "max_depth": shape.depth,
        "max_leaves": None,
        "n_jobs": 1,
        "random_state": 0,
    }
    half = PolyleafRegressor(**parameters)
    half.fit(*make_part(0, shape.n_rows // 2, shape), callbacks=[Times()])
    alone = get_best_seconds(half)
    whole = PolyleafRegressor(**parameters | {"n_jobs": 2})
    whole.fit(*make_part(0, shape.n_rows, shape), callbacks=[Times()])
    for n_workers in (2, 4):
        with (
            LocalCluster(n_workers, threads_per_worker=1, dashboard_address=None) as cluster,
            Client(cluster) as client,
        ):
            client.register_plugin(CommunicatorPlugin())
            message = measure_exchange(client, 320, 200) / (n_workers - 1)
            n_bytes = shape.histogram_bytes // n_workers * 4
            seconds = measure_exchange(client, n_bytes, 20) / (n_workers - 1)
            speed = n_bytes / (seconds - message)
            print(f"{n_workers} workers: {1e3 * message:.2f} ms a message, {speed / 1e9:.2f} GB/s")
            if n_workers > 2:
                continue
            parts = [dask.delayed(make_part)(i, shape.n_rows // 4, shape) for i in range(4)]
            X, Y = [part[0] for part in parts], [part[1] for part in parts]
            model = DaskPolyleafRegressor(client=client, **parameters)
            model.fit(X, Y, callbacks=[Times()])
            predicted = alone + sum(predict_exchange_seconds(shape, 2, message, speed))
            print(
                f"a tree: half of the rows, one thread {1e3 * alone:.0f} ms; all rows, two threads "
                f"{1e3 * get_best_seconds(whole):.0f} ms; two workers: predicted "
                f"{1e3 * predicted:.0f} ms, measured {1e3 * get_best_seconds(model):.0f} ms"
            )
    large = Shape(1_000_000_000, 100, 16)
    # Histograms of a cell take time in proportion to the channels.
    cell = alone / (shape.n_rows / 2 * shape.n_features) * (17 / 9)
    for n_workers in (1, 4, 16, 64, 256):
        messages, transfer = predict_exchange_seconds(large, n_workers, 0.4e-3, 1.25e9)
        threads = 16 * n_workers
        computed = cell * large.n_rows * large.n_features / threads
        print(
            f"{n_workers} machines: {computed:.2f} s of computing, {messages:.2f} s for messages, "
            f"{transfer:.2f} s for {large.count_sent_bytes(n_workers) / 1e6:.0f} MB"
        )


if __name__ == "__main__":
    main()
