"""Model inspection: tables of trees, SHAP values in other forms, displays and the HTML report."""

from __future__ import annotations

from polyleaf.estimators.shap_mixin import iter_shap_values, mean_abs_shap
from polyleaf.inspection.model_summary import (
    dump_json,
    leaf_dtype_report,
    nodes_table,
    size_report,
    summary,
    tree_nodes,
)
from polyleaf.inspection.plotting import (
    CalibrationDisplay,
    CoverageDisplay,
    ImportanceDisplay,
    LearningCurvesDisplay,
    OutputsDisplay,
    ThresholdDisplay,
    TreeDisplay,
)
from polyleaf.inspection.report import Report, report
from polyleaf.inspection.shap_interop import export_shap_trees, make_shap_explanation

__all__ = [
    "CalibrationDisplay",
    "CoverageDisplay",
    "ImportanceDisplay",
    "LearningCurvesDisplay",
    "OutputsDisplay",
    "Report",
    "ThresholdDisplay",
    "TreeDisplay",
    "dump_json",
    "make_shap_explanation",
    "iter_shap_values",
    "leaf_dtype_report",
    "mean_abs_shap",
    "nodes_table",
    "report",
    "export_shap_trees",
    "size_report",
    "summary",
    "tree_nodes",
]
