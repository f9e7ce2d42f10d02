"""A log file of completed trials, to resume a search, and fingerprints of its settings."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from types import CodeType, FunctionType, MethodType
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from polyleaf.runtime.types import Parameters
from polyleaf.runtime.user_warnings import warn_user

if TYPE_CHECKING:
    from polyleaf.runtime.types import JsonObject, StrPath

_CHECKSUM = "checksum"  # of the other entries of a line


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
        File of JSON lines with checksums: the settings of the search, then one line per trial. None
        keeps no file.
    settings : dict
        Values, of JSON types, that must be equal for trials to be reusable.

    Raises
    ------
    ValueError
        If the file belongs to another search, is damaged, or is not such a log.
    """

    def __init__(self, path: StrPath | None, settings: JsonObject) -> None:
        self._path = None if path is None else Path(path)
        self._trials: dict[tuple[str, int], TrialRecord] = {}
        if self._path is None:
            return
        content = self._path.read_bytes() if self._path.exists() else b""
        # An incomplete last line, of a search that was killed, is dropped.
        complete = content[: content.rfind(b"\n") + 1]
        first_line = _to_line(settings)
        if not complete and first_line.encode().startswith(content):
            self._path.write_text(first_line)
            return
        for i, line in enumerate((complete or content).splitlines()):
            try:
                entry = _from_line(line)
                if i > 0:
                    record = TrialRecord(entry["curve"], entry["seconds"], entry["error"])
                    self._trials[_make_key(entry["parameters"]), entry["fold"]] = record
                    continue
                different = [name for name in settings if entry[name] != settings[name]]
            except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
                raise ValueError(
                    f"resume={str(path)!r} is not the log file of a search, or its line {i + 1} is "
                    f"damaged: delete {'that line' if i > 0 else 'the file'}, or use another file."
                ) from None
            if different:
                raise ValueError(
                    f"resume={str(path)!r} belongs to another search: {', '.join(different)} "
                    "differ. Use another file, or delete this one to start anew."
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
        try:
            with self._path.open("a") as file:
                file.write(_to_line({"parameters": parameters, "fold": fold, **record._asdict()}))
        except OSError as error:
            warn_user(
                f"resume={str(self._path)!r} cannot be written: {error}. The search goes on, but "
                "its further trials cannot be resumed."
            )
            self._path = None


def _to_line(entry: Mapping[str, object]) -> str:
    """Return an entry and its checksum as a line of JSON."""
    return json.dumps({**entry, _CHECKSUM: _compute_checksum(entry)}) + "\n"


def _from_line(line: bytes) -> JsonObject:
    """Invert `_to_line`; raise if the line is not what was written."""
    entry: JsonObject = json.loads(line)
    if entry.pop(_CHECKSUM) != _compute_checksum(entry):
        raise ValueError("The checksum differs.")
    return entry


def _compute_checksum(entry: Mapping[str, object]) -> str:
    return hash_bytes(json.dumps(entry, sort_keys=True).encode())


def _make_key(parameters: Parameters) -> str:
    return json.dumps(parameters, sort_keys=True)


# --- fingerprints --------------------------------------------------------------------------------


def fingerprint(value: object) -> object:
    """Return JSON types that are equal in other processes for equal values.

    Functions are identified by their code and what it refers to, other objects by their attributes.
    Objects without attributes, such as functions of compiled modules, are identified by their
    `repr`: if it contains an address, another process gets another fingerprint, and no trial is
    reused wrongly.

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


def _fingerprint_object(value: object) -> object:
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
