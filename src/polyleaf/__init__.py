"""Polyleaf: gradient boosted trees for many outputs.

The public names are listed in `__all__`; they are imported when first used, so that `import
polyleaf` costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from polyleaf import (
        callbacks,
        datasets,
        distributions,
        export,
        files,
        inspection,
        integrations,
        metrics,
        objectives,
        sketching,
    )
    from polyleaf.binned_data.binning import BinMapper
    from polyleaf.binned_data.dataset import Dataset
    from polyleaf.estimators import (
        PolyleafClassifier,
        PolyleafMultiTask,
        PolyleafRanker,
        PolyleafRegressor,
        blend,
        concatenate,
        load_model,
        refit,
    )
    from polyleaf.estimators.memory_estimate import memory_estimate
    from polyleaf.model import Model
    from polyleaf.runtime.row_data import RowData
    from polyleaf.search.base import PolyleafClassifierCV, PolyleafRankerCV, PolyleafRegressorCV
    from polyleaf.search.cross_validation import cv
    from polyleaf.settings import presets

    __version__: str

_HOME = {
    "BinMapper": "binned_data.binning",
    "Dataset": "binned_data.dataset",
    "Model": "model",
    "PolyleafClassifier": "estimators",
    "PolyleafClassifierCV": "search.base",
    "PolyleafMultiTask": "estimators",
    "PolyleafRanker": "estimators",
    "PolyleafRankerCV": "search.base",
    "PolyleafRegressor": "estimators",
    "PolyleafRegressorCV": "search.base",
    "RowData": "runtime.row_data",
    "blend": "estimators",
    "concatenate": "estimators",
    "cv": "search.cross_validation",
    "load_model": "estimators",
    "refit": "estimators",
    "memory_estimate": "estimators.memory_estimate",
}
_MODULES = {
    "callbacks": "callbacks",
    "datasets": "datasets",
    "distributions": "distributions",
    "export": "export",
    "files": "files",
    "inspection": "inspection",
    "integrations": "integrations",
    "metrics": "metrics",
    "objectives": "objectives",
    "presets": "settings.presets",
    "sketching": "sketching",
}

__all__ = [
    "BinMapper",
    "Dataset",
    "Model",
    "PolyleafClassifier",
    "PolyleafClassifierCV",
    "PolyleafMultiTask",
    "PolyleafRanker",
    "PolyleafRankerCV",
    "PolyleafRegressor",
    "PolyleafRegressorCV",
    "RowData",
    "blend",
    "callbacks",
    "concatenate",
    "cv",
    "datasets",
    "distributions",
    "export",
    "files",
    "inspection",
    "integrations",
    "load_model",
    "memory_estimate",
    "metrics",
    "objectives",
    "presets",
    "refit",
    "sketching",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return importlib.import_module(".runtime.compatibility", __name__).polyleaf_version()
    if name in _MODULES:
        return importlib.import_module(f".{_MODULES[name]}", __name__)
    if name not in _HOME:
        from polyleaf.settings.aliases import get_foreign_hint

        hint = get_foreign_hint("functions", name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}{hint}")
    value = getattr(importlib.import_module(f".{_HOME[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
