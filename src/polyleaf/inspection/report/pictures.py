"""Pictures of displays as SVG that stands inside a page: the same bytes each time, in the page's colours.

Owns the way from axes to text. Must not know what is drawn.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from html import escape
from typing import Any

from polyleaf.inspection.plotting.display import pyplot

__all__ = ["picture"]

# Stand for the colours of the page, which matplotlib does not know: writing and ground.
_INK, _GROUND = "#010203", "#ffffff"
# matplotlib's first colour and light grey, which on dark ground are too faint and glare.
_DRAWN = {"#1f77b4": "var(--first)", "#d3d3d3": "var(--beside)"}
_SETTINGS: dict[str, Any] = {
    "text.parse_math": False,  # names are the user's: a dollar sign in them begins no formula
    "svg.fonttype": "none",  # text stays text, in the letters of the page
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


def picture(
    name: str, label: str, draw: Callable[[Any], Any], size: tuple[float, float] = (6.4, 3.4)
) -> str:
    """An inline SVG.

    Parameters
    ----------
    name : str
        Different for each picture of a page: ids in it depend on it.
    label : str
        For those who cannot see it.
    draw : callable
        `draw(ax)` draws on these axes.
    size : (float, float)
        Width and height in inches.

    Raises
    ------
    ImportError
        Where matplotlib is not installed.
    """
    pyplot()
    import matplotlib
    from matplotlib.figure import Figure

    stream = io.StringIO()
    settings: Any = {**matplotlib.rcParamsDefault, **_SETTINGS, "svg.hashsalt": name}
    with matplotlib.rc_context(settings):
        figure = Figure(figsize=size, layout="constrained")
        draw(figure.subplots())
        figure.savefig(stream, format="svg", metadata={"Date": None, "Creator": None})
    return _inline(stream.getvalue(), label)


def _inline(svg: str, label: str) -> str:
    """Without what only a file of its own needs."""
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg[svg.index("<svg") :], flags=re.S)
    svg = svg.replace(_INK, "currentColor").replace(_GROUND, "var(--page)")
    for colour, name_of_page in _DRAWN.items():
        svg = svg.replace(colour, name_of_page)
    svg = re.sub(r"<!--.*?-->", "", svg, flags=re.S)
    used = set(re.findall(r"#([\w.-]+)", svg))
    svg = re.sub(r' id="([^"]*)"', lambda found: found[0] if found[1] in used else "", svg)
    svg = re.sub(r"font: ([\d.]+)px [^;\"]*", r"font: \1px system-ui, sans-serif", svg)
    svg = re.sub(r"\n\s*", "\n", svg)
    return svg.replace("<svg ", f'<svg role="img" aria-label="{escape(label)}" ', 1).strip()
