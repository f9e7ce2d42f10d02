"""Candidates with their losses on the folds, and the results of a search as tables and text.

Scores are losses here: metrics that are better when greater are negated.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from polyleaf.binned_data.dataset import Dataset
from polyleaf.metrics import Metric
from polyleaf.model import Model
from polyleaf.runtime.types import Parameters

if TYPE_CHECKING:
    from polyleaf.estimators.base import PolyleafEstimator
    from polyleaf.runtime.types import JsonObject

# Standard errors by which a candidate, the best of many, must be better than the defaults.
N_STANDARD_ERRORS = 2.0
# With one fold: minimum gain of a candidate over the defaults, as a share of what these have
# learned.
MIN_RELATIVE_GAIN = 0.01


@dataclass
class Candidate:
    """A set of parameters and the results of its trials."""

    number: int  # Position in the order of evaluation, from 0. Number 0 is the defaults.
    # parameters of its trials that differ from those of the searching estimator
    parameters: Parameters
    origin: str  # {"portfolio", "variation"}
    # the same at its own learning rate, if the time limit has raised the rate of the trials
    proposed: Parameters
    # for each fold evaluated, in order: the loss after each round
    curves: list[list[float]] = field(default_factory=list)
    seconds: float = 0.0  # total time of its trials
    error: str = ""  # why the parameters cannot be used with the data; empty if they can
    # for each fold evaluated: the fitted estimator if it is kept, or None
    fitted: list[PolyleafEstimator | None] = field(default_factory=list)
    timed_out: bool = False  # whether its only trial was ended by the time limit
    _summarised_folds: int = field(default=0, init=False, repr=False)
    _summary: tuple[int, list[float], float] = field(
        default=(0, [], np.inf), init=False, repr=False
    )

    @property
    def n_folds(self) -> int:
        """Number of folds evaluated."""
        return len(self.curves)

    @property
    def rounds(self) -> int:
        """Rounds of the best mean loss over the folds; 0 without a trial."""
        return self._summarise()[0] if self.curves else 0

    @property
    def losses(self) -> list[float]:
        """Loss on each fold after `rounds` rounds."""
        return list(self._summarise()[1]) if self.curves else []

    @property
    def loss(self) -> float:
        """Mean of `losses`; infinite without a trial."""
        return self._summarise()[2] if self.curves else np.inf

    def _summarise(self) -> tuple[int, list[float], float]:
        """Return rounds, losses and mean loss, cached until the next fold is evaluated."""
        if self._summarised_folds != self.n_folds:
            longest = max(map(len, self.curves))  # shorter ones are extended by their last loss
            padded = [curve + curve[-1:] * (longest - len(curve)) for curve in self.curves]
            last = int(np.argmin(np.mean(padded, axis=0)))
            losses = [curve[min(last, len(curve) - 1)] for curve in self.curves]
            self._summarised_folds = self.n_folds
            self._summary = (1 + last, losses, float(np.mean(losses)))
        return self._summary


def rank_candidates(candidates: list[Candidate]) -> list[Candidate]:
    """Sort candidates with a trial by their number of folds, then loss, then number."""
    return sorted((c for c in candidates if c.curves), key=lambda c: (-c.n_folds, c.loss, c.number))


def rank_with_defaults(candidates: list[Candidate]) -> list[Candidate]:
    """Rank candidates, with the defaults before those that are not better by more than noise."""
    ranked = rank_candidates(candidates)
    defaults = next((c for c in ranked if c.number == 0), None)
    others = [c for c in ranked if c is not defaults]
    if defaults is None or not others:
        return ranked
    if _is_better(others[0], defaults):
        return [others[0], defaults, *others[1:]]
    return [defaults, *others]


def _is_better(candidate: Candidate, defaults: Candidate) -> bool:
    """Check that the mean gain over the defaults exceeds two standard errors over the folds."""
    n = min(candidate.n_folds, defaults.n_folds)
    if np.isinf(candidate.losses[:n]).any():  # the metric was NaN, e.g. training diverged
        return False
    gains = np.subtract(defaults.losses[:n], candidate.losses[:n])
    if n == 1:
        curve = defaults.curves[0]
        return float(gains[0]) > MIN_RELATIVE_GAIN * (curve[0] - min(curve))
    return float(gains.mean()) > N_STANDARD_ERRORS * float(gains.std(ddof=1)) / np.sqrt(n)


MAX_REPORTED = 10  # candidates
TIMED_ROWS, N_TIMINGS = 1_000, 5


class ModelCost(NamedTuple):
    """Bytes of a model file, and microseconds per row of prediction without binning."""

    bytes: int
    microseconds: float


def measure_cost(model: Model, dataset: Dataset, n_threads: int) -> ModelCost:
    """Measure on up to 1,000 rows; the time is the shortest of five."""
    rows = dataset.rows(np.arange(min(TIMED_ROWS, dataset.n_rows)))
    seconds = []
    for _ in range(N_TIMINGS):
        started = time.perf_counter()
        model.predict_raw(rows, n_threads=n_threads)
        seconds.append(time.perf_counter() - started)
    return ModelCost(len(model.to_bytes()), 1e6 * min(seconds) / rows.n_rows)


def make_cv_results(candidates: list[Candidate], n_folds: int, metric: Metric) -> dict[str, Any]:
    """Return columns with an entry per candidate, in the layout of scikit-learn's searches."""
    scores = np.full((len(candidates), n_folds), np.nan)
    for row, candidate in zip(scores, candidates, strict=True):
        row[: candidate.n_folds] = [metric.from_loss(loss) for loss in candidate.losses]
    ranks = {candidate.number: i + 1 for i, candidate in enumerate(rank_with_defaults(candidates))}
    mean_scores = [metric.from_loss(c.loss) if c.n_folds else np.nan for c in candidates]
    columns: dict[str, object] = {
        "params": [candidate.parameters for candidate in candidates],
        "origin": [candidate.origin for candidate in candidates],
        "n_estimators": np.array([candidate.rounds for candidate in candidates]),
        "n_folds": np.array([candidate.n_folds for candidate in candidates]),
        "mean_test_score": np.array(mean_scores),
        "rank_test_score": np.array([ranks.get(c.number, len(ranks) + 1) for c in candidates]),
        "fit_time": np.array([candidate.seconds for candidate in candidates]),
        "error": [candidate.error for candidate in candidates],
    }
    return columns | {f"split{j}_test_score": scores[:, j] for j in range(n_folds)}


def make_leaderboard(candidates: list[Candidate], metric: Metric) -> list[JsonObject]:
    """Return the evaluated candidates, best first; those with more folds come before the others."""
    return [
        {
            "rank": i + 1,
            "candidate": c.number,
            "score": metric.from_loss(c.loss),
            "n_folds": c.n_folds,
            "n_estimators": c.rounds,
            "seconds": c.seconds,
            "params": c.parameters,
        }
        for i, c in enumerate(rank_with_defaults(candidates))
    ]


def format_leaderboard(
    leaderboard: list[JsonObject], metric: str, greater_is_better: bool, n_failed: int
) -> str:
    """Format the best ten candidates and their number as text."""
    direction = "greater" if greater_is_better else "lower"
    lines = [
        f"n_candidates: {len(leaderboard)} ({n_failed} failed), metric: {metric} "
        f"({direction} is better)",
        f"{'rank':>4} {'score':>12} {'folds':>5} {'rounds':>6} {'seconds':>8}  params",
    ]
    for row in leaderboard[:MAX_REPORTED]:
        lines.append(
            f"{row['rank']:>4} {row['score']:>12.6g} {row['n_folds']:>5} {row['n_estimators']:>6} "
            f"{row['seconds']:>8.2f}  {_format_params(row['params'])}"
        )
    return "\n".join(lines)


def format_blend(
    members: list[JsonObject], score: float, costs: tuple[ModelCost, ModelCost]
) -> str:
    """Format the members with their weights, and the costs of the first member and of the blend."""
    first, blend = costs
    lines = [f"blend of {len(members)} candidates, score {score:.6g}"]
    lines += [
        f"{member['weight']:>8.2f}  candidate {member['candidate']}: "
        f"{_format_params(member['params'])}"
        for member in members
    ]
    cost = (
        f"{blend.bytes:,} bytes, {blend.microseconds:.1f} microseconds per row; the first member "
        f"alone: {first.bytes:,} bytes, {first.microseconds:.1f} microseconds"
    )
    return "\n".join([*lines, cost])


def _format_params(parameters: Parameters) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in parameters.items()) or "defaults"
