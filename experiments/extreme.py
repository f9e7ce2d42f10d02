"""A made extreme multi-label set: any number of rows and up to a million labels, with structure to
learn.

Rows belong to topics, which lie in groups. The features of a row are those of its one or two topics
and noise; its labels are drawn from its topics' lists by Zipf's law, a few from one list that
serves all rows. So frequent labels can be told from the group, others only from the topic, and some
not at all, as in tagging.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

_BLOCK = 20_000  # rows drawn at a time
_TOPICS, _GROUP_SIZE = 500, 25  # topics, and topics of a group
_SHARED = 0.1  # share of a row's labels that come from the common list
_FLATTEN = 8.0  # Zipf's law of rank r is 1 / (r + this), so that no label holds nearly everywhere


def make_extreme(
    n_rows: int, n_labels: int, labels_per_row: float = 75.0, n_features: int = 50
) -> tuple[np.ndarray, sp.csr_matrix]:
    """Make features (n_rows, n_features) and labels (n_rows, n_labels) of 0 and 1.

    The first rows do not depend on `n_rows`. A topic's list has `4 n_labels / _TOPICS` labels, at
    least four times `labels_per_row`, which is a mean: the number varies by a factor of about 1.5.
    """
    rng = np.random.default_rng([0, 0])
    n_groups = -(-_TOPICS // _GROUP_SIZE)
    group = np.arange(_TOPICS) % n_groups
    centres = 1.5 * rng.standard_normal((n_groups, n_features))[group]
    centres += rng.standard_normal((_TOPICS, n_features))
    length = int(min(n_labels, max(4 * n_labels // _TOPICS, 4 * labels_per_row)))
    lists = np.stack([rng.choice(n_labels, length, replace=False) for _ in range(_TOPICS)]).astype(
        np.int32
    )
    shared = rng.permutation(n_labels).astype(np.int32)
    popularity = np.cumsum(1.0 / np.arange(1, _TOPICS + 1) ** 0.5)
    popularity /= popularity[-1]

    X = np.empty((n_rows, n_features), np.float32)
    parts, draws = [], 1.0
    for block in range(-(-n_rows // _BLOCK)):
        rng = np.random.default_rng([0, 1, block])
        rows = slice(block * _BLOCK, min(n_rows, (block + 1) * _BLOCK))
        topics, first = _topics(rng, popularity, group)
        mean = first[:, None] * centres[topics[:, 0]] + (1 - first[:, None]) * centres[topics[:, 1]]
        features = mean + 0.7 * rng.standard_normal(mean.shape)
        if block == 0:
            draws = _draws_for(labels_per_row, topics, first, lists, shared)
        Y = _labels(rng, topics, first, draws * labels_per_row, lists, shared)
        X[rows] = features[: rows.stop - rows.start]
        parts.append(Y[: rows.stop - rows.start])
    return X, sp.vstack(parts, "csr")


def _topics(
    rng: np.random.Generator, popularity: np.ndarray, group: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Draw two topics for each row of a block, and the share of the first topic.

    For about half of the rows the second topic is from the same group.
    """
    first = np.searchsorted(popularity, rng.random(_BLOCK))
    second = np.searchsorted(popularity, rng.random(_BLOCK))
    n_groups = group.max() + 1
    of_group = (first + n_groups * rng.integers(1, _GROUP_SIZE, _BLOCK)) % len(group)
    second = np.where(rng.random(_BLOCK) < 0.5, of_group, second)
    return np.stack([first, second], axis=1), np.where(
        rng.random(_BLOCK) < 0.4, 1.0, rng.uniform(0.6, 0.9, _BLOCK)
    )


def _labels(
    rng: np.random.Generator,
    topics: np.ndarray,
    first: np.ndarray,
    mean_draws: float,
    lists: np.ndarray,
    shared: np.ndarray,
) -> sp.csr_matrix:
    """Draw the labels of one block with replacement, and remove duplicates."""
    n = len(topics)
    count = np.maximum(1, rng.gamma(6.0, mean_draws / 6.0, n).astype(np.int64))
    row = np.repeat(np.arange(n), count)
    which = rng.random(len(row))
    topic = np.where(which / (1.0 - _SHARED) < first[row], topics[row, 0], topics[row, 1])
    u = rng.random(len(row))
    label = lists[topic, _zipf(u, lists.shape[1])]
    common = which > 1.0 - _SHARED
    label[common] = shared[_zipf(u[common], len(shared))]
    keys = np.unique(row * len(shared) + label)
    row, label = np.divmod(keys, len(shared))
    indptr = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=n))])
    ones = np.ones(len(keys), np.float32)
    return sp.csr_matrix((ones, label.astype(np.int32), indptr), shape=(n, len(shared)))


def _zipf(u: np.ndarray, n: int) -> np.ndarray:
    """Map uniform numbers to ranks 0 .. n - 1 of probability about 1 / (rank + _FLATTEN)."""
    rank = _FLATTEN * ((1.0 + n / _FLATTEN) ** u - 1.0)
    return np.minimum(rank.astype(np.int64), n - 1)


def _draws_for(
    labels_per_row: float,
    topics: np.ndarray,
    first: np.ndarray,
    lists: np.ndarray,
    shared: np.ndarray,
) -> float:
    """Find the number of draws per row that gives the mean number of distinct labels."""
    some, factor = slice(0, 2000), 1.0
    for step in range(4):
        rng = np.random.default_rng([0, 2, step])
        got = _labels(rng, topics[some], first[some], factor * labels_per_row, lists, shared)
        factor *= labels_per_row * 2000 / got.nnz
    return factor
