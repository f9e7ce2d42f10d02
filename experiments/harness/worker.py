"""One run in a subprocess: job on standard input, record on standard output, as JSON."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from .. import memory
from ..sets import DataMissing
from . import paper
from .context import Context, Unavailable
from .store import Record, plain


def make_job(task: paper.Task, context: Context) -> dict[str, Any]:
    """Return a task as plain values."""
    return {"module": task.module, "key": task.key, "context": context.to_dict()}


def measure(job: dict[str, Any]) -> Record:
    """Execute a run.

    Return `key`, `figures`, `seconds` and `peak_bytes`; or `error` if the run is not possible here.
    """
    context = Context.from_dict(job["context"])
    task = next(t for t in paper.find(job["module"]).tasks() if t.key == job["key"])
    start = time.perf_counter()
    try:
        figures = task.run(context, task.method, task.problem)
    except (Unavailable, DataMissing) as reason:
        return {"key": task.key, "error": str(reason)}
    seconds = time.perf_counter() - start
    return {"key": task.key, "figures": figures, "seconds": seconds, "peak_bytes": memory.peak()}


def main() -> None:
    """Print the result as the last line, because libraries may print, too."""
    record = measure(json.load(sys.stdin))
    print("\n" + json.dumps(record, default=plain))


if __name__ == "__main__":
    main()
