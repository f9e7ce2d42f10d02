"""HTML of models and trees for notebooks: a few lines with inline SVG, for light and dark pages.

Names come from users' data, so all text is escaped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from typing import TYPE_CHECKING, Literal

import numpy as np

if TYPE_CHECKING:
    import polyleaf._core as _core
    from polyleaf.model import Model
    from polyleaf.model.trees import Tree

_TABLE = '<table style="border-collapse:collapse;font-size:90%">'
_MAX_FEATURES = 5
_MAX_NODES = 63
_MAX_OUTPUTS = 6


def render_model(model: Model, curve: Sequence[float] | None = None, metric: str = "") -> str:
    """Render a model as a small table, with a line of the values of a metric after each round."""
    rounds = f"{model.n_trees} trees in {model.n_rounds} rounds"
    if model.best_iteration is not None:
        rounds += f", best round {model.best_iteration + 1}"
    outputs = [model.output_name(k) for k in range(min(model.n_outputs, _MAX_OUTPUTS + 1))]
    rows = [
        ("trees", escape(rounds)),
        ("outputs", escape(_list_names(outputs, model.n_outputs))),
        ("objective", escape(str(model.objective.to_dict().get("name", "unknown")))),
    ]
    if top := _top_features(model):
        rows.append(("features", top))
    if curve is not None and len(curve) > 1:
        ends = escape(f"{curve[0]:.4g} to {curve[-1]:.4g}")
        rows.append((escape(metric), f"{_sparkline(curve)} {ends}"))
    cells = "".join(
        f"<tr><th style='text-align:left'>{name}</th><td>{cell}</td></tr>" for name, cell in rows
    )
    return f'<div class="polyleaf">{_TABLE}{cells}</table></div>'


def _list_names(names: list[str], n: int) -> str:
    if n == 1:
        return "1"
    return f"{n}: {', '.join(names)}" + (", ..." if n > len(names) else "")


def _top_features(model: Model) -> str:
    """Render the features with the largest shares, with a bar each."""
    kind: Literal["gain", "split"] = "gain" if model.has_statistics else "split"
    sums = model.feature_importance(kind)
    total = float(sums.sum())
    if total <= 0:
        return ""
    lines = []
    for f in np.argsort(-sums, kind="stable")[:_MAX_FEATURES]:
        share = float(sums[f]) / total
        if share > 0:
            size = f'width="{100 * share:.1f}" height="8" y="2"'
            bar = f'<rect {size} fill="currentColor" fill-opacity=".45"/>'
            picture = f'<svg width="100" height="12" role="img">{bar}</svg>'
            name = escape(model.feature_name(int(f)))
            lines.append(f"{picture} {name} {share:.0%} of the {kind}")
    return "<br>".join(lines)


def _sparkline(values: Sequence[float]) -> str:
    width, height, y = 160, 28, np.asarray(values, np.float64)
    finite = y[np.isfinite(y)]
    if not finite.size:
        return ""
    span = float(np.ptp(finite)) or 1.0
    x = np.linspace(1, width - 1, len(y))
    scaled = height - 2 - (y - finite.min()) / span * (height - 4)
    points = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, scaled, strict=True) if np.isfinite(b))
    line = f'<polyline points="{points}" fill="none" stroke="currentColor" stroke-width="1.2"/>'
    return f'<svg width="{width}" height="{height}" role="img">{line}</svg>'


def render_tree(tree: Tree, depths: np.ndarray, describe_split: Callable[[int], str]) -> str:
    """Render the nodes of a tree, one per line, indented by depth; large trees are cut off.

    `describe_split` returns the condition of a node for going left.
    """
    structure, lines = tree.structure, []
    for node in _depth_first(structure)[:_MAX_NODES]:
        indent = "&nbsp;" * (3 * int(depths[node]))
        if structure.feature[node] >= 0:
            lines.append(f"{indent}{escape(describe_split(node))}")
            continue
        leaf = int(structure.leaf[node])
        values = tree.leaf_values(leaf)
        shown = ", ".join(f"{v:.4g}" for v in values[:_MAX_OUTPUTS])
        more = ", ..." if len(values) > _MAX_OUTPUTS else ""
        lines.append(f"{indent}leaf {leaf}: {escape(shown + more)}")
    if structure.n_nodes > _MAX_NODES:
        lines.append(f"... {structure.n_nodes - _MAX_NODES} more nodes")
    heading = escape(repr(tree)[1:-1])
    body = "<br>".join(lines)
    return f'<div class="polyleaf"><b>{heading}</b><br><code>{body}</code></div>'


def _depth_first(structure: _core.Tree) -> list[int]:
    """Return the nodes depth first, left before right."""
    order, stack = [], [0]
    while stack:
        node = stack.pop()
        order.append(node)
        if structure.left[node] >= 0:
            stack += [int(structure.right[node]), int(structure.left[node])]
    return order
