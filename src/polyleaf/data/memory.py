"""Memory limits of data sets and trainings, and arrays in files where they exceed these."""

from __future__ import annotations

import math
import os
import re
import tempfile
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

__all__ = ["MemoryBudget", "create_memmap", "parse_size"]

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_BINARY_UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_SIZE = re.compile(r"\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*([kmgt]?)(i?)b?\s*", re.IGNORECASE)

# Bins may take one part in so many of the limit while the training is not known.
_BIN_PARTS = 2
# Bytes of a cell in a training: codes, packed words, and two copies that move with the rows.
_TRAINING_BYTES = 4


def parse_size(size: int | str) -> int:
    """Return a size in bytes, given as a number or as text like "4 GiB" or "4000 MB".

    Raises
    ------
    ValueError
        If it is not a positive size.
    """
    if isinstance(size, str):
        match = _SIZE.fullmatch(size)
        if match is None:
            raise ValueError(
                f"memory_limit={size!r} is not a size: use bytes, or a number with a unit such as "
                '"4 GiB".'
            )
        number, prefix, is_binary = match.groups()
        size = int(float(number) * (_BINARY_UNITS if is_binary else _UNITS)[prefix.lower()])
    if isinstance(size, bool) or not isinstance(size, int):
        raise ValueError(
            f'memory_limit={size!r} is not a size: use bytes, or text such as "4 GiB".'
        )
    if size < 1:
        raise ValueError(f"memory_limit must be at least 1 byte, got {size}.")
    return size


@dataclass(frozen=True)
class MemoryBudget:
    """Memory limit of a data set and its training.

    Attributes
    ----------
    limit : int or None
        Bytes of memory; None: no limit.
    folder : str or None
        Folder of files for what exceeds the limit; None: no files.
    """

    limit: int | None = None
    folder: str | None = None

    @staticmethod
    def from_params(
        memory_limit: int | str | None, cache_dir: str | os.PathLike[str] | None
    ) -> MemoryBudget:
        """Make a budget from parameters; the default folder is that of temporary files."""
        folder = None if cache_dir is None else os.fspath(cache_dir)
        if memory_limit is None:
            return MemoryBudget(None, folder)
        limit = parse_size(memory_limit)
        return MemoryBudget(limit, tempfile.gettempdir() if folder is None else folder)

    def choose_bin_folder(self, n_rows: int, n_columns: int) -> str | None:
        """Return the folder of the bins while the training is not known; None: in memory."""
        if self.limit is None:
            return self.folder
        fits = _TRAINING_BYTES * n_rows * n_columns <= self.limit // _BIN_PARTS
        return None if fits else self.folder


def create_memmap(shape: tuple[int, ...], dtype: DTypeLike, folder: str) -> NDArray[Any]:
    """Create an uninitialised array in a new file, which is deleted with its last reference.

    The file has no name if the system supports that. Its space is allocated at once, so that a
    full disk raises here rather than at a later write.

    Raises
    ------
    OSError
        If the folder does not exist or has too little space.
    """
    size = math.prod(shape) * np.dtype(dtype).itemsize
    try:
        with tempfile.TemporaryFile(dir=folder, prefix="polyleaf-") as file:
            can_allocate = hasattr(os, "posix_fallocate")
            if can_allocate:
                os.posix_fallocate(file.fileno(), 0, size)
            return np.memmap(file, dtype, "r+" if can_allocate else "w+", shape=shape)
    except OSError as error:
        reason = error.strerror or str(error)
        raise OSError(
            error.errno,
            f"The folder {folder!r} cannot hold a file of {size / 2**30:.1f} GiB: {reason}.",
        ) from error
