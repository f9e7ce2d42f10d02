"""What ranks hand one another, over the connections that their Dask workers make.

Two ranks share one connection for the time of a fit and write to it what the other will want: a message each
way is all that an exchange costs. Both listen all the time, so that either notices at once when the other
dies.

Owns: the plugin, and the communicator that it makes of a worker. Must not know: what blocks hold, who decides
what a rank does.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from distributed import Status, Worker, WorkerPlugin, get_worker
from distributed.protocol import to_serialize
from distributed.utils import sync
from distributed.worker import thread_state

from polyleaf.runtime.collective import Buffer, Communicator, WorkerLostError

__all__ = ["DaskCommunicator", "Post"]

_JOIN, _ABORT = "polyleaf_join", "polyleaf_abort"
_SECONDS_BETWEEN_TRIES = 0.05  # where a worker that has just come has no plugin yet
_CLOSING = (Status.closing, Status.closed, Status.failed)
_LARGE = 2**16  # bytes from which a block is sent from where it lies


class _Box:
    """What the other ranks of one attempt at a fit have sent to the one that runs here, and the connections
    to them."""

    def __init__(self) -> None:
        self._blocks: dict[tuple[int, int], asyncio.Future[Buffer]] = {}
        self._wires: dict[int, asyncio.Future[Any]] = {}
        self._error: Exception | None = None
        self.left = asyncio.Event()

    def wire(self, rank: int) -> asyncio.Future[Any]:
        """The connection to a rank, once there is one."""
        return self._promised(self._wires, rank)

    def block(self, step: int, rank: int) -> asyncio.Future[Buffer]:
        """What a rank sends in this step."""
        return self._promised(self._blocks, (step, rank))

    def _promised(self, kept: dict[Any, asyncio.Future[Any]], key: Any) -> asyncio.Future[Any]:
        self.check()
        if key not in kept:
            kept[key] = asyncio.get_running_loop().create_future()
        return kept[key]

    def take(self, step: int, rank: int) -> None:
        """Forget a block that has been handed over."""
        self._blocks.pop((step, rank), None)

    def check(self) -> None:
        """Raise where the attempt has ended."""
        if self._error is not None:
            raise self._error

    def end(self, error: Exception) -> None:
        """Nobody waits any longer, and nobody will."""
        if self._error is not None:
            return
        self._error = error
        for promised in (*self._wires.values(), *self._blocks.values()):
            if not promised.done():
                promised.set_exception(error)
                promised.exception()  # nobody may be waiting for it
        for wire in self._wires.values():
            if wire.exception() is None:
                wire.result().abort()
        self._blocks, self._wires = {}, {}
        self.left.set()

    async def leave(self) -> None:
        """Say that this rank needs no more."""
        for wire in self._wires.values():
            with contextlib.suppress(OSError):
                await wire.result().write({"left": True})
        self.left.set()


class Post(WorkerPlugin):
    """A worker's part: the connections of the ranks that run on it."""

    name = "polyleaf-post"
    idempotent = True

    def setup(self, worker: Worker) -> None:
        self.worker: Any = worker
        self._boxes: dict[str, _Box] = {}
        self._begun: set[str] = set()
        self._kept: dict[str, Any] = {}
        self._running: set[asyncio.Future[None]] = set()
        worker.handlers[_JOIN] = self._join
        worker.handlers[_ABORT] = self._abort

    def __getstate__(self) -> dict[str, Any]:
        return {}

    async def exchange(
        self, fit: str, step: int, rank: int, addresses: Sequence[str], blocks: Sequence[Buffer]
    ) -> list[Buffer]:
        """Send blocks to all ranks, and take theirs."""
        box, found = self._box(fit), list(blocks)
        others = [other for other in range(len(blocks)) if other != rank]
        if step == 1:
            for other in others[rank:]:
                self._run(self._connect(box, fit, rank, other, addresses[other]))
        try:
            for other in others:
                await (await box.wire(other)).write(
                    {"step": step, "block": _sendable(blocks[other])}
                )
        except OSError as error:
            box.end(self._meaning(error))
        for other in others:
            found[other] = await box.block(step, other)
            box.take(step, other)
        return found

    async def leave(self, fit: str) -> None:
        """This rank needs nothing more of the others."""
        await self._box(fit).leave()

    def begin(self, fit: str) -> None:
        """A rank of this attempt has begun here."""
        self._begun.add(fit)

    def end(self, fit: str, why: str) -> bool:
        """End what waits for blocks of this attempt here; whether a rank of it had begun."""
        self._box(fit).end(WorkerLostError(why))
        self._kept.pop(fit, None)
        return fit in self._begun

    def put(self, fit: str, kept: Any) -> None:
        """Keep something for the client, in place of what was kept before."""
        self._kept[fit] = kept

    def get(self, fit: str) -> Any:
        """What is kept, once; None where nothing new is."""
        return self._kept.pop(fit, None)

    async def end_all(self, fit: str, addresses: Sequence[str], why: str) -> None:
        """The same on all workers that can be reached; nobody waits for those that cannot."""
        self.end(fit, why)
        for address in addresses:
            if address != self.worker.address:
                self._run(self._tell(address, fit, why))

    async def _tell(self, address: str, fit: str, why: str) -> None:
        with contextlib.suppress(OSError, RuntimeError):  # it is gone, or this worker closes
            await self.worker.rpc(address).polyleaf_abort(fit=fit, why=why)

    def _run(self, work: Any) -> None:
        """Beside what else this worker does."""
        running = asyncio.ensure_future(work)
        self._running.add(running)
        running.add_done_callback(self._running.discard)

    def _box(self, fit: str) -> _Box:
        if fit not in self._boxes:
            self._boxes[fit] = _Box()
        return self._boxes[fit]

    async def _connect(self, box: _Box, fit: str, rank: int, other: int, address: str) -> None:
        """Join with a rank after this one, whose worker may not have the plugin yet."""
        pool = self.worker.rpc
        try:
            while True:
                comm = await pool.connect(address)
                try:
                    await comm.write({"op": _JOIN, "fit": fit, "rank": rank})
                    answer = await comm.read()
                    if answer is not None:
                        await self._hold(box, other, comm, answer)
                        return await comm.close()
                finally:
                    pool.reuse(address, comm)
                await asyncio.sleep(_SECONDS_BETWEEN_TRIES)
        except Exception as error:
            box.end(self._meaning(error))

    async def _join(self, comm: Any, fit: str, rank: int) -> Status:
        """A rank before the one that runs here, or will."""
        await comm.write({"joined": True})
        await self._hold(self._box(fit), rank, comm, {})
        return Status.dont_reply

    async def _hold(self, box: _Box, other: int, comm: Any, message: dict[str, Any]) -> None:
        """Listen to a rank, until both have left."""
        try:
            box.wire(other).set_result(comm)
            while "left" not in message:
                message = await comm.read()
                if "block" in message:
                    box.block(message["step"], other).set_result(_received(message["block"]))
            await box.left.wait()
        except WorkerLostError:  # it is over here
            comm.abort()
        except Exception as error:
            box.end(self._meaning(error))

    def _meaning(self, error: Exception) -> Exception:
        """Of what has ended a connection."""
        if isinstance(error, OSError):
            return WorkerLostError(f"Another worker is lost: {error}")
        closes = isinstance(error, RuntimeError) and self.worker.status in _CLOSING
        return WorkerLostError(f"This worker closes: {error}") if closes else error

    async def _abort(self, fit: str, why: str) -> dict[str, str]:
        self.end(fit, why)
        return {"status": "OK"}


def _sendable(block: Buffer) -> Any:
    """In a message: small ones within it, large ones beside it, which copies nothing."""
    return to_serialize(np.frombuffer(block, np.uint8)) if len(block) >= _LARGE else bytes(block)


def _received(block: Any) -> Buffer:
    return block if isinstance(block, bytes) else memoryview(block)


class DaskCommunicator(Communicator):
    """A rank that is a task of a Dask worker.

    Parameters
    ----------
    fit : str
        Which attempt at which fit: what was left for another is not mistaken for this one's.
    rank : int
    addresses : sequence of str
        The worker of each rank.
    """

    def __init__(self, fit: str, rank: int, addresses: Sequence[str]) -> None:
        self.rank, self.size = rank, len(addresses)
        worker: Any = get_worker()
        self._post: Post = worker.plugins[Post.name]
        self._loop, self._state, self._key = worker.loop, worker.state, thread_state.key
        self._fit, self._addresses, self._step = fit, list(addresses), 0
        self._post.begin(fit)

    def exchange(self, blocks: Sequence[Buffer]) -> list[Buffer]:
        self._check_wanted()
        self._step += 1
        about = self._fit, self._step, self.rank, self._addresses, blocks
        return sync(self._loop, self._post.exchange, *about)

    def put(self, kept: Any) -> None:
        """Leave something for the client, who may ask for it."""
        self._post.put(self._fit, kept)

    def leave(self) -> None:
        """Nothing more is needed of the others, nor by them."""
        self.gather(b"")  # nobody leaves while others may ask
        sync(self._loop, self._post.leave, self._fit)

    def end(self, why: str) -> None:
        """Tell all ranks, as far as they can be reached, that this one has ended."""
        sync(self._loop, self._post.end_all, self._fit, self._addresses, why)

    def _check_wanted(self) -> None:
        """A rank whose client has gone ends."""
        task = self._state.tasks.get(self._key)
        if task is None or task.state == "cancelled":
            raise WorkerLostError("Nobody waits for this fit any longer.")
