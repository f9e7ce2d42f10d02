"""Measurement in a new process: job on standard input, figures on standard output, as JSON."""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from . import memory, problems
from .libraries import LIBRARIES, Library, Settings, warm_up
from .scores import SCORES

PREDICTIONS = 3  # timed repeats; the median is reported


def measure(job: dict[str, Any]) -> dict[str, Any]:
    """Fit, predict and score once.

    `job` has `library` (key of `LIBRARIES`), `kind`, `settings` (fields of `Settings`), `data`
    (folder of .npy files) and `curve_points`. `peak_above_data_bytes` is the most memory during
    fit, above what was held before; `fit_cpu_seconds` are those of all threads; `curve` are lists
    of rounds, seconds since the fit began, and test score.
    """
    settings = Settings(**job["settings"])
    data = problems.load(Path(job["data"]))
    warm_up(job["library"], job["kind"], settings)
    library = LIBRARIES[job["library"]](job["kind"], settings)

    memory.give_back()
    memory.forget_peak()
    held = memory.resident()
    start, cpu_start = time.perf_counter(), time.process_time()
    library.fit(data)
    seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - cpu_start
    peak = memory.peak()

    predicted, predict_seconds = _timed(lambda: library.predict(data["X_test"]))
    return {
        "fit_seconds": seconds,
        "fit_cpu_seconds": cpu_seconds,
        "peak_above_data_bytes": max(0, peak - held),
        "peak_bytes": peak,
        "predict_seconds": predict_seconds,
        "score": SCORES[job["kind"]].function(data["y_test"], predicted),
        "rounds": library.n_rounds(),
        "model_bytes": library.model_bytes(),
        "curve": _curve(library, data, start, job["curve_points"]),
    }


def _timed(call: Callable[[], np.ndarray]) -> tuple[np.ndarray, float]:
    seconds = []
    for _ in range(PREDICTIONS):
        start = time.perf_counter()
        result = call()
        seconds.append(time.perf_counter() - start)
    return result, statistics.median(seconds)


def _curve(
    library: Library, data: problems.Arrays, start: float, n_points: int
) -> list[list[float]]:
    """Return [rounds, seconds, score]: test scores of shorter models, and when they were reached.

    The scoring is not timed.
    """
    last, ends, y = library.n_rounds(), library.round_ends, data["y_test"]
    if n_points == 0 or len(ends) < last:
        return []
    score = SCORES[library.kind].function
    rounds = map(int, curve_rounds(last, n_points))
    return [[r, ends[r - 1] - start, score(y, library.predict(data["X_test"], r))] for r in rounds]


def curve_rounds(last: int, n_points: int) -> np.ndarray:
    """Return up to `n_points` numbers of rounds from 1 to `last`, logarithmically spaced."""
    return np.unique(np.geomspace(1, last, n_points).round().astype(int))


def main() -> None:
    """Print the result as the last line, because libraries may print, too."""
    result = measure(json.load(sys.stdin))
    print("\n" + json.dumps(result))


if __name__ == "__main__":
    main()
