"""Data of the cases: generated from a seed, or read from a folder of .npz files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from . import sets

Arrays = dict[str, Any]  # NumPy arrays; X may be a CSR matrix
PARTS = ("X", "y", "X_val", "y_val", "X_test", "y_test")


@dataclass(frozen=True)
class Problem:
    """Data by name of recipe and its arguments: plain values that can be stored in a result file.

    Attributes
    ----------
    kind : "regression", "binary", "multiclass" or "multilabel"
    recipe : str
        Key of `PRESETS`, or "file".
    arguments : dict
    """

    kind: str
    recipe: str
    arguments: dict[str, Any] = field(default_factory=dict)

    def make(self, folder: Path | None = None) -> Arrays:
        """Return the arrays: X float32 (n, F); y float32 (n, K) for regression, int64 (n,) for
        classes.

        The names are `X`, `y`, `X_test`, `y_test`, and for early stopping `X_val`, `y_val`. Raise
        `sets.DataMissing` if a file is missing.
        """
        if self.recipe == "file":
            return read(folder, **self.arguments)
        return PRESETS[self.recipe](**self.arguments)


def shared_structure(n: int, n_test: int, n_features: int, n_outputs: int) -> Arrays:
    """Draw targets that mix the same non-linear factors of normal features.

    One tree can therefore fit all of them.
    """
    rng = np.random.default_rng(16)
    X = rng.standard_normal((n + n_test, n_features), dtype=np.float32)
    factors = np.empty((len(X), 12), np.float32)
    for j in range(factors.shape[1]):
        a, b, c = (X[:, k] for k in rng.choice(n_features, 3, replace=False))
        factors[:, j] = (
            np.sin(2 * a) + b,
            a * b,
            np.where(a > 0.3, b, c),
            np.abs(a) - np.exp(-b * b),
        )[j % 4]
    y = factors @ rng.standard_normal((factors.shape[1], n_outputs), dtype=np.float32)
    y += 0.5 * rng.standard_normal(y.shape, dtype=np.float32)
    return _cut(X, y, n)


def binary_signal(n: int, n_test: int, n_features: int) -> Arrays:
    """Draw two non-separable classes with normal features.

    The logit is a sum of steps, waves and interactions.
    """
    rng = np.random.default_rng(28)
    X = rng.standard_normal((n + n_test, n_features), dtype=np.float32)
    logit = (
        X[:, 0] * X[:, 1]
        + np.sin(3 * X[:, 2])
        + np.where(X[:, 3] > 0, X[:, 4], -0.5 * X[:, 5])
        + 0.3 * X[:, 6]
    )
    y = (rng.random(len(X), dtype=np.float32) < 1 / (1 + np.exp(-2 * logit))).astype(np.int64)
    return _cut(X, y, n)


def linear_targets(n: int, n_test: int, n_features: int, n_outputs: int) -> Arrays:
    """Draw scikit-learn's make_regression, as in XGBoost issue 9870."""
    from sklearn.datasets import make_regression

    X, y = make_regression(
        n_samples=n + n_test, n_features=n_features, n_targets=n_outputs, random_state=0
    )
    return _cut(X.astype(np.float32), y.astype(np.float32), n)


def words(n: int, n_test: int, n_features: int, n_words: int, n_outputs: int) -> Arrays:
    """Draw counts of `n_words` words per row by Zipf's law, as CSR.

    One word in fifty is informative.
    """
    rng = np.random.default_rng(80)
    rows = np.repeat(np.arange(n + n_test), n_words)
    chance = 1 / np.arange(1, n_features + 1) ** 0.9
    columns = rng.choice(n_features, len(rows), p=chance / chance.sum())
    shape = n + n_test, n_features
    X = sp.csr_matrix((np.ones(len(rows), np.float32), (rows, columns)), shape)
    weights = rng.standard_normal((n_features, n_outputs)) * (rng.random((n_features, 1)) < 0.02)
    y = X.log1p() @ weights + 0.3 * rng.standard_normal((n + n_test, n_outputs))
    return _cut(X, y.astype(np.float32), n)


PRESETS: dict[str, Callable[..., Arrays]] = {
    "shared_structure": shared_structure,
    "binary_signal": binary_signal,
    "linear_targets": linear_targets,
    "words": words,
}


def read(folder: Path | None, name: str, n_rows: int | None = None) -> Arrays:
    """Read a real data set, `folder/name.npz`: `X`, `y`, and the rows of its own split, if any.

    Sets without their own split are split 80 / 20 at random. 15 % of the training rows become the
    validation part. `n_rows` limits the training rows (quick runs).
    """
    found = sets.load(folder, name)
    rows = np.random.default_rng(0).permutation(len(found.y))
    train, test = found.parts or (rows[len(rows) // 5 :], rows[: len(rows) // 5])
    train = np.random.default_rng(15).permutation(train)[:n_rows]
    n_val = max(1, round(0.15 * len(train)))
    parts = {"": train[n_val:], "_val": train[:n_val], "_test": test}
    whole = {"X": found.X, "y": found.y}
    return {
        f"{a}{part}": values[rows] for part, rows in parts.items() for a, values in whole.items()
    }


def _cut(X: np.ndarray, y: np.ndarray, n: int) -> Arrays:
    return {"X": X[:n], "y": y[:n], "X_test": X[n:], "y_test": y[n:]}


def save(arrays: Arrays, folder: Path) -> None:
    """Write the parts as .npy files, sparse ones as .npz, for all processes to read."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, values in arrays.items():
        if sp.issparse(values):
            sp.save_npz(folder / f"{name}.npz", values, compressed=False)
        else:
            np.save(folder / f"{name}.npy", values)


def load(folder: Path) -> Arrays:
    """Load the files written by `save` into memory."""
    dense = {
        name: np.load(folder / f"{name}.npy")
        for name in PARTS
        if (folder / f"{name}.npy").is_file()
    }
    sparse = {name: folder / f"{name}.npz" for name in PARTS if (folder / f"{name}.npz").is_file()}
    return dense | {name: sp.load_npz(path) for name, path in sparse.items()}
