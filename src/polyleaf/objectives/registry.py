"""Which objectives there are. Owns their names, and what a class must say of itself to be one of them; must
not know any particular loss."""

from __future__ import annotations

import difflib
import inspect
from dataclasses import fields
from typing import Any, TypeVar

from polyleaf.objectives.base import TARGET_KINDS, Objective, origin

__all__ = ["find", "get_registered", "known", "make", "register"]

_Class = TypeVar("_Class", bound=type[Objective])

_BY_NAME: dict[str, type[Objective]] = {}
_ALIASES: dict[str, str] = {}

_RESERVED = ("auto", "custom", "tasks")


def register(cls: _Class) -> _Class:
    """Make an objective known by its name; a decorator.

    It can then be trained by name (``objective="my_loss"``), and model files that were trained with it can be
    loaded: a file keeps the name, the parameters, and which class of which module to register. To register a
    class again, as a notebook does, replaces it.

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
        For what is no such class.
    ValueError
        For a name that is missing or taken, and traits that contradict each other.
    """
    if not (isinstance(cls, type) and issubclass(cls, Objective)):
        raise TypeError(f"register takes a subclass of polyleaf.objectives.Objective; got {cls!r}.")
    if "__dataclass_params__" not in vars(cls):
        raise TypeError(
            f"Decorate {cls.__name__} with @dataclass(frozen=True), below @register: its fields are the "
            "parameters that a model file keeps."
        )
    if inspect.isabstract(cls):
        missing = ", ".join(sorted(cls.__abstractmethods__))
        raise TypeError(f"{cls.__name__} is not complete: it must define {missing}.")
    _check_traits(cls)
    for name in (cls.name, *cls.aliases):
        holder = find(name)
        if name in _RESERVED or (holder is not None and origin(cls) != origin(holder)):
            by = "Polyleaf itself" if holder is None else origin(holder)
            raise ValueError(
                f"The name {name!r} of {cls.__name__} is taken by {by}: choose another."
            )
    _BY_NAME[cls.name] = cls
    _ALIASES.update(dict.fromkeys(cls.aliases, cls.name))
    return cls


def _check_traits(cls: type[Objective]) -> None:
    if not isinstance(getattr(cls, "name", None), str) or not cls.name:
        raise ValueError(f"{cls.__name__} needs a name: a class attribute that is a str.")
    if not cls.target_kinds or not set(cls.target_kinds) <= set(TARGET_KINDS):
        raise ValueError(
            f"{cls.__name__}.target_kinds must be some of {', '.join(TARGET_KINDS)}; got "
            f"{cls.target_kinds!r}."
        )
    own = {field.name for field in fields(cls)}
    unknown = sorted(set(cls.parameters.values()) - own)
    if unknown:
        raise ValueError(
            f"{cls.__name__}.parameters names {unknown[0]!r}, which is no field of the class."
        )


def known() -> dict[str, type[Objective]]:
    """Canonical names of all objectives, with their classes: those built in, then those registered."""
    return dict(_BY_NAME)


def find(name: str) -> type[Objective] | None:
    """The class of a canonical name or an alias, in any case; None where there is none."""
    for spelling in (name, name.lower()):
        found = _BY_NAME.get(_ALIASES.get(spelling, spelling))
        if found is not None:
            return found
    return None


# Objectives of other libraries that there are none of here, by how their names begin.
_INSTEAD = {
    "rank: lambdarank ndcg yetirank queryrmse pairlogit xendcg": "There are no objectives for ranking.",
    "survival: cox": "Times until an event are learned as labels of intervals: polyleaf.distributions.survival.",
    "reg:pseudohubererror fair": "'huber' is nearest.",
    "reg:squaredlogerror": "Train 'squared_error' on np.log1p(y).",
    "mape": "Train 'absolute_error' with sample_weight=1 / np.maximum(1, np.abs(y)).",
    "binary:hinge": "'squared_hinge' is nearest.",
    "multiclassova ovr softmaxova": "'logistic' learns each class against the others.",
    "quantile: multiquantile:": "Levels have a parameter: objective='quantile', quantile_alpha=[...].",
    "crossentropy": "'logistic' takes targets in [0, 1].",
    "tweedie: poisson: huber:": "What follows the colon has a parameter: huber_delta and the like.",
    "rmsewithuncertainty": "'normal' predicts a mean and its spread.",
}


def _meant(name: str) -> str:
    for beginnings, words in _INSTEAD.items():
        if name.startswith(tuple(beginnings.split())):
            return f" {words}"
    close = difflib.get_close_matches(name, [*_BY_NAME, *_ALIASES], n=1)
    return f" Did you mean {close[0]!r}?" if close else ""


def get_registered(name: str) -> type[Objective]:
    """The same; ValueError with the nearest name where there is none."""
    found = find(name)
    if found is None:
        raise ValueError(
            f"Unknown objective {name!r}.{_meant(name.lower())} Known are "
            f"{', '.join(_BY_NAME)}, and any callable."
        )
    return found


def make(cls: type[Objective], parameters: dict[str, Any]) -> Objective:
    """An objective with these parameters, by the names of its fields or of an estimator's arguments.

    Raises
    ------
    ValueError
        For a parameter that it does not have, or a value out of range or of the wrong type.
    """
    own = [field.name for field in fields(cls)]
    renamed = {cls.parameters.get(key, key): value for key, value in parameters.items()}
    unknown = [key for key in renamed if key not in own]
    if unknown:
        raise ValueError(
            f"Objective {cls.name!r} has no parameter {unknown[0]!r}; it takes "
            f"{', '.join(own) if own else 'none'}."
        )
    try:
        return cls(**renamed)
    except TypeError as error:
        raise ValueError(
            f"Objective {cls.name!r}: a parameter has the wrong type ({error})."
        ) from None
