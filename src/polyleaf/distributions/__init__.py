"""Predicted distributions: one for each row, or for each row and target, all at once.

`PolyleafRegressor.predict_dist` gives them. Each family is a file of its own; start with base.py, which says
what all of them answer.
"""

from __future__ import annotations

from polyleaf.distributions.parametric import Distribution
from polyleaf.distributions.parametric import Gamma
from polyleaf.distributions.parametric import LogNormal
from polyleaf.distributions.parametric import NegativeBinomial
from polyleaf.distributions.parametric import Normal
from polyleaf.distributions.parametric import StudentT

__all__ = ["Distribution", "Gamma", "LogNormal", "NegativeBinomial", "Normal", "StudentT"]
