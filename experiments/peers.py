"""Execution of cases: each measurement in a new process, the libraries in turn."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import Any

from . import problems, sets
from .cases import Case
from .libraries import is_installed
from .processes import Failed
from .report import NOT_INSTALLED
from .scores import SCORES

Measure = Callable[[dict[str, Any]], dict[str, Any]]


def run(
    cases: Sequence[Case],
    folder: Path | None,
    repeats: int,
    measure: Measure,
    log: Callable[[str], object] = lambda text: None,
) -> Iterator[dict[str, Any]]:
    """Measure cases, one after the other, the libraries of a case in turn.

    Yield cases in result file format. Contenders have the `runs` of `worker.measure`, one per
    repeat, and `error`: None, or why there are fewer runs.
    """
    for case in cases:
        log(f"{case.name}: {case.title}")
        records = [_record(case, library) for library in ("polyleaf", *case.libraries)]
        with tempfile.TemporaryDirectory(prefix="polyleaf-benchmark-") as data:
            try:
                problems.save(case.problem.make(folder), Path(data))
            except sets.DataMissing as missing:
                log(f"  skipped: {missing}")
                continue
            for turn, record in product(range(1, repeats + 1), records):
                if record["error"] is None:
                    outcome = _measure(case, record, data, measure)
                    log(f"  {turn}/{repeats} {record['label']}: {outcome}")
        about = {"name": case.name, "title": case.title, "focus": case.focus}
        yield {**about, "baseline": "polyleaf", "contenders": records}


def _measure(case: Case, record: dict[str, Any], data: str, measure: Measure) -> str:
    """Measure a library once, and return what came out of it."""
    job = {"library": record["library"], "settings": record["settings"], "data": data}
    job |= {"kind": case.problem.kind, "curve_points": case.curve_points}
    try:
        record["runs"].append(measure(job))
    except Failed as failure:
        record["error"] = str(failure)
        return str(failure)
    return f"fit {record['runs'][-1]['fit_seconds']:.3f} s"


def _record(case: Case, library: str) -> dict[str, Any]:
    score = SCORES[case.problem.kind]
    return {
        "label": library,
        "library": library,
        "problem": asdict(case.problem),
        "settings": asdict(case.settings),
        "score_name": score.name,
        "higher_is_better": score.higher_is_better,
        "runs": [],
        "error": None if is_installed(library) else NOT_INSTALLED,
    }
