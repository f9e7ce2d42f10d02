"""Who else trains on rows of the same data, and the few numbers that depend on the rows of all.

Owns: what ranks may ask of one another, and two kinds of them: nobody else, and threads of one process (for
tests). Must not know: what the numbers mean.

Every rank runs the same program on its own rows and calls the same verbs in the same order. Sums are of
integers only: they do not depend on how rows are shared out, so neither does a model.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "SINGLE_PROCESS",
    "SingleProcess",
    "Communicator",
    "WorkerLostError",
    "ThreadCommunicator",
]

IntegerArray: TypeAlias = NDArray[np.signedinteger[Any]]
Buffer: TypeAlias = bytes | bytearray | memoryview
_Found = TypeVar("_Found")


class WorkerLostError(RuntimeError):
    """Another rank has ended, so that what was asked of it will not come."""


class Communicator(ABC):
    """What a rank may ask of the others. All ranks ask the same, in the same order.

    Attributes
    ----------
    rank : int
        From 0 on.
    size : int
        Number of ranks.
    """

    rank: int
    size: int

    @abstractmethod
    def exchange(self, blocks: Sequence[Buffer]) -> list[Buffer]:
        """Hand block i to rank i; returns what each rank has handed to this one, in order of rank.

        All other verbs are made of this one. Blocks may be on their way until the next call has returned.

        Raises
        ------
        WorkerLostError
            Where a rank is gone.
        """

    def sum(self, numbers: IntegerArray) -> None:
        """Add up an array over all ranks, in place.

        Raises
        ------
        TypeError
            Where it is not of integers: sums of floats depend on their order.
        """
        _require_integers(numbers)
        if self.size > 1:
            numbers[...] = sum(self._of_all(numbers), np.zeros_like(numbers))

    def largest(self, numbers: NDArray[Any]) -> None:
        """Take the largest of every entry over all ranks, in place; NaN where a rank has NaN."""
        if self.size > 1:
            numbers[...] = np.maximum.reduce(self._of_all(numbers))

    def sum_shares(self, shares: Sequence[IntegerArray]) -> IntegerArray:
        """Share r of every rank, added, goes to rank r, in place of its own.

        The others are read where they lie: they must stay as they are until the next verb has returned.

        Parameters
        ----------
        shares : sequence of ndarray
            One for each rank; share r is of the same shape and dtype on all ranks.

        Raises
        ------
        TypeError
            Where they are not of integers.
        """
        for share in shares:
            _require_integers(share)
        own = shares[self.rank]
        if self.size == 1:
            return own
        blocks: list[Buffer] = [
            b"" if r == self.rank else np.ascontiguousarray(share).data.cast("B")
            for r, share in enumerate(shares)
        ]
        for r, data in enumerate(self.exchange(blocks)):
            if r != self.rank:
                own += _like(data, own)
        return own

    def gather(self, data: Buffer) -> list[Buffer]:
        """What every rank gives, in order of rank."""
        return self.exchange([data] * self.size)

    def _of_all(self, numbers: NDArray[Any]) -> list[NDArray[Any]]:
        return [_like(data, numbers) for data in self.gather(_bytes_of(numbers))]


class SingleProcess(Communicator):
    """Nobody else."""

    rank, size = 0, 1

    def exchange(self, blocks: Sequence[Buffer]) -> list[Buffer]:
        return list(blocks)


SINGLE_PROCESS: Final = SingleProcess()


class ThreadCommunicator(Communicator):
    """A rank that is a thread among others of this process; `run` makes all of them."""

    def __init__(self, rank: int, board: list[list[Buffer]], barrier: threading.Barrier) -> None:
        self.rank, self.size = rank, len(board)
        self._board, self._barrier = board, barrier

    @staticmethod
    def run(
        size: int, work: Callable[[Communicator], _Found], timeout: float = 600.0
    ) -> list[_Found]:
        """What `work` returns for each rank, in order of rank.

        Parameters
        ----------
        size : int
            Number of ranks.
        work : callable
            `work(communicator)`, in a thread of its own for each rank.
        timeout : float
            Seconds after which a rank that others wait for counts as gone.

        Raises
        ------
        Exception
            What the first rank that failed of itself has raised; the others end with it.
        """
        board: list[list[Buffer]] = [[] for _ in range(size)]
        barrier = threading.Barrier(size, timeout=timeout)

        def of_rank(rank: int) -> _Found:
            try:
                return work(ThreadCommunicator(rank, board, barrier))
            except BaseException:
                barrier.abort()
                raise

        with ThreadPoolExecutor(size) as threads:
            ends = [threads.submit(of_rank, rank) for rank in range(size)]
        failures = [error for end in ends if (error := end.exception()) is not None]
        for error in sorted(failures, key=lambda error: isinstance(error, WorkerLostError)):
            raise error
        return [end.result() for end in ends]

    def exchange(self, blocks: Sequence[Buffer]) -> list[Buffer]:
        if len(blocks) != self.size:
            raise ValueError(
                f"exchange needs a block for each of {self.size} ranks, got {len(blocks)}."
            )
        self._board[self.rank] = [bytes(block) for block in blocks]
        self._wait()
        found = [self._board[rank][self.rank] for rank in range(self.size)]
        self._wait()  # nobody posts anew before all have read
        return found

    def _wait(self) -> None:
        try:
            self._barrier.wait()
        except threading.BrokenBarrierError:
            raise WorkerLostError(f"Rank {self.rank} waits for another that has ended.") from None


def _require_integers(numbers: NDArray[Any]) -> None:
    if numbers.dtype.kind not in "iu":
        raise TypeError(
            f"Ranks add integers only, not {numbers.dtype}: sums of floats depend on who holds which rows."
        )


def _bytes_of(numbers: NDArray[Any]) -> bytes:
    return np.ascontiguousarray(numbers).tobytes()


def _like(data: Buffer, numbers: NDArray[Any]) -> NDArray[Any]:
    """What another rank has sent, in the shape of what this one has."""
    found = np.frombuffer(data, numbers.dtype)
    if found.size != numbers.size:
        raise RuntimeError(
            f"Ranks are out of sync: one sent {found.size} numbers where this one has {numbers.size}."
        )
    return found.reshape(numbers.shape)
