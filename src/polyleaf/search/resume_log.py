"""A log file of completed trials, to resume a search, and fingerprints of its settings."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from types import CodeType, FunctionType, MethodType
from typing import Any, NamedTuple

import numpy as np

from polyleaf.search.candidates import Parameters

__all__ = ["ResumeLog", "TrialRecord", "fingerprint", "hash_bytes"]


class TrialRecord(NamedTuple):
    """One completed trial: the loss after each round, its seconds, and the error if it failed."""

    curve: list[float]
    seconds: float
    error: str = ""


class ResumeLog:
    """Trials by their parameters and fold.

    Parameters
    ----------
    path : path or None
        File of JSON lines: the settings of the search, then one line per trial. None keeps no file.
    settings : dict
        Values, of JSON types, that must be equal for trials to be reusable.

    Raises
    ------
    ValueError
        If the file belongs to another search, or is not such a log.
    """

    def __init__(self, path: Any, settings: dict[str, Any]) -> None:
        self._path = None if path is None else Path(path)
        self._trials: dict[tuple[str, int], TrialRecord] = {}
        if self._path is None:
            return
        # An incomplete last line, of a search that was killed, is dropped.
        invalid = f"resume={str(path)!r} is not the log file of a search."
        try:
            complete, _, _ = (
                self._path.read_text().rpartition("\n") if self._path.is_file() else ("", "", "")
            )
        except UnicodeDecodeError:
            raise ValueError(invalid) from None
        if not complete:
            self._path.write_text(json.dumps(settings) + "\n")
            return
        first, *lines = complete.split("\n")
        try:
            self._check_settings(json.loads(first), settings)
            for line in map(json.loads, lines):
                record = TrialRecord(line["curve"], line["seconds"], line["error"])
                self._trials[_make_key(line["parameters"]), line["fold"]] = record
        except (json.JSONDecodeError, KeyError, TypeError):
            raise ValueError(invalid) from None
        self._path.write_text(complete + "\n")

    def find(self, parameters: Parameters, fold: int) -> TrialRecord | None:
        """Return the trial if it has already been completed."""
        return self._trials.get((_make_key(parameters), fold))

    def add(self, parameters: Parameters, fold: int, record: TrialRecord) -> None:
        """Store a trial that was not cut short by the time limit."""
        self._trials[_make_key(parameters), fold] = record
        if self._path is not None:
            entry = {"parameters": parameters, "fold": fold, **record._asdict()}
            with self._path.open("a") as file:
                file.write(json.dumps(entry) + "\n")

    def _check_settings(self, stored: dict[str, Any], settings: dict[str, Any]) -> None:
        different = [name for name in settings if stored[name] != settings[name]]
        if different:
            raise ValueError(
                f"resume={str(self._path)!r} belongs to another search: {', '.join(different)} "
                "differ. Use another file, or delete this one to start anew."
            )


def _make_key(parameters: Parameters) -> str:
    return json.dumps(parameters, sort_keys=True)


# --- fingerprints --------------------------------------------------------------------------------


def fingerprint(value: Any) -> Any:
    """Return JSON types that are equal in other processes for equal values.

    Functions are identified by their code and what it refers to, other objects by their attributes.
    Objects without attributes, such as functions of compiled modules, are identified by their
    `repr`: if it contains an address, another process gets another fingerprint, and no trial is
    reused wrongly.

    Parameters
    ----------
    value : object

    Returns
    -------
    None, bool, int, float, str, list or dict
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return [fingerprint(entry) for entry in value]
    if isinstance(value, Mapping):
        return {str(name): fingerprint(entry) for name, entry in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        array = np.asarray(value)
        contents = repr(array.tolist()).encode() if array.dtype == object else array.tobytes()
        return f"{array.dtype} {array.shape} {hash_bytes(contents)}"
    return _fingerprint_object(value)


def _fingerprint_object(value: Any) -> Any:
    if isinstance(value, partial):
        return ["partial", *map(fingerprint, (value.func, value.args, value.keywords))]
    if isinstance(value, MethodType):
        return ["method", fingerprint(value.__self__), fingerprint(value.__func__)]
    if isinstance(value, FunctionType):
        closure = [cell.cell_contents for cell in value.__closure__ or ()]
        code = hash_bytes(_serialise_code(value.__code__).encode())
        bound = (value.__defaults__, value.__kwdefaults__, closure)
        return [f"{value.__qualname__} {code}", *map(fingerprint, bound)]
    if isinstance(value, type):
        return f"{value.__module__}.{value.__qualname__}"
    attributes = getattr(value, "__dict__", None)
    return [fingerprint(type(value)), fingerprint(attributes)] if attributes else repr(value)


def _serialise_code(code: CodeType) -> str:
    """Return instructions, names and constants of a function and of the functions in it."""
    constants = [_serialise_code(c) if isinstance(c, CodeType) else repr(c) for c in code.co_consts]
    return repr((code.co_code, code.co_names, constants))


def hash_bytes(contents: bytes) -> str:
    """Return 16 hexadecimal digits of the SHA-256 hash."""
    return hashlib.sha256(contents).hexdigest()[:16]
