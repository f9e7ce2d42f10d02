"""Dimensionality reduction: sketches of gradients and projections of features."""

from polyleaf.sketching.projections import PROJECTIONS, Projection, Projector
from polyleaf.sketching.sketches import (
    SKETCHES,
    CountSketch,
    CustomSketch,
    RandomProjection,
    RandomSampling,
    Sketch,
    TopOutputs,
    TruncatedSVD,
    get_sketch,
)

__all__ = [
    "PROJECTIONS",
    "SKETCHES",
    "CountSketch",
    "CustomSketch",
    "Projection",
    "Projector",
    "RandomProjection",
    "RandomSampling",
    "Sketch",
    "TopOutputs",
    "TruncatedSVD",
    "get_sketch",
]


def __dir__() -> list[str]:
    return __all__
