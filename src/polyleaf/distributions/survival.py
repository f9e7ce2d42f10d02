"""Discrete-time survival analysis: hazards of intervals as labels, and survival curves of
predictions.

Any multi-label model that ignores missing targets can be trained on the labels, such as
``PolyleafClassifier(missing_targets="ignore")``.

The **hazard** of an interval is the probability that the event falls into it, for rows at risk at
its begin (D. R. Cox, "Regression models and life-tables", JRSS B 34, 1972; G. Tutz and M. Schmid,
"Modeling discrete time-to-event data", 2016). A row whose event is in interval k has the label 0
before it, 1 in k, and a missing one after it. A row that is censored within an interval was at risk
for a part of it: it has the label 0 there, with this part as weight, and missing labels afterwards.
The estimate of a hazard without features is then the actuarial one (S. J. Cutler and F. Ederer,
"Maximum utilization of the life table method in analyzing survival", J. Chronic Diseases 8, 1958).
Competing causes have separate hazards: a row at risk has 0 for all causes but the one that
occurred.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["SurvivalCurves", "encode_discrete_hazard", "make_intervals", "survival_curves"]


def __dir__() -> list[str]:
    return __all__


Floats = NDArray[np.float64]


def make_intervals(time: ArrayLike, event: ArrayLike, n: int = 20) -> Floats:
    """Return the ends of intervals with about equal numbers of events.

    Parameters
    ----------
    time : array-like of shape (n_rows,)
        Time of the event, or of censoring; above 0.
    event : array-like of shape (n_rows,)
        0 (False) for censored rows; other numbers are causes.
    n : int
        Largest number of intervals.

    Returns
    -------
    ndarray of shape (at most n,), float64
        Ascending ends; an interval contains the times above the end before it (0 for the first),
        up to its own. The last end is the time of the last event.

    Raises
    ------
    ValueError
        If times are not above 0 and finite, or no row has an event.
    """
    time, cause = _check_events(time, event)
    if n < 1:
        raise ValueError(f"n must be at least 1, got {n}.")
    if not cause.any():
        raise ValueError("No row has an event, so there is nothing to learn.")
    levels = np.arange(1, n + 1) / n
    return np.unique(np.quantile(time[cause > 0], levels, method="inverted_cdf"))


@overload
def encode_discrete_hazard(
    time: ArrayLike, event: ArrayLike, ends: ArrayLike, *, return_weight: Literal[False] = ...
) -> Floats: ...


@overload
def encode_discrete_hazard(
    time: ArrayLike, event: ArrayLike, ends: ArrayLike, *, return_weight: Literal[True]
) -> tuple[Floats, Floats]: ...


def encode_discrete_hazard(
    time: ArrayLike, event: ArrayLike, ends: ArrayLike, *, return_weight: bool = False
) -> Floats | tuple[Floats, Floats]:
    """Return labels of the intervals, for ``PolyleafClassifier(missing_targets="ignore")``.

    Parameters
    ----------
    time : array-like of shape (n_rows,)
        Time of the event, or of censoring; above 0.
    event : array-like of shape (n_rows,)
        0 (False) for censored rows; other numbers are causes.
    ends : array-like of shape (n_intervals,)
        Ends of the intervals, from `make_intervals`.
    return_weight : bool, default False
        Return weights as well, which count a row that is censored within an interval with the
        part of the interval that it was observed. Without weights such a row counts in the
        interval if it was observed for at least half of it.

    Returns
    -------
    labels : ndarray of shape (n_rows, n_causes * n_intervals), float64
        0, 1 or NaN; the intervals of the first cause first. Causes are numbered from 1 to the
        largest one.
    weight : ndarray of the same shape, float64
        From 0 to 1, the `sample_weight` of the fit; only if `return_weight`.
    """
    time, cause = _check_events(time, event)
    bounds = _check_ends(ends)
    n_causes = max(1, int(cause.max(initial=1)))
    last = np.searchsorted(bounds, time)  # interval of each time; beyond the last: n_intervals
    interval = np.arange(len(bounds))
    has_event = (interval == last[:, None]) & (cause > 0)[:, None]
    begins = np.concatenate([[0.0], bounds[:-1]])
    observed = np.clip((time[:, None] - begins) / (bounds - begins), 0.0, 1.0)
    observed[has_event] = 1.0
    if not return_weight:
        observed = np.round(observed + 1e-9)  # half of an interval counts
    labels = np.full((len(time), n_causes, len(bounds)), np.nan)
    labels[np.broadcast_to((observed > 0)[:, None], labels.shape)] = 0.0
    row, k = np.nonzero(has_event)
    labels[row, cause[row] - 1, k] = 1.0
    flat = labels.reshape(len(time), -1)
    return (flat, np.tile(observed, n_causes)) if return_weight else flat


@dataclass(frozen=True, eq=False)
class SurvivalCurves:
    """Predicted survival of each row over time.

    Attributes
    ----------
    ends : ndarray of shape (n_intervals,)
    survival : ndarray of shape (n_rows, n_intervals)
        Probability that no event has occurred by the end of each interval.
    incidence : ndarray of shape (n_rows, n_causes, n_intervals)
        Probability that each cause has occurred by then; the sum of these and the survival is 1.
    """

    ends: Floats
    survival: Floats
    incidence: Floats

    def survival_function(self, time: ArrayLike) -> Floats:
        """Return the survival at given times.

        Hazards are constant within an interval; after the last end the survival is constant.

        Parameters
        ----------
        time : array-like of shape (m,), or a number
            In units of `ends`.

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
        """Return the first ends with a survival of at most 0.5, (n_rows,); infinite if there is
        none."""
        reached = self.survival <= 0.5
        return np.where(reached.any(axis=1), self.ends[reached.argmax(axis=1)], np.inf)

    def risk_score(self) -> Floats:
        """Return the sum of cumulative hazards, (n_rows,): larger for earlier events, for
        rank-based metrics such as the concordance index."""
        return -np.log(np.maximum(self.survival, np.finfo(np.float64).tiny)).sum(axis=1)


def survival_curves(hazards: ArrayLike, ends: ArrayLike) -> SurvivalCurves:
    """Return the survival curves of predicted hazards.

    Parameters
    ----------
    hazards : array-like of shape (n_rows, n_causes * n_intervals)
        Result of `predict_proba` of a model trained on labels of `encode_discrete_hazard`.
    ends : array-like of shape (n_intervals,)

    Returns
    -------
    SurvivalCurves
    """
    bounds = _check_ends(ends)
    probabilities = np.asarray(hazards, np.float64)
    n_columns = probabilities.shape[-1]
    if probabilities.ndim != 2 or n_columns % len(bounds) or not n_columns:
        raise ValueError(
            f"hazards must have {len(bounds)} columns, one for each interval, or as many for each "
            f"cause; got the shape {probabilities.shape}."
        )
    if not ((probabilities >= 0) & (probabilities <= 1)).all():
        raise ValueError(
            "hazards must be probabilities, from 0 to 1, as predict_proba returns them."
        )
    by_cause = probabilities.reshape(-1, n_columns // len(bounds), len(bounds))
    total = by_cause.sum(axis=1, keepdims=True)
    by_cause = by_cause / np.maximum(total, 1.0)  # causes were learned independently
    survival = np.cumprod(np.maximum(1.0 - by_cause.sum(axis=1), 0.0), axis=1)
    before = np.column_stack([np.ones(len(probabilities)), survival[:, :-1]])
    return SurvivalCurves(bounds, survival, np.cumsum(by_cause * before[:, None], axis=2))


def _check_events(time: ArrayLike, event: ArrayLike) -> tuple[Floats, NDArray[np.int64]]:
    times, events = np.asarray(time, np.float64), np.asarray(event)
    if times.ndim != 1 or events.shape != times.shape:
        raise ValueError(
            f"time and event must have the same length; got shapes {times.shape} "
            f"and {events.shape}."
        )
    bad = ~(np.isfinite(times) & (times > 0))
    if bad.any():
        row = int(np.argmax(bad))
        raise ValueError(f"time must be finite and above 0; it is {times[row]} in row {row}.")
    are_numbers = events.dtype.kind in "biuf" and bool(np.isfinite(events).all())
    causes = events.astype(np.int64) if are_numbers else np.full(len(events), -1)
    if (causes != events).any() or (causes < 0).any():
        raise ValueError("event must be 0 (censored), 1, or numbers of causes from 1 on.")
    return times, causes


def _check_ends(ends: ArrayLike) -> Floats:
    numbers = np.asarray(ends, np.float64)
    if numbers.ndim != 1 or not len(numbers) or not (np.diff(numbers, prepend=0.0) > 0).all():
        raise ValueError(
            "ends must be one or more ascending numbers above 0; make_intervals returns such ends."
        )
    return numbers
