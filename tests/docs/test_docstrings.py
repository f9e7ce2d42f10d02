"""Docstrings document every argument of all public functions and classes.

An argument is documented if it heads an entry of the parameters or attributes (`name : type`, or
`a, b` for several) or stands in backquotes: for a function in its docstring, for a constructor in
that of the class, for a method in its docstring or that of a method that it overrides.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support.public_names import EXTRA, MODULES, public_names

ENTRY = re.compile(r"^(\*{0,2}\w+(?:, \*{0,2}\w+)*)(?: : .*)?$", re.MULTILINE)
TITLE = re.compile(r"^(\w[\w ]*)\n-{3,}\n", re.MULTILINE)


def documented_names(docstring: str) -> set[str]:
    """Return the arguments that a docstring documents."""
    _, *parts = TITLE.split(inspect.cleandoc(docstring))
    entries = [
        entry
        for title, text in zip(parts[::2], parts[1::2], strict=True)
        if title in ("Parameters", "Other Parameters", "Attributes")
        for entry in ENTRY.findall(text)
    ]
    return set(re.findall(r"\w+", " ".join([*entries, *re.findall(r"`+([^`]+)`+", docstring)])))


def find_undocumented(function: Callable[..., Any], *docstrings: str | None) -> list[str]:
    """Return the arguments of a function that are documented in none of the docstrings."""
    known = set().union(*(documented_names(text or "") for text in docstrings))
    names = [name for name in inspect.signature(function).parameters if name not in ("self", "cls")]
    return [name for name in names if name not in known and not name.startswith("_")]


def is_ours(function: Any) -> bool:
    return (getattr(inspect.unwrap(function), "__module__", None) or "").startswith("polyleaf")


def public_methods(cls: type) -> Iterator[tuple[str, Callable[..., Any], list[str | None]]]:
    """Yield name, function and docstrings of each method, with those that it overrides."""
    for name in dir(cls):
        method = getattr(cls, name, None)
        if not name.startswith("_") and inspect.isroutine(method) and is_ours(method):
            yield (
                name,
                method,
                [vars(base)[name].__doc__ for base in cls.__mro__ if name in vars(base)],
            )


def find_undocumented_in(name: str, value: Any) -> list[str]:
    """Return the undocumented arguments of a function or class, as "name: arguments"."""
    found = {}
    if inspect.isclass(value):
        is_made = not getattr(value, "_is_protocol", False) and not issubclass(value, BaseException)
        if is_made:
            found[name] = find_undocumented(value, *(base.__doc__ for base in value.__mro__))
        for method, function, docstrings in public_methods(value):
            found[f"{name}.{method}"] = find_undocumented(function, *docstrings)
    elif callable(value):
        found[name] = find_undocumented(value, value.__doc__)
    return [f"{where}: {', '.join(names)}" for where, names in found.items() if names]


@pytest.mark.parametrize("module", MODULES)
def test_all_arguments_are_documented(module):
    if module in EXTRA:
        pytest.importorskip(EXTRA[module], reason="an extra is not installed")
    values = importlib.import_module(module)
    assert [
        line
        for name in public_names(module)
        for line in find_undocumented_in(name, getattr(values, name))
    ] == []


def test_missing_arguments_are_found():
    class Base:
        """The argument of the constructor is undocumented."""

        def __init__(self, size):
            self.size = size

        def both(self, first, second):
            """The second argument occurs in the returns only.

            Parameters
            ----------
            first : int

            Returns
            -------
            second : int
            """

        def documented_names(self, one, two, *rest):
            """All arguments are documented, `two` in the text.

            Parameters
            ----------
            one, *rest : int
            """

    class Derived(Base):
        """The argument of the inherited constructor is documented.

        Parameters
        ----------
        size : int
        """

        def documented_names(self, one, two, three):
            """The third argument is undocumented."""

    Base.__module__ = Derived.__module__ = "polyleaf"
    for function in (Base.both, Base.documented_names, Derived.documented_names):
        function.__module__ = "polyleaf"
    assert find_undocumented_in("Base", Base) == ["Base: size", "Base.both: second"]
    assert find_undocumented_in("Derived", Derived) == [
        "Derived.both: second",
        "Derived.documented_names: three",
    ]
