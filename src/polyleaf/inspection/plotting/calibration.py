"""A display of the calibration of probabilities and quantiles."""

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
    """Predicted against observed frequencies, which are equal on the diagonal.

    Parameters
    ----------
    predicted, observed : list of arrays
        For each curve: mean probabilities of the bins and the shares of positive rows; or levels of
        quantiles and the shares of rows below.
    names : sequence of str
        The names of the curves.
    kind : {"probability", "quantile"}

    Attributes
    ----------
    lines_ : list of matplotlib Line2D
    diagonal_ : matplotlib Line2D
    """

    def __init__(
        self, predicted: Sequence[Any], observed: Sequence[Any], names: Sequence[str], kind: str
    ):
        self.predicted = [np.asarray(values, np.float64) for values in predicted]
        self.observed = [np.asarray(values, np.float64) for values in observed]
        self.names, self.kind = names, kind

    @classmethod
    def from_estimator(
        cls, estimator: Any, X: Any, y: Any, *, n_bins: int = 10, offset: Any = None, ax: Any = None
    ) -> Self:
        """Draw the calibration on rows that are not in the training data.

        Parameters
        ----------
        estimator : fitted PolyleafClassifier, or PolyleafRegressor of objective "quantile"
        X, y
        n_bins : int
            Number of bins of probabilities, with equal numbers of rows. Not used for quantiles.
        offset : optional
            See `predict`: for a model that was trained with offsets.
        ax : matplotlib Axes, optional

        Raises
        ------
        ValueError
            If the estimator predicts neither probabilities nor quantiles.
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
        """Draw the calibration of probabilities.

        Parameters
        ----------
        y_true : array of shape (n_rows, m)
            0 and 1.
        y_prob : array of shape (n_rows, m)
            Probabilities of 1.
        names : sequence of str
            The names of the m curves.
        n_bins : int
            Number of bins of probabilities, with equal numbers of rows.
        ax : matplotlib Axes, optional

        Raises
        ------
        ValueError
            If the shapes do not match.
        """
        truth, probabilities = np.asarray(y_true, bool), np.asarray(y_prob, np.float64)
        if truth.shape != probabilities.shape or truth.ndim != 2:
            raise ValueError(
                "y_true and y_prob must have the same shape (n_rows, m); got "
                f"{truth.shape} and {probabilities.shape}."
            )
        predicted, observed = [], []
        for k in range(truth.shape[1]):
            order = np.argsort(probabilities[:, k], kind="stable")
            bins = [part for part in np.array_split(order, n_bins) if len(part)]
            predicted.append([probabilities[part, k].mean() for part in bins])
            observed.append([truth[part, k].mean() for part in bins])
        return cls(predicted, observed, names, "probability").plot(ax)

    def plot(self, ax: Any = None) -> Self:
        ax = self._start(ax)
        (self.diagonal_,) = ax.plot([0, 1], [0, 1], color="grey", linewidth=0.8, linestyle="--")
        self.lines_: list[Any] = []
        for predicted, observed, name in zip(
            self.predicted, self.observed, self.names, strict=True
        ):
            self.lines_ += ax.plot(predicted, observed, marker="o", markersize=3, label=name)
        is_quantile = self.kind == "quantile"
        ax.set(
            xlabel="level of the quantile" if is_quantile else "mean probability",
            ylabel="share of rows below" if is_quantile else "share of positive rows",
            xlim=(0, 1),
            ylim=(0, 1),
            aspect="equal",
        )
        if len(self.lines_) <= 12:
            ax.legend()
        return self
