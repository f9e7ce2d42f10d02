"""The trade-offs between the goals of a ranking."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from polyleaf.inspection.plotting.display import Display

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from polyleaf.estimators.ranker import PolyleafRanker
    from polyleaf.runtime.types import DataLike


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
