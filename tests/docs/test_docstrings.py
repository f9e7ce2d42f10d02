"""Docstrings document every argument of all public functions and classes.

An argument is documented if it heads an entry (`name : type`, or `a, b` for several) or stands in
backquotes, in the docstring of the function, of a method that it overrides, or of the class. Tools
ask for an entry for each argument, and none where a base class has it.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable
from typing import Any

import pytest
from support.public_names import EXTRA, MODULES, public_names

ENTRIES = re.compile(r"^(\*{0,2}\w+(?:, \*{0,2}\w+)*)(?: : .*)?$|`+([^`]+)`+", re.MULTILINE)
RESULTS = re.compile(r"^(Returns|Yields)\n-+\n.*", re.MULTILINE | re.DOTALL)


def find_undocumented(function: Callable[..., Any], docstrings: list[str | None]) -> list[str]:
    """Return the arguments of a function that are documented in none of the docstrings."""
    text = "\n".join(RESULTS.sub("", inspect.cleandoc(each or "")) for each in docstrings)
    documented = re.findall(r"\w+", str(ENTRIES.findall(text)))
    names = [name for name in inspect.signature(function).parameters if name not in ("self", "cls")]
    return [name for name in names if name not in documented and not name.startswith("_")]


def is_ours(value: Any) -> bool:
    return (getattr(inspect.unwrap(value), "__module__", None) or "").startswith("polyleaf")


def find_undocumented_in(name: str, value: Any) -> list[str]:
    """Return the undocumented arguments of a function or class, as "name: arguments"."""
    functions = [(name, value, [value.__doc__])] if inspect.isroutine(value) else []
    if inspect.isclass(value):
        if not getattr(value, "_is_protocol", False) and not issubclass(value, BaseException):
            functions = [(name, value, [base.__doc__ for base in value.__mro__])]
        for member in dir(value):
            method = getattr(value, member, None)
            if not member.startswith("_") and inspect.isroutine(method) and is_ours(method):
                owners = [base for base in value.__mro__ if member in vars(base)]
                docstrings = [vars(base)[member].__doc__ for base in owners]
                functions.append((f"{name}.{member}", method, docstrings))
    found = {where: find_undocumented(each, docstrings) for where, each, docstrings in functions}
    return [f"{where}: {', '.join(names)}" for where, names in found.items() if names]


@pytest.mark.parametrize("module", MODULES)
def test_all_arguments_are_documented(module):
    if module in EXTRA:
        pytest.importorskip(EXTRA[module], reason="an extra is not installed")
    values = importlib.import_module(module)
    names = public_names(module)
    assert [line for n in names for line in find_undocumented_in(n, getattr(values, n))] == []


def test_missing_arguments_are_found():
    class Base:
        """The argument of the constructor is undocumented."""

        def __init__(self, size):
            self.size = size

        def method(self, first, second):
            """The second argument occurs in the returns only.

            Parameters
            ----------
            first : int

            Returns
            -------
            second : int
            """

    class Derived(Base):
        """The argument `size` is documented."""

        def method(self, first, third):
            """The third argument is undocumented."""

    for function in (Base.method, Derived.method):
        function.__module__ = "polyleaf"
    assert find_undocumented_in("Base", Base) == ["Base: size", "Base.method: second"]
    assert find_undocumented_in("Derived", Derived) == ["Derived.method: third"]
