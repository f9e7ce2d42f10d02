"""The registry of objectives, and how they are made of a name, a class, a function or a stored
dict."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, NamedTuple, TypeAlias, TypeVar

from polyleaf.objectives.base import TARGET_KINDS, Objective, class_path, is_built_in
from polyleaf.objectives.custom import Custom
from polyleaf.objectives.multitask import MultiTask, multitask_from_dict

AnyObjective = str | type[Objective] | Objective | Callable[..., Any]

_Class = TypeVar("_Class", bound=type[Objective])

_BY_NAME: dict[str, type[Objective]] = {}
_ALIASES: dict[str, str] = {}

_RESERVED = ("auto", "custom", "tasks")


class UnregisteredObjectiveError(ValueError):
    """A model file's objective is a class that is not registered in this process."""


def register(cls: _Class) -> _Class:
    """Register an objective under its name; a class decorator.

    It can then be trained by name (``objective="my_loss"``), and model files that were trained
    with it can be loaded: a file keeps the name, the parameters, and the import path of the class.
    Registering a class again, as a notebook does, replaces it.

    Parameters
    ----------
    cls : type
        A subclass of `Objective`, decorated with ``@dataclass(frozen=True)``, whose fields are its
        parameters: numbers, strings, booleans, None, and tuples of these.

    Returns
    -------
    cls

    Raises
    ------
    TypeError
        If `cls` is no such class.
    ValueError
        If its name is missing or taken, or its class attributes contradict each other.
    """
    if not (isinstance(cls, type) and issubclass(cls, Objective)):
        raise TypeError(f"register takes a subclass of polyleaf.objectives.Objective; got {cls!r}.")
    if "__dataclass_params__" not in vars(cls):
        raise TypeError(
            f"Decorate {cls.__name__} with @dataclass(frozen=True), below @register: its fields "
            "are the parameters that a model file keeps."
        )
    if inspect.isabstract(cls):
        missing = ", ".join(sorted(cls.__abstractmethods__))
        raise TypeError(f"{cls.__name__} is not complete: it must define {missing}.")
    _check_class_attributes(cls)
    for name in (cls.name, *cls.aliases):
        holder = find_objective(name)
        if name in _RESERVED or (holder is not None and class_path(cls) != class_path(holder)):
            owner = "Polyleaf itself" if holder is None else class_path(holder)
            raise ValueError(
                f"The name {name!r} of {cls.__name__} is taken by {owner}: choose another."
            )
    _BY_NAME[cls.name] = cls
    _ALIASES.update(dict.fromkeys(cls.aliases, cls.name))
    return cls


def _check_class_attributes(cls: type[Objective]) -> None:
    problem, names = None, {field.name for field in fields(cls)}
    unknown = sorted(set(cls.parameters.values()) - names)
    if not isinstance(getattr(cls, "name", None), str) or not cls.name:
        problem = " needs a name: a class attribute that is a str."
    elif not cls.target_kinds or not set(cls.target_kinds) <= set(TARGET_KINDS):
        kinds = ", ".join(TARGET_KINDS)
        problem = f".target_kinds must be some of {kinds}; got {cls.target_kinds!r}."
    elif unknown:
        problem = f".parameters names {unknown[0]!r}, which is not a field of the class."
    if problem is not None:
        raise ValueError(f"{cls.__name__}{problem}")


def registered_objectives() -> dict[str, type[Objective]]:
    """Return all objectives by canonical name, the built-in ones first."""
    return dict(_BY_NAME)


def find_objective(name: str) -> type[Objective] | None:
    """Return the class of a canonical name or an alias, in any case, or None."""
    for spelling in (name, name.lower()):
        cls = _BY_NAME.get(_ALIASES.get(spelling, spelling))
        if cls is not None:
            return cls
    return None


# Objectives of other libraries without a counterpart, by the beginnings of their names.
_ALTERNATIVES = {
    "rank:map": "'lambdarank' with lambda_metric='map' ranks by average precision.",
    "yetirankpairwise pairlogitpairwise": "'yetirank' and 'pairwise' are closest.",
    "rank: ndcg queryrmse querysoftmax stochasticrank lambdamart: yetirank:": "'xendcg', "
    "'lambdarank', 'pairwise' and 'yetirank' rank.",
    "survival: cox": "For survival analysis, classify intervals: polyleaf.distributions.survival.",
    "reg:pseudohubererror fair": "'huber' is closest.",
    "reg:squaredlogerror": "Train 'squared_error' on np.log1p(y).",
    "binary:hinge hinge": "'squared_hinge' is closest.",
    "multiclassova ovr softmaxova": "'logistic' learns each class against the others.",
    "quantile: multiquantile:": "Set the levels with quantile_alpha=[...] and "
    "objective='quantile'.",
    "crossentropy": "'logistic' takes targets in [0, 1].",
    "tweedie: poisson: huber:": "Set what follows the colon with a parameter: huber_delta and the "
    "like.",
    "rmsewithuncertainty": "'normal' predicts a mean and a standard deviation.",
}


def _suggest(name: str) -> str:
    for beginnings, sentence in _ALTERNATIVES.items():
        if name.startswith(tuple(beginnings.split())):
            return f" {sentence}"
    close = difflib.get_close_matches(name, [*_BY_NAME, *_ALIASES], n=1)
    return f" Did you mean {close[0]!r}?" if close else ""


def get_registered(name: str) -> type[Objective]:
    """Return the class of a name; raise ValueError with a suggestion if there is none."""
    cls = find_objective(name)
    if cls is None:
        raise ValueError(
            f"Unknown objective {name!r}.{_suggest(name.lower())} Known are "
            f"{', '.join(_BY_NAME)}, and any callable."
        )
    return cls


def make_objective(cls: type[Objective], parameters: dict[str, object]) -> Objective:
    """Return an objective with parameters named as its fields or as an estimator's parameters.

    Raises a ValueError for an unknown parameter, and a value out of range or of the wrong type.
    """
    names = [field.name for field in fields(cls)]
    renamed = {cls.parameters.get(key, key): value for key, value in parameters.items()}
    unknown = [key for key in renamed if key not in names]
    if unknown:
        raise ValueError(
            f"Objective {cls.name!r} has no parameter {unknown[0]!r}; it takes "
            f"{', '.join(names) if names else 'none'}."
        )
    try:
        return cls(**renamed)
    except TypeError as error:
        raise ValueError(
            f"Objective {cls.name!r}: a parameter has the wrong type ({error})."
        ) from None


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
    """
    if kind == "multiclass":
        return "softmax"
    return "squared_hinge" if sparse else "logistic"


class ObjectiveSpec(NamedTuple):
    """The one form of an objective that a user gives as a name, class, object or function."""

    cls: type[Objective]  # its class
    label: str | None = None  # the name that the user gave
    instance: Objective | None = None  # the object that the user gave, which takes no parameters
    function: Callable[..., Any] | None = None  # the function that the user gave, for `Custom`

    def make(self, **parameters: object) -> Objective:
        """Make the objective; see `get_objective`."""
        if self.instance is not None:
            if parameters:
                raise ValueError(
                    "objective is an instance and takes no further parameters; got "
                    f"{sorted(parameters)}."
                )
            return self.instance
        if self.function is not None:
            parameters["function"] = self.function
        return make_objective(self.cls, parameters)


ResolvedObjective: TypeAlias = ObjectiveSpec | Mapping[Any, ObjectiveSpec] | None
"""An objective, the objectives of several tasks, or None if it depends on the target."""


def resolve_objective(objective: AnyObjective) -> ObjectiveSpec:
    """Return the form of an objective that the rest of the package reads.

    Raises a ValueError for an unknown name and for any other type.
    """
    if isinstance(objective, str):
        return ObjectiveSpec(get_registered(objective), label=objective)
    if isinstance(objective, Objective):
        return ObjectiveSpec(type(objective), instance=objective)
    if isinstance(objective, type) and issubclass(objective, Objective):
        return ObjectiveSpec(objective)
    if callable(objective):
        return ObjectiveSpec(Custom, function=objective)
    raise ValueError(f"objective must be a name or a callable; got {type(objective).__name__}.")


def objective_class(objective: AnyObjective) -> type[Objective]:
    """Return the class of an objective; `objective` is as in `get_objective`."""
    return resolve_objective(objective).cls


def get_objective(objective: AnyObjective, **parameters: object) -> Objective:
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
    return resolve_objective(objective).make(**parameters)


def objective_from_dict(values: Mapping[str, object]) -> Objective:
    """Return the objective of ``Objective.to_dict``; nothing is imported for it.

    Parameters
    ----------
    values : mapping
        Result of ``to_dict``; its values are not trusted.

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
        return make_objective(Custom, parameters)
    if name == MultiTask.name and label is None:
        return multitask_from_dict(values, objective_from_dict)
    cls = registered_objectives().get(name)
    if label is not None and (cls is None or is_built_in(cls)):
        module, _, qualified = str(label).partition(":")
        raise UnregisteredObjectiveError(
            f"The objective of this model, {name!r}, is the class {qualified} of the module "
            f"{module}, which is not registered. Import it and call "
            f"polyleaf.objectives.register({qualified}), then load the model again."
        )
    if cls is None or (label is None and not is_built_in(cls)):
        raise ValueError(
            f"Unknown objective {name!r} in stored model; known are {', '.join(objective_names())}."
        )
    return make_objective(cls, parameters)
