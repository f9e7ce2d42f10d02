"""Pairwise coverings: few combinations in which every pair of values of two options occurs."""

import itertools

import pytest


def cover_pairs(*axes):
    """Return combinations of values, one per axis, that cover all pairs of values of two axes.

    The result is greedy and deterministic: each next combination covers the most pairs that are
    not covered yet.
    """
    indices = [range(len(axis)) for axis in axes]
    left = {
        ((i, a), (j, b))
        for i, j in itertools.combinations(range(len(axes)), 2)
        for a in indices[i]
        for b in indices[j]
    }
    candidates = list(itertools.product(*indices))
    chosen = []
    while left:
        best = max(candidates, key=lambda row: len(left.intersection(_pairs(row))))
        left.difference_update(_pairs(best))
        chosen.append(tuple(axis[k] for axis, k in zip(axes, best, strict=True)))
    return chosen


def _pairs(row):
    return itertools.combinations(enumerate(row), 2)


def parametrize_pairs(**axes):
    """Parametrize a test over a pairwise covering of the values of its arguments."""
    rows = cover_pairs(*map(list, axes.values()))
    return pytest.mark.parametrize(",".join(axes), rows, ids=_format)


def _format(value):
    return getattr(value, "__name__", None) or str(value)
