"""Hold-out fits choose the number of rounds, the members, and the use of a linear model.

Each candidate trains on some of the rows at twice the learning rate, and so with half of the
rounds, until the loss on the other rows no longer falls. The training on all rows has as many more
rounds as it has more rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from polyleaf.callbacks import Callback, TimeLimit
from polyleaf.metrics import Metric
from polyleaf.metrics.metric import EvalsLog
from polyleaf.metrics.patience import Patience
from polyleaf.model import Model
from polyleaf.model.metadata import OUTPUT_GROUPS
from polyleaf.runtime.user_warnings import suppress_warnings
from polyleaf.training.auto_rounds import (
    count_cells,
    count_hold_outs,
    get_patience,
    have_weight,
    iter_hold_outs,
    max_rounds,
)
from polyleaf.training.boosting import boost
from polyleaf.training.group_search import resolve_output_groups
from polyleaf.training.members import Member
from polyleaf.training.quality import choose_weights, get_cost
from polyleaf.training.raw_scores import DenseScores
from polyleaf.training.training_run import TrainingRun

SPEEDUP, MAX_RATE = 2, 0.5  # factor of the learning rate, unless the result exceeds MAX_RATE
N_TIME_BLOCKS = 12  # blocks of all held-out rows in the order of time
# A training that ends with less of the progress of a hold-out fit has the higher loss, although it
# has more rows. Hold-out fits therefore leave at least this share of its time to the training of
# the first candidate.
MIN_PROGRESS = 0.5
# The loss has to fall by this share, and in the order of time by so many standard errors over
# blocks of held-out rows; less is noise.
MIN_LINEAR_GAIN, MIN_STANDARD_ERRORS = 0.002, 2.0


def find_n_estimators(
    run: TrainingRun, metric: Metric, callbacks: Sequence[object] = (), is_fixed: bool = False
) -> tuple[TrainingRun, bool]:
    """Set the number of rounds of a run by hold-out fits, the best of its candidates, and the use
    of its linear model.

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
    return _Search(run, metric, _TimeLimits(callbacks), is_fixed).execute()


def has_ended_too_early(
    run: TrainingRun, hold_out: TrainingRun, callbacks: Sequence[object]
) -> bool:
    """Return whether Ctrl-C or a time limit has ended a training long before it has learned as much
    as the hold-out fit, by the sum of its learning rates."""
    if not run.was_interrupted and not _TimeLimits(callbacks).were_reached:
        return False
    progress = [r.model.n_rounds * r.settings.boosting.learning_rate for r in (run, hold_out)]
    return progress[0] < MIN_PROGRESS * progress[1]


class _TimeLimits:
    """The time limits of a fit, which ends with the first of them."""

    def __init__(self, callbacks: Sequence[object]) -> None:
        self._limits = [callback for callback in callbacks if isinstance(callback, TimeLimit)]

    @property
    def were_reached(self) -> bool:
        return any(limit.was_reached for limit in self._limits)

    def start(self) -> None:
        for limit in self._limits:
            limit.start()

    def are_over(self) -> bool:
        """Return whether a limit is reached now."""
        return any([limit.is_over() for limit in self._limits])

    def remaining(self) -> float:
        """Return the seconds until the first limit is reached, infinite without one."""
        return min((limit.remaining() for limit in self._limits), default=math.inf)


class _Split(NamedTuple):
    """Trainings on some rows, which are evaluated on the others.

    `run`: without the linear model. `linear_run`: from the scores of the linear model.
    `linear_scores`: these scores of the held-out rows. `growth`: number of all rows relative to the
    rows trained on.
    """

    run: TrainingRun
    linear_run: TrainingRun | None
    linear_scores: np.ndarray | None
    growth: float

    def iter_blocks(self, n_blocks: int) -> Iterator[NDArray[np.int64]]:
        """Yield blocks of held-out rows in the order of time; rows without weight have no loss."""
        (evaluated,) = self.run.eval_sets
        known = np.flatnonzero(have_weight(evaluated.rows))
        assert evaluated.rows.time is not None
        order = known[np.argsort(evaluated.rows.time[known], kind="stable")]
        yield from np.array_split(order, max(1, min(n_blocks, len(order))))


class _Candidate:
    """Hold-out fits of one candidate.

    Attributes
    ----------
    starts_from_linear : bool
        Whether trees start from the scores of the linear model.
    scored : list of (Model, ndarray)
        The model of each hold-out fit, and the sums of leaf values of its held-out rows.
    hold_out_seconds, round_seconds : float
        Time of the last hold-out fit, and estimated time of a round on all rows; 0 unless the fit
        has a time limit.
    """

    def __init__(self, member: Member, starts_from_linear: bool = False) -> None:
        self.member, self.starts_from_linear = member, starts_from_linear
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
            _compute_loss(hold_out, hold_out.model, scores)
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


class _Choice(NamedTuple):
    """Members with their weights, and the factor of the linear model's scores.

    `starts_from_linear`: whether trees start from these scores.
    """

    members: tuple[Member, ...]
    factor: float
    starts_from_linear: bool = False


class _Search:
    """Hold-out fits of a run, and the choice among its candidates.

    Attributes
    ----------
    candidates : list of _Candidate
        Those that are always compared come first (`n_required`); others are removed if they would
        take too long.
    splits : list of _Split
        Splits of the rows on which candidates have been trained.
    first_fit : TrainingRun, optional
        The first hold-out fit.
    n_rounds : float
        Rounds of the hold-out fits, in rounds with default parameters.
    """

    def __init__(
        self, run: TrainingRun, metric: Metric, limits: _TimeLimits, is_fixed: bool
    ) -> None:
        self.run, self.metric, self.limits, self.is_fixed = run, metric, limits, is_fixed
        self.n_cells = count_cells(run)
        self.candidates = _make_candidates(run)
        self.is_linear_optional = run.linear is not None and run.linear.is_optional
        self.n_required = 2 if self.is_linear_optional else 1
        self.splits: list[_Split] = []
        self.first_fit: TrainingRun | None = None
        self.n_rounds = 0.0

    def execute(self) -> tuple[TrainingRun, bool]:
        """Set the choice; return the first hold-out fit, and whether the search is complete."""
        self.limits.start()
        try:
            is_complete = self._train_splits()
            if is_complete:
                self._choose()
        except KeyboardInterrupt:  # between rounds
            if self.first_fit is None:
                raise
            self.first_fit.was_interrupted, is_complete = True, False
        hold_out = self.first_fit
        assert hold_out is not None
        return self.run.take_result(hold_out) if is_complete else hold_out, is_complete

    # --- hold-out fits ---

    def _train_splits(self) -> bool:
        """Train the candidates on each split; return False if Ctrl-C or time ends it."""
        for rows, held in iter_hold_outs(self.run, count_hold_outs(self.run)):
            # The first split has as many candidates as time allows, and the others have the same.
            if self.splits:
                seconds = sum(candidate.hold_out_seconds for candidate in self.candidates)
                if not self._affords(seconds, len(self.candidates) <= self.n_required):
                    break
            self.splits.append(self._make_split(rows, held))
            if not self._train_candidates():
                return False
        return True

    def _affords(self, seconds: float, is_required: bool) -> bool:
        """Return whether there is time for hold-out fits of so many seconds."""
        max_rounds = self.run.rung.hold_outs.limit_rounds(self.n_cells)
        if self.n_rounds > max_rounds and not is_required:
            return False
        return seconds + self._reserve_seconds() <= self.limits.remaining()

    def _reserve_seconds(self) -> float:
        """Return the seconds that are left to the training on all rows; 0 before the first fit,
        which tells how long a training takes."""
        return MIN_PROGRESS * self.candidates[0].estimate_seconds()

    def _make_split(self, rows: np.ndarray, held: np.ndarray) -> _Split:
        run, make_run = self.run, self.run.make_hold_out_run
        assert make_run is not None
        has_weight = have_weight(run.target.rows)
        growth = has_weight.sum() / max(1, has_weight[rows].sum())
        without_linear = make_run(run, rows, held, self.metric)
        if run.linear is None:
            return _Split(without_linear, None, None, growth)
        scores = run.linear.score_hold_out(rows, held)
        shifted = run.replace()
        shifted.add_offset(scores)
        with_linear = make_run(shifted, rows, held, self.metric)
        return _Split(without_linear, with_linear, scores[held], growth)

    def _train_candidates(self) -> bool:
        """Train the candidates on the last split; return False if Ctrl-C or time ends it."""
        is_first = len(self.splits) == 1
        for i, candidate in enumerate(self.candidates):
            is_optional = i >= self.n_required
            if is_first and is_optional:
                if not self._affords(self.candidates[0].hold_out_seconds, is_required=False):
                    del self.candidates[i:]
                    break
            stopper = self._train_candidate(candidate)
            if stopper is None:
                return False
            if stopper.lacks_time:
                if is_first:
                    del self.candidates[i:]
                break
            # The linear model does not cost other candidates their time.
            if i == 0 or is_optional:
                self.n_rounds += get_cost(candidate.member) * stopper.n_trained
            # Optional candidates do what is better for the first one.
            if is_first and i == 1 and not is_optional:
                is_better = self._is_linear_start_better()
                for other in self.candidates[2:]:
                    other.starts_from_linear = is_better
        return True

    def _train_candidate(self, candidate: _Candidate) -> _HoldOutStopper | None:
        """Train a candidate on the last split; return None if Ctrl-C or time ends it."""
        run, split = self.run, self.splits[-1]
        base = split.linear_run if candidate.starts_from_linear else split.run
        assert base is not None
        hold_out = base.replace(settings=candidate.member.apply(run.settings))
        remaining = self.limits.remaining()
        stopper = _train(hold_out, self.limits, self.is_fixed, self._reserve_seconds())
        seconds = remaining - self.limits.remaining() if remaining < math.inf else 0.0
        if self.first_fit is None:
            self.first_fit = hold_out
        if hold_out.was_interrupted or self.limits.were_reached:
            return None
        if stopper.lacks_time:
            return stopper
        # The first hold-out fit has found the groups.
        if isinstance(run.settings.boosting.output_groups, str):
            run.metadata = run.metadata | {OUTPUT_GROUPS: hold_out.metadata[OUTPUT_GROUPS]}
            run.settings = run.settings.replace_output_groups(hold_out.model.output_groups)
        rates = [r.settings.boosting.learning_rate for r in (hold_out, run)]
        candidate.add(hold_out, stopper, rates[0] / rates[1] * split.growth)
        candidate.hold_out_seconds = seconds
        candidate.round_seconds = split.growth * seconds / max(1, stopper.n_trained)
        return stopper

    # --- choice ---

    def _choose(self) -> None:
        """Set the members of the run by the losses of candidates, its number of rounds, and its
        initial model.

        The linear model is a candidate without trees, for the mean with others or alone.
        """
        run, linear = self.run, self.run.linear
        run.candidates = ()
        max_rounds = self._limit_rounds()
        members = [(c, self._get_member(c)) for c in self.candidates]
        measured = [(c, member) for c, member in members if member is not None]
        best, lowest = _Choice((), 0.0), np.empty(0)
        # Noise does not choose the linear model. In the order of time, where levels leave the range
        # of the training rows, noise does not choose any trees.
        in_time = self.is_linear_optional and run.rules.time is not None and not self.is_fixed
        if in_time:
            best, lowest = _Choice((), 1.0), self._compute_losses({}, self.candidates[:1], 1.0)
        for starts_from_linear, has_linear in ((False, False), (False, True), (True, True)):
            alike = [(c, m) for c, m in measured if c.starts_from_linear == starts_from_linear]
            if not alike or (has_linear and linear is None):
                continue
            choice, losses = self._choose_weights(alike, max_rounds, has_linear)
            if not len(lowest) or _is_lower(losses, lowest, in_time):
                best, lowest = choice, losses
        if not measured and linear is not None and not linear.is_optional:
            best = _Choice((), 1.0)
        _set_choice(run, best)

    def _limit_rounds(self) -> float:
        """Return the limit of rounds of several members, and remove the candidates whose training
        on all rows would take too long."""
        max_rounds = self.run.rung.final.limit_rounds(self.n_cells)
        remaining = self.limits.remaining()
        if remaining < math.inf:
            max_rounds = min(max_rounds, remaining / (self.candidates[0].round_seconds or 1.0))
            self.candidates[self.n_required :] = [
                candidate
                for candidate in self.candidates[self.n_required :]
                if candidate.estimate_seconds() <= remaining
            ]
        # The mean of several members would be too low in sum.
        return -1.0 if self.run.objective.balances_totals else max_rounds

    def _get_member(self, candidate: _Candidate) -> Member | None:
        """Return the candidate with its number of rounds; None if there is none.

        With a fixed number of rounds, the linear model alone would not have the rounds that the
        user asks for.
        """
        member = candidate.get_member()
        if member is None or not self.is_fixed:
            return member
        return replace(member, n_rounds=self.run.settings.boosting.n_estimators)

    def _is_linear_start_better(self) -> bool:
        """Return whether the first candidate has a lower loss if its trees start from the linear
        model, as those of the second candidate do."""
        losses = [
            self._choose_weights([(c, c.member)], math.inf, has_linear=True)[1]
            for c in self.candidates[:2]
        ]
        return _is_lower(losses[1], losses[0])

    def _choose_weights(
        self, candidates: Sequence[tuple[_Candidate, Member]], max_rounds: float, has_linear: bool
    ) -> tuple[_Choice, np.ndarray]:
        """Return the mean of some candidates with the lowest loss, and its losses.

        `has_linear`: whether the linear model is a candidate.
        """
        starts_from_linear, n_trees = candidates[0][0].starts_from_linear, len(candidates)

        def get_factor(weights: dict[int, float]) -> float:
            return 1.0 if starts_from_linear else weights.get(n_trees, 0.0)

        def compute_losses(weights: dict[int, float]) -> np.ndarray:
            trees = {i: weight for i, weight in weights.items() if i < n_trees}
            if self.is_fixed and not trees:
                return np.array([math.inf])
            return self._compute_losses(trees, [c for c, _ in candidates], get_factor(weights))

        members = [member for _, member in candidates]
        if has_linear:
            members.append(replace(members[0], n_rounds=0))
        weights, losses = choose_weights(members, compute_losses, max_rounds)
        chosen = tuple(replace(members[i], weight=w) for i, w in weights.items() if i < n_trees)
        return _Choice(chosen, get_factor(weights), starts_from_linear), losses

    def _compute_losses(
        self, weights: dict[int, float], candidates: Sequence[_Candidate], factor: float
    ) -> np.ndarray:
        """Return the losses of the weighted mean of candidates plus a part of the linear model, on
        all held-out rows of each split, or on blocks of them in the order of time."""
        losses = []
        # Time may have ended before the last candidates were trained on the last split.
        for split, *scored in zip(self.splits, *(c.scored for c in candidates), strict=False):
            model, first = scored[0]
            weighted = (weight * scored[i][1] for i, weight in weights.items())
            raw = sum(weighted, np.zeros_like(first))
            linear: np.ndarray | None = None
            parts: Iterable[np.ndarray | None] = [None]
            if split.linear_scores is not None:
                linear = factor * split.linear_scores
                if split.run.rules.time is not None:
                    parts = split.iter_blocks(N_TIME_BLOCKS // len(self.splits))
            losses += [_compute_loss(split.run, model, raw, linear, part) for part in parts]
        return np.array(losses)


def _make_candidates(run: TrainingRun) -> list[_Candidate]:
    """Return the candidates of a run, of which those that are always compared come first."""
    members = run.candidates or [Member(run.settings)]
    if run.linear is None:
        return [_Candidate(member) for member in members]
    if not run.linear.is_optional:
        return [_Candidate(member, starts_from_linear=True) for member in members]
    first = _Candidate(members[0]), _Candidate(members[0], starts_from_linear=True)
    return [*first, *(_Candidate(member) for member in members[1:])]


def _compute_loss(
    run: TrainingRun,
    model: Model,
    raw: np.ndarray,
    linear_scores: np.ndarray | None = None,
    part: np.ndarray | None = None,
) -> float:
    """Return the loss of held-out rows.

    Parameters
    ----------
    run : TrainingRun
        A hold-out fit.
    model : Model
        With the base score.
    raw : ndarray of shape (n_rows, K), float32
        Sums of leaf values.
    linear_scores : ndarray of shape (n_rows, K), optional
        Scores of a linear model, which are added.
    part : ndarray of int, optional
        Some of the held-out rows.
    """
    (evaluated,) = run.eval_sets
    (metric,) = evaluated.metrics
    rows = evaluated.rows
    if run.objective.is_translation_invariant:  # y does not contain the offset
        rows = rows.replace(offset=None)
    if linear_scores is not None:
        rows = rows.replace(offset=rows.add_offset(linear_scores))
    weighed = evaluated.weighed or rows
    if part is not None:
        rows, weighed, raw = rows.take(part), weighed.take(part), raw[part]
    bound = metric.bind(weighed, run.rows, model.n_outputs)
    ((_, predicted),) = DenseScores(raw, run.settings.workers).iter_metrics(rows, [bound], model)
    return metric.to_loss(bound(predicted))


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
        starts_trees = choice.starts_from_linear or not members
        run.initial = replace(linear.model.scale(choice.factor), starts_trees=starts_trees)
    if choice.starts_from_linear:
        run.add_offset(linear.scores)


def _train(
    hold_out: TrainingRun, limits: _TimeLimits, is_fixed: bool, reserved: float
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
        n_rounds = max_rounds(rate, count_cells(hold_out)) // speedup
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
        self, metric: Metric, rounds: int, limits: _TimeLimits, keeps_all: bool, reserved: float
    ) -> None:
        self._metric, self._limits, self._keeps_all = metric, limits, keeps_all
        self._reserved = reserved
        self.patience = Patience(rounds)
        self.n_trained, self.lacks_time = 0, False

    def after_iteration(self, model: Model, epoch: int, evals_log: EvalsLog) -> bool:
        ((values,),) = (metrics.values() for metrics in evals_log.values())
        self.n_trained += 1
        self.patience.update(self._metric.to_loss(values[-1]), epoch)
        self.lacks_time = self._limits.remaining() < self._reserved
        is_over = self._limits.are_over()
        return is_over or self.lacks_time or self.patience.is_over(epoch)

    def after_training(self, model: Model) -> None:
        """Drop the rounds after the best one, unless all are kept."""
        if not self._keeps_all and self.patience.best_round is not None:
            model.truncate(self.patience.best_round + 1)
