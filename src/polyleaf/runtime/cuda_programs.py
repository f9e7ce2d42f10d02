"""The kernels as a program for one kind of card: compiled once, kept on disk.

Owns: how they are compiled, and where what came of it is kept. Must not know: cards, what kernels compute.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path

import polyleaf._core as _core
from polyleaf.runtime.nvrtc import Nvrtc

__all__ = ["OPTIONS", "folder", "program"]

# Without fused multiply-add, and with exact division and subnormal numbers (which is what the compiler does
# unless told otherwise): the bits of the processor.
OPTIONS = ("--std=c++20", "--fmad=false", "--device-as-default-execution-space")


def folder() -> Path:
    """Where programs are kept: in `POLYLEAF_CACHE`, or where the system keeps what can be made anew."""
    given = os.environ.get("POLYLEAF_CACHE")
    if given:
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "polyleaf"


def program(nvrtc: Nvrtc, architecture: str) -> bytes:
    """The program for an architecture ("sm_90", say), from disk where it is there."""
    sources = _core.device_sources()
    told = [*sorted(sources.items()), *OPTIONS, nvrtc.version]
    key = hashlib.sha256(repr(told).encode()).hexdigest()[:32]
    path = folder() / f"kernels-{architecture}-{key}.cubin"
    try:
        return path.read_bytes()
    except OSError:
        pass
    made = nvrtc.compile(_core.DEVICE_PROGRAM, sources, architecture, OPTIONS)
    _keep(path, made)
    return made


def _keep(path: Path, made: bytes) -> None:
    """Write a file at one go; where that cannot be, it is compiled again next time."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            file.write(made)
        os.replace(file.name, path)
    except OSError:
        pass
