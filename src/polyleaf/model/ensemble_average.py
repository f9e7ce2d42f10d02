"""One model that predicts the weighted mean of several models' raw scores.

Owns what makes models fit one another, and their sum as one forest. Must not know who chose the weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from polyleaf.model import serialize, storage
from polyleaf.model.leaf_kinds import LEAF_KINDS
from polyleaf.model.model import Model

__all__ = ["average_models"]


def average_models(
    models: Sequence[Model], weights: Sequence[float], metadata: dict[str, Any]
) -> Model:
    """The models' trees one after another, their leaves times the models' weights.

    Raw scores are the weighted mean of the models' but for rounding: leaf values are float32. The rounds of a
    model follow those of the one before.

    Parameters
    ----------
    models : sequence of Model
        With the same bins, objective and outputs; the blend has the unit of the first.
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
            raise ValueError("Models of different bins or objectives cannot be blended.")
    units, into = [_unit(model) for model in models], _unit(first)
    ratios = [own.scale / into.scale for own in units]
    base = [model.base_score * ratio for model, ratio in zip(models, ratios, strict=True)]
    offset = _mean([own.offset for own in units], weights)
    blend = Model(
        mapper=first.mapper,
        objective=first.objective,
        base_score=_mean(base, weights) + (offset if first.target_scale is None else 0.0),
        learning_rate=first.learning_rate,
        feature_names=first.feature_names,
        output_names=first.output_names,
        target_scale=first.target_scale,
        target_offset=None if first.target_scale is None else offset,
        projection=first.projection,
        metadata=metadata,
    )
    done = 0
    for model, ratio, weight in zip(models, ratios, weights, strict=True):
        factor = (weight * ratio).astype(np.float32)
        trees = zip(model.round_of_tree.tolist(), storage.iter_trees(model.forest), strict=True)
        for t, (round, (tree, leaves, output)) in enumerate(trees):
            kind = LEAF_KINDS[model.forest.kind(t)]
            scaled = kind.scale(leaves, factor if output < 0 else factor[output : output + 1])
            blend.append(tree, scaled, done + round, output)
        done += model.n_rounds
    blend.has_statistics = all(model.has_statistics for model in models)
    return blend


def _mean(vectors: Sequence[np.ndarray], weights: Sequence[float]) -> np.ndarray:
    return np.sum(
        [weight * vector for weight, vector in zip(weights, vectors, strict=True)], axis=0
    )


class _Unit(NamedTuple):
    """Scores in the unit of y are (base + sum of leaves) * scale + offset: float64 (n_outputs,)."""

    scale: np.ndarray
    offset: np.ndarray


def _unit(model: Model) -> _Unit:
    if model.target_scale is None or model.target_offset is None:
        return _Unit(np.ones(model.n_outputs), np.zeros(model.n_outputs))
    return _Unit(model.target_scale, model.target_offset)


def _frame(model: Model) -> tuple[bytes, Any]:
    """What models must have in common."""
    mapper, arrays = model.mapper.to_state()
    header = {"mapper": mapper, "objective": model.objective.to_dict(), "outputs": model.n_outputs}
    return serialize.to_bytes(header, arrays, 1), type(model.projection)
