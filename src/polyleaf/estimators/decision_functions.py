"""Classes and labels from raw scores, with what is known of how they were encoded.

Owns how scores become decisions and probabilities. Must not know estimators.
"""

from __future__ import annotations

import numpy as np

from polyleaf.inputs.targets import TargetEncoding
from polyleaf.objectives import Objective

__all__ = ["decided", "probabilities"]


def decided(
    raw: np.ndarray, encoding: TargetEncoding, cuts: np.ndarray | float = 0.0
) -> np.ndarray:
    """What is said of each row: classes (n_rows,), or of labels int64 indicators (n_rows, n_labels).

    Parameters
    ----------
    raw : ndarray of shape (n_rows, n_scores)
    encoding : TargetEncoding
    cuts : float or ndarray of shape (n_labels,)
        The raw score above which a label, or the second of two classes, holds.
    """
    if encoding.kind == "multilabel":
        return (raw > cuts).astype(np.int64)
    assert encoding.classes is not None
    return encoding.classes[
        raw.argmax(axis=1) if raw.shape[1] > 1 else (raw > cuts)[:, 0].astype(np.intp)
    ]


def probabilities(raw: np.ndarray, encoding: TargetEncoding, objective: Objective) -> np.ndarray:
    """Of each class, (n_rows, n_classes), or that each label holds, (n_rows, n_labels)."""
    p = objective.transform(raw)
    if encoding.kind == "binary":
        return np.column_stack([1.0 - p[:, 0], p[:, 0]])
    if encoding.one_vs_rest:
        total = p.sum(axis=1, keepdims=True)
        return np.divide(p, total, out=np.full_like(p, 1.0 / p.shape[1]), where=total > 0)
    return p
