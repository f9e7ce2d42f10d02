"""Search for groups of outputs that share trees, with `output_groups="auto"`.

1. What each output would gain by each of some candidates for the first split is measured.
2. Groups are joined in pairs, starting from single outputs. Joining two loses what their own best
   splits gain more than the best split for both: the loss of sharing. The pair that loses least is
   joined next. (Gains of later splits, and of residuals, gave no better groups.)
3. A few candidates are compared on folds of some of the rows, with few rounds: one group, a tree
   per output, some groups between them, and rounds that alternate between one group and others.
   After each fold the candidates that are clearly worse are left out.

Costs are those of a model of training, not of a clock, so that the result is reproducible.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import scipy.sparse

import polyleaf._core as _core
from polyleaf.binned_data.dataset import Dataset
from polyleaf.binned_data.random_rows import SplitRules, derive_seed
from polyleaf.callbacks import Callback
from polyleaf.metrics import Metric, default_metrics
from polyleaf.metrics.metric import EvalsLog, OutputsLog
from polyleaf.metrics.patience import Patience
from polyleaf.model import Model
from polyleaf.model.metadata import OUTPUT_GROUPS
from polyleaf.objectives import Objective
from polyleaf.runtime.row_data import RowData
from polyleaf.runtime.timing import measure_phase
from polyleaf.settings.train_config import TrainConfig
from polyleaf.training.boosting import boost
from polyleaf.training.evaluation import EvalSet
from polyleaf.training.training_run import TrainingRun, get_default_metric

MAX_OUTPUTS = 256  # with more, all outputs share trees
MIN_ROWS, MAX_ROWS = 50, 4_000  # rows that are divided into folds
FEW_ROWS, FOLDS, FEW_FOLDS = 1_000, 5, 3  # more folds of fewer rows
RATE, MAX_ROUNDS, MAX_ROUNDS_WITHOUT_GAIN = 0.3, 8, 2
MAX_COST = 3.0  # of a round, in those of one group
# Costs of a tree in units of those that do not depend on the number of outputs.
_COST_OF_OUTPUT = 0.1
# A candidate is left out if its loss exceeds the lowest by this share, divided by the root of the
# number of folds.
_CLEARLY_WORSE = 0.02
# What doubling the cost has to lower the loss by, and standard errors that have to be exceeded.
_MIN_GAIN, _MARGIN = 0.0025, 0.5
_HELD_OUT = "held out"
_TINY = float(np.finfo(np.float64).tiny)
_CUTS = 8  # candidate splits of a feature

Groups = list[list[int]]
Train = Callable[[Dataset, RowData, TrainConfig, EvalSet, Callback], object]


class GroupSearch(NamedTuple):
    """Result of a search."""

    # The groups that were chosen. If they have every output twice, rounds alternate.
    groups: Groups
    # of each candidate: `groups`; `cost`, in that of one group; `loss`, a mean over outputs and
    # folds of the lowest metric of held-out rows, divided by that of one group; `loss_of_sharing`,
    # the share of the gains of own splits that is lost
    trials: list[dict[str, object]]


def resolve_output_groups(run: TrainingRun) -> None:
    """Replace `output_groups="auto"` by the groups of the model to continue, or by a search, whose
    trials are added to the metadata."""
    if run.init_model is not None:
        old = run.init_model
        if OUTPUT_GROUPS in old.metadata:
            run.metadata = run.metadata | {OUTPUT_GROUPS: old.metadata[OUTPUT_GROUPS]}
        groups = old.output_groups
        new = np.setdiff1d(np.arange(old.n_outputs), np.concatenate(groups)).tolist()
        run.settings = run.settings.replace_output_groups([*groups, new] if new else groups)
        return

    def train_part(
        dataset: Dataset, rows: RowData, settings: TrainConfig, held_out: EvalSet, stop: Callback
    ) -> None:
        part = run.copy_for_rows(dataset, rows).replace(settings=settings, eval_sets=[held_out])
        boost(part, [stop])
        if part.was_interrupted:
            raise KeyboardInterrupt

    with measure_phase("output groups"):
        encoding = run.target.encoding
        search = find_output_groups(
            run.coded_dataset,
            run.rows,
            run.rules,
            run.objective,
            run.settings,
            default_metrics(run.objective, encoding.kind, encoding.n_outputs)[0]
            if run.objective.has_default_metric
            else get_default_metric(run),
            train_part,
        )
    run.metadata = run.metadata | {OUTPUT_GROUPS: search.trials}
    run.settings = run.settings.replace_output_groups(search.groups)


def find_output_groups(
    dataset: Dataset,
    rows: RowData,
    rules: SplitRules,
    objective: Objective,
    settings: TrainConfig,
    metric: Metric,
    train: Train,
) -> GroupSearch:
    """Choose groups of outputs by their held-out loss.

    Returns one group if the loss is no sum over outputs, or if there are few rows or
    many outputs.

    `rules`: what the split into rows to train on and held-out rows respects. `metric`: metric of
    held-out rows, if possible defined per output; lower is better. `train`: `train(dataset, rows,
    settings, held_out, callback)` trains a model.
    """
    n_outputs = objective.bind(rows).n_outputs
    everything = [list(range(n_outputs))]
    if not objective.separable or not 1 < n_outputs <= MAX_OUTPUTS or rows.n_rows < MIN_ROWS:
        return GroupSearch(everything, [])
    used = np.arange(rows.n_rows)
    if rows.n_rows > MAX_ROWS:
        rng = np.random.default_rng(derive_seed(settings.sampling.seed, 0, 0))
        used = np.sort(rng.choice(rows.n_rows, MAX_ROWS, replace=False))
        dataset, rows, rules = dataset.rows(used), rows.take(used), rules.take(used)
    gains = _measure_gains(dataset, rows, objective, settings)
    candidates = propose_groups(join_outputs(gains))
    folds = _iter_folds(dataset, rows, rules, objective, settings, metric, train)
    ratios, chosen = compare_groups(candidates, folds)
    separate_gain = math.fsum(gains.max(axis=0))
    trials: list[dict[str, object]] = []
    for groups, ratio in zip(candidates, ratios, strict=True):
        kept = sum(float(np.cumsum(gains[:, group], axis=1)[:, -1].max()) for group in groups)
        lost = 1.0 - kept / _count_turns(groups) / separate_gain if separate_gain > 0 else 0.0
        trial = {"groups": groups, "cost": _compute_cost(groups), "loss": _compute_mean(ratio)}
        trials.append(trial | {"loss_of_sharing": lost})
    return GroupSearch(candidates[chosen], trials)


def propose_groups(levels: dict[int, Groups]) -> list[Groups]:
    """Return the candidates by their cost, one group first.

    `levels`: result of `join_outputs`.
    """
    n = len(levels)
    one, each = levels[1], levels[n]
    candidates = [one, one + each, each]
    if n > 2:
        candidates += [one + levels[max(2, round(math.sqrt(n)))], levels[max(2, n // 8)]]
    return sorted((g for g in candidates if _compute_cost(g) <= MAX_COST), key=_compute_cost)


def _count_turns(groups: Groups) -> int:
    """Return how often the groups have every output: the rounds after which they repeat."""
    outputs = [k for group in groups for k in group]
    return len(outputs) // len(set(outputs))


def _compute_cost(groups: Groups) -> float:
    """Return the cost of a round, in that of one group."""
    n_outputs, turns = len({k for group in groups for k in group}), _count_turns(groups)
    return (len(groups) / turns + _COST_OF_OUTPUT * n_outputs) / (1.0 + _COST_OF_OUTPUT * n_outputs)


def compare_groups(
    candidates: list[Groups], folds: Iterator[Callable[[Groups], float]]
) -> tuple[list[np.ndarray], int]:
    """Return the loss of each candidate in each fold, in that of the first, and the best one.

    `candidates`: one group first. `folds`: each returns the loss of groups in a fold.
    """
    losses: list[list[float]] = [[] for _ in candidates]
    ratios: list[np.ndarray] = [np.ones(1)] * len(candidates)
    good = left = list(range(len(candidates)))
    for n_folds, measure in enumerate(folds, start=1):
        for c in left:
            losses[c].append(measure(candidates[c]))
            ratios[c] = np.array(losses[c]) / np.maximum(losses[0][: len(losses[c])], _TINY)
        means = {c: _compute_mean(ratios[c]) for c in left}
        limit = min(means.values()) + _CLEARLY_WORSE / math.sqrt(n_folds)
        good = [c for c in left if means[c] <= limit]
        if good == [0]:
            break
        left = sorted({0, *good})

    def score(c: int) -> float:
        mean, n = _compute_mean(ratios[c]), len(ratios[c])
        error = math.sqrt(math.fsum((ratios[c] - mean) ** 2) / (n - 1) / n) if n > 1 else 0.0
        doublings = _core.log(_compute_cost(candidates[c])) / _core.log(2.0)
        return mean + _MARGIN * error + _MIN_GAIN * doublings

    return ratios, min((c for c in good if np.isfinite(score(c))), key=score, default=0)


def _iter_folds(
    dataset: Dataset,
    rows: RowData,
    rules: SplitRules,
    objective: Objective,
    settings: TrainConfig,
    metric: Metric,
    train: Train,
) -> Iterator[Callable[[Groups], float]]:
    """Yield, for each fold, a function that returns the lowest loss of groups on its rows."""
    rate = max(settings.boosting.learning_rate, RATE)
    n_rounds = math.ceil(settings.boosting.n_estimators * settings.boosting.learning_rate / rate)
    boosting = replace(
        settings.boosting, learning_rate=rate, n_estimators=min(n_rounds, MAX_ROUNDS)
    )
    settings = replace(settings, boosting=boosting)
    n_folds = FOLDS if rows.n_rows < FEW_ROWS else FEW_FOLDS
    for kept, held in rules.iter_folds(rows.n_rows, n_folds, settings.sampling.seed):
        part, held_part = dataset.rows(kept), dataset.rows(held)
        held_rows = objective.weigh_held_out(rows.take(held))
        held_out = EvalSet(_HELD_OUT, held_part.codes, held_rows, [metric], held_part.features)
        loss, part_rows = _HeldOutLoss(), rows.take(kept)

        def measure(
            groups: Groups,
            data: tuple[Dataset, RowData] = (part, part_rows),
            held_out: EvalSet = held_out,
            loss: _HeldOutLoss = loss,
        ) -> float:
            loss.start()
            train(*data, settings.replace_output_groups(groups), held_out, loss)
            return loss.patience.lowest

        yield measure


def _compute_mean(values: np.ndarray) -> float:
    return math.fsum(values) / len(values)


class _HeldOutLoss(Callback):
    """Stops a training some rounds after the lowest metric of held-out rows.

    The metric is a mean over outputs, each divided by its value in the first round of the first
    training.
    """

    watches_outputs = True

    def __init__(self) -> None:
        self.unit: np.ndarray | None = None
        self.start()

    def start(self) -> None:
        """Forget the last training."""
        self.patience = Patience(MAX_ROUNDS_WITHOUT_GAIN)

    def set_per_output_log(self, outputs_log: OutputsLog) -> None:
        self._by_output = outputs_log

    def after_iteration(self, model: Model, epoch: int, evals_log: EvalsLog) -> bool:
        ((name, values),) = evals_log[_HELD_OUT].items()
        each = np.atleast_1d(self._by_output[_HELD_OUT].get(name, values)[-1])
        if self.unit is None:
            self.unit = np.where(each > 0, each, np.inf)
        self.patience.update(_compute_mean(each / self.unit), epoch)
        return self.patience.is_over(epoch)


def _measure_gains(
    dataset: Dataset, rows: RowData, objective: Objective, settings: TrainConfig
) -> np.ndarray:
    """Return what outputs gain by candidates for the first split."""
    n_threads, bound = settings.workers.n_threads, objective.bind(rows)
    bound.set_base_score(bound.base_score(n_threads))
    raw = np.zeros((rows.n_rows, bound.n_outputs), np.float32)
    if bound.rows.offset is not None:
        raw += bound.rows.offset
    g, h = bound.expected_derivatives(raw, n_threads)
    scale = bound.gain_scale(g, np.ascontiguousarray(h), n_threads)
    gains = measure_candidate_gains(
        dataset.codes,
        g,
        None if bound.hessian_shape() is None else h,
        settings.regularisation.reg_lambda,
        settings.growth.min_child_samples,
    )
    return gains if scale is None else gains * scale**2


def measure_candidate_gains(
    codes: np.ndarray, g: np.ndarray, h: np.ndarray | None, reg_lambda: float, min_rows: int
) -> np.ndarray:
    """Return what each output gains by candidate splits of all rows.

    Candidates of a feature are up to `_CUTS` thresholds that divide the rows evenly.

    Returns shape (n_candidates, K), float64.

    `codes` (n_features, n_rows), uint8. `g` (n_rows, K), float32. `h` (n_rows, K), float32; None:
    1. `min_rows`: least number of rows of a side.
    """
    n, n_outputs = g.shape
    channels = np.concatenate([g, np.ones((n, 1), np.float32) if h is None else h], axis=1)

    def score(sums: np.ndarray) -> np.ndarray:
        return sums[:, :n_outputs] ** 2 / (sums[:, n_outputs:] + reg_lambda + 1e-12)

    found = [np.zeros((1, n_outputs))]
    for column in codes:
        counts = np.bincount(column, minlength=256)
        used = np.flatnonzero(counts)
        cut = np.minimum(np.cumsum(counts[used]) * (_CUTS + 1) // n, _CUTS)
        cell_of_code = np.zeros(256, np.intp)
        cell_of_code[used] = np.unique(cut, return_inverse=True)[1]
        n_cells = int(cell_of_code.max()) + 1
        cells = cell_of_code[column]
        one_hot = scipy.sparse.csc_matrix((np.ones(n), cells, np.arange(n + 1)), (n_cells, n))
        left = np.cumsum(one_hot @ channels, axis=0)
        n_left = np.cumsum(np.bincount(cells, minlength=n_cells))[:-1]
        gains = score(left[:-1]) + score(left[-1:] - left[:-1]) - score(left[-1:])
        is_large = np.minimum(n_left, n - n_left) >= min_rows
        found.append(np.maximum(gains[is_large], 0.0))
    return np.concatenate(found)


def join_outputs(gains: np.ndarray) -> dict[int, Groups]:
    """Join outputs to fewer and fewer groups, whose best splits lose as little as possible.

    `gains` (n_candidates, K): result of `measure_candidate_gains`. Returns dict of int -> list of
    list of int: number of groups -> groups, ascending, by their first output.
    """
    n_outputs = gains.shape[1]
    members = [[k] for k in range(n_outputs)]
    gain, best = list(gains.T.copy()), gains.max(axis=0)
    lost = np.full((n_outputs, n_outputs), np.inf)  # by joining a pair, below the diagonal

    def measure(a: int, b: int) -> None:
        lost[max(a, b), min(a, b)] = best[a] + best[b] - (gain[a] + gain[b]).max()

    for a in range(n_outputs):
        for b in range(a):
            measure(a, b)
    left = list(range(n_outputs))
    levels = {n_outputs: [members[k] for k in left]}
    while len(left) > 1:
        a, b = (int(i) for i in np.unravel_index(np.argmin(lost), lost.shape))
        members[b], gain[b] = sorted(members[a] + members[b]), gain[a] + gain[b]
        best[b] = gain[b].max()
        left.remove(a)
        lost[a, :] = lost[:, a] = np.inf
        for other in left:
            if other != b:
                measure(other, b)
        levels[len(left)] = sorted(members[k] for k in left)
    return levels
