"""How a parameter is declared: once, with its name, type, default, allowed values and text.

Owns what follows from a declaration: the constructor, scikit-learn's checks, the documentation, and how a
value is read from text. Must not know any parameter.

A group of parameters is a class under `declares`; a parameter is a line `name: type = parameter(default=...)`
and the string below it. The constructor that the class gets is one that `inspect`, editors and type checkers
read (PEP 681). Groups are inherited: by the estimators, and by the frozen parts of `settings.py` that a run
is handed.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
import json
import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from numbers import Integral, Real
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

from polyleaf.settings.aliases import raise_unknown_parameters

__all__ = [
    "ParamSpec",
    "Frozen",
    "make_constraints",
    "get_param_specs",
    "declares",
    "format_parameters",
    "parameter",
]

T = TypeVar("T")


def parameter(
    *,
    default: T,
    within: str = "",
    choices: Iterable[str] = (),
    common: bool = False,
    kw_only: bool = True,
) -> T:
    """Declare one parameter. What it means is said by the string below; its first sentence does on its own.

    Parameters
    ----------
    default
        Its only home.
    within : str
        What numbers must be in: "(0, 1]", "[1, inf)".
    choices : iterable of str
        The only texts that are allowed, where the type says no more than `str`.
    common : bool
        One of the dozen to look at first.
    kw_only : bool
    """
    about = {"within": within, "choices": tuple(choices), "is_common": common}
    field: Any = dataclasses.field(default=default, kw_only=kw_only, metadata=about)
    return field


@dataclass_transform(kw_only_default=True, field_specifiers=(parameter,))
def declares(cls: type[T]) -> type[T]:
    """Give a group of parameters its constructor. What the class has of `==` and `repr` stays."""
    made = dataclasses.dataclass(eq=False, repr=False, match_args=False, kw_only=True)(cls)
    plain: Any = made.__init__
    fields = dataclasses.fields(made)  # type: ignore[arg-type]
    names = [field.name for field in fields]
    n_by_place = sum(field.init and not field.kw_only for field in fields)

    @functools.wraps(plain)
    def checked(self: Any, *args: Any, **parameters: Any) -> None:
        raise_unknown_parameters(type(self).__name__, parameters, names)
        if len(args) > n_by_place:
            taken = f"takes {n_by_place} parameter{'' if n_by_place == 1 else 's'} by place"
            others = "write the others by name, such as n_estimators=100."
            raise TypeError(f"{type(self).__name__}() {taken} and was given {len(args)}: {others}")
        if args and isinstance(args[0], Mapping) and not _may_be_mapping(type(self)):
            raise TypeError(
                f"{type(self).__name__}() was given a dict in the place of one parameter: parameters are "
                f"keywords, {type(self).__name__}(**parameters)."
            )
        plain(self, *args, **parameters)

    made.__init__ = checked  # type: ignore[method-assign]
    return made


def _may_be_mapping(cls: type) -> bool:
    """Whether what a class takes by place may be a mapping."""
    by_place = [field.name for field in dataclasses.fields(cls) if field.init and not field.kw_only]  # type: ignore[arg-type]
    taken = [t for p in get_param_specs(cls) if p.name in by_place for t in p.types]
    return any((get_origin(t) or t) is Mapping for t in taken)


class Frozen:
    """Values that only the constructor sets.

    `dataclass(frozen=True)` cannot be had: estimators inherit the same groups, and they may be changed.
    """

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self.__dict__:
            raise dataclasses.FrozenInstanceError(f"{type(self).__name__}.{name} is set once.")
        object.__setattr__(self, name, value)


class ParamSpec(NamedTuple):
    """One parameter, as it was declared.

    Attributes
    ----------
    name, text : str
    default : object
    types : tuple
        What its annotation allows, one by one.
    topic : str
        What the class says of itself that declares it.
    within : str
    choices : tuple of str
    is_common : bool
    """

    name: str
    text: str
    default: Any
    types: tuple[Any, ...]
    topic: str
    within: str
    choices: tuple[str, ...]
    is_common: bool

    @property
    def kind(self) -> str:
        """Its type in words: `float in (0, 1]`, `{"pre", "post"}`, `int or None`."""
        return " or ".join(_distinct(self._in_words(t) for t in self.types))

    def _in_words(self, t: Any) -> str:
        texts = get_args(t) if get_origin(t) is Literal else self.choices if t is str else ()
        if texts:
            return f"{{{', '.join(map(json.dumps, texts))}}}"
        kind = get_origin(t) or t
        words = _KINDS[kind][0] if kind in _KINDS else kind.__name__
        return f"{words} in {self.within}" if self.within and kind in (int, float) else words

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


def get_param_specs(cls: type) -> tuple[ParamSpec, ...]:
    """The parameters of a class, in the order of its constructor."""
    return _declarations(cls)


@functools.cache
def _declarations(cls: Any) -> tuple[ParamSpec, ...]:
    hints = get_type_hints(cls)
    homes = {
        name: home
        for home in reversed(cls.__mro__)
        for name in vars(home).get("__annotations__", ())
    }
    found = []
    for field in sorted(dataclasses.fields(cls), key=lambda field: bool(field.kw_only)):
        if not field.metadata:
            continue
        name, hint, home = field.name, hints[field.name], homes[field.name]
        types = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
        topic = (home.__doc__ or home.__name__).splitlines()[0].rstrip(".")
        text = _texts(home.__module__).get((home.__name__, name), "")
        found.append(ParamSpec(name, text, field.default, types, topic, **field.metadata))
    return tuple(found)


@functools.cache
def _texts(module: str) -> dict[tuple[str, str], str]:
    """The strings below the fields of the classes of a module, by class and field.

    Bytecode does not keep them, so they are read from the source. Where there is none, nothing is lost but
    documentation.
    """
    try:
        tree = ast.parse(inspect.getsource(sys.modules[module]))
    except OSError:
        return {}
    return {
        (group.name, ast.unparse(field.target)): " ".join(str(below.value.value).split())
        for group in tree.body
        if isinstance(group, ast.ClassDef)
        for field, below in pairwise(group.body)
        if isinstance(field, ast.AnnAssign)
        and isinstance(below, ast.Expr)
        and isinstance(below.value, ast.Constant)
    }


def _distinct(values: Iterable[T]) -> list[T]:
    found: list[T] = []
    for value in values:
        if value not in found:
            found.append(value)
    return found


# What types that are no numbers and no texts are called, by the documentation and by scikit-learn's checks.
_KINDS: dict[Any, tuple[str, Any]] = {
    NoneType: ("None", None),
    bool: ("bool", "boolean"),
    Callable: ("callable", callable),
    Sequence: ("array-like", "array-like"),
    Mapping: ("dict", Mapping),
    np.ndarray: ("array-like", "array-like"),
}


# --- scikit-learn's checks -------------------------------------------------------------------------


def make_constraints(cls: type) -> dict[str, list[Any] | str]:
    """What scikit-learn's validation allows each parameter to be."""
    return {
        p.name: "no_validation" if Any in p.types else _distinct(_constraint(t, p) for t in p.types)
        for p in get_param_specs(cls)
    }


def _constraint(t: Any, p: ParamSpec) -> Any:
    from sklearn.utils._param_validation import HasMethods, Interval, StrOptions

    kind = get_origin(t) or t
    if kind is Literal or (kind is str and p.choices):
        return StrOptions(set(get_args(t) or p.choices))
    if kind in (int, float):
        numbers = Integral if kind is int else Real
        if not p.within:
            return numbers
        low, high = (
            None if end.strip() == "inf" else kind(end) for end in p.within[1:-1].split(",")
        )
        closed = {"[]": "both", "[)": "left", "(]": "right", "()": "neither"}
        return Interval(numbers, low, high, closed=closed[p.within[0] + p.within[-1]])
    if getattr(kind, "_is_protocol", False):
        return HasMethods([name for name in vars(kind) if not name.startswith("_")])
    return _KINDS[kind][1] if kind in _KINDS else kind


# --- documentation ---------------------------------------------------------------------------------


def format_parameters(cls: type) -> str:
    """The sections Parameters, with the everyday ones, and Other Parameters, with the others by topic."""
    found = get_param_specs(cls)
    rest = [p for p in found if not p.is_common]
    lines = ["Parameters", "----------", *(_entry(p) for p in found if p.is_common)]
    lines += ["", "Other Parameters", "----------------"]
    for topic in _distinct(p.topic for p in rest):
        lines += ["", topic, *(_entry(p) for p in rest if p.topic == topic)]
    return "\n".join(lines)


def _entry(p: ParamSpec) -> str:
    default = json.dumps(p.default) if isinstance(p.default, str) else repr(p.default)
    text = textwrap.fill(p.text, 102, break_long_words=False, break_on_hyphens=False)
    return f"{p.name} : {p.kind}, default={default}\n{textwrap.indent(text, '    ')}"
