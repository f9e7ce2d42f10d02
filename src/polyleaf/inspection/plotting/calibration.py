"""Whether probabilities and quantiles hold what they say. Owns the shares and their picture."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from polyleaf.inspection.plotting.display import (
    Display,
    get_single_task_model,
    predict_probabilities,
    resolve_offset,
)

__all__ = ["CalibrationDisplay"]


class CalibrationDisplay(Display):
    """What was said against what was: on the diagonal both are the same.

    Parameters
    ----------
    said, found : list of arrays
        For each curve: mean probabilities of the bins and the shares of rows for which it held; or levels of
        quantiles and the shares of rows that lie below.
    names : sequence of str
        Of the curves.
    what : {"probability", "quantile"}

    Attributes
    ----------
    lines_ : list of matplotlib Line2D
    diagonal_ : matplotlib Line2D
    """

    def __init__(self, said: Sequence[Any], found: Sequence[Any], names: Sequence[str], what: str):
        self.said = [np.asarray(s, np.float64) for s in said]
        self.found = [np.asarray(f, np.float64) for f in found]
        self.names, self.what = names, what

    @classmethod
    def from_estimator(
        cls, estimator: Any, X: Any, y: Any, *, n_bins: int = 10, offset: Any = None, ax: Any = None
    ) -> Self:
        """Compare with rows that training did not see.

        Parameters
        ----------
        estimator : fitted PolyleafClassifier, or PolyleafRegressor of objective "quantile"
        X, y
        n_bins : int
            Of probabilities, each with as many rows. Not for quantiles, whose levels are the points.
        offset : optional
            As in `predict`: for a model that was trained with one.
        ax : matplotlib Axes, optional

        Raises
        ------
        ValueError
            Where the estimator gives neither probabilities nor quantiles.
        """
        levels = np.asarray(get_single_task_model(estimator).objective.quantile_levels, np.float64)
        if not levels.size:
            return cls.from_predictions(
                *predict_probabilities(estimator, X, y, offset), n_bins=n_bins, ax=ax
            )
        offset = resolve_offset(estimator, X, y, offset)
        Y = np.asarray(y, np.float64).reshape(len(y), -1)
        below = Y[..., None] <= estimator.predict(X, offset=offset).reshape(*Y.shape, len(levels))
        shares = [below[~np.isnan(Y[:, t]), t].mean(axis=0) for t in range(Y.shape[1])]
        names = ["y"] if len(shares) == 1 else [f"target {t}" for t in range(len(shares))]
        return cls([levels] * len(shares), shares, names, "quantile").plot(ax)

    @classmethod
    def from_predictions(
        cls, y_true: Any, y_prob: Any, names: Sequence[str], *, n_bins: int = 10, ax: Any = None
    ) -> Self:
        """Compare probabilities with what was true.

        Parameters
        ----------
        y_true : array of shape (n_rows, m)
            0 and 1.
        y_prob : array of shape (n_rows, m)
            Probabilities of 1.
        names : sequence of str
            Of the m curves.
        n_bins : int
            Of probabilities, each with as many rows.
        ax : matplotlib Axes, optional

        Raises
        ------
        ValueError
            Where shapes do not fit.
        """
        holds, probabilities = np.asarray(y_true, bool), np.asarray(y_prob, np.float64)
        if holds.shape != probabilities.shape or holds.ndim != 2:
            raise ValueError(
                "y_true and y_prob must have one shape (n_rows, m), not "
                f"{holds.shape} and {probabilities.shape}."
            )
        said, found = [], []
        for k in range(holds.shape[1]):
            order = np.argsort(probabilities[:, k], kind="stable")
            bins = [part for part in np.array_split(order, n_bins) if len(part)]
            said.append([probabilities[part, k].mean() for part in bins])
            found.append([holds[part, k].mean() for part in bins])
        return cls(said, found, names, "probability").plot(ax)

    def plot(self, ax: Any = None) -> Self:
        ax = self._start(ax)
        (self.diagonal_,) = ax.plot([0, 1], [0, 1], color="grey", linewidth=0.8, linestyle="--")
        self.lines_: list[Any] = []
        for said, found, name in zip(self.said, self.found, self.names, strict=True):
            self.lines_ += ax.plot(said, found, marker="o", markersize=3, label=name)
        is_quantile = self.what == "quantile"
        ax.set(
            xlabel="level of the quantile" if is_quantile else "mean probability",
            ylabel="share of rows below" if is_quantile else "share of rows for which it held",
            xlim=(0, 1),
            ylim=(0, 1),
            aspect="equal",
        )
        if len(self.lines_) <= 12:
            ax.legend()
        return self
