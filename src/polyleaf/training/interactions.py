"""Which features may meet on a path, in the numbers of the core.

Owns the meaning of `interaction_constraints`. Must not know how trees grow.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from polyleaf.data.binning import BinMapper
from polyleaf.inputs.feature_numbers import get_feature_index

__all__ = ["Interactions", "encode_interaction_constraints"]


class Interactions(NamedTuple):
    """Every path stays within one of `groups`, and has `at_most` different features.

    Attributes
    ----------
    groups : ndarray of shape (n_groups, n_columns), bool, or None
        None: any features may meet. Columns are those of the mapper: what is made of a feature is where it
        is.
    at_most : int
        0: any number.
    """

    groups: np.ndarray | None = None
    at_most: int = 0


def encode_interaction_constraints(
    constraints: str | Sequence[Sequence[Any]] | None, mapper: BinMapper
) -> Interactions:
    """What `interaction_constraints` asks for, with features by number.

    Raises
    ------
    TypeError
        Where groups are not lists of names and numbers.
    ValueError
        Where a feature does not exist, or a group is empty.
    """
    if constraints is None:
        return Interactions()
    if isinstance(constraints, str):
        return Interactions(at_most={"no_interactions": 1, "pairwise": 2}[constraints])
    named = [_numbers(group, mapper) for group in constraints]
    groups = np.zeros((len(named), mapper.n_features_), bool)
    for flags, numbers in zip(groups, named, strict=True):
        flags[numbers] = True
    others = ~groups.any(axis=0)
    groups = np.vstack([groups, others]) if others.any() else groups
    return Interactions(np.ascontiguousarray(groups[:, mapper.column_to_feature_]))


def _numbers(group: Any, mapper: BinMapper) -> list[int]:
    if isinstance(group, str) or not isinstance(group, Sequence | set | frozenset | np.ndarray):
        raise TypeError(
            "interaction_constraints must hold groups, lists of features by name or number, "
            f'such as [["age", "income"], [3, 4]]; one of them is {group!r}.'
        )
    if len(group) == 0:
        raise ValueError("interaction_constraints has an empty group; leave it out.")
    of_mapper = mapper.feature_names_, mapper.n_features_, "interaction_constraints"
    return [get_feature_index(feature, *of_mapper) for feature in group]
