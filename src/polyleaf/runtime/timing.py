"""Seconds of the phases of a fit, recorded if the environment variable POLYLEAF_TIMING is set."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator
from contextvars import ContextVar

import polyleaf._core as _core

TIMING = "POLYLEAF_TIMING"
TREES = "trees"  # split into the phases that the core measures
OTHER = "other"


class PhaseClock:
    """Seconds of each phase, without the seconds of phases within it."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._phases, self._last = [OTHER], time.perf_counter()

    def enter(self, phase: str) -> None:
        self._add()
        self._phases.append(phase)

    def leave(self) -> None:
        self._add()
        self._phases.pop()

    def _add(self) -> None:
        now, phase = time.perf_counter(), self._phases[-1]
        self.seconds[phase] = self.seconds.get(phase, 0.0) + now - self._last
        self._last = now


_clock: ContextVar[PhaseClock | None] = ContextVar("polyleaf_phase_clock", default=None)
_NO_PHASE = contextlib.nullcontext()


def measure_phase(phase: str) -> contextlib.AbstractContextManager[None]:
    """Return a context whose seconds are added to a phase, if times are recorded."""
    clock = _clock.get()
    return _NO_PHASE if clock is None else _measure(clock, phase)


@contextlib.contextmanager
def _measure(clock: PhaseClock, phase: str) -> Iterator[None]:
    clock.enter(phase)
    try:
        yield
    finally:
        clock.leave()


@contextlib.contextmanager
def record_times() -> Iterator[dict[str, float] | None]:
    """Record the seconds of the phases of a fit, and print them to stderr at its end.

    Yields
    ------
    dict of str to float, or None
        Filled when the context ends. None if POLYLEAF_TIMING is not set, or "0", and within a fit
        that is recorded already.
    """
    if os.environ.get(TIMING, "0") in ("", "0") or _clock.get() is not None:
        yield None
        return
    clock = PhaseClock()
    times: dict[str, float] = {}
    token = _clock.set(clock)
    _core.start_timing()
    try:
        yield times
    finally:
        _clock.reset(token)
        clock.leave()
        times |= _split_trees(clock.seconds, _core.stop_timing())
        print(format_times(times), file=sys.stderr)


def _split_trees(seconds: dict[str, float], core: dict[str, float]) -> dict[str, float]:
    """Divide the seconds of trees among the core's phases.

    The core adds up the seconds of threads, more than the clock's, so shares are used.
    """
    trees, measured = seconds.pop(TREES, 0.0), sum(core.values())
    scale = min(1.0, trees / measured) if measured > 0 else 0.0
    phases = seconds | {phase: scale * value for phase, value in core.items()}
    phases[OTHER] = phases.get(OTHER, 0.0) + trees - scale * measured
    return dict(sorted(phases.items(), key=lambda item: -item[1]))


def format_times(times: dict[str, float]) -> str:
    """Return a table of the phases, the longest first."""
    total = sum(times.values())
    lines = [f"polyleaf: fit of {total:.3f} s"]
    lines += [f"  {phase:<16}{s:>10.3f} s{s / total:>7.1%}" for phase, s in times.items()]
    return "\n".join(lines)
