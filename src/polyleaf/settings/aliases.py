"""Hints for users of other libraries: `foreign_names.json` has the names of their parameters,
attributes and functions."""

from __future__ import annotations

import difflib
import functools
import json
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar, cast

from polyleaf.runtime.user_warnings import warn_user

_Method = TypeVar("_Method", bound=Callable[..., object])


@functools.cache
def read_foreign_names(table: str) -> Mapping[str, Any]:
    """Return a table of names of XGBoost, LightGBM, CatBoost and scikit-learn.

    Parameters
    ----------
    table : str
        "parameters": other names of each parameter here, separated by spaces; "method_arguments":
        which of these are arguments of methods; "parameters_without_equivalent", "attributes" and
        "functions": a hint for each name there; "values": for each parameter here, patterns of the
        lower-case repr of values there, and their hints.
    """
    tables = json.loads(Path(__file__).with_name("foreign_names.json").read_text("utf-8"))
    # Names with the same hint share an entry of the file.
    return {name: value for names, value in tables[table].items() for name in names.split()}


def get_foreign_hint(table: str, name: str) -> str:
    """Return a hint for a name of another library, to append to a message, or ""."""
    hint = read_foreign_names(table).get(name)
    return "" if hint is None else f": {hint}"


def get_foreign_value_hint(name: str, value: object) -> str:
    """Return a sentence about a value that this parameter has in another library, or ""."""
    for pattern, hint in read_foreign_names("values").get(name, {}).items():
        if re.fullmatch(pattern, repr(value).lower()):
            return f" {hint[0].upper()}{hint[1:]}."
    return ""


def warn_one_vs_rest(label: str | None, name: str, n_classes: int, prefix: str = "") -> None:
    """Warn if a foreign name of a binary objective is used with more than two classes.

    `label`: the name that the user gave; only foreign names warn. `name`: name of the objective
    here. `prefix`: beginning of the message.
    """
    if label is not None and label.lower() != name:
        warn_user(
            f"{prefix}objective={label!r} is {name!r} here, which learns each of the "
            f'{n_classes} classes against the rest. Use objective="softmax" for exclusive '
            f'classes, or objective="{name}" to keep one-vs-rest.'
        )


def raise_unknown_parameters(
    where: str,
    names: Iterable[str],
    parameters: Iterable[str],
    constructor_names: Iterable[str] = (),
) -> None:
    """Raise a TypeError for the first unknown name, with a suggestion.

    `where`: function that was called: "PolyleafRegressor", "PolyleafRegressor.fit". `names`,
    `parameters`: names that were passed, and names that the function takes. `constructor_names`:
    for a method: parameters of the constructor.
    """
    parameters = list(parameters)
    for name in names:
        if name not in parameters:
            hint = _make_hint(name, parameters, list(constructor_names))
            raise TypeError(f"{where}() takes no {name!r}{hint}")


def suggest(name: str, parameters: Iterable[str]) -> str:
    """Return a suggestion for an unknown name, to append to a message, or ""."""
    return _make_hint(name, list(parameters), [])


class _WarnIfCalledOnInstance:
    """A class method that returns an estimator, and warns if it is called on one."""

    def __init__(self, method: Any) -> None:
        self._method = method
        self.__doc__ = method.__doc__

    def __get__(self, estimator: Any, owner: type) -> object:
        method = self._method.__get__(None, owner)
        if estimator is None:
            return method

        @functools.wraps(method)
        def wrapper(*args: object, **kwargs: object) -> object:
            estimator_of_file = method(*args, **kwargs)
            name = method.__name__
            warn_user(
                f"{name} returns a new estimator and leaves the one that it is called on "
                f"unchanged. Use m = {owner.__name__}.{name}(path)."
            )
            return estimator_of_file

        return wrapper


# Typed, so that type checkers know what the method returns.
warn_if_called_on_instance: Callable[[_Method], _Method] = cast(Any, _WarnIfCalledOnInstance)
"""Decorator of class methods, above `classmethod`."""


def _make_hint(name: str, parameters: list[str], constructor_names: list[str]) -> str:
    own_names = [
        own_name
        for own_name, names in read_foreign_names("parameters").items()
        if name in names.split()
    ]
    for suffix, names in (("", parameters), (" of the constructor", constructor_names)):
        if name in names:
            return f": it is a parameter{suffix}"
        candidates = [own_name for own_name in own_names if own_name in names]
        if candidates:
            return f": did you mean {' or '.join(candidates)}{suffix}?"
    if not constructor_names:  # an argument of a method as a parameter of the constructor
        for method, arguments in read_foreign_names("method_arguments").items():
            for argument in (name, *own_names):
                if argument in arguments.split():
                    return f": it is {argument} of {method}"
    hint = get_foreign_hint("parameters_without_equivalent", name)
    if hint:
        return hint
    for suffix, names in (("", parameters), (" of the constructor", constructor_names)):
        for close in difflib.get_close_matches(name, names, n=1):
            return f": did you mean {close}{suffix}?"
    return f"; it takes {', '.join(parameters)}" if len(parameters) < 20 else ""
