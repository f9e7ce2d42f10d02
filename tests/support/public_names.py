"""What is public: the pages of the reference, their modules, and the names in these."""

from __future__ import annotations

import importlib
import inspect

# The public modules of each page of the reference.
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
MODULES = [module for modules in PAGES.values() for module in modules]

# The package that a module needs, where it is not installed everywhere.
EXTRA = {"polyleaf.dask": "distributed", "polyleaf.integrations.autogluon": "autogluon.core"}


def public_names(module_name: str) -> list[str]:
    """Return the names in `__all__`, modules left out, or the functions and classes of a module."""
    module = importlib.import_module(module_name)
    names = getattr(module, "__all__", None)
    if names is None:
        own = inspect.getmembers(
            module, lambda value: inspect.isfunction(value) or inspect.isclass(value)
        )
        return [name for name, v in own if v.__module__ == module_name and not name.startswith("_")]
    return [name for name in names if not inspect.ismodule(getattr(module, name))]
