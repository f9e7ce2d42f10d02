"""What a run is handed: where the data is, how large it may be."""

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
    """This run is not possible here (a library is not installed); the message says why."""


def require_module(name: str) -> None:
    """`Unavailable` where it cannot be imported."""
    if importlib.util.find_spec(name) is None:
        raise Unavailable(f"{name} is not installed")


@dataclass(frozen=True)
class Context:
    """The settings of a run that are not the paper's.

    Attributes
    ----------
    data : Path
        Folder of NAME.npz.
    quick : bool
        Sizes are cut so that all runs end within minutes: figures show that it works and mean
        nothing else.
    threads : int
        Threads of every library.
    """

    data: Path
    quick: bool = False
    threads: int = 1

    def rounds(self, n: int) -> int:
        """`n` rounds of boosting; few in a quick run."""
        return min(n, QUICK_ROUNDS) if self.quick else n

    def seeds(self, n: int) -> Iterator[int]:
        """Seeds of `n` repeats, from 0; few in a quick run."""
        yield from range(min(n, QUICK_REPEATS) if self.quick else n)

    def rows(self, n: int) -> int:
        """`n` rows; few in a quick run."""
        return min(n, QUICK_ROWS) if self.quick else n

    def load(self, name: str) -> DataSet:
        """The data set `name`. `DataMissing` where its file is not in the folder."""
        return sets.load(self.data, name)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for another process."""
        return {"data": str(self.data.resolve()), "quick": self.quick, "threads": self.threads}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Context:
        """The context that `to_dict` was called on."""
        return cls(Path(values["data"]), values["quick"], values["threads"])
