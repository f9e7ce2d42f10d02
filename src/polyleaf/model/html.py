"""Models and trees as notebooks show them: a few lines of HTML with inline SVG, for light and dark pages.

Owns how they look. Must not know: estimators, matplotlib, files. Names come from users' data: all of them are
escaped.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np

from polyleaf.model.sizes import node_depths
from polyleaf.model.split_thresholds import SplitThresholds

__all__ = ["render_model", "render_tree"]

_TABLE = '<table style="border-collapse:collapse;font-size:90%">'
_FEATURES = 5  # shown
_NODES = 63
_OUTPUTS = 6  # of a leaf


def render_model(model: Any, curve: Sequence[float] | None = None, metric: str = "") -> str:
    """A model in a small table.

    Parameters
    ----------
    model : Model
    curve : sequence of float, optional
        A metric after each round, drawn as a line.
    metric : str
        Its name.
    """
    rounds = f"{model.n_trees} trees in {model.n_rounds} rounds"
    if model.best_iteration is not None:
        rounds += f", best round {model.best_iteration + 1}"
    rows = [
        ("trees", escape(rounds)),
        (
            "outputs",
            escape(
                _shortened(
                    [model.output_name(k) for k in range(min(model.n_outputs, 7))], model.n_outputs
                )
            ),
        ),
        ("objective", escape(str(model.objective.to_dict().get("name", "unknown")))),
    ]
    if top := _top_features(model):
        rows.append(("features", top))
    if curve is not None and len(curve) > 1:
        rows.append(
            (escape(metric), f"{_sparkline(curve)} {escape(f'{curve[0]:.4g} to {curve[-1]:.4g}')}")
        )
    cells = "".join(
        f"<tr><th style='text-align:left'>{name}</th><td>{cell}</td></tr>" for name, cell in rows
    )
    return f'<div class="polyleaf">{_TABLE}{cells}</table></div>'


def _shortened(names: list[str], n: int) -> str:
    if n == 1:
        return "1"
    return f"{n}: {', '.join(names)}" + (", ..." if n > len(names) else "")


def _top_features(model: Any) -> str:
    """The features of the largest shares, with a bar each."""
    by = "gain" if model.has_statistics else "split"
    sums = model.feature_importance(by)
    total = float(sums.sum())
    if total <= 0:
        return ""
    lines = []
    for f in np.argsort(-sums, kind="stable")[:_FEATURES]:
        share = float(sums[f]) / total
        if share > 0:
            bar = f'<rect width="{100 * share:.1f}" height="8" y="2" fill="currentColor" fill-opacity=".45"/>'
            picture = f'<svg width="100" height="12" role="img">{bar}</svg>'
            lines.append(f"{picture} {escape(model.feature_name(int(f)))} {share:.0%} of the {by}")
    return "<br>".join(lines)


def _sparkline(values: Sequence[float], width: int = 160, height: int = 28) -> str:
    y = np.asarray(values, np.float64)
    finite = y[np.isfinite(y)]
    if not finite.size:
        return ""
    span = float(np.ptp(finite)) or 1.0
    x = np.linspace(1, width - 1, len(y))
    at = height - 2 - (y - finite.min()) / span * (height - 4)
    points = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, at, strict=True) if np.isfinite(b))
    line = f'<polyline points="{points}" fill="none" stroke="currentColor" stroke-width="1.2"/>'
    return f'<svg width="{width}" height="{height}" role="img">{line}</svg>'


def render_tree(tree: Any, mapper: Any) -> str:
    """The nodes of a `Tree`, a line each, indented by their depth; of large trees the upper ones."""
    structure, thresholds = tree.structure, SplitThresholds(mapper)
    depths, names = node_depths(structure), mapper.feature_names_
    lines = []
    for node in _in_order(structure)[:_NODES]:
        indent = "&nbsp;" * (3 * int(depths[node]))
        if structure.feature[node] < 0:
            values = tree.leaf_values(int(structure.leaf[node]))
            shown = ", ".join(f"{v:.4g}" for v in values[:_OUTPUTS]) + (
                ", ..." if len(values) > _OUTPUTS else ""
            )
            lines.append(f"{indent}leaf {structure.leaf[node]}: {escape(shown)}")
            continue
        feature = int(structure.feature[node])
        name = f"f{feature}" if names is None else str(names[feature])
        lines.append(f"{indent}{escape(thresholds.rule(structure, node, name))}")
    if structure.n_nodes > _NODES:
        lines.append(f"... {structure.n_nodes - _NODES} more nodes")
    heading = escape(repr(tree)[1:-1])
    body = "<br>".join(lines)
    return f'<div class="polyleaf"><b>{heading}</b><br><code>{body}</code></div>'


def _in_order(structure: Any) -> list[int]:
    """Nodes as they are read: each before what hangs on it, left before right."""
    order, waiting = [], [0]
    while waiting:
        node = waiting.pop()
        order.append(node)
        if structure.left[node] >= 0:
            waiting += [int(structure.right[node]), int(structure.left[node])]
    return order
