"""What is public: the pages of the reference, their modules, and the names in these."""

from __future__ import annotations

import importlib
import inspect

# The public modules of each page of the reference.
PAGES = {
    "callbacks": ["polyleaf.callbacks"],
    "dask": ["polyleaf.dask"],
    "datasets": ["polyleaf.datasets"],
    "distributions": ["polyleaf.distributions", "polyleaf.distributions.survival"],
    "estimators": ["polyleaf"],
    "export": ["polyleaf.export"],
    "files": ["polyleaf.files.xmc"],
    "inspection": ["polyleaf.inspection"],
    "integrations": [
        "polyleaf.integrations.autogluon",
        "polyleaf.integrations.mlflow",
        "polyleaf.integrations.optuna",
    ],
    "metrics": ["polyleaf.metrics"],
    "objectives": ["polyleaf.objectives"],
    "presets": ["polyleaf.settings.presets"],
    "ranking": ["polyleaf.metrics.ranking"],
    "sketching": ["polyleaf.sketching.projections", "polyleaf.sketching.sketches"],
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
