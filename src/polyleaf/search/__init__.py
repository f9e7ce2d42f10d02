"""Estimators that choose their own parameters: the public face of the search."""

from __future__ import annotations

from polyleaf.search.classifier import PolyleafClassifierCV
from polyleaf.search.regressor import PolyleafRegressorCV

__all__ = ["PolyleafClassifierCV", "PolyleafRegressorCV"]
