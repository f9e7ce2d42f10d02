"""Constraints of features, encoded for the core: interactions, penalties, monotone constraints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse

import polyleaf._core as _core
from polyleaf.binned_data.binning import BinMapper
from polyleaf.model import Model, storage
from polyleaf.model.initial import InitialModel, LinearInitialModel
from polyleaf.objectives import Objective
from polyleaf.runtime.user_warnings import warn_user
from polyleaf.user_data.validation import get_index

_MONOTONE_FORMS = (
    "one direction per feature, such as [1, 0, -1]; an array with one row per feature and one "
    'column per output; or a dict, such as {"age": 1, "price": {"demand": -1}}'
)


# --- interaction constraints ---


class InteractionConstraints(NamedTuple):
    """Every path stays within one of `groups`, with at most `max_features` different features."""

    # (n_groups, n_columns): None: no groups. Columns are those of the mapper; columns derived from
    # a feature are in its groups.
    groups: np.ndarray | None = None
    max_features: int = 0  # 0: any number


def encode_interaction_constraints(
    constraints: str | Sequence[Sequence[object]] | None, mapper: BinMapper
) -> InteractionConstraints:
    """Return `interaction_constraints` in terms of the mapper's columns.

    Raises a TypeError if groups are not lists of names and numbers, and a ValueError if a feature
    does not exist, or a group is empty.
    """
    if constraints is None:
        return InteractionConstraints()
    if isinstance(constraints, str):
        sizes = {"no_interactions": 1, "pairwise": 2}
        return InteractionConstraints(max_features=sizes[constraints])
    groups = np.zeros((len(constraints), mapper.n_features_), bool)
    for flags, group in zip(groups, constraints, strict=True):
        flags[_find_group_features(group, mapper)] = True
    others = ~groups.any(axis=0)
    groups = np.vstack([groups, others]) if others.any() else groups
    return InteractionConstraints(np.ascontiguousarray(groups[:, mapper.column_to_feature_]))


def _find_group_features(group: object, mapper: BinMapper) -> list[int]:
    if isinstance(group, str) or not isinstance(group, Sequence | set | frozenset | np.ndarray):
        raise TypeError(
            "interaction_constraints must hold groups, lists of features by name or number, "
            f'such as [["age", "income"], [3, 4]]; one of them is {group!r}.'
        )
    if len(group) == 0:
        raise ValueError("interaction_constraints has an empty group; leave it out.")
    return [_find_feature(feature, mapper, "interaction_constraints") for feature in group]


def _find_feature(feature: object, mapper: BinMapper, parameter: str) -> int:
    return get_index(feature, mapper.feature_names_, mapper.n_features_, parameter)


# --- feature penalties ---


def encode_feature_penalties(
    penalties: Mapping[object, float] | Sequence[float] | np.ndarray | None, mapper: BinMapper
) -> np.ndarray | None:
    """Return factors of split gains, float32 (n_columns,), or None without penalties.

    Columns are those of the mapper; columns derived from a feature have its penalty.

    Raises a TypeError if penalties are not numbers, and a ValueError if a feature does not exist,
    the number of penalties is wrong, or one is not in [0, 1).
    """
    if penalties is None:
        return None
    shares = np.zeros(mapper.n_features_)
    if isinstance(penalties, Mapping):
        for feature, share in penalties.items():
            shares[_find_feature(feature, mapper, "feature_penalties")] = _check_penalty(share)
    else:
        if isinstance(penalties, str) or len(penalties) != mapper.n_features_:
            raise ValueError(
                f"feature_penalties must be one number for each of the {mapper.n_features_} "
                f"features, or a dict of some of them by name or number; got {penalties!r}."
            )
        shares[:] = [_check_penalty(share) for share in penalties]
    if not shares.any():
        return None
    return (1.0 - shares[mapper.column_to_feature_]).astype(np.float32)


def _check_penalty(share: object) -> float:
    if isinstance(share, bool | np.bool_) or not isinstance(
        share, int | float | np.integer | np.floating
    ):
        raise TypeError(
            f"feature_penalties must be numbers from 0 to below 1; one of them is {share!r}."
        )
    if not 0 <= share < 1:
        raise ValueError(
            f"feature_penalties must be from 0 to below 1; one of them is {share!r}. Leave a "
            "feature out of X if it must not be used at all."
        )
    return float(share)


# --- monotone constraints ---


def encode_monotone_constraints(
    constraints: object, mapper: BinMapper, tied: np.ndarray, score_names: Sequence[str] | None
) -> np.ndarray | None:
    """Return `monotone_constraints` in terms of the mapper's columns and raw scores.

    Raises a TypeError if constraints are of an unknown type, and a ValueError if a feature or
    output does not exist, the shape is wrong, or a feature is categorical.

    Parameters
    ----------
    constraints
        Parameter of the estimator. Its outputs are the scores, except that all quantiles of a
        column of y are one output: they are sorted, so one cannot rise without the others.
    tied : ndarray of shape (K,)
        Output of each score, ascending from 0: see `tie_output_constraints`.
    score_names : sequence of str or None
        "column_level", for several levels.

    Returns
    -------
    ndarray of shape (n_columns, K), int8, or None
        1: non-decreasing, -1: non-increasing, 0: unconstrained. None: all are unconstrained.
    """
    if constraints is None:
        return None
    n_outputs = int(tied[-1]) + 1
    names = None if score_names is None else _get_output_names(tied, score_names)
    if isinstance(constraints, Mapping):
        directions = _read_mapping(constraints, mapper, n_outputs, names)
    else:
        directions = _read_array(constraints, mapper.n_features_, n_outputs)
    _check_not_categorical(directions, mapper)
    if not directions.any():
        return None
    return np.ascontiguousarray(directions[:, tied][mapper.column_to_feature_])


def check_monotone_constraints(directions: np.ndarray, objective: Objective, model: Model) -> None:
    """Warn if predictions may violate monotone constraints (n_columns, K) despite them."""
    softmax_scores = [p.scores for p in objective.tasks if p.task.objective.link == "softmax"]
    if objective.link == "softmax" or any(directions[:, s].any() for s in softmax_scores):
        warn_user(
            "monotone_constraints apply to the scores of classes. Probabilities may violate them, "
            "since the probability of a class falls if the score of another class rises more. For "
            "monotone probabilities, give y as one column of 0 and 1 per class: labels are learned "
            "independently."
        )
    if model.initial is not None and not _is_monotone(model.initial, directions):
        warn_user(
            "init does not satisfy monotone_constraints, so predictions may violate them, too; "
            "trees do not. A linear init whose coefficients have the right signs does."
        )
    if not satisfies_constraints(model, directions):
        warn_user(
            "Trees of init_model violate monotone_constraints, so predictions may violate them, "
            "too; new trees do not."
        )


def _is_monotone(initial: InitialModel, directions: np.ndarray) -> bool:
    """Return whether an initial model is linear with coefficients of the right signs."""
    if not isinstance(initial, LinearInitialModel) or initial.coef.shape != directions.shape:
        return False
    coef = initial.coef.toarray() if scipy.sparse.issparse(initial.coef) else initial.coef
    return bool((directions * coef >= 0).all())


def tie_output_constraints(objective: Objective, n_scores: int) -> np.ndarray:
    """Return the output of each raw score, from 0: one per score, but one for all quantiles of a
    column."""
    columns = objective.score_columns(n_scores)
    is_quantile = ~np.isnan(objective.score_quantile_levels(n_scores))
    is_same = is_quantile[1:] & is_quantile[:-1] & (columns[1:] == columns[:-1])
    return np.concatenate([[0], np.cumsum(~is_same)])


def satisfies_constraints(model: Model, directions: np.ndarray) -> bool:
    """Return whether every tree of a model satisfies monotone constraints (n_columns, K)."""
    n_bins = model.mapper.n_bins_
    for tree, values, outputs in storage.iter_trees(model.forest):
        if not isinstance(values, np.ndarray):
            return False
        signs = directions if outputs is None else np.take(directions, outputs, axis=1)
        weights = np.ones((tree.n_leaves, 1))
        projected = _core.enforce_monotone_constraints(values, signs, n_bins, tree, weights, 1)
        if not np.array_equal(projected, values):
            return False
    return True


def _get_output_names(tied: np.ndarray, score_names: Sequence[str]) -> list[str] | None:
    """Return names of outputs; for several scores, the part before the last underscore."""
    names = []
    for output in range(int(tied[-1]) + 1):
        scores = np.flatnonzero(tied == output)
        name = score_names[scores[0]]
        names.append(name if len(scores) == 1 else name.rpartition("_")[0])
    return names if all(names) else None


def _read_array(constraints: Any, n_features: int, n_outputs: int) -> np.ndarray:
    try:
        values = np.asarray(constraints)
        with np.errstate(invalid="ignore"):
            directions = values.astype(np.int8)
    except (TypeError, ValueError):
        raise TypeError(
            f"monotone_constraints must be {_MONOTONE_FORMS}; got {constraints!r}."
        ) from None
    if values.ndim == 1:
        values, directions = values[:, None], np.repeat(directions[:, None], n_outputs, axis=1)
    if directions.shape != (n_features, n_outputs):
        raise ValueError(
            f"monotone_constraints has shape {np.shape(constraints)}, but X has {n_features} "
            "features and y "
            f"{n_outputs} outputs: use the shape {(n_features,)} or {(n_features, n_outputs)}."
        )
    wrong = values[(values != -1) & (values != 0) & (values != 1)]
    if wrong.size > 0:
        raise ValueError(
            f"monotone_constraints must be 1, -1 or 0; one of them is {wrong.tolist()[0]!r}."
        )
    return directions


def _read_mapping(
    constraints: Mapping[object, object],
    mapper: BinMapper,
    n_outputs: int,
    output_names: Sequence[str] | None,
) -> np.ndarray:
    directions = np.zeros((mapper.n_features_, n_outputs), np.int8)
    for feature, value in constraints.items():
        row = directions[_find_feature(feature, mapper, "monotone_constraints")]
        if not isinstance(value, Mapping):
            row[:] = _check_direction(value, feature)
            continue
        for output, direction in value.items():
            parameter = "monotone_constraints"
            index = get_index(output, output_names, n_outputs, parameter, "output")
            row[index] = _check_direction(direction, feature)
    return directions


def _check_direction(direction: object, feature: object) -> int:
    is_whole = isinstance(direction, int | np.integer) and not isinstance(direction, bool)
    if not is_whole or direction not in (-1, 0, 1):
        raise ValueError(
            f"monotone_constraints must be 1, -1 or 0; that of feature {feature!r} is "
            f"{direction!r}."
        )
    return int(direction)


def _check_not_categorical(directions: np.ndarray, mapper: BinMapper) -> None:
    """Raise if categorical features, or features that columns were derived from, are
    constrained."""
    unordered = np.unique(mapper.column_to_feature_[mapper.is_categorical_])
    for f in [*unordered, *mapper.high_cardinality_features_]:
        if directions[f].any():
            name = f if mapper.feature_names_ is None else repr(mapper.feature_names_[f])
            raise ValueError(
                f"monotone_constraints has a direction for feature {name}, which is categorical "
                "and has no order; set it to 0, or make the feature numeric."
            )
