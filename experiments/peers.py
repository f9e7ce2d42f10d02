"""Execution of cases: each measurement in a new process, with the contenders interleaved."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from . import problems, processes, sets
from .cases import Case, Contender
from .libraries import is_installed
from .processes import Failed
from .report import NOT_INSTALLED
from .scores import SCORES

Measure = Callable[[dict[str, Any]], dict[str, Any]]


def make_subprocess_measure(timeout: float) -> Measure:
    """Return a `measure` that runs worker.py with the number of OpenMP threads in the job."""

    def measure(job: dict[str, Any]) -> dict[str, Any]:
        return processes.call(f"{__package__}.worker", job, job["settings"]["threads"], timeout)

    return measure


def run(
    cases: Sequence[Case],
    folder: Path | None,
    repeats: int,
    measure: Measure,
    log: Callable[[str], object] = lambda text: None,
) -> Iterator[dict[str, Any]]:
    """Measure cases, one after the other.

    Yields
    ------
    dict
        Cases in result file format: `name`, `title`, `baseline`, `focus`, `contenders`; each of
        these has `label`, `library`, `problem`, `settings`, `score_name`, `higher_is_better`,
        `runs` (`worker.measure`, one per repeat) and `error` (None, or why there are fewer
        runs).
    """
    for case in cases:
        log(f"{case.name}: {case.title}")
        with tempfile.TemporaryDirectory(prefix="polyleaf-benchmark-") as scratch:
            try:
                data = _prepare(case, folder, Path(scratch))
            except sets.DataMissing as missing:
                log(f"  skipped: {missing}")
                continue
            yield _run_case(case, data, repeats, measure, log)


def _prepare(case: Case, folder: Path | None, scratch: Path) -> dict[str, str]:
    """Write each problem's data once, and return the folder of each contender."""
    made: list[problems.Problem] = []
    folders = {}
    for contender in case.contenders:
        if contender.problem not in made:
            problems.save(contender.problem.make(folder), scratch / str(len(made)))
            made.append(contender.problem)
        folders[contender.label] = str(scratch / str(made.index(contender.problem)))
    return folders


def _run_case(
    case: Case, data: dict[str, str], repeats: int, measure: Measure, log: Callable[[str], object]
) -> dict[str, Any]:
    records = [_record(contender) for contender in case.contenders]
    for repeat in range(repeats):
        for record in records:
            if record["error"] is not None:
                continue
            job = {
                "library": record["library"],
                "kind": record["problem"]["kind"],
                "settings": record["settings"],
                "data": data[record["label"]],
                "curve_points": case.curve_points,
            }
            try:
                figures = measure(job)
            except Failed as failure:
                record["error"] = str(failure)
                log(f"  {repeat + 1}/{repeats} {record['label']}: {failure}")
                continue
            record["runs"].append(figures)
            log(f"  {repeat + 1}/{repeats} {record['label']}: fit {figures['fit_seconds']:.3f} s")
    return {
        "name": case.name,
        "title": case.title,
        "baseline": case.baseline,
        "focus": case.focus,
        "contenders": records,
    }


def _record(contender: Contender) -> dict[str, Any]:
    score = SCORES[contender.problem.kind]
    return {
        **asdict(contender),
        "score_name": score.name,
        "higher_is_better": score.higher_is_better,
        "runs": [],
        "error": None if is_installed(contender.library) else NOT_INSTALLED,
    }
