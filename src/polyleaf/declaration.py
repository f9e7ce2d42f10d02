"""How a parameter is declared: once, with its name, type, default, allowed values and text.

Owns what follows from a declaration: the constructor, scikit-learn's checks, the documentation, and how a
value is read from text. Must not know any parameter.

A group of parameters is a class under `declares`, each parameter a line `name: type = parameter(...)`. The
constructor that it gets is one that `inspect`, editors and type checkers read (PEP 681). Groups are
inherited: by the estimators, and by the frozen parts of `settings.py` that a run is handed.
"""

from __future__ import annotations

import dataclasses
import json
import math
import textwrap
from collections.abc import Callable, Iterable, Sequence
from types import NoneType, UnionType
from typing import (
    Any,
    Literal,
    NamedTuple,
    TypeVar,
    Union,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

import numpy as np

__all__ = ["Declared", "Frozen", "constraints", "declarations", "declares", "numpydoc", "parameter"]

T = TypeVar("T")


def parameter(
    *,
    default: T,
    text: str,
    at_least: float | None = None,
    above: float | None = None,
    at_most: float | None = None,
    below: float | None = None,
    choices: Iterable[str] = (),
    kind: str | None = None,
    everyday: bool = False,
    kw_only: bool = True,
) -> T:
    """Declare one parameter.

    Parameters
    ----------
    default
        Its only home.
    text : str
        What it means, for the documentation; the first sentence must do on its own.
    at_least, above, at_most, below : float, optional
        Bounds of numbers.
    choices : iterable of str
        The only texts that are allowed, where the type says no more than `str`.
    kind : str, optional
        What the documentation calls the type, where its annotation would not read well.
    everyday : bool
        One of the dozen to look at first.
    kw_only : bool
    """
    about = {"text": text, "kind": kind, "everyday": everyday, "choices": tuple(choices)}
    bounds = {"at_least": at_least, "above": above, "at_most": at_most, "below": below}
    field: Any = dataclasses.field(default=default, kw_only=kw_only, metadata={**about, "bounds": bounds})
    return field


@dataclass_transform(kw_only_default=True, field_specifiers=(parameter,))
def declares(cls: type[T]) -> type[T]:
    """Give a group of parameters its constructor. What the class has of `==` and `repr` stays."""
    return dataclasses.dataclass(eq=False, repr=False, match_args=False, kw_only=True)(cls)


class Frozen:
    """Values that only the constructor sets.

    `dataclass(frozen=True)` cannot be had: estimators inherit the same groups, and they may be changed.
    """

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self.__dict__:
            raise dataclasses.FrozenInstanceError(f"{type(self).__name__}.{name} is set once.")
        object.__setattr__(self, name, value)


class Declared(NamedTuple):
    """One parameter, as it was declared.

    Attributes
    ----------
    name, text : str
    default : object
    types : tuple
        What its annotation allows, one by one.
    bounds : dict
    choices : tuple of str
    kind : str
        Its type in words.
    topic : str
        What the class says of itself that declares it.
    everyday, positional : bool
    """

    name: str
    text: str
    default: Any
    types: tuple[Any, ...]
    bounds: dict[str, float | None]
    choices: tuple[str, ...]
    kind: str
    topic: str
    everyday: bool
    positional: bool

    @property
    def summary(self) -> str:
        """The first sentence of its text."""
        return self.text.split(". ")[0].removesuffix(".") + "."

    def read(self, text: str) -> Any:
        """A value that was typed: JSON, None, True, False, or plain text where that is allowed.

        Raises
        ------
        ValueError
            Where it is plain text, and the parameter is no text.
        """
        words = {"None": None, "True": True, "False": False}
        if text in words:
            return words[text]
        try:
            return json.loads(text.replace("None", "null"))
        except json.JSONDecodeError:
            if not any(t in (str, Any) or get_origin(t) is Literal for t in self.types):
                raise ValueError(f"{self.name} is {self.kind}, not {text!r}.") from None
            return text


def declarations(cls: type) -> list[Declared]:
    """The parameters of a class, in the order of its constructor."""
    hints = get_type_hints(cls)
    homes = {name: home for home in reversed(cls.__mro__) for name in vars(home).get("__annotations__", ())}
    ordered = sorted(dataclasses.fields(cls), key=lambda field: bool(field.kw_only))
    return [
        _declared(field, hints[field.name], homes[field.name])
        for field in ordered
        if "text" in field.metadata
    ]


def _declared(field: dataclasses.Field[Any], hint: Any, home: type) -> Declared:
    types = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    about = dict(field.metadata)
    if about["kind"] is None:
        about["kind"] = " or ".join(_in_words(t, about["bounds"], about["choices"]) for t in types)
    topic = (home.__doc__ or home.__name__).splitlines()[0].rstrip(".")
    return Declared(
        field.name, default=field.default, types=types, topic=topic, positional=not field.kw_only, **about
    )


def _in_words(t: Any, bounds: dict[str, float | None], choices: tuple[str, ...]) -> str:
    """A type as the documentation has it: `float in (0, 1]`, `{"pre", "post"}`."""
    texts = get_args(t) if get_origin(t) is Literal else choices if t is str else ()
    if texts:
        return f"{{{', '.join(map(json.dumps, texts))}}}"
    words = "None" if t is NoneType else str(getattr(t, "__name__", t))
    return f"{words}{_range(**bounds)}" if t in (int, float) else words


def _range(at_least: float | None, above: float | None, at_most: float | None, below: float | None) -> str:
    low, high = at_least if above is None else above, at_most if below is None else below
    if low is None or high is None or math.isinf(high):
        return "" if low is None else f" {'>=' if above is None else '>'} {low}"
    return f" in {'[' if above is None else '('}{low}, {high}{']' if below is None else ')'}"


# --- scikit-learn's checks -------------------------------------------------------------------------


def constraints(cls: type) -> dict[str, list[Any] | str]:
    """What scikit-learn's validation allows each parameter to be."""
    return {
        p.name: "no_validation" if Any in p.types else _distinct(_constraint(t, p) for t in p.types)
        for p in declarations(cls)
    }


def _distinct(values: Iterable[Any]) -> list[Any]:
    found: list[Any] = []
    for value in values:
        if value not in found:
            found.append(value)
    return found


def _constraint(t: Any, p: Declared) -> Any:
    from sklearn.utils._param_validation import HasMethods, StrOptions

    kind = get_origin(t) or t
    if kind is Literal:
        return StrOptions(set(get_args(t)))
    if kind is str and p.choices:
        return StrOptions(set(p.choices))
    if kind in (int, float):
        return _interval(kind, **p.bounds)
    if getattr(kind, "_is_protocol", False):
        return HasMethods([name for name in vars(kind) if not name.startswith("_")])
    known = {
        NoneType: None,
        bool: "boolean",
        Callable: callable,
        Sequence: "array-like",
        np.ndarray: "array-like",
    }
    return known.get(kind, kind)


def _interval(
    kind: type, at_least: float | None, above: float | None, at_most: float | None, below: float | None
) -> Any:
    from numbers import Integral, Real

    from sklearn.utils._param_validation import Interval

    numbers = Integral if kind is int else Real
    low, high = at_least if above is None else above, at_most if below is None else below
    if low is None and high is None:
        return numbers
    high_given = None if high is None or math.isinf(high) else high
    closed = {(True, True): "both", (True, False): "left", (False, True): "right"}
    return Interval(
        numbers, low, high_given, closed=closed.get((at_least is not None, at_most is not None), "neither")
    )


# --- documentation ---------------------------------------------------------------------------------


_INDENTED: Any = {"initial_indent": "    ", "subsequent_indent": "    ", "break_on_hyphens": False}


def numpydoc(cls: type) -> str:
    """The sections Parameters, with the everyday ones, and Other Parameters, with the others by topic."""
    found = declarations(cls)
    lines = ["Parameters", "----------"]
    for p in found:
        if p.everyday:
            lines += _entry(p)
    lines += ["", "Other Parameters", "----------------"]
    topic = None
    for p in found:
        if not p.everyday:
            lines += _entry(p) if p.topic == topic else ["", p.topic, *_entry(p)]
            topic = p.topic
    return "\n".join(lines)


def _entry(p: Declared) -> list[str]:
    default = json.dumps(p.default) if isinstance(p.default, str) else repr(p.default)
    return [f"{p.name} : {p.kind}, default={default}", *textwrap.wrap(p.text, 106, **_INDENTED)]
