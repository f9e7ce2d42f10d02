"""The memory of this process and of others here, in bytes."""

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
    """Memory held now; where the system does not say (not Linux), the peak so far."""
    return _status("VmRSS") or _usage()


def anonymous() -> int:
    """Memory held now that no file stands for; where the system does not say, as `resident`."""
    return _status("RssAnon") or resident()


def peak(process: int | str = "self") -> int:
    """Most memory that a process has held since the last `forget_peak` (or the start).

    Linux: VmHWM and not ru_maxrss, because the latter is handed on through fork and exec: a small
    child of a large parent would report the parent.
    """
    return _status("VmHWM", process) or _usage()


def give_back() -> None:
    """Return free memory to the system, where possible: a fit that reused it would seem to need
    none.
    """
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def forget_peak() -> bool:
    """Start the peak anew from what is held now. False where the system cannot."""
    try:
        (_PROC / "self/clear_refs").write_text("5")
    except OSError:
        return False
    return True


def growth(call: Callable[[], Any]) -> int | None:
    """Memory held at most in `call` beyond what is held before it; None where the system does not
    report it.
    """
    if not forget_peak():
        return None
    before = resident()
    call()
    return peak() - before


def _status(name: str, process: int | str = "self") -> int | None:
    try:
        lines = (_PROC / str(process) / "status").read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        if line.startswith(name + ":"):
            return int(line.split()[1]) * 1024
    return None


def _usage() -> int:
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
