"""How much each feature does in the splits of a forest.

Owns: the sums over splits. Must not know: models, names of features, files.
"""

from __future__ import annotations

import numpy as np

import polyleaf._core as _core
from polyleaf.model import storage

__all__ = ["KINDS", "importance"]

KINDS = ("gain", "split", "cover")


def importance(
    forest: _core.Forest, n_outputs: int, n_features: int, kind: str, per_output: bool = False
) -> np.ndarray:
    """Sums over all splits: see `Model.feature_importance`."""
    if kind not in KINDS:
        raise ValueError(f"kind={kind!r} is unknown; it must be one of {', '.join(KINDS)}.")
    if per_output and kind != "gain":
        raise ValueError(
            f"Importance per output exists for kind='gain' only, not for kind={kind!r}."
        )
    if per_output:
        return _of_each_output(forest, n_outputs, n_features)
    total = np.zeros(n_features)
    for tree, _, output in storage.iter_trees(forest):
        inner = tree.feature >= 0
        weights = None if kind == "split" else getattr(tree, kind)[inner]
        sums = np.bincount(tree.feature[inner], weights, n_features)
        # One output's gain is a share of the mean over outputs.
        total += sums / n_outputs if kind == "gain" and output >= 0 else sums
    return total


def _of_each_output(forest: _core.Forest, n_outputs: int, n_features: int) -> np.ndarray:
    total = np.zeros((n_outputs, n_features))
    for tree, _, output in storage.iter_trees(forest):
        inner = tree.feature >= 0
        if output < 0 and tree.output_gain.shape[1] != n_outputs:
            raise ValueError(
                "Importance per output is not known for trees that were grown on a sketch of the outputs."
            )
        outputs = [output] if output >= 0 else range(n_outputs)
        gains = tree.gain[inner][:, None] if output >= 0 else tree.output_gain[inner]
        for k, weights in zip(outputs, gains.T, strict=True):
            total[k] += np.bincount(tree.feature[inner], weights, n_features)
    return total
