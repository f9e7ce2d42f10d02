"""A model and how good it is, on one page of HTML that needs nothing else."""

from __future__ import annotations

from polyleaf.inspection.report.report import Report, report

__all__ = ["Report", "report"]
