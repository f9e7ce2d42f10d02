"""HTML and SVG of a report: one page without scripts or external resources.

It works on light and dark screens, on narrow screens and on paper. All text from data is escaped.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterable, Sequence
from html import escape
from typing import Any, NamedTuple

from polyleaf.inspection.plotting.display import import_pyplot

__all__ = [
    "Section",
    "render_facts",
    "render_figure",
    "render_note",
    "render_page",
    "render_svg",
    "render_table",
]

_STYLE = """
:root { color-scheme: light dark; --page: #fff; --ink: #1b1f24; --faint: #68707a; --line: #d9dde2;
  --first: #1f77b4; --second: #d3d3d3; }
@media (prefers-color-scheme: dark) {
  :root { --page: #15181c; --ink: #e4e7eb; --faint: #9aa3ad; --line: #363c44;
    --first: #58a9e0; --second: #59616b; }
}
@media print {
  :root { --page: #fff; --ink: #000; --faint: #444; --line: #bbb;
    --first: #1f77b4; --second: #d3d3d3; }
  figure { break-inside: avoid; }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, sans-serif; }
main { max-width: 62rem; margin: 0 auto; padding: 1rem; }
h1 { font-size: 1.6rem; margin: .5rem 0 0; }
h2 { font-size: 1.2rem; margin: 2.2rem 0 .6rem; padding-top: .4rem;
  border-top: 1px solid var(--line); }
h3 { font-size: 1rem; margin: 1.2rem 0 .3rem; }
p { margin: .4rem 0; max-width: 46rem; }
nav { display: flex; flex-wrap: wrap; gap: .2rem 1rem; margin-top: .8rem; font-size: .9rem; }
a { color: inherit; }
.faint { color: var(--faint); }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums;
  margin: .4rem 0; }
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

# Placeholders for the page's text and background colours, which matplotlib does not know.
_INK, _BACKGROUND = "#010203", "#ffffff"
# matplotlib's first colour and light grey do not suit a dark page.
_PAGE_COLOURS = {"#1f77b4": "var(--first)", "#d3d3d3": "var(--second)"}
_RC_PARAMS: dict[str, Any] = {
    "text.parse_math": False,  # dollar signs in users' names are not formulas
    "svg.fonttype": "none",  # keep text as text, in the font of the page
    "font.family": "sans-serif",
    "font.size": 9.0,
    "text.color": _INK,
    "axes.labelcolor": _INK,
    "axes.edgecolor": _INK,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "axes.facecolor": "none",
    "figure.facecolor": "none",
    "savefig.facecolor": "none",
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
}


class Section(NamedTuple):
    """A section: its id, heading and HTML content."""

    name: str
    heading: str
    content: str


def render_page(title: str, lead: str, sections: Sequence[Section], foot: str) -> str:
    """Render the document."""
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


def render_facts(pairs: Iterable[tuple[str, str]]) -> str:
    """Render a list of names and values."""
    items = (f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in pairs)
    return f"<dl>{''.join(items)}</dl>"


def render_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Render a table of text, whose first column names the rows."""
    heads = "".join(f'<th scope="col">{escape(name)}</th>' for name in header)
    lines = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>\n" for row in rows
    )
    head = f"<thead><tr>{heads}</tr></thead>"
    return f'<div class="wide"><table>\n{head}\n<tbody>\n{lines}</tbody>\n</table></div>'


def render_figure(svg: str, caption: str, full: bool = False) -> str:
    """Render an SVG with a caption; `full` keeps its width and lets it scroll."""
    kind = ' class="full"' if full else ""
    caption = f"<figcaption>{escape(caption)}</figcaption>"
    return f'<figure{kind}><div class="wide">{svg}</div>{caption}</figure>'


def render_note(text: str) -> str:
    """Render a paragraph."""
    return f"<p>{escape(text)}</p>"


def render_svg(
    name: str, label: str, draw: Callable[[Any], Any], size: tuple[float, float] = (6.4, 3.4)
) -> str:
    """Draw an inline SVG, which has the same bytes each time.

    Parameters
    ----------
    name : str
        Unique on the page, as the ids in the SVG depend on it.
    label : str
        The description for screen readers.
    draw : callable
        `draw(ax)` draws on these axes.
    size : (float, float)
        Width and height in inches.

    Raises
    ------
    ImportError
        If matplotlib is not installed.
    """
    import_pyplot()
    import matplotlib
    from matplotlib.figure import Figure

    stream = io.StringIO()
    parameters: Any = {**matplotlib.rcParamsDefault, **_RC_PARAMS, "svg.hashsalt": name}
    with matplotlib.rc_context(parameters):
        figure = Figure(figsize=size, layout="constrained")
        draw(figure.subplots())
        figure.savefig(stream, format="svg", metadata={"Date": None, "Creator": None})
    return _make_inline(stream.getvalue(), label)


def _make_inline(svg: str, label: str) -> str:
    """Remove what only a separate file requires, and use the colours and font of the page."""
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg[svg.index("<svg") :], flags=re.S)
    svg = svg.replace(_INK, "currentColor").replace(_BACKGROUND, "var(--page)")
    for colour, variable in _PAGE_COLOURS.items():
        svg = svg.replace(colour, variable)
    svg = re.sub(r"<!--.*?-->", "", svg, flags=re.S)
    used = set(re.findall(r"#([\w.-]+)", svg))
    svg = re.sub(r' id="([^"]*)"', lambda found: found[0] if found[1] in used else "", svg)
    svg = re.sub(r"font: ([\d.]+)px [^;\"]*", r"font: \1px system-ui, sans-serif", svg)
    svg = re.sub(r"\n\s*", "\n", svg)
    return svg.replace("<svg ", f'<svg role="img" aria-label="{escape(label)}" ', 1).strip()
