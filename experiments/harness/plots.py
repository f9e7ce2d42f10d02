"""Figures of studies as images."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from .paper import Figure, Paper
from .store import Store

WIDTH, PANEL_HEIGHT, DPI = 9.0, 3.0, 100
STYLES = ("-", "--", ":")
# Reproducible files: no date, no random ids.
SETTINGS = {"svg.hashsalt": "polyleaf", "font.size": 9, "axes.grid": True, "grid.alpha": 0.3}


def draw(paper: Paper, figure: Figure, store: Store, folder: Path) -> Path | None:
    """Write the image of a figure and return its path; None if none of its runs is finished.

    If the curves of the runs were not stored, an existing image is left unchanged.
    """
    path = folder / (re.sub(r"[^a-z0-9]+", "-", f"{paper.key}-{figure.name}".lower()) + ".svg")
    found = store.found(paper, figure)
    if figure.curves:
        found = {cell: figures for cell, figures in found.items() if "curves" in figures}
    if not found:
        return path if path.is_file() else None
    return save(lambda canvas: (figure.draw or _curves(figure))(canvas, found), path)


def save(paint: Any, path: Path, height: float = PANEL_HEIGHT) -> Path:
    """Let `paint(matplotlib figure)` draw, and write the result."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    with pyplot.rc_context(SETTINGS):
        canvas = pyplot.figure(figsize=(WIDTH, height), dpi=DPI, layout="constrained")
        paint(canvas)
        path.parent.mkdir(parents=True, exist_ok=True)
        canvas.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
        pyplot.close(canvas)
    return path


def _curves(figure: Figure) -> Any:
    """Return a painter with one panel per subject.

    Colours are methods, and line styles the curves of a run.
    """

    def paint(canvas: Any, found: dict[tuple[str, str], dict[str, Any]]) -> None:
        panels = canvas.subplots(1, len(figure.subjects), squeeze=False)[0]
        for panel, subject in zip(panels, figure.subjects, strict=True):
            for i, method in enumerate(figure.methods):
                curves = found.get((method, subject.title), {}).get("curves", {})
                for name, style in zip(figure.curves, STYLES, strict=False):
                    if name in curves:
                        label = method if len(figure.curves) == 1 else f"{method}, {name}"
                        panel.plot(
                            *zip(*curves[name], strict=True),
                            style,
                            color=f"C{i}",
                            label=label,
                            lw=1.2,
                        )
            panel.set(title=subject.title, xlabel=figure.x, ylabel=figure.y)
            if "x" in figure.log:
                panel.set_xscale("log")
            if "y" in figure.log:
                panel.set_yscale("log")
        for panel in panels:
            if panel.get_legend_handles_labels()[
                0
            ]:  # one legend, in the first panel that has a curve
                panel.legend(fontsize=7)
                break

    return paint
