"""Sets of parameters to try: the portfolio, variations of the best, and screening on few rows.

The portfolio was selected by `experiments/portfolio.py`. Screening fits sped-up trials on few rows,
and estimates the time of trials and of final fits.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from polyleaf.runtime.types import Parameters
from polyleaf.settings.parameters import DEFAULT_N_ESTIMATORS, DEFAULTS
from polyleaf.training.fit import MAX_ROWS

# For each kind of task, in the order of evaluation: the defaults, the defaults at half the learning
# rate, then the combinations that are best on most benchmark data sets.
_RATE = 0.05
# Large trees on subsamples of rows, with few features per node.
_RANDOM: Parameters = {
    "learning_rate": _RATE,
    "max_leaves": 63,
    "min_child_samples": 20,
    "reg_lambda": 0.1,
    "colsample_bynode": 0.125,
    "subsample": 0.7,
    "hessian": "none",
}
PORTFOLIO: dict[str, tuple[Parameters, ...]] = {
    "regression": (
        {},
        {"learning_rate": _RATE},
        {"learning_rate": _RATE, "leaf": "linear"},
        {"learning_rate": _RATE, "colsample_bynode": 1.0},
        {"learning_rate": _RATE, "leaf": "linear", "max_leaves": 15},
        {"learning_rate": _RATE, "min_child_samples": 10, "reg_lambda": 0.1, "subsample": 0.5},
        {"learning_rate": _RATE, "min_child_samples": 10},
        {
            "learning_rate": _RATE,
            "boosting_step": "layer",
            "grow_policy": "depthwise",
            "max_depth": 5,
        },
        {"learning_rate": _RATE, "output_groups": "auto"},
        {"learning_rate": _RATE, "multi_strategy": "one_output_per_tree", "max_leaves": 15},
        {"learning_rate": _RATE, "max_leaves": 8},
        {"learning_rate": _RATE, "subsample": 0.7},
    ),
    "classes": (
        {},
        {"learning_rate": _RATE},
        _RANDOM,
        {"learning_rate": _RATE, "max_leaves": 8},
        {
            "learning_rate": _RATE,
            "leaf": "linear",
            "max_leaves": 8,
            "min_child_samples": 20,
            "subsample": 0.7,
        },
        {"learning_rate": _RATE, "leaf": "linear"},
        {"learning_rate": _RATE, "leaf": "linear", "max_leaves": 15},
        {"learning_rate": _RATE, "hessian": "none", "max_leaves": 15},
        {"learning_rate": _RATE, "min_child_samples": 20, "subsample": 0.7},
        {"learning_rate": _RATE, "hessian": "full"},
        {"learning_rate": _RATE, "multi_strategy": "one_output_per_tree", "max_leaves": 15},
    ),
    "labels": (
        {},
        {"learning_rate": _RATE},
        {"learning_rate": _RATE, "hessian": "none", "max_leaves": 15},
        _RANDOM,
        {"learning_rate": _RATE, "hessian": "none"},
        {"learning_rate": _RATE, "reg_lambda": 4.0},
        {"learning_rate": _RATE, "max_leaves": 4, "colsample_bynode": 1.0},
        {"learning_rate": _RATE, "max_leaves": 8},
        {"learning_rate": _RATE, "leaf": "linear", "max_leaves": 15},
        {"learning_rate": _RATE, "output_groups": "auto"},
        {"learning_rate": _RATE, "min_child_samples": 20, "subsample": 0.7},
    ),
}
# Values of a parameter: a variation moves to the next lower or higher one.
LADDERS: dict[str, Sequence[float]] = {
    "learning_rate": (0.0125, 0.025, 0.05, 0.1, 0.2),
    "max_leaves": (4, 8, 15, 31, 63, 127, 255),
    "min_child_samples": (1, 5, 10, 20, 50),
    "reg_lambda": (0.1, 0.3, 1.0, 4.0, 16.0),
    "colsample_bynode": (0.125, 0.25, 0.5, 0.75, 1.0),
    "subsample": (0.4, 0.55, 0.7, 0.85, 1.0),
}
MAX_FULL_HESSIAN_CLASSES = 26  # the time of a round with a full Hessian grows with the classes
N_PARENTS = 3  # best candidates that are varied
_MAX_STEPS = 3  # parameters that one variation changes


def get_portfolio(task: str) -> tuple[Parameters, ...]:
    """Return the portfolio of a task, named as in `filter_applicable`."""
    kinds = {
        "regression": "regression",
        "binary": "classes",
        "multiclass": "classes",
        "multilabel": "labels",
    }
    return PORTFOLIO[kinds[task]]


def filter_applicable(
    candidates: Sequence[Parameters],
    fixed: Collection[str],
    task: str,
    n_outputs: int,
    linear: bool,
) -> list[Parameters]:
    """Return the candidates that apply to the data, without fixed parameters and duplicates.

    Parameters
    ----------
    candidates : sequence of dict
    fixed : collection of str
        Parameters that the user has set.
    task : {"regression", "binary", "multiclass", "multilabel"}
    linear : bool
        Whether raw features are available to linear leaves.
    """
    has_several_outputs = task != "binary" and n_outputs > 1
    applicable: list[Parameters] = []
    for candidate in candidates:
        free = {name: value for name, value in candidate.items() if name not in fixed}
        if free.get("hessian") == "full" and not (
            task == "multiclass" and n_outputs <= MAX_FULL_HESSIAN_CLASSES
        ):
            continue
        divides_outputs = not free.keys().isdisjoint(("multi_strategy", "output_groups"))
        if (divides_outputs and not has_several_outputs) or (
            free.get("leaf") == "linear" and not linear
        ):
            continue
        if free not in applicable:
            applicable.append(free)
    return applicable


def generate_variations(
    parents: Sequence[Parameters], defaults: Parameters, fixed: Collection[str], seed: int
) -> Iterator[Parameters]:
    """Yield, endlessly, a parent with up to three parameters moved by one step.

    Parameters
    ----------
    parents : sequence of dict
    defaults : dict
        Values of parameters that a parent does not set.
    fixed : collection of str
        Parameters that must not change.
    """
    rng = np.random.default_rng(seed)
    names = [name for name in LADDERS if name not in fixed]
    while names:
        child: Parameters = dict(parents[int(rng.integers(len(parents)))])
        order = rng.permutation(len(names))
        for i in order[: int(rng.integers(1, _MAX_STEPS + 1))].tolist():
            name = names[i]
            value = {**defaults, **child}[name]
            child[name] = _move_step(LADDERS[name], value, bool(rng.integers(2)))
        yield child


def _move_step(ladder: Sequence[float], value: float, up: bool) -> float:
    """Return the next higher or lower value; the value itself at an end of the ladder."""
    beyond = [step for step in ladder if (step > value if up else step < value)]
    if not beyond:
        return value
    return min(beyond) if up else max(beyond)


SCREENING_SPEEDUP = 4.0  # factor of the learning rate in screening
MAX_LEARNING_RATE = 0.3  # bound of sped-up learning rates
# n times as many rows need about n ** ROUNDS_EXPONENT times as many rounds, and each round takes
# n ** TIME_EXPONENT times as long, unless it was measured.
ROUNDS_EXPONENT, TIME_EXPONENT = 0.5, 0.85
# Rounds times learning rate of the defaults: estimates do not exceed it.
DEFAULT_TOTAL_RATE = DEFAULT_N_ESTIMATORS * DEFAULTS["learning_rate"]


@dataclass(frozen=True)
class LearningRateScale:
    """Learning rates of candidates and how far they may be sped up.

    Parameters
    ----------
    rate : callable
        `rate(parameters)`: the learning rate of a candidate.
    is_free : bool
        Whether rates may be changed: False if the user has set `learning_rate` or `n_estimators`.
    n_rows : int
        Number of rows of the whole data.
    """

    rate: Callable[[Parameters], float]
    is_free: bool
    n_rows: int

    def max_speedup(self, parameters: Parameters) -> float:
        """Return the largest factor that the learning rate may be multiplied by."""
        return max(1.0, MAX_LEARNING_RATE / self.rate(parameters)) if self.is_free else 1.0

    def speedups(self, candidates: Sequence[Parameters], speedup: float) -> list[float]:
        """Return the factor of each candidate when the slowest is sped up by `speedup`.

        All are raised to the same learning rate, except for those that have a higher one already: a
        candidate that learns faster than another has a worse loss for this reason alone.
        """
        if not self.is_free:
            return [1.0] * len(candidates)
        rates = [self.rate(parameters) for parameters in candidates]
        rate = speedup * min(rates, default=0.0)
        return [
            min(max(1.0, rate / own), self.max_speedup(p))
            for own, p in zip(rates, candidates, strict=True)
        ]

    def speed_up(self, parameters: Parameters, speedup: float) -> Parameters:
        """Return the parameters with the learning rate multiplied, and `n_estimators` divided."""
        if speedup == 1.0:
            return parameters
        sped_up = {**parameters, "learning_rate": round(self.rate(parameters) * speedup, 6)}
        if "n_estimators" in parameters:
            sped_up["n_estimators"] = round(parameters["n_estimators"] / speedup)
        return sped_up


class ScreeningResult(NamedTuple):
    """Outcome of a candidate's screening trial."""

    loss: float
    rounds: int  # rounds of the lowest loss
    n_trained: int
    seconds: float
    rate: float  # learning rate of the trial
    timed_out: bool  # time was over before early stopping


class Screening:
    """Estimates, from screening trials, of trials on folds and of the final fit.

    Parameters
    ----------
    round_time_ratio : float
        Seconds of a round on a fold divided by those of a round in screening.
    fold_growth, growth : float
        Rows of a fold divided by rows of screening, and rows of the final fit divided by those of a
        fold. With `fold_growth=1.0` screening trials run on the fold itself.
    n_parallel : int
        Trials that run in parallel; the final fit runs alone.
    """

    def __init__(
        self,
        rate_scale: LearningRateScale,
        round_time_ratio: float,
        fold_growth: float,
        growth: float,
        n_parallel: int = 1,
    ) -> None:
        self._n_parallel = n_parallel
        self.rate_scale, self._is_on_fold = rate_scale, fold_growth == 1.0
        self._rows_ratio, self._final_time_ratio = fold_growth * growth, growth**TIME_EXPONENT
        self._round_time_ratio = round_time_ratio

    def speed_up(self, parameters: Parameters, speedup: float = SCREENING_SPEEDUP) -> Parameters:
        """Return the parameters sped up as in screening, as far as they may be."""
        scale = self.rate_scale
        return scale.speed_up(parameters, min(speedup, scale.max_speedup(parameters)))

    def fold_seconds(self, result: ScreeningResult, rate: float) -> float:
        """Estimate the seconds of a trial on a fold."""
        return self._round_time_ratio * result.seconds * result.rate / rate

    def remaining_fold_seconds(self, result: ScreeningResult, rate: float) -> float:
        """Estimate the same; 0 if the screening trial was that very trial."""
        is_done = self._is_on_fold and result.rate == rate and not result.timed_out
        return 0.0 if is_done else self.fold_seconds(result, rate)

    def final_seconds(self, result: ScreeningResult, rate: float) -> float:
        """Estimate the seconds of the final fit."""
        round_seconds = self._round_time_ratio * self._final_time_ratio * result.seconds
        return round_seconds / result.n_trained * self.final_rounds(result, rate)

    def final_rounds(self, result: ScreeningResult, rate: float) -> int:
        """Estimate the rounds that the final fit needs."""
        total_rate = result.rounds * result.rate
        # After a time-out the need is unknown; so many do not yet harm probabilities.
        scaled = (
            DEFAULT_TOTAL_RATE / 2
            if result.timed_out
            else min(total_rate * self._rows_ratio**ROUNDS_EXPONENT, DEFAULT_TOTAL_RATE)
        )
        return max(1, round(max(total_rate, scaled) / rate))

    def max_final_rounds(self, result: ScreeningResult, rate: float) -> int:
        """Estimate the rounds that do no harm yet, if there is time for more than needed."""
        rows_share = min(1.0, self.rate_scale.n_rows / MAX_ROWS)
        harmless = DEFAULT_TOTAL_RATE * rows_share**ROUNDS_EXPONENT
        return max(
            round(harmless / rate) if result.timed_out else 0, self.final_rounds(result, rate)
        )

    def update_round_time(self, result: ScreeningResult, n_trained: int, seconds: float) -> None:
        """Correct the time of rounds by a trial on a fold."""
        self._round_time_ratio = seconds / n_trained / (result.seconds / result.n_trained)

    def choose_speedup(
        self,
        screened: Sequence[tuple[Parameters, ScreeningResult]],
        seconds: float,
        min_candidates: int = 1,
        speeds_up_final_fit: bool = True,
    ) -> tuple[float, int]:
        """Choose the smallest speed-up with which trials and final fit take at most `seconds`.

        Returns
        -------
        speedup : float
        n : int
            Number of candidates, in order, that fit: all, else two, else one; 0 if these are fewer
            than `min_candidates`.
        """
        for n, share in ((len(screened), 0.6), (2, 0.8), (1, 0.9)):
            for speedup in (1.0, 2.0, SCREENING_SPEEDUP):
                is_possible = min_candidates <= n <= len(screened)
                if not is_possible:
                    continue
                total = self._total_seconds(screened[:n], speedup, speeds_up_final_fit)
                if total <= share * seconds:
                    return speedup, n
        return SCREENING_SPEEDUP, 0

    def _total_seconds(
        self,
        screened: Sequence[tuple[Parameters, ScreeningResult]],
        speedup: float,
        speeds_up_final_fit: bool,
    ) -> float:
        """Estimate the seconds of all trials on a fold and of the longest final fit."""
        speedups = self.rate_scale.speedups([parameters for parameters, _ in screened], speedup)
        trials = [
            (result, self.rate_scale.rate(self.rate_scale.speed_up(parameters, own)))
            for (parameters, result), own in zip(screened, speedups, strict=True)
        ]
        seconds = [self.remaining_fold_seconds(*trial) for trial in trials]
        on_folds = max(sum(seconds) / min(self._n_parallel, len(seconds)), max(seconds))
        if not speeds_up_final_fit:
            trials = [(result, self.rate_scale.rate(p)) for p, result in screened]
        return on_folds + max(self.final_seconds(*trial) for trial in trials)
