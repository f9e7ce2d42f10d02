"""Context of a run: location of the data and size limits."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import sets
from ..sets import DataSet

QUICK_ROUNDS, QUICK_REPEATS, QUICK_ROWS = 3, 2, 400


class Unavailable(Exception):
    """Raised if a run is not possible here, for example because a library is not installed."""


def require_module(name: str) -> None:
    """Raise `Unavailable` if the module cannot be imported."""
    if importlib.util.find_spec(name) is None:
        raise Unavailable(f"{name} is not installed")


@dataclass(frozen=True)
class Context:
    """Settings of a run: folder of NAME.npz files, and the number of threads of every library.

    A quick run has reduced sizes, so that all runs end within minutes. Its figures only show that
    the runs work.
    """

    data: Path
    quick: bool = False
    threads: int = 1

    def rounds(self, n: int) -> int:
        """Return `n` boosting rounds, or few in a quick run."""
        return min(n, QUICK_ROUNDS) if self.quick else n

    def seeds(self, n: int) -> Iterator[int]:
        """Iterate over the seeds of `n` repeats, from 0; few in a quick run."""
        yield from range(min(n, QUICK_REPEATS) if self.quick else n)

    def rows(self, n: int) -> int:
        """Return `n` rows, or few in a quick run."""
        return min(n, QUICK_ROWS) if self.quick else n

    def load(self, name: str) -> DataSet:
        """Load the data set `name`; raise `DataMissing` if its file is not in the folder."""
        return sets.load(self.data, name)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for another process."""
        return {"data": str(self.data.resolve()), "quick": self.quick, "threads": self.threads}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Context:
        """Return the context that `to_dict` was called on."""
        return cls(Path(values["data"]), values["quick"], values["threads"])
