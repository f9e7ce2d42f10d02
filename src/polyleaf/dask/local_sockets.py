"""Unix sockets between ranks of one host.

A message takes a twentieth of the processor time of one over the connections of Dask workers, whose
event loops and formats it does not need.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import tempfile
from collections.abc import Callable, Sequence

import numpy as np

from polyleaf.runtime.collective import Buffer

_SIZE = struct.Struct("<q")
_SMALL_BYTES = 2**14  # a socket takes messages of this size at once


class LocalSockets:
    """Sockets of a rank that are connected with the other ranks of its host."""

    def __init__(self) -> None:
        self._sockets: dict[int, socket.socket] = {}

    def connect(
        self, rank: int, size: int, alltoall: Callable[[Sequence[Buffer]], Sequence[Buffer]]
    ) -> None:
        """Connect with the ranks that can open a path of this rank, or have a path that opens here.

        `alltoall`: exchanges blocks between all ranks.
        """
        with contextlib.ExitStack() as stack:
            listener, path = None, ""
            with contextlib.suppress(AttributeError, OSError):  # Windows; long names of folders
                folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="polyleaf-"))
                listener = stack.enter_context(socket.socket(socket.AF_UNIX))
                listener.bind(os.path.join(folder, "rank"))
                listener.listen(size)
                path = listener.getsockname()
            paths = alltoall([path.encode()] * size)
            opened: dict[int, socket.socket] = {}
            for other in range(rank + 1, size):
                with contextlib.suppress(AttributeError, OSError):
                    opened[other] = _open(rank, bytes(paths[other]).decode())
            connected = alltoall([b"1" if r in opened else b"" for r in range(size)])
            for _ in range(sum(map(len, connected[:rank]))):
                assert listener is not None
                accepted, _ = listener.accept()
                (other,) = _SIZE.unpack(_receive(accepted, _SIZE.size))
                opened[other] = accepted
            self._sockets = opened

    def __contains__(self, rank: int) -> bool:
        return rank in self._sockets

    def exchange(self, rank: int, blocks: Sequence[Buffer]) -> dict[int, Buffer]:
        """Send a block to every connected rank, and return theirs.

        Raises an OSError if a rank is lost.
        """
        received: dict[int, Buffer] = {}
        # In each turn, pairs of ranks talk with each other.
        for turn in range(len(blocks)):
            other = (turn - rank) % len(blocks)
            if other not in self._sockets:
                continue
            connection, block = self._sockets[other], blocks[other]
            # While both send a large message, none would read.
            sends_first = rank < other or len(block) <= _SMALL_BYTES
            if sends_first:
                _send(connection, block)
            (n,) = _SIZE.unpack(_receive(connection, _SIZE.size))
            received[other] = _receive(connection, n)
            if not sends_first:
                _send(connection, block)
        return received

    def shut_down(self) -> None:
        """End all communication: whoever waits for it, in any thread, receives an OSError."""
        for connection in list(self._sockets.values()):
            with contextlib.suppress(OSError):  # the other rank has gone
                connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the sockets: this rank needs no more messages."""
        for connection in self._sockets.values():
            connection.close()


def _open(rank: int, path: str) -> socket.socket:
    """Return a socket that is connected with the rank that listens at a path."""
    opened = socket.socket(socket.AF_UNIX)
    try:
        opened.connect(path)
        opened.sendall(_SIZE.pack(rank))
    except OSError:
        opened.close()
        raise
    return opened


def _send(connection: socket.socket, block: Buffer) -> None:
    size = _SIZE.pack(len(block))
    if len(block) <= _SMALL_BYTES:
        connection.sendall(size + bytes(block))
    else:
        connection.sendall(size)
        connection.sendall(block)


def _receive(connection: socket.socket, n: int) -> memoryview:
    """Return n bytes, at an address that numbers of any type may have."""
    received = rest = np.empty(n, np.uint8).data
    while len(rest) > 0:
        n_read = connection.recv_into(rest, 0, socket.MSG_WAITALL)
        if n_read == 0:
            raise ConnectionError("its socket was closed.")
        rest = rest[n_read:]
    return received
