"""Execution of the missing runs of studies, one after the other."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from .. import report, sets
from ..processes import Failed
from ..sets import DataMissing
from . import worker
from .context import Context
from .paper import Task
from .store import Record, Store

Measure = Callable[[dict[str, Any]], Record]


def measure_in_process(job: dict[str, Any]) -> Record:
    """Execute a run in this process, without a time limit and without repeated imports."""
    try:
        return worker.measure(job)
    except Exception as error:  # libraries may raise any exception; continue with the next run
        raise Failed(f"{type(error).__name__}: {error}") from error


def run(
    tasks: Iterable[Task], context: Context, store: Store, measure: Measure, *, again: bool = False
) -> list[Task]:
    """Execute the runs that are not in the store yet, or all `again`; return the failed ones.

    A failed run is stored with its reason, and the next one follows. Runs whose data or library is
    missing are not failed ones.
    """
    to_do, skipped = [], Counter[str]()
    for task in tasks:
        missing = _missing(task, context)
        if missing:
            skipped[missing] += 1
        elif again or not store.done(task.key):
            to_do.append(task)
    for missing, n in skipped.items():
        log(f"skipped: {n} runs: {missing}")
    if not to_do:
        return []
    store.begin({**report.environment(), "quick": context.quick, "threads": context.threads})
    failed = []
    for number, task in enumerate(to_do, 1):
        begun = time.perf_counter()
        try:
            record = measure(worker.make_job(task, context))
        except Failed as failure:
            record = {"key": task.key, "error": str(failure)}
            failed.append(task)
        store.add(record)
        outcome = record.get("error") or f"{time.perf_counter() - begun:.1f} s"
        log(f"{number}/{len(to_do)} {task.key}: {outcome}")
    return failed


def _missing(task: Task, context: Context) -> str:
    for name in task.needs:
        try:
            sets.find(context.data, name)
        except DataMissing as reason:
            return str(reason)
    return ""


def log(text: str) -> None:
    """Print to standard error; tables are printed to standard output."""
    print(text, file=sys.stderr, flush=True)
