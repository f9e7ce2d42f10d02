"""Which outputs must not fall, or not rise, with which features: in the numbers of the core.

Owns the meaning of `monotone_constraints`, and whether a model keeps to it. Must not know how trees grow, or
how leaf values are fitted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import polyleaf._core as _core
from polyleaf.data.binning import BinMapper
from polyleaf.inputs.feature_numbers import get_feature_index
from polyleaf.model import Model, storage
from polyleaf.objectives import Objective

__all__ = ["satisfies_constraints", "encode_monotone_constraints", "tie_output_constraints"]

_FORMS = (
    "one direction a feature, such as [1, 0, -1]; an array of one row a feature and one column an output; or "
    'a dict, such as {"age": 1, "price": {"demand": -1}}'
)


def encode_monotone_constraints(
    constraints: Any, mapper: BinMapper, tied: np.ndarray, score_names: Sequence[str] | None
) -> np.ndarray | None:
    """What `monotone_constraints` asks for.

    Parameters
    ----------
    constraints
        As users give them. Their outputs are the scores, but the columns of y where a column has quantiles of
        several levels: these are sorted, so that one cannot rise without the others.
    mapper : BinMapper
    tied : ndarray of shape (K,)
        The output that each score belongs to, ascending from 0: see `tie_output_constraints`.
    score_names : sequence of str or None
        "column_level", where there are several levels.

    Returns
    -------
    ndarray of shape (n_columns, K), int8, or None
        1: must not fall, -1: must not rise, 0: free. Columns are those of the mapper. None: all are free.

    Raises
    ------
    TypeError
        Where constraints have no form that is known.
    ValueError
        Where a feature or output does not exist, numbers do not fit, or a feature has no order.
    """
    if constraints is None:
        return None
    n_outputs, names = (
        int(tied[-1]) + 1,
        None if score_names is None else _of_outputs(tied, score_names),
    )
    if isinstance(constraints, Mapping):
        directions = _by_name(constraints, mapper, n_outputs, names)
    else:
        directions = _by_place(constraints, mapper.n_features_, n_outputs)
    _refuse_categories(directions, mapper)
    if not directions.any():
        return None
    return np.ascontiguousarray(directions[:, tied][mapper.column_to_feature_])


def tie_output_constraints(objective: Objective, n_scores: int) -> np.ndarray:
    """The output that each raw score belongs to, numbered from 0: one for each, but one for all quantiles of
    a column."""
    columns = objective.score_columns(n_scores)
    of_levels = ~np.isnan(objective.score_quantile_levels(n_scores))
    is_same = of_levels[1:] & of_levels[:-1] & (columns[1:] == columns[:-1])
    return np.concatenate([[0], np.cumsum(~is_same)])


def _of_outputs(tied: np.ndarray, score_names: Sequence[str]) -> list[str] | None:
    """Names of outputs; of several scores, what stands before the last underscore."""
    found = []
    for output in range(int(tied[-1]) + 1):
        of_output = np.flatnonzero(tied == output)
        name = score_names[of_output[0]]
        found.append(name if len(of_output) == 1 else name.rpartition("_")[0])
    return found if all(found) else None


def satisfies_constraints(model: Model, directions: np.ndarray) -> bool:
    """Whether every tree of a model obeys directions (n_columns, K)."""
    n_bins = model.mapper.n_bins_
    for tree, values, output in storage.iter_trees(model.forest):
        if not isinstance(values, np.ndarray):
            return False
        own = directions if output < 0 else np.ascontiguousarray(directions[:, [output]])
        nearest = _core.enforce_monotone_constraints(
            values, own, n_bins, tree, np.ones((tree.n_leaves, 1)), 1
        )
        if not np.array_equal(nearest, values):
            return False
    return True


def _by_place(constraints: Any, n_features: int, n_outputs: int) -> np.ndarray:
    try:
        given = np.asarray(constraints)
        directions = given.astype(np.int8)
    except (TypeError, ValueError):
        raise TypeError(f"monotone_constraints must be {_FORMS}; got {constraints!r}.") from None
    if given.ndim == 1:
        given, directions = given[:, None], np.repeat(directions[:, None], n_outputs, axis=1)
    if directions.shape != (n_features, n_outputs):
        raise ValueError(
            f"monotone_constraints has shape {np.shape(constraints)}, but X has {n_features} features and "
            f"there are {n_outputs} outputs: give {(n_features,)} directions, or {(n_features, n_outputs)}."
        )
    wrong = given[(given != -1) & (given != 0) & (given != 1)]
    if wrong.size > 0:
        raise ValueError(
            f"Directions of monotone_constraints are 1, -1 or 0; one of them is {wrong.tolist()[0]!r}."
        )
    return directions


def _by_name(
    constraints: Mapping[Any, Any],
    mapper: BinMapper,
    n_outputs: int,
    output_names: Sequence[str] | None,
) -> np.ndarray:
    directions = np.zeros((mapper.n_features_, n_outputs), np.int8)
    for feature, of_feature in constraints.items():
        known = mapper.feature_names_, mapper.n_features_
        row = directions[get_feature_index(feature, *known, "monotone_constraints")]
        if not isinstance(of_feature, Mapping):
            row[:] = _direction(of_feature, feature)
            continue
        for output, direction in of_feature.items():
            row[_output_number(output, n_outputs, output_names)] = _direction(direction, feature)
    return directions


def _direction(direction: Any, feature: Any) -> int:
    is_whole = isinstance(direction, int | np.integer) and not isinstance(direction, bool)
    if not is_whole or direction not in (-1, 0, 1):
        raise ValueError(
            f"Directions of monotone_constraints are 1, -1 or 0; that of feature {feature!r} is "
            f"{direction!r}."
        )
    return int(direction)


def _output_number(output: Any, n_outputs: int, names: Sequence[str] | None) -> int:
    if isinstance(output, str) and output.isdecimal() and output not in (names or ()):
        output = int(output)  # as keys of JSON have it
    if isinstance(output, str):
        if names is None:
            raise ValueError(
                f"monotone_constraints names the output {output!r}, but outputs have no names; use numbers."
            )
        if output not in names:
            raise ValueError(
                f"monotone_constraints names the output {output!r}; there are {list(names)}."
            )
        return list(names).index(output)
    if isinstance(output, bool | np.bool_) or not isinstance(output, int | np.integer):
        raise TypeError(
            f"monotone_constraints names outputs by text or whole number, not by {output!r}."
        )
    if not 0 <= output < n_outputs:
        raise ValueError(
            f"monotone_constraints names output {output}, but there are {n_outputs}, from 0 to "
            f"{n_outputs - 1}."
        )
    return int(output)


def _refuse_categories(directions: np.ndarray, mapper: BinMapper) -> None:
    """Refuse directions of features whose values have no order, also where columns were made of them."""
    without_order = np.unique(mapper.column_to_feature_[mapper.is_categorical_])
    for f in [*without_order, *mapper.high_cardinality_features_]:
        if directions[f].any():
            name = f if mapper.feature_names_ is None else repr(mapper.feature_names_[f])
            raise ValueError(
                f"monotone_constraints has a direction for feature {name}, whose values are categories and "
                "have no order; give it 0, or make it numbers."
            )
