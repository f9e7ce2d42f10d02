"""How well decisions agree with the truth, beyond what chance or one large class would give: balanced
accuracy, Matthews' correlation, Cohen's kappa.

Owns these formulas, of a table that counts truth against decision. Must not know where decisions come from.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["balanced_accuracy", "cohen_kappa", "matthews_correlation", "confusion_matrix"]

Array = NDArray[Any]


def confusion_matrix(
    truth: Array, decision: Array, n_classes: int, weight: Array | None
) -> NDArray[np.float64]:
    """Weight of the rows of each class (first axis) that were taken for each class: two axes of classes."""
    cell = truth.astype(np.int64) * n_classes + decision.astype(np.int64)
    counts = np.bincount(cell, weight, n_classes**2)
    return counts.astype(np.float64).reshape(n_classes, n_classes)


def balanced_accuracy(table: NDArray[np.float64]) -> float:
    """Mean, over the classes that occur, of the share that was recognised; NaN where none occurs."""
    of_class = table.sum(axis=1)
    occurs = of_class > 0
    return (
        float(np.mean(np.diag(table)[occurs] / of_class[occurs])) if occurs.any() else float("nan")
    )


def matthews_correlation(table: NDArray[np.float64]) -> float:
    """Correlation of truth and decision (Gorodkin 2004; of two classes Matthews 1975); 0 where one of them is
    the same for all rows."""
    true, taken, total = table.sum(axis=1), table.sum(axis=0), table.sum()
    together = np.trace(table) * total - true @ taken
    spread = (total**2 - true @ true) * (total**2 - taken @ taken)
    return float(together / np.sqrt(spread)) if spread > 0 else 0.0


def cohen_kappa(table: NDArray[np.float64], power: int) -> float:
    """Cohen's kappa: 1 - disagreement over that of chance. A disagreement costs 1 (`power` 0), or the
    distance of the classes' numbers to this power (Cohen 1968); NaN where chance would not disagree."""
    places = np.arange(len(table), dtype=np.float64)
    distance = np.abs(places[:, None] - places)
    cost = distance**power if power else (distance > 0).astype(np.float64)
    chance = np.outer(table.sum(axis=1), table.sum(axis=0)) / max(table.sum(), 1e-300)
    expected = float((cost * chance).sum())
    return 1.0 - float((cost * table).sum()) / expected if expected > 0 else float("nan")
