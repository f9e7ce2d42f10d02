"""Markdown text of functions and classes, from their signatures and docstrings."""

from __future__ import annotations

import functools
import importlib
import inspect
import os
import re
import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from numpydoc.docscrape import NumpyDocString
from sphinx.ext.autodoc.mock import mock

REFERENCE = Path(__file__).resolve().parents[1] / "reference"
DIRECTIVE = re.compile(r"^\.\. auto(\w+):: ([\w.]+)$", re.MULTILINE)
# Extras that need not be installed to read what they are used in.
EXTRAS = ["dask", "distributed", "autogluon", "darts", "mlforecast", "skforecast", "sktime"]
LISTS = ("Attributes", "Parameters", "Returns", "Yields", "Raises")


def describe(directive: str, page: Path) -> Iterator[str]:
    """Yield the lines of what an `eval-rst` block documents."""
    parts = re.split(r"(?=^\.\. auto)", directive, flags=re.MULTILINE)[1:]
    for part in parts:
        kind, name = DIRECTIVE.search(part).groups()
        options = dict(re.findall(r"^   :([\w-]+):(.*)$", part, re.MULTILINE))
        thing = _resolve(name)
        if kind == "data":
            yield _fill(f"`{name}`: {_describe_data(name, page)}")
            continue
        yield from _describe(thing, name, page, takes_parameters=_is_estimator(thing))
        if kind == "class":
            for member in _list_members(thing, options):
                yield ""
                yield from _describe_member(thing, member, page)
        yield ""


def _is_estimator(thing: Any) -> bool:
    return inspect.isclass(thing) and hasattr(thing, "get_params") and hasattr(thing, "fit")


def _resolve(name: str) -> Any:
    path, thing = name.split("."), None
    for i in range(len(path), 0, -1):
        try:
            with mock(EXTRAS):
                thing = importlib.import_module(".".join(path[:i]))
        except ImportError:
            continue
        return functools.reduce(getattr, path[i:], thing)
    raise ValueError(f"There is no {name}.")


def _describe_data(name: str, page: Path) -> str:
    module, _, attribute = name.rpartition(".")
    source = inspect.getsource(importlib.import_module(module))
    found = re.search(rf'^{attribute}\b[^\n]*=.*?\n"""(.*?)"""', source, re.MULTILINE | re.DOTALL)
    return "" if found is None else _to_markdown(found[1].split("\n"), page)


def _describe(thing: Any, name: str, page: Path, takes_parameters: bool) -> Iterator[str]:
    """Yield signature and docstring; `takes_parameters`: the page of parameters has the rest."""
    signature = "(**parameters)" if takes_parameters else _format_signature(thing)
    yield f"```text\n{_wrap(name + signature)}\n```"
    doc = NumpyDocString(inspect.getdoc(thing) or "")
    for section in ("Summary", "Extended Summary"):
        if any(doc[section]):
            yield "\n" + _fill(_to_markdown(doc[section], page))
    for section in LISTS:
        if section == "Parameters" and takes_parameters:
            yield "\nParameters: see the [page of parameters](parameters.md)."
        elif doc[section]:
            yield f"\n{section}:\n"
            yield from _list_items(doc[section], page)
    if any(doc["Notes"]):
        yield "\n" + _fill(_to_markdown(doc["Notes"], page))


def _list_items(items: Iterable[Any], page: Path) -> Iterator[str]:
    for name, kind, lines in items:
        head = f"`{name}`" + (f" ({_to_markdown([kind], page)})" if kind else "")
        if not name:
            head = f"`{kind}`"
        text = _to_markdown(lines, page)
        yield _fill(f"- {head}" + (f": {text}" if text else ""), "  ")


def _list_members(cls: Any, options: dict[str, str]) -> list[str]:
    if "members" not in options:
        return []
    named = [name.strip() for name in options["members"].split(",") if name.strip()]
    if named:
        return named
    classes = cls.__mro__ if "inherited-members" in options else (cls,)
    ours = [c for c in classes if c.__module__.startswith("polyleaf")]
    names = dict.fromkeys(
        name
        for c in reversed(ours)
        for name, member in vars(c).items()
        if not name.startswith("_") and _is_member(member)
    )
    special = options.get("special-members", "").split()
    return [*names, *special]


def _is_member(member: Any) -> bool:
    function = getattr(member, "__func__", getattr(member, "fget", member))
    is_kind = isinstance(member, property | classmethod | staticmethod) or callable(member)
    return is_kind and bool(getattr(function, "__doc__", None)) and not inspect.isclass(member)


def _describe_member(cls: Any, name: str, page: Path) -> Iterator[str]:
    member = inspect.getattr_static(cls, name)
    function = getattr(member, "__func__", getattr(member, "fget", member))
    doc = NumpyDocString(inspect.getdoc(getattr(cls, name, None)) or inspect.getdoc(function) or "")
    signature = "" if isinstance(member, property) else _format_signature(getattr(cls, name), True)
    summary = _to_markdown([*doc["Summary"], *doc["Extended Summary"]], page)
    yield _fill(f"**`{name}{signature}`**" + (f": {summary}" if summary else "")) + "\n"
    for section in LISTS:
        if doc[section]:
            yield f"{section}:\n"
            yield from _list_items(doc[section], page)
            yield ""


def _format_signature(thing: Any, is_member: bool = False) -> str:
    try:
        signature = inspect.signature(thing)
    except (TypeError, ValueError):
        return "(...)"
    parameters = [
        parameter.replace(annotation=inspect.Parameter.empty)
        for name, parameter in signature.parameters.items()
        if not (is_member and name == "self")
    ]
    plain = signature.replace(parameters=parameters, return_annotation=inspect.Signature.empty)
    return re.sub(r"<(?:function|class) ?'?([\w.]+)'?[^>]*>", r"\1", str(plain))


def _wrap(text: str) -> str:
    lines, line = [], ""
    for part in re.split(r"(?<=, )", text):
        if len(line + part) > 98:
            lines, line = [*lines, line.rstrip()], "    "
        line += part
    return "\n".join([*lines, line])


def _fill(text: str, indent: str = "") -> str:
    """Wrap each paragraph; code and links may be longer."""
    options: dict[str, Any] = {"break_long_words": False, "break_on_hyphens": False}
    paragraphs = [
        textwrap.fill(
            part, 100, initial_indent=indent * (i > 0), subsequent_indent=indent, **options
        )
        for i, part in enumerate(text.split("\n\n"))
    ]
    return "\n\n".join(paragraphs)


def _to_markdown(lines: Iterable[str], page: Path) -> str:
    """Return text of a docstring as one paragraph per paragraph."""
    text = "\n".join(lines)
    paragraphs = [" ".join(part.split()) for part in re.split(r"\n\s*\n", text)]
    return resolve_roles("\n\n".join(paragraphs).replace("``", "`"), page).replace("<", "&lt;")


def resolve_roles(text: str, page: Path) -> str:
    """Replace roles such as :class:`polyleaf.Model` by links to the pages that describe them."""

    def replace(found: re.Match[str]) -> str:
        name = found[1].lstrip("~")
        place = _find_places().get(name)
        if place is None:
            return f"`{name}`"
        path = os.path.relpath(place, page.parent)
        return f"[`{name}`]({path}#{name.rpartition('.')[2].lower()})"

    return re.sub(r":(?:class|mod|func|meth|attr|data):`([^`]+)`", replace, text)


@functools.cache
def _find_places() -> dict[str, Path]:
    """Return the page of each name that the reference describes."""
    return {
        name: page
        for page in sorted(REFERENCE.glob("*.md"))
        for _, name in DIRECTIVE.findall(page.read_text("utf-8"))
    }
