"""The registry of objectives by name and alias."""

from __future__ import annotations

import difflib
import inspect
from dataclasses import fields
from typing import Any, TypeVar

from polyleaf.objectives.base import TARGET_KINDS, Objective, class_path

__all__ = [
    "find_objective",
    "get_registered",
    "make_objective",
    "register",
    "registered_objectives",
]

_Class = TypeVar("_Class", bound=type[Objective])

_BY_NAME: dict[str, type[Objective]] = {}
_ALIASES: dict[str, str] = {}

_RESERVED = ("auto", "custom", "tasks")


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
            "are the "
            "parameters that a model file keeps."
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
    if not isinstance(getattr(cls, "name", None), str) or not cls.name:
        raise ValueError(f"{cls.__name__} needs a name: a class attribute that is a str.")
    if not cls.target_kinds or not set(cls.target_kinds) <= set(TARGET_KINDS):
        raise ValueError(
            f"{cls.__name__}.target_kinds must be some of {', '.join(TARGET_KINDS)}; got "
            f"{cls.target_kinds!r}."
        )
    names = {field.name for field in fields(cls)}
    unknown = sorted(set(cls.parameters.values()) - names)
    if unknown:
        raise ValueError(
            f"{cls.__name__}.parameters names {unknown[0]!r}, which is not a field of the class."
        )


def registered_objectives() -> dict[str, type[Objective]]:
    """Return all objectives by canonical name, the built-in ones first."""
    return dict(_BY_NAME)


def find_objective(name: str) -> type[Objective] | None:
    """Return the class of a canonical name or an alias, in any case, or None."""
    for spelling in (name, name.lower()):
        found = _BY_NAME.get(_ALIASES.get(spelling, spelling))
        if found is not None:
            return found
    return None


# Objectives of other libraries without a counterpart, by the beginnings of their names.
_ALTERNATIVES = {
    "rank: lambdarank ndcg yetirank queryrmse pairlogit xendcg": "There are no ranking objectives.",
    "survival: cox": "For survival analysis, classify intervals: polyleaf.distributions.survival.",
    "reg:pseudohubererror fair": "'huber' is closest.",
    "reg:squaredlogerror": "Train 'squared_error' on np.log1p(y).",
    "mape": "Train 'absolute_error' with sample_weight=1 / np.maximum(1, np.abs(y)).",
    "binary:hinge": "'squared_hinge' is closest.",
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
    found = find_objective(name)
    if found is None:
        raise ValueError(
            f"Unknown objective {name!r}.{_suggest(name.lower())} Known are {', '.join(_BY_NAME)}, "
            "and any "
            "callable."
        )
    return found


def make_objective(cls: type[Objective], parameters: dict[str, Any]) -> Objective:
    """Return an objective with parameters named as its fields or as an estimator's parameters.

    Raises
    ------
    ValueError
        For an unknown parameter, and a value out of range or of the wrong type.
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
