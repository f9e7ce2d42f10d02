"""An HTML report of a model and its accuracy on some rows."""

from __future__ import annotations

import os
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sklearn.utils.validation import check_is_fitted

from polyleaf.estimators.ranker import PolyleafRanker
from polyleaf.inspection.plotting.display import get_evaluation_offset
from polyleaf.inspection.report.report_data import (
    MultiTaskReportData,
    RankingReportData,
    SingleTaskReportData,
)
from polyleaf.inspection.report.sections import (
    make_multitask_sections,
    make_ranking_sections,
    make_sections,
    render_page,
)
from polyleaf.runtime.compatibility import polyleaf_version
from polyleaf.user_data.queries import get_query_ids

if TYPE_CHECKING:
    from polyleaf.estimators.base import PolyleafEstimator
    from polyleaf.runtime.types import DataLike

__all__ = ["Report", "make_report"]


class Report:
    """A page of HTML about a model.

    Attributes
    ----------
    html : str
    """

    def __init__(self, html: str) -> None:
        self.html = html

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the page to the file `path` (UTF-8)."""
        Path(path).write_text(self.html, "utf-8", newline="\n")

    def _repr_html_(self) -> str:
        frame = 'style="width:100%;height:40rem;border:1px solid #8888"'
        return f'<iframe {frame} sandbox="" srcdoc="{escape(self.html)}"></iframe>'

    def __repr__(self) -> str:
        return f"<polyleaf.Report of {len(self.html) / 1000:.0f} kB: save(path)>"


def make_report(
    estimator: PolyleafEstimator,
    X: DataLike,
    y: DataLike,
    *,
    qid: Any = None,
    group: Any = None,
    offset: DataLike | None = None,
    title: str | None = None,
) -> Report:
    """Make a page about a model and its accuracy on some rows.

    Parameters
    ----------
    estimator : fitted PolyleafRegressor, PolyleafClassifier, PolyleafMultiTask or PolyleafRanker
    X, y
        Rows that are not in the training data. For several tasks the page has a section for each,
        on the rows whose class is known.
    qid, group : optional
        Queries of the rows, for a ranker: see :meth:`polyleaf.PolyleafRanker.fit`.
    offset : optional
        See `predict`: for a model that was trained with offsets.
    title : str, optional
        The title of the page.

    Returns
    -------
    Report
        Without scripts or external resources, and with the same bytes for the same model and rows.

    Raises
    ------
    ValueError
        If X and y do not fit the training data, or y is sparse.
    ImportError
        If matplotlib is not installed.

    Examples
    --------
    >>> from polyleaf import PolyleafRegressor
    >>> from polyleaf.datasets import load
    >>> from polyleaf.inspection import make_report
    >>> X, X_test, y, y_test = load("energy").split()
    >>> page = make_report(PolyleafRegressor(n_estimators=20).fit(X, y), X_test, y_test)
    >>> len(page.html) < 1_000_000
    True
    """
    check_is_fitted(estimator)
    offset = get_evaluation_offset(estimator, X, y, offset)
    data: SingleTaskReportData | MultiTaskReportData | RankingReportData
    if isinstance(estimator, PolyleafRanker):
        data = RankingReportData(estimator, X, y, get_query_ids(X, qid, group), offset)
        content = make_ranking_sections(data)
    elif estimator.model_.objective.tasks:
        data = MultiTaskReportData(estimator, X, y, offset)
        content = make_multitask_sections(data)
    else:
        data = SingleTaskReportData(estimator, X, y, offset)
        content = make_sections(data)
    lead = f"{data.description}, evaluated on {data.n_rows:,} rows."
    foot = f"Made by Polyleaf {polyleaf_version()}."
    heading = title or f"Report: {type(estimator).__name__}"
    return Report(render_page(heading, lead, content, foot))
