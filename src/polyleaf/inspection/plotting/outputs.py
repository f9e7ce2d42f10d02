"""A display of a metric of each output, next to a constant and other models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np

from polyleaf.inputs.multitask import decode_target_encoding
from polyleaf.inputs.offsets import OffsetReader
from polyleaf.inspection.plotting.display import (
    Display,
    get_model,
    get_output_names,
    get_single_task_model,
    get_target_names,
    resolve_offset,
)
from polyleaf.model import Model
from polyleaf.model.metadata import HAS_OFFSETS
from polyleaf.model.statistics import Scorer

__all__ = ["OutputsDisplay"]


class OutputsDisplay(Display):
    """A metric of each output.

    Parameters
    ----------
    scores : dict of str -> array of shape (n_outputs,)
        The metric of each model; "constant" is that of the base scores.
    output_names : sequence of str
    metric : str

    Attributes
    ----------
    bars_ : dict of str -> matplotlib BarContainer
    """

    def __init__(self, scores: Mapping[str, Any], output_names: Sequence[str], metric: str):
        self.scores = {name: np.asarray(score, np.float64) for name, score in scores.items()}
        self.output_names, self.metric = output_names, metric

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: Any,
        *,
        metric: str | None = None,
        others: Mapping[str, Any] | None = None,
        offset: Any = None,
        ax: Any = None,
    ) -> Self:
        """Evaluate each output of a fitted estimator, its base scores and other estimators.

        Parameters
        ----------
        estimator : fitted PolyleafRegressor or PolyleafClassifier
        X, y
            Rows that are not in the training data.
        metric : str, optional
            A metric that is defined for a single output. Default: that of the objective.
        others : dict of str -> fitted estimator, optional
            Estimators of the same outputs, such as one with a tree per output.
        offset : optional
            See `predict`: the offset of the constant, of the model, and of others that were trained
            with offsets.
        ax : matplotlib Axes, optional

        Raises
        ------
        ValueError
            If the metric is not defined for a single output.
        """
        fitted = {"model": estimator, **(others or {})}
        offset = resolve_offset(estimator, X, y, offset)
        scores: dict[str, np.ndarray] = {}
        name = ""
        for label, one in fitted.items():
            model = get_single_task_model(one)
            scorer = Scorer(model, X, y, metrics=metric)
            n_rounds = model.n_rounds if model.best_iteration is None else model.best_iteration + 1
            start = _read_offset(
                model, offset if one is estimator or model.metadata.get(HAS_OFFSETS) else None
            )
            if label == "model":
                scores["constant"], name = scorer.per_output(
                    model.predict_raw(scorer.table, 0, 0) + start
                )
            scores[label], name = scorer.per_output(
                model.predict_raw(scorer.table, 0, n_rounds) + start
            )
        own = get_model(estimator)
        names = get_output_names(own)
        if len(scores["model"]) < len(names):  # a target has several raw scores
            names = get_target_names(own)
        return cls(scores, names, name).plot(ax)

    def plot(self, ax: Any = None) -> Self:
        ax = self._start(ax)
        n, width = len(self.output_names), 0.8 / len(self.scores)
        self.bars_ = {}
        for i, (label, scores) in enumerate(self.scores.items()):
            at = np.arange(n) + (i - (len(self.scores) - 1) / 2) * width
            colour = "lightgrey" if label == "constant" else f"C{(i - 1) % 10}"
            self.bars_[label] = ax.bar(at, scores, width, label=label, color=colour)
        shown = range(0, n, max(1, n // 20))
        ax.set_xticks(shown, [self.output_names[k] for k in shown], rotation=45, ha="right")
        ax.set(ylabel=self.metric)
        ax.legend()
        return self


def _read_offset(model: Model, offset: Any) -> np.ndarray | float:
    """Return the offset as raw scores."""
    if offset is None:
        return 0.0
    encoding = decode_target_encoding(model.metadata, model.n_outputs)
    return OffsetReader(encoding, model.n_outputs, model.objective.offset_mask).read(offset)
