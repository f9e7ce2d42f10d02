"""The page: one HTML file without scripts, that asks for nothing elsewhere, in light and dark, on narrow
screens and on paper.

Owns how things look as HTML. Must not know models. Whatever comes from data is escaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import NamedTuple

__all__ = ["Section", "facts", "figure", "note", "page", "table"]

_STYLE = """
:root { color-scheme: light dark; --page: #fff; --ink: #1b1f24; --faint: #68707a; --line: #d9dde2;
  --first: #1f77b4; --beside: #d3d3d3; }
@media (prefers-color-scheme: dark) {
  :root { --page: #15181c; --ink: #e4e7eb; --faint: #9aa3ad; --line: #363c44;
    --first: #58a9e0; --beside: #59616b; }
}
@media print {
  :root { --page: #fff; --ink: #000; --faint: #444; --line: #bbb;
    --first: #1f77b4; --beside: #d3d3d3; }
  figure { break-inside: avoid; }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; }
main { max-width: 62rem; margin: 0 auto; padding: 1rem; }
h1 { font-size: 1.6rem; margin: .5rem 0 0; }
h2 { font-size: 1.2rem; margin: 2.2rem 0 .6rem; padding-top: .4rem; border-top: 1px solid var(--line); }
h3 { font-size: 1rem; margin: 1.2rem 0 .3rem; }
p { margin: .4rem 0; max-width: 46rem; }
nav { display: flex; flex-wrap: wrap; gap: .2rem 1rem; margin-top: .8rem; font-size: .9rem; }
a { color: inherit; }
.faint { color: var(--faint); }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; margin: .4rem 0; }
th, td { padding: .2rem .7rem .2rem 0; text-align: right; white-space: nowrap; }
tr { border-bottom: 1px solid var(--line); }
th:first-child, td:first-child { text-align: left; }
thead th { color: var(--faint); font-weight: 600; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .15rem 1.2rem; margin: .4rem 0; }
dt { color: var(--faint); }
dd { margin: 0; overflow-wrap: anywhere; }
@media (max-width: 30rem) { dl { grid-template-columns: 1fr; } dt { margin-top: .4rem; } }
figure { margin: .6rem 0; }
figure svg { display: block; max-width: 100%; height: auto; min-width: 24rem; }
figure.full svg { max-width: none; }
figcaption { color: var(--faint); font-size: .9rem; max-width: 46rem; }
""".strip()


class Section(NamedTuple):
    """A heading with its content, HTML."""

    name: str
    heading: str
    content: str


def page(title: str, lead: str, sections: Sequence[Section], foot: str) -> str:
    """The document."""
    links = "".join(f'<a href="#{s.name}">{escape(s.heading)}</a>' for s in sections)
    body = "\n".join(
        f'<section id="{s.name}">\n<h2>{escape(s.heading)}</h2>\n{s.content}\n</section>'
        for s in sections
    )
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>\n{_STYLE}\n</style>\n</head>\n<body>\n<main>\n"
        f"<h1>{escape(title)}</h1>\n<p>{escape(lead)}</p>\n<nav>{links}</nav>\n{body}\n"
        f'<p class="faint">{escape(foot)}</p>\n</main>\n</body>\n</html>\n'
    )


def facts(pairs: Iterable[tuple[str, str]]) -> str:
    """Names and what they are."""
    return (
        "<dl>"
        + "".join(f"<dt>{escape(name)}</dt><dd>{escape(what)}</dd>" for name, what in pairs)
        + "</dl>"
    )


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Text in columns, of which the first names the row."""
    heads = "".join(f'<th scope="col">{escape(name)}</th>' for name in header)
    lines = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>\n" for row in rows
    )
    head = f"<thead><tr>{heads}</tr></thead>"
    return f'<div class="wide"><table>\n{head}\n<tbody>\n{lines}</tbody>\n</table></div>'


def figure(svg: str, caption: str, full: bool = False) -> str:
    """A picture with what it shows; `full`: as wide as it is, to be scrolled."""
    kind = ' class="full"' if full else ""
    return f'<figure{kind}><div class="wide">{svg}</div><figcaption>{escape(caption)}</figcaption></figure>'


def note(text: str) -> str:
    """A sentence."""
    return f"<p>{escape(text)}</p>"
