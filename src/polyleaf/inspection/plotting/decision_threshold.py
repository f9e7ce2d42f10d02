"""A display of precision, recall and F1 by decision threshold."""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from polyleaf.inspection.plotting.display import Display, predict_probabilities

__all__ = ["ThresholdDisplay"]


class ThresholdDisplay(Display):
    """Precision, recall and F1 of one label, or of all labels, by the decision threshold.

    Parameters
    ----------
    thresholds : array of shape (n,)
        A label is predicted where its probability is at least the threshold.
    precision, recall, f1 : array of shape (n,)
    name : str

    Attributes
    ----------
    best_threshold : float
        The first threshold with the largest F1.
    lines_ : list of matplotlib Line2D
    """

    def __init__(self, thresholds: Any, precision: Any, recall: Any, f1: Any, name: str):
        self.thresholds, self.precision = np.asarray(thresholds), np.asarray(precision)
        self.recall, self.f1, self.name = np.asarray(recall), np.asarray(f1), name
        self.best_threshold = float(self.thresholds[int(np.argmax(self.f1))])

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: Any,
        *,
        output: str | int | None = None,
        offset: Any = None,
        ax: Any = None,
    ) -> Self:
        """Draw the scores on rows that are not in the training data.

        Parameters
        ----------
        estimator : fitted PolyleafClassifier
        X, y
        output : str or int, optional
            Name or number of a label or class. Default: all together (micro averages).
        offset : optional
            See `predict`: for a model that was trained with offsets.
        ax : matplotlib Axes, optional

        Raises
        ------
        ValueError
            If the estimator has no probabilities, or there is no such output.
        """
        truth, probabilities, names = predict_probabilities(estimator, X, y, offset)
        if output is None:
            name = names[0] if len(names) == 1 else "all labels"
            return cls.from_predictions(truth, probabilities, name, ax=ax)
        if isinstance(output, str):
            if output not in names:
                raise ValueError(f"output={output!r} must be one of {', '.join(names[:20])}.")
            output = names.index(output)
        if not 0 <= output < len(names):
            raise ValueError(f"output={output} must be below {len(names)}, the number of outputs.")
        return cls.from_predictions(
            truth[:, output], probabilities[:, output], names[output], ax=ax
        )

    @classmethod
    def from_predictions(cls, y_true: Any, y_prob: Any, name: str = "", *, ax: Any = None) -> Self:
        """Draw the scores of probabilities.

        Parameters
        ----------
        y_true, y_prob : array of any shape, the same for both
            0 and 1, and the probabilities of 1.
        name : str
            The name of the label.
        ax : matplotlib Axes, optional

        Raises
        ------
        ValueError
            If the shapes do not match, or are empty.
        """
        truth, probabilities = (
            np.ravel(np.asarray(y_true, bool)),
            np.ravel(np.asarray(y_prob, np.float64)),
        )
        if truth.shape != probabilities.shape or not truth.size:
            raise ValueError(
                f"y_true and y_prob must have the same shape; got {truth.size} and "
                f"{probabilities.size} values."
            )
        thresholds = np.linspace(0.01, 0.99, 99)
        order = np.sort(probabilities)
        positive = np.sort(probabilities[truth])
        predicted = len(order) - np.searchsorted(order, thresholds)
        right = len(positive) - np.searchsorted(positive, thresholds)
        precision = np.divide(right, predicted, out=np.full(99, np.nan), where=predicted > 0)
        recall = right / max(1, truth.sum())
        f1 = 2 * right / np.maximum(1, predicted + truth.sum())
        return cls(thresholds, precision, recall, f1, name).plot(ax)

    def plot(self, ax: Any = None) -> Self:
        ax = self._start(ax)
        self.lines_: list[Any] = []
        for label, values in (
            ("precision", self.precision),
            ("recall", self.recall),
            ("F1", self.f1),
        ):
            self.lines_ += ax.plot(self.thresholds, values, label=label)
        ax.axvline(self.best_threshold, color="grey", linewidth=0.8, linestyle="--")
        ax.set(
            xlabel=f"threshold, {self.name}" if self.name else "threshold", xlim=(0, 1), ylim=(0, 1)
        )
        ax.legend()
        return self
