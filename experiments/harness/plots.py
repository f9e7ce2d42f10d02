"""Figures of studies as images."""

from __future__ import annotations

import re
from pathlib import Path

from .paper import Figure, Paper
from .store import Store

# Reproducible files: no date, no random ids.
SETTINGS = {"svg.hashsalt": "polyleaf", "font.size": 9, "axes.grid": True, "grid.alpha": 0.3}


def draw(paper: Paper, figure: Figure, store: Store, folder: Path) -> Path | None:
    """Write the image of a figure and return its path; None if none of its runs is finished."""
    found = store.found(paper, figure)
    if not found:
        return None
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    path = folder / (re.sub(r"[^a-z0-9]+", "-", f"{paper.key}-{figure.name}".lower()) + ".svg")
    folder.mkdir(parents=True, exist_ok=True)
    with pyplot.rc_context(SETTINGS):
        canvas = pyplot.figure(figsize=(9.0, 3.0), dpi=100, layout="constrained")
        figure.draw(canvas, found)
        canvas.savefig(path, metadata={"Date": None})
        pyplot.close(canvas)
    return path
