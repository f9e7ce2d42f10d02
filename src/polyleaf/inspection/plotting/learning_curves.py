"""A display of learning curves: metrics after each round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np

from polyleaf.inspection.plotting.display import Display, get_model, get_output_names

__all__ = ["LearningCurvesDisplay"]


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
        curves: Mapping[str, Any],
        metric: str,
        output_names: Sequence[str] | None = None,
        best_round: int | None = None,
    ):
        self.curves = {name: np.asarray(curve, np.float64) for name, curve in curves.items()}
        self.metric, self.output_names, self.best_round = metric, output_names, best_round

    @classmethod
    def from_estimator(
        cls, estimator: Any, metric: str | None = None, *, per_output: bool = False, ax: Any = None
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
        if metric not in known:
            raise ValueError(f"metric={metric!r} was not logged; choose from {', '.join(known)}.")
        curves = {name: metrics[metric] for name, metrics in logs.items() if metric in metrics}
        names = get_output_names(model) if per_output else None
        return cls(curves, metric, names, estimator.best_iteration_).plot(ax)

    def plot(self, ax: Any = None) -> Self:
        ax = self._start(ax)
        self.lines_: list[Any] = []
        for number, (data, curve) in enumerate(self.curves.items()):
            columns = curve.reshape(len(curve), -1).T
            for k, column in enumerate(columns):
                label = data if self.output_names is None else f"{data}, {self.output_names[k]}"
                style = (
                    {"color": f"C{number % 10}"}
                    if len(columns) == 1
                    else {"linestyle": ("-", "--", ":")[number % 3], "color": f"C{k % 10}"}
                )
                self.lines_ += ax.plot(np.arange(1, len(column) + 1), column, label=label, **style)
        self.best_line_ = None
        if self.best_round is not None:
            best = {"color": "grey", "linewidth": 0.8, "linestyle": "--", "label": "best round"}
            self.best_line_ = ax.axvline(self.best_round + 1, **best)
        ax.set(xlabel="rounds", ylabel=self.metric)
        if len(self.lines_) <= 12:
            ax.legend()
        return self
