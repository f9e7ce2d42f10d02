"""Functions that users give: whether they can be called as they will be.

Owns what is said of a function that cannot. Must not know what it is for.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

__all__ = ["describe_signature_mismatch"]


def describe_signature_mismatch(
    function: Callable[..., Any], n_arguments: int, keywords: tuple[str, ...] = ()
) -> str:
    """Why a function cannot be called with so many arguments and these keywords: the end of a sentence.
    Nothing where it can, or where Python cannot tell, as of some built-ins."""
    try:
        signature = inspect.signature(function)
    except ValueError:
        return ""
    try:
        signature.bind(*[None] * n_arguments, **dict.fromkeys(keywords))
    except TypeError as error:
        name = getattr(function, "__name__", type(function).__name__)
        return f"{name}{signature} does not take these: {error}"
    return ""
