"""Comparison of our figure with the paper's."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from enum import Enum
from typing import Any

from .paper import Subject


class Verdict(Enum):
    """Result of comparing our figure with the paper's."""

    AS_GOOD = "as good"  # at least the paper's, at the paper's digits
    WITHIN_ERROR = "within one standard error"
    BELOW = "below"
    NOT_COMPARED = "not judged"


@dataclass(frozen=True)
class Value:
    """One figure of a run: mean and standard deviation over repeats, standard error of the mean."""

    mean: float
    deviation: float | None
    error: float | None
    n: int


def get_value(figures: dict[str, Any] | None, name: str) -> Value | None:
    """Return the figure `name` of a run; None if it is missing.

    It is a number, a list with one number per repeat, or, if repeats were not stored, their `mean`,
    `deviation` and `n`.
    """
    found = None if figures is None else figures.get(name)
    if found is None:
        return None
    if isinstance(found, dict):
        return Value(
            found["mean"],
            found["deviation"],
            found["deviation"] / math.sqrt(found["n"]),
            found["n"],
        )
    if isinstance(found, list):
        deviation = statistics.stdev(found) if len(found) > 1 else None
        error = None if deviation is None else deviation / math.sqrt(len(found))
        return Value(statistics.fmean(found), deviation, error, len(found))
    return Value(float(found), None, figures.get("errors", {}).get(name) if figures else None, 1)


def compare(subject: Subject, ours: Value | None, printed: float | None) -> Verdict:
    """Compare at the paper's digits, and then by one standard error of our mean."""
    if ours is None or printed is None or subject.better is None:
        return Verdict.NOT_COMPARED
    sign = 1 if subject.better == "higher" else -1
    if sign * (round(ours.mean, subject.digits) - printed) >= 0:
        return Verdict.AS_GOOD
    if sign * (ours.mean - printed) + (ours.error or 0.0) >= 0:
        return Verdict.WITHIN_ERROR
    return Verdict.BELOW
