"""A training that people watch, and end by Ctrl-C: what they see of it, and what they keep.

Owns where training speaks, and what is said of an interrupt. Must not know options, nor what is trained.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from polyleaf.cli.messages import pluralise

__all__ = ["KEEP_ON_INTERRUPT", "InterruptRecord", "watched"]

KEEP_ON_INTERRUPT = {"on_interrupt": "keep"}
"""Parameters with which estimators keep what they have; searches, too, in their last training."""

_SAID = "was interrupted"  # by estimators that keep it, as a warning


@dataclass
class InterruptRecord:
    """What became of a training."""

    was_interrupted: bool = False

    def outcome(self, estimator: Any, path: Path) -> str:
        """What is kept of an interrupted training, in a sentence."""
        rounds = pluralise(estimator.model_.n_rounds, "round")
        tried = getattr(estimator, "leaderboard_", None)
        if tried is None:
            return f"interrupted after {rounds}; the model of these is saved to {path}."
        best = f"the best of {pluralise(len(tried), 'candidate')}, with {rounds} on all rows,"
        return f"the search was interrupted; {best} is saved to {path}."

    def has_nothing(self, estimator: Any) -> bool:
        """Whether it was interrupted before anything was complete."""
        model = getattr(estimator, "model_", None)
        return self.was_interrupted and (model is None or model.n_rounds == 0)


@contextmanager
def watched() -> Iterator[InterruptRecord]:
    """Within it estimators are fitted: what they print goes to the error stream, and Ctrl-C is noted."""
    found, show = InterruptRecord(), warnings.showwarning

    def note(message: Warning | str, *about: Any, **how: Any) -> None:
        if _SAID in str(message):
            found.was_interrupted = True
        else:
            show(message, *about, **how)

    with redirect_stdout(sys.stderr), warnings.catch_warnings():
        warnings.filterwarnings("always", message=f".*{_SAID}")
        warnings.showwarning = note
        try:
            yield found
        except KeyboardInterrupt:  # before there was something to keep, or after the rounds
            found.was_interrupted = True
