"""Where arrays of a data set and of its trainings lie: in memory while that is allowed, then in files.

Owns: what `memory_limit` and `cache_dir` mean. Must not know: what a training holds
(`polyleaf.training.memory_usage`), or what arrays mean.
"""

from __future__ import annotations

import os
import re
import tempfile
from dataclasses import dataclass

__all__ = ["MemoryBudget", "parse_size"]

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_BINARY = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_SIZE = re.compile(r"\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*([kmgt]?)(i?)b?\s*", re.IGNORECASE)
_SHARE_OF_BINS = 2  # of the limit, which one part in so many may take before the training is known
_IN_TRAINING = (
    4  # bytes of a cell in memory: codes, words, and two copies of them that move with the rows
)


def parse_size(size: int | str) -> int:
    """A size in bytes: a number, or text such as "4 GiB", "4000 MB".

    Raises
    ------
    ValueError
        For what is none, and where it is not positive.
    """
    if isinstance(size, str):
        found = _SIZE.fullmatch(size)
        if found is None:
            raise ValueError(
                f'memory_limit={size!r} is no size: give bytes, or a number with a unit, as in "4 GiB".'
            )
        number, prefix, is_binary = found.groups()
        size = int(float(number) * (_BINARY if is_binary else _UNITS)[prefix.lower()])
    if isinstance(size, bool) or not isinstance(size, int):
        raise ValueError(f'memory_limit={size!r} is no size: give bytes, or text such as "4 GiB".')
    if size < 1:
        raise ValueError(f"memory_limit must be at least 1 byte, got {size}.")
    return size


@dataclass(frozen=True)
class MemoryBudget:
    """Attributes
    ----------
    limit : int or None
        Bytes of memory; None: as much as there is.
    folder : str or None
        Of files; None: nothing is to lie in files.
    """

    limit: int | None = None
    folder: str | None = None

    @staticmethod
    def from_params(
        memory_limit: int | str | None, cache_dir: str | os.PathLike[str] | None
    ) -> MemoryBudget:
        """What a user asks for. Where only memory is limited, files go where the system's temporary do."""
        folder = None if cache_dir is None else os.fspath(cache_dir)
        if memory_limit is None:
            return MemoryBudget(None, folder)
        return MemoryBudget(
            parse_size(memory_limit), tempfile.gettempdir() if folder is None else folder
        )

    def choose_bin_folder(self, n_rows: int, n_columns: int) -> str | None:
        """Where they are to lie before it is known what will be trained; None: in memory."""
        if self.limit is None:
            return self.folder
        fits = _IN_TRAINING * n_rows * n_columns <= self.limit // _SHARE_OF_BINS
        return None if fits else self.folder
