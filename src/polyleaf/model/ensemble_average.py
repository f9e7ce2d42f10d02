"""The weighted average of several models as a single model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from polyleaf.model import serialize, storage
from polyleaf.model.leaf_kinds import LEAF_KINDS
from polyleaf.model.model import Model

__all__ = ["average_models"]


def average_models(
    models: Sequence[Model], weights: Sequence[float], metadata: dict[str, Any]
) -> Model:
    """Concatenate the trees of models, with leaf values multiplied by the models' weights.

    Raw scores are the weighted mean of the models' up to rounding, as leaf values are float32. The
    rounds of a model follow those of the previous one.

    Parameters
    ----------
    models : sequence of Model
        Models with the same bins, objective and outputs. The result has the target scale of the
        first.
    weights : sequence of float
        The positive weight of each; they sum to 1.
    metadata : dict
        The metadata of the result.

    Raises
    ------
    ValueError
        If bins, objectives or outputs differ.
    """
    first = models[0]
    for model in models[1:]:
        if _get_frame(model) != _get_frame(first):
            raise ValueError("models must have the same bins, objective and outputs.")
    scales, offsets = zip(*map(_get_scale_and_offset, models), strict=True)
    ratios = [scale / scales[0] for scale in scales]
    base = [model.base_score * ratio for model, ratio in zip(models, ratios, strict=True)]
    offset = _average(offsets, weights)
    average = Model(
        mapper=first.mapper,
        objective=first.objective,
        base_score=_average(base, weights) + (offset if first.target_scale is None else 0.0),
        learning_rate=first.learning_rate,
        feature_names=first.feature_names,
        output_names=first.output_names,
        target_scale=first.target_scale,
        target_offset=None if first.target_scale is None else offset,
        projection=first.projection,
        metadata=metadata,
    )
    n_rounds = 0
    for model, ratio, weight in zip(models, ratios, weights, strict=True):
        factor = (weight * ratio).astype(np.float32)
        trees = zip(model.round_of_tree.tolist(), storage.iter_trees(model.forest), strict=True)
        for t, (round, (tree, leaves, output)) in enumerate(trees):
            kind = LEAF_KINDS[model.forest.kind(t)]
            scaled = kind.scale(leaves, factor if output < 0 else factor[output : output + 1])
            average.append(tree, scaled, n_rounds + round, output)
        n_rounds += model.n_rounds
    average.has_statistics = all(model.has_statistics for model in models)
    return average


def _average(vectors: Sequence[np.ndarray], weights: Sequence[float]) -> np.ndarray:
    return np.sum(
        [weight * vector for weight, vector in zip(weights, vectors, strict=True)], axis=0
    )


def _get_scale_and_offset(model: Model) -> tuple[np.ndarray, np.ndarray]:
    """Return what converts a model's scores to the unit of y: float64 (n_outputs,) each."""
    if model.target_scale is None or model.target_offset is None:
        return np.ones(model.n_outputs), np.zeros(model.n_outputs)
    return model.target_scale, model.target_offset


def _get_frame(model: Model) -> tuple[bytes, Any]:
    """Return what averaged models must have in common."""
    mapper, arrays = model.mapper.to_state()
    header = {"mapper": mapper, "objective": model.objective.to_dict(), "outputs": model.n_outputs}
    return serialize.to_bytes(header, arrays, 1), type(model.projection)
