"""Displays of curves: learning curves, decision thresholds, calibration, interval coverage, and
trade-offs between the goals of a ranking."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from polyleaf.inspection.model_summary import get_output_names
from polyleaf.inspection.plotting.display import (
    REFERENCE_LINE,
    Display,
    get_evaluation_offset,
    get_single_task_model,
    label_outputs,
    predict_probabilities,
)
from polyleaf.model.model import get_model
from polyleaf.runtime.checks import require_choice
from polyleaf.runtime.types import DataLike
from polyleaf.user_data.validation import get_index

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from polyleaf.estimators.base import PolyleafEstimator
    from polyleaf.estimators.ranker import PolyleafRanker


class LearningCurvesDisplay(Display):
    """A metric after each round, on each evaluation set.

    Parameters
    ----------
    curves : dict of str -> array of shape (n_rounds,) or (n_rounds, n_outputs)
        The curve of each evaluation set.
    metric : str
    output_names : sequence of str, optional
        Required if curves have several columns.
    best_round : int, optional
        Counted from 0, see `best_iteration_`.

    Attributes
    ----------
    lines_ : list of matplotlib Line2D
    best_line_ : matplotlib Line2D or None
    """

    def __init__(
        self,
        curves: Mapping[str, object],
        metric: str,
        output_names: Sequence[str] | None = None,
        best_round: int | None = None,
    ):
        self.curves = {name: np.asarray(curve, np.float64) for name, curve in curves.items()}
        self.metric, self.best_round = metric, best_round
        self.output_names = output_names

    @classmethod
    def from_estimator(
        cls,
        estimator: PolyleafEstimator,
        metric: str | None = None,
        *,
        per_output: bool = False,
        ax: Axes | None = None,
    ) -> Self:
        """Draw the evaluation log of a fitted estimator.

        Parameters
        ----------
        estimator : fitted PolyleafRegressor or PolyleafClassifier
        metric : str, optional
            Default: the first.
        per_output : bool
            Draw a line for each output.
        ax : matplotlib Axes, optional

        Raises
        ------
        ValueError
            If nothing was logged, or not this metric.
        """
        model = get_model(estimator)
        logs = estimator.evals_result_per_output_ if per_output else estimator.evals_result_
        known = list(dict.fromkeys(name for metrics in logs.values() for name in metrics))
        if not known:
            detail = " per output, which model files do not store" if per_output else ""
            raise ValueError(f"There are no learning curves{detail}: fit with eval_set or X_val.")
        metric = known[0] if metric is None else metric
        require_choice(metric, known, "metric")
        curves = {name: metrics[metric] for name, metrics in logs.items() if metric in metrics}
        names = get_output_names(model) if per_output else None
        return cls(curves, metric, names, estimator.best_iteration_).plot(ax)

    def plot(self, ax: Axes | None = None) -> Self:
        ax = self._set_axes(ax)
        self.lines_: list[object] = []
        for number, (data, curve) in enumerate(self.curves.items()):
            columns = curve.reshape(len(curve), -1).T
            for k, column in enumerate(columns):
                label = data if self.output_names is None else f"{data}, {self.output_names[k]}"
                rounds = np.arange(1, len(column) + 1)
                colour, line = f"C{number % 10}", "-"
                if len(columns) > 1:
                    colour, line = f"C{k % 10}", ("-", "--", ":")[number % 3]
                self.lines_ += ax.plot(rounds, column, color=colour, linestyle=line, label=label)
        self.best_line_ = None
        if self.best_round is not None:
            self.best_line_ = ax.axvline(self.best_round + 1, label="best round", **REFERENCE_LINE)
        ax.set(xlabel="rounds", ylabel=self.metric)
        ax.locator_params(axis="x", integer=True)
        if len(self.lines_) <= 12:
            ax.legend()
        return self._finish()


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

    def __init__(
        self, thresholds: DataLike, precision: object, recall: object, f1: object, name: str
    ):
        self.thresholds, self.precision = np.asarray(thresholds), np.asarray(precision)
        self.recall, self.f1, self.name = np.asarray(recall), np.asarray(f1), name
        self.best_threshold = float(self.thresholds[int(np.argmax(self.f1))])

    @classmethod
    def from_estimator(
        cls,
        estimator: PolyleafEstimator,
        X: DataLike,
        y: DataLike,
        *,
        output: str | int | None = None,
        offset: DataLike | None = None,
        ax: Axes | None = None,
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
        number = get_index(output, names, len(names), "output", "output")
        truth, probabilities = truth[:, number], probabilities[:, number]
        return cls.from_predictions(truth, probabilities, names[number], ax=ax)

    @classmethod
    def from_predictions(
        cls, y_true: DataLike, y_prob: DataLike, name: str = "", *, ax: Axes | None = None
    ) -> Self:
        """Draw the scores of probabilities.

        Parameters
        ----------
        y_true, y_prob : array of any shape, the same for both
            0, 1 or NaN where missing, and the probabilities of 1.
        name : str
            The name of the label.
        ax : matplotlib Axes, optional

        Raises
        ------
        ValueError
            If the shapes do not match, or are empty.
        """
        truth = np.ravel(np.asarray(y_true, np.float64))
        probabilities = np.ravel(np.asarray(y_prob, np.float64))
        if truth.shape != probabilities.shape or not truth.size:
            raise ValueError(
                f"y_true and y_prob must have the same shape; got {truth.size} and "
                f"{probabilities.size} values."
            )
        known = ~np.isnan(truth)
        truth, probabilities = truth[known] != 0, probabilities[known]
        thresholds = np.linspace(0.01, 0.99, 99)
        order = np.sort(probabilities)
        positive = np.sort(probabilities[truth])
        predicted = len(order) - np.searchsorted(order, thresholds)
        right = len(positive) - np.searchsorted(positive, thresholds)
        precision = np.divide(right, predicted, out=np.full(99, np.nan), where=predicted > 0)
        recall = right / max(1, truth.sum())
        f1 = 2 * right / np.maximum(1, predicted + truth.sum())
        return cls(thresholds, precision, recall, f1, name).plot(ax)

    def plot(self, ax: Axes | None = None) -> Self:
        ax = self._set_axes(ax)
        self.lines_: list[object] = []
        curves = {"precision": self.precision, "recall": self.recall, "F1": self.f1}
        for label, values in curves.items():
            self.lines_ += ax.plot(self.thresholds, values, label=label)
        label = f"best F1, at {self.best_threshold:.2f}"
        ax.axvline(self.best_threshold, label=label, **REFERENCE_LINE)
        label = f"threshold, {self.name}" if self.name else "threshold"
        ax.set(xlabel=label, xlim=(0, 1), ylim=(0, 1))
        ax.legend()
        return self._finish()


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
        self,
        predicted: Sequence[object],
        observed: Sequence[object],
        names: Sequence[str],
        kind: str,
    ):
        self.predicted = [np.asarray(values, np.float64) for values in predicted]
        self.observed = [np.asarray(values, np.float64) for values in observed]
        self.names, self.kind = names, kind

    @classmethod
    def from_estimator(
        cls,
        estimator: PolyleafEstimator,
        X: DataLike,
        y: Any,
        *,
        n_bins: int = 10,
        offset: DataLike | None = None,
        ax: Axes | None = None,
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
        offset = get_evaluation_offset(estimator, X, y, offset)
        Y = np.asarray(y, np.float64).reshape(len(y), -1)
        below = Y[..., None] <= estimator.predict(X, offset=offset).reshape(*Y.shape, len(levels))
        shares = [below[~np.isnan(Y[:, t]), t].mean(axis=0) for t in range(Y.shape[1])]
        names = ["y"] if len(shares) == 1 else [f"target {t}" for t in range(len(shares))]
        return cls([levels] * len(shares), shares, names, "quantile").plot(ax)

    @classmethod
    def from_predictions(
        cls,
        y_true: DataLike,
        y_prob: DataLike,
        names: Sequence[str],
        *,
        n_bins: int = 10,
        ax: Axes | None = None,
    ) -> Self:
        """Draw the calibration of probabilities.

        Parameters
        ----------
        y_true : array of shape (n_rows, m)
            0, 1, or NaN where missing.
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
        truth, probabilities = np.asarray(y_true, np.float64), np.asarray(y_prob, np.float64)
        if truth.shape != probabilities.shape or truth.ndim != 2:
            raise ValueError(
                "y_true and y_prob must have the same shape (n_rows, m); got "
                f"{truth.shape} and {probabilities.shape}."
            )
        predicted, observed = [], []
        for k in range(truth.shape[1]):
            order = np.argsort(probabilities[:, k], kind="stable")
            order = order[~np.isnan(truth[order, k])]
            bins = [part for part in np.array_split(order, n_bins) if len(part)]
            predicted.append([probabilities[part, k].mean() for part in bins])
            observed.append([(truth[part, k] != 0).mean() for part in bins])
        return cls(predicted, observed, names, "probability").plot(ax)

    def plot(self, ax: Axes | None = None) -> Self:
        ax = self._set_axes(ax)
        (self.diagonal_,) = ax.plot([0, 1], [0, 1], **REFERENCE_LINE)
        self.lines_: list[object] = []
        curves = zip(self.predicted, self.observed, self.names, strict=True)
        for predicted, observed, name in curves:
            self.lines_ += ax.plot(predicted, observed, marker="o", markersize=3, label=name)
        xlabel, ylabel = "mean probability", "share of positive rows"
        if self.kind == "quantile":
            xlabel, ylabel = "level of the quantile", "share of rows below"
        ax.set(xlabel=xlabel, ylabel=ylabel, xlim=(0, 1), ylim=(0, 1), aspect="equal")
        if len(self.lines_) <= 12:
            ax.legend()
        return self._finish()


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
    joint_error : float, optional
        Standard error of `joint`.

    Attributes
    ----------
    bars_ : matplotlib BarContainer
    line_ : matplotlib Line2D
        The line at the requested coverage.
    """

    def __init__(
        self,
        shares: object,
        joint: float,
        errors: object,
        widths: object,
        coverage: float,
        names: Sequence[str],
        joint_error: float = float("nan"),
    ):
        self.joint_error = joint_error
        self.shares, self.errors = np.asarray(shares, np.float64), np.asarray(errors, np.float64)
        self.widths, self.joint = np.asarray(widths, np.float64), joint
        self.coverage, self.names = coverage, names

    @classmethod
    def from_estimator(
        cls,
        estimator: PolyleafEstimator,
        X: DataLike,
        y: DataLike,
        *,
        offset: DataLike | None = None,
        ax: Axes | None = None,
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
        if not hasattr(estimator, "predict_interval"):
            raise ValueError("This display requires an estimator with predict_interval.")
        offset = get_evaluation_offset(estimator, X, y, offset)
        intervals = estimator.predict_interval(X, offset=offset)
        n_targets = intervals.reshape(len(intervals), -1, 2).shape[1]
        names = ["y"] if n_targets == 1 else [f"target {t}" for t in range(n_targets)]
        if model.n_outputs == n_targets > 1:
            names = get_output_names(model)
        coverage = model.metadata["intervals"]["coverage"]
        return cls.from_predictions(y, intervals, coverage, names, ax=ax)

    @classmethod
    def from_predictions(
        cls,
        y_true: Any,
        intervals: object,
        coverage: float,
        names: Sequence[str],
        *,
        ax: Axes | None = None,
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
        joint_error = float(np.sqrt(joint * (1 - joint) / len(Y)))
        widths = (high - low).mean(axis=0)
        return cls(shares, joint, errors, widths, coverage, names, joint_error).plot(ax)

    def plot(self, ax: Axes | None = None) -> Self:
        ax = self._set_axes(ax)
        heights, errors, labels = [*self.shares], [*(2 * self.errors)], [*self.names]
        colours = ["C0"] * len(heights)
        if len(self.shares) > 1:  # a bar for all targets at once
            heights.append(self.joint)
            errors.append(2 * self.joint_error)
            labels.append("all targets")
            colours.append("lightgrey")
        self.bars_ = ax.bar(range(len(heights)), heights, color=colours, yerr=errors, capsize=3)
        self.line_ = ax.axhline(self.coverage, label="requested", **REFERENCE_LINE)
        label_outputs(ax, labels)
        ax.set(ylabel="share of rows inside", ylim=(0, 1))
        ax.legend(loc="lower right")
        return self._finish()


class ParetoDisplay(Display):
    """The metric of two goals of a ranking for each trade-off of `goal_weights`.

    Parameters
    ----------
    values : array of shape (n_scores, n_goals)
        The metric of each score by each goal.
    goal_weights : array of shape (n_scores, n_goals)
    names : sequence of str
        The names of the goals.
    goals : (int, int)
        The goals on the axes.
    metric : str
    chosen : int or None
        The score that `predict` returns, if one was chosen.

    Attributes
    ----------
    is_optimal : ndarray of shape (n_scores,), bool
        Scores that no other score exceeds in one goal without falling behind in another.
    points_, front_ : matplotlib Line2D
        All scores, and the line through those that are optimal by the two goals on the axes.
    """

    def __init__(
        self,
        values: object,
        goal_weights: object,
        names: Sequence[str],
        goals: tuple[int, int] = (0, 1),
        metric: str = "ndcg",
        chosen: int | None = None,
    ):
        self.values = np.asarray(values, np.float64)
        self.goal_weights = np.asarray(goal_weights, np.float64)
        self.names, self.goals, self.metric, self.chosen = names, goals, metric, chosen
        self.is_optimal = find_optimal(self.values)

    @classmethod
    def from_estimator(
        cls,
        estimator: PolyleafRanker,
        X: DataLike,
        y: DataLike,
        sample_weight: DataLike | None = None,
        *,
        qid: Any = None,
        group: Any = None,
        goals: tuple[int, int] = (0, 1),
        metric: str = "ndcg",
        offset: DataLike | None = None,
        ax: Axes | None = None,
    ) -> Self:
        """Draw the trade-offs on queries outside the training data.

        Parameters
        ----------
        estimator : fitted PolyleafRanker
            Trained on several goals.
        X, y, sample_weight, qid, group, metric, offset
            See :meth:`polyleaf.PolyleafRanker.score_goals`.
        goals : (int, int)
            The goals on the horizontal and on the vertical axis.
        ax : matplotlib Axes, optional

        Raises
        ------
        ValueError
            If the model has one goal.
        """
        values = estimator.score_goals(
            X, y, sample_weight, qid=qid, group=group, metric=metric, offset=offset
        )
        n_goals = values.shape[1]
        if n_goals < 2:
            raise ValueError("A trade-off is between several goals, but y had one column.")
        names = estimator._encoding.output_names or [f"goal {k}" for k in range(n_goals)]
        chosen = estimator.chosen_score_
        return cls(values, estimator.goal_weights_, names, goals, metric, chosen).plot(ax)

    def plot(self, ax: Axes | None = None) -> Self:
        ax = self._set_axes(ax)
        first, second = self.goals
        points = self.values[:, [first, second]]
        (self.points_,) = ax.plot(*points.T, "o", markersize=4, color="C0")
        front = points[find_optimal(points)]
        (self.front_,) = ax.plot(*front[np.argsort(front[:, 0])].T, color="C0", linewidth=1)
        for point, weights in zip(points, self.goal_weights[:, [first, second]], strict=True):
            text = ", ".join(f"{weight:g}" for weight in weights)
            ax.annotate(text, point, xytext=(4, 4), textcoords="offset points", fontsize="x-small")
        if self.chosen is not None:
            ax.plot(*points[self.chosen], "o", color="C1", label="chosen")
            ax.legend()
        ax.set(
            xlabel=f"{self.metric} of {self.names[first]}",
            ylabel=f"{self.metric} of {self.names[second]}",
        )
        return self._finish()


def find_optimal(values: np.ndarray) -> np.ndarray:
    """Return the mask of the rows of (n, m) that no other row exceeds without falling behind."""
    is_optimal = np.ones(len(values), bool)
    for i, own in enumerate(values):
        is_optimal[i] = not ((values >= own).all(axis=1) & (values > own).any(axis=1)).any()
    return is_optimal
