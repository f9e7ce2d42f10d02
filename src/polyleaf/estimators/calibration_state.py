"""What a calibration leaves in a model, and so in its file, until the model changes.

Owns: where it is kept, and what is said where there is none. Must not know: what was calibrated, or how.
"""

from __future__ import annotations

from typing import Any, Literal, get_args

from polyleaf.model import Model

__all__ = ["Calibrated", "forget", "keep", "kept"]

Calibrated = Literal["intervals", "prediction sets"]  # names among the model's metadata


def keep(model: Model, what: Calibrated, **found: Any) -> None:
    """Keep what was found out, of JSON types, in place of what is there."""
    model.metadata[what] = found


def kept(model: Model, what: Calibrated) -> dict[str, Any]:
    """What the last calibration has found; ValueError where there was none."""
    found = model.metadata.get(what)
    if found is None:
        raise ValueError(
            f"The model's {what} are not calibrated: call calibrate(X, y, coverage=0.9) with rows that it "
            "was not trained on."
        )
    return found


def forget(model: Model) -> None:
    """Drop all calibrations of a model that is about to change."""
    for what in get_args(Calibrated):
        model.metadata.pop(what, None)
