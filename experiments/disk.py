"""Training from files: the cost of a tree with bins on disk, compared with XGBoost.

Both libraries write a file and read it for every tree. Whether the system caches the file is the
same for both, and the bytes read from disk are recorded.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from . import memory
from .harness.context import Context, require_module
from .harness.paper import Figures, Paper, Subject, Table

N_FEATURES, BATCH_ROWS, MAX_DEPTH = 96, 50_000, 6
N_ROWS = 400_000
TREES = 4  # in addition to the first, which includes one-time costs
OUTPUTS = {"1 output": 1, "16 outputs": 16}


@dataclass(frozen=True)
class Job:
    """Job: `n_batches` of BATCH_ROWS rows, `n_outputs`, a `folder` for files, and `threads`."""

    n_batches: int
    n_outputs: int
    folder: str
    threads: int

    def batches(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield the same rows, generated anew at every pass."""
        for number in range(self.n_batches):
            X = np.random.default_rng(number).random((BATCH_ROWS, N_FEATURES), np.float32)
            products = [X[:, k] * X[:, k + 1] for k in range(self.n_outputs)]
            y = np.stack(products, axis=1) + 0.1 * X[:, 50:51]
            yield X, y[:, 0] if self.n_outputs == 1 else y


Train = Callable[[int], Any]  # argument: number of rounds


def polyleaf(job: Job) -> Train:
    from polyleaf import Dataset, PolyleafRegressor

    data = Dataset.from_batches(job.batches, cache_dir=job.folder, n_jobs=job.threads)
    shape = {
        "grow_policy": "depthwise",
        "max_depth": MAX_DEPTH,
        "max_leaves": None,
        "colsample_bynode": 1.0,
    }
    return lambda rounds: PolyleafRegressor(n_estimators=rounds, n_jobs=job.threads, **shape).fit(
        data
    )


def xgboost(job: Job) -> Train:
    import xgboost as xgb

    class Batches(xgb.DataIter):
        def __init__(self) -> None:
            self.rest = job.batches()
            super().__init__(cache_prefix=str(Path(job.folder) / "cache"))

        def reset(self) -> None:
            self.rest = job.batches()

        def next(self, input_data: Callable) -> bool:
            batch = next(self.rest, None)
            if batch is not None:
                input_data(data=batch[0], label=batch[1])
            return batch is not None

    data = xgb.ExtMemQuantileDMatrix(Batches(), max_bin=256, nthread=job.threads)
    shape = {"grow_policy": "depthwise", "max_depth": MAX_DEPTH, "eta": 0.1}
    how = {"tree_method": "hist", "max_bin": 256, "nthread": job.threads}
    several = {"multi_strategy": "multi_output_tree"} if job.n_outputs > 1 else {}
    return partial(xgb.train, {**shape, **how, **several}, data)


METHODS: dict[str, Callable[[Job], Train]] = {"Polyleaf": polyleaf, "XGBoost": xgboost}


def out_of_core(context: Context, method: str, problem: str) -> Figures:
    """Measure a tree that is trained from files.

    Figures: `tree` (seconds of processor time), `wall`, `anonymous` (peak MB of memory without a
    backing file) and `fetched` (MB per tree read from disk; both libraries map their files).
    """
    if method == "XGBoost":
        require_module("xgboost")
    n_batches = 1 if context.quick else N_ROWS // BATCH_ROWS
    with tempfile.TemporaryDirectory() as folder, _most_anonymous() as most:
        train = METHODS[method](Job(n_batches, OUTPUTS[problem], folder, context.threads))
        train(1)
        first, several = _spent(train, 1), _spent(train, 1 + TREES)
    found = {name: (several[name] - first[name]) / TREES for name in first}
    return found | {"anonymous": most()}


def _spent(train: Train, rounds: int) -> dict[str, float]:
    before = _clocks()
    train(rounds)
    return {name: value - before[name] for name, value in _clocks().items()}


def _clocks() -> dict[str, float]:
    read = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return {
        "tree": time.process_time(),
        "wall": time.perf_counter(),
        "fetched": int(read["read_bytes"]) / 1e6,
    }


class _most_anonymous:
    """Context manager that monitors memory without a backing file.

    The value is a function that returns the peak so far in MB.
    """

    def __enter__(self) -> Callable[[], float]:
        self.most, self.is_over = 0.0, threading.Event()
        self.watch = threading.Thread(target=self._keep_looking, daemon=True)
        self.watch.start()
        return self._look

    def __exit__(self, *_: object) -> None:
        self.is_over.set()
        self.watch.join()

    def _keep_looking(self) -> None:
        while not self.is_over.wait(0.02):
            self._look()

    def _look(self) -> float:
        self.most = max(self.most, memory.anonymous() / 2**20)
        return self.most


_PROTOCOL = (
    f"{N_ROWS:,} rows of {N_FEATURES} float32 features in batches of {BATCH_ROWS:,}, trees of "
    "depth "
    f"{MAX_DEPTH} by level, 256 bins; the mean of {TREES} trees after the first. Polyleaf: "
    "`Dataset.from_batches(..., cache_dir=...)`; XGBoost: `ExtMemQuantileDMatrix`, of 16 outputs "
    "with "
    "`multi_output_tree`. The features are uniform; a target is the product of two."
)
_FIGURES: dict[str, tuple[str, str, Any, int]] = {
    "tree": ("processor time of a tree", "s", "lower", 3),
    "wall": ("time of a tree", "s", None, 3),
    "anonymous": ("memory that no file stands for, at most", "MB", "lower", 0),
    "fetched": (
        "come from the disk for a tree (0: the system had the file in memory)",
        "MB",
        None,
        0,
    ),
}

PAPER = Paper(
    __name__,
    "Data on disk",
    "Trees grown from bins that lie in a file, beside XGBoost's external memory.",
    tuple(
        Table(
            figure,
            title,
            tuple(Subject(name, unit, better, digits, figure=figure) for name in OUTPUTS),
            out_of_core,
            _PROTOCOL,
            also=tuple(METHODS),
            ours=("Polyleaf",),
        )
        for figure, (title, unit, better, digits) in _FIGURES.items()
    ),
    golden=("defaults", "defaults, one output"),
)
