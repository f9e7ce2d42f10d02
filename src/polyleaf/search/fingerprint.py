"""What a setting is, in words that another process finds again: trainings may be taken up then.

Owns how functions, arrays and objects are told apart. Must not know what they are for. What is no plain value
is known by its contents: a function by its code and what it refers to, never by its name alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import partial
from types import CodeType, FunctionType, MethodType
from typing import Any

import numpy as np

__all__ = ["digest", "identity"]


def identity(value: Any) -> Any:
    """JSON types that are the same wherever the value is.

    What cannot be looked into, as functions of compiled modules, is known by its `repr`: where that holds an
    address, another process finds another identity, and takes nothing for the same that may not be.

    Parameters
    ----------
    value : object

    Returns
    -------
    None, bool, int, float, str, list or dict
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return [identity(entry) for entry in value]
    if isinstance(value, Mapping):
        return {str(name): identity(entry) for name, entry in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        array = np.asarray(value)
        contents = repr(array.tolist()).encode() if array.dtype == object else array.tobytes()
        return f"{array.dtype} {array.shape} {digest(contents)}"
    return _of_object(value)


def _of_object(value: Any) -> Any:
    if isinstance(value, partial):
        return ["partial", *map(identity, (value.func, value.args, value.keywords))]
    if isinstance(value, MethodType):
        return ["method", identity(value.__self__), identity(value.__func__)]
    if isinstance(value, FunctionType):
        closed = [cell.cell_contents for cell in value.__closure__ or ()]
        code = digest(_of_code(value.__code__).encode())
        bound = (value.__defaults__, value.__kwdefaults__, closed)
        return [f"{value.__qualname__} {code}", *map(identity, bound)]
    if isinstance(value, type):
        return f"{value.__module__}.{value.__qualname__}"
    held = getattr(value, "__dict__", None)
    return [identity(type(value)), identity(held)] if held else repr(value)


def _of_code(code: CodeType) -> str:
    """Instructions, names and constants, those of functions within, too."""
    constants = [_of_code(c) if isinstance(c, CodeType) else repr(c) for c in code.co_consts]
    return repr((code.co_code, code.co_names, constants))


def digest(contents: bytes) -> str:
    """Few letters that stand for them."""
    return hashlib.sha256(contents).hexdigest()[:16]
