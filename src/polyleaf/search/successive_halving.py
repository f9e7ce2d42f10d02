"""Successive halving: which candidates are trained, on which folds, and when a trial is stopped
early.

If the time limit is short, trials have at least the learning rate of the defaults, and the final
fit has the candidate's own rate as far as time allows. Without a time limit nothing here depends on
the clock.
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

from polyleaf.callbacks import Callback, TimeLimit
from polyleaf.metrics import Metric
from polyleaf.metrics.metric import EvalsLog
from polyleaf.metrics.patience import Patience
from polyleaf.runtime.types import Parameters
from polyleaf.search.candidates import LearningRates
from polyleaf.search.cv_splits import Fold, Folds
from polyleaf.search.ensemble import POOL_SIZE
from polyleaf.search.resume_log import ResumeLog, TrialRecord
from polyleaf.search.trials import Candidate, rank_candidates, rank_with_defaults

if TYPE_CHECKING:
    from polyleaf.estimators.base import PolyleafEstimator
    from polyleaf.model import Model

# A trial is hopeless if the leader is ahead by more than this multiple of its gain in the last
# doubling.
HOPELESS_FACTOR = 4.0
TIME_MARGIN = 1.2  # the final fit may take longer than estimated from trials
# Share of the time limit, and most seconds, for work between trials and before the first round of
# the final fit.
OVERHEAD_SHARE, MAX_OVERHEAD_SECONDS = 0.02, 0.5
# Share of the time limit for the defaults on the first fold, unless they are fitted on all rows
# before. If it is not enough, only the defaults are trained, on all rows, in the remaining time.
FIRST_TRIAL_SHARE = 1 / 3
# Share of the remaining time within which the first generation has to be trained on the first
# fold: otherwise its learning rates are raised to that of the defaults.
GENERATION_SHARE = 0.6
FINAL_FIT_SHARE = 1 / 3  # of the time limit, at most, for a final fit slower than the trials
GENERATION_SIZE = 8  # candidates of a generation after the first
JOBS_AHEAD = 2  # jobs started per thread before the first result is taken

T = TypeVar("T")


def run_parallel(
    jobs: Iterable[Callable[[], T]], n_parallel: int, cancel: Callable[[], object]
) -> Generator[T, None, None]:
    """Yield the results of jobs in order, with up to `n_parallel` of them running in threads.

    Close the generator to cancel the rest.

    `jobs`: read in the calling thread, a few jobs ahead. `n_parallel`: with 1 each job runs in the
    calling thread. `cancel`: asks running jobs to stop, after an error or Ctrl-C.
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
    """Remaining seconds, minus those reserved for the final fit. None is no limit."""

    def __init__(self, seconds: float | None) -> None:
        self.seconds = math.inf if seconds is None else seconds
        self._end = math.inf if seconds is None else time.perf_counter() + seconds
        # Until the first trial shows how long a final fit takes.
        self._reserved = 0.0 if seconds is None else (1 - FIRST_TRIAL_SHARE) * seconds

    def remaining(self) -> float:
        """Return the remaining seconds, including those of the final fit."""
        return math.inf if self._end == math.inf else self._end - time.perf_counter()

    def reserve(self, seconds: float) -> None:
        """Reserve time for a final fit of this many seconds."""
        overhead = min(OVERHEAD_SHARE * self.seconds, MAX_OVERHEAD_SECONDS)
        self._reserved = seconds * TIME_MARGIN + overhead

    def is_spent(self) -> bool:
        """Return whether only the reserved seconds remain."""
        return self._end < math.inf and self.remaining() <= self._reserved

    def is_over(self) -> bool:
        """Return whether no second remains."""
        return self._end < math.inf and self.remaining() <= 0

    def limit_final_fit(self) -> SpentTime:
        """Return the callback that ends a final fit that starts now.

        If trials took longer than planned, the final fit still has the reserved seconds.
        """
        end = self._end
        if end < math.inf:
            end = max(end, time.perf_counter() + self._reserved)
        return SpentTime(lambda: end - time.perf_counter() if end < math.inf else math.inf)


class SpentTime(TimeLimit):
    """Ends a fit, its hold-out fits included, as soon as no seconds remain."""

    def __init__(self, remaining: Callable[[], float]) -> None:
        super().__init__(math.inf)
        self.remaining = remaining  # type: ignore[method-assign]

    def is_over(self) -> bool:
        self.was_reached = self.remaining() <= 0
        return self.was_reached

    def before_iteration(self, model: Model, epoch: int, evals_log: EvalsLog) -> bool:
        return self._n_done > 0 and self.is_over()


class TrialStopper(Callback):
    """Stops a trial that no longer improves, is hopeless, or runs out of time.

    `n_rounds`: rounds without an improvement, also used by `stopping_round`. `leader`: lowest loss
    of any candidate on the fold. `is_spent`: whether time is over.

    `curve`: loss after each round. `timed_out`: whether time was over first. `fitted`: the fitted
    estimator, if it is kept.
    """

    def __init__(
        self, metric: Metric, n_rounds: int, leader: float, is_spent: Callable[[], bool]
    ) -> None:
        self._metric = metric
        self._leader = leader
        self._is_spent = is_spent
        self._patience = Patience(n_rounds)
        self.n_rounds = n_rounds
        self.curve: list[float] = []
        self.timed_out = False
        self.fitted: PolyleafEstimator | None = None

    def after_iteration(self, model: Model, epoch: int, evals_log: EvalsLog) -> bool:
        loss = self._metric.to_loss(list(evals_log.values())[-1][self._metric.name][-1])
        self.curve.append(loss)
        self._patience.update(loss, epoch)
        n = len(self.curve)
        if self._patience.is_over(epoch) or stopping_round(
            self.curve, self.n_rounds, self._leader, n
        ):
            return True
        self.timed_out = self._is_spent()
        return self.timed_out


def stopping_round(
    curve: Sequence[float], patience: int, leader: float, first: int = 1
) -> int | None:
    """Return the round, not before `first`, after which a trial is hopeless; None if it is not.

    A trial is hopeless if the leader is ahead by more than a few times the gain of the last
    doubling of the rounds. This is checked after `patience` rounds and at every doubling of them.

    `curve`: loss after each round. `leader`: lowest loss of any candidate.
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
    """Outcome of a trial, before the outcomes of trials that were started earlier are known."""

    record: TrialRecord
    timed_out: bool = False
    fitted: PolyleafEstimator | None = None  # the fitted estimator, if it is kept
    n_rounds: int = 0  # patience of its `TrialStopper`; 0 for trials from the log


class FinalFit(NamedTuple):
    """Parameters of a fit on all rows, and its number of rounds; None: held-out rows choose it, and
    members, as without a search."""

    parameters: Parameters
    rounds: int | None


class FittedCandidate(NamedTuple):
    """A candidate fitted on all rows.

    `parameters`: of the fit, `n_estimators` included. `was_cut`: whether the time limit ended it.
    """

    estimator: PolyleafEstimator
    parameters: Parameters
    was_cut: bool


class FittedDefaults(NamedTuple):
    """The defaults fitted on all rows before a search.

    `parameters`: of the trials that compare them with other candidates. `candidate_seconds`:
    estimated time of the fit of a candidate.
    """

    fitted: FittedCandidate
    parameters: Parameters
    candidate_seconds: float


class SuccessiveHalving:
    """Search over candidates: after every fold the better half goes on to the next fold.

    `candidates`: in the order of evaluation.

    Parameters
    ----------
    train : callable
        `train(parameters, fold, leader, is_spent)`: the `TrialStopper` of a completed trial. Raises
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
    finds_rounds : bool
        Whether held-out rows choose the number of rounds of the defaults, and their members.
    fitted_defaults : FittedDefaults, optional
        If they were fitted before the search.
    """

    def __init__(
        self,
        train: Callable[[Parameters, Fold, float, Callable[[], bool]], TrialStopper],
        folds: Folds,
        budget: Budget,
        max_candidates: int | None,
        log: ResumeLog,
        n_members: int,
        report: Callable[[str], object],
        rates: LearningRates,
        n_parallel: int = 1,
        finds_rounds: bool = False,
        fitted_defaults: FittedDefaults | None = None,
    ) -> None:
        self._train = train
        self.folds = folds
        self._budget = budget
        self._max_candidates = math.inf if max_candidates is None else max_candidates
        self._log = log
        self._n_members = n_members
        self._report = report
        self._rates = rates
        self._finds_rounds = finds_rounds
        self._fitted_defaults = fitted_defaults
        self._trial_rate = 0.0  # trials have at least this learning rate
        self._n_parallel = n_parallel
        self.candidates: list[Candidate] = []

    def ranking(self) -> list[Candidate]:
        """Return candidates with a score, best first; see `rank_with_defaults`."""
        return rank_with_defaults(self.candidates)

    def is_over(self) -> bool:
        """Return whether time or number allow no other candidate."""
        if len(self.candidates) >= self._max_candidates:
            return True
        return bool(self.candidates) and self._budget.is_spent()

    def run(self, propose: Callable[[list[Candidate], int], Iterator[Parameters]]) -> None:
        """Evaluate generations of candidates until the search is over.

        `propose(ranked, generation)` yields parameters: those of the first generation, then
        endlessly children of the candidates, which are ranked best first.
        """
        if self._fitted_defaults is not None:
            self._budget.reserve(self._estimate_final_fits())
        if self._budget.seconds < math.inf and not self._train_defaults(list(propose([], 0))):
            return
        generation = 0
        while generation == 0 or not self.is_over():
            new = self._take_new(propose(rank_candidates(self.candidates), generation), generation)
            new = self.candidates[:1] + new if generation == 0 else new
            if not new:
                return
            self._run_generation(new)
            generation += 1

    def _train_defaults(self, portfolio: list[Parameters]) -> bool:
        """Train the defaults, and choose the learning rate of other trials by the time it takes.

        False if no time is left for other trials.
        """
        parameters = {} if self._fitted_defaults is None else self._fitted_defaults.parameters
        defaults = Candidate(0, parameters, "portfolio", parameters)
        if not self._evaluate([defaults], 0):
            return False
        seconds = (
            defaults.seconds
            if self._fitted_defaults is None
            else self._fitted_defaults.candidate_seconds
        )
        # Trials with half the learning rate take twice as long.
        slowdowns = [self._rates.default / self._rates.get(parameters) for parameters in portfolio]
        seconds *= sum(slowdowns) / min(self._n_parallel, len(portfolio))
        if self._rates.is_free and seconds > GENERATION_SHARE * self._budget.remaining():
            self._trial_rate = self._rates.default
        return True

    def _take_new(self, proposals: Iterator[Parameters], generation: int) -> list[Candidate]:
        """Return the candidates of the next generation."""
        size = self._max_candidates - len(self.candidates)
        size = size if generation == 0 else min(size, GENERATION_SIZE)
        tried = [candidate.parameters for candidate in self.candidates]
        tried += [{}] if tried else []  # the defaults are the first candidate, whatever it changes
        new: list[Candidate] = []
        # All neighbours may have been tried: give up after some proposals.
        for proposed in islice(proposals, 50 * GENERATION_SIZE):
            parameters = self._rates.raise_to(proposed, self._trial_rate)
            if parameters not in tried:
                tried.append(parameters)
                origin = "variation" if generation else "portfolio"
                number = len(self.candidates) + len(new)
                new.append(Candidate(number, parameters, origin, proposed))
            if len(new) >= size or (generation and self._budget.is_spent()):
                break
        return new

    def _run_generation(self, generation: list[Candidate]) -> None:
        """Evaluate a generation by halving. The defaults stay in: all are compared with them."""
        left = generation
        for fold in range(len(self.folds)):
            if not self._evaluate([c for c in left if c.n_folds <= fold], fold):
                return
            defaults = [c for c in left if c.number == 0]
            others = rank_candidates([c for c in left if c.number > 0])
            left = defaults + others[: math.ceil(len(others) / 2)]
        # Fitted estimators are kept only for candidates that may be blended.
        for candidate in self.ranking()[POOL_SIZE * self._n_members :]:
            candidate.fitted = [None] * candidate.n_folds

    def choose_best(self) -> Candidate:
        """Return the best candidate that is fitted on all rows, or that there is time to fit."""
        ranked, seconds = self.ranking(), self._budget.remaining()
        if self._fitted_defaults is None:
            return ranked[0]
        return next(
            candidate
            for candidate in ranked
            if candidate.number == 0 or self.round_seconds(candidate) * candidate.rounds <= seconds
        )

    def final_fit(self, candidate: Candidate) -> FinalFit:
        """Return a candidate's fit on all rows, at its own learning rate as far as time allows."""
        if candidate.number == 0 and self._finds_rounds:
            return FinalFit(candidate.parameters, None)
        trial_rate = self._rates.get(candidate.parameters)
        own_rate = self._rates.get(candidate.proposed)
        if not self._rates.is_free or trial_rate == own_rate:
            return FinalFit(candidate.parameters, candidate.rounds)
        total = candidate.rounds * trial_rate
        seconds = self._budget.remaining() / TIME_MARGIN / self._n_members
        affordable = max(1.0, seconds / self.round_seconds(candidate))
        rate = max(own_rate, min(total / affordable, trial_rate))
        return FinalFit(self._rates.change(candidate.proposed, rate), max(1, round(total / rate)))

    # --- trials ----------------------------------------------------------------------------------

    def _evaluate(self, candidates: list[Candidate], fold: int) -> bool:
        """Evaluate candidates on a fold, the very first alone. False if time is spent."""
        n_alone = 0 if self.ranking() else 1
        return self._run_trials(candidates[:n_alone], fold, 1) and self._run_trials(
            candidates[n_alone:], fold, self._n_parallel
        )

    def _run_trials(self, candidates: list[Candidate], fold: int, n_parallel: int) -> bool:
        """Run trials in parallel and record them in order. False if time is spent."""
        cancelled = threading.Event()

        def is_spent() -> bool:
            return cancelled.is_set() or self._budget.is_spent()

        jobs = (self._make_job(candidate, fold, is_spent) for candidate in candidates)
        with closing(run_parallel(jobs, n_parallel, cancelled.set)) as outcomes:
            for candidate, outcome in zip(candidates, outcomes, strict=True):
                if candidate.number >= len(self.candidates):
                    self.candidates.append(candidate)
                if not self._record(candidate, fold, outcome):
                    return False
        return True

    def _make_job(
        self, candidate: Candidate, fold: int, is_spent: Callable[[], bool]
    ) -> Callable[[], TrialOutcome | None]:
        """Return a trial that may run in a thread. Its result is None if time was spent before."""
        data = self.folds[fold]

        def run() -> TrialOutcome | None:
            if candidate.error or (self.ranking() and is_spent()):
                return None
            record = self._log.find(candidate.parameters, fold)
            if record is not None:
                return TrialOutcome(record)
            return self._run_trial(candidate, data, self._lowest_loss(fold), is_spent)

        return run

    def _run_trial(
        self, candidate: Candidate, data: Fold, leader: float, is_spent: Callable[[], bool]
    ) -> TrialOutcome:
        started = time.perf_counter()
        try:
            stopper = self._train(candidate.parameters, data, leader, is_spent)
        except ValueError as error:
            if candidate.number == 0:
                raise
            return TrialOutcome(TrialRecord([], 0.0, str(error)))
        record = TrialRecord(stopper.curve, time.perf_counter() - started)
        return TrialOutcome(record, stopper.timed_out, stopper.fitted, stopper.n_rounds)

    def _record(self, candidate: Candidate, fold: int, outcome: TrialOutcome | None) -> bool:
        """Record a trial after all that were started before it. False if time is spent."""
        if candidate.error:
            return True
        if outcome is None:
            return False
        record, is_cut = self._cut_hopeless(outcome, self._lowest_loss(fold))
        is_complete = is_cut or not outcome.timed_out
        if is_complete and self._log.find(candidate.parameters, fold) is None:
            self._log.add(candidate.parameters, fold, record)
        candidate.seconds += record.seconds
        if record.error:
            candidate.error = record.error
            self._report(f"candidate {candidate.number}: failed: {record.error}")
            return True
        if candidate.number == 0 and record.curve and min(record.curve) == math.inf:
            raise ValueError(
                "The metric is NaN after every round of the default parameters on fold "
                f"{fold + 1} of {len(self.folds)}: it may have too few validation rows, or one "
                "class only. Set other folds with cv, or another metric."
            )
        # A trial that timed out counts only if there is no other.
        if record.curve and (not outcome.timed_out or not self.ranking()):
            candidate.curves.append(record.curve)
            candidate.fitted.append(outcome.fitted)
            candidate.timed_out = not is_complete
            self._budget.reserve(self._estimate_final_fits())
            self._report_trial(candidate, fold)
        return not outcome.timed_out

    def _cut_hopeless(self, outcome: TrialOutcome, leader: float) -> tuple[TrialRecord, bool]:
        """Cut the trial where it would have stopped if it had started after all before it."""
        record = outcome.record
        n = stopping_round(record.curve, outcome.n_rounds, leader) if outcome.n_rounds else None
        return (record, False) if n is None else (record._replace(curve=record.curve[:n]), True)

    def _lowest_loss(self, fold: int) -> float:
        """Return the lowest loss of any candidate on a fold."""
        curves = [c.curves[fold] for c in self.candidates if c.n_folds > fold]
        return min((min(curve) for curve in curves), default=math.inf)

    def _estimate_final_fits(self) -> float:
        """Return the seconds to reserve for fitting the best candidates on all rows."""
        ranked = self.ranking()
        if self._fitted_defaults is not None:  # only the others have to be fitted
            ranked = [candidate for candidate in ranked if candidate.number > 0]
            if not ranked:
                return self._fitted_defaults.candidate_seconds
        fast = slow = 0.0
        for candidate in ranked[: self._n_members]:
            seconds = self.round_seconds(candidate) * candidate.rounds
            rates = [self._rates.get(p) for p in (candidate.parameters, candidate.proposed)]
            fast += seconds
            slow += seconds * rates[0] / rates[1]
        return min(slow, max(fast, FINAL_FIT_SHARE * self._budget.seconds))

    def round_seconds(self, candidate: Candidate) -> float:
        """Return the seconds of a round on all rows, estimated by the candidate's trials."""
        n_trained = sum(map(len, candidate.curves))
        return self.folds[0].growth * candidate.seconds / n_trained

    def _report_trial(self, candidate: Candidate, fold: int) -> None:
        best = self.ranking()[0]
        self._report(
            f"candidate {candidate.number}, fold {fold + 1} of {len(self.folds)}: loss "
            f"{candidate.loss:.6g}, {candidate.rounds} rounds; best {best.loss:.6g} (candidate "
            f"{best.number})  {candidate.parameters}"
        )
