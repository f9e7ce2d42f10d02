"""Predicted distributions: one for each row, or for each row and target, all at once.

`PolyleafRegressor.predict_dist` gives them. Each family is a file of its own; start with base.py, which says
what all of them answer.
"""

from __future__ import annotations

from polyleaf.distributions.base import Distribution
from polyleaf.distributions.gamma import Gamma
from polyleaf.distributions.lognormal import LogNormal
from polyleaf.distributions.negative_binomial import NegativeBinomial
from polyleaf.distributions.normal import Normal
from polyleaf.distributions.student_t import StudentT

__all__ = ["Distribution", "Gamma", "LogNormal", "NegativeBinomial", "Normal", "StudentT"]
