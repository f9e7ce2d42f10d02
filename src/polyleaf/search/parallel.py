"""Jobs beside one another, in threads, and what they give in order.

Owns the threads. Must not know what a job is.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

__all__ = ["in_order"]

AHEAD = 2  # jobs begun for each thread before the first of them is taken: so that none waits for a long one

T = TypeVar("T")


def in_order(
    jobs: Iterable[Callable[[], T]], at_once: int, end: Callable[[], object]
) -> Generator[T, None, None]:
    """What jobs give, in their order, while up to `at_once` of them run. To be closed.

    Parameters
    ----------
    jobs : iterable of callable
        Asked for in this thread, a few before they are needed.
    at_once : int
        1: each runs in this thread, when it is its turn.
    end : callable
        Tells jobs that still run to come to an end, where nobody waits for what they give: after an error, or
        Ctrl-C.
    """
    if at_once == 1:
        for job in jobs:
            yield job()
        return
    running: deque[Future[T]] = deque()
    with ThreadPoolExecutor(at_once, "polyleaf-search") as pool:
        try:
            for job in jobs:
                running.append(pool.submit(job))
                if len(running) >= AHEAD * at_once:
                    yield running.popleft().result()
            while running:
                yield running.popleft().result()
        finally:
            end()
            for future in running:
                future.cancel()
