"""What ranks hand one another, over the connections that their Dask workers have.

A rank leaves blocks with its own worker's plugin, and fetches those that others have left for it with theirs:
so an answer comes over the connection that breaks when a worker dies.

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

from polyleaf.communicator import Buffer, Communicator, PeerFailed

__all__ = ["DaskCommunicator", "Post"]

_FETCH, _ABORT = "polyleaf_fetch", "polyleaf_abort"
_SECONDS_BETWEEN_TRIES = 0.05  # where a worker that has just come has no plugin yet
_CLOSING = (Status.closing, Status.closed, Status.failed)


class _Box:
    """Blocks of one rank of one attempt at a fit, by step and whom they are for."""

    def __init__(self) -> None:
        self._blocks: dict[tuple[int, int], asyncio.Future[Buffer]] = {}
        self.ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def at(self, step: int, to: int) -> asyncio.Future[Buffer]:
        self.check()
        return self._blocks.setdefault((step, to), asyncio.get_running_loop().create_future())

    def check(self) -> None:
        """Raise where the attempt has ended."""
        if self.ended.done():
            raise PeerFailed(self.ended.result())

    def forget(self, step: int) -> None:
        """What all have fetched."""
        self._blocks = {key: block for key, block in self._blocks.items() if key[0] > step}

    def end(self, why: str) -> None:
        """Nobody waits any longer, and nobody will."""
        if not self.ended.done():
            self.ended.set_result(why)
        for block in self._blocks.values():
            if not block.done():
                block.set_exception(PeerFailed(why))
                block.exception()  # nobody may be waiting for it
        self._blocks = {}


def _seen(future: asyncio.Future[Any]) -> None:
    """What becomes of it nobody may ask: the attempt has ended before."""
    if not future.cancelled():
        future.exception()


class Post(WorkerPlugin):
    """A worker's part: answers for the ranks that run on it."""

    name = "polyleaf-post"
    idempotent = True

    def setup(self, worker: Worker) -> None:
        self.worker: Any = worker
        self._boxes: dict[str, _Box] = {}
        self._begun: set[str] = set()
        self._kept: dict[str, Any] = {}
        self._telling: set[asyncio.Future[None]] = set()
        worker.handlers[_FETCH] = self._fetch
        worker.handlers[_ABORT] = self._abort

    def __getstate__(self) -> dict[str, Any]:
        return {}

    async def exchange(
        self, fit: str, step: int, rank: int, addresses: Sequence[str], blocks: Sequence[Buffer]
    ) -> list[Buffer]:
        """Leave blocks for all ranks, and fetch theirs."""
        box = self._box(fit)
        for to, block in enumerate(blocks):
            box.at(step, to).set_result(block)

        async def fetched(of: int) -> Any:
            if of == rank:
                return blocks[rank]
            ask = self.worker.rpc(addresses[of]).polyleaf_fetch
            while (answer := await ask(fit=fit, step=step, to=rank)) is None:
                await asyncio.sleep(_SECONDS_BETWEEN_TRIES)
            if "ended" in answer:
                raise PeerFailed(answer["ended"])
            return memoryview(answer["data"])

        # Whoever connects to a worker that is gone tries for long: that the attempt has ended comes first.
        fetching = asyncio.gather(*(fetched(of) for of in range(len(addresses))))
        fetching.add_done_callback(_seen)
        try:
            either: set[asyncio.Future[Any]] = {fetching, box.ended}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            box.check()
            found = fetching.result()
        except OSError as error:  # a connection that broke
            raise PeerFailed(f"Another worker is lost: {error}") from error
        except RuntimeError as error:
            if self.worker.status not in _CLOSING:
                raise
            raise PeerFailed(f"This worker closes: {error}") from error
        finally:
            fetching.cancel()
        box.forget(step - 1)
        return found

    def begin(self, fit: str) -> None:
        """A rank of this attempt has begun here."""
        self._begun.add(fit)

    def end(self, fit: str, why: str) -> bool:
        """End what waits for blocks of this attempt here; whether a rank of it had begun."""
        self._box(fit).end(why)
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
                telling = asyncio.ensure_future(self._tell(address, fit, why))
                self._telling.add(telling)
                telling.add_done_callback(self._telling.discard)

    async def _tell(self, address: str, fit: str, why: str) -> None:
        with contextlib.suppress(OSError, RuntimeError):  # it is gone, or this worker closes
            await self.worker.rpc(address).polyleaf_abort(fit=fit, why=why)

    def _box(self, fit: str) -> _Box:
        if fit not in self._boxes:
            self._boxes[fit] = _Box()
        return self._boxes[fit]

    async def _fetch(self, fit: str, step: int, to: int) -> dict[str, Any]:
        try:
            block = await self._box(fit).at(step, to)
            return {"status": "OK", "data": to_serialize(np.frombuffer(block, np.uint8))}  # not copied
        except PeerFailed as error:
            return {"status": "OK", "ended": str(error)}

    async def _abort(self, fit: str, why: str) -> dict[str, str]:
        self.end(fit, why)
        return {"status": "OK"}


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

    def end(self, why: str) -> None:
        """Tell all ranks, as far as they can be reached, that this one has ended."""
        sync(self._loop, self._post.end_all, self._fit, self._addresses, why)

    def _check_wanted(self) -> None:
        """A rank whose client has gone ends."""
        task = self._state.tasks.get(self._key)
        if task is None or task.state == "cancelled":
            raise PeerFailed("Nobody waits for this fit any longer.")
