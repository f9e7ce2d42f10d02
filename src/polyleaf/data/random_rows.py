"""Random samples of rows and features, and random splits into training and validation rows.

A draw sorts by a hash of (seed, round, id) and takes the smallest. The hash is a bijection of the
id, so there are no ties: the sample has exactly the requested size, and does not depend on the
NumPy version, the CPU, the number of threads, or the rank that holds a row.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from polyleaf.runtime.collective import SINGLE_PROCESS, Communicator

__all__ = [
    "BINNED_ROWS",
    "FEATURES",
    "ROUNDING",
    "ROWS",
    "SCORED_ROWS",
    "derive_seed",
    "draw",
    "draw_ids",
    "find_kth_smallest",
    "hash_ids",
    "split_rows",
    "split_rows_stratified",
    "split_validation",
]

Rows = NDArray[np.int64]

# Streams of random numbers: draws with the same seed must differ.
ROWS, FEATURES, BINNED_ROWS, SCORED_ROWS, ROUNDING = 1, 2, 3, 4, 5


def draw(n: int, count: int, seed: int, round: int, stream: int) -> NDArray[np.bool_]:
    """Draw `count` of `n` indices without replacement, as a mask."""
    if count >= n:
        return np.ones(n, bool)
    return draw_ids(np.arange(n), count, seed, round, stream, SINGLE_PROCESS)


def draw_ids(
    ids: NDArray[np.integer],
    count: int,
    seed: int,
    round: int,
    stream: int,
    communicator: Communicator,
) -> NDArray[np.bool_]:
    """Draw `count` of the unique ids of all ranks, as a mask of this rank's ids."""
    if count <= 0:
        return np.zeros(len(ids), bool)
    hashes = hash_ids(ids, seed, round, stream)
    return hashes <= find_kth_smallest(hashes, count, communicator)


def find_kth_smallest(values: NDArray[np.uint32], k: int, communicator: Communicator) -> np.uint32:
    """Find the `k`-th smallest value (from 1) of all ranks, eight bits at a time."""
    if communicator.size == 1:
        return np.uint32(np.partition(values, k - 1)[k - 1])
    prefix = 0
    for shift in (24, 16, 8, 0):
        digits = (values >> np.uint32(shift)) & np.uint32(255)
        counts = np.bincount(digits, minlength=256)
        communicator.sum(counts)
        cumulative = np.cumsum(counts)
        digit = int(np.searchsorted(cumulative, k))
        k -= int(cumulative[digit] - counts[digit])
        values, prefix = values[digits == digit], prefix | digit << shift
    return np.uint32(prefix)


def derive_seed(seed: int, round: int, stream: int) -> int:
    """Return the 64-bit seed of draws in the core."""
    return int(np.random.SeedSequence([seed, round, stream]).generate_state(1, np.uint64)[0])


def hash_ids(ids: NDArray[np.integer], seed: int, round: int, stream: int) -> NDArray[np.uint32]:
    """Hash ids below 2^32: twice a key word and the finaliser of MurmurHash3."""
    words = np.random.SeedSequence([seed, round, stream]).generate_state(2, np.uint32)
    h = ids.astype(np.uint32)
    for word in words:
        h ^= word
        h ^= h >> np.uint32(16)
        h *= np.uint32(0x85EBCA6B)
        h ^= h >> np.uint32(13)
        h *= np.uint32(0xC2B2AE35)
        h ^= h >> np.uint32(16)
    return h


# ---- validation rows ---------------------------------------------------------------------------


def split_rows(n_rows: int, n_validation: int, seed: int) -> tuple[Rows, Rows]:
    """Split at random into training and `n_validation` validation rows, both ascending."""
    order = np.random.default_rng(seed).permutation(n_rows)
    return np.sort(order[n_validation:]), np.sort(order[:n_validation])


def split_rows_stratified(
    n_rows: int, fraction: float, seed: int, classes: np.ndarray | None
) -> tuple[Rows, Rows]:
    """Split for `validation_fraction`, with at least one row in either part.

    Parameters
    ----------
    n_rows : int
        Number of rows.
    fraction : float
        Fraction of validation rows.
    seed : int
        Random seed.
    classes : ndarray of shape (n_rows,), or None
        Classes that keep their frequencies, if every class has two rows and both parts have room
        for all classes.
    """
    n_validation = min(max(1, round(fraction * n_rows)), n_rows - 1)
    if classes is not None:
        _, counts = np.unique(classes, return_counts=True)
        if np.any(counts < 2) or min(n_validation, n_rows - n_validation) < len(counts):
            classes = None
    # Imported here: it would take an eighth of the import time of the package.
    from sklearn.model_selection import train_test_split

    training, validation = train_test_split(
        np.arange(n_rows), test_size=n_validation, random_state=seed % 2**32, stratify=classes
    )
    return np.sort(training), np.sort(validation)


def split_validation(validation: str, n_rows: int, seed: int) -> tuple[Rows, Rows] | None:
    """Return the parts for the option ``--validation``; None if it names a file.

    Raises
    ------
    ValueError
        If a part has no rows.
    """
    try:
        fraction = float(validation)
    except ValueError:
        return None
    n_validation = round(fraction * n_rows) if 0 < fraction < 1 else 0
    if not 0 < n_validation < n_rows:
        raise ValueError(
            f"--validation {validation} leaves no rows for training, or none for validation: pass "
            "a fraction between 0 and 1."
        )
    return split_rows(n_rows, n_validation, seed)
