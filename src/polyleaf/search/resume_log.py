"""The trainings of a search that have ended, in a file: a search that is taken up again does not repeat them.

Owns the file's format. Must not know what a training is, or who goes on to the next fold.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from polyleaf.search.portfolio import Parameters

__all__ = ["Ended", "TrainingLog"]


class Ended(NamedTuple):
    """What became of one training: the loss after each round, its seconds, and why it was refused."""

    curve: list[float]
    seconds: float
    refused: str = ""


class TrainingLog:
    """Trainings by their parameters and fold.

    Parameters
    ----------
    path : path or None
        Lines of JSON: what the search is about, then a line a training. None: nothing is kept.
    about : dict
        What must be the same for trainings to be the same; JSON types.

    Raises
    ------
    ValueError
        Where the file is another search's, or none.
    """

    def __init__(self, path: Any, about: dict[str, Any]) -> None:
        self._path = None if path is None else Path(path)
        self._ended: dict[tuple[str, int], Ended] = {}
        if self._path is None:
            return
        # A line that was cut in writing is the last one, and is dropped.
        no_log = f"resume={str(path)!r} is no file that a search has written."
        try:
            whole, _, _ = (
                self._path.read_text().rpartition("\n") if self._path.is_file() else ("", "", "")
            )
        except UnicodeDecodeError:
            raise ValueError(no_log) from None
        if not whole:
            self._path.write_text(json.dumps(about) + "\n")
            return
        first, *lines = whole.split("\n")
        try:
            self._check(json.loads(first), about)
            for line in map(json.loads, lines):
                ended = Ended(line["curve"], line["seconds"], line["refused"])
                self._ended[_key(line["parameters"]), line["fold"]] = ended
        except (json.JSONDecodeError, KeyError, TypeError):
            raise ValueError(no_log) from None
        self._path.write_text(whole + "\n")

    def find(self, parameters: Parameters, fold: int) -> Ended | None:
        """The training, where it has ended already."""
        return self._ended.get((_key(parameters), fold))

    def add(self, parameters: Parameters, fold: int, ended: Ended) -> None:
        """Keep a training that has come to its own end."""
        self._ended[_key(parameters), fold] = ended
        if self._path is not None:
            with self._path.open("a") as file:
                file.write(
                    json.dumps({"parameters": parameters, "fold": fold, **ended._asdict()}) + "\n"
                )

    def _check(self, found: dict[str, Any], about: dict[str, Any]) -> None:
        other = [name for name in about if found[name] != about[name]]
        if other:
            raise ValueError(
                f"resume={str(self._path)!r} is of another search: {', '.join(other)} differ. Take another "
                "file, or delete it to begin anew."
            )


def _key(parameters: Parameters) -> str:
    return json.dumps(parameters, sort_keys=True)
