"""Successive halving: which candidates are trained, on which folds, and when a trial is stopped
early.

Without a time limit nothing here reads the clock.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from polyleaf.callbacks import Callback
from polyleaf.metrics import Metric
from polyleaf.metrics.metric import EvalsLog
from polyleaf.metrics.patience import Patience
from polyleaf.runtime.types import Parameters
from polyleaf.search.cv_splits import Fold, Folds
from polyleaf.search.ensemble import POOL_SIZE
from polyleaf.search.resume_log import ResumeLog, TrialRecord
from polyleaf.search.trials import Candidate, is_near_leader, rank_candidates, rank_with_defaults

if TYPE_CHECKING:
    from polyleaf.estimators.base import PolyleafEstimator
    from polyleaf.model import Model

# A trial is hopeless if the leader is ahead by more than this multiple of its gain in the last
# doubling.
HOPELESS_FACTOR = 4.0
TIME_MARGIN = 1.2  # the final fit may take longer than estimated from trials
# Fraction of the time limit, and maximum number of seconds, for work between trials and before the
# first round of the final fit.
OVERHEAD_FRACTION, MAX_OVERHEAD_SECONDS = 0.02, 0.5
GENERATION_SIZE = 8  # candidates of a generation after the portfolio
# Number of leaders to validate again besides the defaults: one per CANDIDATES_PER_LEADER, at most
# MAX_LEADERS.
CANDIDATES_PER_LEADER, MAX_LEADERS = 8, 4
LEADER_ERRORS = 2.0  # standard errors of the mean difference to the best
JOBS_AHEAD = 2  # jobs started per thread before the first result is taken

T = TypeVar("T")


def run_parallel(
    jobs: Iterable[Callable[[], T]], n_parallel: int, cancel: Callable[[], object]
) -> Generator[T, None, None]:
    """Yield the results of jobs in order, with up to `n_parallel` of them running in threads.

    Close the generator to cancel the rest.

    Parameters
    ----------
    jobs : iterable of callable
        Read in the calling thread, a few jobs ahead.
    n_parallel : int
        With 1 each job runs in the calling thread.
    cancel : callable
        Asks running jobs to stop, after an error or Ctrl-C.
    """
    n_parallel = _count_threads(n_parallel)
    if n_parallel <= 1:
        for job in jobs:
            yield job()
        return
    running: deque[Future[T]] = deque()
    with ThreadPoolExecutor(n_parallel, "polyleaf-search") as pool:
        try:
            for job in jobs:
                running.append(pool.submit(job))
                if len(running) >= JOBS_AHEAD * n_parallel:
                    yield running.popleft().result()
            while running:
                yield running.popleft().result()
        finally:
            cancel()
            for future in running:
                future.cancel()


def _count_threads(n_threads: int) -> int:
    """Return how many threads, up to `n_threads`, the system starts."""
    release = threading.Event()
    threads: list[threading.Thread] = []
    try:
        while 1 < n_threads > len(threads):
            thread = threading.Thread(target=release.wait, daemon=True)
            thread.start()
            threads.append(thread)
    except RuntimeError:  # the limit of processes or of memory is reached
        pass
    release.set()
    for thread in threads:
        thread.join()
    return len(threads)


class Budget:
    """Remaining seconds, minus those reserved for the final fit.

    Parameters
    ----------
    seconds : float or None
        None is no limit.
    """

    def __init__(self, seconds: float | None) -> None:
        self._end = math.inf if seconds is None else time.perf_counter() + seconds
        self._overhead = (
            0.0 if seconds is None else min(OVERHEAD_FRACTION * seconds, MAX_OVERHEAD_SECONDS)
        )
        self._reserved = 0.0
        self._growing: tuple[float, float] | None = None  # start and factor

    def remaining(self) -> float:
        """Return the remaining seconds, the final fit's included."""
        return math.inf if self._end == math.inf else self._end - time.perf_counter()

    def reserve(self, seconds: float) -> None:
        """Reserve so many seconds for the final fit."""
        self._reserved, self._growing = seconds * TIME_MARGIN + self._overhead, None

    def reserve_elapsed(self, growth: float) -> None:
        """Reserve `growth` times the seconds that elapse from now on."""
        self._growing = time.perf_counter(), growth * TIME_MARGIN

    def is_spent(self) -> bool:
        """Return whether only the reserved seconds remain."""
        if self._end == math.inf:
            return False
        now = time.perf_counter()
        began, growth = self._growing or (now, 0.0)
        return now + max(self._reserved, growth * (now - began)) >= self._end

    def is_over(self) -> bool:
        """Return whether no second remains."""
        return self._end < math.inf and time.perf_counter() >= self._end

    def final_fit_deadline(self) -> float:
        """Return the time at which a final fit that starts now must end.

        If trials took longer than planned, it still has the reserved seconds.
        """
        if self._end == math.inf:
            return math.inf
        return max(self._end, time.perf_counter() + self._reserved)


class SubBudget(Budget):
    """Part of another budget, from now on, or until it is cancelled."""

    def __init__(self, parent: Budget, seconds: float | None = None) -> None:
        super().__init__(seconds)
        self._parent = parent

    def is_spent(self) -> bool:
        return super().is_spent() or self._parent.is_spent()

    def cancel(self) -> None:
        """Leave no time."""
        self._end = -math.inf


class FinalFitTimeout(Callback):
    """Stops the final fit at the end of the time limit.

    Attributes
    ----------
    rounds : int
        Rounds trained.
    timed_out : bool
        Whether training was stopped.
    """

    def __init__(self, budget: Budget) -> None:
        self._end = budget.final_fit_deadline()
        self.rounds = 0
        self.timed_out = False

    def after_iteration(self, model: Model, epoch: int, evals_log: EvalsLog) -> bool:
        self.rounds += 1
        self.timed_out = self._end < math.inf and time.perf_counter() >= self._end
        return self.timed_out


class TrialStopper(Callback):
    """Stops a trial that no longer improves, is hopeless, or runs out of time.

    Parameters
    ----------
    patience : int
        Rounds without an improvement, also used by `stopping_round`.
    leader : float
        Lowest loss of any candidate on the fold.

    Attributes
    ----------
    curve : list of float
        Loss after each round.
    timed_out : bool
        Whether time was over first.
    fitted : estimator or None
        The fitted estimator, if it is kept.
    """

    def __init__(self, metric: Metric, patience: int, leader: float, budget: Budget) -> None:
        self._metric, self.patience, self._leader, self._budget = metric, patience, leader, budget
        self._patience = Patience(patience)
        self.curve: list[float] = []
        self.timed_out = False
        self.fitted: PolyleafEstimator | None = None

    def after_iteration(self, model: Model, epoch: int, evals_log: EvalsLog) -> bool:
        value = list(evals_log.values())[-1][self._metric.name][-1]
        self.curve.append(self._metric.to_loss(value))
        self._patience.update(self.curve[-1], epoch)
        if self._patience.is_over(epoch) or self._is_hopeless():
            return True
        self.timed_out = self._budget.is_spent()
        return self.timed_out

    def _is_hopeless(self) -> bool:
        return stopping_round(self.curve, self.patience, self._leader, len(self.curve)) is not None


def stopping_round(
    curve: Sequence[float], patience: int, leader: float, first: int = 1
) -> int | None:
    """Return the round, not before `first`, after which a trial is hopeless; None if it is not.

    A trial is hopeless if the leader is ahead by more than a few times the gain of the last
    doubling of the rounds. This is checked after `patience` rounds and at every doubling of them.

    Parameters
    ----------
    curve : sequence of float
        Loss after each round.
    leader : float
        Lowest loss of any candidate.
    """
    n = patience
    while n <= len(curve):
        if n >= max(2, first):
            best, previous = min(curve[:n]), min(curve[: n // 2])
            if best - leader > HOPELESS_FACTOR * (previous - best):
                return n
        n *= 2
    return None


class TrialOutcome(NamedTuple):
    """Outcome of a trial, before those of the trials that were started earlier are known.

    Attributes
    ----------
    fitted : estimator or None
        The fitted estimator, if it is kept.
    patience : int
        Patience of its `TrialStopper`; 0 for trials from the log.
    """

    record: TrialRecord
    timed_out: bool = False
    fitted: PolyleafEstimator | None = None
    patience: int = 0


class FinalFit(NamedTuple):
    """Parameters of the fit on all rows.

    Attributes
    ----------
    rounds : int or None
        Maximum number of rounds; None: as many as a plain fit trains.
    min_rounds : int
        Fewer rounds than this, by a time-out, cause a warning.
    """

    parameters: Parameters
    rounds: int | None
    min_rounds: int


class SuccessiveHalving:
    """Search over candidates: after every fold the better half goes on to the next fold.

    Parameters
    ----------
    train : callable
        `train(parameters, fold, leader, budget)`: the `TrialStopper` of a completed trial. Raises
        ValueError if the parameters do not suit the data.
    folds : Folds
        Made on first use.
    log : ResumeLog
        Trials that are not repeated; new ones are added.
    n_members : int
        Maximum number of candidates that are fitted on all rows in the end.
    report : callable
        Receives lines of progress.
    n_parallel : int
        Trials that run in parallel. Without a time limit results do not depend on it.

    Attributes
    ----------
    candidates : list of Candidate
        In the order of evaluation.
    """

    def __init__(
        self,
        train: Callable[[Parameters, Fold, float, Budget], TrialStopper],
        folds: Folds,
        budget: Budget,
        max_candidates: int | None,
        log: ResumeLog,
        n_members: int,
        report: Callable[[str], object],
        n_parallel: int = 1,
    ) -> None:
        self._n_parallel = n_parallel
        self._train, self.folds, self._budget, self._report = train, folds, budget, report
        self._max_candidates = math.inf if max_candidates is None else max_candidates
        self._log, self._n_members = log, n_members
        self.candidates: list[Candidate] = []
        # Folds of each iteration; after each of them candidates are halved.
        self._iterations = [[fold] for fold in range(folds.n_splits)]

    def ranking(self) -> list[Candidate]:
        """Return candidates with a score, best first; see `rank_with_defaults`."""
        return rank_with_defaults([candidate for candidate in self.candidates if candidate.curves])

    def is_over(self) -> bool:
        """Return whether time or number allow no other candidate."""
        if len(self.candidates) >= self._max_candidates:
            return True
        return bool(self.ranking()) and self._budget.is_spent()

    def run(self, generation: list[Parameters], origin: str) -> None:
        """Evaluate a generation by halving. The defaults stay in: all are compared with them."""
        n_allowed = self._max_candidates - len(self.candidates)
        entered = generation if n_allowed > len(generation) else generation[: int(n_allowed)]
        remaining = self._select_entrants(
            [Candidate(len(self.candidates) + i, p, origin) for i, p in enumerate(entered)]
        )
        for folds in self._iterations:
            if not self._evaluate(remaining, folds):
                return
            others = rank_candidates([c for c in remaining if c.number > 0])
            defaults = [c for c in remaining if c.number == 0]
            remaining = defaults + others[: math.ceil(len(others) / 2)]
        # Fitted estimators are kept only for candidates that may be blended.
        for candidate in self.ranking()[POOL_SIZE * self._n_members :]:
            candidate.fitted = [None] * candidate.n_folds

    def revalidate_leaders(self) -> None:
        """Evaluate the leaders on resampled folds, and compare them on the folds common to all.

        The best of many candidates on few folds owes part of its score to luck.
        """
        leaders = self._leaders()
        try:
            for fold in range(self.folds.n_splits, len(self.folds) if leaders else 0):
                if not self._evaluate(leaders, [fold]):
                    break
        finally:  # also after Ctrl-C
            common = min((c.n_folds for c in leaders if not c.error), default=0)
            for candidate in leaders:
                candidate.curves = candidate.curves[:common]
                candidate.fitted = candidate.fitted[:common]

    def _leaders(self) -> list[Candidate]:
        """Return the defaults and the best candidates that noise does not tell apart.

        Empty if there is nothing to compare, or if several candidates are blended.
        """
        n_splits = self.folds.n_splits
        ranked = [c for c in self.ranking() if not c.error]
        if self._n_members > 1 or not ranked or ranked[0].n_folds != n_splits:
            return []
        near: list[Candidate] = []
        for candidate in rank_candidates([c for c in ranked if c.n_folds == n_splits]):
            is_duplicate = any(candidate.losses == other.losses for other in near)
            if not is_duplicate and (not near or is_near_leader(candidate, near[0], LEADER_ERRORS)):
                near.append(candidate)
        n_leaders = min(MAX_LEADERS, math.ceil(len(self.candidates) / CANDIDATES_PER_LEADER))
        defaults = [c for c in ranked if c.number == 0 and c.n_folds == n_splits]
        leaders = defaults + [c for c in near if c.number > 0][:n_leaders]
        return leaders if len(leaders) > 1 else []

    def final_candidate(self) -> Candidate:
        """Return the candidate to fit on all rows."""
        return self.ranking()[0]

    def final_fit(self, candidate: Candidate) -> FinalFit:
        """Return the parameters of a candidate's fit on all rows."""
        return FinalFit(candidate.parameters, candidate.rounds, candidate.rounds)

    def _select_entrants(self, candidates: list[Candidate]) -> list[Candidate]:
        """Return the candidates of a generation that are evaluated on folds, in order."""
        return candidates

    def mutate(
        self,
        make_children: Callable[[list[Candidate], int], Iterator[Parameters]],
        origin: str = "variation",
    ) -> None:
        """Evaluate generations made from the best candidates until the search is over.

        `make_children(ranked candidates, generation)` yields parameters endlessly, or none.
        """
        generation = 0
        while not self.is_over():
            tried = [candidate.proposed for candidate in self.candidates]
            new: list[Parameters] = []
            # All neighbours may have been tried: give up after some children.
            children = make_children(self._parents(), generation)
            for child in islice(children, 50 * GENERATION_SIZE):
                if child not in tried and child not in new:
                    new.append(child)
                if len(new) == GENERATION_SIZE or self._budget.is_spent():
                    break
            if not new:
                return
            self.run(new, origin)
            generation += 1

    def _parents(self) -> list[Candidate]:
        """Return the candidates that children are made from, best first."""
        return rank_candidates(self.ranking())

    # --- trials ----------------------------------------------------------------------------------

    def _evaluate(self, candidates: list[Candidate], folds: list[int]) -> bool:
        """Evaluate candidates on folds, the very first trial alone. False if time is spent."""
        pairs = [(candidate, fold) for candidate in candidates for fold in folds]
        n_alone = 0 if self._has_begun() else 1
        return self._run_trials(pairs[:n_alone], 1) and self._run_trials(
            pairs[n_alone:], self._n_parallel
        )

    def _has_begun(self) -> bool:
        return any(candidate.curves for candidate in self.candidates)

    def _run_trials(self, pairs: list[tuple[Candidate, int]], n_parallel: int) -> bool:
        """Run trials in parallel and record them in order. False if time is spent."""
        budget = SubBudget(self._budget)
        jobs = (self._make_job(candidate, fold, budget) for candidate, fold in pairs)
        with closing(run_parallel(jobs, n_parallel, budget.cancel)) as outcomes:
            for (candidate, fold), outcome in zip(pairs, outcomes, strict=True):
                if candidate.number >= len(self.candidates):
                    self.candidates.append(candidate)
                if not self._record(candidate, fold, outcome):
                    return False
        return True

    def _make_job(
        self, candidate: Candidate, fold: int, budget: Budget
    ) -> Callable[[], TrialOutcome | None]:
        """Return a trial that may run in a thread. Its result is None if time was spent before."""
        data = self._fold(fold)

        def run() -> TrialOutcome | None:
            if candidate.error or (self._has_begun() and budget.is_spent()):
                return None
            record = self._log.find(candidate.parameters, fold)
            if record is not None:
                return TrialOutcome(record)
            if not self._has_begun():
                self._reserve_first_trial(candidate, fold)
            leader = self._lowest_loss(fold)
            return self._run_trial(candidate, candidate.parameters, data, leader, budget)

        return run

    def _record(self, candidate: Candidate, fold: int, outcome: TrialOutcome | None) -> bool:
        """Record a trial after all that were started before it. False if time is spent."""
        if candidate.error:
            return True
        if outcome is None:
            return False
        record = self._log_outcome(candidate.parameters, fold, outcome, self._lowest_loss(fold))
        candidate.seconds += record.seconds
        if record.error:
            self._report_error(candidate, record.error)
            return True
        if candidate.number == 0 and record.curve and min(record.curve) == math.inf:
            raise ValueError(
                "The metric is NaN after every round of the default parameters on fold "
                f"{fold + 1} of "
                f"{self.folds.n_splits}: it may have too few validation rows, or one class only. "
                "Set "
                "other folds with cv, or another metric."
            )
        # A trial that timed out counts only if there is no other.
        if record.curve and (not outcome.timed_out or not self.ranking()):
            candidate.curves.append(record.curve)
            candidate.fitted.append(outcome.fitted)
            self._reserve_final_fits()
            self._report_trial(candidate, fold)
        return not outcome.timed_out

    def _lowest_loss(self, fold: int) -> float:
        """Return the lowest loss of any candidate on a fold."""
        curves = [c.curves[fold] for c in self.candidates if c.n_folds > fold]
        return min((min(curve) for curve in curves), default=math.inf)

    def _reserve_first_trial(self, candidate: Candidate, fold: int) -> None:
        """Reserve time for a final fit while the first trial runs."""
        self._budget.reserve_elapsed(self.folds[fold].growth)

    def _run_trial(
        self,
        candidate: Candidate,
        parameters: Parameters,
        data: Fold,
        leader: float,
        budget: Budget,
    ) -> TrialOutcome:
        started = time.perf_counter()
        try:
            stopper = self._train(parameters, data, leader, budget)
        except ValueError as error:
            if candidate.number == 0:
                raise
            return TrialOutcome(TrialRecord([], 0.0, str(error)))
        record = TrialRecord(stopper.curve, time.perf_counter() - started)
        return TrialOutcome(record, stopper.timed_out, stopper.fitted, stopper.patience)

    def _log_outcome(
        self, parameters: Parameters, fold: int, outcome: TrialOutcome, leader: float
    ) -> TrialRecord:
        """Cut the trial where it would have stopped had it started after all before it; log it."""
        record, n = outcome.record, None
        if outcome.patience:
            n = stopping_round(record.curve, outcome.patience, leader)
        if n is not None:
            record = record._replace(curve=record.curve[:n])
        is_complete = n is not None or not outcome.timed_out
        if is_complete and self._log.find(parameters, fold) is None:
            self._log.add(parameters, fold, record)
        return record

    def _fold(self, fold: int) -> Fold:
        return self.folds[fold]

    def _reserve_final_fits(self) -> None:
        """Reserve time for fitting the best candidates on all rows."""
        best = self.ranking()[: self._n_members]
        self._budget.reserve(sum(map(self._final_fit_seconds, best)))

    def _final_fit_seconds(self, candidate: Candidate) -> float:
        share = candidate.rounds / sum(map(len, candidate.curves))
        return share * self.folds[0].growth * candidate.seconds

    def _report_error(self, candidate: Candidate, error: str) -> None:
        candidate.error = error
        self._report(f"candidate {candidate.number}: failed: {error}")

    def _report_trial(self, candidate: Candidate, fold: int) -> None:
        best, n_folds = self.ranking()[0], sum(map(len, self._iterations))
        self._report(
            f"candidate {candidate.number}, fold {fold + 1} of {n_folds}: loss "
            f"{candidate.loss:.6g}, "
            f"{candidate.rounds} rounds; best {best.loss:.6g} (candidate {best.number})  "
            f"{candidate.parameters}"
        )
