"""A trained model as data: forest, bins, link; prediction, files, and what can be read off it."""

from __future__ import annotations

from polyleaf.model.model import Model

__all__ = ["Model"]
