"""Successive halving within a time limit: screening before the folds, and a final fit that fits in.

If the time limit is short relative to one trial, candidates are screened by sped-up trials on few
rows, the best of them are sped up on the folds, and time is kept for a slower final fit. The
defaults, if nothing is better, are fitted as plainly as without a search.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from typing import Any

from polyleaf.search.candidates import TIME_EXPONENT, LearningRateScale, Screening, ScreeningResult
from polyleaf.search.cv_splits import Fold
from polyleaf.search.successive_halving import (
    TIME_MARGIN,
    Budget,
    FinalFit,
    SubBudget,
    SuccessiveHalving,
    TrialOutcome,
    run_parallel,
)
from polyleaf.search.trials import Candidate

# Trials of the defaults that fit in the time limit: with more of them nothing is screened; with
# many more, resampled folds are used from the start.
MAX_SCREENED_TRIALS, MIN_RESAMPLED_TRIALS = 150.0, 450.0
# Shares of the remaining time: to screen the defaults, and to screen a generation.
PILOT_SHARE, SCREENING_SHARE = 0.12, 0.35
MAX_SCREENING_RATIO = 2.0  # longest screening trial, relative to that of the defaults
ENTRANT_SHARE = 1 / 3  # of screened candidates go on to the folds
FINAL_FIT_SHARE = 1 / 3  # of the time limit, at most, for a final fit slower than the trials
# With time for fewer plain fits of the defaults, no final fit is faster than its candidate.
MIN_PLAIN_FITS = 5.0
PLAIN_FIT_RATIO = 1.6  # seconds of a plain fit, which searches its rounds, relative to a final fit
REVALIDATION_SHARE = 0.2  # of the time limit, at most
TIMING_SHARE = 0.02  # of the time limit to time rounds, on few rows and on a fold
MAX_SMALL_ROUND_RATIO = 0.6  # time of a round on few rows, relative to a fold, that is worth it
_SCREENING_FOLD = -1  # number in the resume log


class BudgetedHalving(SuccessiveHalving):
    """Successive halving that screens candidates first if time is short.

    Parameters
    ----------
    *args
        Arguments of `SuccessiveHalving`. Resampled folds are used if there is much time.
    small : Fold
        Few rows of the first fold, for screening.
    """

    def __init__(self, *args: Any, small: Fold, rate_scale: LearningRateScale) -> None:
        super().__init__(*args)
        self._small, self._total_seconds = small, self._budget.remaining()
        self._screening = Screening(
            rate_scale,
            small.growth**TIME_EXPONENT,
            small.growth,
            self.folds[0].growth,
            self._n_parallel,
        )
        self._screening_fold = _SCREENING_FOLD
        self._is_short, self._is_tight, self._pilot_seconds = True, False, 0.0
        n_splits = self.folds.n_splits
        self._repeats = [list(range(i, i + n_splits)) for i in range(0, len(self.folds), n_splits)]
        self._is_out_of_time, self._is_revalidating = False, False

    def is_over(self) -> bool:
        return self._is_out_of_time or super().is_over()

    def final_fit(self, candidate: Candidate) -> FinalFit:
        """Return the fit on all rows, slowed down again as far as time allows."""
        scale, remaining = self._screening.rate_scale, self._budget.remaining()
        if candidate.curves:
            if self._n_members == 1 and self._fits_plainly(candidate, remaining):
                return FinalFit(candidate.proposed, None, 0)
            if candidate.speedup == 1.0:
                return super().final_fit(candidate)
            affordable = remaining / TIME_MARGIN / self._final_fit_seconds(candidate)
            slowdown = min(candidate.speedup, max(1.0, affordable / self._n_members))
            rounds = round(candidate.rounds * slowdown)
            parameters = scale.speed_up(candidate.parameters, 1 / slowdown)
            return FinalFit(parameters, rounds, rounds)
        assert candidate.screening is not None  # there is no other trial
        required = self._screening.final_seconds(
            candidate.screening, scale.rate(candidate.parameters)
        )
        speedup = min(
            scale.max_speedup(candidate.parameters), max(1.0, required / max(remaining, 1e-9))
        )
        parameters = scale.speed_up(candidate.parameters, speedup)
        trial = candidate.screening, scale.rate(parameters)
        if speedup == 1.0 and self._fits_plainly(candidate, remaining):
            return FinalFit(parameters, None, 0)
        # If rounds are faster than estimated, more of them are trained.
        return FinalFit(
            parameters,
            self._screening.max_final_rounds(*trial),
            self._screening.final_rounds(*trial),
        )

    def final_candidate(self) -> Candidate:
        """Return the best candidate, or the defaults if there is time only for their final fit."""
        best, defaults, remaining = self.ranking()[0], self.candidates[0], self._budget.remaining()
        if not best.curves or not defaults.curves or best.speedup == 1.0:
            return best
        if not self._is_tight or not self._fits_plainly(defaults, remaining):
            return best
        seconds = TIME_MARGIN * best.speedup * self._final_fit_seconds(best)
        return best if seconds <= remaining else defaults

    def _fits_plainly(self, candidate: Candidate, seconds: float) -> bool:
        """Return whether these are the defaults, and there is time for a plain fit of them."""
        if candidate.proposed or candidate.screening is None:
            return False
        rate_scale = self._screening.rate_scale
        required = self._screening.final_seconds(candidate.screening, rate_scale.rate({}))
        return rate_scale.is_free and TIME_MARGIN * PLAIN_FIT_RATIO * required <= seconds

    def ranking(self) -> list[Candidate]:
        """Return candidates with a score on folds; the defaults if time allowed no trial on a fold.

        Screening results alone never replace the defaults.
        """
        return super().ranking() or (self.candidates[:1] if self._is_out_of_time else [])

    def _screened(self) -> list[Candidate]:
        """Return the screened candidates, best first."""
        keys = [(c.screening.loss, c.number, c) for c in self.candidates if c.screening is not None]
        return [candidate for *_, candidate in sorted(keys, key=lambda key: key[:2])]

    def _parents(self) -> list[Candidate]:
        return super().ranking() + [c for c in self._screened() if not c.curves]

    def _select_entrants(self, candidates: list[Candidate]) -> list[Candidate]:
        if not self._is_short:
            return candidates
        is_first = not self.candidates
        if is_first and not self._screen_defaults(candidates.pop(0)):
            return self.candidates + candidates
        if self._is_out_of_time:
            return []
        budget = SubBudget(self._budget, SCREENING_SHARE * self._budget.remaining())
        self._screen_all(candidates, budget)
        screened = self._screened()
        if is_first:  # the defaults always enter
            defaults, n = self.candidates[0], max(2, math.ceil(len(screened) / 2))
            entrants = [defaults, *(c for c in screened[:n] if c is not defaults)]
        else:
            new = {candidate.number for candidate in candidates}
            n = math.ceil(ENTRANT_SHARE * len(screened))
            entrants = [c for c in screened[:n] if c.number in new]
        return self._speed_up(entrants)

    def _screen_defaults(self, defaults: Candidate) -> bool:
        """Screen the defaults. Return whether time is so short that screening saves any."""
        self._choose_rows(defaults)
        self._screen(defaults, PILOT_SHARE * self._budget.remaining())
        result = defaults.screening
        assert result is not None  # the defaults never fail
        rate = self._screening.rate_scale.rate(defaults.parameters)
        seconds = self._screening.fold_seconds(result, rate)
        n_trials = self._n_parallel * self._budget.remaining() / seconds
        plain_seconds = PLAIN_FIT_RATIO * self._screening.final_seconds(result, rate)
        self._is_tight = self._total_seconds < MIN_PLAIN_FITS * plain_seconds
        self._is_short, self._pilot_seconds = n_trials < MAX_SCREENED_TRIALS, result.seconds
        # Without time for two trials on a fold, all time is for the final fit.
        pair = [(defaults.parameters, result)] * 2
        remaining = (1 - SCREENING_SHARE) * self._budget.remaining()
        self._is_out_of_time = (
            self._is_short
            and self._screening.choose_speedup(pair, remaining, 2, not self._is_tight)[1] == 0
        )
        if n_trials >= MIN_RESAMPLED_TRIALS:
            self._iterations = self._repeats
        return self._is_short

    def _choose_rows(self, defaults: Candidate) -> None:
        """Screen on the fold itself if rounds on few rows are measured to be hardly faster.

        With small nodes and many outputs a round takes as long whatever the rows.
        """
        small_seconds = self._time_round(defaults, _SCREENING_FOLD)
        fold_seconds = self._time_round(defaults, 0)
        growth, fold_growth = self.folds[0].growth, self._small.growth
        if small_seconds > MAX_SMALL_ROUND_RATIO * fold_seconds:
            self._small, self._screening_fold = self.folds[0], 0
            small_seconds, fold_growth = fold_seconds, 1.0
        ratio = fold_seconds / small_seconds
        self._screening = Screening(
            self._screening.rate_scale, ratio, fold_growth, growth, self._n_parallel
        )

    def _time_round(self, candidate: Candidate, fold: int) -> float:
        before = self._budget.remaining()
        parameters = self._screening.speed_up(candidate.parameters)
        budget = SubBudget(self._budget, TIMING_SHARE * self._total_seconds)
        stopper = self._train(parameters, self._fold(fold), math.inf, budget)
        return max(1e-9, before - self._budget.remaining()) / len(stopper.curve)

    def _screen_all(self, candidates: list[Candidate], budget: SubBudget) -> None:
        """Screen, in parallel, as many candidates as there is time for."""

        def jobs() -> Iterator[Callable[[], TrialOutcome]]:
            for candidate in candidates:
                if budget.is_spent():
                    return
                seconds = MAX_SCREENING_RATIO * self._pilot_seconds
                yield partial(self._run_screening, candidate, budget, seconds)

        with closing(run_parallel(jobs(), self._n_parallel, budget.cancel)) as outcomes:
            for candidate, outcome in zip(candidates, outcomes, strict=False):
                self._record_screening(candidate, outcome)

    def _screen(self, candidate: Candidate, seconds: float) -> None:
        outcome = self._run_screening(candidate, self._budget, seconds)
        self._record_screening(candidate, outcome)

    def _run_screening(self, candidate: Candidate, budget: Budget, seconds: float) -> TrialOutcome:
        parameters = self._screening.speed_up(candidate.parameters)
        record = self._log.find(parameters, self._screening_fold)
        if record is not None:
            return TrialOutcome(record)
        losses = (c.screening.loss for c in self.candidates if c.screening is not None)
        data, share = self._fold(self._screening_fold), SubBudget(budget, seconds)
        return self._run_trial(candidate, parameters, data, min(losses, default=math.inf), share)

    def _record_screening(self, candidate: Candidate, outcome: TrialOutcome) -> None:
        parameters = self._screening.speed_up(candidate.parameters)
        self.candidates.append(candidate)
        record = self._log_outcome(parameters, self._screening_fold, outcome, math.inf)
        if record.error:
            self._report_error(candidate, record.error)
            return
        loss, n = min(record.curve), len(record.curve)
        rounds = 1 + record.curve.index(loss)
        rate, seconds = self._screening.rate_scale.rate(parameters), max(record.seconds, 1e-9)
        candidate.screening = ScreeningResult(loss, rounds, n, seconds, rate, outcome.timed_out)
        self._report(
            f"candidate {candidate.number}, screening: loss {loss:.6g}, {rounds} rounds  "
            f"{parameters}"
        )

    def _speed_up(self, entrants: list[Candidate]) -> list[Candidate]:
        """Return the entrants that there is time for, in order, sped up as far as needed."""
        screened = [(c.parameters, c.screening) for c in entrants if c.screening is not None]
        if not screened:
            return []
        # The defaults alone, at the start of a search, have nothing to be compared with.
        is_first = not super().ranking()
        min_candidates = min(2, len(screened)) if is_first else 1
        speedup, n = self._screening.choose_speedup(
            screened, self._budget.remaining(), min_candidates, not self._is_tight
        )
        self._is_out_of_time = n == 0
        if n < len(screened) and is_first:
            self._iterations = self._iterations[:1]  # use one fold only
        scale, entrants = self._screening.rate_scale, entrants[:n]
        speedups = scale.speedups([c.proposed for c in entrants], speedup)
        tried, unique = [c.parameters for c in self.candidates if c.curves], []
        for candidate, own in zip(entrants, speedups, strict=True):
            candidate.parameters = scale.speed_up(candidate.proposed, own)
            candidate.speedup = own
            if candidate.parameters not in tried:  # others may become equal at the highest rate
                tried.append(candidate.parameters)
                unique.append(candidate)
        return unique

    def _fold(self, fold: int) -> Fold:
        return self._small if fold == _SCREENING_FOLD else super()._fold(fold)

    def _reserve_first_trial(self, candidate: Candidate, fold: int) -> None:
        if candidate.screening is None:
            super()._reserve_first_trial(candidate, fold)
        else:
            parameters = candidate.proposed if self._is_tight else candidate.parameters
            rate = self._screening.rate_scale.rate(parameters)
            self._budget.reserve(self._screening.final_seconds(candidate.screening, rate))

    def _record(self, candidate: Candidate, fold: int, outcome: TrialOutcome | None) -> bool:
        if outcome is not None and candidate.screening is not None and outcome.record.curve:
            n_trained, seconds = len(outcome.record.curve), outcome.record.seconds
            self._screening.update_round_time(candidate.screening, n_trained, seconds)
        return super()._record(candidate, fold, outcome)

    def _reserve_final_fits(self) -> None:
        if self._n_members > 1:
            super()._reserve_final_fits()
            return
        best = self.ranking()[0]
        seconds = self._final_fit_seconds(best)
        slowed = best.speedup * seconds
        if not self._is_tight:
            slowed = min(slowed, max(seconds, FINAL_FIT_SHARE * self._total_seconds))
        self._budget.reserve(slowed + self._revalidation_seconds() / TIME_MARGIN)

    def revalidate_leaders(self) -> None:
        self._is_revalidating = True
        if self.ranking() and self.ranking()[0].curves:
            self._reserve_final_fits()
        super().revalidate_leaders()

    def _leaders(self) -> list[Candidate]:
        """Return as many leaders as there is time for on all folds of one repeat."""
        leaders, max_seconds = super()._leaders(), REVALIDATION_SHARE * self._total_seconds
        while leaders and self.folds.n_splits * _sum_fold_seconds(leaders) > max_seconds:
            leaders.pop()
        return leaders if len(leaders) > 1 else []

    def _revalidation_seconds(self) -> float:
        """Return the seconds to reserve for validating the leaders again."""
        if self._is_revalidating:
            return 0.0
        n_folds = len(self.folds) - self.folds.n_splits
        max_seconds = REVALIDATION_SHARE * self._total_seconds
        return min(max_seconds, n_folds * _sum_fold_seconds(self._leaders()))


def _sum_fold_seconds(candidates: list[Candidate]) -> float:
    """Return the seconds of one trial of each candidate."""
    return sum(c.seconds / c.n_folds for c in candidates)
