"""Hyperparameter search: parts for Optuna studies of your own.

The searching estimators themselves, `PolyleafClassifierCV` and `PolyleafRegressorCV`, are imported
from `polyleaf`.
"""

from __future__ import annotations

from polyleaf.search.optuna_pruning import PruningCallback
from polyleaf.search.optuna_search import suggest_params

__all__ = ["PruningCallback", "suggest_params"]
