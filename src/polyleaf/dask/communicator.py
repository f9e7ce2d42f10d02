"""Communication between ranks over the connections of their Dask workers.

During a fit, each pair of ranks shares one connection, and each side writes the message that the
other will need: an exchange costs one message in each direction. Both listen all the time, so that
either notices at once when the other is lost. Between ranks of one host, the messages go through
Unix sockets instead.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from distributed import Status, Worker, WorkerPlugin, get_worker
from distributed.protocol import to_serialize
from distributed.utils import sync
from distributed.worker import thread_state

from polyleaf.dask.local_sockets import LocalSockets
from polyleaf.runtime.collective import Buffer, Communicator, WorkerLostError

if TYPE_CHECKING:
    from distributed.comm import Comm

    from polyleaf.runtime.types import JsonObject

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")
_JOIN, _ABORT = "polyleaf_join", "polyleaf_abort"
_RETRY_SECONDS = 0.05  # until a new worker has the plugin
_CLOSING = (Status.closing, Status.closed, Status.failed)
_LARGE_BYTES = 2**16  # from this size a message is sent without copying it


class Mailbox:
    """Connections to the other ranks of one attempt, and the messages received from them."""

    def __init__(self) -> None:
        self._messages: dict[tuple[int, int], asyncio.Future[Buffer]] = {}
        self._connections: dict[int, asyncio.Future[Comm]] = {}
        self._error: Exception | None = None
        self.sockets = LocalSockets()  # of the rank, which are shut down with the attempt
        self.left = asyncio.Event()

    def connection(self, rank: int) -> asyncio.Future[Comm]:
        """Return a future of the connection to a rank."""
        return self._future(self._connections, rank)

    def message(self, step: int, rank: int) -> asyncio.Future[Buffer]:
        """Return a future of the message of a rank in this step."""
        return self._future(self._messages, (step, rank))

    def _future(
        self, futures: dict[_Key, asyncio.Future[_Value]], key: _Key
    ) -> asyncio.Future[_Value]:
        self.check()
        if key not in futures:
            futures[key] = asyncio.get_running_loop().create_future()
        return futures[key]

    def pop(self, step: int, rank: int) -> None:
        """Remove a message that was delivered."""
        self._messages.pop((step, rank), None)

    def check(self) -> None:
        """Raise the error if the attempt has ended."""
        if self._error is not None:
            raise self._error

    def close(self, error: Exception) -> None:
        """End the attempt: whoever waits, now or later, receives the error."""
        if self._error is not None:
            return
        self._error = error
        for future in (*self._connections.values(), *self._messages.values()):
            if not future.done():
                future.set_exception(error)
                future.exception()  # marks it as retrieved: perhaps nobody waits for it
        for connection in self._connections.values():
            if connection.exception() is None:
                connection.result().abort()
        self.sockets.shut_down()
        self._messages, self._connections = {}, {}
        self.left.set()

    async def leave(self) -> None:
        """Inform the other ranks that this one needs no more messages."""
        for connection in self._connections.values():
            with contextlib.suppress(OSError):
                await connection.result().write({"left": True})
        self.left.set()


class CommunicatorPlugin(WorkerPlugin):
    """Worker plugin that holds the connections of the ranks that run on the worker."""

    name = "polyleaf-communicator"
    idempotent = True

    def setup(self, worker: Worker) -> None:
        self.worker = worker
        self._mailboxes: dict[str, Mailbox] = {}
        self._started: set[str] = set()
        self._stored: dict[str, object] = {}
        self._tasks: set[asyncio.Future[None]] = set()
        worker.handlers[_JOIN] = self._join
        worker.handlers[_ABORT] = self._abort

    def __getstate__(self) -> dict[str, object]:
        return {}

    async def exchange(
        self, fit: str, step: int, rank: int, addresses: Sequence[str], messages: Sequence[Buffer]
    ) -> list[Buffer]:
        """Send a message to every rank without a socket here, and return theirs."""
        mailbox, received = self._mailbox(fit), list(messages)
        others = [r for r in range(len(messages)) if r != rank and r not in mailbox.sockets]
        if step == 1:
            for other in others[rank:]:
                self._spawn(self._connect(mailbox, fit, rank, other, addresses[other]))
        try:
            for other in others:
                connection = await mailbox.connection(other)
                await connection.write({"step": step, "message": _serialise(messages[other])})
        except OSError as error:
            mailbox.close(self._convert_error(error))
        for other in others:
            received[other] = await mailbox.message(step, other)
            mailbox.pop(step, other)
        return received

    async def get_sockets(self, fit: str) -> LocalSockets:
        """Return the sockets of the rank of an attempt."""
        mailbox = self._mailbox(fit)
        mailbox.check()
        return mailbox.sockets

    async def lose(self, fit: str, error: OSError) -> None:
        """End an attempt here because of a lost socket, and raise why."""
        mailbox = self._mailbox(fit)
        mailbox.close(self._convert_error(error))
        mailbox.check()

    async def leave(self, fit: str) -> None:
        """Leave an attempt: this rank needs no more messages."""
        await self._mailbox(fit).leave()

    def start(self, fit: str) -> None:
        """Note that a rank of this attempt has started here."""
        self._started.add(fit)

    def end(self, fit: str, reason: str) -> bool:
        """End an attempt here, and return whether a rank of it had started."""
        self._mailbox(fit).close(WorkerLostError(reason))
        self._stored.pop(fit, None)
        return fit in self._started

    def put(self, fit: str, value: object) -> None:
        """Store a value for the client, in place of the one before."""
        self._stored[fit] = value

    def get(self, fit: str) -> object:
        """Remove and return the stored value; None if there is no new one."""
        return self._stored.pop(fit, None)

    async def end_all(self, fit: str, addresses: Sequence[str], reason: str) -> None:
        """End an attempt here and on all workers, without waiting for any."""
        self.end(fit, reason)
        for address in addresses:
            if address != self.worker.address:
                self._spawn(self._send_abort(address, fit, reason))

    async def _send_abort(self, address: str, fit: str, reason: str) -> None:
        with contextlib.suppress(OSError, RuntimeError):  # it is lost, or this worker closes
            await self.worker.rpc(address).polyleaf_abort(fit=fit, reason=reason)

    def _spawn(self, coroutine: Coroutine[None, None, None]) -> None:
        """Run a coroutine in the background."""
        task = asyncio.ensure_future(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _mailbox(self, fit: str) -> Mailbox:
        if fit not in self._mailboxes:
            self._mailboxes[fit] = Mailbox()
        return self._mailboxes[fit]

    async def _connect(
        self, mailbox: Mailbox, fit: str, rank: int, other: int, address: str
    ) -> None:
        """Connect to a higher rank, whose worker may not have the plugin yet."""
        pool = self.worker.rpc
        try:
            while True:
                comm = await pool.connect(address)
                try:
                    await comm.write({"op": _JOIN, "fit": fit, "rank": rank})
                    answer = await comm.read()
                    if answer is not None:
                        await self._listen(mailbox, other, comm, answer)
                        return await comm.close()
                finally:
                    pool.reuse(address, comm)
                await asyncio.sleep(_RETRY_SECONDS)
        except Exception as error:
            mailbox.close(self._convert_error(error))

    async def _join(self, comm: Comm, fit: str, rank: int) -> Status:
        """Accept the connection of a lower rank."""
        await comm.write({"joined": True})
        await self._listen(self._mailbox(fit), rank, comm, {})
        return Status.dont_reply

    async def _listen(self, mailbox: Mailbox, other: int, comm: Comm, received: JsonObject) -> None:
        """Receive messages from a rank until both have left."""
        try:
            mailbox.connection(other).set_result(comm)
            while "left" not in received:
                received = await comm.read()
                if "message" in received:
                    message = _deserialise(received["message"])
                    mailbox.message(received["step"], other).set_result(message)
            await mailbox.left.wait()
        except WorkerLostError:  # the attempt has ended here
            comm.abort()
        except Exception as error:
            mailbox.close(self._convert_error(error))

    def _convert_error(self, error: Exception) -> Exception:
        """Convert errors of connections to WorkerLostError; return others unchanged."""
        if isinstance(error, OSError):
            return WorkerLostError(f"Another worker is lost: {error}")
        is_closing = isinstance(error, RuntimeError) and self.worker.status in _CLOSING
        return WorkerLostError(f"This worker is closing: {error}") if is_closing else error

    async def _abort(self, fit: str, reason: str) -> dict[str, str]:
        self.end(fit, reason)
        return {"status": "OK"}


def _serialise(message: Buffer) -> object:
    """Return small messages as bytes, and large ones as arrays, which are sent without a copy."""
    if len(message) >= _LARGE_BYTES:
        return to_serialize(np.frombuffer(message, np.uint8))
    return bytes(message)


def _deserialise(message: Any) -> Buffer:
    return message if isinstance(message, bytes) else memoryview(message)


class DaskCommunicator(Communicator):
    """Communicator of a rank that runs as a task of a Dask worker.

    `fit`: identifier of the attempt. `addresses`: worker address of each rank.
    """

    def __init__(self, fit: str, rank: int, addresses: Sequence[str]) -> None:
        self.rank, self.size = rank, len(addresses)
        worker = get_worker()
        self._plugin: CommunicatorPlugin = worker.plugins[CommunicatorPlugin.name]
        self._loop = worker.loop
        self._state = worker.state
        self._key = thread_state.key
        self._fit = fit
        self._addresses = list(addresses)
        self._step = 0
        self.sent_bytes = 0
        self._plugin.start(fit)
        self._sockets = LocalSockets()

    def alltoall(self, blocks: Sequence[Buffer]) -> list[Buffer]:
        self._check_cancelled()
        self.sent_bytes += sum(map(len, blocks)) - len(blocks[self.rank])
        try:
            if self._step == 0:
                self._sockets = sync(self._loop, self._plugin.get_sockets, self._fit)
                self._sockets.connect(self.rank, self.size, self._exchange_remotely)
                # From here on they are shut down with the attempt.
                sync(self._loop, self._plugin.get_sockets, self._fit)
            received = self._sockets.exchange(self.rank, blocks)
        except OSError as error:
            sync(self._loop, self._plugin.lose, self._fit, error)
        if len(received) == self.size - 1:
            return [received.get(r, block) for r, block in enumerate(blocks)]
        others = self._exchange_remotely(blocks)
        return [received.get(r, block) for r, block in enumerate(others)]

    def _exchange_remotely(self, blocks: Sequence[Buffer]) -> list[Buffer]:
        """Exchange blocks with the ranks that have no socket here."""
        self._step += 1
        return sync(
            self._loop,
            self._plugin.exchange,
            self._fit,
            self._step,
            self.rank,
            self._addresses,
            blocks,
        )

    def put(self, value: object) -> None:
        """Store a value that the client may fetch."""
        self._plugin.put(self._fit, value)

    def leave(self) -> None:
        """Leave the attempt after all ranks have reached this point."""
        self.allgather(b"")
        self._sockets.close()
        sync(self._loop, self._plugin.leave, self._fit)

    def end(self, reason: str) -> None:
        """End the attempt on all workers that can be reached."""
        self._sockets.close()
        sync(self._loop, self._plugin.end_all, self._fit, self._addresses, reason)

    def _check_cancelled(self) -> None:
        """End this rank if its client has gone, or its worker closes."""
        if self._plugin.worker.status in _CLOSING:
            raise WorkerLostError("This worker is closing.")
        task = self._state.tasks.get(self._key)
        if task is None or task.state == "cancelled":
            raise WorkerLostError("The fit was cancelled.")
