"""Finished runs in a file of JSON lines that grows by one line per run.

An interrupted run leaves no line. An incomplete last line is dropped.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from .. import report
from .paper import Figure, Paper, Table

Record = dict[str, Any]


class Store:
    """Runs by key; the last line of a key is valid. The file may not exist yet."""

    def __init__(self, path: Path):
        self.path = path
        self.records: dict[str, Record] = {}
        self.environments: list[dict[str, Any]] = []
        for line in self._lines():
            if "environment" in line:
                self.environments.append(line["environment"])
            else:
                self._keep(line)

    def _lines(self) -> list[dict[str, Any]]:
        if not self.path.is_file():
            return []
        lines = []
        whole, _, _ = self.path.read_text().rpartition("\n")
        for number, text in enumerate(whole.splitlines(), start=1):
            try:
                line = json.loads(text)
            except json.JSONDecodeError as error:
                raise ValueError(f"{self.path}, line {number}, is not JSON: {error}.") from error
            if not isinstance(line, dict) or not {"environment", "key"} & line.keys():
                raise ValueError(f"{self.path}, line {number}, is no record of a run.")
            lines.append(line)
        return lines

    def done(self, key: str) -> bool:
        """Return whether this run has figures; failed and skipped runs are tried again."""
        return self.figures(key) is not None

    def figures(self, key: str) -> dict[str, Any] | None:
        """Return the figures of the run; None if it is not finished."""
        return self.records.get(key, {}).get("figures")

    def found(self, paper: Paper, table: Table | Figure) -> dict[tuple[str, str], dict[str, Any]]:
        """Return the figures of a table's finished runs, by method and subject's title."""
        keys = ((m, s.title, paper.task(table, m, s).key) for m, s in table.runs())
        return {
            (m, title): figures
            for m, title, key in keys
            if (figures := self.figures(key)) is not None
        }

    def find_error(self, key: str) -> str | None:
        """Return why the run has no figures; None if it has figures or was never tried."""
        return self.records.get(key, {}).get("error")

    def is_stale(self, key: str, golden: Sequence[str]) -> bool:
        """Return whether the run is older than a change of the models named in `golden`."""
        if not self.done(key):
            return False
        ran_in = self.records[key]["ran_in"]
        if ran_in < 0:
            return True
        ran = datetime.fromisoformat(self.environments[ran_in]["date"])
        ran = ran if ran.tzinfo else ran.replace(tzinfo=UTC)  # dates without a time of day
        changes = report.find_model_changes()
        return any(ran < changes[name] for name in golden if name in changes)

    def find_environments(self, paper: Paper) -> list[dict[str, Any]]:
        """Return the environments of a paper's finished runs, in the order of the file."""
        used = {
            self.records[task.key].get("ran_in") for task in paper.tasks() if self.done(task.key)
        }
        return [environment for i, environment in enumerate(self.environments) if i in used]

    def begin(self, environment: dict[str, Any]) -> None:
        """Record the environment of the following runs: versions, processor, commit, and `quick`.

        Raise ValueError if the file has quick runs and the following ones are not quick, or vice
        versa.
        """
        for earlier in self.environments:
            if earlier.get("quick") != environment.get("quick"):
                kinds = ("quick", "full") if earlier.get("quick") else ("full", "quick")
                raise ValueError(
                    f"{self.path} holds {kinds[0]} runs; write {kinds[1]} ones to another file."
                )
        self.environments.append(environment)
        self._append({"environment": environment})

    def add(self, record: Record) -> None:
        """Store a run: `key`, `figures` or `error`, and additional information."""
        self._keep(record)
        self._append(record)

    def _keep(self, record: Record) -> None:
        """Store a run with the preceding environment of the file, also for concatenated files."""
        self.records[record["key"]] = {**record, "ran_in": len(self.environments) - 1}

    def _append(self, line: dict[str, Any]) -> None:
        text = json.dumps(line, default=plain) + "\n"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a+b") as file:
            file.seek(0)
            file.truncate(file.read().rfind(b"\n") + 1)
            file.write(text.encode())
            file.flush()
            os.fsync(file.fileno())


def plain(value: Any) -> Any:
    """Convert NumPy numbers and arrays to JSON values."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} cannot be kept in a result file.")
