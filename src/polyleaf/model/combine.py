"""Models made of others: a range of outputs, some rounds, weighted sums and concatenations.

All of them are ordinary models, with files, exports and SHAP values.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from polyleaf.model import serialize, storage
from polyleaf.model.initial import blend_initial_models
from polyleaf.model.leaf_kinds import LEAF_KINDS
from polyleaf.model.metadata import (
    BLEND,
    HAS_OFFSETS,
    LEARNING_RATES,
    MEMBERS,
    PARAMETERS,
    POSITION_BIAS,
    SLICE,
    clear_calibrations,
    get_decision_thresholds,
    get_learning_rates,
    set_decision_thresholds,
    set_learning_rates,
)
from polyleaf.objectives import Objective

if TYPE_CHECKING:
    from polyleaf.model.model import Model
    from polyleaf.runtime.types import JsonObject


def select_outputs(
    model: Model, outputs: slice, objective: Objective, metadata: JsonObject
) -> Model:
    """Return a model of a contiguous range of outputs, with the same raw scores bit for bit."""
    selected = range(*outputs.indices(model.n_outputs))
    scale, offset = model.target_scale, model.target_offset
    other = _make_empty(
        model,
        objective=objective,
        base_score=model.base_score[outputs],
        output_names=None if model.output_names is None else model.output_names[outputs],
        target_scale=None if scale is None else scale[outputs],
        target_offset=None if offset is None else offset[outputs],
        metadata=metadata,
        initial=None if model.initial is None else model.initial.select_outputs(outputs),
    )
    other.best_iteration = model.best_iteration
    trees = storage.iter_output_trees(model.forest, model.n_outputs, selected, model.n_features)
    for t, tree, leaves, tree_outputs in trees:
        other.append(tree, leaves, model.rounds[t], tree_outputs)
    return other


def select_rounds(model: Model, rounds: slice) -> Model:
    """Return a model of some rounds, numbered from 0; see `Model.__getitem__`."""
    if not isinstance(rounds, slice):
        raise TypeError(f"A model takes slices of rounds, such as model[10:20]; got {rounds!r}.")
    if rounds.step is not None and rounds.step < 1:
        raise ValueError(f"The step of a slice of rounds must be positive, got {rounds.step}.")
    selected = range(*rounds.indices(model.n_rounds))
    if len(selected) == model.n_rounds:
        return model.copy()
    other, rates = _make_empty(model), get_learning_rates(model)
    _append_rounds(other, model, selected)
    _set_rates(other, [rates[round] for round in selected])
    best = model.best_iteration
    if best is not None and selected.step == 1:
        other.metadata[SLICE] = [selected.start, best, model.best_score]
    if best is not None and best in selected:
        other.best_iteration = selected.index(best)
        other.best_score = model.best_score
    if selected.start == 0 and selected.step == 1:
        other.evals_log = {
            name: {metric: values[: len(selected)] for metric, values in metrics.items()}
            for name, metrics in model.evals_log.items()
        }
    return other


def concatenate_models(models: Sequence[Model]) -> Model:
    """Return the rounds of models one after another; see `polyleaf.concatenate`."""
    first = _check_models(models)
    unit = [first.base_score, *_get_scale_and_offset(first)]
    for i, model in enumerate(models[1:], 1):
        unit_of_model = [model.base_score, *_get_scale_and_offset(model)]
        if not all(np.array_equal(a, b) for a, b in zip(unit_of_model, unit, strict=True)):
            raise ValueError(
                f"models[{i}] has another base score or scaling of targets than models[0]: set "
                "base_score in training, or add raw scores by blend(models, weights=[1, 1])."
            )
        if (model.initial is None) != (first.initial is None) or (
            model.initial is not None
            and first.initial is not None
            and not model.initial.equals(first.initial)
        ):
            raise ValueError(f"models[{i}] has another initial model (init) than models[0].")
    whole, rates = _make_empty(first), []
    for model in models:
        _append_rounds(whole, model, range(model.n_rounds))
        rates += get_learning_rates(model)
    _set_rates(whole, rates)
    whole.has_statistics = all(model.has_statistics for model in models)
    _restore_best_round(whole, models)
    return whole


def _restore_best_round(whole: Model, slices: Sequence[Model]) -> None:
    """Set the best round of early stopping if these are all rounds of one model up to it."""
    first, best = 0, slices[0].metadata.get(SLICE, [0])[1:]
    for part in slices:
        if part.metadata.get(SLICE) != [first, *best]:
            return
        first += part.n_rounds
    if best and best[0] < first:
        whole.best_iteration, whole.best_score = best


def blend_models(models: Sequence[Model], weights: Sequence[float] | None = None) -> Model:
    """Return a model whose raw scores are a weighted sum; see `polyleaf.blend`.

    Rounds of a model follow those of the previous one. Decision thresholds are averaged.
    """
    first = _check_models(models)
    weights = _check_weights(weights, models)
    scales, offsets = zip(*map(_get_scale_and_offset, models), strict=True)
    ratios = [scale / scales[0] for scale in scales]
    base = [model.base_score * ratio for model, ratio in zip(models, ratios, strict=True)]
    offset = _sum(offsets, weights)
    blend = _make_empty(
        first,
        base_score=_sum(base, weights) + (offset if first.target_scale is None else 0.0),
        target_offset=None if first.target_scale is None else offset,
        initial=blend_initial_models([model.initial for model in models], weights),
    )
    for model, ratio, weight in zip(models, ratios, weights, strict=True):
        _append_rounds(blend, model, range(model.n_rounds), (weight * ratio).astype(np.float32))
    blend.has_statistics = all(model.has_statistics for model in models)
    blend.metadata[BLEND] = [
        {"weight": weight, "parameters": model.metadata.get(PARAMETERS)}
        for model, weight in zip(models, weights, strict=True)
    ]
    thresholds = [get_decision_thresholds(model) for model in models]
    set_decision_thresholds(blend, _sum(thresholds, weights) / math.fsum(weights))
    return blend


# --- parts ----------------------------------------------------------------------------------------


def _make_empty(model: Model, **changes: object) -> Model:
    """Return a model without trees, and without what depends on all of them."""
    metadata = clear_calibrations(model.metadata)
    metadata.pop(LEARNING_RATES, None)
    metadata.pop(SLICE, None)
    metadata.pop(POSITION_BIAS, None)
    metadata.pop(MEMBERS, None)  # rounds no longer tell which trees are those of a member
    fields: dict[str, Any] = {
        "mapper": model.mapper,
        "objective": model.objective,
        "base_score": model.base_score,
        "learning_rate": model.learning_rate,
        "feature_names": model.feature_names,
        "output_names": model.output_names,
        "target_scale": model.target_scale,
        "target_offset": model.target_offset,
        "projection": model.projection,
        "metadata": metadata,
        "initial": model.initial,
        "bin_counts": model.bin_counts,
    }
    other = type(model)(**fields | changes)
    other.has_statistics = model.has_statistics
    return other


def _append_rounds(
    to: Model, model: Model, rounds: range, factor: np.ndarray | None = None
) -> None:
    """Append the trees of some rounds, with leaf values multiplied by a factor per output."""
    first, numbers = to.n_rounds, {round: i for i, round in enumerate(rounds)}
    trees = zip(model.rounds, storage.iter_trees(model.forest), strict=True)
    for t, (round, (tree, leaves, listed)) in enumerate(trees):
        if round not in numbers:
            continue
        if factor is not None:
            kind = LEAF_KINDS[model.forest.kind(t)]
            has_all = listed is None or kind.lists_outputs
            leaves = kind.scale(leaves, factor if has_all else factor[listed])
        to.append(tree, leaves, first + numbers[round], listed)


def _set_rates(model: Model, rates: Sequence[float]) -> None:
    if rates:
        model.learning_rate = rates[-1]
    set_learning_rates(model, dict(enumerate(rates)))


def _sum(vectors: Sequence[np.ndarray], weights: Sequence[float]) -> np.ndarray:
    terms = [weight * vector for weight, vector in zip(weights, vectors, strict=True)]
    return np.cumsum(terms, axis=0)[-1]


def _get_scale_and_offset(model: Model) -> tuple[np.ndarray, np.ndarray]:
    """Return what converts a model's scores to the unit of y: float64 (n_outputs,) each."""
    if model.target_scale is None or model.target_offset is None:
        return np.ones(model.n_outputs), np.zeros(model.n_outputs)
    return model.target_scale, model.target_offset


# --- checks ---------------------------------------------------------------------------------------


def _check_models(models: Sequence[Model]) -> Model:
    """Return the first model; raise a ValueError unless the others can be joined with it."""
    if len(models) == 0:
        raise ValueError("models is empty: pass at least one.")
    frames = [_describe_frame(model) for model in models]
    for i, frame in enumerate(frames[1:], 1):
        for what, value in frame.items():
            if value != frames[0][what]:
                raise ValueError(
                    f"models[{i}] has other {what} than models[0]. Models that are joined must "
                    "have the same bins, objective and targets: train them on data binned with "
                    "Dataset(X, reference=models[0].mapper)."
                )
    return models[0]


def _describe_frame(model: Model) -> dict[str, object]:
    """Return what joined models must have in common, by its name in messages."""
    mapper, arrays = model.mapper.to_state()
    projection = b""
    if model.projection is not None:
        projection = serialize.to_bytes(model.projection.to_dict(), model.projection.arrays())
    return {
        "outputs": (model.n_outputs, _describe_targets(model.metadata)),
        "objective parameters": model.objective.to_dict(),
        "projections": projection,
        "bins": serialize.to_bytes({"mapper": mapper}, arrays),
        "offsets": bool(model.metadata.get(HAS_OFFSETS)),
    }


def _describe_targets(fields: Mapping[str, Any]) -> list[Any]:
    """Return kind, outputs and classes of the targets of a model, or of one of its tasks."""
    values = [fields.get(key) for key in ("kind", "n_outputs", "classes", "one_vs_rest", "keys")]
    return values + [_describe_targets(task) for task in fields.get("tasks", ())]


def _check_weights(weights: Sequence[float] | None, models: Sequence[Model]) -> list[float]:
    """Return one positive weight per model; None: the mean of the models."""
    if weights is None:
        return [1.0 / len(models)] * len(models)
    try:
        values = np.asarray(weights, np.float64)
    except (TypeError, ValueError):
        values = np.empty(0)
    if values.shape != (len(models),) or not (np.isfinite(values) & (values > 0)).all():
        raise ValueError(
            f"weights must be {len(models)} positive numbers, one for each model; got {weights!r}."
        )
    if models[0].metadata.get(HAS_OFFSETS) and abs(values.sum() - 1) > 1e-9:
        raise ValueError(
            f"weights must sum to 1 for models of rows with offsets, got {values.sum():g}."
        )
    return values.tolist()
