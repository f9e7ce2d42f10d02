"""What a search found, as tables and text. Owns their form; must not know how the race is run."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import numpy as np

from polyleaf.data.dataset import Dataset
from polyleaf.model import Model
from polyleaf.search.trials import Candidate, winner_first

__all__ = ["Cost", "cost", "cv_results", "leaderboard", "report", "report_of_blend"]

REPORTED = 10  # candidates
TIMED_ROWS, TIMES = 1_000, 5


class Cost(NamedTuple):
    """What a model costs: bytes of its file, and microseconds a row to predict, bins not counted."""

    bytes: int
    microseconds: float


def cost(model: Model, dataset: Dataset, n_threads: int) -> Cost:
    """Measured on up to 1,000 rows, the fastest of five times."""
    rows = dataset.rows(np.arange(min(TIMED_ROWS, dataset.n_rows)))
    seconds = []
    for _ in range(TIMES):
        begun = time.perf_counter()
        model.predict_raw(rows, n_threads=n_threads)
        seconds.append(time.perf_counter() - begun)
    return Cost(len(model.to_bytes()), 1e6 * min(seconds) / rows.n_rows)


def cv_results(candidates: list[Candidate], n_folds: int, sign: float) -> dict[str, Any]:
    """One entry for each candidate in the order of trying, as scikit-learn's searches have it."""
    scores = np.full((len(candidates), n_folds), np.nan)
    for row, candidate in zip(scores, candidates, strict=True):
        row[: candidate.n_folds] = [sign * loss for loss in candidate.losses]
    place = {candidate.number: i + 1 for i, candidate in enumerate(winner_first(candidates))}
    tried = [candidate.n_folds > 0 for candidate in candidates]
    found: dict[str, Any] = {
        "params": [candidate.parameters for candidate in candidates],
        "origin": [candidate.origin for candidate in candidates],
        "n_estimators": np.array([candidate.rounds for candidate in candidates]),
        "n_folds": np.array([candidate.n_folds for candidate in candidates]),
        "mean_test_score": np.array(
            [
                sign * c.loss if is_tried else np.nan
                for c, is_tried in zip(candidates, tried, strict=True)
            ]
        ),
        "rank_test_score": np.array([place.get(c.number, len(place) + 1) for c in candidates]),
        "fit_time": np.array([candidate.seconds for candidate in candidates]),
        "refused": [candidate.refused for candidate in candidates],
    }
    return found | {f"split{j}_test_score": scores[:, j] for j in range(n_folds)}


def leaderboard(candidates: list[Candidate], sign: float) -> list[dict[str, Any]]:
    """Those that were tried, best first: those that went through more folds before the others."""
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
        for i, c in enumerate(winner_first(candidates))
    ]


def report(
    board: list[dict[str, Any]], metric: str, greater_is_better: bool, n_refused: int
) -> str:
    """The best ten, and how many there were."""
    way = "more" if greater_is_better else "less"
    lines = [
        f"{len(board)} candidates by {metric} ({way} is better), {n_refused} did not go with the data",
        f"{'rank':>4} {'score':>12} {'folds':>5} {'rounds':>6} {'seconds':>8}  parameters",
    ]
    for row in board[:REPORTED]:
        lines.append(
            f"{row['rank']:>4} {row['score']:>12.6g} {row['n_folds']:>5} {row['n_estimators']:>6} "
            f"{row['seconds']:>8.2f}  {_told(row['params'])}"
        )
    return "\n".join(lines)


def report_of_blend(members: list[dict[str, Any]], score: float, costs: tuple[Cost, Cost]) -> str:
    """The members with their weights, and what the blend costs beside its first member."""
    one, all_ = costs
    lines = [f"blend of {len(members)}, score {score:.6g}"]
    lines += [
        f"{member['weight']:>8.2f}  candidate {member['candidate']}: {_told(member['params'])}"
        for member in members
    ]
    return "\n".join(
        [
            *lines,
            f"{all_.bytes:,} bytes, {all_.microseconds:.1f} microseconds a row; the first alone "
            f"{one.bytes:,} bytes, {one.microseconds:.1f} microseconds",
        ]
    )


def _told(parameters: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in parameters.items()) or "as they come"
