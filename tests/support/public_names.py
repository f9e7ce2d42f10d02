"""Public names: the pages of the API reference, their modules, and the names in them."""

from __future__ import annotations

import importlib
import inspect

# Public modules of each page of the API reference.
PAGES = {
    "callbacks": ["polyleaf.callbacks"],
    "dask": ["polyleaf.dask"],
    "datasets": ["polyleaf.datasets"],
    "distributions": ["polyleaf.distributions", "polyleaf.distributions.survival"],
    "estimators": ["polyleaf", "polyleaf.estimators.uncertainty"],
    "export": ["polyleaf.export"],
    "files": ["polyleaf.files.xmc"],
    "inspection": ["polyleaf.inspection"],
    "integrations": [
        "polyleaf.integrations.autogluon",
        "polyleaf.integrations.darts",
        "polyleaf.integrations.loggers",
        "polyleaf.integrations.mlflow",
        "polyleaf.integrations.mlforecast",
        "polyleaf.integrations.optuna",
        "polyleaf.integrations.skforecast",
        "polyleaf.integrations.sktime",
    ],
    "metrics": ["polyleaf.metrics"],
    "objectives": ["polyleaf.objectives"],
    "presets": ["polyleaf.settings.presets"],
    "ranking": ["polyleaf.metrics.ranking"],
    "sketching": ["polyleaf.sketching.projections", "polyleaf.sketching.sketches"],
}
MODULES = [module for modules in PAGES.values() for module in modules]

# Optional package that a module requires.
EXTRA = {
    "polyleaf.dask": "distributed",
    "polyleaf.integrations.autogluon": "autogluon.core",
    "polyleaf.integrations.darts": "darts",
    "polyleaf.integrations.mlforecast": "mlforecast",
    "polyleaf.integrations.skforecast": "skforecast",
    "polyleaf.integrations.sktime": "sktime",
}


def public_names(module_name: str) -> list[str]:
    """Return the names in `__all__` that are no modules."""
    module = importlib.import_module(module_name)
    return [name for name in module.__all__ if not inspect.ismodule(getattr(module, name))]
