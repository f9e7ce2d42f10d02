"""Evaluation sets: data that is scored after every round, and the logs of their metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import polyleaf._core as _core
from polyleaf.metrics import Metric, default_metrics, get_metrics
from polyleaf.metrics.metric import EvalsLog, OutputsLog
from polyleaf.model import Model
from polyleaf.model.leaf_kinds import Leaves
from polyleaf.objectives import Objective
from polyleaf.runtime.capabilities import refuse
from polyleaf.runtime.row_data import InitialScores, RowData
from polyleaf.user_data.read_target import check_same_rows
from polyleaf.user_data.target import Target

SPARSE_METRICS = ("p@1", "p@3", "p@5")  # default metrics of sparse targets


@contextmanager
def name_eval_set(name: str) -> Iterator[None]:
    """Let messages of errors in the data of an evaluation set begin with its name."""
    try:
        yield
    except (TypeError, ValueError) as error:
        if repr(name) not in str(error):
            error.args = (f"Evaluation set {name!r}: {error}",)
        raise


def make_metrics(eval_metric: object, objective: Objective, target: Target) -> list[Metric]:
    """Make the metrics of evaluation sets; None stands for those of the objective."""
    if not target.is_sparse:
        found = (
            default_metrics(objective, target.encoding.kind, target.encoding.n_outputs)
            if eval_metric is None
            else get_metrics(eval_metric, objective)
        )
        has_classes = target.encoding.has_class_ids
        return [replace(m, has_classes=True) for m in found] if has_classes else found
    metrics = get_metrics(SPARSE_METRICS if eval_metric is None else eval_metric, objective)
    for metric in metrics:
        if not hasattr(metric.function, "k"):
            refuse("sparse_targets", "metrics_of_outputs", metric=metric.name)
    return metrics


@dataclass
class EvalSet:
    """Data that is scored after every round and never trained on.

    Raises a ValueError if the numbers of rows differ.
    """

    name: str  # key in the log
    codes: np.ndarray  # (n_features, n_rows), bin codes from the mapper of the training data
    # encoded as the training rows, but targets and offsets are on the scale of y, since metrics are
    # those of the user's data
    rows: RowData
    metrics: Sequence[Metric]
    features: np.ndarray | None = None  # (n_features, n_rows), raw features, for linear leaves
    # the rows with the weights and targets that metrics use if they differ from `rows`: rows that a
    # fit holds out itself count as in training (class weights)
    weighed: RowData | None = None
    logs_outputs: bool = True  # whether the metrics of single outputs are logged
    initial_scores: InitialScores | None = None  # terms of the offset

    def __post_init__(self) -> None:
        n_rows, offset = self.codes.shape[1], self.rows.offset
        check_same_rows(n_rows, self.rows.n_rows, f"y of {self.name!r}")
        if offset is not None:
            check_same_rows(n_rows, offset.shape[0], f"The offset of {self.name!r}")


class Evaluation:
    """The evaluation sets of one training with their scores and logs.

    `model`: the model in training; trees that it has are scored. `new_scores`: `new_scores(n_rows,
    offset)` returns raw scores of the kind of the training. `layer_hooks`: called after layers, see
    `callbacks.Callback.after_layer`. `training`: the training rows, which some metrics need.

    `log`: `{data name: {metric name: [value of each round]}}`. `log_by_output`: the same per
    output, arrays (K,), for metrics that are defined per output.
    """

    def __init__(
        self,
        eval_sets: Sequence[EvalSet],
        model: Model,
        new_scores: Callable[[int, Any], Any],
        layer_hooks: Sequence[Callable[..., object]],
        training: RowData | None = None,
    ) -> None:
        self._model, self._layer_hooks, self._new_scores = model, layer_hooks, new_scores
        self.sets = [(e, new_scores(e.codes.shape[1], e.rows.offset)) for e in eval_sets]
        self._metrics = [
            [metric.bind(e.weighed or e.rows, training, model.n_outputs) for metric in e.metrics]
            for e in eval_sets
        ]
        self.log: EvalsLog = {e.name: {m.name: [] for m in e.metrics} for e in eval_sets}
        self.log_by_output: OutputsLog = {e.name: {} for e in eval_sets}
        self._n_scored = self._first_round = 0

    def start(self) -> None:
        """Score the trees of the model; the metrics of later rounds are logged."""
        self._first_round = self._model.n_rounds
        self._add_trees()

    def update(self) -> None:
        """Add new trees to the scores of every set, and log its metrics."""
        self._add_trees()
        for (e, scores), metrics in zip(self.sets, self._metrics, strict=True):
            for metric, predicted in scores.iter_metrics(e.rows, metrics, self._model):
                value, per_output = (
                    metric.value_and_per_output(predicted)
                    if e.logs_outputs and scores.has_outputs
                    else (metric(predicted), None)
                )
                name = metric.metric.name
                self.log[e.name][name].append(float(value))
                if per_output is not None:
                    self.log_by_output[e.name].setdefault(name, []).append(per_output)

    def report_layer(self, round: int, tree: _core.Tree, make_leaves: Callable[[], Leaves]) -> None:
        """Call the layer hooks with the metrics of an unfinished tree of all outputs."""
        if not self._layer_hooks:
            return
        leaves = make_leaves()
        unfinished = _core.Forest(self._model.n_outputs)
        unfinished.append(tree, leaves)
        values = self._compute_metrics(unfinished, [scores.copy() for _, scores in self.sets])
        for after_layer in self._layer_hooks:
            after_layer(self._model, round, values, tree, leaves)

    def compute_metrics(self, forest: _core.Forest) -> dict[str, dict[str, float]]:
        """Return the metrics of a forest, `{data name: {metric name: value}}`."""
        scores = [self._new_scores(e.codes.shape[1], e.rows.offset) for e, _ in self.sets]
        return self._compute_metrics(forest, scores)

    def _compute_metrics(
        self, forest: _core.Forest, scores: Sequence[Any]
    ) -> dict[str, dict[str, float]]:
        """Add a forest to the scores of each set, and return the metrics."""
        values: dict[str, dict[str, float]] = {}
        for (e, _), metrics, added in zip(self.sets, self._metrics, scores, strict=True):
            added.add_trees(forest, 0, e.codes, e.features)
            pairs = added.iter_metrics(e.rows, metrics, self._model)
            values[e.name] = {metric.metric.name: metric(predicted) for metric, predicted in pairs}
        return values

    def discard_incomplete_round(self) -> None:
        """Delete logged values of rounds that the model does not have."""
        complete = self._model.n_rounds - self._first_round
        for log in (self.log, self.log_by_output):
            for metrics in log.values():
                for values in metrics.values():
                    del values[complete:]

    def _add_trees(self) -> None:
        forest = self._model.forest
        for e, scores in self.sets:
            scores.add_trees(forest, self._n_scored, e.codes, e.features)
        self._n_scored = len(forest)
