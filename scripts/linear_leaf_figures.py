"""Draw the figures of docs/user_guide/linear_leaves.md into docs/images."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from polyleaf import PolyleafRegressor

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "images"
SIZE, DPI = (8.0, 2.8), 80


def curve(x: np.ndarray) -> np.ndarray:
    """Compute the function to learn."""
    return np.sin(5 * x) + x


def training_rows() -> tuple[np.ndarray, np.ndarray]:
    """Draw one feature and the curve with noise."""
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 2, 400).astype(np.float32)
    return x[:, None], (curve(x) + 0.15 * rng.standard_normal(400)).astype(np.float32)


def predicted(grid: np.ndarray, **parameters: Any) -> np.ndarray:
    """On the grid, after training with these parameters."""
    model = PolyleafRegressor(min_child_samples=20, n_jobs=1, random_state=0, **parameters)
    return model.fit(*training_rows()).predict(grid[:, None])


def staircase(panels: Any) -> None:
    """One tree, and twenty trees, with either kind of leaf."""
    grid = np.linspace(0, 2, 1000).astype(np.float32)
    X, y = training_rows()
    sizes = {"1 tree, 6 leaves": (1, 1.0, 6), "20 trees, 6 leaves, rate 0.3": (20, 0.3, 6)}
    for panel, (title, (n, rate, leaves)) in zip(panels, sizes.items(), strict=True):
        panel.plot(X, y, ".", color="0.8", ms=3)
        for color, leaf in (("C0", "constant"), ("C1", "linear")):
            values = predicted(
                grid, n_estimators=n, learning_rate=rate, max_leaves=leaves, leaf=leaf
            )
            panel.plot(grid, values, color=color, lw=1.2, label=f"{leaf} leaves")
        panel.set_title(title, fontsize=9)
    panels[0].legend(fontsize=8)


def far_away(panels: Any) -> None:
    """Plot predictions beyond the training rows, with clipped and unclipped linear leaves."""
    grid = np.linspace(-1, 3, 1000).astype(np.float32)
    X, y = training_rows()
    for panel, how in zip(panels, ("clip", "none"), strict=True):
        panel.plot(X, y, ".", color="0.8", ms=3)
        panel.plot(
            grid, predicted(grid, n_estimators=50, leaf="linear", linear_extrapolation=how), "C1"
        )
        panel.axvspan(0, 2, color="0.5", alpha=0.08)
        panel.set_title(f'linear_extrapolation="{how}"', fontsize=9)
        panel.set_ylim(-6, 8)


def main() -> None:
    """Write all pictures."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    FOLDER.mkdir(exist_ok=True)
    for paint in (staircase, far_away):
        figure, panels = pyplot.subplots(
            1, 2, figsize=SIZE, dpi=DPI, layout="constrained", sharey=True
        )
        paint(panels)
        figure.savefig(FOLDER / f"linear-leaves-{paint.__name__.replace('_', '-')}.png")


if __name__ == "__main__":
    main()
