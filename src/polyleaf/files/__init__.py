"""Files of data: opened, told apart, read and written; what their columns mean to a model."""

from __future__ import annotations

from polyleaf.files import xmc

__all__ = ["xmc"]
