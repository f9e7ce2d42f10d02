"""The boosting loop: derivatives -> tree -> leaf values -> raw scores -> callbacks.

Owns the order in which the parts are called. Must not know how any of them works: losses are objectives,
splits and leaves are the core's, what a user passed is the estimators' business.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

import polyleaf._core as _core
from polyleaf.config import BoostConfig, check_compatible
from polyleaf.derivatives import Derivatives
from polyleaf.leaves import ConstantLeaves, LinearLeaves, SparseLeaves
from polyleaf.model import Model
from polyleaf.sampling import sample_features, sample_rows
from polyleaf.sketches import get_sketch

if TYPE_CHECKING:
    from polyleaf.callbacks import Callback
    from polyleaf.dataset import Dataset
    from polyleaf.forest import Leaves
    from polyleaf.metrics import Metric
    from polyleaf.objectives import Objective
    from polyleaf.projections import Projection

__all__ = ["EvalSet", "boost"]

# Rounds in a row without growth after which training ends, where rows or features are drawn.
UNLUCKY_ROUNDS = 10

EvalsLog = dict[str, dict[str, list[float]]]
OutputsLog = dict[str, dict[str, list[np.ndarray]]]


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
    """

    name: str
    codes: np.ndarray
    target: np.ndarray
    weight: np.ndarray | None
    metrics: Sequence[Metric]
    features: np.ndarray | None = None
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
    projection: Projection | None = None,
    model_metadata: dict[str, Any] | None = None,
) -> tuple[Model, EvalsLog, OutputsLog]:
    """Boost trees on one data set.

    Parameters
    ----------
    dataset : Dataset
        Binned features.
    target : ndarray of shape (n_rows, K) float32, or (n_rows,) int32 class ids, or csr_matrix
        A csr_matrix for split_search "exact" and "sketch" (see `SparseRun`).
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
    projection : Projection, optional
        What made the features that the data set holds. Kept in the model.
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
        projection=projection,
        metadata=model_metadata,
    )
    kind = _Run
    if config.split_search != "histogram":
        from polyleaf.sparse_run import SparseRun as kind
    run = kind(dataset, target, weight, objective, config, eval_sets, init_model, base_score, about)
    model, callbacks = run.model, list(callbacks)
    run.layer_watchers = [c.after_layer for c in callbacks if getattr(c, "watches_layers", False)]
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


class Draw(NamedTuple):
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
        self.problem = self._prepare(target, weight)
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
        self.weight, self.usable = weight, _rows_of_weight(weight)
        self.grower = _core.Grower(dataset.bins, config.n_threads)
        self.channels = _core.Channels()
        self.n_features = dataset.n_features
        self.layer_watchers: list[Callable[..., Any]] = []
        self.log: EvalsLog = {e.name: {m.name: [] for m in e.metrics} for e in eval_sets}
        self.outputs_log: OutputsLog = {e.name: {} for e in eval_sets}
        self.barren = 0  # rounds in a row without growth
        self.first_round, self.trees_scored = self.model.n_rounds, len(self.model.forest)
        for e in eval_sets:
            for metric in e.metrics:
                metric.know_training(target, self.problem.n_outputs)
        self._score_first(dataset)

    def _prepare(self, target: np.ndarray, weight: np.ndarray | None) -> Any:
        return self.objective.prepare(target, weight)

    def _score_first(self, dataset: Dataset) -> None:
        """Raw scores of all rows by the trees that are there already, and room for their derivatives."""
        config, n, k = self.config, self.problem.n_rows, self.problem.n_outputs
        sketch = get_sketch(config.sketch, config.sketch_dim, n, k)
        self.raw = np.zeros((n, k), np.float32)
        self.derivatives = Derivatives(self.problem, config, self.weight, sketch)
        self.before = np.empty_like(self.raw) if config.refresh == "layer" else self.raw
        self.stale = True  # the raw scores have changed since the derivatives were computed
        kind = SparseLeaves if config.leaf == "sparse" else ConstantLeaves
        self.leaves: ConstantLeaves = kind(self.problem, self.derivatives, config)
        if config.leaf == "linear":
            self.leaves = LinearLeaves(self.problem, self.derivatives, config, dataset, self.weight)
            if config.looks_ahead:
                self.channels = _core.LinearChannels(self.leaves.table)
        forest = self.model.forest
        if len(forest) > 0:
            features = dataset.raw_features() if len(forest.regressors(0, len(forest))) else None
            forest.predict(dataset.codes, self.raw, 0, len(forest), config.n_threads, features)
        for e in self.eval_sets:
            e.raw = np.zeros((e.codes.shape[1], k), np.float32)
            forest.predict(e.codes, e.raw, 0, len(forest), config.n_threads, e.features)

    # ------------------------------------------------------------------------------------------ one round

    def step(self, round: int) -> bool:
        """One round: a tree for all outputs, or one for each. False when growth has come to an end."""
        config = self.config
        vector = config.multi_strategy == "multi_output_tree" or self.raw.shape[1] == 1
        self._renew()
        draw, grown = self._draw(round), False
        for output in [-1] if vector else range(self.raw.shape[1]):
            if config.refresh != "round":
                self._renew()
            grow = self._grow_by_layers if config.refresh == "layer" else self._grow
            tree, leaves = grow(draw, output)
            self.model.append(tree, leaves, round, output)
            # A single leaf moves all rows: once they are where they belong, there may be something to split.
            grown |= tree.n_leaves > 1 or not self.derivatives.cancel(output)
        return self._goes_on(grown, draw)

    def _goes_on(self, grown: bool, draw: Draw) -> bool:
        """Whether there may be something to grow: the next draw of rows or features may be luckier."""
        features_drawn = draw.features is not None or self.config.colsample_bynode < 1.0
        drawn = features_drawn or draw.rows is not self.usable
        self.barren = 0 if grown else self.barren + 1
        return self.barren < (UNLUCKY_ROUNDS if drawn else 1)

    def _grow(self, draw: Draw, output: int) -> tuple[_core.Tree, Leaves]:
        """A tree grown at one go, and its leaves; the raw scores have them added."""
        self._quantise(draw, output)
        tree = self.grower.grow(self.channels, self._grow_config(draw.round, output), draw.features)
        leaves = self._leaves(draw, output, tree)
        self._add(leaves, output)
        return tree, leaves

    def _grow_by_layers(self, draw: Draw, output: int) -> tuple[_core.Tree, np.ndarray]:
        """A tree whose every layer is a step of boosting (TFBT, section V).

        A node adds its own step to what its ancestors gave; the leaves of the finished tree hold the sums.
        """
        np.copyto(self.before, self.raw)
        self._quantise(draw, output)
        self.grower.begin(self.channels, self._grow_config(draw.round, output), draw.features)
        steps = np.zeros((1, 1 if output >= 0 else self.raw.shape[1]), np.float32)  # of each node, summed
        layer = 0
        while self.grower.split():
            layer += 1
            tree = self.grower.number_leaves()
            steps = _summed_steps(steps, tree, self._leaves(draw, output, tree))
            np.copyto(self.raw, self.before)
            self._add(steps[self.grower.node_of_leaf], output)
            if not self.grower.may_split:
                break
            self._show_layer(draw.round, output, tree, steps)
            self._renew()
            draw = self._draw(draw.round, layer)
            self._quantise(draw, output)
            self.grower.evaluate(self.channels)
        tree = self.grower.finish()
        if layer == 0:  # nothing to split: one step for all rows, as a whole tree of one leaf takes
            leaves = self._leaves(draw, output, tree)
        else:
            leaves = steps[self.grower.node_of_leaf]
        if layer == 0 or self.config.pruning == "post":
            np.copyto(self.raw, self.before)
            self._add(leaves, output)
        return tree, leaves

    # ------------------------------------------------------------------------------------------ its parts

    def _renew(self) -> None:
        """Derivatives at the raw scores."""
        if self.stale:
            self.derivatives.renew(self.raw)
        self.stale = False

    def _draw(self, round: int, layer: int = 0) -> Draw:
        rows, multiplier = sample_rows(self.config, self.derivatives.g, round, self.usable, layer)
        return Draw(round, rows, multiplier, sample_features(self.config, self.n_features, round))

    def _quantise(self, draw: Draw, output: int) -> None:
        kind, g, h = self.derivatives.structure(output, draw.round, draw.multiplier)
        if isinstance(self.leaves, LinearLeaves) and isinstance(self.channels, _core.LinearChannels):
            self.leaves.renew(self.channels, kind, g, h, draw)
        else:
            self.channels.quantise(g, h, kind, draw.rows, draw.multiplier, self.config.n_threads)

    def _leaves(self, draw: Draw, output: int, tree: _core.Tree) -> Leaves:
        learning_rate = self.model.learning_rate
        return self.leaves.fit(tree, self.grower.leaf_of_row, self.raw, draw, output, learning_rate)

    def _add(self, leaves: Leaves, output: int) -> None:
        leaf_of_row, features = self.grower.leaf_of_row, self.leaves.features
        _core.add_leaf_values(self.raw, leaf_of_row, leaves, output, self.config.n_threads, features)
        self.stale = True

    def _is_sketched(self) -> bool:
        return self.derivatives.sketch is not None

    def _grow_config(self, round: int, output: int) -> _core.GrowConfig:
        c = self.config
        # An L1 penalty and a largest step belong to one output's leaf value; a column of a sketch has none.
        reg_alpha, max_delta_step = (0.0, 0.0) if self._is_sketched() else (c.reg_alpha, c.max_delta_step)
        return _core.GrowConfig(
            max_leaves=c.max_leaves if c.max_leaves is not None else 2**31 - 1,
            max_depth=c.max_depth if c.max_depth is not None else -1,
            level_wise=c.grow_policy == "depthwise",
            reg_lambda=c.reg_lambda,
            reg_alpha=reg_alpha,
            min_split_gain=c.min_split_gain,
            min_child_weight=c.min_child_weight,
            min_child_samples=c.min_child_samples,
            max_delta_step=max_delta_step,
            max_cat_to_onehot=c.max_cat_to_onehot,
            cat_smooth=c.cat_smooth,
            colsample_bynode=c.colsample_bynode,
            seed=int(np.random.SeedSequence([c.seed, round, output + 1]).generate_state(1, np.uint64)[0]),
            histogram_memory=c.histogram_memory_bytes,
            post_prune=c.pruning == "post",
            block_size=c.block_size if c.curvature == "block" else 0,
            # A column of a sketch is no output that a leaf could hold, or not.
            leaf_k=c.leaf_k if c.leaf == "sparse" and not self._is_sketched() else 0,
            shared_support=c.leaf_support == "shared",
        )

    # ------------------------------------------------------------------------------------------ around it

    def evaluate(self) -> None:
        """Score every evaluation set with the trees it has not seen yet."""
        forest = self.model.forest
        for e in self.eval_sets:
            trees = self.trees_scored, len(forest)
            forest.predict(e.codes, e.raw, *trees, self.config.n_threads, e.features)
            for metric, data in self._measured(e, e.raw):
                self.log[e.name][metric.name].append(float(metric(*data)))
                values = metric.per_output(*data) if e.raw.shape[1] > 1 else None
                if values is not None:
                    self.outputs_log[e.name].setdefault(metric.name, []).append(values)
        self.trees_scored = len(forest)

    def _measured(self, e: EvalSet, raw: np.ndarray) -> Iterator[tuple[Metric, tuple[Any, ...]]]:
        """Every metric of an evaluation set, with what it is to be called on."""
        scores = self.model.in_unit_of_y(raw)
        predictions = self.objective.transform(scores)
        for metric in e.metrics:
            yield metric, (e.target, scores if metric.needs == "raw" else predictions, e.weight)

    def _show_layer(self, round: int, output: int, tree: _core.Tree, steps: np.ndarray) -> None:
        """Tell callbacks that watch layers what the tree is worth so far; trees of all outputs only."""
        if output >= 0 or not self.layer_watchers:
            return
        leaves = steps[self.grower.node_of_leaf]
        so_far = _core.Forest(self.raw.shape[1])
        so_far.append(tree, leaves, -1)
        values: dict[str, dict[str, float]] = {}
        for e in self.eval_sets:
            raw = e.raw.copy()
            so_far.predict(e.codes, raw, 0, 1, self.config.n_threads)
            values[e.name] = {metric.name: float(metric(*data)) for metric, data in self._measured(e, raw)}
        for after_layer in self.layer_watchers:
            after_layer(self.model, round, values, tree, leaves)

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


def _summed_steps(sums: np.ndarray, tree: _core.Tree, steps: np.ndarray) -> np.ndarray:
    """What each node of a tree adds, ancestors included: (n_nodes, K or 1), float32.

    `sums` is that of the nodes that were there before; `steps` are those of the leaves, of which the new ones
    count.
    """
    inner = np.flatnonzero(tree.left >= 0)
    parent = np.zeros(tree.n_nodes, np.intp)
    parent[tree.left[inner]] = parent[tree.right[inner]] = inner
    new = np.arange(len(sums), tree.n_nodes)
    return np.concatenate([sums, sums[parent[new]] + steps[tree.leaf[new]]])


def _rows_of_weight(weight: np.ndarray | None) -> np.ndarray | None:
    """Rows that have any weight, uint32 ascending; None: all. A row of weight 0 is as good as absent."""
    if weight is None:
        return None
    used = weight > 0 if weight.ndim == 1 else (weight > 0).any(axis=1)
    return None if used.all() else np.flatnonzero(used).astype(np.uint32)
