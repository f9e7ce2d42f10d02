"""Costs of a fit on the workers of a cluster: planned from sizes, and measured.

The formulas are explained in docs/development/scaling.md.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from polyleaf.runtime.checks import format_bytes
from polyleaf.settings.train_config import TrainConfig
from polyleaf.training.memory_usage import (
    HISTOGRAM_BINS,
    TILE_FEATURES,
    ColumnCounts,
    count_leaves,
    row_bytes,
    tree_bytes,
)

_NUMBER_BYTES = 4
# Bytes of a stored value of a sparse feature: codes of the partition and joined, entries by feature
# and by row, and two copies of them in the nodes of a tree.
STORED_BYTES = 38


class TreeHistograms(NamedTuple):
    """Histograms that the workers sum for a full tree."""

    n_features: int
    bin_numbers: int  # numbers per bin: sums and the number of rows, padded
    sent_numbers: int  # numbers per bin that are sent
    n_histograms: int  # of the root, and of one of two siblings

    @classmethod
    def from_settings(
        cls, n_features: int, columns: ColumnCounts, settings: TrainConfig
    ) -> TreeHistograms:
        """Return the histograms of the largest tree that the parameters allow."""
        by_level = 2 ** (min(31, settings.growth.max_depth or 31) - 1)
        n_splits = count_leaves(settings.growth) - 1
        n_histograms = max(1, min(by_level, n_splits))
        return cls(n_features, columns.bin_numbers, columns.sent_numbers, n_histograms)

    @property
    def histogram_bytes(self) -> int:
        """Bytes of the sums and counts of a node."""
        n_features = -(-self.n_features // TILE_FEATURES) * TILE_FEATURES
        return n_features * HISTOGRAM_BINS * _NUMBER_BYTES * self.bin_numbers

    def count_sent_bytes(self, n_workers: int) -> float:
        """Return the bytes that each worker sends, and receives, for the tree: at most, since bins
        without rows are not sent."""
        n_bins = self.n_histograms * self.n_features * HISTOGRAM_BINS
        marks = n_bins / 8  # one bit for each bin
        return (n_bins * _NUMBER_BYTES * self.sent_numbers + marks) * (n_workers - 1) / n_workers


class WorkerCosts(NamedTuple):
    """Costs of one worker.

    Attributes
    ----------
    address : str
    partitions : sequence of int
        Partitions that the worker trains on, among those that have rows.
    n_rows : int
    data_bytes : int or None
        Bytes of X of these partitions; None in measured costs.
    sent_bytes : float or None
        Bytes that the worker sends in a round. None: not predicted, for sparse features or targets.
    peak_bytes : int or None
        Largest memory of the process, with what it held before.
    """

    address: str
    partitions: Sequence[int]
    n_rows: int
    data_bytes: int | None
    sent_bytes: float | None
    peak_bytes: int | None


@dataclass(frozen=True)
class FitCosts:
    """Planned and measured costs of the workers of a fit; `print` shows a table.

    Attributes
    ----------
    planned, measured : list of WorkerCosts
        Costs of each worker; `measured` is empty before the fit.
    """

    planned: list[WorkerCosts]
    measured: list[WorkerCosts]

    def __str__(self) -> str:
        titles = "worker", "partitions", "rows", "X", "sent a round", "peak memory"
        lines: list[tuple[str, ...]] = [("", *titles)]
        for kind, costs in (("planned", self.planned), ("measured", self.measured)):
            for each in costs:
                sizes = each.data_bytes, each.sent_bytes, each.peak_bytes
                parts = f"{len(each.partitions)}: {_shorten(each.partitions)}"
                cells = kind, each.address, parts, f"{each.n_rows:,}"
                lines.append((*cells, *("" if n is None else format_bytes(n) for n in sizes)))
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        return "\n".join(
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
            for line in lines
        )


def _shorten(numbers: Sequence[int]) -> str:
    shown = ", ".join(map(str, numbers[:4]))
    return f"{shown}, ..." if len(numbers) > 4 else shown


def predict_training_bytes(
    n_rows: int, n_features: int, columns: ColumnCounts, settings: TrainConfig
) -> int:
    """Return the bytes that a worker needs to train on some rows, beyond X and y."""
    row = sum(row_bytes(n_features, columns, settings))
    tree = TreeHistograms.from_settings(n_features, columns, settings)
    # Nodes of the last level and their parents; unlike one machine, workers keep the histograms of
    # small nodes as well.
    n_kept = 3 * tree.n_histograms // 2 + 1
    kept = min(settings.growth.histogram_memory, n_kept * tree.histogram_bytes)
    # The partitions keep their codes, which are joined for the training.
    return n_rows * (row + 2 * n_features) + kept + tree_bytes(columns, settings)


def measure_peak_bytes() -> int:
    """Return the largest memory that this process has had."""
    if sys.platform == "win32":
        import psutil  # comes with Dask; the documentation is built without

        return int(psutil.Process().memory_info().peak_wset)
    # A process that was forked has the peak of its parent in `ru_maxrss`.
    with contextlib.suppress(OSError), open("/proc/self/status") as status:
        for line in status:
            if line.startswith("VmHWM:"):
                return 1024 * int(line.split()[1])
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(peak if sys.platform == "darwin" else 1024 * peak)
