"""Mean ranks of methods over subjects, and the critical difference of ranks.

J. Demšar, "Statistical comparisons of classifiers over multiple data sets", JMLR 7, 2006.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from scipy.stats import rankdata, studentized_range

from .paper import Figures, Subject
from .verdict import get_value


def mean_ranks(values: Sequence[Mapping[str, float]], methods: Sequence[str]) -> dict[str, float]:
    """Return the mean rank of each method, 1 for the best; ties share their mean rank.

    `values` has a dict for each subject with every method's value; smaller is better.
    """
    ranks = np.mean([rankdata([row[m] for m in methods]) for row in values], axis=0)
    return dict(zip(methods, ranks.tolist(), strict=True))


def critical_difference(n_methods: int, n_subjects: int, alpha: float = 0.05) -> float:
    """Return the Nemenyi critical difference of mean ranks (Demšar, section 3.2.2)."""
    q = studentized_range.ppf(1 - alpha, n_methods, np.inf) / math.sqrt(2)
    return float(q * math.sqrt(n_methods * (n_methods + 1) / (6 * n_subjects)))


def from_figures(
    found: Mapping[tuple[str, str], Figures],
    subjects: Sequence[Subject],
    methods: Sequence[str] | None = None,
) -> tuple[list[dict[str, float]], list[str]]:
    """Return the arguments of `mean_ranks`: the subjects with figures of all methods, and the
    methods.

    `found` maps (method, subject's title) to figures. Values are rounded to the displayed digits,
    so that values displayed as equal are ties. By default all methods that have figures are used.
    """
    methods = list(dict.fromkeys(method for method, _ in found) if methods is None else methods)
    rows = []
    for subject in subjects:
        sign = -1.0 if subject.better == "higher" else 1.0
        values = {m: get_value(found.get((m, subject.title)), subject.figure) for m in methods}
        row = {m: sign * round(v.mean, subject.digits) for m, v in values.items() if v is not None}
        if len(row) == len(methods):
            rows.append(row)
    return rows, methods


def most_complete(found: Mapping[tuple[str, str], Figures]) -> list[str]:
    """Return the methods that have figures for every subject that has any."""
    subjects = {title for _, title in found}
    methods = dict.fromkeys(method for method, _ in found)
    return [m for m in methods if all((m, title) in found for title in subjects)]
