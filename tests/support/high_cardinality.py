"""Data with a feature of more than 255 categories, and targets that depend on it."""

import numpy as np


def effects(n, n_categories, n_outputs=1, noise=0.3, seed=0):
    """Draw X (n, 3), a category and two numbers, and y (n, n_outputs), its effect and noise."""
    rng = np.random.default_rng(seed)
    category = rng.integers(0, n_categories, n)
    X = np.column_stack([category, rng.normal(size=(n, 2))])
    y = rng.normal(size=(n_categories, n_outputs))[category] + noise * rng.normal(
        size=(n, n_outputs)
    )
    return X, y[:, 0] if n_outputs == 1 else y


def r2(y, predicted):
    """Return R2 averaged over outputs."""
    error, spread = (
        np.sum((y - predicted) ** 2, axis=0),
        np.sum((y - np.mean(y, axis=0)) ** 2, axis=0),
    )
    return float(np.mean(1 - error / spread))
