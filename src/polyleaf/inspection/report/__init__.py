"""An HTML report of a model and its accuracy on some rows."""

from __future__ import annotations

from polyleaf.inspection.report.report import Report, make_report

__all__ = ["Report", "make_report"]
