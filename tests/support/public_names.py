"""What is public: the modules that have a page in the reference, and the names in them."""

from __future__ import annotations

import importlib
import inspect

# A page of the reference for each public module.
PAGES = {
    "polyleaf": "estimators",
    "polyleaf.integrations.autogluon": "autogluon",
    "polyleaf.callbacks": "callbacks",
    "polyleaf.dask": "dask",
    "polyleaf.datasets": "data",
    "polyleaf.distributions": "distributions",
    "polyleaf.inspection": "explain",
    "polyleaf.export": "export",
    "polyleaf.files.xmc": "files",
    "polyleaf.inspection.model_summary": "inspect",
    "polyleaf.metrics": "metrics",
    "polyleaf.metrics.ranking": "ranking",
    "polyleaf.integrations.mlflow": "mlflow",
    "polyleaf.objectives": "objectives",
    "polyleaf.inspection.plotting": "plotting",
    "polyleaf.sketching.projections": "projections",
    "polyleaf.settings.presets": "presets",
    "polyleaf.inspection.report": "report",
    "polyleaf.search": "search",
    "polyleaf.sketching.sketches": "sketches",
    "polyleaf.distributions.survival": "survival",
}

# What a module needs that is not installed everywhere.
EXTRA = {"polyleaf.dask": "distributed", "polyleaf.integrations.autogluon": "autogluon.core"}


def public_names(module_name: str) -> list[str]:
    """What `__all__` says, modules left out: they have pages of their own. Without one: its own functions."""
    module = importlib.import_module(module_name)
    names = getattr(module, "__all__", None)
    if names is None:
        own = inspect.getmembers(
            module, lambda value: inspect.isfunction(value) or inspect.isclass(value)
        )
        return [name for name, v in own if v.__module__ == module_name and not name.startswith("_")]
    return [name for name in names if not inspect.ismodule(getattr(module, name))]
