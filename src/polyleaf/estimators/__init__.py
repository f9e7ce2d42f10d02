"""Estimators, and reading any of them from a file."""

from __future__ import annotations

from typing import Any

from polyleaf.estimators._persistence import read_estimator
from polyleaf.estimators.base import PolyleafEstimator
from polyleaf.estimators.classifier import PolyleafClassifier
from polyleaf.estimators.multitask import PolyleafMultiTask
from polyleaf.estimators.regressor import PolyleafRegressor
from polyleaf.model.serialize import Source

__all__ = ["PolyleafClassifier", "PolyleafMultiTask", "PolyleafRegressor", "load_model"]

_ESTIMATORS: dict[str, type[PolyleafEstimator]] = {
    cls.__name__: cls for cls in (PolyleafRegressor, PolyleafClassifier, PolyleafMultiTask)
}


def load_model(path: Source) -> Any:
    """Read a fitted estimator from a file written by `save_model`.

    Parameters
    ----------
    path : str, path, bytes or open binary file

    Returns
    -------
    PolyleafRegressor, PolyleafClassifier or PolyleafMultiTask
        An estimator of the class that was saved.

    Raises
    ------
    ModelFileError (a ValueError)
        If the file is not a model file, is damaged, or was not written by an estimator.
    MemoryError
        If there is not enough memory, which does not mean that the file is damaged.
    """
    return read_estimator(path, _ESTIMATORS)
