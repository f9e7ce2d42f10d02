"""Methods of papers, and their printed scores."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from polyleaf.settings import presets

# Parameters that `Settings` covers for every library, so that a recipe must not repeat them.
SHARED = ("n_estimators learning_rate max_depth max_leaves reg_lambda min_child_samples").split()


@dataclass(frozen=True)
class Method:
    """Row of a table: a library, and the parameters of the method under the library's own names.

    Attributes
    ----------
    library : str
        Key of `LIBRARIES`.
    own : dict
    recipe : str
        Preset of Polyleaf, which `own` overrides.
    """

    library: str
    own: dict[str, Any] = field(default_factory=dict)
    recipe: str = ""

    def parameters(self) -> dict[str, Any]:
        """Return the parameters of the recipe, overridden by `own`."""
        recipe = getattr(presets, self.recipe)() if self.recipe else {}
        return {**recipe, **self.own}


def accuracy(y: np.ndarray, predicted: np.ndarray) -> float:
    """Return the percentage of rows whose most probable class is correct.

    `predicted` is (n, K) or, for two classes, (n,).
    """
    chosen = predicted.argmax(axis=1) if predicted.ndim == 2 else predicted > 0.5
    return float(100 * np.mean(chosen == y))


def accuracy_error(percent: float, n_rows: int) -> float:
    """Return the standard error of an accuracy on `n_rows` test rows, in percent."""
    return float(np.sqrt(percent * (100 - percent) / n_rows))


def rmse(y: np.ndarray, predicted: np.ndarray) -> float:
    """Return the RMSE over all rows and targets."""
    return float(np.sqrt(np.mean((predicted.reshape(y.shape) - y) ** 2, dtype=np.float64)))
