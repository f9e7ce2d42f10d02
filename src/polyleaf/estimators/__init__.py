"""The public face of the estimators: the classes, and how any is read from a file."""

from __future__ import annotations

from typing import Any

from polyleaf.estimators.base import PolyleafEstimator, read_estimator
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
        Whichever was saved.

    Raises
    ------
    ModelFileError (a ValueError)
        When the file is no model file, damaged, or was not written by an estimator.
    MemoryError
        When there is not enough memory for it, which says nothing against the file.
    """
    return read_estimator(path, _ESTIMATORS)
