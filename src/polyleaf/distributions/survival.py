"""Times until an event, as chances of it in one interval after the other: encoded for classifiers of labels,
and curves of what they predict.

Owns the encoding and its inverse. Must not know estimators: what trains is any model of labels that leaves
unknown ones out, as ``PolyleafClassifier(missing_targets="ignore")`` does.

The **hazard** of an interval is the chance that the event falls into it, of rows that have come to its begin
(D. R. Cox, "Regression models and life-tables", JRSS B 34, 1972; G. Tutz and M. Schmid, "Modeling discrete
time-to-event data", 2016). A row whose event is in interval k is 0 in those before, 1 in k, and unknown
after; a row that was censored is unknown from the interval on in which that was. Causes that compete have
hazards of their own: a row at risk is 0 for all but the cause that came.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["SurvivalCurves", "encode_discrete_hazard", "make_intervals", "survival_curves"]

Floats = NDArray[np.float64]


def make_intervals(time: ArrayLike, event: ArrayLike, n: int = 20) -> Floats:
    """Ends of intervals that hold about equally many events each.

    Parameters
    ----------
    time : array-like of shape (n_rows,)
        Of the event, or of censoring; above 0.
    event : array-like of shape (n_rows,)
        0 (False) where a row was censored; other numbers are causes.
    n : int
        Intervals, at most.

    Returns
    -------
    ndarray of shape (at most n,), float64
        Ascending; interval k are the times above the end before it (0 for the first), up to its own. The last
        is that of the last event.

    Raises
    ------
    ValueError
        Where times are not above 0 and finite, or no event is known.
    """
    time, cause = _checked(time, event)
    if n < 1:
        raise ValueError(f"n must be at least 1, got {n}.")
    if not cause.any():
        raise ValueError("No row has an event, so there is nothing to learn.")
    levels = np.arange(1, n + 1) / n
    return np.unique(np.quantile(time[cause > 0], levels, method="inverted_cdf"))


def encode_discrete_hazard(time: ArrayLike, event: ArrayLike, ends: ArrayLike) -> Floats:
    """Labels of the intervals, for ``PolyleafClassifier(missing_targets="ignore")``.

    Parameters
    ----------
    time, event : array-like of shape (n_rows,)
        As in `intervals`.
    ends : array-like of shape (n_intervals,)
        As `intervals` gives them.

    Returns
    -------
    ndarray of shape (n_rows, n_causes * n_intervals), float64
        0, 1 or NaN; the intervals of the first cause first. Causes are numbered from 1; there are as many as
        the largest.
    """
    time, cause = _checked(time, event)
    bounds = _ends(ends)
    n_causes = max(1, int(cause.max(initial=1)))
    last = np.searchsorted(bounds, time)  # the interval that a time is in; beyond all: their number
    interval = np.arange(len(bounds))
    at_risk = interval < last[:, None]
    is_here = (interval == last[:, None]) & (cause > 0)[:, None]
    labels = np.full((len(time), n_causes, len(bounds)), np.nan)
    labels[np.broadcast_to((at_risk | is_here)[:, None], labels.shape)] = 0.0
    row, k = np.nonzero(is_here)
    labels[row, cause[row] - 1, k] = 1.0
    return labels.reshape(len(time), -1)


@dataclass(frozen=True, eq=False)
class SurvivalCurves:
    """What is predicted of each row over time.

    Attributes
    ----------
    ends : ndarray of shape (n_intervals,)
    survival : ndarray of shape (n_rows, n_intervals)
        The chance that no event has come by the end of each interval.
    incidence : ndarray of shape (n_rows, n_causes, n_intervals)
        The chance that each cause has come by then: with the survival they sum to 1.
    """

    ends: Floats
    survival: Floats
    incidence: Floats

    def survival_function(self, time: ArrayLike) -> Floats:
        """Survival at some times: between ends as if hazards were even; after the last it stays.

        Parameters
        ----------
        time : array-like of shape (m,), or a number
            In the unit of `ends`.

        Returns
        -------
        ndarray of shape (n_rows, m), or (n_rows,) for a number; float64
            From 0 to 1.
        """
        steps = np.concatenate([[0.0], self.ends])
        levels = np.column_stack([np.ones(len(self.survival)), self.survival])
        times = np.asarray(time, np.float64)
        k = np.clip(np.searchsorted(steps, times, side="right"), 1, len(self.ends))
        share = np.clip((times - steps[k - 1]) / (steps[k] - steps[k - 1]), 0.0, 1.0)
        return levels[:, k - 1] ** (1.0 - share) * levels[:, k] ** share

    def median(self) -> Floats:
        """Ends by which the event is as likely as not, (n_rows,); infinite where that is after the last."""
        reached = self.survival <= 0.5
        return np.where(reached.any(axis=1), self.ends[reached.argmax(axis=1)], np.inf)

    def risk_score(self) -> Floats:
        """One number a row, larger where the event comes sooner, (n_rows,): the events to expect by the last
        end, which rank-based scores (the index of concordance) compare."""
        return -np.log(np.maximum(self.survival, np.finfo(np.float64).tiny)).sum(axis=1)


def survival_curves(hazards: ArrayLike, ends: ArrayLike) -> SurvivalCurves:
    """SurvivalCurves of predicted hazards.

    Parameters
    ----------
    hazards : array-like of shape (n_rows, n_causes * n_intervals)
        What `predict_proba` gives of a model of `encode`'s labels.
    ends : array-like of shape (n_intervals,)

    Returns
    -------
    SurvivalCurves
    """
    bounds = _ends(ends)
    found = np.asarray(hazards, np.float64)
    if found.ndim != 2 or found.shape[1] % len(bounds) or not found.shape[1]:
        raise ValueError(
            f"hazards must have {len(bounds)} columns, one for each interval, or so many for each cause; "
            f"got the shape {found.shape}."
        )
    if not ((found >= 0) & (found <= 1)).all():
        raise ValueError("hazards must be probabilities, from 0 to 1, as predict_proba gives them.")
    of_causes = found.reshape(len(found), found.shape[1] // len(bounds), len(bounds))
    together = of_causes.sum(axis=1, keepdims=True)
    of_causes = of_causes / np.maximum(together, 1.0)  # each was learned by itself
    survival = np.cumprod(np.maximum(1.0 - of_causes.sum(axis=1), 0.0), axis=1)
    before = np.column_stack([np.ones(len(found)), survival[:, :-1]])
    return SurvivalCurves(bounds, survival, np.cumsum(of_causes * before[:, None], axis=2))


def _checked(time: ArrayLike, event: ArrayLike) -> tuple[Floats, NDArray[np.int64]]:
    times, events = np.asarray(time, np.float64), np.asarray(event)
    if times.ndim != 1 or events.shape != times.shape:
        raise ValueError(
            f"time and event must be of one length; got shapes {times.shape} and {events.shape}."
        )
    bad = ~(np.isfinite(times) & (times > 0))
    if bad.any():
        row = int(np.argmax(bad))
        raise ValueError(f"Times must be finite and above 0; that of row {row} is {times[row]}.")
    are_numbers = events.dtype.kind in "biuf" and bool(np.isfinite(events).all())
    causes = events.astype(np.int64) if are_numbers else np.full(len(events), -1)
    if (causes != events).any() or (causes < 0).any():
        raise ValueError("event must hold 0 (censored), 1, or numbers of causes from 1 on.")
    return times, causes


def _ends(ends: ArrayLike) -> Floats:
    found = np.asarray(ends, np.float64)
    if found.ndim != 1 or not len(found) or not (np.diff(found, prepend=0.0) > 0).all():
        raise ValueError(
            "ends must be one or more numbers above 0 that rise: see polyleaf.distributions.survival.make_intervals."
        )
    return found
