"""What a report is made of, and what it is as a file.

Owns the order of the sections and the way to a file. Must not know what they say (`sections`), or how HTML
looks (`page`).
"""

from __future__ import annotations

import os
from html import escape
from pathlib import Path
from typing import Any

from sklearn.utils.validation import check_is_fitted

from polyleaf.inspection.plotting.display import resolve_offset
from polyleaf.inspection.report import sections
from polyleaf.inspection.report.page import page
from polyleaf.inspection.report.subject import MultiTaskReportData, SingleTaskReportData
from polyleaf.model.serialize import polyleaf_version

__all__ = ["Report", "report"]


class Report:
    """A page of HTML about a model, complete in itself.

    Attributes
    ----------
    html : str
    """

    def __init__(self, html: str) -> None:
        self.html = html

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it to the file `path` (UTF-8)."""
        Path(path).write_text(self.html, "utf-8", newline="\n")

    def _repr_html_(self) -> str:
        frame = 'style="width:100%;height:40rem;border:1px solid #8888"'
        return f'<iframe {frame} sandbox="" srcdoc="{escape(self.html)}"></iframe>'

    def __repr__(self) -> str:
        return f"<polyleaf.Report of {len(self.html) / 1000:.0f} kB: save(path)>"


def report(
    estimator: Any, X: Any, y: Any, *, offset: Any = None, title: str | None = None
) -> Report:
    """What a model is and how good it is on some rows, on one page.

    Parameters
    ----------
    estimator : fitted PolyleafRegressor, PolyleafClassifier or PolyleafMultiTask
    X, y
        Rows that training did not see. Of tasks a section each, on the rows whose class is known.
    offset : optional
        As in `predict`: for a model that was trained with one.
    title : str, optional
        Of the page.

    Returns
    -------
    Report
        It asks for nothing elsewhere, has no scripts, and is the same bytes for the same model and rows.

    Raises
    ------
    ValueError
        Where X and y are not like the training data, or y is sparse.
    ImportError
        Where matplotlib is not installed.

    Examples
    --------
    >>> from polyleaf import PolyleafRegressor
    >>> from polyleaf.datasets import load
    >>> from polyleaf.inspection.report import report
    >>> X, X_test, y, y_test = load("energy").split()
    >>> page = report(PolyleafRegressor(n_estimators=20).fit(X, y), X_test, y_test)
    >>> len(page.html) < 1_000_000
    True
    """
    check_is_fitted(estimator)
    offset = resolve_offset(estimator, X, y, offset)
    subject: SingleTaskReportData | MultiTaskReportData
    if estimator.model_.objective.tasks:
        subject = MultiTaskReportData(estimator, X, y, offset)
        found = sections.all_of_tasks(subject)
    else:
        subject = SingleTaskReportData(estimator, X, y, offset)
        found = [section for make in sections.ALL if (section := make(subject)) is not None]
    lead = f"{subject.description}, measured on {subject.n_rows:,} rows."
    foot = f"Made by Polyleaf {polyleaf_version()}."
    return Report(page(title or f"Report: {type(estimator).__name__}", lead, found, foot))
