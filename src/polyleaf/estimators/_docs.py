"""Docstrings of the estimators: parameters and common attributes."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import TypeVar

from polyleaf.settings.param_spec import format_parameters

__all__ = ["add_parameter_docs", "fill_docstring"]

_Class = TypeVar("_Class", bound=type)

_ATTRIBUTES = """
model_ : polyleaf.Model
    Trees and bins.
projection_ : polyleaf.sketching.projections.Projection or None
n_features_in_ : int
feature_names_in_ : ndarray of str
    Names of features, if X had names.
n_outputs_ : int
    Number of outputs: columns of y, labels or quantiles; 1 for one-dimensional targets and classes.
n_iter_ : int
    Number of rounds of the model.
best_iteration_ : int or None
    Round with the best score, from 0; None without early stopping.
best_score_ : float or None
    Score of that round.
evals_result_ : dict
    Metrics of each round, `{evaluation set: {metric: [value of each round]}}`.
evals_result_per_output_ : dict
    `{evaluation set: {metric: ndarray of shape (rounds, n_outputs)}}` for several outputs and
    metrics that are defined per output.
feature_importances_ : ndarray of shape (n_features,)
    Share of each feature in the total gain; in the number of splits if the model was saved without
    statistics.
""".strip("\n")


def add_parameter_docs(cls: _Class) -> _Class:
    """Insert the parameters and the common attributes into the docstring of an estimator."""
    fill_docstring(cls, {"{parameters}": format_parameters(cls), "{attributes}": _ATTRIBUTES})
    return cls


def fill_docstring(cls: type, texts: Mapping[str, str]) -> None:
    """Replace placeholders in a docstring, which loses its indentation as in Python 3.13."""
    if cls.__doc__ is None:  # python -OO
        return
    cls.__doc__ = inspect.cleandoc(cls.__doc__)
    for placeholder, text in texts.items():
        cls.__doc__ = cls.__doc__.replace(placeholder, text)
