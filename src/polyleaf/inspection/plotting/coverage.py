"""A display of the coverage of prediction intervals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from polyleaf.inspection.plotting.display import (
    Display,
    get_output_names,
    get_single_task_model,
    resolve_offset,
)

__all__ = ["CoverageDisplay"]


class CoverageDisplay(Display):
    """The share of rows within their interval, for each target and for all targets at once.

    Parameters
    ----------
    shares : array of shape (n_targets,)
    joint : float
        The share of rows within all of their intervals.
    errors : array of shape (n_targets,)
        Standard errors of the shares.
    widths : array of shape (n_targets,)
        Mean widths of the intervals.
    coverage : float
        The requested coverage.
    names : sequence of str

    Attributes
    ----------
    bars_ : matplotlib BarContainer
    line_ : matplotlib Line2D
        The line at the requested coverage.
    """

    def __init__(
        self,
        shares: Any,
        joint: float,
        errors: Any,
        widths: Any,
        coverage: float,
        names: Sequence[str],
    ):
        self.shares, self.errors = np.asarray(shares, np.float64), np.asarray(errors, np.float64)
        self.widths, self.joint = np.asarray(widths, np.float64), joint
        self.coverage, self.names = coverage, names

    @classmethod
    def from_estimator(
        cls, estimator: Any, X: Any, y: Any, *, offset: Any = None, ax: Any = None
    ) -> Self:
        """Draw the coverage on rows that neither `fit` nor `calibrate` used.

        Parameters
        ----------
        estimator : calibrated PolyleafRegressor
        X
        y : array-like of shape (n_rows,) or (n_rows, n_targets)
            NaN where missing.
        offset : optional
            See `predict`: for a model that was trained with offsets.
        ax : matplotlib Axes, optional
        """
        model = get_single_task_model(estimator)
        intervals = estimator.predict_interval(X, offset=resolve_offset(estimator, X, y, offset))
        n_targets = intervals.reshape(len(intervals), -1, 2).shape[1]
        names = (
            get_output_names(model)
            if model.n_outputs == n_targets
            else [f"target {t}" for t in range(n_targets)]
        )
        coverage = model.metadata["intervals"]["coverage"]
        return cls.from_predictions(
            y, intervals, coverage, names if n_targets > 1 else ["y"], ax=ax
        )

    @classmethod
    def from_predictions(
        cls, y_true: Any, intervals: Any, coverage: float, names: Sequence[str], *, ax: Any = None
    ) -> Self:
        """Draw the coverage of intervals.

        Parameters
        ----------
        y_true : array of shape (n_rows,) or (n_rows, n_targets)
            NaN where missing.
        intervals : array of shape (n_rows, 2) or (n_rows, n_targets, 2)
            Lower and upper bounds, in the unit of y.
        coverage : float in (0, 1)
            The requested coverage.
        names : sequence of str
            The names of the targets.
        ax : matplotlib Axes, optional

        Raises
        ------
        ValueError
            If the shapes do not match.
        """
        Y = np.asarray(y_true, np.float64).reshape(len(y_true), -1)
        bounds = np.asarray(intervals, np.float64)
        if bounds.size != 2 * Y.size or bounds.shape[-1] != 2 or not Y.size:
            raise ValueError(
                f"intervals must have two bounds for each of {Y.size} targets; got {bounds.size}."
            )
        low, high = np.moveaxis(bounds.reshape(*Y.shape, 2), 2, 0)
        known = ~np.isnan(Y)
        inside = (Y >= low) & (Y <= high)
        shares = np.where(known, inside, 0).sum(axis=0) / np.maximum(1, known.sum(axis=0))
        errors = np.sqrt(shares * (1 - shares) / np.maximum(1, known.sum(axis=0)))
        joint = float((inside | ~known).all(axis=1).mean())
        return cls(shares, joint, errors, (high - low).mean(axis=0), coverage, names).plot(ax)

    def plot(self, ax: Any = None) -> Self:
        ax = self._start(ax)
        several = len(self.shares) > 1
        heights = [*self.shares, self.joint] if several else [*self.shares]
        errors = [*(2 * self.errors), 0.0] if several else [*(2 * self.errors)]
        colours = ["C0"] * len(self.shares) + ["lightgrey"] * several
        self.bars_ = ax.bar(range(len(heights)), heights, color=colours, yerr=errors, capsize=3)
        self.line_ = ax.axhline(
            self.coverage, color="grey", linewidth=0.8, linestyle="--", label="requested"
        )
        labels = [*self.names, "all targets"] if several else [*self.names]
        ax.set_xticks(range(len(heights)), labels, rotation=45, ha="right")
        ax.set(ylabel="share of rows inside", ylim=(0, 1))
        ax.legend(loc="lower right")
        return self
