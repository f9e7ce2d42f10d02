"""One task of a model of several, as the plain estimator for it.

Owns which estimator that is, and what of the model's parameters, names and logs is the task's. Must not know
how predictions are made: they are the estimator's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from polyleaf.estimators.base import HAS_OFFSETS, PolyleafEstimator
from polyleaf.estimators.classifier import PolyleafClassifier
from polyleaf.estimators.regressor import PolyleafRegressor
from polyleaf.inputs.targets import TargetEncoding
from polyleaf.model import Model
from polyleaf.objectives.multitask import TaskSlice

__all__ = ["plain_estimator"]

Logs = Mapping[str, Mapping[str, list[float]]]

_OF_ALL_TASKS = (
    "objective",
    "eval_metric",
    "base_score",
)  # parameters that name tasks, or scores of all


def plain_estimator(
    model: Model, place: TaskSlice, encoding: TargetEncoding, logs: Logs
) -> PolyleafRegressor | PolyleafClassifier:
    """A fitted estimator with trees of its own, whose scores are those of the task, bit for bit.

    Parameters
    ----------
    model : Model
        Of several tasks.
    place : TaskSlice
        Which of them.
    encoding : TargetEncoding
        Of its target.
    logs : dict
        `evals_result_` of all tasks.
    """
    cls: type[PolyleafEstimator] = (
        PolyleafRegressor if encoding.kind == "regression" else PolyleafClassifier
    )
    kept = {
        name: model.metadata[name]
        for name in (HAS_OFFSETS, "input_names")
        if name in model.metadata
    }
    given = model.metadata["parameters"]
    parameters = {name: value for name, value in given.items() if name not in _OF_ALL_TASKS}
    if _names_outputs(parameters.get("monotone_constraints")):
        del parameters["monotone_constraints"]
    about = kept | {"estimator": cls.__name__, "parameters": parameters, **encoding.to_dict()}
    estimator = cls._from_model(model.select_outputs(place.scores, place.task.objective, about))
    names = estimator._score_names(encoding, place.task.objective)
    if names is not None:  # classes without the name of the task before them
        estimator.model_.output_names = tuple(names)
    estimator.evals_result_ = _logs_of(place.task.name, logs)
    return estimator  # type: ignore[return-value]


def _names_outputs(constraints: Any) -> bool:
    """Whether directions are each output's own: then they are of scores that other estimators do not have."""
    each = constraints.values() if isinstance(constraints, Mapping) else constraints or ()
    return any(isinstance(of_feature, Mapping | list) for of_feature in each)


def _logs_of(task: str, logs: Logs) -> dict[str, dict[str, list[float]]]:
    mark = f"{task}: "
    return {
        data: own
        for data, metrics in logs.items()
        if (
            own := {
                name.removeprefix(mark): log
                for name, log in metrics.items()
                if name.startswith(mark)
            }
        )
    }
