"""Estimators that choose their own parameters, which `polyleaf` itself offers; and what studies of one's own
need: a space of parameters, and a callback that prunes."""

from __future__ import annotations

from polyleaf.search.optuna_pruning import PruningCallback
from polyleaf.search.space import suggest

__all__ = ["PruningCallback", "suggest"]
