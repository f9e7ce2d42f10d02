"""Thumbnails of the gallery: the figures that an example returns, or a picture of a page."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

# Examples of what a picture of docs/images shows.
PICTURES = {
    "gbdt_mo": "vector-leaf-light.svg",
    "layerwise_boosting": "layers-light.svg",
    "linear_leaves": "linear-leaves-light.svg",
    "offsets": "linear-extrapolation-light.svg",
    "report": "report-light.png",
}
DRAW = {"visualisation"}  # examples whose `main(path)` writes a picture
_MOST_FIGURES = 5


class DrawFigures:
    """A scraper of sphinx-gallery: a thumbnail, which the page of the example does not show."""

    def __repr__(self) -> str:  # sphinx-gallery compares configurations by their text
        return type(self).__name__

    def __call__(self, block: Any, block_vars: dict[str, Any], gallery_conf: Any) -> str:
        variables = block_vars["example_globals"]
        if Path(block_vars["src_file"]).stem in DRAW:
            variables["main"](next(block_vars["image_path_iterator"]))
        elif variables.get("figures"):
            draw_figures(variables["figures"], next(block_vars["image_path_iterator"]))
        return ""


def draw_figures(figures: dict[str, float], path: str | Path) -> None:
    """Write a picture of names and values, which light and dark pages can show."""
    canvas = FigureCanvasAgg(Figure(figsize=(4.0, 2.8), facecolor="white"))
    shown = list(figures.items())[:_MOST_FIGURES]
    for i, (name, value) in enumerate(shown):
        y = 1 - (i + 0.5) / max(len(shown), 3)
        name = textwrap.shorten(name, 26, placeholder=" ...")
        canvas.figure.text(0.05, y, name, color="0.25", size=13, va="center")
        shown_value = ("no", "yes")[value] if isinstance(value, bool) else f"{value:.4g}"
        canvas.figure.text(0.95, y, shown_value, size=17, va="center", ha="right")
    canvas.figure.savefig(path, dpi=100)
