"""Integrations with other frameworks: AutoGluon, MLflow, Optuna, and for forecasts.

A module is imported when it is first used, because it may need an extra.
"""

from __future__ import annotations

import importlib
from typing import Any

__all__ = [
    "autogluon",
    "darts",
    "loggers",
    "mlflow",
    "mlforecast",
    "optuna",
    "skforecast",
    "sktime",
]


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return importlib.import_module(f"{__name__}.{name}")
