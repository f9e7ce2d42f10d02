"""One model that predicts the weighted mean of several models' raw scores.

Owns what makes models fit one another, and their sum as one forest. Must not know who chose the weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from polyleaf.model import serialize, storage
from polyleaf.model.leaf_kinds import LEAF_KINDS
from polyleaf.model.model import Model

__all__ = ["blended"]


def blended(models: Sequence[Model], weights: Sequence[float], metadata: dict[str, Any]) -> Model:
    """The models' trees one after another, their leaves times the models' weights.

    Raw scores are the weighted mean of the models' but for rounding: leaf values are float32. The rounds of a
    model follow those of the one before.

    Parameters
    ----------
    models : sequence of Model
        With the same bins, objective, unit and outputs.
    weights : sequence of float
        Of each, above 0; they sum to 1.
    metadata : dict
        Of the blend.

    Raises
    ------
    ValueError
        Where the models do not go together.
    """
    first = models[0]
    for model in models[1:]:
        if _frame(model) != _frame(first):
            raise ValueError("Models of different bins, objectives or units cannot be blended.")
    blend = Model(
        mapper=first.mapper,
        objective=first.objective,
        base_score=_mean([model.base_score for model in models], weights),
        learning_rate=first.learning_rate,
        feature_names=first.feature_names,
        output_names=first.output_names,
        target_scale=first.target_scale,
        target_offset=_offset(models, weights),
        projection=first.projection,
        metadata=metadata,
    )
    done = 0
    for model, weight in zip(models, weights, strict=True):
        factor = np.float32(weight)
        trees = zip(model.round_of_tree.tolist(), storage.trees_of(model.forest), strict=True)
        for t, (round, (tree, leaves, output)) in enumerate(trees):
            kind = LEAF_KINDS[model.forest.kind(t)]
            blend.append(tree, kind.scaled(leaves, factor), done + round, output)
        done += model.n_rounds
    blend.has_statistics = all(model.has_statistics for model in models)
    return blend


def _mean(vectors: Sequence[np.ndarray], weights: Sequence[float]) -> np.ndarray:
    return np.sum([weight * vector for weight, vector in zip(weights, vectors, strict=True)], axis=0)


def _offset(models: Sequence[Model], weights: Sequence[float]) -> np.ndarray | None:
    """Of each its own: quantiles are moved to their levels by it."""
    offsets = [model.target_offset for model in models if model.target_offset is not None]
    return _mean(offsets, weights) if offsets else None


def _frame(model: Model) -> tuple[bytes, Any, bytes]:
    """What models must have in common."""
    mapper, arrays = model.mapper.to_state()
    header = {"mapper": mapper, "objective": model.objective.to_dict(), "outputs": model.n_outputs}
    scale = b"" if model.target_scale is None else model.target_scale.tobytes()
    return serialize.to_bytes(header, arrays, 1), type(model.projection), scale
