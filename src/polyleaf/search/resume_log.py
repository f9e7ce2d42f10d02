"""A log file of completed trials, to resume a search."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import joblib

from polyleaf.runtime.types import Parameters
from polyleaf.runtime.user_warnings import warn_user

if TYPE_CHECKING:
    from polyleaf.runtime.types import JsonObject, StrPath


class TrialRecord(NamedTuple):
    """One completed trial: the loss after each round, its seconds, and the error if it failed."""

    curve: list[float]
    seconds: float
    error: str = ""


class ResumeLog:
    """Trials by their parameters and fold.

    Raises a ValueError if the file belongs to another search, is damaged, or is not such a log.
    `path`: file of JSON lines: the settings of the search, then one line per trial. None keeps no
    file. `settings`: values, of JSON types, that must be equal for trials to be reusable.
    """

    def __init__(self, path: StrPath | None, settings: JsonObject) -> None:
        self._path = None if path is None else Path(path)
        self._trials: dict[tuple[str, int], TrialRecord] = {}
        if self._path is None:
            return
        content = self._path.read_bytes() if self._path.exists() else b""
        # An incomplete last line, of a search that was killed, is dropped.
        complete = content[: content.rfind(b"\n") + 1]
        first_line = json.dumps(settings) + "\n"
        if not complete and first_line.encode().startswith(content):
            self._path.write_text(first_line, "utf-8", newline="\n")
            return
        for i, line in enumerate((complete or content).splitlines()):
            try:
                entry = json.loads(line)
                if i > 0:
                    record = TrialRecord(entry["curve"], entry["seconds"], entry["error"])
                    self._trials[_make_key(entry["parameters"]), entry["fold"]] = record
                    continue
                different = [name for name in settings if entry[name] != settings[name]]
            except (ValueError, TypeError, LookupError, RecursionError):
                raise ValueError(
                    f"resume={str(path)!r} is not the log file of a search, or its line {i + 1} is "
                    f"damaged: delete {'that line' if i > 0 else 'the file'}, or use another file."
                ) from None
            if different:
                raise ValueError(
                    f"resume={str(path)!r} belongs to another search: {', '.join(different)} "
                    "differ. Use another file, or delete this one to start again."
                )
        if len(complete) < len(content):
            os.truncate(self._path, len(complete))

    def find(self, parameters: Parameters, fold: int) -> TrialRecord | None:
        """Return the trial if it has already been completed."""
        return self._trials.get((_make_key(parameters), fold))

    def add(self, parameters: Parameters, fold: int, record: TrialRecord) -> None:
        """Store a trial that was not cut short by the time limit."""
        self._trials[_make_key(parameters), fold] = record
        if self._path is None:
            return
        line = json.dumps({"parameters": parameters, "fold": fold, **record._asdict()})
        try:
            with self._path.open("a", encoding="utf-8", newline="\n") as file:
                file.write(line + "\n")
        except OSError as error:
            warn_user(
                f"resume={str(self._path)!r} cannot be written: {error}. The search goes on, but "
                "its further trials cannot be resumed."
            )
            self._path = None


def _make_key(parameters: Parameters) -> str:
    return json.dumps(parameters, sort_keys=True)


def describe(value: object) -> str:
    """Return text that tells values apart and is the same in every process.

    Functions are described by their names, arrays and tables by a hash, and other values by their
    `repr`. A function whose code is changed keeps its description.
    """
    if hasattr(value, "shape"):
        return joblib.hash(value)
    name = getattr(value, "__qualname__", None)
    if name is not None:
        return f"{getattr(value, '__module__', '')}.{name}"
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))
