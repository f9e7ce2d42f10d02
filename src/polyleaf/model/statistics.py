"""Importances of features: sums of the statistics of splits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from polyleaf.model import storage
from polyleaf.runtime.checks import require_choice

if TYPE_CHECKING:
    from polyleaf.model.model import Model

IMPORTANCE_KINDS = ("gain", "split", "cover")


def feature_importance(model: Model, kind: str, per_output: bool = False) -> np.ndarray:
    """Sum a statistic of the splits by feature; see `Model.feature_importance`."""
    if kind in ("gain", "cover") and not model.has_statistics:
        raise ValueError(
            f"kind={kind!r} is not available, as the model was saved with statistics=False: use "
            "kind='split'."
        )
    require_choice(kind, IMPORTANCE_KINDS, "kind")
    if per_output and kind != "gain":
        raise ValueError(f"per_output=True requires kind='gain'; got kind={kind!r}.")
    n_outputs, n_features = model.n_outputs, model.n_features
    if per_output:
        return _gain_per_output(model)
    total = np.zeros(n_features)
    for tree, _, outputs in _iter_used_trees(model):
        inner = tree.feature >= 0
        weights = None if kind == "split" else getattr(tree, kind)[inner]
        sums = np.bincount(tree.feature[inner], weights, n_features)
        # The gain of some outputs is a share of the mean over all.
        share = 1.0 if kind != "gain" or outputs is None else len(outputs) / n_outputs
        total += sums * share
    return total


def _iter_used_trees(model: Model) -> Iterator[Any]:
    """Yield the trees of the rounds that predictions use, as `storage.iter_trees` does."""
    best = model.best_iteration
    for round, tree in zip(model.round_of_tree, storage.iter_trees(model.forest), strict=True):
        if best is None or round <= best:
            yield tree


def _gain_per_output(model: Model) -> np.ndarray:
    n_outputs, n_features = model.n_outputs, model.n_features
    total = np.zeros((n_outputs, n_features))
    for tree, _, listed in _iter_used_trees(model):
        inner = tree.feature >= 0
        outputs = range(n_outputs) if listed is None else listed.tolist()
        is_single = listed is not None and len(outputs) == 1
        if not is_single and tree.output_gain.shape[1] != len(outputs):
            raise ValueError(
                "per_output=True is not available for trees that were grown on a sketch of the "
                "outputs."
            )
        gains = tree.gain[inner][:, None] if is_single else tree.output_gain[inner]
        for k, weights in zip(outputs, gains.T, strict=True):
            total[k] += np.bincount(tree.feature[inner], weights, n_features)
    return total
