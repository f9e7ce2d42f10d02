"""Generated data of the benchmarks; the same for every commit."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

SCALE = 1.0  # of the number of rows; tests reduce it


def rows(n: int) -> int:
    """Return the number of rows of a benchmark."""
    return max(300, int(n * SCALE))


def targets(n: int, n_features: int = 50, n_outputs: int = 16) -> tuple[np.ndarray, np.ndarray]:
    """Return features and targets that mix the same non-linear factors."""
    n, rng = rows(n), np.random.default_rng(16)
    X = rng.standard_normal((n, n_features), dtype=np.float32)
    a, b, c = X[:, :12], X[:, 12:24], X[:, 24:36]
    if n_features < 36:
        a, b, c = X, np.roll(X, 1, axis=1), np.roll(X, 2, axis=1)
    factors = np.concatenate([np.sin(2 * a) + b, a * b, np.where(a > 0.3, b, c)], axis=1)
    y = factors @ rng.standard_normal((factors.shape[1], n_outputs), dtype=np.float32)
    y += rng.standard_normal(y.shape, dtype=np.float32)
    return X, y[:, 0] if n_outputs == 1 else y


def classes(n: int, n_classes: int = 10) -> tuple[np.ndarray, np.ndarray]:
    """Return features and class numbers of similar frequency."""
    X, y = targets(n, n_outputs=n_classes)
    return X, (y / y.std(axis=0)).argmax(axis=1)


def labels(n: int, n_labels: int = 1000) -> tuple[np.ndarray, Any]:
    """Return features and a CSR matrix of labels, a few per row."""
    X, y = targets(n, n_outputs=30)
    rng = np.random.default_rng(3)
    topic = (y / y.std(axis=0)).argmax(axis=1)
    columns = (37 * topic[:, None] + rng.integers(0, 60, (len(X), 8))) % n_labels
    at = np.repeat(np.arange(len(X)), columns.shape[1]), columns.ravel()
    Y = sp.csr_matrix((np.ones(columns.size, np.float32), at), (len(X), n_labels))
    Y.sum_duplicates()
    Y.data[:] = 1
    return X, Y


def words(n: int, n_features: int = 30_000, n_outputs: int = 10) -> tuple[Any, np.ndarray]:
    """Return counts of words as CSR, and targets of which one word in fifty knows something."""
    n, rng = rows(n), np.random.default_rng(80)
    chance = 1 / np.arange(1, n_features + 1) ** 0.9
    columns = rng.choice(n_features, n * 80, p=chance / chance.sum())
    at = np.repeat(np.arange(n), 80), columns
    X = sp.csr_matrix((np.ones(len(columns), np.float32), at), (n, n_features))
    weights = rng.standard_normal((n_features, n_outputs)) * (rng.random((n_features, 1)) < 0.02)
    return X, (X.log1p() @ weights).astype(np.float32)


def frame(n: int) -> tuple[Any, np.ndarray]:
    """Return a pandas frame with numbers and two categorical columns, and one target."""
    import pandas as pd

    X, y = targets(n, n_features=8, n_outputs=1)
    rng = np.random.default_rng(5)
    made = pd.DataFrame(X, columns=[f"x{i}" for i in range(X.shape[1])])
    for name, n_categories in (("few", 20), ("many", 2000)):
        codes = rng.integers(0, n_categories, len(X))
        made[name] = pd.Categorical.from_codes(codes, [f"c{i}" for i in range(n_categories)])
    return made, y + codes % 7
