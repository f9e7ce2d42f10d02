"""The boosting loop: derivatives -> tree -> leaf values -> raw scores -> callbacks.

Owns the order in which the parts are called. Must not know how any of them works: losses are objectives,
splits and leaves are the core's, what a user passed is the estimators' business.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

import polyleaf._core as _core

from .config import DEFAULT_HISTOGRAM_MEMORY, BoostConfig, check_compatible
from .model import Model
from .sampling import sample_features, sample_rows

if TYPE_CHECKING:
    from .callbacks import Callback
    from .dataset import Dataset
    from .metrics import Metric
    from .objectives import Objective

__all__ = ["EvalSet", "boost"]

EvalsLog = dict[str, dict[str, list[float]]]
OutputsLog = dict[str, dict[str, list[np.ndarray]]]

# Outputs up to which curvature="auto" judges splits by K curvatures; above, by their mean, which saves K
# channels.
DIAGONAL_UP_TO = 64


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
    """

    name: str
    codes: np.ndarray
    target: np.ndarray
    weight: np.ndarray | None
    metrics: Sequence[Metric]
    raw: np.ndarray = field(init=False, repr=False)


def boost(
    dataset: Dataset,
    target: np.ndarray,
    weight: np.ndarray | None,
    objective: Objective,
    config: BoostConfig,
    *,
    eval_sets: Sequence[EvalSet] = (),
    callbacks: Iterable[Callback] = (),
    init_model: Model | None = None,
    base_score: np.ndarray | None = None,
    target_scale: np.ndarray | None = None,
    target_offset: np.ndarray | None = None,
    output_names: Sequence[str] | None = None,
    model_metadata: dict[str, Any] | None = None,
) -> tuple[Model, EvalsLog, OutputsLog]:
    """Boost trees on one data set.

    Parameters
    ----------
    dataset : Dataset
        Binned features.
    target : ndarray of shape (n_rows, K) float32, or (n_rows,) int32 class ids
    weight : ndarray of shape (n_rows,) or (n_rows, K), float32, or None
    objective : Objective
    config : BoostConfig
    eval_sets : sequence of EvalSet
    callbacks : iterable of Callback
        Called in order; every one is called in every round.
    init_model : Model, optional
        Training goes on from its trees (they are copied, not changed). Its mapper must be the data set's.
    base_score : ndarray of shape (K,), float64, optional
        Instead of the objective's own.
    target_scale, target_offset : ndarray of shape (K,), float64, optional
        Where the target is `(y - offset) / scale`: kept in the model, which predicts in the unit of y.
    output_names : sequence of str, optional
        Kept in the model.
    model_metadata : dict, optional
        Kept in the model.

    Returns
    -------
    model : Model
    evals_log : dict
        `{data name: {metric name: [value of each round]}}`.
    outputs_log : dict
        The same for each output, arrays (K,), of the metrics for which that means something; empty for a
        single output.

    Notes
    -----
    Ctrl-C ends the training: the rounds that were complete are kept, and a warning says so.
    """
    check_compatible(config)
    about = dict(
        target_scale=target_scale,
        target_offset=target_offset,
        output_names=output_names,
        metadata=model_metadata,
    )
    run = _Run(dataset, target, weight, objective, config, eval_sets, init_model, base_score, about)
    model, callbacks = run.model, list(callbacks)
    for callback in callbacks:
        callback.before_training(model)
    first = model.n_rounds
    try:
        for round in range(first, first + config.n_estimators):
            if any([callback.before_iteration(model, round, run.log) for callback in callbacks]):
                break
            grown = run.step(round)
            run.evaluate()
            if any([callback.after_iteration(model, round, run.log) for callback in callbacks]) or not grown:
                break
    except KeyboardInterrupt:
        run.drop_incomplete_round(round)
        warnings.warn(
            f"Training was interrupted; the {model.n_rounds} rounds that were complete are kept.",
            stacklevel=2,
        )
    for callback in callbacks:
        callback.after_training(model)
    return model, run.log, run.outputs_log


class _Draw(NamedTuple):
    """What chance gave one round: the rows and features its trees see; None: all."""

    round: int
    rows: np.ndarray | None
    multiplier: np.ndarray | None
    features: np.ndarray | None


class _Run:
    """The state of one training: raw scores, derivatives, and the core's reusable memory."""

    def __init__(
        self,
        dataset: Dataset,
        target: np.ndarray,
        weight: np.ndarray | None,
        objective: Objective,
        config: BoostConfig,
        eval_sets: Sequence[EvalSet],
        init_model: Model | None,
        base_score: np.ndarray | None,
        about: dict[str, Any],
    ) -> None:
        self.config, self.objective, self.eval_sets = config, objective, eval_sets
        self.problem = objective.prepare(target, weight)
        n, k = self.problem.n_rows, self.problem.n_outputs
        if init_model is not None:
            self.model = init_model.copy()
            self.model.best_iteration = self.model.best_score = None  # of the run before
        else:
            if base_score is None:
                base_score = self.problem.base_score(config.n_threads)
            self.model = Model(
                mapper=dataset.mapper,
                objective=objective,
                base_score=base_score,
                feature_names=dataset.feature_names,
                **about,
            )
        self.model.learning_rate = config.learning_rate
        self.problem.set_base(self.model.base_score)
        self.raw = np.zeros((n, k), np.float32)
        shape = self.problem.curvature_shape()
        self.g = np.empty((n, k), np.float32)
        self.h = None if shape is None else np.empty(shape, np.float32)
        self.weight = weight
        self.usable = _rows_of_weight(weight)
        self.grower = _core.Grower(dataset.bins, config.n_threads)
        self.channels = _core.Channels()
        self.n_features = dataset.n_features
        self.log: EvalsLog = {e.name: {m.name: [] for m in e.metrics} for e in eval_sets}
        self.outputs_log: OutputsLog = {e.name: {} for e in eval_sets}
        forest = self.model.forest
        self.first_round, self.trees_scored = self.model.n_rounds, len(forest)
        if len(forest) > 0:
            forest.predict(dataset.codes, self.raw, 0, len(forest), config.n_threads)
        for e in eval_sets:
            e.raw = np.zeros((e.codes.shape[1], k), np.float32)
            forest.predict(e.codes, e.raw, 0, len(forest), config.n_threads)

    # ------------------------------------------------------------------------------------------ one round

    def step(self, round: int) -> bool:
        """One round: a tree for all outputs, or one for each. False when growth has come to an end."""
        config = self.config
        self.problem.derivatives(self.raw, self.g, self.h, config.n_threads)
        rows, multiplier = sample_rows(config, self.g, round, self.usable)
        draw = _Draw(round, rows, multiplier, sample_features(config, self.n_features, round))
        if config.multi_strategy == "multi_output_tree" or self.raw.shape[1] == 1:
            grown = self._add_tree(draw, -1, self.g, self.h)
        else:  # all from the same predictions, as GBDT-SO and the peers do
            columns = range(self.raw.shape[1])
            grown = any([self._add_tree(draw, k, _column(self.g, k), _column(self.h, k)) for k in columns])
        # Where rows or features are drawn, the next draw may be luckier.
        drawn = rows is not self.usable or draw.features is not None or config.colsample_bynode < 1.0
        return grown or drawn

    def _add_tree(self, draw: _Draw, output: int, g: np.ndarray, h: np.ndarray | None) -> bool:
        kind, h_structure = self._structure_curvature(h, g.shape[1], draw.multiplier)
        self.channels.quantise(g, h_structure, kind, draw.rows, draw.multiplier, self.config.n_threads)
        tree = self.grower.grow(self.channels, self._grow_config(draw.round, output), draw.features)
        leaf_of_row = self.grower.leaf_of_row
        values = self._leaf_values(draw, output, g, h, leaf_of_row, tree.n_leaves)
        self.model.append(tree, values, draw.round, output)
        _core.add_leaf_values(self.raw, leaf_of_row, values, output, self.config.n_threads)
        return tree.n_leaves > 1

    def _structure_curvature(
        self, h: np.ndarray | None, n_outputs: int, multiplier: np.ndarray | None
    ) -> tuple[str, np.ndarray | None]:
        """Kind of channels, and the curvature they hold: statistics of the structure, not of the leaves."""
        wanted = structure_curvature(self.config.curvature, h, n_outputs)
        if wanted == "none":
            weighted = self.weight is not None and self.weight.ndim == 1
            if not weighted and multiplier is None:
                return "unit", None
            ones = self.weight if weighted else np.ones(len(self.raw), np.float32)
            return "shared", np.ascontiguousarray(ones, np.float32).reshape(-1, 1)
        assert h is not None
        if wanted == "shared":
            return "shared", _mean_over_outputs(h)
        return "diagonal", h if h.shape[1] == n_outputs else np.repeat(h, n_outputs, axis=1)

    def _leaf_values(
        self,
        draw: _Draw,
        output: int,
        g: np.ndarray,
        h: np.ndarray | None,
        leaf_of_row: np.ndarray,
        n_leaves: int,
    ) -> np.ndarray:
        """Values of one tree's leaves (n_leaves, K or 1), float32, with the learning rate in them."""
        c = self.config
        rows = None if draw.rows is None else draw.rows.astype(np.int32)
        renewed = self.problem.renew_leaves(self.raw, leaf_of_row, n_leaves, rows, c.n_threads)
        if renewed is not None:
            renewed = renewed if output < 0 else _column(renewed, output)
            return renewed * np.float32(self.model.learning_rate)
        if c.leaf_curvature == "none":
            h = None if self.weight is None or self.weight.ndim != 1 else self.weight.reshape(-1, 1)
        elif c.leaf_curvature == "shared" and h is not None:
            h = _mean_over_outputs(h)
        return _core.newton_leaves(
            g,
            h,
            leaf_of_row,
            n_leaves,
            reg_lambda=c.reg_lambda,
            reg_alpha=c.reg_alpha,
            max_delta_step=c.max_delta_step,
            learning_rate=self.model.learning_rate,
            rows=draw.rows,
            multiplier=draw.multiplier,
            n_threads=c.n_threads,
        )

    def _grow_config(self, round: int, output: int) -> _core.GrowConfig:
        c = self.config
        return _core.GrowConfig(
            max_leaves=c.max_leaves if c.max_leaves is not None else 2**31 - 1,
            max_depth=c.max_depth if c.max_depth is not None else -1,
            level_wise=c.grow_policy == "depthwise",
            reg_lambda=c.reg_lambda,
            reg_alpha=c.reg_alpha,
            min_split_gain=c.min_split_gain,
            min_child_weight=c.min_child_weight,
            min_child_samples=c.min_child_samples,
            max_delta_step=c.max_delta_step,
            max_cat_to_onehot=c.max_cat_to_onehot,
            cat_smooth=c.cat_smooth,
            colsample_bynode=c.colsample_bynode,
            seed=int(np.random.SeedSequence([c.seed, round, output + 1]).generate_state(1, np.uint64)[0]),
            histogram_memory=c.histogram_memory or DEFAULT_HISTOGRAM_MEMORY,
        )

    # ------------------------------------------------------------------------------------------ around it

    def evaluate(self) -> None:
        """Score every evaluation set with the trees it has not seen yet."""
        forest = self.model.forest
        for e in self.eval_sets:
            forest.predict(e.codes, e.raw, self.trees_scored, len(forest), self.config.n_threads)
            scores = self.model.in_unit_of_y(e.raw)
            predictions = self.objective.transform(scores)
            for metric in e.metrics:
                data = e.target, scores if metric.needs == "raw" else predictions, e.weight
                self.log[e.name][metric.name].append(float(metric(*data)))
                values = metric.per_output(*data) if scores.shape[1] > 1 else None
                if values is not None:
                    self.outputs_log[e.name].setdefault(metric.name, []).append(values)
        self.trees_scored = len(forest)

    def drop_incomplete_round(self, round: int) -> None:
        """After Ctrl-C: forget trees and scores of a round that was not finished."""
        per_round = self.raw.shape[1] if self.config.multi_strategy == "one_output_per_tree" else 1
        if np.count_nonzero(np.asarray(self.model.round_of_tree) == round) < per_round:
            self.model.truncate(round)
        complete = self.model.n_rounds - self.first_round
        for log in (self.log, self.outputs_log):
            for metrics in log.values():
                for values in metrics.values():
                    del values[complete:]


def _column(matrix: np.ndarray | None, k: int) -> Any:
    """Column k as an array (n, 1) of its own; a single column serves every k."""
    if matrix is None or matrix.shape[1] == 1:
        return matrix
    return np.ascontiguousarray(matrix[:, k : k + 1])


def _mean_over_outputs(h: np.ndarray) -> np.ndarray:
    """Mean of each row (n, 1), added column by column: one order of additions on every processor."""
    total = h[:, :1].copy()
    for k in range(1, h.shape[1]):
        total += h[:, k : k + 1]
    total *= np.float32(1.0 / h.shape[1])
    return total


def _rows_of_weight(weight: np.ndarray | None) -> np.ndarray | None:
    """Rows that have any weight, uint32 ascending; None: all. A row of weight 0 is as good as absent."""
    if weight is None:
        return None
    used = weight > 0 if weight.ndim == 1 else (weight > 0).any(axis=1)
    return None if used.all() else np.flatnonzero(used).astype(np.uint32)


def structure_curvature(curvature: str, h: np.ndarray | None, n_outputs: int) -> str:
    """The curvature that splits are judged with, once "auto" is settled: "none", "shared" or "diagonal".

    "auto": none where the objective's curvature is constant; shared where one column serves all outputs, or
    there is only one, or there are more than `DIAGONAL_UP_TO`; diagonal otherwise. Measured: see section 5 of
    docs/design.md.
    """
    if curvature == "none" or h is None:
        return "none"
    if curvature == "auto":
        curvature = "diagonal" if 1 < h.shape[1] <= DIAGONAL_UP_TO else "shared"
    return "diagonal" if curvature == "diagonal" and n_outputs > 1 else "shared"
