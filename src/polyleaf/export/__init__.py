"""Export of models to other formats, and import of models of XGBoost and LightGBM."""

from __future__ import annotations

from polyleaf.export.c_header import to_c
from polyleaf.export.ir import category_mapping, to_numeric_matrix
from polyleaf.export.lightgbm_model import from_lightgbm
from polyleaf.export.onnx_graph import to_onnx
from polyleaf.export.skl2onnx_converter import register_skl2onnx
from polyleaf.export.treelite_model import to_treelite
from polyleaf.export.xgboost_model import from_xgboost, to_xgboost

__all__ = [
    "category_mapping",
    "from_lightgbm",
    "from_xgboost",
    "register_skl2onnx",
    "to_c",
    "to_numeric_matrix",
    "to_onnx",
    "to_treelite",
    "to_xgboost",
]


def __dir__() -> list[str]:
    return __all__
