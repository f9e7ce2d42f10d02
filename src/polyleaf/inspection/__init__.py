"""Model inspection: tables of trees, SHAP values in other formats, displays and the HTML report.

Displays and the report, which use matplotlib, are imported when first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from polyleaf.estimators._prediction import iter_shap_values, mean_abs_shap
from polyleaf.inspection.model_summary import (
    dump_json,
    leaf_dtype_report,
    nodes_table,
    size_report,
    summary,
    tree_nodes,
    tree_to_dot,
)
from polyleaf.inspection.shap_interop import export_shap_trees, make_shap_explanation

if TYPE_CHECKING:
    from polyleaf.inspection.drift import Drift, measure_drift
    from polyleaf.inspection.plotting import (
        CalibrationDisplay,
        CoverageDisplay,
        DriftDisplay,
        ImportanceDisplay,
        LearningCurvesDisplay,
        OutputGroupsDisplay,
        OutputsDisplay,
        ParetoDisplay,
        ThresholdDisplay,
        TreeDisplay,
    )
    from polyleaf.inspection.report import Report, make_report

__all__ = [
    "CalibrationDisplay",
    "CoverageDisplay",
    "Drift",
    "DriftDisplay",
    "ImportanceDisplay",
    "LearningCurvesDisplay",
    "OutputGroupsDisplay",
    "OutputsDisplay",
    "ParetoDisplay",
    "Report",
    "ThresholdDisplay",
    "TreeDisplay",
    "dump_json",
    "export_shap_trees",
    "iter_shap_values",
    "leaf_dtype_report",
    "make_report",
    "make_shap_explanation",
    "mean_abs_shap",
    "measure_drift",
    "nodes_table",
    "size_report",
    "summary",
    "tree_nodes",
    "tree_to_dot",
]


_MODULES = {"Drift": "drift", "Report": "report", "make_report": "report", "measure_drift": "drift"}


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    if name in ("drift", "plotting", "report"):
        return importlib.import_module(f"{__name__}.{name}")
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = _MODULES.get(name, "plotting")
    return getattr(importlib.import_module(f"{__name__}.{module}"), name)
