"""Predicted distributions: one for each row, or for each row and target.

`PolyleafRegressor.predict_dist` returns them.
"""

from __future__ import annotations

from polyleaf.distributions.parametric import (
    Distribution,
    Gamma,
    LogNormal,
    NegativeBinomial,
    Normal,
    StudentT,
)

__all__ = ["Distribution", "Gamma", "LogNormal", "NegativeBinomial", "Normal", "StudentT"]


def __dir__() -> list[str]:
    return __all__
