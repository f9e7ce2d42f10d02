"""Poker hands and their classes: generated rows of UCI's Poker Hand.

The class is a fixed function of the hand.
"""

from __future__ import annotations

import numpy as np


def deal(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw hands of five different cards, in the order of dealing.

    Returns
    -------
    X : float32 array (n, 10)
        Suit (1 to 4) and rank (1 to 13) of each card in turn, as in the source's files.
    y : int64 array (n,)
        See `classes`.
    """
    rng = np.random.default_rng(seed)
    hands = rng.integers(0, 52, (n, 5))
    while len(twice := np.flatnonzero(_has_repeat(hands))) > 0:
        hands[twice] = rng.integers(0, 52, (len(twice), 5))
    X = np.stack([hands // 13 + 1, hands % 13 + 1], axis=2).reshape(n, 10).astype(np.float32)
    return X, classes(X)


def _has_repeat(hands: np.ndarray) -> np.ndarray:
    ordered = np.sort(hands, axis=1)
    return (ordered[:, 1:] == ordered[:, :-1]).any(axis=1)


def classes(X: np.ndarray) -> np.ndarray:
    """Return the class of each hand, numbered as in UCI: int64 (n,), 0 (nothing) to 9 (royal
    flush).

    Parameters
    ----------
    X : array (n, 10)
        As returned by `deal`.
    """
    suits, ranks = X[:, 0::2], X[:, 1::2]
    of_rank = (ranks[:, :, None] == np.arange(1, 14)).sum(axis=1)
    second, largest = np.sort(of_rank, axis=1)[:, -2:].T
    flush = (suits == suits[:, :1]).all(axis=1)
    present = np.concatenate([of_rank, of_rank[:, :1]], axis=1) > 0  # the ace is low and high
    runs = np.lib.stride_tricks.sliding_window_view(present, 5, axis=1).all(axis=2)
    straight, royal = runs.any(axis=1), runs[:, -1]
    worth = [
        flush & royal,
        flush & straight,
        largest == 4,
        (largest == 3) & (second == 2),
        flush,
        straight,
        largest == 3,
        (largest == 2) & (second == 2),
        largest == 2,
    ]
    return np.select(worth, range(9, 0, -1)).astype(np.int64)
