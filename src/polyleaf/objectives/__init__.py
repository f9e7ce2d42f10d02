"""Objectives: what training minimises. Start with base.py, which says how an objective is used.

Owns how one is made of a name, a class, a function or a model file. Each says of itself what others need to
know; its name means nothing outside this folder. How a loss is added: CONTRIBUTING.md, "Add an objective".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

from polyleaf.objectives import binary, distributional, exponential, location, log_link, softmax
from polyleaf.objectives.base import BoundObjective, Objective, is_built_in, stored_name
from polyleaf.objectives.binary import *  # noqa: F403
from polyleaf.objectives.custom import Custom
from polyleaf.objectives.distributional import *  # noqa: F403
from polyleaf.objectives.exponential import *  # noqa: F403
from polyleaf.objectives.location import *  # noqa: F403
from polyleaf.objectives.log_link import *  # noqa: F403
from polyleaf.objectives.multitask import MultiTask, multitask_from_dict
from polyleaf.objectives.registry import get_registered, known, make, register
from polyleaf.objectives.softmax import *  # noqa: F403
from polyleaf.runtime.stored_names import from_stored

__all__ = [
    "Custom",
    "UnregisteredObjectiveError",
    "Objective",
    "BoundObjective",
    "auto_objective_name",
    "distribution_names",
    "get_objective",
    "objective_class",
    "objective_from_dict",
    "objective_names",
    "register",
]
__all__ += (
    binary.__all__
    + exponential.__all__
    + location.__all__
    + log_link.__all__
    + softmax.__all__
    + distributional.__all__
)

AnyObjective = str | type[Objective] | Objective | Callable[..., Any]


class UnregisteredObjectiveError(ValueError):
    """A model file's objective is a class that is not registered here."""


def objective_names() -> list[str]:
    """Canonical names of the objectives built in."""
    return [name for name, cls in known().items() if is_built_in(cls)]


def distribution_names() -> list[str]:
    """Of these, the names of those that predict distributions."""
    return [name for name in objective_names() if known()[name].has_distribution]


def auto_objective_name(kind: str, sparse: bool) -> str:
    """The name of the objective that "auto" stands for.

    Parameters
    ----------
    kind : {"binary", "multiclass", "multilabel"}
        Of the target.
    sparse : bool
        Whether it is a sparse matrix.

    Returns
    -------
    str
    """
    if kind == "multiclass":
        return softmax.Softmax.name
    return binary.SquaredHinge.name if sparse else binary.Logistic.name


def objective_class(objective: AnyObjective) -> type[Objective]:
    """The class of an objective.

    Parameters
    ----------
    objective : str, class, Objective or callable
        A name, a class, an objective or a function that gives derivatives.

    Returns
    -------
    type

    Raises
    ------
    ValueError
        For anything else, and for a name that there is not.
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
    """The objective of that name or class, or the callable as an objective.

    Parameters
    ----------
    objective : str, type, callable or Objective
        A name: canonical (`objective_names`, and those given to `register`), or one that XGBoost, LightGBM or
        CatBoost use. A subclass of `Objective`. A function: a loss written with JAX, or one that returns
        ``(gradient, curvature)`` (see `Custom`). An `Objective` is returned as it is.
    **parameters
        Fields of its class; the names that estimators have for them will do.

    Raises
    ------
    ValueError
        For an unknown name, an unknown parameter or a value out of range.
    """
    cls = objective_class(objective)
    if isinstance(objective, Objective):
        if parameters:
            raise ValueError(
                f"An objective that is already made takes no parameters; got {sorted(parameters)}."
            )
        return objective
    if cls is Custom and objective is not Custom:
        parameters["function"] = objective
    return make(cls, parameters)


def objective_from_dict(values: Mapping[str, Any]) -> Objective:
    """The inverse of ``Objective.to_dict``. Nothing is imported for it.

    Parameters
    ----------
    values : mapping
        What that gave; its values are not trusted.

    Returns
    -------
    Objective

    Raises
    ------
    UnregisteredObjectiveError
        Where `values` is of a class that `register` would have to make known first.
    ValueError
        Where it is not such a dict.
    """
    if not isinstance(values, Mapping) or not isinstance(values.get("name"), str):
        raise ValueError("An objective is stored as a mapping with a 'name'; this one has none.")
    parameters = {key: tuple(v) if isinstance(v, list) else v for key, v in values.items()}
    name, label = str(parameters.pop("name")), parameters.pop("class", None)
    if name == Custom.name and label is None:
        if parameters.pop("function", None) is not None:
            raise ValueError("A stored custom objective holds no function.")
        parameters = {
            "hessian" if k == stored_name("hessian") else k: v for k, v in parameters.items()
        }
        return make(Custom, parameters)
    if name == MultiTask.name and label is None:
        return multitask_from_dict(values, objective_from_dict)
    cls = known().get(name)
    if cls is not None and is_built_in(cls):
        names = {stored_name(field.name): field.name for field in fields(cls)}
        parameters = {names.get(key, key): value for key, value in parameters.items()}
    if label is not None and (cls is None or is_built_in(cls)):
        module, _, qualified = str(label).partition(":")
        raise UnregisteredObjectiveError(
            f"The objective of this model, {name!r}, is the class {qualified} of the module {module}, which "
            f"is not registered here. Import it and call polyleaf.objectives.register({qualified}), then "
            "load the model again."
        )
    if cls is None or (label is None and not is_built_in(cls)):
        raise ValueError(
            f"Unknown objective {name!r} in stored model; known are {', '.join(objective_names())}."
        )
    if is_built_in(cls):
        parameters = from_stored(parameters, cls.__dataclass_fields__)
    return make(cls, parameters)
