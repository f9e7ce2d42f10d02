"""Sphinx extension: an image `NAME-light.svg` on a page is replaced by `NAME-dark.svg` in the dark
theme. `scripts/pictures.py` draws both.
"""

from __future__ import annotations

from typing import Any

from docutils import nodes
from sphinx.transforms import SphinxTransform


class DarkPictures(SphinxTransform):
    """Put the dark version of each picture next to the light one."""

    default_priority = 200  # before Sphinx collects images

    def apply(self, **kwargs: Any) -> None:
        for light in list(self.document.findall(nodes.image)):
            name, is_pair, ending = light["uri"].rpartition("-light.")
            if is_pair:
                dark = light.deepcopy()
                dark["uri"] = f"{name}-dark.{ending}"
                light["classes"].append("only-light")
                dark["classes"].append("only-dark")
                light.parent.insert(light.parent.index(light) + 1, dark)


def setup(app: Any) -> dict[str, bool]:
    """Called by Sphinx."""
    app.add_transform(DarkPictures)
    return {"parallel_read_safe": True}
