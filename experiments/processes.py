"""Execution of a measurement in a new process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


class Failed(Exception):
    """Raised if a measurement gives no figures; the message contains the reason."""


def call(module: str, n_threads: int, timeout: float, job: dict[str, Any]) -> dict[str, Any]:
    """Run `python -m module` with `job` as JSON on its standard input.

    Return the JSON of its last line of output. OpenMP and BLAS get `n_threads`. Raise `Failed` if
    it takes longer than `timeout` seconds or ends with an error.
    """
    threads = {f"{name}_NUM_THREADS": str(n_threads) for name in ("OMP", "OPENBLAS", "MKL")}
    try:
        done = subprocess.run(
            [sys.executable, "-m", module],
            input=json.dumps(job),
            capture_output=True,
            text=True,
            timeout=timeout,
            cwd=ROOT,
            env=os.environ | threads,
        )
    except subprocess.TimeoutExpired:
        raise Failed(f"took longer than {timeout:.0f} s") from None
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or ["no message"]
        raise Failed(f"exit code {done.returncode}: {lines[-1]}")
    return json.loads(done.stdout.splitlines()[-1])
