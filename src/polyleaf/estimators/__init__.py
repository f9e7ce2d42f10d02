"""The public face of the estimators: both classes, and how either is read from a file."""

from __future__ import annotations

from typing import Any

from polyleaf.estimators.base import PolyleafEstimator
from polyleaf.estimators.classifier import PolyleafClassifier
from polyleaf.estimators.regressor import PolyleafRegressor
from polyleaf.model import Model
from polyleaf.model.places import Source, name_of

__all__ = ["PolyleafClassifier", "PolyleafRegressor", "load_model"]

_ESTIMATORS: dict[str, type[PolyleafEstimator]] = {
    cls.__name__: cls for cls in (PolyleafRegressor, PolyleafClassifier)
}


def load_model(path: Source) -> Any:
    """Read a fitted estimator from a file written by `save_model`.

    Parameters
    ----------
    path : str, path, bytes or open binary file

    Returns
    -------
    PolyleafRegressor or PolyleafClassifier
        Whichever was saved.

    Raises
    ------
    ValueError
        When the file is no model file, damaged, or was not written by an estimator.
    """
    model = Model.load(path)
    name = model.metadata.get("estimator")
    if name not in _ESTIMATORS:
        raise ValueError(
            f"{name_of(path)} holds a model that no estimator wrote: read it with polyleaf.Model.load."
        )
    return _ESTIMATORS[name]._of_model(model)
