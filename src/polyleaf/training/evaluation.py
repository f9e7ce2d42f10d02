"""Data that is watched: scored after every round, and never trained on.

Owns: the logs, and which trees were scored already. Must not know: what raw scores are, or how trees come
about.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import polyleaf._core as _core
from polyleaf.callbacks import EvalsLog, OutputsLog
from polyleaf.metrics import Metric
from polyleaf.model import Model
from polyleaf.model.leaf_kinds import Leaves

__all__ = ["EvalSet", "Evaluation"]


@dataclass
class EvalSet:
    """Data that is scored after every round and never trained on.

    Attributes
    ----------
    name : str
        Key in the log.
    codes : ndarray of shape (n_features, n_rows), uint8
        From the training data's bin mapper.
    target : ndarray of shape (n_rows, K) float32, or (n_rows,) int32 class ids
        Encoded as the training target is, but in the unit of y: metrics are of what the user sees.
    weight : ndarray of shape (n_rows,) or (n_rows, K), float32, or None
    metrics : sequence of Metric
    features : ndarray of shape (n_features, n_rows), float32, or None
        Raw features, where leaves read them.
    offset : ndarray of shape (n_rows, K), float64, or None
        Scores that rows start from, in the unit of y.

    Raises
    ------
    ValueError
        Where they have not as many rows.
    """

    name: str
    codes: np.ndarray
    target: np.ndarray
    weight: np.ndarray | None
    metrics: Sequence[Metric]
    features: np.ndarray | None = None
    offset: np.ndarray | None = None

    def __post_init__(self) -> None:
        n_rows, of_target = self.codes.shape[1], self.target.shape[0]
        if of_target != n_rows:
            raise ValueError(f"y of {self.name!r} has {of_target} rows, its X has {n_rows}.")
        if self.offset is not None and len(self.offset) != n_rows:
            raise ValueError(
                f"The offset of {self.name!r} has {len(self.offset)} rows, its X has {n_rows}."
            )


class Evaluation:
    """The evaluation sets of one training, and what became of them round by round.

    Parameters
    ----------
    eval_sets : sequence of EvalSet
    model : Model
        Being trained; trees that it has count.
    new_scores : callable
        `new_scores(n_rows)`: raw scores of the state's kind, which add trees and are measured.
    watchers : sequence of callable
        Told of layers, see `callbacks.Callback.after_layer`.

    Attributes
    ----------
    log : dict
        `{data name: {metric name: [value of each round]}}`.
    log_by_output : dict
        The same for each output, arrays (K,), of the metrics for which that means something.
    """

    def __init__(
        self,
        eval_sets: Sequence[EvalSet],
        model: Model,
        new_scores: Callable[[int], Any],
        watchers: Sequence[Callable[..., Any]],
    ) -> None:
        self._model, self._watchers, self._first_round = model, watchers, model.n_rounds
        self._sets = [(e, new_scores(e.codes.shape[1])) for e in eval_sets]
        self.log: EvalsLog = {e.name: {m.name: [] for m in e.metrics} for e in eval_sets}
        self.log_by_output: OutputsLog = {e.name: {} for e in eval_sets}
        self._n_scored = 0
        self._add_trees()

    def update(self) -> None:
        """Score every set with the trees it has not seen yet."""
        self._add_trees()
        for e, scores in self._sets:
            for metric, data in scores.measured(e, self._model):
                value, each = (
                    metric.value_and_per_output(*data)
                    if scores.by_output
                    else (metric(*data), None)
                )
                self.log[e.name][metric.name].append(float(value))
                if each is not None:
                    self.log_by_output[e.name].setdefault(metric.name, []).append(each)

    def show_layer(self, round: int, tree: _core.Tree, leaves: Leaves) -> None:
        """Tell callbacks that watch layers what a tree of all outputs is worth so far."""
        if not self._watchers:
            return
        so_far = _core.Forest(self._model.n_outputs)
        so_far.append(tree, leaves, -1)
        values: dict[str, dict[str, float]] = {}
        for e, scores in self._sets:
            with_tree = scores.copy()
            with_tree.add_trees(so_far, 0, e.codes, e.features)
            measured = with_tree.measured(e, self._model)
            values[e.name] = {metric.name: float(metric(*data)) for metric, data in measured}
        for after_layer in self._watchers:
            after_layer(self._model, round, values, tree, leaves)

    def forget_incomplete(self) -> None:
        """Keep the values of rounds that the model has."""
        complete = self._model.n_rounds - self._first_round
        for log in (self.log, self.log_by_output):
            for metrics in log.values():
                for values in metrics.values():
                    del values[complete:]

    def _add_trees(self) -> None:
        forest = self._model.forest
        for e, scores in self._sets:
            scores.add_trees(forest, self._n_scored, e.codes, e.features)
        self._n_scored = len(forest)
