"""Estimators; reading any of them from a file, and joining several."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from sklearn.utils.validation import check_is_fitted

from polyleaf.estimators._persistence import make_estimator, read_estimator
from polyleaf.estimators.base import PolyleafEstimator
from polyleaf.estimators.classifier import PolyleafClassifier
from polyleaf.estimators.multitask import PolyleafMultiTask
from polyleaf.estimators.ranker import PolyleafRanker
from polyleaf.estimators.regressor import PolyleafRegressor
from polyleaf.model import Model
from polyleaf.model.combine import blend_models, concatenate_models
from polyleaf.model.metadata import ESTIMATOR
from polyleaf.model.serialize import Source
from polyleaf.runtime.types import DataLike

__all__ = [
    "PolyleafClassifier",
    "PolyleafMultiTask",
    "PolyleafRanker",
    "PolyleafRegressor",
    "blend",
    "concatenate",
    "load_model",
    "refit",
]

_ESTIMATORS: dict[str, type[PolyleafEstimator]] = {
    cls.__name__: cls
    for cls in (PolyleafRegressor, PolyleafClassifier, PolyleafMultiTask, PolyleafRanker)
}


def load_model(path: Source) -> Any:
    """Read a fitted estimator from a file written by `save_model`.

    Parameters
    ----------
    path : str, path, bytes or open binary file

    Returns
    -------
    PolyleafRegressor, PolyleafClassifier, PolyleafMultiTask or PolyleafRanker
        An estimator of the class that was saved.

    Raises
    ------
    ModelFileError (a ValueError)
        If the file is not a model file, is damaged, or was not written by an estimator.
    MemoryError
        If there is not enough memory, which does not mean that the file is damaged.
    """
    return read_estimator(path, _ESTIMATORS)


def refit(
    model: object,
    X: DataLike,
    y: DataLike | None = None,
    sample_weight: DataLike | None = None,
    **options: Any,
) -> Any:
    """Return a model with leaf values of other rows; the given one does not change.

    Parameters
    ----------
    model : fitted estimator, or polyleaf.Model that an estimator has trained
    X, y, sample_weight, **options
        Arguments of :meth:`polyleaf.PolyleafRegressor.refit`, such as `decay_rate`.

    Returns
    -------
    estimator or polyleaf.Model
        Like `model`.

    Raises
    ------
    ValueError
        If data do not match the model.
    """
    if isinstance(model, PolyleafEstimator):
        return copy.copy(model).refit(X, y, sample_weight, **options)
    if not isinstance(model, Model):
        raise TypeError(
            f"model must be a fitted estimator or a polyleaf.Model, got {type(model).__name__}."
        )
    name = model.metadata.get(ESTIMATOR)
    if name not in _ESTIMATORS:
        raise ValueError("The model was not trained by an estimator, so its loss is not known.")
    estimator = make_estimator(_ESTIMATORS[name], model)
    return estimator.refit(X, y, sample_weight, **options).model_


def blend(models: Sequence[object], weights: Sequence[float] | None = None) -> Any:
    """Join models to one whose raw scores are the weighted sum of theirs.

    Parameters
    ----------
    models : sequence of fitted estimators, or of polyleaf.Model
        Trained with the same bins (`Dataset(X, reference=models[0].mapper)`), objective and
        targets. Of estimators the rounds up to the best one of early stopping are used.
    weights : sequence of float, optional
        A positive weight for each model. Default: their mean, which is 1 divided by their number.

    Returns
    -------
    estimator or polyleaf.Model
        Like the models. Its leaf values are float32, so raw scores are equal up to rounding. It
        has the trees of all models, their mean decision thresholds, and no calibrations.

    Raises
    ------
    ValueError
        If the models do not match, or a weight is not positive.
    """
    return _join(models, lambda members: blend_models(members, weights))


def concatenate(models: Sequence[object]) -> Any:
    """Join models to one that has the rounds of all, one after another.

    `concatenate([model[:10], model[10:]])` is `model`.

    Parameters
    ----------
    models : sequence of fitted estimators, or of polyleaf.Model
        Trained with the same bins, objective and targets, and with the same base score, which the
        result has once. Of estimators the rounds up to the best one of early stopping are used.

    Returns
    -------
    estimator or polyleaf.Model
        Like the models, without calibrations and decision thresholds.

    Raises
    ------
    ValueError
        If the models do not match.
    """
    return _join(models, concatenate_models)


def _join(models: Sequence[Any], join: Callable[[list[Model]], Model]) -> object:
    if not isinstance(models, Iterable):
        raise TypeError(f"models must be a list of models, got one {type(models).__name__}.")
    models = list(models)
    if all(isinstance(model, Model) for model in models):
        return join(models)
    for i, model in enumerate(models):
        if not isinstance(model, PolyleafEstimator):
            raise TypeError(
                "models must be fitted estimators, or polyleaf.Model; "
                f"models[{i}] is {type(model).__name__}."
            )
        check_is_fitted(model)
    members = [estimator._get_best_rounds() for estimator in models]
    names = [member.metadata[ESTIMATOR] for member in members]
    for i, name in enumerate(names):
        if name != names[0]:
            raise ValueError(f"models[{i}] is a {name}, but models[0] is a {names[0]}.")
    return make_estimator(_ESTIMATORS[names[0]], join(members))
