"""Objectives: the losses that training minimises. base.py documents how an objective is used.

CONTRIBUTING.md, "Add an objective", explains how to add a loss.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from polyleaf.objectives.base import BoundObjective, Objective, is_built_in
from polyleaf.objectives.custom import Custom
from polyleaf.objectives.distributional import (
    GammaLikelihood,
    LogNormalLikelihood,
    NegativeBinomialLikelihood,
    NormalLikelihood,
    StudentTLikelihood,
)
from polyleaf.objectives.elementwise import (
    AbsoluteError,
    Gamma,
    Huber,
    Logistic,
    Poisson,
    Quantile,
    SquaredError,
    SquaredHinge,
    Tweedie,
)
from polyleaf.objectives.multiclass import Exponential, ExponentialMargin, Softmax
from polyleaf.objectives.multitask import MultiTask, multitask_from_dict
from polyleaf.objectives.registry import (
    get_registered,
    make_objective,
    register,
    registered_objectives,
)
from polyleaf.runtime.stored_names import from_stored

__all__ = [
    "AbsoluteError",
    "BoundObjective",
    "Custom",
    "Exponential",
    "ExponentialMargin",
    "Gamma",
    "GammaLikelihood",
    "Huber",
    "LogNormalLikelihood",
    "Logistic",
    "NegativeBinomialLikelihood",
    "NormalLikelihood",
    "Objective",
    "Poisson",
    "Quantile",
    "Softmax",
    "SquaredError",
    "SquaredHinge",
    "StudentTLikelihood",
    "Tweedie",
    "UnregisteredObjectiveError",
    "auto_objective_name",
    "distribution_names",
    "get_objective",
    "objective_class",
    "objective_from_dict",
    "objective_names",
    "register",
]

AnyObjective = str | type[Objective] | Objective | Callable[..., Any]


class UnregisteredObjectiveError(ValueError):
    """A model file's objective is a class that is not registered in this process."""


def objective_names() -> list[str]:
    """Return the canonical names of the built-in objectives."""
    return [name for name, cls in registered_objectives().items() if is_built_in(cls)]


def distribution_names() -> list[str]:
    """Return the canonical names of the built-in objectives that predict distributions."""
    registered = registered_objectives()
    return [name for name in objective_names() if registered[name].has_distribution]


def auto_objective_name(kind: str, sparse: bool) -> str:
    """Return the name of the objective that "auto" stands for.

    Parameters
    ----------
    kind : {"binary", "multiclass", "multilabel"}
        Kind of the target.
    sparse : bool
        Whether the target is a sparse matrix.

    Returns
    -------
    str
    """
    if kind == "multiclass":
        return Softmax.name
    return SquaredHinge.name if sparse else Logistic.name


def objective_class(objective: AnyObjective) -> type[Objective]:
    """Return the class of an objective.

    Parameters
    ----------
    objective : str, class, Objective or callable
        A name, a class, an objective or a function that returns derivatives.

    Returns
    -------
    type

    Raises
    ------
    ValueError
        For an unknown name and for any other type.
    """
    if isinstance(objective, str):
        return get_registered(objective)
    if isinstance(objective, Objective):
        return type(objective)
    if isinstance(objective, type) and issubclass(objective, Objective):
        return objective
    if callable(objective):
        return Custom
    raise ValueError(f"objective must be a name or a callable; got {type(objective).__name__}.")


def get_objective(objective: AnyObjective, **parameters: Any) -> Objective:
    """Return the objective of a name, class or callable.

    Parameters
    ----------
    objective : str, type, callable or Objective
        A name: canonical (`objective_names`, and those given to `register`), or one of XGBoost,
        LightGBM or CatBoost. A subclass of `Objective`. A function: a loss written with JAX, or
        one that returns ``(gradient, hessian)`` (see `Custom`). An `Objective` is returned
        unchanged.
    **parameters
        Fields of the class, or the estimator parameters that set them.

    Raises
    ------
    ValueError
        For an unknown name, an unknown parameter or a value out of range.
    """
    cls = objective_class(objective)
    if isinstance(objective, Objective):
        if parameters:
            raise ValueError(
                "objective is an instance and takes no further parameters; got "
                f"{sorted(parameters)}."
            )
        return objective
    if cls is Custom and objective is not Custom:
        parameters["function"] = objective
    return make_objective(cls, parameters)


def objective_from_dict(values: Mapping[str, Any]) -> Objective:
    """Return the objective of ``Objective.to_dict``; nothing is imported for it.

    Parameters
    ----------
    values : mapping
        Result of ``to_dict``; its values are not trusted.

    Returns
    -------
    Objective

    Raises
    ------
    UnregisteredObjectiveError
        If the class has to be registered first.
    ValueError
        If `values` is not such a dict.
    """
    if not isinstance(values, Mapping) or not isinstance(values.get("name"), str):
        raise ValueError("An objective is stored as a mapping with a 'name'; this one has none.")
    parameters = {key: tuple(v) if isinstance(v, list) else v for key, v in values.items()}
    name, label = str(parameters.pop("name")), parameters.pop("class", None)
    if name == Custom.name and label is None:
        if parameters.pop("function", None) is not None:
            raise ValueError("A stored custom objective holds no function.")
        return make_objective(Custom, from_stored(parameters))
    if name == MultiTask.name and label is None:
        return multitask_from_dict(values, objective_from_dict)
    cls = registered_objectives().get(name)
    if label is not None and (cls is None or is_built_in(cls)):
        module, _, qualified = str(label).partition(":")
        raise UnregisteredObjectiveError(
            f"The objective of this model, {name!r}, is the class {qualified} of the module "
            f"{module}, which "
            f"is not registered. Import it and call polyleaf.objectives.register({qualified}), "
            "then load the "
            "model again."
        )
    if cls is None or (label is None and not is_built_in(cls)):
        raise ValueError(
            f"Unknown objective {name!r} in stored model; known are {', '.join(objective_names())}."
        )
    if is_built_in(cls):
        parameters = from_stored(parameters)
    return make_objective(cls, parameters)
