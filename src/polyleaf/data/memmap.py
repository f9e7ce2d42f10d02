"""Arrays that lie in a file and are read as memory is: as large as a disk, and gone with their last reader.

Owns: where the file is, and that it has room. Must not know what the arrays hold.
"""

from __future__ import annotations

import math
import os
import tempfile
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

__all__ = ["mapped"]


def mapped(shape: tuple[int, ...], dtype: DTypeLike, folder: str) -> NDArray[Any]:
    """An array of anything, to be written, in a new file of a folder.

    The file has no name where the system allows that, and its room is taken at once: a full disk is an error
    here rather than a fault at some later write.

    Raises
    ------
    OSError
        Where there is no such folder, or no room.
    """
    size = math.prod(shape) * np.dtype(dtype).itemsize
    try:
        with tempfile.TemporaryFile(dir=folder, prefix="polyleaf-") as file:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, size)
            return np.memmap(
                file, dtype, "r+" if hasattr(os, "posix_fallocate") else "w+", shape=shape
            )
    except OSError as error:
        reason = error.strerror or str(error)
        raise OSError(
            error.errno,
            f"The folder {folder!r} cannot hold a file of {size / 2**30:.1f} GiB: {reason}.",
        ) from error
