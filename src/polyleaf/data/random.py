"""What is drawn at random, of rows and of features.

Owns the draw. Must not know what is drawn, or for what.

A draw orders what there is by a hash of (seed, round, number) and takes the smallest. The hash is a bijection
of the number, so there are no ties: the sample has exactly the size asked for, and it does not depend on the
version of NumPy, on the processor, on the number of threads, or on where rows lie.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from polyleaf.runtime.collective import SINGLE_PROCESS, Communicator

__all__ = [
    "BINNED_ROWS",
    "FEATURES",
    "SCORED_ROWS",
    "ROWS",
    "draw",
    "draw_ids",
    "hash_ids",
    "derive_seed",
    "find_kth_smallest",
]

# Streams: what is drawn with one seed must not be drawn alike.
ROWS, FEATURES, BINNED_ROWS, SCORED_ROWS = 1, 2, 3, 4


def draw(n: int, count: int, seed: int, round: int, stream: int) -> NDArray[np.bool_]:
    """Mask of `count` of `n` indices, drawn without replacement."""
    if count >= n:
        return np.ones(n, bool)
    return draw_ids(np.arange(n), count, seed, round, stream, SINGLE_PROCESS)


def draw_ids(
    numbers: NDArray[np.integer],
    count: int,
    seed: int,
    round: int,
    stream: int,
    communicator: Communicator,
) -> NDArray[np.bool_]:
    """The same of the numbers that all ranks hold between them, each one once: the mask of this rank's."""
    if count <= 0:
        return np.zeros(len(numbers), bool)
    found = hash_ids(numbers, seed, round, stream)
    return found <= find_kth_smallest(found, count, communicator)


def find_kth_smallest(
    found: NDArray[np.uint32], count: int, communicator: Communicator
) -> np.uint32:
    """The `count`-th smallest, from 1 on, of what all ranks hold: found eight bits at a time."""
    if communicator.size == 1:
        return np.uint32(np.partition(found, count - 1)[count - 1])
    start = 0
    for shift in (24, 16, 8, 0):
        digits = (found >> np.uint32(shift)) & np.uint32(255)
        counts = np.bincount(digits, minlength=256)
        communicator.sum(counts)
        reached = np.cumsum(counts)
        digit = int(np.searchsorted(reached, count))
        count -= int(reached[digit] - counts[digit])
        found, start = found[digits == digit], start | digit << shift
    return np.uint32(start)


def derive_seed(seed: int, round: int, stream: int) -> int:
    """What the core hashes numbers with where it draws itself."""
    return int(np.random.SeedSequence([seed, round, stream]).generate_state(1, np.uint64)[0])


def hash_ids(
    numbers: NDArray[np.integer], seed: int, round: int, stream: int
) -> NDArray[np.uint32]:
    """What a draw orders numbers below 2^32 by: MurmurHash3's finaliser twice, a key word before each."""
    words = np.random.SeedSequence([seed, round, stream]).generate_state(2, np.uint32)
    h = numbers.astype(np.uint32)
    for word in words:
        h ^= word
        h ^= h >> np.uint32(16)
        h *= np.uint32(0x85EBCA6B)
        h ^= h >> np.uint32(13)
        h *= np.uint32(0xC2B2AE35)
        h ^= h >> np.uint32(16)
    return h
