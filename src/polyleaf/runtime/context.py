"""Who works: how many threads, which other ranks, which device. Owns
the meaning of ``n_jobs``; must not know what the threads do."""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass
from numbers import Integral

import joblib
import numpy as np

from polyleaf._core import Device
from polyleaf.runtime.collective import SINGLE_PROCESS, Communicator


@dataclass(frozen=True)
class Context:
    """What work is shared among. A model does not depend on it.

    Attributes
    ----------
    n_threads : int
        At least 1.
    communicator : Communicator
        Whoever has further rows of the same data.
    device : Device or None
        Where rows lie and are worked on; None: in memory of this machine, by its processor.
    """

    n_threads: int
    communicator: Communicator = SINGLE_PROCESS
    device: Device | None = None

    @property
    def is_alone(self) -> bool:
        """Whether nobody else has rows."""
        return self.communicator.size == 1

    @property
    def n_threads_or_context(self) -> int | Context:
        """For code that takes a number of threads: that, or these workers where others have rows, too."""
        return self.n_threads if self.is_alone else self

    def sum_over_ranks(self, number: int) -> int:
        """Over the rows of all ranks."""
        if self.is_alone:
            return number
        numbers = np.array([number], np.int64)
        self.communicator.sum(numbers)
        return int(numbers[0])


@functools.cache
def _usable_cores() -> int:
    """Cores this process may use (affinity, container limits); asked once, because it reads files."""
    return int(joblib.cpu_count())


def _most_threads() -> int:
    """More than these are of no use to anybody; a few more than cores are to whoever tries threads out."""
    return max(16, 4 * _usable_cores())


def _from_environment() -> int | None:
    """First level of ``OMP_NUM_THREADS`` ("4" or "4,2"); None where it is unset or no positive number."""
    first = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    return int(first) if first.isdecimal() and int(first) > 0 else None


def effective_threads(n_jobs: int | None = None) -> int:
    """Number of threads that ``n_jobs`` asks for.

    Parameters
    ----------
    n_jobs : int or None
        None: ``OMP_NUM_THREADS`` where it is set (joblib sets it in its workers), otherwise every core this
        process may use. -1: every core; -2: all but one, and so on, at least one. Positive: that many, but no
        more than four for each core, or 16: further ones cost memory and time and have nothing to do.

    Returns
    -------
    int
        At least 1.

    Raises
    ------
    TypeError
        Where ``n_jobs`` is no integer.
    ValueError
        Where ``n_jobs`` is 0.
    """
    if n_jobs is None:
        return min(_from_environment() or _usable_cores(), _most_threads())
    if type(n_jobs) is not int and (isinstance(n_jobs, bool) or not isinstance(n_jobs, Integral)):
        raise TypeError(f"n_jobs must be an integer or None, got {n_jobs!r}.")
    if n_jobs == 0:
        raise ValueError(
            "n_jobs=0 asks for no thread at all; use None or -1 for all cores, or a positive number."
        )
    if n_jobs < 0:
        return max(1, _usable_cores() + 1 + int(n_jobs))
    return min(int(n_jobs), _most_threads())
