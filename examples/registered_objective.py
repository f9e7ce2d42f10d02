"""A custom objective class with a name and a parameter, which model files store.

Expectiles are to the mean what quantiles are to the median: at level 0.9 an error costs nine times
as much where the prediction is too low (Newey and Powell, 1987). `objective="expectile"` is the
same loss in the core.
"""

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from polyleaf import PolyleafRegressor, RowData, load_model
from polyleaf.datasets import load
from polyleaf.objectives import BoundObjective, Objective, register
from polyleaf.objectives.base import as_matrices


@register
@dataclass(frozen=True)
class AsymmetricSquares(Objective):
    """``c (score - y)^2 / 2`` with c = level if the score is below y, else 1 - level."""

    name: ClassVar[str] = "asymmetric_squares"
    is_translation_invariant: ClassVar[bool] = True

    level: float = 0.5

    def bind(self, rows: RowData) -> "AsymmetricSquaresProblem":
        return AsymmetricSquaresProblem(self, as_matrices(rows))


class AsymmetricSquaresProblem(BoundObjective):
    """An `AsymmetricSquares` with the targets (n, K) that it is to learn."""

    def __init__(self, objective: AsymmetricSquares, rows: RowData):
        super().__init__(objective, rows, n_outputs=rows.target.shape[1])
        self.level = objective.level

    def base_score(self, n_threads: int = 1) -> np.ndarray:
        """A constant to start from: the mean."""
        return np.average(self.target, axis=0, weights=self._weights())

    def derivatives(self, raw: np.ndarray, g: np.ndarray, h: Any, n_threads: int = 1) -> None:
        error = raw + self.base - self.target
        h[...] = self._costs(error)
        g[...] = h * error

    def loss(self, raw: np.ndarray, n_threads: int = 1) -> float:
        error = raw + self.base - self.target
        return float(np.sum(self._costs(error) * error**2 / 2) / np.sum(self._weights()))

    def _weights(self) -> np.ndarray:
        return np.broadcast_to(1.0 if self.weight is None else self.weight, self.target.shape)

    def _costs(self, error: np.ndarray) -> np.ndarray:
        return self._weights() * np.where(error < 0, self.level, 1 - self.level)


def main() -> dict[str, float]:
    X, X_test, y, y_test = load("energy").split()
    found = {}
    for level in (0.5, 0.9):
        # In a leaf with one row the error vanishes whatever its cost.
        model = PolyleafRegressor(
            objective=AsymmetricSquares(level), n_estimators=150, min_child_samples=20
        )
        model.fit(X, y)
        with tempfile.TemporaryDirectory() as folder:
            model.save_model(Path(folder) / "expectile.model")
            model = load_model(Path(folder) / "expectile.model")
        assert model.objective == AsymmetricSquares(level)
        found[f"too low at {level}"] = float(np.mean(model.predict(X_test) < y_test))
        print(f"level {level}: {found[f'too low at {level}']:.0%} of the predictions are too low")
    return found


if __name__ == "__main__":
    main()
