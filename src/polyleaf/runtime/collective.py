"""Collective communication between ranks, each of which trains on its own rows of the same data.

Every rank runs the same program on its rows and calls the same methods in the same order. Only
integers are summed, so that neither sums nor models depend on how the rows are distributed.
"""

from __future__ import annotations

import pickle
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

IntegerArray: TypeAlias = NDArray[np.signedinteger]
Buffer: TypeAlias = bytes | bytearray | memoryview
_Result = TypeVar("_Result")


class WorkerLostError(RuntimeError):
    """Another rank has ended, so that its data will not arrive."""


class Communicator(ABC):
    """The connection of a rank to the others."""

    rank: int  # number of this rank, from 0
    size: int  # number of ranks

    @abstractmethod
    def alltoall(self, blocks: Sequence[Buffer]) -> list[Buffer]:
        """Send block i to rank i, and return the blocks that the ranks sent here, in order.

        All other methods are built on this one. A block must not change until the next call has
        returned. Raises a WorkerLostError if a rank has ended.
        """

    def allreduce_sum(self, numbers: IntegerArray) -> None:
        """Sum an array over all ranks, in place.

        Raises a TypeError if the dtype is not an integer: sums of floats depend on their order.
        """
        _check_integers(numbers)
        if self.size > 1:
            numbers[...] = sum(self._gather_arrays(numbers), np.zeros_like(numbers))

    def allreduce_max(self, numbers: np.ndarray) -> None:
        """Take the maximum of every entry over all ranks, in place; NaN if a rank has NaN."""
        if self.size > 1:
            numbers[...] = np.maximum.reduce(self._gather_arrays(numbers))

    def allgather(self, data: Buffer) -> list[Buffer]:
        """Return the data of every rank, in order, on all ranks."""
        return self.alltoall([data] * self.size)

    def allgather_objects(self, value: object) -> list[Any]:
        """Return a value of every rank, in order, on all ranks, which trust each other."""
        if self.size == 1:
            return [value]
        return [pickle.loads(data) for data in self.allgather(pickle.dumps(value))]

    def sum(self, number: int) -> int:
        """Return the sum of an integer over all ranks."""
        numbers = np.array([number], np.int64)
        self.allreduce_sum(numbers)
        return int(numbers[0])

    def any(self, mask: bool | np.bool_ | np.ndarray) -> np.ndarray:
        """Return for each entry whether it is true on any rank."""
        flags = np.atleast_1d(mask).astype(np.uint8)
        self.allreduce_max(flags)
        return flags.astype(bool).reshape(np.shape(mask))

    def _gather_arrays(self, numbers: np.ndarray) -> list[np.ndarray]:
        blocks = self.allgather(np.ascontiguousarray(numbers).tobytes())
        return [_decode_array(data, numbers) for data in blocks]


class SingleProcess(Communicator):
    """The communicator of a training in one process."""

    rank, size = 0, 1

    def alltoall(self, blocks: Sequence[Buffer]) -> list[Buffer]:
        return list(blocks)


SINGLE_PROCESS: Final = SingleProcess()


class RecordingCommunicator(Communicator):
    """A connection to other ranks that keeps the results of sums, maxima and gatherings.

    With them, a `ReplayingCommunicator` repeats on some of the rows what the ranks have done.
    """

    def __init__(self, communicator: Communicator) -> None:
        self._communicator, self.results = communicator, list[Any]()
        # Nothing takes the shortcuts of a single rank, which exchanges nothing to record.
        self.rank, self.size = communicator.rank, max(2, communicator.size)

    def alltoall(self, blocks: Sequence[Buffer]) -> list[Buffer]:
        raise NotImplementedError("Blocks that depend on the rank cannot be replayed.")

    def allreduce_sum(self, numbers: IntegerArray) -> None:
        self._communicator.allreduce_sum(numbers)
        self.results.append(numbers.copy())

    def allreduce_max(self, numbers: np.ndarray) -> None:
        self._communicator.allreduce_max(numbers)
        self.results.append(numbers.copy())

    def allgather(self, data: Buffer) -> list[Buffer]:
        self.results.append([bytes(each) for each in self._communicator.allgather(data)])
        return list(self.results[-1])


class ReplayingCommunicator(Communicator):
    """A process that repeats on its rows what ranks with all rows did before.

    `results`: those of a `RecordingCommunicator`.
    """

    rank, size = 0, 2

    def __init__(self, results: Sequence[Any]) -> None:
        self._results = iter(results)

    def alltoall(self, blocks: Sequence[Buffer]) -> list[Buffer]:
        raise NotImplementedError("Blocks that depend on the rank cannot be replayed.")

    def allreduce_sum(self, numbers: IntegerArray) -> None:
        numbers[...] = next(self._results)

    def allreduce_max(self, numbers: np.ndarray) -> None:
        numbers[...] = next(self._results)

    def allgather(self, data: Buffer) -> list[Buffer]:
        return list(next(self._results))


class ThreadCommunicator(Communicator):
    """A rank that is a thread of this process; `run` starts all of them."""

    def __init__(self, rank: int, board: list[list[Buffer]], barrier: threading.Barrier) -> None:
        self.rank, self.size = rank, len(board)
        self._board, self._barrier = board, barrier

    @staticmethod
    def run(
        size: int, work: Callable[[Communicator], _Result], timeout: float = 600.0
    ) -> list[_Result]:
        """Return the results of `work` for each rank, in order.

        `work`: called as `work(communicator)` in one thread per rank. `timeout`: seconds after
        which a rank that others wait for counts as lost.

        Raises
        ------
        Exception
            The error of the first rank that failed by itself; the others end with it.
        """
        board: list[list[Buffer]] = [[] for _ in range(size)]
        barrier = threading.Barrier(size, timeout=timeout)

        def run_rank(rank: int) -> _Result:
            try:
                return work(ThreadCommunicator(rank, board, barrier))
            except BaseException:
                barrier.abort()
                raise

        with ThreadPoolExecutor(size) as threads:
            futures = [threads.submit(run_rank, rank) for rank in range(size)]
        failures = [error for future in futures if (error := future.exception()) is not None]
        for error in sorted(failures, key=lambda error: isinstance(error, WorkerLostError)):
            raise error
        return [future.result() for future in futures]

    def alltoall(self, blocks: Sequence[Buffer]) -> list[Buffer]:
        if len(blocks) != self.size:
            raise ValueError(f"alltoall needs {self.size} blocks, one per rank, got {len(blocks)}.")
        self._board[self.rank] = [bytes(block) for block in blocks]
        self._wait()
        received = [self._board[rank][self.rank] for rank in range(self.size)]
        self._wait()  # the next blocks are not written before all ranks have read
        return received

    def _wait(self) -> None:
        try:
            self._barrier.wait()
        except threading.BrokenBarrierError:
            raise WorkerLostError(f"Rank {self.rank} waits for a rank that has ended.") from None


def _check_integers(numbers: np.ndarray) -> None:
    if numbers.dtype.kind not in "iu":
        raise TypeError(
            f"Ranks sum integers only, not {numbers.dtype}: sums of floats depend on how rows are "
            "distributed."
        )


def _decode_array(data: Buffer, like: np.ndarray) -> np.ndarray:
    """Return the array that another rank sent, in the shape and dtype of this rank's."""
    received = np.frombuffer(data, like.dtype)
    if received.size != like.size:
        raise RuntimeError(
            f"Ranks are out of sync: one sent {received.size} numbers, this one has {like.size}."
        )
    return received.reshape(like.shape)
