"""Search for groups of outputs that share trees, with `output_groups="auto"`.

1. What each output would gain by each of some candidates for the first split is measured.
2. Groups are joined in pairs, starting from single outputs. Joining two loses what their own best
   splits gain more than the best split for both: the loss of sharing. The pair that loses least is
   joined next. (Gains of later splits, and of residuals, gave no better groups.)
3. Numbers of groups whose trees cost at most `MAX_COST` times those of one group are trained on
   part of the rows, with few rounds, and compared on others.

Costs are those of a model of training, not of a clock, so that the result is reproducible.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse

import polyleaf._core as _core
from polyleaf.callbacks import Callback
from polyleaf.data.dataset import Dataset
from polyleaf.data.random_rows import SplitRules, derive_seed
from polyleaf.metrics import Metric
from polyleaf.metrics.metric import EvalsLog, OutputsLog
from polyleaf.model import Model
from polyleaf.objectives import Objective
from polyleaf.runtime.row_data import RowData
from polyleaf.settings.train_config import TrainConfig
from polyleaf.training.evaluation import EvalSet

__all__ = ["GroupSearch", "find_output_groups", "join_outputs", "measure_candidate_gains"]

MAX_OUTPUTS = 256  # with more, all outputs share trees
MIN_ROWS, MAX_ROWS, HELD_OUT = 100, 4_000, 0.3  # rows of the trainings, and the share held out
RATE, PATIENCE, MAX_ROUNDS, MAX_WORK = 0.3, 5, 60, 80_000  # work: rounds times rows
MAX_FOLDS, MANY_ROWS = 3, 2_000  # splits, of fewer rows than that
MAX_COST, FEW_OUTPUTS = 3.5, 8  # the limit is for more outputs than that
# Costs of a tree in units of those that do not depend on the number of outputs.
_COST_OF_OUTPUT = 0.05
# What doubling the cost has to lower the loss by, and standard errors that have to be exceeded.
_MIN_GAIN, _MARGIN = 0.0025, 0.2
_HELD_OUT = "held out"
_CUTS = 8  # candidate splits of a feature

Groups = list[list[int]]
Train = Callable[[Dataset, RowData, TrainConfig, EvalSet, Callback], object]


class GroupSearch(NamedTuple):
    """Result of a search.

    Attributes
    ----------
    groups : list of list of int
        The groups that were chosen.
    trials : list of dict
        Of each number of groups that was trained: `groups`; `cost`, in that of one group; `loss`,
        the lowest metric of held-out rows, a mean over outputs in units of the first round;
        `loss_of_sharing`, the share of the gains of own splits that is lost.
    """

    groups: Groups
    trials: list[dict[str, object]]


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

    Parameters
    ----------
    dataset : Dataset
    rows : RowData
    rules : SplitRules
        What the split into rows to train on and held-out rows respects.
    objective : Objective
    settings : TrainConfig
    metric : Metric
        Metric of held-out rows, if possible defined per output; lower is better.
    train : callable
        `train(dataset, rows, settings, held_out, callback)` trains a model.

    Returns
    -------
    GroupSearch
        One group if the loss is no sum over outputs, or if there are few rows or many outputs.
    """
    n_outputs = objective.bind(rows).n_outputs
    everything = [list(range(n_outputs))]
    if not objective.separable or not 1 < n_outputs <= MAX_OUTPUTS or rows.n_rows < MIN_ROWS:
        return GroupSearch(everything, [])
    trial = _Trial(dataset, rows, rules, objective, settings, metric, train)
    gains = trial.measure_gains()
    levels, own = join_outputs(gains), math.fsum(gains.max(axis=0))
    trials: list[dict[str, Any]] = []

    def add(groups: Groups) -> None:
        loss = trial.train(groups)
        kept = sum(float(np.cumsum(gains[:, group], axis=1)[:, -1].max()) for group in groups)
        cost = _compute_cost(groups) / _compute_cost(everything)
        lost = 1.0 - kept / own if own > 0 else 0.0
        found = {"groups": groups, "cost": cost, "loss": loss, "loss_of_sharing": lost}
        trials.append(found)

    add(everything)
    for n in _iter_numbers(n_outputs):
        is_costly = _compute_cost(levels[n]) > MAX_COST * _compute_cost(everything)
        if is_costly and n_outputs > FEW_OUTPUTS:
            break
        add(levels[n])
        if (
            n_outputs > FEW_OUTPUTS
            and len(trials) > 3
            and min(_compute_mean(t["loss"]) for t in trials[:-2])
            < min(_compute_mean(t["loss"]) for t in trials[-2:])
        ):
            break
    chosen = _choose(trials, trial.n_held)
    return GroupSearch(chosen, [t | {"loss": _compute_mean(t["loss"])} for t in trials])


def _iter_numbers(n_outputs: int) -> Iterator[int]:
    """Yield numbers of groups that grow by at most a half."""
    n = 2
    while n < n_outputs:
        yield n
        n = max(n + 1, 3 * n // 2)
    yield n_outputs


def _compute_cost(groups: Groups) -> float:
    return sum(1.0 + _COST_OF_OUTPUT * len(group) for group in groups)


def _choose(trials: list[dict[str, Any]], n_held: int) -> Groups:
    """Return the groups of lowest loss, where more cost and chance have to be paid for."""
    first = trials[0]

    def score(t: dict[str, Any]) -> float:
        if t is first:
            return 0.0
        ratio = t["loss"] / first["loss"] - 1.0
        mean, n = _compute_mean(ratio), len(ratio)
        error = math.sqrt(math.fsum((ratio - mean) ** 2) / (n - 1) / n) if n > 1 else 0.0
        chance = error + _MARGIN / math.sqrt(n_held)
        return mean + chance + _MIN_GAIN * _core.log(t["cost"]) / _core.log(2.0)

    return min((t for t in trials if np.isfinite(score(t))), key=score)["groups"]


def _compute_mean(values: np.ndarray) -> float:
    return math.fsum(values) / len(values)


class _HeldOutLoss(Callback):
    """Stops a training some rounds after the lowest metric of held-out rows.

    Attributes
    ----------
    lowest : float
        Mean over outputs of the metric, divided by that of the first round of the first training.
    """

    watches_outputs = True

    def __init__(self) -> None:
        self.unit: np.ndarray | None = None
        self.start()

    def start(self) -> None:
        """Forget the last training."""
        self.lowest, self._best_round = np.inf, 0

    def set_per_output_log(self, outputs_log: OutputsLog) -> None:
        self._by_output = outputs_log

    def after_iteration(self, model: Model, epoch: int, evals_log: EvalsLog) -> bool:
        ((name, values),) = evals_log[_HELD_OUT].items()
        each = np.asarray(self._by_output[_HELD_OUT].get(name, values)[-1])
        if self.unit is None:
            self.unit = np.where(each > 0, each, np.inf)
        mean = _compute_mean(each / self.unit)
        if mean < self.lowest:
            self.lowest, self._best_round = mean, epoch
        return epoch - self._best_round >= PATIENCE


class _Trial:
    """Trainings on part of the rows, with few rounds of a large learning rate."""

    def __init__(
        self,
        dataset: Dataset,
        rows: RowData,
        rules: SplitRules,
        objective: Objective,
        settings: TrainConfig,
        metric: Metric,
        train: Train,
    ) -> None:
        self._objective, self._train, seed = objective, train, settings.sampling.seed
        used = np.arange(rows.n_rows)
        if rows.n_rows > MAX_ROWS:
            rng = np.random.default_rng(derive_seed(seed, 0, 0))
            used = np.sort(rng.choice(rows.n_rows, MAX_ROWS, replace=False))
        n_folds = 1 if rules.time is not None else math.ceil(MANY_ROWS / len(used))
        self._folds = []
        for fold in range(min(MAX_FOLDS, n_folds)):
            own, held = rules.take(used).split(len(used), HELD_OUT, seed + fold, None)
            parts = [(dataset.rows(used[part]), rows.take(used[part])) for part in (own, held)]
            (fold_dataset, fold_rows), (held_dataset, held_rows) = parts
            held_out = EvalSet(
                _HELD_OUT, held_dataset.codes, held_rows, [metric], held_dataset.features
            )
            self._folds.append((fold_dataset, fold_rows, held_out, _HeldOutLoss()))
        self._dataset, self._rows, *_ = self._folds[0]
        self.n_held = sum(held_out.rows.n_rows for _, _, held_out, _ in self._folds)
        boosting = settings.boosting
        rate = max(boosting.learning_rate, RATE)
        n_rounds = min(
            math.ceil(boosting.n_estimators * boosting.learning_rate / rate),
            MAX_ROUNDS,
            max(10, MAX_WORK // self._rows.n_rows),
        )
        boosting = replace(boosting, learning_rate=rate, n_estimators=n_rounds)
        self._settings = replace(settings, boosting=boosting)
        self._n_threads = settings.workers.n_threads

    def train(self, groups: Groups) -> np.ndarray:
        """Return the lowest loss of held-out rows in each split."""
        settings = self._settings.replace_output_groups(groups)
        for dataset, rows, held_out, loss in self._folds:
            loss.start()
            self._train(dataset, rows, settings, held_out, loss)
        return np.array([loss.lowest for *_, loss in self._folds])

    def measure_gains(self) -> np.ndarray:
        """Return what outputs gain by candidates for the first split."""
        rows, settings = self._rows, self._settings
        bound = self._objective.bind(rows)
        bound.set_base_score(bound.base_score(self._n_threads))
        raw = np.zeros((rows.n_rows, bound.n_outputs), np.float32)
        if bound.rows.offset is not None:
            raw += bound.rows.offset
        g, h = bound.expected_derivatives(raw, self._n_threads)
        scale = bound.gain_scale(g, np.ascontiguousarray(h), self._n_threads)
        gains = measure_candidate_gains(
            self._dataset.codes,
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

    Parameters
    ----------
    codes : ndarray of shape (n_features, n_rows), uint8
    g : ndarray of shape (n_rows, K), float32
    h : ndarray of shape (n_rows, K), float32, or None
        None: 1.
    reg_lambda : float
    min_rows : int
        Least number of rows of a side.

    Returns
    -------
    ndarray of shape (n_candidates, K), float64
    """
    n, n_outputs = g.shape
    own = np.concatenate([g, np.ones((n, 1), np.float32) if h is None else h], axis=1)

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
        cells = cell_of_code[column], np.arange(n)
        one_hot = scipy.sparse.csr_matrix((np.ones(n), cells), (n_cells, n))
        left = np.cumsum(one_hot @ own, axis=0)
        n_left = np.cumsum(np.bincount(cells[0], minlength=n_cells))[:-1]
        gains = score(left[:-1]) + score(left[-1:] - left[:-1]) - score(left[-1:])
        is_large = np.minimum(n_left, n - n_left) >= min_rows
        found.append(np.maximum(gains[is_large], 0.0))
    return np.concatenate(found)


def join_outputs(gains: np.ndarray) -> dict[int, Groups]:
    """Join outputs to fewer and fewer groups, whose best splits lose as little as possible.

    Parameters
    ----------
    gains : ndarray of shape (n_candidates, K)
        Result of `measure_candidate_gains`.

    Returns
    -------
    dict of int -> list of list of int
        Number of groups -> groups, ascending, by their first output.
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
