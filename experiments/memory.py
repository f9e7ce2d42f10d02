"""Memory of this process, in bytes."""

from __future__ import annotations

import ctypes
import gc
import resource
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

_PROC = Path("/proc")


def resident() -> int:
    """Return the resident memory, or the peak so far where it is not available (not Linux)."""
    return _status("VmRSS") or _usage()


def peak() -> int:
    """Return the peak memory since the last `forget_peak` (or the start).

    On Linux this reads VmHWM instead of ru_maxrss, because the latter is inherited through fork and
    exec: a small child of a large parent would report the parent.
    """
    return _status("VmHWM") or _usage()


def give_back() -> None:
    """Return free memory to the system, where possible.

    Otherwise a fit that reuses free memory would appear to need none.
    """
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def forget_peak() -> bool:
    """Reset the peak to the current memory; return False if the system does not support it."""
    try:
        (_PROC / "self/clear_refs").write_text("5")
    except OSError:
        return False
    return True


def growth(call: Callable[[], Any]) -> int | None:
    """Return the peak memory during `call` above the memory held before it.

    The result is None if the system does not report it.
    """
    if not forget_peak():
        return None
    before = resident()
    call()
    return peak() - before


def _status(name: str) -> int | None:
    try:
        lines = (_PROC / "self/status").read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        if line.startswith(name + ":"):
            return int(line.split()[1]) * 1024
    return None


def _usage() -> int:
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
