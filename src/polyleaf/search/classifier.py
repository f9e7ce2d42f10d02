"""PolyleafClassifierCV: the classifier that chooses its own parameters."""

from __future__ import annotations

from typing import Any, ClassVar

from polyleaf.estimators import PolyleafClassifier
from polyleaf.search.base import Searches, document_search
from polyleaf.settings.param_spec import make_constraints
from polyleaf.settings.parameters import ClassifierSearchParameters

__all__ = ["PolyleafClassifierCV"]


@document_search
class PolyleafClassifierCV(Searches, PolyleafClassifier, ClassifierSearchParameters):
    """`PolyleafClassifier` with the parameters that do best on folds of the data it is fitted on.

    What is set to other than its default is the same for all candidates.

    {parameters}

    Attributes
    ----------
    {search_attributes}
    {attributes}

    Examples
    --------
    >>> from polyleaf import PolyleafClassifierCV
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> model = PolyleafClassifierCV(n_candidates=3, n_estimators=30).fit(X, y)
    >>> model.predict_proba(X).shape, len(model.leaderboard_)
    ((150, 3), 3)
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = make_constraints(ClassifierSearchParameters)
    _plain = PolyleafClassifier
