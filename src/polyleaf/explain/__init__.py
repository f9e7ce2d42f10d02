"""Explanations: what each feature adds to the raw scores of a row (docs/explaining.md)."""

from __future__ import annotations

from polyleaf.explain.explained import in_chunks, mean_magnitude
from polyleaf.explain.shap_forms import explanation, shap_trees

__all__ = ["explanation", "in_chunks", "mean_magnitude", "shap_trees"]
