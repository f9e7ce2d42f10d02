"""`Context`: threads, communicator and device of a training; the meaning of ``n_jobs``."""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass
from numbers import Integral

import joblib

from polyleaf._core import Device
from polyleaf.runtime.collective import SINGLE_PROCESS, Communicator


@dataclass(frozen=True)
class Context:
    """Execution environment of a training run. The model does not depend on it."""

    n_threads: int  # number of threads, at least 1
    # connection to the other ranks, which hold further rows of the same data
    communicator: Communicator = SINGLE_PROCESS
    device: Device | None = None  # GPU that holds the rows and works on them; None: the CPU

    @property
    def is_distributed(self) -> bool:
        """Whether other ranks hold rows."""
        return self.communicator.size > 1

    @property
    def n_threads_or_context(self) -> int | Context:
        """The number of threads, or this context where other ranks hold rows."""
        return self if self.is_distributed else self.n_threads


def get_communicator(n_threads: int | Context) -> Communicator:
    """Return the connection to the other ranks; there are none for a number of threads."""
    return n_threads.communicator if isinstance(n_threads, Context) else SINGLE_PROCESS


@functools.cache
def _count_cores() -> int:
    """Return the number of cores this process may use; cached, because joblib reads files."""
    return int(joblib.cpu_count())


def effective_threads(n_jobs: int | None = None) -> int:
    """Return the number of threads for ``n_jobs``.

    Raises a TypeError if ``n_jobs`` is not an integer, and a ValueError if it is 0. The result is
    at least 1.

    Parameters
    ----------
    n_jobs : int or None
        None: ``OMP_NUM_THREADS`` where it is set (joblib sets it in its workers), otherwise every
        core this process may use. -1: every core; -2: all but one, and so on, at least one.
        Positive: that many, but at most four per core, or 16: more only cost memory and time.
    """
    most = max(16, 4 * _count_cores())  # more are not useful; 16 leave room for experiments
    if n_jobs is None:  # the variable may have levels: "4,2"
        first_level = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
        n_threads = int(first_level) if first_level.isdecimal() else 0
        return min(n_threads or _count_cores(), most)
    if type(n_jobs) is not int and (isinstance(n_jobs, bool) or not isinstance(n_jobs, Integral)):
        raise TypeError(f"n_jobs must be an integer or None, got {n_jobs!r}.")
    if n_jobs == 0:
        raise ValueError(
            "n_jobs must not be 0: use None or -1 for all cores, or a positive number."
        )
    if n_jobs < 0:
        return max(1, _count_cores() + 1 + int(n_jobs))
    return min(int(n_jobs), most)
