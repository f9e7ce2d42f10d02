"""Sphinx extension: equations as MathML, which browsers draw without scripts or network."""

from __future__ import annotations

from typing import Any

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml


def setup(app: Any) -> dict[str, bool]:
    """Called by Sphinx."""
    app.add_html_math_renderer(
        "mathml", inline_renderers=(_visit_math, None), block_renderers=(_visit_block, None)
    )
    return {"parallel_read_safe": True}


def _visit_math(translator: Any, node: nodes.math) -> None:
    translator.body.append(tex2mathml(node.astext()))
    raise nodes.SkipNode


def _visit_block(translator: Any, node: nodes.math_block) -> None:
    translator.body.append(
        f'<div class="equation">{tex2mathml(node.astext(), as_block=True)}</div>'
    )
    raise nodes.SkipNode
