"""Results of a search as tables and text."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import numpy as np

from polyleaf.data.dataset import Dataset
from polyleaf.model import Model
from polyleaf.search.trials import Candidate, rank_with_defaults

__all__ = [
    "ModelCost",
    "format_blend",
    "format_leaderboard",
    "make_cv_results",
    "make_leaderboard",
    "measure_cost",
]

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


def make_cv_results(candidates: list[Candidate], n_folds: int, sign: float) -> dict[str, Any]:
    """Return columns with an entry per candidate, in the layout of scikit-learn's searches."""
    scores = np.full((len(candidates), n_folds), np.nan)
    for row, candidate in zip(scores, candidates, strict=True):
        row[: candidate.n_folds] = [sign * loss for loss in candidate.losses]
    ranks = {candidate.number: i + 1 for i, candidate in enumerate(rank_with_defaults(candidates))}
    mean_scores = [sign * c.loss if c.n_folds > 0 else np.nan for c in candidates]
    columns: dict[str, Any] = {
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


def make_leaderboard(candidates: list[Candidate], sign: float) -> list[dict[str, Any]]:
    """Return the evaluated candidates, best first; those with more folds come before the others."""
    return [
        {
            "rank": i + 1,
            "candidate": c.number,
            "score": sign * c.loss,
            "n_folds": c.n_folds,
            "n_estimators": c.rounds,
            "seconds": c.seconds,
            "params": c.parameters,
        }
        for i, c in enumerate(rank_with_defaults(candidates))
    ]


def format_leaderboard(
    leaderboard: list[dict[str, Any]], metric: str, greater_is_better: bool, n_failed: int
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
    members: list[dict[str, Any]], score: float, costs: tuple[ModelCost, ModelCost]
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
        "alone: "
        f"{first.bytes:,} bytes, {first.microseconds:.1f} microseconds"
    )
    return "\n".join([*lines, cost])


def _format_params(parameters: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in parameters.items()) or "defaults"
