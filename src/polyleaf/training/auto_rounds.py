"""The number of rounds that `n_estimators=None` stands for.

A hold-out fit trains on some of the rows at twice the learning rate, and so with half of the
rounds, until the loss on the other rows no longer falls. The final training has all rows, and as
many more rounds as it has more rows than the hold-out fit. One hold-out fit is enough if many
held-out rows carry the loss; otherwise the median of several hold-out fits is taken, so that no
single row decides.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from polyleaf.callbacks import Callback, EarlyStopping, TimeLimit
from polyleaf.metrics import Metric
from polyleaf.metrics.metric import EvalsLog
from polyleaf.metrics.patience import Patience
from polyleaf.model import Model
from polyleaf.model.metadata import OUTPUT_GROUPS
from polyleaf.objectives._utils import compute_derivatives
from polyleaf.runtime.collective import SINGLE_PROCESS, Communicator
from polyleaf.runtime.queries import count_queries
from polyleaf.runtime.row_data import RowData
from polyleaf.runtime.user_warnings import suppress_warnings, warn_user
from polyleaf.settings.parameters import DEFAULT_N_ESTIMATORS, SharedParameters
from polyleaf.training.boosting import boost, compute_base_score
from polyleaf.training.factory import bind_objective
from polyleaf.training.group_search import resolve_output_groups
from polyleaf.training.members import Member
from polyleaf.training.prepare import HELD_OUT, check_parts
from polyleaf.training.quality import choose_weights, get_cost
from polyleaf.training.raw_scores import DenseScores
from polyleaf.training.training_run import TrainingRun, get_default_metric

MIN_ROWS, MAX_ROWS = 10, 1_000_000
MAX_ROUNDS, PATIENCE = 300.0, 10.0  # at a learning rate of 1; divided by the rate
# Cells are rows * columns * outputs. The limit of rounds times cells bounds the time of a fit.
MAX_CELL_ROUNDS = 25e9
SPEEDUP, MAX_RATE = 2, 0.5  # factor of the learning rate, unless the result exceeds MAX_RATE
# Number of hold-out fits if the effective number of rows is low; it is a third of all rows
# if residuals are normally distributed.
N_HOLD_OUTS, MANY_EFFECTIVE_ROWS, SOME_EFFECTIVE_ROWS = 5, 3_000, 1_000
# In the order of time: hold-out fits where a linear model may be used, and blocks of their rows.
N_TIME_HOLD_OUTS, N_TIME_BLOCKS = 3, 12
# A training that ends with less of the progress of a hold-out fit has the higher loss, although it
# has more rows. Hold-out fits therefore leave at least this share of its time to the training of
# the first candidate.
MIN_PROGRESS = 0.5
# The loss has to fall by this share, and in the order of time by so many standard errors over
# blocks of held-out rows; less is noise.
MIN_LINEAR_GAIN, MIN_STANDARD_ERRORS = 0.002, 2.0
# With more cells there is a single hold-out fit.
MAX_REPEATED_CELLS = 2**23


def max_rounds(learning_rate: float, n_cells: int = 1) -> int:
    """Return the largest number of rounds that is chosen for so many cells."""
    limit = min(MAX_ROUNDS / learning_rate, MAX_CELL_ROUNDS / n_cells)
    return max(DEFAULT_N_ESTIMATORS, round(limit))


def get_patience(learning_rate: float, patience: float = PATIENCE) -> int:
    """Return after how many rounds without an improvement training stops.

    `patience`: the number of rounds at a learning rate of 1.
    """
    return max(10, round(patience / learning_rate))


def finds_rounds(n_rows: int) -> bool:
    """Return whether the number of rounds is found for data with this number of rows."""
    return MIN_ROWS <= n_rows <= MAX_ROWS


def plan_rounds(
    params: SharedParameters,
    run: TrainingRun,
    callbacks: Sequence[object],
    ranks: Communicator = SINGLE_PROCESS,
) -> Metric | None:
    """Return the metric that the number of rounds is found by; None if it is not found.

    Evaluation sets and callbacks do not change the number, except for early stopping: its training
    may have as many rounds as could be found.

    `callbacks`: callbacks of the estimator and of the fit. `ranks`: connection to the other rows.
    """
    settings = run.settings
    if params.n_estimators is not None or params.warm_start or run.init_model is not None:
        return None
    names = {cls.__name__ for callback in callbacks for cls in type(callback).__mro__}
    if params.early_stopping_rounds is not None or EarlyStopping.__name__ in names:
        limit = max_rounds(settings.boosting.learning_rate)
        run.settings = settings.replace_n_estimators(limit)
        return None
    if not can_hold_out(params, run, ranks):
        return None
    if params.eval_metric is None and not run.objective.has_default_metric:
        warn_user(
            f"n_estimators=None trains {DEFAULT_N_ESTIMATORS} rounds: none can be found by the "
            "loss of a custom objective, which is not known. Pass eval_metric, a function of y and "
            "the scores, or n_estimators."
        )
        return None
    return get_default_metric(run)


def plan_linear_model(params: SharedParameters, run: TrainingRun) -> Metric | None:
    """Return the metric by which hold-out fits decide about the linear model of a run; None if
    trees start from it in any case."""
    assert run.linear is not None
    has_metric = params.eval_metric is not None or run.objective.has_default_metric
    if run.linear.is_optional and has_metric and can_hold_out(params, run):
        return get_default_metric(run)
    run.use_linear_model()
    return None


def can_hold_out(
    params: SharedParameters, run: TrainingRun, ranks: Communicator = SINGLE_PROCESS
) -> bool:
    """Return whether hold-out fits may choose something for the training on all rows."""
    return (
        params.projection is None
        and run.settings.workers.device is None
        and not run.target.is_sparse
        and finds_rounds(ranks.sum(run.target.n_rows))
        and _has_enough_queries(run, ranks)
    )


def _has_enough_queries(run: TrainingRun, ranks: Communicator) -> bool:
    """Return whether queries can be held out, if the rows have queries."""
    query = run.target.rows.query
    return query is None or count_queries(query, ranks) >= MIN_ROWS


def find_n_estimators(
    run: TrainingRun, metric: Metric, callbacks: Sequence[object] = (), is_fixed: bool = False
) -> tuple[TrainingRun, bool]:
    """Set the number of rounds of a run by hold-out fits, the best of its candidates, and what its
    linear model is used for.

    Parameters
    ----------
    run : TrainingRun
        With a function `make_hold_out_run`. Its number of rounds does not change if no round of a
        hold-out fit can be measured.
    is_fixed : bool
        Whether the number of rounds stays as it is.
    metric : Metric
        Metric of held-out rows.
    callbacks : sequence of callback
        Callbacks of the fit, of which time limits apply to hold-out fits, too.

    Returns
    -------
    hold_out : TrainingRun
        The first hold-out fit, for a fit that ends too early.
    is_complete : bool
        False if Ctrl-C or a time limit has ended the search.
    """
    limits = [callback for callback in callbacks if isinstance(callback, TimeLimit)]
    for limit in limits:
        limit.start()
    candidates, splits, fits = _make_candidates(run), list[_Split](), list[TrainingRun]()
    try:
        is_complete = _train_hold_outs(run, metric, limits, candidates, splits, fits, is_fixed)
        if is_complete:
            _choose_in_time(run, limits, candidates, splits, is_fixed)
    except KeyboardInterrupt:  # between rounds
        if not fits:
            raise
        fits[0].was_interrupted, is_complete = True, False
    return (run.take_result(fits[0]) if is_complete else fits[0]), is_complete


def _train_hold_outs(
    run: TrainingRun,
    metric: Metric,
    limits: Sequence[TimeLimit],
    candidates: list[_Candidate],
    splits: list[_Split],
    fits: list[TrainingRun],
    is_fixed: bool,
) -> bool:
    """Train candidates on some of the rows; return False if Ctrl-C or a time limit has ended that.

    `candidates`: those that are left out for lack of time are removed. `splits`, `fits`: filled
    with the splits, and with the first hold-out fit.
    """
    assert run.make_hold_out_run is not None
    n_hold_outs = _count_hold_outs(run)
    n_required = _count_required(run)
    n_rounds, max_rounds = 0.0, run.rung.hold_outs.limit_rounds(_count_cells(run))
    has_weight = _have_weight(run.target.rows)
    for rows, held in iter_hold_outs(run, n_hold_outs):
        n_trained_on = max(1, has_weight[rows].sum())
        split = _Split(run.make_hold_out_run(run, rows, held, metric))
        started = split.run
        if run.linear is not None:
            scores = run.linear.score_hold_out(rows, held)
            split = split._replace(linear_scores=scores[held])
            started = run.replace()
            started.add_offset(scores)
            started = run.make_hold_out_run(started, rows, held, metric)
        splits.append(split)
        # The first split has as many candidates as time allows, and the others have the same ones.
        is_first = not fits
        if not is_first:
            is_optional = len(candidates) > n_required and n_rounds > max_rounds
            seconds = sum(candidate.hold_out_seconds for candidate in candidates)
            if is_optional or _lacks_time(seconds, candidates[0], limits):
                break
        for i, candidate in enumerate(candidates):
            if is_first and i >= n_required:
                seconds = candidates[0].hold_out_seconds
                if n_rounds > max_rounds or _lacks_time(seconds, candidates[0], limits):
                    del candidates[i:]
                    break
            base = started if candidate.is_started else split.run
            hold_out = base.replace(settings=candidate.member.apply(run.settings))
            # The first hold-out fit tells how long its candidate trains on all rows.
            reserved = MIN_PROGRESS * candidates[0].estimate_seconds() if fits else 0.0
            seconds = _get_remaining(limits)
            stopper = _train(hold_out, limits, is_fixed, reserved)
            seconds = seconds - _get_remaining(limits) if seconds < math.inf else 0.0
            if not fits:
                fits.append(hold_out)
            if hold_out.was_interrupted or any(limit.was_reached for limit in limits):
                return False
            if stopper.lacks_time:
                if is_first:
                    del candidates[i:]
                break
            # The first hold-out fit has found the groups.
            if isinstance(run.settings.boosting.output_groups, str):
                run.metadata = run.metadata | {OUTPUT_GROUPS: hold_out.metadata[OUTPUT_GROUPS]}
                run.settings = run.settings.replace_output_groups(hold_out.model.output_groups)
            # The linear model does not cost other candidates their time.
            if not 0 < i < n_required:
                n_rounds += get_cost(candidate.member) * stopper.n_trained
            rates = [r.settings.boosting.learning_rate for r in (hold_out, run)]
            growth = has_weight.sum() / n_trained_on
            candidate.add(hold_out, stopper, rates[0] / rates[1] * growth)
            candidate.hold_out_seconds = seconds
            candidate.round_seconds = growth * seconds / max(1, stopper.n_trained)
            if is_first and 0 < i < n_required:
                # Other candidates do what is better for the first one.
                is_better = _is_start_better(candidates[:2], splits, is_fixed)
                for other in candidates[2:]:
                    other.is_started = is_better
    return True


def _count_required(run: TrainingRun) -> int:
    """Return the number of candidates that are always compared."""
    return 1 if run.linear is None or not run.linear.is_optional else 2


def _choose_in_time(
    run: TrainingRun,
    limits: Sequence[TimeLimit],
    candidates: list[_Candidate],
    splits: Sequence[_Split],
    is_fixed: bool,
) -> None:
    """Set the choice among candidates whose training on all rows does not take too long."""
    max_rounds = run.rung.final.limit_rounds(_count_cells(run))
    remaining = _get_remaining(limits)
    if remaining < math.inf:
        n_required = _count_required(run)
        max_rounds = min(max_rounds, remaining / (candidates[0].round_seconds or 1.0))
        others = [c for c in candidates[n_required:] if c.estimate_seconds() <= remaining]
        candidates = candidates[:n_required] + others
    _choose(run, candidates, max_rounds, splits, is_fixed)


def _get_remaining(limits: Sequence[TimeLimit]) -> float:
    """Return the seconds until the first time limit is reached, infinite without one."""
    return min((limit.remaining() for limit in limits), default=math.inf)


def _lacks_time(seconds: float, candidate: _Candidate, limits: Sequence[TimeLimit]) -> bool:
    """Return whether hold-out fits of some seconds leave no time to train a candidate."""
    return seconds + MIN_PROGRESS * candidate.estimate_seconds() > _get_remaining(limits)


class _Split(NamedTuple):
    """A training on some rows, evaluated on the others, and their scores by the linear model."""

    run: TrainingRun
    linear_scores: np.ndarray | None = None

    def compute_loss(
        self, model: Model, raw: np.ndarray, factor: float = 0.0, part: np.ndarray | None = None
    ) -> float:
        """Return the loss of the held-out rows.

        Parameters
        ----------
        model : Model
            With the base score.
        raw : ndarray of shape (n_rows, K), float32
            Sums of leaf values.
        factor : float
            Factor of the scores of the linear model.
        part : ndarray of int, optional
            Some of the held-out rows.
        """
        (evaluated,) = self.run.eval_sets
        (metric,) = evaluated.metrics
        rows = evaluated.rows
        if self.run.objective.is_translation_invariant:  # y does not contain the offset
            rows = rows.replace(offset=None)
        if self.linear_scores is not None:
            rows = rows.replace(offset=rows.add_offset(factor * self.linear_scores))
        weighed = evaluated.weighed or rows
        if part is not None:
            rows, weighed, raw = rows.take(part), weighed.take(part), raw[part]
        bound = metric.bind(weighed, self.run.rows, model.n_outputs)
        scores = DenseScores(raw, self.run.settings.workers)
        ((_, predicted),) = scores.iter_metrics(rows, [bound], model)
        return metric.to_loss(bound(predicted))

    def iter_blocks(self, n_blocks: int) -> Iterator[NDArray[np.int64]]:
        """Yield blocks of held-out rows in the order of time; rows without weight have no loss."""
        (evaluated,) = self.run.eval_sets
        known = np.flatnonzero(_have_weight(evaluated.rows))
        assert evaluated.rows.time is not None
        order = known[np.argsort(evaluated.rows.time[known], kind="stable")]
        yield from np.array_split(order, max(1, min(n_blocks, len(order))))


def _make_candidates(run: TrainingRun) -> list[_Candidate]:
    """Return the candidates of a run, of which those that are always compared come first."""
    members = run.candidates or [Member(run.settings)]
    if run.linear is None:
        return [_Candidate(member) for member in members]
    if not run.linear.is_optional:
        return [_Candidate(member, is_started=True) for member in members]
    first = _Candidate(members[0]), _Candidate(members[0], is_started=True)
    return [*first, *(_Candidate(member) for member in members[1:])]


class _Candidate:
    """Hold-out fits of one candidate.

    Attributes
    ----------
    is_started : bool
        Whether trees start from the scores of the linear model.
    scored : list of (Model, ndarray)
        The model of each hold-out fit, and the sums of leaf values of its held-out rows.
    hold_out_seconds, round_seconds : float
        Time of the last hold-out fit, and estimated time of a round on all rows; 0 unless the fit
        has a time limit.
    """

    def __init__(self, member: Member, is_started: bool = False) -> None:
        self.member, self.is_started = member, is_started
        self.scored: list[tuple[Model, np.ndarray]] = []
        self.hold_out_seconds = self.round_seconds = 0.0
        self._numbers: list[float] = []

    def add(self, hold_out: TrainingRun, stopper: _HoldOutStopper, factor: float) -> None:
        """Note the result of a hold-out fit; `factor` makes its rounds those of all rows."""
        (evaluated,) = hold_out.eval_sets
        scores = np.zeros((evaluated.rows.n_rows, hold_out.model.n_outputs), np.float32)
        n_rounds = 1 + stopper.patience.best_round if stopper.patience.best_round is not None else 0
        # Without any tree an initial model is a model.
        is_useless = hold_out.initial is not None and not stopper.patience.lowest < (
            _Split(hold_out).compute_loss(hold_out.model, scores)
        )
        if is_useless:
            n_rounds = 0
        else:
            hold_out.model.forest.predict(
                evaluated.codes, scores, 0, None, hold_out.settings.workers, evaluated.features
            )
        if n_rounds or is_useless:
            self._numbers.append(factor * n_rounds)
        self.scored.append((hold_out.model, scores))

    def estimate_seconds(self) -> float:
        """Return the estimated time of a training on all rows."""
        member = self.get_member()
        return 0.0 if member is None else member.n_rounds * self.round_seconds

    def get_member(self) -> Member | None:
        """Return the candidate with its number of rounds, the median; None if there is none."""
        if not self._numbers:
            return None
        n_rounds = round(sorted(self._numbers)[len(self._numbers) // 2])
        is_tree_needed = self.scored[0][0].initial is None
        return replace(self.member, n_rounds=max(n_rounds, int(is_tree_needed)))


def _choose(
    run: TrainingRun,
    candidates: Sequence[_Candidate],
    max_rounds: float,
    splits: Sequence[_Split],
    is_fixed: bool,
) -> None:
    """Set the members of the run by the losses of candidates, its number of rounds, and its initial
    model.

    The linear model is a candidate without trees, for the mean with others or alone.
    """
    measured = [(c, member) for c in candidates if (member := c.get_member()) is not None]
    run.candidates = ()
    if is_fixed:  # the linear model alone would not have the rounds that the user asks for
        n_rounds = run.settings.boosting.n_estimators
        measured = [(c, replace(member, n_rounds=n_rounds)) for c, member in measured]
    if run.objective.balances_totals:  # the mean of several members would be too low in sum
        max_rounds = -1.0
    best, lowest = _Choice((), 0.0), np.empty(0)
    # Noise does not choose the linear model. In the order of time, where levels leave the range of
    # the training rows, noise does not choose any trees.
    is_optional = run.linear is not None and run.linear.is_optional
    in_time = is_optional and run.rules.time is not None and not is_fixed
    if in_time:
        best, lowest = _Choice((), 1.0), _compute_losses({}, candidates[:1], splits, 1.0)
    for is_started, has_linear in ((False, False), (False, True), (True, True)):
        alike = [(c, m) for c, m in measured if c.is_started == is_started]
        if not alike or (has_linear and run.linear is None):
            continue
        choice, losses = _choose_weights(alike, max_rounds, splits, has_linear, is_fixed)
        if not len(lowest) or _is_lower(losses, lowest, in_time):
            best, lowest = choice, losses
    if not measured and run.linear is not None and not run.linear.is_optional:
        best = _Choice((), 1.0)
    _set_choice(run, best)


def _is_lower(losses: np.ndarray, others: np.ndarray, in_time: bool = False) -> bool:
    """Return whether the mean of some losses is lower than that of others, beyond noise."""
    if not np.isfinite(losses).all():  # no held-out row can be measured
        return False
    n, gains = len(losses), others - losses
    gain, least = math.fsum(gains) / n, MIN_LINEAR_GAIN * math.fsum(others) / n
    if in_time and n > 1:
        error = math.sqrt(math.fsum(np.square(gains - gain)) / (n - 1) / n)
        least = max(least, MIN_STANDARD_ERRORS * error)
    return gain > least


def _is_start_better(
    candidates: Sequence[_Candidate], splits: Sequence[_Split], is_fixed: bool
) -> bool:
    """Return whether the model of a candidate has a lower loss if its trees start from the linear
    model, for the same candidate without and with this start."""
    losses = [
        _choose_weights([(c, c.member)], math.inf, splits, True, is_fixed)[1] for c in candidates
    ]
    return _is_lower(losses[1], losses[0])


def _choose_weights(
    candidates: Sequence[tuple[_Candidate, Member]],
    max_rounds: float,
    splits: Sequence[_Split],
    has_linear: bool,
    is_fixed: bool,
) -> tuple[_Choice, np.ndarray]:
    """Return the mean of some candidates with the lowest loss, and its losses.

    `has_linear`: whether the linear model is a candidate.
    """
    is_started, n_trees = candidates[0][0].is_started, len(candidates)

    def compute_losses(weights: dict[int, float]) -> np.ndarray:
        factor = 1.0 if is_started else weights.get(n_trees, 0.0)
        trees = {i: weight for i, weight in weights.items() if i < n_trees}
        return _compute_losses(trees, [c for c, _ in candidates], splits, factor)

    def compute_loss(weights: dict[int, float]) -> float:
        if is_fixed and all(i == n_trees for i in weights):
            return math.inf
        losses = compute_losses(weights)
        return math.fsum(losses) / len(losses)

    members = [member for _, member in candidates]
    if has_linear:
        members.append(replace(members[0], n_rounds=0))
    weights, _ = choose_weights(members, compute_loss, max_rounds)
    chosen = tuple(replace(members[i], weight=w) for i, w in weights.items() if i < n_trees)
    factor = 1.0 if is_started else weights.get(n_trees, 0.0)
    return _Choice(chosen, factor, is_started), compute_losses(weights)


def _compute_losses(
    weights: dict[int, float],
    candidates: Sequence[_Candidate],
    splits: Sequence[_Split],
    factor: float,
) -> np.ndarray:
    """Return the losses of the weighted mean of candidates plus a part of the linear model, on all
    held-out rows of each split, or on blocks of them in the order of time."""
    losses = []
    for split, *scored in zip(splits, *(c.scored for c in candidates), strict=False):
        model, first = scored[0]
        raw = sum((weight * scored[i][1] for i, weight in weights.items()), np.zeros_like(first))
        has_blocks = split.linear_scores is not None and split.run.rules.time is not None
        parts = split.iter_blocks(N_TIME_BLOCKS // len(splits)) if has_blocks else [None]
        losses += [split.compute_loss(model, raw, factor, part) for part in parts]
    return np.array(losses)


class _Choice(NamedTuple):
    """Members with their weights, and the factor of the linear model's scores.

    `is_started`: whether trees start from these scores.
    """

    members: tuple[Member, ...]
    factor: float
    is_started: bool = False


def _set_choice(run: TrainingRun, choice: _Choice) -> None:
    """Set members, number of rounds and initial model of a run."""
    members, linear = choice.members, run.linear
    if members or choice.factor:
        n_rounds = max((member.n_rounds for member in members), default=0)
        run.settings = run.settings.replace_n_estimators(n_rounds)
    if len(members) > 1 or any(member.changes or member.weight != 1 for member in members):
        run.members = members
    if linear is None:
        return
    run.linear = None
    run.scale_eval_scores(choice.factor)
    if choice.factor:
        starts_trees = choice.is_started or not members
        run.initial = replace(linear.model.scale(choice.factor), starts_trees=starts_trees)
    if choice.is_started:
        run.add_offset(linear.scores)


def has_ended_too_early(
    run: TrainingRun, hold_out: TrainingRun, callbacks: Sequence[object]
) -> bool:
    """Return whether Ctrl-C or a time limit has ended a training long before it has learned as much
    as the hold-out fit, by the sum of its learning rates."""
    limits = [callback for callback in callbacks if isinstance(callback, TimeLimit)]
    if not run.was_interrupted and not any(limit.was_reached for limit in limits):
        return False
    progress = [r.model.n_rounds * r.settings.boosting.learning_rate for r in (run, hold_out)]
    return progress[0] < MIN_PROGRESS * progress[1]


def iter_hold_outs(
    run: TrainingRun, n_hold_outs: int
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Yield the rows to train on and the rows to evaluate on, of each hold-out fit."""
    target, seed = run.target, run.seeds.training
    classes = target.get_row_classes()
    if run.rules.time is not None:
        splits = _iter_last_rows(run, n_hold_outs)
    elif n_hold_outs == 1:
        splits = iter([run.rules.split(target.n_rows, HELD_OUT, seed, classes)])
    else:
        splits = run.rules.iter_cross_fits(target.n_rows, round(1 / HELD_OUT), seed, classes)
    for rows, held in islice(splits, n_hold_outs):
        check_parts(rows, held)
        if classes is not None:  # a class without training rows has no score
            held = held[np.isin(classes[held], classes[rows])]
        yield rows, held


def _iter_last_rows(
    run: TrainingRun, n_hold_outs: int
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Yield the last rows in time after all rows before them, then those before these."""
    rows = np.flatnonzero(_have_weight(run.target.rows))
    n_held = HELD_OUT * len(rows)
    for i in range(n_hold_outs):
        rules, seed = run.rules.take(rows), run.seeds.training
        earlier, later = rules.split(len(rows), n_held / len(rows), seed, None)
        if i > 0 and not (len(earlier) and len(later)):
            return
        yield rows[earlier], rows[later]
        rows = rows[earlier]


def _have_weight(rows: RowData) -> NDArray[np.bool_]:
    """Return which rows have a weight; all of them if none has one."""
    if rows.weight is None:
        return np.ones(rows.n_rows, bool)
    known: NDArray[np.bool_] = np.any((rows.weight > 0).reshape(rows.n_rows, -1), axis=1)
    return known if known.any() else ~known


def _count_hold_outs(run: TrainingRun) -> int:
    """Return an odd number of hold-out fits; the more, the fewer rows carry the loss.

    The effective number of rows is (sum of l)^2 / sum of l^2, where l is the squared length of the
    gradient of a row at the base score: for squared errors, the loss of the row. Outputs have equal
    shares in l if the metric is relative to their variances. In a ranking, queries take the place
    of rows.
    """
    bound = bind_objective(run.objective, run.rows, run.settings)
    n_rows, n_outputs = bound.n_rows, bound.n_outputs
    if _count_cells(run) > MAX_REPEATED_CELLS:
        return 1
    if run.rules.time is not None:
        return N_TIME_HOLD_OUTS if run.linear is not None and run.linear.is_optional else 1
    base = run.base_score
    bound.set_base_score(compute_base_score(bound, run.settings) if base is None else base)
    raw = np.zeros((n_rows, n_outputs), np.float32)
    if run.rows.offset is not None:
        raw += run.rows.offset
    gradients, _ = compute_derivatives(bound, raw, run.settings.workers.n_threads)
    squares = gradients.astype(np.float64) ** 2
    if run.objective.is_translation_invariant:
        total = squares.sum(axis=0)
        squares /= np.where(total > 0, total, 1.0)
    losses = squares.sum(axis=1)
    if run.rows.query is not None:
        losses = np.bincount(run.rows.query, losses)
    fourth = float(np.sum(losses**2))
    n_effective = float(losses.sum()) ** 2 / fourth if fourth > 0 else float(n_rows)
    if n_effective >= MANY_EFFECTIVE_ROWS:
        return 1
    return 3 if n_effective >= SOME_EFFECTIVE_ROWS else N_HOLD_OUTS


def _count_cells(run: TrainingRun) -> int:
    n_outputs = run.objective.n_scores(run.target.encoding.n_outputs)
    return run.target.n_rows * run.dataset.mapper.n_columns_ * n_outputs


def _train(
    hold_out: TrainingRun, limits: Sequence[TimeLimit], is_fixed: bool, reserved: float
) -> _HoldOutStopper:
    """Train a hold-out fit; return the callback that has stopped it.

    `is_fixed`: whether it has the learning rate and the number of rounds of the run. `reserved`:
    seconds before the limits at which it ends.
    """
    if hold_out.objective.is_translation_invariant:  # offsets are subtracted from the target
        rows = hold_out.eval_sets[0].rows.replace(offset=None)
        hold_out.eval_sets = [replace(hold_out.eval_sets[0], rows=rows)]
    if isinstance(hold_out.settings.boosting.output_groups, str):
        resolve_output_groups(hold_out)
    boosting = hold_out.settings.boosting
    rate, patience = boosting.learning_rate, boosting.n_estimators
    is_fixed = is_fixed and patience <= max_rounds(rate)
    if not is_fixed:
        speedup = SPEEDUP if SPEEDUP * rate <= MAX_RATE else 1
        n_rounds = max_rounds(rate, _count_cells(hold_out)) // speedup
        boosting = replace(boosting, learning_rate=speedup * rate, n_estimators=n_rounds)
        hold_out.settings = replace(hold_out.settings, boosting=boosting)
        patience = get_patience(boosting.learning_rate)
    metric = hold_out.eval_sets[0].metrics[0]
    stopper = _HoldOutStopper(metric, patience, limits, keeps_all=is_fixed, reserved=reserved)
    with suppress_warnings():
        boost(hold_out, [stopper])
    return stopper


class _HoldOutStopper(Callback):
    """Stops a hold-out fit some rounds after its best metric value, or for lack of time.

    Attributes
    ----------
    lacks_time : bool
        Whether less than the reserved time remains.
    """

    def __init__(
        self,
        metric: Metric,
        rounds: int,
        limits: Sequence[TimeLimit],
        keeps_all: bool,
        reserved: float,
    ) -> None:
        self._metric, self._limits, self._keeps_all = metric, limits, keeps_all
        self._reserved = reserved
        self.patience = Patience(rounds)
        self.n_trained, self.lacks_time = 0, False

    def after_iteration(self, model: Model, epoch: int, evals_log: EvalsLog) -> bool:
        ((values,),) = (metrics.values() for metrics in evals_log.values())
        self.n_trained += 1
        self.patience.update(self._metric.to_loss(values[-1]), epoch)
        self.lacks_time = _get_remaining(self._limits) < self._reserved
        is_over = any([limit.is_over() for limit in self._limits])
        return is_over or self.lacks_time or self.patience.is_over(epoch)

    def after_training(self, model: Model) -> None:
        """Drop the rounds after the best one, unless all are kept."""
        if not self._keeps_all and self.patience.best_round is not None:
            model.truncate(self.patience.best_round + 1)
